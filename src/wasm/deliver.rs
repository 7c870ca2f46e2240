//! Envelopes on their way in, and what becomes of them on its way out.

use std::rc::Rc;

use js_sys::{Array, Promise};
use wasm_bindgen::prelude::*;

use super::RawBroker;
use super::convert::{self, field, number, text, whole};
use super::error::promise;
use crate::body::{Body, Value};
use crate::ids;
use crate::record::{float, optional};
use crate::transmission::{Acknowledgement, DeliverContext, Delivery, GivenBody, GivenEnvelope, MessageEnvelope};

#[wasm_bindgen]
impl RawBroker {
    /// Takes in what arrived from outside. `from`: the peer's broker, where the transport has proved it.
    pub fn deliver(&self, envelopes: &Array, from: Option<String>) -> Promise {
        let (member, given) = (Rc::clone(&self.member), given(envelopes));
        let context = DeliverContext { from: from.map(Into::into), via: None };
        promise(async move { Ok(deliveries(&member.broker.deliver(given, context).await?)) })
    }
}

/// The envelopes of a call, as the package has read them: each with its fields, and what has become of its body.
fn given(envelopes: &Array) -> Vec<GivenEnvelope> {
    envelopes.iter().map(|envelope| given_one(&envelope)).collect()
}

fn given_one(envelope: &JsValue) -> GivenEnvelope {
    let problem = || text(envelope, "problem").unwrap_or_else(|| Rc::from("it can't be read"));
    let body = match text(envelope, "verdict").as_deref() {
        Some("fine") => {
            let packing = whole(envelope, "packing").and_then(|packing| u32::try_from(packing).ok()).unwrap_or(0);
            GivenBody::Fine(convert::body(field(envelope, "body").0, packing, number(envelope, "size").unwrap_or(0.0)))
        }
        Some("large") => GivenBody::TooLarge(number(envelope, "size").unwrap_or(f64::INFINITY)),
        Some("invalid") => GivenBody::Invalid(problem()),
        Some("unchecked") => GivenBody::Unchecked(problem()),
        _ => GivenBody::Malformed(problem()),
    };
    GivenEnvelope { fields: field(envelope, "fields"), body }
}

/// What became of each.
fn deliveries(deliveries: &[Delivery]) -> JsValue {
    Value::list(deliveries.iter().map(delivery).collect()).0
}

fn delivery(delivery: &Delivery) -> Value {
    match delivery {
        Delivery::Stored(given) => arrived("stored", given.as_ref()),
        Delivery::Repeated(given) => arrived("repeated", given.as_ref()),
        Delivery::Later { after, reason } => {
            let mut fields = vec![("status", Value::from("later")), ("reason", Value::from(&**reason))];
            fields.extend(after.map(|after| ("after", Value::from(after))));
            Value::object(fields)
        }
        Delivery::Refused { reason, reply } => {
            let mut fields = vec![("status", Value::from("refused")), ("reason", Value::from(&**reason))];
            fields.extend(reply.as_deref().map(|reply| ("reply", error(reply))));
            Value::object(fields)
        }
    }
}

fn arrived(status: &str, given: Option<&Acknowledgement>) -> Value {
    let given = given.map_or_else(Value::null, acknowledgement);
    Value::object(vec![("status", Value::from(status)), ("acknowledgement", given)])
}

fn acknowledgement(given: &Acknowledgement) -> Value {
    Value::object(vec![
        ("v", Value::from(1u32)),
        ("kind", Value::from("acknowledgement")),
        ("conversationId", Value::from(&*given.conversation_id)),
        ("fromInitiator", Value::from(given.from_initiator)),
        ("sequence", Value::from(float(given.sequence))),
        ("fromBroker", Value::from(&*given.from_broker)),
        ("toBroker", Value::from(&*given.to_broker)),
    ])
}

/// An Error, whose body is as JSON keeps it.
fn error(envelope: &MessageEnvelope) -> Value {
    let Body { value, .. } = &envelope.body;
    Value::object(vec![
        ("v", Value::from(1u32)),
        ("kind", Value::from("message")),
        ("messageId", Value::from(&*ids::text(envelope.message_id))),
        ("conversationId", Value::from(&*envelope.conversation_id)),
        ("fromInitiator", Value::from(envelope.from_initiator)),
        ("sequence", Value::from(float(envelope.sequence))),
        ("fromService", Value::from(&*envelope.from_service)),
        ("fromBroker", Value::from(&*envelope.from_broker)),
        ("toService", Value::from(&*envelope.to_service)),
        ("toBroker", optional(envelope.to_broker.as_deref())),
        ("contract", Value::from(&*envelope.contract)),
        ("messageType", Value::from(&*envelope.message_type)),
        ("lifetime", envelope.lifetime.map_or_else(Value::null, Value::from)),
        ("headers", Value::object(Vec::new())),
        ("bodyEncoding", Value::from("json")),
        ("body", value.value()),
    ])
}
