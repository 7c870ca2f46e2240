//! A conversation: one record for both of its sides.
//!
//! ```text
//!            begin            first send           EndDialog arrives          END
//!  (nothing) ─────▶ SO ─────────────────▶ CO ─────────────────────▶ DI ─────────────▶ (gone)
//!                                         ▲ │  Error arrives
//!  (nothing) ─── first message arrives ───┘ ├─────────────────────▶ ER ── END ───────▶ (gone)
//!                                           │  END, nothing waits outside
//!                                           ├───────────────────────────────────────▶ (gone)
//!                                           │  END, something waits outside
//!                                           └─────────────────────▶ DO ── the last of it has gone ─▶ (gone)
//! ```
//!
//! Delivery inside one broker acknowledges at once, so DO is seen only while messages wait outside: because the far queue is off, or because
//! the far service is not here. SI is never seen: a message arrives whole. A target whose far side is elsewhere does not go at once: it is
//! shown in state CD for a while (`transmission/closed.rs`).

mod ahead;
mod record;
mod state;

use std::rc::Rc;

pub(crate) use ahead::Ahead;
pub use state::State;

use crate::clock::Instant;
use crate::ids::{Bits, Decoded, Role, SideId};
use crate::lane::Place;
use crate::poison::Trial;
use crate::recoverability::Retry;

/// A stretch of sequence numbers: `from` is the first, `to` the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What a row of class system is. In the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// Read before everything else.
    DialogTimer,
    /// Read before the rest.
    Error,
    /// A message that came back from the error queue: read before the ordinary ones.
    Returned,
}

/// A system row that has not been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemRow {
    pub(crate) kind: System,
    /// Its number within the class.
    pub(crate) number: u64,
    /// It waits outside: the queue is off.
    pub(crate) held: bool,
    /// The broker made it for this side: it does not come from the far one, and does not go with it.
    pub(crate) own: bool,
}

/// A timer that runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timer {
    /// "" unless it was given one. A side has one timer of a name.
    pub(crate) name: Rc<str>,
    /// When, and the stamp of its due row.
    pub(crate) at: Instant,
    pub(crate) stamp: u64,
}

/// Messages that wait outside because the queue is off: those from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) from: u64,
    /// The last of them is an EndDialog.
    pub(crate) ends: bool,
}

/// What a side has to do with a far broker. Numbers are those of what the side has sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outgoing {
    /// The next number that is not acknowledged.
    pub(crate) acknowledged: u64,
    /// Since when something waits, as its turn to transmit says; `None`: nothing waits, or it is held.
    pub(crate) turn: Option<Instant>,
    /// How often in a row the transport could not take the next one.
    pub(crate) attempts: u64,
    /// Why, and until when nothing is handed over.
    pub(crate) reason: Rc<str>,
    pub(crate) retry_at: Option<Instant>,
    /// The number after the highest that was ever handed over.
    pub(crate) handed: u64,
    /// A transport has accepted what comes before this number: it is offered again then.
    pub(crate) accepted: u64,
    pub(crate) offer_again_at: Option<Instant>,
    /// The far broker has acknowledged something, so it is known which one it is.
    pub(crate) is_confirmed: bool,
    /// The route that something was handed to last.
    pub(crate) via: Option<Rc<str>>,
    /// What waits is an Error of the broker's own: it goes although nothing else may be sent any more.
    pub(crate) is_last_word: bool,
}

impl Outgoing {
    /// The first number that is to be handed over next.
    pub(crate) fn next(&self) -> u64 {
        self.acknowledged.max(self.accepted)
    }

    /// When something may be handed over, as far as the side's numbers go; 0: at once.
    pub(crate) fn ready_at(&self, next_send: u64) -> Instant {
        if let Some(at) = self.retry_at {
            return at;
        }
        let goes_on = self.is_confirmed || self.accepted <= self.acknowledged;
        if goes_on && self.next() < next_send { 0.0 } else { self.offer_again_at.unwrap_or(0.0) }
    }
}

/// One end of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Side {
    pub(crate) service: u32,
    pub(crate) state: State,
    pub(crate) priority: u32,
    /// The group that it was put into; `None`: its own.
    pub(crate) group: Option<Rc<str>>,
    /// The next number to send, and the next that is expected.
    pub(crate) next_send: u64,
    pub(crate) next_expected: u64,
    /// The first number that has not been received by a reader.
    pub(crate) cursor: u64,
    /// Rows by what they are, for queue counters and `count`.
    pub(crate) unread: u64,
    pub(crate) kept: u64,
    pub(crate) copies: u64,
    pub(crate) parked: u64,
    /// Which received rows stay, and which sent ones.
    pub(crate) kept_intervals: Vec<Interval>,
    pub(crate) copied_intervals: Vec<Interval>,
    pub(crate) system: Vec<SystemRow>,
    pub(crate) next_system: u64,
    /// The order in the key of its turn to receive, while there is one: not above that of its oldest unread row.
    pub(crate) turn: Option<u64>,
    pub(crate) held: Option<Held>,
    /// The order in the key of its turn to come back in, while the queue is off and something waits.
    pub(crate) held_turn: Option<u64>,
    /// Another one when the side was made anew from a record that could not be read.
    pub(crate) fence: u64,
    /// Runs on disk, about: END sweeps many of them in slices.
    pub(crate) runs: u64,
    /// The orders of its first and last row, for the walk that removes dead index entries.
    pub(crate) first_order: u64,
    pub(crate) last_order: u64,
    /// Some of its bodies have records of their own.
    pub(crate) has_bodies: bool,
    /// Its own group has a state.
    pub(crate) has_group_state: bool,
    /// With a far broker, or a service that is not here.
    pub(crate) outgoing: Option<Outgoing>,
    pub(crate) timers: Vec<Timer>,
    /// How transactions have fared with its rows.
    pub(crate) trial: Trial,
    /// How handlers have fared with its first row.
    pub(crate) retry: Option<Box<Retry>>,
    /// How many messages it has under way in the delayed store.
    pub(crate) delayed: u64,
    /// Which rows are parked, and what is known of those that are still to come.
    pub(crate) ahead: Ahead,
}

/// A record of the store `conversations`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversation {
    pub(crate) number: u64,
    pub(crate) bits: Bits,
    /// Shared by both ends; it travels.
    pub(crate) id: Rc<str>,
    pub(crate) contract: Rc<str>,
    pub(crate) created_at: Instant,
    /// When it expires, and the stamp of its due row; `None`: it has expired.
    pub(crate) lifetime: Option<(Instant, Option<u64>)>,
    /// Names, of services here or elsewhere.
    pub(crate) initiator_service: Rc<str>,
    pub(crate) target_service: Rc<str>,
    /// The broker that the initiator asked for.
    pub(crate) to_broker: Option<Rc<str>>,
    /// The far broker, once it is known.
    pub(crate) far_broker: Option<Rc<str>>,
    /// Both ends are in this broker. Decided by the first message.
    pub(crate) local: Option<bool>,
    pub(crate) initiator: Option<Side>,
    pub(crate) target: Option<Side>,
    /// What its beginner asked for to find it again, as long as it can be found.
    pub(crate) reuse: Option<Rc<str>>,
    /// It is a lane: its target is there alone.
    pub(crate) lane: Option<Place>,
    /// Its target, whose far side is elsewhere, is finished and goes then: the time and the stamp of the due row.
    pub(crate) closes: Option<(Instant, u64)>,
}

impl Side {
    pub(crate) fn new(service: u32, state: State, priority: u32, group: Option<Rc<str>>) -> Self {
        Self {
            service,
            state,
            priority,
            group,
            next_send: 0,
            next_expected: 0,
            cursor: 0,
            unread: 0,
            kept: 0,
            copies: 0,
            parked: 0,
            kept_intervals: Vec::new(),
            copied_intervals: Vec::new(),
            system: Vec::new(),
            next_system: 0,
            turn: None,
            held: None,
            held_turn: None,
            fence: 0,
            runs: 0,
            first_order: 0,
            last_order: 0,
            has_bodies: false,
            has_group_state: false,
            outgoing: None,
            timers: Vec::new(),
            trial: Trial::default(),
            retry: None,
            delayed: 0,
            ahead: Ahead::default(),
        }
    }

    /// The first number in sequence that is hidden, or the next expected.
    pub(crate) fn visible_end(&self) -> u64 {
        self.held.map_or(self.next_expected, |held| held.from)
    }

    /// Unread rows in sequence: everything unread but system rows.
    pub(crate) fn unread_in_sequence(&self) -> u64 {
        self.visible_end().saturating_sub(self.cursor)
    }

    /// Rows that wait outside.
    pub(crate) fn held_count(&self) -> u64 {
        self.held_rows(|_| true)
    }

    /// Those of them that the far side has sent.
    pub(crate) fn held_from_far(&self) -> u64 {
        self.held_rows(|row| !row.own)
    }

    fn held_rows(&self, counts: impl Fn(&SystemRow) -> bool) -> u64 {
        let system = self.system.iter().filter(|row| row.held && counts(row)).count();
        self.next_expected.saturating_sub(self.visible_end()) + u64::try_from(system).unwrap_or_default()
    }

    /// Adds a stretch to a list of intervals; a stretch that follows the last one lengthens it.
    pub(crate) fn add_interval(intervals: &mut Vec<Interval>, from: u64, to: u64) {
        match intervals.last_mut().filter(|last| last.to == from) {
            Some(last) => last.to = to,
            None if from < to => intervals.push(Interval { from, to }),
            None => {}
        }
    }
}

impl Conversation {
    pub(crate) fn side(&self, role: Role) -> Option<&Side> {
        match role {
            Role::Initiator => self.initiator.as_ref(),
            Role::Target => self.target.as_ref(),
        }
    }

    pub(crate) fn side_mut(&mut self, role: Role) -> &mut Option<Side> {
        match role {
            Role::Initiator => &mut self.initiator,
            Role::Target => &mut self.target,
        }
    }

    pub(crate) fn id_of(&self, role: Role) -> SideId {
        SideId { conversation: self.number, role }
    }

    /// The handle of one of its ends.
    pub(crate) fn handle(&self, role: Role) -> Rc<str> {
        Decoded { side: self.id_of(role), is_group: false, bits: self.bits }.text()
    }

    /// The id of the group that a side is in.
    pub(crate) fn group(&self, role: Role) -> Rc<str> {
        let explicit = self.side(role).and_then(|side| side.group.clone());
        explicit.unwrap_or_else(|| self.own_group(role))
    }

    /// The id of the group that a side is in as long as it is put into no other.
    pub(crate) fn own_group(&self, role: Role) -> Rc<str> {
        Decoded { side: self.id_of(role), is_group: true, bits: self.bits }.text()
    }

    /// The name of the service at one of its ends.
    pub(crate) fn service(&self, role: Role) -> &Rc<str> {
        match role {
            Role::Initiator => &self.initiator_service,
            Role::Target => &self.target_service,
        }
    }

    /// Whether a handle, or the id of a side's own group, is one of its own.
    pub(crate) fn has(&self, decoded: Decoded) -> bool {
        self.bits == decoded.bits && self.side(decoded.side.role).is_some()
    }

    /// Whether what this end sends waits for its transmission: the far end is elsewhere, or is here by now and what was sent before waits.
    pub(crate) fn transmits(&self, role: Role) -> bool {
        self.local == Some(false) || self.side(role).is_some_and(|side| side.outgoing.is_some())
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.initiator.is_none() && self.target.is_none()
    }
}
