//! Time, injected: the rules never read a clock or start a timer by themselves.

use std::fmt;
use std::rc::Rc;

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

/// Real time, whatever clock an application has given: by it contexts show each other that they are alive.
#[derive(Clone)]
pub struct Pulse {
    /// The time of the machine.
    pub clock: Rc<dyn Clock>,
    /// To wait with.
    pub timer: Rc<dyn Timer>,
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pulse")
    }
}
