//! Delayed messages that are stored together are one record: how they lie, are looked at, and go.

use std::rc::Rc;

use pocket_broker::body::{Body, Part, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::Error;
use pocket_broker::ids::text;
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{Delay, DelayedFilter, EnqueueOptions, Extent, FailedFilter, OutgoingMessage, RowFilter};

use super::super::support::shop::{Shop, begin};
use super::super::support::transact;
use super::delayed::{at, bodies, count, enqueue_later};
use super::delayed_failures::spoil;

mount! {
    l02_runs_and_single_messages_keep_the_order_of_storing,
    l03_what_is_stored_together_is_one_record,
    l03_what_is_stored_by_several_calls_at_once_is_one_record,
    l03_a_run_has_64_kib_at_most,
    l03_what_has_no_order_lies_together_by_its_lanes,
    l03_large_bodies_lie_apart,
    l03_what_differs_from_row_to_row_survives,
    l03_a_commit_takes_some_thousands,
    l09_a_run_waits_for_its_senders_queue,
    l09_a_conversation_that_can_not_be_read_refuses_its_whole_run,
    l09_a_body_that_is_missing_is_the_trouble_of_its_message,
    l11_a_run_that_can_not_be_read_is_one_row_of_the_error_queue,
    l11_a_run_that_says_nothing_of_itself_leaves_no_trace,
    l14_pages_may_end_within_a_run,
    l17_runs_that_are_due_are_read_once,
}

/// Numbered messages on a conversation, in one call.
pub(super) async fn many_later(
    shop: &Shop,
    handle: &Rc<str>,
    numbers: std::ops::Range<usize>,
    delay: Delay,
) -> Vec<Rc<str>> {
    let messages = numbers.map(|number| shop.message("Note", &number.to_string())).collect();
    let ids = shop.broker.send_later(vec![Rc::clone(handle)], messages, delay, None).await;
    ids.expect("they can be sent later").into_iter().map(text).collect()
}

/// The same for a queue.
pub(super) async fn many_enqueued_later(
    shop: &Shop,
    queue: &str,
    numbers: std::ops::Range<usize>,
    delay: Delay,
) -> Vec<Rc<str>> {
    let messages = numbers.map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let options = EnqueueOptions { delay: Some(delay), ..EnqueueOptions::default() };
    let ids = shop.broker.enqueue_later(queue, messages, options).await.expect("they can be enqueued later");
    ids.into_iter().map(text).collect()
}

/// The numbers of how many messages each record of the delayed store has.
pub(super) async fn runs(shop: &Shop) -> Vec<u32> {
    let keys = transact(&*shop.store, &[StoreName::Delayed], Mode::ReadOnly, async |tx| {
        tx.get_keys(StoreName::Delayed, &Range::all(), None).await
    });
    let count = |key: &Key| match key {
        Key::List(parts) => match parts.get(2) {
            Some(Key::Number(count)) => *count as u32,
            _ => 0,
        },
        _ => 0,
    };
    keys.await.expect("it can be read").iter().map(count).collect()
}

pub(super) fn numbers(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

fn large(text: &str) -> Body {
    Body { value: Value::from(text).into(), packing: 0, size: 70_000.0 }
}

async fn l02_runs_and_single_messages_keep_the_order_of_storing(shop: &Shop) {
    enqueue_later(shop, "kitchen", "0", at(1_000.0)).await;
    many_enqueued_later(shop, "kitchen", 1..4, at(1_000.0)).await;
    enqueue_later(shop, "kitchen", "4", at(1_000.0)).await;
    let moved = many_enqueued_later(shop, "kitchen", 5..8, at(1_000.0)).await;
    many_enqueued_later(shop, "kitchen", 8..10, at(1_000.0)).await;
    assert!(shop.broker.reschedule(&moved[1], 1_700_000_001_000.0).await.expect("it can be moved"));
    many_enqueued_later(shop, "kitchen", 10..12, at(1_000.0)).await;
    assert_eq!(bodies(shop).await, ["0", "1", "2", "3", "4", "5", "7", "8", "9", "6", "10", "11"]);
    shop.assert_sound().await;
    assert_eq!(shop.pass(1_000.0).await, 12);
    let received = shop.receive("kitchen").await;
    let received: Vec<_> = received.iter().map(|row| row.rsplit(' ').next().unwrap_or_default()).collect();
    assert_eq!(received, ["0", "1", "2", "3", "4", "5", "7", "8", "9", "6", "10", "11"]);
}

async fn l03_what_is_stored_together_is_one_record(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let members = shop.records_in(StoreName::Members).await;
    let ids = many_later(shop, &dialog.initiator, 0..600, at(1_000.0)).await;
    assert_eq!((runs(shop).await, count(shop).await), (vec![256, 256, 88], 600));
    assert_eq!(shop.records_in(StoreName::Members).await - members, 3, "its side knows of each");
    shop.assert_sound().await;
    assert_eq!((shop.pass(999.0).await, shop.pass(1.0).await), (0, 600));
    assert_eq!((runs(shop).await.len(), shop.records_in(StoreName::Members).await), (0, members));
    let seen = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(seen.iter().map(|message| Rc::clone(&message.message_id)).collect::<Vec<_>>(), ids);
    let expected: Vec<String> = (0..600).map(|number| format!("0 Note {} {number}", number + 1)).collect();
    assert_eq!(shop.receive("kitchen").await, expected);
}

async fn l03_what_is_stored_by_several_calls_at_once_is_one_record(shop: &Shop) {
    let all = (0..10).map(|number| {
        let body = number.to_string();
        async move { enqueue_later(shop, if number == 7 { "counter" } else { "kitchen" }, &body, at(1_000.0)).await }
    });
    futures_util::future::join_all(all).await;
    assert_eq!(runs(shop).await, [7, 1, 2]);
    assert_eq!(bodies(shop).await, numbers(0..10));
    assert_eq!(shop.pass(1_000.0).await, 10);
}

async fn l03_a_run_has_64_kib_at_most(shop: &Shop) {
    let sizes = [30_000.0, 30_000.0, 30_000.0, 5_536.0, 60_000.0, 5_536.0, 1.0];
    let message = |size| {
        let value = Value::from(size).into();
        shop.message_of("DEFAULT", Body { value, packing: 0, size })
    };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    let messages = sizes.map(message).into();
    shop.broker.enqueue_later("kitchen", messages, options).await.expect("they can be enqueued");
    assert_eq!(runs(shop).await, [2, 2, 2, 1]);
    shop.assert_sound().await;
    assert_eq!(shop.pass(1_000.0).await, 7);
    let seen = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(seen.iter().filter_map(|message| message.body.number()).collect::<Vec<_>>(), sizes);
}

async fn l03_what_has_no_order_lies_together_by_its_lanes(shop: &Shop) {
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ordered: false, ..EnqueueOptions::default() };
    let messages = (0..200).map(|number| shop.message("DEFAULT", &number.to_string())).collect();
    let ids = shop.broker.enqueue_later("kitchen", messages, options).await.expect("they can be enqueued");
    assert!(runs(shop).await.len() <= 16, "a lane each");
    let page = shop.broker.delayed(&DelayedFilter::default(), None, Extent::All).await.expect("it can be looked at");
    let body_of = |id: Rc<str>| {
        let message = page.rows.iter().find(|message| message.message_id == id);
        message.and_then(|message| message.body.value.value().text()).unwrap_or_default()
    };
    let bodies: Vec<String> = ids.iter().map(|id| body_of(text(*id))).collect();
    assert_eq!(bodies, numbers(0..200), "the ids are in the order of the messages");
    assert_eq!((shop.pass(1_000.0).await, shop.rows("kitchen").await.len()), (200, 200));
}

async fn l03_large_bodies_lie_apart(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let messages = ["a", "b", "c", "d", "e"].map(|body| match body {
        "b" | "d" => shop.message_of("Note", large(body)),
        _ => shop.message("Note", body),
    });
    let to = vec![Rc::clone(&dialog.initiator)];
    shop.broker.send_later(to, messages.into(), at(1_000.0), None).await.expect("they can be sent later");
    assert_eq!((runs(shop).await, shop.records_in(StoreName::Bodies).await), (vec![5], 2));
    assert_eq!(bodies(shop).await, ["a", "b", "c", "d", "e"]);
    shop.assert_sound().await;
    assert_eq!(shop.pass(1_000.0).await, 5);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 a", "0 Note 2 b", "0 Note 3 c", "0 Note 4 d", "0 Note 5 e"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn l03_what_differs_from_row_to_row_survives(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let trace = |text: &str| Some(Part::from(Value::object(vec![("trace", Value::from(text))])));
    let packed = Body { packing: 3, ..Body::small(Value::from("packed")) };
    let messages = vec![
        OutgoingMessage { headers: trace("t1"), ..shop.message("Note", "a") },
        shop.message("Order", "b"),
        OutgoingMessage { headers: trace("t3"), ..shop.message_of("Note", packed) },
    ];
    let to = vec![Rc::clone(&dialog.initiator)];
    shop.broker.send_later(to, messages, at(1_000.0), None).await.expect("they can be sent later");
    assert_eq!(runs(shop).await, [3]);
    let page = shop.broker.delayed(&DelayedFilter::default(), None, Extent::All).await.expect("it can be looked at");
    let headers = |message: &pocket_broker::DelayedMessage| {
        message.headers.as_ref().map(|headers| headers.value().field("trace").text().unwrap_or_default())
    };
    assert_eq!(page.rows.iter().map(headers).collect::<Vec<_>>(), [Some("t1".into()), None, Some("t3".into())]);
    assert_eq!(
        page.rows.iter().filter_map(|message| message.property("messageType")).map(|name| &**name).collect::<Vec<_>>(),
        ["Note", "Order", "Note"]
    );
    shop.pass(1_000.0).await;
    let seen = shop.messages("kitchen", RowFilter::default()).await;
    let seen: Vec<_> = seen
        .iter()
        .map(|message| (&*message.message_type_name, message.packing, message.headers.field("trace").text()))
        .collect();
    assert_eq!(seen, [("Note", 0.0, Some("t1".into())), ("Order", 0.0, None), ("Note", 3.0, Some("t3".into()))]);
}

async fn l03_a_commit_takes_some_thousands(shop: &Shop) {
    many_enqueued_later(shop, "kitchen", 0..5_000, at(1_000.0)).await;
    shop.notices();
    shop.clock().advance(1_000.0);
    assert_eq!(shop.broker.poll().await.expect("what is due can be done"), 5_000);
    let commits = shop.notices().iter().filter(|notice| notice.delayed).count();
    assert_eq!(commits, 2, "4 096, and the rest");
    let expected: Vec<String> = (0..5_000).map(|number| format!("0 DEFAULT {number} {number}")).collect();
    assert_eq!(shop.receive("kitchen").await, expected);
}

async fn l09_a_run_waits_for_its_senders_queue(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.retain("counter", true).await;
    let mut messages: Vec<_> = (0..20).map(|number| shop.message("Note", &number.to_string())).collect();
    messages[3].body = large("3");
    let to = vec![Rc::clone(&dialog.initiator)];
    let ids = shop.broker.send_later(to, messages, at(1_000.0), None).await.expect("they can be sent later");
    shop.switch("counter", Status::Off).await;
    assert_eq!((shop.pass(1_000.0).await, runs(shop).await), (0, vec![20]), "they wait together");
    shop.assert_sound().await;
    assert!(shop.broker.cancel(&text(ids[5])).await.expect("it can be cancelled"));
    assert!(shop.broker.cancel(&text(ids[19])).await.expect("it can be cancelled"));
    shop.assert_sound().await;
    assert_eq!((shop.pass(1_000.0).await, runs(shop).await), (0, vec![18]), "and once more");
    shop.assert_sound().await;
    shop.switch("counter", Status::On).await;
    assert_eq!((shop.pass(2_000.0).await, count(shop).await), (18, 0));
    let received = shop.receive("kitchen").await;
    let received: Vec<_> = received.iter().filter_map(|row| row.rsplit(' ').next()).collect();
    assert_eq!(received, numbers((0..19).filter(|number| *number != 5)));
}

async fn l09_a_conversation_that_can_not_be_read_refuses_its_whole_run(shop: &Shop) {
    let first = shop.order("m1").await;
    let second = shop.order("m2").await;
    many_later(shop, &first.initiator, 0..5, at(1_000.0)).await;
    many_later(shop, &second.initiator, 5..10, at(1_000.0)).await;
    spoil(shop, &first.initiator, false).await;
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    while tab.poll().await.is_err() {}
    assert_eq!(shop.rows_of("kitchen", &second.target).await.len(), 6);
    assert_eq!(count(shop).await, 0, "nothing is tried for ever");
    let failed = shop.messages("error", RowFilter::default()).await;
    let failed: Vec<_> = failed.iter().filter_map(|message| message.body.text()).collect();
    assert_eq!(failed, numbers(0..5), "none is lost");
    tab.close().await;
}

async fn l09_a_body_that_is_missing_is_the_trouble_of_its_message(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let messages = ["a", "b", "c"].map(|body| match body {
        "b" => shop.message_of("Note", large(body)),
        _ => shop.message("Note", body),
    });
    let to = vec![Rc::clone(&dialog.initiator)];
    shop.broker.send_later(to, messages.into(), at(1_000.0), None).await.expect("they can be sent later");
    transact(&*shop.store, &[StoreName::Bodies], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Bodies, &Range::all(), None).await?.remove(0);
        tx.delete(StoreName::Bodies, key);
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be broken");
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (2, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 a", "0 Note 2 c"]);
    assert_eq!(shop.rows("error").await.len(), 1);
}

/// Replaces the first record of the delayed store.
async fn spoil_run(shop: &Shop, spoilt: impl Fn(Value) -> Value) {
    transact(&*shop.store, &[StoreName::Delayed], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Delayed, &Range::all(), Some(1)).await?.remove(0);
        let record = tx.get(StoreName::Delayed, &key).await?.expect("it is there");
        tx.put(StoreName::Delayed, key, spoilt(record));
        Ok::<_, Error>(())
    })
    .await
    .expect("it can be broken");
}

async fn l11_a_run_that_can_not_be_read_is_one_row_of_the_error_queue(shop: &Shop) {
    let ids = many_enqueued_later(shop, "kitchen", 0..300, at(1_000.0)).await;
    assert!(shop.broker.cancel(&ids[3]).await.expect("it can be cancelled"));
    enqueue_later(shop, "kitchen", "tomorrow", at(86_400_000.0)).await;
    spoil_run(shop, |record| record.with_item(9, Value::null())).await;
    let before = shop.broker.stats().await.expect("it can be counted").counts.dropped;
    let seen: Vec<_> = (256..300).map(|number| number.to_string()).chain(["tomorrow".into()]).collect();
    assert_eq!(bodies(shop).await, seen, "what can't be read is not shown");
    assert_eq!(shop.broker.count_delayed().await.expect("it can be counted"), 300, "but counted");
    assert_eq!((shop.pass(1_000.0).await, count(shop).await), (44, 1));
    shop.assert_sound().await;
    let dropped = shop.broker.stats().await.expect("it can be counted").counts.dropped - before;
    assert_eq!(dropped, 255, "each counts");
    let failed = shop.messages("error", RowFilter::default()).await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].body.field("record").item(6).len(), 255, "nothing of it is lost");
    assert_eq!(shop.broker.return_to_source(&FailedFilter::default()).await.expect("it can be asked for"), 0);
    assert_eq!(shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be deleted"), 1);
    shop.assert_sound().await;
}

async fn l11_a_run_that_says_nothing_of_itself_leaves_no_trace(shop: &Shop) {
    for in_transaction in [false, true] {
        let delay = Delay::After(1_000.0);
        let dialog = shop.order("m1").await;
        let messages = || {
            let mut messages: Vec<_> = (0..5).map(|number| shop.message("Note", &number.to_string())).collect();
            messages[1].body = large("1");
            messages[4].body = large("4");
            messages
        };
        let to = vec![Rc::clone(&dialog.initiator)];
        let ids = if in_transaction {
            let transaction = begin(shop);
            let ids = transaction.send_later(to, messages(), delay).await.expect("they can be sent later");
            transaction.commit().await.expect("it commits");
            ids
        } else {
            shop.broker.send_later(to, messages(), delay, None).await.expect("they can be sent later")
        };
        assert!(shop.broker.cancel(&text(ids[2])).await.expect("it can be cancelled"));
        assert!(shop.broker.reschedule(&text(ids[4]), 1_700_000_900_000.0).await.expect("it can be moved"));
        spoil_run(shop, |_| Value::from("garbage")).await;
        shop.pass(1_000.0).await;
        assert_eq!((count(shop).await, bodies(shop).await), (1, vec!["4".to_owned()]));
        shop.assert_sound().await;
        let failed = shop.messages("error", RowFilter::default()).await;
        let failed = failed.last().expect("it is there");
        assert_eq!(failed.body.field("bodies").item(0).text().as_deref(), Some("1"));
        assert_eq!(shop.end(&dialog.initiator).await.discarded, 1, "the one that was moved");
        assert_eq!((count(shop).await, shop.rows("error").await.len()), (0, 1 + usize::from(in_transaction)));
        shop.assert_sound().await;
    }
}

async fn l14_pages_may_end_within_a_run(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let ids = many_later(shop, &dialog.initiator, 0..400, at(1_000.0)).await;
    let others = many_enqueued_later(shop, "kitchen", 400..1_000, at(1_000.0)).await;
    let page = async |filter: &DelayedFilter, position: Option<&[f64]>| {
        let page = shop.broker.delayed(filter, position, Extent::Page).await.expect("it can be looked at");
        let bodies = page.rows.iter().map(|message| message.body.value.value().text().unwrap_or_default());
        (bodies.collect::<Vec<_>>(), page.next)
    };
    let all = async |filter: DelayedFilter| {
        let (mut seen, mut next) = page(&filter, None).await;
        while let Some(position) = next {
            let more;
            (more, next) = page(&filter, Some(&position)).await;
            assert!(more.len() <= 256, "{}", more.len());
            seen.extend(more);
        }
        seen
    };
    assert_eq!(all(DelayedFilter::default()).await, numbers(0..1_000));
    let to_kitchen = DelayedFilter { destination: Some("kitchen".into()), ..DelayedFilter::default() };
    assert_eq!(all(to_kitchen.clone()).await, numbers(400..1_000));
    assert_eq!(all(DelayedFilter { limit: Some(300.0), ..to_kitchen }).await, numbers(400..700));
    let before = DelayedFilter { before: Some(1_700_000_001_000.0), ..DelayedFilter::default() };
    assert_eq!(all(before).await, [""; 0]);

    // What changes meanwhile moves nothing else.
    let (first, next) = page(&DelayedFilter::default(), None).await;
    let position = next.expect("there is more");
    assert_eq!(first, numbers(0..256));
    let (_, next) = page(&DelayedFilter::default(), Some(&position)).await;
    let within = next.expect("there is more");
    for gone in [&ids[0], &ids[255], &ids[256], &ids[399], &others[111], &others[112], &others[599]] {
        assert!(shop.broker.cancel(gone).await.expect("it can be cancelled"));
    }
    let (second, _) = page(&DelayedFilter::default(), Some(&position)).await;
    assert_eq!(second, numbers((257..515).filter(|number| ![399, 511, 512].contains(number)).chain([515])));
    let (third, _) = page(&DelayedFilter::default(), Some(&within)).await;
    assert_eq!(third, numbers(513..769));
    shop.assert_sound().await;
}

async fn l17_runs_that_are_due_are_read_once(shop: &Shop) {
    many_enqueued_later(shop, "kitchen", 0..1_000, at(0.0)).await;
    many_enqueued_later(shop, "kitchen", 0..1_000, at(100_000.0)).await;
    shop.faults.reset_counts();
    assert_eq!(shop.broker.poll().await.expect("it can be done"), 1_000);
    assert_eq!(shop.faults.reads_of(StoreName::Delayed), 3, "keys and records of what is due, and the next key");
    for number in 0..40 {
        enqueue_later(shop, "kitchen", &number.to_string(), at(0.0)).await;
    }
    shop.faults.reset_counts();
    assert_eq!(shop.broker.poll().await.expect("it can be done"), 40);
    assert_eq!(shop.faults.reads_of(StoreName::Delayed), 4, "one by one they are more records than were read at first");
}
