//! What a broker counts, and what the database holds (D36).

use pocket_broker::definitions::{Definitions, PriorityRule, ServiceChange, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{Broker, BrokerStats, Counts, EndOptions, ReceiveOptions};

use super::super::support::shop::{Shop, begin, dialog_of, receive, refused, send, top_of};

mount! {
    d36_counters_are_of_this_broker_since_it_opened,
    d36_gauges_are_of_the_database,
    d36_nothing_of_a_rollback_is_counted_but_the_rollback,
    d36_stats_cost_the_same_at_any_length,
    d36_the_oldest_ready_message_is_found_behind_old_turns,
    d36_the_oldest_ready_message_of_any_priority,
    d36_what_waits_for_its_transmission,
    d36_what_is_tried_again_is_counted_once,
    d36_an_empty_database_has_nothing,
    d13_dropped_messages_are_counted,
}

const START: f64 = 1_700_000_000_000.0;

async fn stats(broker: &Broker) -> BrokerStats {
    broker.stats().await.expect("it can be looked at")
}

/// Endpoints in the states SO, CO, DI, DO and ER; there are no others.
async fn states(shop: &Shop) -> [u64; 5] {
    let [so, si, co, di, out, er, cd] = stats(&shop.broker).await.gauges.open_conversations;
    assert_eq!((si, cd), (0, 0));
    [so, co, di, out, er]
}

async fn d36_an_empty_database_has_nothing(shop: &Shop) {
    assert_eq!(stats(&shop.broker).await, BrokerStats::default());
}

async fn d36_counters_are_of_this_broker_since_it_opened(shop: &Shop) {
    let second = shop.broker.another();
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..3).await;
    let transaction = second.begin().expect("the broker is open");
    let options = ReceiveOptions { top: Some(2.0), ..ReceiveOptions::default() };
    transaction.receive("kitchen", options).await.expect("the queue is on");
    send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
    assert_eq!(stats(&second).await.counts, Counts::default(), "nothing is committed yet");
    transaction.commit().await.expect("it commits");
    shop.receive_top("kitchen", 1).await;
    shop.timer_of(&dialog.target, 500.0, "").await;
    shop.pass(500.0).await;
    second.end_conversation(&dialog.initiator, EndOptions::default()).await.expect("it can be ended");

    let (own, other) = (stats(&shop.broker).await.counts, stats(&second).await.counts);
    // A timer fires for everybody in the context.
    let timer = Counts { timers: 1, enqueued: 1, ..Counts::default() };
    assert_eq!(own, Counts { sends: 4, receives: 1, enqueued: 5, ..timer });
    assert_eq!(other, Counts { sends: 1, receives: 2, enqueued: 3, ..timer }, "a Confirm and an EndDialog");
    let tab = shop.another_tab().await;
    assert_eq!(stats(&tab).await.counts, Counts::default(), "another tab has done nothing");
    assert_eq!(stats(&tab).await.gauges, stats(&shop.broker).await.gauges, "the database is one");
    tab.close().await;
    refused(tab.stats().await, ErrorCode::Closed);
    second.close().await;
}

async fn d36_nothing_of_a_rollback_is_counted_but_the_rollback(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let before = stats(&shop.broker).await.counts;
    let (rolled_back, dropped, idle) = (begin(shop), begin(shop), begin(shop));
    receive(&rolled_back, "kitchen").await;
    send(shop, &rolled_back, &dialog.target, "Confirm", "r1").await.expect("it may send");
    rolled_back.rollback();
    rolled_back.rollback();
    send(shop, &dropped, &dialog.target, "Confirm", "r1").await.expect("it may send");
    drop(dropped);
    assert_eq!(receive(&idle, "counter").await, [""; 0]);
    idle.rollback();
    assert_eq!(stats(&shop.broker).await.counts, Counts { rollbacks: before.rollbacks + 2, ..before });

    let refusal = begin(shop);
    send(shop, &refusal, &dialog.initiator, "Note", "m2").await.expect("it may send");
    shop.clean_up(&dialog.initiator).await;
    let before = stats(&shop.broker).await.counts;
    refused(refusal.commit().await, ErrorCode::ConversationNotFound);
    assert_eq!(stats(&shop.broker).await.counts, Counts { rollbacks: before.rollbacks + 1, ..before });
}

async fn d36_what_is_tried_again_is_counted_once(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let before = stats(&shop.broker).await.counts;
    let passing = Error::new(ErrorCode::StorageUnavailable, "Not now.");
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(passing));
    shop.send(&dialog.initiator, "Note", "m2").await;
    let after = stats(&shop.broker).await.counts;
    assert_eq!(after, Counts { sends: before.sends + 1, enqueued: before.enqueued + 1, ..before });
    // Not what is refused, alone or beside others.
    refused(shop.try_send(&dialog.initiator, "Confirm", "x").await, ErrorCode::WrongDirection);
    assert_eq!(stats(&shop.broker).await.counts, after);
}

async fn d36_gauges_are_of_the_database(shop: &Shop) {
    let begun = shop.begin().await;
    assert_eq!(states(shop).await, [1, 0, 0, 0, 0]);
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    assert_eq!(states(shop).await, [0, 2, 0, 0, 0]);
    let failing = shop.order("m2").await;
    shop.fail(&failing.initiator).await;
    shop.end(&dialog.initiator).await;
    assert_eq!(states(shop).await, [0, 0, 1, 0, 1]);
    let waiting = shop.order("m3").await;
    shop.switch("kitchen", Status::Off).await;
    shop.end(&waiting.initiator).await;
    assert_eq!(states(shop).await, [0, 1, 1, 1, 1]);
    // They go where their service goes.
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Kitchen", change).await.expect("it can be altered");
    assert_eq!(states(shop).await, [0, 0, 2, 0, 1], "the EndDialog came in, and the sender went");
    shop.broker.drop_service("Kitchen").await.expect("it can be dropped");
    assert_eq!(states(shop).await, [0, 0, 0, 0, 0]);
}

async fn d36_the_oldest_ready_message_of_any_priority(shop: &Shop) {
    let rule = PriorityRule { contract: None, local_service: Some("Kitchen".into()), remote_service: None, level: 9.0 };
    let oldest = async || stats(&shop.broker).await.gauges.oldest_ready;
    let early = shop.order("early").await;
    shop.broker
        .define(Definitions { priorities: vec![("vip".into(), rule)], ..Definitions::default() })
        .await
        .expect("the rule is right");
    shop.clock().advance(10.0);
    let late = shop.order("late").await;
    assert_eq!(oldest().await, Some(START), "though a higher priority comes first");
    shop.receive_from("kitchen", &early.target).await;
    assert_eq!(oldest().await, Some(START + 10.0));
    shop.clock().advance(10.0);
    shop.send(&late.target, "Confirm", "in another queue").await;
    shop.clock().advance(10.0);
    shop.send(&late.initiator, "Note", "m2").await;
    shop.receive_top("kitchen", 1).await;
    assert_eq!(oldest().await, Some(START + 20.0), "of all queues");
    shop.receive("counter").await;
    assert_eq!(oldest().await, Some(START + 30.0));
    shop.timer_of(&late.target, 5.0, "").await;
    shop.pass(5.0).await;
    assert_eq!(oldest().await, Some(START + 30.0), "a DialogTimer is read first, and came last");
    shop.receive_top("kitchen", 1).await;
    shop.receive("kitchen").await;
    assert_eq!(oldest().await, None);
}

/// The key of a turn says how long its side has waited at least; it is corrected when a reader looks.
async fn d36_the_oldest_ready_message_is_found_behind_old_turns(shop: &Shop) {
    let first = shop.order("a0").await;
    shop.clock().advance(10.0);
    let second = shop.order("b0").await;
    shop.clock().advance(10.0);
    shop.send(&first.initiator, "Note", "a1").await;
    let named = |handle: &str| ReceiveOptions { conversation: Some(handle.into()), ..top_of(1) };
    shop.broker.receive("kitchen", named(&first.target), None).await.expect("the queue is on");
    assert_eq!(stats(&shop.broker).await.gauges.oldest_ready, Some(START + 10.0), "b0, not a1");
    shop.broker.receive("kitchen", named(&second.target), None).await.expect("the queue is on");
    assert_eq!(stats(&shop.broker).await.gauges.oldest_ready, Some(START + 20.0));
}

async fn d36_what_waits_for_its_transmission(shop: &Shop) {
    let gauges = async || {
        let gauges = stats(&shop.broker).await.gauges;
        let rows = shop.transmission().await;
        assert_eq!(gauges.transmission_queued, rows.len() as u64, "as many as the transmission queue shows");
        let oldest = rows.iter().map(|row| row.enqueue_time).reduce(f64::min);
        assert_eq!(gauges.oldest_transmission, oldest);
        (gauges.transmission_queued, oldest.map(|oldest| oldest - START))
    };
    assert_eq!(gauges().await, (0, None));
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    assert_eq!(gauges().await, (0, None), "what is in the queue stays in it");
    shop.clock().advance(10.0);
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&far.handle, "Order", "m1").await;
    shop.clock().advance(10.0);
    shop.send_many(&dialog.initiator, "Note", 0..3).await;
    assert_eq!(gauges().await, (4, Some(10.0)));
    shop.end(&far.handle).await;
    assert_eq!(gauges().await, (5, Some(10.0)));
    shop.clean_up(&far.handle).await;
    assert_eq!(gauges().await, (3, Some(20.0)));
    shop.timer_of(&dialog.target, 5.0, "").await;
    shop.pass(5.0).await;
    assert_eq!(gauges().await, (4, Some(20.0)), "a timer waits outside, too");
    shop.fail(&dialog.initiator).await;
    assert_eq!(gauges().await, (2, Some(25.0)), "the timer and the Error");
    shop.switch("kitchen", Status::On).await;
    assert_eq!(gauges().await, (0, None));
}

async fn d36_stats_cost_the_same_at_any_length(shop: &Shop) {
    let mut costs = Vec::new();
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    for _ in 0..2 {
        shop.faults.reset_counts();
        stats(&shop.broker).await;
        costs.push((shop.faults.reads_of(StoreName::Messages), shop.faults.reads()));
        for _ in 0..20 {
            let other = shop.order("m1").await;
            shop.send_many(&other.initiator, "Note", 0..300).await;
            shop.send_many(&other.target, "Confirm", 0..300).await;
        }
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].0, 2, "a run for each queue with something ready");
}

async fn d13_dropped_messages_are_counted(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.clean_up(&dialog.initiator).await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send_many(&far.handle, "Note", 0..3).await;
    shop.fail(&far.handle).await;
    shop.broker.drop_service("Kitchen").await.expect("it can be dropped");
    let told: usize = shop.notices().iter().map(|notice| notice.dropped.len()).sum();
    let counts = stats(&shop.broker).await.counts;
    assert_eq!((told, counts.dropped), (3, 6), "r1; three at once; m1 and the Error about r1");
}
