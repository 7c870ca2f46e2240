//! Messages: rows while they are written, runs on disk, and what a reader gets.
//!
//! A run is a record of up to 256 messages of one side that were stored together. It is never changed afterwards: what has been received
//! is said by the side's cursor.

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use crate::body::{Body, Part, Value};
use crate::clock::Instant;
use crate::columns::{Column, Columns};
use crate::ids::SideId;
use crate::record::{self, Fields, Read, Unreadable};
use crate::store::{Key, Range};

/// The most rows and bytes in a run.
pub(crate) const RUN_ROWS: usize = 256;
pub(crate) const RUN_BYTES: f64 = 65_536.0;
/// A body of at least this size gets a record of its own.
pub(crate) const LARGE_BODY: f64 = 65_536.0;

/// The message types of the broker itself.
pub mod system {
    /// The far side has ended the conversation. No body.
    pub const END_DIALOG: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog";
    /// The conversation has failed. Body: `{ code, description }`.
    pub const ERROR: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/Error";
    /// A timer of this side. Body: `{ name, body }`, or none.
    pub const DIALOG_TIMER: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer";

    /// Whether `name` is one of them.
    pub fn is_system(name: &str) -> bool {
        matches!(name, END_DIALOG | ERROR | DIALOG_TIMER)
    }
}

/// A column `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// 0: received, and retained.
    RetainedReceived,
    /// 1: ready to be received.
    Ready,
    /// 2: not complete, or ahead of its turn.
    NotYetComplete,
    /// 3: a copy of what this side sent.
    RetainedSent,
}

impl Status {
    /// The number.
    pub fn number(self) -> u32 {
        match self {
            Self::RetainedReceived => 0,
            Self::Ready => 1,
            Self::NotYetComplete => 2,
            Self::RetainedSent => 3,
        }
    }
}

/// Why a run is there: the second part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// DialogTimer and Error, with numbers of their own.
    System,
    /// Arrived, in sequence.
    Received,
    /// Arrived ahead of their turn.
    Parked,
    /// Sent: retained, to be transmitted, or both.
    Sent,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::System, Self::Received, Self::Parked, Self::Sent];

    pub(crate) fn number(self) -> u32 {
        match self {
            Self::System => 0,
            Self::Received => 1,
            Self::Parked => 2,
            Self::Sent => 3,
        }
    }
}

/// A message on its way into a run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) message_type: Rc<str>,
    pub(crate) id: Uuid,
    pub(crate) time: Instant,
    /// A plain object.
    pub(crate) headers: Option<Part>,
    pub(crate) body: Body,
}

/// A record of the store `messages`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) side: SideId,
    pub(crate) class: Class,
    /// The service whose queue shows it; `None`: it is in no queue.
    pub(crate) service: Option<u32>,
    /// The order of the first row; it rises by one.
    pub(crate) first_order: u64,
    /// The number of the last row within side and class.
    pub(crate) last: u64,
    pub(crate) count: usize,
    /// The sequence number of the first row.
    pub(crate) sequence: u64,
    pub(crate) times: Column<Instant>,
    pub(crate) columns: Columns,
}

/// A body that gets a record of its own: its number and its value.
pub(crate) type LargeBody = (u64, Value);

impl Run {
    /// Makes runs of rows that follow each other. `last` counts up from the number of the first row. The rows of class system are numbered
    /// apart from what they show as sequence number; the others are not.
    pub(crate) fn of(
        side: SideId,
        class: Class,
        service: Option<u32>,
        first_order: u64,
        first: u64,
        sequence: u64,
        rows: &[Row],
    ) -> (Self, Vec<LargeBody>) {
        let apart = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.body.is_large())
            .map(|(index, row)| (first + count(index), row.body.value.value()))
            .collect();
        let run = Self {
            side,
            class,
            service,
            first_order,
            last: first + count(rows.len().saturating_sub(1)),
            count: rows.len(),
            sequence,
            times: Column::of(rows.iter().map(|row| row.time).collect()),
            columns: Columns::of(rows),
        };
        (run, apart)
    }

    /// The number of its first row.
    pub(crate) fn first(&self) -> u64 {
        self.last.saturating_sub(count(self.count.saturating_sub(1)))
    }

    /// The order of its last row.
    pub(crate) fn last_order(&self) -> u64 {
        self.first_order + count(self.count.saturating_sub(1))
    }

    pub(crate) fn key(&self) -> Key {
        key(self.side, self.class, self.last)
    }

    pub(crate) fn record(&self) -> Value {
        let columns = &self.columns;
        let mut run = vec![
            ("v", Value::from(1u32)),
            ("c", record::value(self.side.number())),
            ("k", Value::from(self.class.number())),
            ("l", record::value(self.last)),
            ("n", record::value(count(self.count))),
            ("q", record::value(self.sequence)),
            ("o", record::value(self.first_order)),
            ("t", columns.types_record()),
            ("e", self.times.record(|time| Value::from(*time))),
            ("i", columns.ids.clone()),
            ("h", columns.headers.clone()),
            ("b", columns.bodies.clone()),
            ("p", columns.packings.clone()),
            ("x", columns.large_record()),
            ("z", Value::from(columns.size)),
        ];
        // Without this field the run is not in the index, and so in no queue.
        if let Some(service) = self.service {
            run.push(("s", Value::from(service)));
        }
        Value::object(run)
    }

    /// Reads a record of the store `messages`.
    pub(crate) fn read(record: &Value) -> Read<Self> {
        let head = Value::list(["v", "c", "k", "l", "n", "q", "o"].map(|name| record.field(name)).into());
        let mut head = Fields::open(&head)?;
        let side = SideId::from_number(head.number()?);
        let class = head.small()?;
        let run = Self {
            side,
            class: Class::ALL
                .into_iter()
                .find(|known| known.number() == class)
                .ok_or(Unreadable::Field("an unknown class"))?,
            service: record.field("s").number().and_then(|number| number.to_u32()),
            last: head.number()?,
            count: usize::try_from(head.number()?).map_err(|_| Unreadable::Field("a count is too large"))?,
            sequence: head.number()?,
            first_order: head.number()?,
            times: Column::read(&record.field("e"), Value::number, "a time is missing")?,
            columns: Columns::read(["t", "i", "h", "b", "p", "x", "z"].map(|name| record.field(name)))?,
        };
        run.columns.check(run.count)?;
        Ok(run)
    }
}

/// The key of the run, or of the large body, with this last number.
pub(crate) fn key(side: SideId, class: Class, last: u64) -> Key {
    Key::list([record::float(side.number()).into(), class.number().into(), record::float(last).into()])
}

/// Whose run a key is of.
pub(crate) fn side_of(key: &Key) -> Option<SideId> {
    match key {
        Key::List(parts) => match parts.first()? {
            Key::Number(number) => number.to_u64().map(SideId::from_number),
            _ => None,
        },
        _ => None,
    }
}

/// Every key of a side.
pub(crate) fn keys_of(side: SideId) -> Range {
    Range::prefix(vec![record::float(side.number()).into()])
}

/// The keys of one class of a side from number `from` to `to`, both included.
pub(crate) fn keys_between(side: SideId, class: Class, from: u64, to: u64) -> Range {
    Range::between(key(side, class, from), key(side, class, to))
}

/// A length as a number of ours.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
