//! A circuit breaker: says how long to pause after a failure, and when failures have gone on for so long that somebody should know.
//!
//! ```text
//!            a failure                the time is over, still failing
//! disarmed ─────────────▶ armed ─────────────────────────────────────▶ triggered
//!     ▲                     │                                             │
//!     └─────────────────────┴─────────────── a success ───────────────────┘
//! ```

use std::cell::{Cell, RefCell};

use crate::clock::Instant;
use crate::error::Error;

/// The pause after a failure: while it is armed, and once it has triggered. Milliseconds.
const ARMED: f64 = 1_000.0;
const TRIGGERED: f64 = 10_000.0;

/// How it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The last failure.
    error: RefCell<Option<Error>>,
}

impl CircuitBreaker {
    pub(crate) fn state(&self) -> BreakerState {
        self.state.get()
    }

    /// It worked.
    pub(crate) fn success(&self) {
        self.armed_at.take();
        self.state.take();
        self.error.take();
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

    /// What it failed with, to be told when the time is over.
    pub(crate) fn keep(&self, error: Error) {
        self.error.replace(Some(error));
    }

    /// When it triggers, if nothing is tried until then.
    pub(crate) fn triggers_at(&self, length: f64) -> Option<Instant> {
        self.armed_at.get().filter(|_| self.state.get() == BreakerState::Armed).map(|at| at + length)
    }

    /// Triggers it if its time is over. Gives what is to be told then.
    pub(crate) fn expire(&self, now: Instant, length: f64) -> Option<Error> {
        self.triggers_at(length).filter(|at| *at <= now)?;
        self.state.set(BreakerState::Triggered);
        self.error.borrow().clone()
    }
}

/// The length of a window, in milliseconds.
const WINDOW: f64 = 30_000.0;

/// Counts failures in windows of 30 s, one after the other: says once in a window that there are too many.
#[derive(Debug, Default)]
pub(crate) struct FailureRate {
    /// When the window began, and how many failures it has had.
    window: Cell<(Instant, f64)>,
}

impl FailureRate {
    /// A failure. Gives whether it is to be told: it is the first beyond `most` a second, on average over the window.
    pub(crate) fn failure(&self, now: Instant, most: f64) -> bool {
        let (began, failures) = self.window.get();
        // The windows follow each other; after a clock was set back they begin anew.
        let passed = ((now - began) / WINDOW).floor();
        let (began, failures) = match passed {
            _ if failures <= 0.0 || passed < 0.0 => (now, 0.0),
            passed if passed > 0.0 => (began + passed * WINDOW, 0.0),
            _ => (began, failures),
        };
        self.window.set((began, failures + 1.0));
        let bound = most * WINDOW / 1_000.0;
        failures <= bound && failures + 1.0 > bound
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
    fn it_triggers_by_itself_if_nothing_is_tried() {
        let breaker = CircuitBreaker::default();
        assert_eq!(breaker.triggers_at(30_000.0), None);
        breaker.failure(5.0, 30_000.0);
        breaker.keep(Error::closed());
        assert_eq!(breaker.triggers_at(30_000.0), Some(30_005.0));
        assert!(breaker.expire(30_004.0, 30_000.0).is_none());
        assert!(breaker.expire(30_005.0, 30_000.0).is_some());
        assert_eq!(breaker.state().name(), "triggered");
        assert!(breaker.expire(90_000.0, 30_000.0).is_none(), "once");
        breaker.success();
        assert_eq!(breaker.triggers_at(30_000.0), None);
    }

    fn told(rate: &FailureRate, times: impl IntoIterator<Item = Instant>) -> usize {
        times.into_iter().filter(|now| rate.failure(*now, 1.0)).count()
    }

    #[test]
    fn the_failure_after_thirty_in_a_window_is_told_and_no_other() {
        let rate = FailureRate::default();
        assert_eq!(told(&rate, (0..30).map(|n| 1_000.0 + f64::from(n))), 0);
        assert_eq!(told(&rate, [2_000.0]), 1);
        assert_eq!(told(&rate, (0..100).map(|n| 3_000.0 + f64::from(n))), 0, "once in a window");
        assert_eq!(told(&rate, (0..31).map(|n| 40_000.0 + f64::from(n))), 1, "another window");
    }

    #[test]
    fn p60_failures_over_two_windows_are_not_told() {
        let rate = FailureRate::default();
        assert_eq!(told(&rate, (0..16).map(|n| 29_000.0 + f64::from(n))), 0);
        assert_eq!(told(&rate, (0..15).map(|n| 60_000.0 + f64::from(n))), 0);
    }

    #[test]
    fn a_clock_that_was_set_back_begins_another_window() {
        let rate = FailureRate::default();
        assert_eq!(told(&rate, (0..30).map(|n| 100_000.0 + f64::from(n))), 0);
        assert_eq!(told(&rate, (0..30).map(f64::from)), 0);
        assert_eq!(told(&rate, [40.0]), 1);
    }

    #[test]
    fn no_time_at_all_triggers_at_once() {
        let breaker = CircuitBreaker::default();
        assert_eq!(breaker.failure(5.0, 0.0), Failing { pause: 10_000.0, is_to_be_told: true });
    }
}
