//! A run: brokers come, work, die and come back, the network does what it likes, and in the end all has to be right.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::FutureExt;
use pocket_broker::clock::{Clock, Pulse};
use pocket_broker::definitions::{Definitions, PriorityRule, QueueOptions, SentBy, ServiceOptions, Validation};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, FaultStore, Faults, MemoryStore, Operation, Store};
use pocket_broker::{Broker, DelayedSettings, Host, Sharing};

use super::actor::{Actor, give_routes};
use super::broken::Sabotage;
use super::world::{Place, QUEUES, SERVICES, SOUR, STRANGE, TALK, Tab, WORD, World};
use crate::conformance::support::chance::Chance;
use crate::conformance::support::host::{block_on, host, ids};
use crate::conformance::support::locks::OriginLocks;
use crate::executor::{TabId, TaskId};
use crate::origin::{Kind, Violation};
use crate::time::TabTimer;

/// Rounds of the executor in which applications work, at most.
const ROUNDS: usize = 20_000;
/// Polls of a task while no time passes: more of them are a circle.
const PATIENCE: u64 = 2_000;

pub(crate) struct Run {
    pub(super) world: Rc<World>,
    lives: TabId,
    pub(super) polls: u64,
    /// Since time has passed last.
    restless: BTreeMap<TaskId, u64>,
    crashes: u64,
}

/// How much has happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) polls: u64,
    pub(crate) crashes: u64,
    pub(crate) calls: u64,
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) talks: usize,
    /// Conversations that nobody has cut short.
    pub(crate) whole: usize,
    pub(crate) received: usize,
}

/// Runs a seed with so many brokers.
pub(crate) fn run(seed: u64, brokers: usize, sabotage: Option<Sabotage>, is_told: bool) -> Result<Summary, Violation> {
    let mut chance = Chance(seed ^ 0x5eed);
    let actions = if brokers > 10 { 12 } else { 50 };
    let places = (0..brokers).map(|number| place(&mut chance, seed, number, brokers, actions)).collect();
    let world = Rc::new(World::new(seed, places, sabotage, is_told));
    let mut run = Run { world, lives: 0, polls: 0, restless: BTreeMap::new(), crashes: 0 };
    let outcome = run.go();
    // They hold each other.
    run.world.places.iter().for_each(|place| place.tabs.borrow_mut().clear());
    outcome
}

/// A database with its definitions.
fn place(chance: &mut Chance, seed: u64, number: usize, brokers: usize, actions: usize) -> Place {
    let store = MemoryStore::new();
    let own = TestSeed(seed, number).value();
    let id = block_on(async {
        let broker = Broker::open(host(Rc::new(store.clone()), own).host).await.expect("the broker opens");
        broker.define(definitions(chance, number, brokers)).await.expect("the definitions are right");
        let id = broker.instance_id();
        broker.close().await;
        id
    });
    Place {
        store,
        locks: OriginLocks::default(),
        id,
        tabs: Vec::new().into(),
        left: Cell::new(actions),
        seen: None.into(),
    }
}

/// What a broker's chance begins with: no two are the same.
struct TestSeed(u64, usize);

impl TestSeed {
    fn value(&self) -> u64 {
        self.0.wrapping_mul(1_009).wrapping_add(self.1 as u64).wrapping_add(1)
    }
}

fn definitions(chance: &mut Chance, number: usize, brokers: usize) -> Definitions {
    let mut queue = |name: &str| {
        let options = QueueOptions {
            retention: Some(chance.one_in(3)),
            // Whoever rolls back often enough would switch it off.
            poison_message_handling: Some(false),
            ..QueueOptions::default()
        };
        (name.into(), options)
    };
    let service = |queue: &str| ServiceOptions { queue: Some(queue.into()), contracts: vec![TALK.into()] };
    let words: Vec<_> = [WORD, SOUR].map(|name| (name.into(), SentBy::Any)).into();
    let queues = QUEUES.map(&mut queue).into();
    let mut rule = || PriorityRule {
        contract: None,
        local_service: Some(format!("{}{number}", SERVICES[chance.below(2)]).into()),
        remote_service: Some(format!("{}{}", SERVICES[chance.below(2)], chance.below(brokers)).into()),
        level: (1 + chance.below(10)) as f64,
    };
    Definitions {
        message_types: [WORD, SOUR].map(|name| (name.into(), Validation::None)).into(),
        contracts: [TALK, STRANGE].map(|name| (name.into(), words.clone())).into(),
        queues,
        services: SERVICES
            .iter()
            .zip(QUEUES)
            .map(|(letter, queue)| (format!("{letter}{number}"), service(queue)))
            .collect(),
        priorities: vec![("rule".into(), rule())],
    }
}

impl Run {
    fn go(&mut self) -> Result<Summary, Violation> {
        for place in 0..self.world.places.len() {
            for _ in 0..=usize::from(self.world.one_in(3)) {
                self.open_tab(place);
            }
        }
        self.work()?;
        self.calm_down()?;
        self.finish()?;
        let (net, ledger) = (&self.world.net, self.world.ledger.borrow());
        Ok(Summary {
            polls: self.polls,
            crashes: self.crashes,
            calls: net.calls.get(),
            lost: net.lost.get(),
            repeated: net.repeated.get(),
            talks: ledger.talks(),
            whole: ledger.whole(),
            received: ledger.received,
        })
    }

    // ── tabs ──

    pub(super) fn open_tab(&mut self, place: usize) {
        self.lives += 1;
        let world = &self.world;
        let tab = Rc::new(Tab {
            id: self.lives,
            place,
            broker: None.into(),
            faults: Faults::new(),
            is_doomed: Cell::new(false),
            routes: Vec::new().into(),
        });
        world.tell(|| format!("place {place} tab {} comes", tab.id));
        world.places[place].tabs.borrow_mut().push(Rc::clone(&tab));
        let (host, world) = (self.host_of(&tab), Rc::clone(world));
        let id = tab.id;
        let boot = async move {
            let broker = loop {
                match Broker::open(host.clone()).await {
                    Ok(broker) => break Rc::new(broker),
                    Err(_) => world.sleep(id, 100.0).await,
                }
            };
            give_routes(&world, &tab, &broker);
            tab.broker.replace(Some(Rc::clone(&broker)));
            for _ in 0..2 {
                let actor = Actor { world: Rc::clone(&world), tab: Rc::clone(&tab), broker: Rc::clone(&broker) };
                world.tasks.spawn(id, actor.act().boxed_local());
            }
        };
        self.world.tasks.spawn(id, boot.boxed_local());
    }

    fn host_of(&self, tab: &Rc<Tab>) -> Host {
        let (world, id, place) = (&self.world, tab.id, tab.place);
        let memory: Rc<dyn Store> = Rc::new(world.places[place].store.clone());
        let inner = match &world.saboteur {
            Some(saboteur) => saboteur.store(memory),
            None => memory,
        };
        let clock: Rc<dyn Clock> = Rc::<crate::time::Time>::clone(&world.time);
        let timer = Rc::new(TabTimer { time: Rc::clone(&world.time), tab: id });
        let (tasks, postman) = (Rc::clone(&world.tasks), Rc::downgrade(world));
        Host {
            name: "far".into(),
            store: Rc::new(FaultStore::new(inner, tab.faults.clone())),
            clock: Rc::clone(&clock),
            timer: Rc::<TabTimer>::clone(&timer),
            ids: ids(id.wrapping_mul(977).wrapping_add(world.below(1 << 30) as u64)),
            sharing: Sharing::Locks(Rc::new(world.places[place].locks.of_tab(id))),
            delayed: DelayedSettings { number_of_retries: u64::from(u32::MAX), ..DelayedSettings::default() },
            delayed_store: None,
            is_hidden: Rc::new(|| false),
            pulse: Pulse { clock, timer },
            spawn: Rc::new(move |task| tasks.spawn(id, task)),
            wake: Rc::new(move |notice| _ = postman.upgrade().map(|world| world.post(place, id, notice))),
        }
    }

    /// A tab dies where it stands.
    pub(super) fn crash(&mut self, place: usize, number: usize) {
        let place = &self.world.places[place];
        let tab = place.tabs.borrow_mut().remove(number);
        self.world.tell(|| format!("place {} tab {} dies", tab.place, tab.id));
        self.world.tasks.crash(tab.id);
        drop(tab.broker.take());
        place.locks.of_tab(tab.id).rob();
        self.crashes += 1;
    }

    // ── what happens ──

    fn work(&mut self) -> Result<(), Violation> {
        for _ in 0..ROUNDS {
            self.disturb();
            self.turn()?;
            if self.world.places.iter().all(|place| place.left.get() == 0) {
                break;
            }
        }
        Ok(())
    }

    /// What applications have not asked for.
    fn disturb(&mut self) {
        let place = self.world.below(self.world.places.len());
        let count = self.world.places[place].tabs.borrow().len();
        let number = self.world.below(count);
        let tab = Rc::clone(&self.world.places[place].tabs.borrow()[number]);
        match self.world.below(200) {
            0 => {
                self.crash(place, number);
                self.open_tab(place);
            }
            1..=2 => self.break_something(&tab),
            3..=30 => tab.faults.release(),
            31..=34 => self.world.forge(),
            _ => {}
        }
    }

    fn break_something(&self, tab: &Tab) {
        let world = &self.world;
        let failed = || Error::new(ErrorCode::StorageUnavailable, "It failed.");
        let quota = || Error::new(ErrorCode::QuotaExceeded, "No space.");
        let read = world.pick(&[Operation::Get, Operation::GetRange, Operation::GetKeys]);
        let (operation, fault) = match world.below(9) {
            0 => (Operation::Begin, Fault::Fail(failed())),
            1 => (Operation::Begin, Fault::Delay),
            2 => (read, Fault::Fail(failed())),
            3 => (read, Fault::LoseAnswer),
            4 => (Operation::Write, Fault::Abort(quota())),
            5 => (Operation::Commit, Fault::Abort(quota())),
            6 => (Operation::Commit, Fault::Delay),
            7 => (Operation::Commit, Fault::LoseAnswer),
            _ => (Operation::Commit, Fault::Lose),
        };
        tab.is_doomed.set(tab.is_doomed.get() || matches!(fault, Fault::Lose));
        world.tell(|| format!("place {} tab {}: {operation:?} will meet {fault:?}", tab.place, tab.id));
        tab.faults.plan(operation, 1 + world.below(4) as u32, fault);
    }

    /// Everybody who can goes on, in some order, or time passes.
    pub(super) fn turn(&mut self) -> Result<(), Violation> {
        let world = Rc::clone(&self.world);
        world.deliver_mail();
        world.deliver_packets();
        let mut ready = world.tasks.ready(|_| true);
        // Among many somebody always has something to do.
        let hurries = world.one_in(if world.places.len() > 10 { 3 } else { 30 });
        if ready.is_empty() || (hurries && !world.is_calm.get()) {
            self.pass_time(ready.is_empty())?;
            return world.check();
        }
        while !ready.is_empty() {
            let task = ready.swap_remove(world.below(ready.len()));
            if world.one_in(4) {
                continue;
            }
            world.tasks.poll(task);
            self.polls += 1;
            *self.restless.entry(task).or_default() += 1;
        }
        if let Some((task, polls)) = self.restless.iter().find(|(_, polls)| **polls > PATIENCE) {
            let text =
                format!("task {task} of tab {:?} goes round in circles: {polls} polls", world.tasks.tab_of(*task));
            return Err(Violation { kind: Kind::Hangs, text });
        }
        world.check()
    }

    /// To when somebody wakes, or something arrives.
    fn pass_time(&mut self, is_idle: bool) -> Result<(), Violation> {
        let next = [self.world.time.next(|_| true), self.world.net.next()].into_iter().flatten().reduce(f64::min);
        if let Some(next) = next {
            self.world.time.advance_to(next, |_| true);
            self.restless.clear();
            return Ok(());
        }
        if self.unblock() || !is_idle {
            return Ok(());
        }
        Err(Violation { kind: Kind::Hangs, text: "nobody will ever do anything".into() })
    }

    /// Something is in the way: an answer that is held back, a tab that waits for ever.
    fn unblock(&mut self) -> bool {
        let tabs: Vec<_> = self.world.places.iter().flat_map(|place| place.tabs.borrow().clone()).collect();
        let is_held = tabs.iter().any(|tab| tab.faults.held() > 0);
        tabs.iter().for_each(|tab| tab.faults.release());
        is_held
    }

    /// Nothing fails from now on. Tabs that wait for ever are closed, and come again.
    fn calm_down(&mut self) -> Result<(), Violation> {
        self.world.tell(|| "── calm".into());
        self.world.is_calm.set(true);
        for place in 0..self.world.places.len() {
            self.world.places[place].tabs.borrow().iter().for_each(|tab| {
                tab.faults.clear();
                tab.faults.release();
            });
            let doomed = |world: &World| world.places[place].tabs.borrow().iter().position(|tab| tab.is_doomed.get());
            while let Some(number) = doomed(&self.world) {
                self.crash(place, number);
                self.open_tab(place);
            }
        }
        self.world.check()
    }
}
