//! RECEIVE.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::Take;
use crate::definitions::QueueDefinition;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::Role;
use crate::line::{Line, Sides, members_in_line};
use crate::membership;
use crate::reading::{Allowance, read_rows};
use crate::rows::{Owner, Rows};
use crate::stop::{Outcome, pass_over};
use crate::work::Work;

/// What RECEIVE takes.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// `TOP`: at most this many, whatever their size; a whole number from 1. Default: all that the group has ready, up to 10 000 rows and 64 MiB.
    pub top: Option<f64>,
    /// `WHERE conversation_handle`: only this conversation.
    pub conversation: Option<Rc<str>>,
    /// `WHERE conversation_group_id`: only this group. Conversations in delayed retry are passed over, as without a filter.
    pub group: Option<Rc<str>>,
    /// `WAITFOR … TIMEOUT`: how many milliseconds to wait for something; infinite: until it comes. Default: not at all.
    pub timeout: Option<f64>,
    /// For activation: refused while the queue's activation is off. Default false.
    pub activated: bool,
}

impl ReceiveOptions {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        if self.top.is_some_and(|top| !(top >= 1.0 && top.fract() == 0.0 && top.is_finite())) {
            return Err(Error::invalid_argument(
                "top",
                "is not a whole number from 1. Leave it out to receive all that one group has ready",
            ));
        }
        check_timeout(self.timeout)?;
        if self.conversation.is_some() && self.group.is_some() {
            return Err(Error::invalid_argument(
                "group",
                "can't be given together with `conversation`: one of the two names what to receive",
            ));
        }
        Ok(())
    }
}

/// A time to wait.
pub(crate) fn check_timeout(timeout: Option<f64>) -> Result<()> {
    if timeout.is_some_and(|timeout| timeout.is_nan() || timeout < 0.0) {
        return Err(Error::invalid_argument("timeout", "is not a number of milliseconds from 0, or infinity"));
    }
    Ok(())
}

/// Rows, and what it takes to take them out.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) rows: Vec<Rows>,
    pub(crate) takes: Vec<Take>,
}

/// Refuses a queue that is off.
pub(crate) fn receivable(work: &mut Work<'_>, queue: &QueueDefinition) -> Outcome<()> {
    work.queue(queue.number)?;
    if queue.receive_enabled {
        return Ok(());
    }
    let error = Error::new(
        ErrorCode::QueueDisabled,
        format!("The queue \"{}\" is off: nothing can be received from it. Switch it on with alterQueue.", queue.name),
    );
    Err(error.with("queue", &*queue.name).into())
}

/// Reads the ready rows of one conversation group of a queue (`name`; "": that of `options.conversation`): the first in line that nobody else
/// holds, or the one that is asked for. Conversation by conversation, the higher priority first; in each DialogTimer, Error, then by sequence
/// number.
pub(crate) fn receive(work: &mut Work<'_>, name: &str, options: &ReceiveOptions) -> Outcome<Received> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    let queue = match (name, &options.conversation) {
        ("", Some(handle)) => own_queue(work, handle)?,
        _ => work.look_up(|catalog| catalog.queue(name))?,
    };
    receivable(work, &queue)?;
    if options.activated && !queue.activation {
        let text = format!("The activation of the queue \"{}\" is off. Switch it on with alterQueue.", queue.name);
        let error = Error::new(ErrorCode::QueueDisabled, text).with("queue", &*queue.name).with("activation", false);
        return Err(error.into());
    }
    let top = options.top.and_then(|top| top.to_u64());
    let received = match (&options.conversation, &options.group) {
        (Some(handle), _) => {
            let sides = one_conversation(work, &queue, handle)?;
            read_sides(work, sides, top)?
        }
        (None, Some(group)) => {
            let sides = one_group(work, &queue, group)?;
            read_sides(work, sides, top)?
        }
        (None, None) => first_in_line(work, &queue, top)?,
    };
    if work.is_view() {
        received.takes.iter().for_each(|take| note(work, take));
    }
    Ok(received)
}

/// Reads side by side, as far as an allowance goes. One that can't be read is passed over, unless there is no other.
fn read_sides(work: &mut Work<'_>, Sides { sides, mut problem }: Sides, top: Option<u64>) -> Outcome<Received> {
    let mut allowance = Allowance::new(top);
    let mut received = Received::default();
    for side in sides {
        if allowance.is_used_up() {
            break;
        }
        let conversation = pass_over(work.stored(side.conversation), &mut problem)?.flatten();
        let Some(conversation) = conversation else { continue };
        let owner = Owner::of(&conversation, side.role);
        let take = read_rows(work, &conversation, side, &owner, &mut allowance, &mut received.rows);
        received.takes.extend(pass_over(take, &mut problem)?.flatten());
    }
    match problem {
        Some(problem) if received.takes.is_empty() => Err(problem.into()),
        problem => {
            note_passed_over(work, problem);
            Ok(received)
        }
    }
}

/// It is mended beside: the others do not wait for it.
fn note_passed_over(work: &Work<'_>, problem: Option<Error>) {
    if problem.is_some() {
        work.core.passed_over.replace(problem);
    }
}

/// What a transaction has received is not given to it again.
fn note(work: &mut Work<'_>, take: &Take) {
    work.changes.taken.update(take.side, |taken| {
        taken.cursor = take.to;
        taken.rows += take.count();
        taken.system.extend(take.system.iter().copied());
    });
}

/// Without a name: the queue of the conversation that is asked for.
fn own_queue(work: &mut Work<'_>, handle: &str) -> Outcome<QueueDefinition> {
    let (conversation, role) = work.endpoint(handle)?;
    match conversation.side(role).map(|side| side.service) {
        Some(service) => work.queue_of(service),
        None => Err(work.not_found(handle).into()),
    }
}

fn one_conversation(work: &mut Work<'_>, queue: &QueueDefinition, handle: &str) -> Outcome<Sides> {
    let (conversation, role) = work.endpoint(handle)?;
    if !is_on(work, queue, &conversation, role) {
        return Err(work.not_found(handle).into());
    }
    let is_free = work.try_lock(&conversation.group(role))?;
    Ok(if is_free { conversation.id_of(role).into() } else { Sides::default() })
}

fn one_group(work: &mut Work<'_>, queue: &QueueDefinition, id: &str) -> Outcome<Sides> {
    let id = id.to_ascii_lowercase();
    let member = membership::any_member(work, &id)?;
    let Some((conversation, role)) = member.filter(|(conversation, role)| is_on(work, queue, conversation, *role))
    else {
        let shown: String = id.chars().take(64).collect();
        let error = Error::new(
            ErrorCode::GroupNotFound,
            format!("No conversation of the queue \"{}\" is in the group \"{shown}\".", queue.name),
        );
        return Err(error.with("group", shown.as_str()).into());
    };
    let group = conversation.group(role);
    if !work.try_lock(&group)? {
        return Ok(Sides::default());
    }
    match membership::stored_alone(work, &group)? {
        // A group names no conversation: one that waits is passed over here, too.
        Some((_, true)) => Ok(Sides::default()),
        Some((side, false)) => Ok(side.into()),
        None => members_in_line(work, queue.number, &group),
    }
}

/// Whose turn it is, and can be read. A transaction holds the group from here on.
fn first_in_line(work: &mut Work<'_>, queue: &QueueDefinition, top: Option<u64>) -> Outcome<Received> {
    let mut line = Line::of(queue.number);
    while let Some(turn) = line.next(work)? {
        let sides = if turn.is_shared { members_in_line(work, queue.number, &turn.group)? } else { turn.side.into() };
        let received = pass_over(read_sides(work, sides, top), &mut line.problem)?.unwrap_or_default();
        if !received.takes.is_empty() && work.try_lock(&turn.group)? {
            note_passed_over(work, line.problem.take());
            let left = received.takes.iter().find(|take| take.side == turn.side).and_then(|take| take.left);
            work.core.heads.expect(queue.number, line.after(turn, left));
            return Ok(received);
        }
    }
    let (expected, problem) = line.after_all();
    work.core.heads.expect(queue.number, expected);
    problem.map_or_else(|| Ok(Received::default()), |problem| Err(problem.into()))
}

fn is_on(
    work: &Work<'_>,
    queue: &QueueDefinition,
    conversation: &crate::conversation::Conversation,
    role: Role,
) -> bool {
    conversation
        .side(role)
        .and_then(|side| work.catalog.service_by_number(side.service))
        .is_some_and(|service| service.queue == queue.number)
}
