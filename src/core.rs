//! What all brokers of one database share in one context: the store, the catalogue, the commits under way, the locks.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use futures_util::future::LocalBoxFuture;

use crate::cache::{Heads, Lanes, Routes, Runs};
use crate::clock::{Clock, Pulse, Timer};
use crate::commit::GroupCommit;
use crate::definitions::{self, Catalog};
use crate::delayed::{DelayedMessageStore, DelayedSettings, StorePoller};
use crate::error::{Error, ErrorCode, Result};
use crate::group::{GroupLocks, Locking, Sharing};
use crate::ids::{self, Ids};
use crate::lease::Leases;
use crate::notice::{Critical, Notice};
use crate::poller::{Poller, first_due};
use crate::recoverability::Thrown;
use crate::stats::Tally;
use crate::store::{Key, Mode, Store, StoreName, Tx, transact};
use crate::suspend::{Gate, gated};
use crate::sweep::DeadEntries;
use crate::transaction::{Loss, Transaction};
use crate::transmission::Transmission;
use crate::waiting::Bell;
use crate::work::{Number, Numbers};

/// Conversation numbers are claimed in blocks of this size; what a context does not use is never used.
pub(crate) const CONVERSATIONS: u64 = 4_096;

/// Everything the rules need and do not have: storage, time, chance, a place to run.
#[derive(Clone)]
pub struct Host {
    /// What the broker is called: it is said in messages that failed.
    pub name: Rc<str>,
    /// Where records are kept.
    pub store: Rc<dyn Store>,
    /// The present.
    pub clock: Rc<dyn Clock>,
    /// To wait with.
    pub timer: Rc<dyn Timer>,
    /// Random bytes.
    pub ids: Rc<dyn Ids>,
    /// What keeps other contexts from the groups that this one reads.
    pub sharing: Sharing,
    /// Real time, to tell the living from the dead by.
    pub pulse: Pulse,
    /// Settings of delayed delivery.
    pub delayed: DelayedSettings,
    /// Where delayed messages wait, if not in the broker's database.
    pub delayed_store: Option<Rc<dyn DelayedMessageStore>>,
    /// Whether nobody sees the context, so that its timers may be late.
    pub is_hidden: Rc<dyn Fn() -> bool>,
    /// Runs a task beside the caller.
    pub spawn: Rc<dyn Fn(LocalBoxFuture<'static, ()>)>,
    /// Tells other contexts what a commit touched. A hint: nothing depends on its arrival.
    pub wake: Rc<dyn Fn(&Notice)>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

/// Gets every notice.
pub type Listener = Rc<dyn Fn(&Notice)>;

/// Called once, when the database is gone: `true` if it may have been deleted while the page slept, `false` if the browser has thrown it away.
pub(crate) type OnLost = Rc<dyn Fn(bool)>;

pub(crate) struct Core {
    pub(crate) host: Host,
    pub(crate) instance_id: Rc<str>,
    pub(crate) locks: GroupLocks,
    /// `None`: there is nobody to show them to.
    pub(crate) leases: Option<Rc<Leases>>,
    /// Whether signs of life are given.
    pub(crate) is_beating: Cell<bool>,
    pub(crate) bell: Bell,
    pub(crate) commits: GroupCommit,
    pub(crate) runs: Runs,
    pub(crate) heads: Heads,
    pub(crate) routes: Routes,
    pub(crate) lanes: Lanes,
    pub(crate) dead: DeadEntries,
    pub(crate) poller: Poller,
    /// Of a store of the application's own.
    pub(crate) stored: StorePoller,
    pub(crate) transmission: Transmission,
    /// A record that could not be read, and was passed over: it is to be mended.
    pub(crate) passed_over: RefCell<Option<Error>>,
    /// Brokers that are not closed.
    pub(crate) brokers: Cell<u32>,
    pub(crate) closed: Cell<bool>,
    /// Closed while the page sleeps. The host's store and locks are behind it.
    pub(crate) gate: Rc<Gate>,
    transactions: RefCell<Vec<Weak<Transaction>>>,
    /// Of the brokers that are open.
    pub(crate) tallies: RefCell<Vec<Weak<Tally>>>,
    /// The connection that is known to lead to this broker's database, and how often the page had slept by then.
    connection: Cell<(u64, u64)>,
    on_lost: RefCell<Option<OnLost>>,
    catalog: RefCell<Rc<Catalog>>,
    /// The next conversation number, and the end of the block that it is from.
    conversations: Cell<(u64, u64)>,
    listeners: RefCell<Vec<(u64, Listener)>>,
    counter: Cell<u64>,
}

/// Claims numbers in a storage transaction of its own.
async fn claim(tx: &Tx, number: Number, count: u64) -> Result<u64> {
    let mut numbers = Numbers::read(tx.get(StoreName::Meta, &Numbers::key()).await?.as_ref())?;
    let first = numbers.claim(number, count);
    tx.put(StoreName::Meta, Numbers::key(), numbers.record());
    Ok(first)
}

impl Core {
    /// Opens the database: gives it its birth record if it has none, and reads the definitions. Independent of the number of rows.
    pub(crate) async fn open(host: Host) -> Result<Rc<Self>> {
        let gate = Rc::<Gate>::default();
        let host = gated(host, &gate);
        let scope = [StoreName::Meta, StoreName::Definitions, StoreName::Queues, StoreName::Due, StoreName::Delayed];
        let ids = Rc::clone(&host.ids);
        let ((instance_id, catalog), due) = transact(&*host.store, &scope, Mode::ReadWrite, async |tx| {
            let birth = definitions::birth(tx, &*ids).await?;
            Ok::<_, Error>((birth, first_due(tx, host.clock.now()).await?))
        })
        .await?;
        let is_shared = !matches!(host.sharing, Sharing::Alone);
        let leases = is_shared.then(|| Rc::new(Leases::new(&host, ids::text(host.ids.uuid()))));
        let core = Self {
            instance_id,
            locks: GroupLocks::new(host.sharing.clone(), leases.clone()),
            leases,
            is_beating: Cell::new(false),
            bell: Bell::default(),
            commits: GroupCommit::default(),
            runs: Runs::default(),
            heads: Heads::default(),
            routes: Routes::default(),
            lanes: Lanes::default(),
            dead: DeadEntries::default(),
            poller: Poller::default(),
            stored: StorePoller::default(),
            transmission: Transmission::default(),
            passed_over: RefCell::default(),
            brokers: Cell::new(0),
            closed: Cell::new(false),
            gate,
            transactions: RefCell::default(),
            tallies: RefCell::default(),
            connection: Cell::new((1, 0)),
            on_lost: RefCell::default(),
            catalog: RefCell::new(Rc::new(catalog)),
            conversations: Cell::new((0, 0)),
            listeners: RefCell::default(),
            counter: Cell::new(0),
            host,
        };
        let core = Rc::new(core);
        core.initialize_store().await?;
        if let Sharing::Locks(locks) = &core.host.sharing {
            let core = Rc::downgrade(&core);
            locks.on_lost(Rc::new(move |group| _ = core.upgrade().map(|core| core.lost(group, None))));
        }
        crate::sweep::resume(&core);
        due.into_iter().for_each(|at| core.poll_by(at));
        Ok(core)
    }

    /// After a lost connection: whether the database is still the one that was opened. A browser may have thrown it away.
    pub(crate) async fn check_database(&self, tx: &Tx) -> Result<()> {
        let (connection, closings) = (self.host.store.connections(), self.gate.closings());
        let (known, slept) = self.connection.get();
        if connection == known {
            return Ok(());
        }
        let birth = tx.get(StoreName::Meta, &Key::from("birth")).await?;
        if birth.and_then(|birth| birth.item(1).text()).as_deref() == Some(&*self.instance_id) {
            self.connection.set((connection, closings));
            return Ok(());
        }
        self.closed.set(true);
        let on_lost = self.on_lost.take();
        // While the page slept, nobody told it who was at work.
        let was_deleted = slept != closings;
        on_lost.into_iter().for_each(|lost| lost(was_deleted));
        if was_deleted {
            return Err(Error::closed());
        }
        let text = "The browser has thrown the database away: what was stored in it is gone. Open the broker again to begin with an empty one.";
        Err(Error::new(ErrorCode::StorageLost, text).with("outcome", "nothing was done"))
    }

    pub(crate) fn on_lost(&self, lost: OnLost) {
        self.on_lost.replace(Some(lost));
    }

    /// Whether anybody may ask for something now.
    pub(crate) fn is_open(&self) -> bool {
        self.brokers.get() > 0 && !self.closed.get() && !self.gate.is_closed()
    }

    pub(crate) fn catalog(&self) -> Rc<Catalog> {
        Rc::clone(&self.catalog.borrow())
    }

    /// Keeps a catalogue, unless a later one is known. Whether it is the present one shows at every queue's record.
    pub(crate) fn keep_catalog(&self, catalog: Rc<Catalog>) {
        let mut known = self.catalog.borrow_mut();
        if catalog.stamp >= known.stamp {
            *known = catalog;
        }
    }

    /// A conversation number that nobody has ever had.
    pub(crate) async fn conversation_number(self: &Rc<Self>) -> Result<u64> {
        let mut mended = None;
        loop {
            if let Some(number) = self.next_number() {
                return Ok(number);
            }
            let claim = self.transact(&[StoreName::Meta], Mode::ReadWrite, async |tx| {
                claim(tx, Number::Conversation, CONVERSATIONS).await
            });
            let claimed = match claim.await {
                Err(error) if self.mend(&error, &mut mended).await? => continue,
                claimed => claimed?,
            };
            // Another BEGIN may have claimed a block meanwhile: one of the two goes unused.
            self.conversations.set((claimed, claimed + CONVERSATIONS));
        }
    }

    /// The next number of the block that this context has, if there is one left.
    pub(crate) fn next_number(&self) -> Option<u64> {
        let (next, end) = self.conversations.get();
        self.conversations.set((next + u64::from(next < end), end));
        (next < end).then_some(next)
    }

    /// Keeps what is left of a block that was claimed by a commit.
    pub(crate) fn keep_block(&self, block: (u64, u64)) {
        let (next, end) = self.conversations.get();
        if end - next < block.1 - block.0 {
            self.conversations.set(block);
        }
    }

    /// A storage transaction was rolled back: what was remembered from within it is wrong, and bodies that were handed out with it are not
    /// handed out again but read anew.
    pub(crate) fn forget_uncommitted(&self) {
        self.runs.clear();
        self.heads.clear();
    }

    /// A number that is unique in this context.
    pub(crate) fn unique(&self) -> u64 {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    pub(crate) fn add(&self, transaction: &Rc<Transaction>) {
        let mut transactions = self.transactions.borrow_mut();
        transactions.retain(|transaction| transaction.strong_count() > 0);
        transactions.push(Rc::downgrade(transaction));
    }

    /// Of all brokers, those that somebody still has.
    pub(crate) fn transactions(&self) -> Vec<Rc<Transaction>> {
        self.transactions.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// A call that may lock groups.
    pub(crate) fn locking(&self) -> Locking<'_> {
        Locking { locks: &self.locks, call: self.unique() }
    }

    /// Rolls back the transactions that can't commit any more.
    pub(crate) fn lose(&self, loss: Loss, is_meant: impl Fn(&Transaction) -> bool) {
        let lost = self.transactions();
        lost.iter().filter(|transaction| is_meant(transaction)).for_each(|transaction| transaction.lose(loss));
    }

    pub(crate) fn listen(&self, listener: Listener) -> u64 {
        let number = self.unique();
        self.listeners.borrow_mut().push((number, listener));
        number
    }

    pub(crate) fn forget(&self, number: u64) {
        self.listeners.borrow_mut().retain(|(other, _)| *other != number);
    }

    /// Tells this context what a commit touched.
    pub(crate) fn tell(&self, notice: &Notice) {
        self.bell.ring(&notice.queues);
        // A copy: a listener may open or close brokers.
        let listeners = self.listeners.borrow().clone();
        listeners.iter().for_each(|(_, listener)| listener(notice));
    }

    /// Tells whoever is open of trouble that is no message's fault.
    pub(crate) fn warn(self: &Rc<Self>, source: &str, error: Thrown) {
        let critical = vec![Critical { source: source.into(), error }];
        self.announce(&Notice { critical, ..Notice::default() });
    }

    /// Tells this context and the others.
    pub(crate) fn announce(self: &Rc<Self>, notice: &Notice) {
        if !notice.is_empty() {
            (self.host.wake)(notice);
            self.tell(notice);
            notice.due.into_iter().for_each(|at| self.poll_by(at));
            if notice.hop {
                self.pump_by();
            }
            if notice.outgoing {
                self.transmit_by();
            }
        }
    }
}
