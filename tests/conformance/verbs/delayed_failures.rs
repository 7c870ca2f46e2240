//! Delayed messages that can't go where they were to go.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::Error;
use pocket_broker::ids::Decoded;
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{FailedFilter, Next, RowFilter};

use super::super::support::shop::Shop;
use super::super::support::transact;
use super::delayed::{at, count, enqueue_later, later, waiting};

mount! {
    l09_a_conversation_that_was_ended_is_no_destination,
    l09_a_queue_that_is_off_is_no_failure,
    l09_a_queue_that_was_dropped_is_no_destination,
    l09_a_sender_whose_queue_is_off_waits,
    l09_what_stands_in_its_way_is_no_reason_to_stop,
    l10_what_failed_says_how_and_is_sent_again,
    l11_what_can_not_be_read_goes_to_the_error_queue,
    l11_what_led_to_it_goes_too,
    l11_large_ones_that_were_moved_go_whole,
}

/// P44.
async fn l09_a_conversation_that_was_ended_is_no_destination(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let id = later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    shop.end(&dialog.target).await;
    shop.notices();
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (0, 0));
    let told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.failed).collect();
    assert_eq!((told.len(), &told[0].message_id, &told[0].queue), (1, &id, &dialog.initiator));
    let failed = shop.messages("error", RowFilter::default()).await.remove(0);
    assert_eq!((&failed.message_id, failed.failed_queue.as_deref()), (&id, Some(&*dialog.initiator)));
    shop.assert_sound().await;
    let back = shop.broker.return_to_source(&FailedFilter::default()).await.expect("it can be asked for");
    assert_eq!((back, shop.rows("error").await), (0, vec!["1 Note 0 m2".to_owned()]), "it is still ended");
    shop.end(&dialog.initiator).await;
    let back = shop.broker.return_to_source(&FailedFilter::default()).await.expect("it can be asked for");
    assert_eq!(back, 0);
}

async fn l09_a_queue_that_is_off_is_no_failure(shop: &Shop) {
    let dialog = shop.order("m1").await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "m3", at(1_000.0)).await;
    shop.switch("kitchen", Status::Off).await;
    assert_eq!((shop.pass(1_000.0).await, shop.rows("error").await.len()), (2, 0));
    assert_eq!(shop.transmission().await.len(), 2);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2", "1 DEFAULT 0 m3"]);
}

/// P44, P53.
async fn l09_a_queue_that_was_dropped_is_no_destination(shop: &Shop) {
    let queue = pocket_broker::definitions::QueueOptions::default;
    let jobs = || pocket_broker::definitions::Definitions {
        queues: vec![("jobs".into(), queue())],
        ..pocket_broker::definitions::Definitions::default()
    };
    shop.broker.define(jobs()).await.expect("it can be defined");
    enqueue_later(shop, "jobs", "m1", at(1_000.0)).await;
    shop.broker.drop_queue("jobs").await.expect("nothing is in it");
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (0, 0));
    let failed = shop.messages("error", RowFilter::default()).await.remove(0);
    assert_eq!(failed.failed_queue.as_deref(), Some("jobs"));
    shop.broker.define(jobs()).await.expect("it can be defined again");
    assert_eq!(shop.broker.return_to_source(&FailedFilter::default()).await.expect("it is there again"), 1);
    assert_eq!(shop.receive("jobs").await, ["0 DEFAULT 0 m1"]);
}

/// P46.
async fn l09_a_sender_whose_queue_is_off_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.retain("counter", true).await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    let message = shop.message_of("Note", large);
    let to = vec![Rc::clone(&dialog.initiator)];
    shop.broker.send_later(to, vec![message], at(1_000.0), None).await.expect("it can be sent later");
    shop.switch("counter", Status::Off).await;
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (0, 2), "it can't be kept now");
    shop.assert_sound().await;
    assert_eq!(shop.broker.next_delayed().await.expect("it can be read"), Some(1_700_000_002_000.0));
    assert_eq!((shop.pass(1_000.0).await, shop.pass(1_999.0).await, shop.pass(1.0).await), (0, 0, 0), "1 s, then 2 s");
    assert_eq!(waiting(&shop.broker).await[0].time, 1_700_000_001_000.0, "it was to come then");
    shop.switch("counter", Status::On).await;
    assert_eq!((shop.pass(4_000.0).await, count(shop).await), (2, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2", "0 Note 2 large"]);
}

/// P47.
async fn l09_what_stands_in_its_way_is_no_reason_to_stop(shop: &Shop) {
    let first = shop.order("m1").await;
    let second = shop.order("m2").await;
    later(shop, &first.initiator, "m3", at(1_000.0)).await;
    later(shop, &second.initiator, "m4", at(1_000.0)).await;
    spoil(shop, &first.initiator, false).await;
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    while tab.poll().await.is_err() {}
    assert!(shop.rows_of("kitchen", &second.target).await.contains(&"1 Note 1 m4".to_owned()));
    assert_eq!(shop.records_in(StoreName::Delayed).await, 0, "nothing is tried for ever");
    let failed = shop.messages("error", RowFilter::default()).await;
    assert!(failed.iter().any(|message| message.body.text().as_deref() == Some("m3")), "it is not lost");
    tab.close().await;
}

/// P48.
async fn l10_what_failed_says_how_and_is_sent_again(shop: &Shop) {
    let begun = shop.begin().await;
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    let id = later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    shop.fail(&dialog.target).await;
    shop.notices();
    shop.pass(1_000.0).await;
    let failed = shop.messages("error", RowFilter::default()).await.remove(0);
    assert_eq!((&failed.message_id, failed.attempts), (&id, 0), "in the error queue it was not tried");
    assert_eq!(failed.failed_queue.as_deref(), Some(&*dialog.initiator));
    let told = shop.notices().into_iter().flat_map(|notice| notice.failed).next().expect("it was told");
    assert_eq!((&*told.error.name, told.error.code.as_deref()), ("BrokerError", Some("InvalidState")));
    assert!(told.error.message.contains(&*dialog.initiator), "{}", told.error.message);
    assert_eq!((told.recovered.attempts, told.recovered.next), (1, Next::ErrorQueue));
    let discarded = shop.broker.discard_failed(&FailedFilter { message_id: Some(id), ..FailedFilter::default() }).await;
    assert_eq!(discarded.expect("it can be deleted"), 1);
}

/// P52.
async fn l11_what_can_not_be_read_goes_to_the_error_queue(shop: &Shop) {
    enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "m2", at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "m3", at(1_000.0)).await;
    let keys = transact(&*shop.store, &[StoreName::Delayed], Mode::ReadWrite, async |tx| {
        let keys = tx.get_keys(StoreName::Delayed, &Range::all(), None).await?;
        tx.put(StoreName::Delayed, keys[1].clone(), Value::from("garbage"));
        Ok::<_, Error>(keys)
    })
    .await
    .expect("it can be written");
    assert_eq!((keys.len(), shop.pass(1_000.0).await, count(shop).await), (3, 2, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m1", "0 DEFAULT 1 m3"], "it holds up nobody");
    let failed = shop.messages("error", RowFilter::default()).await.remove(0);
    let raw = failed.body.field("record").text();
    assert_eq!(raw.as_deref(), Some("garbage"));
}

/// Makes the record of a conversation unreadable, but for its head if that is to be kept.
pub(super) async fn spoil(shop: &Shop, handle: &str, keeps_head: bool) {
    let number = Decoded::parse(handle).expect("a handle").side.conversation;
    let key = Key::Number(f64::from(u32::try_from(number).expect("a small number")));
    transact(&*shop.store, &[StoreName::Conversations], Mode::ReadWrite, async |tx| {
        let record = tx.get(StoreName::Conversations, &key).await?.expect("it is there");
        let spoilt = if keeps_head { record.with_item(13, Value::from("garbage")) } else { Value::from("garbage") };
        tx.put(StoreName::Conversations, key.clone(), spoilt);
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be written");
}

/// P52.
async fn l11_what_led_to_it_goes_too(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    let transaction = super::super::support::shop::begin(shop);
    let to = vec![Rc::clone(&dialog.initiator)];
    let sent = transaction.send_later(to, vec![shop.message_of("Note", large)], at(1_000.0)).await;
    sent.expect("it can be sent later");
    transaction.commit().await.expect("it commits");
    later(shop, &dialog.initiator, "m3", at(2_000.0)).await;
    transact(&*shop.store, &[StoreName::Delayed], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Delayed, &Range::all(), Some(1)).await?.remove(0);
        let record = tx.get(StoreName::Delayed, &key).await?.expect("it is there");
        tx.put(StoreName::Delayed, key, record.with_item(4, Value::null()));
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be written");
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (0, 1));
    shop.assert_sound().await;
    let failed = shop.messages("error", RowFilter::default()).await.remove(0);
    assert_eq!(failed.body.field("bodies").item(0).text().as_deref(), Some("large"));
    assert_eq!(shop.end(&dialog.initiator).await.discarded, 1, "the other one");
}

/// P52.
async fn l11_large_ones_that_were_moved_go_whole(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let large = |text: &str| {
        let body = Body { value: Value::from(text).into(), packing: 0, size: 70_000.0 };
        vec![shop.message_of("Note", body)]
    };
    let to = vec![Rc::clone(&dialog.initiator)];
    let sent = shop.broker.send_later(to, large("sent"), at(5_000.0), None).await.expect("it can be sent later");
    let options = pocket_broker::EnqueueOptions { delay: Some(at(5_000.0)), ..Default::default() };
    let put = shop.broker.enqueue_later("kitchen", large("put"), options).await.expect("it can be enqueued later");
    for id in [sent[0], put[0]] {
        let id = pocket_broker::ids::text(id);
        assert!(shop.broker.reschedule(&id, 1_700_000_001_000.0).await.expect("it can be moved"));
    }
    transact(&*shop.store, &[StoreName::Delayed], Mode::ReadWrite, async |tx| {
        for key in tx.get_keys(StoreName::Delayed, &Range::all(), None).await? {
            let record = tx.get(StoreName::Delayed, &key).await?.expect("it is there");
            tx.put(StoreName::Delayed, key, record.with_item(0, Value::null()));
        }
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be written");
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (0, 0));
    let failed = shop.messages("error", RowFilter::default()).await;
    let mut bodies: Vec<_> = failed.iter().filter_map(|row| row.body.field("bodies").item(0).text()).collect();
    bodies.sort();
    assert_eq!(bodies, ["put", "sent"]);
}
