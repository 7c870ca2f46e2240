//! A circuit breaker: says how long to pause after a failure, and when failures have gone on for so long that somebody should know.
//!
//! ```text
//!            a failure                the time is over, still failing
//! disarmed ─────────────▶ armed ─────────────────────────────────────▶ triggered
//!     ▲                     │                                             │
//!     └─────────────────────┴─────────────── a success ───────────────────┘
//! ```

use std::cell::Cell;

use crate::clock::Instant;

/// The pause after a failure: while it is armed, and once it has triggered. Milliseconds.
const ARMED: f64 = 1_000.0;
const TRIGGERED: f64 = 10_000.0;

/// How it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// Nothing fails.
    #[default]
    Disarmed,
    /// Something fails, not for long yet.
    Armed,
    /// It has failed for so long that it was told.
    Triggered,
}

impl BreakerState {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disarmed => "disarmed",
            Self::Armed => "armed",
            Self::Triggered => "triggered",
        }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Failing {
    /// To wait for so long.
    pub(crate) pause: f64,
    /// To tell it: once, until there was a success.
    pub(crate) is_to_be_told: bool,
}

/// Counts on the time that failures go on.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    armed_at: Cell<Option<Instant>>,
    state: Cell<BreakerState>,
}

impl CircuitBreaker {
    pub(crate) fn state(&self) -> BreakerState {
        self.state.get()
    }

    /// It worked.
    pub(crate) fn success(&self) {
        self.armed_at.take();
        self.state.take();
    }

    /// It failed. `length`: how long it may, in milliseconds.
    pub(crate) fn failure(&self, now: Instant, length: f64) -> Failing {
        // A clock that was set back says nothing: the time begins anew.
        let armed_at = self.armed_at.get().filter(|at| *at <= now).unwrap_or(now);
        self.armed_at.set(Some(armed_at));
        let is_over = now - armed_at >= length;
        let is_to_be_told = is_over && self.state.get() != BreakerState::Triggered;
        if is_over {
            self.state.set(BreakerState::Triggered);
        } else if self.state.get() == BreakerState::Disarmed {
            self.state.set(BreakerState::Armed);
        }
        let pause = if self.state.get() == BreakerState::Triggered { TRIGGERED } else { ARMED };
        Failing { pause, is_to_be_told }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(breaker: &CircuitBreaker, now: Instant) -> (f64, bool, &'static str) {
        let Failing { pause, is_to_be_told } = breaker.failure(now, 30_000.0);
        (pause, is_to_be_told, breaker.state().name())
    }

    #[test]
    fn it_triggers_once_and_a_success_disarms() {
        let breaker = CircuitBreaker::default();
        assert_eq!(breaker.state().name(), "disarmed");
        assert_eq!(fails(&breaker, 0.0), (1_000.0, false, "armed"));
        assert_eq!(fails(&breaker, 29_999.0), (1_000.0, false, "armed"));
        assert_eq!(fails(&breaker, 30_000.0), (10_000.0, true, "triggered"));
        assert_eq!(fails(&breaker, 90_000.0), (10_000.0, false, "triggered"));
        breaker.success();
        assert_eq!(breaker.state().name(), "disarmed");
        assert_eq!(fails(&breaker, 100_000.0), (1_000.0, false, "armed"));
        breaker.success();
        assert_eq!(fails(&breaker, 200_000.0), (1_000.0, false, "armed"), "the time begins with the first of a series");
        assert_eq!(fails(&breaker, 230_000.0), (10_000.0, true, "triggered"), "another series is told, too");
    }

    #[test]
    fn a_clock_that_was_set_back_begins_the_time_anew() {
        let breaker = CircuitBreaker::default();
        assert_eq!(fails(&breaker, 100_000.0), (1_000.0, false, "armed"));
        assert_eq!(fails(&breaker, 50_000.0), (1_000.0, false, "armed"));
        assert_eq!(fails(&breaker, 79_999.0), (1_000.0, false, "armed"));
        assert_eq!(fails(&breaker, 80_000.0), (10_000.0, true, "triggered"));
        assert_eq!(fails(&breaker, 10_000.0), (10_000.0, false, "triggered"));
    }

    #[test]
    fn no_time_at_all_triggers_at_once() {
        let breaker = CircuitBreaker::default();
        assert_eq!(breaker.failure(5.0, 0.0), Failing { pause: 10_000.0, is_to_be_told: true });
    }
}
