//! RECEIVE that waits: for messages, for a group, and until when.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::join3;
use pocket_broker::definitions::{QueueOptions, ServiceChange, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::Operation;
use pocket_broker::{LOCK_TIMEOUT, ReceiveOptions};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, receive, refused, show_all};

mount! {
    b33_a_timeout_gives_nothing,
    b34_a_message_ends_the_wait,
    b34_it_is_enough_that_another_tab_sends,
    b35_a_queue_that_goes_off_ends_the_wait,
    b35_a_queue_that_is_dropped_ends_the_wait,
    b35_a_queue_that_another_tab_switches_off_ends_the_wait,
    b35_a_wait_for_a_group_ends_with_its_queue,
    b108_a_service_that_is_dropped_ends_the_wait,
    b109_a_service_that_goes_elsewhere_ends_the_wait,
    a_wait_ends_when_the_caller_gives_up,
    a_wait_ends_with_its_broker_and_its_transaction,
    d02_a_held_group_is_waited_for,
    d02_no_longer_than_the_lock_timeout_for_a_second_group,
    d02_a_wait_for_what_is_not_there_is_refused,
    a_rollback_wakes_a_waiting_reader,
    a_time_to_wait_is_a_number,
}

mount_with_locks! {
    a_waiting_reader_costs_no_storage_transaction,
}

fn for_ever() -> ReceiveOptions {
    ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() }
}

/// D3.
async fn b33_a_timeout_gives_nothing(shop: &Shop) {
    let reader = shop.broker.receive("kitchen", ReceiveOptions { timeout: Some(500.0), ..for_ever() }, None);
    let rows = shop.timer().wakes(reader, async || {
        assert!(shop.timer().sleeps().contains(&500.0), "{:?}", shop.timer().sleeps());
        shop.timer().fire();
    });
    assert_eq!(show_all(&rows.await.expect("that is no error")), [""; 0]);
    let at_once = ReceiveOptions { timeout: Some(0.0), ..ReceiveOptions::default() };
    assert_eq!(show_all(&shop.broker.receive("kitchen", at_once, None).await.expect("it is on")), [""; 0]);
    assert_eq!(shop.timer().sleeping(), 0);
}

/// D3.
async fn b34_a_message_ends_the_wait(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    for conversation in [None, Some(dialog.target.clone())] {
        let reader = shop.broker.receive("kitchen", ReceiveOptions { conversation, ..for_ever() }, None);
        let rows = shop.timer().wakes(reader, async || {
            shop.send(&dialog.target, "Confirm", "on another queue").await;
            shop.send(&dialog.initiator, "Note", "m2").await;
        });
        let rows = show_all(&rows.await.expect("it comes"));
        assert!(rows.len() == 1 && rows[0].ends_with("m2"), "{rows:?}");
    }
    let transaction = begin(shop);
    let rows = shop.timer().wakes(transaction.receive("kitchen", for_ever()), async || {
        shop.send(&dialog.initiator, "Note", "m3").await;
    });
    assert_eq!(show_all(&rows.await.expect("it comes")).len(), 1);
    transaction.commit().await.expect("it commits");
}

async fn b34_it_is_enough_that_another_tab_sends(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let other = shop.another_tab().await;
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", for_ever(), None), async || {
        other
            .send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", "from there")], None)
            .await
            .expect("it can be sent");
        shop.broker.hear(&["kitchen".into()]);
    });
    assert_eq!(show_all(&rows.await.expect("it comes")), ["0 Note 1 from there"]);
}

/// D3.
async fn b35_a_queue_that_goes_off_ends_the_wait(shop: &Shop) {
    let reader = shop.broker.receive("kitchen", for_ever(), None);
    let rows = shop.timer().wakes(reader, async || shop.switch("kitchen", Status::Off).await).await;
    refused(rows, ErrorCode::QueueDisabled);
}

/// D3.
async fn b35_a_queue_that_is_dropped_ends_the_wait(shop: &Shop) {
    shop.broker.drop_service("Kitchen").await.expect("nobody uses it");
    let reader = shop.broker.receive("kitchen", for_ever(), None);
    let rows = shop.timer().wakes(reader, async || {
        shop.broker.drop_queue("kitchen").await.expect("nothing is on it any more");
    });
    refused(rows.await, ErrorCode::QueueNotFound);
}

async fn b35_a_queue_that_another_tab_switches_off_ends_the_wait(shop: &Shop) {
    let other = shop.another_tab().await;
    let off = QueueOptions { status: Some(Status::Off), ..QueueOptions::default() };
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", for_ever(), None), async || {
        other.alter_queue("kitchen", off).await.expect("it can be altered");
        shop.broker.hear(&["kitchen".into()]);
    });
    refused(rows.await, ErrorCode::QueueDisabled);
}

async fn b35_a_wait_for_a_group_ends_with_its_queue(shop: &Shop) {
    let transaction = begin(shop);
    let waiting = transaction.get_conversation_group("kitchen", Some(f64::INFINITY));
    let group = shop.timer().wakes(waiting, async || shop.switch("kitchen", Status::Off).await).await;
    refused(group, ErrorCode::QueueDisabled);
}

async fn b108_a_service_that_is_dropped_ends_the_wait(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let named = ReceiveOptions { conversation: Some(dialog.target), ..for_ever() };
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", named, None), async || {
        shop.broker.drop_service("Kitchen").await.expect("the service can be dropped");
    });
    refused(rows.await, ErrorCode::ConversationNotFound);
}

async fn b109_a_service_that_goes_elsewhere_ends_the_wait(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let named = ReceiveOptions { conversation: Some(dialog.target), ..for_ever() };
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", named, None), async || {
        let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
        shop.broker.alter_service("Kitchen", change).await.expect("it goes");
    });
    refused(rows.await, ErrorCode::ConversationNotFound);
}

async fn a_wait_ends_when_the_caller_gives_up(shop: &Shop) {
    let given_up = Rc::new(Cell::new(false));
    let asked = Rc::clone(&given_up);
    let reader = shop.broker.receive("kitchen", for_ever(), Some(Rc::new(move || asked.get())));
    let rows = shop.timer().wakes(reader, async || {
        given_up.set(true);
        shop.broker.nudge();
    });
    assert_eq!(refused(rows.await, ErrorCode::Timeout).details().len(), 1, "it says that it was aborted");
}

async fn a_wait_ends_with_its_broker_and_its_transaction(shop: &Shop) {
    let other = shop.broker.another();
    let rows = shop.timer().wakes(other.receive("kitchen", for_ever(), None), async || other.close().await).await;
    refused(rows, ErrorCode::Closed);
    let transaction = begin(shop);
    let rows = shop.timer().wakes(transaction.receive("kitchen", for_ever()), async || transaction.rollback()).await;
    refused(rows, ErrorCode::TransactionClosed);
}

async fn a_waiting_reader_costs_no_storage_transaction(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let reader = shop.broker.receive("kitchen", for_ever(), None);
    let rows = shop.timer().wakes(reader, async || {
        let before = shop.faults.calls(Operation::Begin);
        for _ in 0..20 {
            tick().await;
        }
        assert_eq!(shop.faults.calls(Operation::Begin), before);
        shop.send(&dialog.target, "Confirm", "another queue").await;
        for _ in 0..20 {
            tick().await;
        }
        assert_eq!(shop.faults.calls(Operation::Begin), before + 1, "the send's own");
        shop.send(&dialog.initiator, "Note", "m2").await;
    });
    assert_eq!(rows.await.expect("it comes").len(), 1);
}

async fn d02_a_held_group_is_waited_for(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"]);
    let named = || ReceiveOptions { conversation: Some(dialog.target.clone()), ..for_ever() };
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", named(), None), async || transaction.rollback()).await;
    assert_eq!(show_all(&rows.expect("it is free")), ["0 Order 0 m1"]);
}

async fn d02_no_longer_than_the_lock_timeout_for_a_second_group(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    let (one, two) = (begin(shop), begin(shop));
    let named = |handle: &Rc<str>| ReceiveOptions { conversation: Some(Rc::clone(handle)), ..for_ever() };
    one.receive("kitchen", named(&first.target)).await.expect("it is free");
    two.receive("kitchen", named(&second.target)).await.expect("it is free");
    // Each wants what the other has: neither waits for ever.
    let both_wait = async {
        while shop.timer().sleeps().iter().filter(|ms| **ms == LOCK_TIMEOUT).count() < 2 {
            tick().await;
        }
        shop.timer().fire();
    };
    let (one_gets, two_gets, ()) =
        join3(one.receive("kitchen", named(&second.target)), two.receive("kitchen", named(&first.target)), both_wait)
            .await;
    assert_eq!((one_gets.expect("no error").len(), two_gets.expect("no error").len()), (0, 0));
}

async fn d02_a_wait_for_what_is_not_there_is_refused(shop: &Shop) {
    shop.order("m1").await;
    let nobody: Rc<str> = "6f9619ff-8b86-4011-b42d-00c04fc964ff".into();
    let named = ReceiveOptions { conversation: Some(Rc::clone(&nobody)), ..for_ever() };
    refused(shop.broker.receive("kitchen", named, None).await, ErrorCode::ConversationNotFound);
    let grouped = ReceiveOptions { group: Some(nobody), ..for_ever() };
    refused(shop.broker.receive("kitchen", grouped, None).await, ErrorCode::GroupNotFound);
    refused(shop.broker.receive("nowhere", for_ever(), None).await, ErrorCode::QueueNotFound);
}

async fn a_rollback_wakes_a_waiting_reader(shop: &Shop) {
    shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    let rows =
        shop.timer().wakes(shop.broker.receive("kitchen", for_ever(), None), async || transaction.rollback()).await;
    assert_eq!(show_all(&rows.expect("it is there again")), ["0 Order 0 m1"]);
}

/// D3.
async fn a_time_to_wait_is_a_number(shop: &Shop) {
    for timeout in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        let options = ReceiveOptions { timeout: Some(timeout), ..ReceiveOptions::default() };
        refused(shop.broker.receive("kitchen", options, None).await, ErrorCode::InvalidArgument);
        refused(begin(shop).get_conversation_group("kitchen", Some(timeout)).await, ErrorCode::InvalidArgument);
    }
}
