//! An object of functions that the package hands over, which call the application's.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::AbortController;

/// Dropped before the answer came: the application is told that nobody waits for it.
struct Unanswered(Option<AbortController>);

impl Unanswered {
    /// The answer has come: there is nothing to tell.
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            // In a task of its own: who listens is not ours.
            spawn_local(async move { controller.abort() });
        }
    }
}

/// A function of an object. `None`: there is none.
pub(super) fn method(of: &JsValue, method: &str) -> Option<Function> {
    Reflect::get(of, &method.into()).ok().and_then(|method| method.dyn_into().ok())
}

/// Calls a method with a signal behind its arguments, which aborts when the future is dropped before the answer is there. `Ok(None)`: there is no
/// such method.
pub(super) fn call(
    of: &JsValue,
    name: &str,
    arguments: &[JsValue],
) -> LocalBoxFuture<'static, Result<Option<JsValue>, JsValue>> {
    let Some(function) = method(of, name) else { return std::future::ready(Ok(None)).boxed_local() };
    let controller = AbortController::new().ok();
    let signal = controller.as_ref().map_or(JsValue::UNDEFINED, |controller| controller.signal().into());
    let all: Array = arguments.iter().cloned().chain([signal]).collect();
    // The package's functions throw nothing, and call the application's in a task of their own.
    let promise = function.apply(&JsValue::UNDEFINED, &all).and_then(JsCast::dyn_into::<Promise>);
    // From the call on: nobody may wait for the answer.
    let unanswered = Unanswered(controller);
    async move {
        let answer = match promise {
            Ok(promise) => JsFuture::from(promise).await,
            Err(thrown) => Err(thrown),
        };
        unanswered.answered();
        answer.map(Some)
    }
    .boxed_local()
}
