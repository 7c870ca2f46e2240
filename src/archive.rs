//! The archive: copies of a side's rows that outlive its END.

use std::rc::Rc;

use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::Conversation;
use crate::ids::Role;
use crate::message::{self, Run, Status, count};
use crate::record::{Fields, Read, float};
use crate::rows::{Owner, Rows};
use crate::store::{Bound, Change, Direction, Key, Range, StoreName};
use crate::visible::segments;
use crate::work::{Number, Outcome, Work};

/// Runs are read in pages of this size.
const PAGE: u32 = 64;

/// Copies every row of a side. Gives how many there are.
pub(crate) async fn copy(work: &mut Work<'_>, conversation: &Conversation, role: Role, queue: &Rc<str>) -> Outcome<u64> {
    let Some(side) = conversation.side(role) else { return Ok(0) };
    let id = conversation.id_of(role);
    // What a transaction has received is gone by its commit, unless the queue retains it.
    let retains = work.catalog.queue_of(side.service).is_some_and(|queue| queue.retention);
    let gone = work.changes.taken.get(&id).filter(|_| !retains).map_or(0, |taken| taken.rows);
    let rows = (side.unread + side.kept + side.copies + side.parked).saturating_sub(gone);
    if work.is_view() || rows == 0 {
        return Ok(rows);
    }
    // Rows of this very unit of work are to be read as well.
    work.flush().await?;
    let owner = Owner::of(conversation, role);
    let stamp = work.claim(Number::Stamp, 1).await?;
    let mut part = 0u64;
    let mut range = message::keys_of(id);
    loop {
        let records = work.tx.get_range(StoreName::Messages, &range, Some(PAGE), Direction::Forward).await?;
        for record in &records {
            let run = Run::read(record).map_err(|problem| problem.at(StoreName::Messages, id.number()))?;
            range.lower = Bound::Excluding(run.key());
            for (from, to, status) in segments(side, &run) {
                let rows = Rows::of(&work.catalog, &owner, &run, from, to, status);
                let rows = crate::reading::with_large_bodies(work.tx, &run, from, to, rows).await?;
                let numbers = [work.now, float(stamp), float(part), float(count(rows.count))];
                let value = archived(&owner, queue, numbers, &run, from, &rows);
                work.write(Change::Put(StoreName::Archive, Key::list(numbers.map(Key::Number)), value));
                part += 1;
            }
        }
        if count(records.len()) < u64::from(PAGE) {
            break;
        }
    }
    work.changes.notice.archive = true;
    Ok(rows)
}

fn archived(owner: &Owner, queue: &str, key: [f64; 4], run: &Run, from: usize, rows: &Rows) -> Value {
    let copy = Run {
        service: None,
        first_order: rows.order,
        last: run.first() + count(from + rows.count.saturating_sub(1)),
        count: rows.count,
        sequence: rows.sequence,
        types: rows.types.clone(),
        times: rows.times.clone(),
        ids: rows.ids.clone(),
        headers: rows.headers.clone(),
        bodies: rows.bodies.clone(),
        packings: rows.packings.clone(),
        large: Vec::new(),
        ..run.clone()
    };
    let mut record = vec![Value::from(1u32)];
    record.extend(key.map(Value::from));
    record.extend([Value::from(rows.status.number()), Value::from(owner.priority)]);
    let texts = [queue, &*owner.group_id, &*owner.handle, &*owner.conversation_id, &*owner.service, &*owner.far_service, &*owner.contract];
    record.extend(texts.map(Value::from));
    record.push(copy.record());
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
    pub(crate) fn read(record: &Value) -> Read<Self> {
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
        let owner = Owner {
            priority,
            group_id: fields.text()?,
            handle: fields.text()?,
            conversation_id: fields.text()?,
            service: fields.text()?,
            far_service: fields.text()?,
            contract: fields.text()?,
        };
        Ok(Self { at, key, queue, status, owner, run: Run::read(&fields.any())? })
    }
}

/// Deletes what was archived before `before`. Gives how many rows: their number stands in the keys.
pub(crate) async fn purge(work: &mut Work<'_>, before: Instant) -> Outcome<u64> {
    let range = Range { lower: Bound::Open, upper: Bound::Excluding(Key::List(vec![before.into()])) };
    let keys = work.tx.get_keys(StoreName::Archive, &range, None).await?;
    let rows = |key: &Key| match key {
        Key::List(parts) => match parts.get(3) {
            Some(Key::Number(rows)) => num_traits::ToPrimitive::to_u64(rows).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    };
    let purged = keys.iter().map(rows).sum();
    if !keys.is_empty() {
        work.changes.notice.archive = true;
        work.write(Change::DeleteRange(StoreName::Archive, range));
    }
    Ok(purged)
}
