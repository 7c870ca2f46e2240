//! What is done in the database for transmission, a verb each.

use super::hurry::Hurry;
use super::pick::{Pick, Picked};
use super::settle::Settle;
use crate::stop::Outcome;
use crate::store::Key;
use crate::work::Work;

/// What is done in the database for transmission.
#[derive(Debug)]
pub(crate) enum Step {
    Pick(Pick),
    Settle(Settle),
    Hurry(Hurry),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    Picked(Picked),
    /// So many messages have left, or were accepted.
    Sent(u64),
    /// Where the next page begins.
    Hurried(Option<Key>),
}

impl Step {
    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        match self {
            Self::Settle(settle) => settle.size(),
            _ => 0.0,
        }
    }

    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Came> {
        match self {
            Self::Pick(pick) => pick.run(work).map(Came::Picked),
            Self::Settle(settle) => settle.run(work).map(Came::Sent),
            Self::Hurry(hurry) => hurry.run(work).map(Came::Hurried),
        }
    }
}
