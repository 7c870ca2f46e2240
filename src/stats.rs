//! What a broker counts of what it does. What the database holds is counted by the commits: see [`crate::queue`].

use std::cell::Cell;
use std::rc::{Rc, Weak};

use crate::core::Core;

/// What a broker has done since it was opened. What its context does by itself counts for every broker that is open in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of SEND.
    pub sends: u64,
    /// Messages received.
    pub receives: u64,
    /// Messages that came into a queue here, by SEND, by `enqueue`, or made by the broker.
    pub enqueued: u64,
    /// Delayed messages whose time came.
    pub delayed_dispatched: u64,
    /// Messages that other brokers have acknowledged.
    pub transmitted: u64,
    /// Transactions that were rolled back after they had done something.
    pub rollbacks: u64,
    /// Messages that went nowhere.
    pub dropped: u64,
    /// Timers that fired.
    pub timers: u64,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.sends += more.sends;
        self.receives += more.receives;
        self.enqueued += more.enqueued;
        self.delayed_dispatched += more.delayed_dispatched;
        self.transmitted += more.transmitted;
        self.rollbacks += more.rollbacks;
        self.dropped += more.dropped;
        self.timers += more.timers;
    }
}

/// The counts of one broker.
#[derive(Debug, Default)]
pub(crate) struct Tally(Cell<Counts>);

impl Tally {
    pub(crate) fn counts(&self) -> Counts {
        self.0.get()
    }

    pub(crate) fn add(&self, more: &Counts) {
        let mut counts = self.0.get();
        counts.add(more);
        self.0.set(counts);
    }
}

impl Core {
    /// The tally of a broker that opens.
    pub(crate) fn new_tally(&self) -> Rc<Tally> {
        let tally = Rc::new(Tally::default());
        let mut tallies = self.tallies.borrow_mut();
        tallies.retain(|tally| tally.strong_count() > 0);
        tallies.push(Rc::downgrade(&tally));
        tally
    }

    /// Counts for the broker that did it; `None`: nobody asked for it.
    pub(crate) fn count(&self, whose: Option<&Rc<Tally>>, counts: &Counts) {
        match whose {
            Some(tally) => tally.add(counts),
            None => self.tallies.borrow().iter().filter_map(Weak::upgrade).for_each(|tally| tally.add(counts)),
        }
    }
}
