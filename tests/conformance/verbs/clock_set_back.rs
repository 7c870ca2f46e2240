//! L19: a clock that is set back makes no wait longer than it was to be, and nothing comes before its time.

use std::rc::Rc;

use pocket_broker::clock::Clock;
use pocket_broker::definitions::{Definitions, ServiceOptions, Status};
use pocket_broker::store::StoreName;
use pocket_broker::{FailureKind, Next, Recoverability, Recovered};

use super::super::support::shop::{Shop, begin, dialog_of, top_of};
use super::delayed::{at, count, later};
use super::poller::{settle, until_ready, until_sleeping};
use super::recoverability::failure;

mount! {
    l19_a_message_that_had_to_wait_is_tried_at_once,
    l19_a_retry_is_due_at_once,
    l19_a_wait_of_the_applications_own_length,
    l19_a_tab_that_is_opened_afterwards_sees_it,
    l19_it_is_seen_while_nobody_calls,
    l19_nothing_is_delivered_early,
    l19_what_waited_for_a_service_comes_in,
    l19_who_began_and_who_looks_differ_a_little,
}

/// More than any wait of the broker's own.
const HOURS: f64 = 7_200_000.0;

/// The handler of the next message fails; `None`: there is none.
async fn fails(shop: &Shop, kind: FailureKind) -> Option<Recovered> {
    let transaction = begin(shop);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    if rows.is_empty() {
        return None;
    }
    let policy = Recoverability { immediate_retries: 0, ..Recoverability::default() };
    transaction.recover(failure(kind), policy).await.expect("it can be stored")
}

async fn l19_a_retry_is_due_at_once(shop: &Shop) {
    shop.order("m1").await;
    shop.order("m2").await;
    for _ in 0..2 {
        assert_eq!(fails(shop, FailureKind::Ordinary).await.expect("there is one").next, Next::Delayed);
    }
    assert!(fails(shop, FailureKind::Ordinary).await.is_none(), "both wait");
    shop.clock().advance(-HOURS);
    shop.pass(0.0).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    shop.assert_sound().await;
    for _ in 0..2 {
        let recovered = fails(shop, FailureKind::Ordinary).await.expect("the wait is over");
        assert_eq!(recovered.retry_at, Some(shop.clock().now() + 20_000.0), "and the next one is as long as ever");
    }
    shop.pass(19_999.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_none());
    shop.pass(1.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_some());
}

async fn l19_a_wait_of_the_applications_own_length(shop: &Shop) {
    shop.order("m1").await;
    fails(shop, FailureKind::Later(Some(10.0 * HOURS))).await.expect("there is one");
    shop.pass(HOURS).await;
    shop.clock().advance(-HOURS / 2.0);
    shop.pass(0.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_none(), "it lies no further ahead than it was to");
    shop.clock().advance(-HOURS);
    shop.pass(0.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_some());
}

async fn l19_who_began_and_who_looks_differ_a_little(shop: &Shop) {
    shop.order("m1").await;
    fails(shop, FailureKind::Ordinary).await.expect("there is one");
    shop.clock().advance(-1_000.0);
    shop.pass(0.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_none());
    shop.pass(11_000.0).await;
    assert!(fails(shop, FailureKind::Ordinary).await.is_some());
}

/// A message that can't be sent for now has been tried for half a minute.
async fn waits(shop: &Shop) -> Rc<str> {
    let dialog = shop.order("m1").await;
    shop.retain("counter", true).await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    shop.switch("counter", Status::Off).await;
    for wait in [1_000.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0] {
        assert_eq!(shop.pass(wait).await, 0);
    }
    let due = shop.broker.next_delayed().await.expect("it can be read").expect("it waits");
    assert_eq!(due - shop.clock().now(), 32_000.0);
    shop.switch("counter", Status::On).await;
    dialog.initiator
}

async fn l19_a_message_that_had_to_wait_is_tried_at_once(shop: &Shop) {
    waits(shop).await;
    shop.clock().advance(-20_000.0);
    assert_eq!((shop.pass(0.0).await, count(shop).await), (1, 0));
    shop.assert_sound().await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
    assert_eq!((shop.pass(100_000.0).await, shop.records_in(StoreName::Due).await), (0, 0));
}

/// P71.
async fn l19_nothing_is_delivered_early(shop: &Shop) {
    let initiator = waits(shop).await;
    later(shop, &initiator, "m3", at(60_000.0)).await;
    shop.clock().advance(-HOURS);
    assert_eq!((shop.pass(0.0).await, count(shop).await), (0, 2));
    shop.assert_sound().await;
    let due = shop.broker.next_delayed().await.expect("it can be read");
    assert_eq!(due, Some(1_700_000_001_000.0), "its own time, which has not come");
    assert_eq!((shop.pass(HOURS - 31_001.0).await, shop.pass(1.0).await), (0, 1));
    assert_eq!((shop.pass(58_999.0).await, shop.pass(1.0).await), (0, 1));
}

async fn l19_it_is_seen_while_nobody_calls(shop: &Shop) {
    waits(shop).await;
    shop.timer().fire();
    until_sleeping(shop, &[32_000.0]).await;
    shop.clock().advance(-20_000.0);
    // The sleep is over, and by the clock it is not time.
    shop.timer().fire();
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    until_ready(shop, "kitchen", 2).await;
}

async fn l19_a_tab_that_is_opened_afterwards_sees_it(shop: &Shop) {
    shop.order("m1").await;
    fails(shop, FailureKind::Ordinary).await.expect("there is one");
    settle().await;
    shop.timer().fire();
    shop.broker.suspend();
    settle().await;
    shop.clock().advance(-HOURS);
    assert_eq!(shop.timer().sleeping(), 0);
    let tab = shop.another_tab().await;
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    let is_ready = async || tab.queues().await.expect("they can be looked at").iter().any(|queue| queue.ready == 1);
    for _ in 0..1_000 {
        if is_ready().await && shop.timer().sleeping() == 0 {
            break;
        }
        shop.timer().fire();
        settle().await;
    }
    assert_eq!(tab.next_due().await.expect("it can be read"), None);
    tab.close().await;
    shop.broker.restore();
    assert!(fails(shop, FailureKind::Ordinary).await.is_some());
}

async fn l19_what_waited_for_a_service_comes_in(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", "m1").await;
    let service = ServiceOptions { queue: Some("kitchen".into()), contracts: vec!["Ordering".into()] };
    let services = vec![("Elsewhere".into(), service)];
    shop.broker.define(Definitions { services, ..Definitions::default() }).await.expect("a new service");
    shop.clock().advance(-HOURS);
    assert_eq!(shop.pass(0.0).await, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}
