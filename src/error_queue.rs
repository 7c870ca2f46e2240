//! The error queue: where messages go whose handlers have failed to the last attempt, and whence they come back (D31).
//!
//! A message in it is a lane of its own, which keeps its id, type, headers and body and says where it failed, and with what. That is read from the
//! lane, never from headers.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::arrival;
use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::{Conversation, State};
use crate::definitions::ERROR_QUEUE;
use crate::ids::{Decoded, Role, SideId, text};
use crate::lane::{self, Lane, LaneKey, ROLE};
use crate::message::{self, Class, Row, Run, system};
use crate::notice::Failed;
use crate::reading::read_row;
use crate::record::{self, Fields, Read};
use crate::recoverability::{self, Failure, Next, Recovered, Retry, Thrown};
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Key, StoreName};
use crate::verbs::{Take, TakenRun, end_lane, send};
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
    /// It was delayed, and could not go where it was to go: `queue` is that, the name of a queue or the handle of a conversation.
    pub(crate) was_delayed: bool,
}

impl FailedAt {
    /// What is told of it.
    pub(crate) fn notice(&self, message_id: Rc<str>) -> Failed {
        let handle = Rc::clone(&self.handle);
        Failed {
            message_id,
            queue: Rc::clone(&self.queue),
            handle: Rc::clone(&handle),
            error: self.error.clone(),
            recovered: Recovered { attempts: self.attempts, next: Next::ErrorQueue, retry_at: None, handle },
        }
    }

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
            Value::from(self.was_delayed),
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
            was_delayed: fields.flag()?,
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
            left: None,
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
        was_delayed: false,
    };
    unread.take(work)?;
    put(work, failed, unread.row)
}

/// Puts a message into the error queue.
pub(crate) fn put(work: &mut Work<'_>, failed: FailedAt, row: Row) -> Outcome<()> {
    let service = work.look_up(|catalog| catalog.service(ERROR_QUEUE))?;
    let mut lane = Lane::of_one(work, (service.number, &service.name), 5, Some(failed))?;
    arrival::arrive(work, &mut lane, ROLE, vec![row], false)?;
    work.save(lane);
    Ok(())
}

/// Puts a message whose order does not matter into a lane of its own, where it waits and holds up nobody. Gives the lane's handle.
pub(crate) fn step_aside(
    work: &mut Work<'_>,
    unread: Unread,
    retry: Retry,
    retry_at: Option<Instant>,
) -> Outcome<Rc<str>> {
    let conversation = work.conversation(unread.id.conversation)?;
    let lane = conversation.as_ref().and_then(|conversation| Some((conversation, conversation.side(ROLE)?)));
    let Some((conversation, side)) = lane else { return Ok("".into()) };
    let (service, priority) = (side.service, side.priority);
    unread.take(work)?;
    let mut lane = Lane::of_one(work, (service, conversation.service(ROLE)), priority, None)?;
    arrival::arrive(work, &mut lane, ROLE, vec![unread.row], false)?;
    let (id, handle) = (lane.id_of(ROLE), lane.handle(ROLE));
    work.save(lane);
    recoverability::keep(work, id, Retry { row: (Class::Received, 0), ..retry }, retry_at)?;
    Ok(handle)
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
    /// Behind this lane.
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
        let service = work.look_up(|catalog| catalog.service(ERROR_QUEUE))?.number;
        let range = match &self.after {
            Some(after) => lane::names_of(service).behind(after.clone()),
            None => lane::names_of(service),
        };
        let numbers = work.read_range(StoreName::Members, range.clone(), Some(PAGE), lane::named)?;
        let last = work.get_keys(StoreName::Members, range, Some(PAGE))?.last().and_then(Key::from_value);
        let candidates = self.candidates(work, &numbers)?;
        read_targets_ahead(work, &candidates)?;
        let mut unburied = Unburied::default();
        let mut problem = None;
        for candidate in candidates {
            if unburied.count == self.limit {
                return Ok(unburied);
            }
            unburied.count += u64::from(pass_over(self.one(work, candidate), &mut problem)?.unwrap_or(false));
        }
        unburied.next = last.filter(|_| message::count(numbers.len()) == u64::from(PAGE));
        Ok(unburied)
    }

    /// Those that are meant and can be read. What they need is read together.
    fn candidates(&self, work: &mut Work<'_>, numbers: &[u64]) -> Outcome<Vec<Candidate>> {
        work.need(numbers.iter().copied(), [])?;
        let (mut candidates, mut problem, mut is_missing) = (Vec::new(), None, false);
        for number in numbers {
            match self.candidate(work, *number) {
                Err(Stop::Missing) => is_missing = true,
                candidate => candidates.extend(pass_over(candidate, &mut problem)?.flatten()),
            }
        }
        if is_missing { Err(Stop::Missing) } else { Ok(candidates) }
    }

    fn candidate(&self, work: &mut Work<'_>, number: u64) -> Outcome<Option<Candidate>> {
        let Some(conversation) = work.conversation(number)? else { return Ok(None) };
        let failed = conversation.lane.as_ref().and_then(|lane| lane.failed.clone());
        let unread = conversation.side(ROLE).filter(|side| side.cursor < side.visible_end()).map(|side| side.cursor);
        // What was never tried is there because it could not be read: it is no message any more.
        let may_go = |failed: &Rc<FailedAt>| self.discard || failed.attempts > 0;
        let failed = failed.filter(|failed| self.filter.has(failed) && may_go(failed));
        let (Some(failed), Some(first)) = (failed, unread) else {
            return Ok(None);
        };
        let unread = Unread::read(work, conversation.id_of(ROLE), (Class::Received, first))?;
        let is_meant = self.filter.message_id.as_ref().is_none_or(|wanted| **wanted == *text(unread.row.id));
        Ok(is_meant.then_some(Candidate { number, failed, row: unread.row }))
    }

    fn one(&self, work: &mut Work<'_>, Candidate { number, failed, row }: Candidate) -> Outcome<bool> {
        let Some(conversation) = work.conversation(number)? else { return Ok(false) };
        // Somebody may be at work on it.
        if !work.try_lock(&conversation.group(ROLE))? {
            return Ok(false);
        }
        if self.discard {
            end_lane(work, conversation, 0, true)?;
            return Ok(true);
        }
        let Some((mut target, role)) = source(work, &failed)? else {
            work.changes.notice.failed.push(failed.notice(text(row.id)));
            return Ok(false);
        };
        end_lane(work, conversation, 0, true)?;
        match (failed.was_delayed, &failed.lane) {
            // What was never there goes as it would have gone.
            (true, None) => send(work, target, role, vec![Row { time: work.now, ..row }])?,
            (true, Some(_)) => {
                arrival::arrive(work, &mut target, role, vec![Row { time: work.now, ..row }], false)?;
                work.save(target);
            }
            (false, _) => {
                arrival::give_back(work, &mut target, role, row, failed.sequence)?;
                work.save(target);
            }
        }
        Ok(true)
    }
}

/// A message of the error queue that may leave it.
struct Candidate {
    /// Of its conversation there.
    number: u64,
    failed: Rc<FailedAt>,
    row: Row,
}

/// Reads where they go, all at once.
fn read_targets_ahead(work: &mut Work<'_>, candidates: &[Candidate]) -> Outcome<()> {
    let handles = candidates.iter().filter(|candidate| candidate.failed.lane.is_none());
    let sides = handles.filter_map(|candidate| Decoded::parse(&candidate.failed.handle));
    work.need(sides.map(|decoded| decoded.side.conversation).collect::<Vec<_>>(), [])?;
    let lanes = candidates.iter().filter_map(|candidate| lane_of(work, &candidate.failed).map(|(lane, _)| lane));
    let lanes: Vec<Lane> = lanes.collect();
    Lane::read_ahead(work, lanes.iter())
}

/// The lane that a message failed in, and the name of its service; `None`: it was none, or its queue is gone.
fn lane_of(work: &Work<'_>, failed: &FailedAt) -> Option<(Lane, Rc<str>)> {
    let (key, priority) = failed.lane.as_ref()?;
    let service = work.catalog.service(&failed.queue).ok()?;
    let lane = Lane { service: service.number, priority: *priority, key: key.clone() };
    Some((lane, Rc::clone(&service.name)))
}

/// Where a message failed; `None`: that is gone. The definitions are the present ones: the error queue's record has been read.
fn source(work: &mut Work<'_>, failed: &FailedAt) -> Outcome<Option<(Box<Conversation>, Role)>> {
    if failed.lane.is_some() {
        let Some((lane, name)) = lane_of(work, failed) else { return Ok(None) };
        let conversation = match lane.key {
            LaneKey::Own(_) => Lane::of_one(work, (lane.service, &name), lane.priority, None)?,
            _ => lane.open(work, &name)?,
        };
        return Ok(Some((conversation, ROLE)));
    }
    let is_there = |(conversation, role): &(Box<Conversation>, Role)| {
        let may_take = |state: State| if failed.was_delayed { state.may_send() } else { !state.is_over() };
        conversation.side(*role).is_some_and(|side| may_take(side.state))
    };
    let found = work.find(&failed.handle)?.filter(is_there);
    if failed.was_delayed
        && let Some(service) = found.as_ref().and_then(|(conversation, role)| Some(conversation.side(*role)?.service))
    {
        // As SEND: what is sent can't be kept while the sender's queue is off.
        let own = work.queue_of(service)?;
        return Ok(found.filter(|_| own.enqueue_enabled || !own.retention));
    }
    Ok(found)
}
