//! Settings of delayed delivery.

use std::rc::Rc;

use super::store::TransactionMode;
use crate::definitions::ERROR_QUEUE;

/// Settings of delayed delivery. Most are about stores of the application's own.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayedSettings {
    /// Whether what was dispatched is remembered.
    pub mode: TransactionMode,
    /// How often a dispatch that has failed is tried again, before the message goes to the error queue. Default 0.
    pub number_of_retries: u64,
    /// For how many milliseconds storing messages may fail before it is told. Default 30 000.
    pub store_breaker: f64,
    /// The same of fetching what is due, or reading it from the built-in store. Default 30 000.
    pub fetch_breaker: f64,
    /// The same of dispatching. Default 30 000.
    pub dispatch_breaker: f64,
    /// How often a second, on average over 30 s, counting a failure may fail before it is told. Default 1.
    pub recovery_failures: f64,
    /// The queue that failed messages go to, handlers' as well. Default "error", where they go, too, if there is no such queue.
    pub error_queue: Rc<str>,
}

impl Default for DelayedSettings {
    fn default() -> Self {
        let length = 30_000.0;
        Self {
            mode: TransactionMode::default(),
            number_of_retries: 0,
            store_breaker: length,
            fetch_breaker: length,
            dispatch_breaker: length,
            recovery_failures: 1.0,
            error_queue: ERROR_QUEUE.into(),
        }
    }
}
