//! Recoverability: what a handler's failure means.

use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::clock::Clock;
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{
    BeginDialog, EnqueueOptions, Failure, FailureKind, Finally, Next, ReceiveOptions, Recoverability, Recovered,
    RowFilter, Thrown, Transaction,
};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, receive, refused, show_all, to_kitchen, top_of};

mount! {
    a_call_that_outlives_its_transaction_holds_nothing,
    d35_a_commit_takes_the_attempts_away,
    d35_a_commit_that_fails_by_storage_does_not_count,
    d35_a_transaction_that_was_closed_or_robbed_does_not_count,
    d35_whatever_a_handler_rejects_with_counts,
    d35_a_failure_after_a_failed_commit_counts,
    d35_a_postponed_message_waits_and_does_not_count,
    d35_a_timer_of_a_waiting_conversation_waits_too,
    d35_a_waiting_conversation_goes_with_its_end,
    d35_a_waiting_conversation_is_not_named_by_its_group,
    d35_a_waiting_conversation_is_passed_over_but_not_by_name,
    d35_a_waiting_conversation_moves_with_its_group_and_its_service,
    d35_activation_off_is_said,
    d35_five_commits_that_fail_are_poison,
    d35_only_what_was_put_off_is_resumed,
    d35_what_fails_after_it_was_put_off_waits_on,
    d35_what_comes_with_the_end_of_a_wait_takes_no_turn_away,
    d35_attempts_in_all_and_the_waits_between_them,
    d35_rollback_is_the_poison_rule,
    d35_the_order_is_kept,
}

pub(super) fn failure(kind: FailureKind) -> Failure {
    Failure {
        kind,
        error: Thrown { name: "TypeError".into(), message: "no bread".into(), code: None },
        message_id: "m".into(),
        queue: "kitchen".into(),
        stack: "at bake".into(),
        endpoint: "shop".into(),
    }
}

async fn try_top(shop: &Shop) -> Option<(Rc<Transaction>, String)> {
    let transaction = begin(shop);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    show_all(&rows).pop().map(|row| (transaction, row))
}

async fn fails(shop: &Shop, kind: FailureKind, policy: &Recoverability) -> Recovered {
    let (transaction, _) = try_top(shop).await.expect("there is something to receive");
    transaction.recover(failure(kind), policy.clone()).await.expect("it can be stored").expect("it counts")
}

fn policy(immediate_retries: u64, delayed_retries: u64) -> Recoverability {
    Recoverability { immediate_retries, delayed_retries, finally: Finally::RetryForever, ..Recoverability::default() }
}

async fn d35_attempts_in_all_and_the_waits_between_them(shop: &Shop) {
    shop.order("m1").await;
    let policy = policy(1, 2);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let recovered = fails(shop, FailureKind::Ordinary, &policy).await;
        let wait = recovered.retry_at.map(|at| at - shop.clock().now());
        seen.push((recovered.attempts, recovered.next, wait));
        if let Some(wait) = wait {
            assert!(try_top(shop).await.is_none(), "it waits");
            assert_eq!(shop.pass(wait - 1.0).await, 0);
            assert!(try_top(shop).await.is_none(), "not a moment too early");
            shop.pass(1.0).await;
        }
    }
    let expected = [
        (1, Next::Immediate, None),
        (2, Next::Delayed, Some(10_000.0)),
        (3, Next::Immediate, None),
        (4, Next::Delayed, Some(20_000.0)),
        (5, Next::Immediate, None),
    ];
    assert_eq!(seen, expected);
    let last = fails(shop, FailureKind::Ordinary, &policy).await;
    assert_eq!((last.attempts, last.next), (6, Next::Delayed), "on and on");
    for _ in 0..20 {
        shop.pass(60_000.0).await;
        let again = fails(shop, FailureKind::Ordinary, &policy).await;
        assert!(again.retry_at.is_some_and(|at| at - shop.clock().now() <= 60_000.0), "up to a minute: {again:?}");
    }
    shop.pass(60_000.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

async fn d35_the_order_is_kept(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    let other = shop.order("other").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 other"], "others go on");
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.rows_of("kitchen", &dialog.target).await, ["1 Order 0 m1", "1 Note 1 m2", "1 Note 2 m3"]);
    shop.send(&other.initiator, "Note", "other2").await;
    shop.pass(10_000.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2", "0 Note 2 m3"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 other2"]);
}

async fn d35_a_waiting_conversation_is_passed_over_but_not_by_name(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    let failed = fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    let rows = shop.messages("kitchen", RowFilter::default()).await;
    let said: Vec<_> = rows.iter().map(|row| (row.attempts, row.retry_at, row.last_error.as_deref())).collect();
    assert_eq!(said, [(1, failed.retry_at, Some("no bread")), (0, None, None)]);
    assert_eq!(shop.queue("kitchen").await.ready, 2);
    let named = begin(shop);
    let options = ReceiveOptions { conversation: Some(dialog.target.clone()), ..top_of(1) };
    let received = named.receive("kitchen", options).await.expect("the queue is on");
    assert_eq!(
        received.iter().map(|rows| (rows.attempts(), rows.last_error())).collect::<Vec<_>>(),
        [(1, Some("no bread"))]
    );
    named.commit().await.expect("it commits");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"], "what failed is gone, and the wait with it");
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

/// Alone in its group or beside others: a group names no conversation.
async fn d35_a_waiting_conversation_is_not_named_by_its_group(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    let by_group = || ReceiveOptions { group: Some(Rc::clone(&group)), ..ReceiveOptions::default() };
    let from_group =
        async || show_all(&shop.broker.receive("kitchen", by_group(), None).await.expect("the queue is on"));
    assert_eq!(from_group().await, [""; 0], "alone in its group");
    let inside = begin(shop);
    assert_eq!(show_all(&inside.receive("kitchen", by_group()).await.expect("the queue is on")), [""; 0]);
    inside.rollback();
    let other = shop.order("o1").await;
    let to = pocket_broker::Destination::Conversation(Rc::clone(&dialog.target));
    shop.broker.move_conversation(&other.target, to).await.expect("it moves");
    assert_eq!(from_group().await, ["0 Order 0 o1"], "who is beside it does not wait");
    assert_eq!(from_group().await, [""; 0]);
    shop.pass(10_000.0).await;
    assert_eq!(from_group().await, ["0 Order 0 m1"]);
}

async fn d35_a_commit_takes_the_attempts_away(shop: &Shop) {
    let dialog = shop.order("m1").await;
    fails(shop, FailureKind::Ordinary, &policy(5, 3)).await;
    fails(shop, FailureKind::Ordinary, &policy(5, 3)).await;
    let (transaction, row) = try_top(shop).await.expect("it is tried at once");
    assert_eq!(row, "0 Order 0 m1");
    transaction.commit().await.expect("it commits");
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(fails(shop, FailureKind::Ordinary, &policy(5, 3)).await.attempts, 1, "another message, from the start");
}

async fn d35_a_postponed_message_waits_and_does_not_count(shop: &Shop) {
    shop.order("m1").await;
    let mut waits = Vec::new();
    for _ in 0..8 {
        let recovered = fails(shop, FailureKind::Later(None), &policy(0, 0)).await;
        assert_eq!((recovered.attempts, recovered.next), (0, Next::Delayed));
        let wait = recovered.retry_at.expect("it waits") - shop.clock().now();
        waits.push(wait);
        shop.pass(wait).await;
    }
    assert_eq!(waits, [1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 6e4, 6e4]);
    let named = fails(shop, FailureKind::Later(Some(3_600_000.0)), &policy(0, 0)).await;
    assert_eq!(named.retry_at, Some(shop.clock().now() + 3_600_000.0));
    shop.another_tab().await.resume().await.expect("the broker is open");
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"], "at once, when it is told so");
}

async fn d35_a_waiting_conversation_goes_with_its_end(shop: &Shop) {
    let dialog = shop.order("m1").await;
    fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    assert_eq!(shop.end(&dialog.target).await.discarded, 1);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    let other = shop.order("m1").await;
    fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    shop.broker.drop_service("Kitchen").await.expect("it can be dropped");
    assert_eq!((shop.records_in(StoreName::Due).await, shop.state(&other.initiator).await), (0, "ER"));
}

async fn d35_a_waiting_conversation_moves_with_its_group_and_its_service(shop: &Shop) {
    let (dialog, other) = (shop.order("m1").await, shop.order("o1").await);
    let failed = fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    assert!(failed.retry_at.is_some());
    let to = pocket_broker::Destination::Conversation(other.target.clone());
    shop.broker.move_conversation(&dialog.target, to).await.expect("it moves");
    shop.assert_sound().await;
    let change = pocket_broker::definitions::ServiceChange {
        queue: Some("house".into()),
        ..pocket_broker::definitions::ServiceChange::default()
    };
    shop.broker.alter_service("Kitchen", change).await.expect("it goes to another queue");
    shop.assert_sound().await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 o1"]);
    assert_eq!(shop.receive("house").await, [""; 0], "it waits there, too");
    shop.pass(10_000.0).await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1"]);
}

/// The whole conversation waits, for its order: what is read before the failed message as well.
async fn d35_a_timer_of_a_waiting_conversation_waits_too(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.target, 1_000.0, "").await;
    fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert!(try_top(shop).await.is_none());
    shop.pass(9_000.0).await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 DialogTimer 1"]);
    let again = fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    assert_eq!(again.attempts, 2, "the timer is no success of the message");
}

/// The one that has waited longest is still the first in line.
async fn d35_what_comes_with_the_end_of_a_wait_takes_no_turn_away(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.target, 10_000.0, "").await;
    let failed = fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    assert_eq!(failed.retry_at, Some(shop.clock().now() + 10_000.0));
    shop.order("other").await;
    assert_eq!(shop.pass(10_000.0).await, 1);
    shop.assert_sound().await;
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1", "0 Order 0 m1"]);
}

/// In every queue, in a dialog, in a lane and without order; but not what has failed.
async fn d35_only_what_was_put_off_is_resumed(shop: &Shop) {
    let later = FailureKind::Later(Some(3_600_000.0));
    shop.enqueue_key("kitchen", "a", "m1").await;
    let lane = fails(shop, later, &policy(0, 3)).await.handle;
    shop.enqueue_as("kitchen", "m2", EnqueueOptions { ordered: false, ..EnqueueOptions::default() }).await;
    fails(shop, later, &policy(0, 3)).await;
    shop.order("m3").await;
    fails(shop, later, &policy(0, 3)).await;
    shop.order("m4").await;
    let failed = fails(shop, FailureKind::Ordinary, &policy(0, 3)).await;
    shop.end(&lane).await;
    assert!(try_top(shop).await.is_none(), "the next lane waits as this one did");
    shop.broker.resume().await.expect("the broker is open");
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    let mut seen = Vec::new();
    while let Some((transaction, row)) = try_top(shop).await {
        transaction.commit().await.expect("it commits");
        seen.push(row);
    }
    seen.sort_unstable();
    assert_eq!(seen, ["0 DEFAULT 0 m1", "0 DEFAULT 0 m2", "0 Order 0 m3"]);
    let left = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(left.iter().map(|row| row.retry_at).collect::<Vec<_>>(), [failed.retry_at]);
}

/// The second failure is none that waits for a way out.
async fn d35_what_fails_after_it_was_put_off_waits_on(shop: &Shop) {
    shop.order("m1").await;
    fails(shop, FailureKind::Later(None), &policy(0, 3)).await;
    shop.broker.resume().await.expect("the broker is open");
    assert_eq!(fails(shop, FailureKind::Ordinary, &policy(0, 3)).await.next, Next::Delayed);
    shop.broker.resume().await.expect("the broker is open");
    assert!(try_top(shop).await.is_none());
}

async fn d35_rollback_is_the_poison_rule(shop: &Shop) {
    shop.order("m1").await;
    let policy = Recoverability { finally: Finally::Rollback, ..policy(0, 0) };
    for attempts in 1..=5 {
        let recovered = fails(shop, FailureKind::Ordinary, &policy).await;
        assert_eq!((recovered.attempts, recovered.next, recovered.retry_at), (attempts, Next::Rollback, None));
    }
    assert_eq!(
        (shop.queue("kitchen").await.consecutive_rollbacks, shop.queue("kitchen").await.is_receive_enabled),
        (5, false)
    );
    shop.switch("kitchen", Status::On).await;
    for _ in 0..6 {
        // The others handle failures themselves, and do not count.
        fails(shop, FailureKind::Ordinary, &Recoverability::default()).await;
        shop.pass(60_000.0).await;
    }
    assert_eq!(shop.queue("kitchen").await.consecutive_rollbacks, 0);
}

async fn d35_whatever_a_handler_rejects_with_counts(shop: &Shop) {
    shop.order("m1").await;
    // Those of another broker, or of another transaction.
    let codes = ["GroupLocked", "StorageUnavailable", "TransactionClosed", "Closed", "QuotaExceeded", "Terminated"];
    for (before, code) in (0..).zip(codes) {
        let (transaction, _) = try_top(shop).await.expect("it is tried at once");
        let mut failure = failure(FailureKind::Ordinary);
        failure.error.code = Some(code.into());
        let recovered = transaction.recover(failure, policy(9, 0)).await.expect("it can be stored").expect("it counts");
        assert_eq!((recovered.attempts, recovered.next), (before + 1, Next::Immediate), "{code}");
    }
    assert_eq!(shop.locks_held(), 0);
}

async fn d35_a_commit_that_fails_by_storage_does_not_count(shop: &Shop) {
    shop.order("m1").await;
    for code in [ErrorCode::QuotaExceeded, ErrorCode::VersionTooNew, ErrorCode::StorageCorrupt] {
        let (transaction, _) = try_top(shop).await.expect("it is tried at once");
        shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(code, "The disk is on fire.")));
        refused(transaction.commit().await, code);
        assert_eq!((transaction.is_unstored(), transaction.is_lost()), (true, false));
        let recovered = transaction.recover(failure(FailureKind::Ordinary), Recoverability::default()).await;
        assert_eq!(recovered.expect("nothing is stored"), None);
    }
    let row = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!((row.attempts, row.last_error), (0, None));
}

async fn d35_a_transaction_that_was_closed_or_robbed_does_not_count(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (transaction, _) = try_top(shop).await.expect("it is tried at once");
    // Locks do not protect from a tab that has lost them.
    let robber = shop.tab_without_locks().await;
    let robbed = robber.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on");
    assert_eq!(show_all(&robbed), ["0 Order 0 m1"]);
    robber.close().await;
    refused(transaction.commit().await, ErrorCode::TransactionClosed);
    assert!(transaction.is_lost());
    let recovered = transaction.recover(failure(FailureKind::Ordinary), Recoverability::default()).await;
    assert_eq!(recovered.expect("nothing is stored"), None);

    shop.send(&dialog.initiator, "Note", "m2").await;
    let other = shop.another_tab().await;
    let transaction = other.begin().expect("it is open");
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Note 1 m2"]);
    other.close().await;
    assert!(transaction.is_lost());
    let recovered = transaction.recover(failure(FailureKind::Ordinary), Recoverability::default()).await;
    assert_eq!(recovered.expect("nothing is stored"), None);
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await[0].attempts, 0);
}

/// A commit that is refused because of what the handler did: the next attempt would do the same.
async fn fails_to_commit(shop: &Shop, policy: &Recoverability) -> Recovered {
    let gone = shop.begin().await;
    let (transaction, _) = try_top(shop).await.expect("it is tried at once");
    transaction.end_conversation(&gone.handle, pocket_broker::EndOptions::default()).await.expect("it is there");
    // Locks do not protect from a tab that has lost them.
    let robber = shop.tab_without_locks().await;
    robber.end_conversation(&gone.handle, pocket_broker::EndOptions::default()).await.expect("it is there");
    robber.close().await;
    let error = refused(transaction.commit().await, ErrorCode::ConversationNotFound);
    let mut failure = failure(FailureKind::Ordinary);
    failure.error.code = Some(error.code().name().into());
    transaction.recover(failure, policy.clone()).await.expect("it can be stored").expect("it counts")
}

async fn d35_a_failure_after_a_failed_commit_counts(shop: &Shop) {
    shop.order("m1").await;
    let recovered = fails_to_commit(shop, &policy(0, 3)).await;
    assert_eq!((recovered.attempts, recovered.next), (1, Next::Delayed));
    shop.pass(10_000.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}

/// Else it would be tried for ever.
async fn d35_five_commits_that_fail_are_poison(shop: &Shop) {
    shop.order("m1").await;
    for count in 1..=5 {
        fails_to_commit(shop, &Recoverability { finally: Finally::Rollback, ..policy(0, 0) }).await;
        let queue = shop.queue("kitchen").await;
        assert_eq!((queue.consecutive_rollbacks, queue.is_receive_enabled), (count, count < 5));
    }
}

async fn d35_activation_off_is_said(shop: &Shop) {
    shop.order("m1").await;
    shop.alter("kitchen", QueueOptions { activation: Some(Status::Off), ..QueueOptions::default() }).await;
    let options = ReceiveOptions { activated: true, ..ReceiveOptions::default() };
    let error = refused(shop.broker.receive("kitchen", options.clone(), None).await, ErrorCode::QueueDisabled);
    assert!(error.to_string().contains("activation"), "{error}");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"], "who asks for himself gets it");
    shop.alter("kitchen", QueueOptions { activation: Some(Status::On), ..QueueOptions::default() }).await;
    let begun = shop.broker.begin_dialog(BeginDialog { ..to_kitchen() }).await.expect("it begins");
    shop.send(&begun.handle, "Order", "m2").await;
    let transaction = begin(shop);
    assert_eq!(transaction.receive("kitchen", options).await.expect("it is on").len(), 1);
    assert_eq!(receive(&transaction, "counter").await, [""; 0]);
    transaction.rollback();
}

/// The transaction ends while a receive is under way: what that takes afterwards nobody would ever let go of.
async fn a_call_that_outlives_its_transaction_holds_nothing(shop: &Shop) {
    shop.order("m1").await;
    let transaction = begin(shop);
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    let receiving = transaction.receive("kitchen", ReceiveOptions::default());
    let ended = async {
        while shop.faults.held() == 0 {
            tick().await;
        }
        transaction.rollback();
        shop.faults.release();
    };
    let (received, ()) = join(receiving, ended).await;
    refused(received, ErrorCode::TransactionClosed);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    assert_eq!(shop.locks_held(), 0);
}
