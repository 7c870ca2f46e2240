//! Runs verbs: reads what they miss and runs them again.

use std::rc::Rc;

use crate::changes::Changes;
use crate::core::Core;
use crate::definitions::{self, Catalog};
use crate::error::Result;
use crate::reads::Reads;
use crate::stop::{Outcome, Stop};
use crate::store::Tx;
use crate::work::{Purpose, Work};

/// What one storage transaction lends to the verbs that run in it.
pub(crate) struct Driver<'a> {
    pub(crate) core: &'a Core,
    pub(crate) tx: &'a Tx,
    /// The call that the next verb is run for.
    pub(crate) call: u64,
    pub(crate) catalog: Rc<Catalog>,
    /// The catalogue was read in this very storage transaction.
    pub(crate) is_fresh: bool,
    pub(crate) reads: &'a mut Reads,
    pub(crate) changes: &'a mut Changes,
}

impl<'a> Driver<'a> {
    /// Goes by the definitions that are known so far, for no call in particular.
    pub(crate) fn new(core: &'a Core, tx: &'a Tx, reads: &'a mut Reads, changes: &'a mut Changes) -> Self {
        Self { core, tx, call: 0, catalog: core.catalog(), is_fresh: false, reads, changes }
    }

    /// Reads the definitions within the storage transaction: from here on they are the present ones, whatever other contexts do.
    pub(crate) async fn read_definitions(&mut self) -> Result<()> {
        self.catalog = Rc::new(definitions::load(self.tx).await?);
        self.is_fresh = true;
        self.core.keep_catalog(Rc::clone(&self.catalog));
        Ok(())
    }

    /// Hands what has changed to the storage transaction: what is read afterwards sees it.
    pub(crate) async fn hand_over(&mut self) -> Outcome<()> {
        self.run(Purpose::Commit, |work| work.flush()).await?;
        std::mem::take(&mut self.changes.writes).into_iter().for_each(|change| self.tx.apply(change));
        self.changes.handed_over();
        self.reads.clear();
        Ok(())
    }

    /// Runs `verb` until it has all that it needs. Each time it misses something, what it had changed is taken back.
    pub(crate) async fn run<T>(&mut self, purpose: Purpose, verb: impl Fn(&mut Work<'_>) -> Outcome<T>) -> Outcome<T> {
        if !self.reads.is_complete() {
            self.reads.fetch(self.tx, self.changes).await?;
        }
        // One instant for all attempts: what is asked for by the time is asked for again.
        let now = self.core.host.clock.now();
        loop {
            let mark = self.changes.mark();
            let catalog = Rc::clone(&self.catalog);
            let mut work = Work {
                core: self.core,
                catalog,
                is_fresh: self.is_fresh,
                now,
                purpose,
                call: self.call,
                reads: &mut *self.reads,
                changes: &mut *self.changes,
            };
            let outcome = verb(&mut work);
            let catalog = work.catalog;
            match outcome {
                Err(Stop::Missing) => {
                    self.changes.back_to(&mark);
                    self.reads.fetch(self.tx, self.changes).await?;
                }
                Err(stop @ (Stop::Later | Stop::Stale | Stop::Wanted(_))) => {
                    self.changes.back_to(&mark);
                    return Err(stop);
                }
                outcome => {
                    self.catalog = catalog;
                    return outcome;
                }
            }
        }
    }
}
