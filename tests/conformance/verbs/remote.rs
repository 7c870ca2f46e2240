//! A target service that is not here: rows wait for a route.

use pocket_broker::definitions::{Definitions, ServiceOptions};
use pocket_broker::error::ErrorCode;
use pocket_broker::{BeginDialog, EndResult, RowFilter};

use super::super::support::shop::{Shop, archived, dialog_of, refused, to_kitchen};

mount! {
    b92_rows_wait_and_say_why,
    a_copy_and_a_row_to_transmit_are_one_record,
    another_brokers_service_is_not_here,
    cleanup_leaves_nothing,
    end_appends_an_end_dialog,
    end_with_error_drops_what_waits,
    large_bodies_wait_too,
    the_first_message_decides,
}

async fn far(shop: &Shop, body: &str) -> std::rc::Rc<str> {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", body).await;
    begun.handle
}

async fn b92_rows_wait_and_say_why(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.send(&handle, "Note", "m2").await;
    shop.send_many(&handle, "Note", 0..300).await;
    assert_eq!(shop.state(&handle).await, "CO");
    assert_eq!(shop.rows("counter").await, [""; 0]);
    let rows = shop.transmission().await;
    assert_eq!(rows.len(), 302);
    assert_eq!(shop.outside().await[..2], ["Order 0 m1", "Note 1 m2"]);
    assert_eq!((&*rows[0].to_service, &rows[0].to_broker, &*rows[0].from_service), ("Elsewhere", &None, "Counter"));
    assert!(rows[0].transmission_status.contains("Elsewhere"), "{}", rows[0].transmission_status);
    assert_eq!(shop.broker.transmission_queue(Some(&handle)).await.expect("it can be looked at").len(), 302);
    let end = shop.info(&handle).await.expect("it is there");
    assert_eq!((end.send_sequence, end.far_broker_instance), (302, None));
    assert_eq!(shop.endpoints(Default::default()).await.len(), 1);
}

async fn a_copy_and_a_row_to_transmit_are_one_record(shop: &Shop) {
    shop.retain("counter", true).await;
    let handle = far(shop, "m1").await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1"]);
    assert_eq!(shop.outside().await, ["Order 0 m1"]);
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Messages).await, 1);
    shop.retain("counter", false).await;
    shop.send(&handle, "Note", "m2").await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1"]);
    assert_eq!(shop.outside().await, ["Order 0 m1", "Note 1 m2"]);
    let ended = shop.broker.end_conversation(&handle, archived()).await.expect("it can be ended");
    assert_eq!(ended, EndResult { discarded: 0, archived: 1 });
    assert_eq!(shop.rows("counter").await, [""; 0], "the copy goes, what is to be transmitted stays");
    assert_eq!(shop.outside().await, ["Order 0 m1", "Note 1 m2", "EndDialog 2"]);
}

async fn end_appends_an_end_dialog(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.end(&handle).await;
    assert_eq!(shop.state(&handle).await, "DO");
    assert_eq!(shop.outside().await, ["Order 0 m1", "EndDialog 1"]);
    let error = refused(shop.try_send(&handle, "Note", "x").await, ErrorCode::InvalidState);
    assert!(!error.to_string().contains("Receive"), "there is nothing to receive: {error}");
    assert_eq!(
        refused(shop.broker.end_conversation(&handle, Default::default()).await, ErrorCode::InvalidState).number(),
        Some(8427)
    );
    shop.clean_up(&handle).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(shop.state(&handle).await, "");
}

/// B70.
async fn end_with_error_drops_what_waits(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.send_many(&handle, "Note", 0..10).await;
    shop.fail(&handle).await;
    assert_eq!(shop.outside().await, ["Error 11 42"]);
    assert!(shop.transmission().await[0].is_conversation_error());
    assert_eq!(shop.state(&handle).await, "DO");
    assert_eq!(shop.transmission().await[0].body.field("description").text().as_deref(), Some("no more bread"));
}

/// B77, D19.
async fn cleanup_leaves_nothing(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.send_large(&handle, "m2").await;
    shop.clean_up(&handle).await;
    let transaction = shop.broker.begin().expect("the broker is open");
    let begun = transaction.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    transaction.send(vec![begun.handle.clone()], vec![shop.message("Order", "x")]).await.expect("it may send");
    transaction.end_conversation(&begun.handle, super::super::support::shop::cleanup()).await.expect("it can be ended");
    transaction.commit().await.expect("it commits");
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.end(&begun.handle).await;
    assert_eq!(shop.outside().await, [""; 0], "d19: from SO nobody is told");
    for store in [
        pocket_broker::store::StoreName::Conversations,
        pocket_broker::store::StoreName::Messages,
        pocket_broker::store::StoreName::Bodies,
    ] {
        assert_eq!(shop.records_in(store).await, 0, "{store:?}");
    }
}

async fn large_bodies_wait_too(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.send_large(&handle, "large").await;
    assert_eq!(shop.outside().await, ["Order 0 m1", "Note 1 large"], "with their bodies");
    shop.fail(&handle).await;
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Bodies).await, 0);
}

async fn the_first_message_decides(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    let service = ServiceOptions { queue: Some("house".into()), contracts: vec!["Ordering".into()] };
    shop.broker
        .define(Definitions { services: vec![("Elsewhere".into(), service)], ..Definitions::default() })
        .await
        .expect("a new service");
    shop.send(&begun.handle, "Order", "m1").await;
    assert_eq!(shop.messages("house", RowFilter::default()).await.len(), 1, "it is here by now");
}

async fn another_brokers_service_is_not_here(shop: &Shop) {
    let own = BeginDialog { to_broker: Some(shop.broker.instance_id().to_string()), ..to_kitchen() };
    let shouted = BeginDialog { to_broker: Some(shop.broker.instance_id().to_uppercase()), ..to_kitchen() };
    for options in [own, shouted, BeginDialog { to_broker: Some("current".into()), ..to_kitchen() }] {
        let begun = shop.broker.begin_dialog(options).await.expect("the dialog begins");
        shop.send(&begun.handle, "Order", "m1").await;
    }
    assert_eq!(shop.rows("kitchen").await.len(), 3);
    let other = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    let begun = shop
        .broker
        .begin_dialog(BeginDialog { to_broker: Some(other.into()), ..to_kitchen() })
        .await
        .expect("the dialog begins");
    shop.send(&begun.handle, "Order", "m1").await;
    assert_eq!(shop.rows("kitchen").await.len(), 3, "although a service of that name is here");
    assert_eq!(shop.transmission().await[0].to_broker.as_deref(), Some(other));
}
