//! Conversation groups: relations, receiving by group, what a group knows.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, PriorityRule};
use pocket_broker::error::ErrorCode;
use pocket_broker::{BeginDialog, ConversationInfo, EndpointFilter, ReceiveOptions, RowFilter};

use super::super::support::shop::{Shop, dialog_of, refused, show_all, to_kitchen, top_of};

mount! {
    b13_an_unused_group_id_makes_that_group,
    b15_a_group_has_one_service,
    b38_a_handle_gives_one_conversation_of_its_group,
    b31_conversation_by_conversation_the_higher_priority_first,
    a_related_dialog_joins_the_group,
    a_group_is_received_from_by_its_id,
    a_group_that_grows_in_a_transaction_is_received_from,
    a_group_outlives_the_conversation_it_is_named_after,
    a_group_is_left_before_it_is_counted,
    d09_the_group_of_a_target_to_come_is_kept_for_it,
    d09_a_group_that_is_named_before_it_is_there_is_one_group,
    what_a_group_knows_goes_with_its_last_conversation,
    what_a_group_knows_is_found_by_handle_and_id,
    what_a_group_knows_is_transactional,
}

async fn begin(shop: &Shop, options: BeginDialog) -> ConversationInfo {
    shop.broker.begin_dialog(options).await.expect("the dialog begins")
}

async fn related(shop: &Shop, to: &ConversationInfo) -> ConversationInfo {
    begin(shop, BeginDialog { related_conversation: Some(to.handle.to_string()), ..dialog_of("Counter", "Back") }).await
}

async fn receive_group(shop: &Shop, queue: &str, group: &str) -> Vec<String> {
    let options = ReceiveOptions { group: Some(group.into()), ..ReceiveOptions::default() };
    show_all(&shop.broker.receive(queue, options, None).await.expect("the group can be received from"))
}

/// Two dialogs of the counter in one group, each with answers.
async fn a_group_of_two(shop: &Shop) -> (ConversationInfo, ConversationInfo) {
    let first = shop.begin().await;
    let second = related(shop, &first).await;
    for (begun, name) in [(&first, "a"), (&second, "b")] {
        shop.send(&begun.handle, "Order", name).await;
        let dialog = shop.dialog(begun).await;
        shop.send(&dialog.target, "Confirm", &format!("{name}1")).await;
    }
    for (begun, name) in [(&first, "a"), (&second, "b")] {
        let dialog = shop.dialog(begun).await;
        shop.send(&dialog.target, "Confirm", &format!("{name}2")).await;
    }
    (first, second)
}

async fn b13_an_unused_group_id_makes_that_group(shop: &Shop) {
    let id = "6BA7B810-9dad-11d1-80b4-00c04fd430c8";
    let first = begin(shop, BeginDialog { related_group: Some(id.into()), ..to_kitchen() }).await;
    assert_eq!(&*first.group_id, id.to_lowercase());
    let second = begin(shop, BeginDialog { related_group: Some(id.into()), ..to_kitchen() }).await;
    assert_eq!(second.group_id, first.group_id);
    let third = related(shop, &second).await;
    assert_eq!(third.group_id, first.group_id);
    let group = EndpointFilter { group: Some(id.into()), ..EndpointFilter::default() };
    assert_eq!(shop.endpoints(group).await.len(), 3);
}

/// Its id is made of the conversation's, and nobody else's until then. Afterwards it is a group like any other.
async fn d09_the_group_of_a_target_to_come_is_kept_for_it(shop: &Shop) {
    let later = BeginDialog { to: "Later".into(), ..to_kitchen() };
    for (begun, is_sent) in [(shop.begin().await, false), (begin(shop, later).await, true)] {
        if is_sent {
            shop.send(&begun.handle, "Order", "waits outside").await;
        }
        let group = begun.group_id.replacen('8', "c", 1);
        let related = BeginDialog { related_group: Some(group.clone()), ..dialog_of("Front", "Kitchen") };
        let error = refused(shop.broker.begin_dialog(related).await, ErrorCode::GroupInvalid);
        assert!(error.to_string().contains("still to come"), "{error}");
        let mover = begin(shop, dialog_of("Front", "Kitchen")).await;
        let to = pocket_broker::Destination::Named(group.as_str().into());
        refused(shop.broker.move_conversation(&mover.handle, to).await, ErrorCode::GroupInvalid);
        shop.end(&mover.handle).await;
    }
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    shop.end(&dialog.target).await;
    let again = begin(shop, BeginDialog { related_group: Some(group.to_string()), ..to_kitchen() }).await;
    assert_eq!(again.group_id, group, "that target will not come back");
}

/// A transaction has told of a conversation, and another dialog is begun in its group before the commit.
async fn d09_a_group_that_is_named_before_it_is_there_is_one_group(shop: &Shop) {
    for (service, is_target) in [("Counter", false), ("Front", false), ("Counter", true)] {
        let transaction = shop.broker.begin().expect("the broker is open");
        let begun = transaction.begin_dialog(to_kitchen()).await.expect("the dialog begins");
        let group = if is_target { begun.group_id.replacen('8', "c", 1) } else { begun.group_id.to_string() };
        let early = BeginDialog { related_group: Some(group.clone()), ..dialog_of(service, "Kitchen") };
        let early = begin(shop, early).await;
        let committed = transaction.commit().await;
        if service == "Counter" && !is_target {
            committed.expect("both are in it");
            let members = EndpointFilter { group: Some(early.group_id.clone()), ..EndpointFilter::default() };
            assert_eq!(shop.endpoints(members).await.len(), 2);
            shop.broker.set_group_state(&begun.handle, Body::small(Value::from("known"))).await.expect("it is there");
            assert_eq!(known(shop, &early.handle).await.as_deref(), Some("known"), "one group");
            shop.end(&begun.handle).await;
        } else {
            refused(committed, ErrorCode::GroupInvalid);
        }
        shop.end(&early.handle).await;
        shop.assert_sound().await;
    }
}

async fn a_related_dialog_joins_the_group(shop: &Shop) {
    let first = shop.begin().await;
    let second = related(shop, &first).await;
    assert_eq!(second.group_id, first.group_id);
    let by_id = begin(shop, BeginDialog { related_group: Some(first.group_id.to_string()), ..to_kitchen() }).await;
    assert_eq!(by_id.group_id, first.group_id);
    let dialog = shop.dialog(&first).await;
    assert_eq!(&*dialog.target, "", "groups are local: the far side is not asked");
    assert_eq!(
        shop.endpoints(EndpointFilter { group: Some(first.group_id), ..EndpointFilter::default() }).await.len(),
        3
    );
}

async fn b15_a_group_has_one_service(shop: &Shop) {
    let first = shop.begin().await;
    for related in [
        BeginDialog { related_conversation: Some(first.handle.to_string()), ..dialog_of("Front", "Kitchen") },
        BeginDialog { related_group: Some(first.group_id.to_string()), ..dialog_of("Front", "Kitchen") },
    ] {
        let error = refused(shop.broker.begin_dialog(related).await, ErrorCode::GroupInvalid);
        assert_eq!(error.number(), Some(9610));
    }
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 1);
}

async fn a_group_is_received_from_by_its_id(shop: &Shop) {
    let (first, second) = a_group_of_two(shop).await;
    let other = shop.order("other").await;
    shop.send(&other.target, "Confirm", "c1").await;
    assert_eq!(
        receive_group(shop, "counter", &first.group_id.to_uppercase()).await,
        ["0 Confirm 0 a1", "0 Confirm 1 a2", "0 Confirm 0 b1", "0 Confirm 1 b2"]
    );
    assert_eq!(receive_group(shop, "counter", &second.group_id).await, [""; 0]);
    let alone = shop.info(&other.initiator).await.expect("it is there").conversation_group_id;
    assert_eq!(receive_group(shop, "counter", &alone).await, ["0 Confirm 0 c1"], "a group of one");
}

async fn b38_a_handle_gives_one_conversation_of_its_group(shop: &Shop) {
    let (first, second) = a_group_of_two(shop).await;
    assert_eq!(shop.receive_from("counter", &second.handle).await, ["0 Confirm 0 b1", "0 Confirm 1 b2"]);
    assert_eq!(shop.receive_from("counter", &second.handle).await, [""; 0], "never filled up from the other");
    let transaction = shop.broker.begin().expect("the broker is open");
    let one = ReceiveOptions { conversation: Some(Rc::clone(&first.handle)), ..top_of(1) };
    assert_eq!(show_all(&transaction.receive("counter", one).await.expect("the queue is on")), ["0 Confirm 0 a1"]);
    shop.send(&shop.dialog(&second).await.target, "Confirm", "b3").await;
    assert_eq!(shop.receive_from("counter", &second.handle).await, [""; 0], "it is the group that is held");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.receive("counter").await, ["0 Confirm 1 a2", "0 Confirm 2 b3"]);
}

/// What is ready lies in the store, where the side still is alone in its group.
async fn a_group_that_grows_in_a_transaction_is_received_from(shop: &Shop) {
    for by_handle in [true, false] {
        let dialog = shop.order("m1").await;
        let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
        let related = if by_handle {
            BeginDialog { related_conversation: Some(dialog.target.to_string()), ..dialog_of("Kitchen", "Back") }
        } else {
            BeginDialog { related_group: Some(group.to_string()), ..dialog_of("Kitchen", "Back") }
        };
        let transaction = shop.broker.begin().expect("the broker is open");
        transaction.begin_dialog(related).await.expect("the dialog begins");
        let options = ReceiveOptions { group: Some(Rc::clone(&group)), ..ReceiveOptions::default() };
        for (body, expected) in [("m2", "0 Order 0 m1"), ("m3", "0 Note 1 m2")] {
            let rows = transaction.receive("kitchen", options.clone()).await.expect("the queue is on");
            assert_eq!(show_all(&rows), [expected]);
            shop.send(&dialog.initiator, "Note", body).await;
        }
        transaction.commit().await.expect("it commits");
        assert_eq!(receive_group(shop, "kitchen", &group).await, ["0 Note 2 m3"], "it has two members by now");
    }
}

async fn b31_conversation_by_conversation_the_higher_priority_first(shop: &Shop) {
    let rule = PriorityRule {
        contract: None,
        local_service: Some("Counter".into()),
        remote_service: Some("Back".into()),
        level: 8.0,
    };
    shop.broker
        .define(Definitions { priorities: vec![("back".into(), rule)], ..Definitions::default() })
        .await
        .expect("the rule is right");
    let (first, _) = a_group_of_two(shop).await;
    assert_eq!(shop.rows("counter").await, ["1 Confirm 0 a1", "1 Confirm 0 b1", "1 Confirm 1 a2", "1 Confirm 1 b2"]);
    assert_eq!(
        shop.receive_top("counter", 3).await,
        ["0 Confirm 0 b1", "0 Confirm 1 b2", "0 Confirm 0 a1"],
        "b38 apart, the whole group"
    );
    let of_first = RowFilter { group: Some(first.group_id), ..RowFilter::default() };
    assert_eq!(shop.messages("counter", of_first).await.len(), 1);
}

async fn a_group_outlives_the_conversation_it_is_named_after(shop: &Shop) {
    let (first, second) = a_group_of_two(shop).await;
    shop.clean_up(&first.handle).await;
    assert_eq!(receive_group(shop, "counter", &first.group_id).await, ["0 Confirm 0 b1", "0 Confirm 1 b2"]);
    let third = related(shop, &second).await;
    assert_eq!(third.group_id, first.group_id);
    shop.end(&third.handle).await;
    shop.end(&second.handle).await;
    let options = ReceiveOptions { group: Some(first.group_id), ..ReceiveOptions::default() };
    refused(shop.broker.receive("counter", options, None).await, ErrorCode::GroupNotFound);
}

/// All members end in one commit.
async fn a_group_is_left_before_it_is_counted(shop: &Shop) {
    let first = shop.begin().await;
    let mut members = vec![Rc::clone(&first.handle)];
    for _ in 0..5 {
        members.push(related(shop, &first).await.handle);
    }
    shop.broker.set_group_state(&first.group_id, Body::small(Value::from("known"))).await.expect("the group is there");
    let transaction = shop.broker.begin().expect("the broker is open");
    for handle in &members[1..] {
        transaction.end_conversation(handle, Default::default()).await.expect("it can be ended");
    }
    transaction.commit().await.expect("it commits");
    assert_eq!(
        shop.records_in(pocket_broker::store::StoreName::Members).await,
        2,
        "one member, and what the group knows"
    );
    shop.end(&first.handle).await;
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Members).await, 0);
}

async fn known(shop: &Shop, group: &str) -> Option<String> {
    shop.broker.get_group_state(group).await.expect("the group is there").and_then(|state| state.value.value().text())
}

async fn what_a_group_knows_is_found_by_handle_and_id(shop: &Shop) {
    let (first, second) = a_group_of_two(shop).await;
    assert_eq!(known(shop, &first.handle).await, None, "when never set");
    shop.broker
        .set_group_state(&second.handle, Body { value: Value::from("paid").into(), packing: 3, size: 4.0 })
        .await
        .expect("the group is there");
    for group in [&first.handle, &second.handle, &first.group_id] {
        assert_eq!(known(shop, group).await.as_deref(), Some("paid"));
    }
    let state = shop
        .broker
        .get_group_state(&first.group_id.to_uppercase())
        .await
        .expect("the group is there")
        .expect("it was set");
    assert_eq!((state.packing, state.size), (3, 4.0));
    let alone = shop.begin().await;
    shop.broker.set_group_state(&alone.group_id, Body::small(Value::from("alone"))).await.expect("the group is there");
    let joined = related(shop, &alone).await;
    assert_eq!(known(shop, &joined.handle).await.as_deref(), Some("alone"));
    for unknown in ["", "x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"] {
        let error = refused(shop.broker.get_group_state(unknown).await, ErrorCode::GroupNotFound);
        assert_eq!(error.number(), Some(8436));
        refused(shop.broker.set_group_state(unknown, Body::none()).await, ErrorCode::GroupNotFound);
    }
}

async fn what_a_group_knows_goes_with_its_last_conversation(shop: &Shop) {
    let (first, second) = a_group_of_two(shop).await;
    shop.broker.set_group_state(&first.handle, Body::small(Value::from("known"))).await.expect("the group is there");
    shop.end(&first.handle).await;
    assert_eq!(known(shop, &second.handle).await.as_deref(), Some("known"));
    shop.end(&second.handle).await;
    refused(shop.broker.get_group_state(&first.group_id).await, ErrorCode::GroupNotFound);
    let again = begin(shop, BeginDialog { related_group: Some(first.group_id.to_string()), ..to_kitchen() }).await;
    assert_eq!(known(shop, &again.handle).await, None, "a new group of an old name knows nothing");
    let alone = shop.begin().await;
    shop.broker.set_group_state(&alone.handle, Body::small(Value::from("alone"))).await.expect("the group is there");
    shop.end(&alone.handle).await;
}

async fn what_a_group_knows_is_transactional(shop: &Shop) {
    let first = shop.begin().await;
    let transaction = shop.broker.begin().expect("the broker is open");
    transaction.set_group_state(&first.handle, Body::small(Value::from("mine"))).await.expect("the group is there");
    let own = transaction.get_group_state(&first.group_id).await.expect("the group is there");
    assert_eq!(own.and_then(|state| state.value.value().text()).as_deref(), Some("mine"));
    transaction.rollback();
    assert_eq!(known(shop, &first.handle).await, None);
    let transaction = shop.broker.begin().expect("the broker is open");
    let begun = transaction.begin_dialog(to_kitchen()).await.expect("the dialog begins");
    transaction
        .set_group_state(&begun.handle, Body::small(Value::from("new")))
        .await
        .expect("the group is there, for the transaction");
    transaction.commit().await.expect("it commits");
    assert_eq!(known(shop, &begun.group_id).await.as_deref(), Some("new"));
}
