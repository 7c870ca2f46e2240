//! Delayed messages: what is to be sent, or put into a queue, at a later time.
//!
//! A message lies in the store `delayed` until then, in a run ([`run`]) with those that were stored together with it. Its place is [time, stamp];
//! messages of one time are in the order in which they were stored. The commit that takes it out sends it ([`dispatch`]), so it is sent once,
//! whoever tries.
//!
//! Its id says its place, where the commit could still choose it: cancelling needs no index, and dispatching no second delete. A message of a
//! transaction has its id before it has a place; a record of the store `members` leads from the one to the other, and so it does once a message
//! has been rescheduled. Another one there says which runs an endpoint has under way: they go with its END.

mod change;
mod circuit_breaker;
pub(crate) mod custom;
mod dispatch;
pub(crate) mod due;
mod pending;
mod run;
mod schedule;

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::{Builder, Uuid};

pub(crate) use change::{Cancel, Reschedule, resume};
pub use circuit_breaker::BreakerState;
pub(crate) use circuit_breaker::{CircuitBreaker, FailureRate};
pub(crate) use custom::Withdrawn;
pub(crate) use custom::{Came, Hop, Step, StorePoller};
pub use custom::{DelayedMessage, DelayedMessageStore, DelayedSettings, Fetched, TransactionMode};
pub(crate) use custom::{mend, mend_mark, mend_name};
pub(crate) use dispatch::LONGEST_WAIT;
pub(crate) use pending::Shift;
pub(crate) use run::{Run, RunKey, count_marked, count_messages, read_ahead};
pub(crate) use schedule::{check_lifetime, forget_all, schedule};

use crate::body::{Body, Part, Value};
use crate::clock::Instant;
use crate::error::{Error, Result};
use crate::ids::{Decoded, Role, SideId, text};
use crate::lane::LaneKey;
use crate::message::{self, Class, Row};
use crate::record::{Fields, Read, Unreadable, float};
use crate::store::{Bound, Key, Range, StoreName};

/// The last instant that a JavaScript Date has.
const LATEST: Instant = 8.64e15;
/// Times and stamps below these fit into an id.
const TIMES: u64 = 1 << 48;
const STAMPS: u64 = 1 << 42;
/// Of an id whose random bits are beside the stamp.
const CHANCE: u32 = 32;

/// When a message is to be delivered. Whole milliseconds: fractions are rounded up, so that nothing comes early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// So many milliseconds after the commit.
    After(f64),
    /// At this instant; one in the past is as good as now.
    At(Instant),
}

impl Delay {
    /// What can be seen without looking anything up. `now`: the time of the call.
    pub(crate) fn check(self, now: Instant) -> Result<()> {
        match self {
            Self::After(delay) if !(delay >= 0.0 && delay.is_finite()) => {
                Err(Error::invalid_argument("delay", "is not a number of milliseconds from 0 on"))
            }
            Self::At(at) if !at.is_finite() => Err(Error::invalid_argument("deliverAt", "is not an instant")),
            Self::After(_) if self.due(now) > LATEST => {
                Err(Error::invalid_argument("delay", "leads beyond the last instant that a Date has"))
            }
            Self::At(at) if at.abs() > LATEST => {
                Err(Error::invalid_argument("deliverAt", "is beyond the last instant that a Date has"))
            }
            _ => Ok(()),
        }
    }

    /// When it is due, if it is stored at an instant.
    pub(crate) fn due(self, now: Instant) -> Instant {
        match self {
            Self::After(delay) => (now + delay).ceil(),
            Self::At(at) => at.ceil(),
        }
    }
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum To {
    /// It is sent on the conversation with this handle.
    Conversation(Rc<str>),
    /// It goes into a lane of a queue.
    Lane { queue: Rc<str>, key: LaneKey, priority: u32 },
}

impl To {
    /// The handle of the endpoint that it is sent by.
    pub(crate) fn handle(&self) -> Option<&Rc<str>> {
        match self {
            Self::Conversation(handle) => Some(handle),
            Self::Lane { .. } => None,
        }
    }

    /// The endpoint that it is sent by.
    pub(crate) fn side(&self) -> Option<SideId> {
        self.handle().and_then(|handle| Decoded::parse(handle)).map(|decoded| decoded.side)
    }

    fn record(&self) -> Value {
        match self {
            Self::Conversation(handle) => Value::from(&**handle),
            Self::Lane { queue, key, priority } => {
                Value::list(vec![Value::from(&**queue), key.record(), Value::from(*priority)])
            }
        }
    }

    fn read(to: &Value) -> Read<Self> {
        if let Some(handle) = to.text() {
            return Ok(Self::Conversation(handle.into()));
        }
        let mut fields = Fields::part(to)?;
        Ok(Self::Lane { queue: fields.text()?, key: LaneKey::read(&fields.any())?, priority: fields.small()? })
    }
}

/// Where a message stands among all: no two have the same place. Of one time, what was stored first has the lower stamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) at: Instant,
    pub(crate) stamp: u64,
}

impl Place {
    /// In the order of these, messages are due.
    pub(crate) fn key(self) -> Key {
        Key::list([self.at.into(), float(self.stamp).into()])
    }

    /// The place that an id says.
    pub(crate) fn of(id: Uuid) -> Option<Self> {
        let bits = Some(id.as_u128()).filter(|_| id.get_version_num() == 8)?;
        let rest = ((bits >> 64 & 0xfff) << 62) | (bits & ((1 << 62) - 1));
        let stamp = u64::try_from(rest >> CHANCE).ok()?;
        Some(Self { at: (bits >> 80).to_f64()?, stamp })
    }

    /// An id that says this place; `None`: it does not fit. `chance`: an id to take the random bits from.
    fn id(self, chance: Uuid) -> Option<Uuid> {
        let at = self.at.to_u64().filter(|at| self.at >= 0.0 && *at < TIMES)?;
        let stamp = Some(self.stamp).filter(|stamp| *stamp < STAMPS)?;
        let rest = (u128::from(stamp) << CHANCE) | (chance.as_u128() & ((1 << CHANCE) - 1));
        let bits = (u128::from(at) << 80) | ((rest >> 62) << 64) | (rest & ((1 << 62) - 1));
        Some(Builder::from_custom_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// Where the body of its message is, if that has a record of its own: no side has number 0.
    pub(crate) fn body(self) -> Key {
        message::key(SideId { conversation: 0, role: Role::Initiator }, Class::System, self.stamp)
    }
}

/// A message that is delayed.
#[derive(Clone, Debug)]
pub(crate) struct Delayed {
    pub(crate) place: Place,
    pub(crate) to: To,
    pub(crate) id: Uuid,
    /// A record leads from its id to its place.
    pub(crate) is_named: bool,
    pub(crate) message_type: Rc<str>,
    pub(crate) headers: Option<Part>,
    /// Without its value, if that is large, until that is read.
    pub(crate) body: Body,
    /// When it was to be delivered; its place is later when that had to wait.
    pub(crate) time: Instant,
    /// How often it had to wait.
    pub(crate) waits: u64,
    /// The id that `enqueue` was given with it, not to be taken twice.
    pub(crate) seen: Option<Rc<str>>,
    /// `Some`: it is for a store of the application's own, and lies in the hop.
    pub(crate) hop: Option<Hop>,
}

impl Delayed {
    /// Where its large body is.
    pub(crate) fn body_key(&self) -> Key {
        self.place.body()
    }

    pub(crate) fn is_large(&self) -> bool {
        self.body.is_large()
    }

    /// The endpoint that it is sent by.
    pub(crate) fn side(&self) -> Option<SideId> {
        self.to.side()
    }

    /// Of the endpoint that it is sent by.
    pub(crate) fn handle(&self) -> Option<&Rc<str>> {
        self.to.handle()
    }

    /// As it goes, or lies among others.
    fn row(&self, time: Instant) -> Row {
        Row {
            message_type: Rc::clone(&self.message_type),
            id: self.id,
            time,
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }

    /// The key of the record that leads to it.
    pub(crate) fn name(id: Uuid) -> Key {
        Key::list(["i".into(), Key::Text(text(id))])
    }
}

/// What an endpoint knows of the runs that it has under way.
pub(crate) fn marks_of(side: SideId) -> Range {
    Range::prefix(vec!["d".into(), float(side.number()).into()])
}

/// The keys of all runs. Records under keys that no build makes are nobody's, and stand in nobody's way.
pub(crate) fn all_messages() -> Range {
    Range::up_to(Key::list([f64::NEG_INFINITY.into()]), Key::list(["".into()]))
}

/// The keys of what is due at an instant, and of what is not.
pub(crate) fn due_at(now: Instant) -> (Range, Range) {
    // Behind every run of that time.
    let end = Key::list([now.into(), Key::List(Vec::new())]);
    let all = all_messages();
    (Range { upper: Bound::Excluding(end.clone()), ..all.clone() }, Range { lower: Bound::Including(end), ..all })
}

impl Unreadable {
    /// The error for a run under a key.
    pub(crate) fn of_delayed(self, key: &Value) -> Error {
        self.at(StoreName::Delayed, &Key::from_value(key).unwrap_or(Key::Number(-1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_its_key() {
        let chance = Uuid::from_u128(0x1234_5678_9abc_4def_8123_4567_89ab_cdef);
        for (at, stamp) in [(0.0, 1), (1.7e12, 77), (253_402_300_799_999.0, STAMPS - 1)] {
            let place = Place { at, stamp };
            let id = place.id(chance).expect("it fits");
            assert_eq!(Place::of(id), Some(place));
            assert_eq!(id.get_version_num(), 8);
        }
        for (at, stamp) in [(-1.0, 1), (281_474_976_710_656.0, 1), (0.0, STAMPS)] {
            assert_eq!(Place { at, stamp }.id(chance), None, "{at} {stamp}");
        }
        assert_eq!(Place::of(chance), None);
    }
}
