//! Turns: small records that say which side has something to receive, so that nobody looks for it.
//!
//! | kind | key | there is one exactly while |
//! |---|---|---|
//! | to receive | [queue, 0, 10 − priority, order, side] | the side has unread rows |
//! | to receive in a group | [queue, 1, group, 10 − priority, order, side] | so, and the side was put into a group |
//! | to come in | [queue, 2, order, side] | messages wait outside because the queue is off |
//! | to transmit | [0, 3, far service, when, 10 − priority, time, side] and [0, 4, time, side] | rows wait for their transmission |
//!
//! "When" is 0 for what may be handed over at once, "time" since when something waits.
//! The order in a key is a lower bound of the order of the side's oldest unread row: it is corrected when somebody looks, not at every
//! RECEIVE.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::Conversation;
use crate::ids::{Role, SideId};
use crate::record::{self, Fields, Read};
use crate::store::{Bound, Key, Range};

/// A turn to receive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) queue: u32,
    pub(crate) priority: u32,
    pub(crate) order: u64,
    pub(crate) side: SideId,
    pub(crate) service: u32,
    /// The group that has to be held to receive.
    pub(crate) group: Rc<str>,
    /// Sides were put into that group: there is a twin.
    pub(crate) is_shared: bool,
}

/// Whose turn a key is.
pub(crate) fn side_of(key: &Key) -> Option<SideId> {
    let Key::List(parts) = key else { return None };
    match parts.last()? {
        Key::Number(number) => number.to_u64().map(SideId::from_number),
        _ => None,
    }
}

fn rank(priority: u32) -> Key {
    Key::from(10u32.saturating_sub(priority))
}

fn number(number: u64) -> Key {
    Key::from(record::float(number))
}

impl Turn {
    /// Every turn to receive of a queue, the first in line first.
    pub(crate) fn of_queue(queue: u32) -> Range {
        Range::prefix(vec![queue.into(), 0u32.into()])
    }

    /// Those of one priority.
    pub(crate) fn of_priority(queue: u32, priority: u32) -> Range {
        Range::prefix(vec![queue.into(), 0u32.into(), rank(priority)])
    }

    /// Where those of the priorities below one begin.
    pub(crate) fn after_priority(queue: u32, priority: u32) -> Key {
        Key::list([queue.into(), 0u32.into(), rank(priority.saturating_sub(1))])
    }

    /// Those of a group that sides were put into.
    pub(crate) fn of_group(queue: u32, group: &str) -> Range {
        Range::prefix(vec![queue.into(), 1u32.into(), group.into()])
    }

    /// The turn of a side; `None`: it has nothing to receive.
    pub(crate) fn of(conversation: &Conversation, id: SideId, queue: u32) -> Option<Self> {
        let side = conversation.side(id.role)?;
        Some(Self {
            queue,
            priority: side.priority,
            order: side.turn?,
            side: id,
            service: side.service,
            group: conversation.group(id.role),
            is_shared: side.group.is_some(),
        })
    }

    pub(crate) fn key(&self) -> Key {
        Key::list([self.queue.into(), 0u32.into(), rank(self.priority), number(self.order), number(self.side.number())])
    }

    /// The key of its twin, if its side was put into a group.
    pub(crate) fn twin_key(&self) -> Option<Key> {
        self.is_shared.then(|| {
            Key::list([
                self.queue.into(),
                1u32.into(),
                (&*self.group).into(),
                rank(self.priority),
                number(self.order),
                number(self.side.number()),
            ])
        })
    }

    pub(crate) fn record(&self) -> Value {
        Value::list(vec![
            Value::from(1u32),
            Value::from(self.queue),
            Value::from(self.priority),
            record::value(self.order),
            record::value(self.side.number()),
            Value::from(self.service),
            Value::from(&*self.group),
            Value::from(self.is_shared),
        ])
    }

    /// Reads a record of a turn to receive.
    pub(crate) fn read(value: &Value) -> Read<Self> {
        let mut fields = Fields::open(value)?;
        Ok(Self {
            queue: fields.small()?,
            priority: fields.small()?,
            order: fields.number()?,
            side: SideId::from_number(fields.number()?),
            service: fields.small()?,
            group: fields.text()?,
            is_shared: fields.flag()?,
        })
    }
}

/// The turn of a side whose messages wait outside because the queue is off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeldTurn {
    pub(crate) queue: u32,
    pub(crate) order: u64,
    pub(crate) side: SideId,
}

impl HeldTurn {
    pub(crate) fn of_queue(queue: u32) -> Range {
        Range::prefix(vec![queue.into(), 2u32.into()])
    }

    pub(crate) fn key(&self) -> Key {
        Key::list([self.queue.into(), 2u32.into(), number(self.order), number(self.side.number())])
    }

    pub(crate) fn record(&self) -> Value {
        Value::list(vec![
            Value::from(1u32),
            Value::from(self.queue),
            record::value(self.order),
            record::value(self.side.number()),
        ])
    }

    pub(crate) fn read(value: &Value) -> Read<Self> {
        let mut fields = Fields::open(value)?;
        Ok(Self { queue: fields.small()?, order: fields.number()?, side: SideId::from_number(fields.number()?) })
    }
}

/// The turns of a side with rows to transmit: one among those for the same service, and one among all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutgoingTurn {
    /// The far service.
    pub(crate) service: Rc<str>,
    /// When something may be handed over; 0: at once.
    pub(crate) at: Instant,
    pub(crate) priority: u32,
    /// Since when something waits.
    pub(crate) time: Instant,
    pub(crate) side: SideId,
    /// It may go by a route. What comes in here, or is for this very broker, has no turn among those of the service.
    pub(crate) is_far: bool,
}

impl OutgoingTurn {
    /// The one of a side; `None`: it has nothing to transmit, or may not.
    pub(crate) fn of(conversation: &Conversation, role: Role) -> Option<Self> {
        let side = conversation.side(role)?;
        let outgoing = side.outgoing.as_ref()?;
        Some(Self {
            service: Rc::clone(conversation.service(role.other())),
            at: outgoing.ready_at(side.next_send),
            priority: side.priority,
            time: outgoing.turn?,
            side: conversation.id_of(role),
            is_far: conversation.local != Some(true) && conversation.to_broker.as_deref() != Some("current"),
        })
    }

    /// All, whoever has waited longest first.
    pub(crate) fn all() -> Range {
        Range::prefix(vec![0u32.into(), 4u32.into()])
    }

    /// Those of all services, service by service.
    pub(crate) fn by_service() -> Range {
        Range::prefix(vec![0u32.into(), 3u32.into()])
    }

    /// Those of one service, what may be handed over at once first.
    pub(crate) fn of_service(service: &str) -> Range {
        Range::prefix(vec![0u32.into(), 3u32.into(), service.into()])
    }

    /// The service in a key, and when something may be handed over.
    pub(crate) fn place(key: &Key) -> Option<(Rc<str>, Instant)> {
        let Key::List(parts) = key else { return None };
        match (parts.get(2)?, parts.get(3)?) {
            (Key::Text(service), Key::Number(at)) => Some((Rc::clone(service), *at)),
            _ => None,
        }
    }

    /// Where those of the services behind one begin.
    pub(crate) fn after_service(service: &str) -> Key {
        // No part of a key comes behind an empty list.
        Key::list([0u32.into(), 3u32.into(), service.into(), Key::List(Vec::new())])
    }

    /// Those for a service that may be handed over at once, the higher priority first.
    pub(crate) fn ready(service: &str) -> Range {
        Range::prefix(vec![0u32.into(), 3u32.into(), service.into(), 0u32.into()])
    }

    /// Those of one priority among them, whoever has waited longest first.
    pub(crate) fn ready_of(service: &str, priority: u32) -> Range {
        Range::prefix(vec![0u32.into(), 3u32.into(), service.into(), 0u32.into(), rank(priority)])
    }

    /// Those for a service that wait for a time, the earliest first.
    pub(crate) fn waiting(service: &str) -> Range {
        let kind = [0u32.into(), 3u32.into(), Key::from(service)];
        let behind =
            |parts: &[Key]| Key::List(kind.iter().chain(parts).cloned().chain([Key::List(Vec::new())]).collect());
        Range { lower: Bound::Excluding(behind(&[0u32.into()])), upper: Bound::Excluding(behind(&[])) }
    }

    pub(crate) fn key(&self) -> Key {
        Key::list([
            0u32.into(),
            3u32.into(),
            (&*self.service).into(),
            self.at.into(),
            rank(self.priority),
            self.time.into(),
            number(self.side.number()),
        ])
    }

    /// The key of its twin.
    pub(crate) fn twin_key(&self) -> Key {
        Key::list([0u32.into(), 4u32.into(), self.time.into(), number(self.side.number())])
    }

    /// The keys of the records that there are.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        [self.is_far.then(|| self.key()), Some(self.twin_key())].into_iter().flatten()
    }

    pub(crate) fn record(&self) -> Value {
        Value::list(vec![
            Value::from(1u32),
            Value::from(&*self.service),
            Value::from(self.at),
            Value::from(self.priority),
            Value::from(self.time),
            record::value(self.side.number()),
            Value::from(self.is_far),
        ])
    }

    pub(crate) fn read(value: &Value) -> Read<Self> {
        let mut fields = Fields::open(value)?;
        Ok(Self {
            service: fields.text()?,
            at: fields.float()?,
            priority: fields.small()?,
            time: fields.float()?,
            side: SideId::from_number(fields.number()?),
            is_far: fields.flag()?,
        })
    }
}
