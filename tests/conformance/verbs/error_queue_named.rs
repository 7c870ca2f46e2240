//! The error queue that the application names: `delayedDelivery.errorQueue`.

use pocket_broker::definitions::{Definitions, QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::{
    Broker, DelayedSettings, EnqueueOptions, Extent, FailedFilter, Failure, FailureKind, Message, Next, Notice,
    Recoverability, RowFilter,
};

use super::super::support::elsewhere::settle;
use super::super::support::shop::{Shop, refused, top_of};
use super::delayed::at;
use super::recoverability::failure;

mount! {
    l10_a_named_error_queue_takes_what_fails,
    l10_a_store_elsewhere_has_the_named_error_queue_too,
    l10_all_error_queues_are_seen_and_emptied,
    l10_many_pages_of_two_error_queues,
    l10_without_the_named_queue_nothing_is_lost,
    l10_the_named_queue_can_be_off,
    l10_the_named_queue_stays,
    d31_what_fails_in_a_named_error_queue_stays_there,
    d31_what_is_no_failure_is_not_counted_as_one,
}

fn settings() -> DelayedSettings {
    DelayedSettings { error_queue: "trouble".into(), ..DelayedSettings::default() }
}

async fn queue(shop: &Shop, name: &str) {
    let queues = vec![(name.into(), QueueOptions::default())];
    shop.broker.define(Definitions { queues, ..Definitions::default() }).await.expect("it can be defined");
}

async fn open(shop: &Shop) -> Broker {
    queue(shop, "trouble").await;
    shop.tab_of(settings()).await
}

/// A delayed message fails, since its queue is gone when it is due.
async fn fails_later(shop: &Shop, tab: &Broker, body: &str) {
    queue(shop, "jobs").await;
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    tab.enqueue_later("jobs", vec![shop.message("DEFAULT", body)], options).await.expect("it can be enqueued later");
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    shop.clock().advance(1_000.0);
    assert_eq!(tab.poll().await.expect("what is due can be done"), 0);
}

/// A handler fails to the last attempt. Gives what comes next.
async fn handler_fails(tab: &Broker, queue: &str) -> Next {
    let transaction = tab.begin().expect("it is open");
    let rows = transaction.receive(queue, top_of(1)).await.expect("the queue is on");
    let message = rows.first().map(|rows| rows.messages()).and_then(|mut rows| rows.pop()).expect("there is one");
    let failure = Failure { message_id: message.message_id, queue: queue.into(), ..failure(FailureKind::Ordinary) };
    let policy = Recoverability { immediate_retries: 0, delayed_retries: 0, ..Recoverability::default() };
    transaction.recover(failure, policy).await.expect("it can be stored").expect("it counts").next
}

async fn failed(broker: &Broker) -> Vec<Message> {
    let page = broker.select_failed(&RowFilter::default(), None, Extent::All).await.expect("it can be read");
    page.rows.iter().flat_map(|rows| rows.messages()).collect()
}

fn bodies(messages: &[Message]) -> Vec<String> {
    let mut bodies: Vec<_> = messages.iter().filter_map(|message| message.body.text()).collect();
    bodies.sort();
    bodies
}

async fn count(broker: &Broker) -> u64 {
    broker.stats().await.expect("it can be counted").gauges.failed
}

fn critical(notices: &[Notice]) -> Vec<String> {
    let told = notices.iter().flat_map(|notice| &notice.critical);
    told.map(|critical| format!("{} {}", critical.source, critical.error.code.as_deref().unwrap_or_default())).collect()
}

async fn l10_a_named_error_queue_takes_what_fails(shop: &Shop) {
    let tab = open(shop).await;
    fails_later(shop, &tab, "m1").await;
    let row = shop.messages("trouble", RowFilter::default()).await.remove(0);
    assert_eq!((row.body.text().as_deref(), row.failed_queue.as_deref()), (Some("m1"), Some("jobs")));
    shop.enqueue("house", "m2").await;
    assert_eq!(handler_fails(&tab, "house").await, Next::ErrorQueue);
    assert_eq!(shop.rows("trouble").await, ["1 DEFAULT 0 m1", "1 DEFAULT 0 m2"]);
    assert_eq!((shop.rows("error").await.len(), critical(&shop.notices())), (0, vec![]));
    assert_eq!((count(&tab).await, count(&shop.broker).await), (2, 2));
    shop.assert_sound().await;
    queue(shop, "jobs").await;
    let back = tab.return_to_source(&FailedFilter::default()).await.expect("it can be done");
    assert_eq!((back, shop.rows("jobs").await.len(), shop.rows("house").await.len()), (2, 1, 1));
    assert_eq!(count(&tab).await, 0);
    tab.close().await;
}

async fn l10_a_store_elsewhere_has_the_named_error_queue_too(shop: &Shop) {
    queue(shop, "trouble").await;
    let tab = shop.tab_with(settings(), &shop.elsewhere()).await;
    settle().await;
    queue(shop, "jobs").await;
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    tab.enqueue_later("jobs", vec![shop.message("DEFAULT", "m1")], options).await.expect("it can be enqueued later");
    settle().await;
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    shop.clock().advance(1_000.0);
    tab.poll().await.expect("what is due can be done");
    settle().await;
    assert_eq!((shop.rows("trouble").await, shop.rows("error").await.len()), (vec!["1 DEFAULT 0 m1".to_owned()], 0));
    tab.close().await;
}

async fn l10_all_error_queues_are_seen_and_emptied(shop: &Shop) {
    let tab = open(shop).await;
    for (broker, body) in [(&tab, "m1"), (&shop.broker, "m2"), (&tab, "m3"), (&shop.broker, "m4")] {
        fails_later(shop, broker, body).await;
    }
    assert_eq!((shop.rows("trouble").await.len(), shop.rows("error").await.len()), (2, 2));
    for broker in [&tab, &shop.broker] {
        assert_eq!(
            (bodies(&failed(broker).await), count(broker).await),
            (["m1", "m2", "m3", "m4"].map(str::to_owned).to_vec(), 4)
        );
    }
    let of = |limit: f64| FailedFilter { limit: Some(limit), ..FailedFilter::default() };
    assert_eq!(shop.broker.discard_failed(&of(3.0)).await.expect("it can be done"), 3);
    assert_eq!(count(&tab).await, 1);
    let left = failed(&shop.broker).await.remove(0);
    let this = FailedFilter { message_id: Some(left.message_id), ..FailedFilter::default() };
    queue(shop, "jobs").await;
    assert_eq!(shop.broker.return_to_source(&this).await.expect("it can be done"), 1);
    assert_eq!((failed(&tab).await.len(), shop.receive("jobs").await.len()), (0, 1));
    tab.close().await;
}

async fn l10_many_pages_of_two_error_queues(shop: &Shop) {
    let tab = open(shop).await;
    queue(shop, "jobs").await;
    for (broker, size) in [(&tab, 300), (&shop.broker, 300)] {
        let messages = (0..size).map(|number: u32| shop.message("DEFAULT", &number.to_string())).collect();
        let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
        broker.enqueue_later("jobs", messages, options).await.expect("they can be enqueued later");
        shop.broker.drop_queue("jobs").await.expect("nothing is in it");
        shop.clock().advance(1_000.0);
        broker.poll().await.expect("what is due can be done");
        queue(shop, "jobs").await;
    }
    let (mut rows, mut position) = (0, None);
    loop {
        let page = shop.broker.select_failed(&RowFilter::default(), position.as_deref(), Extent::Page).await;
        let page = page.expect("it can be read");
        rows += page.rows.iter().map(|rows| rows.count).sum::<usize>();
        position = page.next;
        if position.is_none() {
            break;
        }
    }
    assert_eq!((rows, count(&shop.broker).await), (600, 600));
    let back = shop.broker.return_to_source(&FailedFilter { limit: Some(500.0), ..FailedFilter::default() }).await;
    assert_eq!((back.expect("it can be done"), count(&tab).await), (500, 100));
    let back = tab.return_to_source(&FailedFilter::default()).await.expect("it can be done");
    assert_eq!((back, count(&tab).await, shop.queue("jobs").await.ready), (100, 0, 600));
    tab.close().await;
}

async fn l10_without_the_named_queue_nothing_is_lost(shop: &Shop) {
    let tab = open(shop).await;
    shop.broker.drop_queue("trouble").await.expect("nothing is in it");
    shop.notices();
    fails_later(shop, &tab, "m1").await;
    assert_eq!(shop.rows("error").await, ["1 DEFAULT 0 m1"]);
    assert_eq!(critical(&shop.notices()), ["recovery QueueNotFound"], "it is told");
    shop.enqueue("house", "m2").await;
    assert_eq!(handler_fails(&tab, "house").await, Next::ErrorQueue);
    assert_eq!((shop.rows("error").await.len(), critical(&shop.notices()).len()), (2, 1));
    queue(shop, "trouble").await;
    fails_later(shop, &tab, "m3").await;
    assert_eq!((shop.rows("trouble").await, critical(&shop.notices()).len()), (vec!["1 DEFAULT 0 m3".to_owned()], 0));
    assert_eq!(bodies(&failed(&tab).await), ["m1", "m2", "m3"]);
    tab.close().await;
}

async fn l10_the_named_queue_can_be_off(shop: &Shop) {
    let tab = open(shop).await;
    shop.switch("trouble", Status::Off).await;
    fails_later(shop, &tab, "m1").await;
    assert_eq!(
        (shop.rows("error").await.len(), failed(&tab).await.len(), count(&tab).await),
        (0, 0, 0),
        "it waits outside"
    );
    assert_eq!(shop.transmission().await.len(), 1);
    shop.switch("trouble", Status::On).await;
    assert_eq!((bodies(&failed(&shop.broker).await), count(&tab).await), (vec!["m1".to_owned()], 1));
    tab.close().await;
}

async fn l10_the_named_queue_stays(shop: &Shop) {
    let tab = open(shop).await;
    refused(tab.drop_queue("trouble").await, ErrorCode::InvalidArgument);
    fails_later(shop, &tab, "m1").await;
    refused(shop.broker.drop_queue("trouble").await, ErrorCode::InUse);
    assert_eq!(shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be done"), 1);
    shop.broker.drop_queue("trouble").await.expect("nothing is in it");
    tab.close().await;
}

async fn d31_what_fails_in_a_named_error_queue_stays_there(shop: &Shop) {
    let tab = open(shop).await;
    fails_later(shop, &tab, "m1").await;
    assert_eq!(handler_fails(&tab, "trouble").await, Next::Delayed);
    shop.enqueue("trouble", "m2").await;
    assert_eq!(handler_fails(&tab, "trouble").await, Next::Delayed, "one that was sent there, too");
    fails_later(shop, &shop.broker, "m3").await;
    assert_eq!(handler_fails(&tab, "error").await, Next::Delayed, "nor does one go from the one to the other");
    fails_later(shop, &tab, "m4").await;
    assert_eq!(handler_fails(&shop.broker, "trouble").await, Next::Delayed);
    assert_eq!((shop.rows("trouble").await.len(), shop.rows("error").await.len()), (3, 1));
    tab.close().await;
}

async fn d31_what_is_no_failure_is_not_counted_as_one(shop: &Shop) {
    let tab = open(shop).await;
    shop.enqueue("trouble", "m1").await;
    shop.enqueue("error", "m2").await;
    assert_eq!(count(&tab).await, 0);
    fails_later(shop, &tab, "m3").await;
    assert_eq!(
        (count(&tab).await, shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be done")),
        (1, 1)
    );
    assert_eq!((shop.rows("trouble").await.len(), shop.rows("error").await.len()), (1, 1));
    tab.close().await;
}
