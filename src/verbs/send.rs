//! SEND ON CONVERSATION.

use std::rc::Rc;

use uuid::Uuid;

use super::deliver::{deliver, is_local};
use super::dropped::drop_rows;
use crate::body::{Body, Part};
use crate::changes::Pending;
use crate::clock::Instant;
use crate::conversation::{Conversation, Outgoing, Side, State};
use crate::definitions::Catalog;
use crate::delayed::{Delay, To, check_lifetime, schedule};
use crate::error::{Error, ErrorCode};
use crate::ids::{Role, SideId};
use crate::message::{Class, Row, count, system};
use crate::stop::Outcome;
use crate::transmission;
use crate::work::{Purpose, Work};

/// A message that is to be sent.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// `MESSAGE TYPE`.
    pub message_type: Rc<str>,
    /// The same at every attempt.
    pub id: Uuid,
    /// A plain object of texts.
    pub headers: Option<Part>,
    /// The body.
    pub body: Body,
}

/// SEND: many messages on one conversation, or one message, with an id each, on several.
#[derive(Clone, Debug)]
pub struct Send {
    /// Handles, all different.
    pub to: Vec<Rc<str>>,
    /// As many as handles, or any number for one handle.
    pub messages: Vec<OutgoingMessage>,
    /// When they are to be sent; `None`: now.
    pub delay: Option<Delay>,
    /// The definitions that the bodies were validated by, if they were.
    pub(crate) validated_by: Option<Rc<Catalog>>,
}

impl Send {
    /// All or none: every conversation is checked before the first effect. Gives the ids of messages that are delayed.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Option<Vec<Uuid>>> {
        // With the present, which may lead a delay beyond the end of time.
        self.delay.map_or(Ok(()), |delay| delay.check(work.now))?;
        let shares: Vec<&[OutgoingMessage]> = match self.to.len() {
            1 => vec![self.messages.as_slice()],
            _ => self.messages.chunks(1).collect(),
        };
        let mut checked: Vec<(SideId, &[OutgoingMessage])> = Vec::with_capacity(self.to.len());
        for (handle, messages) in self.to.iter().zip(shares) {
            let (conversation, role) = work.endpoint(handle)?;
            let side = conversation.id_of(role);
            if checked.iter().any(|(other, _)| *other == side) {
                return Err(
                    Error::invalid_argument("to", "names a conversation twice: each gets the message once").into()
                );
            }
            check(work, &conversation, role, messages, self.validated_by.as_deref())?;
            if let Some(delay) = self.delay {
                check_lifetime(work, &conversation, handle, delay.due(work.now), "The message would be delivered")?;
            }
            checked.push((side, messages));
        }
        if let Some(delay) = self.delay {
            return self.later(work, delay, &checked).map(Some);
        }
        for (side, messages) in checked {
            // Read anew: two of them may be the two ends of one conversation.
            if let Some(conversation) = work.conversation(side.conversation)? {
                let rows = messages.iter().map(|message| row(work.now, message)).collect();
                send(work, conversation, side.role, rows)?;
            }
        }
        Ok(None)
    }

    /// They wait in the delayed store.
    fn later(&self, work: &mut Work<'_>, delay: Delay, shares: &[(SideId, &[OutgoingMessage])]) -> Outcome<Vec<Uuid>> {
        let mut delayed = Vec::with_capacity(self.messages.len());
        for (side, messages) in shares {
            let Some(mut conversation) = work.conversation(side.conversation)? else { continue };
            let handle = conversation.handle(side.role);
            if let Some(side) = conversation.side_mut(side.role) {
                side.delayed += count(messages.len());
            }
            work.save(conversation);
            let to = To::Conversation(handle);
            delayed.extend(messages.iter().map(|message| (to.clone(), Rc::clone(&message.message_type), message)));
        }
        schedule(work, delay, None, delayed)
    }
}

fn row(now: Instant, message: &OutgoingMessage) -> Row {
    Row {
        message_type: Rc::clone(&message.message_type),
        id: message.id,
        time: now,
        headers: message.headers.clone(),
        body: message.body.clone(),
    }
}

fn check(
    work: &mut Work<'_>,
    conversation: &Conversation,
    role: Role,
    messages: &[OutgoingMessage],
    validated_by: Option<&Catalog>,
) -> Outcome<()> {
    let Some(side) = conversation.side(role) else { return Err(work.not_found(&conversation.handle(role)).into()) };
    if conversation.lane.is_some() {
        let handle = conversation.handle(role);
        let text = format!(
            "The conversation {handle} is a lane of the queue \"{}\": nobody is at its other end, so nothing can be sent on it. Put messages into it with enqueue; answer by a queue or a dialog that the message names.",
            conversation.service(role)
        );
        let error =
            Error::new(ErrorCode::InvalidState, text).with("operation", "SEND").with("state", side.state.letters());
        return Err(work.at_commit(error.with("handle", &*handle)).into());
    }
    // What an END or an Error at the other end does to a transaction that has already sent: see `too_late`.
    if !side.state.may_send() && !is_late(work, side.state) {
        let advice = if side.state.may_end() {
            "Receive what is left, then END it."
        } else {
            "It goes by itself once the far side has been told. Begin a new dialog."
        };
        return Err(work.at_commit(wrong_state("SEND", 8429, conversation, role, side.state, advice)).into());
    }
    let mut last = None;
    for message in messages {
        if last != Some(&message.message_type) {
            check_type(work, conversation, role, &message.message_type)?;
            if let Some(definitions) = validated_by {
                // A type that came after the bodies were validated: nobody has looked at them as that.
                definitions.message_type(&message.message_type)?;
            }
            last = Some(&message.message_type);
        }
    }
    let own = work.catalog.queue_of(side.service).cloned();
    if let Some(queue) = own.filter(|queue| queue.retention && !queue.enqueue_enabled) {
        work.queue(queue.number)?;
        let error = Error::new(
            ErrorCode::QueueDisabled,
            format!(
                "The queue \"{}\" of the sending service is off and has retention on, so the sent message can't be kept. Switch the queue on with alterQueue.",
                queue.name
            ),
        );
        return Err(work.at_commit(error.numbered(9618).with("queue", &*queue.name).with("retention", true)).into());
    }
    Ok(())
}

fn check_type(work: &mut Work<'_>, conversation: &Conversation, role: Role, message_type: &Rc<str>) -> Outcome<()> {
    if system::is_system(message_type) {
        let error = Error::new(
            ErrorCode::NotInContract,
            format!(
                "The message type \"{message_type}\" is the broker's own and can't be sent. END the conversation, with an error or without, or send a type of your own."
            ),
        );
        return Err(error.with("messageType", &**message_type).with("contract", &*conversation.contract).into());
    }
    let contract = work.look_up(|catalog| catalog.contract(&conversation.contract))?;
    work.look_up(|catalog: &Catalog| catalog.message_type(message_type))?;
    let sent_by = match contract.entries.iter().find(|(name, _)| name == message_type) {
        Some((_, sent_by)) => *sent_by,
        None => {
            // It may have grown meanwhile.
            work.queue(crate::definitions::FIRST_QUEUE)?;
            let error = Error::new(
                ErrorCode::NotInContract,
                format!(
                    "The contract \"{}\" does not have the message type \"{message_type}\". Add it to the contract, or send another type.",
                    conversation.contract
                ),
            );
            return Err(work
                .at_commit(error.with("messageType", &**message_type).with("contract", &*conversation.contract))
                .into());
        }
    };
    if !sent_by.lets(role) {
        let number = if role == Role::Initiator { 8432 } else { 8434 };
        let error = Error::new(
            ErrorCode::WrongDirection,
            format!(
                "Only the {} may send \"{message_type}\" on the contract \"{}\", and this is the other end.",
                sent_by.name(),
                conversation.contract
            ),
        );
        return Err(work
            .at_commit(
                error
                    .numbered(number)
                    .with("messageType", &**message_type)
                    .with("contract", &*conversation.contract)
                    .with("sentBy", sent_by.name()),
            )
            .into());
    }
    Ok(())
}

/// Sends rows on a conversation whose state allows it.
pub(crate) fn send(
    work: &mut Work<'_>,
    mut conversation: Box<Conversation>,
    role: Role,
    rows: Vec<Row>,
) -> Outcome<()> {
    let Some(side) = conversation.side(role).cloned() else { return Ok(()) };
    work.changes.counts.sends += count(rows.len());
    if conversation.local.is_none() {
        conversation.local = Some(is_local(work, &conversation)?);
    }
    let is_local = !conversation.transmits(role);
    let has_said_its_last = side.outgoing.as_ref().is_some_and(|outgoing| outgoing.is_last_word);
    // Nothing comes behind the Error of a side that has failed, which may have gone already.
    if (is_local || has_said_its_last) && is_late(work, side.state) {
        // No other queue's record says whether the definitions are current.
        work.queue_of(side.service)?;
        drop_rows(
            work,
            &conversation,
            role,
            &rows,
            "the far side ended the conversation before the transaction committed",
        );
        return Ok(());
    }

    let sequence = side.next_send;
    let end = sequence + count(rows.len());
    if let Some(sender) = conversation.side_mut(role) {
        sender.next_send = end;
    }
    keep_copies(work, &mut conversation, role, sequence, &rows, is_local)?;
    if side.state == State::StartedOutbound {
        change_state(work, &mut conversation, role, State::Conversing)?;
    }
    if is_local {
        deliver(work, &mut conversation, role, rows)?;
    } else {
        transmit(work, &mut conversation, role, count(rows.len()))?;
    }
    work.save(conversation);
    Ok(())
}

/// Retention at the sender keeps a copy with status 3. A row that has to be transmitted is the same row.
fn keep_copies(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    sequence: u64,
    rows: &[Row],
    is_local: bool,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(sender) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let service = sender.service;
    let retains = work.catalog.queue_of(service).is_some_and(|queue| queue.retention);
    if !retains && is_local {
        return Ok(());
    }
    if retains {
        let added = count(rows.len());
        Side::add_interval(&mut sender.copied_intervals, sequence, sequence + added);
        sender.copies += added;
        work.count(service, |counters| counters.copies += added)?;
    }
    work.append(Pending {
        side: id,
        class: Class::Sent,
        service,
        is_visible: retains,
        first: sequence,
        sequence,
        rows: rows.to_vec(),
    });
    Ok(())
}

/// The rows wait for a route to a service that is not here.
fn transmit(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, added: u64) -> Outcome<()> {
    let now = work.now;
    let (handle, far) = (conversation.handle(role), Rc::clone(conversation.service(role.other())));
    let Some(sender) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let may_go = sender.state.may_send();
    if sender.outgoing.is_none() && !work.core.transmission.leads_to(&far) {
        // Once: who has misspelt it is to see it.
        let reason = format!("There is no service \"{far}\" here, and this context has no route to it.");
        work.changes.notice.unsent.push((handle, reason.into()));
    }
    let outgoing = sender.outgoing.get_or_insert_with(Outgoing::default);
    if may_go {
        outgoing.turn = outgoing.turn.or(Some(now));
    }
    let service = sender.service;
    work.changes.notice.transmission |= may_go;
    work.count(service, |counters| counters.outgoing += if may_go { added } else { 0 })
}

/// In the commit of a transaction: the far side ended, or failed, after the transaction had sent. That is not the transaction's fault.
fn is_late(work: &Work<'_>, state: State) -> bool {
    matches!(work.purpose, Purpose::CommitOf(_)) && matches!(state, State::DisconnectedInbound | State::Error)
}

/// An endpoint goes into another state.
pub(crate) fn change_state(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, to: State) -> Outcome<()> {
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let from = std::mem::replace(&mut side.state, to);
    let (service, next) = (side.service, side.next_send);
    let goes = side.has_last_word();
    if matches!(to, State::DisconnectedInbound | State::Error)
        && let Some(outgoing) = side.outgoing.as_mut().filter(|_| !goes)
        && outgoing.turn.take().is_some()
    {
        // What is still to be transmitted is held from then on, and goes with END.
        let waiting = next.saturating_sub(outgoing.acknowledged);
        work.changes.notice.transmission = true;
        work.count(service, |counters| counters.outgoing = counters.outgoing.saturating_sub(waiting))?;
    }
    if to == State::Error {
        transmission::drop_parked(work, conversation, role)?;
    }
    work.move_state(conversation, role, service, Some(from), Some(to))
}

/// The error for a verb that the state of its endpoint does not allow.
pub(crate) fn wrong_state(
    verb: &'static str,
    number: u16,
    conversation: &Conversation,
    role: Role,
    state: State,
    advice: &str,
) -> Error {
    let handle = conversation.handle(role);
    Error::new(
        ErrorCode::InvalidState,
        format!(
            "{verb} is not allowed on the conversation {handle} in state {} ({}). {advice}",
            state.letters(),
            state.meaning()
        ),
    )
    .numbered(number)
    .with("operation", verb)
    .with("state", state.letters())
    .with("handle", &*handle)
}
