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

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use self::connection::{Connection, Fate};
pub use self::open::delete_database;
use self::session::IndexedDbSession;
use super::{Durability, Mode, Session, Store, StoreName};
use crate::error::{Error, ErrorCode, Result};

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
    opening: RefCell<Waiting>,
}

/// While a connection is being opened again: who else waits for it.
type Waiting = Option<Vec<oneshot::Sender<Result<()>>>>;

/// Tells those who wait, also when it is given up.
struct Opening<'a>(&'a RefCell<Waiting>);

impl Opening<'_> {
    fn tell(self, opened: &Result<()>) {
        // Nobody listens if the future was dropped.
        self.0.take().into_iter().flatten().for_each(|waiting| _ = waiting.send(opened.clone()));
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.take();
    }
}

impl IndexedDbStore {
    /// Opens a database, and creates it where there is none.
    ///
    /// # Errors
    /// Within 10 seconds: `UpgradeBlocked`, `VersionTooNew`, `QuotaExceeded`, or `StorageUnavailable` for everything else.
    pub async fn open(name: &str, options: IndexedDbOptions) -> Result<Self> {
        let connection = Connection::open(name, &options, false).await?;
        Ok(Self {
            name: name.to_owned(),
            options,
            connection: RefCell::new(connection),
            closed: Cell::new(false),
            connections: Cell::new(1),
            opening: RefCell::default(),
        })
    }

    /// The connection, opened again if the last one was lost.
    async fn connection(&self) -> Result<Rc<Connection>> {
        loop {
            let current = self.connection.borrow().clone();
            match self.fate(&current) {
                Fate::Open => return Ok(current),
                Fate::Closed => return Err(Error::closed()),
                Fate::Lost | Fate::LetGo => {}
            }
            let waiting = self.opening.borrow_mut().as_mut().map(|others| {
                let (sender, opened) = oneshot::channel();
                others.push(sender);
                opened
            });
            match waiting {
                // However it ends for the one that opens it. If that one is given up, this one looks again.
                Some(opened) => opened.await.unwrap_or(Ok(()))?,
                None => {
                    self.opening.replace(Some(Vec::new()));
                    let opening = Opening(&self.opening);
                    let opened = self.open_again().await;
                    opening.tell(&opened);
                    opened?;
                }
            }
        }
    }

    async fn open_again(&self) -> Result<()> {
        // What the browser has taken away with its data is made anew, and found to be another one.
        let is_known = self.connection.borrow().fate() == Fate::LetGo;
        let opened = Connection::open(&self.name, &self.options, is_known).await;
        // While there was no connection, nobody asked it to close.
        let reason = match opened.as_ref().map_err(Error::code) {
            Err(ErrorCode::VersionTooNew) => Some(CloseReason::UpgradedElsewhere),
            Err(ErrorCode::Closed) => Some(CloseReason::Deleted),
            _ => None,
        };
        if let Some(reason) = reason {
            self.options.on_close.iter().for_each(|notify| notify(reason));
            return Err(Error::closed());
        }
        let opened = opened?;
        // If the store was closed meanwhile, dropping it closes it.
        if !self.closed.get() {
            self.connections.set(self.connections.get().saturating_add(1));
            self.connection.replace(opened);
        }
        Ok(())
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

    fn let_go(&self) {
        self.connection.borrow().let_go();
    }

    fn connections(&self) -> u64 {
        self.connections.get()
    }

    fn close(&self) {
        self.closed.set(true);
        self.connection.borrow().close();
    }
}
