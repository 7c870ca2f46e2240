//! The storage port: transactions over object stores, and nothing above them.
//!
//! A [`Store`] is IndexedDB (`IndexedDbStore`, in browsers), memory that obeys the same awkward rules ([`MemoryStore`]), or another store
//! that fails on purpose ([`FaultStore`]). All pass one conformance suite. The rules know this module only.

mod failure;
mod fault;
#[cfg(target_arch = "wasm32")]
mod indexed_db;
mod key;
mod memory;
mod schema;
mod transact;

pub use fault::{Fault, FaultStore, Faults, Operation};
#[cfg(target_arch = "wasm32")]
pub use indexed_db::{CloseReason, IndexedDbOptions, IndexedDbStore, delete_database};
pub use key::{Bound, Key, Range};
pub use memory::MemoryStore;
pub use schema::{ORDER_INDEX, ORDER_INDEX_PATH, StoreName, VERSION};
pub use transact::{Tx, transact};

use futures_util::future::LocalBoxFuture;

use crate::body::Value;
use crate::error::Result;

/// Whether a storage transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shares its stores with other readers.
    ReadOnly,
    /// Has its stores for itself, over all tabs.
    ReadWrite,
    /// The same, and its commit need not wait for the disk: what it writes may go with a crash of the whole machine.
    Relaxed,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The disk: a crash of the whole machine loses nothing.
    #[default]
    Strict,
    /// The operating system: a crash of the browser loses nothing.
    Relaxed,
}

/// Which way a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Lowest key first.
    Forward,
    /// Highest key first.
    Backward,
}

/// What a range is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A store, by its primary keys.
    Store(StoreName),
    /// The index `order` of `messages`, by [service, first order].
    Order,
}

impl Source {
    /// The object store that the values come from.
    pub fn store(self) -> StoreName {
        match self {
            Self::Store(store) => store,
            Self::Order => StoreName::Messages,
        }
    }
}

impl From<StoreName> for Source {
    fn from(name: StoreName) -> Self {
        Self::Store(name)
    }
}

/// A write. Writes take effect in the order in which they were given.
#[derive(Clone, Debug)]
pub enum Change {
    /// Stores a value, in place of one with the same key.
    Put(StoreName, Key, Value),
    /// Removes a value; nothing happens where there is none.
    Delete(StoreName, Key),
    /// Removes every value in a range.
    DeleteRange(StoreName, Range),
}

impl Change {
    /// The object store that is written.
    pub fn store(&self) -> StoreName {
        match self {
            Self::Put(store, ..) | Self::Delete(store, _) | Self::DeleteRange(store, _) => *store,
        }
    }
}

/// Something that keeps object stores.
pub trait Store {
    /// Begins a storage transaction over `scope`.
    ///
    /// # Errors
    /// `StorageUnavailable`, `StorageLost`, `VersionTooNew`, `UpgradeBlocked`, `Closed`: nothing has happened then.
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>>;

    /// Lets go of the connection. Running transactions finish; later ones are refused with `Closed`.
    fn close(&self);

    /// Lets go of the connection, until the next transaction opens another one. What runs is rolled back with `StorageLost`, unless its commit was
    /// asked for.
    fn let_go(&self) {}

    /// How many connections there have been. One that was opened because the last was lost may lead to another database.
    fn connections(&self) -> u64 {
        1
    }
}

/// One storage transaction.
///
/// Requests are answered in the order in which they were made, so a read sees the writes before it. A session that is dropped without
/// [`Session::commit`] rolls back. It also ends by itself (auto-close) once no request is outstanding and control has returned to the
/// event loop: nothing but its own futures may be awaited while it is open. An empty range holds nothing; it is no error.
pub trait Session {
    /// One value.
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>>;
    /// Up to `limit` values, in the order of their keys (`None`: all of them).
    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>>;
    /// Up to `limit` primary keys, in the order of their keys in `source`.
    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>>;
    /// How many keys a range holds.
    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>>;
    /// Issues a write. Its failure shows here (a value that can't be stored), at a later read, or at [`Session::commit`].
    ///
    /// # Errors
    /// `NotCloneable`, `MessageTooLarge`, `StorageUnavailable`: the transaction can't commit any more.
    fn write(&self, change: Change) -> Result<()>;
    /// Asks for the commit and resolves after it is complete. An abort gives its cause: `QuotaExceeded`, `StorageUnavailable`…
    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>>;
    /// Undoes everything and resolves once that has been done.
    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}
