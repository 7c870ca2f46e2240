//! Poison messages: what fails again and again switches its queue off.

use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{Broker, EndOptions, ReceiveOptions};

use super::super::support::shop::{Shop, begin, receive, refused, show_all, top_of};

mount! {
    b97_five_rollbacks_in_a_row_switch_the_queue_off,
    b98_a_commit_between_them_begins_anew,
    b99_without_poison_handling_the_queue_stays_on,
    b100_both_queues_that_it_received_from_go_off,
    b101_a_rollback_without_messages_does_not_count,
    d04_attempts_that_never_ended_count_apart,
    d04_only_a_failure_of_the_work_counts,
    d04_the_bad_one_among_good_ones_is_found,
    d04_the_count_ends_with_its_conversation,
    d04_trouble_that_all_readers_meet_is_no_poison,
    d04_what_has_ended_is_not_counted,
    d04_there_is_one_event_over_all_tabs,
    d04_what_is_counted_survives_its_tab,
}

/// A transaction receives and its work fails.
async fn fails(broker: &Broker, queue: &str) {
    let transaction = broker.begin().expect("the broker is open");
    transaction.receive(queue, top_of(1)).await.expect("the queue is on");
    transaction.fail(None).await;
}

async fn rollbacks(shop: &Shop, queue: &str) -> (u64, bool) {
    let info = shop.queue(queue).await;
    assert_eq!(info.is_receive_enabled, info.is_enqueue_enabled);
    (info.consecutive_rollbacks, info.is_receive_enabled)
}

fn disabled(shop: &Shop) -> Vec<(String, &'static str)> {
    let notices = shop.notices();
    notices.iter().flat_map(|notice| notice.disabled.iter().map(|(queue, why)| (queue.to_string(), *why))).collect()
}

async fn b97_five_rollbacks_in_a_row_switch_the_queue_off(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.notices();
    for count in 1..5 {
        fails(&shop.broker, "kitchen").await;
        assert_eq!(rollbacks(shop, "kitchen").await, (count, true));
    }
    assert_eq!(disabled(shop), []);
    fails(&shop.broker, "kitchen").await;
    assert_eq!(rollbacks(shop, "kitchen").await, (5, false));
    assert_eq!(disabled(shop), [("kitchen".to_owned(), "poison")]);
    let received = shop.broker.receive("kitchen", top_of(1), None).await;
    refused(received, ErrorCode::QueueDisabled);
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.outside().await, ["Note 1 m2"], "what comes waits outside");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);

    shop.switch("kitchen", Status::On).await;
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
    fails(&shop.broker, "kitchen").await;
    assert_eq!(rollbacks(shop, "kitchen").await, (1, true), "it begins anew");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true), "a receive that commits at once is a commit");
}

async fn b98_a_commit_between_them_begins_anew(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    for _ in 0..4 {
        fails(&shop.broker, "kitchen").await;
    }
    let transaction = begin(shop);
    transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    transaction.commit().await.expect("it commits");
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
    for _ in 0..4 {
        fails(&shop.broker, "kitchen").await;
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (4, true));
}

async fn b99_without_poison_handling_the_queue_stays_on(shop: &Shop) {
    shop.order("m1").await;
    shop.alter("kitchen", QueueOptions { poison_message_handling: Some(false), ..QueueOptions::default() }).await;
    for _ in 0..12 {
        fails(&shop.broker, "kitchen").await;
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (12, true));
}

async fn b100_both_queues_that_it_received_from_go_off(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    for _ in 0..5 {
        let transaction = begin(shop);
        receive(&transaction, "kitchen").await;
        receive(&transaction, "counter").await;
        transaction.fail(None).await;
    }
    assert_eq!((rollbacks(shop, "kitchen").await, rollbacks(shop, "counter").await), ((5, false), (5, false)));
}

async fn b101_a_rollback_without_messages_does_not_count(shop: &Shop) {
    shop.order("m1").await;
    for _ in 0..6 {
        let transaction = begin(shop);
        assert_eq!(receive(&transaction, "counter").await, [""; 0]);
        transaction.fail(None).await;
    }
    assert_eq!(rollbacks(shop, "counter").await, (0, true));
}

async fn d04_only_a_failure_of_the_work_counts(shop: &Shop) {
    shop.order("m1").await;
    for reason in [ErrorCode::QuotaExceeded, ErrorCode::GroupLocked, ErrorCode::TransactionClosed, ErrorCode::Closed] {
        let transaction = begin(shop);
        receive(&transaction, "kitchen").await;
        transaction.fail(Some(reason)).await;
    }
    for _ in 0..30 {
        let transaction = begin(shop);
        receive(&transaction, "kitchen").await;
        transaction.rollback();
    }
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    shop.faults.plan(Operation::Commit, 1, Fault::Fail(Error::new(ErrorCode::QuotaExceeded, "full")));
    refused(transaction.commit().await, ErrorCode::QuotaExceeded);
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true), "nor do they count as attempts that never ended");
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    transaction.fail(Some(ErrorCode::InvalidState)).await;
    assert_eq!(rollbacks(shop, "kitchen").await, (1, true), "what a verb says of the message is its fault");
}

/// A tab dies over a message: nothing is heard of it any more.
async fn dies(shop: &Shop) -> pocket_broker::error::Result<Vec<pocket_broker::Rows>> {
    let tab = shop.tab_without_locks().await;
    let transaction = tab.begin().expect("the broker is open");
    let received = transaction.receive("kitchen", top_of(1)).await;
    std::mem::forget(transaction);
    std::mem::forget(tab);
    received
}

async fn d04_attempts_that_never_ended_count_apart(shop: &Shop) {
    shop.order("m1").await;
    for _ in 0..20 {
        assert_eq!(dies(shop).await.expect("the queue is on").len(), 1);
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
    let error = refused(dies(shop).await, ErrorCode::QueueDisabled);
    assert!(error.to_string().contains("never ended"), "{error}");
    assert_eq!(rollbacks(shop, "kitchen").await, (0, false));
    shop.switch("kitchen", Status::On).await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"], "it begins anew");
    transaction.commit().await.expect("it commits");
}

async fn d04_the_bad_one_among_good_ones_is_found(shop: &Shop) {
    let bad = shop.order("bad").await;
    for _ in 0..4 {
        let good = shop.order("good").await;
        shop.send_many(&good.initiator, "Note", 1..250).await;
    }
    for count in 1..=5 {
        let failing = begin(shop);
        let options = ReceiveOptions { conversation: Some(bad.target.clone()), ..ReceiveOptions::default() };
        assert_eq!(show_all(&failing.receive("kitchen", options).await.expect("the queue is on")), ["0 Order 0 bad"]);
        assert_eq!(
            shop.receive("kitchen").await.len(),
            if count < 5 { 250 } else { 0 },
            "others are handled meanwhile"
        );
        failing.fail(None).await;
        assert_eq!(rollbacks(shop, "kitchen").await, (count, count < 5), "and do not reset it");
    }
}

async fn d04_the_count_ends_with_its_conversation(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    for _ in 0..3 {
        fails(&shop.broker, "kitchen").await;
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (3, true));
    shop.end(&first.target).await;
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
    fails(&shop.broker, "kitchen").await;
    let change = pocket_broker::definitions::ServiceChange {
        queue: Some("house".into()),
        ..pocket_broker::definitions::ServiceChange::default()
    };
    shop.broker.alter_service("Kitchen", change).await.expect("it goes to another queue");
    assert_eq!((rollbacks(shop, "kitchen").await, rollbacks(shop, "house").await), ((0, true), (1, true)));
    shop.broker.end_conversation(&second.target, EndOptions::default()).await.expect("it can be ended");
    assert_eq!(rollbacks(shop, "house").await, (0, true));
}

/// Of five readers at work when the network is gone for a moment each fails once: no message has failed five times.
async fn d04_trouble_that_all_readers_meet_is_no_poison(shop: &Shop) {
    let mut readers = Vec::new();
    for body in ["a", "b", "c", "d", "e"] {
        shop.order(body).await;
        let reader = begin(shop);
        assert_eq!(receive(&reader, "kitchen").await, [format!("0 Order 0 {body}")]);
        readers.push(reader);
    }
    for reader in &readers {
        reader.fail(None).await;
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (1, true));
    for body in ["a", "b", "c", "d", "e"] {
        assert_eq!(shop.receive("kitchen").await, [format!("0 Order 0 {body}")]);
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
}

/// Its endpoint is still there, to be told to the far side.
async fn d04_what_has_ended_is_not_counted(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("counter", Status::Off).await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    // Locks do not protect from a tab that has lost them.
    let robber = shop.tab_without_locks().await;
    robber.end_conversation(&dialog.target, EndOptions::default()).await.expect("it can be ended");
    robber.close().await;
    transaction.fail(None).await;
    assert_eq!((shop.state(&dialog.target).await, rollbacks(shop, "kitchen").await), ("DO", (0, true)));
    shop.clean_up(&dialog.target).await;
    assert_eq!(rollbacks(shop, "kitchen").await, (0, true));
}

async fn d04_there_is_one_event_over_all_tabs(shop: &Shop) {
    shop.order("m1").await;
    shop.notices();
    let others = [shop.another_tab().await, shop.another_tab().await];
    for count in 0..5 {
        fails(others.get(count % 2).unwrap_or(&shop.broker), "kitchen").await;
    }
    // The tabs of this bench hear nothing of each other: each tells what its own commits did.
    assert_eq!(rollbacks(shop, "kitchen").await, (5, false));
    assert_eq!(disabled(shop), []);
    let error = shop.broker.receive("kitchen", top_of(1), None).await;
    refused(error, ErrorCode::QueueDisabled);
    for other in others {
        other.close().await;
    }
}

async fn d04_what_is_counted_survives_its_tab(shop: &Shop) {
    shop.order("m1").await;
    for _ in 0..4 {
        let tab = shop.another_tab().await;
        fails(&tab, "kitchen").await;
        tab.close().await;
    }
    assert_eq!(rollbacks(shop, "kitchen").await, (4, true));
    fails(&shop.broker, "kitchen").await;
    assert_eq!(rollbacks(shop, "kitchen").await, (5, false));
}
