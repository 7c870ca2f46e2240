//! What is due happens by itself, once, whichever tabs are open.

use pocket_broker::Broker;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, named};

mount! {
    b82_b107_a_timer_fires_by_itself,
    b96_what_was_due_meanwhile_happens_at_the_next_start,
    a_close_lets_go_of_the_timer,
    a_failing_poll_is_tried_again,
    an_earlier_timer_wakes_the_poller,
    an_earlier_timer_elsewhere_wakes_the_poller,
    nobody_sleeps_while_nothing_is_due,
    of_several_tabs_one_fires,
    opening_reads_one_due_row,
    sleeps_have_bounds,
}

/// Lets everybody run who can.
async fn settle() {
    for _ in 0..50 {
        tick().await;
    }
}

/// Time passes, and every sleep of that length ends.
async fn wake(shop: &Shop, ms: f64) {
    settle().await;
    shop.clock().advance(ms);
    shop.timer().fire();
    settle().await;
}

async fn timer(broker: &Broker, handle: &str, timeout: f64) {
    broker.begin_conversation_timer(handle, Some(timeout), named("", None)).await.expect("it can be begun");
}

async fn b82_b107_a_timer_fires_by_itself(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 2_000.0).await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [2_000.0]);
    shop.notices();
    wake(shop, 2_000.0).await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    assert!(shop.notices().iter().any(|notice| notice.enqueued.iter().any(|queue| &**queue == "counter")));
    assert_eq!(shop.timer().sleeping(), 0);
}

async fn nobody_sleeps_while_nothing_is_due(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
    timer(&shop.broker, &dialog.initiator, 5_000.0).await;
    settle().await;
    shop.broker.begin_conversation_timer(&dialog.initiator, None, named("", None)).await.expect("it can be cancelled");
    wake(shop, 5_000.0).await;
    assert_eq!(shop.timer().sleeping(), 0, "it has looked, and there is nothing");
    shop.faults.reset_counts();
    settle().await;
    assert_eq!(shop.faults.calls(Operation::Begin), 0);
}

async fn sleeps_have_bounds(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 0.0).await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [10.0]);
    wake(shop, 0.0).await;
    assert_eq!(shop.receive("counter").await.len(), 1);
    timer(&shop.broker, &begun.handle, 1e10).await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [60_000.0]);
    shop.faults.reset_counts();
    wake(shop, 60_000.0).await;
    assert_eq!(shop.timer().sleeps(), [60_000.0], "not yet");
    assert_eq!(shop.faults.calls(Operation::Begin), 0, "and nothing is read for that");
    wake(shop, 1e10).await;
    assert_eq!(shop.receive("counter").await.len(), 1, "a clock that was set is noticed");
}

async fn an_earlier_timer_wakes_the_poller(shop: &Shop) {
    let (first, second) = (shop.begin().await, shop.begin().await);
    timer(&shop.broker, &first.handle, 5_000.0).await;
    settle().await;
    timer(&shop.broker, &second.handle, 7_000.0).await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [5_000.0]);
    timer(&shop.broker, &second.handle, 1_000.0).await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [1_000.0]);
    wake(shop, 1_000.0).await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    assert_eq!(shop.timer().sleeps(), [4_000.0]);
}

async fn an_earlier_timer_elsewhere_wakes_the_poller(shop: &Shop) {
    let begun = shop.begin().await;
    let other = shop.another_tab().await;
    timer(&other, &begun.handle, 2_000.0).await;
    other.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0, "a tab that is gone, and one that has heard of nothing");
    shop.broker.due_elsewhere(shop_now() + 2_000.0);
    settle().await;
    assert_eq!(shop.timer().sleeps(), [2_000.0]);
    wake(shop, 2_000.0).await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
}

fn shop_now() -> f64 {
    1_700_000_000_000.0
}

async fn of_several_tabs_one_fires(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    let tabs = [shop.another_tab().await, shop.another_tab().await];
    settle().await;
    assert_eq!(shop.timer().sleeping(), 3, "each waits");
    wake(shop, 1_000.0).await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    assert_eq!(shop.timer().sleeping(), 0);
    for tab in tabs {
        tab.close().await;
    }
}

async fn b96_what_was_due_meanwhile_happens_at_the_next_start(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    shop.broker.close().await;
    wake(shop, 5_000.0).await;
    let tab = shop.another_tab().await;
    settle().await;
    assert_eq!(shop.timer().sleeps(), [10.0]);
    wake(shop, 10.0).await;
    assert_eq!(tab.count("counter", &Default::default()).await.expect("it can be counted"), 1);
    tab.close().await;
}

async fn a_close_lets_go_of_the_timer(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    let second = shop.broker.another();
    shop.broker.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 1, "another broker is open over the same connection");
    second.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
    let third = second.another();
    settle().await;
    assert_eq!(shop.timer().sleeping(), 1, "it goes on where it was");
    third.abandon();
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
}

async fn a_failing_poll_is_tried_again(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    settle().await;
    shop.clock().advance(1_000.0);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let quota = Error::new(ErrorCode::QuotaExceeded, "No space.");
        shop.faults.plan(Operation::Commit, 1, Fault::Abort(quota));
        shop.timer().fire();
        settle().await;
        pauses.extend(shop.timer().sleeps());
    }
    assert_eq!(pauses, [1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, 32_000.0, 60_000.0, 60_000.0]);
    assert_eq!(shop.rows("counter").await, [""; 0]);
    shop.timer().fire();
    settle().await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
}

async fn opening_reads_one_due_row(shop: &Shop) {
    for _ in 0..20 {
        let begun = shop.begin().await;
        timer(&shop.broker, &begun.handle, 1_000.0).await;
    }
    shop.faults.reset_counts();
    let tab = shop.another_tab().await;
    settle().await;
    assert_eq!(shop.faults.reads_of(StoreName::Due), 1);
    tab.close().await;
}
