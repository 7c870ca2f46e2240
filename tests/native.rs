//! The conformance suite natively, on the memory store: no browser, no web API.
#![cfg(not(target_arch = "wasm32"))]

mod conformance;
