//! Delayed messages in a store of the application's own: on their way in, and out.

use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::{Body, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::ids::text;
use pocket_broker::{
    Broker, Delay, DelayedFilter, DelayedSettings, EnqueueOptions, Extent, Fetched, RowFilter, TransactionMode,
};

use super::super::support::elsewhere::{Elsewhere, Trouble, settle};
use super::super::support::host::tick;
use super::super::support::shop::{Shop, refused};
use super::delayed::at;

mount! {
    l04_the_store_is_made_ready_first,
    l04_a_mode_that_is_not_to_be_had_fails_the_opening,
    l05_it_goes_through_the_hop,
    l05_a_rollback_leaves_nothing_in_the_hop,
    l05_what_the_store_has_already_is_done,
    l05_it_comes_as_it_was_sent,
    l05_equal_times_keep_the_order_of_storing,
    l06_a_remove_that_fails_delivers_nothing_twice,
    l06_a_remove_whose_answer_is_lost_delivers_nothing_twice,
    l06_it_is_known_for_half_an_hour_more,
    l06_a_tab_that_dies_after_the_dispatch_delivers_nothing_twice,
    l06_the_lower_modes_keep_no_memory,
    l08_a_poll_does_not_wait_for_a_store_that_hangs,
    l18_end_takes_them_along_wherever_they_are,
    d34_a_tab_without_the_store_never_polls_it,
}

pub(super) fn settings() -> DelayedSettings {
    DelayedSettings::default()
}

pub(super) async fn enqueue_at(shop: &Shop, broker: &Broker, body: &str, delay: Delay) -> Rc<str> {
    enqueue_as(shop, broker, body, EnqueueOptions { delay: Some(delay), ..EnqueueOptions::default() }).await
}

pub(super) async fn enqueue_as(shop: &Shop, broker: &Broker, body: &str, options: EnqueueOptions) -> Rc<str> {
    let message = shop.message("DEFAULT", body);
    text(broker.enqueue_later("kitchen", vec![message], options).await.expect("it can be enqueued later")[0])
}

pub(super) async fn send_at(shop: &Shop, broker: &Broker, handle: &str, body: &str, delay: Delay) -> Rc<str> {
    let message = shop.message("Note", body);
    text(broker.send_later(vec![handle.into()], vec![message], delay, None).await.expect("it can be sent later")[0])
}

/// Lets time pass, and does what is due then. Gives how many messages came of it.
pub(super) async fn pass(shop: &Shop, broker: &Broker, ms: f64) -> u64 {
    shop.clock().advance(ms);
    let moved = broker.poll().await.expect("what is due can be done");
    settle().await;
    moved
}

/// The bodies in the kitchen's queue.
pub(super) async fn arrived(shop: &Shop) -> Vec<String> {
    let messages = shop.messages("kitchen", RowFilter::default()).await;
    messages.iter().map(|message| message.body.text().unwrap_or_default()).collect()
}

async fn open(shop: &Shop) -> (Broker, Elsewhere) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.calls();
    (tab, elsewhere)
}

/// p65.
async fn l04_the_store_is_made_ready_first(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!(elsewhere.calls()[..2], ["setupInfrastructure", "initialize"]);
    tab.close().await;
}

/// p66.
async fn l04_a_mode_that_is_not_to_be_had_fails_the_opening(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    elsewhere.once("initialize", Trouble::Fails);
    refused(shop.try_tab_with(settings(), &elsewhere).await, ErrorCode::UnsupportedTransactionMode);
    elsewhere.once("setupInfrastructure", Trouble::Fails);
    refused(shop.try_tab_with(settings(), &elsewhere).await, ErrorCode::DelayedStoreFailed);
    let scope = DelayedSettings { mode: TransactionMode::TransactionScope, ..settings() };
    elsewhere.calls();
    refused(shop.try_tab_with(scope, &elsewhere).await, ErrorCode::UnsupportedTransactionMode);
    assert!(elsewhere.calls().is_empty(), "a store can't take part in the commit: it is not even asked");
}

async fn l05_it_goes_through_the_hop(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    elsewhere.always("store", Trouble::Hangs);
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!((elsewhere.bodies().len(), tab.count_delayed().await.expect("it can be counted")), (0, 1));
    shop.assert_sound().await;
    tab.close().await;
    elsewhere.is_well();
    let other = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"], "whoever polls next gives it to the store");
    assert_eq!(other.count_delayed().await.expect("it can be counted"), 1);
    assert_eq!(other.stats().await.expect("it can be counted").gauges.delayed, 0, "this database has nothing of it");
    shop.assert_sound().await;
    assert_eq!((pass(shop, &other, 999.0).await, pass(shop, &other, 1.0).await), (0, 1));
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    other.close().await;
}

async fn l05_a_rollback_leaves_nothing_in_the_hop(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let transaction = tab.begin().expect("it is open");
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", "m1");
    transaction.enqueue_later("kitchen", vec![message.clone()], options.clone()).await.expect("it can be enqueued");
    transaction.rollback();
    settle().await;
    assert_eq!((elsewhere.calls().len(), tab.count_delayed().await.expect("it can be counted")), (0, 0));
    let transaction = tab.begin().expect("it is open");
    transaction.enqueue_later("kitchen", vec![message], options).await.expect("it can be enqueued");
    settle().await;
    assert!(elsewhere.bodies().is_empty(), "the commit gives it away, and nobody before");
    transaction.commit().await.expect("it can be committed");
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"]);
    tab.close().await;
}

async fn l05_what_the_store_has_already_is_done(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    elsewhere.once("store", Trouble::AnswerIsLost);
    enqueue_at(shop, &tab, "m1", at(5_000.0)).await;
    settle().await;
    assert_eq!((elsewhere.bodies().len(), tab.stats().await.expect("it can be counted").gauges.delayed), (1, 1));
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert_eq!((elsewhere.bodies().len(), tab.stats().await.expect("it can be counted").gauges.delayed), (1, 0));
    assert_eq!(pass(shop, &tab, 4_000.0).await, 1);
    assert_eq!(arrived(shop).await, ["m1"]);
    tab.close().await;
}

async fn l05_it_comes_as_it_was_sent(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let headers = Value::object(vec![("trace", Value::from("7"))]);
    let large = Body { value: Value::from("m1").into(), packing: 0, size: 70_000.0 };
    let message = pocket_broker::OutgoingMessage { headers: Some(headers.into()), ..shop.message_of("DEFAULT", large) };
    let keyed = EnqueueOptions {
        delay: Some(at(1_000.0)),
        key: Some("table 4".into()),
        priority: 8.0,
        ..EnqueueOptions::default()
    };
    let id = text(tab.enqueue_later("kitchen", vec![message], keyed).await.expect("it can be enqueued later")[0]);
    let loose = EnqueueOptions { delay: Some(at(1_000.0)), ordered: false, ..EnqueueOptions::default() };
    enqueue_as(shop, &tab, "m2", loose).await;
    settle().await;
    let held = elsewhere.messages();
    let properties = |index: usize| {
        let mut all: Vec<String> =
            held[index].properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.sort();
        all.join(" ")
    };
    assert_eq!(properties(0), "key=table 4 messageType=DEFAULT priority=8");
    assert_eq!(properties(1), "messageType=DEFAULT ordered=false priority=5");
    assert_eq!(pass(shop, &tab, 1_000.0).await, 2);
    let got = shop.messages("kitchen", RowFilter::default()).await;
    let first = got.iter().find(|message| message.message_id == id).expect("it is there");
    assert_eq!((first.priority, first.key.as_deref()), (8, Some("table 4")));
    assert_eq!(first.body.text().as_deref(), Some("m1"));
    assert_eq!(first.headers.field("trace").text(), Some("7".to_owned()));
    tab.close().await;
}

async fn l05_equal_times_keep_the_order_of_storing(shop: &Shop) {
    let (tab, _elsewhere) = open(shop).await;
    for body in ["m1", "m2", "m3", "m4", "m5"] {
        enqueue_at(shop, &tab, body, at(1_000.0)).await;
    }
    enqueue_at(shop, &tab, "m0", at(999.0)).await;
    settle().await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 6);
    assert_eq!(arrived(shop).await, ["m0", "m1", "m2", "m3", "m4", "m5"]);
    tab.close().await;
}

async fn l06_a_remove_that_fails_delivers_nothing_twice(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("remove", Trouble::Fails);
    shop.clock().advance(1_000.0);
    refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
    assert_eq!((arrived(shop).await, elsewhere.bodies()), (vec!["m1".to_owned()], vec!["m1".to_owned()]));
    shop.clock().advance(70_000.0);
    refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
    elsewhere.is_well();
    assert_eq!(pass(shop, &tab, 70_000.0).await, 0);
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    tab.close().await;
}

async fn l06_a_remove_whose_answer_is_lost_delivers_nothing_twice(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::AnswerIsLost);
    shop.clock().advance(1_000.0);
    refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
    assert_eq!(pass(shop, &tab, 70_000.0).await, 0);
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    tab.close().await;
}

async fn l06_it_is_known_for_half_an_hour_more(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let again = elsewhere.messages().remove(0);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    for ms in [1_000.0, 1_700_000.0] {
        elsewhere.plant(Fetched::Message(again.clone()));
        assert_eq!(pass(shop, &tab, ms).await, 0);
    }
    assert_eq!(arrived(shop).await, ["m1"]);
    pass(shop, &tab, 1_900_000.0).await;
    shop.assert_sound().await;
    elsewhere.plant(Fetched::Message(again));
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1, "nobody knows it any more");
    tab.close().await;
}

/// p57.
async fn l06_a_tab_that_dies_after_the_dispatch_delivers_nothing_twice(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::Hangs);
    shop.clock().advance(1_000.0);
    let polled = tab.poll();
    let mut polled = Box::pin(polled);
    for _ in 0..300 {
        if super::super::support::poll_once(polled.as_mut()).await.is_ready() {
            break;
        }
        tick().await;
    }
    drop(polled);
    assert_eq!(arrived(shop).await, ["m1"]);
    let other = shop.tab_with(settings(), &elsewhere).await;
    assert_eq!(pass(shop, &other, 70_000.0).await, 0);
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    other.close().await;
}

async fn l06_the_lower_modes_keep_no_memory(shop: &Shop) {
    for mode in [TransactionMode::None, TransactionMode::ReceiveOnly] {
        let elsewhere = shop.elsewhere();
        let tab = shop.tab_with(DelayedSettings { mode, ..settings() }, &elsewhere).await;
        enqueue_at(shop, &tab, "m1", Delay::After(1_000.0)).await;
        settle().await;
        let again = elsewhere.messages().remove(0);
        assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
        elsewhere.plant(Fetched::Message(again));
        assert_eq!(pass(shop, &tab, 1_000.0).await, 1, "as documented");
        assert_eq!(shop.receive("kitchen").await.len(), 2);
        tab.close().await;
    }
}

async fn l08_a_poll_does_not_wait_for_a_store_that_hangs(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("store", Trouble::Hangs);
    enqueue_at(shop, &tab, "m2", at(2_000.0)).await;
    settle().await;
    shop.clock().advance(1_000.0);
    let patience = async {
        settle().await;
        assert_eq!(arrived(shop).await, ["m1"]);
        shop.pulse().fire_up_to(5_000.0);
    };
    let (moved, ()) = join(tab.poll(), patience).await;
    assert_eq!(moved.expect("what is due can be done"), 1);
    assert!(shop.pulse().sleeps().contains(&60_000.0), "the store is still waited for");
    // It has not answered: the message is offered again.
    shop.pulse().fire();
    settle().await;
    pass(shop, &tab, 2_000.0).await;
    pass(shop, &tab, 1_000.0).await;
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned(), "m2".to_owned()], 0));
    tab.close().await;
}

async fn l18_end_takes_them_along_wherever_they_are(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let other = shop.order("other").await;
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    send_at(shop, &tab, &other.initiator, "m9", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1", "m9"]);
    elsewhere.always("store", Trouble::Hangs);
    send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1", "m9"], "one is in the store, and one in the hop");
    shop.assert_sound().await;
    assert_eq!(shop.end(&dialog.initiator).await.discarded, 2);
    shop.assert_sound().await;
    tab.close().await;
    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m9"], "the store is told");
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    assert_eq!(shop.rows("error").await.len(), 0);
    tab.close().await;
}

async fn d34_a_tab_without_the_store_never_polls_it(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    tab.close().await;
    elsewhere.calls();
    assert_eq!(shop.pass(1_000.0).await, 0);
    settle().await;
    assert!(elsewhere.calls().is_empty());
    let all = shop.broker.delayed(&DelayedFilter::default(), None, Extent::All).await.expect("it can be looked at");
    assert!(all.rows.is_empty());
}
