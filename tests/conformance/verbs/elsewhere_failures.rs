//! Delayed messages in a store of the application's own: what may fail, and what comes of it.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Key, Mode, Operation, Range, StoreName};
use pocket_broker::{
    BreakerState, Broker, DelayedSettings, EnqueueOptions, FailedFilter, Fetched, Notice, RoleKind, RoleNotice,
    RowFilter,
};

use super::super::support::elsewhere::{Elsewhere, Trouble, settle};
use super::super::support::shop::{Shop, refused};
use super::super::support::transact;
use super::delayed::at;
use super::elsewhere::{arrived, enqueue_at, pass, send_at, settings};

mount! {
    l05_what_the_store_refuses_for_good_goes_to_the_error_queue,
    l05_one_that_the_store_does_not_take_holds_up_no_other,
    l09_a_dispatch_that_fails_is_tried_so_many_times,
    l09_it_is_put_off_later_each_time_and_holds_up_no_other,
    l09_a_store_that_does_not_count_is_not_believed,
    l09_what_is_no_destination_goes_to_the_error_queue_at_once,
    l09_a_sender_whose_queue_is_off_waits_in_the_built_in_store,
    l10_an_error_queue_that_takes_nothing_loses_nothing,
    l11_what_is_no_message_goes_to_the_error_queue_once,
    l11_a_row_of_the_hop_that_can_not_be_read_goes_to_the_error_queue,
    l11_what_leads_to_a_message_is_made_anew,
    l12_a_call_that_is_never_answered_has_an_end,
    a_store_that_gives_what_is_not_due_delivers_nothing_early,
    a_store_that_removes_nothing_delivers_nothing_twice,
}

// Minutes, second by second: that is the poller's doing, whatever the storage.
#[cfg(not(target_arch = "wasm32"))]
mount! {
    l12_a_store_that_fails_is_told_once,
    l12_a_fetch_that_fails_is_told_once,
    l12_a_next_that_fails_counts_as_a_fetch,
    l12_counting_that_fails_too_often_is_told,
}

mount_with_locks! {
    l07_one_tab_leads_and_the_next_takes_over,
    l07_nobody_hurries_what_another_instance_holds,
    l07_what_the_store_has_taken_is_slept_for,
    l16_close_leaves_nothing_behind,
    d34_a_leader_that_is_hidden_hands_over,
}

const MINUTE: f64 = 60_000.0;

async fn open(shop: &Shop, settings: DelayedSettings) -> (Broker, Elsewhere) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings, &elsewhere).await;
    settle().await;
    (tab, elsewhere)
}

fn retries(number_of_retries: u64) -> DelayedSettings {
    DelayedSettings { number_of_retries, ..settings() }
}

#[cfg(not(target_arch = "wasm32"))]
fn critical(notices: &[Notice]) -> Vec<&str> {
    notices.iter().flat_map(|notice| &notice.critical).map(|critical| &*critical.source).collect()
}

async fn breakers(tab: &Broker) -> [BreakerState; 3] {
    tab.stats().await.expect("it can be counted").breakers
}

/// As soon as the next message has been fetched, so many commits find the disk full.
fn full(shop: &Shop, elsewhere: &Elsewhere, commits: u32) {
    let faults = shop.faults.clone();
    elsewhere.then(move || {
        for commit in 1..=commits {
            let full = Error::new(ErrorCode::QuotaExceeded, "The disk is full.");
            faults.plan(Operation::Change, commit, Fault::Abort(full));
        }
    });
}

/// Time passes, and every sleep is over.
async fn wake(shop: &Shop, ms: f64) {
    shop.clock().advance(ms);
    shop.timer().fire();
    settle().await;
}

async fn jobs(shop: &Shop) {
    let queues = vec![("jobs".into(), QueueOptions::default())];
    shop.broker.define(Definitions { queues, ..Definitions::default() }).await.expect("it can be defined");
}

async fn job_at(shop: &Shop, tab: &Broker, body: &str) {
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    tab.enqueue_later("jobs", vec![shop.message("DEFAULT", body)], options).await.expect("it can be enqueued later");
}

/// p40.
async fn l05_what_the_store_refuses_for_good_goes_to_the_error_queue(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    elsewhere.once("store", Trouble::Refuses);
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    assert_eq!((elsewhere.bodies(), shop.rows("error").await), (vec!["m2".to_owned()], vec!["1 Note 0 m1".to_owned()]));
    assert_eq!(breakers(&tab).await[0], BreakerState::Disarmed);
    shop.assert_sound().await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    tab.close().await;
}

async fn l05_one_that_the_store_does_not_take_holds_up_no_other(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    elsewhere.once("store", Trouble::Fails);
    enqueue_at(shop, &tab, "m1", at(MINUTE)).await;
    settle().await;
    enqueue_at(shop, &tab, "m2", at(MINUTE)).await;
    settle().await;
    assert!(elsewhere.bodies().is_empty(), "the pump waits a second");
    wake(shop, 500.0).await;
    assert!(elsewhere.bodies().is_empty());
    wake(shop, 500.0).await;
    wake(shop, 500.0).await;
    assert_eq!(elsewhere.bodies().len(), 2);
    assert_eq!(tab.stats().await.expect("it can be counted").gauges.delayed, 0);
    tab.close().await;
}

/// p45.
async fn l09_a_dispatch_that_fails_is_tried_so_many_times(shop: &Shop) {
    for number in [0, 2] {
        let (tab, elsewhere) = open(shop, retries(number)).await;
        enqueue_at(shop, &tab, "m1", pocket_broker::Delay::After(1_000.0)).await;
        settle().await;
        elsewhere.calls();
        shop.clock().advance(1_000.0);
        for attempt in 0..=number {
            // The dispatch fails; the commit that puts it into the error queue does not.
            full(shop, &elsewhere, 1);
            let failed = tab.poll().await;
            if attempt < number {
                refused(failed, ErrorCode::QuotaExceeded);
            }
            assert_eq!(shop.rows("error").await.len(), usize::from(attempt == number), "{attempt} of {number}");
            shop.clock().advance(2.0 * MINUTE);
        }
        let counted = elsewhere.calls().iter().filter(|call| **call == "incrementFailureCount").count();
        assert_eq!(u64::try_from(counted).expect("a small number"), number);
        let failed = shop.messages("error", RowFilter::default()).await.remove(0);
        assert_eq!((failed.failed_queue.as_deref(), elsewhere.bodies().len()), (Some("kitchen"), 0));
        assert_eq!(shop.broker.return_to_source(&FailedFilter::default()).await.expect("it is there"), 1);
        assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m1"]);
        tab.close().await;
    }
}

async fn l09_it_is_put_off_later_each_time_and_holds_up_no_other(shop: &Shop) {
    let (tab, elsewhere) = open(shop, retries(9)).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    shop.clock().advance(1_000.0);
    full(shop, &elsewhere, 1);
    refused(tab.poll().await, ErrorCode::QuotaExceeded);
    assert_eq!(arrived(shop).await, ["m2"], "the other goes on");
    let mut waits = Vec::new();
    for _ in 0..8 {
        let due = elsewhere.messages()[0].time;
        let now = pocket_broker_now(shop);
        waits.push(due - now);
        shop.clock().advance(due - now);
        full(shop, &elsewhere, 1);
        refused(tab.poll().await, ErrorCode::QuotaExceeded);
    }
    for (wait, most) in waits.iter().zip([1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, 32_000.0, 60_000.0, 60_000.0]) {
        assert!((most * 0.74..=f64::max(most, 10_000.0)).contains(wait), "{waits:?}");
    }
    assert_eq!(elsewhere.messages()[0].number_of_retries, 9);
    assert_eq!(pass(shop, &tab, MINUTE).await, 1);
    assert_eq!(breakers(&tab).await[2], BreakerState::Disarmed, "a success disarms");
    tab.close().await;
}

fn pocket_broker_now(shop: &Shop) -> f64 {
    pocket_broker::clock::Clock::now(shop.clock())
}

async fn l09_a_store_that_does_not_count_is_not_believed(shop: &Shop) {
    let (tab, elsewhere) = open(shop, retries(2)).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.lies("incrementFailureCount");
    shop.clock().advance(1_000.0);
    for _ in 0..3 {
        full(shop, &elsewhere, 1);
        let _ = tab.poll().await;
        shop.clock().advance(2.0 * MINUTE);
    }
    assert_eq!((shop.rows("error").await.len(), elsewhere.bodies().len()), (1, 0));
    tab.close().await;
}

async fn l09_what_is_no_destination_goes_to_the_error_queue_at_once(shop: &Shop) {
    let (tab, elsewhere) = open(shop, retries(5)).await;
    jobs(shop).await;
    job_at(shop, &tab, "m1").await;
    settle().await;
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await;
    settle().await;
    shop.end(&dialog.target).await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    let queues: Vec<_> =
        shop.messages("error", RowFilter::default()).await.iter().map(|failed| failed.failed_queue.clone()).collect();
    assert_eq!(queues, [Some("jobs".into()), Some(Rc::clone(&dialog.initiator))]);
    assert_eq!((elsewhere.bodies().len(), breakers(&tab).await[2]), (0, BreakerState::Disarmed));
    tab.close().await;
}

async fn l09_a_sender_whose_queue_is_off_waits_in_the_built_in_store(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    let dialog = shop.order("m1").await;
    shop.retain("counter", true).await;
    send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await;
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    let to = vec![Rc::clone(&dialog.initiator)];
    tab.send_later(to, vec![shop.message_of("Note", large)], at(1_000.0), None).await.expect("it can be sent later");
    settle().await;
    shop.switch("counter", Status::Off).await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert_eq!((elsewhere.bodies().len(), shop.rows("error").await.len()), (0, 0));
    shop.assert_sound().await;
    shop.switch("counter", Status::On).await;
    assert_eq!(pass(shop, &tab, MINUTE).await, 2);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2", "0 Note 2 large"]);
    tab.close().await;
}

async fn l10_an_error_queue_that_takes_nothing_loses_nothing(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    shop.clock().advance(1_000.0);
    for _ in 0..3 {
        full(shop, &elsewhere, 2);
        refused(tab.poll().await, ErrorCode::QuotaExceeded);
        assert_eq!((shop.rows("error").await.len(), elsewhere.bodies()), (0, vec!["m1".to_owned()]));
        shop.clock().advance(2.0 * MINUTE);
    }
    assert_eq!(pass(shop, &tab, 0.0).await, 1);
    assert_eq!(arrived(shop).await, ["m1"]);
    tab.close().await;
}

async fn l11_what_is_no_message_goes_to_the_error_queue_once(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let id = Rc::clone(&elsewhere.messages()[0].message_id);
    let unreadable = || Fetched::Unreadable {
        raw: Body::small("rubbish".into()),
        message_id: Some(Rc::clone(&id)),
        problem: "its time is none".into(),
    };
    elsewhere.plant(unreadable());
    shop.clock().advance(500.0);
    assert_eq!(tab.poll().await.expect("it is set aside"), 0);
    assert_eq!((shop.rows("error").await, elsewhere.bodies().len()), (vec!["1 DEFAULT 0 rubbish".to_owned()], 0));
    elsewhere.plant(unreadable());
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert_eq!(shop.rows("error").await.len(), 1);
    tab.close().await;
}

async fn spoil(shop: &Shop, store: StoreName, kind: &'static str, value: impl Fn(Value) -> Value) {
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let keys = tx.get_keys(store, &Range::prefix(vec![Key::from(kind)]), None).await?;
        assert!(!keys.is_empty(), "there is something to spoil");
        for key in keys {
            let record = tx.get(store, &key).await?.expect("it is there");
            tx.put(store, key, value(record));
        }
        Ok(())
    })
    .await
    .expect("it can be spoilt");
}

async fn l11_a_row_of_the_hop_that_can_not_be_read_goes_to_the_error_queue(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    let dialog = shop.order("m0").await;
    elsewhere.always("store", Trouble::Hangs);
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    tab.close().await;
    spoil(shop, StoreName::Delayed, "hop", |record| record.with_item(1, Value::from("soon"))).await;
    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m2"]);
    assert_eq!(shop.rows("error").await.len(), 1);
    shop.assert_sound().await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
    tab.close().await;
}

async fn l11_what_leads_to_a_message_is_made_anew(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    let second = send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await;
    settle().await;
    spoil(shop, StoreName::Members, "h", |_| Value::from("h")).await;
    assert!(tab.reschedule(&second, pocket_broker_now(shop) + 1_000.0).await.expect("its name is made anew"));
    tab.close().await;
    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!(pass(shop, &tab, 1_000.0).await, 2);
    send_at(shop, &tab, &dialog.initiator, "m3", at(5_000.0)).await;
    settle().await;
    spoil(shop, StoreName::Members, "o", |_| Value::from("o")).await;
    assert_eq!(shop.end(&dialog.initiator).await.discarded, 1);
    tab.close().await;
}

#[cfg(not(target_arch = "wasm32"))]
/// p40, p41, p42.
async fn l12_a_store_that_fails_is_told_once(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    elsewhere.always("store", Trouble::Fails);
    enqueue_at(shop, &tab, "m1", at(10.0 * MINUTE)).await;
    settle().await;
    assert_eq!(breakers(&tab).await[0], BreakerState::Armed);
    shop.notices();
    for _ in 0..100 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(critical(&shop.notices()), ["store"]);
    assert_eq!(breakers(&tab).await[0], BreakerState::Triggered);
    elsewhere.is_well();
    for _ in 0..70 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!((elsewhere.bodies(), breakers(&tab).await[0]), (vec!["m1".to_owned()], BreakerState::Disarmed));
    assert_eq!(shop.rows("error").await.len(), 0, "it was never given up");
    tab.close().await;
}

#[cfg(not(target_arch = "wasm32"))]
async fn l12_a_fetch_that_fails_is_told_once(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("fetchNextDueTimeout", Trouble::Fails);
    shop.notices();
    elsewhere.calls();
    for _ in 0..100 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(critical(&shop.notices()), ["fetch"]);
    let tried = elsewhere.calls().iter().filter(|call| **call == "fetchNextDueTimeout").count();
    assert!((30..=45).contains(&tried), "every second, then every ten: {tried}");
    elsewhere.is_well();
    for _ in 0..10 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!((arrived(shop).await, breakers(&tab).await[1]), (vec!["m1".to_owned()], BreakerState::Disarmed));
    tab.close().await;
}

#[cfg(not(target_arch = "wasm32"))]
async fn l12_a_next_that_fails_counts_as_a_fetch(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    elsewhere.always("next", Trouble::Fails);
    shop.notices();
    for _ in 0..100 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(critical(&shop.notices()), ["fetch"]);
    tab.close().await;
}

#[cfg(not(target_arch = "wasm32"))]
/// p58, p59.
async fn l12_counting_that_fails_too_often_is_told(shop: &Shop) {
    let settings = DelayedSettings { dispatch_breaker: 1e12, ..retries(1_000) };
    let (tab, elsewhere) = open(shop, settings).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("incrementFailureCount", Trouble::Fails);
    elsewhere.lies("fetchNextDueTimeout");
    shop.clock().advance(1_000.0);
    shop.notices();
    for attempt in 0..32 {
        full(shop, &elsewhere, 1);
        let _ = tab.poll().await;
        shop.clock().advance(100.0);
        let told = shop.notices();
        assert_eq!(critical(&told).len(), usize::from(attempt == 30), "the one after thirty is told: {attempt}");
    }
    elsewhere.is_well();
    assert_eq!(pass(shop, &tab, MINUTE).await, 1);
    tab.close().await;
}

async fn l12_a_call_that_is_never_answered_has_an_end(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("fetchNextDueTimeout", Trouble::Hangs);
    wake(shop, 1_000.0).await;
    assert!(shop.pulse().sleeps().contains(&MINUTE), "it is waited for, by real time: {:?}", shop.pulse().sleeps());
    shop.pulse().fire();
    settle().await;
    assert_eq!(breakers(&tab).await[1], BreakerState::Armed);
    wake(shop, 1_000.0).await;
    assert_eq!(arrived(shop).await, ["m1"]);
    tab.close().await;
}

async fn a_store_that_gives_what_is_not_due_delivers_nothing_early(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.lies("fetchNextDueTimeout");
    shop.clock().advance(999.0);
    refused(tab.poll().await, ErrorCode::DelayedStoreFailed);
    assert!(arrived(shop).await.is_empty());
    assert_eq!(pass(shop, &tab, 1.0).await, 1);
    tab.close().await;
}

async fn a_store_that_removes_nothing_delivers_nothing_twice(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.lies("remove");
    elsewhere.lies("fetchNextDueTimeout");
    shop.clock().advance(1_000.0);
    elsewhere.calls();
    assert_eq!(tab.poll().await.expect("it ends"), 1);
    let fetched = elsewhere.calls().iter().filter(|call| **call == "fetchNextDueTimeout").count();
    assert!(fetched <= 3, "and is no hot loop: {fetched}");
    for _ in 0..5 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(arrived(shop).await, ["m1"]);
    tab.close().await;
}

async fn l07_one_tab_leads_and_the_next_takes_over(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let first = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    let second = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.calls();
    enqueue_at(shop, &second, "m1", at(1_000.0)).await;
    second.hop_elsewhere();
    settle().await;
    assert!(elsewhere.bodies().is_empty(), "the other leads, and nobody has told it in this test");
    first.hop_elsewhere();
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"]);
    first.close().await;
    settle().await;
    elsewhere.calls();
    wake(shop, 1_000.0).await;
    assert_eq!(arrived(shop).await, ["m1"], "the second leads now");
    second.close().await;
}

async fn l07_what_the_store_has_taken_is_slept_for(shop: &Shop) {
    let (tab, _elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(30_000.0)).await;
    settle().await;
    assert!(shop.timer().sleeps().contains(&30_000.0), "{:?}", shop.timer().sleeps());
    enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    assert!(shop.timer().sleeps().contains(&1_000.0), "{:?}", shop.timer().sleeps());
    wake(shop, 1_000.0).await;
    assert_eq!(arrived(shop).await, ["m2"]);
    tab.close().await;
}

/// p22.
async fn l07_nobody_hurries_what_another_instance_holds(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    shop.clock().advance(1_000.0);
    let held = pocket_broker::DelayedMessageStore::fetch_next_due_timeout(&elsewhere.of(99), pocket_broker_now(shop));
    held.await.expect("it can be fetched");
    elsewhere.calls();
    let mut sleeps = Vec::new();
    for _ in 0..12 {
        shop.timer().fire();
        settle().await;
        sleeps.extend(shop.timer().sleeps());
    }
    // Those who pump and clean have nothing to do.
    sleeps.retain(|ms| *ms < MINUTE);
    assert!(sleeps.iter().all(|ms| (10.0..=1_000.0).contains(ms)), "{sleeps:?}");
    assert_eq!(sleeps.last(), Some(&1_000.0), "less and less often: {sleeps:?}");
    shop.clock().advance(MINUTE);
    assert_eq!(pass(shop, &tab, 0.0).await, 1, "the hold has run out");
    tab.close().await;
}

async fn l16_close_leaves_nothing_behind(shop: &Shop) {
    let (tab, elsewhere) = open(shop, settings()).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(shop.locks_held(), 1);
    elsewhere.always("fetchNextDueTimeout", Trouble::Hangs);
    wake(shop, 1_000.0).await;
    tab.close().await;
    settle().await;
    assert_eq!((shop.locks_held(), shop.timer().sleeping()), (0, 0));
    elsewhere.is_well();
    elsewhere.calls();
    wake(shop, MINUTE).await;
    assert!(elsewhere.calls().is_empty());
}

async fn d34_a_leader_that_is_hidden_hands_over(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let first = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    let second = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    let said = |notices: Vec<Notice>| {
        notices.into_iter().filter_map(|notice| notice.role).map(|said| said.kind).collect::<Vec<_>>()
    };
    let wanted = RoleNotice { role: "poller".into(), kind: RoleKind::Wanted };
    assert_eq!(said(shop.notices()).last(), Some(&RoleKind::Wanted), "it can be seen, and asks");
    first.hear_of_role(&wanted);
    enqueue_at(shop, &first, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"], "who can be seen does not hand over");
    shop.hide(2, true);
    second.wake();
    settle().await;
    assert_eq!(said(shop.notices()), [RoleKind::Wanted]);
    first.hear_of_role(&wanted);
    settle().await;
    elsewhere.calls();
    enqueue_at(shop, &second, "m2", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1", "m2"], "the second leads now");
    shop.hide(3, true);
    shop.hide(2, false);
    second.hear_of_role(&wanted);
    settle().await;
    enqueue_at(shop, &first, "m3", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies().len(), 3, "and the first again");
    first.close().await;
    settle().await;
    assert_eq!(said(shop.notices()).last(), Some(&RoleKind::Hidden), "who leads and is hidden says so");
    second.close().await;
}
