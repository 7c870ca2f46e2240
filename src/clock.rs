//! Time, injected: the rules never read a clock or start a timer by themselves.

use futures_util::future::LocalBoxFuture;

/// Milliseconds since 1970, UTC.
pub type Instant = f64;

/// Where the time comes from.
pub trait Clock {
    /// The present, in milliseconds since 1970.
    fn now(&self) -> Instant;
}

/// Something to wait with.
pub trait Timer {
    /// Resolves after `ms` milliseconds; any length is right. Dropping it cancels it.
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()>;
}
