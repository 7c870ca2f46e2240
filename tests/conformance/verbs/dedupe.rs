//! D38: a second message with the same `dedupe_id` is not taken.

use futures_util::future::{join, join_all};
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{DEDUPE_WINDOW, EnqueueOptions, OutgoingMessage};

use super::super::support::shop::{Shop, begin, keyed, refused};

mount! {
    d38_an_id_holds_for_its_window,
    d38_an_id_holds_over_tabs,
    d38_an_id_holds_whether_received_or_not,
    d38_an_id_is_of_one_queue,
    d38_calls_that_share_a_commit_see_each_other,
    d38_expired_ids_go_by_themselves,
    d38_in_a_transaction_the_check_is_at_the_commit,
    d38_many_messages_have_no_id,
    a_refused_call_keeps_no_id,
    an_id_costs_one_read_and_two_writes,
    an_id_that_is_used_again_lives_its_own_time,
    the_window_is_of_who_came_first,
}

fn with_id(id: &str) -> EnqueueOptions {
    EnqueueOptions { dedupe_id: Some(id.into()), ..EnqueueOptions::default() }
}

fn within(id: &str, window: f64) -> EnqueueOptions {
    EnqueueOptions { dedupe_window: window, ..with_id(id) }
}

/// Whether the message is dropped as a second one.
async fn is_second(shop: &Shop, body: &str, options: EnqueueOptions) -> bool {
    shop.try_enqueue("kitchen", body, options).await.expect("it can be enqueued").is_some()
}

async fn d38_an_id_holds_for_its_window(shop: &Shop) {
    let first = shop.message("DEFAULT", "one");
    let id = first.id;
    assert_eq!(shop.broker.enqueue("kitchen", vec![first], with_id("a"), None).await.expect("it is new"), None);
    for _ in 0..2 {
        let second = shop.try_enqueue("kitchen", "two", with_id("a")).await.expect("it can be enqueued");
        assert_eq!(second, Some(id), "the first one's id");
    }
    shop.clock().advance(DEDUPE_WINDOW - 1.0);
    assert!(is_second(shop, "three", with_id("a")).await, "the window counts from the first");
    assert!(!is_second(shop, "other", with_id("b")).await);
    shop.clock().advance(1.0);
    assert!(!is_second(shop, "four", with_id("a")).await);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 one", "1 DEFAULT 1 other", "1 DEFAULT 2 four"]);
}

async fn d38_an_id_holds_whether_received_or_not(shop: &Shop) {
    assert!(!is_second(shop, "one", with_id("a")).await);
    assert_eq!(shop.receive("kitchen").await.len(), 1);
    assert!(is_second(shop, "two", with_id("a")).await);
    assert!(is_second(shop, "two", EnqueueOptions { key: Some("k".into()), ..with_id("a") }).await, "of any lane");
    shop.switch("kitchen", Status::Off).await;
    assert!(is_second(shop, "two", with_id("a")).await);
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn d38_an_id_is_of_one_queue(shop: &Shop) {
    assert!(!is_second(shop, "one", with_id("a")).await);
    assert_eq!(shop.try_enqueue("counter", "one", with_id("a")).await.expect("it can be enqueued"), None);
}

async fn d38_an_id_holds_over_tabs(shop: &Shop) {
    let other = shop.another_tab().await;
    let enqueue = async |broker: &pocket_broker::Broker| {
        broker.enqueue("kitchen", vec![shop.message("DEFAULT", "m")], with_id("a"), None).await
    };
    let (one, two) = join(enqueue(&shop.broker), enqueue(&other)).await;
    let seen = [one.expect("it can be enqueued"), two.expect("it can be enqueued")];
    assert_eq!(seen.iter().filter(|seen| seen.is_some()).count(), 1);
    other.close().await;
    let later = shop.another_tab().await;
    assert!(enqueue(&later).await.expect("it can be enqueued").is_some(), "a reload forgets nothing");
    assert_eq!(shop.rows("kitchen").await.len(), 1);
}

async fn d38_calls_that_share_a_commit_see_each_other(shop: &Shop) {
    let messages: Vec<OutgoingMessage> = (0..100).map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let calls = messages.iter().enumerate().map(|(number, message)| {
        let options = with_id(&(number % 10).to_string());
        shop.broker.enqueue("kitchen", vec![message.clone()], options, None)
    });
    shop.faults.reset_counts();
    let seen: Vec<_> = join_all(calls).await.into_iter().map(|seen| seen.expect("it can be enqueued")).collect();
    assert!(shop.faults.calls(Operation::Commit) <= 3);
    for (number, seen) in seen.iter().enumerate() {
        assert_eq!(*seen, (number >= 10).then(|| messages[number % 10].id), "{number}");
    }
    assert_eq!(shop.rows("kitchen").await.len(), 10);
}

async fn d38_in_a_transaction_the_check_is_at_the_commit(shop: &Shop) {
    let transaction = begin(shop);
    let message = |body: &str| vec![shop.message("DEFAULT", body)];
    for body in ["t1", "t2"] {
        transaction.enqueue("kitchen", message(body), with_id("a")).await.expect("it is accepted");
    }
    transaction.enqueue("kitchen", message("t3"), with_id("b")).await.expect("it is accepted");
    assert!(!is_second(shop, "outside", with_id("b")).await, "the transaction has not committed");
    transaction.commit().await.expect("a second one fails no commit");
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 outside", "1 DEFAULT 1 t1"]);
    let transaction = begin(shop);
    transaction.enqueue("kitchen", message("t4"), with_id("c")).await.expect("it is accepted");
    transaction.rollback();
    assert!(!is_second(shop, "new", with_id("c")).await);
}

async fn d38_many_messages_have_no_id(shop: &Shop) {
    let messages = vec![shop.message("DEFAULT", "1"), shop.message("DEFAULT", "2")];
    refused(shop.broker.enqueue("kitchen", messages, with_id("a"), None).await, ErrorCode::InvalidArgument);
    for window in [-1.0, f64::NAN, f64::INFINITY] {
        refused(shop.try_enqueue("kitchen", "x", within("a", window)).await, ErrorCode::InvalidArgument);
    }
    refused(shop.try_enqueue("kitchen", "x", with_id(&"i".repeat(1_025))).await, ErrorCode::InvalidArgument);
}

async fn d38_expired_ids_go_by_themselves(shop: &Shop) {
    for number in 0..600 {
        let options = within(&number.to_string(), 1_000.0);
        assert!(!is_second(shop, "m", options).await);
    }
    assert!(!is_second(shop, "long", with_id("long")).await);
    assert_eq!(shop.records_in(StoreName::Seen).await, 601);
    assert_eq!(shop.pass(61_000.0).await, 0, "no message comes of it");
    assert_eq!((shop.records_in(StoreName::Seen).await, shop.records_in(StoreName::Due).await), (1, 1));
    assert!(is_second(shop, "long", with_id("long")).await);
    shop.pass(DEDUPE_WINDOW + 60_000.0).await;
    assert_eq!((shop.records_in(StoreName::Seen).await, shop.records_in(StoreName::Due).await), (0, 0));
}

async fn an_id_that_is_used_again_lives_its_own_time(shop: &Shop) {
    assert!(!is_second(shop, "1", within("a", 1_000.0)).await);
    shop.clock().advance(2_000.0);
    assert!(!is_second(shop, "2", within("a", 300_000.0)).await, "expired, though nobody has cleared it away");
    shop.assert_sound().await;
    shop.pass(120_000.0).await;
    assert!(is_second(shop, "3", within("a", 1_000.0)).await);
    shop.pass(300_000.0).await;
    assert_eq!(shop.records_in(StoreName::Seen).await, 0);
}

async fn the_window_is_of_who_came_first(shop: &Shop) {
    assert!(!is_second(shop, "1", within("a", 3_600_000.0)).await);
    shop.pass(DEDUPE_WINDOW * 2.0).await;
    assert!(is_second(shop, "2", with_id("a")).await);
    assert!(!is_second(shop, "3", within("b", 0.0)).await);
    assert!(!is_second(shop, "4", within("b", 0.0)).await, "nobody asked to keep it");
    assert_eq!(shop.records_in(StoreName::Seen).await, 1);
}

async fn a_refused_call_keeps_no_id(shop: &Shop) {
    refused(shop.try_enqueue("kitchn", "x", with_id("a")).await, ErrorCode::QueueNotFound);
    let error = pocket_broker::error::Error::new(ErrorCode::QuotaExceeded, "full");
    shop.faults.plan(Operation::Commit, 1, Fault::Fail(error));
    refused(shop.try_enqueue("kitchen", "x", with_id("a")).await, ErrorCode::QuotaExceeded);
    assert!(!is_second(shop, "m", with_id("a")).await);
}

async fn an_id_costs_one_read_and_two_writes(shop: &Shop) {
    let mut costs = Vec::new();
    for options in [keyed("k"), keyed("k"), EnqueueOptions { key: Some("k".into()), ..with_id("a") }] {
        shop.faults.reset_counts();
        shop.enqueue_as("kitchen", "m", options).await;
        costs.push((shop.faults.calls(Operation::Begin), shop.faults.reads(), shop.faults.writes()));
    }
    assert_eq!(costs[2], (costs[1].0, costs[1].1 + 1, costs[1].2 + 2));
}
