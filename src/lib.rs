//! pocket-broker: queues, services, contracts and conversations for the browser, on IndexedDB.

pub mod body;
mod arrival;
mod archive;
#[cfg(feature = "audit")]
mod audit;
mod broker;
mod cache;
mod changes;
pub mod clock;
mod commit;
pub mod conversation;
mod core;
pub mod definitions;
pub mod error;
mod driver;
mod flush;
mod group;
pub mod ids;
mod line;
mod map;
mod membership;
pub mod message;
mod notice;
mod queue;
mod reading;
mod reads;
mod record;
mod rows;
pub mod store;
mod sweep;
mod transaction;
mod turn;
mod verbs;
mod views;
mod visible;
#[cfg(target_arch = "wasm32")]
pub mod wasm;
#[cfg(target_arch = "wasm32")]
mod web;
mod work;

#[cfg(feature = "audit")]
pub use audit::audit;
pub use broker::{Broker, LOCK_TIMEOUT};
pub use commit::Cancelled;
pub use core::{Host, Listener};
pub use notice::{Dropped, Notice};
pub use rows::{Message, Rows};
pub use transaction::Transaction;
pub use verbs::{BeginDialog, ConversationInfo, EndError, EndOptions, EndResult, OutgoingMessage, ReceiveOptions, Send};
pub use views::{Endpoint, EndpointFilter, Extent, Page, QueueInfo, RowFilter, TransmissionRow};
