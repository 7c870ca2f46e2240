//! Where an origin has no locks: leases in the database.

use std::pin::pin;

use futures_util::future::{Either, join, select};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Key, Operation, StoreName};
use pocket_broker::{Broker, EndOptions, ReceiveOptions};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, receive, show_all, top_of};
use super::super::support::{put, transact};
use pocket_broker::body::Value;
use pocket_broker::store::{Mode, Range};

mount_with_leases! {
    d21_a_group_has_one_reader_without_locks,
    d26_a_lease_of_a_tab_that_died_ends,
    d26_a_lease_from_a_future_that_never_was_counts_for_nothing,
    d26_a_lease_counts_for_a_context_whose_clock_is_a_little_behind,
    a_lease_that_cannot_be_read_is_nobodys,
    d21_what_a_commit_gives_back_no_other_call_has,
    a_waiting_reader_is_told_of_a_release,
    a_lease_that_is_given_back_untold_is_noticed,
    a_reader_notices_that_the_holder_has_died,
    a_lease_is_given_back_before_the_broker_is_closed,
    a_full_disk_keeps_nobody_from_receiving,
    heirs_clear_away_the_leases_of_the_dead,
}

const LIFE: f64 = 150_000.0;

async fn look(broker: &Broker) -> Vec<String> {
    show_all(&broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on"))
}

async fn leases(shop: &Shop) -> Vec<Key> {
    let range = Range::prefix(vec!["lease".into()]);
    transact(&*shop.store, &[StoreName::Meta], Mode::ReadOnly, async |tx| {
        tx.get_keys(StoreName::Meta, &range, None).await
    })
    .await
    .expect("the store can be read")
}

async fn until_given_back(shop: &Shop) {
    while !leases(shop).await.is_empty() {
        tick().await;
    }
}

async fn d21_a_group_has_one_reader_without_locks(shop: &Shop) {
    let other = shop.another_tab().await;
    shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    assert_eq!(leases(shop).await.len(), 1);
    assert_eq!(look(&other).await, [""; 0]);
    let held = other.groups(Default::default(), None, pocket_broker::Extent::All).await.expect("it can be read").rows;
    assert!(held.iter().any(|group| group.held_by == Some(pocket_broker::HeldBy::Other)), "{held:?}");
    transaction.rollback();
    until_given_back(shop).await;
    assert_eq!(look(&other).await, ["0 Order 0 m1"]);
    until_given_back(shop).await;
}

async fn d26_a_lease_of_a_tab_that_died_ends(shop: &Shop) {
    shop.order("m1").await;
    let other = shop.another_tab().await;
    let dead = shop.another_tab().await;
    let transaction = dead.begin().expect("the broker is open");
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("it is free");
    // Nobody gives back what a tab has that is no more.
    std::mem::forget((transaction, dead));
    shop.clock().advance(LIFE - 1.0);
    assert_eq!(look(&other).await, [""; 0]);
    shop.clock().advance(1.0);
    assert_eq!(look(&other).await, ["0 Order 0 m1"], "nobody need have seen it before");
    until_given_back(shop).await;
}

/// L19: the clock was set back.
async fn d26_a_lease_from_a_future_that_never_was_counts_for_nothing(shop: &Shop) {
    shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    let other = shop.another_tab().await;
    shop.clock().advance(-1_001.0);
    assert_eq!(look(&other).await, ["0 Order 0 m1"]);
    transaction.rollback();
    until_given_back(shop).await;
}

/// Browsers blur the time, in each process in another way.
async fn d26_a_lease_counts_for_a_context_whose_clock_is_a_little_behind(shop: &Shop) {
    shop.order("m1").await;
    let other = shop.another_tab().await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    for behind in [1.0, 99.0, 900.0] {
        shop.clock().advance(-behind);
        assert_eq!(look(&other).await, [""; 0]);
    }
    transaction.commit().await.expect("nobody has robbed it");
    until_given_back(shop).await;
}

async fn a_lease_that_cannot_be_read_is_nobodys(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    put(&*shop.store, StoreName::Meta, Key::list(["lease".into(), (&*group).into()]), Value::from("garbage"))
        .await
        .expect("it can be written");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    until_given_back(shop).await;
}

/// Another call of the same context has asked for the lease, and is still under way when a transaction that used it commits.
async fn d21_what_a_commit_gives_back_no_other_call_has(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Order", "m2").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let (asks, uses, next) = (begin(shop), begin(shop), begin(shop));
    // It has the lease, and does not get to look.
    shop.faults.plan(Operation::Begin, 2, Fault::Delay);
    let of_group = ReceiveOptions { group: Some(group), ..top_of(1) };
    let meanwhile = async {
        while shop.faults.held() == 0 {
            tick().await;
        }
        assert_eq!(show_all(&uses.receive("kitchen", top_of(1)).await.expect("it is free")), ["0 Order 0 m1"]);
        uses.commit().await.expect("it had the lease");
        assert_eq!(show_all(&next.receive("kitchen", top_of(1)).await.expect("it is free")), ["0 Order 1 m2"]);
        assert_eq!(look(&other).await, [""; 0], "it has a lease of its own");
        next.commit().await.expect("nobody has robbed it");
        shop.faults.release();
    };
    let (found, ()) = join(asks.receive("kitchen", of_group), meanwhile).await;
    assert_eq!(show_all(&found.expect("it is free")), [""; 0]);
    asks.rollback();
    until_given_back(shop).await;
}

async fn a_waiting_reader_is_told_of_a_release(shop: &Shop) {
    shop.order("m1").await;
    let holder = shop.another_tab().await;
    let transaction = holder.begin().expect("the broker is open");
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("it is free");
    let wait = ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() };
    let waiting = std::pin::pin!(shop.broker.receive("kitchen", wait, None));
    let found = shop.timer().wakes(waiting, async || {
        transaction.rollback();
        until_given_back(shop).await;
        // What the other tab posts then.
        shop.broker.released_elsewhere();
    });
    assert_eq!(show_all(&found.await.expect("it waits")), ["0 Order 0 m1"]);
    until_given_back(shop).await;
}

/// What another tab leaves of a holding of its own.
async fn hold_elsewhere(shop: &Shop, handle: &str) -> Key {
    let group = shop.info(handle).await.expect("it is there").conversation_group_id;
    let (key, until): (_, f64) = (Key::list(["lease".into(), (&*group).into()]), 1_700_000_000_000.0 + LIFE);
    let lease = Value::list(vec![1u32.into(), "another tab".into(), 1u32.into(), until.into()]);
    put(&*shop.store, StoreName::Meta, key.clone(), lease).await.expect("it can be written");
    key
}

/// A call on its own has a group for a moment only, and tells nobody.
async fn a_lease_that_is_given_back_untold_is_noticed(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let lease = hold_elsewhere(shop, &dialog.target).await;
    let ending = pin!(shop.broker.end_conversation(&dialog.target, EndOptions::default()));
    let ended = shop.timer().wakes(ending, async || {
        assert_eq!(shop.pulse().sleeps(), [500.0], "it looks at the lease again before its time is over");
        shop.pulse().fire();
        shop.pulse().until_sleeping().await;
        transact(&*shop.store, &[StoreName::Meta], Mode::ReadWrite, async |tx| {
            tx.delete(StoreName::Meta, lease);
            Ok(())
        })
        .await
        .expect("it can be deleted");
        shop.pulse().fire();
    });
    ended.await.expect("the group is free");
    until_given_back(shop).await;
}

async fn a_reader_notices_that_the_holder_has_died(shop: &Shop) {
    let dialog = shop.order("m1").await;
    hold_elsewhere(shop, &dialog.target).await;
    let wait = ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() };
    let waiting = pin!(shop.broker.receive("kitchen", wait, None));
    let found = shop.timer().wakes(waiting, async || {
        assert_eq!(shop.pulse().sleeps(), [500.0]);
        shop.clock().advance(LIFE);
        shop.pulse().fire();
    });
    assert_eq!(show_all(&found.await.expect("it is free")), ["0 Order 0 m1"]);
    until_given_back(shop).await;
}

/// Nobody would give it back afterwards.
async fn a_lease_is_given_back_before_the_broker_is_closed(shop: &Shop) {
    shop.order("m1").await;
    let closing = shop.another_tab().await;
    let transaction = closing.begin().expect("the broker is open");
    transaction.get_conversation_group("kitchen", None).await.expect("it is free");
    assert_eq!(leases(shop).await.len(), 1);
    shop.faults.plan(Operation::Commit, 1, Fault::Delay);
    let under_way = async {
        while shop.faults.held() == 0 {
            tick().await;
        }
    };
    match select(pin!(closing.close()), pin!(under_way)).await {
        Either::Left(_) => panic!("it still has a lease"),
        Either::Right(((), closing)) => {
            shop.faults.release();
            closing.await;
        }
    }
    assert_eq!(leases(shop).await.len(), 0);
}

async fn a_full_disk_keeps_nobody_from_receiving(shop: &Shop) {
    shop.order("m1").await;
    let transaction = begin(shop);
    shop.faults.plan(Operation::Write, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"]);
    transaction.commit().await.expect("the commit needs no lease");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn heirs_clear_away_the_leases_of_the_dead(shop: &Shop) {
    for group in ["a", "b", "c"] {
        let dead = Value::list(vec![1u32.into(), "nobody".into(), 1u32.into(), 5u32.into()]);
        put(&*shop.store, StoreName::Meta, Key::list(["lease".into(), group.into()]), dead)
            .await
            .expect("it can be written");
    }
    shop.order("m1").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    assert_eq!(leases(shop).await.len(), 4);
    shop.pulse().until_sleeping().await;
    shop.clock().advance(30_000.0);
    shop.pulse().fire();
    shop.pulse().until_sleeping().await;
    assert_eq!(leases(shop).await.len(), 1, "its own");
    transaction.commit().await.expect("it commits");
    until_given_back(shop).await;
}
