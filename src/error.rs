//! Errors: one code per meaning, in one table.

use std::fmt;

use crate::body::Value;
use crate::store::Key;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, why, and what to do.
// In a box: results are everywhere, and errors are rare.
#[derive(Clone)]
pub struct Error(Box<Facts>);

#[derive(Clone)]
struct Facts {
    code: ErrorCode,
    message: String,
    number: Option<u16>,
    details: Vec<(&'static str, Value)>,
    cause: Option<Value>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident, $retryable:literal, $number:expr;)+) => {
        /// The meaning of an [`Error`]. JavaScript sees the name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[doc = $doc])+ $name,)+ }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name, as JavaScript sees it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Whether the same call may work later.
            pub fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)+ }
            }

            /// SQL Server's number for the same condition, where there is one. A verb may give a more exact one.
            pub fn number(self) -> Option<u16> {
                match self { $(Self::$name => $number,)+ }
            }
        }
    };
}

codes! {
    /// An argument is not what the call takes.
    InvalidArgument, false, None;
    /// There is one of this name already.
    AlreadyExists, false, None;
    /// A definition says something else than the one that exists.
    DefinitionConflict, false, None;
    /// Something else still needs it.
    InUse, false, None;
    /// No queue of this name.
    QueueNotFound, false, None;
    /// No service of this name here.
    ServiceNotFound, false, Some(8423);
    /// No contract of this name.
    ContractNotFound, false, Some(8425);
    /// No message type of this name.
    MessageTypeNotFound, false, Some(8428);
    /// No conversation endpoint has this handle: it has ended, or never was.
    ConversationNotFound, false, Some(8426);
    /// No conversation is in this group.
    GroupNotFound, false, Some(8436);
    /// The group belongs to another service.
    GroupInvalid, false, Some(9610);
    /// Another reader holds the group.
    GroupLocked, true, Some(1222);
    /// The endpoint's state does not allow it.
    InvalidState, false, None;
    /// The contract does not have this message type.
    NotInContract, false, Some(8431);
    /// The contract gives this message type to the other side.
    WrongDirection, false, None;
    /// The body is not what its message type asks for.
    ValidationFailed, false, Some(8430);
    /// The value can't be stored: structured clone refuses it.
    NotCloneable, false, None;
    /// The body is larger than allowed.
    MessageTooLarge, false, Some(8459);
    /// The queue is off.
    QueueDisabled, true, Some(9617);
    /// A lifetime out of range.
    InvalidLifetime, false, Some(8411);
    /// A timer beyond the conversation's lifetime.
    TimerBeyondLifetime, false, Some(8410);
    /// END WITH ERROR without a code above 0 or without a description.
    InvalidEndError, false, Some(8422);
    /// It took too long.
    Timeout, true, None;
    /// The far side answered with an error.
    RemoteError, false, None;
    /// Somebody else was faster.
    Conflict, true, None;
    /// The transaction is over, or has lost its locks.
    TransactionClosed, true, None;
    /// The delayed message store can't honour the transaction mode.
    UnsupportedTransactionMode, false, None;
    /// The delayed message store failed.
    DelayedStoreFailed, true, None;
    /// This build, browser or store can't do it.
    NotSupported, false, None;
    /// The browser gives no more space.
    QuotaExceeded, true, None;
    /// IndexedDB is missing, refused or failed.
    StorageUnavailable, true, None;
    /// The connection was lost in the middle.
    StorageLost, true, None;
    /// A stored value can't be read.
    StorageCorrupt, false, None;
    /// Another tab with an older build holds the database open.
    UpgradeBlocked, true, None;
    /// The database was written by a newer build.
    VersionTooNew, false, None;
    /// The WebAssembly module could not be loaded.
    LoadFailed, true, None;
    /// The broker is closed.
    Closed, false, None;
    /// The WebAssembly instance has stopped.
    Terminated, false, None;
}

impl ErrorCode {
    /// Whether a commit that failed with it says nothing about the messages in it: it is the storage's trouble.
    pub(crate) fn is_trouble(self) -> bool {
        let error = Error::new(self, "");
        error.is_storage() || error.is_corrupt() || matches!(self, Self::QuotaExceeded | Self::Terminated)
    }

    /// Whether an error of this code, which ended an application's transaction, says nothing about the messages in it: it is the storage's
    /// trouble, or another reader's.
    pub(crate) fn is_circumstance(self) -> bool {
        self.is_trouble() || matches!(self, Self::TransactionClosed | Self::GroupLocked)
    }

    /// The code with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl Error {
    /// An error with the code's own number and no details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Facts { code, message: message.into(), number: code.number(), details: Vec::new(), cause: None }))
    }

    /// An argument that the call can't take.
    pub fn invalid_argument(argument: &str, problem: &str) -> Self {
        Self::new(ErrorCode::InvalidArgument, format!("`{argument}` {problem}.")).with("argument", argument)
    }

    /// A stored value that can't be read.
    pub fn corrupt(store: &str, key: &Key, problem: &str) -> Self {
        Self::new(
            ErrorCode::StorageCorrupt,
            format!(
                "A record of the object store \"{store}\" can't be read ({problem}). Key: {key}. It was left as it is."
            ),
        )
        .with("store", store)
        .with("key", key.to_value())
        .with("problem", problem)
    }

    /// A broker, or its connection, that has been closed.
    pub fn closed() -> Self {
        Self::new(ErrorCode::Closed, "The broker is closed. Open it again with openBroker.")
    }

    /// A storage transaction awaited something that is not its own.
    pub(crate) fn foreign_await() -> Self {
        Self::new(
            ErrorCode::StorageUnavailable,
            "A storage transaction awaited something that is not one of its own requests. IndexedDB would have committed half of it; it was rolled back.",
        )
        .with("foreignAwait", true)
    }

    /// The same error with one more detail.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.details.push((name, value.into()));
        self
    }

    /// The same error with another number of SQL Server's.
    #[must_use]
    pub fn numbered(mut self, number: u16) -> Self {
        self.0.number = Some(number);
        self
    }

    /// Whether somebody has not answered in time.
    pub(crate) fn is_timeout(&self) -> bool {
        self.details().iter().any(|(name, _)| *name == "timeout")
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn caused_by(mut self, cause: Value) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// What it means.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Whether the same call may work later.
    pub fn is_retryable(&self) -> bool {
        self.0.code.is_retryable()
    }

    /// SQL Server's number for the same condition, where there is one.
    pub fn number(&self) -> Option<u16> {
        self.0.number
    }

    /// What it is about, by name.
    pub fn details(&self) -> &[(&'static str, Value)] {
        &self.0.details
    }

    /// What caused it, if anything did.
    pub fn cause(&self) -> Option<&Value> {
        self.0.cause.as_ref()
    }

    /// Whether it is the storage's fault and not the call's: all that shared the storage transaction fail with it.
    pub fn is_storage(&self) -> bool {
        matches!(
            self.0.code,
            ErrorCode::StorageUnavailable
                | ErrorCode::StorageLost
                | ErrorCode::UpgradeBlocked
                | ErrorCode::VersionTooNew
                | ErrorCode::Closed
        )
    }

    /// Whether a stored value can't be read.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.0.code == ErrorCode::StorageCorrupt
    }

    /// Whether it is the storage's fault, certainly nothing was written, and the next attempt may do better.
    pub(crate) fn is_rolled_back(&self) -> bool {
        matches!(self.0.code, ErrorCode::StorageUnavailable | ErrorCode::StorageLost)
            && !self.0.details.iter().any(|(name, _)| *name == "outcome")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }
}
