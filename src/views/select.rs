//! `select`: the rows of a queue, every status, in queuing order. And the rows of the archive.

use std::collections::VecDeque;

use num_traits::ToPrimitive;

use super::{Extent, PAGE_BYTES, PAGE_ROWS, Page, RowFilter};
use crate::conversation::Conversation;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::error_queue;
use crate::message::{self, Class, RUN_ROWS, Run, Status, count};
use crate::reading::with_large_bodies;
use crate::record::{Unreadable, float, read_all};
use crate::rows::{Owner, Rows};
use crate::stop::Outcome;
use crate::store::{Bound, Direction, Key, Range, Source, StoreName};
use crate::turn::Turn;
use crate::visible::segments;
use crate::work::Work;

/// Runs in the order of their rows: those of a service, or those of one class of a side.
struct Stream {
    source: Source,
    /// Of one side's rows.
    class: Option<Class>,
    /// What is left to be read.
    range: Range,
    runs: VecDeque<Run>,
    is_complete: bool,
}

/// Runs that are read at once.
const RUNS: u32 = 32;

impl Stream {
    fn new(source: Source, class: Option<Class>, range: Range) -> Self {
        Self { source, class, range, runs: VecDeque::new(), is_complete: false }
    }

    /// The next run, without taking it.
    async fn peek(&mut self, driver: &mut Driver<'_>, direction: Direction) -> Outcome<Option<u64>> {
        if self.runs.is_empty() && !self.is_complete {
            let records = driver.tx.get_range(self.source, &self.range, Some(RUNS), direction).await?;
            self.is_complete = count(records.len()) < u64::from(RUNS);
            self.runs = match read_all(&records, Run::read) {
                Ok(runs) => runs.into(),
                Err((index, problem)) => return Err(self.unreadable(driver, direction, index, problem).await?.into()),
            };
            if let Some(last) = self.runs.back() {
                let key = match self.source {
                    Source::Order => order_key(last.service.unwrap_or_default(), last.first_order),
                    Source::Store(_) => last.key(),
                };
                match direction {
                    Direction::Forward => self.range.lower = Bound::Excluding(key),
                    Direction::Backward => self.range.upper = Bound::Excluding(key),
                }
            }
            driver.look(|work| work.need(self.runs.iter().map(|run| run.side.conversation), [])).await?;
            let unreadable = &driver.changes.unreadable;
            if let Some(error) = self.runs.iter().find_map(|run| unreadable.get(&run.side.conversation)) {
                return Err(error.clone().into());
            }
        }
        Ok(self.runs.front().map(|run| run.first_order))
    }

    /// The error for record `index` of what is left to be read: only the store knows its key for sure.
    async fn unreadable(
        &self,
        driver: &mut Driver<'_>,
        direction: Direction,
        index: usize,
        problem: Unreadable,
    ) -> Result<Error> {
        let mut keys = driver.tx.get_keys(self.source, &self.range, None).await?;
        if direction == Direction::Backward {
            keys.reverse();
        }
        let key = keys.into_iter().nth(index).unwrap_or(Key::Number(-1.0));
        let error = problem.at(self.source.store(), &key);
        let Some(side) = message::side_of(&key) else { return Ok(error) };
        let conversation = driver.look(|work| work.conversation(side.conversation)).await;
        Ok(match conversation {
            Ok(Some(conversation)) => error.with("handle", &*conversation.handle(side.role)),
            _ => error,
        })
    }
}

fn order_key(service: u32, order: u64) -> Key {
    Key::list([service.into(), float(order).into()])
}

/// What `select` shows, of a queue or of all that hold failed messages. `position` is what the page before gave: the last order, how many rows may still come, and per class where to go on.
pub(crate) async fn select(
    driver: &mut Driver<'_>,
    name: Option<&str>,
    filter: &RowFilter,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<Rows>> {
    let whole = |index: usize| position.and_then(|position| position.get(index)).and_then(|number| number.to_u64());
    let last = whole(0).or_else(|| filter.after.filter(|_| !filter.reverse).and_then(|after| after.to_u64()));
    let mut left = whole(1).or(filter.limit()).unwrap_or(u64::MAX);
    let direction = filter.direction();
    let mut streams = driver.look(|work| streams(work, name, filter, position, last)).await?;
    let mut page = Page { rows: Vec::new(), next: None };
    let (mut rows, mut bytes, mut reached) = (0, 0.0, last);
    loop {
        // Orders are unique, and a run's follow each other: the runs of all streams are in one line.
        let mut next: Option<(usize, u64)> = None;
        for (index, stream) in streams.iter_mut().enumerate() {
            if let Some(order) = stream.peek(driver, direction).await? {
                let is_before =
                    next.is_none_or(|(_, other)| if filter.reverse { order > other } else { order < other });
                next = if is_before { Some((index, order)) } else { next };
            }
        }
        let Some((index, _)) = next else { return Ok(page) };
        let Some(run) = streams.get(index).and_then(|stream| stream.runs.front()) else { return Ok(page) };
        let cached = driver.changes.conversations.get(&run.side.conversation);
        if let Some(conversation) = cached.and_then(|cached| cached.current.as_ref()) {
            for stretch in wanted(filter, conversation, run, last) {
                let (from, to, status) = filter.limited(stretch, left);
                if from >= to {
                    return Ok(page);
                }
                let is_full = rows > 0 && (rows + count(to - from) > PAGE_ROWS || bytes >= PAGE_BYTES);
                if extent == Extent::Page && is_full {
                    page.next = Some(position_after(&streams, reached, left, filter));
                    return Ok(page);
                }
                let all = to - from;
                let room = if extent == Extent::Page { PAGE_BYTES - bytes } else { f64::INFINITY };
                let (from, to) = filter.fitting(run, from, to, room);
                let mut part =
                    Rows::of(&driver.catalog, &Owner::of(conversation, run.side.role), run, from, to, status);
                part = with_large_bodies(driver.tx, run, from, to, part).await?;
                part.is_reversed = filter.reverse;
                rows += count(part.count);
                left -= count(part.count);
                bytes += (from..to).map(|index| run.size_of(index)).sum::<f64>();
                reached = Some(if filter.reverse { part.order } else { part.order + count(part.count) - 1 });
                page.rows.push(part);
                if to - from < all {
                    page.next = Some(position_after(&streams, reached, left, filter));
                    return Ok(page);
                }
            }
        }
        if let Some(stream) = streams.get_mut(index) {
            stream.runs.pop_front();
        }
    }
}

fn streams(
    work: &mut Work<'_>,
    name: Option<&str>,
    filter: &RowFilter,
    position: Option<&[f64]>,
    last: Option<u64>,
) -> Outcome<Vec<Stream>> {
    let Some(name) = name else {
        // Orders are unique over all queues, too.
        let queues = error_queue::queues(work)?.into_iter();
        let streams = queues.map(|queue| queue_streams(work, queue, filter, last)).collect::<Outcome<Vec<_>>>()?;
        return Ok(streams.into_iter().flatten().collect());
    };
    let queue = work.look_up(|catalog| catalog.queue(name))?;
    work.queue(queue.number)?;
    match &filter.conversation {
        Some(handle) => side_streams(work, queue.number, handle, filter, position),
        None => queue_streams(work, queue.number, filter, last),
    }
}

/// Where the next page begins: behind the last row that was given, and, in one side's rows, at which run of each class.
fn position_after(streams: &[Stream], reached: Option<u64>, left: u64, filter: &RowFilter) -> Vec<f64> {
    let mut position = vec![float(reached.unwrap_or(0)), left.to_f64().unwrap_or(f64::MAX)];
    if filter.conversation.is_some() {
        let run = |class: Class| {
            streams.iter().find(|stream| stream.class == Some(class)).and_then(|stream| stream.runs.front())
        };
        let place = |run: &Run| float(if filter.reverse { run.last } else { run.first() });
        position.extend(Class::ALL.map(|class| run(class).map_or(NOTHING_LEFT, place)));
    }
    position
}

/// In a position: a class has no more rows.
const NOTHING_LEFT: f64 = -1.0;

/// The stretches of a run that are asked for, in the direction that is asked for.
fn wanted(
    filter: &RowFilter,
    conversation: &Conversation,
    run: &Run,
    last: Option<u64>,
) -> Vec<(usize, usize, Status)> {
    let Some(side) = conversation.side(run.side.role) else { return Vec::new() };
    if filter.group.as_ref().is_some_and(|group| !group.eq_ignore_ascii_case(&conversation.group(run.side.role))) {
        return Vec::new();
    }
    let mut stretches: Vec<_> = segments(side, run)
        .into_iter()
        .flat_map(|(from, to, status)| filter.cut(run, from, to, status, last))
        .collect();
    if filter.reverse {
        stretches.reverse();
    }
    stretches
}

/// A stream per service of the queue.
fn queue_streams(work: &mut Work<'_>, queue: u32, filter: &RowFilter, last: Option<u64>) -> Outcome<Vec<Stream>> {
    // A run that begins up to so many orders before may have rows that are wanted.
    let reach = count(RUN_ROWS) - 1;
    let mut from = filter.after.and_then(|after| after.to_u64()).map_or(0, |after| after.saturating_sub(reach));
    let mut to = u64::MAX;
    match last {
        Some(last) if filter.reverse => to = last,
        Some(last) => from = from.max(last.saturating_sub(reach)),
        None => {}
    }
    if filter.status.as_deref() == Some(&[1.0]) {
        // What is ready is no older than the first turns say.
        let Some(oldest) = oldest_turn(work, queue)? else { return Ok(Vec::new()) };
        from = from.max(oldest.saturating_sub(reach));
    }
    let end = |service| Key::list([Key::from(service), Key::from(to.to_f64().unwrap_or(f64::MAX))]);
    let stream = |service: u32| {
        Stream::new(
            Source::Order,
            None,
            Range { lower: Bound::Including(order_key(service, from)), upper: Bound::Excluding(end(service)) },
        )
    };
    Ok(work.catalog.services_on(queue).map(|service| stream(service.number)).collect())
}

fn oldest_turn(work: &mut Work<'_>, queue: u32) -> Outcome<Option<u64>> {
    let mut oldest: Option<u64> = None;
    for priority in 1..=10 {
        let first = work
            .read_range(StoreName::Turns, Turn::of_priority(queue, priority), Some(1), |record| {
                Turn::read(record).map(|turn| turn.order)
            })?
            .pop();
        if let Some(order) = first {
            oldest = Some(oldest.map_or(order, |other| other.min(order)));
        }
    }
    Ok(oldest)
}

/// A stream per class of one side.
fn side_streams(
    work: &mut Work<'_>,
    queue: u32,
    handle: &str,
    filter: &RowFilter,
    position: Option<&[f64]>,
) -> Outcome<Vec<Stream>> {
    let Some((conversation, role)) = work.find(handle)? else { return Ok(Vec::new()) };
    let is_here = conversation
        .side(role)
        .and_then(|side| work.catalog.queue_of(side.service))
        .is_some_and(|other| other.number == queue);
    let side = conversation.id_of(role);
    let is_wanted = |class: &Class| match class {
        Class::System => true,
        Class::Received => filter.has_status(0.0) || filter.has_status(1.0),
        Class::Parked => filter.has_status(2.0),
        Class::Sent => filter.has_status(3.0),
    };
    let mut streams = Vec::new();
    for (index, class) in Class::ALL.into_iter().enumerate().filter(|(_, class)| is_here && is_wanted(class)) {
        let place = position.and_then(|position| position.get(index + 2)).copied();
        let mut range = Range::prefix(vec![float(side.number()).into(), class.number().into()]);
        match place.map(|place| (place, place.to_u64())) {
            Some((NOTHING_LEFT, _)) => continue,
            Some((_, Some(number))) if filter.reverse => {
                range.upper = Bound::Including(message::key(side, class, number))
            }
            Some((_, Some(number))) => range.lower = Bound::Including(message::key(side, class, number)),
            _ => {}
        }
        streams.push(Stream::new(StoreName::Messages.into(), Some(class), range));
    }
    Ok(streams)
}
