//! Recoverability: what a handler's failure means (D35).
//!
//! A message that failed stays where it is, the first of its conversation, and keeps its place. It is tried again at once, a few times; then its
//! conversation waits, and the others go on; after the last round it is moved, or waits again, or is left to the poison rule. The attempts are
//! counted with the conversation, so they go over reloads and tabs.

use std::rc::Rc;

use crate::clock::Instant;
use crate::conversation::Side;
use crate::due::{self, Due, DueKind};
use crate::error::Error;
use crate::error_queue;
use crate::ids::SideId;
use crate::message::Class;
use crate::notice::Failed;
use crate::poison::{self, Attempt};
use crate::stop::Outcome;
use crate::store::{Range, StoreName};
use crate::waits;
use crate::work::Work;

/// The longest that a conversation waits, in milliseconds, when the wait grows from time to time.
const LONGEST: Instant = 60_000.0;
/// The first wait of a message that is put off without a time.
const FIRST: Instant = 1_000.0;

/// What is to become of a message whose handler fails.
#[derive(Clone, Debug)]
pub struct Recoverability {
    /// So often it is tried again at once, in each round. Default 5.
    pub immediate_retries: u64,
    /// So many rounds more, each after a wait. Default 3.
    pub delayed_retries: u64,
    /// The first wait in milliseconds, added once more each round. Default 10 000.
    pub time_increase: f64,
    /// What happens after the last attempt.
    pub finally: Finally,
}

impl Default for Recoverability {
    fn default() -> Self {
        Self { immediate_retries: 5, delayed_retries: 3, time_increase: 10_000.0, finally: Finally::ErrorQueue }
    }
}

/// What happens after the last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finally {
    /// The message moves to the error queue, and its conversation goes on. A system message never does: it is tried again every minute.
    ErrorQueue,
    /// More rounds, in order, with waits of up to a minute.
    RetryForever,
    /// No rounds: each failure is a rollback, five in a row switch the queue off.
    Rollback,
}

/// How a handler failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it says about the next attempt.
    pub kind: FailureKind,
    /// Name, text and code of what it threw.
    pub error: Thrown,
    /// The message.
    pub message_id: Rc<str>,
    /// Its queue.
    pub queue: Rc<str>,
    /// Where in the program it was thrown.
    pub stack: Rc<str>,
    /// Who processes: the name of the broker.
    pub endpoint: Rc<str>,
}

/// What was thrown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrown {
    /// The name of its class.
    pub name: Rc<str>,
    /// Its text.
    pub message: Rc<str>,
    /// Its code, if it is a broker's error.
    pub code: Option<Rc<str>>,
}

impl From<&Error> for Thrown {
    fn from(error: &Error) -> Self {
        Self { name: "BrokerError".into(), message: error.to_string().into(), code: Some(error.code().name().into()) }
    }
}

/// What a failure says about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FailureKind {
    /// It may work the next time.
    Ordinary,
    /// It never will.
    Unrecoverable,
    /// Not now: in so many milliseconds, or when the broker thinks best. It does not count.
    Later(Option<f64>),
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt at once.
    Immediate,
    /// Another attempt later.
    Delayed,
    /// It was moved to the error queue.
    ErrorQueue,
    /// As if nobody had tried.
    Rollback,
}

impl Next {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Delayed => "delayed",
            Self::ErrorQueue => "error-queue",
            Self::Rollback => "rollback",
        }
    }
}

/// What became of a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// Attempts that have failed so far.
    pub attempts: u64,
    /// What comes next.
    pub next: Next,
    /// When, if it is later.
    pub retry_at: Option<Instant>,
    /// The endpoint that has the message now, and waits if it does: a message without order waits in one of its own.
    pub handle: Rc<str>,
}

/// What handlers have made of the row that is the first of its side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retry {
    /// The row: what is said of another one does not count.
    pub(crate) row: (Class, u64),
    /// Attempts that have failed.
    pub(crate) attempts: u64,
    /// Times in a row that it was put off.
    pub(crate) postponed: u64,
    /// Until when the side waits, and the stamp of its due row.
    pub(crate) until: Option<(Instant, u64)>,
    /// What the last attempt failed with.
    pub(crate) error: Option<Rc<str>>,
}

/// A failure is counted, and says what comes next.
#[derive(Debug)]
pub(crate) struct Recover {
    pub(crate) id: SideId,
    pub(crate) row: (Class, u64),
    /// The attempts of the transaction: their marks are taken off.
    pub(crate) attempts: Vec<SideId>,
    pub(crate) failure: Failure,
    pub(crate) policy: Recoverability,
}

impl Recover {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Recovered> {
        let is_counted =
            self.policy.finally == Finally::Rollback && !matches!(self.failure.kind, FailureKind::Later(_));
        for side in &self.attempts {
            poison::count(work, *side, if is_counted { Attempt::Failed } else { Attempt::Withdrawn })?;
        }
        if is_counted && self.attempts.is_empty() {
            poison::count(work, self.id, Attempt::Refused)?;
        }
        let nothing = Recovered { attempts: 0, next: Next::Rollback, retry_at: None, handle: "".into() };
        let Some(mut conversation) = work.conversation(self.id.conversation)? else { return Ok(nothing) };
        let handle = conversation.handle(self.id.role);
        // Somebody has received it, or ENDed the conversation: there is nothing left to try.
        let Some(side) = conversation.side_mut(self.id.role).as_mut().filter(|side| side.has_unread(self.row)) else {
            return Ok(nothing);
        };
        let known = forget(work, self.id, side).filter(|retry| retry.row == self.row);
        let mut retry = known.unwrap_or(Retry { row: self.row, attempts: 0, postponed: 0, until: None, error: None });
        retry.error = Some(Rc::clone(&self.failure.error.message));
        let (mut next, mut wait) = self.decide(&mut retry);
        let is_loose =
            self.row.0 == Class::Received && conversation.lane.as_ref().is_some_and(|lane| lane.key.is_loose());
        work.save(conversation);
        let mut moved = None;
        if next == Next::ErrorQueue || (is_loose && wait.is_some()) {
            let unread = error_queue::Unread::read(work, self.id, self.row)?;
            if next == Next::ErrorQueue && !unread.may_be_moved(work, &self.failure.queue)? {
                (next, wait) = (Next::Delayed, Some(LONGEST));
            } else {
                moved = Some(unread);
            }
        }
        let mut recovered = Recovered {
            attempts: retry.attempts,
            next,
            retry_at: wait.map(|wait| work.now + wait),
            handle: Rc::clone(&handle),
        };
        match (moved, next) {
            (Some(unread), Next::ErrorQueue) => error_queue::bury(work, unread, retry.attempts, &self.failure)?,
            (Some(unread), _) => {
                recovered.handle = error_queue::step_aside(work, unread, retry, recovered.retry_at)?;
            }
            (None, _) => keep(work, self.id, retry, recovered.retry_at)?,
        }
        work.changes.notice.failed.push(Failed {
            message_id: Rc::clone(&self.failure.message_id),
            queue: Rc::clone(&self.failure.queue),
            handle,
            error: self.failure.error.clone(),
            recovered: recovered.clone(),
        });
        work.changes.notice.touch(&self.failure.queue);
        Ok(recovered)
    }

    /// What comes next, and after what wait.
    fn decide(&self, retry: &mut Retry) -> (Next, Option<f64>) {
        let policy = &self.policy;
        if let FailureKind::Later(after) = self.failure.kind {
            retry.postponed += 1;
            return (Next::Delayed, Some(after.unwrap_or_else(|| doubling(retry.postponed))));
        }
        retry.postponed = 0;
        retry.attempts += 1;
        if policy.finally == Finally::Rollback {
            return (Next::Rollback, None);
        }
        let round = policy.immediate_retries + 1;
        let is_last =
            self.failure.kind == FailureKind::Unrecoverable || retry.attempts >= round * (policy.delayed_retries + 1);
        if !is_last && !retry.attempts.is_multiple_of(round) {
            return (Next::Immediate, None);
        }
        let rounds = crate::record::float(retry.attempts.div_ceil(round));
        let wait = policy.time_increase * rounds;
        if is_last && policy.finally == Finally::ErrorQueue {
            return (Next::ErrorQueue, None);
        }
        if is_last {
            return (Next::Delayed, Some(wait.clamp(FIRST, LONGEST)));
        }
        (Next::Delayed, Some(wait))
    }
}

/// One second, two, four, up to a minute.
fn doubling(times: u64) -> f64 {
    let exponent = i32::try_from(times.saturating_sub(1)).unwrap_or(i32::MAX).min(16);
    (FIRST * 2.0_f64.powi(exponent)).min(LONGEST)
}

impl Side {
    /// It is passed over until a time: something of it has failed.
    pub(crate) fn waits(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.until.is_some())
    }

    /// Whether a row is the next of its class to be received.
    fn has_unread(&self, (class, number): (Class, u64)) -> bool {
        match class {
            Class::System => self.system.iter().any(|row| row.number == number && !row.held),
            _ => self.cursor == number && number < self.visible_end(),
        }
    }
}

/// Keeps what is said of a side's first row. With a time, the side is passed over until then.
pub(crate) fn keep(work: &mut Work<'_>, id: SideId, mut retry: Retry, retry_at: Option<Instant>) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side_mut(id.role).as_mut() else { return Ok(()) };
    retry.until = match retry_at {
        Some(at) => {
            let until = (at, waits::begin(work)?);
            work.put_due(&Due::retry(id, until), due::retry_record(id, work.now));
            Some(until)
        }
        None => None,
    };
    side.retry = Some(Box::new(retry));
    // Its turn changes: whoever remembers the line is to see that by the queue's record.
    work.count(side.service, |_| {})?;
    work.save(conversation);
    Ok(())
}

/// Nothing is said of the side's first row any more, and it waits for nothing. Gives what was said.
pub(crate) fn forget(work: &mut Work<'_>, id: SideId, side: &mut Side) -> Option<Retry> {
    let retry = side.retry.take()?;
    retry.until.into_iter().for_each(|until| work.drop_due(&Due::retry(id, until)));
    Some(*retry)
}

/// The waits of all that was put off are over, whoever put it off. What has failed waits on.
pub(crate) fn resume_all(work: &mut Work<'_>) -> Outcome<()> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    let due = work.get_keys(StoreName::Due, Range::all(), None)?.iter().filter_map(Due::read);
    let waits = due.filter(|due| due.kind == DueKind::Retry);
    let sides: Vec<SideId> = waits.map(|due| SideId::from_number(due.number)).collect();
    work.need(sides.iter().map(|side| side.conversation), [])?;
    sides.into_iter().try_for_each(|side| resume(work, side, None))
}

/// The wait is over: the side is in line again. Its first row is not forgotten. `at`: the wait that is meant; else the one of what was put off.
pub(crate) fn resume(work: &mut Work<'_>, id: SideId, at: Option<(Instant, u64)>) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side_mut(id.role).as_mut() else { return Ok(()) };
    let service = side.service;
    let is_meant = |retry: &Retry| if at.is_none() { retry.postponed > 0 } else { retry.until == at };
    let Some(retry) = side.retry.as_mut().filter(|retry| retry.until.is_some() && is_meant(retry)) else {
        return Ok(());
    };
    let until = retry.until.take();
    if at.is_none() {
        until.into_iter().for_each(|until| work.drop_due(&Due::retry(id, until)));
    }
    let queue = work.queue_of(service)?;
    work.changes.notice.enqueue(&queue.name);
    work.changes.notice.touch(&queue.name);
    work.save(conversation);
    Ok(())
}
