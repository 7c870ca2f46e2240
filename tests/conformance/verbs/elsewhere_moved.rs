//! Delayed messages in a store of the application's own: that several contexts move at a time, that the store shows as they were, that were fetched long ago.

use futures_util::future::join;
use pocket_broker::error::ErrorCode;
use pocket_broker::{Broker, Fetched};

use super::super::support::elsewhere::{Elsewhere, Trouble, settle};
use super::super::support::host::tick;
use super::super::support::shop::{Shop, refused};
use super::delayed::at;
use super::elsewhere::{arrived, enqueue_at, pass, settings};

mount! {
    l06_what_was_fetched_long_ago_is_fetched_again,
    l08_a_clock_that_is_set_back_after_the_fetch_delivers_nothing_early,
    l14_a_cancel_that_takes_its_time_says_nothing_of_what_was_delivered,
    l14_two_transactions_move_one_message,
    l14_what_the_store_shows_from_before_it_was_moved_is_not_delivered,
    l14_a_store_that_keeps_what_was_moved_is_asked_again,
    l14_what_is_moved_while_the_store_is_told_of_a_move_is_told_at_once,
    l14_what_is_moved_while_the_store_fails_to_be_told_is_told_soon,
}

mount_with_leases! {
    l14_what_one_leader_moves_no_other_removes,
}

const START: f64 = 1_700_000_000_000.0;
const MINUTE: f64 = 60_000.0;

async fn open(shop: &Shop) -> (Broker, Elsewhere) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    (tab, elsewhere)
}

async fn reschedule(tab: &Broker, id: &str, ms: f64) {
    assert!(tab.reschedule(id, START + ms).await.expect("it can be moved"));
}

async fn l06_what_was_fetched_long_ago_is_fetched_again(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let before = elsewhere.messages().remove(0);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    // The page sleeps while it is fetched, longer than anybody remembers what another page has delivered.
    elsewhere.plant(Fetched::Message(before));
    elsewhere.then_passes(40.0 * MINUTE);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert_eq!(arrived(shop).await, ["m1"]);
    enqueue_at(shop, &tab, "m2", pocket_broker::Delay::After(1_000.0)).await;
    settle().await;
    elsewhere.then_passes(40.0 * MINUTE);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1, "one that is still there comes all the same");
    tab.close().await;
}

async fn l08_a_clock_that_is_set_back_after_the_fetch_delivers_nothing_early(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.then_passes(-500.0);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert!(arrived(shop).await.is_empty(), "its time has not come");
    pass(shop, &tab, MINUTE + 500.0).await;
    assert_eq!(arrived(shop).await, ["m1"], "the store holds it until then");
    tab.close().await;
}

async fn l14_a_cancel_that_takes_its_time_says_nothing_of_what_was_delivered(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    // By now nobody knows it any more.
    pass(shop, &tab, 40.0 * MINUTE).await;
    elsewhere.once("remove", Trouble::Hangs);
    let late = async {
        settle().await;
        shop.clock().advance(MINUTE + 1_000.0);
        tab.poll().await.expect("what is marked is removed");
        shop.pulse().fire();
    };
    let (cancelled, ()) = join(tab.cancel(&id), late).await;
    refused(cancelled, ErrorCode::DelayedStoreFailed);
    assert!(!tab.cancel(&id).await.expect("it can be asked for"), "it was delivered");
    shop.assert_sound().await;
    tab.close().await;
}

async fn l14_two_transactions_move_one_message(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    let transactions = [tab.begin().expect("it is open"), tab.begin().expect("it is open")];
    for (transaction, to) in transactions.iter().zip([200_000.0, 300_000.0]) {
        assert!(transaction.reschedule(&id, START + to).await.expect("it is there"));
    }
    for transaction in &transactions {
        transaction.commit().await.expect("it still waits");
        settle().await;
        assert_eq!(tab.stats().await.expect("it can be counted").gauges.delayed, 1);
        shop.assert_sound().await;
    }
    tab.close().await;
    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    assert_eq!((pass(shop, &tab, 200_000.0).await, pass(shop, &tab, 100_000.0).await), (0, 1));
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    shop.assert_sound().await;
    tab.close().await;
}

async fn l14_what_the_store_shows_from_before_it_was_moved_is_not_delivered(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let ids = [
        enqueue_at(shop, &tab, "m1", at(1_000.0)).await,
        super::elsewhere::send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await,
    ];
    settle().await;
    let before = elsewhere.messages();
    for id in &ids {
        reschedule(&tab, id, 100_000.0).await;
    }
    settle().await;
    shop.assert_sound().await;
    assert!(elsewhere.messages().iter().all(|message| message.time == START + 100_000.0));
    for message in before {
        elsewhere.plant(Fetched::Message(message));
    }
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0, "it waits for its new time");
    shop.assert_sound().await;
    assert_eq!(pass(shop, &tab, 69_000.0).await, 0);
    assert_eq!(pass(shop, &tab, 30_000.0).await, 2);
    assert_eq!((arrived(shop).await.len(), elsewhere.bodies().len()), (3, 0), "each once, beside the order");
    shop.assert_sound().await;
    tab.close().await;
}

async fn l14_a_store_that_keeps_what_was_moved_is_asked_again(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.lies("remove");
    reschedule(&tab, &id, 100_000.0).await;
    settle().await;
    shop.clock().advance(1_000.0);
    let _ = tab.poll().await;
    settle().await;
    assert!(arrived(shop).await.is_empty(), "it waits for its new time");
    elsewhere.is_honest();
    assert_eq!((pass(shop, &tab, 70_000.0).await, pass(shop, &tab, 29_000.0).await), (0, 1));
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    tab.close().await;
}

/// When the store would deliver what it has.
fn times(elsewhere: &Elsewhere) -> Vec<f64> {
    elsewhere.messages().iter().map(|message| message.time - START).collect()
}

async fn l14_what_is_moved_while_the_store_is_told_of_a_move_is_told_at_once(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    for late in ["remove", "store"] {
        elsewhere.once(late, Trouble::AnswersLate);
        reschedule(&tab, &id, 100_000.0).await;
        settle().await;
        reschedule(&tab, &id, 200_000.0).await;
        settle().await;
        elsewhere.answer();
        settle().await;
        assert_eq!(times(&elsewhere), [200_000.0], "{late}");
        shop.assert_sound().await;
    }
    assert_eq!((pass(shop, &tab, 100_000.0).await, pass(shop, &tab, 100_000.0).await), (0, 1));
    tab.close().await;
}

async fn l14_what_is_moved_while_the_store_fails_to_be_told_is_told_soon(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::AnswersLate);
    elsewhere.once("store", Trouble::Fails);
    reschedule(&tab, &id, 100_000.0).await;
    settle().await;
    reschedule(&tab, &id, 200_000.0).await;
    settle().await;
    elsewhere.answer();
    settle().await;
    assert!(times(&elsewhere).is_empty(), "it was removed, and not stored");
    pass(shop, &tab, 2_000.0).await;
    assert_eq!(times(&elsewhere), [200_000.0]);
    assert_eq!((pass(shop, &tab, 98_000.0).await, pass(shop, &tab, 100_000.0).await), (0, 1));
    tab.close().await;
}

async fn l14_what_one_leader_moves_no_other_removes(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let other = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.calls();
    // It may still be done, so that whoever stores the message now might lose it.
    elsewhere.once("remove", Trouble::Hangs);
    reschedule(&tab, &id, 100_000.0).await;
    tick().await;
    let _ = other.poll().await;
    settle().await;
    let removing = |calls: Vec<&str>| calls.iter().filter(|call| **call == "remove").count();
    assert_eq!(removing(elsewhere.calls()), 1, "one is at it");
    shop.pulse().fire();
    settle().await;
    assert_eq!(removing(elsewhere.calls()), 0, "it was not answered");
    shop.clock().advance(62_000.0);
    other.poll().await.expect("the store is well");
    settle().await;
    assert_eq!(removing(elsewhere.calls()), 1);
    assert_eq!(elsewhere.messages()[0].time, START + 100_000.0);
    shop.clock().advance(38_000.0);
    assert_eq!(other.poll().await.expect("the store is well"), 1);
    tab.close().await;
    other.close().await;
}
