//! Opening and deleting databases, without ever hanging (D40).

use std::cell::RefCell;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use idb::{DatabaseEvent, Factory, KeyPath, ObjectStoreParams, Request, Transaction};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;
use web_sys::IdbDatabase;

use super::super::{ORDER_INDEX, ORDER_INDEX_PATH, StoreName, VERSION};
use super::error::{exception_of, from_idb, from_opening, is_loss};
use crate::body::Value;
use crate::error::{Error, ErrorCode, Result};
use crate::web::timer::sleep;

/// How long an open may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long IndexedDB may take to say that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// An open database. It is closed when this is dropped, also if nobody came to take it.
#[derive(Debug)]
pub(super) struct Database(IdbDatabase);

impl Database {
    /// The same database, for an event handler.
    pub(super) fn handle(&self) -> IdbDatabase {
        self.0.clone()
    }
}

impl Deref for Database {
    type Target = IdbDatabase;

    fn deref(&self) -> &IdbDatabase {
        &self.0
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.0.set_onversionchange(None);
        self.0.set_onclose(None);
        self.0.close();
    }
}

/// Opens a database, and makes its object stores where they are missing. `is_known`: it was there before. If it is not any more, none is made: `Closed`.
pub(super) async fn open(name: &str, is_known: bool) -> Result<Database> {
    let mut request = factory()?.open(name, Some(VERSION)).map_err(|error| unopened(name, error))?;
    let upgrade = Rc::new(RefCell::new(Upgrade { is_known, ..Upgrade::default() }));
    request.on_upgrade_needed({
        let upgrade = Rc::clone(&upgrade);
        move |event| upgrade.borrow_mut().run(&event)
    });
    let settled = settled(&mut request);
    let (sender, answer) = oneshot::channel();
    let database = name.to_owned();
    // A task of its own: the request's handlers must live until it settles, even if nobody waits for it any more.
    spawn_local(async move {
        let _ = settled.await;
        let opened = match request.error() {
            Ok(None) => request.database().map_err(from_idb).and_then(ours),
            Ok(Some(exception)) if is_loss(&exception) => Err(upgrade.take().cause(&database, exception.into())),
            Ok(Some(exception)) => Err(from_opening(&database, exception.into())),
            Err(error) => Err(unopened(&database, error)),
        };
        // A database that comes too late is dropped here, and so closed.
        let _ = sender.send(opened);
    });
    in_time(name, answer).await
}

/// A database that was opened, if it has the broker's object stores.
fn ours(database: idb::Database) -> Result<Database> {
    let names = database.store_names();
    let name = database.name();
    let database = Database(database.into());
    if StoreName::ALL.iter().all(|store| names.iter().any(|name| name == store.name())) {
        return Ok(database);
    }
    let text =
        format!("The database \"{name}\" exists and is not a broker's. It was left as it is: choose another name.");
    Err(Error::new(ErrorCode::StorageCorrupt, text).with("name", name.as_str()))
}

/// Deletes a database, if there is one. Its connections in other tabs close themselves first.
///
/// # Errors
/// Within 10 seconds: `UpgradeBlocked` if a tab does not let go, or `StorageUnavailable`. It may still be deleted later.
pub async fn delete_database(name: &str) -> Result<()> {
    let mut request = factory()?.delete(name).map_err(|error| unopened(name, error))?;
    let settled = settled(&mut request);
    let (sender, answer) = oneshot::channel();
    let database = name.to_owned();
    spawn_local(async move {
        let _ = settled.await;
        let deleted = match request.error() {
            Ok(None) => Ok(()),
            Ok(Some(exception)) => Err(from_opening(&database, exception.into())),
            Err(error) => Err(unopened(&database, error)),
        };
        // Nobody listens any more if it took too long.
        let _ = sender.send(deleted);
    });
    in_time(name, answer).await
}

/// The upgrade transaction, which alone knows why an open was aborted.
#[derive(Default)]
struct Upgrade {
    is_known: bool,
    transaction: Option<Transaction>,
    failure: Option<Error>,
}

impl Upgrade {
    fn run(&mut self, event: &idb::event::VersionChangeEvent) {
        let Ok(request) = idb::Event::target(event) else { return };
        self.transaction = request.transaction();
        let made = if self.is_known && event.old_version().is_ok_and(|version| version == 0) {
            Err(Error::closed())
        } else {
            event.database().and_then(|database| make_stores(&database)).map_err(from_idb)
        };
        if let Err(error) = made {
            self.failure = Some(error);
            // It throws only if it has ended already.
            let _ = request.transaction().map(Transaction::abort);
        }
    }

    /// `exception`: what the open request says, which is only that the upgrade was aborted.
    fn cause(self, database: &str, exception: JsValue) -> Error {
        let cause = self.transaction.and_then(|transaction| transaction.error()).map_or(exception, Into::into);
        self.failure.unwrap_or_else(|| from_opening(database, cause))
    }
}

/// The same for what `idb` says.
fn unopened(database: &str, error: idb::Error) -> Error {
    exception_of(error).map_or_else(|| dead(database), |exception| from_opening(database, exception))
}

/// The first and only step of the schema so far.
fn make_stores(database: &idb::Database) -> std::result::Result<(), idb::Error> {
    for name in StoreName::ALL {
        let mut params = ObjectStoreParams::new();
        params.auto_increment(name.gives_keys());
        let store = database.create_object_store(name.name(), params)?;
        if name == StoreName::Messages {
            store.create_index(ORDER_INDEX, KeyPath::new_array(ORDER_INDEX_PATH), None)?;
        }
    }
    Ok(())
}

fn factory() -> Result<Factory> {
    Factory::new().map_err(|error| {
        let unavailable = Error::new(
            ErrorCode::StorageUnavailable,
            "This browser gives the page no IndexedDB. Allow it to store data, or leave private browsing; `storage: \"memory\"` works without.",
        );
        match error {
            idb::Error::IndexedDbNotFound(cause) if cause.is_object() => unavailable.caused_by(Value(cause)),
            _ => unavailable,
        }
    })
}

/// Resolves once the request has succeeded or failed.
fn settled(request: &mut impl Request) -> oneshot::Receiver<()> {
    let (sender, settled) = oneshot::channel();
    // Dropping the sender tells, whichever handler gets to do it.
    let sender = Rc::new(RefCell::new(Some(sender)));
    request.on_success({
        let sender = Rc::clone(&sender);
        move |_| drop(sender.take())
    });
    request.on_error(move |_| drop(sender.take()));
    settled
}

/// The answer, or what its absence means.
async fn in_time<T>(name: &str, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
    let answer = match select(answer, pin!(sleep(PATIENCE))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), answer)) => match select(answer, pin!(is_alive())).await {
            Either::Left((answer, _)) => answer,
            Either::Right((true, _)) => return Err(blocked(name)),
            Either::Right((false, _)) => return Err(dead(name)),
        },
    };
    answer.unwrap_or_else(|_| Err(dead(name)))
}

/// Whether IndexedDB answers at all: it is asked to delete a database that nobody has. Firefox up to 140 answers `databases()`, and whatever is
/// asked after it, only when nothing is blocked any more.
async fn is_alive() -> bool {
    let Ok(mut request) = factory().and_then(|factory| factory.delete("pocket-broker:").map_err(from_idb)) else {
        return false;
    };
    let settled = settled(&mut request);
    let (sender, answered) = oneshot::channel();
    // As above, the handlers must live until it settles.
    spawn_local(async move {
        let _ = settled.await;
        drop(request);
        let _ = sender.send(());
    });
    matches!(select(answered, pin!(sleep(SIGN_OF_LIFE))).await, Either::Left(_))
}

fn blocked(name: &str) -> Error {
    Error::new(
        ErrorCode::UpgradeBlocked,
        format!(
            "Another tab holds the database \"{name}\" open, perhaps with an older build. Close or reload the other tabs of this site, then try again."
        ),
    )
    .with("name", name)
}

fn dead(name: &str) -> Error {
    Error::new(
        ErrorCode::StorageUnavailable,
        format!(
            "IndexedDB does not answer when asked for the database \"{name}\". Restart the browser, then try again."
        ),
    )
    .with("name", name)
}
