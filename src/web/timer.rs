//! Sleeping, by the browser's timers.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use gloo_timers::future::TimeoutFuture;

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

/// The browser's timers.
#[derive(Debug)]
pub(crate) struct WebTimer;

impl Timer for WebTimer {
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        match Duration::try_from_secs_f64(ms.max(0.0) / 1_000.0) {
            Ok(duration) => sleep(duration).boxed_local(),
            // Infinite, or as good as that.
            Err(_) => std::future::pending().boxed_local(),
        }
    }
}
