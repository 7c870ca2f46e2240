//! Groups have one reader at a time: who waits, who is refused, who loses.

use std::pin::pin;

use futures_util::future::{Either, join, select};
use pocket_broker::body::{Body, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{BeginDialog, EndOptions, EndpointFilter, ReceiveOptions};

use super::super::support::detail;
use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, dialog_of, receive, refused, send, show_all};

mount! {
    a_group_is_locked_even_for_a_look,
    b44_b45_a_group_has_one_reader,
    b46_arrivals_are_not_blocked,
    d25_a_release_during_the_commit_is_noticed,
    d25_a_verb_waits_for_its_group,
    d25_a_wait_ends_with_group_locked,
    d16_a_dialog_joins_a_group_that_is_held,
    d25_close_does_not_wait,
    the_slower_of_two_tabs_is_refused,
}

async fn b44_b45_a_group_has_one_reader(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    let (one, other) = (begin(shop), begin(shop));
    assert_eq!(receive(&one, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(receive(&other, "kitchen").await, ["0 Order 0 b"], "another group");
    assert_eq!(shop.receive("kitchen").await, [""; 0], "or nothing");
    shop.send(&first.initiator, "Note", "a2").await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.receive_from("kitchen", &first.target).await, [""; 0], "d02: without a timeout nothing");
    assert_eq!(receive(&one, "kitchen").await, ["0 Note 1 a2"], "its own group again");
    one.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a", "0 Note 1 a2"]);
    shop.send(&second.initiator, "Note", "b2").await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    other.commit().await.expect("it commits");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 b2"], "free after a commit, too");
}

/// D16.
async fn b46_arrivals_are_not_blocked(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2", "1 EndDialog 2"]);
    transaction.commit().await.expect("what came behind is no conflict");
    assert_eq!(shop.rows("kitchen").await, ["1 Note 1 m2", "1 EndDialog 2"]);
}

async fn d25_a_verb_waits_for_its_group(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    let ending = pin!(shop.broker.end_conversation(&dialog.target, EndOptions::default()));
    match select(ending, pin!(shop.timer().until_sleeping())).await {
        Either::Left((ended, _)) => panic!("it must wait: {ended:?}"),
        Either::Right(((), ending)) => {
            let (committed, ended) = join(transaction.commit(), ending).await;
            committed.expect("it commits");
            assert_eq!(ended.expect("the group is free").discarded, 0, "what was received before is gone");
        }
    }
}

async fn d25_a_wait_ends_with_group_locked(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let waiting = join(
        shop.broker.end_conversation(&dialog.target, EndOptions::default()),
        shop.broker.set_group_state(&group, Body::small(Value::from("x"))),
    );
    let told = async {
        while shop.timer().sleeping() < 2 {
            tick().await;
        }
        shop.timer().fire();
    };
    let ((ended, set), ()) = join(waiting, told).await;
    let error = refused(ended, ErrorCode::GroupLocked);
    assert_eq!(
        (error.number(), error.is_retryable(), detail(&error, "group").as_deref()),
        (Some(1222), true, Some(&*group))
    );
    refused(set, ErrorCode::GroupLocked);
    assert_eq!(shop.state(&dialog.target).await, "CO");
    transaction.end_conversation(&dialog.target, EndOptions::default()).await.expect("who holds the group may");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.state(&dialog.target).await, "");
}

/// The group is free again before the verb that found it held begins to wait.
async fn d25_a_release_during_the_commit_is_noticed(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    let ending = pin!(shop.broker.end_conversation(&dialog.target, EndOptions::default()));
    let released = pin!(async {
        while shop.faults.held() == 0 {
            tick().await;
        }
        transaction.rollback();
        shop.faults.release();
    });
    let (ended, ()) = join(ending, released).await;
    assert_eq!(ended.expect("nobody has to tell it again").discarded, 1);
    assert_eq!(shop.timer().sleeping(), 0);
}

async fn d25_close_does_not_wait(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let other = shop.broker.another();
    let (held, own) = (begin(shop), other.begin().expect("the broker is open"));
    receive(&held, "kitchen").await;
    send(shop, &own, &dialog.initiator, "Note", "x").await.expect("it may send");
    let waiting = join(
        own.end_conversation(&dialog.target, EndOptions::default()),
        other.end_conversation(&dialog.target, EndOptions::default()),
    );
    let closing = async {
        while shop.timer().sleeping() < 2 {
            tick().await;
        }
        other.close().await;
    };
    let ((in_transaction, alone), ()) = join(waiting, closing).await;
    refused(in_transaction, ErrorCode::Closed);
    refused(alone, ErrorCode::Closed);
    refused(own.commit().await, ErrorCode::Closed);
    refused(own.receive("kitchen", ReceiveOptions::default()).await, ErrorCode::Closed);
    refused(other.begin(), ErrorCode::Closed);
    refused(other.count("kitchen", &Default::default()).await, ErrorCode::Closed);
    held.commit().await.expect("another broker's transaction goes on");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    other.close().await;
}

/// Nor does it wait for its holder, and both commit. By the conversation, by the group's id, and within a transaction.
async fn d16_a_dialog_joins_a_group_that_is_held(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let holder = begin(shop);
    assert_eq!(receive(&holder, "kitchen").await, ["0 Order 0 m1"]);
    let by_handle =
        || BeginDialog { related_conversation: Some(dialog.target.to_string()), ..dialog_of("Kitchen", "Counter") };
    let by_id = || BeginDialog { related_group: Some(group.to_string()), ..dialog_of("Kitchen", "Counter") };
    let tab = shop.another_tab().await;
    for broker in [&shop.broker, &tab] {
        for options in [by_handle(), by_id()] {
            assert_eq!(broker.begin_dialog(options).await.expect("it needs no lock").group_id, group);
        }
        let inside = broker.begin().expect("the broker is open");
        inside.begin_dialog(by_id()).await.expect("it needs no lock");
        inside.commit().await.expect("it commits");
    }
    assert_eq!(shop.timer().sleeping(), 0, "nobody waits");
    holder.commit().await.expect("who joined is no conflict");
    tab.close().await;
    let members = EndpointFilter { group: Some(group), ..EndpointFilter::default() };
    assert_eq!(shop.endpoints(members).await.len(), 7);
}

/// D16.
async fn a_group_is_locked_even_for_a_look(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    let options = ReceiveOptions { conversation: Some(dialog.initiator.clone()), ..ReceiveOptions::default() };
    assert_eq!(show_all(&transaction.receive("counter", options).await.expect("the queue is on")), [""; 0]);
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.receive("counter").await, [""; 0]);
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 r1"]);
}

/// D26.
async fn the_slower_of_two_tabs_is_refused(shop: &Shop) {
    let other = shop.tab_without_locks().await;
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    let (one, two) = (begin(shop), other.begin().expect("the broker is open"));
    assert_eq!(receive(&one, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(receive(&two, "kitchen").await, ["0 Order 0 a"], "it can't see the other's lock; the commit decides");
    send(shop, &two, &first.target, "Confirm", "from the slower").await.expect("it may send");
    one.commit().await.expect("the faster commits");
    let error = refused(two.commit().await, ErrorCode::TransactionClosed);
    assert!(error.is_retryable());
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec!["1 Order 0 b".to_owned()]));
    let two = other.begin().expect("the broker is open");
    assert_eq!(receive(&two, "kitchen").await, ["0 Order 0 b"], "run again, it gets what is there now");
    two.commit().await.expect("it commits");

    let two = other.begin().expect("the broker is open");
    shop.send(&second.initiator, "Note", "b2").await;
    assert_eq!(receive(&two, "kitchen").await, ["0 Note 1 b2"]);
    shop.end(&second.target).await;
    let error = refused(two.commit().await, ErrorCode::ConversationNotFound);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
}
