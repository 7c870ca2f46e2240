//! A delayed message store of the application's own, as the package hands it over: an object of functions that check what they are given and give.

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use wasm_bindgen::prelude::*;

use super::{convert, given, shown};
use crate::body::Value;
use crate::error::{Error, ErrorCode, Result};
use crate::views::DelayedFilter;
use crate::{DelayedMessage, DelayedMessageStore, Fetched, TransactionMode};

/// The store of the package: a method that the application's store lacks is not there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GivenStore(pub(super) JsValue);

impl GivenStore {
    /// Calls a method. `None`: there is none.
    fn call(&self, method: &'static str, arguments: &[JsValue]) -> LocalBoxFuture<'static, Result<Option<JsValue>>> {
        let call = given::call(&self.0, method, arguments);
        async move { call.await.map_err(|thrown| failed(method, &thrown)) }.boxed_local()
    }

    fn asks<T: 'static>(
        &self,
        method: &'static str,
        arguments: &[JsValue],
        read: impl FnOnce(JsValue) -> T + 'static,
    ) -> LocalBoxFuture<'static, Result<T>> {
        let call = self.call(method, arguments);
        async move { Ok(read(call.await?.unwrap_or_default())) }.boxed_local()
    }
}

/// What the package says of a call that has failed.
fn failed(method: &'static str, thrown: &JsValue) -> Error {
    let problem = convert::field(thrown, "message").text().filter(|problem| !problem.is_empty());
    let problem = problem.unwrap_or_else(|| "it gave no reason".to_owned());
    let text = format!("The delayed message store has failed in `{method}`: {problem}");
    let error = Error::new(ErrorCode::DelayedStoreFailed, text).with("method", method);
    let error = error.caused_by(convert::field(thrown, "cause"));
    if convert::flag(thrown, "unrecoverable") == Some(true) { error.with("unrecoverable", true) } else { error }
}

fn raw(message: &DelayedMessage) -> JsValue {
    shown::delayed(message).0
}

/// A message as the package has read it.
fn message(given: &JsValue) -> DelayedMessage {
    let text = |name: &str| convert::text(given, name).unwrap_or_default();
    let headers = convert::field(given, "headers");
    let mut properties = Vec::new();
    let mut texts = convert::field(given, "properties").items().into_iter().filter_map(|text| text.text());
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        properties.push((Rc::from(name), Rc::from(value)));
    }
    DelayedMessage {
        message_id: text("messageId"),
        destination: text("destination"),
        time: convert::number(given, "time").unwrap_or(f64::NAN),
        headers: (!headers.is_null() && !headers.is_undefined()).then(|| headers.into()),
        properties,
        body: body(given),
        number_of_retries: convert::whole(given, "retries").unwrap_or_default(),
    }
}

fn body(given: &JsValue) -> crate::body::Body {
    let packing = convert::whole(given, "packing").and_then(|packing| u32::try_from(packing).ok());
    let size = convert::number(given, "size").unwrap_or_default();
    convert::body(convert::field(given, "body").0, packing.unwrap_or_default(), size)
}

fn fetched(given: &JsValue) -> Fetched {
    if given.is_null() || given.is_undefined() {
        return Fetched::Nothing;
    }
    match convert::text(given, "problem") {
        Some(problem) => {
            Fetched::Unreadable { raw: body(given), message_id: convert::text(given, "messageId"), problem }
        }
        None => Fetched::Message(message(given)),
    }
}

impl DelayedMessageStore for GivenStore {
    fn setup_infrastructure(
        &self,
        endpoint_name: &str,
        mode: TransactionMode,
        instance_id: &str,
    ) -> LocalBoxFuture<'static, Result<()>> {
        self.asks("setupInfrastructure", &[endpoint_name.into(), mode.name().into(), instance_id.into()], drop)
    }

    fn initialize(&self, endpoint_name: &str, mode: TransactionMode) -> LocalBoxFuture<'static, Result<()>> {
        self.asks("initialize", &[endpoint_name.into(), mode.name().into()], drop)
    }

    fn store(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        self.asks("store", &[raw(&message)], |answer| answer.is_truthy())
    }

    fn remove(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        self.asks("remove", &[raw(&message)], |answer| answer.is_truthy())
    }

    fn increment_failure_count(
        &self,
        message: DelayedMessage,
        next_attempt: f64,
    ) -> LocalBoxFuture<'static, Result<bool>> {
        self.asks("incrementFailureCount", &[raw(&message), next_attempt.into()], |answer| answer.is_truthy())
    }

    fn next(&self) -> LocalBoxFuture<'static, Result<Option<f64>>> {
        self.asks("next", &[], |answer| answer.as_f64())
    }

    fn fetch_next_due_timeout(&self, at: f64) -> LocalBoxFuture<'static, Result<Fetched>> {
        self.asks("fetchNextDueTimeout", &[at.into()], |answer| fetched(&answer))
    }

    fn release(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<()>> {
        self.asks("release", &[raw(&message)], drop)
    }

    fn select(&self, filter: &DelayedFilter) -> LocalBoxFuture<'static, Result<Option<Vec<DelayedMessage>>>> {
        let optional = |number: Option<f64>| number.map_or(JsValue::UNDEFINED, JsValue::from);
        let destination = filter.destination.as_deref().map_or(JsValue::UNDEFINED, JsValue::from);
        let call = self.call("select", &[destination, optional(filter.before), optional(filter.limit)]);
        async move {
            let rows = call.await?;
            Ok(rows.map(|rows| Value(rows).items().iter().map(|row| message(&row.0)).collect()))
        }
        .boxed_local()
    }

    fn count(&self) -> LocalBoxFuture<'static, Result<Option<u64>>> {
        let call = self.call("count", &[]);
        async move {
            let count = call.await?.map(|count| count.as_f64());
            Ok(count.map(|count| count.and_then(|count| num_traits::ToPrimitive::to_u64(&count)).unwrap_or_default()))
        }
        .boxed_local()
    }
}
