//! Opening and deleting, with other tabs in the way (D40).

use std::cell::Cell;

use futures_util::future::join;
use pocket_broker::store::CloseReason;

use super::*;

/// Opens a database as another tab would, and keeps it in `globalThis.other` without listening to `versionchange`.
async fn open_elsewhere(name: &str, version: u32) {
    js_wait(&format!(
        "return new Promise((resolve, reject) => {{ const request = indexedDB.open('{name}', {version}); \
           request.onsuccess = () => {{ globalThis.other = request.result; resolve(); }}; \
           request.onerror = () => reject(request.error); }});"
    ))
    .await;
}

fn close_elsewhere() {
    js("globalThis.other.close();");
}

async fn fails_to_open(name: &str) -> (ErrorCode, f64) {
    let start = js_sys::Date::now();
    let error = IndexedDbStore::open(name, IndexedDbOptions::default()).await.expect_err("it can't be opened");
    (error.code(), js_sys::Date::now() - start)
}

/// Opens a store and lets another tab do something that makes it close.
async fn close_reason(disturb: impl AsyncFnOnce(&str)) -> CloseReason {
    let name = random_name();
    let reason = Rc::new(Cell::new(None));
    let options = IndexedDbOptions {
        on_close: Some(Rc::new({
            let reason = Rc::clone(&reason);
            move |given| assert_eq!(reason.replace(Some(given)), None, "only once")
        })),
        ..IndexedDbOptions::default()
    };
    let store = IndexedDbStore::open(&name, options).await.expect("IndexedDB opens");
    let running = begin_with_a_write(&store).await.commit();
    disturb(&name).await;
    running.await.expect("running transactions finish");
    assert_eq!(put(&store, QUEUES, 1_u32, "late").await.expect_err("it is closed").code(), ErrorCode::Closed);
    remove(&name).await;
    reason.get().expect("it was told")
}

async_test! { async fn a_connection_makes_way_for_other_tabs() {
    assert_eq!(close_reason(remove).await, CloseReason::Deleted);
    let upgrade = async |name: &str| {
        open_elsewhere(name, 2).await;
        close_elsewhere();
    };
    assert_eq!(close_reason(upgrade).await, CloseReason::UpgradedElsewhere);
}}

async_test! { async fn the_schema_is_complete() {
    let name = random_name();
    let _store = open(&name).await;
    open_elsewhere(&name, 1).await;
    let mut names: Vec<_> = StoreName::ALL.iter().map(|store| store.name()).collect();
    names.sort_unstable();
    assert_eq!(js("return [...globalThis.other.objectStoreNames].join();").as_string(), Some(names.join(",")));
    let schema = js("const tx = globalThis.other.transaction(['journal', 'messages']); \
        const journal = tx.objectStore('journal'), messages = tx.objectStore('messages'), order = messages.index('order'); \
        return JSON.stringify([journal.autoIncrement, messages.autoIncrement, [...messages.indexNames], order.keyPath, order.unique]);");
    assert_eq!(schema.as_string().as_deref(), Some(r#"[true,false,["order"],["s","o"],false]"#));
    close_elsewhere();
    remove(&name).await;
}}

async_test! { async fn a_newer_database_is_refused() {
    let name = random_name();
    open_elsewhere(&name, 99).await;
    close_elsewhere();
    assert_eq!(fails_to_open(&name).await.0, ErrorCode::VersionTooNew);
    remove(&name).await;
}}

async_test! { async fn a_tab_that_does_not_let_go_blocks_for_five_seconds() {
    let name = random_name();
    open_elsewhere(&name, 1).await;
    // The delete is blocked by the other tab, and the open by the delete, which raises no event.
    let delete = async { delete_database(&name).await.expect_err("it is blocked").code() };
    let (deleted, (opened, waited)) = join(delete, fails_to_open(&name)).await;
    assert_eq!(deleted, ErrorCode::UpgradeBlocked);
    assert_eq!(opened, ErrorCode::UpgradeBlocked);
    assert!((4_900.0..9_900.0).contains(&waited), "{waited} ms");
    // What comes true now, too late, is closed at once: else this would be blocked again.
    close_elsewhere();
    remove(&name).await;
}}

async_test! { async fn an_indexed_db_that_never_answers_is_unavailable() {
    let _open = patch("IDBFactory.prototype", "open", "() => () => new EventTarget()");
    let _delete = patch("IDBFactory.prototype", "deleteDatabase", "() => () => new EventTarget()");
    let (code, waited) = fails_to_open("never").await;
    assert_eq!(code, ErrorCode::StorageUnavailable);
    assert!(waited < 10_000.0, "{waited} ms");
}}

async_test! { async fn a_missing_indexed_db_is_unavailable() {
    for getter in ["() => { throw new DOMException('Denied.', 'SecurityError'); }", "() => undefined", "() => null", "() => 7"] {
        let _missing = patch_getter("globalThis", "indexedDB", getter);
        assert_eq!(fails_to_open("missing").await.0, ErrorCode::StorageUnavailable, "{getter}");
        assert!(delete_database("missing").await.is_err(), "{getter}");
    }
    let _refuse = patch("IDBFactory.prototype", "open", "() => () => { throw new DOMException('Denied.', 'SecurityError'); }");
    assert_eq!(fails_to_open("refused").await.0, ErrorCode::StorageUnavailable);
}}
