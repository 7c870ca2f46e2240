//! What only a real IndexedDB can do: exceptions, aborts, lost connections, other tabs.

mod opening;

use std::rc::Rc;

use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::store::{
    Change, Direction, Durability, IndexedDbOptions, IndexedDbStore, Key, Mode, Range, Session, Store, StoreName,
    delete_database,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::super::support::{async_test, detail, get, put, random_name, transact};

const QUEUES: StoreName = StoreName::Queues;

/// Runs a JavaScript function body.
fn js(body: &str) -> JsValue {
    js_sys::Function::new_no_args(body).call0(&JsValue::UNDEFINED).expect("the script runs")
}

/// Waits for what a JavaScript function body returns.
async fn js_wait(body: &str) -> JsValue {
    JsFuture::from(js(body).unchecked_into::<js_sys::Promise>()).await.expect("the promise resolves")
}

/// Something in JavaScript that is undone at the end.
struct Undo(js_sys::Function);

impl Drop for Undo {
    fn drop(&mut self) {
        self.0.call0(&JsValue::UNDEFINED).expect("it can be undone");
    }
}

/// Replaces a method by `wrapper(original)`.
fn patch(object: &str, method: &str, wrapper: &str) -> Undo {
    Undo(
        js(&format!(
            "const object = {object}, original = object.{method}; object.{method} = ({wrapper})(original); \
             return () => {{ object.{method} = original; }};"
        ))
        .unchecked_into(),
    )
}

/// Replaces a getter.
fn patch_getter(object: &str, property: &str, getter: &str) -> Undo {
    Undo(
        js(&format!(
            "const object = {object}, original = Object.getOwnPropertyDescriptor(object, '{property}'); \
             Object.defineProperty(object, '{property}', {{ configurable: true, get: {getter} }}); \
             return () => {{ if (original) Object.defineProperty(object, '{property}', original); else delete object.{property}; }};"
        ))
        .unchecked_into(),
    )
}

/// Keeps the last transaction in `globalThis.lastTransaction`.
fn spy() -> Undo {
    let wrapper = "original => function (...args) { return globalThis.lastTransaction = original.apply(this, args); }";
    patch("IDBDatabase.prototype", "transaction", wrapper)
}

async fn open(name: &str) -> Rc<dyn Store> {
    Rc::new(IndexedDbStore::open(name, IndexedDbOptions::default()).await.expect("IndexedDB opens"))
}

async fn remove(name: &str) {
    delete_database(name).await.expect("the database can be deleted");
}

async fn begin_with_a_write(store: &dyn Store) -> Box<dyn Session> {
    let session = store.begin(&[QUEUES], Mode::ReadWrite).await.expect("a transaction begins");
    session.write(Change::Put(QUEUES, Key::from(1_u32), "written".into())).expect("the write is taken");
    session
}

/// The error of a commit that IndexedDB aborts for this reason after all requests succeeded, with no error event.
async fn abort_at_commit(exception: &str, text: &str) -> Error {
    let name = random_name();
    let store = open(&name).await;
    let error = {
        let _abort = patch("IDBTransaction.prototype", "commit", "() => function () { this.abort(); }");
        let cause = format!("() => new DOMException('{text}', '{exception}')");
        let _cause = patch_getter("IDBTransaction.prototype", "error", &cause);
        put(&*store, QUEUES, 1_u32, "never").await.expect_err("the commit is aborted")
    };
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
    put(&*store, QUEUES, 1_u32, "after").await.expect("the next call works");
    remove(&name).await;
    error
}

async_test! { async fn an_abort_at_commit_keeps_its_cause() {
    assert_eq!(abort_at_commit("QuotaExceededError", "Full.").await.code(), ErrorCode::QuotaExceeded);
    let error = abort_at_commit("ConstraintError", "Not unique.").await;
    assert_eq!(error.code(), ErrorCode::StorageUnavailable);
    assert_eq!(detail(&error, "exception").as_deref(), Some("ConstraintError"));
    assert_eq!(detail(&error, "text").as_deref(), Some("Not unique."));
    assert!(error.cause().is_some());
    // The storage process died: nobody knows.
    let error = abort_at_commit("UnknownError", "Connection to Indexed Database server lost. Refresh the page to try again").await;
    assert_eq!(error.code(), ErrorCode::StorageLost);
    assert_eq!(detail(&error, "outcome").as_deref(), Some("unknown"));
}}

async_test! { async fn a_value_that_cant_be_cloned_is_refused_and_nothing_is_stored() {
    let name = random_name();
    let store = open(&name).await;
    let function = Value(js("return { inner: () => {} };"));
    let refused: Result<()> = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "fine".into());
        tx.put(QUEUES, 2_u32.into(), function);
        tx.put(QUEUES, 3_u32.into(), "fine".into());
        Ok(())
    })
    .await;
    assert_eq!(refused.expect_err("functions can't be cloned").code(), ErrorCode::NotCloneable);
    let count = transact(&*store, &[QUEUES], Mode::ReadOnly, async |tx| tx.count(QUEUES, &Range::all()).await).await;
    assert_eq!(count.expect("the read works"), 0);
    put(&*store, QUEUES, 1_u32, "after").await.expect("the next call works");
    remove(&name).await;
}}

async_test! { async fn a_value_that_is_too_large_says_so() {
    let name = random_name();
    let store = open(&name).await;
    {
        let text = "The serialized value is too large (size=200000000 bytes, max=133169152 bytes).";
        let wrapper = format!("() => function () {{ throw new DOMException('{text}', 'DataError'); }}");
        let _refuse = patch("IDBObjectStore.prototype", "put", &wrapper);
        let refused = put(&*store, QUEUES, 1_u32, "large").await.expect_err("put throws");
        assert_eq!(refused.code(), ErrorCode::MessageTooLarge);
    }
    remove(&name).await;
}}

async_test! { async fn durability_reaches_the_transaction_and_commit_is_asked_for() {
    let _spy = spy();
    let _count = patch(
        "IDBTransaction.prototype",
        "commit",
        "original => function () { globalThis.commits = (globalThis.commits ?? 0) + 1; return original.call(this); }",
    );
    for (durability, mode, expected) in [
        (Durability::Strict, Mode::ReadWrite, "strict"),
        (Durability::Strict, Mode::Relaxed, "relaxed"),
        (Durability::Relaxed, Mode::ReadWrite, "relaxed"),
    ] {
        let name = random_name();
        let options = IndexedDbOptions { durability, ..IndexedDbOptions::default() };
        let store = IndexedDbStore::open(&name, options).await.expect("IndexedDB opens");
        js("globalThis.commits = 0;");
        let written = transact(&store, &[QUEUES], mode, async |tx| {
            tx.put(QUEUES, 1_u32.into(), "written".into());
            Ok(())
        });
        written.await.expect("the put commits");
        assert_eq!(js("return globalThis.lastTransaction.durability;").as_string().as_deref(), Some(expected));
        assert_eq!(js("return globalThis.commits;").as_f64(), Some(1.0));
        remove(&name).await;
    }
}}

async_test! { async fn a_webkit_worker_commits_after_the_last_write_has_succeeded() {
    let name = random_name();
    let store = open(&name).await;
    let _put = patch(
        "IDBObjectStore.prototype",
        "put",
        "original => function (...args) { return globalThis.lastPut = original.apply(this, args); }",
    );
    let _commit = patch(
        "IDBTransaction.prototype",
        "commit",
        "original => function () { globalThis.atCommit = globalThis.lastPut.readyState; return original.call(this); }",
    );
    let late = js("return 'WorkerGlobalScope' in globalThis && /AppleWebKit/.test(navigator.userAgent) && !/Chrome/.test(navigator.userAgent);");
    put(&*store, QUEUES, 1_u32, "written").await.expect("the put commits");
    let expected = if late.is_truthy() { "done" } else { "pending" };
    assert_eq!(js("return globalThis.atCommit;").as_string().as_deref(), Some(expected));
    remove(&name).await;
}}

async_test! { async fn a_connection_closed_behind_our_back_is_opened_again() {
    let name = random_name();
    let store = open(&name).await;
    let _spy = spy();
    put(&*store, QUEUES, 1_u32, "before").await.expect("the put commits");
    for round in 0..3_u32 {
        js("globalThis.lastTransaction.db.close();");
        let (first, second) =
            futures_util::future::join(put(&*store, QUEUES, 2_u32, round), put(&*store, QUEUES, 3_u32, round)).await;
        first.expect("it opens again");
        second.expect("it opens again");
    }
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("before"));
    assert_eq!(get(&*store, QUEUES, 2_u32).await.as_deref(), Some("2"));
    js("globalThis.lastTransaction.db.close();");
    store.close();
    assert_eq!(put(&*store, QUEUES, 1_u32, "late").await.expect_err("it is closed").code(), ErrorCode::Closed);
    remove(&name).await;
}}

async_test! { async fn a_connection_lost_at_commit_leaves_the_outcome_unknown() {
    let name = random_name();
    let store = open(&name).await;
    let _spy = spy();
    let committed = begin_with_a_write(&*store).await.commit();
    js("globalThis.lastTransaction.db.dispatchEvent(new Event('close'));");
    let lost = committed.await.expect_err("no answer can come");
    assert_eq!(lost.code(), ErrorCode::StorageLost);
    assert_eq!(detail(&lost, "outcome").as_deref(), Some("unknown"));

    // Before the commit, nothing can have happened.
    let session = begin_with_a_write(&*store).await;
    let read = session.get(QUEUES, &1_u32.into());
    js("globalThis.lastTransaction.db.dispatchEvent(new Event('close'));");
    let lost = read.await.expect_err("no answer can come");
    assert_eq!((lost.code(), detail(&lost, "outcome")), (ErrorCode::StorageLost, None));
    assert_eq!(session.commit().await.expect_err("it is lost").code(), ErrorCode::StorageLost);

    put(&*store, QUEUES, 1_u32, "after").await.expect("it opens again");
    remove(&name).await;
}}

async_test! { async fn an_abort_from_outside_is_an_error() {
    let name = random_name();
    let store = open(&name).await;
    let _spy = spy();
    let session = begin_with_a_write(&*store).await;
    let read = session.get(QUEUES, &1_u32.into());
    js("globalThis.lastTransaction.abort();");
    assert_eq!(read.await.expect_err("it was aborted").code(), ErrorCode::StorageLost);
    assert!(session.get(QUEUES, &1_u32.into()).await.is_err());
    assert!(session.commit().await.is_err());

    let session = begin_with_a_write(&*store).await;
    js("globalThis.lastTransaction.abort();");
    assert!(session.commit().await.is_err());
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
    remove(&name).await;
}}

async_test! { async fn a_session_dropped_in_the_middle_of_a_request_makes_no_noise() {
    let name = random_name();
    let _listen = Undo(
        js("globalThis.noise = ''; const hear = event => { globalThis.noise += event.message ?? event.reason; }; \
            const kinds = ['error', 'unhandledrejection']; \
            for (const kind of kinds) globalThis.addEventListener(kind, hear); \
            return () => { for (const kind of kinds) globalThis.removeEventListener(kind, hear); };")
        .unchecked_into(),
    );
    let store = open(&name).await;
    for _ in 0..5 {
        let session = begin_with_a_write(&*store).await;
        drop(session.get(QUEUES, &1_u32.into()));
        drop(session.get_range(QUEUES.into(), &Range::all(), Some(3), Direction::Backward));
        drop(session);
        drop(begin_with_a_write(&*store).await.commit());
        let session = begin_with_a_write(&*store).await;
        drop(session.abort());
    }
    drop(begin_with_a_write(&*store).await);
    // With the connection go its event handlers.
    drop(store);
    let store = open(&name).await;
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("written"), "the commits had been asked for");
    js_wait("return new Promise(resolve => setTimeout(resolve, 50));").await;
    assert_eq!(js("return globalThis.noise;").as_string().as_deref(), Some(""));
    remove(&name).await;
}}

async_test! { async fn a_key_of_a_foreign_kind_is_corrupt() {
    let name = random_name();
    let store = open(&name).await;
    js_wait(&format!(
        "return new Promise((resolve, reject) => {{ const request = indexedDB.open('{name}'); request.onsuccess = () => {{ \
           const db = request.result, tx = db.transaction('queues', 'readwrite'); tx.objectStore('queues').put('x', new Date(0)); \
           tx.oncomplete = () => {{ db.close(); resolve(); }}; tx.onabort = () => reject(tx.error); }} }});"
    ))
    .await;
    let read = transact(&*store, &[QUEUES], Mode::ReadOnly, async |tx| tx.get_keys(QUEUES, &Range::all(), None).await).await;
    assert_eq!(read.expect_err("a Date is no key of ours").code(), ErrorCode::StorageCorrupt);
    remove(&name).await;
}}
