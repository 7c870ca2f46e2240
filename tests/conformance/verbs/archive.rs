//! The archive, and compensation.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::QueueOptions;
use pocket_broker::error::ErrorCode;
use pocket_broker::{EndOptions, EndResult, Extent, Message, ReceiveOptions, RowFilter, Rows};

use super::super::support::shop::{Dialog, Shop, archived, cleanup, refused, show_message, with_error};

mount! {
    archived_rows_are_as_they_were,
    archived_rows_are_filtered_and_paged,
    compensation_walks_backwards_and_ends,
    every_end_can_archive,
    large_bodies_are_archived_whole,
    purging_counts_rows,
    a_queue_can_archive_every_end,
    what_a_transaction_did_before_is_archived_with_it,
}

async fn archive(shop: &Shop, filter: RowFilter) -> Vec<Message> {
    let page = shop.broker.archive(&filter, None, Extent::All).await.expect("the archive can be looked at");
    assert_eq!(page.next, None);
    page.rows.iter().flat_map(Rows::messages).collect()
}

async fn shown(shop: &Shop) -> Vec<String> {
    archive(shop, RowFilter::default()).await.iter().map(show_message).collect()
}

/// m1 received, r1 sent, m2 unread; retained at the target.
async fn a_history(shop: &Shop) -> Dialog {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    dialog
}

const HISTORY: [&str; 3] = ["0 Order 0 m1", "3 Confirm 0 r1", "1 Note 1 m2"];

async fn archived_rows_are_as_they_were(shop: &Shop) {
    let dialog = a_history(shop).await;
    let before = shop.messages("kitchen", RowFilter::default()).await;
    shop.clock().advance(5_000.0);
    let ended = shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!(ended, EndResult { discarded: 1, archived: 3 });
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shown(shop).await, HISTORY, "in the order in which they were in the queue");
    assert_eq!(archive(shop, RowFilter::default()).await, before, "with every column");
    let page =
        shop.broker.archive(&RowFilter::default(), None, Extent::All).await.expect("the archive can be looked at");
    assert!(page.rows.iter().all(|rows| rows.archived == Some((1_700_000_005_000.0, Rc::from("kitchen")))));
    shop.end(&dialog.initiator).await;
    assert_eq!(shown(shop).await.len(), 3, "it outlives the conversation");
}

async fn every_end_can_archive(shop: &Shop) {
    for options in [
        archived(),
        EndOptions { archive: Some(true), ..with_error(1.0, "x") },
        EndOptions { archive: Some(true), ..cleanup() },
    ] {
        let dialog = a_history(shop).await;
        assert_eq!(shop.broker.end_conversation(&dialog.target, options).await.expect("it can be ended").archived, 3);
        shop.clean_up(&dialog.initiator).await;
    }
    let begun = shop.begin().await;
    let nothing = shop.broker.end_conversation(&begun.handle, archived()).await.expect("it can be ended");
    assert_eq!(nothing, EndResult::default(), "nothing to archive is no error");
    assert_eq!(shown(shop).await.len(), 9);
}

async fn a_queue_can_archive_every_end(shop: &Shop) {
    shop.alter("kitchen", QueueOptions { archive: Some(true), ..QueueOptions::default() }).await;
    let dialog = a_history(shop).await;
    assert_eq!(shop.end(&dialog.target).await.archived, 3);
    let dialog = a_history(shop).await;
    let without = EndOptions { archive: Some(false), ..EndOptions::default() };
    assert_eq!(
        shop.broker.end_conversation(&dialog.target, without).await.expect("it can be ended").archived,
        0,
        "the call wins"
    );
    assert_eq!(shop.end(&dialog.initiator).await.archived, 0, "the other queue does not archive");
}

async fn archived_rows_are_filtered_and_paged(shop: &Shop) {
    shop.retain("counter", true).await;
    let first = a_history(shop).await;
    shop.send_many(&first.initiator, "Note", 0..700).await;
    shop.broker.end_conversation(&first.target, archived()).await.expect("it can be ended");
    shop.clock().advance(1_000.0);
    let second = a_history(shop).await;
    shop.broker.end_conversation(&second.target, archived()).await.expect("it can be ended");
    shop.clock().advance(1_000.0);
    shop.broker.end_conversation(&first.initiator, archived()).await.expect("it can be ended");
    let count = |filter: RowFilter| async { archive(shop, filter).await.len() };
    let all = RowFilter::default;
    assert_eq!(count(all()).await, 703 + 3 + 704);
    assert_eq!(count(RowFilter { queue: Some("kitchen".into()), ..all() }).await, 706);
    assert_eq!(count(RowFilter { conversation: Some(second.target.clone()), ..all() }).await, 3);
    assert_eq!(count(RowFilter { conversation_id: Some(first.id.to_uppercase().into()), ..all() }).await, 703 + 704);
    assert_eq!(count(RowFilter { status: Some(vec![3.0]), queue: Some("kitchen".into()), ..all() }).await, 2);
    assert_eq!(count(RowFilter { message_type: Some("Confirm".into()), ..all() }).await, 3);
    assert_eq!(count(RowFilter { limit: Some(10.0), ..all() }).await, 10);
    let forward = archive(shop, all()).await;
    let mut backward = archive(shop, RowFilter { reverse: true, ..all() }).await;
    backward.reverse();
    assert_eq!(backward, forward, "newest first is the same, turned round");
    for filter in [all(), RowFilter { reverse: true, ..all() }, RowFilter { limit: Some(500.0), ..all() }] {
        let expected = archive(shop, filter.clone()).await;
        let mut paged = Vec::new();
        let mut position: Option<Vec<f64>> = None;
        loop {
            let page = shop.broker.archive(&filter, position.as_deref(), Extent::Page).await.expect("a page");
            paged.extend(page.rows.iter().flat_map(Rows::messages));
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(paged, expected, "{filter:?}");
    }
}

async fn purging_counts_rows(shop: &Shop) {
    let dialog = a_history(shop).await;
    shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    shop.clock().advance(1_000.0);
    let dialog = a_history(shop).await;
    shop.send_many(&dialog.initiator, "Note", 0..300).await;
    shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!(shop.broker.purge_archive(1_700_000_000_000.0).await.expect("it can be purged"), 0, "before, not at");
    assert_eq!(shop.broker.purge_archive(1_700_000_000_001.0).await.expect("it can be purged"), 3);
    assert_eq!(shown(shop).await.len(), 303);
    assert_eq!(shop.broker.purge_archive(f64::MAX).await.expect("it can be purged"), 303);
    assert_eq!(shown(shop).await, [""; 0]);
    assert_eq!(shop.broker.purge_archive(f64::MAX).await.expect("it can be purged"), 0);
    refused(
        shop.broker.archive(&RowFilter { limit: Some(-1.0), ..RowFilter::default() }, None, Extent::Page).await,
        ErrorCode::InvalidArgument,
    );
}

async fn what_a_transaction_did_before_is_archived_with_it(shop: &Shop) {
    for retention in [true, false] {
        shop.retain("kitchen", retention).await;
        shop.retain("counter", true).await;
        let dialog = shop.order("m1").await;
        shop.send(&dialog.initiator, "Note", "m2").await;
        let transaction = shop.broker.begin().expect("the broker is open");
        let top = ReceiveOptions { top: Some(1.0), ..ReceiveOptions::default() };
        transaction.receive("kitchen", top).await.expect("the queue is on");
        let big = Body { value: Value::from("r1").into(), packing: 0, size: 70_000.0 };
        transaction
            .send(vec![dialog.target.clone()], vec![shop.message_of("Confirm", big)])
            .await
            .expect("it may send");
        let ended = transaction.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
        transaction.commit().await.expect("it commits");
        let expected: &[&str] =
            if retention { &["0 Order 0 m1", "1 Note 1 m2", "3 Confirm 0 r1"] } else { &["1 Note 1 m2"] };
        assert_eq!(ended, EndResult { discarded: 1, archived: expected.len() as u64 }, "what it says is what it did");
        assert_eq!(shown(shop).await, expected);
        let orders: Vec<u64> =
            archive(shop, RowFilter::default()).await.iter().map(|message| message.queuing_order).collect();
        assert!(orders.is_sorted_by(|a, b| a < b), "{orders:?}");
        shop.broker.purge_archive(f64::MAX).await.expect("it can be purged");
        assert_eq!(
            shop.rows_of("counter", &dialog.initiator).await,
            ["3 Order 0 m1", "3 Note 1 m2", "1 Confirm 0 r1", "1 EndDialog 1"]
        );
        shop.end(&dialog.initiator).await;
    }
}

async fn large_bodies_are_archived_whole(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    let body = |name: &str, size| shop.message_of("Note", Body { value: Value::from(name).into(), packing: 2, size });
    let messages =
        vec![body("small", 10.0), body("large", 90_000.0), body("larger", 9_000_000.0), body("small too", 10.0)];
    shop.broker.send(vec![dialog.initiator.clone()], messages, None).await.expect("they can be sent");
    shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!(
        shown(shop).await,
        ["1 Order 0 m1", "1 Note 1 small", "1 Note 2 large", "1 Note 3 larger", "1 Note 4 small too"]
    );
    assert_eq!(archive(shop, RowFilter::default()).await[2].packing, 2.0);
}

/// What the documentation of retention describes: undo what was received, newest first, then END; all in one transaction.
async fn compensation_walks_backwards_and_ends(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("reserve").await;
    for step in ["pack", "load", "drive"] {
        shop.send(&dialog.initiator, "Note", step).await;
        shop.receive("kitchen").await;
    }
    let received = RowFilter {
        conversation: Some(dialog.target.clone()),
        status: Some(vec![0.0]),
        reverse: true,
        ..RowFilter::default()
    };
    let undone: Vec<String> = shop
        .messages("kitchen", received)
        .await
        .iter()
        .map(|message| format!("undo {}", message.body.text().unwrap_or_default()))
        .collect();
    assert_eq!(undone, ["undo drive", "undo load", "undo pack", "undo reserve"]);
    let transaction = shop.broker.begin().expect("the broker is open");
    for step in &undone {
        transaction.send(vec![dialog.target.clone()], vec![shop.message("Note", step)]).await.expect("it may send");
    }
    transaction
        .end_conversation(&dialog.target, EndOptions { archive: Some(true), ..with_error(7.0, "could not drive") })
        .await
        .expect("it can be ended");
    transaction.commit().await.expect("it commits");
    assert_eq!(
        shop.receive("counter").await,
        ["0 Error 4 7", "0 Note 0 undo drive", "0 Note 1 undo load", "0 Note 2 undo pack", "0 Note 3 undo reserve"]
    );
    let history = archive(shop, RowFilter { reverse: true, ..RowFilter::default() }).await;
    assert_eq!(
        history.iter().map(show_message).next().as_deref(),
        Some("3 Note 3 undo reserve"),
        "newest first, sent among received"
    );
    assert_eq!(history.len(), 8);
}
