//! What is done in the broker's database for a store of the application's own: a verb each.

use std::rc::Rc;

use super::change::{Recall, Settle, Withdraw, Withdrawn};
use super::claim::{Claim, Claimed};
use super::dispatch::{Arrive, Arrived, Incoming};
use super::hop::{NotStored, Stored};
use super::memory::Removed;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::stop::Outcome;
use crate::verbs::{Answer, Verb};
use crate::work::{Purpose, Work};

/// What is done in the broker's database for a store of the application's own.
#[derive(Debug)]
pub(crate) enum Step {
    Claim(Claim),
    Stored(Stored),
    NotStored(NotStored),
    Removed(Removed),
    Arrive(Arrive),
    Withdraw(Withdraw),
    Settle(Settle),
    Recall(Recall),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came {
    Nothing,
    Claimed(Option<Claimed>),
    Arrived(Arrived),
    Withdrawn(Withdrawn),
    Was(bool),
}

impl Step {
    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        match self {
            Self::Arrive(Arrive { incoming: Incoming::Message(delayed), .. }) => delayed.body.size,
            Self::Arrive(Arrive { incoming: Incoming::Unreadable { raw, .. }, .. }) => raw.size,
            Self::Recall(recall) => recall.message.body.size,
            _ => 0.0,
        }
    }

    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Came> {
        match self {
            Self::Claim(claim) => claim.run(work).map(Came::Claimed),
            Self::Stored(stored) => stored.run(work).map(|()| Came::Nothing),
            Self::NotStored(failed) => failed.run(work).map(|()| Came::Nothing),
            Self::Removed(removed) => removed.run(work).map(|()| Came::Nothing),
            Self::Arrive(arrive) => arrive.run(work).map(Came::Arrived),
            Self::Withdraw(withdraw) => withdraw.run(work).map(Came::Withdrawn),
            Self::Settle(settle) => settle.run(work).map(Came::Was),
            Self::Recall(recall) => recall.run(work).map(Came::Was),
        }
    }
}

impl Core {
    /// One step, in a storage transaction that it may share.
    pub(super) async fn step(self: &Rc<Self>, step: Step) -> Result<Came> {
        let verb = Rc::new(Verb::Custom(step));
        let mut mended = None;
        loop {
            match self.commit(Rc::clone(&verb), Purpose::Commit, 0, None, None).await.map_err(Error::from) {
                Err(error) if self.mend(&error, &mut mended).await.unwrap_or(false) => {}
                Ok(Answer::Custom(came)) => return Ok(came),
                Ok(_) => return Err(crate::call::unexpected()),
                Err(error) => return Err(error),
            }
        }
    }
}
