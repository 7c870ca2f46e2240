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
        "VersionError" => Error::new(
            ErrorCode::VersionTooNew,
            "The database was written by a newer build, or by something else. Reload the page, or update the app, to run that build; if it is not a broker's, choose another name.",
        ),
        _ => refused(&name, &text),
    };
    error.caused_by(Value(exception))
}

/// What an error of `idb` means: the exception inside it, where there is one.
pub(super) fn from_idb(error: idb::Error) -> Error {
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
        | E::UpdateFailed(cause) => from_exception(cause),
        // Not spelled out: its texts would weigh more than all of this file.
        _ => refused("Error", "IndexedDB gave something unexpected."),
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
