//! Runs that can't be read or are not there, and bodies that are not there.

use super::{Lost, lost_in, problem_of, raw_row, read_key};
use crate::arrival;
use crate::body::{Body, Value};
use crate::changes::Pending;
use crate::conversation::{Conversation, Interval, Side, State, System};
use crate::error_queue;
use crate::ids::{Role, SideId};
use crate::message::{self, Class, RUN_ROWS, Row, Run, count, system};
use crate::notice::Dropped;
use crate::record::{Read, Unreadable};
use crate::recoverability;
use crate::retention;
use crate::stop::Outcome;
use crate::store::{Change, Key, Range, StoreName};
use crate::work::Work;

/// The code of the Error that takes the place of one that can't be read.
const REMOVED: i32 = -9672;
/// Above every number.
const END: u64 = 1 << 53;

/// Rows of a side that are to be taken out: numbers `from` (included) to `to` (excluded) of one class.
struct Rows {
    id: SideId,
    class: Class,
    from: u64,
    to: u64,
}

/// A run, by its key or by the number of a row that should be in it. What of it waits behind readable rows is left until its turn comes.
pub(super) fn mend_run(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Some((id, class, number)) = read_key(key) else { return Ok(false) };
    let Some(conversation) = work.conversation(id.conversation)? else { return Ok(false) };
    let Some(side) = conversation.side(id.role) else { return Ok(false) };
    // Received rows are asked for by the number of the first: the key is behind it.
    let last = if class == Class::System { number } else { END };
    let range = message::keys_between(id, class, number, last);
    let found = work.get_keys(StoreName::Messages, range.clone(), Some(1))?.first().and_then(Key::from_value);
    let record = work.get_range(StoreName::Messages, range, Some(1))?.first().cloned();
    let (Some(found), Some(record)) = (found, record) else {
        let to = match class {
            Class::System if side.system.iter().any(|row| row.number == number) => number + 1,
            // The last ones are not there.
            Class::Received => side.visible_end(),
            Class::Sent => side.next_send,
            Class::Parked => side.ahead.end_of_stretch(number),
            _ => return Ok(true),
        };
        return take_out(work, &Rows { id, class, from: number, to }, None).map(|taken| taken.is_some());
    };
    let problem = match read(&record, &found) {
        Ok(run) if run.first() <= number => return Ok(true),
        Ok(run) => {
            let gap = Rows { id, class, from: number, to: run.first() };
            return take_out(work, &gap, None).map(|taken| taken.is_some());
        }
        Err(problem) => problem_of(problem, (StoreName::Messages, &found))?,
    };
    let Some(rows) = Rows::of(work, &found)? else { return Ok(false) };
    take_out(work, &rows, Some((&found, record, &problem))).map(|taken| taken.is_some())
}

/// Reads runs in the order of their keys. Those that can't be read go to the error queue: whoever asks is about to delete them.
pub(crate) fn read_or_bury(work: &mut Work<'_>, conversation: &Conversation, range: Range) -> Outcome<Vec<Run>> {
    let records = work.get_range(StoreName::Messages, range.clone(), None)?.to_vec();
    let mut runs = Vec::with_capacity(records.len());
    for (index, record) in records.into_iter().enumerate() {
        let problem = match Run::read(&record) {
            Ok(run) => {
                runs.push(run);
                continue;
            }
            Err(problem) => problem,
        };
        let keys = work.get_keys(StoreName::Messages, range.clone(), None)?;
        let Some(key) = keys.get(index).and_then(Key::from_value) else { continue };
        let problem = problem_of(problem, (StoreName::Messages, &key))?;
        let Some(rows) = Rows::of(work, &key)? else { continue };
        let bodies = rows.bodies(work)?;
        let lost = rows.lost(conversation, rows.to.saturating_sub(rows.from));
        lost.tell(work);
        let row = raw_row(work, StoreName::Messages, &key, record, bodies);
        lost.bury(work, row, &problem)?;
    }
    Ok(runs)
}

/// Moves some runs of a side whose record can't be read to the error queue, and whatever else lies among them; false: there is nothing.
pub(super) fn bury_some(work: &mut Work<'_>, id: SideId, most: u32, problem: &str) -> Outcome<bool> {
    let records = work.get_range(StoreName::Messages, message::keys_of(id), Some(most))?.to_vec();
    let keys = work.get_keys(StoreName::Messages, message::keys_of(id), Some(most))?.to_vec();
    let mut is_moved = false;
    for (key, record) in keys.iter().zip(&records) {
        let Some(key) = Key::from_value(key) else { continue };
        let run = Run::read(record).map_err(|problem| problem_of(problem, (StoreName::Messages, &key)));
        let service = match run {
            Ok(run) => run.service,
            Err(problem) => problem.map(|_| None)?,
        };
        // `None`: its key is not that of a run.
        let rows = Rows::of(work, &key)?;
        let bodies = rows.as_ref().map_or(Ok(Vec::new()), |rows| rows.bodies(work))?;
        let row = raw_row(work, StoreName::Messages, &key, record.clone(), bodies);
        let (from, to) = rows.as_ref().map_or((0, 1), |rows| (rows.from, rows.to));
        let failed = lost_in(work, service, "".into(), from, problem);
        error_queue::put(work, failed, row)?;
        work.write(Change::Delete(StoreName::Messages, key));
        rows.iter().for_each(|rows| work.write(Change::DeleteRange(StoreName::Bodies, rows.range())));
        work.changes.notice.dropped.push(Dropped { reason: "corrupt".into(), message: Vec::new(), envelope: None });
        work.changes.counts.dropped += to.saturating_sub(from);
        is_moved = true;
    }
    Ok(is_moved)
}

/// Reads a run that says which it is.
fn read(record: &Value, key: &Key) -> Read<Run> {
    let run = Run::read(record)?;
    if run.key() == *key { Ok(run) } else { Err(Unreadable::Field("its key is another one")) }
}

/// The body of a message is not there: the message goes to the error queue without it.
pub(super) fn mend_body(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Some((id, class, number)) = read_key(key) else { return Ok(false) };
    if work.get(StoreName::Bodies, key.clone())?.is_some() {
        return Ok(true);
    }
    let range = message::keys_between(id, class, number, if class == Class::System { number } else { END });
    let Some(run) = work.read_range(StoreName::Messages, range, Some(1), Run::read)?.pop() else { return Ok(false) };
    let Some(index) = number.checked_sub(run.first()).and_then(|index| usize::try_from(index).ok()) else {
        return Ok(false);
    };
    let Some(conversation) = work.conversation(id.conversation)? else { return Ok(false) };
    let Some(side) = conversation.side(id.role) else { return Ok(false) };
    let next = match class {
        Class::Received => side.cursor,
        Class::Sent => side.outgoing.as_ref().map_or(number, |outgoing| outgoing.acknowledged),
        Class::System | Class::Parked => number,
    };
    if next.max(run.first()) < number {
        // Rows of its own run come before it.
        return Ok(false);
    }
    if class == Class::Parked {
        // All of its run come again.
        let taken = take_out(work, &Rows { id, class, from: run.first(), to: run.last + 1 }, None)?;
        let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(false) };
        if let Some(side) = conversation.side_mut(id.role) {
            side.runs = side.runs.saturating_sub(1);
            retention::delete(work, &run, side);
            work.save(conversation);
        }
        return Ok(taken.is_some());
    }
    let rows = Rows { id, class, from: number, to: number + 1 };
    let row = run.row_with(index, Body::none());
    let taken = take_out(work, &rows, None)?;
    if taken.is_some_and(|taken| taken > 0) {
        delete_unneeded(work, &run)?;
        rows.lost(&conversation, 1).bury(work, row, "The body of the message is missing.")?;
    }
    Ok(taken.is_some())
}

/// A run goes with the last of its rows.
fn delete_unneeded(work: &mut Work<'_>, run: &Run) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(run.side.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side_mut(run.side.role).as_mut() else { return Ok(()) };
    if !side.needs(run) {
        side.runs = side.runs.saturating_sub(1);
        retention::delete(work, run, side);
        work.save(conversation);
    }
    Ok(())
}

/// Takes rows out of a side, and their run, if it is given, to the error queue. Gives how many there were; `None`, and nothing is done: others that
/// can be read come before them.
fn take_out(work: &mut Work<'_>, rows: &Rows, raw: Option<(&Key, Value, &str)>) -> Outcome<Option<u64>> {
    let id = rows.id;
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(None) };
    let before = conversation.clone();
    let Some(side) = conversation.side_mut(id.role).as_mut() else { return Ok(None) };
    let service = side.service;
    // The queue's record says whether the definitions are the present ones.
    work.queue_of(service)?;
    let Some(taken) = rows.take(work, side)? else { return Ok(None) };
    let retry = side.retry.as_ref().map(|retry| retry.row);
    if retry.is_some_and(|(class, number)| class == rows.class && (rows.from..rows.to).contains(&number)) {
        recoverability::forget(work, id, side);
    }
    let gone = taken.unread + taken.kept + taken.parked + taken.copies.max(taken.outgoing);
    if gone == 0 && raw.is_none() {
        // Somebody else was faster.
        return Ok(Some(0));
    }
    let bodies = match &raw {
        Some(_) if side.has_bodies => rows.bodies(work)?,
        _ => Vec::new(),
    };
    work.count(service, |counters| {
        counters.ready = counters.ready.saturating_sub(taken.unread);
        counters.kept = counters.kept.saturating_sub(taken.kept);
        counters.copies = counters.copies.saturating_sub(taken.copies);
        counters.parked = counters.parked.saturating_sub(taken.parked);
        counters.outgoing = counters.outgoing.saturating_sub(taken.outgoing);
    })?;
    if let Some((key, ..)) = &raw {
        side.runs = side.runs.saturating_sub(1);
        work.write(Change::Delete(StoreName::Messages, (*key).clone()));
        if side.has_bodies {
            work.write(Change::DeleteRange(StoreName::Bodies, rows.range()));
        }
    }
    rows.say_again(work, &mut conversation, &taken)?;
    work.save(conversation);
    let lost = rows.lost(&before, gone);
    lost.tell(work);
    if let Some((key, record, problem)) = raw {
        let row = raw_row(work, StoreName::Messages, key, record, bodies);
        lost.bury(work, row, problem)?;
    }
    Ok(Some(gone))
}

/// What rows were in their side.
#[derive(Default)]
struct Taken {
    unread: u64,
    kept: u64,
    copies: u64,
    outgoing: u64,
    parked: u64,
    /// Of one of class system.
    kind: Option<System>,
}

impl Rows {
    /// Those of a run that can't be read: it begins behind the run before it, and has no more rows than a run can have.
    fn of(work: &mut Work<'_>, key: &Key) -> Outcome<Option<Self>> {
        let Some((id, class, last)) = read_key(key) else { return Ok(None) };
        let lowest = if class == Class::System { last } else { last.saturating_sub(count(RUN_ROWS - 1)) };
        let before = match last.checked_sub(1).filter(|before| *before >= lowest) {
            Some(before) => work
                .get_keys(StoreName::Messages, message::keys_between(id, class, lowest, before), None)?
                .last()
                .and_then(Key::from_value),
            None => None,
        };
        let from = before.as_ref().and_then(read_key).map_or(lowest, |(.., before)| before + 1);
        Ok(Some(Self { id, class, from, to: last + 1 }))
    }

    /// What they were, and the side without them. `None`: others that can be read come before them.
    fn take(&self, work: &mut Work<'_>, side: &mut Side) -> Outcome<Option<Taken>> {
        let mut taken = Taken::default();
        match self.class {
            Class::System => {
                let row = side.system.iter().find(|row| row.number == self.from).copied();
                match row {
                    Some(row) if row.held => return Ok(None),
                    Some(row) => {
                        (taken.unread, taken.kind) = (1, Some(row.kind));
                        side.system.retain(|other| other.number != row.number);
                    }
                    // Not listed as unread: it is retained.
                    None => taken.kept = side.kept.min(1),
                }
            }
            Class::Received => {
                if self.to > side.cursor {
                    if self.to > side.visible_end() || !self.is_first(work, side.cursor)? {
                        return Ok(None);
                    }
                    taken.unread = self.to - side.cursor;
                    side.cursor = self.to;
                }
                taken.kept = cut(&mut side.kept_intervals, self.from, self.to);
            }
            Class::Sent => {
                if let Some(outgoing) = side.outgoing.as_ref().filter(|outgoing| outgoing.acknowledged < self.to) {
                    let (first, waits) = (outgoing.acknowledged, outgoing.turn.is_some());
                    // The last word of one that has ended has to be said.
                    let is_last_word = side.state == State::DisconnectedOutbound && self.to >= side.next_send;
                    if is_last_word || !self.is_first(work, first)? {
                        return Ok(None);
                    }
                    taken.outgoing = if waits { self.to - first } else { 0 };
                    if let Some(outgoing) = &mut side.outgoing {
                        outgoing.acknowledged = self.to;
                        outgoing.turn = outgoing.turn.filter(|_| self.to < side.next_send);
                    }
                }
                taken.copies = cut(&mut side.copied_intervals, self.from, self.to);
            }
            // It comes again: nobody was told that it is here.
            Class::Parked => {
                let others = message::keys_between(self.id, Class::Parked, 0, END);
                let others = work.get_range(StoreName::Messages, others, None)?.iter();
                let others = others.filter_map(|record| Run::read(record).ok());
                let left = others.filter(|run| run.last < self.from || run.first() >= self.to);
                taken.parked = side.ahead.forget(self.from, self.to, left.map(|run| run.columns.size).sum());
                side.parked = side.parked.saturating_sub(taken.parked);
                if side.has_bodies {
                    work.write(Change::DeleteRange(StoreName::Bodies, self.range()));
                }
            }
        }
        side.unread = side.unread.saturating_sub(taken.unread);
        side.kept = side.kept.saturating_sub(taken.kept);
        side.copies = side.copies.saturating_sub(taken.copies);
        Ok(Some(taken))
    }

    /// Whether they begin at a number, or nothing is stored between it and them.
    fn is_first(&self, work: &mut Work<'_>, number: u64) -> Outcome<bool> {
        if self.from <= number {
            return Ok(true);
        }
        let range = message::keys_between(self.id, self.class, number, self.from - 1);
        Ok(work.get_keys(StoreName::Messages, range, Some(1))?.is_empty())
    }

    fn range(&self) -> Range {
        message::keys_between(self.id, self.class, self.from, self.to.saturating_sub(1))
    }

    /// The large bodies that belong to them, each with its number.
    fn bodies(&self, work: &mut Work<'_>) -> Outcome<Vec<Value>> {
        let keys: Vec<Value> = work.get_keys(StoreName::Bodies, self.range(), None)?.to_vec();
        let bodies = work.get_range(StoreName::Bodies, self.range(), None)?.iter().cloned();
        Ok(keys.iter().zip(bodies).map(|(key, body)| Value::list(vec![key.item(2), body])).collect())
    }

    fn lost<'a>(&self, conversation: &'a Conversation, rows: u64) -> Lost<'a> {
        let role = self.id.role;
        let is_own = self.class == Class::Sent || conversation.lane.is_some();
        Lost {
            conversation,
            role,
            sender: if is_own { role } else { role.other() },
            first: conversation.side(role).filter(|_| self.class == Class::Received).map_or(self.from, |side| {
                // What was received before is not lost.
                if side.cursor < self.to { self.from.max(side.cursor) } else { self.from }
            }),
            count: rows,
        }
    }

    /// What the state of the endpoint says that there was among them is told again: it has ended, or failed.
    fn say_again(&self, work: &mut Work<'_>, conversation: &mut Conversation, taken: &Taken) -> Outcome<()> {
        let role: Role = self.id.role;
        if taken.kind == Some(System::Error) {
            let text = "The Error that had arrived could not be read: it lies in the error queue.";
            return arrival::fail_anew(work, conversation, role, REMOVED, text);
        }
        let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
        let had_end = side.state == State::DisconnectedInbound && side.held.is_none() && self.to == side.next_expected;
        if self.class != Class::Received || taken.unread == 0 || !had_end {
            return Ok(());
        }
        let (service, number) = (side.service, self.to - 1);
        side.cursor = number;
        side.unread += 1;
        work.count(service, |counters| counters.ready += 1)?;
        let row: Row = arrival::system_row(work, system::END_DIALOG, Body::none());
        work.append(Pending {
            side: self.id,
            class: Class::Received,
            service,
            is_visible: true,
            first: number,
            sequence: number,
            rows: vec![row],
        });
        Ok(())
    }
}

/// Takes a stretch out of intervals. Gives how many numbers that were.
fn cut(intervals: &mut Vec<Interval>, from: u64, to: u64) -> u64 {
    let parts = intervals.iter().flat_map(|interval| {
        let before = Interval { from: interval.from, to: interval.to.min(from) };
        let behind = Interval { from: interval.from.max(to), to: interval.to };
        [before, behind]
    });
    let left: Vec<Interval> = parts.filter(|part| part.from < part.to).collect();
    let length = |intervals: &[Interval]| intervals.iter().map(|interval| interval.to - interval.from).sum::<u64>();
    let gone = length(intervals).saturating_sub(length(&left));
    *intervals = left;
    gone
}
