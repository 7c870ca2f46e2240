//! pocket-broker: queues, services, contracts and conversations for the browser, on IndexedDB.
//!
//! Applications use the npm package of the same name. This crate is what is inside: the rules of SQL Server's Service Broker in plain Rust,
//! ports for what they need, and adapters for the browser. The rules know no browser, so they run natively as well, where they are tested.
//!
//! # The words
//!
//! A *service* is an address; it has a *queue* and the *contracts* that it accepts. A contract says which end of a conversation may send which
//! *message type*. A *dialog* is a conversation of two services: each end is an *endpoint* with a handle, and messages arrive once and in
//! order. Endpoints that belong together are in one *conversation group*, which one reader at a time receives from. With *retention* a queue
//! keeps what was received and sent until its side ENDs the conversation.
//!
//! # The layers
//!
//! - [`Broker`] and [`Transaction`] take verbs. A broker's verb is committed when its future resolves; a transaction's when
//!   [`Transaction::commit`] does.
//! - Behind them a verb is a function that reads records, checks its preconditions and states its effects. It never waits: what it misses is
//!   read, and it is run again. Verbs that are issued together share one storage transaction.
//! - [`Host`] holds the ports: a [`store::Store`], a [`clock::Clock`], a [`clock::Timer`], [`ids::Ids`], a way to run tasks, a way to tell other
//!   contexts.
//! - [`store`] has the storage port and its adapters: memory, IndexedDB (wasm32 only), and one that fails on purpose. All pass one suite.
//! - `wasm` (wasm32 only) is the boundary to the package's TypeScript.
//!
//! # An example
//!
//! A conversation natively, in memory:
//!
//! ```
//! use std::rc::Rc;
//!
//! use futures_executor::LocalPool;
//! use futures_util::future::{FutureExt, LocalBoxFuture};
//! use futures_util::task::LocalSpawn;
//! use pocket_broker::body::{Body, Value};
//! use pocket_broker::definitions::{Definitions, QueueOptions, ServiceOptions};
//! use pocket_broker::error::Error;
//! use pocket_broker::store::MemoryStore;
//! use pocket_broker::{BeginDialog, Broker, Host, OutgoingMessage, ReceiveOptions, Sharing, clock, ids};
//!
//! struct NoTime;
//! impl clock::Clock for NoTime {
//!     fn now(&self) -> clock::Instant { 0.0 }
//! }
//! impl clock::Timer for NoTime {
//!     fn sleep(&self, _ms: f64) -> LocalBoxFuture<'static, ()> { std::future::pending().boxed_local() }
//! }
//! struct Fixed;
//! impl ids::Ids for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) { bytes.fill(7) } // yours must be random
//! }
//!
//! let mut pool = LocalPool::new();
//! let spawner = pool.spawner();
//! let host = Host {
//!     name: "shop".into(),
//!     store: Rc::new(MemoryStore::new()),
//!     clock: Rc::new(NoTime),
//!     timer: Rc::new(NoTime),
//!     ids: Rc::new(Fixed),
//!     sharing: Sharing::Alone,
//!     pulse: clock::Pulse { clock: Rc::new(NoTime), timer: Rc::new(NoTime) },
//!     delayed: Default::default(),
//!     delayed_store: None,
//!     is_hidden: Rc::new(|| false),
//!     spawn: Rc::new(move |task| spawner.spawn_local_obj(task.into()).expect("the pool runs")),
//!     wake: Rc::new(|_| {}),
//! };
//! let received = pool.run_until(async {
//!     let broker = Broker::open(host).await?;
//!     let service = |queue: &str| ServiceOptions { queue: Some(queue.into()), contracts: vec!["DEFAULT".into()] };
//!     broker.define(Definitions {
//!         queues: vec![("counter".into(), QueueOptions::default()), ("kitchen".into(), QueueOptions::default())],
//!         services: vec![("Counter".into(), service("counter")), ("Kitchen".into(), service("kitchen"))],
//!         ..Definitions::default()
//!     }).await?;
//!     let dialog = broker.begin_dialog(BeginDialog { from: "Counter".into(), to: "Kitchen".into(), ..BeginDialog::default() }).await?;
//!     let soup = OutgoingMessage { message_type: "DEFAULT".into(), id: Default::default(), headers: None, body: Body::small("soup".into()) };
//!     broker.send(vec![dialog.handle], vec![soup], None).await?;
//!
//!     let transaction = broker.begin()?;
//!     let rows = transaction.receive("kitchen", ReceiveOptions::default()).await?;
//!     transaction.commit().await?;
//!     Ok::<_, Error>(rows)
//! })?;
//! assert_eq!(received[0].messages()[0].body, Value::from("soup"));
//! # Ok::<(), Error>(())
//! ```

mod archive;
mod arrival;
#[cfg(feature = "audit")]
mod audit;
pub mod body;
mod broker;
mod cache;
mod call;
mod changes;
pub mod clock;
mod columns;
mod commit;
pub mod conversation;
mod core;
pub mod definitions;
mod delayed;
mod driver;
mod due;
pub mod error;
mod error_queue;
mod flush;
mod group;
mod heart;
pub mod ids;
mod lane;
mod lease;
mod line;
mod map;
mod membership;
mod mend;
pub mod message;
mod notice;
mod numbers;
mod poison;
mod poller;
mod queue;
mod reading;
mod reads;
mod record;
mod recoverability;
mod retention;
mod reuse;
mod role;
mod rows;
mod seen;
mod siege;
mod stats;
mod stop;
pub mod store;
mod suspend;
mod sweep;
mod transaction;
mod transmission;
mod turn;
mod verbs;
mod views;
mod visible;
mod waiting;
mod waits;
#[cfg(target_arch = "wasm32")]
pub mod wasm;
#[cfg(target_arch = "wasm32")]
mod web;
mod work;

#[cfg(feature = "audit")]
pub use audit::audit;
pub use broker::{Broker, LOCK_TIMEOUT, MOST_FROM_OUTSIDE, Transmitted};
pub use commit::Cancelled;
pub use core::{Host, Listener};
pub use delayed::{BreakerState, Delay, DelayedMessageStore, DelayedSettings, Fetched, TransactionMode};
pub use error_queue::FailedFilter;
pub use group::{Guard, Locks, Sharing};
pub use notice::{Critical, Dropped, Failed, Notice, RoleKind, RoleNotice};
pub use recoverability::{Failure, FailureKind, Finally, Next, Recoverability, Recovered, Thrown};
pub use rows::{Message, Rows};
pub use stats::Counts;
pub use transaction::Transaction;
pub use transmission::{
    Acknowledgement, DeliverContext, Delivery, GivenBody, GivenEnvelope, MessageEnvelope, Refusal, Reply, SendResult,
    Transport,
};
pub use verbs::{
    BeginDialog, ConversationInfo, DEDUPE_WINDOW, Destination, EndError, EndOptions, EndResult, EnqueueOptions,
    OutgoingMessage, ReceiveOptions, Send, TimerOptions,
};
pub use views::{
    BrokerStats, ConversationGroup, DelayedFilter, DelayedMessage, Endpoint, EndpointFilter, Extent, Gauges, HeldBy,
    Page, QueueInfo, RowFilter, TransmissionRow,
};
