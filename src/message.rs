//! Messages: rows while they are written, runs on disk, and what a reader gets.
//!
//! A run is a record of up to 256 messages of one side that were stored together. It is never changed afterwards: what has been received
//! is said by the side's cursor. A column whose values are all equal is one value.

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use crate::body::{Body, Part, Value};
use crate::clock::Instant;
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

/// One value for all rows, or one each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column<T> {
    Same(T),
    Each(Vec<T>),
}

impl<T: Clone + PartialEq> Column<T> {
    fn of(values: Vec<T>) -> Self {
        match values.split_first() {
            Some((first, rest)) if rest.iter().all(|value| value == first) => Self::Same(first.clone()),
            _ => Self::Each(values),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Each(values) => values.get(index),
        }
    }

    pub(crate) fn slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Same(value) => Self::Same(value.clone()),
            Self::Each(values) => Self::Each(values.get(from..to).unwrap_or_default().to_vec()),
        }
    }

    fn record(&self, value: impl Fn(&T) -> Value) -> Value {
        match self {
            Self::Same(same) => value(same),
            Self::Each(values) => Value::list(values.iter().map(value).collect()),
        }
    }

    fn read(column: &Value, value: impl Fn(&Value) -> Option<T>, problem: &'static str) -> Read<Self> {
        let read = |item: &Value| value(item).ok_or(Unreadable::Field(problem));
        if column.is_list() {
            column.items().iter().map(read).collect::<Read<_>>().map(Self::Each)
        } else {
            read(column).map(Self::Same)
        }
    }
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
    pub(crate) types: Column<Rc<str>>,
    pub(crate) times: Column<Instant>,
    /// 16 bytes a row.
    pub(crate) ids: Value,
    /// A list, or null: none has any.
    pub(crate) headers: Value,
    /// A list.
    pub(crate) bodies: Value,
    /// A list, or null: all 0.
    pub(crate) packings: Value,
    /// Which bodies have records of their own, and their sizes.
    pub(crate) large: Vec<(usize, f64)>,
    pub(crate) size: f64,
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
        let is_large = |row: &Row| row.body.size >= LARGE_BODY;
        let large: Vec<(usize, f64)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| is_large(row))
            .map(|(index, row)| (index, row.body.size))
            .collect();
        let apart = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| is_large(row))
            .map(|(index, row)| (first + count(index), row.body.value.value()))
            .collect();
        let bodies = if large.is_empty() {
            Part::list(rows.iter().map(|row| &row.body.value))
        } else {
            let body = |row: &Row| if is_large(row) { Value::undefined() } else { row.body.value.value() };
            Value::list(rows.iter().map(body).collect())
        };
        let mut ids = Vec::with_capacity(rows.len() * 16);
        rows.iter().for_each(|row| ids.extend_from_slice(row.id.as_bytes()));
        let run = Self {
            side,
            class,
            service,
            first_order,
            last: first + count(rows.len().saturating_sub(1)),
            count: rows.len(),
            sequence,
            types: Column::of(rows.iter().map(|row| Rc::clone(&row.message_type)).collect()),
            times: Column::of(rows.iter().map(|row| row.time).collect()),
            ids: Value::from_bytes(&ids),
            headers: if rows.iter().all(|row| row.headers.is_none()) {
                Value::null()
            } else {
                Value::list(rows.iter().map(|row| row.headers.as_ref().map(Part::value).unwrap_or_default()).collect())
            },
            bodies,
            packings: if rows.iter().all(|row| row.body.packing == 0) {
                Value::null()
            } else {
                Value::list(rows.iter().map(|row| Value::from(row.body.packing)).collect())
            },
            large,
            size: rows.iter().map(|row| row.body.size).sum(),
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
        let large =
            self.large.iter().flat_map(|(index, size)| [record::value(count(*index)), Value::from(*size)]).collect();
        let mut run = vec![
            ("v", Value::from(1u32)),
            ("c", record::value(self.side.number())),
            ("k", Value::from(self.class.number())),
            ("l", record::value(self.last)),
            ("n", record::value(count(self.count))),
            ("q", record::value(self.sequence)),
            ("o", record::value(self.first_order)),
            ("t", self.types.record(|name| Value::from(&**name))),
            ("e", self.times.record(|time| Value::from(*time))),
            ("i", self.ids.clone()),
            ("h", self.headers.clone()),
            ("b", self.bodies.clone()),
            ("p", self.packings.clone()),
            ("x", Value::list(large)),
            ("z", Value::from(self.size)),
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
        let large = record.field("x");
        let mut pairs = Fields::part(&large)?;
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
            types: Column::read(&record.field("t"), |item| item.text().map(Rc::from), "a message type is missing")?,
            times: Column::read(&record.field("e"), Value::number, "a time is missing")?,
            ids: record.field("i"),
            headers: record.field("h"),
            bodies: record.field("b"),
            packings: record.field("p"),
            large: (0..large.len() / 2)
                .map(|_| Ok((usize::try_from(pairs.number()?).unwrap_or(usize::MAX), pairs.float()?)))
                .collect::<Read<_>>()?,
            size: record.field("z").number().ok_or(Unreadable::Field("the size is missing"))?,
        };
        let complete = |column: &Value| column.is_null() || column.len() == run.count;
        if run.count == 0
            || run.count > RUN_ROWS
            || run.bodies.len() != run.count
            || !complete(&run.headers)
            || !complete(&run.packings)
            || run.ids.byte_length() != run.count * 16
        {
            return Err(Unreadable::Field("its columns do not have its length"));
        }
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
