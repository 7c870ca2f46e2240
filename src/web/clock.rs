//! The wall clock, or the one that an application gives.

use js_sys::{Date, Function};
use wasm_bindgen::JsValue;

use crate::clock::{Clock, Instant};

/// The last instant that a JavaScript Date has.
const LATEST: f64 = 8.64e15;

/// Asks `now`, if there is one, and the wall clock otherwise.
#[derive(Debug)]
pub(crate) struct WebClock {
    pub(crate) now: Option<Function>,
}

impl Clock for WebClock {
    fn now(&self) -> Instant {
        let asked = self.now.as_ref().and_then(|now| now.call0(&JsValue::UNDEFINED).ok()).and_then(|now| now.as_f64());
        asked.filter(|now| (0.0..=LATEST).contains(now)).unwrap_or_else(Date::now)
    }
}
