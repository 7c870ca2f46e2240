//! What IndexedDB's exceptions mean. The only place that looks at their names.

use js_sys::Reflect;
use wasm_bindgen::JsValue;
use web_sys::IdbTransaction;

use super::super::failure::{connection_lost, outcome_unknown, refused};
use crate::body::Value;
use crate::error::{Error, ErrorCode};

/// What an exception means. It goes along as the cause.
pub(super) fn from_exception(exception: JsValue) -> Error {
    let name = string(&exception, "name");
    let text = string(&exception, "message");
    let error = match name.as_str() {
        // Browsers disagree about the name, not about the words.
        _ if text.contains("too large") || text.contains("out of memory") => {
            Error::new(ErrorCode::MessageTooLarge, format!("The browser can't store a value of this size: {text}"))
        }
        "QuotaExceededError" => Error::new(
            ErrorCode::QuotaExceeded,
            "The browser gives this site no more space. Delete data, or free space on the device, and try again.",
        ),
        "DataCloneError" => Error::new(ErrorCode::NotCloneable, format!("The value can't be stored: {text}")),
        _ => refused(&name, &text),
    };
    error.caused_by(Value(exception))
}

/// What an exception means that came of opening or deleting a database.
pub(super) fn from_opening(database: &str, exception: JsValue) -> Error {
    let (name, text) = (string(&exception, "name"), string(&exception, "message"));
    if name == "VersionError" {
        return Error::new(
            ErrorCode::VersionTooNew,
            format!("The database \"{database}\" was written by a newer build, or by something else. Reload the page, or update the app, to run that build; if it is not a broker's, choose another name."),
        )
        .with("name", database)
        .caused_by(Value(exception));
    }
    let error = from_exception(exception.clone());
    if error.code() != ErrorCode::StorageUnavailable {
        return error.with("name", database);
    }
    let said = text.trim_end_matches('.');
    Error::new(
        ErrorCode::StorageUnavailable,
        format!("The browser refuses the database \"{database}\" ({name}: {said}). Allow this site to store data, or leave private browsing, and try again; `storage: \"memory\"` works without."),
    )
    .with("name", database)
    .with("exception", &*name)
    .with("text", &*text)
    .caused_by(Value(exception))
}

/// What an error of `idb` means.
pub(super) fn from_idb(error: idb::Error) -> Error {
    // Not spelled out what it can be: the texts of `idb` would weigh more than all of this file.
    exception_of(error).map_or_else(|| refused("Error", "IndexedDB gave something unexpected"), from_exception)
}

/// The exception inside an error of `idb`, where there is one.
pub(super) fn exception_of(error: idb::Error) -> Option<JsValue> {
    use idb::Error as E;
    match error {
        E::CountFailed(cause)
        | E::CursorContinueFailed(cause)
        | E::CursorValueNotFound(cause)
        | E::DeleteFailed(cause)
        | E::GetAllFailed(cause)
        | E::GetAllKeysFailed(cause)
        | E::GetFailed(cause)
        | E::IndexCreateFailed(cause)
        | E::IndexedDbDeleteFailed(cause)
        | E::IndexedDbOpenFailed(cause)
        | E::IndexNotFound(cause)
        | E::KeyRangeCreateFailed(cause)
        | E::ObjectStoreCreateFailed(cause)
        | E::ObjectStoreNotFound(cause)
        | E::OpenCursorFailed(cause)
        | E::UpdateFailed(cause) => Some(cause),
        _ => None,
    }
}

/// Why a transaction aborted that was not told to. `committing`: its commit had been asked for.
pub(super) fn cause_of_abort(transaction: &IdbTransaction, committing: bool) -> Error {
    match transaction.error() {
        Some(exception) if !is_loss(&exception) => from_exception(exception.into()),
        _ => lost(committing),
    }
}

/// What a lost connection means for a transaction.
pub(super) fn lost(committing: bool) -> Error {
    if committing { outcome_unknown() } else { connection_lost() }
}

/// Whether the exception says that the connection or the transaction is over.
pub(super) fn is_over(exception: &JsValue) -> bool {
    string(exception, "name") == "InvalidStateError"
}

/// Whether the exception only says that the connection went away, taking the transaction with it. Nobody but the browser aborts so.
pub(super) fn is_loss(exception: &JsValue) -> bool {
    // The text is WebKit's, for the death of its storage process.
    string(exception, "name") == "AbortError" || string(exception, "message").contains("Database server lost")
}

fn string(object: &JsValue, name: &str) -> String {
    Reflect::get(object, &name.into()).ok().and_then(|value| value.as_string()).unwrap_or_default()
}
