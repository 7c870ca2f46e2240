//! One behaviour suite for every store and every place that it runs in.

mod support;

#[cfg(not(target_arch = "wasm32"))]
mod random;
mod store;
mod verbs;
