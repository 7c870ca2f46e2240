//! The error queue: where messages go whose handlers have failed to the last attempt, and whence they come back (D31).
//!
//! A message in it is a lane of its own, which keeps its id, type, headers and body and says where it failed, and with what. That is read from the
//! lane, never from headers.
//!
//! It is the queue "error", or the one that the application has named. Contexts may name different ones, and the same application another one later:
//! the counters of each queue say whether it holds such lanes, and whoever looks for failed messages looks into all that do.

mod unbury;

use std::rc::Rc;

pub use unbury::FailedFilter;
pub(crate) use unbury::{Unburied, Unbury};

use crate::arrival;
use crate::body::Value;
use crate::clock::Instant;
use crate::definitions::{ERROR_QUEUE, FIRST_QUEUE, ServiceDefinition};
use crate::ids::SideId;
use crate::lane::{Lane, LaneKey, ROLE};
use crate::message::{Class, Row, Run, system};
use crate::notice::{Critical, Failed};
use crate::reading::read_row;
use crate::record::{self, Fields, Read};
use crate::recoverability::{self, Failure, Next, Recovered, Retry, Thrown};
use crate::stop::{Outcome, Stop};
use crate::verbs::{Take, TakenRun};
use crate::work::Work;

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

    /// System messages stay: nobody else would ever handle them. So does what fails in the error queue itself, and what has failed before.
    pub(crate) fn may_be_moved(&self, work: &mut Work<'_>, queue: &str) -> Outcome<bool> {
        let conversation = work.conversation(self.id.conversation)?;
        let has_failed = conversation.is_some_and(|conversation| conversation.has_failed());
        Ok(!system::is_system(&self.row.message_type) && !has_failed && queue != &*service(work)?.0.name)
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
    let (service, missing) = service(work)?;
    work.changes.notice.critical.extend(missing);
    let mut lane = Lane::of_one(work, (service.number, &service.name), 5, Some(failed))?;
    arrival::arrive(work, &mut lane, ROLE, vec![row], false)?;
    work.save(lane);
    Ok(())
}

/// Where failed messages go: the own service of the queue that the application has named. Where that queue is missing nothing is lost, and it is told:
/// "error" is always there.
fn service(work: &mut Work<'_>) -> Outcome<(ServiceDefinition, Option<Critical>)> {
    let name = Rc::clone(&work.core.host.delayed.error_queue);
    let error = match work.look_up(|catalog| catalog.queue(&name).and_then(|_| catalog.service(&name))) {
        Ok(service) => return Ok((service, None)),
        Err(Stop::Failed(error)) => error,
        Err(stop) => return Err(stop),
    };
    let service = work.look_up(|catalog| catalog.service(ERROR_QUEUE))?;
    let message = format!(
        "There is no queue \"{name}\", which `delayedDelivery.errorQueue` names: what fails goes to the queue \"error\". Define it."
    );
    let error = Thrown { message: message.into(), ..Thrown::from(&error) };
    Ok((service, Some(Critical { source: "recovery".into(), error })))
}

/// The queues that failed messages may be in, by number: the one where they go, "error", and all that hold some.
pub(crate) fn queues(work: &mut Work<'_>) -> Outcome<Vec<u32>> {
    let catalog = Rc::clone(&work.catalog);
    work.need([], catalog.queues.values().map(|queue| queue.number))?;
    // The first queue's stamp says whether a queue is missing here.
    work.queue(FIRST_QUEUE)?;
    let mut found = Vec::new();
    for queue in catalog.queues.values() {
        let is_named = *queue.name == *ERROR_QUEUE || queue.name == work.core.host.delayed.error_queue;
        if is_named || work.queue(queue.number)?.total(|counters| counters.failed) > 0 {
            found.push(queue.number);
        }
    }
    found.sort_unstable();
    Ok(found)
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
