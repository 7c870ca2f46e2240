//! The storage failures that every adapter reports in the same words.

use crate::error::{Error, ErrorCode};

/// The store refuses: `name` is what IndexedDB calls the refusal, and `text` what it says.
pub(super) fn refused(name: &str, text: &str) -> Error {
    let said = text.trim_end_matches('.');
    Error::new(
        ErrorCode::StorageUnavailable,
        format!(
            "The storage failed ({name}: {said}). Nothing was written: try again, and reload the page if it goes on."
        ),
    )
    .with("exception", name)
    .with("text", text)
}

/// A request on a session that has ended.
pub(super) fn finished() -> Error {
    refused(
        "TransactionInactiveError",
        "The storage transaction has finished: it awaited something that is not its own.",
    )
}

/// A write in a read-only session.
pub(super) fn read_only() -> Error {
    refused("ReadOnlyError", "The storage transaction is read-only.")
}

/// A request on an object store that the session was not begun with.
pub(super) fn out_of_scope(store: &str) -> Error {
    refused("NotFoundError", &format!("The object store \"{store}\" is not in the scope of the storage transaction."))
}

/// The connection went away before the commit was asked for: nothing was written.
pub(super) fn connection_lost() -> Error {
    Error::new(ErrorCode::StorageLost, "The connection to the database was lost. Nothing was written; try again.")
}

/// The connection went away between the commit and its answer: only a look at the data can tell what happened.
pub(super) fn outcome_unknown() -> Error {
    Error::new(
        ErrorCode::StorageLost,
        "The connection to the database was lost during the commit, which may have happened or not. Read the data before trying again.",
    )
    .with("outcome", "unknown")
}
