//! Messages that are stored together: a run, which is a record of the store `delayed`.
//!
//! A run has up to 256 messages or 64 KiB for one destination and one time, in the order in which they were stored. Its key says what has to be
//! known of it even if the record can't be read: when it is due, the stamp of its last message, how many messages it has, and the side that
//! they are sent by, if there is one. A message is found by its place: its run is the first whose last message does not come before it, since
//! messages of one run have stamps that follow each other when they are stored.
//!
//! A message that is cancelled, or moved, leaves its run, which is written anew without it; the last one takes the run along.

use std::rc::Rc;

use uuid::Uuid;

use super::{Delayed, Place, To};
use crate::body::Value;
use crate::clock::Instant;
use crate::columns::Columns;
use crate::ids::SideId;
use crate::message::{RUN_ROWS, Row, count};
use crate::record::{self, Fields, Read, Unreadable, float};
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Change, Key, Range, StoreName};
use crate::work::Work;

/// The key of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunKey {
    /// When it is due.
    at: Instant,
    /// The stamp of its last message.
    last: u64,
    /// How many messages it has.
    pub(crate) count: u64,
    /// The side that they are sent by.
    pub(crate) side: Option<SideId>,
}

impl RunKey {
    fn of(messages: &[Rc<Delayed>]) -> Option<Self> {
        let last = messages.last()?;
        Some(Self { at: last.place.at, last: last.place.stamp, count: count(messages.len()), side: last.to.side() })
    }

    pub(crate) fn key(self) -> Key {
        let mut parts = vec![self.at.into(), float(self.last).into(), float(self.count).into()];
        parts.extend(self.side.map(|side| float(side.number()).into()));
        Key::List(parts)
    }

    pub(crate) fn read(key: &Value) -> Read<Self> {
        let mut parts = Fields::part(key)?;
        let key = Self {
            at: parts.float()?,
            last: parts.number()?,
            count: parts.number()?,
            side: parts.optional_number()?.map(SideId::from_number),
        };
        if key.count > count(RUN_ROWS) { Err(Unreadable::Field("its key says too much")) } else { Ok(key) }
    }

    /// The key of the record that its side has of it.
    pub(crate) fn mark(self) -> Option<Key> {
        let place = [self.at.into(), float(self.last).into(), float(self.count).into()];
        let mut parts = vec!["d".into(), float(self.side?.number()).into()];
        parts.extend(place);
        Some(Key::List(parts))
    }

    pub(super) fn of_mark(mark: &Value) -> Read<Self> {
        let mut parts = Fields::part(mark)?;
        parts.any();
        let side = parts.number()?;
        Ok(Self {
            side: Some(SideId::from_number(side)),
            at: parts.float()?,
            last: parts.number()?,
            count: parts.number()?,
        })
    }

    /// Where its large bodies are, if nothing has left it since it was stored.
    pub(super) fn bodies(self) -> Range {
        let body = |stamp| Place { at: self.at, stamp }.body();
        Range::between(body((self.last + 1).saturating_sub(self.count)), body(self.last))
    }
}

/// How many messages are in the runs of these keys; what is under keys that no build makes are none.
pub(crate) fn count_messages(keys: &[Value]) -> u64 {
    keys.iter().filter_map(|key| RunKey::read(key).ok()).map(|key| key.count).sum()
}

/// The same of the records that sides have of them.
pub(crate) fn count_marked(marks: &[Value]) -> u64 {
    marks.iter().filter_map(|mark| RunKey::of_mark(mark).ok()).map(|key| key.count).sum()
}

/// A record of the store `delayed`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) key: RunKey,
    pub(crate) messages: Vec<Delayed>,
}

impl Run {
    /// Reads the record under a key.
    pub(crate) fn read(key: &Value, record: &Value) -> Read<Self> {
        Self::of(RunKey::read(key)?, record)
    }

    fn of(key: RunKey, record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        let (to, is_named) = (To::read(&fields.any())?, fields.flag()?);
        let columns = Columns::read(std::array::from_fn(|_| fields.any()))?;
        let (time, waits) = (fields.float()?, fields.number()?);
        let (stamps, seen) = (read_stamps(key, &fields.any())?, fields.optional_text()?);
        columns.check(stamps.len())?;
        if to.side() != key.side {
            return Err(Unreadable::Field("it does not go where its key says"));
        }
        let message = |(stamp, row): (u64, Row)| Delayed {
            place: Place { at: key.at, stamp },
            to: to.clone(),
            id: row.id,
            is_named,
            message_type: row.message_type,
            headers: row.headers,
            body: row.body,
            time,
            waits,
            seen: seen.clone(),
            hop: None,
        };
        Ok(Self { key, messages: stamps.into_iter().zip(columns.rows(time)).map(message).collect() })
    }

    /// The message with an id, if it is in it.
    pub(super) fn take(self, id: Uuid) -> Option<Delayed> {
        self.messages.into_iter().find(|delayed| delayed.id == id)
    }
}

/// The stamps of a run's messages; `None` in the record: they follow each other.
fn read_stamps(key: RunKey, stamps: &Value) -> Read<Vec<u64>> {
    if stamps.is_null() {
        return Ok(((key.last + 1).saturating_sub(key.count)..=key.last).collect());
    }
    let mut list = Fields::part(stamps)?;
    let stamps: Vec<u64> = (0..stamps.len()).map(|_| list.number()).collect::<Read<_>>()?;
    let is_in_order = stamps.is_sorted() && stamps.last() == Some(&key.last) && count(stamps.len()) == key.count;
    if is_in_order { Ok(stamps) } else { Err(Unreadable::Field("its stamps are not those of its key")) }
}

fn record(messages: &[Rc<Delayed>]) -> Value {
    let Some((first, last)) = messages.first().zip(messages.last()) else { return Value::null() };
    let rows: Vec<Row> = messages.iter().map(|delayed| delayed.row(delayed.time)).collect();
    let columns = Columns::of(&rows);
    let follow = first.place.stamp + count(messages.len()) == last.place.stamp + 1;
    let stamps = || Value::list(messages.iter().map(|delayed| record::value(delayed.place.stamp)).collect());
    Value::list(vec![
        Value::from(1u32),
        first.to.record(),
        Value::from(first.is_named),
        columns.types_record(),
        columns.ids.clone(),
        columns.headers.clone(),
        columns.bodies.clone(),
        columns.packings.clone(),
        columns.large_record(),
        Value::from(columns.size),
        Value::from(first.time),
        record::value(first.waits),
        if follow { Value::null() } else { stamps() },
        record::optional(first.seen.as_deref()),
    ])
}

impl Delayed {
    /// The record of one that is alone.
    pub(super) fn record(&self) -> Value {
        record(&[Rc::new(self.clone())])
    }

    /// Reads it.
    pub(super) fn read(place: Place, record: &Value) -> Read<Self> {
        let side = To::read(&record.item(1))?.side();
        let run = Run::of(RunKey { at: place.at, last: place.stamp, count: 1, side }, record)?;
        run.messages.into_iter().next().ok_or(Unreadable::Field("the message is missing"))
    }
}

/// What a side knows of one of its runs: whose names and bodies go with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// Those of its messages that have records of their own.
    pub(super) names: Vec<Uuid>,
    /// The stamps of its large bodies.
    pub(super) large: Vec<u64>,
}

impl Mark {
    fn of(messages: &[Rc<Delayed>]) -> Self {
        let named = messages.iter().filter(|delayed| delayed.is_named);
        let large = messages.iter().filter(|delayed| delayed.is_large());
        Self {
            names: named.map(|delayed| delayed.id).collect(),
            large: large.map(|delayed| delayed.place.stamp).collect(),
        }
    }

    fn record(&self) -> Value {
        let bytes: Vec<u8> = self.names.iter().flat_map(|id| *id.as_bytes()).collect();
        let names = if bytes.is_empty() { Value::null() } else { Value::from_bytes(&bytes) };
        let large = self.large.iter().map(|stamp| record::value(*stamp)).collect();
        Value::list(vec![Value::from(1u32), names, Value::list(large)])
    }

    pub(super) fn read(record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        let names = read_ids(&fields.any());
        let large = fields.any();
        let mut stamps = Fields::part(&large)?;
        Ok(Self { names, large: (0..large.len()).map(|_| stamps.number()).collect::<Read<_>>()? })
    }

    /// The large bodies that are there, read all at once.
    pub(super) fn read_bodies(&self, work: &mut Work<'_>) -> Outcome<Vec<Value>> {
        let (mut bodies, mut is_missing) = (Vec::new(), false);
        for stamp in &self.large {
            match work.get(StoreName::Bodies, Place { at: 0.0, stamp: *stamp }.body()) {
                Ok(body) => bodies.extend(body),
                Err(Stop::Missing) => is_missing = true,
                Err(stop) => return Err(stop),
            }
        }
        if is_missing { Err(Stop::Missing) } else { Ok(bodies) }
    }

    /// Deletes what leads to the messages, and their bodies.
    pub(super) fn clear(&self, work: &mut Work<'_>) {
        for id in &self.names {
            work.write(Change::Delete(StoreName::Members, Delayed::name(*id)));
        }
        for stamp in &self.large {
            work.write(Change::Delete(StoreName::Bodies, Place { at: 0.0, stamp: *stamp }.body()));
        }
    }
}

/// Ids of 16 bytes each.
pub(super) fn read_ids(column: &Value) -> Vec<Uuid> {
    let bytes = column.bytes().unwrap_or_default();
    bytes.chunks_exact(16).filter_map(|id| Uuid::from_slice(id).ok()).collect()
}

/// Writes a run and what its side knows of it.
pub(super) fn put(work: &mut Work<'_>, messages: &[Rc<Delayed>]) {
    let Some(key) = RunKey::of(messages) else { return };
    if let Some(mark) = key.mark() {
        work.write(Change::Put(StoreName::Members, mark, Mark::of(messages).record()));
    }
    work.write(Change::Put(StoreName::Delayed, key.key(), record(messages)));
}

/// Deletes a run and what its side knows of it.
pub(super) fn delete(work: &mut Work<'_>, key: RunKey) {
    if let Some(mark) = key.mark() {
        work.write(Change::Delete(StoreName::Members, mark));
    }
    work.write(Change::Delete(StoreName::Delayed, key.key()));
}

/// The run that a message with this place is in, as it is stored, if it is in one.
pub(super) fn at(work: &mut Work<'_>, Place { at, stamp }: Place) -> Outcome<Option<Run>> {
    let end = Key::list([at.into(), float(stamp + count(RUN_ROWS)).into()]);
    let range =
        Range { lower: Bound::Including(Key::list([at.into(), float(stamp).into()])), upper: Bound::Excluding(end) };
    // Both at once.
    let key = work.get_keys(StoreName::Delayed, range.clone(), Some(1)).map(|keys| keys.first().cloned());
    let record = work.get_range(StoreName::Delayed, range, Some(1)).map(|records| records.first().cloned());
    let (key, record) = (key?, record?);
    let Some((key, record)) = key.zip(record) else { return Ok(None) };
    Run::read(&key, &record).map(Some).map_err(|problem| Stop::from(problem.of_delayed(&key)))
}

/// Reads the runs of several places, all at once. One that can't be read is the trouble of who asks for it.
pub(crate) fn read_ahead(work: &mut Work<'_>, places: impl Iterator<Item = Place>) -> Outcome<()> {
    let mut is_missing = false;
    for place in places {
        is_missing |= matches!(at(work, place), Err(Stop::Missing));
    }
    if is_missing { Err(Stop::Missing) } else { Ok(()) }
}
