//! RECEIVE.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::Take;
use crate::definitions::QueueDefinition;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Role, SideId};
use crate::line::{Line, members_in_line};
use crate::membership;
use crate::reading::{Allowance, read_rows};
use crate::rows::{Owner, Rows};
use crate::work::{Outcome, Work};

/// The most rows that RECEIVE gives without `top`.
const ROWS: u64 = 10_000;

/// What RECEIVE takes.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// `TOP`: at most this many, a whole number from 1. Default: all that the group has ready, up to 10 000 rows and 64 MiB.
    pub top: Option<f64>,
    /// `WHERE conversation_handle`: only this conversation.
    pub conversation: Option<Rc<str>>,
    /// `WHERE conversation_group_id`: only this group.
    pub group: Option<Rc<str>>,
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
        if self.conversation.is_some() && self.group.is_some() {
            return Err(Error::invalid_argument(
                "group",
                "can't be given together with `conversation`: one of the two names what to receive",
            ));
        }
        Ok(())
    }
}

/// Rows, and what it takes to take them out.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) rows: Vec<Rows>,
    pub(crate) takes: Vec<Take>,
}

/// Reads the ready rows of one conversation group of a queue (`name`; "": that of `options.conversation`): the first in line that nobody else holds, or the one that is asked for. Conversation by
/// conversation, the higher priority first; in each DialogTimer, Error, then by sequence number.
pub(crate) fn receive(work: &mut Work<'_>, name: &str, options: &ReceiveOptions) -> Outcome<Received> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    let queue = match (name, &options.conversation) {
        ("", Some(handle)) => own_queue(work, handle)?,
        _ => work.look_up(|catalog| catalog.queue(name))?,
    };
    work.queue(queue.number)?;
    if !queue.receive_enabled {
        let error = Error::new(
            ErrorCode::QueueDisabled,
            format!(
                "The queue \"{}\" is off: nothing can be received from it. Switch it on with alterQueue.",
                queue.name
            ),
        );
        return Err(error.with("queue", &*queue.name).into());
    }
    let sides = match (&options.conversation, &options.group) {
        (Some(handle), _) => one_conversation(work, &queue, handle)?,
        (None, Some(group)) => one_group(work, &queue, group)?,
        (None, None) => first_in_line(work, &queue)?,
    };

    let mut allowance = Allowance::new(options.top.and_then(|top| top.to_u64()).unwrap_or(ROWS));
    let mut received = Received::default();
    for side in sides {
        if allowance.is_used_up() {
            break;
        }
        let Some(conversation) = work.stored(side.conversation)? else { continue };
        let owner = Owner::of(&conversation, side.role);
        let Some(take) = read_rows(work, &conversation, side, &owner, &mut allowance, &mut received.rows)? else {
            continue;
        };
        received.takes.push(take);
    }
    if work.is_view() {
        received.takes.iter().for_each(|take| note(work, take));
    }
    Ok(received)
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

fn one_conversation(work: &mut Work<'_>, queue: &QueueDefinition, handle: &str) -> Outcome<Vec<SideId>> {
    let (conversation, role) = work.endpoint(handle)?;
    if !is_on(work, queue, &conversation, role) {
        return Err(work.not_found(handle).into());
    }
    Ok(if work.try_lock(&conversation.group(role)) { vec![conversation.id_of(role)] } else { Vec::new() })
}

fn one_group(work: &mut Work<'_>, queue: &QueueDefinition, id: &str) -> Outcome<Vec<SideId>> {
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
    if !work.try_lock(&group) {
        return Ok(Vec::new());
    }
    match conversation.side(role).and_then(|side| side.group.as_ref()) {
        Some(group) => members_in_line(work, queue.number, group),
        None => Ok(vec![conversation.id_of(role)]),
    }
}

fn first_in_line(work: &mut Work<'_>, queue: &QueueDefinition) -> Outcome<Vec<SideId>> {
    let mut line = Line::of(queue.number);
    let Some(turn) = line.first(work)? else { return Ok(Vec::new()) };
    if turn.is_shared { members_in_line(work, queue.number, &turn.group) } else { Ok(vec![turn.side]) }
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
