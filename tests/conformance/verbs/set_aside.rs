//! D37: messages that can't be read move to the error queue, and their conversation goes on. Nothing else is touched.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Key, Mode, Operation, Range, StoreName};
use pocket_broker::{EndpointFilter, Extent, FailedFilter, Message, ReceiveOptions, RowFilter};

use super::super::support::shop::{Shop, begin, keyed, named, receive, refused, send, show_all, top_of};
use super::super::support::transact;

mount! {
    d37_a_body_that_is_missing,
    d37_a_lane_goes_on,
    d37_a_message_that_is_missing,
    d37_a_newer_format_is_not_touched,
    d37_a_returned_message,
    d37_a_run_in_the_middle_waits_for_its_turn,
    d37_a_run_of_many_rows_is_kept_whole,
    d37_a_system_row,
    d37_a_transaction_meets_it,
    d37_in_the_error_queue_itself,
    d37_it_can_be_discarded_and_does_not_come_back,
    d37_others_do_not_wait_for_it,
    d37_the_end_of_the_dialog_is_told_again,
    d37_two_tabs_meet_it,
}

mount_with_locks! {
    d37_a_quota_failure_while_moving,
}

/// Makes the record with this place in the order of its store unreadable. Gives its key.
pub(super) async fn break_record(shop: &Shop, store: StoreName, place: usize) -> Key {
    put(shop, store, place, Some(Value::from("garbage"))).await
}

async fn put(shop: &Shop, store: StoreName, place: usize, value: Option<Value>) -> Key {
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(store, &Range::all(), None).await?[place].clone();
        match &value {
            Some(value) => tx.put(store, key.clone(), value.clone()),
            None => tx.delete(store, key.clone()),
        }
        Ok(key)
    })
    .await
    .expect("it can be broken")
}

/// The messages in the error queue.
pub(super) async fn failed(shop: &Shop) -> Vec<Message> {
    shop.messages("error", RowFilter::default()).await
}

/// The one message there, which holds a record as it was.
pub(super) async fn raw(shop: &Shop, queue: &str) -> Message {
    let mut failed = failed(shop).await;
    assert_eq!(failed.len(), 1);
    let message = failed.remove(0);
    assert_eq!(message.failed_queue.as_deref(), Some(queue));
    assert_eq!(message.body.field("record").text().as_deref(), Some("garbage"), "as it was");
    assert_eq!(message.body.field("store").text().as_deref(), Some("messages"));
    message
}

/// Each conversation has one run of one row.
async fn d37_others_do_not_wait_for_it(shop: &Shop) {
    let bad = shop.order("a").await;
    shop.order("b").await;
    break_record(shop, StoreName::Messages, 0).await;
    shop.notices();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b"]);
    shop.order("c").await;
    assert_eq!(shop.dropped(), ["corrupt"], "it was moved beside");
    shop.assert_sound().await;
    raw(shop, "kitchen").await;
    assert_eq!(shop.queue("kitchen").await.ready, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 c"]);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.send(&bad.initiator, "Note", "goes on").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 goes on"]);
    shop.send(&bad.target, "Confirm", "r").await;
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 r"]);
    assert_eq!(shop.broker.stats().await.expect("it counts").counts.dropped, 1);
}

async fn d37_a_run_of_many_rows_is_kept_whole(shop: &Shop) {
    let dialog = shop.order("m0").await;
    shop.send_many(&dialog.initiator, "Note", 0..200).await;
    shop.send_large(&dialog.initiator, "large").await;
    shop.send(&dialog.initiator, "Note", "last").await;
    break_record(shop, StoreName::Messages, 2).await;
    assert_eq!(shop.receive_top("kitchen", 100).await.len(), 100);
    break_record(shop, StoreName::Messages, 0).await;
    shop.notices();
    // One call after the other meets one, and goes on.
    let tab = shop.another_tab().await;
    let rows = tab.receive("kitchen", ReceiveOptions::default(), None).await.expect("the last can be had");
    assert_eq!(show_all(&rows), ["0 Note 202 last"]);
    tab.close().await;
    let messages = failed(shop).await;
    assert_eq!(messages.len(), 2);
    let of_large = messages.iter().find(|message| message.body.field("key").item(2).number() == Some(201.0));
    let bodies = of_large.expect("one of them").body.field("bodies");
    assert_eq!((bodies.len(), bodies.item(0).item(0).number()), (1, Some(201.0)), "with what belonged to it");
    assert_eq!(bodies.item(0).item(1).text().as_deref(), Some("large"));
    assert_eq!(shop.queue("kitchen").await.ready, 0);
}

/// What comes before it is received first.
async fn d37_a_run_in_the_middle_waits_for_its_turn(shop: &Shop) {
    let dialog = shop.order("a").await;
    shop.send(&dialog.initiator, "Note", "b").await;
    shop.send(&dialog.initiator, "Note", "c").await;
    shop.order("other").await;
    break_record(shop, StoreName::Messages, 1).await;
    let of_it = RowFilter { conversation: Some(Rc::clone(&dialog.target)), ..RowFilter::default() };
    let error = refused(shop.broker.select("kitchen", &of_it, None, Extent::All).await, ErrorCode::StorageCorrupt);
    assert!(error.to_string().contains("messages"), "{error}");
    assert_eq!(failed(shop).await.len(), 0, "what can be read comes before it");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a"]);
    assert_eq!(shop.rows_of("kitchen", &dialog.target).await, ["1 Note 2 c"], "whoever looks sets it aside");
    raw(shop, "kitchen").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 2 c"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 other"]);
}

/// In a transaction, too: one that has what comes before it gets no more of that conversation, and can commit.
async fn d37_a_transaction_meets_it(shop: &Shop) {
    let dialog = shop.order("a").await;
    shop.send(&dialog.initiator, "Note", "b").await;
    shop.send(&dialog.initiator, "Note", "c").await;
    break_record(shop, StoreName::Messages, 1).await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0], "the rest comes later");
    transaction.commit().await.expect("it commits");
    assert_eq!(failed(shop).await.len(), 0);

    let transaction = begin(shop);
    let options = ReceiveOptions { conversation: Some(Rc::clone(&dialog.target)), ..ReceiveOptions::default() };
    let rows = transaction.receive("kitchen", options).await.expect("it is moved, and the next one comes");
    assert_eq!(show_all(&rows), ["0 Note 2 c"]);
    send(shop, &transaction, &dialog.target, "Confirm", "r").await.expect("it can be sent");
    transaction.rollback();
    raw(shop, "kitchen").await;
    assert_eq!(
        shop.receive("kitchen").await,
        ["0 Note 2 c"],
        "what was rolled back is there again, what was moved is not"
    );
}

async fn d37_two_tabs_meet_it(shop: &Shop) {
    let dialog = shop.order("a").await;
    shop.send(&dialog.initiator, "Note", "b").await;
    break_record(shop, StoreName::Messages, 0).await;
    shop.notices();
    let tab = shop.tab_without_locks().await;
    let both = futures_util::future::join(
        shop.broker.receive("kitchen", ReceiveOptions::default(), None),
        tab.receive("kitchen", ReceiveOptions::default(), None),
    );
    let (one, two) = both.await;
    let mut rows = show_all(&one.expect("it can be had"));
    rows.extend(show_all(&two.expect("it can be had")));
    assert_eq!(rows, ["0 Note 1 b"], "once");
    raw(shop, "kitchen").await;
    tab.close().await;
}

async fn d37_a_quota_failure_while_moving(shop: &Shop) {
    let dialog = shop.order("a").await;
    shop.send(&dialog.initiator, "Note", "b").await;
    break_record(shop, StoreName::Messages, 0).await;
    shop.notices();
    let full = || Error::new(ErrorCode::QuotaExceeded, "No space.");
    // The first commit is that of the call, which changes nothing.
    for nth in 1..4 {
        shop.faults.plan(Operation::Commit, nth, Fault::Abort(full()));
        let outcome = shop.broker.receive("kitchen", ReceiveOptions::default(), None).await;
        shop.faults.clear();
        if let Err(error) = outcome {
            assert_eq!(error.code(), ErrorCode::QuotaExceeded, "{error}");
            assert!(error.is_retryable());
        } else {
            panic!("it was to fail");
        }
        if nth < 3 {
            assert_eq!((failed(shop).await.len(), shop.dropped().len()), (0, 0), "nothing has happened");
        }
    }
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 b"]);
    raw(shop, "kitchen").await;
}

/// Retained, unread, and a copy: END with archive copies what it can and moves the rest.
async fn d37_the_end_of_the_dialog_is_told_again(shop: &Shop) {
    let dialog = shop.order("m0").await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Order 0 m0"]);
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 EndDialog 1"], "the state knows of it");
    assert_eq!(failed(shop).await.len(), 1);
    shop.end(&dialog.target).await;
}

async fn d37_a_system_row(shop: &Shop) {
    let dialog = shop.order("m0").await;
    shop.fail(&dialog.target).await;
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.receive("counter").await, ["0 Error 0 -9672"], "that it has failed is told");
    raw(shop, "counter").await;
    shop.end(&dialog.initiator).await;
    shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be deleted");

    let other = shop.order("m1").await;
    shop.broker.begin_conversation_timer(&other.target, Some(0.0), named("t", None)).await.expect("it can be begun");
    shop.pass(0.0).await;
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    raw(shop, "kitchen").await;
}

/// Its record is lost: there is nothing to move, and it is told.
async fn d37_a_message_that_is_missing(shop: &Shop) {
    let dialog = shop.order("m0").await;
    for body in ["m1", "m2"] {
        shop.send(&dialog.initiator, "Note", body).await;
    }
    put(shop, StoreName::Messages, 0, None).await;
    shop.notices();
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Note 1 m1"]);
    assert_eq!(shop.dropped(), ["corrupt"]);
    put(shop, StoreName::Messages, 0, None).await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.dropped(), ["corrupt"]);
    assert_eq!((failed(shop).await.len(), shop.queue("kitchen").await.ready), (0, 0));
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 3 m3"]);
}

async fn d37_a_body_that_is_missing(shop: &Shop) {
    let dialog = shop.order("m0").await;
    shop.send_large(&dialog.initiator, "large").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    put(shop, StoreName::Bodies, 0, None).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m0"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 2 m2"]);
    let message = failed(shop).await.remove(0);
    assert_eq!((&*message.message_type_name, message.body.is_undefined()), ("Note", true), "what there is of it");
    shop.assert_sound().await;
    for (name, size) in [("first", 10.0), ("second", 70_000.0)] {
        let body = Body { value: Value::from(name).into(), packing: 0, size };
        let options = pocket_broker::TimerOptions { name: name.into(), body };
        shop.broker.begin_conversation_timer(&dialog.initiator, Some(0.0), options).await.expect("it can be begun");
    }
    assert_eq!(shop.pass(0.0).await, 2);
    transact(&*shop.store, &[StoreName::Bodies], Mode::ReadWrite, async |tx| {
        tx.delete_range(StoreName::Bodies, Range::all());
        Ok(())
    })
    .await
    .expect("it can be lost");
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0 first"]);
    assert_eq!(shop.receive("counter").await, [""; 0]);
    assert_eq!(failed(shop).await.len(), 2);
}

async fn d37_a_lane_goes_on(shop: &Shop) {
    for body in ["m0", "m1"] {
        shop.enqueue_key("kitchen", "k", body).await;
    }
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 1 m1"]);
    let message = failed(shop).await.remove(0);
    assert_eq!(message.failed_queue.as_deref(), Some("kitchen"));
    // One that has nothing else goes with it.
    shop.enqueue_key("kitchen", "j", "m2").await;
    let place = usize::try_from(shop.records_in(StoreName::Messages).await).expect("few") - 1;
    break_record(shop, StoreName::Messages, place).await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.endpoints(EndpointFilter { service: Some("kitchen".into()), ..Default::default() }).await.len(), 0);
    assert_eq!(failed(shop).await.len(), 2);
}

async fn d37_it_can_be_discarded_and_does_not_come_back(shop: &Shop) {
    shop.order("m0").await;
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    let all = FailedFilter::default();
    assert_eq!(shop.broker.return_to_source(&all).await.expect("it can be asked for"), 0, "it is no message any more");
    assert_eq!(failed(shop).await.len(), 1);
    assert_eq!(shop.broker.discard_failed(&all).await.expect("it can be deleted"), 1);
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}

async fn d37_in_the_error_queue_itself(shop: &Shop) {
    shop.order("m0").await;
    break_record(shop, StoreName::Messages, 0).await;
    shop.receive("kitchen").await;
    break_record(shop, StoreName::Messages, 0).await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "error").await.len(), 1);
    transaction.rollback();
    let messages = failed(shop).await;
    assert_eq!((messages.len(), messages[0].failed_queue.as_deref()), (1, Some("error")));
}

async fn d37_a_returned_message(shop: &Shop) {
    let dialog = shop.order("m0").await;
    shop.broker.begin_conversation_timer(&dialog.target, Some(0.0), named("t", None)).await.expect("it can be begun");
    shop.pass(0.0).await;
    // Only the first of what can be received is broken; the rest of its conversation is not.
    break_record(shop, StoreName::Messages, 0).await;
    let by_handle = ReceiveOptions { conversation: Some(Rc::clone(&dialog.target)), ..top_of(1) };
    let rows = shop.broker.receive("kitchen", by_handle, None).await.expect("the next one comes");
    assert_eq!(show_all(&rows), ["0 Order 0 m0"]);
}

/// What a newer build has written is not garbage.
async fn d37_a_newer_format_is_not_touched(shop: &Shop) {
    shop.order("m0").await;
    let newer = Value::object(vec![("v", Value::from(2u32))]);
    put(shop, StoreName::Messages, 0, Some(newer)).await;
    refused(shop.broker.receive("kitchen", ReceiveOptions::default(), None).await, ErrorCode::VersionTooNew);
    assert_eq!(failed(shop).await.len(), 0);
    // For the audit.
    transact(&*shop.store, &[StoreName::Messages], Mode::ReadWrite, async |tx| {
        tx.delete_range(StoreName::Messages, Range::all());
        Ok(())
    })
    .await
    .expect("it can be removed");
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.enqueue_as("kitchen", "x", keyed("k")).await;
}
