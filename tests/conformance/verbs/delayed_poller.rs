//! The poller and delayed messages: how long it sleeps, what wakes it, and that it does one thing at a time.

use pocket_broker::clock::Clock;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{Delay, EnqueueOptions};

use super::super::support::host::tick;
use super::super::support::poll_once;
use super::super::support::shop::{Shop, refused};
use super::delayed::{at, count, enqueue_later, later, waiting};
use super::poller::{settle, until_ready, until_sleeping, wake};

mount! {
    p01_what_nobody_told_of_is_found_within_a_minute,
    p01_what_nobody_told_of_is_found_during_a_long_sleep,
    p04_far_times_are_slept_for_a_minute_at_a_time,
    p09_p10_p11_p75_what_is_sooner_wakes_it,
    p12_p13_p19_p20_one_look_at_a_time_and_one_for_all_that_was_told,
    p14_nobody_hears_of_it_before_the_commit,
    p15_what_is_not_stored_does_no_harm,
    p16_p17_many_at_once_go_without_a_sleep_in_between,
    p23_who_dies_over_it_holds_up_nobody,
    p69_close_waits_for_what_is_being_sent,
    p70_what_was_due_meanwhile_goes_first_in_its_order,
    p71_a_clock_that_jumps_is_noticed_within_a_minute,
    p73_the_same_twice_is_two,
}

const DAY: f64 = 86_400_000.0;

/// As if a tab had died between the commit and the hint: the message is there, and whoever has stored it tells nobody.
async fn store_silently(shop: &Shop, delay: f64) {
    let tab = shop.another_tab().await;
    let options = EnqueueOptions { delay: Some(Delay::After(delay)), ..EnqueueOptions::default() };
    tab.enqueue_later("kitchen", vec![shop.message("DEFAULT", "m1")], options).await.expect("it can be enqueued");
    tab.close().await;
    settle().await;
}

async fn p01_what_nobody_told_of_is_found_within_a_minute(shop: &Shop) {
    settle().await;
    assert_eq!(shop.looks().sleeps(), [50_000.0], "it looks, whatever it has heard");
    store_silently(shop, 5_000.0).await;
    until_sleeping(shop, &[]).await;
    shop.faults.reset_counts();
    shop.looks().fire();
    until_sleeping(shop, &[5_000.0]).await;
    assert_eq!((shop.faults.calls(Operation::Begin), shop.faults.writes()), (1, 0), "it only looks");
    assert_eq!(shop.looks().sleeping(), 0);
    wake(shop, 5_000.0);
    until_ready(shop, "kitchen", 1).await;
    settle().await;
    assert_eq!(shop.looks().sleeping(), 1);
    shop.broker.close().await;
    settle().await;
    assert_eq!((shop.looks().sleeping(), shop.timer().sleeping()), (0, 0));
}

async fn p01_what_nobody_told_of_is_found_during_a_long_sleep(shop: &Shop) {
    enqueue_later(shop, "kitchen", "far", at(DAY)).await;
    until_sleeping(shop, &[60_000.0]).await;
    store_silently(shop, 90_000.0).await;
    until_sleeping(shop, &[60_000.0]).await;
    wake(shop, 60_000.0);
    until_sleeping(shop, &[30_000.0]).await;
    wake(shop, 30_000.0);
    until_ready(shop, "kitchen", 1).await;
}

/// P3.
async fn p04_far_times_are_slept_for_a_minute_at_a_time(shop: &Shop) {
    let beyond = 4_294_967_296.0 + 5_000.0;
    for delay in [60_001.0, 25.0 * DAY, 30.0 * DAY, beyond, 3_652.5 * DAY, 253_402_300_799_999.0 - shop.clock().now()] {
        let id = enqueue_later(shop, "kitchen", "far", Delay::After(delay)).await;
        for _ in 0..3 {
            until_sleeping(shop, &[60_000.0]).await;
            wake(shop, 0.0);
        }
        until_sleeping(shop, &[60_000.0]).await;
        shop.clock().advance(delay - 1.0);
        shop.timer().fire();
        until_sleeping(shop, &[10.0]).await;
        assert_eq!(shop.queue("kitchen").await.ready, 0, "not before its time");
        wake(shop, 1.0);
        until_ready(shop, "kitchen", 1).await;
        until_sleeping(shop, &[]).await;
        let rows = shop.messages("kitchen", Default::default()).await;
        assert_eq!(rows[0].message_id, id);
        shop.receive("kitchen").await;
    }
}

/// What lies further ahead than the sleep does not even end that; what lies before its end shortens it. Nothing is read for either.
async fn p09_p10_p11_p75_what_is_sooner_wakes_it(shop: &Shop) {
    let far = enqueue_later(shop, "kitchen", "far", at(DAY)).await;
    until_sleeping(shop, &[60_000.0]).await;
    shop.faults.reset_counts();
    enqueue_later(shop, "kitchen", "61", Delay::After(61_000.0)).await;
    settle().await;
    until_sleeping(shop, &[60_000.0]).await;
    enqueue_later(shop, "kitchen", "59", Delay::After(59_000.0)).await;
    until_sleeping(shop, &[59_000.0]).await;
    enqueue_later(shop, "kitchen", "5", Delay::After(5_000.0)).await;
    until_sleeping(shop, &[5_000.0]).await;
    assert_eq!(shop.faults.calls(Operation::Begin), 3, "no more than the three commits");
    wake(shop, 5_000.0);
    until_ready(shop, "kitchen", 1).await;
    until_sleeping(shop, &[54_000.0]).await;
    assert!(shop.broker.reschedule(&far, shop.clock().now() + 1_000.0).await.expect("it can be moved"));
    until_sleeping(shop, &[1_000.0]).await;
    assert!(shop.broker.reschedule(&far, shop.clock().now() + 2_000.0).await.expect("it can be moved"));
    wake(shop, 1_000.0);
    until_sleeping(shop, &[1_000.0]).await;
    assert_eq!(shop.queue("kitchen").await.ready, 1, "not at the old time");
    wake(shop, 1_000.0);
    until_ready(shop, "kitchen", 2).await;
    until_sleeping(shop, &[52_000.0]).await;
}

async fn p12_p13_p19_p20_one_look_at_a_time_and_one_for_all_that_was_told(shop: &Shop) {
    enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "m2", at(DAY)).await;
    until_sleeping(shop, &[1_000.0]).await;
    shop.faults.reset_counts();
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    wake(shop, 1_000.0);
    while shop.faults.held() == 0 {
        tick().await;
    }
    for _ in 0..10 {
        shop.broker.due_elsewhere(shop.clock().now());
        shop.timer().fire();
        settle().await;
    }
    assert_eq!((shop.faults.calls(Operation::Begin), shop.timer().sleeping()), (1, 0), "one at a time");
    shop.faults.release();
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 10.0);
    until_sleeping(shop, &[60_000.0]).await;
    assert_eq!(shop.faults.calls(Operation::Begin), 2, "what was told meanwhile is looked after once");
    until_ready(shop, "kitchen", 1).await;
}

async fn p14_nobody_hears_of_it_before_the_commit(shop: &Shop) {
    shop.notices();
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    let options = EnqueueOptions { delay: Some(Delay::After(5_000.0)), ..EnqueueOptions::default() };
    let mut sent = Box::pin(shop.broker.enqueue_later("kitchen", vec![shop.message("DEFAULT", "m1")], options));
    while shop.faults.held() == 0 {
        assert!(poll_once(&mut sent).await.is_pending());
        tick().await;
    }
    settle().await;
    assert!(shop.notices().iter().all(|notice| notice.due.is_none()));
    assert_eq!(shop.timer().sleeping(), 0);
    shop.faults.release();
    sent.await.expect("it can be enqueued");
    assert!(shop.notices().iter().any(|notice| notice.due == Some(1_700_000_005_000.0)));
    until_sleeping(shop, &[5_000.0]).await;
}

async fn p15_what_is_not_stored_does_no_harm(shop: &Shop) {
    shop.notices();
    let options = EnqueueOptions { delay: Some(Delay::After(5_000.0)), ..EnqueueOptions::default() };
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    let message = vec![shop.message("DEFAULT", "m1")];
    refused(shop.broker.enqueue_later("kitchen", message, options).await, ErrorCode::QuotaExceeded);
    settle().await;
    assert!(shop.notices().iter().all(|notice| notice.due.is_none()));
    assert_eq!((count(shop).await, shop.timer().sleeping()), (0, 0));
    // Somebody is told of what never came to be.
    shop.broker.due_elsewhere(shop.clock().now());
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 10.0);
    settle().await;
    until_sleeping(shop, &[]).await;
    assert_eq!(shop.queue("kitchen").await.ready, 0);
}

/// P5.
async fn p16_p17_many_at_once_go_without_a_sleep_in_between(shop: &Shop) {
    for (body, delay) in [("3", 3_000.0), ("1", 1_000.0), ("2", 2_000.0)] {
        enqueue_later(shop, "kitchen", body, at(delay)).await;
    }
    let messages = (0..1_000).map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let options = EnqueueOptions { delay: Some(at(4_000.0)), ..EnqueueOptions::default() };
    shop.broker.enqueue_later("kitchen", messages, options).await.expect("they can be enqueued");
    until_sleeping(shop, &[1_000.0]).await;
    // As in a page that slept over it all: one timer, and no other one.
    wake(shop, 5_000.0);
    until_ready(shop, "kitchen", 1_003).await;
    until_sleeping(shop, &[]).await;
    assert_eq!(count(shop).await, 0);
    let mut expected = vec!["0 DEFAULT 0 1".to_owned(), "0 DEFAULT 1 2".to_owned(), "0 DEFAULT 2 3".to_owned()];
    expected.extend((0..1_000).map(|number| format!("0 DEFAULT {} {number}", number + 3)));
    assert_eq!(shop.receive("kitchen").await, expected);
}

async fn p23_who_dies_over_it_holds_up_nobody(shop: &Shop) {
    let dialog = shop.order("m1").await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    for _ in 0..12 {
        // Gone somewhere on the way.
        let _ = poll_once(tab.poll()).await;
        tick().await;
    }
    let moved = shop.broker.poll().await.expect("it can be done");
    assert!(moved <= 1);
    tab.close().await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    assert_eq!(count(shop).await, 0);
}

async fn p69_close_waits_for_what_is_being_sent(shop: &Shop) {
    let tab = shop.another_tab().await;
    enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "m2", at(1_000.0)).await;
    tab.due_elsewhere(1_700_000_001_000.0);
    until_sleeping(shop, &[1_000.0, 1_000.0]).await;
    shop.broker.suspend();
    settle().await;
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    wake(shop, 1_000.0);
    while shop.faults.held() == 0 {
        tick().await;
    }
    let mut closing = Box::pin(tab.close());
    for _ in 0..20 {
        assert!(poll_once(&mut closing).await.is_pending(), "it is not cut off");
        tick().await;
    }
    shop.faults.release();
    closing.await;
    shop.broker.restore();
    assert_eq!(
        (shop.receive("kitchen").await, count(shop).await),
        (vec!["0 DEFAULT 0 m1".into(), "0 DEFAULT 1 m2".into()], 0)
    );
}

async fn p70_what_was_due_meanwhile_goes_first_in_its_order(shop: &Shop) {
    for (body, delay) in [("2", 2_000.0), ("1", 1_000.0), ("tomorrow", DAY), ("3", 3_000.0)] {
        enqueue_later(shop, "kitchen", body, at(delay)).await;
    }
    shop.broker.suspend();
    settle().await;
    wake(shop, 3_600_000.0);
    let tab = shop.another_tab().await;
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    until_sleeping(shop, &[60_000.0]).await;
    tab.close().await;
    shop.broker.restore();
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 1", "0 DEFAULT 1 2", "0 DEFAULT 2 3"]);
}

async fn p71_a_clock_that_jumps_is_noticed_within_a_minute(shop: &Shop) {
    enqueue_later(shop, "kitchen", "m1", at(1_800_000.0)).await;
    until_sleeping(shop, &[60_000.0]).await;
    wake(shop, 3_600_000.0);
    until_ready(shop, "kitchen", 1).await;
    enqueue_later(shop, "kitchen", "m2", Delay::After(30_000.0)).await;
    until_sleeping(shop, &[30_000.0]).await;
    wake(shop, 30_000.0 - 3_600_000.0);
    // It looks whether anything is over by that, and nothing is.
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 10.0);
    until_sleeping(shop, &[60_000.0]).await;
    assert_eq!((shop.queue("kitchen").await.ready, count(shop).await), (1, 1));
    wake(shop, 3_600_000.0);
    until_ready(shop, "kitchen", 2).await;
    assert_eq!(shop.records_in(StoreName::Delayed).await, 0);
}

async fn p73_the_same_twice_is_two(shop: &Shop) {
    let ids = [
        enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await,
        enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await,
    ];
    assert_eq!(waiting(&shop.broker).await.len(), 2);
    assert_eq!(shop.pass(1_000.0).await, 2);
    let rows = shop.messages("kitchen", Default::default()).await;
    assert_eq!(rows.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>(), ids);
}
