//! A delayed message store outside of the broker's database, as all tabs see it: a server that fails before or after it has done what it was asked for,
//! answers late or never, gives a message again, says what is not so, and refuses for good. It loses nothing by itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use pocket_broker::clock::Clock;
use pocket_broker::{DelayedMessage, DelayedMessageStore, Fetched};

use crate::conformance::support::chance::Chance;
use crate::executor::TabId;
use crate::journal::Journal;
use crate::sabotage::{Sabotage, Saboteur};
use crate::time::Time;

mod tab;

use tab::TabShelf;

/// For so many milliseconds whoever has fetched a message holds it.
const HOLD: f64 = 60_000.0;
/// For so long a dispatched message is given again: less than it is remembered for.
const AGAIN: f64 = 400_000.0;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// Nothing is done, and it says so.
    Fails,
    /// It is done, and the answer is lost.
    AnswerIsLost,
    /// Nothing is done, and nothing is ever answered.
    Hangs,
    /// It is done, and nothing is ever answered.
    IsSilent,
    /// It is done and answered after so many milliseconds.
    IsLate(f64),
    /// It is done so much later than it was asked for, whoever waits for it.
    Lingers(f64),
    /// It says that it never will.
    Refuses,
    /// It says what is not so.
    Lies,
}

#[derive(Clone, Debug)]
struct Row {
    message: DelayedMessage,
    order: u64,
    held_until: Option<f64>,
}

/// What all tabs have of it.
pub(crate) struct Shelf {
    time: Rc<Time>,
    journal: Rc<Journal>,
    saboteur: Option<Rc<Saboteur>>,
    is_told: bool,
    chance: RefCell<Chance>,
    rows: RefCell<Vec<Row>>,
    stored: Cell<u64>,
    /// One call in so many goes wrong. 0: none.
    rate: Cell<usize>,
    sick: usize,
    /// What it has refused for good, and will ever refuse.
    refused: RefCell<BTreeSet<Rc<str>>>,
    /// What it had, to be given again.
    had: RefCell<Vec<DelayedMessage>>,
    /// Messages that are still on their way, and when they come.
    lingering: RefCell<Vec<(f64, DelayedMessage)>>,
}

impl Shelf {
    pub(crate) fn new(
        seed: u64,
        time: &Rc<Time>,
        journal: &Rc<Journal>,
        saboteur: Option<Rc<Saboteur>>,
        is_told: bool,
    ) -> Rc<Self> {
        let mut chance = Chance(seed ^ 0x5e1f_0e15_e4e5_0123);
        let sick = chance.pick(&[0, 3, 6, 6, 15, 40]).unwrap_or_default();
        Rc::new(Self {
            time: Rc::clone(time),
            journal: Rc::clone(journal),
            saboteur,
            is_told,
            chance: RefCell::new(chance),
            rows: RefCell::default(),
            stored: Cell::new(0),
            rate: Cell::new(sick),
            sick,
            refused: RefCell::default(),
            had: RefCell::default(),
            lingering: RefCell::default(),
        })
    }

    /// As one tab has it.
    pub(crate) fn of_tab(self: &Rc<Self>, tab: TabId) -> Rc<dyn DelayedMessageStore> {
        Rc::new(TabShelf { shelf: Rc::clone(self), tab, is_watched: true })
    }

    /// As a look has it, which disturbs nobody.
    pub(crate) fn for_looks(self: &Rc<Self>) -> Rc<dyn DelayedMessageStore> {
        Rc::new(TabShelf { shelf: Rc::clone(self), tab: 0, is_watched: false })
    }

    /// Nothing goes wrong any more, and what is on its way arrives.
    pub(crate) fn heal(&self) {
        self.rate.set(0);
        self.catch_up(f64::INFINITY);
    }

    pub(crate) fn fall_ill(&self) {
        self.rate.set(self.sick);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.borrow().is_empty()
    }

    /// What it has that is due by then.
    pub(crate) fn due(&self, at: f64) -> Vec<Rc<str>> {
        let rows = self.rows.borrow();
        let due = rows.iter().filter(|row| row.message.time <= at);
        due.map(|row| Rc::clone(&row.message.message_id)).collect()
    }

    pub(crate) fn refused(&self) -> BTreeSet<Rc<str>> {
        self.refused.borrow().clone()
    }

    /// Whether it has refused a message for good.
    fn has_refused(&self, id: &str) -> bool {
        self.refused.borrow().contains(id)
    }

    /// The bodies of what was put off: when it is due only the store knows.
    pub(crate) fn put_off(&self) -> BTreeSet<String> {
        let rows = self.rows.borrow();
        let tried = rows.iter().filter(|row| row.message.number_of_retries > 0);
        tried.filter_map(|row| row.message.body.value.value().text()).collect()
    }

    fn one_in(&self, count: usize) -> bool {
        self.chance.borrow_mut().one_in(count)
    }

    fn breaks(&self, sabotage: Sabotage) -> bool {
        self.saboteur.as_ref().is_some_and(|saboteur| saboteur.strikes(sabotage))
    }

    /// What is on its way arrives. What was dispatched is not kept for longer than it is remembered.
    fn catch_up(&self, until: f64) {
        let now = self.time.now();
        let is_over = |id: &str| self.journal.dispatched_at(id).is_some_and(|at| now - at > AGAIN);
        self.rows.borrow_mut().retain(|row| !is_over(&row.message.message_id));
        self.lingering.borrow_mut().retain(|(_, message)| !is_over(&message.message_id));
        let (now, later): (Vec<_>, Vec<_>) = self.lingering.take().into_iter().partition(|(at, _)| *at <= until);
        self.lingering.replace(later);
        now.into_iter().for_each(|(_, message)| _ = self.put(message));
    }

    fn put(&self, message: DelayedMessage) -> bool {
        let mut rows = self.rows.borrow_mut();
        if rows.iter().any(|row| row.message.message_id == message.message_id) {
            return false;
        }
        self.stored.set(self.stored.get() + 1);
        rows.push(Row { message, order: self.stored.get(), held_until: None });
        true
    }

    fn trouble(&self, method: &str) -> Option<Trouble> {
        let mut chance = self.chance.borrow_mut();
        if self.rate.get() == 0 || !chance.one_in(self.rate.get()) {
            return None;
        }
        let late = chance.pick(&[5.0, 800.0, 20_000.0, 59_000.0, 61_000.0])?;
        let linger = chance.pick(&[100.0, 30_000.0, 90_000.0, 300_000.0])?;
        Some(match chance.below(18) {
            0..=3 => Trouble::Fails,
            4..=6 => Trouble::AnswerIsLost,
            7 => Trouble::Hangs,
            8 => Trouble::IsSilent,
            9..=11 => Trouble::IsLate(late),
            12 if method == "store" => Trouble::Lingers(linger),
            13 if method == "store" && chance.one_in(3) => Trouble::Refuses,
            _ => Trouble::Lies,
        })
    }

    fn row<T>(&self, id: &str, work: impl FnOnce(&mut Row) -> T) -> Option<T> {
        self.rows.borrow_mut().iter_mut().find(|row| *row.message.message_id == *id).map(work)
    }

    /// It is dispatched, so that what becomes of it here is known.
    fn is_over(&self, id: &str) -> bool {
        self.journal.dispatched_at(id).is_some()
    }

    fn remove(&self, id: &str) -> bool {
        let mut rows = self.rows.borrow_mut();
        let Some(index) = rows.iter().position(|row| *row.message.message_id == *id) else { return false };
        let row = rows.remove(index);
        self.had.borrow_mut().push(row.message);
        true
    }

    fn fetch(&self, at: f64, is_lying: bool) -> Fetched {
        let now = self.time.now();
        if is_lying && self.one_in(2) {
            let had = self.had.borrow();
            let is_over = |message: &&DelayedMessage| {
                self.journal.dispatched_at(&message.message_id).is_some_and(|at| now - at < AGAIN)
            };
            if let Some(message) = had.iter().rev().find(is_over) {
                return Fetched::Message(message.clone());
            }
        }
        if self.rate.get() > 0 && self.one_in(self.rate.get() * 4) {
            self.rows.borrow_mut().iter_mut().for_each(|row| row.held_until = None);
        }
        let mut rows = self.rows.borrow_mut();
        // One that lies gives what is held, or what is not due.
        let (any_time, held) = (is_lying && self.one_in(2), is_lying);
        let is_early = self.breaks(Sabotage::Rush);
        let is_free = |row: &&mut Row| {
            (any_time || row.message.time <= at || is_early)
                && (held || row.held_until.is_none_or(|until| until <= now))
        };
        let order = |row: &&mut Row| (row.message.time, row.order);
        let first = rows
            .iter_mut()
            .filter(is_free)
            .min_by(|one, other| order(one).partial_cmp(&order(other)).expect("times are numbers"));
        first.map_or(Fetched::Nothing, |row| {
            row.held_until = Some(now + HOLD);
            let mut message = row.message.clone();
            if is_early {
                message.time = message.time.min(at);
            }
            Fetched::Message(message)
        })
    }
}

impl Shelf {
    fn tell(&self, tab: TabId, method: &str, id: &str, what: &dyn std::fmt::Debug) {
        if self.is_told {
            let mut what = format!("{what:?}");
            what.truncate(160);
            println!("{:>9} tab {tab} store.{method} {id}: {what}", self.time.now() - crate::time::START);
        }
    }
}
