//! What the verbs cost, in reads and writes of storage.

use pocket_broker::store::{Operation, StoreName};

use super::super::support::shop::{Shop, keyed, refused};

mount! {
    a_receive_costs_the_same_at_any_length,
    a_refused_verb_writes_nothing,
    a_transaction_that_receives_costs_the_same_however_many_take_turns,
    an_enqueue_on_an_open_lane_needs_two_reads_and_three_writes,
    an_enqueue_finds_its_lane_by_one_key,
    an_end_costs_the_same_at_any_size,
    opening_costs_the_same_at_any_size,
    send_needs_two_reads_and_three_writes,
    sends_in_both_directions_need_no_more,
}

mount_with_locks! {
    a_transaction_that_receives_needs_two_storage_transactions,
    receive_of_a_cached_run_needs_two_reads_and_two_writes,
    retention_costs_a_receive_no_write,
}

#[track_caller]
fn assert_cost(shop: &Shop, reads: u32, writes: u32) {
    let cost = (shop.faults.calls(Operation::Begin), shop.faults.reads(), shop.faults.writes());
    assert!(
        cost.0 == 1 && cost.1 <= reads && cost.2 <= writes,
        "(transactions, reads, writes) = {cost:?}, and at most (1, {reads}, {writes}) is right"
    );
}

async fn send_needs_two_reads_and_three_writes(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "warm").await;
    for _ in 0..3 {
        shop.faults.reset_counts();
        shop.send(&dialog.initiator, "Note", "m").await;
        assert_cost(shop, 2, 3);
    }
    shop.send(&dialog.target, "Confirm", "warm").await;
    shop.send(&dialog.target, "Confirm", "warm").await;
    shop.faults.reset_counts();
    shop.send(&dialog.target, "Confirm", "r").await;
    assert_cost(shop, 2, 3);
    shop.faults.reset_counts();
    shop.send_many(&dialog.target, "Confirm", 0..256).await;
    assert_cost(shop, 2, 3);
}

async fn sends_in_both_directions_need_no_more(shop: &Shop) {
    let dialog = shop.order("m1").await;
    // The first row of a queue claims a block of order numbers.
    shop.send(&dialog.target, "Confirm", "warm").await;
    for _ in 0..3 {
        for (handle, message_type) in [(&dialog.initiator, "Note"), (&dialog.target, "Confirm")] {
            shop.faults.reset_counts();
            shop.send(handle, message_type, "m").await;
            assert_cost(shop, 2, 3);
        }
    }
    shop.retain("counter", true).await;
    shop.faults.reset_counts();
    shop.send(&dialog.initiator, "Note", "kept").await;
    // Its own queue counts the copy.
    assert_cost(shop, 3, 5);
}

async fn an_enqueue_on_an_open_lane_needs_two_reads_and_three_writes(shop: &Shop) {
    shop.enqueue_key("kitchen", "a", "warm").await;
    for _ in 0..3 {
        shop.faults.reset_counts();
        shop.enqueue_key("kitchen", "a", "m").await;
        assert_cost(shop, 2, 3);
    }
    shop.faults.reset_counts();
    shop.enqueue_many("kitchen", 0..256, keyed("a")).await;
    assert_cost(shop, 2, 3);
}

async fn an_enqueue_finds_its_lane_by_one_key(shop: &Shop) {
    for number in 0..300 {
        shop.enqueue_key("kitchen", &number.to_string(), "m").await;
    }
    let tab = shop.another_tab().await;
    tab.queues().await.expect("they can be looked at");
    shop.faults.reset_counts();
    let message = vec![shop.message("DEFAULT", "m")];
    tab.enqueue("kitchen", message, keyed("7"), None).await.expect("it can be enqueued");
    assert_cost(shop, 3, 3);
    assert_eq!(shop.faults.reads_of(StoreName::Members), 1);
    tab.close().await;
    // One that is new: the name, and the turn as well.
    shop.faults.reset_counts();
    shop.enqueue_key("kitchen", "new", "m").await;
    assert_cost(shop, 2, 5);
}

async fn receive_of_a_cached_run_needs_two_reads_and_two_writes(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..100).await;
    for _ in 0..3 {
        shop.receive_top("kitchen", 1).await;
    }
    for _ in 0..3 {
        shop.faults.reset_counts();
        assert_eq!(shop.receive_top("kitchen", 1).await.len(), 1);
        assert_cost(shop, 2, 2);
    }
}

async fn retention_costs_a_receive_no_write(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..100).await;
    for _ in 0..3 {
        shop.receive_top("kitchen", 1).await;
    }
    shop.faults.reset_counts();
    assert_eq!(shop.receive_top("kitchen", 1).await.len(), 1);
    assert_cost(shop, 2, 2);
}

/// Reads and writes of one `receive` of one row, without anything known.
async fn cold_receive(shop: &Shop) -> (u32, u32) {
    let tab = shop.another_tab().await;
    shop.faults.reset_counts();
    let rows = tab.receive("kitchen", super::super::support::shop::top_of(1), None).await.expect("the queue is on");
    assert_eq!(rows.len(), 1);
    let cost = (shop.faults.reads(), shop.faults.writes());
    tab.close().await;
    cost
}

async fn a_receive_costs_the_same_at_any_length(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    let short = cold_receive(shop).await;
    for _ in 0..20 {
        shop.send_many(&dialog.initiator, "Note", 0..500).await;
        shop.send(&dialog.initiator, "Note", "one").await;
    }
    assert_eq!(cold_receive(shop).await, short);
}

async fn an_end_costs_the_same_at_any_size(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let mut costs = Vec::new();
    for size in [3, 3_000] {
        let dialog = shop.order("m1").await;
        shop.send_many(&dialog.initiator, "Note", 0..size).await;
        shop.receive_top("kitchen", 2).await;
        shop.send(&dialog.target, "Confirm", "r1").await;
        shop.send(&dialog.target, "Confirm", "r2").await;
        shop.faults.reset_counts();
        shop.end(&dialog.target).await;
        costs.push((shop.faults.calls(Operation::Begin), shop.faults.reads(), shop.faults.writes()));
        shop.end(&dialog.initiator).await;
    }
    assert_eq!(costs[0], costs[1]);
}

async fn opening_costs_the_same_at_any_size(shop: &Shop) {
    let mut costs = Vec::new();
    for _ in 0..2 {
        shop.faults.reset_counts();
        let tab = shop.another_tab().await;
        let cost = (
            shop.faults.reads_of(StoreName::Definitions),
            shop.faults.reads_of(StoreName::Queues),
            shop.faults.reads_of(StoreName::Messages),
        );
        costs.push((cost, shop.faults.writes()));
        tab.close().await;
        for _ in 0..30 {
            let dialog = shop.order("m1").await;
            shop.send_many(&dialog.initiator, "Note", 0..300).await;
        }
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].0.2, 0, "no row is read");
}

async fn a_refused_verb_writes_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.faults.reset_counts();
    refused(shop.try_send(&dialog.initiator, "Confirm", "x").await, pocket_broker::error::ErrorCode::WrongDirection);
    refused(shop.try_send("x", "Note", "x").await, pocket_broker::error::ErrorCode::ConversationNotFound);
    assert_eq!(shop.receive("counter").await, [""; 0]);
    assert_eq!(shop.faults.writes(), 0);
}

/// Receives one row in a transaction, and commits. Gives the storage transactions and reads of it.
async fn handle_one(shop: &Shop) -> (u32, u32) {
    shop.faults.reset_counts();
    let transaction = shop.broker.begin().expect("the broker is open");
    let rows = transaction.receive("kitchen", super::super::support::shop::top_of(1)).await.expect("the queue is on");
    assert_eq!(rows.len(), 1);
    transaction.commit().await.expect("it commits");
    (shop.faults.calls(Operation::Begin), shop.faults.reads())
}

async fn a_transaction_that_receives_needs_two_storage_transactions(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..8).await;
    handle_one(shop).await;
    for _ in 0..3 {
        let (transactions, reads) = handle_one(shop).await;
        assert_eq!(transactions, 2, "the look and the commit");
        assert!(reads <= 8, "{reads} reads");
    }
    // The turn goes round.
    let other = shop.order("m1").await;
    for number in 0..6 {
        shop.send(&other.initiator, "Note", &number.to_string()).await;
        shop.send(&dialog.initiator, "Note", &number.to_string()).await;
    }
    for _ in 0..6 {
        handle_one(shop).await;
    }
    for _ in 0..6 {
        assert_eq!(handle_one(shop).await.0, 2);
    }
}

async fn a_transaction_that_receives_costs_the_same_however_many_take_turns(shop: &Shop) {
    let mut dialogs = Vec::new();
    for _ in 0..50 {
        dialogs.push(shop.order("m1").await);
    }
    for dialog in &dialogs {
        shop.send(&dialog.initiator, "Note", "m2").await;
    }
    handle_one(shop).await;
    let (_, early) = handle_one(shop).await;
    for _ in 0..60 {
        handle_one(shop).await;
    }
    let (_, late) = handle_one(shop).await;
    assert!(late <= early, "{late} reads, {early} before");
}
