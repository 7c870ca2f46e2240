//! `transact`: one storage transaction around a closure.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::poll_fn;

use super::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};
use crate::body::Value;
use crate::error::{Error, Result};

/// The view that a closure given to [`transact`] has of its storage transaction.
///
/// Writes are kept as a list of changes and handed to the store before the next read and at the end, so a read sees the writes before it.
pub struct Tx {
    session: Box<dyn Session>,
    changes: RefCell<Vec<Change>>,
    /// Requests that have been made and not answered: while it is 0 nothing may be awaited.
    outstanding: Cell<u32>,
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("changes", &self.changes.borrow().len()).finish_non_exhaustive()
    }
}

impl Tx {
    /// One value.
    ///
    /// # Errors
    /// What the store says: see [`Session`].
    pub async fn get(&self, store: StoreName, key: &Key) -> Result<Option<Value>> {
        self.flush()?;
        self.counted(self.session.get(store, key)).await
    }

    /// Up to `limit` values of a range.
    ///
    /// # Errors
    /// What the store says: see [`Session`].
    pub async fn get_range(
        &self,
        source: impl Into<Source>,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> Result<Vec<Value>> {
        self.flush()?;
        self.counted(self.session.get_range(source.into(), range, limit, direction)).await
    }

    /// The first value of a range.
    ///
    /// # Errors
    /// What the store says: see [`Session`].
    pub async fn first(&self, source: impl Into<Source>, range: &Range) -> Result<Option<Value>> {
        Ok(self.get_range(source, range, Some(1), Direction::Forward).await?.pop())
    }

    /// Up to `limit` primary keys of a range.
    ///
    /// # Errors
    /// What the store says: see [`Session`].
    pub async fn get_keys(&self, source: impl Into<Source>, range: &Range, limit: Option<u32>) -> Result<Vec<Key>> {
        self.flush()?;
        self.counted(self.session.get_keys(source.into(), range, limit)).await
    }

    /// How many keys a range holds.
    ///
    /// # Errors
    /// What the store says: see [`Session`].
    pub async fn count(&self, source: impl Into<Source>, range: &Range) -> Result<u64> {
        self.flush()?;
        self.counted(self.session.count(source.into(), range)).await
    }

    /// Stores a value.
    pub fn put(&self, store: StoreName, key: Key, value: Value) {
        self.changes.borrow_mut().push(Change::Put(store, key, value));
    }

    /// Removes a value.
    pub fn delete(&self, store: StoreName, key: Key) {
        self.changes.borrow_mut().push(Change::Delete(store, key));
    }

    /// Removes every value of a range.
    pub fn delete_range(&self, store: StoreName, range: Range) {
        self.changes.borrow_mut().push(Change::DeleteRange(store, range));
    }

    /// A write, whichever it is.
    pub fn apply(&self, change: Change) {
        self.changes.borrow_mut().push(change);
    }

    fn flush(&self) -> Result<()> {
        let changes = self.changes.take();
        changes.into_iter().try_for_each(|change| self.session.write(change))
    }

    async fn counted<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let _outstanding = Outstanding::new(&self.outstanding);
        request.await
    }
}

/// A request that has been made and not answered. Dropping its future counts as an answer.
struct Outstanding<'a>(&'a Cell<u32>);

impl<'a> Outstanding<'a> {
    fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get().saturating_add(1));
        Self(count)
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Runs `work` in one storage transaction: `Ok` commits, and the result comes after the commit is complete; `Err` rolls back.
///
/// `work` acts through the [`Tx`] only, so that it can be run again from the start. It must not await anything else: IndexedDB would
/// commit half of it. Such an await is an error, and rolls back.
///
/// # Errors
/// Those of `work`; those of [`Store::begin`]; the cause of an abort.
pub async fn transact<T, E: From<Error>>(
    store: &dyn Store,
    scope: &[StoreName],
    mode: Mode,
    work: impl AsyncFnOnce(&Tx) -> Result<T, E>,
) -> Result<T, E> {
    let session = store.begin(scope, mode).await?;
    let tx = Tx { session, changes: RefCell::default(), outstanding: Cell::new(0) };
    let outcome = {
        let mut work = pin!(work(&tx));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Pending if tx.outstanding.get() == 0 => Poll::Ready(Err(Error::foreign_await().into())),
            poll => poll,
        })
        .await
    };
    let outcome = outcome.and_then(|value| {
        tx.flush()?;
        Ok(value)
    });
    match outcome {
        Ok(value) => {
            tx.session.commit().await?;
            Ok(value)
        }
        Err(error) => {
            tx.session.abort().await;
            Err(error)
        }
    }
}
