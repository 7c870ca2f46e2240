//! The boundary: one class for a broker and one for a transaction, plain objects in and out. It owns no rule.
//!
//! Every method takes `&self` and gives a promise that holds what it needs, so calls may overlap and an object may be let go of at any
//! time. The hand-written TypeScript in `pkg/src` is its only user.

mod broker;
mod convert;
mod delayed_store;
mod deliver;
mod error;
mod given;
mod notice;
mod outgoing;
mod page;
mod registry;
mod settings;
mod shown;
mod signal;
mod transaction;
mod transmit;
mod transport;

pub use broker::{RawBroker, delete_broker};
pub use transaction::RawTransaction;
