//! One behaviour suite for every store and every place that it runs in.

// A test that panics says where and why: that is what it is for.
#![allow(clippy::as_conversions, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::string_slice, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

mod support;

#[cfg(not(target_arch = "wasm32"))]
mod behaviours;
#[cfg(not(target_arch = "wasm32"))]
mod random;
mod store;
mod verbs;
