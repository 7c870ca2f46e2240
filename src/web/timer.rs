//! Sleeping, by the browser's timers.

use std::time::Duration;

use gloo_timers::future::TimeoutFuture;

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
