//! Leases: records in `meta` that say which context holds a group, and until when the others have to believe it.
//!
//! Where the origin has locks, only a group that is held for long has one: the sign of life of its holder, who may be frozen or wedged. Where
//! it has none (plain http), the lease is the lock. Either way it is no more than a promise: what protects messages is the commit of
//! `verbs/take.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use num_traits::ToPrimitive;

use crate::body::Value;
use crate::clock::Instant;
use crate::core::Host;
use crate::error::Result;
use crate::group::Sharing;
use crate::notice::Notice;
use crate::reads::Reads;
use crate::record::{self, Fields, Read};
use crate::stop::Outcome;
use crate::store::{Bound, Change, Key, Mode, Range, StoreName, Tx, transact};
use crate::transaction::Loss;
use crate::work::Work;

/// So long after a sign of life a holder counts as alive, in milliseconds.
pub(crate) const LIFE: f64 = 150_000.0;
/// By so much the clocks of two contexts of one machine may differ, in milliseconds: browsers blur them.
pub(crate) const BLUR: f64 = 1_000.0;
/// Leases that are looked through at a time for those of contexts that died.
const MANY: usize = 64;
/// Whoever waits for a lease looks at it this often, in milliseconds: nobody tells of the end of a short one, or of a holder that has died.
const LOOK: f64 = 500.0;

/// A group that this context holds, and the number that this holding has in it.
pub(crate) type Holding = (Rc<str>, u64);

/// The leases of one context.
pub(crate) struct Leases {
    host: Host,
    /// This context.
    context: Rc<str>,
    /// How far they were looked through for those of contexts that died; `None`: from the first on.
    looked: RefCell<Option<Key>>,
    /// How many are being given back, and who waits for the last one.
    leaving: Cell<u32>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
}

/// A lease as it is stored.
#[derive(Debug, PartialEq)]
struct Lease {
    context: Rc<str>,
    number: u64,
    until: Instant,
}

impl Lease {
    fn read(record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        Ok(Self { context: fields.text()?, number: fields.number()?, until: fields.float()? })
    }

    fn record(&self) -> Value {
        Value::list(vec![
            Value::from(1u32),
            Value::from(&*self.context),
            record::value(self.number),
            Value::from(self.until),
        ])
    }

    fn is(&self, context: &str, number: u64) -> bool {
        *self.context == *context && self.number == number
    }

    /// Its holder may only be late: a page that has slept comes back and shows that it is alive.
    fn may_come_back(&self, now: Instant) -> bool {
        self.until + LIFE > now && self.until <= now + LIFE + BLUR
    }

    /// One that lies further ahead than a life is of a clock that was set back since.
    fn is_alive(&self, now: Instant) -> bool {
        self.until > now && self.until <= now + LIFE + BLUR
    }
}

fn key(group: &str) -> Key {
    Key::list(["lease".into(), group.into()])
}

/// A lease, if there is one that can be read: what can't be is nobody's.
async fn find(tx: &Tx, group: &str) -> Result<Option<Lease>> {
    Ok(tx.get(StoreName::Meta, &key(group)).await?.and_then(|record| Lease::read(&record).ok()))
}

impl Leases {
    pub(crate) fn new(host: &Host, context: Rc<str>) -> Self {
        let (looked, leaving, waiting) = Default::default();
        Self { host: host.clone(), context, looked, leaving, waiting }
    }

    pub(crate) fn now(&self) -> Instant {
        self.host.pulse.clock.now()
    }

    /// Resolves after so many milliseconds of real time.
    pub(crate) fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        self.host.pulse.timer.sleep(ms)
    }

    fn lease(&self, number: u64) -> Lease {
        Lease { context: Rc::clone(&self.context), number, until: self.now() + LIFE }
    }

    /// Whether there is nothing else that keeps others out.
    fn is_lock(&self) -> bool {
        matches!(self.host.sharing, Sharing::Leases)
    }

    fn is_others(&self, lease: &Lease) -> bool {
        lease.context != self.context && lease.is_alive(self.now())
    }

    async fn change<T>(&self, work: impl AsyncFnOnce(&Tx) -> Result<T>) -> Result<T> {
        transact(&*self.host.store, &[StoreName::Meta], Mode::Relaxed, work).await
    }

    /// Takes a group from whoever shows no sign of life any more. `Some`: until when its holder has to be believed.
    pub(crate) async fn take(&self, group: &str, number: u64) -> Result<Option<Instant>> {
        self.change(async |tx| {
            let until = find(tx, group).await?.filter(|lease| self.is_others(lease)).map(|lease| lease.until);
            if until.is_none() {
                tx.put(StoreName::Meta, key(group), self.lease(number).record());
            }
            Ok(until)
        })
        .await
    }

    /// Resolves when no other context holds the group any more, as far as its lease says.
    pub(crate) async fn wait(&self, group: &str) {
        loop {
            self.sleep(LOOK).await;
            let store = &*self.host.store;
            let lease = transact(store, &[StoreName::Meta], Mode::ReadOnly, async |tx| find(tx, group).await).await;
            // Whoever waits hears from the store himself what is wrong with it.
            if !lease.is_ok_and(|lease| lease.is_some_and(|lease| self.is_others(&lease))) {
                return;
            }
        }
    }

    /// A sign of life for all of these; `true`: it should have a lease already. Gives those that another context has taken over. Deletes what contexts
    /// that died have left, some at a time.
    pub(crate) async fn renew(&self, holdings: &[(Holding, bool)]) -> Result<Vec<Holding>> {
        self.change(async |tx| {
            let (mut lost, now) = (Vec::new(), self.now());
            let mut range = Range::prefix(vec!["lease".into()]);
            let last = self.looked.borrow().clone();
            range.lower = last.map_or(range.lower, Bound::Excluding);
            let keys = tx.get_keys(StoreName::Meta, &range, MANY.to_u32()).await?;
            self.looked.replace(keys.get(MANY - 1).cloned());
            for key in keys {
                let record = tx.get(StoreName::Meta, &key).await?;
                let lease = record.and_then(|record| Lease::read(&record).ok());
                // This context's own may be overdue: that is what this sign of life is for.
                if lease.is_none_or(|lease| lease.context != self.context && !lease.may_come_back(now)) {
                    tx.delete(StoreName::Meta, key);
                }
            }
            for ((group, number), has_lease) in holdings {
                let found = find(tx, group).await?;
                let is_ours = found.as_ref().is_some_and(|lease| lease.is(&self.context, *number));
                // With locks it is of one who died, whose lock this context has got.
                let is_taken = self.is_lock() && found.is_some_and(|lease| self.is_others(&lease));
                if is_taken || (*has_lease && !is_ours) {
                    lost.push((Rc::clone(group), *number));
                } else {
                    tx.put(StoreName::Meta, key(group), self.lease(*number).record());
                }
            }
            Ok(lost)
        })
        .await
    }

    /// Gives groups back, beside whatever else goes on. `is_waited_for`: the other contexts are told. (A call on its own has them for a moment only: what
    /// it does tells enough, and who told of every look would wake others to look, and they him.)
    pub(crate) fn give_back(self: &Rc<Self>, holdings: Vec<Holding>, is_waited_for: bool) {
        let this = Rc::clone(self);
        self.leaving.set(self.leaving.get() + 1);
        let give_back = async move {
            // A lease that can't be deleted ends by itself.
            let _ = this
                .change(async |tx| {
                    for (group, number) in &holdings {
                        let found = find(tx, group).await?;
                        if found.is_some_and(|lease| lease.is(&this.context, *number)) {
                            tx.delete(StoreName::Meta, key(group));
                        }
                    }
                    Ok(())
                })
                .await;
            if is_waited_for {
                this.tell();
            }
            this.leaving.set(this.leaving.get().saturating_sub(1));
            if this.leaving.get() == 0 {
                this.waiting.take().into_iter().for_each(|waiter| _ = waiter.send(()));
            }
        };
        (self.host.spawn)(give_back.boxed_local());
    }

    /// Resolves once all that is being given back is.
    pub(crate) async fn given_back(&self) {
        while self.leaving.get() > 0 {
            let (sender, receiver) = oneshot::channel();
            self.waiting.borrow_mut().push(sender);
            // However it came about: it is looked at again.
            let _ = receiver.await;
        }
    }

    /// Tells the other contexts that a group was given back.
    pub(crate) fn tell(&self) {
        (self.host.wake)(&Notice { released: true, ..Notice::default() });
    }

    /// The groups that have a living holder.
    pub(crate) async fn held(&self) -> Result<Vec<String>> {
        let now = self.now();
        transact(&*self.host.store, &[StoreName::Meta], Mode::ReadOnly, async |tx| {
            let mut held = Vec::new();
            for key in tx.get_keys(StoreName::Meta, &Range::prefix(vec!["lease".into()]), None).await? {
                let record = tx.get(StoreName::Meta, &key).await?;
                let is_alive =
                    record.and_then(|record| Lease::read(&record).ok()).is_some_and(|lease| lease.is_alive(now));
                held.extend(key.to_value().item(1).text().filter(|_| is_alive));
            }
            Ok(held)
        })
        .await
    }

    /// In the commit of a transaction: refuses when another context has taken a group over since. Otherwise the commit gives it back.
    pub(crate) fn check(&self, work: &mut Work<'_>, holdings: &[Holding]) -> Outcome<()> {
        for (group, number) in holdings {
            let record = work.get(StoreName::Meta, key(group))?;
            let lease = record.and_then(|record| Lease::read(&record).ok());
            if lease.is_none_or(|lease| !lease.is(&self.context, *number)) {
                return Err(work.at_commit(Loss::Robbed.error()).into());
            }
            work.write(Change::Delete(StoreName::Meta, key(group)));
        }
        Ok(())
    }

    /// They are to be read with whatever else a commit needs.
    pub(crate) fn want(reads: &mut Reads, holdings: &[Holding]) {
        holdings.iter().for_each(|(group, _)| reads.want(StoreName::Meta, key(group)));
    }
}
