//! What comes from other brokers. One envelope is one verb; it reads like the table of docs/wire.md, row by row.

use std::rc::Rc;

use super::arriving::{self, Number, Place};
use super::delivery::{DeliverContext, Delivery, later};
use super::fault::fault;
use super::read::{Envelope, Refusal, Verdict, refusal};
use super::{Acknowledgement, MessageEnvelope, acknowledge, closed, failing, find, key};
use crate::body::Value;
use crate::conversation::{Conversation, Outgoing, Side, State};
use crate::definitions::Catalog;
use crate::ids::{Role, text};
use crate::message::{Row, system};
use crate::notice::Dropped;
use crate::reads::Reads;
use crate::record;
use crate::stop::Outcome;
use crate::store::StoreName;
use crate::verbs::{HAS_ENDED, drop_outgoing, shared_columns};
use crate::work::Work;

/// An envelope that is to be taken in.
#[derive(Debug)]
pub(crate) struct Deliver {
    pub(crate) envelope: Envelope,
    /// What of it can be shown.
    pub(crate) shown: Value,
    pub(crate) context: Rc<DeliverContext>,
    /// The most endpoints of a queue that are begun from outside.
    pub(crate) most: u64,
}

impl Deliver {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Delivery> {
        match &self.envelope {
            Envelope::Message(message, verdict) => self.message(work, message, verdict),
            Envelope::Acknowledgement(acknowledgement) => self.acknowledgement(work, acknowledgement),
        }
    }

    pub(crate) fn size(&self) -> f64 {
        match &self.envelope {
            Envelope::Message(message, _) => message.body.size,
            Envelope::Acknowledgement(_) => 0.0,
        }
    }

    /// Asks for what it will probably need.
    pub(crate) fn guess(&self, catalog: &Catalog, reads: &mut Reads) {
        match &self.envelope {
            Envelope::Message(message, _) => {
                reads.want(StoreName::Members, key(&message.conversation_id, receiver(message)));
                let service = catalog.services.get(&message.to_service);
                service.into_iter().for_each(|service| reads.want_queue(service.queue));
                if message.from_initiator && message.sequence == 0 {
                    reads.want(StoreName::Seen, closed::key(&message.conversation_id));
                }
            }
            Envelope::Acknowledgement(acknowledgement) => {
                let role = if acknowledgement.from_initiator { Role::Initiator } else { Role::Target };
                reads.want(StoreName::Members, key(&acknowledgement.conversation_id, role));
            }
        }
    }

    fn message(&self, work: &mut Work<'_>, message: &MessageEnvelope, verdict: &Verdict) -> Outcome<Delivery> {
        if let Err(refusal) = self.check_peer(work, &message.from_broker, message.to_broker.as_ref()) {
            return Ok(self.refuse(work, &refusal, None));
        }
        match find(work, &message.conversation_id, receiver(message))? {
            Some(conversation) => self.known(work, conversation, message, verdict),
            None => self.unknown(work, message, verdict),
        }
    }

    /// Nobody speaks for another broker, or to another one.
    fn check_peer(&self, work: &Work<'_>, from: &Rc<str>, to: Option<&Rc<str>>) -> Result<(), Refusal> {
        if self.context.from.as_ref().is_some_and(|proved| !proved.eq_ignore_ascii_case(from)) {
            return Err(refusal("wrong sender", "`fromBroker` is not the peer that the transport has proved"));
        }
        if to.is_some_and(|to| *to != work.core.instance_id) {
            return Err(refusal("wrong receiver", "`toBroker` is another broker"));
        }
        Ok(())
    }

    // ── a conversation that is here ──

    fn known(
        &self,
        work: &mut Work<'_>,
        mut conversation: Box<Conversation>,
        message: &MessageEnvelope,
        verdict: &Verdict,
    ) -> Outcome<Delivery> {
        let role = receiver(message);
        let Some(side) = conversation.side(role).cloned() else { return Ok(later(None, "the endpoint is gone")) };
        if let Err(refusal) = self
            .check_partner(work, &conversation, role, &message.from_broker)
            .and_then(|()| check_names(&conversation, role, message))
        {
            return Ok(self.refuse(work, &refusal, None));
        }
        let number = message.sequence;
        match side.state {
            State::Closed => return Ok(self.discard(work, message, Some(&conversation), HAS_ENDED)),
            State::DisconnectedOutbound => return self.to_ended(work, conversation, message),
            _ => {}
        }
        if side.is_here(number) {
            return Ok(Delivery::Repeated(acknowledgement(work, message, side.arrived())));
        }
        if side.state == State::DisconnectedInbound || side.ahead.last.is_some_and(|last| number > last) {
            return Ok(self.refuse(work, &behind_the_last(number), None));
        }
        if side.state == State::Error {
            return Ok(self.discard(work, message, Some(&conversation), "the conversation has failed here"));
        }
        if let Some(later) = is_off(work, side.service)? {
            return Ok(later);
        }
        let is_last = system::is_system(&message.message_type);
        if is_last && side.ahead.has_behind(number) {
            return Ok(self.refuse(work, &behind_the_last(number), None));
        }
        if *message.message_type == *system::ERROR {
            self.pin(&mut conversation, &message.from_broker);
            arriving::error(work, &mut conversation, role, row(work, message), number)?;
            work.save(conversation);
            return Ok(Delivery::Stored(acknowledgement(work, message, Some(number))));
        }
        if !is_last && let Some(fault) = fault(work, &conversation.contract, message, verdict)? {
            let fault = match fault {
                Ok(fault) => fault,
                Err(later) => return Ok(later),
            };
            self.pin(&mut conversation, &message.from_broker);
            failing::fail(work, &mut conversation, role, &fault)?;
            self.tell(work, message, Some(&conversation), &fault.text);
            work.save(conversation);
            return Ok(Delivery::Stored(acknowledgement(work, message, Some(number))));
        }
        let place = match arriving::place(work, &conversation, role, Number { number, size: message.body.size })? {
            Ok(place) => place,
            Err(reason) => return Ok(later(Some(WAIT), reason)),
        };
        self.pin(&mut conversation, &message.from_broker);
        match place {
            Place::Ahead => arriving::park(work, &mut conversation, role, row(work, message), number)?,
            Place::Next(following) => {
                let row = row(work, message);
                arriving::next(work, &mut conversation, role, row, following)?;
            }
        }
        let arrived = conversation.side(role).and_then(Side::arrived);
        work.save(conversation);
        Ok(Delivery::Stored(acknowledgement(work, message, arrived)))
    }

    /// The receiving end has ended: of what still comes it wants to know only that the sender has ended, too.
    fn to_ended(
        &self,
        work: &mut Work<'_>,
        mut conversation: Box<Conversation>,
        message: &MessageEnvelope,
    ) -> Outcome<Delivery> {
        let role = receiver(message);
        let is_error = *message.message_type == *system::ERROR;
        if !is_error && *message.message_type != *system::END_DIALOG {
            return Ok(self.discard(work, message, Some(&conversation), HAS_ENDED));
        }
        if is_error {
            self.tell(work, message, Some(&conversation), HAS_ENDED);
        }
        // Whatever it has still to say nobody hears any more.
        drop_outgoing(work, &mut conversation, role, HAS_ENDED)?;
        work.changes.notice.transmission = true;
        if is_error {
            closed::remove(work, &mut conversation, role)?;
        } else {
            closed::finish(work, &mut conversation, role)?;
        }
        work.save(conversation);
        Ok(if is_error {
            Delivery::Repeated(acknowledgement(work, message, Some(message.sequence)))
        } else {
            Delivery::Stored(acknowledgement(work, message, Some(message.sequence)))
        })
    }

    /// Nobody speaks in a conversation that is not his. A route that is not given here under its old name any more says nothing: then it is the partner
    /// that counts.
    fn check_partner(
        &self,
        work: &Work<'_>,
        conversation: &Conversation,
        role: Role,
        from: &Rc<str>,
    ) -> Result<(), Refusal> {
        let asked = conversation.to_broker.as_ref().filter(|_| role == Role::Initiator);
        if conversation.far_broker.as_ref().or(asked).is_some_and(|partner| partner != from) {
            return Err(refusal("wrong sender", "the conversation is another broker's"));
        }
        let via = conversation.side(role).and_then(|side| side.outgoing.as_ref()?.via.as_ref());
        if let (Some(via), Some(routes)) = (via, &self.context.via)
            && !routes.contains(via)
            && work.core.transmission.has(via)
        {
            return Err(refusal("wrong transport", "the conversation goes through another transport"));
        }
        Ok(())
    }

    /// From the first thing that comes back it is known who the far broker is.
    fn pin(&self, conversation: &mut Conversation, from: &Rc<str>) {
        conversation.far_broker.get_or_insert_with(|| Rc::clone(from));
    }

    // ── acknowledgements ──

    fn acknowledgement(&self, work: &mut Work<'_>, given: &Acknowledgement) -> Outcome<Delivery> {
        if let Err(refusal) = self.check_peer(work, &given.from_broker, Some(&given.to_broker)) {
            return Ok(self.refuse(work, &refusal, None));
        }
        let role = if given.from_initiator { Role::Initiator } else { Role::Target };
        let Some(mut conversation) = find(work, &given.conversation_id, role)? else {
            let problem = refusal("no such conversation", "nothing that was handed over waits to be acknowledged");
            return Ok(self.refuse(work, &problem, None));
        };
        if let Err(refusal) = self.check_partner(work, &conversation, role, &given.from_broker) {
            return Ok(self.refuse(work, &refusal, None));
        }
        let is_pinned = conversation.far_broker.is_some();
        let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(Delivery::Repeated(None)) };
        if side.state == State::Closed {
            return Ok(Delivery::Repeated(None));
        }
        let outgoing = side.outgoing.get_or_insert_with(Outgoing::default);
        if given.sequence >= outgoing.handed {
            let problem = refusal("not sent yet", format_args!("number {} was not handed over yet", given.sequence));
            return Ok(self.refuse(work, &problem, None));
        }
        let is_new = given.sequence >= outgoing.acknowledged;
        if !is_new && is_pinned {
            return Ok(Delivery::Repeated(None));
        }
        outgoing.is_confirmed = true;
        self.pin(&mut conversation, &given.from_broker);
        acknowledge(work, &mut conversation, role, given.sequence + 1)?;
        work.save(conversation);
        Ok(if is_new { Delivery::Stored(None) } else { Delivery::Repeated(None) })
    }

    // ── what becomes of it ──

    pub(super) fn refuse(
        &self,
        work: &mut Work<'_>,
        refusal: &Refusal,
        reply: Option<Box<MessageEnvelope>>,
    ) -> Delivery {
        let reason = Rc::clone(&refusal.0);
        self.drop(work, Rc::clone(&reason), Vec::new());
        Delivery::Refused { reason, reply }
    }

    /// Acknowledged, so that it does not come again, and it goes nowhere.
    pub(super) fn discard(
        &self,
        work: &mut Work<'_>,
        message: &MessageEnvelope,
        conversation: Option<&Conversation>,
        reason: &str,
    ) -> Delivery {
        self.tell(work, message, conversation, reason);
        Delivery::Repeated(acknowledgement(work, message, Some(message.sequence)))
    }

    /// A message goes nowhere.
    fn tell(&self, work: &mut Work<'_>, message: &MessageEnvelope, conversation: Option<&Conversation>, reason: &str) {
        // Who has sent it has no handle here: it shows the receiver's.
        let mut columns = conversation.map_or_else(Vec::new, |conversation| {
            let mut columns = shared_columns(conversation, receiver(message).other());
            columns.retain(|(name, _)| *name != "conversationHandle");
            columns.push(("conversationHandle", Value::from(&*conversation.handle(receiver(message)))));
            columns
        });
        columns.extend([
            ("messageId", Value::from(&*text(message.message_id))),
            ("messageTypeName", Value::from(&*message.message_type)),
            ("messageSequenceNumber", record::value(message.sequence)),
        ]);
        self.drop(work, reason.into(), columns);
    }

    fn drop(&self, work: &mut Work<'_>, reason: Rc<str>, message: Vec<(&'static str, Value)>) {
        work.changes.notice.dropped.push(Dropped { reason, message, envelope: Some(self.shown.clone()) });
        work.changes.counts.dropped += 1;
    }
}

/// So long who is too far ahead is asked to wait, in milliseconds.
const WAIT: f64 = 1_000.0;

fn receiver(message: &MessageEnvelope) -> Role {
    if message.from_initiator { Role::Target } else { Role::Initiator }
}

pub(super) fn row(work: &Work<'_>, message: &MessageEnvelope) -> Row {
    Row {
        message_type: Rc::clone(&message.message_type),
        id: message.message_id,
        time: work.now,
        headers: message.headers.clone(),
        body: message.body.clone(),
    }
}

/// What says that everything up to a number is here; `None`: nothing is.
pub(super) fn acknowledgement(
    work: &Work<'_>,
    message: &MessageEnvelope,
    up_to: Option<u64>,
) -> Option<Acknowledgement> {
    Some(Acknowledgement {
        conversation_id: Rc::clone(&message.conversation_id),
        from_initiator: message.from_initiator,
        sequence: up_to?,
        from_broker: Rc::clone(&work.core.instance_id),
        to_broker: Rc::clone(&message.from_broker),
    })
}

fn behind_the_last(number: u64) -> Refusal {
    refusal("behind the end", format_args!("nothing comes behind an EndDialog or an Error, and number {number} would"))
}

/// While the queue is off nothing comes in.
pub(super) fn is_off(work: &mut Work<'_>, service: u32) -> Outcome<Option<Delivery>> {
    let queue = work.queue_of(service)?;
    let reason = || format!("the queue \"{}\" is off", queue.name);
    Ok((!queue.enqueue_enabled).then(|| later(None, reason())))
}

/// A conversation has the services and the contract that it was begun with.
fn check_names(conversation: &Conversation, role: Role, message: &MessageEnvelope) -> Result<(), Refusal> {
    let is_its = conversation.contract == message.contract
        && *conversation.service(role) == message.to_service
        && *conversation.service(role.other()) == message.from_service;
    if is_its {
        return Ok(());
    }
    Err(refusal("malformed", "the conversation has other services or another contract"))
}
