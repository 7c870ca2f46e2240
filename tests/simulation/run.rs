//! A run: tabs come, work, freeze and die as chance has it, and every now and then all is looked at.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::FutureExt;
use pocket_broker::clock::{Clock, Pulse, Timer};
use pocket_broker::definitions::{Definitions, QueueOptions};
use pocket_broker::store::{FaultStore, Faults, MemoryStore, Store};
use pocket_broker::{Broker, DelayedSettings, Host, Locks, Sharing};

use crate::actor::Actor;
use crate::conformance::random::model::{BIN, PLACES, World, rules};
use crate::conformance::support::host::{block_on, host, ids};
use crate::conformance::support::shop::definitions;
use crate::deploys::NEW;
use crate::executor::TabId;
use crate::explain::Search;
use crate::journal::JournalStore;
use crate::ledger::Ledger;
use crate::look::{Look, look};
use crate::model::Model;
use crate::origin::{Kind, Origin, Violation, post};
use crate::sabotage::Sabotage;
use crate::time::TabTimer;

mod finish;
mod rest;
mod storm;

const TABS: usize = 3;
const ACTORS: usize = 2;
/// Most looks in a run, and turns of the executor between two of them.
const EPOCHS: u64 = 3;
const TURNS: usize = 250;
/// A call that takes more turns than this hangs.
const PATIENCE: usize = 20_000;

/// What keeps the tabs of a run from each other, beside their commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shared {
    Nothing,
    Leases,
    Locks,
}

pub(super) struct Tab {
    id: TabId,
    broker: Rc<RefCell<Option<Rc<Broker>>>>,
    faults: Faults,
    is_frozen: bool,
    /// It has let go of everything.
    is_away: bool,
    is_hidden: Rc<Cell<bool>>,
    /// It waits for an answer that will never come.
    is_doomed: bool,
    /// What was stored before, it has been told of. `None`: it is not open.
    knows_until: Rc<Cell<Option<f64>>>,
}

pub(crate) struct Run {
    origin: Rc<Origin>,
    store: MemoryStore,
    tabs: Vec<Tab>,
    lives: TabId,
    sharing: Shared,
    has_faults: bool,
    /// Everybody does at once what there is to do.
    is_at_rest: bool,
    /// How often a dispatch is tried again. Where the storage fails, nobody could say whether it was the last time.
    retries: u64,
    /// What may be there: usually one.
    models: Vec<Model>,
    /// The events that were looked at.
    seen: usize,
    ledger: Ledger,
}

/// How much has happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) turns: u64,
    pub(crate) commits: usize,
    pub(crate) lives: TabId,
}

/// Runs a seed.
pub(crate) fn run(seed: u64, sabotage: Option<Sabotage>, is_told: bool) -> Result<Summary, Violation> {
    let origin = Rc::new(Origin::new(seed, sabotage, is_told));
    let (has_faults, has_bin) = (!origin.counts_failures, origin.mix.has_lanes());
    let store = MemoryStore::new();
    block_on(async {
        let store: Rc<dyn Store> = Rc::new(store.clone());
        let broker = Broker::open(host(store, seed.wrapping_add(1)).host).await.expect("the broker opens");
        broker.define(definitions()).await.expect("the definitions are right");
        if has_bin {
            let bin = vec![(PLACES[BIN].into(), QueueOptions::default())];
            broker.define(Definitions { queues: bin, ..Definitions::default() }).await.expect("the queue can be made");
        } else {
            // A service that has a priority can't be dropped.
            let rules = Definitions { priorities: rules(), ..Definitions::default() };
            broker.define(rules).await.expect("the rules are right");
        }
        for name in PLACES.into_iter().filter(|name| has_bin || *name != PLACES[BIN]) {
            broker.alter_queue(name, origin.poison()).await.expect("the queue is there");
        }
        broker.close().await;
    });
    let world = World { queues: vec![NEW; PLACES.len()], ..World::default() };
    let mut run = Run {
        store,
        tabs: Vec::new(),
        lives: 0,
        sharing: match origin.below(8) {
            _ if sabotage == Some(Sabotage::Fence) => Shared::Nothing,
            0 => Shared::Nothing,
            1 | 2 => Shared::Leases,
            _ => Shared::Locks,
        },
        has_faults,
        is_at_rest: false,
        retries: if has_faults { u64::from(u32::MAX) } else { origin.below(2) as u64 },
        models: vec![Model::of(world, has_bin, origin.shelf.is_some())],
        seen: 0,
        ledger: Ledger::new(origin.has_jumps),
        origin,
    };
    (0..TABS).for_each(|_| run.open_tab());
    for _ in 0..=seed % EPOCHS {
        run.work()?;
        run.calm_down()?;
        run.rest()?;
        run.check()?;
        run.origin.shelf.iter().for_each(|shelf| shelf.fall_ill());
        run.origin.open_gate();
    }
    run.finish()
}

impl Run {
    // ── tabs ──

    fn open_tab(&mut self) {
        let tab = self.new_tab();
        let (origin, id, broker) = (Rc::clone(&self.origin), tab.id, Rc::clone(&tab.broker));
        let knows_until = Rc::clone(&tab.knows_until);
        let host = self.host_of(&tab);
        self.tabs.push(tab);
        let boot = async move {
            let (opened, since) = open(&origin, id, host).await;
            knows_until.set(Some(since));
            broker.replace(Some(Rc::clone(&opened)));
            for _ in 0..ACTORS {
                let actor = Actor { origin: Rc::clone(&origin), tab: id, broker: Rc::clone(&opened) };
                origin.tasks.spawn(id, actor.act().boxed_local());
            }
        };
        self.origin.tasks.spawn(id, boot.boxed_local());
    }

    fn new_tab(&mut self) -> Tab {
        self.lives += 1;
        self.origin.tell(|| format!("tab {} comes", self.lives));
        if self.sharing != Shared::Locks {
            self.origin.readers.outlaw(self.lives);
        }
        Tab {
            id: self.lives,
            broker: Rc::default(),
            faults: Faults::new(),
            is_frozen: false,
            is_away: false,
            is_hidden: Rc::default(),
            is_doomed: false,
            knows_until: Rc::default(),
        }
    }

    fn host_of(&self, tab: &Tab) -> Host {
        let (origin, id) = (Rc::clone(&self.origin), tab.id);
        let memory: Rc<dyn Store> = Rc::new(self.store.clone());
        let inner = match &self.origin.saboteur {
            Some(saboteur) => {
                let origin = Rc::clone(&origin);
                saboteur.store(memory, id, Rc::new(move || origin.history.commits(id)))
            }
            None => memory,
        };
        let journaled = JournalStore { inner, journal: Rc::clone(&origin.journal), tab: id };
        let own: Rc<dyn Locks> = Rc::new(origin.locks.of_tab(id));
        let locks = match &self.origin.saboteur {
            Some(saboteur) => saboteur.locks(own),
            None => own,
        };
        let (tasks, postman) = (Rc::clone(&origin.tasks), Rc::clone(&origin));
        let is_hidden = Rc::clone(&tab.is_hidden);
        Host {
            name: "shop".into(),
            store: Rc::new(FaultStore::new(Rc::new(journaled), tab.faults.clone())),
            clock: Rc::<crate::time::Wall>::clone(&origin.clock),
            timer: Rc::new(TabTimer { time: Rc::clone(&origin.time), tab: id }),
            ids: ids(id.wrapping_mul(977).wrapping_add(self.origin.below(1 << 30) as u64)),
            sharing: match self.sharing {
                Shared::Nothing => Sharing::Alone,
                Shared::Leases => Sharing::Leases,
                Shared::Locks => Sharing::Locks(locks),
            },
            delayed: DelayedSettings { number_of_retries: self.retries, ..DelayedSettings::default() },
            delayed_store: origin.shelf.as_ref().map(|shelf| shelf.of_tab(id)),
            is_hidden: Rc::new(move || is_hidden.get()),
            pulse: Pulse {
                clock: Rc::<crate::time::Time>::clone(&origin.time),
                timer: Rc::new(TabTimer { time: Rc::clone(&origin.time), tab: id }),
            },
            spawn: Rc::new(move |task| tasks.spawn(id, task)),
            wake: Rc::new(move |notice| post(&postman, id, notice)),
        }
    }

    fn may_run(&self) -> impl Fn(TabId) -> bool + use<> {
        let frozen: Vec<TabId> = self.tabs.iter().filter(|tab| tab.is_frozen).map(|tab| tab.id).collect();
        move |tab| !frozen.contains(&tab)
    }

    // ── what happens ──

    fn work(&mut self) -> Result<(), Violation> {
        for _ in 0..if self.origin.shelf.is_some() { 2 * TURNS } else { TURNS } {
            self.disturb();
            self.turn();
            self.origin.violation.take().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Lets somebody go on, or time pass. False: nobody can, and nothing is due.
    fn turn(&mut self) -> bool {
        self.deliver_mail();
        let ready = self.origin.tasks.ready(self.may_run());
        let is_quiet = self.origin.journal.is_quiet();
        if ready.is_empty() || (is_quiet && !self.is_at_rest && self.origin.one_in(40)) {
            let next = self.origin.time.next(self.may_run());
            match next.filter(|_| is_quiet) {
                Some(next) if ready.is_empty() => self.pass_time(next),
                Some(next) => self.origin.time.advance_to(next, self.may_run()),
                None if ready.is_empty() => {
                    return self.unblock()
                        || next.is_some_and(|next| {
                            self.origin.time.advance_to(next, self.may_run());
                            true
                        });
                }
                None => {}
            }
            return true;
        }
        let task = ready[self.origin.below(ready.len())];
        let turns = &self.origin.readers.turn;
        turns.set(turns.get() + 1);
        let woken = self.origin.tasks.poll(task);
        self.origin.journal.note_woken(&woken);
        true
    }

    fn deliver_mail(&self) {
        if self.origin.mail.borrow().is_empty() || !self.origin.one_in(3) {
            return;
        }
        let (from, notice) = self.origin.mail.borrow_mut().remove(0);
        for tab in self.tabs.iter().filter(|tab| tab.id != from && !tab.is_frozen && !tab.is_away) {
            // A hint may get lost.
            let broker = tab.broker.borrow().clone().filter(|_| !self.origin.one_in(10));
            if let Some(broker) = broker {
                if notice.released {
                    broker.released_elsewhere();
                }
                broker.hear(&notice.queues);
                notice.due.into_iter().for_each(|at| broker.due_elsewhere(at));
                if notice.hop {
                    broker.hop_elsewhere();
                }
                notice.role.iter().for_each(|role| broker.hear_of_role(role));
                if notice.outgoing {
                    broker.transmission_elsewhere();
                }
            }
        }
    }

    /// Nobody begins anything; what was begun comes to its end.
    fn calm_down(&mut self) -> Result<(), Violation> {
        self.origin.close_gate();
        self.origin.tell(|| "── calm".into());
        self.tabs.iter().for_each(|tab| tab.faults.clear());
        for turn in 1..=PATIENCE {
            // Signs of life of a tab whose storage does not answer let time pass for ever.
            if turn % (PATIENCE / 8) == 0 {
                self.unblock();
            }
            self.origin.violation.take().map_or(Ok(()), Err)?;
            let running = self.origin.history.running();
            let is_idle = self.origin.tasks.ready(self.may_run()).is_empty() && self.origin.mail.borrow().is_empty();
            if running.is_empty() && is_idle && self.origin.journal.is_quiet() {
                return Ok(());
            }
            self.tabs.iter().for_each(|tab| tab.faults.release());
            self.thaw(|tab| running.iter().any(|record| record.tab == tab.id));
            if !self.turn() {
                break;
            }
        }
        let running = self.origin.history.running();
        if running.is_empty() && self.origin.journal.is_quiet() {
            return Ok(());
        }
        Err(Violation { kind: Kind::Hangs, text: format!("these never come to an end: {running:#?}") })
    }

    // ── looking ──

    fn check(&mut self) -> Result<(), Violation> {
        let records = self.origin.history.take();
        self.ledger
            .note_refused(self.origin.shelf.iter().flat_map(|shelf| shelf.refused()), &self.origin.names.borrow());
        self.ledger.enter(&records)?;
        let look = look(&self.origin, &self.store)?;
        let events = self.origin.journal.events.borrow()[self.seen..].to_vec();
        if let Some(shelf) = &self.origin.shelf {
            self.origin.names.borrow_mut().refused = shelf.refused();
        }
        let names = self.origin.names.borrow();
        self.tell_of(&events, &names);
        let mut search = Search::new(&names, (self.seen, &events), &records, &look, self.origin.counts_failures);
        self.models.iter().for_each(|model| search.run(model));
        let (found, furthest, steps) = (search.found, search.furthest, search.steps);
        self.origin
            .tell(|| format!("── {} calls in {} commits explained in {steps} steps", records.len(), events.len()));
        if found.is_empty() {
            return Err(self.name(&look, furthest.1, furthest.2 + &format!("\n(after {steps} steps)")));
        }
        self.models = found;
        self.seen += events.len();
        Ok(())
    }

    fn name(&self, look: &Look, kind: Kind, text: String) -> Violation {
        if let Some(revived) = self.ledger.revived(look) {
            return Violation { kind: Kind::Revived, text: format!("{revived}\n{text}") };
        }
        match self.ledger.lost(&self.origin.names.borrow(), look).filter(|_| kind == Kind::Unexplained) {
            Some(lost) => Violation { kind: Kind::Lost, text: format!("{lost}\n{text}") },
            None => Violation { kind, text },
        }
    }
}

/// Opens a broker, however often it takes. Gives when the attempt that succeeded has begun.
async fn open(origin: &Rc<Origin>, tab: TabId, host: Host) -> (Rc<Broker>, f64) {
    loop {
        let since = origin.time.now();
        match Broker::open(host.clone()).await {
            Ok(broker) => return (Rc::new(broker), since),
            Err(_) => TabTimer { time: Rc::clone(&origin.time), tab }.sleep(100.0).await,
        }
    }
}
