//! Bounds of retention: a queue keeps no more received rows and copies than it is told to, and none that are older. The oldest go.
//!
//! This happens in the commit that goes beyond a bound, once everything else of it is stored, and by a due row when rows get too old. A commit looks
//! through so many runs and no more: what is left is for the next one.

use std::collections::VecDeque;

use crate::clock::Instant;
use crate::conversation::{Interval, Side};
use crate::definitions::QueueDefinition;
use crate::due::{Due, DueKind};
use crate::message::{self, Class, Run, Status, count};
use crate::queue::Queue;
use crate::record::float;
use crate::stop::{Outcome, pass_over};
use crate::store::{Bound, Change, Key, Range, Source, StoreName};
use crate::sweep;
use crate::visible::segments;
use crate::work::Work;

/// Runs that are read at once, and how many pages of them are looked through.
const RUNS: u32 = 32;
const PAGES: usize = 8;
/// The oldest rows go together: the next look is no sooner than this part of the greatest age.
const PART: f64 = 64.0;

/// After a commit has stored everything else: drops what is beyond the bounds of the queues that it touched. Whether anything has changed.
pub(crate) fn bound(work: &mut Work<'_>) -> Outcome<bool> {
    let numbers: Vec<u32> = work.changes.queues.keys().copied().collect();
    let effects = work.changes.effects;
    for number in numbers {
        let Some(queue) = work.catalog.queue_by_number(number).cloned() else { continue };
        let is_bound = queue.retention && (queue.max_rows.is_some() || queue.max_age.is_some());
        let due = work.changes.queues.get(&number).and_then(|cached| cached.current.as_ref()?.oldest_due);
        if is_bound || due.is_some() {
            bound_queue(work, &queue, is_bound, due)?;
        }
    }
    Ok(work.changes.effects > effects)
}

fn bound_queue(work: &mut Work<'_>, queue: &QueueDefinition, is_bound: bool, due: Option<Instant>) -> Outcome<()> {
    let retained = |queue: &Queue| queue.total(|counters| counters.kept + counters.copies);
    let retained = retained(work.queue(queue.number)?);
    let max_age = queue.max_age.filter(|_| is_bound).map(float);
    let excess = queue.max_rows.filter(|_| is_bound).map_or(0, |most| retained.saturating_sub(most));
    let mut next = None;
    if retained > 0 && (excess > 0 || max_age.is_some()) {
        let effects = work.changes.effects;
        let left = drop_oldest(work, queue, excess, max_age.map(|age| work.now - age))?;
        next = max_age.and_then(|age| match left {
            Left::Row(oldest) => Some((oldest + age).max(work.now + age / PART)),
            // It goes on at once as long as it gets anywhere.
            Left::Unseen if work.changes.effects > effects => Some(work.now),
            Left::Unseen => Some(work.now + age / PART),
            Left::Nothing => None,
        });
    }
    // One that is set already may be a little early.
    if next.is_some() && due.is_some_and(|due| due > work.now && next.is_some_and(|next| due <= next)) {
        return Ok(());
    }
    if next != due {
        due.into_iter().for_each(|due| work.drop_due(&Queue::due(queue.number, due)));
        if let Some(at) = next {
            work.put_due(&Queue::due(queue.number, at), crate::body::Value::list(vec![crate::body::Value::from(1u32)]));
        }
        work.change_queue(queue.number, |queue| queue.oldest_due = next);
    }
    Ok(())
}

/// The runs of one service that are to be looked through, the oldest first.
struct Line {
    service: u32,
    range: Range,
    runs: VecDeque<Run>,
    is_complete: bool,
}

impl Line {
    fn new(service: u32) -> Self {
        Self { service, range: Range::prefix(vec![service.into()]), runs: VecDeque::new(), is_complete: false }
    }

    /// The order of the next run.
    fn peek(&mut self, work: &mut Work<'_>, pages: &mut usize) -> Outcome<Option<u64>> {
        if self.runs.is_empty() && !self.is_complete && *pages > 0 {
            *pages -= 1;
            let records = work.get_page(Source::Order, self.range.clone(), RUNS)?;
            self.is_complete = count(records.len()) < u64::from(RUNS);
            // One that can't be read says so when it is asked for.
            self.runs = records.iter().filter_map(|record| Run::read(record).ok()).collect();
            match self.runs.back() {
                Some(last) => {
                    let key = Key::list([self.service.into(), float(last.first_order).into()]);
                    self.range.lower = Bound::Excluding(key);
                }
                None => self.is_complete = true,
            }
        }
        Ok(self.runs.front().map(|run| run.first_order))
    }
}

/// What is left when the oldest have gone.
enum Left {
    /// A row of this time is the oldest that stays.
    Row(Instant),
    /// As many runs as one commit may were looked through.
    Unseen,
    Nothing,
}

/// Drops `excess` rows, and those from before a time, the oldest first.
fn drop_oldest(
    work: &mut Work<'_>,
    queue: &QueueDefinition,
    mut excess: u64,
    before: Option<Instant>,
) -> Outcome<Left> {
    let services: Vec<u32> = work.catalog.services_on(queue.number).map(|service| service.number).collect();
    let mut lines: Vec<Line> = services.into_iter().map(Line::new).collect();
    let mut pages = PAGES;
    loop {
        let mut next: Option<(usize, u64)> = None;
        for (index, line) in lines.iter_mut().enumerate() {
            if let Some(order) = line.peek(work, &mut pages)? {
                next = if next.is_none_or(|(_, other)| order < other) { Some((index, order)) } else { next };
            }
        }
        // One that has no run in hand may have older ones than the others.
        if lines.iter().any(|line| line.runs.is_empty() && !line.is_complete) {
            return Ok(Left::Unseen);
        }
        let run = next.and_then(|(index, _)| lines.get_mut(index)?.runs.pop_front());
        let Some(run) = run else { return Ok(Left::Nothing) };
        if let Some(stays) = drop_of_run(work, &run, &mut excess, before)? {
            return Ok(Left::Row(stays));
        }
    }
}

/// Drops of one run what is to go. Gives the time of the first row that is retained and stays.
fn drop_of_run(work: &mut Work<'_>, run: &Run, excess: &mut u64, before: Option<Instant>) -> Outcome<Option<Instant>> {
    let conversation = pass_over(work.conversation(run.side.conversation), &mut None)?.flatten();
    let Some(mut conversation) = conversation else { return Ok(None) };
    let Some(side) = conversation.side_mut(run.side.role).as_mut() else { return Ok(None) };
    let (mut kept, mut copies, mut stays) = (0, 0, None);
    for (from, to, status) in segments(side, run) {
        let gone = match status {
            Status::RetainedReceived => &mut kept,
            Status::RetainedSent => &mut copies,
            Status::Ready | Status::NotYetComplete => continue,
        };
        for index in from..to {
            let time = run.times.get(index).copied().unwrap_or_default();
            if *excess == 0 && before.is_none_or(|before| time > before) {
                stays = Some(time);
                break;
            }
            *excess = excess.saturating_sub(1);
            *gone += 1;
            side.forget(run, run.first() + count(index) + 1);
        }
        if stays.is_some() {
            break;
        }
    }
    if kept + copies > 0 {
        side.kept = side.kept.saturating_sub(kept);
        side.copies = side.copies.saturating_sub(copies);
        if !side.needs(run) {
            side.runs = side.runs.saturating_sub(1);
            delete(work, run, side);
        }
        let service = side.service;
        work.count(service, |counters| {
            counters.kept = counters.kept.saturating_sub(kept);
            counters.copies = counters.copies.saturating_sub(copies);
        })?;
        work.save(conversation);
    }
    Ok(stays)
}

/// Nobody needs a run any more.
pub(crate) fn delete(work: &mut Work<'_>, run: &Run, side: &Side) {
    work.write(Change::Delete(StoreName::Messages, run.key()));
    if side.has_bodies {
        let range = message::keys_between(run.side, run.class, run.first(), run.last);
        work.write(Change::DeleteRange(StoreName::Bodies, range));
    }
    if let Some(service) = run.service {
        sweep::note(work, service, run.first_order, run.last_order(), 1);
    }
}

impl Side {
    /// Rows of a run's class below `end` are not retained any more: they were the oldest.
    fn forget(&mut self, run: &Run, end: u64) {
        let intervals = match run.class {
            Class::Received => &mut self.kept_intervals,
            Class::Sent => &mut self.copied_intervals,
            // What is not listed as unread is retained as long as it is stored.
            Class::System | Class::Parked => return,
        };
        intervals.iter_mut().for_each(|interval| interval.from = interval.from.max(end));
        intervals.retain(|interval| interval.from < interval.to);
    }

    /// Whether something of a run is retained, unread, or to be transmitted.
    pub(crate) fn needs(&self, run: &Run) -> bool {
        let overlaps = |intervals: &[Interval]| {
            intervals.iter().any(|interval| interval.from <= run.last && run.first() < interval.to)
        };
        match run.class {
            Class::System => self.system.iter().any(|row| row.number == run.last),
            Class::Received => run.last >= self.cursor || overlaps(&self.kept_intervals),
            Class::Parked => true,
            Class::Sent => {
                overlaps(&self.copied_intervals)
                    || self.outgoing.as_ref().is_some_and(|outgoing| run.last >= outgoing.acknowledged)
            }
        }
    }
}

impl Queue {
    /// The row that says when its oldest retained row is too old.
    pub(crate) fn due(number: u32, at: Instant) -> Due {
        Due { at, stamp: 0, kind: DueKind::Retention, number: number.into() }
    }
}
