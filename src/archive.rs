//! The archive: copies of a side's rows that outlive its END.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;
use crate::clock::Instant;
use crate::columns::Columns;
use crate::conversation::Conversation;
use crate::error::Result;
use crate::ids::Role;
use crate::lane::{LaneKey, Place};
use crate::mend::read_or_bury;
use crate::message::{self, Class, Run, Status, count};
use crate::record::{Fields, Read, float};
use crate::rows::{Owner, Rows};
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Change, Key, Range, StoreName};
use crate::visible::segments;
use crate::work::{Number, Work};

/// Copies every row of a side, or those that have been received. Gives how many there are.
pub(crate) fn copy(
    work: &mut Work<'_>,
    conversation: &Conversation,
    role: Role,
    queue: &Rc<str>,
    only_received: bool,
) -> Outcome<u64> {
    let Some(side) = conversation.side(role) else { return Ok(0) };
    let id = conversation.id_of(role);
    // What a transaction has received is gone by its commit, unless the queue retains it.
    let retains = work.catalog.queue_of(side.service).is_some_and(|queue| queue.retention);
    let taken = work.changes.taken.get(&id).map_or(0, |taken| taken.rows);
    let rows = match (only_received, retains) {
        (true, true) => side.kept + taken,
        (true, false) => side.kept,
        (false, true) => side.unread + side.kept + side.copies + side.parked,
        (false, false) => (side.unread + side.kept + side.copies + side.parked).saturating_sub(taken),
    };
    if work.is_view() || rows == 0 {
        return Ok(rows);
    }
    let mut range = message::keys_of(id);
    let mut partly = Vec::new();
    if only_received {
        // Those below the cursor, and the one that it points into.
        partly = read_runs(
            work,
            conversation,
            role,
            message::keys_between(id, Class::Received, side.cursor, u64::MAX >> 11),
            Some(1),
        )?;
        range.upper = Bound::Excluding(message::key(id, Class::Received, side.cursor));
    }
    let mut runs = read_or_bury(work, conversation, range)?;
    runs.append(&mut partly);
    let bodies = large_bodies(work, &runs)?;
    let stamp = work.claim(Number::Stamp, 1)?;
    // Rows of this very unit of work are in no run yet.
    let mut fresh = Vec::new();
    work.claim_orders()?;
    for index in 0..if only_received { 0 } else { work.changes.pending.len() } {
        let rows = work
            .changes
            .pending
            .get(index)
            .filter(|pending| pending.side == id)
            .map_or(0, |pending| count(pending.rows.len()));
        let order = if rows > 0 { work.orders(side.service, rows)? } else { continue };
        for (run, large) in work.changes.pending.get(index).map(|pending| pending.runs(order)).unwrap_or_default() {
            fresh.extend(large.into_iter().map(|(number, body)| ((run.class, number), body)));
            runs.push(run);
        }
    }
    // As they were in the queue: what was sent among what was received.
    runs.sort_by_key(|run| run.first_order);
    let owner = Owner::of(conversation, role);
    let (mut part, mut copied) = (0u64, 0);
    for run in &runs {
        let received = |status| !only_received || status == Status::RetainedReceived;
        for (from, to, status) in segments(side, run).into_iter().filter(|(.., status)| received(*status)) {
            let mut rows = Rows::of(&work.catalog, &owner, run, from, to, status);
            for index in run.large_between(from, to) {
                let place = (run.class, run.first() + count(index));
                if let Some((_, body)) = bodies.iter().chain(&fresh).find(|(other, _)| *other == place) {
                    rows = rows.with_body(index - from, body.clone());
                }
            }
            let key = [work.now, float(stamp), float(part), float(count(rows.count))];
            let record = archived(&owner, queue, key, run, from, &rows);
            work.write(Change::Put(StoreName::Archive, Key::list(key.map(Key::Number)), record));
            part += 1;
            copied += count(rows.count);
        }
    }
    work.changes.notice.archive = true;
    Ok(copied)
}

fn read_runs(
    work: &mut Work<'_>,
    conversation: &Conversation,
    role: Role,
    range: Range,
    limit: Option<u32>,
) -> Outcome<Vec<Run>> {
    let runs = work.read_range(StoreName::Messages, range, limit, Run::read);
    runs.map_err(|stop| stop.about(&conversation.handle(role)))
}

/// The bodies with records of their own, by class and number.
pub(crate) fn large_bodies(work: &mut Work<'_>, runs: &[Run]) -> Outcome<Vec<((Class, u64), Value)>> {
    let places =
        runs.iter().flat_map(|run| run.large_between(0, run.count).map(move |index| (run, run.first() + count(index))));
    let mut bodies = Vec::new();
    let mut is_missing = false;
    for (run, number) in places {
        match work.get(StoreName::Bodies, message::key(run.side, run.class, number)) {
            Ok(body) => bodies.extend(body.map(|body| ((run.class, number), body))),
            // Those that are missing are read together.
            Err(Stop::Missing) => is_missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(bodies) }
}

fn archived(owner: &Owner, queue: &str, key: [f64; 4], run: &Run, from: usize, rows: &Rows) -> Value {
    let copy = Run {
        service: None,
        first_order: rows.order,
        last: run.first() + count(from + rows.count.saturating_sub(1)),
        count: rows.count,
        sequence: rows.sequence,
        times: rows.times.clone(),
        columns: Columns {
            types: rows.types.clone(),
            ids: rows.ids.clone(),
            headers: rows.headers.clone(),
            bodies: rows.bodies.clone(),
            packings: rows.packings.clone(),
            large: Vec::new(),
            size: run.columns.size,
        },
        ..run.clone()
    };
    let mut record = vec![Value::from(1u32)];
    record.extend(key.map(Value::from));
    record.extend([Value::from(rows.status.number()), Value::from(owner.priority)]);
    let texts = [
        queue,
        &*owner.group_id,
        &*owner.handle,
        &*owner.conversation_id,
        &*owner.service,
        &*owner.far_service,
        &*owner.contract,
    ];
    record.extend(texts.map(Value::from));
    record.push(copy.record());
    record.push(owner.lane.as_ref().map_or_else(Value::null, |lane| lane.key.record()));
    Value::list(record)
}

/// A record of the archive.
pub(crate) struct Archived {
    pub(crate) at: Instant,
    /// When, stamp, part, rows.
    pub(crate) key: Vec<f64>,
    pub(crate) queue: Rc<str>,
    pub(crate) status: Status,
    pub(crate) owner: Owner,
    pub(crate) run: Run,
}

impl Archived {
    /// Reads a record of the store `archive`.
    pub(crate) fn from_record(record: &Value) -> Result<Self> {
        let key = Key::list([1, 2, 3, 4].map(|index| Key::from(record.item(index).number().unwrap_or(-1.0))));
        Self::read(record).map_err(|problem| problem.at(StoreName::Archive, &key))
    }

    fn read(record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        let key = vec![fields.float()?, fields.float()?, fields.float()?, fields.float()?];
        let at = key.first().copied().unwrap_or_default();
        let status = match fields.number()? {
            0 => Status::RetainedReceived,
            1 => Status::Ready,
            2 => Status::NotYetComplete,
            _ => Status::RetainedSent,
        };
        let priority = fields.small()?;
        let queue = fields.text()?;
        let mut owner = Owner {
            priority,
            group_id: fields.text()?,
            handle: fields.text()?,
            conversation_id: fields.text()?,
            service: fields.text()?,
            far_service: fields.text()?,
            contract: fields.text()?,
            lane: None,
            retry: None,
        };
        let (run, lane) = (Run::read(&fields.any())?, fields.any());
        if !lane.is_null() && !lane.is_undefined() {
            owner.lane = Some(Place { key: LaneKey::read(&lane)?, base: 0, failed: None });
        }
        Ok(Self { at, key, queue, status, owner, run })
    }
}

/// Deletes what was archived before `before`. Gives how many rows: their number stands in the keys.
pub(crate) fn purge(work: &mut Work<'_>, before: Instant) -> Outcome<u64> {
    // What is archived by the verbs before this one is to be seen.
    work.after_others()?;
    let range = Range { lower: Bound::Open, upper: Bound::Excluding(Key::List(vec![before.into()])) };
    let keys = work.get_keys(StoreName::Archive, range.clone(), None)?;
    let purged = keys.iter().filter_map(|key| key.item(3).number()).filter_map(|rows| rows.to_u64()).sum();
    if !keys.is_empty() {
        work.changes.notice.archive = true;
        work.write(Change::DeleteRange(StoreName::Archive, range));
    }
    Ok(purged)
}
