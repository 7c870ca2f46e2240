//! Sleeping, by the browser's timers or by the clock that an application gives.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use gloo_timers::future::TimeoutFuture;
use js_sys::{Function, Promise};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::AbortController;

use crate::clock::Timer;

/// `setTimeout` takes 31 bits of milliseconds; a longer wait would end at once.
const LONGEST: u32 = i32::MAX.unsigned_abs();

/// Waits. Dropping the future cancels the timer.
pub(crate) async fn sleep(duration: Duration) {
    let mut left = duration.as_millis();
    loop {
        // What does not fit is longer than the longest.
        let step = u32::try_from(left).unwrap_or(LONGEST).min(LONGEST);
        TimeoutFuture::new(step).await;
        left = left.saturating_sub(step.into());
        if left == 0 {
            return;
        }
    }
}

/// Waits by the clock that an application gives, as far as that works.
async fn sleep_by(clock: Function, ms: f64, duration: Duration) {
    let Ok(controller) = AbortController::new() else { return sleep(duration).await };
    let signal = controller.signal();
    let mut wait = Wait(Some(controller));
    let slept = match clock.call2(&JsValue::UNDEFINED, &ms.into(), &signal).and_then(JsCast::dyn_into::<Promise>) {
        Ok(sleeping) => JsFuture::from(sleeping).await.is_ok(),
        Err(_) => false,
    };
    wait.0 = None;
    if !slept {
        sleep(duration).await;
    }
}

/// Dropped while there is somebody to tell: the wait is no longer wanted.
struct Wait(Option<AbortController>);

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            // In a task of its own: who listens is not ours.
            spawn_local(async move { controller.abort() });
        }
    }
}

/// Asks `clock`, a function of milliseconds and an AbortSignal that gives a promise, if there is one, and the browser's timers otherwise.
#[derive(Debug)]
pub(crate) struct WebTimer {
    pub(crate) clock: Option<Function>,
}

impl Timer for WebTimer {
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        let ms = ms.max(0.0);
        match (Duration::try_from_secs_f64(ms / 1_000.0), self.clock.clone()) {
            (Ok(duration), Some(clock)) => sleep_by(clock, ms, duration).boxed_local(),
            (Ok(duration), None) => sleep(duration).boxed_local(),
            // Infinite, or as good as that.
            (Err(_), _) => std::future::pending().boxed_local(),
        }
    }
}
