//! Messages that are delivered later.

use std::rc::Rc;

use pocket_broker::body::{Body, Part, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::ids::text;
use pocket_broker::store::StoreName;
use pocket_broker::{Broker, Delay, DelayedFilter, DelayedMessage, EnqueueOptions, Extent, OutgoingMessage, RowFilter};

use super::super::support::shop::{Shop, begin, keyed, refused};

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
    l17_what_is_not_due_is_not_read,
    a_large_body_waits_too,
    an_id_is_noted_when_it_is_enqueued,
    headers_priority_and_key_survive,
    many_are_dispatched_in_pages,
    time_may_pass_while_it_is_read_what_is_due,
}

pub(super) fn at(ms: f64) -> Delay {
    Delay::At(1_700_000_000_000.0 + ms)
}

pub(super) async fn later(shop: &Shop, handle: &str, body: &str, delay: Delay) -> Rc<str> {
    let message = shop.message("Note", body);
    let ids =
        shop.broker.send_later(vec![handle.into()], vec![message], delay, None).await.expect("it can be sent later");
    text(ids[0])
}

pub(super) async fn enqueue_later(shop: &Shop, queue: &str, body: &str, delay: Delay) -> Rc<str> {
    let options = EnqueueOptions { delay: Some(delay), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", body);
    let ids = shop.broker.enqueue_later(queue, vec![message], options).await.expect("it can be enqueued later");
    text(ids[0])
}

pub(super) async fn waiting(broker: &Broker) -> Vec<DelayedMessage> {
    let page = broker.delayed(&DelayedFilter::default(), None, Extent::All).await.expect("it can be looked at");
    page.rows
}

pub(super) async fn bodies(shop: &Shop) -> Vec<String> {
    waiting(&shop.broker).await.iter().map(|message| message.body.value.value().text().unwrap_or_default()).collect()
}

pub(super) async fn count(shop: &Shop) -> u64 {
    let count = shop.broker.count_delayed().await.expect("it can be counted");
    assert_eq!(count, waiting(&shop.broker).await.len() as u64, "select gives them all");
    assert_eq!(shop.broker.stats().await.expect("it can be counted").gauges.delayed, count);
    count
}

/// P27.
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

/// P7.
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

/// P15, P31.
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

/// P30.
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

/// P17, P18.
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

/// P8.
async fn l02_fractions_are_rounded_up(shop: &Shop) {
    enqueue_later(shop, "kitchen", "m1", Delay::After(0.25)).await;
    enqueue_later(shop, "kitchen", "m2", at(0.5)).await;
    assert_eq!((shop.pass(0.5).await, shop.pass(0.5).await), (0, 2));
}

/// P24, P25, P26, P29.
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

/// P21.
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

async fn l17_what_is_not_due_is_not_read(shop: &Shop) {
    for number in 0..50 {
        enqueue_later(shop, "kitchen", &number.to_string(), at(100_000.0)).await;
    }
    let tab = shop.another_tab().await;
    shop.faults.reset_counts();
    assert_eq!(tab.next_delayed().await.expect("it can be read"), Some(1_700_000_100_000.0));
    assert_eq!(shop.faults.reads_of(StoreName::Delayed), 2, "the first key, and whether something lies in the hop");
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

/// P37.
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

/// P38.
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
    let now = EnqueueOptions { delay: None, ..options.clone() };
    assert_eq!(shop.try_enqueue("kitchen", "m1", now.clone()).await.expect("it can be asked for"), Some(first[0]));
    assert_eq!(shop.rows("kitchen").await.len(), 1);

    let other = EnqueueOptions { dedupe_id: Some("other".into()), ..options.clone() };
    let message = shop.message("DEFAULT", "m2");
    let ids = shop.broker.enqueue_later("kitchen", vec![message], other.clone()).await.expect("it can be enqueued");
    assert!(shop.broker.cancel(&text(ids[0])).await.expect("it can be cancelled"));
    shop.assert_sound().await;
    let other = EnqueueOptions { delay: None, ..other };
    let seen = shop.try_enqueue("kitchen", "m2", other).await.expect("it can be enqueued");
    assert_eq!(seen, None, "what is never delivered keeps nobody from asking for it again");
}

/// P33, P34.
async fn headers_priority_and_key_survive(shop: &Shop) {
    let headers = Some(Part::from(Value::object(vec![("trace", Value::from("t1"))])));
    let message = OutgoingMessage { headers, ..shop.message("DEFAULT", "m1") };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), priority: 8.0, ..keyed("table 4") };
    shop.broker.enqueue_later("kitchen", vec![message], options).await.expect("it can be enqueued");
    let seen = waiting(&shop.broker).await.remove(0);
    let property = |name: &str| seen.property(name).map(|value| &**value);
    assert_eq!((property("key"), property("priority"), &*seen.destination), (Some("table 4"), Some("8"), "kitchen"));
    assert_eq!((property("messageType"), seen.number_of_retries), (Some("DEFAULT"), 0));
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

/// P16.
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

async fn time_may_pass_while_it_is_read_what_is_due(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let messages = (0..300).map(|number| shop.message("Note", &number.to_string())).collect();
    let to = vec![Rc::clone(&dialog.initiator)];
    shop.broker.send_later(to, messages, at(0.0), None).await.expect("they can be sent later");
    enqueue_later(shop, "kitchen", "m2", at(0.0)).await;
    let tab = shop.tab_in_time().await;
    shop.faults.reset_counts();
    assert_eq!(tab.poll().await.expect("it can be done"), 301);
    assert!(shop.faults.reads_of(StoreName::Delayed) <= 9, "each commit has read them once");
    tab.close().await;
}
