//! Delayed messages in a store of the application's own.
//!
//! Such a store is outside of the broker's database, so nothing is done in both at once. On its way in a message lies in the broker's database first,
//! in the *hop* ([`hop`]), with the commit that sends it; the pump ([`pump`]) gives it to the store and then takes it out of the hop. On its way out
//! the poller ([`poller`]) fetches it, dispatches it ([`dispatch`]) and then has the store remove it. What was dispatched is remembered ([`memory`])
//! in the commit that does it, so a message that the store gives again is only removed.
//!
//! One context does both, the leader ([`crate::role`]).

mod calling;
mod calls;
mod change;
mod claim;
mod clean;
mod dispatch;
mod due;
mod hop;
mod memory;
mod mend;
mod poller;
mod properties;
mod pump;
mod settings;
mod step;
mod store;
mod views;
mod watch;

pub(crate) use change::{Withdrawn, cancel};

pub(crate) use hop::{Hop, find_by_id, forget_all, is_in_store, marks_of, put, rows, withdraw};
#[cfg(feature = "audit")]
pub(crate) use hop::{Whereabouts, mark, name, read, read_name, stamp_of};

#[cfg(feature = "audit")]
pub(crate) use memory::read as read_gone;
pub(crate) use mend::{mend, mend_mark, mend_name};
pub(crate) use poller::StorePoller;
pub use settings::DelayedSettings;
pub(crate) use step::{Came, Step};
pub use store::{DelayedMessage, DelayedMessageStore, Fetched, TransactionMode};
