//! Due rows: what is to happen by itself at a time. The key says when, what, and to whom: one short read finds the earliest.
//!
//! | kind | number | value |
//! |---|---|---|
//! | dialog timer | of the side | side, name, body, packing, size |
//! | lifetime | of the conversation | conversation |
//! | id that `enqueue` was given, and the id | of the queue | |
//! | age of what a queue retains | of the queue | |
//! | what waits for services that were defined late comes in | 0 | the turn to transmit that it has come to |
//! | wait after a failure | of the side | side, since when |
//! | a delayed message had to wait | 0 | since when |
//! | an endpoint in state CD goes | of the conversation | conversation |
//!
//! Each is named by exactly one record, of the store `conversations`, `seen` or `queues`, which knows the time and the stamp; but nobody names
//! that of services, and that of a delayed message, which has the message's key in its own, is there until its time, whatever became of that.

use std::rc::Rc;

use crate::body::{Body, Value};
use crate::clock::Instant;
use crate::conversation::{Conversation, Timer};
use crate::ids::SideId;
use crate::record::{self, Fields, Read, Unreadable, float};
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DueKind {
    /// A DialogTimer for one side.
    Timer,
    /// The end of a conversation's lifetime.
    Lifetime,
    /// An id that has expired.
    Seen(Rc<str>),
    /// The oldest row that a queue retains is too old.
    Retention,
    /// The end of a side's wait after a failure.
    Retry,
    /// What waits for services that are here by now.
    Delivery,
    /// A delayed message had to wait until then: what says since when. It is dispatched by its own record.
    PutBack,
    /// An endpoint in state CD has been shown for long enough.
    Closed,
}

/// The key of a due row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    /// No two rows of one time have the same.
    pub(crate) stamp: u64,
    pub(crate) kind: DueKind,
    pub(crate) number: u64,
}

impl Due {
    /// The row of a timer.
    pub(crate) fn timer(side: SideId, timer: &Timer) -> Self {
        Self { at: timer.at, stamp: timer.stamp, kind: DueKind::Timer, number: side.number() }
    }

    /// The row of a wait that ends then.
    pub(crate) fn retry(side: SideId, (at, stamp): (Instant, u64)) -> Self {
        Self { at, stamp, kind: DueKind::Retry, number: side.number() }
    }

    /// The row of a conversation's lifetime, as long as that lasts.
    pub(crate) fn lifetime(conversation: &Conversation) -> Option<Self> {
        let (at, stamp) = conversation.lifetime?;
        Some(Self { at, stamp: stamp?, kind: DueKind::Lifetime, number: conversation.number })
    }

    pub(crate) fn key(&self) -> Key {
        let kind: u32 = match self.kind {
            DueKind::Timer => 0,
            DueKind::Lifetime => 1,
            DueKind::Seen(_) => 2,
            DueKind::Retention => 3,
            DueKind::Retry => 4,
            DueKind::Delivery => 5,
            DueKind::PutBack => 6,
            DueKind::Closed => 7,
        };
        let mut parts = vec![self.at.into(), float(self.stamp).into(), kind.into(), float(self.number).into()];
        if let DueKind::Seen(id) = &self.kind {
            parts.push(Key::Text(Rc::clone(id)));
        }
        Key::List(parts)
    }

    /// Reads a key. `None`: of a kind that a newer build knows what to do with.
    pub(crate) fn read(key: &Value) -> Option<Self> {
        let read = || {
            let mut parts = Fields::part(key)?;
            let (at, stamp) = (parts.float()?, parts.number()?);
            let (kind, number) = (parts.number()?, parts.number()?);
            let kind = match kind {
                0 => DueKind::Timer,
                1 => DueKind::Lifetime,
                2 => DueKind::Seen(parts.text()?),
                3 => DueKind::Retention,
                4 => DueKind::Retry,
                5 => DueKind::Delivery,
                6 => DueKind::PutBack,
                7 => DueKind::Closed,
                other => return Err(Unreadable::Format(other)),
            };
            Ok(Self { at, stamp, kind, number })
        };
        read().ok()
    }

    /// The conversation that it is about.
    pub(crate) fn conversation(&self) -> Option<u64> {
        match self.kind {
            DueKind::Timer | DueKind::Retry => Some(SideId::from_number(self.number).conversation),
            DueKind::Lifetime | DueKind::Closed => Some(self.number),
            DueKind::Seen(_) | DueKind::Retention | DueKind::Delivery | DueKind::PutBack => None,
        }
    }
}

/// The value of a timer's row.
pub(crate) fn timer_record(side: SideId, name: &str, body: &Body) -> Value {
    Value::list(vec![
        Value::from(1u32),
        record::value(side.number()),
        Value::from(name),
        body.value.value(),
        Value::from(body.packing),
        Value::from(body.size),
    ])
}

/// The body in a timer's row.
pub(crate) fn timer_body(record: &Value) -> Read<Body> {
    let mut fields = Fields::open(record)?;
    // Whose it is says the key, and what it is called the side.
    let (_side, _name) = (fields.any(), fields.any());
    Ok(Body { value: fields.any().into(), packing: fields.small()?, size: fields.float()? })
}

/// The value of the row of a wait that begins now.
pub(crate) fn retry_record(side: SideId, since: Instant) -> Value {
    Value::list(vec![Value::from(1u32), record::value(side.number()), Value::from(since)])
}

/// The value of the row of a delayed message that had to wait.
pub(crate) fn put_back_record(since: Instant) -> Value {
    Value::list(vec![Value::from(1u32), Value::from(since)])
}

/// The value of a lifetime's row.
pub(crate) fn lifetime_record(conversation: u64) -> Value {
    Value::list(vec![Value::from(1u32), record::value(conversation)])
}

impl Work<'_> {
    /// Stores a due row, and tells those who wait for the earliest one.
    pub(crate) fn put_due(&mut self, due: &Due, record: Value) {
        self.changes.notice.due_by(due.at);
        self.write(Change::Put(StoreName::Due, due.key(), record));
    }

    pub(crate) fn drop_due(&mut self, due: &Due) {
        self.write(Change::Delete(StoreName::Due, due.key()));
    }
}
