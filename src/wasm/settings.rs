//! What an application opens a broker with, as the package hands it over.

use js_sys::Function;
use num_traits::ToPrimitive;
use serde::Deserialize;

use super::delayed_store::GivenStore;
use crate::{DelayedSettings, TransactionMode};

/// What has to be the same for every broker over one connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    pub(super) durability: String,
    pub(super) storage: String,
    pub(super) lock_timeout: f64,
    pub(super) delayed: DelayedOptions,
}

/// Settings of delayed delivery.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DelayedOptions {
    transaction_mode: String,
    number_of_retries: f64,
    time_to_trigger_store_circuit_breaker: f64,
    time_to_trigger_fetch_circuit_breaker: f64,
    time_to_trigger_dispatch_circuit_breaker: f64,
    maximum_recovery_failures_per_second: f64,
    error_queue: String,
}

impl DelayedOptions {
    pub(super) fn settings(&self) -> DelayedSettings {
        let mode = TransactionMode::ALL.into_iter().find(|mode| mode.name() == self.transaction_mode);
        DelayedSettings {
            mode: mode.unwrap_or_default(),
            number_of_retries: self.number_of_retries.to_u64().unwrap_or(u64::MAX),
            store_breaker: self.time_to_trigger_store_circuit_breaker,
            fetch_breaker: self.time_to_trigger_fetch_circuit_breaker,
            dispatch_breaker: self.time_to_trigger_dispatch_circuit_breaker,
            recovery_failures: self.maximum_recovery_failures_per_second,
            error_queue: self.error_queue.as_str().into(),
        }
    }
}

/// What an application gives beside its settings.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) clock: GivenClock,
    pub(super) store: Option<GivenStore>,
}

/// The functions of the clock that an application gives; the same ones for the same clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GivenClock {
    pub(super) now: Option<Function>,
    pub(super) sleep: Option<Function>,
}
