//! END of a side with many runs: its rows are gone at once, and from the disk in time.

use pocket_broker::EndResult;
use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};

use super::super::support::host::tick;
use super::super::support::shop::{Dialog, Shop, archived};

mount! {
    a_side_that_waits_outside_is_swept_too,
    many_runs_are_archived_before_they_are_swept,
    rows_are_gone_at_once_and_from_the_disk_in_time,
    what_a_sleep_cuts_off_goes_on_afterwards,
    what_one_broker_leaves_another_sweeps,
}

/// 600 runs of one row each.
async fn many_runs(shop: &Shop) -> Dialog {
    let dialog = shop.order("m1").await;
    let body = |number: u32| Body {
        value: Value::from(f64::from(number)).into(),
        packing: 0,
        size: if number.is_multiple_of(100) { 70_000.0 } else { 60_000.0 },
    };
    let messages = (0..600).map(|number| shop.message_of("Note", body(number))).collect();
    shop.broker.send(vec![dialog.initiator.clone()], messages, None).await.expect("they can be sent");
    assert!(shop.records_in(StoreName::Messages).await > 512);
    dialog
}

/// The EndDialog at the other side stays.
async fn until_swept(shop: &Shop) {
    for _ in 0..2_000 {
        if shop.records_in(StoreName::Messages).await == 1 && shop.records_in(StoreName::Bodies).await == 0 {
            return;
        }
        tick().await;
    }
    panic!("{} runs are left", shop.records_in(StoreName::Messages).await);
}

async fn rows_are_gone_at_once_and_from_the_disk_in_time(shop: &Shop) {
    let dialog = many_runs(shop).await;
    assert_eq!(shop.end(&dialog.target).await, EndResult { discarded: 601, archived: 0 });
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.queue("kitchen").await.ready, 0);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.assert_sound().await;
    until_swept(shop).await;
    shop.assert_sound().await;
    assert_eq!(shop.receive("counter").await, ["0 EndDialog 0"]);
}

async fn a_side_that_waits_outside_is_swept_too(shop: &Shop) {
    let dialog = many_runs(shop).await;
    shop.switch("counter", Status::Off).await;
    shop.end(&dialog.target).await;
    assert_eq!(shop.state(&dialog.target).await, "DO");
    shop.assert_sound().await;
    until_swept(shop).await;
    shop.switch("counter", Status::On).await;
    assert_eq!(shop.receive("counter").await, ["0 EndDialog 0"]);
    shop.end(&dialog.initiator).await;
}

async fn what_one_broker_leaves_another_sweeps(shop: &Shop) {
    let dialog = many_runs(shop).await;
    // Its sweep fails in the middle.
    shop.faults.plan(
        Operation::GetKeys,
        2,
        Fault::Fail(Error::new(ErrorCode::StorageUnavailable, "The disk is on fire.")),
    );
    shop.end(&dialog.target).await;
    while shop.faults.calls(Operation::GetKeys) < 2 {
        tick().await;
    }
    let left = shop.records_in(StoreName::Messages).await;
    assert!(left > 0, "it has not finished");
    shop.assert_sound().await;
    let other = shop.another_tab().await;
    until_swept(shop).await;
    other.close().await;
}

async fn what_a_sleep_cuts_off_goes_on_afterwards(shop: &Shop) {
    let dialog = many_runs(shop).await;
    // In the middle of the second slice.
    shop.faults.plan(Operation::GetKeys, 2, Fault::Delay);
    shop.end(&dialog.target).await;
    while shop.faults.held() == 0 {
        tick().await;
    }
    shop.broker.suspend();
    shop.faults.release();
    for _ in 0..50 {
        tick().await;
    }
    assert!(shop.records_in(StoreName::Messages).await > 1, "it has not finished");
    shop.broker.restore();
    until_swept(shop).await;
}

async fn many_runs_are_archived_before_they_are_swept(shop: &Shop) {
    let dialog = many_runs(shop).await;
    let ended = shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!(ended, EndResult { discarded: 601, archived: 601 });
    until_swept(shop).await;
    assert_eq!(shop.broker.purge_archive(f64::MAX).await.expect("it can be purged"), 601);
}
