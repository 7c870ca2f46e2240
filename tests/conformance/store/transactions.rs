//! `transact`: all or nothing, one after the other.

use std::cell::RefCell;
use std::pin::pin;

use futures_util::future::{Either, join, join_all, select};
use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::store::{Key, Mode, Range, Store, StoreName};

use super::super::support::{Bench, get, poll_once, put, transact};

const QUEUES: StoreName = StoreName::Queues;
const TURNS: StoreName = StoreName::Turns;

pub(super) async fn an_empty_transaction_commits(bench: &Bench) {
    let store = bench.connect().await;
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let answer = transact(&*store, &[QUEUES], mode, async |_| Ok(7)).await;
        assert_eq!(answer.expect("nothing can go wrong"), 7);
        let only_read = transact(&*store, &[QUEUES], mode, async |tx| tx.count(QUEUES, &Range::all()).await).await;
        assert_eq!(only_read.expect("nothing can go wrong"), 0);
    }
    put(&*store, QUEUES, 1_u32, "after").await.expect("the store is free");
}

pub(super) async fn a_commit_shows_on_another_connection(bench: &Bench) {
    let (one, other) = (bench.connect().await, bench.connect().await);
    put(&*one, QUEUES, 1_u32, "from one").await.expect("the put commits");
    assert_eq!(get(&*other, QUEUES, 1_u32).await.as_deref(), Some("from one"));
    put(&*other, QUEUES, 1_u32, "from the other").await.expect("the put commits");
    assert_eq!(get(&*one, QUEUES, 1_u32).await.as_deref(), Some("from the other"));
}

pub(super) async fn data_outlives_its_connection(bench: &Bench) {
    let store = bench.connect().await;
    put(&*store, QUEUES, 1_u32, "kept").await.expect("the put commits");
    store.close();
    drop(store);
    let store = bench.connect().await;
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("kept"));
}

pub(super) async fn an_early_return_writes_nothing(bench: &Bench) {
    let store = bench.connect().await;
    put(&*store, QUEUES, 1_u32, "old").await.expect("the put commits");
    let failed: Result<()> = transact(&*store, &[QUEUES, TURNS], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "new".into());
        tx.put(TURNS, 1_u32.into(), "turn".into());
        // The read sends the writes to the store.
        assert_eq!(tx.count(TURNS, &Range::all()).await?, 1);
        tx.delete_range(QUEUES, Range::all());
        Err(Error::invalid_argument("top", "must be at least 1"))
    })
    .await;
    assert_eq!(failed.expect_err("the closure failed").code(), ErrorCode::InvalidArgument);
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("old"));
    assert_eq!(get(&*store, TURNS, 1_u32).await, None);
}

pub(super) async fn a_dropped_transaction_writes_nothing(bench: &Bench) {
    let store = bench.connect().await;
    let abandoned = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "half".into());
        tx.count(QUEUES, &Range::all()).await?;
        tx.put(QUEUES, 2_u32.into(), "other half".into());
        Ok(())
    });
    assert!(poll_once(abandoned).await.is_pending());
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
    put(&*store, QUEUES, 3_u32, "after").await.expect("the store is free");
}

pub(super) async fn a_foreign_await_is_an_error(bench: &Bench) {
    let store = bench.connect().await;
    let failed: Result<()> = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "half".into());
        tx.count(QUEUES, &Range::all()).await?;
        std::future::pending::<()>().await;
        Ok(())
    })
    .await;
    let error = failed.expect_err("it would be committed by half");
    assert_eq!(error.code(), ErrorCode::StorageUnavailable);
    assert!(error.to_string().contains("awaited something"), "{error}");
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
}

pub(super) async fn a_dropped_request_does_not_hide_a_foreign_await(bench: &Bench) {
    let store = bench.connect().await;
    let failed: Result<()> = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "half".into());
        assert!(poll_once(tx.count(QUEUES, &Range::all())).await.is_pending());
        std::future::pending::<()>().await;
        Ok(())
    })
    .await;
    assert!(failed.is_err());
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
}

/// Adds 1 to a number.
async fn increment(store: &dyn Store) {
    transact(store, &[QUEUES], Mode::ReadWrite, async |tx| {
        let number = tx.get(QUEUES, &1_u32.into()).await?.and_then(|value| value.number()).unwrap_or(0.0);
        tx.put(QUEUES, 1_u32.into(), Value::from(number + 1.0));
        Ok(())
    })
    .await
    .expect("the increment commits");
}

pub(super) async fn writers_take_turns(bench: &Bench) {
    let stores = [bench.connect().await, bench.connect().await, bench.connect().await];
    join_all((0..5).flat_map(|_| &stores).map(|store| increment(&**store))).await;
    assert_eq!(get(&*stores[0], QUEUES, 1_u32).await.as_deref(), Some("15"));
}

pub(super) async fn readers_wait_for_the_writer_before_them(bench: &Bench) {
    let (one, other) = (bench.connect().await, bench.connect().await);
    let finished = RefCell::new(Vec::new());
    let write = async {
        put(&*one, QUEUES, 1_u32, "written").await.expect("the put commits");
        finished.borrow_mut().push("write");
    };
    let read = async {
        let seen = get(&*other, QUEUES, 1_u32).await;
        finished.borrow_mut().push("read");
        seen
    };
    let ((), seen) = join(write, read).await;
    assert_eq!(seen.as_deref(), Some("written"));

    // A writer of other stores is not waited for, and one that comes later is not seen.
    let read = get(&*one, QUEUES, 2_u32);
    let write = put(&*other, QUEUES, 2_u32, "later");
    let (seen, written) = join(read, write).await;
    written.expect("the put commits");
    assert_eq!(seen, None);
}

pub(super) async fn many_requests_at_once_are_answered(bench: &Bench) {
    let store = bench.connect().await;
    let total = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        for number in 1..=20_u32 {
            tx.put(QUEUES, number.into(), number.into());
        }
        let values = join_all((1..=20_u32).map(|number| async move { tx.get(QUEUES, &number.into()).await })).await;
        let mut total = 0.0;
        for value in values {
            total += value?.and_then(|value| value.number()).unwrap_or(0.0);
        }
        // Two at once, one of them not waited for.
        let (one, two) = (Key::from(1_u32), Key::from(2_u32));
        match select(pin!(tx.get(QUEUES, &one)), pin!(tx.get(QUEUES, &two))).await {
            Either::Left((first, _)) => assert!(first?.is_some()),
            Either::Right((second, _)) => assert!(second?.is_some()),
        }
        tx.put(QUEUES, 21_u32.into(), "last".into());
        Ok(total)
    })
    .await;
    assert_eq!(total.expect("the transaction commits"), 210.0);
    assert_eq!(get(&*store, QUEUES, 21_u32).await.as_deref(), Some("last"));
}

pub(super) async fn a_closed_store_refuses(bench: &Bench) {
    let (store, other) = (bench.connect().await, bench.connect().await);
    store.close();
    store.close();
    let refused = put(&*store, QUEUES, 1_u32, "late").await.expect_err("it is closed");
    assert_eq!(refused.code(), ErrorCode::Closed);
    put(&*other, QUEUES, 1_u32, "other").await.expect("another connection is not");
}
