//! What all brokers of a run share: time, chance, tasks, the network between them, and the notes that are taken.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pocket_broker::Broker;
use pocket_broker::Notice;
use pocket_broker::clock::Timer;
use pocket_broker::ids::Ids;
use pocket_broker::store::{Faults, MemoryStore};
use uuid::Uuid;

use super::broken::{Sabotage, Saboteur};
use super::ledger::Ledger;
use super::net::Net;
use crate::conformance::support::chance::Chance;
use crate::conformance::support::host;
use crate::conformance::support::locks::OriginLocks;
use crate::executor::{Executor, TabId, Tasks};
use crate::origin::{Kind, Violation};
use crate::time::{START, TabTimer, Time};

/// The queues of every broker, and the first letters of their services.
pub(crate) const QUEUES: [&str; 2] = ["front", "back"];
pub(crate) const SERVICES: [&str; 2] = ["S", "T"];
/// The first letter of services that nobody has.
pub(crate) const NOWHERE: &str = "N";
/// What every service takes, and what none does.
pub(crate) const TALK: &str = "Talk";
pub(crate) const STRANGE: &str = "Strange";
/// A message, and one whose body no receiver takes.
pub(crate) const WORD: &str = "Word";
pub(crate) const SOUR: &str = "Sour";

pub(crate) struct World {
    pub(crate) chance: RefCell<Chance>,
    pub(crate) time: Rc<Time>,
    pub(crate) tasks: Tasks,
    pub(crate) net: Net,
    pub(crate) ledger: RefCell<Ledger>,
    pub(crate) places: Vec<Place>,
    pub(crate) saboteur: Option<Rc<Saboteur>>,
    /// Applications begin nothing new, and nothing fails any more.
    pub(crate) is_calm: Cell<bool>,
    /// Whoever has an endpoint left ends it.
    pub(crate) ends_all: Cell<bool>,
    /// Nobody asks the databases whether they are sound: what is broken on purpose is to be noticed all the same.
    pub(crate) is_trusting: bool,
    violation: RefCell<Option<Violation>>,
    is_told: bool,
    ids: Rc<dyn Ids>,
    /// Hints that have not arrived: of which place, from which tab.
    mail: RefCell<Vec<(usize, TabId, Notice)>>,
}

/// A database, and the tabs over it.
pub(crate) struct Place {
    pub(crate) store: MemoryStore,
    pub(crate) locks: OriginLocks,
    /// The id of its broker.
    pub(crate) id: Rc<str>,
    pub(crate) tabs: RefCell<Vec<Rc<Tab>>>,
    /// So much its applications have still to do.
    pub(crate) left: Cell<usize>,
    /// What was seen last, once it is calm.
    pub(crate) seen: RefCell<Option<Seen>>,
}

/// What there is in a broker at rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Messages that were received meanwhile.
    pub(crate) received: usize,
    /// What waits to be transmitted, and why.
    pub(crate) outside: Vec<String>,
    /// Handles and states.
    pub(crate) ends: Vec<(Rc<str>, &'static str)>,
}

/// One context, until it is closed or dies.
pub(crate) struct Tab {
    pub(crate) id: TabId,
    pub(crate) place: usize,
    pub(crate) broker: RefCell<Option<Rc<Broker>>>,
    pub(crate) faults: Faults,
    /// It waits for an answer that will never come.
    pub(crate) is_doomed: Cell<bool>,
    /// The routes that it has given.
    pub(crate) routes: RefCell<Vec<(Rc<str>, u64)>>,
}

impl World {
    pub(crate) fn new(seed: u64, places: Vec<Place>, sabotage: Option<Sabotage>, is_told: bool) -> Self {
        let time = Time::new();
        let saboteur = sabotage.map(|sabotage| Rc::new(Saboteur::new(sabotage, seed)));
        Self {
            chance: RefCell::new(Chance(seed)),
            tasks: Rc::new(Executor::default()),
            net: Net::default(),
            ledger: RefCell::new(Ledger::new(places.len())),
            places,
            is_calm: Cell::new(false),
            ends_all: Cell::new(false),
            is_trusting: saboteur.is_some(),
            saboteur,
            violation: RefCell::default(),
            is_told,
            ids: host::ids(seed.wrapping_add(0x00c0_ffee)),
            mail: RefCell::default(),
            time,
        }
    }

    pub(crate) fn tell(&self, text: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>9} {}", self.now() - START, text());
        }
    }

    pub(crate) fn report(&self, kind: Kind, text: String) {
        if kind != Kind::Unsound || !self.is_trusting {
            self.tell(|| format!("{kind:?}: {text}"));
            self.violation.borrow_mut().get_or_insert(Violation { kind, text });
        }
    }

    pub(crate) fn check(&self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }

    pub(crate) fn below(&self, limit: usize) -> usize {
        self.chance.borrow_mut().below(limit)
    }

    pub(crate) fn one_in(&self, count: usize) -> bool {
        self.chance.borrow_mut().one_in(count)
    }

    /// One in five, until it is calm.
    pub(crate) fn misfortune(&self) -> bool {
        !self.is_calm.get() && self.one_in(5)
    }

    pub(crate) fn pick<T: Clone>(&self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.ids.uuid()
    }

    pub(crate) fn now(&self) -> f64 {
        use pocket_broker::clock::Clock;
        self.time.now()
    }

    pub(crate) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.saboteur.as_ref().is_some_and(|saboteur| saboteur.strikes(sabotage))
    }

    pub(crate) async fn sleep(&self, tab: TabId, ms: f64) {
        TabTimer { time: Rc::clone(&self.time), tab }.sleep(ms).await;
    }

    // ── hints ──

    pub(crate) fn post(&self, place: usize, from: TabId, notice: &Notice) {
        for dropped in notice.dropped.iter().filter(|dropped| dropped.envelope.is_some()) {
            let id = dropped.message.iter().find(|(name, _)| *name == "messageId");
            let id = id.and_then(|(_, id)| id.text());
            id.into_iter().for_each(|id| self.ledger.borrow_mut().note_dropped(place, &id));
        }
        if self.places[place].tabs.borrow().len() > 1 {
            self.mail.borrow_mut().push((place, from, notice.clone()));
        }
    }

    /// Some arrive, in their order. A hint may get lost.
    pub(crate) fn deliver_mail(&self) {
        while !self.mail.borrow().is_empty() && !self.one_in(3) {
            let (place, from, notice) = self.mail.borrow_mut().remove(0);
            let tabs = self.places[place].tabs.borrow().clone();
            for tab in tabs.iter().filter(|tab| tab.id != from) {
                let broker = tab.broker.borrow().clone().filter(|_| self.is_calm.get() || !self.one_in(10));
                let Some(broker) = broker else { continue };
                if notice.released {
                    broker.released_elsewhere();
                }
                broker.hear(&notice.queues);
                notice.due.into_iter().for_each(|at| broker.due_elsewhere(at));
                notice.role.iter().for_each(|role| broker.hear_of_role(role));
                if notice.transmission {
                    broker.transmission_elsewhere();
                }
            }
        }
    }
}

/// The number of the broker that has a service with this name.
pub(crate) fn place_of(service: &str) -> usize {
    service[1..].parse().expect("a letter and a number")
}
