//! Random verbs against a model: whatever comes in whatever order, the broker does what the model does, and the database stays sound.
//!
//! `SEED=17 cargo test random` runs one seed and tells every step. `FROM=1000 SEEDS=5000 cargo test --release random` looks further.

mod check;
#[allow(dead_code, reason = "the simulation uses more of it")]
mod due;
#[allow(dead_code, reason = "lanes are for the simulation")]
mod lane;
#[allow(dead_code, reason = "the simulation uses more of it")]
mod model;
mod seen;
#[allow(dead_code, reason = "the simulation uses more of it")]
mod side;
mod steps;
mod transactions;

use std::rc::Rc;

use pocket_broker::Broker;
use pocket_broker::definitions::Definitions;
use pocket_broker::error::{ErrorCode, Result};

use self::model::{End, Queue, World};
use self::seen::Handles;
use self::transactions::Open;
use super::support::Bench;
use super::support::chance::Chance;
use super::support::host::block_on;
use super::support::shop::Shop;

const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 300 };
const STEPS: u64 = 60;

#[test]
fn the_broker_does_what_the_model_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seed = number("SEED");
    let first = seed.or(number("FROM")).unwrap_or(1);
    let seeds = first..first + seed.map_or_else(|| number("SEEDS").unwrap_or(SEEDS), |_| 1);
    for number in seeds {
        let told = std::panic::AssertUnwindSafe(|| block_on(run(number, seed.is_some())));
        if let Err(failure) = std::panic::catch_unwind(told) {
            println!("It was SEED={number}");
            std::panic::resume_unwind(failure);
        }
    }
}

async fn run(seed: u64, is_told: bool) {
    let shop = Shop::open(Bench::memory()).await;
    let priorities = model::rules();
    shop.broker.define(Definitions { priorities, ..Definitions::default() }).await.expect("the rules are right");
    shop.timer().give_up_at_once();
    // Every other time the second context has no locks, and only the commit keeps the two apart.
    let sees_locks = seed.is_multiple_of(2);
    let second = if sees_locks { shop.another_tab().await } else { shop.tab_without_locks().await };
    let tabs = [shop.broker.another(), second];
    let world = World { queues: vec![Queue { on: true, retention: false }; 3], ..World::default() };
    let mut random = Random {
        shop,
        tabs,
        sees_locks,
        world,
        chance: Chance(seed),
        handles: Handles::new(),
        open: Vec::new(),
        bodies: 0,
        now: 1_700_000_000_000.0,
        is_told,
    };
    for step in 0..STEPS {
        random.tell(|| format!("── step {step}"));
        random.step().await;
        random.check().await;
    }
    random.open.clear();
    for tab in &random.tabs {
        tab.close().await;
    }
    random.shop.close().await;
}

/// A run: the broker, the model, and what has been learned of the names that the broker gave.
struct Random {
    shop: Shop,
    /// Two contexts.
    tabs: [Broker; 2],
    /// Whether they see each other's locks.
    sees_locks: bool,
    world: World,
    chance: Chance,
    handles: Handles,
    open: Vec<Open>,
    bodies: usize,
    now: f64,
    is_told: bool,
}

impl Random {
    fn tell(&self, text: impl FnOnce() -> String) {
        if self.is_told {
            println!("{}", text());
        }
    }

    /// The group that an end is in, as a transaction or everybody sees it.
    fn group_in(&self, world: &World, end: &End) -> Rc<str> {
        seen::group_of(world, &self.handles, end)
    }

    fn group_of(&self, end: &End) -> Rc<str> {
        self.group_in(&self.world, end)
    }

    /// Whether a transaction that a context knows of, other than number `except`, holds a group.
    fn is_locked(&self, tab: usize, group: &str, except: Option<usize>) -> bool {
        self.open.iter().enumerate().any(|(number, open)| {
            (self.sees_locks || open.tab == tab) && Some(number) != except && open.locks.contains(group)
        })
    }

    /// An end of a conversation, most likely one that is there.
    fn any_end(&mut self) -> Option<End> {
        let known: Vec<End> = self.handles.keys().cloned().collect();
        let there: Vec<End> = known.iter().filter(|end| self.world.sides.contains_key(*end)).cloned().collect();
        let from = if self.chance.one_in(12) || there.is_empty() { known } else { there };
        self.chance.pick(&from)
    }

    fn some_bodies(&mut self) -> Vec<String> {
        let count = if self.chance.one_in(80) { 300 } else { 1 + self.chance.below(3) };
        let first = self.bodies;
        self.bodies += count;
        (first..self.bodies).map(|number| number.to_string()).collect()
    }
}

/// What a call answered, against what the model did.
#[track_caller]
fn agree<T: std::fmt::Debug + PartialEq>(answer: Result<T>, expected: std::result::Result<T, ErrorCode>) {
    match (answer, expected) {
        (Ok(answer), Ok(expected)) => assert_eq!(answer, expected),
        (Err(error), Err(code)) if error.code() == code => {}
        (answer, expected) => panic!("the broker: {answer:?}, the model: {expected:?}"),
    }
}
