//! Another broker, as far as envelopes go.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::message::system;
use pocket_broker::{
    Acknowledgement, Broker, ConversationInfo, DeliverContext, Delivery, EndpointFilter, GivenBody, GivenEnvelope,
};

use super::shop::Shop;

/// Of the other broker, and of one that has nothing to do with it.
pub(crate) const FAR: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
pub(crate) const STRANGER: &str = "6ba7b811-9dad-41d1-80b4-00c04fd430c8";

/// One conversation that the other broker has with this one.
#[derive(Clone)]
pub(crate) struct Far {
    pub(crate) conversation: Rc<str>,
    is_initiator: bool,
    services: (&'static str, &'static str),
    us: Rc<str>,
}

/// An envelope that is made up.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) fields: Vec<(&'static str, Value)>,
    pub(crate) body: GivenBody,
}

impl Made {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.retain(|(other, _)| *other != name);
        self.fields.push((name, value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.fields.retain(|(other, _)| *other != name);
        self
    }

    pub(crate) fn with_body(mut self, body: GivenBody) -> Self {
        self.body = body;
        self
    }

    /// Its body is said to take so many bytes.
    pub(crate) fn sized(mut self, size: f64) -> Self {
        if let GivenBody::Fine(body) = &mut self.body {
            body.size = size;
        }
        self
    }

    pub(crate) fn given(&self) -> GivenEnvelope {
        GivenEnvelope { fields: Value::object(self.fields.clone()), body: self.body.clone() }
    }
}

impl Far {
    /// It begins a dialog with our kitchen.
    pub(crate) fn begins(shop: &Shop, number: u32) -> Self {
        let conversation = format!("6ba7b810-9dad-41d1-80b4-{number:012x}");
        let us = shop.broker.instance_id();
        Self { conversation: conversation.into(), is_initiator: true, services: ("Desk", "Kitchen"), us }
    }

    /// It is the target of a dialog that our counter has begun.
    pub(crate) fn target_of(shop: &Shop, begun: &ConversationInfo) -> Self {
        let us = shop.broker.instance_id();
        let conversation = Rc::clone(&begun.conversation_id);
        Self { conversation, is_initiator: false, services: ("Elsewhere", "Counter"), us }
    }

    pub(crate) fn message(&self, sequence: u32, message_type: &str, body: &str) -> Made {
        let id = format!("6ba7b812-9dad-41d1-80b4-{sequence:012x}");
        Made {
            fields: vec![
                ("v", 1u32.into()),
                ("kind", "message".into()),
                ("messageId", (&*id).into()),
                ("conversationId", (&*self.conversation).into()),
                ("fromInitiator", self.is_initiator.into()),
                ("sequence", sequence.into()),
                ("fromService", self.services.0.into()),
                ("fromBroker", FAR.into()),
                ("toService", self.services.1.into()),
                ("toBroker", Value::null()),
                ("contract", "Ordering".into()),
                ("messageType", message_type.into()),
                ("lifetime", Value::null()),
                ("headers", Value::object(Vec::new())),
                ("bodyEncoding", "json".into()),
            ],
            body: GivenBody::Fine(Body::small(body.into())),
        }
    }

    pub(crate) fn end_dialog(&self, sequence: u32) -> Made {
        self.message(sequence, system::END_DIALOG, "").with_body(GivenBody::Fine(Body::none()))
    }

    pub(crate) fn error(&self, sequence: u32, code: i32) -> Made {
        let body = Value::object(vec![("code", f64::from(code).into()), ("description", "no more bread".into())]);
        self.message(sequence, system::ERROR, "").with_body(GivenBody::Fine(Body::small(body)))
    }

    /// It says that our messages up to a number are there.
    pub(crate) fn acknowledges(&self, sequence: u32) -> Made {
        Made {
            fields: vec![
                ("v", 1u32.into()),
                ("kind", "acknowledgement".into()),
                ("conversationId", (&*self.conversation).into()),
                ("fromInitiator", (!self.is_initiator).into()),
                ("sequence", sequence.into()),
                ("fromBroker", FAR.into()),
                ("toBroker", (&*self.us).into()),
            ],
            body: GivenBody::Fine(Body::none()),
        }
    }

    /// Our end; "" when it is gone.
    pub(crate) async fn handle(&self, shop: &Shop) -> Rc<str> {
        let filter =
            EndpointFilter { conversation_id: Some(Rc::clone(&self.conversation)), ..EndpointFilter::default() };
        shop.endpoints(filter).await.first().map_or_else(|| "".into(), |end| Rc::clone(&end.conversation_handle))
    }

    pub(crate) async fn state(&self, shop: &Shop) -> &'static str {
        shop.state(&self.handle(shop).await).await
    }
}

/// Delivers, and shows what became of each.
pub(crate) async fn deliver(shop: &Shop, made: &[Made]) -> Vec<String> {
    deliver_to(&shop.broker, made, DeliverContext::default()).await
}

pub(crate) async fn deliver_one(shop: &Shop, made: Made) -> String {
    deliver(shop, &[made]).await.remove(0)
}

pub(crate) async fn deliver_to(broker: &Broker, made: &[Made], context: DeliverContext) -> Vec<String> {
    let given = made.iter().map(Made::given).collect();
    let deliveries = broker.deliver(given, context).await.expect("the broker is open");
    assert_eq!(deliveries.len(), made.len(), "one for each");
    for (delivery, made) in deliveries.iter().zip(made) {
        check_acknowledgement(broker, delivery, made);
    }
    deliveries.iter().map(show).collect()
}

/// Whatever is acknowledged goes back to who has sent it.
fn check_acknowledgement(broker: &Broker, delivery: &Delivery, made: &Made) {
    let field = |name: &str| made.fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    if let Delivery::Stored(Some(acknowledgement)) | Delivery::Repeated(Some(acknowledgement)) = delivery {
        let Acknowledgement { conversation_id, from_initiator, from_broker, to_broker, .. } = acknowledgement;
        assert_eq!(field("conversationId"), Some(Value::from(&**conversation_id)));
        assert_eq!(field("fromInitiator"), Some(Value::from(*from_initiator)));
        assert_eq!(field("fromBroker"), Some(Value::from(&**to_broker)));
        assert_eq!(*from_broker, broker.instance_id());
    }
}

fn show(delivery: &Delivery) -> String {
    let number = |acknowledgement: &Option<Acknowledgement>| {
        acknowledgement.as_ref().map_or_else(|| "nothing".to_owned(), |given| given.sequence.to_string())
    };
    match delivery {
        Delivery::Stored(acknowledgement) => format!("stored, {}", number(acknowledgement)),
        Delivery::Repeated(acknowledgement) => format!("repeated, {}", number(acknowledgement)),
        Delivery::Later { reason, .. } => format!("later: {reason}"),
        Delivery::Refused { reason, reply: None } => format!("refused: {reason}"),
        Delivery::Refused { reason, reply: Some(reply) } => {
            let code = reply.body.value.value().field("code").number().unwrap_or_default();
            format!("refused with {code}: {reason}")
        }
    }
}
