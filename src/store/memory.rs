//! A store in memory that obeys IndexedDB's rules.
//!
//! Transactions with overlapping scopes run in order of creation, readers together; requests are answered in order, each in a later turn of
//! the executor; a session that is dropped rolls back; one that idles while others go on has closed itself; values are copied on the way in
//! and out. What passes here does not fail in a browser for one of these reasons.

mod engine;
mod tables;

use std::cell::{Cell, RefCell};
use std::future::{self, Future};
use std::rc::Rc;
use std::task::Poll;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use self::engine::Engine;
use self::tables::Tables;
use super::failure::{finished, out_of_scope, read_only};
use super::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};
use crate::body::Value;
use crate::error::{Error, Result};

/// A store in memory. A clone is another connection to the same data.
#[derive(Debug, Default)]
pub struct MemoryStore {
    engine: Rc<Engine>,
    closed: Cell<bool>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        Self { engine: Rc::clone(&self.engine), closed: Cell::new(false) }
    }
}

impl Store for MemoryStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            if self.closed.get() {
                return Err(Error::closed());
            }
            let number = self.engine.begin(scope, mode);
            let session: Box<dyn Session> = Box::new(MemorySession {
                engine: Rc::clone(&self.engine),
                number,
                scope: scope.to_vec(),
                mode,
                failure: RefCell::default(),
            });
            Ok(session)
        }
        .boxed_local()
    }

    fn close(&self) {
        self.closed.set(true);
    }
}

#[derive(Debug)]
struct MemorySession {
    engine: Rc<Engine>,
    number: u64,
    scope: Vec<StoreName>,
    mode: Mode,
    /// Why it can't commit any more.
    failure: RefCell<Option<Error>>,
}

impl MemorySession {
    fn check(&self, store: StoreName) -> Result<()> {
        if !self.engine.is_open(self.number) {
            Err(finished())
        } else if !self.scope.contains(&store) {
            Err(out_of_scope(store.name()))
        } else {
            Ok(())
        }
    }

    fn check_write(&self, change: &Change) -> Result<()> {
        self.check(change.store())?;
        if self.mode == Mode::ReadOnly { Err(read_only()) } else { Ok(()) }
    }

    fn read<T: 'static>(
        &self,
        source: Source,
        work: impl FnOnce(&Tables) -> Result<T> + 'static,
    ) -> LocalBoxFuture<'static, Result<T>> {
        if let Err(error) = self.check(source.store()) {
            return future::ready(Err(error)).boxed_local();
        }
        let (sender, answer) = oneshot::channel();
        let outstanding = Outstanding::new(&self.engine, self.number);
        let request = move |tables: &mut Tables, _: &mut _| {
            // The receiver is gone if the future was dropped: nobody wants the answer.
            let _ = sender.send(work(tables));
        };
        self.engine.request(self.number, Box::new(request));
        async move {
            later().await;
            let answer = outstanding.engine.wait(outstanding.number, answer).await;
            answer.unwrap_or_else(|| Err(finished()))
        }
        .boxed_local()
    }
}

impl Session for MemorySession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        let key = key.clone();
        self.read(store.into(), move |tables| tables.get(store, &key))
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        let range = range.clone();
        self.read(source, move |tables| tables.get_range(source, &range, limit, direction))
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        let range = range.clone();
        self.read(source, move |tables| Ok(tables.get_keys(source, &range, limit)))
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        let range = range.clone();
        self.read(source, move |tables| Ok(tables.count(source, &range)))
    }

    fn write(&self, change: Change) -> Result<()> {
        let change = self.check_write(&change).and_then(|()| match change {
            Change::Put(store, key, value) => Ok(Change::Put(store, key, value.copy()?)),
            delete => Ok(delete),
        });
        match change {
            Ok(change) => {
                let request = move |tables: &mut Tables, undo: &mut _| tables.apply(change, undo);
                self.engine.request(self.number, Box::new(request));
                Ok(())
            }
            Err(error) => {
                self.failure.replace(Some(error.clone()));
                Err(error)
            }
        }
    }

    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        if let Some(error) = self.failure.take() {
            return future::ready(Err(error)).boxed_local();
        }
        let done = self.engine.commit(self.number);
        async move {
            later().await;
            // No answer: it had closed itself, which commits.
            let _ = self.engine.wait(self.number, done).await;
            Ok(())
        }
        .boxed_local()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        drop(self);
        later().boxed_local()
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.engine.roll_back(self.number);
    }
}

/// A request whose answer has not been taken.
struct Outstanding {
    engine: Rc<Engine>,
    number: u64,
}

impl Outstanding {
    fn new(engine: &Rc<Engine>, number: u64) -> Self {
        engine.hold(number);
        Self { engine: Rc::clone(engine), number }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.engine.let_go(self.number);
    }
}

/// Waits for the executor's next turn: an event handler's answer never comes at once.
fn later() -> impl Future<Output = ()> {
    let mut polled = false;
    future::poll_fn(move |context| {
        if polled {
            return Poll::Ready(());
        }
        polled = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
