//! One transaction on IndexedDB.

use std::cell::{Cell, RefCell};
use std::future;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use idb::ObjectStore;
use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::IdbRequest;

use super::super::failure::{connection_lost, finished, outcome_unknown};
use super::super::{Change, Direction, Key, Mode, ORDER_INDEX, Range, Session, Source, StoreName};
use super::connection::Connection;
use super::error::{from_exception, from_idb, is_over};
use super::request::Answer;
use super::rows::Rows;
use super::transaction::{Outcome, Running};
use super::{keys, sys};
use crate::body::Value;
use crate::error::Result;

pub(super) struct IndexedDbSession {
    connection: Rc<Connection>,
    running: Rc<Running>,
    /// Of a read-write transaction.
    outcome: Option<Outcome>,
    /// One handle per object store.
    stores: RefCell<Vec<(StoreName, ObjectStore)>>,
    wrote: Cell<bool>,
    /// The write that nothing follows, where the commit has to be asked for after its success.
    last_write: RefCell<Option<IdbRequest>>,
}

impl IndexedDbSession {
    pub(super) fn begin(connection: Rc<Connection>, scope: &[StoreName], mode: Mode) -> Result<Self> {
        let transaction = connection.begin(scope, mode)?;
        let (running, outcome) = match mode {
            // Its requests tell all there is to know.
            Mode::ReadOnly => (Rc::new(Running::new(transaction)), None),
            Mode::ReadWrite | Mode::Relaxed => {
                let (running, outcome) = connection.transactions.follow(transaction);
                (running, Some(outcome))
            }
        };
        Ok(Self {
            connection,
            running,
            outcome,
            stores: RefCell::default(),
            wrote: Cell::new(false),
            last_write: RefCell::default(),
        })
    }

    fn store(&self, name: StoreName) -> Result<ObjectStore> {
        let mut stores = self.stores.borrow_mut();
        if let Some((_, store)) = stores.iter().find(|(other, _)| *other == name) {
            return Ok(store.clone());
        }
        let store = self
            .running
            .transaction()
            .object_store(name.name())
            .map_err(|exception| if is_over(&exception) { finished() } else { from_exception(exception) })?;
        let store = ObjectStore::from(store);
        stores.push((name, store.clone()));
        Ok(store)
    }

    fn rows(&self, source: Source) -> Result<Rows> {
        let store = self.store(source.store())?;
        match source {
            Source::Store(_) => Ok(Rows::Store(store)),
            Source::Order => store.index(ORDER_INDEX).map(Rows::Index).map_err(from_idb),
        }
    }

    /// A read: `ask` makes the request and says how to understand the result.
    fn read<T, U>(&self, ask: impl FnOnce() -> Result<(Answer, U)>) -> LocalBoxFuture<'static, Result<T>>
    where
        T: 'static,
        U: FnOnce(JsValue) -> Result<T> + 'static,
    {
        self.last_write.take();
        match ask() {
            Ok((answer, understand)) => {
                async move { understand(answer.await.unwrap_or_else(|_| Err(connection_lost()))?) }.boxed_local()
            }
            // If the transaction has aborted, its cause says more than the refusal.
            Err(error) => future::ready(Err(self.running.failure().unwrap_or(error))).boxed_local(),
        }
    }

    fn result(&self, request: IdbRequest) -> Answer {
        self.connection.requests.result(request, &self.running)
    }

    fn request_write(&self, change: Change) -> Result<IdbRequest> {
        let store = self.store(change.store())?;
        match change {
            Change::Put(_, key, value) => store.put(&value.0, Some(&keys::to_js(&key))).map(Into::into),
            Change::Delete(_, key) => store.delete(keys::to_js(&key)).map(Into::into),
            Change::DeleteRange(_, range) => match keys::query(&range)? {
                Some(query) => store.delete(query).map(Into::into),
                None => store.clear().map(Into::into),
            },
        }
        .map_err(from_idb)
    }
}

impl Session for IndexedDbSession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        self.read(|| {
            let request = self.store(store)?.get(keys::to_js(key)).map_err(from_idb)?;
            let understand = |value: JsValue| Ok((!value.is_undefined()).then_some(Value(value)));
            Ok((self.result(request.into()), understand))
        })
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        if is_nothing(range, limit) {
            return future::ready(Ok(Vec::new())).boxed_local();
        }
        self.read(|| {
            let (rows, query) = (self.rows(source)?, keys::query(range)?);
            let understand: fn(JsValue) -> Result<Vec<Value>>;
            let answer = match (direction, limit) {
                (Direction::Forward, _) => {
                    understand = values;
                    self.result(rows.get_all(query, limit)?)
                }
                (Direction::Backward, None) => {
                    understand = values_backward;
                    self.result(rows.get_all(query, None)?)
                }
                (Direction::Backward, Some(limit)) => match rows.get_all_backward(query.as_ref(), limit) {
                    Some(request) => {
                        understand = values_of_records;
                        self.result(request?)
                    }
                    None => {
                        understand = values;
                        self.connection.requests.walk(rows.open_cursor_backward(query)?, &self.running, limit)
                    }
                },
            };
            Ok((answer, understand))
        })
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        if is_nothing(range, limit) {
            return future::ready(Ok(Vec::new())).boxed_local();
        }
        self.read(|| {
            let request = self.rows(source)?.get_all_keys(keys::query(range)?, limit)?;
            Ok((self.result(request), move |found: JsValue| keys::list_from_js(source.store().name(), &found)))
        })
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        if range.is_empty() {
            return future::ready(Ok(0)).boxed_local();
        }
        self.read(|| {
            let request = self.rows(source)?.count(keys::query(range)?)?;
            Ok((self.result(request), |count: JsValue| Ok(sys::count(&count))))
        })
    }

    fn write(&self, change: Change) -> Result<()> {
        if matches!(&change, Change::DeleteRange(_, range) if range.is_empty()) {
            return Ok(());
        }
        match self.request_write(change) {
            Ok(request) => {
                self.wrote.set(true);
                if self.connection.commits_late {
                    self.last_write.replace(Some(request));
                }
                Ok(())
            }
            Err(error) => {
                self.running.fail(error);
                // If the transaction has aborted, its cause says more than the refusal.
                self.running.failure().map_or(Ok(()), Err)
            }
        }
    }

    fn commit(mut self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        if let Some(error) = self.running.failure() {
            return future::ready(Err(error)).boxed_local();
        }
        self.running.set_committing();
        let outcome = self.outcome.take().filter(|_| self.wrote.get());
        match self.last_write.take() {
            Some(request) => self.connection.requests.commit_after(request, &self.running),
            None => self.running.commit(),
        }
        async move {
            // Dropping it would stop following the transaction.
            let _session = self;
            match outcome {
                Some(outcome) => outcome.await.unwrap_or_else(|_| Err(outcome_unknown())),
                // Nothing was written, so nothing can go wrong; and some engines never complete an empty transaction.
                None => Ok(()),
            }
        }
        .boxed_local()
    }

    fn abort(mut self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.running.abort();
        async move {
            if let Some(outcome) = self.outcome.take() {
                // That it aborted is what was wanted.
                let _ = outcome.await;
            }
        }
        .boxed_local()
    }
}

impl Drop for IndexedDbSession {
    /// Rolls back, unless the commit was asked for or the end is known.
    fn drop(&mut self) {
        self.connection.requests.forget(&self.running);
        if self.connection.transactions.forget(&self.running) && !self.running.is_committing() {
            self.running.abort();
        }
    }
}

/// Whether there is nothing to read. IndexedDB refuses to make an empty range, and takes the limit 0 for no limit.
fn is_nothing(range: &Range, limit: Option<u32>) -> bool {
    range.is_empty() || limit == Some(0)
}

fn items(array: JsValue) -> impl DoubleEndedIterator<Item = JsValue> {
    array.unchecked_into::<Array>().into_iter()
}

fn values(array: JsValue) -> Result<Vec<Value>> {
    Ok(items(array).map(Value).collect())
}

fn values_backward(array: JsValue) -> Result<Vec<Value>> {
    Ok(items(array).rev().map(Value).collect())
}

fn values_of_records(array: JsValue) -> Result<Vec<Value>> {
    Ok(items(array).map(sys::record_value).map(Value).collect())
}
