//! Delayed messages where the storage fails: nothing is lost, nothing comes twice, and somebody hears of it.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Mode, Operation, Range, StoreName};
use pocket_broker::{BreakerState, Critical, EnqueueOptions, Thrown};

use super::super::support::host::tick;
use super::super::support::shop::Shop;
use super::super::support::transact;
#[cfg(not(target_arch = "wasm32"))]
use super::super::support::{Bench, async_test};
use super::delayed::{at, count, enqueue_later, later, waiting};
use super::poller::{settle, until_ready, until_sleeping, wake};

mount! {
    p31_p40_what_the_sender_was_refused_is_not_stored,
    p47_what_waits_holds_up_no_other,
    p50_two_that_give_up_on_it_make_one_row,
    p54_an_answer_that_is_lost_doubles_nothing,
}

mount_with_locks! {
    p61_p62_p63_what_can_not_be_read_is_tried_again_and_told,
}

const OPERATIONS: [Operation; 6] =
    [Operation::Begin, Operation::Get, Operation::GetRange, Operation::GetKeys, Operation::Write, Operation::Commit];

/// No room for one row, as for the others; and no storage at all.
#[cfg(not(target_arch = "wasm32"))]
const CODES: [ErrorCode; 2] = [ErrorCode::QuotaExceeded, ErrorCode::StorageUnavailable];

fn no_room() -> Error {
    Error::new(ErrorCode::QuotaExceeded, "No space.")
}

async fn p31_p40_what_the_sender_was_refused_is_not_stored(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let mut sent = Vec::new();
    for operation in OPERATIONS {
        for fault in [Fault::Fail(no_room()), Fault::Abort(no_room())] {
            let body = format!("{operation:?} {}", sent.len());
            shop.faults.plan(operation, 1, fault);
            let to = vec![Rc::clone(&dialog.initiator)];
            let send = || shop.broker.send_later(to.clone(), vec![shop.message("Note", &body)], at(1_000.0), None);
            // The second one is what the application does about the first.
            if send().await.is_err() {
                assert_eq!(count(shop).await, u64::try_from(sent.len()).expect("few"), "{body}: nothing was stored");
                shop.faults.clear();
                send().await.expect("now it can be sent");
            }
            shop.faults.clear();
            sent.push(body);
        }
    }
    shop.assert_sound().await;
    shop.pass(1_000.0).await;
    let expected: Vec<_> =
        sent.iter().enumerate().map(|(index, body)| format!("0 Note {} {body}", index + 1)).collect();
    assert_eq!(shop.receive("kitchen").await, expected);
}

fn jobs() -> Definitions {
    Definitions { queues: vec![("jobs".into(), QueueOptions::default())], ..Definitions::default() }
}

/// Something of each kind is due: for a conversation, for a queue, large, without a destination, unreadable, and what has to wait.
async fn all_kinds(shop: &Shop) {
    shop.broker.define(jobs()).await.expect("it can be defined");
    let dialog = shop.order("m1").await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    enqueue_later(shop, "house", "m3", at(1_000.0)).await;
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    shop.broker.enqueue_later("house", vec![shop.message_of("DEFAULT", large)], options).await.expect("it can");
    enqueue_later(shop, "jobs", "nowhere", at(1_000.0)).await;
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    enqueue_later(shop, "house", "spoilt", at(1_000.0)).await;
    shop.retain("kitchen", true).await;
    later(shop, &dialog.target, "waits", at(1_000.0)).await;
    shop.switch("kitchen", Status::Off).await;
    transact(&*shop.store, &[StoreName::Delayed], Mode::ReadWrite, async |tx| {
        // In the order of storing, so it is the last but one.
        let keys = tx.get_keys(StoreName::Delayed, &Range::all(), None).await?;
        tx.put(StoreName::Delayed, keys[4].clone(), Value::from("garbage"));
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be spoilt");
}

/// What there is of all kinds once it was dispatched, and then the queue is on again.
async fn assert_all_once(shop: &Shop, context: &str) {
    assert_eq!(waiting(&shop.broker).await.len(), 1, "{context}: one waits");
    shop.assert_sound().await;
    shop.switch("kitchen", Status::On).await;
    for _ in 0..2 {
        shop.pass(1_000.0).await;
    }
    assert_eq!(count(shop).await, 0, "{context}");
    assert_eq!(shop.rows("house").await, ["1 DEFAULT 0 m3", "1 DEFAULT 1 large"], "{context}");
    assert_eq!(shop.rows("counter").await, ["1 Note 0 waits"], "{context}");
    let mut failed = shop.rows("error").await;
    failed.sort();
    assert_eq!(failed.len(), 2, "{context}: {failed:?}");
    assert!(failed.iter().any(|row| row.ends_with("nowhere")), "{context}: {failed:?}");
    let kitchen = shop.rows("kitchen").await;
    let received: Vec<_> = kitchen.iter().filter(|row| row.starts_with('1')).collect();
    assert_eq!(received, ["1 Order 0 m1", "1 Note 1 m2"], "{context}");
    assert_eq!((shop.pass(3_600_000.0).await, shop.records_in(StoreName::Delayed).await), (0, 0), "{context}");
}

// Many databases: natively, and in memory.
#[cfg(not(target_arch = "wasm32"))]
async_test! {
    async fn p51_p55_a_failure_at_any_call_loses_nothing_and_doubles_nothing() {
        let mut provoked = 0;
        for (operation, code) in OPERATIONS.iter().flat_map(|operation| CODES.map(|code| (*operation, code))) {
            for nth in 1.. {
                let shop = Shop::open(Bench::memory()).await;
                all_kinds(&shop).await;
                shop.clock().advance(1_000.0);
                shop.faults.reset_counts();
                // A storage transaction may be begun once more.
                for again in 0..3 {
                    let error = Error::new(code, "as if");
                    let fault = if nth % 2 == 0 { Fault::Abort(error) } else { Fault::Fail(error) };
                    shop.faults.plan(operation, nth + again, fault);
                }
                let first = shop.broker.poll().await;
                let is_over = shop.faults.calls(operation) < nth;
                shop.faults.clear();
                provoked += u32::from(first.is_err());
                while shop.broker.poll().await.is_err() {}
                assert_all_once(&shop, &format!("{operation:?} {nth} {code:?}")).await;
                shop.close().await;
                if is_over {
                    break;
                }
            }
        }
        assert!(provoked > 20, "{provoked} polls have failed");
    }
}

async fn p54_an_answer_that_is_lost_doubles_nothing(shop: &Shop) {
    all_kinds(shop).await;
    shop.clock().advance(1_000.0);
    shop.faults.plan(Operation::Commit, 1, Fault::LoseAnswer);
    shop.broker.poll().await.expect_err("nobody knows whether it was done");
    shop.broker.poll().await.expect("what is left can be done");
    assert_all_once(shop, "an answer is lost").await;
}

async fn p50_two_that_give_up_on_it_make_one_row(shop: &Shop) {
    shop.broker.define(jobs()).await.expect("it can be defined");
    let id = enqueue_later(shop, "jobs", "nowhere", at(1_000.0)).await;
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    let (one, other) = futures_util::future::join(shop.broker.poll(), tab.poll()).await;
    assert_eq!((one.expect("it can be done"), other.expect("it can be done")), (0, 0));
    let failed = shop.messages("error", Default::default()).await;
    assert_eq!(failed.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>(), [id]);
    tab.close().await;
}

/// A sender whose queue is off, another one, a timer, and what is due for a queue: only the first waits.
/// P46.
async fn p47_what_waits_holds_up_no_other(shop: &Shop) {
    let (first, second) = (shop.order("m1").await, shop.order("m2").await);
    shop.retain("counter", true).await;
    shop.receive("kitchen").await;
    shop.receive("kitchen").await;
    later(shop, &first.initiator, "waits", at(1_000.0)).await;
    later(shop, &second.target, "goes", at(1_000.0)).await;
    enqueue_later(shop, "house", "goes, too", at(1_001.0)).await;
    shop.switch("counter", Status::Off).await;
    assert_eq!((shop.pass(1_001.0).await, count(shop).await), (2, 1));
    assert_eq!(shop.rows("house").await, ["1 DEFAULT 0 goes, too"]);
    let put_back = waiting(&shop.broker).await.remove(0);
    assert_eq!((put_back.number_of_retries, put_back.time), (1, 1_700_000_001_000.0));
}

async fn p61_p62_p63_what_can_not_be_read_is_tried_again_and_told(shop: &Shop) {
    let told = || -> Vec<_> { shop.notices().into_iter().flat_map(|notice| notice.critical).collect() };
    for (operation, nth) in
        [(Operation::GetRange, 1), (Operation::GetKeys, 1), (Operation::GetKeys, 3), (Operation::Begin, 1)]
    {
        let ready = shop.queue("house").await.ready;
        enqueue_later(shop, "house", "m1", pocket_broker::Delay::After(1_000.0)).await;
        until_sleeping(shop, &[1_000.0]).await;
        shop.notices();
        let broken = || Error::new(ErrorCode::StorageUnavailable, "The disk is on fire.");
        shop.clock().advance(1_000.0);
        for (passed, pause) in [(0.0, 1_000.0), (29_000.0, 1_000.0), (1_000.0, 10_000.0), (60_000.0, 10_000.0)] {
            shop.clock().advance(passed);
            shop.faults.clear();
            shop.faults.plan(operation, nth, Fault::Fail(broken()));
            // A transaction that can't begin is begun once more.
            shop.faults.plan(operation, nth + 1, Fault::Fail(broken()));
            shop.timer().fire();
            settle().await;
            until_sleeping(shop, &[pause]).await;
            let error = Thrown {
                name: "BrokerError".into(),
                message: "The disk is on fire.".into(),
                code: Some("StorageUnavailable".into()),
            };
            let expected = if passed == 1_000.0 { vec![Critical { source: "fetch".into(), error }] } else { vec![] };
            assert_eq!(told(), expected, "{operation:?} {nth} {passed}");
        }
        shop.faults.clear();
        assert_eq!(shop.broker.stats().await.expect("it can be counted").breakers[1], BreakerState::Triggered);
        wake(shop, 10_000.0);
        until_ready(shop, "house", ready + 1).await;
        tick().await;
        assert_eq!(shop.broker.stats().await.expect("it can be counted").breakers[1], BreakerState::Disarmed);
        until_sleeping(shop, &[]).await;
    }
}
