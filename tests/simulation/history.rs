//! Who called what, when, and what came of it.

use std::cell::RefCell;

use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode};

use crate::calls::{Answer, Call};
use crate::executor::{TabId, TaskId};

/// What is known of how a call ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// It was not possible, and the model must say so too.
    Refused(ErrorCode),
    /// Certainly nothing has happened.
    Nothing,
    /// The tab died, or the connection was lost: only a look can tell.
    Unknown,
}

/// A call. Numbers are those of commits: the next one when it was made, and the next one when it was over.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) tab: TabId,
    pub(crate) task: TaskId,
    pub(crate) call: Call,
    pub(crate) at: f64,
    pub(crate) issued: usize,
    pub(crate) over: usize,
    pub(crate) outcome: Option<Outcome>,
}

/// All calls since the last look.
#[derive(Default)]
pub(crate) struct History(RefCell<Vec<Record>>);

impl History {
    /// A call is made. Gives its number.
    pub(crate) fn issue(&self, tab: TabId, task: TaskId, call: Call, at: f64, commits: usize) -> usize {
        let mut records = self.0.borrow_mut();
        records.push(Record { tab, task, call, at, issued: commits, over: usize::MAX, outcome: None });
        records.len() - 1
    }

    pub(crate) fn resolve(&self, number: usize, outcome: Outcome, commits: usize) {
        let mut records = self.0.borrow_mut();
        (records[number].outcome, records[number].over) = (Some(outcome), commits);
    }

    /// A tab is gone: nobody will hear how its calls ended.
    pub(crate) fn crash(&self, tab: TabId, commits: usize) {
        let mut records = self.0.borrow_mut();
        for record in records.iter_mut().filter(|record| record.tab == tab && record.outcome.is_none()) {
            (record.outcome, record.over) = (Some(Outcome::Unknown), commits);
        }
    }

    /// Calls that are not over.
    pub(crate) fn running(&self) -> Vec<Record> {
        self.0.borrow().iter().filter(|record| record.outcome.is_none()).cloned().collect()
    }

    /// Whether a transaction of a tab is being committed.
    pub(crate) fn commits(&self, tab: TabId) -> bool {
        let is_commit =
            |record: &Record| record.tab == tab && record.outcome.is_none() && matches!(record.call, Call::Commit(_));
        self.0.borrow().iter().any(is_commit)
    }

    /// Everything that is over, and forgets it.
    pub(crate) fn take(&self) -> Vec<Record> {
        self.0.take()
    }
}

/// What an error says about what has happened. `None`: the database can't be read.
pub(crate) fn outcome_of(error: &Error) -> Option<Outcome> {
    let is_unknown =
        |(name, value): &(&'static str, Value)| *name == "outcome" && value.text().as_deref() == Some("unknown");
    match error.code() {
        ErrorCode::StorageCorrupt => None,
        _ if error.details().iter().any(is_unknown) => Some(Outcome::Unknown),
        ErrorCode::StorageLost
        | ErrorCode::StorageUnavailable
        | ErrorCode::QuotaExceeded
        | ErrorCode::GroupLocked
        | ErrorCode::Timeout => Some(Outcome::Nothing),
        ErrorCode::Closed => Some(Outcome::Unknown),
        code => Some(Outcome::Refused(code)),
    }
}
