//! The interface of a delayed message store.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use crate::body::{Body, Part};
use crate::clock::Instant;
use crate::error::Result;
use crate::views::DelayedFilter;

/// A message that waits for its time.
#[derive(Clone, Debug)]
pub struct DelayedMessage {
    /// Its id, as the call that sent it gave it: a UUID.
    pub message_id: Rc<str>,
    /// A queue, or the handle of the conversation that it is sent on.
    pub destination: Rc<str>,
    /// When it is to be delivered, in milliseconds since 1970.
    pub time: Instant,
    /// A plain object of texts.
    pub headers: Option<Part>,
    /// Message type, key, priority and the like: to be kept and given back as they are.
    pub properties: Vec<(Rc<str>, Rc<str>)>,
    /// The body.
    pub body: Body,
    /// How often its dispatch has failed.
    pub number_of_retries: u64,
}

impl DelayedMessage {
    /// A message of which nothing but the id is known: enough for [`DelayedMessageStore::remove`].
    pub fn with_id(id: Rc<str>) -> Self {
        Self {
            message_id: id,
            destination: "".into(),
            time: 0.0,
            headers: None,
            properties: Vec::new(),
            body: Body::none(),
            number_of_retries: 0,
        }
    }
}

/// What a store has fetched.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// Nothing is due that nobody else holds.
    Nothing,
    /// A message.
    Message(DelayedMessage),
    /// Something that is no message: what it is, its id if it has one, and what is wrong with it. It goes to the error queue as it is.
    Unreadable {
        /// As the store gave it.
        raw: Body,
        /// Its id, if there is one.
        message_id: Option<Rc<str>>,
        /// For people.
        problem: Rc<str>,
    },
}

/// How far a delayed message and what it is dispatched to are one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionMode {
    /// What was dispatched is not remembered: after a crash a message may be delivered twice.
    None,
    /// The same.
    ReceiveOnly,
    /// What was dispatched is remembered with the dispatch, in one commit, so that a message that the store gives again is only removed.
    #[default]
    SendsAtomicWithReceive,
    /// The store takes part in the commit, which only the built-in one does.
    TransactionScope,
}

impl TransactionMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::None, Self::ReceiveOnly, Self::SendsAtomicWithReceive, Self::TransactionScope];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReceiveOnly => "receive-only",
            Self::SendsAtomicWithReceive => "sends-atomic-with-receive",
            Self::TransactionScope => "transaction-scope",
        }
    }

    /// Whether what was dispatched is remembered.
    pub(crate) fn remembers(self) -> bool {
        matches!(self, Self::SendsAtomicWithReceive | Self::TransactionScope)
    }
}

/// A place for delayed messages outside of the broker's database. It goes by the id of a message alone: `remove` and `increment_failure_count` may be
/// called with a message of which nothing else is known. Dropping a future takes the call back.
pub trait DelayedMessageStore {
    /// Creates what is missing. Called before [`DelayedMessageStore::initialize`], perhaps by several contexts at once.
    fn setup_infrastructure(
        &self,
        endpoint_name: &str,
        mode: TransactionMode,
        instance_id: &str,
    ) -> LocalBoxFuture<'static, Result<()>>;

    /// Must fail if it can't honour the mode.
    fn initialize(&self, endpoint_name: &str, mode: TransactionMode) -> LocalBoxFuture<'static, Result<()>>;

    /// Stores a message. `false`: it holds one with this id already, which stays as it is.
    fn store(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>>;

    /// Deletes a message. `false`: it was already gone.
    fn remove(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>>;

    /// Adds one to the count of a message, which is not due again before `next_attempt`. `false`: it was already gone.
    fn increment_failure_count(
        &self,
        message: DelayedMessage,
        next_attempt: Instant,
    ) -> LocalBoxFuture<'static, Result<bool>>;

    /// When the earliest message is due, held or not.
    fn next(&self) -> LocalBoxFuture<'static, Result<Option<Instant>>>;

    /// The earliest message with a time up to `at` that no other instance holds; of one time, the one that was stored first. Holds it for 60 s, or
    /// until it is removed, released or its count is incremented.
    fn fetch_next_due_timeout(&self, at: Instant) -> LocalBoxFuture<'static, Result<Fetched>>;

    /// Holds a message no longer.
    fn release(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<()>>;

    /// Messages in the order of their times. `None`: it can't tell.
    fn select(&self, filter: &DelayedFilter) -> LocalBoxFuture<'static, Result<Option<Vec<DelayedMessage>>>>;

    /// How many messages there are. `None`: it can't tell.
    fn count(&self) -> LocalBoxFuture<'static, Result<Option<u64>>>;
}
