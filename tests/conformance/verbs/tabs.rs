//! Groups have one reader over all tabs, and GET CONVERSATION GROUP.

use futures_util::future::join;
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::Operation;
use pocket_broker::{Broker, EndOptions, ReceiveOptions};

use super::super::support::shop::{Shop, begin, receive, refused, show_all, top_of};

mount! {
    d21_a_group_has_one_reader_over_all_tabs,
    d21_a_plain_receive_passes_over_what_another_tab_holds,
    b47_a_group_is_locked_and_nothing_changes,
    b48_two_calls_lock_two_groups,
    b49_there_may_be_no_group,
    b53_three_readers_take_three_groups,
    a_group_can_be_waited_for,
    calls_side_by_side_share_a_lock,
}

mount_with_locks! {
    groups_that_others_hold_cost_no_storage_transaction,
    a_lock_costs_no_storage_transaction,
    a_wrong_guess_locks_nothing,
    d21_a_tab_that_dies_lets_go,
    d25_a_verb_waits_for_a_group_of_another_tab,
}

async fn plain(broker: &Broker, queue: &str) -> Vec<String> {
    show_all(&broker.receive(queue, ReceiveOptions::default(), None).await.expect("the queue is on"))
}

/// B44, B45.
async fn d21_a_group_has_one_reader_over_all_tabs(shop: &Shop) {
    let other = shop.another_tab().await;
    let (first, _) = (shop.order("a").await, shop.order("b").await);
    let (one, two) = (begin(shop), other.begin().expect("the broker is open"));
    assert_eq!(receive(&one, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(receive(&two, "kitchen").await, ["0 Order 0 b"], "another group");
    assert_eq!(receive(&two, "kitchen").await, [""; 0], "and no third one");
    let named = ReceiveOptions { conversation: Some(first.target.clone()), ..ReceiveOptions::default() };
    assert_eq!(show_all(&two.receive("kitchen", named).await.expect("d02: nothing")), [""; 0]);
    shop.send(&first.initiator, "Note", "a2").await;
    one.commit().await.expect("it commits");
    assert_eq!(receive(&two, "kitchen").await, ["0 Note 1 a2"], "free again");
    two.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.locks_held(), 0);
}

async fn d21_a_plain_receive_passes_over_what_another_tab_holds(shop: &Shop) {
    let other = shop.another_tab().await;
    shop.order("a").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    assert_eq!(plain(&other, "kitchen").await, [""; 0]);
    shop.order("b").await;
    assert_eq!(plain(&other, "kitchen").await, ["0 Order 0 b"]);
    transaction.rollback();
    assert_eq!(plain(&other, "kitchen").await, ["0 Order 0 a"]);
    assert_eq!(shop.locks_held(), 0);
}

async fn d21_a_tab_that_dies_lets_go(shop: &Shop) {
    shop.order("a").await;
    let other = shop.another_tab().await;
    let dying = other.begin().expect("the broker is open");
    assert_eq!(receive(&dying, "kitchen").await, ["0 Order 0 a"]);
    let forever = ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() };
    // Nobody tells: it is the lock that wakes the reader.
    let rows = shop.timer().wakes(shop.broker.receive("kitchen", forever, None), async || drop((dying, other)));
    assert_eq!(show_all(&rows.await.expect("its work never happened")), ["0 Order 0 a"]);
    assert_eq!(shop.locks_held(), 0);
}

async fn d25_a_verb_waits_for_a_group_of_another_tab(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    let holder = other.begin().expect("the broker is open");
    receive(&holder, "kitchen").await;
    let ending = shop.broker.end_conversation(&dialog.target, EndOptions::default());
    let ended = shop.timer().wakes(ending, async || holder.rollback()).await;
    assert_eq!(ended.expect("the group is free").discarded, 1);

    let dialog = shop.order("m2").await;
    let holder = other.begin().expect("the broker is open");
    receive(&holder, "kitchen").await;
    let ending = shop.broker.end_conversation(&dialog.target, EndOptions::default());
    refused(shop.timer().wakes(ending, async || shop.timer().fire()).await, ErrorCode::GroupLocked);
    holder.commit().await.expect("it commits");
    assert_eq!(shop.locks_held(), 0);
}

/// What a reader probably gets is locked before it looks. When it gets something else, that lock goes at once.
async fn a_wrong_guess_locks_nothing(shop: &Shop) {
    let (first, _) = (shop.order("a").await, shop.order("b").await);
    shop.receive_top("kitchen", 1).await;
    let other = shop.another_tab().await;
    let taking = ReceiveOptions { conversation: Some(first.target.clone()), ..ReceiveOptions::default() };
    shop.send(&first.initiator, "Note", "a2").await;
    other.receive("kitchen", taking, None).await.expect("it takes what the first tab thinks is next");
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 b"]);
    assert_eq!(shop.locks_held(), 1);
    transaction.rollback();
    assert_eq!(shop.locks_held(), 0);
}

async fn a_lock_costs_no_storage_transaction(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send_many(&dialog.initiator, "Note", 0..3).await;
    shop.receive_top("kitchen", 1).await;
    let before = shop.faults.calls(Operation::Begin);
    shop.receive_top("kitchen", 1).await;
    assert_eq!(shop.faults.calls(Operation::Begin), before + 1);
    shop.end(&dialog.target).await;
    assert_eq!(shop.faults.calls(Operation::Begin), before + 2);
}

async fn groups_that_others_hold_cost_no_storage_transaction(shop: &Shop) {
    let (other, mut holding) = (shop.another_tab().await, Vec::new());
    for body in ["a", "b", "c"] {
        shop.order(body).await;
        holding.push(other.begin().expect("the broker is open"));
        assert_eq!(receive(holding.last().expect("there is one"), "kitchen").await, [format!("0 Order 0 {body}")]);
    }
    let dialog = shop.order("m").await;
    shop.send_many(&dialog.initiator, "Note", 0..6).await;
    for turn in 0..3 {
        let before = shop.faults.calls(Operation::Begin);
        let transaction = begin(shop);
        let rows = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
        assert_eq!(rows.len(), 1);
        transaction.commit().await.expect("it commits");
        let cost = shop.faults.calls(Operation::Begin) - before;
        assert!(turn == 0 || cost == 2, "{cost}: the look and the commit");
    }
    let before = shop.faults.calls(Operation::Begin);
    assert_eq!(shop.receive_top("kitchen", 1).await.len(), 1);
    assert_eq!(shop.faults.calls(Operation::Begin), before + 1);
    holding.pop();
    let free = show_all(&begin(shop).receive("kitchen", top_of(1)).await.expect("the queue is on"));
    assert_eq!(free, ["0 Order 0 c"], "who waits longer is not forgotten");
    drop(holding);
    assert_eq!(shop.locks_held(), 0);
}

async fn b47_a_group_is_locked_and_nothing_changes(shop: &Shop) {
    let dialog = shop.order("a").await;
    let other = shop.another_tab().await;
    let transaction = begin(shop);
    let group = transaction.get_conversation_group("kitchen", None).await.expect("the queue is on");
    assert_eq!(group, Some(shop.info(&dialog.target).await.expect("it is there").conversation_group_id));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 a"]);
    assert_eq!((shop.receive("kitchen").await, plain(&other, "kitchen").await), (vec![], vec![]));
    let named = ReceiveOptions { group, ..ReceiveOptions::default() };
    assert_eq!(show_all(&transaction.receive("kitchen", named).await.expect("it is ours")), ["0 Order 0 a"]);
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn b48_two_calls_lock_two_groups(shop: &Shop) {
    shop.order("a").await;
    shop.order("b").await;
    let transaction = begin(shop);
    let first = transaction.get_conversation_group("kitchen", None).await.expect("the queue is on");
    let second = transaction.get_conversation_group("kitchen", None).await.expect("the queue is on");
    assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    assert_eq!(transaction.get_conversation_group("kitchen", None).await.expect("the queue is on"), None);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    transaction.commit().await.expect("it did nothing");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 a", "1 Order 0 b"]);
}

async fn b49_there_may_be_no_group(shop: &Shop) {
    let transaction = begin(shop);
    assert_eq!(transaction.get_conversation_group("kitchen", None).await.expect("the queue is on"), None);
    refused(transaction.get_conversation_group("nowhere", None).await, ErrorCode::QueueNotFound);
    shop.switch("kitchen", Status::Off).await;
    refused(transaction.get_conversation_group("kitchen", None).await, ErrorCode::QueueDisabled);
}

async fn b53_three_readers_take_three_groups(shop: &Shop) {
    for body in ["a", "b", "c"] {
        shop.order(body).await;
    }
    let tabs = [shop.another_tab().await, shop.another_tab().await, shop.another_tab().await, shop.another_tab().await];
    let readers: Vec<_> = tabs.iter().map(|tab| tab.begin().expect("the broker is open")).collect();
    let mut got = Vec::new();
    for reader in &readers {
        got.extend(receive(reader, "kitchen").await);
    }
    got.sort();
    assert_eq!(got, ["0 Order 0 a", "0 Order 0 b", "0 Order 0 c"], "and the fourth gets nothing");
    for reader in readers {
        reader.commit().await.expect("it commits");
    }
    let dialog = shop.order("one").await;
    shop.send(&dialog.initiator, "Note", "group").await;
    let readers: Vec<_> = tabs.iter().map(|tab| tab.begin().expect("the broker is open")).collect();
    for (number, reader) in readers.iter().enumerate() {
        let rows = reader.receive("kitchen", top_of(1)).await.expect("the queue is on");
        let expected: &[&str] = if number == 0 { &["0 Order 0 one"] } else { &[] };
        assert_eq!(show_all(&rows), expected, "one group has one reader, however much there is");
    }
}

async fn a_group_can_be_waited_for(shop: &Shop) {
    let transaction = begin(shop);
    let waiting = transaction.get_conversation_group("kitchen", Some(f64::INFINITY));
    let group = shop.timer().wakes(waiting, async || _ = shop.order("a").await).await;
    assert!(group.expect("it comes").is_some());
}

async fn calls_side_by_side_share_a_lock(shop: &Shop) {
    let dialog = shop.order("a").await;
    shop.receive_top("kitchen", 1).await;
    shop.send_many(&dialog.initiator, "Note", 0..2).await;
    shop.receive_top("kitchen", 1).await;
    let (one, two) = join(plain(&shop.broker, "kitchen"), plain(&shop.broker, "kitchen")).await;
    assert_eq!(one.len() + two.len(), 1);
    let (one, two) = join(
        shop.broker.get_group_state(&dialog.target),
        shop.broker.set_group_state(&dialog.target, pocket_broker::body::Body::none()),
    )
    .await;
    one.expect("it is free");
    two.expect("it is free");
    assert_eq!(shop.locks_held(), 0);
}
