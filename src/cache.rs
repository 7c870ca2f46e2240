//! What was read once and can be known to be still so.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ids::SideId;
use crate::lane::Lane;
use crate::map::Map;
use crate::message::Run;
use crate::turn::Turn;

/// Runs that somebody is in the middle of. A run never changes and a side's number is never given again, so what the cursor points into is
/// right as long as the side is there.
///
/// A body that was handed out must not be handed out again: after a rollback the runs are forgotten and read anew.
#[derive(Debug, Default)]
pub(crate) struct Runs(RefCell<Map<SideId, Rc<Run>>>);

/// How many are kept. A run has at most 64 KiB.
const RUNS: usize = 16;

impl Runs {
    /// The run of a side in which the row with this number is.
    pub(crate) fn get(&self, side: SideId, number: u64) -> Option<Rc<Run>> {
        self.0.borrow().get(&side).filter(|run| (run.first()..=run.last).contains(&number)).cloned()
    }

    pub(crate) fn put(&self, run: Rc<Run>) {
        let mut runs = self.0.borrow_mut();
        if runs.len() >= RUNS && !runs.contains_key(&run.side) {
            runs.pop_first();
        }
        runs.insert(run.side, run);
    }

    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// The first turns of each queue. The queue's record says with a number whether they are still the first. And whose turn it probably is.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    first: RefCell<Map<u32, Head>>,
    next: RefCell<Map<u32, Expected>>,
}

/// What the next reader of a queue will probably meet.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Groups before it that somebody held.
    pub(crate) held: Vec<Rc<str>>,
    /// Whose turn it is.
    pub(crate) turn: Option<Turn>,
}

/// The first turns of one queue, and as of which number.
type Head = (u64, Rc<Vec<Turn>>);

impl Heads {
    /// The turns of a queue as of `version`.
    pub(crate) fn get(&self, queue: u32, version: u64) -> Option<Rc<Vec<Turn>>> {
        self.first.borrow().get(&queue).filter(|(known, _)| *known == version).map(|(_, turns)| Rc::clone(turns))
    }

    pub(crate) fn put(&self, queue: u32, version: u64, turns: Rc<Vec<Turn>>) {
        self.first.borrow_mut().insert(queue, (version, turns));
    }

    pub(crate) fn clear(&self) {
        self.first.borrow_mut().clear();
    }

    /// Whose turn it probably is: worth reading ahead.
    pub(crate) fn guess(&self, queue: u32) -> Option<Turn> {
        self.next.borrow().get(&queue).and_then(|expected| expected.turn.clone())
    }

    /// Which locks are worth asking for before a storage transaction.
    pub(crate) fn guess_groups(&self, queue: u32) -> Vec<Rc<str>> {
        let next = self.next.borrow();
        let expected = next.get(&queue);
        let turn = expected.and_then(|expected| expected.turn.as_ref()).map(|turn| Rc::clone(&turn.group));
        expected.into_iter().flat_map(|expected| expected.held.iter().cloned()).chain(turn).collect()
    }

    pub(crate) fn expect(&self, queue: u32, expected: Expected) {
        self.next.borrow_mut().insert(queue, expected);
    }
}

/// Which queue each side is on: worth reading ahead, together with its conversation.
#[derive(Debug, Default)]
pub(crate) struct Routes(RefCell<Map<SideId, u32>>);

/// How many are kept.
const ROUTES: usize = 2_048;

impl Routes {
    pub(crate) fn get(&self, side: SideId) -> Option<u32> {
        self.0.borrow().get(&side).copied()
    }

    pub(crate) fn put(&self, side: SideId, queue: u32) {
        let mut routes = self.0.borrow_mut();
        if routes.len() >= ROUTES && !routes.contains_key(&side) {
            routes.pop_first();
        }
        routes.insert(side, queue);
    }
}

/// Which conversation a lane is: worth reading ahead. The conversation's record says whether it still is.
#[derive(Debug, Default)]
pub(crate) struct Lanes(RefCell<Map<Lane, u64>>);

/// How many are kept.
const LANES: usize = 2_048;

impl Lanes {
    pub(crate) fn get(&self, lane: &Lane) -> Option<u64> {
        self.0.borrow().get(lane).copied()
    }

    pub(crate) fn put(&self, lane: Lane, number: u64) {
        let mut lanes = self.0.borrow_mut();
        if lanes.len() >= LANES && !lanes.contains_key(&lane) {
            lanes.pop_first();
        }
        lanes.insert(lane, number);
    }

    pub(crate) fn forget(&self, lane: &Lane) {
        self.0.borrow_mut().remove(lane);
    }
}
