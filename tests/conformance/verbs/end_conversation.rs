//! END CONVERSATION.

use pocket_broker::EndOptions;
use pocket_broker::EndResult;
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::message::system;
use pocket_broker::store::StoreName;

use super::super::support::detail;
use super::super::support::shop::{Shop, cleanup, refused, with_error};

mount! {
    b69_what_was_sent_comes_before_the_end_dialog,
    b71_one_end_leaves_the_other_in_di,
    b72_the_second_end_tells_nobody,
    b73_d14_discarded_rows_are_counted,
    d13_an_error_for_an_ended_side_is_reported,
    b75_an_error_needs_code_and_description,
    b76_an_error_after_the_far_end_tells_nobody,
    b77_cleanup_leaves_no_trace,
    b80_an_ended_far_side_waits_without_limit,
    d18_a_second_end_is_refused,
    d19_end_from_so_tells_nobody,
    d20_an_error_makes_er_and_end_closes_it,
    an_error_says_what_it_was_given,
    ends_in_any_order_leave_nothing_stored,
    unread_large_bodies_go_with_the_rows,
}

/// D11.
async fn b71_one_end_leaves_the_other_in_di(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.notices();
    assert_eq!(shop.end(&dialog.initiator).await, EndResult::default());
    let mut told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.states).collect();
    told.sort_by_key(|(_, state)| *state);
    assert_eq!(told, [(dialog.initiator.clone(), "CD"), (dialog.target.clone(), "DI")], "one that is gone is finished");
    assert_eq!(
        (shop.state(&dialog.initiator).await, shop.state(&dialog.target).await),
        ("", "DI"),
        "delivery acknowledges at once"
    );
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn b69_what_was_sent_comes_before_the_end_dialog(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2", "1 EndDialog 2"]);
    assert_eq!(shop.rows("counter").await, [""; 0], "the side that ends is not told");
}

async fn b72_the_second_end_tells_nobody(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.end(&dialog.target).await;
    assert_eq!(shop.receive("counter").await, ["0 EndDialog 0"]);
    assert_eq!(shop.end(&dialog.initiator).await, EndResult::default());
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec![]));
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn b73_d14_discarded_rows_are_counted(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..300).await;
    shop.receive_top("kitchen", 1).await;
    assert_eq!(shop.end(&dialog.target).await, EndResult { discarded: 300, archived: 0 });
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.end(&dialog.initiator).await, EndResult { discarded: 1, archived: 0 }, "the EndDialog");
}

/// D13, B78: an Error for a side that has ended, or that is gone, goes nowhere, and that is told.
async fn d13_an_error_for_an_ended_side_is_reported(shop: &Shop) {
    let gone = shop.order("m1").await;
    shop.clean_up(&gone.initiator).await;
    let waiting = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.end(&waiting.initiator).await;
    assert_eq!(shop.state(&waiting.initiator).await, "DO");
    for dialog in [gone, waiting] {
        shop.notices();
        shop.fail(&dialog.target).await;
        let notices = shop.notices();
        let dropped: Vec<_> = notices.iter().flat_map(|notice| &notice.dropped).collect();
        assert_eq!(dropped.len(), 1, "{notices:?}");
        let column =
            |name| dropped[0].message.iter().find(|(other, _)| *other == name).and_then(|(_, value)| value.text());
        assert_eq!(column("messageTypeName").as_deref(), Some(system::ERROR));
        assert_eq!(column("conversationHandle").as_deref(), Some(&*dialog.target), "who sent it");
        assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("", ""));
    }
    let both = shop.order("m1").await;
    shop.clean_up(&both.initiator).await;
    shop.notices();
    shop.end(&both.target).await;
    assert_eq!(shop.dropped(), [""; 0], "an EndDialog that nobody needs is no loss");
}

/// D32.
async fn b75_an_error_needs_code_and_description(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for code in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY, 2_147_483_648.0] {
        let error = refused(
            shop.broker.end_conversation(&dialog.initiator, with_error(code, "x")).await,
            ErrorCode::InvalidEndError,
        );
        assert_eq!((error.number(), detail(&error, "argument").as_deref()), (Some(8419), Some("error.code")));
    }
    for description in [String::new(), "x".repeat(3_001)] {
        let error = refused(
            shop.broker.end_conversation(&dialog.initiator, with_error(1.0, &description)).await,
            ErrorCode::InvalidEndError,
        );
        assert_eq!((error.number(), detail(&error, "argument").as_deref()), (Some(8422), Some("error.description")));
    }
    let neither = shop.broker.end_conversation(&dialog.initiator, with_error(f64::NAN, "")).await;
    let error = refused(neither, ErrorCode::InvalidEndError);
    assert_eq!((error.number(), detail(&error, "argument").as_deref()), (Some(8424), Some("error")));
    let both = EndOptions { cleanup: true, ..with_error(1.0, "x") };
    refused(shop.broker.end_conversation(&dialog.initiator, both).await, ErrorCode::InvalidArgument);
    assert_eq!(shop.state(&dialog.initiator).await, "CO");
    let longest = with_error(2_147_483_647.0, &"😀".repeat(3_000));
    shop.broker.end_conversation(&dialog.initiator, longest).await.expect("the largest of both");
}

async fn an_error_says_what_it_was_given(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.fail(&dialog.initiator).await;
    let message = shop.messages("kitchen", Default::default()).await.pop().expect("the Error");
    assert_eq!(
        (message.body.field("code").number(), message.body.field("description").text().as_deref()),
        (Some(42.0), Some("no more bread"))
    );
    assert_eq!(message.validation, "J");
}

async fn d20_an_error_makes_er_and_end_closes_it(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.fail(&dialog.target).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("ER", ""));
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec![]));
}

async fn b76_an_error_after_the_far_end_tells_nobody(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.end(&dialog.target).await;
    shop.fail(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn b77_cleanup_leaves_no_trace(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.clean_up(&dialog.initiator).await.discarded, 1);
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("", "CO"));
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec!["1 Order 0 m1".to_owned()]));
    let begun = shop.begin().await;
    shop.clean_up(&begun.handle).await;
    shop.clean_up(&dialog.target).await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn d18_a_second_end_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.end(&dialog.initiator).await;
    for options in [EndOptions::default(), with_error(1.0, "x"), cleanup()] {
        let error =
            refused(shop.broker.end_conversation(&dialog.initiator, options).await, ErrorCode::ConversationNotFound);
        assert_eq!(error.number(), Some(8426));
        assert!(error.to_string().contains(&*dialog.initiator), "{error}");
    }
    refused(shop.broker.end_conversation("", EndOptions::default()).await, ErrorCode::ConversationNotFound);
}

async fn d19_end_from_so_tells_nobody(shop: &Shop) {
    let begun = shop.begin().await;
    assert_eq!(shop.end(&begun.handle).await, EndResult::default());
    let begun = shop.begin().await;
    shop.fail(&begun.handle).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn b80_an_ended_far_side_waits_without_limit(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.end(&dialog.initiator).await;
    shop.clock().advance(365.0 * 86_400_000.0);
    assert_eq!(shop.state(&dialog.target).await, "DI");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 EndDialog 1"]);
    assert_eq!(shop.state(&dialog.target).await, "DI", "reading it ends nothing");
}

async fn ends_in_any_order_leave_nothing_stored(shop: &Shop) {
    shop.retain("counter", true).await;
    shop.retain("kitchen", true).await;
    for order in [true, false] {
        let dialog = shop.order("m1").await;
        shop.send(&dialog.target, "Confirm", "r1").await;
        shop.receive("kitchen").await;
        let (first, second) =
            if order { (&dialog.initiator, &dialog.target) } else { (&dialog.target, &dialog.initiator) };
        shop.end(first).await;
        shop.end(second).await;
    }
    for store in [
        StoreName::Conversations,
        StoreName::Messages,
        StoreName::Bodies,
        StoreName::Turns,
        StoreName::Members,
        StoreName::Due,
    ] {
        assert_eq!(shop.records_in(store).await, 0, "{store:?}");
    }
}

async fn unread_large_bodies_go_with_the_rows(shop: &Shop) {
    use pocket_broker::body::{Body, Value};
    let dialog = shop.order("m1").await;
    for number in 0..3 {
        let body = Body { value: Value::from(f64::from(number)).into(), packing: 0, size: 70_000.0 };
        shop.broker
            .send(vec![dialog.initiator.clone()], vec![shop.message_of("Note", body)], None)
            .await
            .expect("it can be sent");
    }
    assert_eq!(shop.records_in(StoreName::Bodies).await, 3);
    shop.receive_top("kitchen", 2).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 2);
    shop.end(&dialog.target).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}
