//! Envelopes on their way in, and what becomes of them on its way out.

use std::rc::Rc;

use js_sys::{Array, Promise};
use wasm_bindgen::prelude::*;

use super::RawBroker;
use super::convert::{self, field, number, text, whole};
use super::error::promise;
use super::transport::envelope;
use crate::body::Value;
use crate::record::float;
use crate::transmission::{Acknowledgement, DeliverContext, Delivery, GivenBody, GivenEnvelope};

#[wasm_bindgen]
impl RawBroker {
    /// Takes in what arrived from outside. `from`: the peer's broker, where the transport has proved it.
    /// `via`: the names of the routes of the transport that delivers.
    pub fn deliver(&self, envelopes: &Array, from: Option<String>, via: Option<Array>) -> Promise {
        let (member, given) = (Rc::clone(&self.member), given(envelopes));
        let context = DeliverContext { from: from.map(Into::into), via: via.map(|via| convert::names(&via)) };
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
            fields.extend(reply.as_deref().map(|reply| ("reply", envelope(reply))));
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
        ("conversationId", Value::from(&*given.conversation_id)),
        ("fromInitiator", Value::from(given.from_initiator)),
        ("sequence", Value::from(float(given.sequence))),
        ("fromBroker", Value::from(&*given.from_broker)),
        ("toBroker", Value::from(&*given.to_broker)),
    ])
}
