//! Errors on their way out: plain objects, which the package turns into a `BrokerError` with a stack of the caller's.

use std::future::Future;

use futures_util::TryFutureExt;
use futures_util::future::LocalBoxFuture;
use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::future_to_promise;

use crate::body::Value;
use crate::error::{Error, Result};

/// `{ code, message, number, retryable, details, cause }`.
pub(super) fn to_js(error: &Error) -> JsValue {
    let is_aborted = error.details().iter().any(|(name, _)| *name == "aborted");
    let number = error.number().map_or_else(Value::undefined, |number| Value::from(u32::from(number)));
    let error = Value::object(vec![
        ("code", Value::from(if is_aborted { "Aborted" } else { error.code().name() })),
        ("message", Value::from(&*error.to_string())),
        ("number", number),
        ("retryable", Value::from(error.is_retryable())),
        ("details", Value::object(error.details().to_vec())),
        ("cause", error.cause().cloned().unwrap_or_default()),
    ]);
    error.0
}

/// A promise of what a future gives.
pub(super) fn promise(future: impl Future<Output = Result<JsValue>> + 'static) -> Promise {
    // In a box, so that the machinery of promises is there once and not per method.
    let future: LocalBoxFuture<'static, Result<JsValue>> = Box::pin(future);
    future_to_promise(future.map_err(|error| to_js(&error)))
}
