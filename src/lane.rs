//! Lanes: where `enqueue` puts its messages. A lane is a queue, a key and a priority.
//!
//! It is a conversation with one end, the receiving one, at the queue's own service. A record of the store `members` names it, and it says which
//! lane it is: each the other. It is there while it has a row of any status or a timer; the commit that empties it removes it, so that a
//! million different keys leave nothing behind.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;
use crate::conversation::{Conversation, Side, State};
use crate::definitions::DEFAULT;
use crate::error_queue::FailedAt;
use crate::ids::{Role, text};
use crate::membership;
use crate::poison;
use crate::record::{self, Fields, Read, Unreadable};
use crate::recoverability;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, Key, Range, StoreName};
use crate::sweep;
use crate::work::Work;

/// The lanes of messages whose order does not matter.
pub(crate) const LOOSE: u32 = 16;

/// The end that a lane has.
pub(crate) const ROLE: Role = Role::Target;

/// What tells the lanes of one queue and priority apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneKey {
    /// One of the broker's own: below [`LOOSE`] for messages whose order does not matter, [`LOOSE`] for those without a key.
    Number(u32),
    /// The application's.
    Text(Rc<str>),
    /// Of one message that was moved away from others, by the number of its conversation.
    Own(u64),
}

impl LaneKey {
    /// What the application calls it.
    pub(crate) fn text(&self) -> Option<&Rc<str>> {
        match self {
            Self::Number(_) | Self::Own(_) => None,
            Self::Text(text) => Some(text),
        }
    }

    /// Whether the order of its messages does not matter.
    pub(crate) fn is_loose(&self) -> bool {
        matches!(self, Self::Number(number) if *number < LOOSE)
    }

    pub(crate) fn record(&self) -> Value {
        match self {
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::from(&**text),
            Self::Own(number) => Value::list(vec![record::value(*number)]),
        }
    }

    pub(crate) fn read(value: &Value) -> Read<Self> {
        if value.is_list() {
            return Ok(Self::Own(Fields::part(value)?.number()?));
        }
        let number = value.number().and_then(|number| number.to_u32()).map(Self::Number);
        number
            .or_else(|| value.text().map(|text| Self::Text(text.into())))
            .ok_or(Unreadable::Field("the key of a lane is missing"))
    }
}

/// A lane, whether it is there or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// The queue's own.
    pub(crate) service: u32,
    pub(crate) priority: u32,
    pub(crate) key: LaneKey,
}

/// What the conversation of a lane says of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) key: LaneKey,
    /// The number within the side that is shown as 0: the first after the END before.
    pub(crate) base: u64,
    /// Where its one message failed: it lies in the error queue.
    pub(crate) failed: Option<Rc<FailedAt>>,
}

impl Lane {
    /// The lane that a conversation is, if it is one.
    pub(crate) fn of(conversation: &Conversation) -> Option<Self> {
        let (place, side) = (conversation.lane.as_ref()?, conversation.side(ROLE)?);
        Some(Self { service: side.service, priority: side.priority, key: place.key.clone() })
    }

    /// The key of the record that names it.
    pub(crate) fn name(&self) -> Key {
        let key = match &self.key {
            LaneKey::Number(number) => Key::from(*number),
            LaneKey::Text(text) => Key::Text(Rc::clone(text)),
            // Above those that are numbers themselves.
            LaneKey::Own(number) => Key::from(record::float(*number + u64::from(LOOSE))),
        };
        Key::list(["l".into(), self.service.into(), key, self.priority.into()])
    }

    /// The number of its conversation, if it has one.
    fn number(&self, work: &mut Work<'_>) -> Outcome<Option<u64>> {
        // One of this unit of work the store does not know yet; a remembered one says itself whether it still is the lane.
        let known = work.changes.lanes.get(self).copied().into_iter().chain(work.core.lanes.get(self));
        for number in known {
            if work.conversation(number)?.is_some_and(|conversation| Self::of(&conversation).as_ref() == Some(self)) {
                return Ok(Some(number));
            }
        }
        let Some(record) = work.get(StoreName::Members, self.name())? else { return Ok(None) };
        named(&record).map(Some).map_err(|problem| problem.at(StoreName::Members, &self.name()).into())
    }

    /// Its conversation.
    fn find(&self, work: &mut Work<'_>) -> Outcome<Option<Box<Conversation>>> {
        let Some(number) = self.number(work)? else { return Ok(None) };
        Ok(work.conversation(number)?.filter(|conversation| Self::of(conversation).as_ref() == Some(self)))
    }

    /// Reads several at once.
    pub(crate) fn read_ahead<'a>(work: &mut Work<'_>, lanes: impl Iterator<Item = &'a Self>) -> Outcome<()> {
        let mut is_missing = false;
        for lane in lanes {
            match lane.find(work) {
                Err(Stop::Missing) => is_missing = true,
                found => _ = found?,
            }
        }
        if is_missing { Err(Stop::Missing) } else { Ok(()) }
    }

    /// Its conversation, which is begun if there is none.
    pub(crate) fn open(&self, work: &mut Work<'_>, service: &Rc<str>) -> Outcome<Box<Conversation>> {
        if let Some(conversation) = self.find(work)? {
            return Ok(conversation);
        }
        let number = work.conversation_number()?;
        self.begin(work, number, service, None)
    }

    /// One for a single message.
    pub(crate) fn of_one(
        work: &mut Work<'_>,
        (service, name): (u32, &Rc<str>),
        priority: u32,
        failed: Option<FailedAt>,
    ) -> Outcome<Box<Conversation>> {
        let number = work.conversation_number()?;
        Self { service, priority, key: LaneKey::Own(number) }.begin(work, number, name, failed)
    }

    fn begin(
        &self,
        work: &mut Work<'_>,
        number: u64,
        service: &Rc<str>,
        failed: Option<FailedAt>,
    ) -> Outcome<Box<Conversation>> {
        let conversation = Box::new(Conversation {
            number,
            bits: work.core.host.ids.bits(),
            id: text(work.core.host.ids.uuid()),
            contract: DEFAULT.into(),
            created_at: work.now,
            lifetime: None,
            initiator_service: Rc::clone(service),
            target_service: Rc::clone(service),
            to_broker: None,
            far_broker: None,
            local: Some(true),
            initiator: None,
            target: Some(Side::new(self.service, State::Conversing, self.priority, None)),
            reuse: None,
            lane: Some(Place { key: self.key.clone(), base: 0, failed: failed.map(Rc::new) }),
            closes: None,
        });
        work.move_state(&conversation, ROLE, self.service, None, Some(State::Conversing))?;
        if conversation.has_failed() {
            work.count(self.service, |counters| counters.failed += 1)?;
        }
        work.changes.name_lane(self.clone(), number);
        let record = Value::list(vec![Value::from(1u32), record::value(number)]);
        work.write(Change::Put(StoreName::Members, self.name(), record));
        Ok(conversation)
    }
}

/// The records that name the lanes of a service.
pub(crate) fn names_of(service: u32) -> Range {
    Range::prefix(vec!["l".into(), service.into()])
}

/// The number of the conversation in a record.
pub(crate) fn named(record: &Value) -> Read<u64> {
    Fields::open(record)?.number()
}

impl Conversation {
    /// Whether it is the lane of a message that failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.failed.is_some())
    }

    /// Whether it is a lane with nothing in it.
    pub(crate) fn is_empty_lane(&self) -> bool {
        let is_empty = |side: &Side| {
            side.unread + side.kept + side.copies + side.parked + side.held_count() == 0 && side.timers.is_empty()
        };
        self.lane.is_some() && self.side(ROLE).is_some_and(is_empty)
    }
}

/// A lane goes, and whatever rows it still has on disk.
pub(crate) fn remove(work: &mut Work<'_>, mut conversation: Box<Conversation>) -> Outcome<()> {
    let (Some(lane), Some(side)) = (Lane::of(&conversation), conversation.side(ROLE).cloned()) else { return Ok(()) };
    let id = conversation.id_of(ROLE);
    if let Some(side) = conversation.side_mut(ROLE) {
        poison::settle(work, side)?;
        recoverability::forget(work, id, side);
    }
    membership::leave(work, &conversation, ROLE)?;
    work.move_state(&conversation, ROLE, side.service, Some(side.state), None)?;
    if conversation.has_failed() {
        work.count(side.service, |counters| counters.failed = counters.failed.saturating_sub(1))?;
    }
    work.changes.drop_rows(|pending| pending.side == id);
    sweep::remove(work, id, &side);
    work.write(Change::Delete(StoreName::Members, lane.name()));
    conversation.target = None;
    work.save(conversation);
    Ok(())
}
