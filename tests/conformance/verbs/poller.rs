//! What is due happens by itself, once, whichever tabs are open.

use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Key, Mode, Operation, Range, StoreName};
use pocket_broker::{BreakerState, Broker, Critical, Delay, EnqueueOptions, Thrown};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, named};
use super::super::support::transact;

mount! {
    b82_a_timer_fires_by_itself,
    b96_what_was_due_meanwhile_happens_at_the_next_start,
    a_close_lets_go_of_the_timer,
    an_earlier_timer_wakes_the_poller,
    l07_an_earlier_one_elsewhere_wakes_the_poller,
    of_several_tabs_one_fires,
    l08_a_page_that_is_back_is_not_waited_for,
    l08_a_page_that_is_back_hears_of_what_nobody_told,
    l15_one_poller_does_all_that_is_due,
    l16_close_leaves_no_timer_of_what_is_delayed,
    opening_reads_one_due_row,
}

mount_with_locks! {
    a_failing_poll_is_tried_again,
    d36_l12_trouble_of_the_poller_is_told_once_in_a_row,
    nobody_sleeps_while_nothing_is_due,
    one_row_without_room_holds_up_no_other,
    what_can_not_be_read_is_tried_again,
    what_a_newer_build_knows_hides_nothing,
    l07_sleeps_have_bounds,
}

/// Lets everybody run until those who sleep want to do it for so long.
pub(super) async fn until_sleeping(shop: &Shop, ms: &[f64]) {
    for _ in 0..PATIENCE {
        if shop.timer().sleeps() == ms {
            break;
        }
        tick().await;
    }
    assert_eq!(shop.timer().sleeps(), ms);
}

/// Lets everybody run until the queue has so many messages.
pub(super) async fn until_ready(shop: &Shop, queue: &str, count: u64) {
    for _ in 0..PATIENCE {
        if shop.queue(queue).await.ready == count {
            return;
        }
        tick().await;
    }
    assert_eq!(shop.queue(queue).await.ready, count);
}

const PATIENCE: u32 = 1_000;

/// Lets everybody run who can: for what is not to happen.
pub(super) async fn settle() {
    for _ in 0..50 {
        tick().await;
    }
}

/// Time passes, and every sleep is over.
pub(super) fn wake(shop: &Shop, ms: f64) {
    shop.clock().advance(ms);
    shop.timer().fire();
}

async fn timer(broker: &Broker, handle: &str, timeout: f64) {
    broker.begin_conversation_timer(handle, Some(timeout), named("", None)).await.expect("it can be begun");
}

async fn b82_a_timer_fires_by_itself(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 2_000.0).await;
    until_sleeping(shop, &[2_000.0]).await;
    shop.notices();
    wake(shop, 2_000.0);
    until_ready(shop, "counter", 1).await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    let notices = shop.notices();
    assert!(notices.iter().any(|notice| notice.enqueued.iter().any(|queue| &**queue == "counter")), "{notices:?}");
    until_sleeping(shop, &[]).await;
}

/// D34.
/// P1.
async fn nobody_sleeps_while_nothing_is_due(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0);
    timer(&shop.broker, &dialog.initiator, 5_000.0).await;
    until_sleeping(shop, &[5_000.0]).await;
    shop.broker.begin_conversation_timer(&dialog.initiator, None, named("", None)).await.expect("it can be cancelled");
    shop.faults.reset_counts();
    wake(shop, 5_000.0);
    settle().await;
    until_sleeping(shop, &[]).await;
    assert_eq!(shop.faults.calls(Operation::Begin), 1, "it has looked, and there is nothing");
}

/// P3, P6.
async fn l07_sleeps_have_bounds(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 0.0).await;
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 0.0);
    until_ready(shop, "counter", 1).await;
    timer(&shop.broker, &begun.handle, 1e10).await;
    until_sleeping(shop, &[60_000.0]).await;
    shop.faults.reset_counts();
    wake(shop, 60_000.0);
    settle().await;
    until_sleeping(shop, &[60_000.0]).await;
    assert_eq!(shop.faults.calls(Operation::Begin), 1, "not yet; it has looked whether anything comes sooner");
    wake(shop, 1e10);
    until_ready(shop, "counter", 2).await;
}

async fn an_earlier_timer_wakes_the_poller(shop: &Shop) {
    let (first, second) = (shop.begin().await, shop.begin().await);
    timer(&shop.broker, &first.handle, 5_000.0).await;
    until_sleeping(shop, &[5_000.0]).await;
    timer(&shop.broker, &second.handle, 7_000.0).await;
    settle().await;
    until_sleeping(shop, &[5_000.0]).await;
    timer(&shop.broker, &second.handle, 1_000.0).await;
    until_sleeping(shop, &[1_000.0]).await;
    wake(shop, 1_000.0);
    until_ready(shop, "counter", 1).await;
    until_sleeping(shop, &[4_000.0]).await;
}

async fn l07_an_earlier_one_elsewhere_wakes_the_poller(shop: &Shop) {
    let begun = shop.begin().await;
    let other = shop.another_tab().await;
    shop.notices();
    timer(&other, &begun.handle, 2_000.0).await;
    other.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 0, "a tab that is gone, and one that has heard of nothing");
    shop.broker.due_elsewhere(1_700_000_002_000.0);
    until_sleeping(shop, &[2_000.0]).await;
    wake(shop, 2_000.0);
    until_ready(shop, "counter", 1).await;
}

/// D34.
/// P21.
async fn of_several_tabs_one_fires(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    let tabs = [shop.another_tab().await, shop.another_tab().await];
    until_sleeping(shop, &[1_000.0; 3]).await;
    wake(shop, 1_000.0);
    until_sleeping(shop, &[]).await;
    until_ready(shop, "counter", 1).await;
    settle().await;
    assert_eq!(shop.rows("counter").await, ["1 DialogTimer 0"]);
    for tab in tabs {
        tab.close().await;
    }
}

async fn b96_what_was_due_meanwhile_happens_at_the_next_start(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    let watcher = shop.broker.another();
    shop.broker.close().await;
    watcher.close().await;
    until_sleeping(shop, &[]).await;
    wake(shop, 5_000.0);
    let tab = shop.another_tab().await;
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 10.0);
    until_sleeping(shop, &[]).await;
    let ready = async || tab.count("counter", &Default::default()).await.expect("it can be counted");
    for _ in 0..PATIENCE {
        if ready().await == 1 {
            break;
        }
        tick().await;
    }
    assert_eq!(ready().await, 1);
    tab.close().await;
}

async fn a_close_lets_go_of_the_timer(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    until_sleeping(shop, &[1_000.0]).await;
    let second = shop.broker.another();
    shop.broker.close().await;
    settle().await;
    assert_eq!(shop.timer().sleeping(), 1, "another broker is open over the same connection");
    second.close().await;
    until_sleeping(shop, &[]).await;
    let third = second.another();
    until_sleeping(shop, &[1_000.0]).await;
    third.abandon();
    until_sleeping(shop, &[]).await;
}

async fn a_failing_poll_is_tried_again(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    until_sleeping(shop, &[1_000.0]).await;
    let mut sleep = 1_000.0;
    for pause in [1_000.0; 8] {
        no_room(shop);
        wake(shop, sleep);
        settle().await;
        until_sleeping(shop, &[pause]).await;
        sleep = pause;
    }
    assert_eq!(shop.rows("counter").await, [""; 0]);
    wake(shop, sleep);
    until_ready(shop, "counter", 1).await;
}

/// There is no room for what comes of the first row: with all together, and alone.
fn no_room(shop: &Shop) {
    // Between the two comes what is delayed.
    for commit in [1, 3] {
        let full = Error::new(ErrorCode::QuotaExceeded, "No space.");
        shop.faults.plan(Operation::Commit, commit, Fault::Abort(full));
    }
}

/// Two timers are due, and a message.
async fn two_due(shop: &Shop) {
    let (first, second) = (shop.begin().await, shop.order("m1").await);
    timer(&shop.broker, &first.handle, 1_000.0).await;
    timer(&shop.broker, &second.target, 1_000.0).await;
    later(shop, "delayed", 1_000.0).await;
    until_sleeping(shop, &[1_000.0]).await;
}

/// P47.
async fn one_row_without_room_holds_up_no_other(shop: &Shop) {
    two_due(shop).await;
    no_room(shop);
    wake(shop, 1_000.0);
    settle().await;
    until_ready(shop, "kitchen", 2).await;
    until_ready(shop, "counter", 1).await;
    until_sleeping(shop, &[1_000.0]).await;
    wake(shop, 1_000.0);
    until_ready(shop, "counter", 2).await;
    until_sleeping(shop, &[]).await;
}

async fn what_can_not_be_read_is_tried_again(shop: &Shop) {
    two_due(shop).await;
    let store = StoreName::Conversations;
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(store, &Range::all(), Some(1)).await?.remove(0);
        tx.put(store, key, Value::from("garbage"));
        Ok(())
    })
    .await
    .expect("it can be broken");
    // There is no room to set it aside in.
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    wake(shop, 1_000.0);
    settle().await;
    until_ready(shop, "kitchen", 2).await;
    until_ready(shop, "counter", 1).await;
    until_sleeping(shop, &[1_000.0]).await;
    wake(shop, 1_000.0);
    until_ready(shop, "error", 1).await;
    until_sleeping(shop, &[]).await;
}

async fn what_a_newer_build_knows_hides_nothing(shop: &Shop) {
    let keys: Vec<Key> = (0..600_u32).map(|stamp| Key::list([1.into(), stamp.into(), 99.into(), 0.into()])).collect();
    transact(&*shop.store, &[StoreName::Due], Mode::ReadWrite, async |tx| {
        keys.iter().for_each(|key| tx.put(StoreName::Due, key.clone(), Value::from("new")));
        Ok(())
    })
    .await
    .expect("a newer build has written them");
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 1_000.0).await;
    until_sleeping(shop, &[1_000.0]).await;
    wake(shop, 1_000.0);
    until_ready(shop, "counter", 1).await;
    until_sleeping(shop, &[]).await;
    transact(&*shop.store, &[StoreName::Due], Mode::ReadWrite, async |tx| {
        keys.iter().for_each(|key| tx.delete(StoreName::Due, key.clone()));
        Ok(())
    })
    .await
    .expect("they can be deleted");
}

/// Whoever is open hears that what is due can't be done; once, until it could be.
/// P61, P63.
async fn d36_l12_trouble_of_the_poller_is_told_once_in_a_row(shop: &Shop) {
    let begun = shop.begin().await;
    let told = || -> Vec<_> { shop.notices().into_iter().flat_map(|notice| notice.critical).collect() };
    let breaker = async || shop.broker.stats().await.expect("it can be counted").breakers[1];
    for series in 1..=2 {
        assert_eq!(breaker().await, BreakerState::Disarmed);
        timer(&shop.broker, &begun.handle, 1_000.0).await;
        until_sleeping(shop, &[1_000.0]).await;
        shop.notices();
        shop.clock().advance(1_000.0);
        for (passed, pause) in [(0.0, 1_000.0), (29_000.0, 1_000.0), (1_000.0, 10_000.0), (60_000.0, 10_000.0)] {
            assert_eq!(told(), []);
            shop.clock().advance(passed);
            no_room(shop);
            shop.timer().fire();
            settle().await;
            until_sleeping(shop, &[pause]).await;
            if (passed, pause) == (1_000.0, 10_000.0) {
                let code = Some("QuotaExceeded".into());
                let error = Thrown { name: "BrokerError".into(), message: "No space.".into(), code };
                assert_eq!(told(), [Critical { source: "fetch".into(), error }]);
                assert_eq!(breaker().await, BreakerState::Triggered);
            } else if passed < 2_000.0 {
                assert_eq!(breaker().await, BreakerState::Armed);
            }
        }
        wake(shop, 10_000.0);
        until_ready(shop, "counter", series).await;
    }
}

async fn opening_reads_one_due_row(shop: &Shop) {
    for _ in 0..20 {
        let begun = shop.begin().await;
        timer(&shop.broker, &begun.handle, 1_000.0).await;
    }
    shop.faults.reset_counts();
    let tab = shop.another_tab().await;
    settle().await;
    assert_eq!(shop.faults.reads_of(StoreName::Due), 1);
    tab.close().await;
}

async fn later(shop: &Shop, body: &str, delay: f64) {
    let options = EnqueueOptions { delay: Some(Delay::After(delay)), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", body);
    shop.broker.enqueue_later("counter", vec![message], options).await.expect("it can be enqueued");
}

/// P2, P9.
async fn l15_one_poller_does_all_that_is_due(shop: &Shop) {
    let begun = shop.begin().await;
    timer(&shop.broker, &begun.handle, 9_000.0).await;
    until_sleeping(shop, &[9_000.0]).await;
    later(shop, "m1", 5_000.0).await;
    until_sleeping(shop, &[5_000.0]).await;
    wake(shop, 5_000.0);
    until_ready(shop, "counter", 1).await;
    until_sleeping(shop, &[4_000.0]).await;
    later(shop, "m2", 86_400_000.0).await;
    wake(shop, 4_000.0);
    until_ready(shop, "counter", 2).await;
    until_sleeping(shop, &[60_000.0]).await;
}

/// P68.
async fn l16_close_leaves_no_timer_of_what_is_delayed(shop: &Shop) {
    later(shop, "m1", 5_000.0).await;
    until_sleeping(shop, &[5_000.0]).await;
    shop.broker.close().await;
    until_sleeping(shop, &[]).await;
    let tab = shop.another_tab().await;
    until_sleeping(shop, &[5_000.0]).await;
    tab.close().await;
}

/// P72.
async fn l08_a_page_that_is_back_is_not_waited_for(shop: &Shop) {
    later(shop, "m1", 5_000.0).await;
    until_sleeping(shop, &[5_000.0]).await;
    shop.clock().advance(6_000.0);
    shop.broker.wake();
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    until_ready(shop, "counter", 1).await;
    shop.clock().advance(-3_600_000.0);
    later(shop, "m2", 1_000.0).await;
    // It looks whether anything is over by the clock that was set back.
    until_sleeping(shop, &[10.0]).await;
    wake(shop, 10.0);
    until_sleeping(shop, &[990.0]).await;
    shop.clock().advance(3_600_000.0);
    shop.timer().fire();
    until_ready(shop, "counter", 2).await;
}

async fn l08_a_page_that_is_back_hears_of_what_nobody_told(shop: &Shop) {
    let tab = shop.another_tab().await;
    // It tells nobody: as if it had died between the commit and the hint.
    let options = EnqueueOptions { delay: Some(Delay::After(1_000.0)), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", "m1");
    tab.enqueue_later("counter", vec![message], options).await.expect("it can be enqueued");
    tab.close().await;
    until_sleeping(shop, &[]).await;
    shop.broker.wake();
    until_sleeping(shop, &[10.0]).await;
    shop.timer().fire();
    until_sleeping(shop, &[1_000.0]).await;
    wake(shop, 1_000.0);
    until_ready(shop, "counter", 1).await;
}
