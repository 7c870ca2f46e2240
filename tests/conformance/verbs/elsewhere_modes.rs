//! Delayed messages in a store of the application's own: what the lower modes give, and what an end in the middle leaves.

use futures_util::future::join;
use pocket_broker::error::ErrorCode;
use pocket_broker::{Broker, Delay, DelayedSettings, TransactionMode};

use super::super::support::elsewhere::{Elsewhere, Trouble, settle};
use super::super::support::host::tick;
use super::super::support::poll_once;
use super::super::support::shop::{Shop, refused};
use super::delayed::at;
use super::elsewhere::{arrived, enqueue_at, pass, settings};

mount! {
    p43_a_close_while_it_is_stored_loses_nothing,
    p54_a_remove_that_finds_nothing_is_no_failure,
    p56_a_remove_that_fails_for_ever_delivers_no_more_in_any_mode,
    p57_a_crash_in_a_lower_mode_delivers_it_again_under_its_id,
    p58_a_count_of_what_is_gone_is_no_failure,
    p67_two_tabs_make_it_ready_at_once,
}

const LOWER: [TransactionMode; 2] = [TransactionMode::None, TransactionMode::ReceiveOnly];

async fn open(shop: &Shop, mode: TransactionMode) -> (Broker, Elsewhere) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(DelayedSettings { mode, ..settings() }, &elsewhere).await;
    settle().await;
    (tab, elsewhere)
}

async fn p43_a_close_while_it_is_stored_loses_nothing(shop: &Shop) {
    for trouble in [Trouble::Hangs, Trouble::AnswerIsLost] {
        let (tab, elsewhere) = open(shop, TransactionMode::default()).await;
        elsewhere.once("store", trouble);
        enqueue_at(shop, &tab, "m1", Delay::After(1_000.0)).await;
        settle().await;
        tab.close().await;
        let tab = shop.tab_with(settings(), &elsewhere).await;
        settle().await;
        assert_eq!(elsewhere.bodies(), ["m1"]);
        assert_eq!((pass(shop, &tab, 1_000.0).await, shop.receive("kitchen").await.len()), (1, 1));
        tab.close().await;
    }
}

async fn p54_a_remove_that_finds_nothing_is_no_failure(shop: &Shop) {
    let (tab, elsewhere) = open(shop, TransactionMode::default()).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let other = elsewhere.clone();
    elsewhere.then(move || other.forget(&id));
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1, "somebody else has removed it meanwhile");
    assert_eq!(arrived(shop).await, ["m1"]);
    tab.close().await;
}

async fn p56_a_remove_that_fails_for_ever_delivers_no_more_in_any_mode(shop: &Shop) {
    for mode in TransactionMode::ALL.into_iter().filter(|mode| *mode != TransactionMode::TransactionScope) {
        let (tab, elsewhere) = open(shop, mode).await;
        enqueue_at(shop, &tab, "m1", Delay::After(1_000.0)).await;
        settle().await;
        elsewhere.always("remove", Trouble::Fails);
        shop.clock().advance(1_000.0);
        for _ in 0..5 {
            refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
            // The leader looks again by itself: before the time goes on.
            settle().await;
            shop.clock().advance(120_000.0);
        }
        elsewhere.is_well();
        assert_eq!(pass(shop, &tab, 0.0).await, 0);
        assert_eq!((shop.receive("kitchen").await.len(), elsewhere.bodies().len()), (1, 0), "{}", mode.name());
        tab.close().await;
    }
}

async fn p57_a_crash_in_a_lower_mode_delivers_it_again_under_its_id(shop: &Shop) {
    for mode in LOWER {
        let (tab, elsewhere) = open(shop, mode).await;
        let id = enqueue_at(shop, &tab, "m1", Delay::After(1_000.0)).await;
        settle().await;
        elsewhere.once("remove", Trouble::Hangs);
        shop.clock().advance(1_000.0);
        let mut polled = Box::pin(tab.poll());
        for _ in 0..300 {
            if poll_once(polled.as_mut()).await.is_ready() {
                break;
            }
            tick().await;
        }
        drop(polled);
        tab.close().await;
        let other = shop.tab_with(DelayedSettings { mode, ..settings() }, &elsewhere).await;
        pass(shop, &other, 120_000.0).await;
        let rows = shop.messages("kitchen", pocket_broker::RowFilter::default()).await;
        assert_eq!(rows.iter().map(|row| &row.message_id).collect::<Vec<_>>(), [&id, &id], "as documented");
        shop.receive("kitchen").await;
        other.close().await;
    }
}

async fn p58_a_count_of_what_is_gone_is_no_failure(shop: &Shop) {
    let (tab, elsewhere) = open(shop, TransactionMode::default()).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::Fails);
    let other = elsewhere.clone();
    elsewhere.then(move || other.forget(&id));
    shop.clock().advance(1_000.0);
    refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
    assert_eq!((pass(shop, &tab, 120_000.0).await, arrived(shop).await), (0, vec!["m1".to_owned()]));
    tab.close().await;
}

async fn p67_two_tabs_make_it_ready_at_once(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let (first, second) = join(shop.tab_with(settings(), &elsewhere), shop.tab_with(settings(), &elsewhere)).await;
    settle().await;
    let made = elsewhere.calls().iter().filter(|call| **call == "setupInfrastructure").count();
    assert_eq!(made, 2);
    enqueue_at(shop, &first, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(pass(shop, &second, 1_000.0).await, 1);
    first.close().await;
    second.close().await;
}
