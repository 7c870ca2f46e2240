//! What the suites share: async tests for all places, and the stores under test.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails so")]

pub(crate) mod chance;
pub(crate) mod elsewhere;
pub(crate) mod far;
pub(crate) mod host;
pub(crate) mod locks;
pub(crate) mod shop;
pub(crate) mod transport;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use futures_util::future::poll_fn;
use pocket_broker::body::Value;
use pocket_broker::error::Result;
use pocket_broker::store::{FaultStore, Faults, Key, MemoryStore, Mode, Store, StoreName, Tx};

/// A test with an async body: natively on a local pool, in a browser on its event loop.
macro_rules! async_test {
    (async fn $name:ident() $body:block) => {
        #[cfg(not(target_arch = "wasm32"))]
        #[test]
        fn $name() {
            $crate::conformance::support::host::block_on(async $body);
        }

        #[cfg(target_arch = "wasm32")]
        #[wasm_bindgen_test::wasm_bindgen_test]
        async fn $name() $body
    };
}
pub(crate) use async_test;

/// A database under test. Every connection to it is a store of its own.
pub(crate) struct Bench {
    place: Place,
    faults: Option<Faults>,
    has_leases: bool,
}

enum Place {
    Memory(MemoryStore),
    #[cfg(target_arch = "wasm32")]
    IndexedDb(String),
}

impl Bench {
    pub(crate) fn memory() -> Self {
        Self { place: Place::Memory(MemoryStore::new()), faults: None, has_leases: false }
    }

    #[cfg(target_arch = "wasm32")]
    pub(crate) fn indexed_db() -> Self {
        Self { place: Place::IndexedDb(random_name()), faults: None, has_leases: false }
    }

    /// The same in an origin without locks.
    pub(crate) fn with_leases(self) -> Self {
        Self { has_leases: true, ..self }
    }

    /// The same behind a [`FaultStore`].
    pub(crate) fn with_faults(self) -> Self {
        Self { faults: Some(Faults::new()), ..self }
    }

    /// The faults of [`Self::with_faults`].
    pub(crate) fn faults(&self) -> &Faults {
        self.faults.as_ref().expect("a bench with faults")
    }

    /// One more connection.
    pub(crate) async fn connect(&self) -> Rc<dyn Store> {
        let store = self.connect_without_faults().await;
        match &self.faults {
            Some(faults) => Rc::new(FaultStore::new(store, faults.clone())),
            None => store,
        }
    }

    /// One more connection, past the faults.
    pub(crate) async fn connect_without_faults(&self) -> Rc<dyn Store> {
        match &self.place {
            Place::Memory(store) => Rc::new(store.clone()),
            #[cfg(target_arch = "wasm32")]
            Place::IndexedDb(name) => {
                use pocket_broker::store::{Durability, IndexedDbOptions, IndexedDbStore};
                // A flush of the disk shows nothing here and takes most of the time. That "strict" reaches the transaction has its own test.
                let options = IndexedDbOptions { durability: Durability::Relaxed, ..IndexedDbOptions::default() };
                Rc::new(IndexedDbStore::open(name, options).await.expect("IndexedDB opens"))
            }
        }
    }

    /// Removes the database.
    #[cfg_attr(not(target_arch = "wasm32"), expect(clippy::unused_async, reason = "memory needs no removal"))]
    pub(crate) async fn remove(self) {
        match self.place {
            Place::Memory(_) => {}
            #[cfg(target_arch = "wasm32")]
            Place::IndexedDb(name) => {
                pocket_broker::store::delete_database(&name).await.expect("the database can be deleted")
            }
        }
    }
}

/// A name that no other test uses.
#[cfg(target_arch = "wasm32")]
pub(crate) fn random_name() -> String {
    format!("test-{}-{}", js_sys::Date::now(), js_sys::Math::random())
}

/// [`pocket_broker::store::transact`] for closures that fail with an [`pocket_broker::error::Error`].
pub(crate) async fn transact<T>(
    store: &dyn Store,
    scope: &[StoreName],
    mode: Mode,
    work: impl AsyncFnOnce(&Tx) -> Result<T>,
) -> Result<T> {
    pocket_broker::store::transact(store, scope, mode, work).await
}

/// Puts one value in a transaction of its own.
pub(crate) async fn put(
    store: &dyn Store,
    name: StoreName,
    key: impl Into<Key>,
    value: impl Into<Value>,
) -> Result<()> {
    let (key, value) = (key.into(), value.into());
    transact(store, &[name], Mode::ReadWrite, async |tx| {
        tx.put(name, key, value);
        Ok(())
    })
    .await
}

/// Reads one number or text in a transaction of its own.
pub(crate) async fn get(store: &dyn Store, name: StoreName, key: impl Into<Key>) -> Option<String> {
    let key = key.into();
    let value =
        transact(store, &[name], Mode::ReadOnly, async |tx| tx.get(name, &key).await).await.expect("the read works");
    value.map(|value| show(&value))
}

/// A number or a text, as a text.
pub(crate) fn show(value: &Value) -> String {
    value.number().map(|number| number.to_string()).or_else(|| value.text()).unwrap_or_else(|| "?".to_owned())
}

/// The text of a detail of an error.
pub(crate) fn detail(error: &pocket_broker::error::Error, name: &str) -> Option<String> {
    error.details().iter().find(|(detail, _)| *detail == name).and_then(|(_, value)| value.text())
}

/// Polls a future once and drops it: what a crash, or a caller who lost interest, does.
pub(crate) async fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
