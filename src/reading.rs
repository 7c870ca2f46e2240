//! Reading the unread rows of one side.

use std::collections::VecDeque;
use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::{Body, Part};
use crate::conversation::{Conversation, System};
use crate::error::{Error, Result};
use crate::ids::SideId;
use crate::message::{self, Class, Row, Run, Status, count};
use crate::rows::{Owner, Rows};
use crate::stop::{Outcome, Stop};
use crate::store::{Key, StoreName, Tx};
use crate::verbs::{Take, TakenRun};
use crate::work::Work;

/// The most rows, and bytes of bodies, that RECEIVE gives without `top`; one larger row comes alone.
const ROWS: u64 = 10_000;
const BYTES: f64 = 67_108_864.0;
/// The most runs that are read at once.
const RUNS: u64 = 2_048;
/// Above every sequence number.
const END: u64 = 1 << 53;

/// How much may still be given.
#[derive(Debug)]
pub(crate) struct Allowance {
    rows: u64,
    bytes: f64,
    is_untouched: bool,
}

impl Allowance {
    /// `top`: so many rows, whatever their size.
    pub(crate) fn new(top: Option<u64>) -> Self {
        let (rows, bytes) = top.map_or((ROWS, BYTES), |top| (top, f64::INFINITY));
        Self { rows, bytes, is_untouched: true }
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.rows == 0 || self.bytes <= 0.0
    }

    /// Takes one row of `size` bytes, if it fits.
    fn take(&mut self, size: f64) -> bool {
        if self.rows == 0 || (size > self.bytes && !self.is_untouched) {
            return false;
        }
        self.rows -= 1;
        self.bytes -= size;
        self.is_untouched = false;
        true
    }
}

/// What of a side can be received.
#[derive(Debug)]
pub(crate) struct Readable {
    /// In sequence: from the cursor to what is not there yet, or hidden.
    from: u64,
    to: u64,
    /// DialogTimer first, then Error.
    system: Vec<(System, u64)>,
}

/// What of a side can be received; `None`: nothing. What the transaction has received already is not in it, nor is what it has ENDed.
pub(crate) fn readable(work: &Work<'_>, conversation: &Conversation, id: SideId) -> Option<Readable> {
    if work.changes.ended.contains(&id) {
        return None;
    }
    let side = conversation.side(id.role)?;
    let taken = work.changes.taken.get(&id);
    let is_new = |row: &(System, u64)| taken.is_none_or(|taken| !taken.system.contains(row));
    let mut system: Vec<_> =
        side.system.iter().filter(|row| !row.held).map(|row| (row.kind, row.number)).filter(is_new).collect();
    system.sort_unstable();
    let from = taken.map_or(side.cursor, |taken| taken.cursor.max(side.cursor));
    let to = side.visible_end().max(from);
    (from < to || !system.is_empty()).then_some(Readable { from, to, system })
}

/// The order of the oldest unread row.
pub(crate) fn first_order(work: &mut Work<'_>, conversation: &Conversation, id: SideId) -> Outcome<u64> {
    find_first_order(work, conversation, id).map_err(|stop| stop.about(&conversation.handle(id.role)))
}

fn find_first_order(work: &mut Work<'_>, conversation: &Conversation, id: SideId) -> Outcome<u64> {
    let Some(readable) = readable(work, conversation, id) else { return Ok(END) };
    let mut first = END;
    if readable.from < readable.to {
        let run = match work.core.runs.get(id, readable.from) {
            Some(run) => run,
            None => read_runs(work, (id, Class::Received), readable.from, 1)?
                .pop_front()
                .ok_or_else(|| missing((id, Class::Received), readable.from))?,
        };
        first = run.first_order + readable.from.saturating_sub(run.first());
    }
    for (_, number) in readable.system {
        first = first.min(read_system(work, id, number)?.first_order);
    }
    Ok(first)
}

/// Reads what can be received of a side, as far as the allowance goes and up to what can't be read. Nothing changes by it.
pub(crate) fn read_rows(
    work: &mut Work<'_>,
    conversation: &Conversation,
    id: SideId,
    owner: &Owner,
    allowance: &mut Allowance,
    rows: &mut Vec<Rows>,
) -> Outcome<Option<Take>> {
    let Some(readable) = readable(work, conversation, id) else { return Ok(None) };
    let fence = conversation.side(id.role).map_or(0, |side| side.fence);
    let mut take = Take {
        side: id,
        group: Rc::clone(&owner.group_id),
        fence,
        from: readable.from,
        to: readable.from,
        system: Vec::new(),
        runs: Vec::new(),
        left: None,
    };
    let is_behind = conversation.side(id.role).is_some_and(|side| side.cursor < readable.from);
    match fill(work, conversation, &readable, owner, allowance, &mut take, rows) {
        // What comes before it can be had, now or by this transaction before: it stops who comes next.
        Err(Stop::Failed(error)) if (take.count() > 0 || is_behind) && error.is_corrupt() => {}
        outcome => outcome.map_err(|stop| stop.about(&owner.handle))?,
    }
    take.left = (take.to < readable.to).then(|| take.next_order());
    Ok(Some(take).filter(|take| take.count() > 0))
}

fn fill(
    work: &mut Work<'_>,
    conversation: &Conversation,
    readable: &Readable,
    owner: &Owner,
    allowance: &mut Allowance,
    take: &mut Take,
    rows: &mut Vec<Rows>,
) -> Outcome<()> {
    let id = take.side;
    for (kind, number) in readable.system.iter().copied() {
        let run = read_system(work, id, number)?;
        if !allowance.take(run.columns.size) {
            return Ok(());
        }
        let row = Rows::of(&work.catalog, owner, &run, 0, run.count, Status::RetainedReceived);
        rows.push(put_large_bodies(work, &run, 0, run.count, row)?);
        take.system.push((kind, number));
    }

    let (runs, unread) = conversation.side(id.role).map_or((0, 0), |side| (side.runs, side.unread_in_sequence()));
    let mut ahead = VecDeque::new();
    while take.to < readable.to && !allowance.is_used_up() {
        let run = match work.core.runs.get(id, take.to).or_else(|| ahead.pop_front()) {
            Some(run) => run,
            None => {
                let rows_in_run = (unread / runs.max(1)).max(1);
                let wanted = allowance.rows.min(readable.to - take.to).div_ceil(rows_in_run);
                ahead = read_runs(work, (id, Class::Received), take.to, wanted.clamp(1, RUNS))?;
                ahead.pop_front().ok_or_else(|| missing((id, Class::Received), take.to))?
            }
        };
        let first = run.first();
        if !(first..=run.last).contains(&take.to) {
            return Err(missing((id, Class::Received), take.to).into());
        }
        let from = usize::try_from(take.to - first).unwrap_or(usize::MAX);
        let mut to = from;
        while to < run.count && first + count(to) < readable.to && allowance.take(run.size_of(to)) {
            to += 1;
        }
        if to == from {
            work.core.runs.put(run);
            break;
        }
        // What comes before a body that is missing can be had.
        let problem = missing_body(work, &run, from, to)?;
        if let Some((index, error)) = &problem {
            if *index == from {
                return Err(error.clone().into());
            }
            to = *index;
        }
        let part = Rows::of(&work.catalog, owner, &run, from, to, Status::RetainedReceived);
        rows.push(put_large_bodies(work, &run, from, to, part)?);
        take.to = first + count(to);
        take.runs.push(TakenRun { first, last: run.last, first_order: run.first_order, last_order: run.last_order() });
        if to < run.count {
            work.core.runs.put(run);
        }
        if let Some((_, error)) = problem {
            return Err(error.into());
        }
    }
    Ok(())
}

/// The first of the rows `from` to `to` of a run whose body is missing.
fn missing_body(work: &mut Work<'_>, run: &Run, from: usize, to: usize) -> Outcome<Option<(usize, Error)>> {
    let (mut problem, mut is_unread) = (None, false);
    for index in run.large_between(from, to) {
        let key = run.body_key(index);
        match work.get(StoreName::Bodies, key.clone()) {
            Ok(Some(_)) => {}
            Ok(None) => problem = problem.or_else(|| Some((index, no_body(&key)))),
            // Those that have not been read are read together.
            Err(Stop::Missing) => is_unread = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_unread { Err(Stop::Missing) } else { Ok(problem) }
}

/// Puts the large bodies of rows `from` to `to` of a run into their places.
fn put_large_bodies(work: &mut Work<'_>, run: &Run, from: usize, to: usize, mut rows: Rows) -> Outcome<Rows> {
    let mut is_missing = false;
    for index in run.large_between(from, to) {
        let key = run.body_key(index);
        match work.get(StoreName::Bodies, key.clone()) {
            Ok(Some(body)) => rows = rows.with_body(index - from, body),
            Ok(None) => return Err(no_body(&key).into()),
            // Those that are missing are read together.
            Err(Stop::Missing) => is_missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(rows) }
}

/// The same for views, which read as they go.
pub(crate) async fn with_large_bodies(tx: &Tx, run: &Run, from: usize, to: usize, mut rows: Rows) -> Result<Rows> {
    for index in run.large_between(from, to) {
        let key = run.body_key(index);
        let body = tx.get(StoreName::Bodies, &key).await?.ok_or_else(|| no_body(&key))?;
        rows = rows.with_body(index - from, body);
    }
    Ok(rows)
}

fn no_body(key: &Key) -> Error {
    Error::corrupt(StoreName::Bodies.name(), key, "the body of a message is missing")
}

impl Run {
    /// Which of the rows `from` to `to` have bodies with records of their own.
    pub(crate) fn large_between(&self, from: usize, to: usize) -> impl Iterator<Item = usize> {
        self.columns.large.iter().map(|(index, _)| *index).filter(move |index| (from..to).contains(index))
    }

    fn body_key(&self, index: usize) -> Key {
        message::key(self.side, self.class, self.first() + count(index))
    }

    /// One of its rows, to be stored elsewhere.
    pub(crate) fn row(&self, work: &mut Work<'_>, index: usize) -> Outcome<Row> {
        let value = match self.large_between(index, index + 1).next() {
            Some(_) => {
                let key = self.body_key(index);
                work.get(StoreName::Bodies, key.clone())?.ok_or_else(|| no_body(&key))?
            }
            None => self.columns.bodies.item(index),
        };
        let packing = self.columns.packings.item(index).number().and_then(|packing| packing.to_u32()).unwrap_or(0);
        Ok(self.row_with(index, Body { value: value.into(), packing, size: self.size_of(index) }))
    }

    /// The id of one of its rows.
    pub(crate) fn id_of(&self, index: usize) -> Rc<str> {
        let id = self.columns.ids.byte_slice(index * 16, index * 16 + 16).bytes();
        crate::ids::text(id.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// The same with another body.
    pub(crate) fn row_with(&self, index: usize, body: Body) -> Row {
        let id = self.columns.ids.byte_slice(index * 16, index * 16 + 16).bytes();
        let headers = self.columns.headers.item(index);
        Row {
            message_type: self.columns.types.get(index).cloned().unwrap_or_else(|| "".into()),
            id: id.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok()).unwrap_or_default(),
            time: self.times.get(index).copied().unwrap_or_default(),
            headers: (!headers.is_null() && !headers.is_undefined()).then(|| Part::from(headers)),
            body,
        }
    }

    /// The size of one row's body: its own if it is large, else the average.
    pub(crate) fn size_of(&self, index: usize) -> f64 {
        let large: f64 = self.columns.large.iter().map(|(_, size)| size).sum();
        let own = self.columns.large.iter().find(|(other, _)| *other == index).map(|(_, size)| *size);
        own.unwrap_or_else(|| (self.columns.size - large).max(0.0) / self.count.to_f64().unwrap_or(1.0))
    }
}

/// One unread row as it was stored, to be stored elsewhere; its sequence number, and the run that it is in.
pub(crate) fn read_row(work: &mut Work<'_>, id: SideId, class: Class, number: u64) -> Outcome<(Row, u64, Rc<Run>)> {
    let run = match class {
        Class::System => Rc::new(read_system(work, id, number)?),
        _ => read_runs(work, (id, Class::Received), number, 1)?
            .pop_front()
            .ok_or_else(|| missing((id, Class::Received), number))?,
    };
    let index = number.checked_sub(run.first()).and_then(|index| index.to_usize()).filter(|index| *index < run.count);
    let index = index.ok_or_else(|| missing((id, Class::Received), number))?;
    let row = run.row(work, index)?;
    let sequence = run.sequence + if class == Class::System { 0 } else { count(index) };
    Ok((row, sequence, run))
}

/// Runs of a class, from the one that holds number `from`, up to one that can't be read.
pub(crate) fn read_runs(
    work: &mut Work<'_>,
    (id, class): (SideId, Class),
    from: u64,
    limit: u64,
) -> Outcome<VecDeque<Rc<Run>>> {
    let range = message::keys_between(id, class, from, END);
    let records = work.get_range(StoreName::Messages, range.clone(), limit.to_u32())?;
    let runs: VecDeque<_> = records.iter().map_while(|record| Run::read(record).ok()).map(Rc::new).collect();
    if runs.is_empty() {
        // The first can't be read, or there is none.
        work.read_range(StoreName::Messages, range, limit.to_u32(), Run::read)?;
    }
    Ok(runs)
}

fn read_system(work: &mut Work<'_>, id: SideId, number: u64) -> Outcome<Run> {
    let key = message::key(id, Class::System, number);
    let record = work
        .get(StoreName::Messages, key.clone())?
        .ok_or_else(|| Error::corrupt(StoreName::Messages.name(), &key, "a message is missing"))?;
    Ok(Run::read(&record).map_err(|problem| problem.at(StoreName::Messages, &key))?)
}

pub(crate) fn missing((id, class): (SideId, Class), number: u64) -> Error {
    Error::corrupt(StoreName::Messages.name(), &message::key(id, class, number), "a message is missing")
}
