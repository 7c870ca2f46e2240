//! How a transaction ends: it commits, is rolled back, or fails.

use std::rc::Rc;

use super::{Loss, Phase, Transaction};
use crate::call::unexpected;
use crate::error::{Error, ErrorCode, Result};
use crate::poison::Attempt;
use crate::recoverability::{Failure, Recover, Recoverability, Recovered};
use crate::stats::Counts;
use crate::stop::Outcome;
use crate::verbs::{Answer, Verb};
use crate::work::Purpose;

impl Transaction {
    /// Commits everything in one storage transaction and resolves after it is complete. Calls that are under way are waited for.
    ///
    /// # Errors
    /// `TransactionClosed` when another reader was faster; those of a call that is not possible any more, with `details.at` = "commit";
    /// those of the store. Nothing was done then.
    pub async fn commit(&self) -> Result<()> {
        let state = self.borrow_state().await?;
        self.phase.set(Phase::Committing);
        let outcome = if state.done.is_empty() {
            Ok(())
        } else {
            let stored = self.store_mended(Rc::new(Verb::All(state.done, self.core.gate.closings()))).await;
            stored.inspect(|()| self.core.locks.given_back(self.number))
        };
        let phase = match &outcome {
            Ok(()) => {
                self.attempts.succeed();
                Phase::Over
            }
            Err(error) => {
                self.core.runs.clear();
                self.count_rollback();
                Phase::Refused(error.code())
            }
        };
        self.end(phase);
        outcome
    }

    /// The application gives up on what it received: undoes everything, and counts it. Five in a row on one conversation are poison. `reason`: the
    /// error that it failed with, if it was one of the broker's; trouble with the storage or with locks is not the messages' fault.
    pub async fn fail(&self, reason: Option<ErrorCode>) {
        if !self.is_open() || reason.is_some_and(ErrorCode::is_circumstance) {
            return self.rollback();
        }
        self.phase.set(Phase::Committing);
        self.core.runs.clear();
        if let Some(verb) = self.attempts.end(Attempt::Failed) {
            // What can't be stored leaves the mark of the attempt: it counts as one that never ended.
            let _ = self.store(verb).await;
        }
        self.end(Phase::Over);
    }

    /// Whether it ended by nobody's doing: its locks were taken away, or its broker was closed under it.
    pub fn is_lost(&self) -> bool {
        let phase = self.phase.get();
        matches!(
            phase,
            Phase::Closed | Phase::Lost(_) | Phase::Refused(ErrorCode::TransactionClosed | ErrorCode::Closed)
        )
    }

    /// Whether its commit failed by the storage.
    pub fn is_unstored(&self) -> bool {
        matches!(self.phase.get(), Phase::Refused(code) if code.is_trouble())
    }

    /// Rolls back because the handler of what was received first has failed, whatever it failed with, and counts that: says what comes next. After a
    /// commit that failed, too. `None`: the transaction is lost, or the storage failed its commit. That is nobody's failure, and nothing is counted.
    ///
    /// # Errors
    /// Those of the store: nothing was counted.
    pub async fn recover(&self, failure: Failure, policy: Recoverability) -> Result<Option<Recovered>> {
        let first = self.first.borrow_mut().take();
        let Some((id, row)) = first.filter(|_| !self.is_lost() && !self.is_unstored()) else {
            self.rollback();
            return Ok(None);
        };
        let is_open = self.is_open();
        if is_open {
            self.phase.set(Phase::Committing);
            self.core.runs.clear();
        }
        let recover = Recover { id, row, attempts: self.attempts.take(), failure, policy };
        let purpose = if is_open { Purpose::CommitOf(self.number) } else { Purpose::Commit };
        let outcome =
            self.core.commit(Rc::new(Verb::Recover(recover)), purpose, 0, None, Some(Rc::clone(&self.tally))).await;
        if is_open {
            self.end(Phase::Over);
        }
        match outcome? {
            Answer::Recovered(recovered) => Ok(Some(recovered)),
            _ => Err(unexpected()),
        }
    }

    /// Undoes everything: what was received is ready again, what was sent never was.
    pub fn rollback(&self) {
        if self.is_open() {
            // Bodies that were handed out are not handed out again: they are read anew.
            self.core.runs.clear();
            self.end(Phase::Over);
        }
    }

    /// Lets a call that waits look whether it is still wanted.
    pub fn nudge(&self) {
        self.core.bell.ring_all();
    }

    /// The broker is closed: rolls back, and later calls say so.
    pub(crate) fn close(&self) {
        if self.is_open() {
            self.core.runs.clear();
            self.end(Phase::Closed);
        }
    }

    /// It can't commit any more: rolls back and says so. One whose commit is on its way is left to the storage, which knows.
    pub(crate) fn lose(&self, loss: Loss) {
        if self.is_open() {
            self.core.runs.clear();
            let lost = self.on_lost.take();
            self.end(Phase::Lost(loss));
            lost.into_iter().for_each(|lost| lost(&loss.error()));
        }
    }

    /// Stores, and once more when a record was in the way that could be mended.
    async fn store_mended(&self, verb: Rc<Verb>) -> Result<()> {
        let mut mended = None;
        loop {
            match self.store(Rc::clone(&verb)).await.map_err(Error::from) {
                Err(error) if self.core.mend(&error, &mut mended).await? => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    async fn store(&self, verb: Rc<Verb>) -> Outcome<Answer> {
        self.core.commit(verb, Purpose::CommitOf(self.number), 0, None, Some(Rc::clone(&self.tally))).await
    }

    pub(super) fn count_rollback(&self) {
        self.tally.add(&Counts { rollbacks: 1, ..Counts::default() });
    }

    fn end(&self, phase: Phase) {
        self.phase.set(phase);
        // It may hold what holds this transaction.
        drop(self.on_lost.take());
        // A commit has taken it; a call that runs has it, and finds that it is over.
        if self.state.take().is_some_and(|state| !state.done.is_empty()) {
            self.count_rollback();
        }
        self.attempts.withdraw(&self.core);
        self.core.locks.release(self.number);
        self.core.bell.ring_all();
        self.waiting.take().into_iter().for_each(|waiter| _ = waiter.send(()));
    }
}
