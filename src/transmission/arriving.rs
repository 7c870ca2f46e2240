//! Numbers come in their order, or wait for those before them.

use std::rc::Rc;

use crate::arrival;
use crate::changes::Pending;
use crate::conversation::{Conversation, Side, State};
use crate::ids::{Role, SideId};
use crate::message::{self, Class, Row, Run, count, system};
use crate::reading::{missing, read_runs};
use crate::retention;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, StoreName};
use crate::verbs::drop_stored;
use crate::work::Work;

/// The most rows, and bytes, that wait for others of their conversation.
const MOST_ROWS: u64 = 1_000;
const MOST_BYTES: f64 = 16_777_216.0;
/// Above every number.
const END: u64 = 1 << 53;

/// A number that is not here yet, and what it takes.
pub(super) struct Number {
    pub(super) number: u64,
    pub(super) size: f64,
}

/// Where it goes.
pub(super) enum Place {
    /// It is the next one. What waits for it follows.
    Next(Vec<Following>),
    /// Others are missing before it.
    Ahead,
}

/// A run that has waited, and its rows.
pub(super) struct Following {
    run: Rc<Run>,
    rows: Vec<Row>,
}

impl Side {
    /// Whether a number has come already, or is not wanted any more.
    pub(super) fn is_here(&self, number: u64) -> bool {
        number < self.next_expected
            || self.ahead.has(number)
            || (self.has_failed_there() && self.ahead.last.is_some_and(|last| number <= last))
    }

    /// The highest number below which nothing is missing.
    pub(super) fn arrived(&self) -> Option<u64> {
        let last = self.ahead.last.filter(|_| self.has_failed_there());
        last.or(self.next_expected.checked_sub(1))
    }

    /// The far side has ended with an Error: what is missing before it never comes.
    fn has_failed_there(&self) -> bool {
        self.state == State::Error
    }
}

/// Where a number goes, with all that has to be read for it. `Err`: too much waits already, and why.
pub(super) fn place(
    work: &mut Work<'_>,
    conversation: &Conversation,
    role: Role,
    Number { number, size }: Number,
) -> Outcome<Result<Place, String>> {
    let Some(side) = conversation.side(role) else { return Ok(Ok(Place::Ahead)) };
    let id = conversation.id_of(role);
    if number > side.next_expected {
        let wait = side.ahead.count();
        if wait >= MOST_ROWS || side.ahead.bytes + size > MOST_BYTES {
            return Ok(Err(format!("{wait} messages wait for number {} already", side.next_expected)));
        }
        return Ok(Ok(Place::Ahead));
    }
    let end = side.ahead.end_of(number + 1);
    if end == number + 1 {
        return Ok(Ok(Place::Next(Vec::new())));
    }
    // Those of this unit of work are to be found in the store.
    let is_its = |pending: &Pending| pending.side == id && pending.class == Class::Parked && !pending.rows.is_empty();
    if work.changes.pending.iter().any(is_its) {
        return Err(Stop::Later);
    }
    let following = read_following(work, id, number + 1, end);
    following.map(|following| Ok(Place::Next(following))).map_err(|stop| stop.about(&conversation.handle(role)))
}

fn read_following(work: &mut Work<'_>, id: SideId, from: u64, to: u64) -> Outcome<Vec<Following>> {
    let runs = read_runs(work, (id, Class::Parked), from, to - from)?;
    let (mut following, mut next, mut is_missing) = (Vec::new(), from, false);
    for run in runs {
        if next >= to || run.first() != next {
            break;
        }
        let mut rows = Vec::with_capacity(run.count);
        for index in 0..run.count {
            match run.row(work, index) {
                Ok(row) => rows.push(row),
                // Those that are missing are read together.
                Err(Stop::Missing) => is_missing = true,
                Err(stop) => return Err(stop),
            }
        }
        next = run.last + 1;
        following.push(Following { run, rows });
    }
    if is_missing {
        return Err(Stop::Missing);
    }
    if next < to {
        return Err(missing((id, Class::Parked), next).into());
    }
    Ok(following)
}

/// The next number, and what has waited for it.
pub(super) fn next(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Row,
    following: Vec<Following>,
) -> Outcome<()> {
    let mut rows = vec![row];
    let mut moved = 0;
    if let Some(side) = conversation.side_mut(role) {
        let mut bytes = 0.0;
        for Following { run, rows: others } in following {
            moved += count(others.len());
            bytes += run.columns.size;
            side.runs = side.runs.saturating_sub(1);
            retention::delete(work, &run, side);
            rows.extend(others);
        }
        if moved > 0 {
            side.ahead.take(bytes);
            side.parked = side.parked.saturating_sub(moved);
            let service = side.service;
            work.count(service, |counters| counters.parked = counters.parked.saturating_sub(moved))?;
        }
    }
    let ends = rows.last().is_some_and(|row| *row.message_type == *system::END_DIALOG);
    arrival::arrive(work, conversation, role, rows, ends)?;
    if let Some(side) = conversation.side_mut(role).as_mut().filter(|_| ends) {
        side.ahead.last = side.next_expected.checked_sub(1);
    }
    Ok(())
}

/// One that others are missing before.
pub(super) fn park(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Row,
    number: u64,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(side) = conversation.side_mut(role) else { return Ok(()) };
    let service = side.service;
    side.parked += 1;
    side.ahead.park(number, row.body.size);
    if *row.message_type == *system::END_DIALOG {
        side.ahead.last = Some(number);
    }
    work.count(service, |counters| counters.parked += 1)?;
    work.append(Pending {
        side: id,
        class: Class::Parked,
        service,
        is_visible: true,
        first: number,
        sequence: number,
        rows: vec![row],
    });
    Ok(())
}

/// An Error of the far side, whatever its number: what is missing before it never comes.
pub(super) fn error(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Row,
    number: u64,
) -> Outcome<()> {
    arrival::arrive_error(work, conversation, role, row, number)?;
    if let Some(side) = conversation.side_mut(role) {
        side.ahead.last = Some(number);
    }
    Ok(())
}

/// The conversation has failed: what waits for others never has its turn.
pub(crate) fn drop_parked(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(side) = conversation.side_mut(role) else { return Ok(()) };
    let (service, parked) = (side.service, std::mem::take(&mut side.parked));
    let Some(first) = side.ahead.parked.first().map(|first| first.from) else { return Ok(()) };
    side.ahead = crate::conversation::Ahead::default();
    work.changes.drop_rows(|pending| pending.side == id && pending.class == Class::Parked);
    let range = message::keys_between(id, Class::Parked, 0, END);
    work.write(Change::DeleteRange(StoreName::Bodies, range.clone()));
    work.write(Change::DeleteRange(StoreName::Messages, range));
    work.count(service, |counters| counters.parked = counters.parked.saturating_sub(parked))?;
    let reason = "the conversation failed before what was sent before it had arrived";
    drop_stored(work, conversation, role.other(), (first, parked), reason);
    Ok(())
}
