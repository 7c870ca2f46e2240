//! `Session`: what `transact` builds on.

use pocket_broker::error::{Error, Result};
use pocket_broker::store::{Change, Key, Mode, Session, Store, StoreName};

use super::super::support::{Bench, detail, get, put, show};

const QUEUES: StoreName = StoreName::Queues;
const TURNS: StoreName = StoreName::Turns;

async fn begin(store: &dyn Store, mode: Mode) -> Box<dyn Session> {
    store.begin(&[QUEUES], mode).await.expect("a transaction begins")
}

fn change(number: u32, value: &str) -> Change {
    Change::Put(QUEUES, Key::from(number), value.into())
}

async fn read(session: &dyn Session, number: u32) -> Result<Option<String>> {
    Ok(session.get(QUEUES, &number.into()).await?.as_ref().map(show))
}

fn assert_inactive(error: &Error) {
    assert_eq!(detail(error, "exception").as_deref(), Some("TransactionInactiveError"), "{error}");
}

pub(super) async fn requests_are_answered_in_order(bench: &Bench) {
    let store = bench.connect().await;
    let session = begin(&*store, Mode::ReadWrite).await;
    session.write(change(1, "first")).expect("the write is taken");
    let before = session.get(QUEUES, &1_u32.into());
    session.write(change(1, "second")).expect("the write is taken");
    let after = session.get(QUEUES, &1_u32.into());
    assert_eq!(after.await.expect("an answer").as_ref().map(show).as_deref(), Some("second"));
    assert_eq!(before.await.expect("an answer").as_ref().map(show).as_deref(), Some("first"));
    session.commit().await.expect("it commits");
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("second"));
}

pub(super) async fn a_read_only_session_refuses_writes(bench: &Bench) {
    let store = bench.connect().await;
    let session = begin(&*store, Mode::ReadOnly).await;
    let refused = session.write(change(1, "no")).expect_err("it is read-only");
    assert_eq!(detail(&refused, "exception").as_deref(), Some("ReadOnlyError"), "{refused}");
    assert!(session.commit().await.is_err(), "a failed write can't be committed");
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
}

pub(super) async fn a_store_outside_the_scope_is_refused(bench: &Bench) {
    let store = bench.connect().await;
    let session = begin(&*store, Mode::ReadWrite).await;
    session.write(change(1, "inside")).expect("the write is taken");
    let refused = session.get(TURNS, &1_u32.into()).await.expect_err("it is outside the scope");
    assert_eq!(detail(&refused, "exception").as_deref(), Some("NotFoundError"), "{refused}");
    let refused = session.write(Change::Delete(TURNS, 1_u32.into())).expect_err("it is outside the scope");
    assert_eq!(detail(&refused, "exception").as_deref(), Some("NotFoundError"), "{refused}");
    assert!(session.commit().await.is_err(), "a failed write can't be committed");
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
}

pub(super) async fn an_abort_undoes_and_resolves(bench: &Bench) {
    let store = bench.connect().await;
    put(&*store, QUEUES, 1_u32, "old").await.expect("the put commits");
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        begin(&*store, mode).await.abort().await;
        let session = begin(&*store, mode).await;
        assert_eq!(read(&*session, 1).await.expect("an answer").as_deref(), Some("old"));
        session.abort().await;
    }
    let session = begin(&*store, Mode::ReadWrite).await;
    session.write(change(1, "new")).expect("the write is taken");
    session.abort().await;
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("old"));
}

pub(super) async fn an_idle_session_closes_itself(bench: &Bench) {
    let (store, other) = (bench.connect().await, bench.connect().await);
    let session = begin(&*store, Mode::ReadWrite).await;
    assert_eq!(read(&*session, 1).await.expect("an answer"), None);
    // Nothing is outstanding while this is awaited, so it needn't wait for the session.
    put(&*other, QUEUES, 1_u32, "other").await.expect("the put commits");
    assert_inactive(&read(&*session, 1).await.expect_err("it has closed itself"));
    assert_inactive(&session.write(change(1, "late")).expect_err("it has closed itself"));
    assert_inactive(&session.commit().await.expect_err("a failed write can't be committed"));
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("other"));
}

pub(super) async fn an_idle_session_that_wrote_commits_itself(bench: &Bench) {
    let (store, other) = (bench.connect().await, bench.connect().await);
    let session = begin(&*store, Mode::ReadWrite).await;
    session.write(change(1, "written")).expect("the write is taken");
    assert_eq!(get(&*other, QUEUES, 1_u32).await.as_deref(), Some("written"));
    session.commit().await.expect("it has been committed");
}

pub(super) async fn a_running_transaction_outlives_close(bench: &Bench) {
    let store = bench.connect().await;
    let session = begin(&*store, Mode::ReadWrite).await;
    session.write(change(1, "written")).expect("the write is taken");
    store.close();
    assert_eq!(read(&*session, 1).await.expect("an answer").as_deref(), Some("written"));
    drop(store);
    session.commit().await.expect("it commits");
    let store = bench.connect().await;
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("written"));
}
