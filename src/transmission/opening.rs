//! A conversation that is begun from outside.

use std::rc::Rc;

use super::delivery::{Delivery, later};
use super::fault::{Fault, fault};
use super::incoming::{Deliver, acknowledgement, is_off, row};
use super::read::{Verdict, refusal};
use super::{MessageEnvelope, arriving, closed};
use crate::body::{Body, Value};
use crate::conversation::{Conversation, Outgoing, Side, State};
use crate::definitions::ServiceDefinition;
use crate::due::{self, Due};
use crate::error::ErrorCode;
use crate::ids::Role;
use crate::message::system;
use crate::stop::{Outcome, Stop};
use crate::verbs::HAS_ENDED;
use crate::work::{Number, Work};

/// So long who begins too many conversations is asked to wait, in milliseconds.
const WAIT: f64 = 60_000.0;

impl Deliver {
    /// A conversation that is not here.
    pub(super) fn unknown(
        &self,
        work: &mut Work<'_>,
        message: &MessageEnvelope,
        verdict: &Verdict,
    ) -> Outcome<Delivery> {
        let is_first = message.from_initiator && message.sequence == 0;
        if !is_first {
            if message.from_initiator && *message.message_type == *system::ERROR {
                // Its first message may still be on its way, and would begin what nobody ends.
                closed::remember(work, &message.conversation_id)?;
            }
            return Ok(self.discard(work, message, None, "no such conversation is here any more"));
        }
        if closed::is_remembered(work, &message.conversation_id)? {
            return Ok(self.discard(work, message, None, HAS_ENDED));
        }
        if system::is_system(&message.message_type) {
            let problem = refusal("malformed", "a conversation does not begin with an EndDialog or an Error");
            return Ok(self.refuse(work, &problem, None));
        }
        let service = match self.accepting(work, message)? {
            Ok(service) => service,
            Err(fault) => return Ok(self.refuse_with(work, message, &fault)),
        };
        match fault(work, &message.contract, message, verdict)? {
            None => {}
            Some(Ok(fault)) => return Ok(self.refuse_with(work, message, &fault)),
            Some(Err(later)) => return Ok(later),
        }
        if let Some(later) = is_off(work, service.number)? {
            return Ok(later);
        }
        let queue = work.queue_of(service.number)?.number;
        if work.queue(queue)?.total(|counters| counters.from_outside) >= self.most {
            let reason = format!("{} conversations that were begun from outside are open", self.most);
            return Ok(later(Some(WAIT), reason));
        }
        self.open(work, &service, message)?;
        Ok(Delivery::Stored(acknowledgement(work, message, Some(0))))
    }

    /// The service that a first message is for, if it takes the contract.
    fn accepting(
        &self,
        work: &mut Work<'_>,
        message: &MessageEnvelope,
    ) -> Outcome<Result<Rc<ServiceDefinition>, Fault>> {
        let unknown = || Fault { code: -8490, text: format!("There is no service \"{}\" here.", message.to_service) };
        let service = match work.look_up(|catalog| catalog.service(&message.to_service)) {
            // That of a queue is for `enqueue` alone.
            Ok(service) if service.implicit => {
                // It may have been made one of its own meanwhile.
                work.queue_of(service.number)?;
                return Ok(Err(unknown()));
            }
            Ok(service) => service,
            Err(Stop::Failed(error)) if error.code() == ErrorCode::ServiceNotFound => return Ok(Err(unknown())),
            Err(stop) => return Err(stop),
        };
        // Whoever reads the queue's record sees whether the service has changed.
        work.queue_of(service.number)?;
        if !service.contracts.contains(&message.contract) {
            let text = format!(
                "The service \"{}\" does not accept the contract \"{}\".",
                message.to_service, message.contract
            );
            return Ok(Err(Fault { code: -8409, text }));
        }
        Ok(Ok(Rc::new(service)))
    }

    /// Makes the target endpoint, with a group and a priority of its own, and enqueues the first message.
    fn open(&self, work: &mut Work<'_>, service: &ServiceDefinition, message: &MessageEnvelope) -> Outcome<()> {
        let role = Role::Target;
        let number = work.conversation_number()?;
        let lifetime = match message.lifetime {
            Some(left) => Some((work.now + left, Some(work.claim(Number::Stamp, 1)?))),
            None => None,
        };
        let priority = work.catalog.priority(&message.contract, &message.to_service, &message.from_service);
        let via = self.context.via.as_ref().and_then(|routes| routes.first().cloned());
        let mut target = Side::new(service.number, State::Conversing, priority, None);
        target.outgoing = Some(Outgoing { is_confirmed: true, via, ..Outgoing::default() });
        let mut conversation = Box::new(Conversation {
            number,
            bits: work.core.host.ids.bits(),
            id: Rc::clone(&message.conversation_id),
            contract: Rc::clone(&message.contract),
            created_at: work.now,
            lifetime,
            initiator_service: Rc::clone(&message.from_service),
            target_service: Rc::clone(&message.to_service),
            to_broker: None,
            far_broker: Some(Rc::clone(&message.from_broker)),
            local: Some(false),
            initiator: None,
            target: Some(target),
            reuse: None,
            lane: None,
            closes: None,
        });
        work.move_state(&conversation, role, service.number, None, Some(State::Conversing))?;
        work.count(service.number, |counters| counters.from_outside += 1)?;
        if let Some(due) = Due::lifetime(&conversation) {
            work.put_due(&due, due::lifetime_record(number));
        }
        arriving::next(work, &mut conversation, role, row(work, message), Vec::new())?;
        work.save(conversation);
        Ok(())
    }

    /// Refused, and an Error goes back.
    fn refuse_with(&self, work: &mut Work<'_>, message: &MessageEnvelope, fault: &Fault) -> Delivery {
        let name = match fault.code {
            -8490 => "no such service",
            -8409 => "contract not accepted",
            -9615 => "invalid body",
            _ => "not in the contract",
        };
        let reply = MessageEnvelope {
            message_id: work.core.host.ids.uuid(),
            conversation_id: Rc::clone(&message.conversation_id),
            from_initiator: false,
            sequence: 0,
            from_service: Rc::clone(&message.to_service),
            from_broker: Rc::clone(&work.core.instance_id),
            to_service: Rc::clone(&message.from_service),
            to_broker: Some(Rc::clone(&message.from_broker)),
            contract: Rc::clone(&message.contract),
            message_type: system::ERROR.into(),
            lifetime: message.lifetime,
            headers: None,
            body: Body::small(Value::object(vec![
                ("code", Value::from(f64::from(fault.code))),
                ("description", Value::from(&*fault.text)),
            ])),
        };
        self.refuse(work, &refusal(name, &fault.text), Some(Box::new(reply)))
    }
}
