//! One behaviour suite for every store and every place that it runs in.

mod support;

mod store;
