//! Transactions that have not finished, and who waits for their end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbTransaction};

use super::error::{cause_of_abort, lost};
use crate::error::{Error, Result};

/// What comes of a transaction.
pub(super) type Outcome = oneshot::Receiver<Result<()>>;

/// The unfinished read-write transactions of a connection, and the event handlers that they share.
#[derive(Debug)]
pub(super) struct Transactions {
    running: Rc<RefCell<Vec<Rc<Running>>>>,
    on_complete: Closure<dyn Fn(Event)>,
    on_abort: Closure<dyn Fn(Event)>,
}

/// One transaction.
#[derive(Debug)]
pub(super) struct Running {
    transaction: IdbTransaction,
    /// Set once the commit was asked for: from then on a loss leaves its outcome unknown.
    committing: Cell<bool>,
    /// Why it can't commit, or did not.
    failure: RefCell<Option<Error>>,
    outcome: RefCell<Option<oneshot::Sender<Result<()>>>>,
}

impl Transactions {
    pub(super) fn new() -> Self {
        let running = Rc::<RefCell<Vec<Rc<Running>>>>::default();
        let handler = |outcome: fn(&Running) -> Result<()>| {
            let running = Rc::clone(&running);
            Closure::new(move |event: Event| {
                if let Some(finished) =
                    take(&running, |running| event.target().is_some_and(|target| **running.transaction == *target))
                {
                    finished.finish(outcome(&finished));
                }
            })
        };
        let on_complete = handler(|_| Ok(()));
        let on_abort = handler(|aborted| Err(aborted.cause_of_abort()));
        Self { running, on_complete, on_abort }
    }

    /// Follows a transaction until it completes or aborts.
    pub(super) fn follow(&self, transaction: IdbTransaction) -> (Rc<Running>, Outcome) {
        transaction.set_oncomplete(Some(self.on_complete.as_ref().unchecked_ref()));
        transaction.set_onabort(Some(self.on_abort.as_ref().unchecked_ref()));
        let (sender, outcome) = oneshot::channel();
        let running = Rc::new(Running::new(transaction));
        running.outcome.replace(Some(sender));
        self.running.borrow_mut().push(Rc::clone(&running));
        (running, outcome)
    }

    /// Stops following: its events find no handler. Returns whether it had not finished.
    pub(super) fn forget(&self, running: &Rc<Running>) -> bool {
        let unfinished = take(&self.running, |other| Rc::ptr_eq(other, running));
        if let Some(running) = &unfinished {
            running.detach();
        }
        unfinished.is_some()
    }

    /// Nobody is to wait for them any more: what is not to commit yet is aborted, and its end not waited for.
    pub(super) fn let_go(&self) {
        while let Some(running) = take(&self.running, |running| !running.is_committing()) {
            running.detach();
            running.abort();
            running.finish(Err(running.lost()));
        }
    }

    /// The connection is lost: nothing will be heard of any of them.
    pub(super) fn lose(&self) {
        for running in self.running.take() {
            running.detach();
            running.finish(Err(running.lost()));
        }
    }
}

fn take(running: &RefCell<Vec<Rc<Running>>>, is_it: impl Fn(&Rc<Running>) -> bool) -> Option<Rc<Running>> {
    let mut running = running.borrow_mut();
    running.iter().position(is_it).map(|position| running.swap_remove(position))
}

impl Running {
    /// A transaction that nobody follows.
    pub(super) fn new(transaction: IdbTransaction) -> Self {
        Self { transaction, committing: Cell::new(false), failure: RefCell::default(), outcome: RefCell::default() }
    }

    pub(super) fn transaction(&self) -> &IdbTransaction {
        &self.transaction
    }

    /// From now on only its events tell what became of it.
    pub(super) fn set_committing(&self) {
        self.committing.set(true);
    }

    pub(super) fn is_committing(&self) -> bool {
        self.committing.get()
    }

    /// Asks for the commit without waiting for the requests to be answered first. It is only a hint: a transaction that has finished, or a
    /// browser that lacks it, does without.
    pub(super) fn commit(&self) {
        #[expect(deprecated, reason = "IndexedDB 3 has brought it back")]
        let _ = self.transaction.commit();
    }

    pub(super) fn abort(&self) {
        // It throws if the transaction has finished.
        let _ = self.transaction.abort();
    }

    pub(super) fn cause_of_abort(&self) -> Error {
        cause_of_abort(&self.transaction, self.committing.get())
    }

    pub(super) fn lost(&self) -> Error {
        lost(self.committing.get())
    }

    /// Why it can't commit, or did not.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// It must not commit any more.
    pub(super) fn fail(&self, error: Error) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    fn finish(&self, outcome: Result<()>) {
        if let Err(error) = &outcome {
            self.fail(error.clone());
        }
        if let Some(sender) = self.outcome.take() {
            // Nobody listens if the future was dropped.
            let _ = sender.send(outcome);
        }
    }

    fn detach(&self) {
        self.transaction.set_oncomplete(None);
        self.transaction.set_onabort(None);
    }
}
