//! What a commit tells: hints for other tabs and events for the application.

use std::rc::Rc;

use crate::body::Value;
use crate::clock::Instant;

/// What a commit touched. Every open broker of the origin hears it once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notice {
    /// The queues whose rows or options changed.
    pub queues: Vec<Rc<str>>,
    /// The queues in which something became ready.
    pub enqueued: Vec<Rc<str>>,
    /// Some conversation changed.
    pub conversations: bool,
    /// The delayed store changed.
    pub delayed: bool,
    /// The transmission queue changed.
    pub transmission: bool,
    /// The archive changed.
    pub archive: bool,
    /// Endpoints by handle, and their new state; CD for one that is gone: it is finished.
    pub states: Vec<(Rc<str>, &'static str)>,
    /// Messages that went nowhere.
    pub dropped: Vec<Dropped>,
    /// Queues that were switched off.
    pub disabled: Vec<(Rc<str>, &'static str)>,
    /// The earliest time at which something new is due: the pollers of all contexts want to know.
    pub due: Option<Instant>,
}

/// A message that went nowhere, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    /// Why, in a sentence.
    pub reason: &'static str,
    /// Columns of the message.
    pub message: Vec<(&'static str, Value)>,
}

impl Notice {
    pub(crate) fn touch(&mut self, queue: &Rc<str>) {
        if !self.queues.contains(queue) {
            self.queues.push(Rc::clone(queue));
        }
    }

    pub(crate) fn enqueue(&mut self, queue: &Rc<str>) {
        if !self.enqueued.contains(queue) {
            self.enqueued.push(Rc::clone(queue));
        }
    }

    /// Something is due at a time.
    pub(crate) fn due_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Adds what another commit tells.
    pub fn merge(&mut self, other: &Self) {
        other.queues.iter().for_each(|queue| self.touch(queue));
        other.enqueued.iter().for_each(|queue| self.enqueue(queue));
        self.conversations |= other.conversations;
        self.delayed |= other.delayed;
        self.transmission |= other.transmission;
        self.archive |= other.archive;
        self.states.extend(other.states.iter().cloned());
        self.dropped.extend(other.dropped.iter().cloned());
        self.disabled.extend(other.disabled.iter().cloned());
        other.due.into_iter().for_each(|at| self.due_by(at));
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
