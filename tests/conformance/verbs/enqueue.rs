//! `enqueue`: the short way in (D24).

use futures_util::future::{join, join_all};
use pocket_broker::definitions::{QueueOptions, Status, Validation};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{EndpointFilter, EnqueueOptions, ReceiveOptions, RowFilter};

use super::super::support::detail;
use super::super::support::shop::{Shop, begin, keyed, receive, refused, show_all, top_of};

mount! {
    a_thousand_calls_need_few_transactions,
    a_thousand_keys_need_few_transactions,
    arguments_are_checked,
    d12_what_is_enqueued_to_a_queue_that_is_off_waits,
    d24_a_lane_has_one_endpoint_and_one_row_a_message,
    d24_different_keys_are_received_side_by_side,
    d24_messages_of_one_key_come_in_their_order,
    d24_priorities_are_lanes_of_their_own,
    d24_unordered_messages_share_sixteen_lanes,
    d15_a_transaction_enqueues_at_its_commit,
    d29_a_queue_that_is_gone_at_the_commit_rejects_it,
    the_body_is_what_the_queue_says,
    two_tabs_begin_one_lane,
}

mount_with_locks! {
    many_messages_are_all_or_none,
}

fn priority(priority: f64) -> EnqueueOptions {
    EnqueueOptions { priority, ..EnqueueOptions::default() }
}

async fn d24_a_lane_has_one_endpoint_and_one_row_a_message(shop: &Shop) {
    shop.retain("kitchen", true).await;
    shop.enqueue_key("kitchen", "table 7", "soup").await;
    let ends = shop.endpoints(EndpointFilter::default()).await;
    assert_eq!(ends.len(), 1);
    let end = &ends[0];
    assert_eq!(
        (end.is_initiator, &*end.service, &*end.far_service, &*end.contract, end.state.letters(), end.priority),
        (false, "kitchen", "kitchen", "DEFAULT", "CO", 5)
    );
    assert_eq!((end.key.as_deref(), end.send_sequence, end.receive_sequence), (Some("table 7"), 0, 1));
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 soup"], "and no copy with status 3");
    let row = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!(
        (row.key.as_deref(), &*row.service_name, &*row.service_contract_name, row.validation),
        (Some("table 7"), "kitchen", "DEFAULT", "N")
    );
    assert_eq!(row.conversation_handle, end.conversation_handle);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 soup"]);
    assert_eq!(shop.rows("kitchen").await, ["0 DEFAULT 0 soup"], "retained as in any conversation");
    assert_eq!(shop.end(&end.conversation_handle).await.discarded, 0);
    assert_eq!((shop.rows("kitchen").await.len(), shop.endpoints(EndpointFilter::default()).await.len()), (0, 0));

    shop.enqueue("kitchen", "plain").await;
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await[0].key, None);
}

async fn d24_messages_of_one_key_come_in_their_order(shop: &Shop) {
    for (key, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("", "e1"), ("a", "a3")] {
        shop.enqueue_key("kitchen", key, body).await;
    }
    shop.enqueue("kitchen", "n1").await;
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 4, "an empty key is a key");
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 a1", "0 DEFAULT 1 a2", "0 DEFAULT 2 a3"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 b1", "0 DEFAULT 1 b2"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 e1"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 n1"]);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
}

async fn d24_different_keys_are_received_side_by_side(shop: &Shop) {
    for (key, body) in [("a", "a1"), ("b", "b1"), ("a", "a2")] {
        shop.enqueue_key("kitchen", key, body).await;
    }
    let (one, two) = (begin(shop), begin(shop));
    let top = async |transaction: &pocket_broker::Transaction| {
        show_all(&transaction.receive("kitchen", top_of(1)).await.expect("the queue is on"))
    };
    assert_eq!(top(&one).await, ["0 DEFAULT 0 a1"]);
    assert_eq!(top(&two).await, ["0 DEFAULT 0 b1"], "the lane of a is held");
    assert_eq!(receive(&two, "kitchen").await, [""; 0]);
    shop.enqueue_key("kitchen", "a", "a3").await;
    one.rollback();
    two.commit().await.expect("it commits");
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 a1", "0 DEFAULT 1 a2", "0 DEFAULT 2 a3"]);
}

async fn d24_priorities_are_lanes_of_their_own(shop: &Shop) {
    for (level, body) in [(5.0, "later"), (10.0, "first"), (1.0, "last"), (10.0, "second")] {
        shop.enqueue_as("kitchen", body, priority(level)).await;
    }
    let one = begin(shop);
    assert_eq!(receive(&one, "kitchen").await, ["0 DEFAULT 0 first", "0 DEFAULT 1 second"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 later"], "side by side");
    one.commit().await.expect("it commits");
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await[0].priority, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 last"]);
}

async fn d24_unordered_messages_share_sixteen_lanes(shop: &Shop) {
    let unordered = || EnqueueOptions { ordered: false, ..EnqueueOptions::default() };
    shop.enqueue_many("kitchen", 0..100, unordered()).await;
    for number in 100..200 {
        shop.enqueue_as("kitchen", &number.to_string(), unordered()).await;
    }
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 16);
    assert!(shop.messages("kitchen", RowFilter::default()).await.iter().all(|row| row.key.is_none()));
    let mut found = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..16 {
        let reader = begin(shop);
        let rows = receive(&reader, "kitchen").await;
        assert!(!rows.is_empty(), "side by side");
        found.extend(rows.iter().filter_map(|row| row.rsplit(' ').next()?.parse::<u32>().ok()));
        readers.push(reader);
    }
    for reader in readers {
        reader.commit().await.expect("it commits");
    }
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..200));
    let both = EnqueueOptions { ordered: false, ..keyed("a") };
    refused(shop.try_enqueue("kitchen", "x", both).await, ErrorCode::InvalidArgument);
}

async fn arguments_are_checked(shop: &Shop) {
    let error = refused(shop.try_enqueue("kitchn", "x", keyed("a")).await, ErrorCode::QueueNotFound);
    assert!(error.to_string().contains("kitchn"), "{error}");
    refused(shop.try_enqueue("Kitchen", "x", keyed("a")).await, ErrorCode::QueueNotFound);
    for level in [0.0, 11.0, 1.5, f64::NAN] {
        refused(shop.try_enqueue("kitchen", "x", priority(level)).await, ErrorCode::InvalidArgument);
    }
    refused(shop.try_enqueue("kitchen", "x", keyed(&"k".repeat(1_025))).await, ErrorCode::InvalidArgument);
    shop.enqueue_key("kitchen", &"👋".repeat(1_024), "x").await;
    assert_eq!(shop.receive("kitchen").await.len(), 1);
    shop.enqueue_many("kitchen", 0..0, EnqueueOptions::default()).await;
    let none = shop.broker.enqueue("kitchn", Vec::new(), EnqueueOptions::default(), None).await;
    refused(none, ErrorCode::QueueNotFound);
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 0);
}

async fn many_messages_are_all_or_none(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..600, keyed("a")).await;
    let rows = shop.receive("kitchen").await;
    assert_eq!((rows.len(), rows[599].as_str()), (600, "0 DEFAULT 599 599"));
    let error = pocket_broker::error::Error::new(ErrorCode::QuotaExceeded, "full");
    shop.faults.plan(Operation::Commit, 1, Fault::Fail(error));
    let messages = (0..600).map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let unordered = EnqueueOptions { ordered: false, ..EnqueueOptions::default() };
    refused(shop.broker.enqueue("kitchen", messages, unordered, None).await, ErrorCode::QuotaExceeded);
    assert_eq!((shop.rows("kitchen").await.len(), shop.endpoints(EndpointFilter::default()).await.len()), (0, 0));
}

async fn a_thousand_calls_need_few_transactions(shop: &Shop) {
    shop.enqueue("kitchen", "first").await;
    shop.faults.reset_counts();
    let calls = (0..1_000).map(|number: u32| {
        let message = shop.message("DEFAULT", &number.to_string());
        shop.broker.enqueue("kitchen", vec![message], EnqueueOptions::default(), None)
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    let commits = shop.faults.calls(Operation::Commit);
    assert!(commits <= 10, "{commits} storage transactions");
    assert!(shop.faults.writes_to(StoreName::Messages) <= 1_000 / 64, "neighbours share a run");
    let rows = shop.receive("kitchen").await;
    assert!(rows[1..].iter().enumerate().all(|(number, row)| *row == format!("0 DEFAULT {} {number}", number + 1)));
}

async fn a_thousand_keys_need_few_transactions(shop: &Shop) {
    shop.faults.reset_counts();
    let calls = (0..1_000).map(|number: u32| {
        let message = shop.message("DEFAULT", &number.to_string());
        shop.broker.enqueue("kitchen", vec![message], keyed(&number.to_string()), None)
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    let commits = shop.faults.calls(Operation::Commit);
    assert!(commits <= 10, "{commits} storage transactions");
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 1_000);
    let numbers: Vec<String> = shop.rows("kitchen").await;
    assert!(numbers.iter().enumerate().all(|(number, row)| *row == format!("1 DEFAULT 0 {number}")));
}

async fn d12_what_is_enqueued_to_a_queue_that_is_off_waits(shop: &Shop) {
    shop.enqueue_key("kitchen", "a", "a0").await;
    shop.retain("kitchen", true).await;
    shop.switch("kitchen", Status::Off).await;
    for (key, body) in [("a", "a1"), ("b", "b1"), ("a", "a2")] {
        shop.enqueue_key("kitchen", key, body).await;
    }
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 a0"]);
    assert_eq!(shop.outside().await, ["DEFAULT 1 a1", "DEFAULT 2 a2", "DEFAULT 0 b1"]);
    let row = shop.transmission().await.remove(0);
    assert_eq!((&*row.to_service, &*row.from_service), ("kitchen", "kitchen"));
    assert!(row.transmission_status.contains("kitchen"), "{}", row.transmission_status);
    let own = shop.broker.transmission_queue(Some(&row.conversation_handle)).await.expect("it can be looked at");
    assert_eq!(own.len(), 2, "found by the lane's handle");

    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 a0", "0 DEFAULT 1 a1", "0 DEFAULT 2 a2"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 b1"]);
    let ends = shop.endpoints(EndpointFilter::default()).await;
    for end in ends {
        shop.end(&end.conversation_handle).await;
    }
}

async fn d15_a_transaction_enqueues_at_its_commit(shop: &Shop) {
    shop.enqueue_key("kitchen", "a", "a1").await;
    let transaction = begin(shop);
    let message = |body: &str| vec![shop.message("DEFAULT", body)];
    transaction.enqueue("kitchen", message("a2"), keyed("a")).await.expect("it is accepted");
    transaction.enqueue("kitchen", message("b1"), keyed("b")).await.expect("it is accepted");
    transaction.enqueue("kitchen", message("b2"), keyed("b")).await.expect("it is accepted");
    refused(transaction.enqueue("kitchn", message("x"), keyed("b")).await, ErrorCode::QueueNotFound);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 DEFAULT 0 a1"], "not its own");
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0]);
    let ends = shop.endpoints(EndpointFilter::default()).await;
    assert_eq!((shop.rows("kitchen").await.len(), ends.len()), (1, 1));
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 1 a2", "1 DEFAULT 0 b1", "1 DEFAULT 1 b2"]);
    let handle = &ends[0].conversation_handle;
    assert!(shop.info(handle).await.is_some(), "the lane of a was never empty at the end of a commit");

    let transaction = begin(shop);
    transaction.enqueue("kitchen", message("c1"), keyed("c")).await.expect("it is accepted");
    transaction.rollback();
    assert_eq!(shop.rows("kitchen").await.len(), 3);
}

async fn d29_a_queue_that_is_gone_at_the_commit_rejects_it(shop: &Shop) {
    let other = shop.another_tab().await;
    let define = |name: &str| pocket_broker::definitions::Definitions {
        queues: vec![(name.into(), QueueOptions::default())],
        ..Default::default()
    };
    other.define(define("short")).await.expect("it can be defined");
    let transaction = begin(shop);
    let message = vec![shop.message("DEFAULT", "x")];
    transaction.enqueue("short", message, EnqueueOptions::default()).await.expect("another tab has just made it");
    other.drop_queue("short").await.expect("nothing is in it");
    let error = refused(transaction.commit().await, ErrorCode::QueueNotFound);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
}

async fn the_body_is_what_the_queue_says(shop: &Shop) {
    shop.alter("kitchen", QueueOptions { body: Some(Validation::Json), ..QueueOptions::default() }).await;
    shop.enqueue("kitchen", "x").await;
    let row = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!(row.validation, "J");
}

async fn two_tabs_begin_one_lane(shop: &Shop) {
    let other = shop.another_tab().await;
    let enqueue = async |broker: &pocket_broker::Broker, body: &str| {
        broker.enqueue("kitchen", vec![shop.message("DEFAULT", body)], keyed("a"), None).await
    };
    for _ in 0..2 {
        let (one, two) = join(enqueue(&shop.broker, "one"), enqueue(&other, "two")).await;
        assert_eq!((one.expect("it can be enqueued"), two.expect("it can be enqueued")), (None, None));
        assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 1);
        let received = other.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on");
        assert_eq!(show_all(&received).len(), 2);
        // What the first tab remembers of the lane is wrong from here on.
        assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 0);
    }
}
