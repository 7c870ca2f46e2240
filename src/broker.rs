//! The broker: the verbs, each a transaction of its own, and the views.

mod delayed;
mod deliver;
mod enqueue;
mod heard;
mod transmit;
mod views;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

pub use deliver::MOST_FROM_OUTSIDE;

use crate::body::Body;
use crate::call::{Call, unexpected, with_groups};
use crate::commit::Cancelled;
use crate::core::{Core, Host, Listener};
use crate::definitions::{Definitions, QueueOptions, ServiceChange, Validation};
use crate::error::{Error, Result};
use crate::error_queue::{FailedFilter, Unbury};
use crate::rows::Rows;
use crate::stats::Tally;
use crate::transaction::Transaction;
use crate::verbs::{
    Answer, BeginDialog, BeginTimer, ConversationInfo, Destination, End, EndOptions, EndResult, Move, OutgoingMessage,
    ReceiveOptions, Send, TimerOptions, Verb,
};
use crate::waiting::wait_for;
use crate::work::Purpose;

pub use transmit::Transmitted;

/// How long a verb waits for a group that another holds, in milliseconds.
pub const LOCK_TIMEOUT: f64 = 5_000.0;

/// A broker: one of any number that share what a database holds.
///
/// A verb's future does nothing before it is polled, and resolves after the commit is complete.
pub struct Broker {
    pub(crate) core: Rc<Core>,
    lock_timeout: f64,
    most_from_outside: u64,
    tally: Rc<Tally>,
    closed: Cell<bool>,
    listeners: RefCell<Vec<u64>>,
    /// The routes that it was given.
    routes: RefCell<Vec<u64>>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("instance_id", &self.core.instance_id).finish_non_exhaustive()
    }
}

impl Broker {
    /// Opens the broker of a database, and gives an empty database what every broker has.
    ///
    /// # Errors
    /// Those of the store; `StorageCorrupt`.
    pub async fn open(host: Host) -> Result<Self> {
        Ok(Self::on(Core::open(host).await?))
    }

    /// Another broker over the same connection, definitions and commits.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::on(Rc::clone(&self.core))
    }

    fn on(core: Rc<Core>) -> Self {
        core.brokers.set(core.brokers.get() + 1);
        core.keep_polling();
        core.keep_polling_store();
        core.keep_transmitting();
        Self {
            tally: core.new_tally(),
            core,
            lock_timeout: LOCK_TIMEOUT,
            most_from_outside: MOST_FROM_OUTSIDE,
            closed: Cell::new(false),
            listeners: RefCell::default(),
            routes: RefCell::default(),
        }
    }

    /// The same with another time to wait for a group that another holds, in milliseconds.
    #[must_use]
    pub fn with_lock_timeout(mut self, timeout: f64) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// A UUID that was made with the database.
    pub fn instance_id(&self) -> Rc<str> {
        Rc::clone(&self.core.instance_id)
    }

    /// What bodies of a message type must be; `None`: there is no such type here.
    pub fn validation_of(&self, message_type: &str) -> Option<Validation> {
        self.core.catalog().message_types.get(message_type).map(|known| known.validation)
    }

    /// What bodies `enqueue` takes must be; `None`: there is no such queue here.
    pub fn body_of(&self, queue: &str) -> Option<Validation> {
        self.core.catalog().queues.get(queue).map(|known| known.body)
    }

    /// Hears what commits touch, here and in other contexts, until the broker is closed.
    pub fn listen(&self, listener: Listener) {
        self.listeners.borrow_mut().push(self.core.listen(listener));
    }

    // ── definitions ──

    /// Adds definitions. What is there already must say the same.
    ///
    /// # Errors
    /// `InvalidArgument`, `DefinitionConflict`, `QueueNotFound`, `ContractNotFound`, `MessageTypeNotFound`.
    pub async fn define(&self, definitions: Definitions) -> Result<()> {
        self.call(Call::Verb(Verb::Define(definitions)), None).await.map(drop)
    }

    /// `ALTER QUEUE`: sets the options that are given.
    ///
    /// # Errors
    /// `QueueNotFound`.
    pub async fn alter_queue(&self, name: &str, options: QueueOptions) -> Result<()> {
        self.call(Call::Verb(Verb::AlterQueue(name.into(), options)), None).await.map(drop)
    }

    /// `DROP QUEUE`, and its own service with it.
    ///
    /// # Errors
    /// `QueueNotFound`; `InUse` while another service is on it or an endpoint is left; `InvalidArgument` for "error".
    pub async fn drop_queue(&self, name: &str) -> Result<()> {
        self.call(Call::Verb(Verb::DropQueue(name.into())), None).await.map(drop)
    }

    /// `ALTER SERVICE`: other contracts, another queue. All that the service has goes with it.
    ///
    /// # Errors
    /// `ServiceNotFound`, `QueueNotFound`, `ContractNotFound`, `InvalidArgument` for a queue's own service.
    pub async fn alter_service(&self, name: &str, change: ServiceChange) -> Result<()> {
        self.call(Call::Verb(Verb::AlterService(name.into(), change)), None).await.map(drop)
    }

    /// `DROP SERVICE`: its endpoints and their rows go, and their far sides get an Error.
    ///
    /// # Errors
    /// `ServiceNotFound`, `GroupLocked`; `InUse` while a priority rule names it; `InvalidArgument` for a queue's own service.
    pub async fn drop_service(&self, name: &str) -> Result<()> {
        self.call(Call::Verb(Verb::DropService(name.into())), None).await.map(drop)
    }

    // ── verbs ──

    /// `BEGIN DIALOG CONVERSATION`; with `reuse` it may be one that is open already.
    ///
    /// # Errors
    /// `ServiceNotFound`, `ContractNotFound`, `ConversationNotFound`, `GroupInvalid`, `InvalidLifetime`, `InvalidArgument`.
    pub async fn begin_dialog(&self, options: BeginDialog) -> Result<ConversationInfo> {
        match self.call(Call::Begin(options), None).await? {
            Answer::Conversation(conversation) | Answer::Reused(conversation) => Ok(conversation),
            _ => Err(unexpected()),
        }
    }

    /// `SEND`: one or many messages on one conversation, or one message each on several; all or none.
    ///
    /// # Errors
    /// `ConversationNotFound`, `InvalidState`, `MessageTypeNotFound`, `NotInContract`, `WrongDirection`, `QueueDisabled` (own queue off and
    /// retention on), `NotCloneable`, `MessageTooLarge`, `QuotaExceeded`.
    pub async fn send(
        &self,
        to: Vec<Rc<str>>,
        messages: Vec<OutgoingMessage>,
        cancelled: Option<Cancelled>,
    ) -> Result<()> {
        if messages.is_empty() || to.is_empty() {
            return self.check_open();
        }
        self.call(Call::Verb(Verb::Send(Send { to, messages, delay: None, validated_by: None })), cancelled)
            .await
            .map(drop)
    }

    /// `RECEIVE`. The rows are gone when this resolves: a [`Transaction`] handles them safely.
    ///
    /// # Errors
    /// `QueueNotFound`, `QueueDisabled`, `ConversationNotFound`, `GroupNotFound`, `InvalidArgument`.
    pub async fn receive(
        &self,
        queue: &str,
        options: ReceiveOptions,
        cancelled: Option<Cancelled>,
    ) -> Result<Vec<Rows>> {
        match self.call(Call::Verb(Verb::Receive(queue.into(), options)), cancelled).await? {
            Answer::Received(rows, _) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    /// `BEGIN CONVERSATION TIMER`: a DialogTimer at this end after `timeout` milliseconds, in place of the timer of the same name. `None` cancels.
    ///
    /// # Errors
    /// `ConversationNotFound`, `InvalidState`, `TimerBeyondLifetime`, `GroupLocked`, `InvalidArgument`, `NotCloneable`.
    pub async fn begin_conversation_timer(
        &self,
        handle: &str,
        timeout: Option<f64>,
        options: TimerOptions,
    ) -> Result<()> {
        let timer = BeginTimer::new(&self.core.host, handle, timeout, options);
        self.call(Call::Verb(Verb::BeginTimer(timer)), None).await.map(drop)
    }

    /// `END CONVERSATION`.
    ///
    /// # Errors
    /// `ConversationNotFound`, `InvalidState`, `InvalidEndError`, `GroupLocked`.
    pub async fn end_conversation(&self, handle: &str, options: EndOptions) -> Result<EndResult> {
        match self.call(Call::Verb(Verb::End(End { handle: handle.into(), options })), None).await? {
            Answer::Ended(result) => Ok(result),
            _ => Err(unexpected()),
        }
    }

    /// `MOVE CONVERSATION`: puts an endpoint into another group of its service.
    ///
    /// # Errors
    /// `ConversationNotFound`, `InvalidState`, `GroupInvalid`, `GroupLocked`, `InvalidArgument`.
    pub async fn move_conversation(&self, handle: &str, to: Destination) -> Result<()> {
        self.call(Call::Verb(Verb::Move(Move { handle: handle.into(), to })), None).await.map(drop)
    }

    /// What a group knows. `group` is its id, or the handle of a conversation in it.
    ///
    /// # Errors
    /// `GroupNotFound`, `GroupLocked`.
    pub async fn get_group_state(&self, group: &str) -> Result<Option<Body>> {
        match self.call(Call::Verb(Verb::GetGroupState(group.into())), None).await? {
            Answer::GroupState(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    /// What a group is to know, until its last conversation ends.
    ///
    /// # Errors
    /// `GroupNotFound`, `GroupLocked`, `NotCloneable`.
    pub async fn set_group_state(&self, group: &str, state: Body) -> Result<()> {
        self.call(Call::Verb(Verb::SetGroupState(group.into(), state)), None).await.map(drop)
    }

    /// Deletes what was archived before a time. Gives how many rows.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn purge_archive(&self, before: f64) -> Result<u64> {
        match self.call(Call::Verb(Verb::PurgeArchive(before)), None).await? {
            Answer::Count(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    /// Moves messages of the error queue back to where they failed, ahead of the others there. What was dropped or ENDed since keeps its messages in
    /// the error queue. Gives how many were moved.
    ///
    /// # Errors
    /// `InvalidArgument`; those of the store.
    pub async fn return_to_source(&self, filter: &FailedFilter) -> Result<u64> {
        self.unbury(filter, false).await
    }

    /// Deletes messages of the error queue. Gives how many.
    ///
    /// # Errors
    /// `InvalidArgument`; those of the store.
    pub async fn discard_failed(&self, filter: &FailedFilter) -> Result<u64> {
        self.unbury(filter, true).await
    }

    pub(crate) async fn unbury(&self, filter: &FailedFilter, discard: bool) -> Result<u64> {
        let limit = filter.limit();
        let (mut count, mut from) = (0, None);
        loop {
            let page = Unbury { filter: filter.clone(), discard, from, limit: limit - count };
            let Answer::Unburied(page) = self.call(Call::Verb(Verb::Unbury(page)), None).await? else {
                return Err(unexpected());
            };
            count += page.count;
            if page.next.is_none() {
                return Ok(count);
            }
            from = page.next;
        }
    }

    /// Does what is due by now, and gives how many messages came of it. The same happens by itself while a broker is open.
    ///
    /// # Errors
    /// Those of the store; `StorageCorrupt` and `QuotaExceeded` after everything else that is due has been done.
    pub async fn poll(&self) -> Result<u64> {
        let now = self.core.host.clock.now();
        let mut moved = 0;
        loop {
            self.check_open()?;
            let polled = self.core.poll().await?;
            moved += polled.moved;
            if let Some(problem) = polled.problem {
                return Err(problem);
            }
            if polled.next.is_none_or(|next| next > now) {
                break;
            }
        }
        let round = self.core.poll_store(true).await;
        moved += round.moved + self.transmit_due().await;
        round.problem.map_or(Ok(moved), Err)
    }

    /// Begins a transaction: what is done in it is committed together, or not at all.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin(&self) -> Result<Rc<Transaction>> {
        self.check_open()?;
        let transaction = Rc::new(Transaction::new(Rc::clone(&self.core), self.lock_timeout, Rc::clone(&self.tally)));
        self.core.add(&transaction);
        Ok(transaction)
    }

    /// Rolls open transactions back, lets running commits finish and stops listening. Idempotent.
    pub async fn close(&self) {
        if !self.closed.replace(true) {
            self.core.brokers.set(self.core.brokers.get().saturating_sub(1));
            self.core.poller.ring();
        }
        self.remove_routes();
        if !self.core.is_open() {
            self.core.stored.close();
            self.core.locks.sieges.clear();
        }
        for number in self.listeners.take() {
            self.core.forget(number);
        }
        let transactions = self.core.transactions();
        transactions
            .iter()
            .filter(|transaction| transaction.is_of(&self.tally))
            .for_each(|transaction| transaction.close());
        // Verbs that wait for a group find the broker closed.
        self.core.locks.wake();
        self.core.bell.ring_all();
        self.core.idle().await;
        if !self.core.is_open() {
            self.core.stored.ended(&self.core).await;
        }
        // While the page sleeps nothing can be given back.
        if let Some(leases) = self.core.leases.as_ref().filter(|_| !self.core.gate.is_closed()) {
            leases.given_back().await;
        }
    }

    /// Whether [`Broker::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get() || self.core.closed.get()
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::closed()) } else { Ok(()) }
    }

    /// A verb, as a transaction of its own.
    pub(crate) async fn call(&self, call: Call, cancelled: Option<Cancelled>) -> Result<Answer> {
        self.check_open()?;
        let verb = Rc::new(call.verb(&self.core).await?);
        let locking = self.core.locking();
        let call = locking.call;
        let attempt = async || {
            with_groups(&self.core, self.lock_timeout, call, Vec::new(), async || {
                self.check_open()?;
                let tally = Some(Rc::clone(&self.tally));
                self.core.commit(Rc::clone(&verb), Purpose::Commit, call, cancelled.clone(), tally).await
            })
            .await
        };
        match verb.wait() {
            Some(wait) => wait_for(&self.core, call, &wait, cancelled.as_ref(), attempt).await,
            None => attempt().await,
        }
    }
}
