//! A store on IndexedDB, by way of the crate `idb`.
//!
//! `idb` opens databases, makes ranges and requests. Transactions are driven here, because three things decide whether a queue loses
//! messages: a commit counts only after the event `complete`; an abort has its cause in `transaction.error` and nowhere else; durability is
//! an option of `transaction()`. The event handlers belong to the connection, made once for all its transactions and requests, so a write
//! costs no closure, and a handler wakes its task in a microtask, before the transaction can close itself.

mod connection;
mod error;
mod keys;
mod open;
mod request;
mod rows;
mod session;
mod sys;
mod transaction;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use self::connection::{Connection, Fate};
pub use self::open::delete_database;
use self::session::IndexedDbSession;
use super::{Durability, Mode, Session, Store, StoreName};
use crate::error::{Error, Result};

/// Why a connection was closed from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The database is being deleted.
    Deleted,
    /// Another tab upgrades the database.
    UpgradedElsewhere,
}

/// How to open an [`IndexedDbStore`].
#[derive(Clone, Default)]
pub struct IndexedDbOptions {
    /// What a commit waits for.
    pub durability: Durability,
    /// Called after another tab made this connection close. Running transactions still finish; later ones are refused with `Closed`.
    /// The store keeps it, so it must not own the store.
    pub on_close: Option<Rc<dyn Fn(CloseReason)>>,
}

impl fmt::Debug for IndexedDbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexedDbOptions").field("durability", &self.durability).finish_non_exhaustive()
    }
}

/// A store on IndexedDB.
#[derive(Debug)]
pub struct IndexedDbStore {
    name: String,
    options: IndexedDbOptions,
    connection: RefCell<Rc<Connection>>,
    closed: Cell<bool>,
    connections: Cell<u64>,
}

impl IndexedDbStore {
    /// Opens a database, and creates it where there is none.
    ///
    /// # Errors
    /// Within 10 seconds: `UpgradeBlocked`, `VersionTooNew`, `QuotaExceeded`, or `StorageUnavailable` for everything else.
    pub async fn open(name: &str, options: IndexedDbOptions) -> Result<Self> {
        let connection = Connection::open(name, &options).await?;
        Ok(Self {
            name: name.to_owned(),
            options,
            connection: RefCell::new(connection),
            closed: Cell::new(false),
            connections: Cell::new(1),
        })
    }

    /// The connection, opened again if the last one was lost.
    async fn connection(&self) -> Result<Rc<Connection>> {
        let current = self.connection.borrow().clone();
        match self.fate(&current) {
            Fate::Open => return Ok(current),
            Fate::Closed => return Err(Error::closed()),
            Fate::Lost => {}
        }
        let opened = Connection::open(&self.name, &self.options).await?;
        let current = self.connection.borrow().clone();
        match self.fate(&current) {
            // Somebody else was faster; dropping ours closes it.
            Fate::Open => Ok(current),
            Fate::Closed => Err(Error::closed()),
            Fate::Lost => {
                self.connection.replace(Rc::clone(&opened));
                self.connections.set(self.connections.get().saturating_add(1));
                Ok(opened)
            }
        }
    }

    fn fate(&self, connection: &Connection) -> Fate {
        if self.closed.get() { Fate::Closed } else { connection.fate() }
    }
}

impl Store for IndexedDbStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            let session = match IndexedDbSession::begin(self.connection().await?, scope, mode) {
                // Nothing has happened yet: once more, on a new connection.
                Err(_) if self.connection.borrow().fate() == Fate::Lost => {
                    IndexedDbSession::begin(self.connection().await?, scope, mode)?
                }
                session => session?,
            };
            let session: Box<dyn Session> = Box::new(session);
            Ok(session)
        }
        .boxed_local()
    }

    fn connections(&self) -> u64 {
        self.connections.get()
    }

    fn close(&self) {
        self.closed.set(true);
        self.connection.borrow().close();
    }
}
