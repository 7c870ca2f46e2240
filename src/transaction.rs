//! Transactions: what is done in one is committed together, or not at all.
//!
//! A transaction holds locks and a list of what was done, never an open storage transaction: between two calls the application may await
//! anything. Each call is checked when it is made, against what is committed and what the transaction has done itself; the commit checks it
//! again.

mod ending;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;

use crate::body::Body;
use crate::call::{Call, unexpected, with_groups};
use crate::changes::Changes;
use crate::commit::Cancelled;
use crate::core::Core;
use crate::delayed::{Came, Withdrawn};
use crate::driver::Driver;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::SideId;
use crate::message::Class;
use crate::poison::Attempts;
use crate::reads::Reads;
use crate::rows::Rows;
use crate::stats::Tally;
use crate::stop::{Outcome, Stop};
use crate::store::{Mode, StoreName, transact};
use crate::verbs::{
    Answer, BeginDialog, BeginTimer, ConversationInfo, Destination, End, EndOptions, EndResult, Move, OutgoingMessage,
    ReceiveOptions, Send, TimerOptions, Verb,
};
use crate::views::SCOPE as VIEWED;
use crate::waiting::wait_for;
use crate::work::Purpose;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Committing,
    Over,
    /// The broker was closed under it.
    Closed,
    /// Its locks were taken away.
    Lost(Loss),
    /// Its commit failed.
    Refused(ErrorCode),
}

/// Why a transaction can't commit any more although nobody has ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Another context took its group over: it had shown no sign of life for too long.
    Robbed,
    /// The page was put away or frozen.
    Suspended,
}

impl Loss {
    pub(crate) fn error(self) -> Error {
        let (reason, text) = match self {
            Self::Robbed => (
                "robbed",
                "The transaction was rolled back: it had held its group and shown no sign of life for so long that another tab took the group over. Run it again and it gets what is there now.",
            ),
            Self::Suspended => (
                "suspended",
                "The page was put away or frozen while the transaction was open. It was rolled back, so that others can go on: begin another one.",
            ),
        };
        Error::new(ErrorCode::TransactionClosed, text).with("reason", reason)
    }
}

/// Hears once that a transaction is lost.
type OnLost = Box<dyn FnOnce(&Error)>;

/// A unit of work of the application. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) core: Rc<Core>,
    lock_timeout: f64,
    tally: Rc<Tally>,
    number: u64,
    phase: Cell<Phase>,
    /// Lent to the call that runs; the calls behind it wait.
    state: RefCell<Option<State>>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    attempts: Attempts,
    /// The first row that it received.
    first: RefCell<Option<(SideId, (Class, u64))>>,
    on_lost: RefCell<Option<OnLost>>,
}

#[derive(Default)]
struct State {
    /// What the transaction has read, and what it will have changed.
    changes: Changes,
    done: Vec<Rc<Verb>>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("phase", &self.phase.get()).finish_non_exhaustive()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.rollback();
    }
}

impl Transaction {
    pub(crate) fn new(core: Rc<Core>, lock_timeout: f64, tally: Rc<Tally>) -> Self {
        let number = core.unique();
        Self {
            core,
            lock_timeout,
            tally,
            number,
            phase: Cell::new(Phase::Open),
            state: RefCell::new(Some(State::default())),
            waiting: RefCell::default(),
            attempts: Attempts::default(),
            first: RefCell::default(),
            on_lost: RefCell::default(),
        }
    }

    /// Calls `lost` with the reason, if it comes to that the transaction is rolled back because it can't commit any more.
    pub fn on_lost(&self, lost: impl FnOnce(&Error) + 'static) {
        self.on_lost.replace(Some(Box::new(lost)));
    }

    /// Whether the broker that counts with this tally has begun it.
    pub(crate) fn is_of(&self, tally: &Rc<Tally>) -> bool {
        Rc::ptr_eq(&self.tally, tally)
    }

    pub(crate) fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether it takes calls.
    pub fn is_open(&self) -> bool {
        self.phase.get() == Phase::Open
    }

    /// `BEGIN DIALOG CONVERSATION`.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn begin_dialog(&self, options: BeginDialog) -> Result<ConversationInfo> {
        match self.call(Call::Begin(options), None).await? {
            Answer::Conversation(conversation) | Answer::Reused(conversation) => Ok(conversation),
            _ => Err(unexpected()),
        }
    }

    /// `SEND`. Nobody sees the messages before the commit, the transaction itself included.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn send(&self, to: Vec<Rc<str>>, messages: Vec<OutgoingMessage>) -> Result<()> {
        if messages.is_empty() || to.is_empty() {
            return self.check_open();
        }
        self.call(Call::Verb(Verb::Send(Send { to, messages, delay: None, validated_by: None })), None).await.map(drop)
    }

    /// `RECEIVE`. The group is held until the transaction ends; a rollback makes the rows ready again.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn receive(&self, queue: &str, options: ReceiveOptions) -> Result<Vec<Rows>> {
        match self.call(Call::Verb(Verb::Receive(queue.into(), options)), None).await? {
            Answer::Received(rows, _) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    /// `GET CONVERSATION GROUP`: the next group of a queue that has something to receive and that nobody holds. It is held until the
    /// transaction ends. `None`: there is none, or none came within `timeout` milliseconds.
    ///
    /// # Errors
    /// `QueueNotFound`, `QueueDisabled`, `TransactionClosed`.
    pub async fn get_conversation_group(&self, queue: &str, timeout: Option<f64>) -> Result<Option<Rc<str>>> {
        match self.call(Call::Verb(Verb::GetConversationGroup(queue.into(), timeout)), None).await? {
            Answer::Group(group) => Ok(group),
            _ => Err(unexpected()),
        }
    }

    /// `BEGIN CONVERSATION TIMER`. The time counts from the call; the group is held until the transaction ends.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
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
    /// As on a broker; `TransactionClosed`.
    pub async fn end_conversation(&self, handle: &str, options: EndOptions) -> Result<EndResult> {
        match self.call(Call::Verb(Verb::End(End { handle: handle.into(), options })), None).await? {
            Answer::Ended(result) => Ok(result),
            _ => Err(unexpected()),
        }
    }

    /// `MOVE CONVERSATION`. Both groups are held until the transaction ends.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn move_conversation(&self, handle: &str, to: Destination) -> Result<()> {
        self.call(Call::Verb(Verb::Move(Move { handle: handle.into(), to })), None).await.map(drop)
    }

    /// What a group knows, with what this transaction has set.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn get_group_state(&self, group: &str) -> Result<Option<Body>> {
        match self.call(Call::Verb(Verb::GetGroupState(group.into())), None).await? {
            Answer::GroupState(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    /// What a group is to know.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn set_group_state(&self, group: &str, state: Body) -> Result<()> {
        self.call(Call::Verb(Verb::SetGroupState(group.into(), state)), None).await.map(drop)
    }

    fn check_open(&self) -> Result<()> {
        match self.phase.get() {
            Phase::Open => Ok(()),
            Phase::Closed => Err(Error::closed()),
            Phase::Lost(loss) => Err(loss.error()),
            Phase::Committing | Phase::Over | Phase::Refused(_) => Err(Error::new(
                ErrorCode::TransactionClosed,
                "The transaction is over. Make every call before the function given to `transaction` has settled, or begin another one.",
            )),
        }
    }

    /// Checks a verb against what is committed and what the transaction has done, and keeps it for the commit.
    pub(crate) async fn call(&self, call: Call, cancelled: Option<Cancelled>) -> Result<Answer> {
        self.check_open()?;
        let verb = Rc::new(call.verb(&self.core).await?);
        let mut state = self.borrow_state().await?;
        let locking = self.core.locking();
        let call = locking.call;
        let changes = &mut state.changes;
        let mut attempt = async || {
            with_groups(&self.core, self.lock_timeout, call, verb.guess_groups(&self.core), async || {
                self.check_open()?;
                let outcome = self.attempt(&verb, call, changes).await;
                // Right away: it may have got a group, and wait for something else with it.
                self.core.keep_beating();
                outcome
            })
            .await
        };
        let outcome = match verb.wait() {
            Some(mut wait) => {
                // Whoever holds a group must not wait for ever for another: two might wait for each other.
                if verb.names_a_group() && self.core.locks.holds_any(self.number) {
                    wait.timeout = wait.timeout.min(self.lock_timeout);
                }
                wait_for(&self.core, call, &wait, cancelled.as_ref(), attempt).await
            }
            None => attempt().await,
        };
        drop(locking);
        match &outcome {
            Ok(Answer::Received(_, takes)) if takes.is_empty() => {}
            Ok(Answer::Received(_, takes)) => {
                let first = takes.first().map(|take| (take.side, take.first()));
                let mut known = self.first.borrow_mut();
                *known = known.take().or(first);
                state.done.push(Rc::new(Verb::Take(takes.clone())));
            }
            Ok(Answer::Moved(understood)) => state.done.push(Rc::new(Verb::Move(understood.clone()))),
            Ok(Answer::GroupState(_) | Answer::Group(_) | Answer::Reused(_) | Answer::Was(false)) | Err(_) => {}
            Ok(Answer::Custom(Came::Was(false) | Came::Withdrawn(Withdrawn::No))) => {}
            Ok(_) => state.done.push(verb),
        }
        let is_open = self.check_open();
        self.return_state(state);
        if !matches!(self.phase.get(), Phase::Open | Phase::Committing) {
            // It ended while this call was under way, which may have taken a group since.
            self.core.locks.release(self.number);
        }
        is_open.and(outcome)
    }

    async fn attempt(&self, verb: &Rc<Verb>, call: u64, changes: &mut Changes) -> Outcome<Answer> {
        let is_first = self.attempts.may_begin(&self.core, verb);
        let taken = changes.taken.clone();
        let outcome = self.look(verb, call, changes, is_first).await;
        let Err(stop) = outcome else { return outcome };
        // What was read with it was not received.
        changes.taken = taken;
        match stop {
            // Where there is no room for the mark of an attempt, receiving is what makes room.
            Stop::Failed(error) if is_first && error.code() == ErrorCode::QuotaExceeded => {
                self.look(verb, call, changes, false).await
            }
            stop => Err(stop),
        }
    }

    /// Runs a verb for what it would give. `is_first`: the attempt begins with what it receives.
    async fn look(&self, verb: &Rc<Verb>, call: u64, changes: &mut Changes, is_first: bool) -> Outcome<Answer> {
        // What was read for an earlier call may have changed since.
        changes.forget_unchanged();
        // The mark of an attempt is for tabs that die; a machine that dies may take it along.
        let mode = if is_first { Mode::Relaxed } else { Mode::ReadOnly };
        let mut begun = None;
        let is_of_delayed = matches!(**verb, Verb::Cancel(_) | Verb::Reschedule(_) | Verb::Custom(_));
        let scope: &[StoreName] = if is_of_delayed { &StoreName::ALL } else { &VIEWED };
        let attempt = transact(&*self.core.host.store, scope, mode, async |tx| {
            self.core.check_database(tx).await?;
            let mut reads = Reads::default();
            let mut driver = Driver { call, ..Driver::new(&self.core, tx, &mut reads, changes) };
            let purpose = Purpose::View(self.number);
            let answer = match driver.run(purpose, |work| verb.run(work)).await {
                Err(Stop::Stale) => {
                    driver.read_definitions().await?;
                    driver.run(purpose, |work| verb.run(work)).await
                }
                outcome => outcome,
            }?;
            if let Answer::Received(_, takes) = &answer
                && let Some(first) = takes.first().filter(|_| is_first)
            {
                let catalog = Rc::clone(&driver.catalog);
                begun = self.attempts.begin(&self.core, tx, catalog, first.side, &driver.changes.late).await?;
            }
            Ok::<_, Stop>(answer)
        });
        let answer = attempt.await?;
        if let Some(begun) = begun {
            self.attempts.begun(&self.core, begun)?;
            if !self.is_open() {
                self.attempts.withdraw(&self.core);
            }
        }
        Ok(answer)
    }

    /// One call after the other, in the order in which they were made.
    async fn borrow_state(&self) -> Result<State> {
        loop {
            self.check_open()?;
            if let Some(state) = self.state.take() {
                return Ok(state);
            }
            let (sender, receiver) = oneshot::channel();
            self.waiting.borrow_mut().push(sender);
            // However the call before this one ended, it is over.
            let _ = receiver.await;
        }
    }

    fn return_state(&self, state: State) {
        if self.is_open() {
            self.state.replace(Some(state));
        } else if !state.done.is_empty() {
            self.count_rollback();
        }
        let mut waiting = self.waiting.borrow_mut();
        // One that was dropped while it waited is passed over.
        while !waiting.is_empty() && waiting.remove(0).send(()).is_err() {}
    }
}
