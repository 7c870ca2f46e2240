//! The error queue: where messages go whose handlers have failed to the last attempt, and whence they come back (D31).
//!
//! A message in it is a lane of its own, which keeps its id, type, headers and body and says where it failed, and with what. That is read from the
//! lane, never from headers.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::arrival;
use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::State;
use crate::definitions::ERROR_QUEUE;
use crate::ids::SideId;
use crate::lane::{self, Lane, LaneKey, ROLE};
use crate::message::{self, Class, Row, Run, system};
use crate::notice::Failed;
use crate::reading::read_row;
use crate::record::{self, Fields, Read};
use crate::recoverability::{self, Failure, Next, Recovered, Retry, Thrown};
use crate::stop::{Outcome, pass_over};
use crate::store::{Key, StoreName};
use crate::turn::Turn;
use crate::verbs::{Take, TakenRun};
use crate::work::Work;

/// So many messages are looked at in one storage transaction.
const PAGE: u32 = 256;

/// Where and how a message failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedAt {
    /// Its queue.
    pub(crate) queue: Rc<str>,
    /// Its endpoint.
    pub(crate) handle: Rc<str>,
    /// Its lane, which may be gone by now, and the lane's priority.
    pub(crate) lane: Option<(LaneKey, u32)>,
    /// The number that it had.
    pub(crate) sequence: u64,
    /// How often it was tried.
    pub(crate) attempts: u64,
    /// What the last attempt failed with.
    pub(crate) error: Thrown,
    pub(crate) stack: Rc<str>,
    /// Who processed it.
    pub(crate) endpoint: Rc<str>,
    pub(crate) at: Instant,
}

impl FailedAt {
    pub(crate) fn record(&self) -> Value {
        let lane = self
            .lane
            .as_ref()
            .map_or_else(Value::null, |(key, priority)| Value::list(vec![key.record(), Value::from(*priority)]));
        Value::list(vec![
            Value::from(&*self.queue),
            Value::from(&*self.handle),
            lane,
            record::value(self.sequence),
            record::value(self.attempts),
            Value::from(&*self.error.name),
            Value::from(&*self.error.message),
            record::optional(self.error.code.as_deref()),
            Value::from(&*self.stack),
            Value::from(&*self.endpoint),
            Value::from(self.at),
        ])
    }

    pub(crate) fn read(value: &Value) -> Read<Option<Self>> {
        if !value.is_list() {
            return Ok(None);
        }
        let mut fields = Fields::part(value)?;
        let (queue, handle, lane) = (fields.text()?, fields.text()?, fields.any());
        let lane = if lane.is_list() {
            let mut fields = Fields::part(&lane)?;
            Some((LaneKey::read(&fields.any())?, fields.small()?))
        } else {
            None
        };
        Ok(Some(Self {
            queue,
            handle,
            lane,
            sequence: fields.number()?,
            attempts: fields.number()?,
            error: Thrown { name: fields.text()?, message: fields.text()?, code: fields.optional_text()? },
            stack: fields.text()?,
            endpoint: fields.text()?,
            at: fields.float()?,
        }))
    }
}

/// An unread row that is to be moved.
#[derive(Debug)]
pub(crate) struct Unread {
    id: SideId,
    class: Class,
    number: u64,
    sequence: u64,
    row: Row,
    run: Rc<Run>,
}

impl Unread {
    pub(crate) fn read(work: &mut Work<'_>, id: SideId, (class, number): (Class, u64)) -> Outcome<Self> {
        let (row, sequence, run) = read_row(work, id, class, number)?;
        Ok(Self { id, class, number, sequence, row, run })
    }

    /// System messages stay: nobody else would ever handle them. So does what fails in the error queue itself.
    pub(crate) fn may_be_moved(&self, queue: &str) -> bool {
        !system::is_system(&self.row.message_type) && queue != ERROR_QUEUE
    }

    /// Takes it out of its side, as RECEIVE does.
    fn take(&self, work: &mut Work<'_>) -> Outcome<()> {
        let Some(conversation) = work.conversation(self.id.conversation)? else { return Ok(()) };
        let Some(side) = conversation.side(self.id.role) else { return Ok(()) };
        let run = &self.run;
        let is_system = self.class == Class::System;
        let kind = side.system.iter().find(|row| row.number == self.number).map(|row| row.kind);
        let take = Take {
            side: self.id,
            group: conversation.group(self.id.role),
            fence: side.fence,
            from: side.cursor,
            to: side.cursor + u64::from(!is_system),
            system: kind.filter(|_| is_system).map(|kind| (kind, self.number)).into_iter().collect(),
            runs: (!is_system)
                .then(|| TakenRun {
                    first: run.first(),
                    last: run.last,
                    first_order: run.first_order,
                    last_order: run.last_order(),
                })
                .into_iter()
                .collect(),
        };
        take.run(work)
    }
}

/// Moves a message to the error queue; its conversation goes on.
pub(crate) fn bury(work: &mut Work<'_>, unread: Unread, attempts: u64, failure: &Failure) -> Outcome<()> {
    let Some(conversation) = work.conversation(unread.id.conversation)? else { return Ok(()) };
    let failed = FailedAt {
        queue: Rc::clone(&failure.queue),
        handle: conversation.handle(unread.id.role),
        lane: Lane::of(&conversation).map(|lane| (lane.key, lane.priority)),
        sequence: unread.sequence,
        attempts,
        error: failure.error.clone(),
        stack: Rc::clone(&failure.stack),
        endpoint: Rc::clone(&failure.endpoint),
        at: work.now,
    };
    let service = work.look_up(|catalog| catalog.service(ERROR_QUEUE))?;
    unread.take(work)?;
    let mut lane = Lane::of_one(work, (service.number, &service.name), 5, Some(failed))?;
    arrival::arrive(work, &mut lane, ROLE, vec![unread.row], false)?;
    work.save(lane);
    Ok(())
}

/// Puts a message whose order does not matter into a lane of its own, where it waits and holds up nobody.
pub(crate) fn step_aside(work: &mut Work<'_>, unread: Unread, retry: Retry, retry_at: Option<Instant>) -> Outcome<()> {
    let Some(conversation) = work.conversation(unread.id.conversation)? else { return Ok(()) };
    let Some((service, priority)) = conversation.side(ROLE).map(|side| (side.service, side.priority)) else {
        return Ok(());
    };
    unread.take(work)?;
    let mut lane = Lane::of_one(work, (service, conversation.service(ROLE)), priority, None)?;
    arrival::arrive(work, &mut lane, ROLE, vec![unread.row], false)?;
    let id = lane.id_of(ROLE);
    work.save(lane);
    recoverability::keep(work, id, Retry { row: (Class::Received, 0), ..retry }, retry_at)
}

/// Which messages of the error queue.
#[derive(Clone, Debug, Default)]
pub struct FailedFilter {
    /// This one.
    pub message_id: Option<Rc<str>>,
    /// Those that failed in this queue.
    pub failed_queue: Option<Rc<str>>,
    /// Those that failed before this instant.
    pub failed_before: Option<f64>,
    /// At most so many.
    pub limit: Option<f64>,
}

impl FailedFilter {
    pub(crate) fn limit(&self) -> u64 {
        self.limit.and_then(|limit| limit.to_u64()).unwrap_or(u64::MAX)
    }

    fn has(&self, failed: &FailedAt) -> bool {
        self.failed_queue.as_ref().is_none_or(|queue| *queue == failed.queue)
            && self.failed_before.is_none_or(|before| failed.at < before)
    }
}

/// Moves messages of the error queue back to where they failed, or deletes them: a page of them.
#[derive(Debug)]
pub(crate) struct Unbury {
    pub(crate) filter: FailedFilter,
    pub(crate) discard: bool,
    /// Behind this turn.
    pub(crate) after: Option<Key>,
    /// At most so many.
    pub(crate) limit: u64,
}

/// What became of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unburied {
    pub(crate) count: u64,
    /// Where the next page begins; `None`: there is none.
    pub(crate) next: Option<Key>,
}

impl Unbury {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Unburied> {
        work.after_others()?;
        let queue = work.look_up(|catalog| catalog.queue(ERROR_QUEUE))?;
        work.queue(queue.number)?;
        let range = Turn::of_queue(queue.number);
        let range = match &self.after {
            Some(after) => range.behind(after.clone()),
            None => range,
        };
        let turns = work.read_range(StoreName::Turns, range, Some(PAGE), Turn::read)?;
        work.need(turns.iter().map(|turn| turn.side.conversation), [])?;
        let is_last = message::count(turns.len()) < u64::from(PAGE);
        let mut unburied = Unburied::default();
        let mut problem = None;
        for turn in &turns {
            if unburied.count == self.limit {
                return Ok(unburied);
            }
            let done = pass_over(self.one(work, turn), &mut problem)?.unwrap_or(false);
            unburied.count += u64::from(done);
        }
        unburied.next = turns.last().filter(|_| !is_last).map(Turn::key);
        Ok(unburied)
    }

    fn one(&self, work: &mut Work<'_>, turn: &Turn) -> Outcome<bool> {
        let Some(conversation) = work.conversation(turn.side.conversation)? else { return Ok(false) };
        let failed = conversation.lane.as_ref().and_then(|lane| lane.failed.clone());
        let Some(failed) = failed.filter(|failed| self.filter.has(failed)) else { return Ok(false) };
        let first = conversation.side(ROLE).map_or(0, |side| side.cursor);
        let unread = Unread::read(work, turn.side, (Class::Received, first))?;
        let id = crate::ids::text(unread.row.id);
        // Somebody may be at work on it.
        if self.filter.message_id.as_ref().is_some_and(|wanted| *wanted != id) || !work.try_lock(&turn.group)? {
            return Ok(false);
        }
        if !self.discard && !give_back(work, &failed, &unread.row)? {
            work.changes.notice.failed.push(Failed {
                message_id: id,
                queue: Rc::clone(&failed.queue),
                handle: Rc::clone(&failed.handle),
                error: failed.error.clone(),
                recovered: Recovered { attempts: failed.attempts, next: Next::ErrorQueue, retry_at: None },
            });
            return Ok(false);
        }
        work.count(turn.service, |counters| counters.ready = counters.ready.saturating_sub(1))?;
        lane::remove(work, conversation)?;
        Ok(true)
    }
}

/// Puts a message back to where it failed. Gives whether that is still there.
fn give_back(work: &mut Work<'_>, failed: &FailedAt, row: &Row) -> Outcome<bool> {
    let (mut conversation, role) = match &failed.lane {
        Some((key, priority)) => {
            let Ok(service) = work.look_up(|catalog| catalog.service(&failed.queue)) else { return Ok(false) };
            let lane = Lane { service: service.number, priority: *priority, key: key.clone() };
            let lane = match key {
                LaneKey::Own(_) => Lane::of_one(work, (service.number, &service.name), *priority, None)?,
                _ => lane.open(work, &service.name)?,
            };
            (lane, ROLE)
        }
        None => match work.find(&failed.handle)? {
            Some((conversation, role))
                if conversation.side(role).is_some_and(|side| side.state != State::DisconnectedOutbound) =>
            {
                (conversation, role)
            }
            _ => return Ok(false),
        },
    };
    arrival::give_back(work, &mut conversation, role, row.clone(), failed.sequence)?;
    work.save(conversation);
    Ok(true)
}
