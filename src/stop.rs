//! How a verb stops before its end.

use std::rc::Rc;

use crate::error::{Error, ErrorCode};
use crate::store::StoreName;

/// Why a verb stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is refused, or the storage failed.
    Failed(Error),
    /// It needs what has not been read yet.
    Missing,
    /// It has to see in the store what the verbs before it did: they are handed over first.
    Later,
    /// The definitions have changed elsewhere: they are read, and it begins again.
    Stale,
    /// Another transaction holds this group.
    Held(Rc<str>),
    /// The origin's lock of this group is to be taken first.
    Wanted(Rc<str>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Stop> for Error {
    /// For callers that neither wait nor begin again.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(error) => error,
            // The definitions were read in the same storage transaction.
            Stop::Stale | Stop::Later | Stop::Missing => Self::new(
                ErrorCode::StorageCorrupt,
                "A record of the object store \"queues\" is missing, or does not belong to the definitions that are stored beside it. It was left as it is. Delete the broker with deleteBroker to begin anew.",
            )
            .with("store", StoreName::Queues.name()),
            Stop::Held(group) | Stop::Wanted(group) => Self::new(
                ErrorCode::GroupLocked,
                format!("Another reader holds the conversation group {group}. Try again, or raise `lockTimeout` in openBroker."),
            )
            .with("group", &*group),
        }
    }
}

impl Stop {
    /// The same, naming the conversation whose record can't be read.
    pub(crate) fn about(self, handle: &str) -> Self {
        match self {
            Self::Failed(error) if error.is_corrupt() => Self::Failed(error.with("handle", handle)),
            stop => stop,
        }
    }
}

/// What a verb gives.
pub(crate) type Outcome<T> = std::result::Result<T, Stop>;

/// One of several that can't be read is passed over. Why the first could not be is kept, for when nothing else is to be had.
pub(crate) fn pass_over<T>(outcome: Outcome<T>, problem: &mut Option<Error>) -> Outcome<Option<T>> {
    match outcome {
        Err(Stop::Failed(error)) if error.is_corrupt() => {
            problem.get_or_insert(error);
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}
