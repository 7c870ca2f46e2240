//! Which calls fail, and how often each kind was made.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;

use super::super::StoreName;
use crate::error::Error;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Store::begin`](super::super::Store::begin).
    Begin,
    /// [`Session::get`](super::super::Session::get).
    Get,
    /// [`Session::get_range`](super::super::Session::get_range).
    GetRange,
    /// [`Session::get_keys`](super::super::Session::get_keys).
    GetKeys,
    /// [`Session::count`](super::super::Session::count).
    Count,
    /// [`Session::write`](super::super::Session::write).
    Write,
    /// [`Session::commit`](super::super::Session::commit).
    Commit,
    /// The commit of a session that has written.
    Change,
}

/// What happens to a call.
///
/// A write has no answer to hold back, so only [`Fault::Fail`] and [`Fault::Abort`] touch it.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call fails with this error, and its transaction can't commit any more.
    Fail(Error),
    /// The call passes, if it has nothing to answer, but the transaction aborts: whatever follows on it fails with this error. At a commit,
    /// that is the abort without an error event after all requests succeeded.
    Abort(Error),
    /// The answer is held back until [`Faults::release`]. A transaction is not begun before that; what was asked of one happens at once.
    Delay,
    /// It never happens and never answers; the transaction stays open until it is dropped. A lost commit rolls back.
    Lose,
    /// It happens, but the connection is lost before the answer: `StorageLost`, at a commit with the outcome "unknown".
    LoseAnswer,
}

/// A plan of faults, and counts of the calls. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Faults(Rc<RefCell<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    /// With the number of calls that are still to come before each.
    planned: Vec<(Operation, u32, Fault)>,
    held: Vec<oneshot::Sender<()>>,
    calls: BTreeMap<Operation, u32>,
    reads: BTreeMap<StoreName, u32>,
    writes: BTreeMap<StoreName, u32>,
    open: u32,
}

/// A session from its begin to its end.
#[derive(Debug)]
pub(super) struct Open(Faults);

impl Drop for Open {
    fn drop(&mut self) {
        let mut plan = self.0.0.borrow_mut();
        plan.open = plan.open.saturating_sub(1);
    }
}

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans a fault for the `nth` call of a kind from now: 1 is the next one.
    pub fn plan(&self, operation: Operation, nth: u32, fault: Fault) {
        self.0.borrow_mut().planned.push((operation, nth, fault));
    }

    /// Drops all faults that have not happened yet.
    pub fn clear(&self) {
        self.0.borrow_mut().planned.clear();
    }

    /// Lets every call go on that [`Fault::Delay`] is holding.
    pub fn release(&self) {
        self.0.borrow_mut().held.clear();
    }

    /// How many calls [`Fault::Delay`] is holding.
    pub fn held(&self) -> usize {
        self.0.borrow().held.iter().filter(|held| !held.is_canceled()).count()
    }

    /// How many sessions are being begun, at work, or being committed.
    pub fn open(&self) -> u32 {
        self.0.borrow().open
    }

    /// One more.
    pub(super) fn opened(&self) -> Open {
        self.0.borrow_mut().open += 1;
        Open(self.clone())
    }

    /// How many calls of a kind were made.
    pub fn calls(&self, operation: Operation) -> u32 {
        self.0.borrow().calls.get(&operation).copied().unwrap_or(0)
    }

    /// How many reads of an object store were made, by key or by range.
    pub fn reads_of(&self, store: StoreName) -> u32 {
        self.0.borrow().reads.get(&store).copied().unwrap_or(0)
    }

    /// How many writes to an object store were made. Removing a range counts once.
    pub fn writes_to(&self, store: StoreName) -> u32 {
        self.0.borrow().writes.get(&store).copied().unwrap_or(0)
    }

    /// How many reads were made.
    pub fn reads(&self) -> u32 {
        self.0.borrow().reads.values().sum()
    }

    /// How many writes were made.
    pub fn writes(&self) -> u32 {
        self.0.borrow().writes.values().sum()
    }

    /// Counts from zero again.
    pub fn reset_counts(&self) {
        let mut plan = self.0.borrow_mut();
        plan.calls.clear();
        plan.reads.clear();
        plan.writes.clear();
    }

    /// Counts a call, and says what is to happen to it.
    pub(super) fn meet(&self, operation: Operation) -> Option<Fault> {
        let mut plan = self.0.borrow_mut();
        *plan.calls.entry(operation).or_default() += 1;
        let mut due = None;
        plan.planned.retain_mut(|(planned, left, fault)| {
            if *planned != operation {
                return true;
            }
            *left = left.saturating_sub(1);
            if *left == 0 {
                due = Some(fault.clone());
            }
            *left > 0
        });
        due
    }

    pub(super) fn meet_read(&self, operation: Operation, store: StoreName) -> Option<Fault> {
        *self.0.borrow_mut().reads.entry(store).or_default() += 1;
        self.meet(operation)
    }

    pub(super) fn meet_write(&self, store: StoreName) -> Option<Fault> {
        *self.0.borrow_mut().writes.entry(store).or_default() += 1;
        self.meet(Operation::Write)
    }

    /// Resolves at the next [`Faults::release`].
    pub(super) fn released(&self) -> impl Future<Output = ()> + use<> {
        let (held, released) = oneshot::channel();
        self.0.borrow_mut().held.push(held);
        released.map(drop)
    }
}
