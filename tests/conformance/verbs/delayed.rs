//! Messages that are delivered later.

use std::rc::Rc;

use pocket_broker::body::{Body, Part, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::ids::{Decoded, text};
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{
    BeginDialog, Broker, Delay, DelayedFilter, DelayedMessage, EnqueueOptions, Extent, FailedFilter, Next,
    OutgoingMessage, RowFilter,
};

use super::super::support::shop::{Shop, begin, keyed, refused, to_kitchen};
use super::super::support::transact;

mount! {
    l01_a_delay_that_is_none_is_refused,
    l01_a_dialog_sends_later,
    l01_a_queue_gets_it_later,
    l01_nothing_is_stored_by_a_rollback,
    l02_a_delay_counts_from_the_commit,
    l02_equal_times_keep_the_order_of_storing,
    l02_fractions_are_rounded_up,
    l02_zero_and_the_past_are_due_at_once,
    l02_it_takes_its_number_when_it_is_due,
    l03_two_tabs_dispatch_once,
    l09_a_conversation_that_was_ended_is_no_destination,
    l09_a_queue_that_is_off_is_no_failure,
    l09_a_queue_that_was_dropped_is_no_destination,
    l09_a_sender_whose_queue_is_off_waits,
    l09_what_stands_in_its_way_is_no_reason_to_stop,
    l10_what_failed_says_how_and_is_sent_again,
    l11_what_can_not_be_read_goes_to_the_error_queue,
    l14_cancel_and_dispatch_exclude_each_other,
    l14_cancel_in_a_transaction,
    l14_reschedule_moves_it,
    l14_select_count_and_next,
    l17_what_is_not_due_is_not_read,
    l18_a_delay_beyond_the_lifetime_is_refused,
    l18_end_takes_them_along,
    l18_it_goes_before_the_end_of_the_lifetime,
    l18_what_is_under_way_is_known_when_the_conversation_was_mended,
    a_large_body_waits_too,
    an_id_is_noted_when_it_is_enqueued,
    headers_priority_and_key_survive,
    many_are_dispatched_in_pages,
}

fn at(ms: f64) -> Delay {
    Delay::At(1_700_000_000_000.0 + ms)
}

async fn later(shop: &Shop, handle: &str, body: &str, delay: Delay) -> Rc<str> {
    let message = shop.message("Note", body);
    let ids =
        shop.broker.send_later(vec![handle.into()], vec![message], delay, None).await.expect("it can be sent later");
    text(ids[0])
}

async fn enqueue_later(shop: &Shop, queue: &str, body: &str, delay: Delay) -> Rc<str> {
    let options = EnqueueOptions { delay: Some(delay), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", body);
    let ids = shop.broker.enqueue_later(queue, vec![message], options).await.expect("it can be enqueued later");
    text(ids[0])
}

async fn waiting(broker: &Broker) -> Vec<DelayedMessage> {
    let page = broker.delayed(&DelayedFilter::default(), None, Extent::All).await.expect("it can be looked at");
    page.rows
}

async fn bodies(shop: &Shop) -> Vec<String> {
    waiting(&shop.broker).await.iter().map(|message| message.body.value.value().text().unwrap_or_default()).collect()
}

async fn count(shop: &Shop) -> u64 {
    let count = shop.broker.count_delayed().await.expect("it can be counted");
    assert_eq!(count, shop.records_in(StoreName::Delayed).await);
    assert_eq!(shop.broker.stats().await.expect("it can be counted").gauges.delayed, count);
    count
}

async fn l01_a_dialog_sends_later(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let id = later(shop, &dialog.initiator, "m2", Delay::After(5_000.0)).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert!(shop.notices().iter().any(|notice| notice.delayed && notice.due == Some(1_700_000_005_000.0)));
    shop.assert_sound().await;
    assert_eq!(shop.pass(4_999.0).await, 0);
    assert_eq!((shop.pass(1.0).await, count(shop).await), (1, 0));
    let message = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!((message.message_id, message.message_sequence_number), (id, 1));
    assert_eq!(message.message_enqueue_time, 1_700_000_005_000.0);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"]);
    assert_eq!(shop.pass(60_000.0).await, 0, "once");
    assert_eq!(shop.records_in(StoreName::Delayed).await, 0);
    assert_eq!(shop.broker.stats().await.expect("it can be counted").counts.delayed_dispatched, 1);
}

async fn l01_a_queue_gets_it_later(shop: &Shop) {
    let id = enqueue_later(shop, "kitchen", "m1", Delay::After(1_000.0)).await;
    assert_eq!((shop.rows("kitchen").await.len(), count(shop).await), (0, 1));
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0, "there is no lane yet");
    assert_eq!(shop.records_in(StoreName::Members).await, 0, "its id says where it is");
    assert_eq!((shop.pass(999.0).await, shop.pass(1.0).await), (0, 1));
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await.remove(0).message_id, id);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m1"]);
}

async fn l01_a_delay_that_is_none_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for delay in [
        Delay::After(-1.0),
        Delay::After(f64::NAN),
        Delay::After(f64::INFINITY),
        Delay::After(8.64e15),
        Delay::At(f64::NAN),
        Delay::At(f64::INFINITY),
        Delay::At(8.64e15 + 2.0),
    ] {
        let message = || vec![shop.message("Note", "x")];
        let sent = shop.broker.send_later(vec![Rc::clone(&dialog.initiator)], message(), delay, None).await;
        refused(sent, ErrorCode::InvalidArgument);
        let options = EnqueueOptions { delay: Some(delay), ..EnqueueOptions::default() };
        refused(shop.broker.enqueue_later("kitchen", message(), options).await, ErrorCode::InvalidArgument);
    }
    assert_eq!(count(shop).await, 0);
    for delay in [0.0, 1.0, 3_600_000.0, 2_160_000_000.0, 2_592_000_000.0, 4_294_972_296.0, 315_576_000_000.0] {
        enqueue_later(shop, "kitchen", &delay.to_string(), Delay::After(delay)).await;
    }
    let year_9999 = enqueue_later(shop, "kitchen", "9999", Delay::At(253_402_300_799_999.0)).await;
    let last = enqueue_later(shop, "kitchen", "last", Delay::At(8.64e15)).await;
    assert_eq!(shop.pass(4_294_972_296.0).await, 6);
    assert_eq!(bodies(shop).await, ["315576000000", "9999", "last"]);
    assert!(shop.broker.cancel(&year_9999).await.expect("it can be cancelled"));
    assert!(shop.broker.cancel(&last).await.expect("it can be cancelled"));
    assert_eq!(count(shop).await, 1);
}

async fn l01_nothing_is_stored_by_a_rollback(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    let to = vec![Rc::clone(&dialog.initiator)];
    let delay = Delay::After(1_000.0);
    transaction.send_later(to.clone(), vec![shop.message("Note", "m2")], delay).await.expect("it can be sent later");
    let options = EnqueueOptions { delay: Some(delay), ..keyed("k") };
    transaction.enqueue_later("kitchen", vec![shop.message("DEFAULT", "m3")], options.clone()).await.expect("it can");
    assert_eq!(count(shop).await, 0, "not before the commit");
    transaction.rollback();
    assert_eq!((shop.pass(2_000.0).await, count(shop).await), (0, 0));

    let transaction = begin(shop);
    let ids = transaction.send_later(to, vec![shop.message("Note", "m2")], delay).await.expect("it can be sent later");
    let more =
        transaction.enqueue_later("kitchen", vec![shop.message("DEFAULT", "m3")], options).await.expect("it can");
    transaction.commit().await.expect("it commits");
    let found: Vec<_> = waiting(&shop.broker).await.iter().map(|message| Rc::clone(&message.message_id)).collect();
    assert_eq!(found, [text(ids[0]), text(more[0])]);
    shop.assert_sound().await;
    assert_eq!(shop.pass(1_000.0).await, 2);
    shop.assert_sound().await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2", "1 DEFAULT 0 m3"]);
}

async fn l02_a_delay_counts_from_the_commit(shop: &Shop) {
    let transaction = begin(shop);
    let after = EnqueueOptions { delay: Some(Delay::After(1_000.0)), ..EnqueueOptions::default() };
    let then = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    transaction.enqueue_later("kitchen", vec![shop.message("DEFAULT", "after")], after).await.expect("it can");
    transaction.enqueue_later("kitchen", vec![shop.message("DEFAULT", "then")], then).await.expect("it can");
    shop.clock().advance(700.0);
    transaction.commit().await.expect("it commits");
    assert_eq!(bodies(shop).await, ["then", "after"]);
    assert_eq!((shop.pass(300.0).await, shop.pass(699.0).await, shop.pass(1.0).await), (1, 0, 1));
}

async fn l02_equal_times_keep_the_order_of_storing(shop: &Shop) {
    for body in ["3", "1", "2"] {
        enqueue_later(shop, "kitchen", body, at(1_000.0)).await;
    }
    let messages = ["5", "4"].map(|body| shop.message("DEFAULT", body)).into();
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    shop.broker.enqueue_later("kitchen", messages, options).await.expect("they can be enqueued");
    enqueue_later(shop, "kitchen", "0", at(999.0)).await;
    assert_eq!(shop.pass(1_000.0).await, 6);
    assert_eq!(
        shop.receive("kitchen").await,
        ["0 DEFAULT 0 0", "0 DEFAULT 1 3", "0 DEFAULT 2 1", "0 DEFAULT 3 2", "0 DEFAULT 4 5", "0 DEFAULT 5 4"]
    );
}

async fn l02_fractions_are_rounded_up(shop: &Shop) {
    enqueue_later(shop, "kitchen", "m1", Delay::After(0.25)).await;
    enqueue_later(shop, "kitchen", "m2", at(0.5)).await;
    assert_eq!((shop.pass(0.5).await, shop.pass(0.5).await), (0, 2));
}

async fn l02_zero_and_the_past_are_due_at_once(shop: &Shop) {
    enqueue_later(shop, "kitchen", "zero", Delay::After(0.0)).await;
    enqueue_later(shop, "kitchen", "past", at(-5_000.0)).await;
    enqueue_later(shop, "kitchen", "before 1970", Delay::At(-7.0)).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0], "through the same path");
    assert_eq!(shop.pass(0.0).await, 3);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 before 1970", "0 DEFAULT 1 past", "0 DEFAULT 2 zero"]);
}

async fn l02_it_takes_its_number_when_it_is_due(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.retain("counter", true).await;
    later(shop, &dialog.initiator, "late", at(1_000.0)).await;
    shop.send(&dialog.initiator, "Note", "soon").await;
    assert_eq!(shop.rows("counter").await, ["3 Note 1 soon"]);
    shop.pass(1_000.0).await;
    assert_eq!(shop.rows("counter").await, ["3 Note 1 soon", "3 Note 2 late"], "a copy is kept from then on");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 soon", "0 Note 2 late"]);
}

async fn l03_two_tabs_dispatch_once(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for number in 0..20 {
        later(shop, &dialog.initiator, &number.to_string(), at(1_000.0)).await;
    }
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    let (one, other) = futures_util::future::join(shop.broker.poll(), tab.poll()).await;
    assert_eq!(one.expect("it can be done") + other.expect("it can be done"), 20);
    assert_eq!(shop.receive("kitchen").await.len(), 21);
    tab.close().await;
}

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

async fn l14_cancel_and_dispatch_exclude_each_other(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let one = later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    let other = enqueue_later(shop, "kitchen", "m3", at(1_000.0)).await;
    let (first, second) = futures_util::future::join(shop.broker.cancel(&one), shop.broker.cancel(&one)).await;
    assert_eq!((first.expect("it can"), second.expect("it can")), (true, false), "once");
    shop.assert_sound().await;
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    let (polled, cancelled) = futures_util::future::join(tab.poll(), shop.broker.cancel(&other)).await;
    let (polled, cancelled) = (polled.expect("it can be done"), cancelled.expect("it can be done"));
    assert_eq!(polled + u64::from(cancelled), 1);
    assert_eq!(shop.rows("kitchen").await.len() as u64, polled);
    assert!(!shop.broker.cancel(&other).await.expect("it can be asked"));
    assert!(!shop.broker.cancel("6ba7b810-9dad-11d1-80b4-00c04fd430c8").await.expect("it can be asked"));
    refused(shop.broker.cancel("m2").await, ErrorCode::InvalidArgument);
    assert_eq!(count(shop).await, 0);
    tab.close().await;
}

async fn l14_cancel_in_a_transaction(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let id = later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    let transaction = begin(shop);
    assert!(transaction.cancel(&id).await.expect("it can be cancelled"));
    assert!(!transaction.cancel(&id).await.expect("it can be asked"), "it has done so");
    assert_eq!(count(shop).await, 1, "not before the commit");
    transaction.rollback();

    let transaction = begin(shop);
    assert!(transaction.cancel(&id).await.expect("it can be cancelled"));
    let own =
        transaction.send_later(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", "m3")], at(9_000.0)).await;
    let own = text(own.expect("it can be sent")[0]);
    assert!(transaction.reschedule(&own, 1_700_000_000_500.0).await.expect("its own, too"));
    let gone =
        transaction.send_later(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", "m4")], at(9_000.0)).await;
    assert!(transaction.cancel(&text(gone.expect("it can be sent")[0])).await.expect("its own, too"));
    transaction.commit().await.expect("it commits");
    assert_eq!(bodies(shop).await, ["m3"]);
    shop.assert_sound().await;
    assert_eq!(shop.pass(500.0).await, 1);

    let id = enqueue_later(shop, "kitchen", "m5", at(1_000.0)).await;
    for cancels in [true, false] {
        let id = if cancels { Rc::clone(&id) } else { enqueue_later(shop, "kitchen", "m6", at(1_500.0)).await };
        let transaction = begin(shop);
        if cancels {
            assert!(transaction.cancel(&id).await.expect("it can be cancelled"));
        } else {
            assert!(transaction.reschedule(&id, 1_700_000_009_000.0).await.expect("it can be moved"));
        }
        transaction
            .enqueue("kitchen", vec![shop.message("DEFAULT", "instead")], EnqueueOptions::default())
            .await
            .expect("it can");
        shop.pass(1_000.0).await;
        let error = refused(transaction.commit().await, ErrorCode::Conflict);
        assert!(
            error.details().iter().any(|(name, value)| *name == "messageId" && value.text().as_deref() == Some(&*id))
        );
    }
    assert!(!shop.rows("kitchen").await.iter().any(|row| row.contains("instead")), "all or nothing");
}

async fn l14_reschedule_moves_it(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let one = later(shop, &dialog.initiator, "m2", at(5_000.0)).await;
    shop.notices();
    assert!(shop.broker.reschedule(&one, 1_700_000_001_000.0).await.expect("it can be moved"));
    assert!(shop.notices().iter().any(|notice| notice.due == Some(1_700_000_001_000.0)), "pollers hear of it");
    shop.assert_sound().await;
    assert!(shop.broker.reschedule(&one, 1_700_000_002_000.0).await.expect("it can be moved again"));
    shop.assert_sound().await;
    assert_eq!((shop.pass(1_999.0).await, shop.pass(1.0).await, shop.pass(9_000.0).await), (0, 1, 0));
    assert_eq!(shop.messages("kitchen", RowFilter::default()).await.remove(0).message_id, one);
    assert!(!shop.broker.reschedule(&one, 1_700_000_099_000.0).await.expect("it can be asked"));
    refused(shop.broker.reschedule(&one, f64::NAN).await, ErrorCode::InvalidArgument);
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    let ids = shop.broker.send_later(
        vec![Rc::clone(&dialog.initiator)],
        vec![shop.message_of("Note", large)],
        at(99_000.0),
        None,
    );
    let id = text(ids.await.expect("it can be sent later")[0]);
    assert!(shop.broker.reschedule(&id, 1_700_000_050_000.0).await.expect("it can be moved"));
    shop.assert_sound().await;
    assert_eq!(bodies(shop).await, ["large"]);
    assert!(shop.broker.cancel(&id).await.expect("it can be cancelled"));
    assert_eq!((count(shop).await, shop.records_in(StoreName::Bodies).await), (0, 0));
}

async fn l14_select_count_and_next(shop: &Shop) {
    let dialog = shop.order("m1").await;
    assert_eq!(shop.broker.next_delayed().await.expect("it can be read"), None);
    later(shop, &dialog.initiator, "m3", at(3_000.0)).await;
    enqueue_later(shop, "kitchen", "m1", at(1_000.0)).await;
    enqueue_later(shop, "counter", "m2", at(2_000.0)).await;
    assert_eq!((bodies(shop).await, count(shop).await), (vec!["m1".into(), "m2".into(), "m3".into()], 3));
    assert_eq!(shop.broker.next_delayed().await.expect("it can be read"), Some(1_700_000_001_000.0));
    let select = async |filter: DelayedFilter| {
        let page = shop.broker.delayed(&filter, None, Extent::All).await.expect("it can be looked at");
        page.rows.iter().map(|message| message.body.value.value().text().unwrap_or_default()).collect::<Vec<_>>()
    };
    let to = |destination: &str| DelayedFilter { destination: Some(destination.into()), ..DelayedFilter::default() };
    assert_eq!(select(to("counter")).await, ["m2"]);
    assert_eq!(select(to(&dialog.initiator)).await, ["m3"]);
    let before = DelayedFilter { before: Some(1_700_000_003_000.0), ..DelayedFilter::default() };
    assert_eq!(select(before).await, ["m1", "m2"]);
    assert_eq!(select(DelayedFilter { limit: Some(1.0), ..DelayedFilter::default() }).await, ["m1"]);
    assert_eq!(select(DelayedFilter { limit: Some(0.0), ..DelayedFilter::default() }).await, [""; 0]);
    let negative = DelayedFilter { limit: Some(-1.0), ..DelayedFilter::default() };
    refused(shop.broker.delayed(&negative, None, Extent::All).await, ErrorCode::InvalidArgument);
}

async fn l18_a_delay_beyond_the_lifetime_is_refused(shop: &Shop) {
    let options = BeginDialog { lifetime: Some(10_000.0), ..to_kitchen() };
    let begun = shop.broker.begin_dialog(options).await.expect("it can be begun");
    let send =
        |delay| shop.broker.send_later(vec![Rc::clone(&begun.handle)], vec![shop.message("Order", "x")], delay, None);
    refused(send(Delay::After(10_001.0)).await, ErrorCode::TimerBeyondLifetime);
    refused(send(at(10_001.0)).await, ErrorCode::TimerBeyondLifetime);
    let ids = send(at(10_000.0)).await.expect("just in time");
    let moved = shop.broker.reschedule(&text(ids[0]), 1_700_000_010_001.0).await;
    refused(moved, ErrorCode::TimerBeyondLifetime);
    assert_eq!(count(shop).await, 1);
}

async fn l18_end_takes_them_along(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    for number in 0..3 {
        later(shop, &dialog.initiator, &number.to_string(), at(1_000.0)).await;
    }
    later(shop, &dialog.target, "of the other side", at(1_000.0)).await;
    let transaction = begin(shop);
    let to = vec![Rc::clone(&dialog.initiator)];
    transaction.send_later(to.clone(), vec![shop.message("Note", "4")], at(1_000.0)).await.expect("it can be sent");
    transaction.commit().await.expect("it commits");
    let large = Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 };
    shop.broker.send_later(to.clone(), vec![shop.message_of("Note", large)], at(1_000.0), None).await.expect("it can");
    assert_eq!(count(shop).await, 6);

    let transaction = begin(shop);
    transaction.send_later(to, vec![shop.message("Note", "5")], at(1_000.0)).await.expect("it can be sent");
    let ended = transaction.end_conversation(&dialog.initiator, Default::default()).await.expect("it can be ended");
    assert_eq!(ended.discarded, 6);
    transaction.commit().await.expect("it commits");
    assert_eq!((count(shop).await, shop.records_in(StoreName::Bodies).await), (1, 0));
    shop.assert_sound().await;
    shop.end(&dialog.target).await;
    assert_eq!((shop.pass(1_000.0).await, count(shop).await, shop.rows("error").await.len()), (0, 0, 0));
    assert_eq!(shop.records_in(StoreName::Members).await, 0);
}

async fn a_large_body_waits_too(shop: &Shop) {
    let large = Body { value: Value::from("large").into(), packing: 3, size: 20_000_000.0 };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    for _ in 0..3 {
        let message = shop.message_of("DEFAULT", large.clone());
        shop.broker.enqueue_later("kitchen", vec![message], options.clone()).await.expect("it can be enqueued");
    }
    shop.assert_sound().await;
    assert_eq!((bodies(shop).await.len(), shop.records_in(StoreName::Bodies).await), (3, 3));
    assert_eq!(shop.pass(1_000.0).await, 3, "in commits of their own");
    let message = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!((message.body.text().as_deref(), message.packing), (Some("large"), 3.0));
    assert_eq!(shop.receive("kitchen").await.len(), 3);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn an_id_is_noted_when_it_is_enqueued(shop: &Shop) {
    let options =
        EnqueueOptions { delay: Some(at(1_000.0)), dedupe_id: Some("once".into()), ..EnqueueOptions::default() };
    let enqueue = async || {
        let message = shop.message("DEFAULT", "m1");
        shop.broker.enqueue_later("kitchen", vec![message], options.clone()).await.expect("it can be enqueued")
    };
    let first = enqueue().await;
    assert_eq!((enqueue().await, count(shop).await), (first.clone(), 1));
    shop.pass(1_000.0).await;
    assert_eq!(enqueue().await, first, "it has been delivered meanwhile");
    let now = EnqueueOptions { delay: None, ..options };
    assert_eq!(shop.try_enqueue("kitchen", "m1", now).await.expect("it can be asked for"), Some(first[0]));
    assert_eq!(shop.rows("kitchen").await.len(), 1);
}

async fn headers_priority_and_key_survive(shop: &Shop) {
    let headers = Some(Part::from(Value::object(vec![("trace", Value::from("t1"))])));
    let message = OutgoingMessage { headers, ..shop.message("DEFAULT", "m1") };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), priority: 8.0, ..keyed("table 4") };
    shop.broker.enqueue_later("kitchen", vec![message], options).await.expect("it can be enqueued");
    let seen = waiting(&shop.broker).await.remove(0);
    assert_eq!((seen.key.as_deref(), seen.priority, &*seen.destination), (Some("table 4"), Some(8), "kitchen"));
    assert_eq!((&*seen.message_type, seen.retries), ("DEFAULT", 0));
    shop.pass(1_000.0).await;
    let message = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!((message.key.as_deref(), message.priority), (Some("table 4"), 8));
    assert_eq!(message.headers.field("trace").text().as_deref(), Some("t1"));

    let loose = EnqueueOptions { delay: Some(at(2_000.0)), ordered: false, ..EnqueueOptions::default() };
    let messages = ["a", "b", "c"].map(|body| shop.message("DEFAULT", body)).into();
    shop.broker.enqueue_later("counter", messages, loose).await.expect("they can be enqueued");
    assert_eq!(shop.pass(2_000.0).await, 3);
    assert_eq!(shop.rows("counter").await.len(), 3);
}

async fn many_are_dispatched_in_pages(shop: &Shop) {
    let messages = (0..600).map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    shop.broker.enqueue_later("kitchen", messages, options).await.expect("they can be enqueued");
    enqueue_later(shop, "kitchen", "tomorrow", at(86_400_000.0)).await;
    assert_eq!(shop.pass(1_000.0).await, 600);
    let rows = shop.receive("kitchen").await;
    let expected: Vec<String> = (0..600).map(|number| format!("0 DEFAULT {number} {number}")).collect();
    assert_eq!((rows, bodies(shop).await), (expected, vec!["tomorrow".to_owned()]));
}

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

async fn l17_what_is_not_due_is_not_read(shop: &Shop) {
    for number in 0..50 {
        enqueue_later(shop, "kitchen", &number.to_string(), at(100_000.0)).await;
    }
    let tab = shop.another_tab().await;
    shop.faults.reset_counts();
    assert_eq!(tab.next_delayed().await.expect("it can be read"), Some(1_700_000_100_000.0));
    assert_eq!(shop.faults.reads_of(StoreName::Delayed), 1);
    enqueue_later(shop, "kitchen", "due", at(0.0)).await;
    shop.faults.reset_counts();
    assert_eq!(shop.broker.poll().await.expect("it can be done"), 1);
    assert_eq!(
        shop.faults.reads_of(StoreName::Delayed),
        3,
        "the keys and the records of what is due, and the next key"
    );
    tab.close().await;
}

async fn l18_it_goes_before_the_end_of_the_lifetime(shop: &Shop) {
    let options = BeginDialog { lifetime: Some(10_000.0), ..to_kitchen() };
    let begun = shop.broker.begin_dialog(options).await.expect("it can be begun");
    let messages = (0..300).map(|number| shop.message("Order", &number.to_string())).collect();
    let to = vec![Rc::clone(&begun.handle)];
    shop.broker.send_later(to, messages, Delay::After(9_000.0), None).await.expect("they can be sent later");
    // Nobody was there at either time.
    assert_eq!(shop.pass(60_000.0).await, 302, "the messages, and an Error for each side");
    assert_eq!((shop.rows("error").await.len(), shop.rows("kitchen").await.len()), (0, 301));
}

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

/// Makes the record of a conversation unreadable, but for its head if that is to be kept.
async fn spoil(shop: &Shop, handle: &str, keeps_head: bool) {
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

async fn l18_what_is_under_way_is_known_when_the_conversation_was_mended(shop: &Shop) {
    let dialog = shop.order("m1").await;
    later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    later(shop, &dialog.initiator, "m3", at(1_000.0)).await;
    spoil(shop, &dialog.initiator, true).await;
    let tab = shop.another_tab().await;
    let ended = tab.end_conversation(&dialog.initiator, Default::default()).await.expect("it can be ended");
    assert_eq!((ended.discarded, count(shop).await), (3, 0), "what was delayed, and the Error");
    assert_eq!(shop.pass(1_000.0).await, 0);
    tab.close().await;
}
