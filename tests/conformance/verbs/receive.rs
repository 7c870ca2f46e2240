//! RECEIVE.

use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::{ReceiveOptions, RowFilter};

use super::super::support::shop::{Shop, refused, show_all, top_of};

mount! {
    b29_rows_are_of_one_group,
    b32_an_empty_queue_gives_nothing,
    b36_a_queue_that_is_off_refuses,
    b37_an_unknown_handle_or_group_is_refused,
    b38_a_handle_gives_its_conversation_only,
    b40_rows_show_status_0_and_are_gone,
    b41_an_error_comes_before_the_rest,
    b42_an_end_dialog_comes_last,
    b43_after_an_error_the_rest_can_be_received,
    d17_transactions_take_turns_by_the_oldest_row,
    d17_who_was_received_from_goes_behind_all_that_wait,
    receiving_in_parts_misses_nothing,
    what_is_ready_at_many_conversations_is_found,
    top_is_a_whole_number_from_one,
}

async fn b32_an_empty_queue_gives_nothing(shop: &Shop) {
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.begin().await;
    assert_eq!(shop.receive("counter").await, [""; 0]);
    let error =
        refused(shop.broker.receive("nothing", ReceiveOptions::default(), None).await, ErrorCode::QueueNotFound);
    assert!(error.to_string().contains("nothing"), "{error}");
}

/// B54, D1.
async fn b40_rows_show_status_0_and_are_gone(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let rows = shop.broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on");
    let message = rows[0].messages().remove(0);
    assert_eq!(
        (message.status.number(), &message.conversation_handle, &message.conversation_id),
        (0, &dialog.target, &dialog.id)
    );
    assert_eq!(show_all(&rows), ["0 Order 0 m1"]);
    assert_eq!(shop.rows("kitchen").await, [""; 0], "b54: retention is off");
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.queue("kitchen").await.ready, 0);
}

async fn b29_rows_are_of_one_group(shop: &Shop) {
    for number in 0..3 {
        let dialog = shop.order(&format!("a{number}")).await;
        shop.send(&dialog.initiator, "Note", &format!("b{number}")).await;
    }
    assert_eq!(shop.receive_top("kitchen", 100).await, ["0 Order 0 a0", "0 Note 1 b0"]);
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Order 0 a1"]);
}

/// B30.
async fn receiving_in_parts_misses_nothing(shop: &Shop) {
    let dialog = shop.order("first").await;
    shop.send_many(&dialog.initiator, "Note", 0..700).await;
    shop.send_many(&dialog.initiator, "Note", 700..1000).await;
    let mut received = Vec::new();
    for top in [1, 2, 255, 1, 256, 257, 300, 5] {
        received.extend(shop.receive_top("kitchen", top).await);
    }
    assert_eq!(received.len(), 1001);
    assert!(received[1..].iter().enumerate().all(|(index, row)| *row == format!("0 Note {} {index}", index + 1)));
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn b38_a_handle_gives_its_conversation_only(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    assert_eq!(shop.receive_from("kitchen", &second.target).await, ["0 Order 0 b"]);
    assert_eq!(shop.receive_from("kitchen", &second.target).await, [""; 0]);
    assert_eq!(shop.receive_from("", &first.target).await, ["0 Order 0 a"], "without a queue: the conversation's own");
}

async fn b37_an_unknown_handle_or_group_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let of = |handle: &str| ReceiveOptions { conversation: Some(handle.into()), ..ReceiveOptions::default() };
    for (queue, handle) in [("kitchen", "x"), ("kitchen", &*dialog.initiator), ("counter", &*dialog.target), ("", "x")]
    {
        let error = refused(shop.broker.receive(queue, of(handle), None).await, ErrorCode::ConversationNotFound);
        assert_eq!(error.number(), Some(8426));
    }
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let of = |group: &str| ReceiveOptions { group: Some(group.into()), ..ReceiveOptions::default() };
    for (queue, group) in [("kitchen", "x"), ("counter", &*group), ("kitchen", &*dialog.target)] {
        let error = refused(shop.broker.receive(queue, of(group), None).await, ErrorCode::GroupNotFound);
        assert_eq!(error.number(), Some(8436));
    }
    let both = ReceiveOptions { conversation: Some(dialog.target), group: Some(group), ..ReceiveOptions::default() };
    refused(shop.broker.receive("kitchen", both, None).await, ErrorCode::InvalidArgument);
}

async fn top_is_a_whole_number_from_one(shop: &Shop) {
    shop.order("m1").await;
    for top in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        let options = ReceiveOptions { top: Some(top), ..ReceiveOptions::default() };
        refused(shop.broker.receive("kitchen", options, None).await, ErrorCode::InvalidArgument);
    }
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
}

/// D32.
async fn b36_a_queue_that_is_off_refuses(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    let error = refused(shop.broker.receive("kitchen", top_of(1), None).await, ErrorCode::QueueDisabled);
    assert_eq!(error.number(), Some(9617));
    let options = ReceiveOptions { conversation: Some(dialog.target), ..ReceiveOptions::default() };
    refused(shop.broker.receive("kitchen", options, None).await, ErrorCode::QueueDisabled);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}

async fn b41_an_error_comes_before_the_rest(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.fail(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2", "1 Error 2 42"], "in queuing order");
    assert_eq!(shop.receive("kitchen").await, ["0 Error 2 42", "0 Order 0 m1", "0 Note 1 m2"]);
}

async fn b43_after_an_error_the_rest_can_be_received(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Order 0 m1"]);
    shop.fail(&dialog.initiator).await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Error 2 42"]);
    assert_eq!(shop.state(&dialog.target).await, "ER");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"]);
    assert_eq!(shop.end(&dialog.target).await.discarded, 0);
}

async fn b42_an_end_dialog_comes_last(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2", "0 EndDialog 2"]);
}

async fn what_is_ready_at_many_conversations_is_found(shop: &Shop) {
    let mut dialogs = Vec::new();
    for number in 0..40 {
        dialogs.push(shop.order(&number.to_string()).await);
    }
    // The turns of more than a page, some of them held by a transaction.
    let transaction = shop.broker.begin().expect("the broker is open");
    for number in 0..20 {
        let rows = transaction.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on");
        assert_eq!(show_all(&rows), [format!("0 Order 0 {number}")]);
    }
    for number in 20..40 {
        assert_eq!(shop.receive("kitchen").await, [format!("0 Order 0 {number}")]);
    }
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    transaction.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 0"]);
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await.len(), 19);
}

/// So many dialogs, more than are looked at together, with two messages each: the first ones came before the second ones.
async fn two_each(shop: &Shop, dialogs: usize) {
    let mut begun = Vec::new();
    for number in 0..dialogs {
        begun.push(shop.order(&number.to_string()).await);
    }
    for (number, dialog) in begun.iter().enumerate() {
        shop.send(&dialog.initiator, "Note", &(dialogs + number).to_string()).await;
    }
}

/// The body of the next message.
fn body_of(rows: &[String]) -> Option<&str> {
    rows.first().and_then(|row| row.rsplit(' ').next())
}

async fn d17_transactions_take_turns_by_the_oldest_row(shop: &Shop) {
    two_each(shop, 40).await;
    for number in 0..80 {
        let transaction = shop.broker.begin().expect("the broker is open");
        let rows = show_all(&transaction.receive("kitchen", top_of(1)).await.expect("the queue is on"));
        assert_eq!(body_of(&rows), Some(&*number.to_string()), "nobody is passed over");
        transaction.commit().await.expect("it commits");
    }
}

async fn d17_who_was_received_from_goes_behind_all_that_wait(shop: &Shop) {
    two_each(shop, 40).await;
    let transaction = shop.broker.begin().expect("the broker is open");
    for number in 0..36 {
        let rows = show_all(&transaction.receive("kitchen", top_of(1)).await.expect("the queue is on"));
        assert_eq!(body_of(&rows), Some(&*number.to_string()));
    }
    transaction.commit().await.expect("it commits");
    for number in 36..80 {
        assert_eq!(body_of(&shop.receive_top("kitchen", 1).await), Some(&*number.to_string()));
    }
}
