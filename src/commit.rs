//! Group commit: verbs that were issued together share one storage transaction.
//!
//! What comes while a storage transaction runs waits for the next one, so ten thousand calls without `await` need a handful. Each verb still
//! stands for itself: one that is refused fails alone, and when the shared transaction fails because of one of them, they are tried in
//! smaller parts until only the guilty one fails.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;

use crate::changes::Changes;
use crate::core::Core;
use crate::definitions::Catalog;
use crate::driver::Driver;
use crate::error::{Error, ErrorCode, Result};
use crate::lease::Leases;
use crate::notice::Notice;
use crate::reads::Reads;
use crate::retention;
use crate::stats::{Counts, Tally};
use crate::stop::{Outcome, Stop};
use crate::store::{Mode, StoreName, Tx, transact};
use crate::verbs::{Answer, Verb};
use crate::work::Purpose;

/// The most verbs, and bytes of bodies, in one storage transaction.
const VERBS: usize = 4_096;
const BYTES: f64 = 16_777_216.0;

/// The stores that messages go through: a narrower scope costs less, and lets readers of the other stores go on.
const PLAIN: [StoreName; 9] = [
    StoreName::Meta,
    StoreName::Queues,
    StoreName::Conversations,
    StoreName::Members,
    StoreName::Messages,
    StoreName::Bodies,
    StoreName::Turns,
    StoreName::Due,
    StoreName::Seen,
];

/// Says that the caller does not want it any more.
pub type Cancelled = Rc<dyn Fn() -> bool>;

/// How often a batch asks for locks that were not guessed.
const ASKS: u32 = 4;

struct Command {
    verb: Rc<Verb>,
    purpose: Purpose,
    call: u64,
    cancelled: Option<Cancelled>,
    tally: Option<Rc<Tally>>,
    answer: oneshot::Sender<Outcome<Answer>>,
}

/// What came of a command, and what is to be counted once it is committed.
type Done = (Outcome<Answer>, Counts);

/// The commands that wait, and whether somebody is at work on them.
#[derive(Default)]
pub(crate) struct GroupCommit {
    waiting: RefCell<VecDeque<Command>>,
    running: Cell<bool>,
    idle: RefCell<Vec<oneshot::Sender<()>>>,
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").field("waiting", &self.waiting.borrow().len()).finish_non_exhaustive()
    }
}

impl Core {
    /// Runs a verb with the others that wait and resolves after the commit. `tally`: whose doing it is; `None`: the context's own.
    pub(crate) fn commit(
        self: &Rc<Self>,
        verb: Rc<Verb>,
        purpose: Purpose,
        call: u64,
        cancelled: Option<Cancelled>,
        tally: Option<Rc<Tally>>,
    ) -> impl Future<Output = Outcome<Answer>> + use<> {
        let (answer, outcome) = oneshot::channel();
        self.commits.waiting.borrow_mut().push_back(Command { verb, purpose, call, cancelled, tally, answer });
        if !self.commits.running.replace(true) {
            let core = Rc::clone(self);
            (self.host.spawn)(async move { core.work_off().await }.boxed_local());
        }
        outcome.map(|outcome| outcome.unwrap_or_else(|_| Err(Error::closed().into())))
    }

    /// Resolves once nothing waits to be committed.
    pub(crate) async fn idle(&self) {
        if self.commits.running.get() {
            let (sender, receiver) = oneshot::channel();
            self.commits.idle.borrow_mut().push(sender);
            // Either way nothing is running any more.
            let _ = receiver.await;
        }
    }

    async fn work_off(self: Rc<Self>) {
        loop {
            let batch = self.commits.next();
            if batch.is_empty() {
                break;
            }
            self.commit_together(batch).await;
        }
        self.commits.running.set(false);
        self.commits.idle.take().into_iter().for_each(|waiter| _ = waiter.send(()));
    }

    /// Commits a batch, and halves it until only the guilty fail.
    async fn commit_together(self: &Rc<Self>, batch: Vec<Command>) {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            match self.attempt(&part).await {
                Ok(outcomes) => {
                    for (command, (outcome, counts)) in part.into_iter().zip(outcomes) {
                        if outcome.is_ok() {
                            self.count(command.tally.as_ref(), &counts);
                        }
                        drop(command.answer.send(outcome));
                    }
                }
                Err(error) => {
                    self.forget_uncommitted();
                    if part.len() == 1 || error.is_storage() {
                        part.into_iter().for_each(|command| drop(command.answer.send(Err(error.clone().into()))));
                    } else {
                        // In order: what was issued first is committed first.
                        let second = part.split_off(part.len() / 2);
                        parts.extend([second, part]);
                    }
                }
            }
        }
    }

    /// One storage transaction for all of them. When the definitions turn out to be old, another one reads them and goes on by them.
    async fn attempt(self: &Rc<Self>, batch: &[Command]) -> Result<Vec<Done>> {
        let (mut is_stale, mut retried, mut asks) = (false, false, ASKS);
        let guesses = batch.iter().filter(|command| command.purpose == Purpose::Commit);
        let guesses =
            guesses.flat_map(|command| command.verb.guess_groups(self).into_iter().map(|group| (group, command.call)));
        self.locks.ask_all(guesses.collect()).await;
        let is_plain = batch.iter().all(|command| command.verb.is_plain());
        loop {
            let scope: &[StoreName] = if is_plain && !is_stale { &PLAIN } else { &StoreName::ALL };
            if asks > 0 {
                self.locks.assume();
            }
            let closings = self.gate.closings();
            let attempt =
                transact(&*self.host.store, scope, Mode::ReadWrite, async |tx| self.run_all(tx, batch, is_stale).await);
            let outcome = attempt.await;
            let wanted = self.locks.assumed();
            match outcome {
                Ok((outcomes, notice, catalog, block)) => {
                    self.keep_catalog(catalog);
                    self.keep_block(block);
                    self.announce(&notice);
                    crate::sweep::after_commit(self);
                    return Ok(outcomes);
                }
                // All of them wait for the locks: they stay in order.
                Err(Stop::Wanted(_)) if !wanted.is_empty() => {
                    self.forget_uncommitted();
                    asks = asks.saturating_sub(1);
                    self.locks.ask_all(wanted).await;
                }
                Err(Stop::Stale) if !is_stale => is_stale = true,
                Err(Stop::Failed(error)) if self.was_suspended(&error, closings) => self.forget_uncommitted(),
                // It was rolled back, and whatever did it may have passed (D27).
                Err(Stop::Failed(error)) if !retried && error.is_rolled_back() => {
                    self.forget_uncommitted();
                    retried = true;
                }
                Err(stop) => return Err(stop.into()),
            }
        }
    }

    async fn run_all(
        self: &Rc<Self>,
        tx: &Tx,
        batch: &[Command],
        is_stale: bool,
    ) -> Outcome<(Vec<Done>, Notice, Rc<Catalog>, (u64, u64))> {
        self.check_database(tx).await?;
        let (mut reads, mut changes) = (Reads::default(), Changes::default());
        for command in batch {
            command.verb.guess(self, &mut reads);
            if let Purpose::CommitOf(transaction) = command.purpose {
                Leases::want(&mut reads, &self.locks.leases_of(transaction));
            }
        }
        let mut driver = Driver::new(self, tx, &mut reads, &mut changes);
        if is_stale {
            driver.read_definitions().await?;
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        for command in batch {
            if command.cancelled.as_ref().is_some_and(|cancelled| cancelled()) {
                outcomes.push((Err(aborted().into()), Counts::default()));
                continue;
            }
            driver.call = command.call;
            let mut effects = driver.changes.effects;
            let mut outcome = driver.run(command.purpose, |work| command.verb.run(work)).await;
            if matches!(outcome, Err(Stop::Later)) {
                driver.hand_over().await?;
                effects = driver.changes.effects;
                outcome = driver.run(command.purpose, |work| command.verb.run(work)).await;
            }
            match outcome {
                Err(Stop::Stale) => return Err(Stop::Stale),
                // Half of it is done: it has to be undone, and with it what shares its storage transaction.
                Err(stop) if driver.changes.effects != effects => return Err(Error::from(stop).into()),
                Err(Stop::Failed(error)) if error.is_storage() => return Err(error.into()),
                outcome => outcomes.push((outcome, std::mem::take(&mut driver.changes.counts))),
            }
        }
        if let Some(group) = self.locks.first_assumed() {
            return Err(Stop::Wanted(group));
        }
        driver.hand_over().await?;
        if driver.run(Purpose::Commit, retention::bound).await? {
            driver.hand_over().await?;
        }
        let catalog = driver.catalog;
        changes.notice.settle();
        Ok((outcomes, changes.notice, catalog, changes.block))
    }
}

impl GroupCommit {
    fn next(&self) -> Vec<Command> {
        let mut waiting = self.waiting.borrow_mut();
        let mut size = 0.0;
        let fits = |command: &&Command| {
            size += command.verb.size();
            size <= BYTES
        };
        let length = waiting.iter().take(VERBS).take_while(fits).count().max(1).min(waiting.len());
        waiting.drain(..length).collect()
    }
}

/// The caller gave up before the storage transaction began.
pub(crate) fn aborted() -> Error {
    Error::new(ErrorCode::Timeout, "The call was aborted before anything was stored.").with("aborted", true)
}
