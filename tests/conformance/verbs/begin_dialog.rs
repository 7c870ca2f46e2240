//! BEGIN DIALOG.

use std::rc::Rc;

use pocket_broker::BeginDialog;
use pocket_broker::definitions::{Definitions, ServiceOptions};
use pocket_broker::error::ErrorCode;

use super::super::support::shop::{Shop, dialog_of, refused, to_kitchen};

mount! {
    b05_b17_a_service_without_contracts_begins_and_refuses,
    b06_service_names_are_compared_exactly,
    b10_a_dialog_begins_in_so_and_nobody_is_contacted,
    b11_an_unknown_target_is_no_error,
    b14_an_unknown_service_contract_or_relation_is_refused,
    begin_says_what_it_began,
    b12_dialogs_have_handles_and_groups_of_their_own,
    lifetimes_have_bounds,
    one_relation_is_enough,
    b24_the_default_contract_and_type_are_there,
}

async fn b10_a_dialog_begins_in_so_and_nobody_is_contacted(shop: &Shop) {
    let begun = shop.begin().await;
    assert_eq!(shop.state(&begun.handle).await, "SO");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    let ends = shop.endpoints(Default::default()).await;
    assert_eq!(ends.len(), 1, "there is no target endpoint");
    assert_eq!((ends[0].send_sequence, ends[0].receive_sequence, ends[0].priority, ends[0].lifetime), (0, 0, 5, None));
    assert_eq!(ends[0].far_broker_instance, None, "nobody knows yet where the target is");
}

async fn begin_says_what_it_began(shop: &Shop) {
    let begun = shop.begin().await;
    assert_eq!((&*begun.service, &*begun.far_service, &*begun.contract), ("Counter", "Kitchen", "Ordering"));
    assert!(begun.is_initiator);
    let end = shop.info(&begun.handle).await.expect("it is there");
    assert_eq!((&end.conversation_id, &end.conversation_group_id), (&begun.conversation_id, &begun.group_id));
}

async fn b12_dialogs_have_handles_and_groups_of_their_own(shop: &Shop) {
    let (first, second) = (shop.begin().await, shop.begin().await);
    let ids = |begun: &pocket_broker::ConversationInfo| {
        [&begun.handle, &begun.conversation_id, &begun.group_id].map(Rc::clone)
    };
    let mut all: Vec<Rc<str>> = ids(&first).into_iter().chain(ids(&second)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "b12: a fresh group each");
}

async fn b11_an_unknown_target_is_no_error(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Nobody")).await.expect("nobody is contacted");
    assert_eq!(shop.state(&begun.handle).await, "SO");
}

async fn b06_service_names_are_compared_exactly(shop: &Shop) {
    for name in ["KITCHEN", "kitcheN", "Kitchen ", "Kitche\u{301}n"] {
        let begun = shop.broker.begin_dialog(dialog_of("Counter", name)).await.expect("nobody is contacted");
        shop.send(&begun.handle, "Order", "m1").await;
    }
    assert_eq!((shop.rows("kitchen").await, shop.outside().await.len()), (vec![], 4));
    refused(shop.broker.begin_dialog(dialog_of("COUNTER", "Kitchen")).await, ErrorCode::ServiceNotFound);
}

async fn b14_an_unknown_service_contract_or_relation_is_refused(shop: &Shop) {
    let error = refused(shop.broker.begin_dialog(dialog_of("Nobody", "Kitchen")).await, ErrorCode::ServiceNotFound);
    assert_eq!(error.number(), Some(8423));
    assert!(error.to_string().contains("Nobody"), "{error}");
    let options = BeginDialog { contract: Some("Nothing".into()), ..to_kitchen() };
    assert_eq!(refused(shop.broker.begin_dialog(options).await, ErrorCode::ContractNotFound).number(), Some(8425));
    let ended = shop.begin().await.handle;
    shop.end(&ended).await;
    for unknown in [&*ended, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "x", ""] {
        let options = BeginDialog { related_conversation: Some(unknown.into()), ..to_kitchen() };
        let error = refused(shop.broker.begin_dialog(options).await, ErrorCode::ConversationNotFound);
        assert_eq!(error.number(), Some(8426));
    }
    for bad in [("", "Kitchen"), ("Counter", "")] {
        refused(shop.broker.begin_dialog(dialog_of(bad.0, bad.1)).await, ErrorCode::InvalidArgument);
    }
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn one_relation_is_enough(shop: &Shop) {
    let begun = shop.begin().await;
    let both = BeginDialog {
        related_conversation: Some(begun.handle.to_string()),
        related_group: Some(begun.group_id.to_string()),
        ..to_kitchen()
    };
    refused(shop.broker.begin_dialog(both).await, ErrorCode::InvalidArgument);
    for bad in ["", "mine", "6ba7b810-9dad-11d1-80b4-00c04fd430c"] {
        refused(
            shop.broker.begin_dialog(BeginDialog { related_group: Some(bad.into()), ..to_kitchen() }).await,
            ErrorCode::InvalidArgument,
        );
        refused(
            shop.broker.begin_dialog(BeginDialog { to_broker: Some(bad.into()), ..to_kitchen() }).await,
            ErrorCode::InvalidArgument,
        );
    }
}

async fn lifetimes_have_bounds(shop: &Shop) {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 3e12] {
        let error = refused(
            shop.broker.begin_dialog(BeginDialog { lifetime: Some(bad), ..to_kitchen() }).await,
            ErrorCode::InvalidLifetime,
        );
        assert!(error.details().iter().any(|(name, _)| *name == "max"));
    }
    let begun = shop
        .broker
        .begin_dialog(BeginDialog { lifetime: Some(1_000.0), ..to_kitchen() })
        .await
        .expect("a second is enough");
    assert_eq!(shop.info(&begun.handle).await.and_then(|end| end.lifetime), Some(1_700_000_001_000.0));
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    assert_eq!(
        shop.info(&dialog.target).await.and_then(|end| end.lifetime),
        Some(1_700_000_001_000.0),
        "both ends have the same"
    );
    shop.end(&dialog.target).await;
    shop.end(&dialog.initiator).await;
}

async fn b24_the_default_contract_and_type_are_there(shop: &Shop) {
    let options = BeginDialog { contract: None, ..dialog_of("Counter", "kitchen") };
    let begun = shop.broker.begin_dialog(options).await.expect("every queue has a service of its name");
    assert_eq!(&*begun.contract, "DEFAULT");
    shop.send(&begun.handle, "DEFAULT", "m1").await;
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 m1"]);
    let error = refused(shop.try_send(&begun.handle, "Order", "m2").await, ErrorCode::NotInContract);
    assert_eq!(error.number(), Some(8431));
}

/// D13.
async fn b05_b17_a_service_without_contracts_begins_and_refuses(shop: &Shop) {
    let service = ServiceOptions { queue: Some("house".into()), contracts: Vec::new() };
    shop.broker
        .define(Definitions { services: vec![("Guest".into(), service)], ..Definitions::default() })
        .await
        .expect("it needs no contract");
    let begun =
        shop.broker.begin_dialog(dialog_of("Guest", "Kitchen")).await.expect("as an initiator it may use any contract");
    shop.send(&begun.handle, "Order", "m1").await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);

    let asked = shop.broker.begin_dialog(dialog_of("Counter", "Guest")).await.expect("nobody is contacted");
    shop.notices();
    shop.send_many(&asked.handle, "Order", 0..2).await;
    assert_eq!(shop.dropped(), ["the target service does not accept the contract"; 2], "d13: each is reported");
    assert_eq!(shop.rows("counter").await, ["1 Error 0 -8409"], "b17: SEND succeeded, and the sender gets an Error");
    assert_eq!(shop.state(&asked.handle).await, "ER");
    assert_eq!(shop.rows("house").await, [""; 0]);
    assert_eq!(shop.endpoints(Default::default()).await.len(), 3, "no target endpoint was made");
    assert_eq!(shop.receive("counter").await, ["0 Error 0 -8409"]);
    shop.end(&asked.handle).await;
}
