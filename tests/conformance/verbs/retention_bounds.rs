//! Bounds of retention: `max_rows` and `max_age` drop the oldest retained rows.

use std::rc::Rc;

use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{EndpointFilter, EnqueueOptions, ReceiveOptions};

use super::super::support::detail;
use super::super::support::shop::{Shop, begin, keyed, named, receive, refused, to_kitchen};

mount! {
    a_bound_is_of_the_queue,
    a_bound_of_zero_keeps_nothing,
    a_lane_goes_with_its_last_retained_row,
    bounds_are_checked,
    bounds_come_and_go,
    copies_count_and_go_too,
    d24_a_bound_removes_a_lane_that_somebody_holds_and_takes_nothing_along,
    max_age_drops_what_is_too_old,
    max_age_goes_on_where_one_commit_stops,
    max_rows_keeps_the_newest,
    rows_before_a_backlog_are_found,
    what_is_unread_stays,
}

async fn bound(shop: &Shop, queue: &str, max_rows: Option<f64>, max_age: Option<f64>) {
    shop.alter(queue, QueueOptions { retention: Some(true), max_rows, max_age, ..QueueOptions::default() }).await;
}

async fn retained(shop: &Shop, queue: &str) -> u64 {
    shop.queue(queue).await.retained
}

async fn max_rows_keeps_the_newest(shop: &Shop) {
    bound(shop, "kitchen", Some(5.0), None).await;
    assert!(shop.queue("kitchen").await.is_retention_enabled);
    shop.enqueue_many("kitchen", 0..8, keyed("a")).await;
    for _ in 0..3 {
        shop.receive_top("kitchen", 2).await;
    }
    let rows: Vec<String> = [1, 2, 3, 4, 5].iter().map(|n| format!("0 DEFAULT {n} {n}")).collect();
    assert_eq!(shop.rows("kitchen").await[..5], rows);
    assert_eq!((retained(shop, "kitchen").await, shop.queue("kitchen").await.ready), (5, 2));
    shop.assert_sound().await;
    // Runs that nobody needs go with their last row.
    shop.enqueue_many("kitchen", 8..1_000, keyed("a")).await;
    assert_eq!(shop.receive("kitchen").await.len(), 994);
    assert_eq!(retained(shop, "kitchen").await, 5);
    assert_eq!(shop.records_in(StoreName::Messages).await, 1);
    assert_eq!(shop.rows("kitchen").await[0], "0 DEFAULT 995 995");
}

async fn a_bound_is_of_the_queue(shop: &Shop) {
    bound(shop, "kitchen", Some(3.0), None).await;
    for (key, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("b", "b2")] {
        shop.enqueue_key("kitchen", key, body).await;
    }
    let dialog = shop.order("m1").await;
    while !shop.receive("kitchen").await.is_empty() {}
    assert_eq!(shop.rows("kitchen").await, ["0 DEFAULT 0 c1", "0 DEFAULT 1 b2", "0 Order 0 m1"]);
    assert_eq!(shop.end(&dialog.target).await.discarded, 0);
    assert_eq!(retained(shop, "kitchen").await, 2);
    shop.end(&dialog.initiator).await;
}

async fn copies_count_and_go_too(shop: &Shop) {
    bound(shop, "counter", Some(2.0), None).await;
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..4).await;
    assert_eq!(shop.rows("counter").await, ["3 Note 3 2", "3 Note 4 3"], "a part of one call, too");
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.receive("counter").await;
    assert_eq!(shop.rows("counter").await, ["3 Note 4 3", "0 Confirm 0 r1"]);
    let far = shop.broker.begin_dialog(pocket_broker::BeginDialog { to: "far".into(), ..to_kitchen() }).await;
    let far = far.expect("the dialog begins").handle;
    for body in ["f1", "f2", "f3"] {
        shop.send(&far, "Note", body).await;
    }
    assert_eq!(shop.rows("counter").await, ["3 Note 1 f2", "3 Note 2 f3"]);
    assert_eq!(shop.transmission().await.len(), 3, "what is to be transmitted stays");
    shop.clean_up(&far).await;
    assert_eq!(retained(shop, "counter").await, 0);
}

async fn what_is_unread_stays(shop: &Shop) {
    bound(shop, "kitchen", Some(1.0), Some(1_000.0)).await;
    shop.enqueue_many("kitchen", 0..10, keyed("a")).await;
    shop.clock().advance(5_000.0);
    shop.receive_top("kitchen", 2).await;
    assert_eq!((retained(shop, "kitchen").await, shop.queue("kitchen").await.ready), (0, 8));
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 DEFAULT 2 2"]);
    shop.retain("kitchen", false).await;
    assert_eq!(shop.receive("kitchen").await.len(), 7);
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}

async fn max_age_drops_what_is_too_old(shop: &Shop) {
    bound(shop, "kitchen", None, Some(10_000.0)).await;
    shop.enqueue_key("kitchen", "a", "1").await;
    shop.clock().advance(4_000.0);
    shop.enqueue_key("kitchen", "a", "2").await;
    shop.enqueue_key("kitchen", "b", "3").await;
    shop.receive("kitchen").await;
    shop.receive("kitchen").await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    assert_eq!(shop.pass(5_999.0).await, 0);
    assert_eq!(retained(shop, "kitchen").await, 3);
    assert_eq!(shop.pass(1.0).await, 0, "no message comes of it");
    assert_eq!(shop.rows("kitchen").await, ["0 DEFAULT 1 2", "0 DEFAULT 0 3"]);
    shop.assert_sound().await;
    shop.pass(4_000.0).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 0);
}

async fn a_lane_goes_with_its_last_retained_row(shop: &Shop) {
    bound(shop, "kitchen", Some(1.0), None).await;
    for key in ["a", "b", "c"] {
        shop.enqueue_key("kitchen", key, key).await;
        shop.receive("kitchen").await;
    }
    let ends = shop.endpoints(EndpointFilter::default()).await;
    assert_eq!(ends.iter().map(|end| end.key.as_deref()).collect::<Vec<_>>(), [Some("c")]);
    assert_eq!(shop.records_in(StoreName::Members).await, 1);
}

async fn a_bound_of_zero_keeps_nothing(shop: &Shop) {
    bound(shop, "kitchen", Some(0.0), None).await;
    shop.enqueue_as("kitchen", "x", EnqueueOptions::default()).await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1);
    transaction.commit().await.expect("it commits");
    assert_eq!(retained(shop, "kitchen").await, 0);
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
}

async fn bounds_come_and_go(shop: &Shop) {
    shop.retain("kitchen", true).await;
    shop.enqueue_many("kitchen", 0..10, keyed("a")).await;
    shop.receive("kitchen").await;
    bound(shop, "kitchen", Some(4.0), Some(1_000.0)).await;
    assert_eq!(retained(shop, "kitchen").await, 4, "at once");
    shop.alter("kitchen", QueueOptions { status: Some(Status::On), ..QueueOptions::default() }).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1, "an option that is not given stays");
    shop.retain("kitchen", true).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0, "retention without bounds has none");
    shop.pass(5_000.0).await;
    assert_eq!(retained(shop, "kitchen").await, 4);
    shop.enqueue_many("kitchen", 10..20, keyed("a")).await;
    shop.receive("kitchen").await;
    assert_eq!(retained(shop, "kitchen").await, 14);
    bound(shop, "kitchen", None, Some(1_000.0)).await;
    assert_eq!(retained(shop, "kitchen").await, 10);
    shop.retain("kitchen", false).await;
    shop.pass(5_000.0).await;
    assert_eq!(retained(shop, "kitchen").await, 10, "d05: what is retained stays until END");
}

async fn rows_before_a_backlog_are_found(shop: &Shop) {
    bound(shop, "kitchen", Some(2.0), None).await;
    let low = || EnqueueOptions { priority: 1.0, ..EnqueueOptions::default() };
    for number in 0..100 {
        shop.enqueue_as("kitchen", &number.to_string(), low()).await;
    }
    for number in 0..5 {
        shop.enqueue_key("kitchen", &number.to_string(), "m").await;
        assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m"]);
    }
    assert_eq!((retained(shop, "kitchen").await, shop.queue("kitchen").await.ready), (2, 100));
}

async fn bounds_are_checked(shop: &Shop) {
    for bound in [-1.0, f64::NAN, f64::INFINITY] {
        let options = QueueOptions { retention: Some(true), max_rows: Some(bound), ..QueueOptions::default() };
        refused(shop.broker.alter_queue("kitchen", options).await, ErrorCode::InvalidArgument);
        let options = QueueOptions { retention: Some(true), max_age: Some(bound), ..QueueOptions::default() };
        refused(shop.broker.alter_queue("kitchen", options).await, ErrorCode::InvalidArgument);
    }
    assert!(!shop.queue("kitchen").await.is_retention_enabled);
}

/// A commit looks through 256 runs: what is too old beyond them goes, too.
async fn max_age_goes_on_where_one_commit_stops(shop: &Shop) {
    bound(shop, "kitchen", None, Some(1_000.0)).await;
    let dialog = shop.order("0").await;
    for number in 1..270 {
        shop.send(&dialog.initiator, "Note", &number.to_string()).await;
    }
    assert_eq!(shop.receive("kitchen").await.len(), 270);
    shop.pass(5_000.0).await;
    assert!((1..270).contains(&shop.queue("kitchen").await.retained), "one commit has done a part of it");
    assert_eq!(shop.records_in(StoreName::Due).await, 1, "and says that there is more");
    shop.pass(0.0).await;
    assert_eq!(shop.queue("kitchen").await.retained, 0);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

/// A bound asks nobody, and what it takes nobody had still to receive. Who holds such a lane for something new is told at its commit, and does it
/// with the lane that begins anew.
async fn d24_a_bound_removes_a_lane_that_somebody_holds_and_takes_nothing_along(shop: &Shop) {
    bound(shop, "kitchen", Some(1.0), None).await;
    let end_of_lane = async |key: &str| {
        let ends = shop.endpoints(EndpointFilter::default()).await;
        let end = ends.into_iter().find(|end| end.key.as_deref() == Some(key)).expect("a lane of that key");
        (end.conversation_handle, end.conversation_group_id)
    };
    shop.enqueue_key("kitchen", "a", "a1").await;
    let (unread, _) = end_of_lane("a").await;
    let by_handle = |handle: &Rc<str>| ReceiveOptions { conversation: Some(Rc::clone(handle)), ..Default::default() };
    // Who holds unread messages keeps the lane by them.
    let reader = begin(shop);
    assert_eq!(reader.receive("kitchen", by_handle(&unread)).await.expect("the queue is on").len(), 1);
    shop.enqueue_key("kitchen", "b", "b1").await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 b1"]);
    reader.begin_conversation_timer(&unread, Some(1_000.0), named("t", None)).await.expect("it is there");
    reader.commit().await.expect("a lane with something unread stays");
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(shop.receive_from("kitchen", &unread).await, ["0 DialogTimer 1"]);
    // Nothing unread, one retained row.
    let (empty, group) = end_of_lane("a").await;
    let holder = begin(shop);
    assert_eq!(holder.receive("kitchen", by_handle(&empty)).await.expect("the queue is on").len(), 0);
    holder.begin_conversation_timer(&empty, Some(1_000.0), named("t", None)).await.expect("it is there");
    shop.enqueue_key("kitchen", "c", "c1").await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 c1"], "the bound takes the last row of the lane");
    let error = refused(holder.commit().await, ErrorCode::ConversationNotFound);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
    refused(shop.broker.get_group_state(&group).await, ErrorCode::GroupNotFound);
    shop.enqueue_key("kitchen", "a", "a2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 a2"]);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}
