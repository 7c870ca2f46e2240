//! What arrives at a broker is delivered, and what came of it goes back.

use std::rc::Rc;

use futures_util::FutureExt;
use pocket_broker::body::{Body, Part, Value};
use pocket_broker::ids::text;
use pocket_broker::{Acknowledgement, Broker, DeliverContext, Delivery, GivenBody, GivenEnvelope, MessageEnvelope};

use super::net::{Answer, Item, Packet, key, sender};
use super::world::{NOWHERE, QUEUES, SERVICES, SOUR, STRANGE, Tab, WORD, World};
use crate::origin::Kind;

impl World {
    /// Everything that has come by now is delivered, by one of the tabs that are open, or comes again when one is.
    pub(crate) fn deliver_packets(self: &Rc<Self>) {
        for mut packet in self.net.arrived(self.now()) {
            let tabs = self.places[packet.to].tabs.borrow();
            let open: Vec<_> = tabs.iter().filter(|tab| tab.broker.borrow().is_some()).cloned().collect();
            if open.is_empty() {
                packet.at = self.now() + 500.0;
                self.net.post(packet);
                continue;
            }
            let tab = self.pick(&open);
            let Some(broker) = tab.broker.borrow().clone() else { continue };
            let id = tab.id;
            self.tasks.spawn(id, arrive(Rc::clone(self), tab, broker, packet).boxed_local());
        }
    }
}

async fn arrive(world: Rc<World>, tab: Rc<Tab>, broker: Rc<Broker>, packet: Packet) {
    let Packet { from, to, items, answer, .. } = packet;
    let is_unsure = world.one_in(8) && world.misfortune();
    let given: Vec<_> = items.iter().map(|item| given(item, is_unsure)).collect();
    let context = DeliverContext {
        from: world.one_in(2).then(|| Rc::clone(&world.places[from].id)),
        via: world.one_in(2).then(|| world.routes_of(to)),
    };
    world.begin_sabotage(&items);
    let delivered = broker.deliver(given, context).await;
    world.end_sabotage();
    let Ok(deliveries) = delivered else { return };
    let mut answers = Vec::new();
    for (item, delivery) in items.into_iter().zip(deliveries) {
        world.tell(|| format!("place {to} tab {} has delivered {}: {delivery:?}", tab.id, shown(&item)));
        answers.push(match item {
            Item::Message(envelope) => world.take(from, to, *envelope, delivery, answer.is_some()),
            Item::Acknowledgement(given) => world.take_acknowledgement(from, to, given, delivery),
        });
    }
    if let Some(answer) = answer {
        _ = answer.send(answers);
    }
}

impl World {
    /// What a message has come to. `is_asked`: somebody waits for it.
    fn take(&self, from: usize, to: usize, envelope: MessageEnvelope, delivery: Delivery, is_asked: bool) -> Answer {
        match delivery {
            Delivery::Stored(acknowledgement) | Delivery::Repeated(acknowledgement) if is_asked => {
                self.note(&envelope, acknowledgement.as_ref());
                Answer::Taken(acknowledgement)
            }
            Delivery::Stored(acknowledgement) | Delivery::Repeated(acknowledgement) => {
                self.note(&envelope, acknowledgement.as_ref());
                let item = acknowledgement.clone().map(Item::Acknowledgement);
                item.into_iter().for_each(|item| self.carry(to, from, &[item]));
                Answer::Taken(acknowledgement)
            }
            Delivery::Later { after, reason } => {
                if !is_asked && !self.misfortune() {
                    self.carry_again(from, to, Item::Message(Box::new(envelope)), after.unwrap_or(1_000.0));
                }
                Answer::Later(after, reason)
            }
            Delivery::Refused { reason, reply } => {
                let is_meant = envelope.sequence == 0
                    && (envelope.to_service.starts_with(NOWHERE)
                        || *envelope.contract == *STRANGE
                        || *envelope.message_type == *SOUR);
                if !is_meant {
                    self.report(Kind::Lost, format!("{envelope:#?} was refused: {reason}"));
                }
                let code = reply.as_ref().and_then(|reply| reply.body.value.value().field("code").number());
                if let Some(reply) = reply.filter(|_| !is_asked) {
                    self.carry(to, from, &[Item::Message(reply)]);
                }
                Answer::Refused(reason, code)
            }
        }
    }

    fn note(&self, envelope: &MessageEnvelope, acknowledgement: Option<&Acknowledgement>) {
        let mut passed = self.net.passed.borrow_mut();
        let known = passed.entry(key(envelope)).or_default();
        known.is_acknowledged |= acknowledgement.is_some();
        known.stored.push(envelope.sequence);
    }

    fn take_acknowledgement(&self, from: usize, to: usize, given: Acknowledgement, delivery: Delivery) -> Answer {
        let is_gone = |reason: &str| reason.starts_with("no such conversation") || reason.starts_with("not sent yet");
        match delivery {
            Delivery::Stored(_) | Delivery::Repeated(_) => Answer::Taken(None),
            Delivery::Later { after, reason } => {
                if !self.misfortune() {
                    self.carry_again(from, to, Item::Acknowledgement(given), after.unwrap_or(1_000.0));
                }
                Answer::Later(after, reason)
            }
            Delivery::Refused { reason, .. } => {
                if !is_gone(&reason) {
                    self.report(Kind::Lost, format!("{given:#?} was refused: {reason}"));
                }
                Answer::Refused(reason, None)
            }
        }
    }

    /// The names of the routes that a transport is given under.
    pub(crate) fn routes_of(&self, place: usize) -> Vec<Rc<str>> {
        let others = (0..self.places.len()).filter(|other| *other != place);
        let named = others.flat_map(|other| SERVICES.map(|letter| format!("{letter}{other}")));
        named.chain(["*".to_owned()]).map(Rc::from).collect()
    }

    fn begin_sabotage(&self, items: &[Item]) {
        let Some(saboteur) = &self.saboteur else { return };
        saboteur.delivering.set(saboteur.delivering.get() + 1);
        if let [Item::Message(envelope)] = items {
            let passed = self.net.passed.borrow();
            let stored = passed.get(&key(envelope)).map(|passed| &passed.stored);
            let last = stored.and_then(|stored| stored.iter().max()).copied();
            if last == Some(envelope.sequence) && *envelope.message_type == *WORD {
                saboteur.again.replace(Some((Rc::clone(&envelope.conversation_id), 1 - sender(envelope))));
            }
        }
    }

    fn end_sabotage(&self) {
        let Some(saboteur) = &self.saboteur else { return };
        saboteur.delivering.set(saboteur.delivering.get() - 1);
        saboteur.again.replace(None);
    }
}

fn shown(item: &Item) -> String {
    match item {
        Item::Message(envelope) => {
            let body = envelope.body.value.value().text().unwrap_or_default();
            format!("{} {} {body} of {:?}", envelope.sequence, envelope.message_type, key(envelope))
        }
        Item::Acknowledgement(given) => format!("{given:?}"),
    }
}

/// An envelope as it comes from outside. `is_unsure`: the receiver can't check bodies for now.
fn given(item: &Item, is_unsure: bool) -> GivenEnvelope {
    match item {
        Item::Message(envelope) => {
            let body = match &*envelope.message_type {
                SOUR => GivenBody::Invalid("too sour".into()),
                WORD if is_unsure => GivenBody::Unchecked("nobody can tell".into()),
                _ => GivenBody::Fine(envelope.body.clone()),
            };
            GivenEnvelope { fields: message(envelope), body }
        }
        Item::Acknowledgement(given) => GivenEnvelope {
            fields: Value::object(vec![
                ("v", 1u32.into()),
                ("kind", "acknowledgement".into()),
                ("conversationId", (&*given.conversation_id).into()),
                ("fromInitiator", given.from_initiator.into()),
                ("sequence", (given.sequence as f64).into()),
                ("fromBroker", (&*given.from_broker).into()),
                ("toBroker", (&*given.to_broker).into()),
            ]),
            body: GivenBody::Fine(Body::none()),
        },
    }
}

fn message(envelope: &MessageEnvelope) -> Value {
    let headers = envelope.headers.as_ref().map_or_else(|| Value::object(Vec::new()), Part::value);
    Value::object(vec![
        ("v", 1u32.into()),
        ("kind", "message".into()),
        ("messageId", (&*text(envelope.message_id)).into()),
        ("conversationId", (&*envelope.conversation_id).into()),
        ("fromInitiator", envelope.from_initiator.into()),
        ("sequence", (envelope.sequence as f64).into()),
        ("fromService", (&*envelope.from_service).into()),
        ("fromBroker", (&*envelope.from_broker).into()),
        ("toService", (&*envelope.to_service).into()),
        ("toBroker", envelope.to_broker.as_deref().map_or_else(Value::null, Value::from)),
        ("contract", (&*envelope.contract).into()),
        ("messageType", (&*envelope.message_type).into()),
        ("lifetime", envelope.lifetime.map_or_else(Value::null, Value::from)),
        ("headers", headers),
        ("bodyEncoding", "json".into()),
    ])
}

/// The queue of a service.
pub(crate) fn queue_of(service: &str) -> &'static str {
    QUEUES[SERVICES.iter().position(|letter| service.starts_with(letter)).unwrap_or_default()]
}
