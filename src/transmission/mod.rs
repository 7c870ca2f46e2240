//! Transmission: messages for services of other brokers go out, theirs come in, each once and in order.
//!
//! A row that is sent to a far service stays with the endpoint that sent it until it is acknowledged: the copy that retention keeps and the row to
//! be transmitted are one record. The endpoint says up to where everything is acknowledged, and a turn, that something waits.

mod acknowledge;
mod arriving;
mod backoff;
pub(crate) mod closed;
mod delivery;
mod envelope;
mod failing;
mod fault;
mod hurry;
mod incoming;
mod name;
mod next;
mod opening;
mod pick;
mod read;
mod route;
mod settle;
mod step;
mod transmitter;
mod transport;

pub(crate) use acknowledge::acknowledge;
pub(crate) use arriving::drop_parked;
pub(crate) use closed::{finish, remove};
pub(crate) use delivery::refuse_given;
pub use delivery::{DeliverContext, Delivery};
pub use envelope::{Acknowledgement, MessageEnvelope};
pub(crate) use hurry::hurry_all;
pub(crate) use incoming::Deliver;
pub(crate) use name::{find, key, name_of, read_side};
pub(crate) use next::first_retry;
pub(crate) use pick::Services;
pub use read::{GivenBody, GivenEnvelope};
pub(crate) use route::{Route, Transmission};
pub(crate) use step::{Came, Step};
pub use transport::{Refusal, Reply, SendResult, Transport};
