//! Retention: every line of table 3.3.

use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::{Extent, ReceiveOptions, RowFilter};

use super::super::support::shop::{Dialog, Shop, dialog_of, refused, show_message, top_of};

mount! {
    b55_b56_received_rows_stay_and_do_not_come_again,
    b57_b58_sent_rows_stay_and_are_not_received,
    b59_the_sides_behave_independently,
    b60_one_queue_for_both_sides_shows_two_rows,
    b61_b62_a_rollback_undoes_both,
    b63_only_the_target_ends,
    b64_then_the_initiator_ends,
    b65_cleanup_leaves_the_other_side,
    b66_a_queue_that_is_off_can_keep_no_copy,
    a_system_message_is_retained,
    d05_on_applies_from_then_on,
    b68_d05_off_keeps_what_is_retained,
    d05_on_and_off_again_keep_what_they_kept,
    d07_service_names_say_whom_a_row_is_addressed_to,
    the_first_message_is_copied_too,
    b54_with_retention_off_no_row_stays,
    an_on_and_off_in_one_run_keeps_its_part,
}

/// m1 sent and received, r1 sent and received.
async fn both_ways(shop: &Shop) -> Dialog {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.receive("counter").await;
    dialog
}

async fn retain_both(shop: &Shop) {
    shop.retain("counter", true).await;
    shop.retain("kitchen", true).await;
}

async fn b54_with_retention_off_no_row_stays(shop: &Shop) {
    let dialog = shop.order("m1").await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec!["1 Order 0 m1".to_owned()]));
    shop.receive("kitchen").await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec![]));
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec!["1 Confirm 0 r1".to_owned()], vec![]));
    shop.receive("counter").await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec![]));
    shop.end(&dialog.target).await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec!["1 EndDialog 1".to_owned()], vec![]));
    shop.end(&dialog.initiator).await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec![]));
}

/// D1.
async fn b57_b58_sent_rows_stay_and_are_not_received(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec!["3 Order 0 m1".to_owned()], vec!["1 Order 0 m1".to_owned()])
    );
    assert_eq!(shop.receive("counter").await, [""; 0]);
    assert_eq!(shop.receive_from("counter", &dialog.initiator).await, [""; 0]);
    assert_eq!((shop.queue("counter").await.ready, shop.queue("counter").await.retained), (0, 1));
}

/// B57.
async fn the_first_message_is_copied_too(shop: &Shop) {
    shop.retain("counter", true).await;
    let begun = shop.begin().await;
    shop.send_many(&begun.handle, "Order", 0..3).await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 0", "3 Order 1 1", "3 Order 2 2"]);
}

/// D1.
async fn b55_b56_received_rows_stay_and_do_not_come_again(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec!["3 Order 0 m1".to_owned()], vec!["0 Order 0 m1".to_owned()])
    );
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "1 Confirm 0 r1"]);
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "3 Confirm 0 r1"], "both directions count from 0");
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 r1"]);
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "0 Confirm 0 r1"]);
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "3 Confirm 0 r1"]);
}

async fn b63_only_the_target_ends(shop: &Shop) {
    retain_both(shop).await;
    let dialog = both_ways(shop).await;
    assert_eq!(shop.end(&dialog.target).await.discarded, 0, "retained rows are not unread ones");
    assert_eq!(shop.rows("kitchen").await, [""; 0], "its rows go at once");
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "0 Confirm 0 r1", "1 EndDialog 1"]);
}

async fn b64_then_the_initiator_ends(shop: &Shop) {
    for reads_it in [true, false] {
        retain_both(shop).await;
        let dialog = both_ways(shop).await;
        shop.end(&dialog.target).await;
        if reads_it {
            assert_eq!(shop.receive("counter").await, ["0 EndDialog 1"]);
        }
        shop.end(&dialog.initiator).await;
        assert_eq!(
            (shop.rows("counter").await, shop.rows("kitchen").await),
            (vec![], vec![]),
            "nothing is retained anywhere"
        );
        assert_eq!((shop.queue("counter").await.retained, shop.queue("kitchen").await.retained), (0, 0));
    }
}

async fn b65_cleanup_leaves_the_other_side(shop: &Shop) {
    retain_both(shop).await;
    let dialog = both_ways(shop).await;
    shop.clean_up(&dialog.initiator).await;
    assert_eq!(shop.rows("counter").await, [""; 0]);
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "3 Confirm 0 r1"]);
    assert_eq!(shop.state(&dialog.target).await, "CO");
}

async fn a_system_message_is_retained(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    shop.fail(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Error 1 42"]);
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Error 1 42"]);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "0 Error 1 42"]);
    shop.end(&dialog.target).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn b59_the_sides_behave_independently(shop: &Shop) {
    shop.retain("counter", true).await;
    let dialog = both_ways(shop).await;
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec!["3 Order 0 m1".to_owned(), "0 Confirm 0 r1".to_owned()], vec![])
    );
    shop.end(&dialog.initiator).await;
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec!["1 EndDialog 1".to_owned()]));
    shop.end(&dialog.target).await;
    shop.retain("counter", false).await;
    shop.retain("kitchen", true).await;
    let dialog = both_ways(shop).await;
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec![], vec!["0 Order 0 m1".to_owned(), "3 Confirm 0 r1".to_owned()])
    );
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "3 Confirm 0 r1", "1 EndDialog 1"]);
}

async fn b60_one_queue_for_both_sides_shows_two_rows(shop: &Shop) {
    let front = || async {
        let begun = shop.broker.begin_dialog(dialog_of("Front", "Back")).await.expect("the dialog begins");
        shop.send(&begun.handle, "Order", "m1").await;
        shop.dialog(&begun).await
    };
    let dialog = front().await;
    assert_eq!(shop.rows("house").await, ["1 Order 0 m1"], "one row while retention is off");
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1"]);
    shop.clean_up(&dialog.initiator).await;
    shop.clean_up(&dialog.target).await;

    shop.retain("house", true).await;
    let dialog = front().await;
    assert_eq!(shop.rows_of("house", &dialog.initiator).await, ["3 Order 0 m1"]);
    assert_eq!(shop.rows_of("house", &dialog.target).await, ["1 Order 0 m1"]);
    let both = shop.messages("house", RowFilter::default()).await;
    assert_eq!((both.len(), &both[0].message_id), (2, &both[1].message_id));
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1"], "the copy is not received");
    assert_eq!(shop.receive("house").await, [""; 0]);
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.receive("house").await, ["0 Confirm 0 r1"]);
    assert_eq!(shop.queue("house").await.retained, 4);
    shop.end(&dialog.target).await;
    assert_eq!(shop.rows("house").await, ["3 Order 0 m1", "0 Confirm 0 r1", "1 EndDialog 1"]);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("house").await, [""; 0]);
}

async fn b61_b62_a_rollback_undoes_both(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    let transaction = shop.broker.begin().expect("the broker is open");
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on");
    transaction.send(vec![dialog.target.clone()], vec![shop.message("Confirm", "r1")]).await.expect("it may send");
    transaction.rollback();
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec!["3 Order 0 m1".to_owned()], vec!["1 Order 0 m1".to_owned()])
    );
}

async fn b66_a_queue_that_is_off_can_keep_no_copy(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    shop.switch("counter", Status::Off).await;
    assert_eq!(
        refused(shop.try_send(&dialog.initiator, "Note", "m2").await, ErrorCode::QueueDisabled).number(),
        Some(9618)
    );
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1"]);
}

async fn d05_on_applies_from_then_on(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    retain_both(shop).await;
    assert_eq!(shop.rows("counter").await, [""; 0], "what was sent before has no copy");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"]);
    assert_eq!(shop.rows("kitchen").await, ["0 Note 1 m2"]);
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.rows("counter").await, ["3 Note 2 m3"]);
}

async fn b68_d05_off_keeps_what_is_retained(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.retain("kitchen", false).await;
    shop.retain("counter", false).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"]);
    assert_eq!(
        (shop.rows("counter").await, shop.rows("kitchen").await),
        (vec!["3 Order 0 m1".to_owned()], vec!["0 Order 0 m1".to_owned()])
    );
    shop.end(&dialog.target).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0], "until END");
}

async fn d05_on_and_off_again_keep_what_they_kept(shop: &Shop) {
    let dialog = shop.order("0").await;
    for number in 1..8 {
        shop.send(&dialog.initiator, "Note", &number.to_string()).await;
    }
    for retention in [false, true, false, true] {
        shop.retain("kitchen", retention).await;
        assert_eq!(shop.receive_top("kitchen", 2).await.len(), 2);
    }
    assert_eq!(shop.rows("kitchen").await, ["0 Note 2 2", "0 Note 3 3", "0 Note 6 6", "0 Note 7 7"]);
    for retention in [true, false, true] {
        shop.retain("counter", retention).await;
        shop.send(&dialog.initiator, "Note", "x").await;
    }
    assert_eq!(shop.rows("counter").await, ["3 Note 8 x", "3 Note 10 x"]);
    let newest = RowFilter { reverse: true, limit: Some(3.0), ..RowFilter::default() };
    let page = shop.broker.select("kitchen", &newest, None, Extent::All).await.expect("the queue can be looked at");
    let rows: Vec<String> =
        page.rows.iter().flat_map(pocket_broker::Rows::messages).map(|message| show_message(&message)).collect();
    assert_eq!(rows, ["1 Note 10 x", "1 Note 9 x", "1 Note 8 x"]);
}

/// Rows that were stored together, of which only a part is retained.
async fn an_on_and_off_in_one_run_keeps_its_part(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..100).await;
    shop.receive_top("kitchen", 51).await;
    shop.retain("kitchen", true).await;
    shop.receive_top("kitchen", 25).await;
    shop.retain("kitchen", false).await;
    assert_eq!(shop.queue("kitchen").await.retained, 25);
    assert_eq!(shop.receive("kitchen").await.len(), 25);
    let rows = shop.rows("kitchen").await;
    assert_eq!((rows.len(), &*rows[0], &*rows[24]), (25, "0 Note 51 50", "0 Note 75 74"));
    let options = QueueOptions { retention: Some(true), ..QueueOptions::default() };
    shop.alter("kitchen", options).await;
    assert_eq!(shop.rows("kitchen").await.len(), 25, "what was received without retention does not come back");
    assert_eq!(show_count(shop).await, 25);
}

async fn show_count(shop: &Shop) -> u64 {
    shop.broker
        .count("kitchen", &RowFilter { status: Some(vec![0.0]), ..RowFilter::default() })
        .await
        .expect("it can be counted")
}

async fn d07_service_names_say_whom_a_row_is_addressed_to(shop: &Shop) {
    retain_both(shop).await;
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    for (queue, expected) in
        [("counter", [(3, "Kitchen"), (1, "Counter")]), ("kitchen", [(1, "Kitchen"), (3, "Counter")])]
    {
        let rows = shop.messages(queue, RowFilter::default()).await;
        let named: Vec<(u32, &str)> = rows.iter().map(|row| (row.status.number(), &*row.service_name)).collect();
        assert_eq!(named, expected);
    }
    let received = shop.broker.receive("counter", top_of(1), None).await.expect("the queue is on");
    assert_eq!(&*received[0].service_name, "Counter");
}
