//! One reader per group at a time, as the readers see it.
//!
//! A transaction has a group from when it learns of it to when it asks for its end: less than it really has it. So whoever is found in a group
//! at the same time as another really was.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::executor::TabId;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    group: Rc<str>,
    tab: TabId,
    transaction: u64,
    since: u64,
}

/// Who has which group.
#[derive(Default)]
pub(crate) struct Readers {
    held: RefCell<Vec<Held>>,
    /// Tabs that were robbed of their locks, or never had any: what they believe does not count.
    outlaws: RefCell<BTreeSet<TabId>>,
    /// Tabs that were put away.
    sleepers: RefCell<BTreeSet<TabId>>,
    transactions: Cell<u64>,
    /// Turns of the executor.
    pub(crate) turn: Cell<u64>,
}

impl Readers {
    /// A number for a transaction.
    pub(crate) fn begin(&self) -> u64 {
        self.transactions.set(self.transactions.get() + 1);
        self.transactions.get()
    }

    /// A transaction has got a group. Gives who else has it.
    pub(crate) fn enter(&self, tab: TabId, transaction: u64, group: &Rc<str>) -> Option<String> {
        let mut held = self.held.borrow_mut();
        let other = held.iter().find(|held| held.group == *group && held.transaction != transaction);
        let is_lawful = |tab: TabId| !self.outlaws.borrow().contains(&tab);
        let told = other.filter(|other| is_lawful(other.tab) && is_lawful(tab)).map(|other| {
            format!("tab {tab} got the group {group}, which transaction {} of tab {} has", other.transaction, other.tab)
        });
        held.push(Held { group: Rc::clone(group), tab, transaction, since: self.turn.get() });
        told
    }

    /// Somebody has received on his own, in a call that was made in that turn. Gives who had the group all the time.
    pub(crate) fn pass(&self, tab: TabId, group: &Rc<str>, made: u64) -> Option<String> {
        let held = self.held.borrow();
        let is_lawful = |tab: TabId| !self.outlaws.borrow().contains(&tab);
        let other = held.iter().find(|held| held.group == *group && held.since < made && is_lawful(held.tab));
        other.filter(|_| is_lawful(tab)).map(|other| {
            format!(
                "tab {tab} received from the group {group}, which transaction {} of tab {} has",
                other.transaction, other.tab
            )
        })
    }

    /// A transaction asks for its end.
    pub(crate) fn leave(&self, transaction: u64) {
        self.held.borrow_mut().retain(|held| held.transaction != transaction);
    }

    /// Whether anybody was robbed, or may take what others hold.
    pub(crate) fn has_outlaws(&self) -> bool {
        !self.outlaws.borrow().is_empty()
    }

    /// A tab is gone.
    pub(crate) fn crash(&self, tab: TabId) {
        self.held.borrow_mut().retain(|held| held.tab != tab);
    }

    /// A tab has let go of everything.
    pub(crate) fn sleep(&self, tab: TabId) {
        self.crash(tab);
        self.sleepers.borrow_mut().insert(tab);
    }

    /// Whether a tab has ever let go of everything.
    pub(crate) fn has_slept(&self, tab: TabId) -> bool {
        self.sleepers.borrow().contains(&tab)
    }

    /// What a tab believes to have does not count any more.
    pub(crate) fn outlaw(&self, tab: TabId) {
        self.outlaws.borrow_mut().insert(tab);
    }
}
