//! The hop: where a delayed message lies between the commit that sends it and the store of the application's own.
//!
//! | object store | key | value |
//! |---|---|---|
//! | delayed | ["hop", stamp] | time, message, whether it takes the place of one in the store, not before, failures, until when somebody is at it |
//! | members | ["h", message id] | time, stamp, endpoint if it has one, whether it is in the store by now, the id of `enqueue` |
//! | members | ["o", side, stamp] | message id: the endpoint has it under way |
//!
//! With the pump's commit the row goes. The two others stay until it is dispatched: cancelling asks nobody else, and END finds by them what is to go
//! with it. Of a conversation what they do not name was dispatched already, or is not to be; what has no name and is for a queue may come from
//! somewhere else.

use std::rc::Rc;

use uuid::Uuid;

use super::claim::{Claimed, give_back};
use super::memory::{Fate, remember};
use crate::body::Value;
use crate::clock::Instant;
use crate::delayed::dispatch::fail_one;
use crate::delayed::{Delayed, Place, To};
use crate::error::Error;
use crate::ids::{SideId, text};
use crate::message::count;
use crate::record::{self, Fields, Read, Unreadable, float};
use crate::stop::Outcome;
use crate::store::{Bound, Change, Key, Range, StoreName};
use crate::work::Work;

/// How a message lies in the hop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hop {
    /// The store may have it already, at another time: that one is removed first.
    pub(crate) replaces: bool,
    /// It is not offered before.
    pub(crate) not_before: Instant,
    /// How often the store has failed to take it.
    pub(crate) failures: u64,
    /// Until then somebody may be about to remove what it takes the place of: nobody else is to, who might remove what that one has stored since.
    pub(crate) claimed: Instant,
}

/// Where a message is that came through the hop.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whereabouts {
    pub(crate) place: Place,
    /// The endpoint that it is sent by, if it is sent on a conversation.
    pub(crate) side: Option<SideId>,
    pub(crate) is_in_store: bool,
    /// The queue, and the id that `enqueue` was given with it, not to be taken twice.
    pub(crate) seen: Option<(Rc<str>, Rc<str>)>,
}

/// The rows of the hop.
pub(crate) fn rows() -> Range {
    Range::prefix(vec!["hop".into()])
}

pub(crate) fn key(stamp: u64) -> Key {
    Key::list(["hop".into(), float(stamp).into()])
}

pub(crate) fn name(id: Uuid) -> Key {
    Key::list(["h".into(), Key::Text(text(id))])
}

pub(crate) fn mark(side: SideId, stamp: u64) -> Key {
    Key::list(["o".into(), float(side.number()).into(), float(stamp).into()])
}

pub(crate) fn marks_of(side: SideId) -> Range {
    Range::prefix(vec!["o".into(), float(side.number()).into()])
}

/// What a name says of its message.
pub(crate) fn read_name(record: &Value) -> Read<Whereabouts> {
    let mut fields = Fields::open(record)?;
    let place = Place { at: fields.float()?, stamp: fields.number()? };
    let side = fields.optional_number()?.map(SideId::from_number);
    let is_in_store = fields.flag()?;
    let (queue, seen) = (fields.optional_text()?, fields.optional_text()?);
    Ok(Whereabouts { place, side, is_in_store, seen: queue.zip(seen) })
}

fn name_record(delayed: &Delayed, is_in_store: bool) -> Value {
    Whereabouts::of(delayed, is_in_store).record()
}

impl Whereabouts {
    /// Of a message.
    pub(crate) fn of(delayed: &Delayed, is_in_store: bool) -> Self {
        let queue = match &delayed.to {
            To::Lane { queue, .. } => Some(Rc::clone(queue)),
            To::Conversation(_) => None,
        };
        let seen = queue.zip(delayed.seen.clone());
        Self { place: delayed.place, side: delayed.side(), is_in_store, seen }
    }

    pub(super) fn record(&self) -> Value {
        Value::list(vec![
            Value::from(1u32),
            Value::from(self.place.at),
            record::value(self.place.stamp),
            self.side.map_or_else(Value::null, |side| record::value(side.number())),
            Value::from(self.is_in_store),
            record::optional(self.seen.as_ref().map(|(queue, _)| &**queue)),
            record::optional(self.seen.as_ref().map(|(_, id)| &**id)),
        ])
    }
}

/// All names that can be read.
pub(super) fn names(work: &mut Work<'_>) -> Outcome<Vec<(Uuid, Whereabouts)>> {
    let range = Range::prefix(vec!["h".into()]);
    let keys = work.get_keys(StoreName::Members, range.clone(), None).map(<[Value]>::to_vec);
    let records = work.get_range(StoreName::Members, range, None).map(<[Value]>::to_vec);
    let (keys, records) = (keys?, records?);
    let id = |key: &Value| key.item(1).text().and_then(|id| Uuid::try_parse(&id).ok());
    Ok(keys.iter().zip(&records).filter_map(|(key, record)| Some((id(key)?, read_name(record).ok()?))).collect())
}

/// All marks: of which endpoint, under which stamp, and the message if that can be read.
pub(super) fn marks(work: &mut Work<'_>) -> Outcome<Vec<(SideId, u64, Option<Uuid>)>> {
    let range = Range::prefix(vec!["o".into()]);
    let keys = work.get_keys(StoreName::Members, range.clone(), None).map(<[Value]>::to_vec);
    let records = work.get_range(StoreName::Members, range, None).map(<[Value]>::to_vec);
    let (keys, records) = (keys?, records?);
    let of = |key: &Value| {
        let mut parts = Fields::part(key).ok()?;
        parts.any();
        Some((SideId::from_number(parts.number().ok()?), parts.number().ok()?))
    };
    let marked = keys.iter().zip(&records).filter_map(|(key, record)| of(key).map(|of| (of, read_mark(record).ok())));
    Ok(marked.map(|((side, stamp), id)| (side, stamp, id)).collect())
}

/// Where a message is that came through the hop. `None`: it is not under way any more, or came from elsewhere.
pub(crate) fn find_name(work: &mut Work<'_>, id: Uuid) -> Outcome<Option<Whereabouts>> {
    let record = work.get(StoreName::Members, name(id))?;
    let whereabouts = record.map(|record| read_name(&record)).transpose();
    Ok(whereabouts.map_err(|problem| problem.at(StoreName::Members, &name(id)))?)
}

/// The message with an id, if it lies in the hop, without a large body.
pub(crate) fn find_by_id(work: &mut Work<'_>, id: Uuid) -> Outcome<Option<Delayed>> {
    match find_name(work, id)? {
        Some(found) if !found.is_in_store => find(work, found.place.stamp),
        _ => Ok(None),
    }
}

/// Whether a message is in the store by now.
pub(crate) fn is_in_store(work: &mut Work<'_>, id: &str) -> Outcome<bool> {
    let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
    Ok(find_name(work, id)?.is_some_and(|name| name.is_in_store))
}

/// The message of a stamp, without a large body.
pub(crate) fn find(work: &mut Work<'_>, stamp: u64) -> Outcome<Option<Delayed>> {
    let record = work.get(StoreName::Delayed, key(stamp))?;
    let delayed = record.map(|record| read(stamp, &record)).transpose();
    Ok(delayed.map_err(|problem| problem.at(StoreName::Delayed, &key(stamp)))?)
}

/// Reads a row of the hop.
pub(crate) fn read(stamp: u64, row: &Value) -> Read<Delayed> {
    let mut fields = Fields::open(row)?;
    let (at, message) = (fields.float()?, fields.any());
    let (replaces, not_before, failures) = (fields.flag()?, fields.float()?, fields.number()?);
    let hop = Hop { replaces, not_before, failures, claimed: fields.any().number().unwrap_or_default() };
    let delayed = Delayed::read(Place { at, stamp }, &message)?;
    Ok(Delayed { hop: Some(hop), ..delayed })
}

/// The stamp in a key of a row.
pub(crate) fn stamp_of(key: &Value) -> Read<u64> {
    let mut parts = Fields::part(key)?;
    parts.any();
    parts.number()
}

pub(super) fn row(delayed: &Delayed, hop: Hop) -> Value {
    Value::list(vec![
        Value::from(1u32),
        Value::from(delayed.place.at),
        delayed.record(),
        Value::from(hop.replaces),
        Value::from(hop.not_before),
        record::value(hop.failures),
        Value::from(hop.claimed),
    ])
}

/// Stores a message in the hop, but for a large body.
pub(crate) fn put(work: &mut Work<'_>, delayed: &Delayed, hop: Hop) {
    let Place { stamp, .. } = delayed.place;
    if let Some(side) = delayed.side() {
        work.write(Change::Put(StoreName::Members, mark(side, stamp), mark_record(delayed.id)));
    }
    work.write(Change::Put(StoreName::Members, name(delayed.id), name_record(delayed, false)));
    work.write(Change::Put(StoreName::Delayed, key(stamp), row(delayed, hop)));
    work.changes.notice.delayed = true;
    work.changes.notice.hop = true;
}

/// Takes a message out of the hop. `all`: it is not to be delivered, even if the store has it by now.
pub(crate) fn withdraw(work: &mut Work<'_>, delayed: &Delayed, all: bool) {
    let Place { stamp, .. } = delayed.place;
    work.write(Change::Delete(StoreName::Delayed, key(stamp)));
    if let Some(side) = delayed.side() {
        work.write(Change::Delete(StoreName::Members, mark(side, stamp)));
    }
    if all {
        work.write(Change::Delete(StoreName::Members, name(delayed.id)));
        if delayed.is_large() {
            work.write(Change::Delete(StoreName::Bodies, delayed.body_key()));
        }
        remember(work, delayed.id, Fate::Cancelled, delayed.place.at);
    }
}

/// Forgets what leads to a message that was dispatched, or is not to be.
pub(crate) fn forget(work: &mut Work<'_>, id: Uuid, side: Option<SideId>, stamp: u64) {
    work.write(Change::Delete(StoreName::Members, name(id)));
    side.into_iter().for_each(|side| work.write(Change::Delete(StoreName::Members, mark(side, stamp))));
}

/// What a side has under way by a store of the application's own goes with it: the store may have it until it is asked to remove it. Gives how many
/// these are, and how many of them were still in the hop.
pub(crate) fn forget_all(work: &mut Work<'_>, id: SideId) -> Outcome<(u64, u64)> {
    if work.is_view() {
        return Ok((0, 0));
    }
    let mut ids = work.read_range(StoreName::Members, marks_of(id), None, read_mark)?;
    // Those that this unit of work has withdrawn, or moved, are not where the store has them.
    ids.retain(|id| !work.changes.delayed.contains_key(id));
    if ids.is_empty() {
        return Ok((0, 0));
    }
    for id in &ids {
        work.reads.want(StoreName::Members, name(*id));
    }
    let mut in_hop = 0;
    for message in &ids {
        let Some(found) = find_name(work, *message)? else { continue };
        if !found.is_in_store {
            in_hop += 1;
            work.write(Change::Delete(StoreName::Delayed, key(found.place.stamp)));
            work.write(Change::Delete(StoreName::Bodies, found.place.body()));
        }
        work.write(Change::Delete(StoreName::Members, name(*message)));
        remember(work, *message, Fate::Cancelled, found.place.at);
    }
    work.write(Change::DeleteRange(StoreName::Members, marks_of(id)));
    work.changes.notice.delayed = true;
    Ok((count(ids.len()), in_hop))
}

pub(super) fn mark_record(id: Uuid) -> Value {
    Value::list(vec![Value::from(1u32), Value::from(&*text(id))])
}

fn read_mark(record: &Value) -> Read<Uuid> {
    let mut fields = Fields::open(record)?;
    Uuid::try_parse(&fields.text()?).map_err(|_| Unreadable::Field("the id of a message is missing"))
}

/// The store has taken messages of the hop, by their stamps, and somebody had claimed them for that.
#[derive(Debug)]
pub(crate) struct Stored(pub(crate) Vec<(u64, Option<Claimed>)>);

impl Stored {
    /// Those that were withdrawn meanwhile are remembered as that already.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<()> {
        work.after_others()?;
        self.0.iter().for_each(|(stamp, _)| work.reads.want(StoreName::Delayed, key(*stamp)));
        let mut taken = 0;
        for (stamp, claimed) in &self.0 {
            let Some(delayed) = find(work, *stamp)? else {
                give_back(work, claimed.as_ref())?;
                continue;
            };
            taken += 1;
            work.write(Change::Delete(StoreName::Delayed, key(*stamp)));
            if delayed.is_large() {
                work.write(Change::Delete(StoreName::Bodies, delayed.body_key()));
            }
            work.write(Change::Put(StoreName::Members, name(delayed.id), name_record(&delayed, true)));
        }
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(taken))?;
        work.changes.notice.delayed = true;
        Ok(())
    }
}

/// The store has failed to take one.
#[derive(Debug)]
pub(crate) struct NotStored {
    pub(crate) stamp: u64,
    pub(crate) claimed: Option<Claimed>,
    pub(crate) error: Error,
    /// `None`: it never will.
    pub(crate) again_at: Option<Instant>,
}

impl NotStored {
    /// It waits, and holds up nobody; or it goes to the error queue.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<()> {
        work.after_others()?;
        let Some(mut delayed) = find(work, self.stamp)? else {
            // What was not answered may still be done.
            return give_back(work, self.claimed.as_ref().filter(|_| !self.error.is_timeout()));
        };
        let hop = delayed.hop.unwrap_or_default();
        if let Some(not_before) = self.again_at {
            let claimed = if self.error.is_timeout() { hop.claimed } else { 0.0 };
            let hop = Hop { not_before, failures: hop.failures + 1, claimed, ..hop };
            work.write(Change::Put(StoreName::Delayed, key(self.stamp), row(&delayed, hop)));
            return Ok(());
        }
        if delayed.is_large() {
            let body = work.get(StoreName::Bodies, delayed.body_key())?;
            delayed.body.value = body.unwrap_or_default().into();
        }
        super::dispatch::leave_all(work, &delayed)?;
        withdraw(work, &delayed, true);
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(1))?;
        fail_one(work, &delayed, &self.error, hop.failures + 1)
    }
}

/// The rows behind a stamp.
pub(crate) fn behind(stamp: u64) -> Range {
    Range { lower: Bound::Excluding(key(stamp)), ..rows() }
}

/// A message of the hop whose large body was read.
pub(crate) fn whole(delayed: Delayed, body: Option<Value>) -> Delayed {
    let mut delayed = delayed;
    body.into_iter().for_each(|body| delayed.body.value = body.into());
    delayed
}

/// The message as it is for the store.
pub(crate) fn shown(delayed: &Rc<Delayed>) -> super::DelayedMessage {
    Delayed::clone(delayed).into()
}
