//! D12: what is sent to a queue that is off waits in the transmission queue.

use pocket_broker::EndResult;
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;

use super::super::support::shop::{Shop, refused};

mount! {
    b19_messages_wait_outside_and_come_in_order,
    b70_an_error_drops_what_both_sides_sent,
    b69_b71_an_end_dialog_waits_and_the_sender_is_do,
    b70_an_error_takes_the_place_of_what_waits,
    d11_cleanup_of_the_waiting_sender_leaves_the_target,
    b77_cleanup_drops_what_waits,
    only_what_came_later_waits,
    b81_the_end_of_the_target_takes_what_waits,
    b78_the_far_side_of_a_waiting_end_may_end_too,
    the_transmission_queue_is_filtered,
    b74_what_is_sent_to_a_side_that_ended_is_dropped,
}

/// D12.
async fn b19_messages_wait_outside_and_come_in_order(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let (first, second) = (shop.order("a1").await, shop.order("b1").await);
    shop.send(&second.initiator, "Note", "b2").await;
    shop.send(&first.initiator, "Note", "a2").await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.queue("kitchen").await.ready, 0);
    assert_eq!(shop.outside().await, ["Order 0 a1", "Note 1 a2", "Order 0 b1", "Note 1 b2"]);
    let row = shop.transmission().await.remove(0);
    assert_eq!(
        (&row.conversation_handle, &*row.to_service, &*row.from_service, &*row.contract),
        (&first.initiator, "Kitchen", "Counter", "Ordering")
    );
    assert!(row.transmission_status.contains("kitchen"), "{}", row.transmission_status);
    assert_eq!(
        (row.attempts, row.next_attempt, row.priority, row.is_end_of_dialog(), row.is_conversation_error()),
        (0, None, 5, false, false)
    );

    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(
        shop.rows("kitchen").await,
        ["1 Order 0 a1", "1 Order 0 b1", "1 Note 1 b2", "1 Note 1 a2"],
        "in the order in which they were sent"
    );
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a1", "0 Note 1 a2"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b1", "0 Note 1 b2"]);
    shop.send(&first.initiator, "Note", "a3").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 2 a3"]);
}

/// D12.
async fn only_what_came_later_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    shop.send_many(&dialog.initiator, "Note", 0..300).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
    assert_eq!(shop.outside().await.len(), 301);
    shop.switch("kitchen", Status::Off).await;
    assert_eq!(shop.outside().await.len(), 301);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive_top("kitchen", 4).await, ["0 Order 0 m1", "0 Note 1 m2", "0 Note 2 m3", "0 Note 3 0"]);
    assert_eq!(shop.receive("kitchen").await.len(), 299);
}

async fn the_transmission_queue_is_filtered(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    let of = |handle: &str| {
        let handle = handle.to_owned();
        async move { shop.broker.transmission_queue(Some(&handle)).await.expect("it can be looked at").len() }
    };
    assert_eq!((of(&first.initiator).await, of(&second.initiator).await), (1, 1));
    assert_eq!((of(&first.target).await, of("x").await), (0, 0), "by sender");
}

/// D18.
async fn b69_b71_an_end_dialog_waits_and_the_sender_is_do(shop: &Shop) {
    shop.retain("counter", true).await;
    shop.switch("kitchen", Status::Off).await;
    let dialog = shop.order("m1").await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1"]);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("counter").await, [""; 0], "its own rows go at once, what it has sent does not");
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("DO", "CO"));
    assert_eq!(shop.outside().await, ["Order 0 m1", "EndDialog 1"]);
    assert!(shop.transmission().await[1].is_end_of_dialog());
    let error = refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
    assert!(error.to_string().contains("DO"), "{error}");
    let again =
        refused(shop.broker.end_conversation(&dialog.initiator, Default::default()).await, ErrorCode::InvalidState);
    assert_eq!(again.number(), Some(8427), "d18: it exists, and says its state");
    shop.switch("kitchen", Status::On).await;
    assert_eq!(
        (shop.state(&dialog.initiator).await, shop.state(&dialog.target).await),
        ("", "DI"),
        "it goes with the last of them"
    );
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 EndDialog 1"]);
}

async fn b70_an_error_takes_the_place_of_what_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send_large(&dialog.initiator, "m3").await;
    shop.fail(&dialog.initiator).await;
    assert_eq!(shop.outside().await, ["Error 3 42"], "b70: only the Error goes");
    assert!(shop.transmission().await[0].is_conversation_error());
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("DO", "CO"));
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
    shop.switch("kitchen", Status::On).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("", "ER"));
    assert_eq!(
        shop.receive("kitchen").await,
        ["0 Error 3 42", "0 Order 0 m1"],
        "what was there before can be received"
    );
}

async fn b77_cleanup_drops_what_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.clean_up(&dialog.initiator).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("", "CO"));
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Error 1 -8462"]);
}

async fn d11_cleanup_of_the_waiting_sender_leaves_the_target(shop: &Shop) {
    for fails in [false, true] {
        shop.switch("kitchen", Status::On).await;
        let dialog = shop.order("m1").await;
        shop.switch("kitchen", Status::Off).await;
        shop.send(&dialog.initiator, "Note", "m2").await;
        if fails {
            shop.fail(&dialog.initiator).await;
        } else {
            shop.end(&dialog.initiator).await;
        }
        assert_eq!(shop.clean_up(&dialog.initiator).await, EndResult::default());
        assert_eq!(
            (shop.state(&dialog.initiator).await, shop.state(&dialog.target).await),
            ("", "CO"),
            "d11: cleanup drops them"
        );
        assert_eq!(shop.outside().await, [""; 0]);
        shop.switch("kitchen", Status::On).await;
        assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
        shop.clean_up(&dialog.target).await;
    }
}

/// D14.
async fn b81_the_end_of_the_target_takes_what_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.end(&dialog.target).await.discarded, 2, "d14: nothing is lost silently");
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("DI", ""));
    assert_eq!(shop.receive("counter").await, ["0 EndDialog 0"]);
}

async fn b78_the_far_side_of_a_waiting_end_may_end_too(shop: &Shop) {
    for ending in [0, 1, 2] {
        shop.switch("kitchen", Status::Off).await;
        let dialog = shop.order("m1").await;
        shop.end(&dialog.initiator).await;
        match ending {
            0 => shop.end(&dialog.target).await,
            1 => shop.fail(&dialog.target).await,
            _ => shop.clean_up(&dialog.target).await,
        };
        assert_eq!(
            shop.endpoints(Default::default()).await.len(),
            0,
            "b78: an Error for a side that has ended is dropped, and the side goes"
        );
        assert_eq!((shop.outside().await, shop.rows("counter").await), (vec![], vec![]));
    }
}

async fn b74_what_is_sent_to_a_side_that_ended_is_dropped(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let dialog = shop.order("m1").await;
    shop.end(&dialog.initiator).await;
    shop.notices();
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.dropped().len(), 1, "b74, d13");
    assert_eq!(shop.rows("counter").await, [""; 0]);
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("DO", "CO"));
}

/// Both queues off, both sides have sent.
async fn b70_an_error_drops_what_both_sides_sent(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.switch("counter", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.fail(&dialog.target).await;
    assert_eq!(shop.outside().await, ["Error 1 42"], "r1 is dropped, and m2 has nobody to go to");
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("CO", "DO"));
    shop.switch("counter", Status::On).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("ER", ""));
    assert_eq!(shop.receive("counter").await, ["0 Error 1 42"]);
}
