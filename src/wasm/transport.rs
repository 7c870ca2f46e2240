//! A transport of the application's, as the package hands it over: an object of functions that check what they are given and give.

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use wasm_bindgen::prelude::*;

use super::{convert, given};
use crate::body::{Part, Value};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::text;
use crate::record::{optional, value};
use crate::{MessageEnvelope, Refusal, Reply, SendResult, Transport};

/// The transport of the package.
#[derive(Clone, Debug)]
pub(super) struct GivenTransport(pub(super) JsValue);

impl Transport for GivenTransport {
    fn send(&self, envelopes: Vec<MessageEnvelope>) -> LocalBoxFuture<'static, Result<Vec<SendResult>>> {
        let envelopes = Value::list(envelopes.iter().map(envelope).collect());
        let call = given::call(&self.0, "send", &[envelopes.0]);
        async move {
            match call.await {
                Ok(results) => {
                    Ok(Value(results.unwrap_or_default()).items().iter().map(|given| result(&given.0)).collect())
                }
                Err(thrown) => {
                    let problem = convert::field(&thrown, "message").text().filter(|problem| !problem.is_empty());
                    let text = problem.unwrap_or_else(|| "The transport has failed, and gave no reason.".to_owned());
                    Err(Error::new(ErrorCode::RemoteError, text))
                }
            }
        }
        .boxed_local()
    }

    fn is_slow(&self) -> bool {
        let asked = given::method(&self.0, "isSlow").and_then(|is_slow| is_slow.call0(&JsValue::UNDEFINED).ok());
        asked.is_some_and(|answer| answer.is_truthy())
    }
}

/// An envelope, with its body as it is stored.
pub(super) fn envelope(envelope: &MessageEnvelope) -> Value {
    Value::object(vec![
        ("messageId", Value::from(&*text(envelope.message_id))),
        ("conversationId", Value::from(&*envelope.conversation_id)),
        ("fromInitiator", Value::from(envelope.from_initiator)),
        ("sequence", value(envelope.sequence)),
        ("fromService", Value::from(&*envelope.from_service)),
        ("fromBroker", Value::from(&*envelope.from_broker)),
        ("toService", Value::from(&*envelope.to_service)),
        ("toBroker", optional(envelope.to_broker.as_deref())),
        ("contract", Value::from(&*envelope.contract)),
        ("messageType", Value::from(&*envelope.message_type)),
        ("lifetime", envelope.lifetime.map_or_else(Value::null, Value::from)),
        ("headers", envelope.headers.as_ref().map_or_else(Value::null, Part::value)),
        ("body", envelope.body.value.value()),
        ("packing", Value::from(envelope.body.packing)),
    ])
}

/// A result that the package has checked.
fn result(given: &JsValue) -> SendResult {
    match convert::text(given, "status").as_deref() {
        Some("acknowledged") => SendResult::Acknowledged {
            up_to: convert::whole(given, "upTo"),
            from_broker: convert::text(given, "fromBroker"),
            reply: Some(convert::field(given, "reply").0).filter(JsValue::is_object).map(|given| reply(&given)),
        },
        Some("accepted") => SendResult::Accepted(convert::number(given, "retryAfter").unwrap_or(f64::NAN)),
        Some("refused") => SendResult::Refused(Refusal {
            code: convert::number(given, "code").unwrap_or_default(),
            description: convert::text(given, "description").unwrap_or_default(),
            ends: convert::flag(given, "ends").unwrap_or_default(),
            headers: [("HttpStatus", "httpStatus"), ("HttpBody", "httpBody")]
                .into_iter()
                .filter_map(|(name, field)| Some((name, convert::text(given, field)?)))
                .collect(),
        }),
        _ => SendResult::Retry {
            after: convert::number(given, "after"),
            reason: convert::text(given, "reason").unwrap_or_else(|| Rc::from("")),
        },
    }
}

fn reply(given: &JsValue) -> Reply {
    let packing = convert::whole(given, "packing").and_then(|packing| u32::try_from(packing).ok());
    let size = convert::number(given, "size").unwrap_or_default();
    Reply {
        message_type: convert::text(given, "messageType").unwrap_or_default(),
        body: convert::body(convert::field(given, "body").0, packing.unwrap_or_default(), size),
        problem: convert::text(given, "problem"),
    }
}
