//! What a commit tells: hints for other tabs and events for the application. And what is told of trouble.

use std::rc::Rc;

use crate::body::Value;
use crate::clock::Instant;
use crate::map::Map;
use crate::recoverability::{Recovered, Thrown};

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
    /// Something may be handed over that could not be before: transmitters want to know.
    pub outgoing: bool,
    /// The archive changed.
    pub archive: bool,
    /// Endpoints by handle, and their new state; CD for one that is gone: it is finished.
    pub states: Vec<(Rc<str>, &'static str)>,
    /// Messages that went nowhere.
    pub dropped: Vec<Dropped>,
    /// Queues that were switched off.
    pub disabled: Vec<(Rc<str>, &'static str)>,
    /// Messages whose handlers failed.
    pub failed: Vec<Failed>,
    /// Messages that far brokers have acknowledged, by id, and the endpoints that sent them.
    pub transmitted: Vec<(Rc<str>, Rc<str>)>,
    /// Endpoints whose messages can't be transmitted for now, and why.
    pub unsent: Vec<(Rc<str>, Rc<str>)>,
    /// What goes wrong and is no message's fault; mostly not of a commit.
    pub critical: Vec<Critical>,
    /// The earliest time at which something new is due: the pollers of all contexts want to know.
    pub due: Option<Instant>,
    /// Something came into the hop, or is to be removed from a store of the application's own.
    pub hop: bool,
    /// Not a commit: what contexts tell each other about who leads. Alone in its notice.
    pub role: Option<RoleNotice>,
    /// Not a commit: a group was given back, and whoever waits may look. For other contexts, and alone in its notice.
    pub released: bool,
}

/// What contexts tell each other about who does a thing for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleNotice {
    /// The name of the role: "poller", or "route:" and the name of the far service.
    pub role: Rc<str>,
    /// What is said of it.
    pub kind: RoleKind,
}

/// What is said of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// The one that has it can't be seen: whoever waits and can be seen may ask for it.
    Hidden,
    /// One that waits can be seen: if the one that has it can't be, it hands over.
    Wanted,
}

impl RoleKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Wanted => "wanted",
        }
    }

    /// The one with a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Hidden, Self::Wanted].into_iter().find(|kind| kind.name() == name)
    }
}

/// A message whose handler failed, and what comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// The message.
    pub message_id: Rc<str>,
    /// Its queue.
    pub queue: Rc<str>,
    /// Its endpoint.
    pub handle: Rc<str>,
    /// What the handler threw.
    pub error: Thrown,
    /// What became of it.
    pub recovered: Recovered,
}

/// Trouble that is no message's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Critical {
    /// What was being done.
    pub source: Rc<str>,
    /// What it failed with.
    pub error: Thrown,
}

/// A message that went nowhere, and why; or several of one conversation that went together.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    /// Why, and how many if it is not one.
    pub reason: Rc<str>,
    /// Columns of the message; of several those that they share, and the number of the first.
    pub message: Vec<(&'static str, Value)>,
    /// What can be shown of the envelope that it came in, without the body.
    pub envelope: Option<Value>,
}

/// What a notice told at a time: [`Notice::back_to`] takes back what was added since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    lengths: [usize; 9],
    flags: [bool; 6],
    due: Option<Instant>,
}

impl Notice {
    /// What it tells by now.
    pub(crate) fn told(&self) -> Told {
        let (queues, enqueued) = (self.queues.len(), self.enqueued.len());
        let (transmitted, unsent) = (self.transmitted.len(), self.unsent.len());
        let critical = self.critical.len();
        let (states, dropped) = (self.states.len(), self.dropped.len());
        let (disabled, failed) = (self.disabled.len(), self.failed.len());
        Told {
            lengths: [queues, enqueued, states, dropped, disabled, failed, transmitted, unsent, critical],
            flags: [self.conversations, self.delayed, self.transmission, self.outgoing, self.archive, self.hop],
            due: self.due,
        }
    }

    /// Tells no more than it did then.
    pub(crate) fn back_to(&mut self, told: Told) {
        let [queues, enqueued, states, dropped, disabled, failed, transmitted, unsent, critical] = told.lengths;
        self.queues.truncate(queues);
        self.enqueued.truncate(enqueued);
        self.states.truncate(states);
        self.dropped.truncate(dropped);
        self.disabled.truncate(disabled);
        self.failed.truncate(failed);
        self.transmitted.truncate(transmitted);
        self.unsent.truncate(unsent);
        self.critical.truncate(critical);
        [self.conversations, self.delayed, self.transmission, self.outgoing, self.archive, self.hop] = told.flags;
        self.due = told.due;
    }

    /// Before it is told: of what happened to an endpoint or a queue several times, only the last.
    pub(crate) fn settle(&mut self) {
        [&mut self.states, &mut self.disabled].into_iter().for_each(keep_last);
    }

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
        self.outgoing |= other.outgoing;
        self.archive |= other.archive;
        self.hop |= other.hop;
        self.states.extend(other.states.iter().cloned());
        self.dropped.extend(other.dropped.iter().cloned());
        self.disabled.extend(other.disabled.iter().cloned());
        self.failed.extend(other.failed.iter().cloned());
        self.transmitted.extend(other.transmitted.iter().cloned());
        self.unsent.extend(other.unsent.iter().cloned());
        self.critical.extend(other.critical.iter().cloned());
        other.due.into_iter().for_each(|at| self.due_by(at));
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn keep_last(told: &mut Vec<(Rc<str>, &'static str)>) {
    let mut later = Map::default();
    // From the last on: the first that is met of each stays.
    told.reverse();
    told.retain(|(whose, _)| later.insert(Rc::clone(whose), ()).is_none());
    told.reverse();
}
