//! MOVE CONVERSATION: a conversation goes into another group of its service.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, join, join_all, select};
use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, ServiceOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Operation, StoreName};
use pocket_broker::{
    BeginDialog, Broker, ConversationInfo, Destination, Endpoint, EndpointFilter, ReceiveOptions, Transaction,
};

use super::super::support::detail;
use super::super::support::shop::{Dialog, Shop, begin, dialog_of, receive, refused, show_all};

mount! {
    b50_both_groups_are_locked,
    b50_a_group_of_another_queue_or_service_is_refused,
    b51_unread_messages_are_received_under_the_new_group,
    b51_what_waits_outside_comes_in_under_the_new_group,
    d09_a_handle_comes_before_a_group,
    d09_an_unknown_group_is_made,
    d16_the_state_must_allow_it,
    d29_a_move_is_seen_inside_its_transaction,
    d29_a_move_is_checked_again_at_the_commit,
    d29_a_reader_that_lost_its_lock_is_refused,
    a_group_knows_until_its_last_conversation_is_moved,
    a_move_to_its_own_group_is_nothing,
    both_ends_of_a_conversation_may_be_in_one_group,
    a_move_is_undone_by_a_rollback,
    a_timer_fires_under_the_new_group,
}

mount_with_locks! {
    b50_while_it_waits_for_another_tab_it_keeps_no_group,
    moves_side_by_side_share_their_storage_transactions,
}

/// A dialog of the counter that the kitchen has answered `count` times.
async fn answered(shop: &Shop, name: &str, count: usize) -> Dialog {
    let dialog = shop.order(name).await;
    for number in 1..=count {
        shop.send(&dialog.target, "Confirm", &format!("{name}{number}")).await;
    }
    dialog
}

fn named(name: &str) -> Destination {
    Destination::Named(name.into())
}

async fn move_to(shop: &Shop, handle: &str, to: &str) {
    shop.broker.move_conversation(handle, named(to)).await.expect("it can be moved");
}

async fn group_of(shop: &Shop, handle: &str) -> Rc<str> {
    shop.info(handle).await.expect("it is there").conversation_group_id
}

async fn members(shop: &Shop, group: &str) -> usize {
    shop.endpoints(EndpointFilter { group: Some(group.into()), ..EndpointFilter::default() }).await.len()
}

fn of_group(group: &str) -> ReceiveOptions {
    ReceiveOptions { group: Some(group.into()), ..ReceiveOptions::default() }
}

async fn receive_group(broker: &Broker, group: &str) -> Vec<String> {
    show_all(&broker.receive("counter", of_group(group), None).await.expect("the group can be received from"))
}

async fn receive_group_in(transaction: &Transaction, group: &str) -> Vec<String> {
    show_all(&transaction.receive("counter", of_group(group)).await.expect("the group can be received from"))
}

async fn set(shop: &Shop, group: &str, state: &str) {
    shop.broker.set_group_state(group, Body::small(Value::from(state))).await.expect("the group is there");
}

async fn known(shop: &Shop, group: &str) -> Option<String> {
    shop.broker.get_group_state(group).await.expect("the group is there").and_then(|state| state.value.value().text())
}

async fn b50_both_groups_are_locked(shop: &Shop) {
    let (first, second) = (answered(shop, "a", 1).await, answered(shop, "b", 1).await);
    let transaction = begin(shop);
    transaction.move_conversation(&first.initiator, named(&second.initiator)).await.expect("it can be moved");
    assert_eq!(shop.receive("counter").await, [""; 0], "until the commit nobody else gets either group");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 a1", "0 Confirm 0 b1"]);

    let holder = begin(shop);
    let third = answered(shop, "c", 1).await;
    assert_eq!(receive(&holder, "counter").await, ["0 Confirm 0 c1"]);
    let broker = shop.broker.another().with_lock_timeout(0.0);
    let told = async {
        shop.timer().until_sleeping().await;
        shop.timer().fire();
    };
    let moving = broker.move_conversation(&first.initiator, named(&third.initiator));
    let (moved, ()) = futures_util::future::join(moving, told).await;
    let error = refused(moved, ErrorCode::GroupLocked);
    assert_eq!(detail(&error, "group").as_deref(), Some(&*group_of(shop, &third.initiator).await));
    holder.rollback();
    broker.close().await;
}

async fn b50_a_group_of_another_queue_or_service_is_refused(shop: &Shop) {
    let dialog = shop.order("a").await;
    let error =
        refused(shop.broker.move_conversation(&dialog.initiator, named(&dialog.target)).await, ErrorCode::GroupInvalid);
    assert_eq!(error.number(), Some(8439), "{error}");
    let front = shop.broker.begin_dialog(dialog_of("Front", "Kitchen")).await.expect("the dialog begins");
    let back = shop.broker.begin_dialog(dialog_of("Back", "Kitchen")).await.expect("the dialog begins");
    let error =
        refused(shop.broker.move_conversation(&front.handle, named(&back.group_id)).await, ErrorCode::GroupInvalid);
    assert_eq!((error.number(), detail(&error, "group").as_deref()), (Some(9610), Some(&*back.group_id)));
    assert_eq!(group_of(shop, &front.handle).await, front.group_id);
}

async fn b51_unread_messages_are_received_under_the_new_group(shop: &Shop) {
    shop.retain("counter", true).await;
    let (first, second) = (answered(shop, "a", 2).await, answered(shop, "b", 1).await);
    let (old, new) = (group_of(shop, &first.initiator).await, group_of(shop, &second.initiator).await);
    move_to(shop, &first.initiator, &new).await;
    assert_eq!(
        (group_of(shop, &first.initiator).await, members(shop, &new).await, members(shop, &old).await),
        (new.clone(), 2, 0)
    );
    refused(shop.broker.receive("counter", of_group(&old), None).await, ErrorCode::GroupNotFound);
    let rows = shop.broker.receive("counter", of_group(&new), None).await.expect("the group can be received from");
    assert_eq!(show_all(&rows), ["0 Confirm 0 a1", "0 Confirm 1 a2", "0 Confirm 0 b1"]);
    assert!(rows.iter().all(|rows| *rows.group_id == *new));
    let retained = shop.messages("counter", Default::default()).await;
    assert!(retained.len() == 5 && retained.iter().all(|row| *row.conversation_group_id == *new), "{retained:?}");
    shop.send(&first.target, "Confirm", "a3").await;
    shop.send(&second.target, "Confirm", "b2").await;
    assert_eq!(shop.receive("counter").await, ["0 Confirm 2 a3", "0 Confirm 1 b2"]);
    shop.end(&first.initiator).await;
    shop.end(&second.initiator).await;
}

async fn b51_what_waits_outside_comes_in_under_the_new_group(shop: &Shop) {
    let (first, second) = (answered(shop, "a", 0).await, answered(shop, "b", 1).await);
    shop.switch("counter", Status::Off).await;
    shop.send(&first.target, "Confirm", "a1").await;
    move_to(shop, &first.initiator, &second.initiator).await;
    shop.switch("counter", Status::On).await;
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 b1", "0 Confirm 0 a1"]);
}

async fn d09_a_handle_comes_before_a_group(shop: &Shop) {
    let (first, second) = (shop.begin().await, shop.begin().await);
    move_to(shop, &first.handle, &second.handle.to_uppercase()).await;
    assert_eq!(group_of(shop, &first.handle).await, second.group_id);
    let third = shop.begin().await;
    move_to(shop, &third.handle, &second.group_id.to_uppercase()).await;
    assert_eq!((group_of(shop, &third.handle).await, members(shop, &second.group_id).await), (second.group_id, 3));
    let gone = shop.begin().await;
    shop.end(&gone.handle).await;
    let named = Destination::Conversation(gone.handle.clone());
    refused(shop.broker.move_conversation(&third.handle, named).await, ErrorCode::ConversationNotFound);
    let unknown = shop.broker.move_conversation(&gone.handle, Destination::Named(third.handle.clone()));
    assert_eq!(refused(unknown.await, ErrorCode::ConversationNotFound).number(), Some(8426));
}

async fn d09_an_unknown_group_is_made(shop: &Shop) {
    let id = "6BA7B810-9dad-11d1-80b4-00c04fd430c8";
    let (first, second) = (shop.begin().await, shop.begin().await);
    move_to(shop, &first.handle, id).await;
    assert_eq!(&*group_of(shop, &first.handle).await, id.to_lowercase());
    move_to(shop, &second.handle, id).await;
    assert_eq!(members(shop, id).await, 2);
    move_to(shop, &first.handle, &first.group_id).await;
    assert_eq!(group_of(shop, &first.handle).await, first.group_id, "back into the group that was its own");
    for id in ["", "kitchen", "6ba7b8109dad11d180b400c04fd430c8"] {
        refused(shop.broker.move_conversation(&first.handle, named(id)).await, ErrorCode::InvalidArgument);
    }
}

async fn d16_the_state_must_allow_it(shop: &Shop) {
    let (begun, conversing) = (shop.begin().await, answered(shop, "a", 0).await);
    let (ended, failed) = (answered(shop, "b", 1).await, answered(shop, "c", 1).await);
    shop.end(&ended.target).await;
    shop.fail(&failed.target).await;
    let group = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    for handle in [&begun.handle, &conversing.initiator, &ended.initiator, &failed.initiator] {
        move_to(shop, handle, group).await;
    }
    assert_eq!(
        receive_group(&shop.broker, group).await,
        ["0 Confirm 0 b1", "0 EndDialog 1", "0 Error 1 42", "0 Confirm 0 c1"]
    );
    shop.switch("kitchen", Status::Off).await;
    shop.end(&conversing.initiator).await;
    let error = refused(
        shop.broker.move_conversation(&conversing.initiator, named(&begun.handle)).await,
        ErrorCode::InvalidState,
    );
    assert_eq!((error.number(), detail(&error, "state").as_deref()), (Some(8438), Some("DO")));
}

async fn d29_a_move_is_seen_inside_its_transaction(shop: &Shop) {
    let (first, second) = (answered(shop, "a", 1).await, answered(shop, "b", 1).await);
    let (old, new) = (group_of(shop, &first.initiator).await, "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    let transaction = begin(shop);
    for handle in [&first.initiator, &second.initiator] {
        transaction.move_conversation(handle, named(new)).await.expect("it can be moved");
    }
    refused(transaction.receive("counter", of_group(&old)).await, ErrorCode::GroupNotFound);
    transaction.set_group_state(new, Body::small(Value::from("both"))).await.expect("the group is there");
    assert_eq!(receive_group_in(&transaction, new).await, ["0 Confirm 0 a1", "0 Confirm 0 b1"]);
    let joined = BeginDialog { related_group: Some(new.into()), ..dialog_of("Counter", "Back") };
    assert_eq!(&*transaction.begin_dialog(joined).await.expect("the dialog begins").group_id, new);
    let foreign = BeginDialog { related_group: Some(new.into()), ..dialog_of("Front", "Back") };
    refused(transaction.begin_dialog(foreign).await, ErrorCode::GroupInvalid);
    transaction.commit().await.expect("it commits");
    assert_eq!((members(shop, new).await, known(shop, new).await.as_deref()), (3, Some("both")));
    assert_eq!(shop.rows("counter").await, [""; 0]);

    let transaction = begin(shop);
    let third = answered(shop, "c", 1).await;
    assert_eq!(receive(&transaction, "counter").await, ["0 Confirm 0 c1"]);
    transaction.move_conversation(&third.initiator, named(new)).await.expect("what was received from can be moved");
    shop.send(&first.target, "Confirm", "a2").await;
    shop.send(&third.target, "Confirm", "c2").await;
    assert_eq!(receive(&transaction, "counter").await, ["0 Confirm 1 c2", "0 Confirm 1 a2"], "one group");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("counter").await, [""; 0]);
}

async fn d29_a_move_is_checked_again_at_the_commit(shop: &Shop) {
    let (first, second) = (answered(shop, "a", 1).await, answered(shop, "b", 1).await);
    let other = shop.tab_without_locks().await;
    let at_commit = async |handle: &Rc<str>, to: &str, code: ErrorCode, meanwhile: &Rc<str>| {
        let transaction = begin(shop);
        transaction.move_conversation(handle, named(to)).await.expect("it can be moved");
        other.end_conversation(meanwhile, Default::default()).await.expect("it can be ended");
        let error = refused(transaction.commit().await, code);
        assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
    };
    at_commit(&first.initiator, &second.initiator, ErrorCode::ConversationNotFound, &second.initiator).await;
    at_commit(
        &first.initiator,
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        ErrorCode::ConversationNotFound,
        &first.initiator,
    )
    .await;

    let (third, id) = (shop.begin().await, "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    let transaction = begin(shop);
    transaction.move_conversation(&third.handle, named(id)).await.expect("it can be moved");
    let taken = BeginDialog { related_group: Some(id.into()), ..dialog_of("Front", "Back") };
    other.begin_dialog(taken).await.expect("the dialog begins");
    let error = refused(transaction.commit().await, ErrorCode::GroupInvalid);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
    assert_eq!(group_of(shop, &third.handle).await, third.group_id);
}

/// What a reader does, it does for the group that it holds.
async fn d29_a_reader_that_lost_its_lock_is_refused(shop: &Shop) {
    let dialog = answered(shop, "a", 1).await;
    let other = shop.tab_without_locks().await;
    let reader = begin(shop);
    assert_eq!(receive(&reader, "counter").await, ["0 Confirm 0 a1"]);
    let to = named("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    other.move_conversation(&dialog.initiator, to).await.expect("nobody holds it back; the commit decides");
    let error = refused(reader.commit().await, ErrorCode::TransactionClosed);
    assert!(error.is_retryable());
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 a1"]);
}

async fn a_group_knows_until_its_last_conversation_is_moved(shop: &Shop) {
    let (first, second, third) = (shop.begin().await, shop.begin().await, shop.begin().await);
    set(shop, &first.handle, "of the first").await;
    set(shop, &second.handle, "of the second").await;
    move_to(shop, &first.handle, &second.handle).await;
    assert_eq!(known(shop, &first.handle).await.as_deref(), Some("of the second"));
    refused(shop.broker.get_group_state(&first.group_id).await, ErrorCode::GroupNotFound);
    move_to(shop, &first.handle, &first.group_id).await;
    assert_eq!(known(shop, &first.handle).await, None, "what it knew went when it was empty");
    assert_eq!(known(shop, &second.handle).await.as_deref(), Some("of the second"));
    move_to(shop, &second.handle, &third.handle).await;
    move_to(shop, &first.handle, &third.handle).await;
    assert_eq!(shop.records_in(StoreName::Members).await, 3, "three members of one group, and nothing is known");
    set(shop, &third.handle, "of all").await;
    for begun in [&first, &second, &third] {
        shop.end(&begun.handle).await;
    }
    assert_eq!(shop.records_in(StoreName::Members).await, 0);
}

async fn a_move_to_its_own_group_is_nothing(shop: &Shop) {
    let dialog = answered(shop, "a", 1).await;
    set(shop, &dialog.initiator, "known").await;
    let group = group_of(shop, &dialog.initiator).await;
    shop.notices();
    move_to(shop, &dialog.initiator, &group).await;
    move_to(shop, &dialog.initiator, &dialog.initiator).await;
    assert_eq!(shop.notices().len(), 0, "nothing is touched");
    assert_eq!((known(shop, &group).await.as_deref(), shop.records_in(StoreName::Members).await), (Some("known"), 1));
    assert_eq!(receive_group(&shop.broker, &group).await, ["0 Confirm 0 a1"]);
}

async fn both_ends_of_a_conversation_may_be_in_one_group(shop: &Shop) {
    let options = ServiceOptions { queue: Some("house".into()), contracts: vec!["Ordering".into()] };
    let services = vec![("Mirror".into(), options)];
    shop.broker.define(Definitions { services, ..Definitions::default() }).await.expect("a new service");
    let begun: ConversationInfo =
        shop.broker.begin_dialog(dialog_of("Mirror", "Mirror")).await.expect("the dialog begins");
    shop.send(&begun.handle, "Order", "a").await;
    let dialog = shop.dialog(&begun).await;
    shop.send(&dialog.target, "Confirm", "b").await;
    move_to(shop, &dialog.initiator, &dialog.target).await;
    let ends: Vec<Endpoint> = shop.endpoints(EndpointFilter::default()).await;
    assert_eq!(ends[0].conversation_group_id, ends[1].conversation_group_id);
    assert_eq!(shop.receive("house").await, ["0 Order 0 a", "0 Confirm 0 b"]);
    move_to(shop, &dialog.target, &begun.group_id).await;
    assert_eq!(group_of(shop, &dialog.target).await, begun.group_id);
}

async fn a_move_is_undone_by_a_rollback(shop: &Shop) {
    let dialog = answered(shop, "a", 1).await;
    let before = group_of(shop, &dialog.initiator).await;
    let transaction = begin(shop);
    transaction
        .move_conversation(&dialog.initiator, named("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
        .await
        .expect("it can be moved");
    transaction.rollback();
    assert_eq!(
        (group_of(shop, &dialog.initiator).await, shop.records_in(StoreName::Members).await),
        (before.clone(), 0)
    );
    assert_eq!(receive_group(&shop.broker, &before).await, ["0 Confirm 0 a1"]);
}

async fn b50_while_it_waits_for_another_tab_it_keeps_no_group(shop: &Shop) {
    let (one, two) = (answered(shop, "a", 1).await, answered(shop, "b", 1).await);
    let other = shop.another_tab().await;
    let of_two = ReceiveOptions { conversation: Some(Rc::clone(&two.initiator)), ..ReceiveOptions::default() };
    let transaction = begin(shop);
    for in_transaction in [false, true] {
        let holder = other.begin().expect("the broker is open");
        assert_eq!(show_all(&holder.receive("counter", of_two.clone()).await.expect("it is free")), ["0 Confirm 0 b1"]);
        let moving = async || {
            let to = named(&two.initiator);
            if in_transaction {
                transaction.move_conversation(&one.initiator, to).await
            } else {
                shop.broker.move_conversation(&one.initiator, to).await
            }
        };
        match select(pin!(moving()), pin!(shop.timer().until_sleeping())).await {
            Either::Left((moved, _)) => panic!("it must wait: {moved:?}"),
            Either::Right(((), moving)) => {
                assert_eq!(shop.locks_held(), 1, "the group that it comes from is free meanwhile");
                let (moved, ()) = join(moving, async { holder.rollback() }).await;
                moved.expect("both are free");
            }
        }
        let own = if in_transaction { 2 } else { 0 };
        assert_eq!(shop.locks_held(), own);
        if !in_transaction {
            move_to(shop, &one.initiator, "11111111-1111-4111-8111-111111111111").await;
        }
    }
    transaction.commit().await.expect("it commits");
    assert_eq!((members(shop, &group_of(shop, &two.initiator).await).await, shop.locks_held()), (2, 0));
}

async fn moves_side_by_side_share_their_storage_transactions(shop: &Shop) {
    let mut dialogs = Vec::new();
    for number in 0..8 {
        dialogs.push(shop.order(&number.to_string()).await);
    }
    let group = "11111111-1111-4111-8111-111111111111";
    let before = shop.faults.calls(Operation::Begin);
    let moves = dialogs.iter().map(|dialog| shop.broker.move_conversation(&dialog.initiator, named(group)));
    join_all(moves).await.into_iter().for_each(|moved| moved.expect("it can be moved"));
    assert_eq!(shop.faults.calls(Operation::Begin), before + 2, "the lock of the new group is asked for once");
    assert_eq!((members(shop, group).await, shop.locks_held()), (8, 0));
}

async fn a_timer_fires_under_the_new_group(shop: &Shop) {
    let (one, two) = (answered(shop, "a", 0).await, answered(shop, "b", 0).await);
    shop.timer_of(&one.initiator, 1_000.0, "").await;
    move_to(shop, &one.initiator, &two.initiator).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(receive_group(&shop.broker, &group_of(shop, &two.initiator).await).await, ["0 DialogTimer 0"]);
}
