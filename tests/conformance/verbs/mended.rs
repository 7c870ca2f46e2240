//! D37: what other records tell the most of is made anew.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{BeginDialog, RowFilter};

use super::super::support::shop::{Shop, dialog_of, keyed, named, to_kitchen};
use super::super::support::transact;
use super::set_aside::{break_record, failed};

mount! {
    d37_a_timer_fires_without_its_body,
    d37_counters_are_counted_anew,
    d37_names_are_found_again,
    d37_strangers_on_the_way_are_set_aside,
    d37_the_end_of_retention_is_kept,
    d37_the_state_of_a_group,
    d37_turns_are_made_anew,
}

async fn d37_turns_are_made_anew(shop: &Shop) {
    let first = shop.begin().await;
    let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..to_kitchen() };
    let second = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    for (begun, body) in [(&first, "a"), (&second, "b")] {
        shop.send(&begun.handle, "Order", body).await;
        shop.clock().advance(1.0);
    }
    for row in 0..2 {
        let rows = shop.receive("kitchen").await;
        assert_eq!(rows.len(), 1, "{row}");
    }
    for begun in [&first, &second] {
        let target = shop.dialog(begun).await.target;
        shop.send(&target, "Confirm", "r").await;
    }
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Nowhere")).await;
    shop.send(&far.expect("nobody is contacted").handle, "Order", "x").await;
    shop.switch("house", Status::Off).await;
    let held = shop.broker.begin_dialog(dialog_of("Counter", "Front")).await;
    shop.send(&held.expect("it begins").handle, "Order", "held").await;
    let turns = usize::try_from(shop.records_in(StoreName::Turns).await).expect("few");
    assert_eq!(turns, 7, "three with twins, one of them to transmit, and one to come in");
    for turn in 0..turns {
        break_record(shop, StoreName::Turns, turn).await;
    }
    assert_eq!(shop.outside().await.len(), 2);
    shop.switch("house", Status::On).await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 held"]);
    let rows = [shop.receive("counter").await, shop.receive("counter").await].concat();
    assert_eq!(rows, ["0 Confirm 0 r", "0 Confirm 0 r"]);
    // One that nobody has.
    shop.order("m").await;
    let stray = Key::list([Key::from(1u32), Key::from(0u32), Key::from(5u32), Key::from(1u32), Key::from(9_999u32)]);
    let queue = transact(&*shop.store, &[StoreName::Turns], Mode::ReadWrite, async |tx| {
        let keys = tx.get_keys(StoreName::Turns, &Range::all(), None).await?;
        let Key::List(parts) = keys.last().expect("one of the order") else { panic!("a list") };
        let mut stray = stray.clone();
        if let Key::List(own) = &mut stray {
            own[0] = parts[0].clone();
        }
        tx.put(StoreName::Turns, stray, Value::from("garbage"));
        Ok(parts[0].clone())
    });
    queue.await.expect("it can be stored");
    shop.receive("kitchen").await;
    shop.receive("counter").await;
    shop.receive("house").await;
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
}

async fn d37_a_timer_fires_without_its_body(shop: &Shop) {
    let dialog = shop.order("m").await;
    for name in ["", "lunch"] {
        let options = named(name, Some("body"));
        shop.broker.begin_conversation_timer(&dialog.initiator, Some(5.0), options).await.expect("it can be begun");
    }
    for place in 0..2 {
        break_record(shop, StoreName::Due, place).await;
    }
    assert_eq!(shop.pass(5.0).await, 2);
    let rows = shop.messages("counter", RowFilter::default()).await;
    let names: Vec<_> = rows.iter().map(|row| row.body.field("name").text()).collect();
    assert_eq!(names, [None, Some("lunch".to_owned())]);
    let failed = failed(shop).await;
    assert_eq!(
        failed.iter().map(|row| row.body.field("store").text()).collect::<Vec<_>>(),
        [Some("due".to_owned()), Some("due".to_owned())]
    );
}

async fn d37_names_are_found_again(shop: &Shop) {
    shop.enqueue_key("kitchen", "other", "x").await;
    shop.enqueue_key("kitchen", "k", "m0").await;
    let reused = || BeginDialog { reuse: Some("table 5".into()), ..to_kitchen() };
    let begun = shop.broker.begin_dialog(reused()).await.expect("it begins");
    let names = usize::try_from(shop.records_in(StoreName::Members).await).expect("few");
    assert_eq!(names, 3);
    for name in 0..names {
        break_record(shop, StoreName::Members, name).await;
    }
    // Another tab: this one remembers its lanes.
    let tab = shop.another_tab().await;
    let message = shop.message("DEFAULT", "m1");
    tab.enqueue("kitchen", vec![message], keyed("k"), None).await.expect("it can be enqueued");
    assert_eq!(tab.begin_dialog(reused()).await.expect("it is there").handle, begun.handle);
    tab.enqueue("kitchen", vec![shop.message("DEFAULT", "y")], keyed("other"), None).await.expect("it can be enqueued");
    tab.close().await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 x", "0 DEFAULT 1 y"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m0", "0 DEFAULT 1 m1"]);
}

/// What is needed to mend one record can't be read itself.
async fn d37_strangers_on_the_way_are_set_aside(shop: &Shop) {
    for body in ["a", "b"] {
        shop.order(body).await;
    }
    shop.enqueue_key("kitchen", "k", "m0").await;
    break_record(shop, StoreName::Members, 0).await;
    for place in 0..2 {
        break_record(shop, StoreName::Conversations, place).await;
    }
    let tab = shop.another_tab().await;
    tab.enqueue("kitchen", vec![shop.message("DEFAULT", "m1")], keyed("k"), None).await.expect("it can be enqueued");
    tab.close().await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m0", "0 DEFAULT 1 m1"]);
    shop.assert_sound().await;
    for service in ["Nowhere", "Elsewhere"] {
        let far = shop.broker.begin_dialog(dialog_of("Counter", service)).await;
        shop.send(&far.expect("nobody is contacted").handle, "Order", service).await;
    }
    // The conversation of the first turn, which stands behind the lane of the error queue and those before it.
    let mut first = None;
    for place in 0..usize::try_from(shop.records_in(StoreName::Conversations).await).expect("few") {
        let record = transact(&*shop.store, &[StoreName::Conversations], Mode::ReadOnly, async |tx| {
            let key = tx.get_keys(StoreName::Conversations, &Range::all(), None).await?[place].clone();
            tx.get(StoreName::Conversations, &key).await
        });
        let record = record.await.expect("it can be read").expect("it is there");
        if record.items().iter().any(|field| field.text().as_deref() == Some("Nowhere")) {
            first = Some(place);
        }
    }
    break_record(shop, StoreName::Conversations, first.expect("one of them")).await;
    for turn in 0..usize::try_from(shop.records_in(StoreName::Turns).await).expect("few") {
        break_record(shop, StoreName::Turns, turn).await;
    }
    assert_eq!(shop.outside().await, ["Order 0 Elsewhere"]);
}

/// Of its due row the queue alone knew.
async fn d37_the_end_of_retention_is_kept(shop: &Shop) {
    let bounds = QueueOptions { retention: Some(true), max_age: Some(10_000.0), ..QueueOptions::default() };
    shop.alter("kitchen", bounds).await;
    shop.enqueue_key("kitchen", "a", "1").await;
    shop.receive("kitchen").await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    for queue in 0..usize::try_from(shop.records_in(StoreName::Queues).await).expect("few") {
        break_record(shop, StoreName::Queues, queue).await;
        shop.broker.queues().await.expect("they can be looked at");
    }
    shop.assert_sound().await;
    shop.clock().advance(6_000.0);
    shop.enqueue_key("kitchen", "a", "2").await;
    shop.receive("kitchen").await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    shop.pass(4_000.0).await;
    assert_eq!(shop.rows("kitchen").await, ["0 DEFAULT 1 2"]);
    shop.assert_sound().await;
    shop.pass(6_000.0).await;
    assert_eq!((shop.rows("kitchen").await.len(), shop.records_in(StoreName::Due).await), (0, 0));
}

async fn d37_the_state_of_a_group(shop: &Shop) {
    let begun = shop.begin().await;
    let state = Body::small(Value::from("at the table"));
    shop.broker.set_group_state(&begun.group_id, state.clone()).await.expect("it can be set");
    break_record(shop, StoreName::Members, 0).await;
    let known = shop.broker.get_group_state(&begun.group_id).await.expect("it can be asked for");
    assert!(known.is_none_or(|known| known.value.value().is_undefined()));
    let failed = failed(shop).await;
    assert_eq!(failed[0].body.field("record").text().as_deref(), Some("garbage"));
    shop.broker.set_group_state(&begun.group_id, state).await.expect("it can be set");
}

async fn d37_counters_are_counted_anew(shop: &Shop) {
    shop.retain("counter", true).await;
    let dialog = shop.order("m0").await;
    shop.send(&dialog.target, "Confirm", "r0").await;
    shop.receive("counter").await;
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Nowhere")).await;
    shop.send(&far.expect("nobody is contacted").handle, "Order", "x").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m1").await;
    let queues = usize::try_from(shop.records_in(StoreName::Queues).await).expect("few");
    let before = shop.broker.stats().await.expect("it counts").gauges;
    for queue in 0..queues {
        break_record(shop, StoreName::Queues, queue).await;
        // One that comes later.
        let tab = shop.another_tab().await;
        tab.send(vec![Rc::clone(&dialog.target)], vec![shop.message("Confirm", "r")], None)
            .await
            .expect("it can be sent");
        tab.queues().await.expect("they can be looked at");
        tab.close().await;
        shop.assert_sound().await;
    }
    let after = shop.broker.stats().await.expect("it counts").gauges;
    assert_eq!(
        (after.open_conversations, after.transmission_queued),
        (before.open_conversations, before.transmission_queued)
    );
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m0", "0 Note 1 m1"]);
    assert_eq!(shop.receive("counter").await.len(), queues);
}
