//! D37: a conversation whose own record can't be read. The others go on, what it had is in the error queue, and nothing of it is left elsewhere.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Direction, Fault, Key, Mode, Operation, Range, StoreName};
use pocket_broker::{BeginDialog, EndpointFilter, Extent, ReceiveOptions, RowFilter};

use super::super::support::shop::{Dialog, Shop, begin, keyed, named, receive, refused, show_all, to_kitchen, top_of};
use super::super::support::transact;
use super::set_aside::failed;

mount! {
    conversations_shows_the_others,
    d37_a_conversation_goes_to_the_error_queue,
    d37_a_group_goes_on_without_it,
    d37_a_lane_begins_anew,
    d37_a_row_under_a_key_of_no_class,
    d37_many_runs_are_moved_some_at_a_time,
    d37_only_who_needs_it_meets_it,
    d37_the_last_of_a_group_takes_its_state_along,
    d37_two_tabs_and_no_space,
    d37_what_can_be_told_stays_in_state_er,
    d37_who_has_received_from_what_was_made_anew_is_refused,
    d37_written_by_a_newer_build_it_is_not_touched,
}

/// Replaces the record of a conversation, by its place in the order of the store.
async fn replace(shop: &Shop, place: usize, record: impl Fn(Value) -> Value) {
    let store = StoreName::Conversations;
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let key: Key = tx.get_keys(store, &Range::all(), None).await?[place].clone();
        let before = tx.get(store, &key).await?.expect("it is there");
        tx.put(store, key, record(before));
        Ok(())
    })
    .await
    .expect("it can be broken");
}

/// A record some of whose fields are garbage.
fn without(record: &Value, broken: std::ops::Range<usize>) -> Value {
    let fields = record.items().into_iter().enumerate();
    Value::list(fields.map(|(index, field)| if broken.contains(&index) { Value::from("x") } else { field }).collect())
}

async fn break_record(shop: &Shop, place: usize) {
    replace(shop, place, |_| Value::from("garbage")).await;
}

async fn dialogs(shop: &Shop, bodies: &[&str]) -> Vec<Dialog> {
    let mut dialogs = Vec::new();
    for body in bodies {
        dialogs.push(shop.order(body).await);
    }
    dialogs
}

/// Which stores the records in the error queue are from.
async fn stores(shop: &Shop) -> Vec<String> {
    failed(shop).await.iter().map(|row| row.body.field("store").text().unwrap_or_default()).collect()
}

async fn d37_a_conversation_goes_to_the_error_queue(shop: &Shop) {
    let dialogs = dialogs(shop, &["a", "b"]).await;
    shop.send_large(&dialogs[0].initiator, "large").await;
    shop.timer_of(&dialogs[0].initiator, 1_000.0, "t").await;
    shop.broker
        .set_group_state(&group(shop, &dialogs[0].target).await, Body::small(Value::from("s")))
        .await
        .expect("set");
    break_record(shop, 0).await;
    shop.notices();
    // In a transaction, which passes it over.
    let transaction = begin(shop);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("there is another");
    assert_eq!(show_all(&rows), ["0 Order 0 b"]);
    transaction.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b"]);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.assert_sound().await;
    assert_eq!(stores(shop).await, ["messages", "messages", "conversations"]);
    assert_eq!(shop.dropped(), ["corrupt", "corrupt"]);
    let rows = failed(shop).await;
    assert_eq!(rows[0].failed_queue.as_deref(), Some("kitchen"));
    assert_eq!(rows[2].body.field("bodies").len(), 2, "the state and the timer");
    for handle in [&dialogs[0].initiator, &dialogs[0].target] {
        refused(shop.try_send(handle, "Note", "x").await, ErrorCode::ConversationNotFound);
    }
    assert_eq!(shop.endpoints(EndpointFilter { service: Some("Kitchen".into()), ..Default::default() }).await.len(), 1);
    assert_eq!(shop.pass(2_000.0).await, 0);
}

async fn group(shop: &Shop, handle: &str) -> Rc<str> {
    shop.info(handle).await.expect("it is there").conversation_group_id
}

/// Its head can be read.
async fn d37_what_can_be_told_stays_in_state_er(shop: &Shop) {
    shop.retain("counter", true).await;
    // Of its parts the target's, and both.
    for broken in [14..15, 13..15] {
        let dialog = shop.order("a").await;
        shop.send(&dialog.target, "Confirm", "r").await;
        replace(shop, 0, |record| without(&record, broken.clone())).await;
        let error = refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
        assert!(error.to_string().contains("ER"), "{error}");
        shop.assert_sound().await;
        assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("ER", "ER"));
        assert_eq!(shop.receive_from("counter", &dialog.initiator).await, ["0 Error 0 -9686"]);
        assert_eq!(shop.receive_from("kitchen", &dialog.target).await, ["0 Error 0 -9686"]);
        shop.end(&dialog.initiator).await;
        shop.end(&dialog.target).await;
        assert_eq!(failed(shop).await.len(), 4, "a copy, an answer, a message and the record");
        shop.broker.discard_failed(&Default::default()).await.expect("they can be deleted");
    }
}

/// The cursor of the new one is where the old one's was.
async fn d37_who_has_received_from_what_was_made_anew_is_refused(shop: &Shop) {
    let dialog = shop.order("a").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a"]);
    replace(shop, 0, |record| without(&record, 14..15)).await;
    refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
    refused(transaction.commit().await, ErrorCode::TransactionClosed);
    shop.assert_sound().await;
    assert_eq!(shop.receive_from("kitchen", &dialog.target).await, ["0 Error 0 -9686"]);
}

async fn d37_only_who_needs_it_meets_it(shop: &Shop) {
    let dialogs = dialogs(shop, &["a", "b", "c"]).await;
    break_record(shop, 1).await;
    let sends = dialogs.iter().map(|dialog| shop.try_send(&dialog.initiator, "Note", "x"));
    let answers: Vec<_> = futures_util::future::join_all(sends).await;
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a", "0 Note 1 x"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 c", "0 Note 1 x"]);
}

async fn d37_a_group_goes_on_without_it(shop: &Shop) {
    let first = shop.begin().await;
    let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..to_kitchen() };
    let second = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    for (begun, body) in [(&first, "a"), (&second, "b")] {
        shop.send(&begun.handle, "Order", body).await;
        let target = shop.dialog(begun).await.target;
        shop.receive("kitchen").await;
        shop.send(&target, "Confirm", body).await;
    }
    break_record(shop, 0).await;
    let by_id = ReceiveOptions { group: Some(Rc::clone(&first.group_id)), ..ReceiveOptions::default() };
    let rows = shop.broker.receive("counter", by_id, None).await.expect("there is another");
    assert_eq!(show_all(&rows), ["0 Confirm 0 b"]);
    assert_eq!(shop.receive("counter").await, [""; 0]);
    shop.assert_sound().await;
    assert_eq!(stores(shop).await, ["messages", "conversations"]);
}

/// What a group knows is the group's: it goes with the last member, whose own group it may be or not.
async fn d37_the_last_of_a_group_takes_its_state_along(shop: &Shop) {
    let first = shop.begin().await;
    let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..to_kitchen() };
    let second = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    shop.broker.set_group_state(&first.group_id, Body::small(Value::from("known"))).await.expect("it can be set");
    break_record(shop, 0).await;
    refused(shop.try_send(&first.handle, "Note", "x").await, ErrorCode::ConversationNotFound);
    let known = shop.broker.get_group_state(&first.group_id).await.expect("it can be asked for");
    assert_eq!(known.expect("it knows it").value.value().text().as_deref(), Some("known"));
    // Behind the lane of the error queue or before it.
    let place = second_place(shop, &second.handle).await;
    break_record(shop, place).await;
    refused(shop.try_send(&second.handle, "Note", "x").await, ErrorCode::ConversationNotFound);
    let rows = failed(shop).await;
    assert_eq!((rows.len(), shop.records_in(StoreName::Members).await), (2, 2), "each of them is a lane, and no more");
    assert_eq!(rows[1].body.field("bodies").len(), 2, "the member and the state");
}

/// The place of the dialog whose initiator has this handle: the one that is no lane.
async fn second_place(shop: &Shop, handle: &str) -> usize {
    let id = shop.info(handle).await.expect("it is there").conversation_id;
    let store = StoreName::Conversations;
    let records = transact(&*shop.store, &[store], Mode::ReadOnly, async |tx| {
        tx.get_range(store, &Range::all(), None, Direction::Forward).await
    })
    .await
    .expect("they can be read");
    let is_its = |record: &Value| record.items().iter().any(|field| field.text().as_deref() == Some(&*id));
    records.iter().position(is_its).expect("one of them")
}

/// It belongs to the conversation all the same.
async fn d37_a_row_under_a_key_of_no_class(shop: &Shop) {
    shop.order("a").await;
    shop.order("b").await;
    let stray = transact(&*shop.store, &[StoreName::Messages], Mode::ReadWrite, async |tx| {
        let keys = tx.get_keys(StoreName::Messages, &Range::all(), None).await?;
        let Key::List(mut parts) = keys[0].clone() else { panic!("a list") };
        parts[1] = Key::from(7u32);
        tx.put(StoreName::Messages, Key::List(parts), Value::from("garbage"));
        Ok(())
    });
    stray.await.expect("it can be stored");
    break_record(shop, 0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b"]);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(stores(shop).await, ["messages", "messages", "conversations"]);
    assert_eq!(failed(shop).await[1].body.field("record").text().as_deref(), Some("garbage"), "as it was");
}

async fn d37_a_lane_begins_anew(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    shop.enqueue_key("kitchen", "k", "m0").await;
    shop.switch("kitchen", Status::On).await;
    replace(shop, 0, |record| without(&record, 14..15)).await;
    shop.enqueue_as("kitchen", "m1", keyed("k")).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m1"]);
    assert_eq!(stores(shop).await, ["messages", "conversations"]);
}

/// 32 at a time.
async fn d37_many_runs_are_moved_some_at_a_time(shop: &Shop) {
    let dialog = shop.order("m").await;
    for _ in 0..70 {
        shop.send(&dialog.initiator, "Note", "n").await;
    }
    let options = named("t", None);
    shop.broker.begin_conversation_timer(&dialog.target, Some(60_000.0), options).await.expect("it can be begun");
    break_record(shop, 0).await;
    shop.faults.reset_counts();
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert!(shop.faults.calls(Operation::Begin) >= 5, "some in each storage transaction");
    assert_eq!(failed(shop).await.len(), 72);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

async fn d37_two_tabs_and_no_space(shop: &Shop) {
    dialogs(shop, &["a"]).await;
    break_record(shop, 0).await;
    let full = Error::new(ErrorCode::QuotaExceeded, "No space.");
    shop.faults.plan(Operation::Commit, 2, Fault::Abort(full));
    let outcome = shop.broker.receive("kitchen", ReceiveOptions::default(), None).await;
    refused(outcome, ErrorCode::QuotaExceeded);
    assert_eq!(failed(shop).await.len(), 0);
    let tab = shop.another_tab().await;
    let both = futures_util::future::join(
        shop.broker.receive("kitchen", ReceiveOptions::default(), None),
        tab.receive("kitchen", ReceiveOptions::default(), None),
    );
    let (one, two) = both.await;
    assert_eq!((one.expect("nothing is there").len(), two.expect("nothing is there").len()), (0, 0));
    assert_eq!(stores(shop).await, ["messages", "conversations"], "once");
    tab.close().await;
}

async fn d37_written_by_a_newer_build_it_is_not_touched(shop: &Shop) {
    let dialog = shop.order("a").await;
    let saved = std::cell::RefCell::new(None);
    replace(shop, 0, |record| {
        saved.replace(Some(record));
        Value::list(vec![Value::from(2u32)])
    })
    .await;
    refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::VersionTooNew);
    refused(shop.broker.receive("kitchen", ReceiveOptions::default(), None).await, ErrorCode::VersionTooNew);
    assert_eq!(failed(shop).await.len(), 0);
    replace(shop, 0, |_| saved.take().expect("it was there")).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a"]);
}

/// A view of all of them asks for none in particular.
async fn conversations_shows_the_others(shop: &Shop) {
    let mut begun = Vec::new();
    for _ in 0..520 {
        begun.push(shop.begin().await);
    }
    let related = BeginDialog { related_conversation: Some(begun[2].handle.to_string()), ..to_kitchen() };
    let member = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    // The last ones of pages among them.
    for place in [2, 255, 511] {
        break_record(shop, place).await;
    }
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 518);
    let page = shop.broker.conversations(&EndpointFilter::default(), None, Extent::Page).await.expect("a page");
    let next = page.next.expect("there is another page");
    let rest = shop.broker.conversations(&EndpointFilter::default(), Some(&next), Extent::Page).await.expect("a page");
    assert_eq!((page.rows.len() + rest.rows.len(), rest.next), (518, None));
    let group = EndpointFilter { group: Some(Rc::clone(&begun[2].group_id)), ..EndpointFilter::default() };
    let members: Vec<_> = shop.endpoints(group).await.into_iter().map(|end| end.conversation_handle).collect();
    assert_eq!(members, [member.handle]);
    let groups = shop.broker.groups(None, None, Extent::All).await.expect("the others are shown").rows;
    assert_eq!((groups.len(), groups.first().map(|group| group.conversations)), (518, Some(1)));
    for place in [2, 255, 511] {
        let of_it = RowFilter { conversation: Some(Rc::clone(&begun[place].handle)), ..RowFilter::default() };
        assert_eq!(shop.broker.count("counter", &of_it).await.expect("it can be counted"), 0, "whoever asks mends it");
    }
}
