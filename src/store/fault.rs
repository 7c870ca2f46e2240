//! A store that fails on purpose, and counts.

mod plan;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use self::plan::Open;
pub use self::plan::{Fault, Faults, Operation};
use super::failure::{connection_lost, outcome_unknown};
use super::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};
use crate::body::Value;
use crate::error::{Error, Result};

/// Another store, failing where [`Faults`] says so.
pub struct FaultStore {
    inner: Rc<dyn Store>,
    faults: Faults,
    /// How often the connection was let go of.
    losses: Rc<Cell<u64>>,
}

impl FaultStore {
    /// Wraps a store.
    pub fn new(inner: Rc<dyn Store>, faults: Faults) -> Self {
        Self { inner, faults, losses: Rc::default() }
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl Store for FaultStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        let open = self.faults.opened();
        async move {
            let mut failure = None;
            match self.faults.meet(Operation::Begin) {
                None => {}
                Some(Fault::Fail(error)) => return Err(error),
                Some(Fault::Abort(error)) => failure = Some(error),
                Some(Fault::Delay) => self.faults.released().await,
                Some(Fault::Lose) => future::pending().await,
                Some(Fault::LoseAnswer) => return Err(connection_lost()),
            }
            let inner = self.inner.begin(scope, mode).await?;
            let connection = Connection { losses: Rc::clone(&self.losses), before: self.losses.get() };
            let (faults, failure) = (self.faults.clone(), RefCell::new(failure));
            let session: Box<dyn Session> =
                Box::new(FaultSession { inner, faults, connection, failure, open, has_written: Cell::new(false) });
            Ok(session)
        }
        .boxed_local()
    }

    /// What runs is cut off, whatever the other store does.
    fn let_go(&self) {
        self.losses.set(self.losses.get() + 1);
        self.inner.let_go();
    }

    fn connections(&self) -> u64 {
        self.inner.connections()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// The connection that a session was begun on.
struct Connection {
    losses: Rc<Cell<u64>>,
    before: u64,
}

impl Connection {
    fn check(&self) -> Result<()> {
        if self.losses.get() == self.before { Ok(()) } else { Err(connection_lost()) }
    }
}

struct FaultSession {
    inner: Box<dyn Session>,
    faults: Faults,
    connection: Connection,
    /// Why everything that follows fails.
    failure: RefCell<Option<Error>>,
    open: Open,
    has_written: Cell<bool>,
}

impl FaultSession {
    fn read<'a, T: 'a>(
        &'a self,
        operation: Operation,
        source: Source,
        request: impl FnOnce(&'a dyn Session) -> LocalBoxFuture<'a, Result<T>>,
    ) -> LocalBoxFuture<'a, Result<T>> {
        let fault = self.faults.meet_read(operation, source.store());
        if let Err(error) = self.check() {
            return future::ready(Err(error)).boxed_local();
        }
        match fault {
            None => request(&*self.inner),
            Some(Fault::Fail(error) | Fault::Abort(error)) => future::ready(Err(self.break_with(error))).boxed_local(),
            Some(Fault::Delay) => {
                let answer = request(&*self.inner);
                let released = self.faults.released();
                async move {
                    released.await;
                    self.connection.check()?;
                    answer.await
                }
                .boxed_local()
            }
            Some(Fault::Lose) => {
                let answer = request(&*self.inner);
                async move {
                    // As long as the request is unanswered, the transaction stays open.
                    let _unanswered = answer;
                    future::pending().await
                }
                .boxed_local()
            }
            Some(Fault::LoseAnswer) => {
                let answer = request(&*self.inner);
                let error = self.break_with(connection_lost());
                async move {
                    answer.await?;
                    Err(error)
                }
                .boxed_local()
            }
        }
    }

    /// Whether it has not failed yet.
    fn check(&self) -> Result<()> {
        self.failure.borrow().clone().map_or_else(|| self.connection.check(), Err)
    }

    fn break_with(&self, error: Error) -> Error {
        self.failure.replace(Some(error.clone()));
        error
    }
}

impl Session for FaultSession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        self.read(Operation::Get, store.into(), |inner| inner.get(store, key))
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        self.read(Operation::GetRange, source, |inner| inner.get_range(source, range, limit, direction))
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        self.read(Operation::GetKeys, source, |inner| inner.get_keys(source, range, limit))
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        self.read(Operation::Count, source, |inner| inner.count(source, range))
    }

    fn write(&self, change: Change) -> Result<()> {
        self.has_written.set(true);
        let fault = self.faults.meet_write(change.store());
        self.check()?;
        match fault {
            Some(Fault::Fail(error)) => Err(self.break_with(error)),
            Some(Fault::Abort(error)) => {
                self.break_with(error);
                Ok(())
            }
            None | Some(Fault::Delay | Fault::Lose | Fault::LoseAnswer) => self.inner.write(change),
        }
    }

    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        let change = if self.has_written.get() { self.faults.meet(Operation::Change) } else { None };
        let fault = self.faults.meet(Operation::Commit).or(change);
        let failure = self.check().err().map(Fault::Abort);
        let Self { inner, faults, open, .. } = *self;
        let committed = match failure.or(fault) {
            None => inner.commit(),
            Some(Fault::Fail(error) | Fault::Abort(error)) => inner.abort().map(|()| Err(error)).boxed_local(),
            Some(Fault::Delay) => {
                let answer = inner.commit();
                let released = faults.released();
                async move {
                    released.await;
                    answer.await
                }
                .boxed_local()
            }
            Some(Fault::Lose) => inner.abort().then(|()| future::pending()).boxed_local(),
            Some(Fault::LoseAnswer) => inner.commit().map(|outcome| outcome.and(Err(outcome_unknown()))).boxed_local(),
        };
        committed.inspect(move |_| drop(open)).boxed_local()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.inner.abort()
    }
}
