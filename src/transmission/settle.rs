//! What becomes of messages that a transport was handed.

use std::rc::Rc;

use super::acknowledge::{acknowledge, let_go};
use super::{Refusal, Reply, SendResult, backoff, failing};
use crate::arrival;
use crate::body::{Part, Value};
use crate::conversation::{Conversation, State};
use crate::definitions::FIRST_QUEUE;
use crate::error_queue::{self, FailedAt};
use crate::ids::{Role, SideId, is_id, text};
use crate::message::{Class, Row, system};
use crate::reading::read_runs;
use crate::recoverability::Thrown;
use crate::stop::Outcome;
use crate::verbs::drop_rows;
use crate::waits;
use crate::work::Work;

/// When what was accepted is offered again, unless the transport says otherwise: in milliseconds, and between these.
const OFFER_AGAIN: f64 = 60_000.0;
const SOONEST: f64 = 10.0;
const LATEST: f64 = 2_592_000_000.0;

/// The results of one call of a transport.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) side: SideId,
    /// The number of the first envelope.
    pub(crate) first: u64,
    /// In the order of the envelopes.
    pub(crate) results: Vec<SendResult>,
    /// What the transport has answered could not be stored.
    pub(crate) is_failure: bool,
}

impl Settle {
    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        let reply = |result: &SendResult| match result {
            SendResult::Acknowledged { reply: Some(reply), .. } => reply.body.size,
            _ => 0.0,
        };
        self.results.iter().map(reply).sum()
    }

    /// In their order, up to the first that is to be tried again. Gives how many left, or were accepted.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<u64> {
        let mut sent = 0;
        let mut settled_before = None;
        for (number, result) in (self.first..).zip(&self.results) {
            // Read anew each time: the endpoint may be gone.
            let Some(mut conversation) = work.conversation(self.side.conversation)? else { return Ok(sent) };
            let Some(side) = conversation.side(self.side.role) else { return Ok(sent) };
            let Some(outgoing) = side.outgoing.as_ref() else { return Ok(sent) };
            let (handed, is_known) = (outgoing.handed, number < outgoing.acknowledged);
            // What is settled by results of this call is so with what came along.
            let is_new = number >= *settled_before.get_or_insert(outgoing.acknowledged);
            let role = self.side.role;
            let goes_on = match result {
                SendResult::Acknowledged { up_to, from_broker, reply } => {
                    let end = up_to.unwrap_or(number).saturating_add(1).min(handed);
                    // What comes before it has arrived, and it is on its way.
                    let is_behind = end <= number && !is_known;
                    match pin(work, &mut conversation, from_broker.as_ref()) {
                        Ok(()) => {
                            sent += acknowledge(work, &mut conversation, role, end)?;
                            // The message has left once, and takes its answer along once: another context may have been told the same.
                            if let Some(reply) = reply.as_ref().filter(|_| is_new && !is_behind) {
                                take_reply(work, &mut conversation, role, reply)?;
                            }
                            if is_behind {
                                waits::begin(work)?;
                                accept(work, &mut conversation, role, number, OFFER_AGAIN);
                            }
                            true
                        }
                        Err(reason) => put_off(work, &mut conversation, role, None, &reason),
                    }
                }
                _ if is_known => true,
                SendResult::Accepted(again) => {
                    sent += 1;
                    waits::begin(work)?;
                    accept(work, &mut conversation, role, number, *again);
                    true
                }
                SendResult::Retry { after, reason } => put_off(work, &mut conversation, role, *after, reason),
                SendResult::Refused(refusal) => refuse(work, &mut conversation, role, number, refusal)?,
            };
            work.save(conversation);
            if !goes_on {
                // What waits since then waits no longer when the clock is set back.
                waits::begin(work)?;
                break;
            }
        }
        Ok(sent)
    }
}

/// The broker that has answered is the one that the conversation is with from now on.
fn pin(work: &mut Work<'_>, conversation: &mut Conversation, from: Option<&Rc<str>>) -> Result<(), Rc<str>> {
    let Some(from) = from else { return Ok(()) };
    let from: Rc<str> = from.to_ascii_lowercase().into();
    if !is_id(&from) {
        return Err(
            format!("The transport says that \"{from}\" has answered, which is no broker's instance id.").into()
        );
    }
    if *from == *work.core.instance_id {
        return Err("The transport says that this very broker has answered: its messages come back to it.".into());
    }
    let asked = conversation.to_broker.as_ref().filter(|broker| ***broker != *"current");
    match conversation.far_broker.as_ref().or(asked) {
        Some(known) if *known != from => {
            Err(format!("The broker {from} has answered, and the conversation is with {known}.").into())
        }
        _ => {
            conversation.far_broker = Some(from);
            Ok(())
        }
    }
}

/// It is in the hands of the transport: it is offered again, if nothing acknowledges it by then.
fn accept(work: &Work<'_>, conversation: &mut Conversation, role: Role, number: u64, again: f64) {
    let Some(outgoing) = conversation.side_mut(role).as_mut().and_then(|side| side.outgoing.as_mut()) else { return };
    let at = work.now + if again.is_nan() { OFFER_AGAIN } else { again.clamp(SOONEST, LATEST) };
    outgoing.accepted = outgoing.accepted.max(number + 1);
    outgoing.offer_again_at = Some(outgoing.offer_again_at.map_or(at, |other| other.min(at)));
    (outgoing.attempts, outgoing.retry_at, outgoing.reason) = (0, None, "".into());
}

/// Not now: nothing behind it goes before it. Gives false.
fn put_off(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    after: Option<f64>,
    reason: &Rc<str>,
) -> bool {
    let handle = conversation.handle(role);
    let Some(outgoing) = conversation.side_mut(role).as_mut().and_then(|side| side.outgoing.as_mut()) else {
        return false;
    };
    let reason: Rc<str> = if reason.is_empty() {
        "The transport could not take it, and did not say why.".into()
    } else {
        Rc::clone(reason)
    };
    outgoing.attempts += 1;
    outgoing.retry_at = Some(work.now + backoff::wait(&*work.core.host.ids, outgoing.attempts, after));
    if outgoing.reason != reason {
        work.changes.notice.unsent.push((handle, Rc::clone(&reason)));
    }
    outgoing.reason = reason;
    work.changes.notice.transmission = true;
    false
}

/// Never: it goes to the error queue and the conversation goes on, or the conversation gets an Error.
fn refuse(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    number: u64,
    refusal: &Refusal,
) -> Outcome<bool> {
    let Some(side) = conversation.side(role) else { return Ok(false) };
    if side.outgoing.as_ref().is_some_and(|outgoing| outgoing.acknowledged != number) {
        // What comes before it is not known to have arrived, and an endpoint says only up to where everything has.
        let reason = format!("{} What was handed over before it is not acknowledged yet.", refusal.description);
        return Ok(put_off(work, conversation, role, None, &reason.into()));
    }
    let handle = conversation.handle(role);
    let (id, attempts) = (conversation.id_of(role), side.outgoing.as_ref().map_or(0, |outgoing| outgoing.attempts) + 1);
    let runs = read_runs(work, (id, Class::Sent), number, 1).map_err(|stop| stop.about(&handle))?;
    let run = runs.front().filter(|run| run.first() <= number);
    let Some((run, index)) = run.and_then(|run| Some((run, usize::try_from(number - run.first()).ok()?))) else {
        return Ok(false);
    };
    let row = run.row(work, index)?;
    let refused = format!("the far side refused it: {}", refusal.description);
    if system::is_system(&row.message_type) {
        // Nobody could do anything with it in the error queue.
        drop_rows(work, conversation, role, &[row], &refused);
        let_go(work, conversation, role, number + 1)?;
        return Ok(true);
    }
    if refusal.ends {
        drop_rows(work, conversation, role, &[row], &refused);
        // The last word takes the place of all that waits, this message included.
        failing::end(work, conversation, role, refusal.code, &refusal.description)?;
        return Ok(false);
    }
    let failed = FailedAt {
        queue: Rc::clone(&handle),
        handle: Rc::clone(&handle),
        lane: None,
        sequence: number,
        attempts,
        error: Thrown {
            name: "Refused".into(),
            message: Rc::clone(&refusal.description),
            code: Some(format!("{}", refusal.code).into()),
        },
        stack: "".into(),
        endpoint: Rc::clone(&work.core.host.name),
        at: work.now,
        was_delayed: true,
    };
    work.changes.notice.failed.push(failed.notice(text(row.id)));
    let headers = with_headers(&row, &refusal.headers);
    error_queue::put(work, failed, Row { headers, ..row })?;
    let_go(work, conversation, role, number + 1)?;
    Ok(true)
}

/// The headers of a message, and more.
fn with_headers(row: &Row, more: &[(&'static str, Rc<str>)]) -> Option<Part> {
    if more.is_empty() {
        return row.headers.clone();
    }
    let own = row.headers.as_ref().map(Part::value).unwrap_or_default();
    let more = more.iter().map(|(name, value)| (*name, Value::from(&**value))).collect();
    Some(own.with_fields(more).into())
}

/// A message that came with an answer arrives as if the far side had sent it.
fn take_reply(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, reply: &Reply) -> Outcome<()> {
    let far = role.other();
    let state = conversation.side(role).map(|side| side.state);
    let is_numbered = conversation.side(role).is_some_and(|side| side.parked > 0);
    let row = Row {
        message_type: Rc::clone(&reply.message_type),
        id: work.core.host.ids.uuid(),
        time: work.now,
        headers: None,
        body: reply.body.clone(),
    };
    let is_error = *reply.message_type == *system::ERROR;
    let says_why = |body: &Value| body.field("code").number().is_some() && body.field("description").text().is_some();
    let refused: Option<Rc<str>> = match state {
        _ if is_error && !says_why(&reply.body.value.value()) => Some("an Error has a code and a description".into()),
        _ if is_numbered => Some("the far side numbers what it sends itself".into()),
        Some(State::Conversing | State::DisconnectedInbound | State::Error) => match &reply.problem {
            Some(problem) => Some(Rc::clone(problem)),
            None => why_not(work, conversation, far, &reply.message_type)?,
        },
        _ => Some("the conversation has ended here".into()),
    };
    if let Some(reason) = refused {
        drop_rows(work, conversation, far, &[row], &format!("the answer to a message could not be taken: {reason}"));
        return Ok(());
    }
    let ends = *reply.message_type == *system::END_DIALOG;
    if is_error {
        return arrival::arrive_error(work, conversation, role, row, 0);
    }
    arrival::arrive(work, conversation, role, vec![row], ends)
}

/// Why the far side may not send this type; `None`: it may.
fn why_not(
    work: &mut Work<'_>,
    conversation: &Conversation,
    far: Role,
    message_type: &str,
) -> Outcome<Option<Rc<str>>> {
    if conversation.side(far.other()).is_none_or(|side| side.state != State::Conversing) {
        return Ok(Some("the far side has ended the conversation before".into()));
    }
    if matches!(message_type, system::END_DIALOG | system::ERROR) {
        return Ok(None);
    }
    let contract = work.look_up(|catalog| catalog.contract(&conversation.contract))?;
    let entry = contract.entries.iter().find(|(name, _)| **name == *message_type);
    if entry.is_some_and(|(_, sent_by)| sent_by.lets(far)) {
        return Ok(None);
    }
    if entry.is_none() {
        // It may have grown meanwhile.
        work.queue(FIRST_QUEUE)?;
    }
    Ok(Some(
        format!("the contract \"{}\" does not let the far side send \"{message_type}\"", conversation.contract).into(),
    ))
}
