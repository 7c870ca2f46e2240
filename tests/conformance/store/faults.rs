//! `FaultStore`: every failure reaches the caller with its cause, and leaves nothing behind.

use std::pin::pin;

use futures_util::future::{Either, join, select};
use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::store::{Direction, Fault, Mode, Operation, Range, Store, StoreName};

use super::super::support::{Bench, detail, get, poll_once, put, transact};

const QUEUES: StoreName = StoreName::Queues;
const TURNS: StoreName = StoreName::Turns;

const OPERATIONS: [Operation; 7] = [
    Operation::Begin,
    Operation::Get,
    Operation::GetRange,
    Operation::GetKeys,
    Operation::Count,
    Operation::Write,
    Operation::Commit,
];

/// Mounts the tests that hold over any store.
macro_rules! mount {
    ($bench:expr) => {
        $crate::conformance::store::faults::mount! { $bench;
            a_failure_anywhere_writes_nothing, an_abort_anywhere_writes_nothing, a_lost_answer_leaves_the_outcome_unknown,
            a_delayed_commit_waits, a_delayed_begin_waits, a_lost_commit_never_answers_and_writes_nothing, calls_are_counted,
        }
    };
    ($bench:expr; $($name:ident,)+) => {
        $(async_test! { async fn $name() { run!($bench, faults::$name) } })+
    };
}
pub(super) use mount;

fn quota() -> Error {
    Error::new(ErrorCode::QuotaExceeded, "No space.")
}

/// Every operation once, and two writes.
async fn work(store: &dyn Store) -> Result<()> {
    transact(store, &[QUEUES, TURNS], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "one".into());
        tx.get(QUEUES, &1_u32.into()).await?;
        tx.get_range(QUEUES, &Range::all(), None, Direction::Forward).await?;
        tx.get_keys(QUEUES, &Range::all(), None).await?;
        tx.count(QUEUES, &Range::all()).await?;
        tx.put(TURNS, 1_u32.into(), "two".into());
        Ok(())
    })
    .await
}

async fn assert_all_or_nothing(store: &dyn Store, all: bool) {
    let expected = |value: &str| all.then(|| value.to_owned());
    assert_eq!(get(store, QUEUES, 1_u32).await, expected("one"));
    assert_eq!(get(store, TURNS, 1_u32).await, expected("two"));
}

async fn fail_everywhere(bench: &Bench, fault: fn(Error) -> Fault) {
    let store = bench.connect().await;
    for operation in OPERATIONS {
        bench.faults().plan(operation, 1, fault(quota()));
        let failed = work(&*store).await.expect_err("a fault was planned");
        assert_eq!(failed.code(), ErrorCode::QuotaExceeded, "{operation:?} keeps its cause");
        assert_all_or_nothing(&*store, false).await;
    }
    bench.faults().plan(Operation::Write, 2, fault(quota()));
    assert!(work(&*store).await.is_err());
    assert_all_or_nothing(&*store, false).await;

    bench.faults().plan(Operation::Commit, 99, fault(quota()));
    bench.faults().clear();
    work(&*store).await.expect("no fault is left");
    assert_all_or_nothing(&*store, true).await;
}

pub(super) async fn a_failure_anywhere_writes_nothing(bench: &Bench) {
    fail_everywhere(bench, Fault::Fail).await;
}

pub(super) async fn an_abort_anywhere_writes_nothing(bench: &Bench) {
    fail_everywhere(bench, Fault::Abort).await;
}

pub(super) async fn a_lost_answer_leaves_the_outcome_unknown(bench: &Bench) {
    let store = bench.connect().await;
    for operation in OPERATIONS.into_iter().filter(|operation| *operation != Operation::Write) {
        bench.faults().plan(operation, 1, Fault::LoseAnswer);
        let lost = work(&*store).await.expect_err("a fault was planned");
        assert_eq!(lost.code(), ErrorCode::StorageLost);
        let committed = operation == Operation::Commit;
        assert_eq!(detail(&lost, "outcome").as_deref(), committed.then_some("unknown"), "{operation:?}");
        assert_all_or_nothing(&*store, committed).await;
    }
}

pub(super) async fn a_delayed_commit_waits(bench: &Bench) {
    let store = bench.connect().await;
    bench.faults().plan(Operation::Commit, 1, Fault::Delay);
    let delayed = pin!(work(&*store));
    // Other transactions keep the event loop going.
    let other = pin!(async {
        let other = bench.connect_without_faults().await;
        while bench.faults().held() == 0 {
            get(&*other, StoreName::Meta, 1_u32).await;
        }
    });
    match select(delayed, other).await {
        Either::Left(_) => panic!("it must wait"),
        Either::Right(((), mut delayed)) => {
            assert!(poll_once(delayed.as_mut()).await.is_pending());
            bench.faults().release();
            assert_eq!(bench.faults().held(), 0);
            delayed.await.expect("it commits after the release");
        }
    }
    assert_all_or_nothing(&*store, true).await;
}

pub(super) async fn a_delayed_begin_waits(bench: &Bench) {
    let store = bench.connect().await;
    bench.faults().plan(Operation::Begin, 1, Fault::Delay);
    let mut delayed = pin!(work(&*store));
    assert!(poll_once(delayed.as_mut()).await.is_pending());
    put(&*store, QUEUES, 9_u32, "meanwhile").await.expect("nothing is locked");
    bench.faults().release();
    delayed.await.expect("it works after the release");
    assert_all_or_nothing(&*store, true).await;
}

pub(super) async fn a_lost_commit_never_answers_and_writes_nothing(bench: &Bench) {
    let (store, plain) = (bench.connect().await, bench.connect_without_faults().await);
    bench.faults().plan(Operation::Commit, 1, Fault::Lose);
    let lost = pin!(work(&*store));
    let others = pin!(async {
        while bench.faults().calls(Operation::Commit) == 0 {
            get(&*plain, StoreName::Meta, 1_u32).await;
        }
        assert_all_or_nothing(&*plain, false).await;
    });
    assert!(matches!(select(lost, others).await, Either::Right(_)));
    work(&*store).await.expect("nothing is locked");
}

pub(super) async fn calls_are_counted(bench: &Bench) {
    let store = bench.connect().await;
    let faults = bench.faults();
    work(&*store).await.expect("no fault is planned");
    work(&*store).await.expect("no fault is planned");
    for operation in OPERATIONS {
        assert_eq!(faults.calls(operation), if operation == Operation::Write { 4 } else { 2 }, "{operation:?}");
    }
    assert_eq!((faults.reads(), faults.writes()), (8, 4));
    assert_eq!((faults.reads_of(QUEUES), faults.writes_to(QUEUES)), (8, 2));
    assert_eq!((faults.reads_of(TURNS), faults.writes_to(TURNS)), (0, 2));
    faults.reset_counts();
    assert_eq!((faults.reads(), faults.writes(), faults.calls(Operation::Commit)), (0, 0, 0));
}

pub(super) async fn a_delayed_read_keeps_the_transaction_open(bench: &Bench) {
    let store = bench.connect().await;
    bench.faults().plan(Operation::Get, 1, Fault::Delay);
    let slow = transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        let number = tx.get(QUEUES, &1_u32.into()).await?.and_then(|value| value.number()).unwrap_or(0.0);
        tx.put(QUEUES, 1_u32.into(), Value::from(number + 1.0));
        Ok(())
    });
    let mut slow = pin!(slow);
    assert!(poll_once(slow.as_mut()).await.is_pending());
    put(&*store, TURNS, 1_u32, "elsewhere").await.expect("other stores are free");
    let mut blocked = pin!(put(&*store, QUEUES, 1_u32, Value::from(10.0)));
    assert!(poll_once(blocked.as_mut()).await.is_pending());
    put(&*store, TURNS, 1_u32, "elsewhere again").await.expect("other stores are free");
    assert!(poll_once(blocked.as_mut()).await.is_pending(), "the slow transaction comes first");
    bench.faults().release();
    let (slow, blocked) = join(slow, blocked).await;
    slow.expect("it commits");
    blocked.expect("it commits after the other");
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("10"));
}

pub(super) async fn a_lost_read_never_answers(bench: &Bench) {
    let store = bench.connect().await;
    bench.faults().plan(Operation::Count, 1, Fault::Lose);
    {
        let mut stuck = pin!(work(&*store));
        for _ in 0..10 {
            assert!(poll_once(stuck.as_mut()).await.is_pending());
        }
        put(&*store, StoreName::Meta, 1_u32, "elsewhere").await.expect("other stores are free");
        assert!(poll_once(put(&*store, QUEUES, 2_u32, "behind it")).await.is_pending());
    }
    // Dropping it rolls it back and frees its stores; the commit behind it had been asked for.
    assert_all_or_nothing(&*store, false).await;
    assert_eq!(get(&*store, QUEUES, 2_u32).await.as_deref(), Some("behind it"));
}
