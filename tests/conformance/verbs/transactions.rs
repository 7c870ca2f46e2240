//! Transactions: commit, rollback, locks, and what may change in between.

use futures_util::future::{join, join3};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{EndOptions, EndResult, ReceiveOptions};

use super::super::support::shop::{
    Dialog, Shop, begin, cleanup, dialog_of, receive, refused, send, show_all, to_kitchen, top_of,
};
use super::super::support::{detail, poll_once};

mount! {
    b20_b39_a_rollback_undoes_everything,
    d15_own_sends_are_seen_after_the_commit,
    d15_rows_are_not_received_twice,
    d29_a_dialog_of_a_rolled_back_transaction_is_none,
    d29_an_endpoint_that_is_gone_at_the_commit_rejects_it,
    d29_checks_are_made_at_the_call,
    d29_its_own_ends_are_seen,
    d29_too_late_a_send_is_dropped,
    a_commit_that_storage_refuses_frees_the_groups,
    a_transaction_is_over_once,
    calls_are_made_in_order,
    commits_see_what_came_before_them,
}

async fn b20_b39_a_rollback_undoes_everything(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    for _ in 0..2 {
        let transaction = begin(shop);
        assert_eq!(
            receive(&transaction, "kitchen").await,
            ["0 Order 0 m1", "0 Note 1 m2"],
            "the same rows in the same order"
        );
        send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
        let begun = transaction.begin_dialog(to_kitchen()).await.expect("the dialog begins");
        send(shop, &transaction, &begun.handle, "Order", "m3").await.expect("it may send");
        let far = transaction.begin_dialog(dialog_of("Kitchen", "Elsewhere")).await.expect("the dialog begins");
        send(shop, &transaction, &far.handle, "Order", "m4").await.expect("it may send");
        transaction.end_conversation(&dialog.target, EndOptions::default()).await.expect("it can be ended");
        transaction.rollback();
        assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
        assert_eq!((shop.rows("counter").await, shop.outside().await), (vec![], vec![]));
        assert_eq!((shop.state(&dialog.target).await, shop.endpoints(Default::default()).await.len()), ("CO", 2));
    }
    drop(begin(shop));
    assert_eq!(shop.receive("kitchen").await.len(), 2);
}

async fn d15_own_sends_are_seen_after_the_commit(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    send(shop, &transaction, &dialog.initiator, "Note", "m2").await.expect("it may send");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"], "the transaction itself included");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, ["1 Note 1 m2"]);
}

async fn d15_rows_are_not_received_twice(shop: &Shop) {
    let dialog = shop.order("0").await;
    shop.send_many(&dialog.initiator, "Note", 1..400).await;
    let transaction = begin(shop);
    let mut received = Vec::new();
    for top in [1, 2, 300] {
        received.extend(show_all(&transaction.receive("kitchen", top_of(top)).await.expect("the queue is on")));
    }
    shop.send(&dialog.initiator, "Note", "400").await;
    shop.fail(&dialog.initiator).await;
    received.extend(receive(&transaction, "kitchen").await);
    assert_eq!(received.len(), 402);
    assert_eq!(received[303], "0 Error 401 42", "what arrives meanwhile is seen: b41");
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0]);
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

/// B52.
async fn d29_checks_are_made_at_the_call(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    refused(send(shop, &transaction, &dialog.initiator, "Confirm", "x").await, ErrorCode::WrongDirection);
    refused(send(shop, &transaction, &"x".into(), "Note", "x").await, ErrorCode::ConversationNotFound);
    refused(transaction.receive("nothing", ReceiveOptions::default()).await, ErrorCode::QueueNotFound);
    refused(
        transaction.receive("kitchen", ReceiveOptions { top: Some(0.0), ..ReceiveOptions::default() }).await,
        ErrorCode::InvalidArgument,
    );
    send(shop, &transaction, &dialog.initiator, "Note", "m2").await.expect("what was refused does not count");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
}

async fn d29_its_own_ends_are_seen(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    assert_eq!(
        transaction.end_conversation(&dialog.target, EndOptions::default()).await.expect("it can be ended"),
        EndResult { discarded: 1, archived: 0 }
    );
    refused(send(shop, &transaction, &dialog.target, "Confirm", "x").await, ErrorCode::ConversationNotFound);
    refused(transaction.end_conversation(&dialog.target, EndOptions::default()).await, ErrorCode::ConversationNotFound);
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0], "its rows are not received any more");
    let error = refused(send(shop, &transaction, &dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
    assert_eq!(detail(&error, "state").as_deref(), Some("DI"));
    transaction.commit().await.expect("it commits");
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("DI", ""));
}

async fn d29_an_endpoint_that_is_gone_at_the_commit_rejects_it(shop: &Shop) {
    let (dialog, other) = (shop.order("m1").await, shop.order("other").await);
    let transaction = begin(shop);
    send(shop, &transaction, &other.initiator, "Note", "x").await.expect("it may send");
    send(shop, &transaction, &dialog.initiator, "Note", "x").await.expect("it may send");
    shop.clean_up(&dialog.initiator).await;
    let error = refused(transaction.commit().await, ErrorCode::ConversationNotFound);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Order 0 other"], "nothing of it is stored");
    refused(transaction.commit().await, ErrorCode::TransactionClosed);
}

async fn d29_too_late_a_send_is_dropped(shop: &Shop) {
    for fails in [false, true] {
        let dialog = shop.order("m1").await;
        let transaction = begin(shop);
        assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"]);
        send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
        if fails {
            shop.fail(&dialog.initiator).await;
        } else {
            shop.end(&dialog.initiator).await;
        }
        shop.notices();
        transaction.commit().await.expect("that is not the transaction's fault");
        assert_eq!(shop.dropped().len(), 1, "d13: it is reported");
        assert_eq!(shop.rows("counter").await, [""; 0]);
        assert_eq!(shop.info(&dialog.target).await.map(|end| end.send_sequence), Some(0));
        shop.end(&dialog.target).await;
    }
}

async fn d29_a_dialog_of_a_rolled_back_transaction_is_none(shop: &Shop) {
    let transaction = begin(shop);
    let begun = transaction.begin_dialog(to_kitchen()).await.expect("the dialog begins");
    send(shop, &transaction, &begun.handle, "Order", "m1").await.expect("it may send");
    refused(shop.try_send(&begun.handle, "Order", "x").await, ErrorCode::ConversationNotFound);
    transaction.rollback();
    refused(shop.try_send(&begun.handle, "Order", "x").await, ErrorCode::ConversationNotFound);

    let transaction = begin(shop);
    let begun = transaction.begin_dialog(to_kitchen()).await.expect("the dialog begins");
    send(shop, &transaction, &begun.handle, "Order", "m1").await.expect("it may send");
    transaction.commit().await.expect("it commits");
    shop.send(&begun.handle, "Note", "m2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

async fn a_transaction_is_over_once(shop: &Shop) {
    let Dialog { initiator, .. } = shop.order("m1").await;
    let (committed, rolled_back) = (begin(shop), begin(shop));
    assert!(committed.is_open());
    committed.commit().await.expect("nothing to commit is no error");
    rolled_back.rollback();
    rolled_back.rollback();
    for over in [committed, rolled_back] {
        assert!(!over.is_open());
        refused(over.commit().await, ErrorCode::TransactionClosed);
        refused(send(shop, &over, &initiator, "Note", "x").await, ErrorCode::TransactionClosed);
        refused(over.receive("kitchen", ReceiveOptions::default()).await, ErrorCode::TransactionClosed);
        refused(over.begin_dialog(to_kitchen()).await, ErrorCode::TransactionClosed);
    }
}

async fn calls_are_made_in_order(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    let sends = join3(
        send(shop, &transaction, &dialog.initiator, "Note", "a"),
        send(shop, &transaction, &dialog.initiator, "Note", "b"),
        send(shop, &transaction, &dialog.initiator, "Note", "c"),
    );
    let (sent, committed) = join(sends, transaction.commit()).await;
    assert!(sent.0.is_ok() && sent.1.is_ok() && sent.2.is_ok());
    committed.expect("a commit waits for the calls before it");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 a", "1 Note 2 b", "1 Note 3 c"]);
}

/// A send, an END that takes rows with it and a transaction, all in one storage transaction.
async fn commits_see_what_came_before_them(shop: &Shop) {
    let (dialog, other) = (shop.order("m1").await, shop.order("other").await);
    let transaction = begin(shop);
    send(shop, &transaction, &dialog.initiator, "Note", "x").await.expect("it may send");
    send(shop, &transaction, &other.initiator, "Note", "y").await.expect("it may send");
    transaction.end_conversation(&dialog.initiator, EndOptions::default()).await.expect("it can be ended");
    let ((), committed, ended) = join3(
        shop.send(&other.initiator, "Note", "before"),
        transaction.commit(),
        shop.broker.end_conversation(&dialog.target, cleanup()),
    )
    .await;
    committed.expect("it commits");
    assert_eq!(ended.expect("it can be ended").discarded, 3, "m1, x and the EndDialog");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 other", "1 Note 1 before", "1 Note 2 y"]);
    assert_eq!(shop.state(&dialog.target).await, "");
}

async fn a_commit_that_storage_refuses_frees_the_groups(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    refused(transaction.commit().await, ErrorCode::QuotaExceeded);
    assert!(!transaction.is_open());
    assert!(poll_once(shop.broker.begin().expect("the broker is open").commit()).await.is_ready());
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec![], vec!["1 Order 0 m1".to_owned()]));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}
