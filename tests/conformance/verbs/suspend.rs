//! A page that is put away or frozen lets go of everything, and goes on when it comes back.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{join, join3};
use pocket_broker::body::Body;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{
    Broker, EndOptions, EnqueueOptions, FailureKind, Notice, ReceiveOptions, Recoverability, RowFilter,
};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, named, receive, refused, send, show_all, to_kitchen};
use super::super::support::{detail, poll_once};
use super::recoverability::failure;

mount! {
    d26_a_reader_that_waits_asks_for_no_lock_meanwhile,
    a_commit_that_was_under_way_goes_on,
    a_rollback_by_suspension_is_no_failure,
    a_storage_transaction_that_was_cut_off_is_begun_again,
    a_waiting_reader_goes_on,
    b82_one_poller_runs_afterwards,
    calls_made_meanwhile_wait,
    closing_meanwhile,
    everything_may_have_changed,
    twice_is_once,
    what_others_made_due_meanwhile_is_noticed,
}

mount_with_locks! {
    d26_a_commit_that_has_to_begin_after_a_sleep_is_refused,
    d26_a_page_that_is_put_away_lets_go_of_its_groups,
}

fn for_ever() -> ReceiveOptions {
    ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() }
}

async fn plain(broker: &Broker) -> Vec<String> {
    show_all(&broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on"))
}

/// Lets everybody run who can: for what is not to happen.
async fn settle() {
    for _ in 0..50 {
        tick().await;
    }
}

/// Suspends the page and lets its tasks find out.
async fn put_away(shop: &Shop) {
    shop.broker.suspend();
    settle().await;
}

async fn d26_a_page_that_is_put_away_lets_go_of_its_groups(shop: &Shop) {
    let other = shop.another_tab().await;
    let second = shop.broker.another();
    shop.order("a").await;
    let dialog = shop.order("b").await;
    let (one, two) = (begin(shop), second.begin().expect("the broker is open"));
    assert_eq!(receive(&one, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(receive(&two, "kitchen").await, ["0 Order 0 b"]);
    send(shop, &one, &dialog.target, "Confirm", "x").await.expect("it may send");
    assert_eq!(shop.locks_held(), 2);
    put_away(shop).await;
    assert_eq!(shop.locks_held(), 0);
    for transaction in [&one, &two] {
        assert!(!transaction.is_open());
        let error = refused(transaction.receive("kitchen", for_ever()).await, ErrorCode::TransactionClosed);
        assert!(error.is_retryable() && error.to_string().contains("put away or frozen"), "{error}");
        assert_eq!(detail(&error, "reason").as_deref(), Some("suspended"));
        refused(transaction.commit().await, ErrorCode::TransactionClosed);
    }
    assert_eq!(plain(&other).await, ["0 Order 0 a"]);
    assert_eq!(plain(&other).await, ["0 Order 0 b"]);
    shop.broker.restore();
    refused(one.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(plain(&shop.broker).await, [""; 0]);
    assert_eq!(shop.rows("counter").await, [""; 0], "what it sent never was");
    assert_eq!(shop.locks_held(), 0);
}

/// Others had its groups meanwhile. Once it waits to be begun, once it is cut off in its reads.
async fn d26_a_commit_that_has_to_begin_after_a_sleep_is_refused(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("a").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let state = |text: &str| Body::small(text.into());
    for has_begun in [false, true] {
        let transaction = begin(shop);
        assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a"]);
        transaction.set_group_state(&group, state("stale")).await.expect("it may");
        let mut committed = pin!(transaction.commit());
        if has_begun {
            for read in [Operation::Get, Operation::GetRange, Operation::GetKeys] {
                shop.faults.plan(read, 1, Fault::Delay);
            }
        }
        assert!(poll_once(&mut committed).await.is_pending());
        while has_begun && shop.faults.held() == 0 {
            tick().await;
        }
        put_away(shop).await;
        shop.faults.clear();
        shop.faults.release();
        other.set_group_state(&group, state("fresh")).await.expect("nobody has it");
        shop.broker.restore();
        let error = refused(committed.await, ErrorCode::TransactionClosed);
        assert_eq!(detail(&error, "reason").as_deref(), Some("suspended"));
        assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
        assert!(!transaction.is_open());
        let known = other.get_group_state(&group).await.expect("it can be read").expect("it was set");
        assert_eq!(known.value.value().text().as_deref(), Some("fresh"));
        settle().await;
        assert_eq!(shop.locks_held(), 0);
    }
    assert_eq!(shop.queue("kitchen").await.consecutive_rollbacks, 0);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a"]);
}

async fn a_rollback_by_suspension_is_no_failure(shop: &Shop) {
    shop.order("a").await;
    for _ in 0..7 {
        let transaction = begin(shop);
        assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a"]);
        put_away(shop).await;
        transaction.fail(None).await;
        shop.broker.restore();
        let failure = failure(FailureKind::Ordinary);
        let recovered = transaction.recover(failure, Recoverability::default()).await;
        assert_eq!(recovered.expect("nothing is stored"), None, "its handler failed because of it");
        settle().await;
    }
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await[0].attempts, 0);
    let queue = shop.queue("kitchen").await;
    assert!(queue.is_receive_enabled, "it is not poison");
    assert_eq!(queue.consecutive_rollbacks, 0);
    assert_eq!(shop.broker.stats().await.expect("it can be read").counts.rollbacks, 7);
}

async fn d26_a_reader_that_waits_asks_for_no_lock_meanwhile(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("a").await;
    let held = other.begin().expect("the broker is open");
    assert_eq!(receive(&held, "kitchen").await, ["0 Order 0 a"]);
    let waiting = join(
        shop.broker.receive("kitchen", for_ever(), None),
        shop.broker.end_conversation(&dialog.target, EndOptions::default()),
    );
    let slept = async {
        while shop.timer().sleeping() < 3 {
            tick().await;
        }
        put_away(shop).await;
        held.rollback();
        settle().await;
        assert_eq!(shop.locks_held(), 0, "nobody took it while he slept");
        assert_eq!(plain(&other).await, ["0 Order 0 a"]);
        shop.broker.restore();
        ended(&shop.broker, &dialog.target).await;
        shop.order("b").await;
    };
    let ((rows, ended), ()) = join(waiting, slept).await;
    assert_eq!(show_all(&rows.expect("it comes")), ["0 Order 0 b"]);
    assert_eq!(ended.expect("the group is free").discarded, 0);
    assert_eq!(shop.locks_held(), 0);
}

/// Resolves when the endpoint is gone.
async fn ended(broker: &Broker, handle: &str) {
    while broker.info(handle).await.expect("it can be read").is_some() {
        tick().await;
    }
}

async fn a_waiting_reader_goes_on(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("a").await;
    shop.receive("kitchen").await;
    let reader = shop.broker.receive("kitchen", for_ever(), None);
    let rows = shop.timer().wakes(reader, async || {
        put_away(shop).await;
        shop.faults.reset_counts();
        let message = shop.message("Note", "while it slept");
        other.send(vec![dialog.initiator.clone()], vec![message], None).await.expect("the message can be sent");
        settle().await;
        let by_others = shop.faults.calls(Operation::Begin);
        settle().await;
        assert_eq!(shop.faults.calls(Operation::Begin), by_others, "it does not look");
        shop.broker.restore();
    });
    assert_eq!(show_all(&rows.await.expect("it comes")), ["0 Note 1 while it slept"]);
}

async fn calls_made_meanwhile_wait(shop: &Shop) {
    let dialog = shop.order("a").await;
    put_away(shop).await;
    shop.faults.reset_counts();
    let transaction = begin(shop);
    let all = RowFilter::default();
    let calls = join3(
        shop.try_send(&dialog.initiator, "Note", "b"),
        shop.broker.count("kitchen", &all),
        transaction.receive("kitchen", ReceiveOptions::default()),
    );
    let mut calls = pin!(calls);
    assert!(poll_once(&mut calls).await.is_pending());
    settle().await;
    assert!(poll_once(&mut calls).await.is_pending());
    assert_eq!(shop.faults.calls(Operation::Begin), 0);
    assert_eq!(shop.locks_held(), 0);
    shop.broker.restore();
    let (sent, count, rows) = calls.await;
    sent.expect("it is sent");
    assert!(count.expect("it is counted") >= 1);
    assert!(!rows.expect("it is received").is_empty());
    transaction.commit().await.expect("it was begun meanwhile, and nothing was in its way");
}

async fn a_commit_that_was_under_way_goes_on(shop: &Shop) {
    shop.order("a").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a"]);
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    let slept = async {
        while shop.faults.held() == 0 {
            tick().await;
        }
        put_away(shop).await;
        assert_eq!(shop.locks_held(), 0);
        shop.faults.release();
    };
    let (committed, ()) = join(transaction.commit(), slept).await;
    committed.expect("its commit had been asked for");
    shop.broker.restore();
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn a_storage_transaction_that_was_cut_off_is_begun_again(shop: &Shop) {
    let dialog = shop.order("a").await;
    let (sent, queues) = (shop.try_send(&dialog.initiator, "Note", "b"), shop.broker.queues());
    let (sent, queues, begun) = (pin!(sent), pin!(queues), pin!(shop.broker.begin_dialog(to_kitchen())));
    // More often than what fails by itself is tried again.
    let slept = async || {
        for _ in 0..3 {
            for read in [Operation::Get, Operation::GetRange, Operation::GetKeys] {
                shop.faults.plan(read, 1, Fault::Delay);
            }
            while shop.faults.held() == 0 {
                tick().await;
            }
            put_away(shop).await;
            shop.faults.clear();
            shop.faults.release();
            settle().await;
            shop.broker.restore();
        }
    };
    join(slept(), async { sent.await.expect("it is sent") }).await;
    join(slept(), async { assert!(queues.await.expect("they are read").len() >= 4) }).await;
    join(slept(), async { _ = begun.await.expect("it begins") }).await;
    assert_eq!(shop.queue("kitchen").await.ready, 2);
}

async fn b82_one_poller_runs_afterwards(shop: &Shop) {
    let begun = shop.begin().await;
    shop.broker.begin_conversation_timer(&begun.handle, Some(2_000.0), named("", None)).await.expect("it is begun");
    settle().await;
    assert_eq!(shop.timer().sleeps(), [2_000.0]);
    put_away(shop).await;
    assert_eq!(shop.timer().sleeping(), 0, "nobody waits meanwhile");
    shop.clock().advance(5_000.0);
    shop.broker.restore();
    settle().await;
    assert_eq!(shop.timer().sleeps(), [10.0]);
    shop.clock().advance(10.0);
    shop.timer().fire();
    while shop.queue("counter").await.ready == 0 {
        tick().await;
    }
    settle().await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    assert_eq!(shop.timer().sleeping(), 0);
}

async fn what_others_made_due_meanwhile_is_noticed(shop: &Shop) {
    let other = shop.another_tab().await;
    let begun = shop.begin().await;
    put_away(shop).await;
    other.begin_conversation_timer(&begun.handle, Some(3_000.0), named("", None)).await.expect("it is begun");
    other.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
    shop.broker.restore();
    settle().await;
    shop.clock().advance(10.0);
    shop.timer().fire();
    settle().await;
    assert_eq!(shop.timer().sleeps(), [2_990.0]);
}

async fn everything_may_have_changed(shop: &Shop) {
    let heard = Rc::<RefCell<Vec<Notice>>>::default();
    let listening = Rc::clone(&heard);
    shop.broker.listen(Rc::new(move |notice| listening.borrow_mut().push(notice.clone())));
    put_away(shop).await;
    shop.notices();
    assert_eq!(heard.borrow().len(), 0);
    shop.broker.restore();
    settle().await;
    let heard = heard.take();
    assert_eq!(heard.len(), 1);
    let [notice] = &heard[..] else { panic!("one notice: {heard:?}") };
    for queue in ["counter", "kitchen", "house", "error"] {
        assert!(notice.queues.iter().any(|other| &**other == queue), "{queue}: {notice:?}");
    }
    assert!(notice.conversations && notice.transmission && notice.archive && notice.enqueued.is_empty());
    assert_eq!(shop.notices().len(), 0, "it is news for this page alone");
}

async fn twice_is_once(shop: &Shop) {
    shop.notices();
    shop.broker.restore();
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0, "it was not away");
    let begun = shop.begin().await;
    shop.broker.begin_conversation_timer(&begun.handle, Some(2_000.0), named("", None)).await.expect("it is begun");
    for _ in 0..3 {
        shop.broker.suspend();
        put_away(shop).await;
        shop.broker.restore();
        shop.broker.restore();
        settle().await;
        assert_eq!(shop.timer().sleeps(), [10.0]);
    }
    // Without a breath in between.
    shop.broker.suspend();
    shop.broker.restore();
    settle().await;
    assert_eq!(shop.timer().sleeps(), [10.0]);
}

/// `close` lets what was asked for be done, which is when the page is back; or it never is, and nobody waits for it.
async fn closing_meanwhile(shop: &Shop) {
    let tab = shop.another_tab().await;
    let (one, two) = (tab.another(), tab.another());
    tab.suspend();
    two.close().await;
    let (mut reader, message) = (pin!(one.receive("kitchen", for_ever(), None)), shop.message("DEFAULT", "last words"));
    let mut sent = pin!(one.enqueue("house", vec![message], EnqueueOptions::default(), None));
    assert!(poll_once(&mut reader).await.is_pending() && poll_once(&mut sent).await.is_pending());
    let mut closed = pin!(one.close());
    assert!(poll_once(&mut closed).await.is_pending());
    tab.restore();
    closed.await;
    sent.await.expect("it had been asked for");
    refused(reader.await, ErrorCode::Closed);
    assert_eq!(shop.rows("house").await, ["1 DEFAULT 0 last words"]);

    tab.suspend();
    let mut reader = pin!(tab.receive("kitchen", for_ever(), None));
    assert!(poll_once(&mut reader).await.is_pending());
    tab.abandon();
    tab.close().await;
    refused(reader.await, ErrorCode::Closed);
    tab.restore();
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
}
