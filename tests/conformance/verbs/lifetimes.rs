//! What happens when a conversation's lifetime is over.

use pocket_broker::BeginDialog;
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;

use super::super::support::detail;
use super::super::support::shop::{Dialog, Shop, dialog_of, refused, to_kitchen};

mount! {
    b67_retained_rows_stay,
    b85_both_sides_get_an_error_and_sends_are_refused,
    b85_a_dialog_that_was_never_used_expires,
    b85_an_error_may_have_to_wait_outside,
    b86_both_sides_still_have_to_end,
    a_side_that_has_ended_hears_nothing,
    a_side_that_has_failed_hears_nothing_more,
    a_timer_still_fires_afterwards,
    b81_what_is_to_be_transmitted_is_held,
    the_last_end_takes_the_lifetime_along,
}

async fn begin(shop: &Shop, options: BeginDialog) -> Dialog {
    let options = BeginDialog { lifetime: Some(1_000.0), ..options };
    let begun = shop.broker.begin_dialog(options).await.expect("the dialog begins");
    shop.send(&begun.handle, "Order", "m1").await;
    shop.dialog(&begun).await
}

async fn b85_both_sides_get_an_error_and_sends_are_refused(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    assert_eq!(shop.pass(999.0).await, 0);
    assert_eq!(shop.pass(1.0).await, 2);
    assert_eq!(shop.rows("counter").await, ["1 Error 0 -8489"]);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Error 1 -8489"]);
    for handle in [&dialog.initiator, &dialog.target] {
        let error = refused(shop.try_send(handle, "Note", "x").await, ErrorCode::InvalidState);
        assert_eq!(detail(&error, "state").as_deref(), Some("ER"));
        let end = shop.info(handle).await.expect("it is there");
        assert_eq!(end.lifetime, Some(1_700_000_001_000.0), "it still shows when it was");
    }
    assert_eq!(shop.receive("kitchen").await, ["0 Error 1 -8489", "0 Order 0 m1"], "b43: what is left can be received");
    assert_eq!(shop.pass(60_000.0).await, 0, "once");
}

async fn b86_both_sides_still_have_to_end(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.pass(1_000.0).await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 2);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await.len(), 2, "nobody is told of an END after that");
    shop.end(&dialog.target).await;
    assert_eq!((shop.endpoints(Default::default()).await.len(), shop.records_in(StoreName::Due).await), (0, 0));
}

async fn b85_a_dialog_that_was_never_used_expires(shop: &Shop) {
    let options = BeginDialog { lifetime: Some(1_000.0), ..to_kitchen() };
    let begun = shop.broker.begin_dialog(options).await.expect("the dialog begins");
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(
        (shop.state(&begun.handle).await, shop.receive("counter").await),
        ("ER", vec!["0 Error 0 -8489".into()])
    );
    refused(shop.try_send(&begun.handle, "Order", "m1").await, ErrorCode::InvalidState);
}

async fn b67_retained_rows_stay(shop: &Shop) {
    shop.retain("counter", true).await;
    let dialog = begin(shop, to_kitchen()).await;
    shop.pass(1_000.0).await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "1 Error 0 -8489"]);
    shop.receive("counter").await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "0 Error 0 -8489"]);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("counter").await, [""; 0]);
}

async fn b85_an_error_may_have_to_wait_outside(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.switch("counter", Status::Off).await;
    assert_eq!(shop.pass(1_000.0).await, 2);
    assert_eq!((shop.rows("counter").await, shop.outside().await), (vec![], vec!["Error 0 -8489".to_owned()]));
    assert_eq!(shop.state(&dialog.initiator).await, "ER", "nothing is sent any more all the same");
    refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
    shop.clean_up(&dialog.target).await;
    assert_eq!((shop.state(&dialog.target).await, shop.outside().await.len()), ("", 1), "it is not the target's Error");
    shop.switch("counter", Status::On).await;
    assert_eq!(shop.receive("counter").await, ["0 Error 0 -8489"]);
}

async fn a_side_that_has_ended_hears_nothing(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Error 2 -8489", "0 Order 0 m1", "0 EndDialog 1"]);
    assert_eq!(shop.state(&dialog.target).await, "ER");

    shop.switch("kitchen", Status::Off).await;
    let waiting = begin(shop, to_kitchen()).await;
    shop.end(&waiting.initiator).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!((shop.state(&waiting.initiator).await, shop.state(&waiting.target).await), ("DO", "ER"));
    shop.switch("kitchen", Status::On).await;
    assert_eq!((shop.state(&waiting.initiator).await, shop.state(&waiting.target).await), ("", "ER"));
    assert_eq!(shop.receive("kitchen").await, ["0 Error 2 -8489", "0 Order 0 m1", "0 EndDialog 1"]);
}

async fn a_side_that_has_failed_hears_nothing_more(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.fail(&dialog.target).await;
    assert_eq!(shop.pass(1_000.0).await, 0);
    assert_eq!(shop.receive("counter").await, ["0 Error 0 42"]);
}

async fn a_timer_still_fires_afterwards(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.timer_of(&dialog.initiator, 1_000.0, "").await;
    assert_eq!(shop.pass(1_000.0).await, 3);
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0", "0 Error 0 -8489"]);
    refused(shop.try_timer(&dialog.initiator, 1.0, "").await, ErrorCode::TimerBeyondLifetime);
}

async fn b81_what_is_to_be_transmitted_is_held(shop: &Shop) {
    let dialog = begin(shop, dialog_of("Counter", "Elsewhere")).await;
    assert_eq!(shop.outside().await, ["Order 0 m1"]);
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(shop.state(&dialog.initiator).await, "ER");
    shop.assert_sound().await;
    shop.end(&dialog.initiator).await;
    assert_eq!((shop.endpoints(Default::default()).await.len(), shop.outside().await.len()), (0, 0));
}

async fn the_last_end_takes_the_lifetime_along(shop: &Shop) {
    let dialog = begin(shop, to_kitchen()).await;
    shop.end(&dialog.target).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}
