//! D37: what everything else hangs on. Ids that were seen, numbers that are given once, records of queues, definitions.

use pocket_broker::body::Value;
use pocket_broker::definitions::{Definitions, PriorityRule, QueueOptions, ServiceOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Key, Mode, StoreName};
use pocket_broker::{Broker, Delay, EndpointFilter, EnqueueOptions, Extent, RowFilter, Rows};

use super::super::support::shop::{
    Shop, archived, begin, definitions, dialog_of, keyed, refused, show_all, to_kitchen, top_of,
};
use super::super::support::{detail, transact};
use super::set_aside::{break_record, failed};

mount! {
    d37_an_id_that_was_seen_is_free_again,
    d37_numbers_begin_far_above_all_that_were_given,
    d37_numbers_of_a_newer_build_are_not_touched,
    d37_a_queue_record_that_is_missing_is_made_anew,
    d37_a_queue_record_of_other_definitions_is_made_theirs,
    d37_what_has_no_number_is_defined_again,
    d37_a_queue_or_a_service_that_cannot_be_told_is_named,
}

/// Replaces a record; without a value it is taken away. Gives what it was.
async fn replace(shop: &Shop, store: StoreName, key: impl Into<Key>, value: Option<Value>) -> Value {
    let key = key.into();
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let before = tx.get(store, &key).await?.expect("it is there");
        match &value {
            Some(value) => tx.put(store, key.clone(), value.clone()),
            None => tx.delete(store, key.clone()),
        }
        Ok(before)
    })
    .await
    .expect("it can be broken")
}

async fn d37_an_id_that_was_seen_is_free_again(shop: &Shop) {
    let once =
        |window| EnqueueOptions { dedupe_id: Some("once".into()), dedupe_window: window, ..EnqueueOptions::default() };
    assert_eq!(shop.try_enqueue("kitchen", "m1", once(30_000.0)).await.expect("it is taken"), None);
    break_record(shop, StoreName::Seen, 0).await;
    assert_eq!(shop.try_enqueue("kitchen", "m2", once(300_000.0)).await.expect("nobody knows it any more"), None);
    let seen = shop.try_enqueue("kitchen", "m3", once(300_000.0)).await.expect("it can be asked");
    assert!(seen.is_some(), "from here on it is known again");
    let rows = failed(shop).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].failed_queue.as_deref(), Some("kitchen"));
    assert_eq!(rows[0].body.field("store").text().as_deref(), Some("seen"));
    assert_eq!(rows[0].body.field("record").text().as_deref(), Some("garbage"), "as it was");
    shop.assert_sound().await;
    // The time of the one that is lost is over, and takes nothing of the next one along.
    shop.pass(120_000.0).await;
    assert!(shop.try_enqueue("kitchen", "m4", once(1.0)).await.expect("it can be asked").is_some());
    shop.pass(300_000.0).await;
    assert_eq!((shop.records_in(StoreName::Seen).await, shop.records_in(StoreName::Due).await), (0, 0));

    // At the commit of a transaction.
    assert_eq!(shop.try_enqueue("kitchen", "m5", once(30_000.0)).await.expect("it is taken"), None);
    let transaction = begin(shop);
    transaction.enqueue("kitchen", vec![shop.message("DEFAULT", "m6")], once(30_000.0)).await.expect("it may");
    break_record(shop, StoreName::Seen, 0).await;
    transaction.commit().await.expect("it is set aside");
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 m1", "0 DEFAULT 1 m2", "0 DEFAULT 2 m5", "0 DEFAULT 3 m6"]);
}

/// All that claims numbers goes on, in a tab that has claimed none yet, and nothing is mistaken for anything that was there.
async fn d37_numbers_begin_far_above_all_that_were_given(shop: &Shop) {
    for (round, broken) in [Some(Value::from("garbage")), None].into_iter().enumerate() {
        let dialog = shop.order("before").await;
        let far = shop.broker.begin_dialog(dialog_of("Counter", "Nowhere")).await.expect("nobody is contacted");
        shop.send(&far.handle, "Note", "outside").await;
        shop.timer_of(&dialog.initiator, 1_000.0, "").await;
        shop.enqueue_key("kitchen", "k", "before").await;
        let late = EnqueueOptions { delay: Some(Delay::After(3_600_000.0)), ..EnqueueOptions::default() };
        shop.enqueue_as("house", "late", late).await;
        let ends = shop.endpoints(EndpointFilter::default()).await;
        replace(shop, StoreName::Meta, "numbers", broken).await;

        let tab = shop.another_tab().await;
        let begun = tab.begin_dialog(to_kitchen()).await.expect("there is a number for it");
        let known = |handle: &str| ends.iter().any(|end| *end.conversation_handle == *handle);
        assert!(!known(&begun.handle), "a new one");
        tab.send(vec![begun.handle.clone()], vec![shop.message("Order", "after")], None).await.expect("it can be sent");
        tab.enqueue("kitchen", vec![shop.message("DEFAULT", "after")], keyed("new"), None).await.expect("it is taken");
        tab.define(one_more(round)).await.expect("there are numbers for them");
        tab.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
        tab.close().await;
        shop.assert_sound().await;
        assert_eq!(shop.broker.stats().await.expect("it counts").gauges.delayed, [1, 2][round]);
        assert_eq!(shop.pass(1_000.0).await, 1);
        let rows = received(&shop.broker).await;
        assert_eq!(
            rows,
            ["0 DEFAULT 0 before", "0 Order 0 after", "0 DEFAULT 0 after"],
            "in the order in which they came"
        );
        assert_eq!(
            shop.endpoints(EndpointFilter::default()).await.len(),
            ends.len(),
            "a lane and an end are gone, two are new"
        );
        for end in shop.endpoints(EndpointFilter::default()).await {
            shop.clean_up(&end.conversation_handle).await;
        }
    }
    let archive = shop.broker.archive(&RowFilter::default(), None, Extent::All).await.expect("it can be read").rows;
    assert_eq!(archive.iter().flat_map(Rows::messages).count(), 2);
}

/// All that a queue has, one group at a time.
async fn received(broker: &Broker) -> Vec<String> {
    let mut rows = Vec::new();
    loop {
        let found = show_all(&broker.receive("kitchen", top_of(10), None).await.expect("the queue is on"));
        if found.is_empty() {
            return rows;
        }
        rows.extend(found);
    }
}

fn one_more(round: usize) -> Definitions {
    let name = format!("bar {round}");
    let service = ServiceOptions { queue: Some(name.clone()), contracts: vec!["Ordering".into()] };
    Definitions {
        queues: vec![(name.as_str().into(), QueueOptions::default())],
        services: vec![(format!("Bar {round}").as_str().into(), service)],
        ..Definitions::default()
    }
}

async fn d37_numbers_of_a_newer_build_are_not_touched(shop: &Shop) {
    let newer = Value::list(vec![Value::from(2u32)]);
    let before = replace(shop, StoreName::Meta, "numbers", Some(newer)).await;
    let tab = shop.another_tab().await;
    refused(tab.begin_dialog(to_kitchen()).await, ErrorCode::VersionTooNew);
    replace(shop, StoreName::Meta, "numbers", Some(before)).await;
    tab.begin_dialog(to_kitchen()).await.expect("a number was there all the time");
    tab.close().await;
}

/// Of a queue that is used, and of the error queue, by which every tab knows the definitions.
async fn d37_a_queue_record_that_is_missing_is_made_anew(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.enqueue_key("kitchen", "k", "m2").await;
    shop.switch("house", Status::Off).await;
    let held = shop.broker.begin_dialog(dialog_of("Counter", "Front")).await.expect("it begins");
    shop.send(&held.handle, "Order", "held").await;
    let before = shop.broker.queues().await.expect("they can be looked at");
    for queue in 1..=4u32 {
        replace(shop, StoreName::Queues, queue, None).await;
        let tab = shop.another_tab().await;
        tab.send(vec![dialog.initiator.clone()], vec![shop.message("Note", "n")], None).await.expect("it can be sent");
        tab.queues().await.expect("they can be looked at");
        tab.close().await;
        shop.assert_sound().await;
    }
    let after = shop.broker.queues().await.expect("they can be looked at");
    let ready = |queues: &[pocket_broker::QueueInfo]| queues.iter().map(|queue| queue.ready).sum::<u64>();
    assert_eq!(ready(&after), ready(&before) + 4);
    shop.switch("house", Status::On).await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 held"]);
    assert_eq!(received(&shop.broker).await.len(), 6);
    assert_eq!(failed(shop).await.len(), 0);
}

async fn d37_a_queue_record_of_other_definitions_is_made_theirs(shop: &Shop) {
    shop.order("m1").await;
    for queue in 2..=4u32 {
        let record = replace(shop, StoreName::Queues, queue, None).await;
        let stamped = record.items().into_iter().enumerate();
        let stamped = stamped.map(|(index, field)| if index == 2 { Value::from(777u32) } else { field }).collect();
        transact(&*shop.store, &[StoreName::Queues], Mode::ReadWrite, async |tx| {
            tx.put(StoreName::Queues, Key::from(queue), Value::list(stamped));
            Ok(())
        })
        .await
        .expect("it can be stored");
    }
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    assert_eq!(shop.queue("house").await.ready, 0);
    shop.order("m2").await;
    shop.assert_sound().await;
}

/// A message type, a contract and a priority: whoever has them gives them again, as every application does when it opens its broker.
async fn d37_what_has_no_number_is_defined_again(shop: &Shop) {
    let rule = PriorityRule { contract: None, local_service: None, remote_service: None, level: 7.0 };
    let all = || Definitions { priorities: vec![("high".into(), rule.clone())], ..definitions() };
    shop.broker.define(all()).await.expect("it can be defined");
    let dialog = shop.order("m1").await;
    let name = |kind: u32, name: &str| Key::list([kind.into(), name.into()]);
    for key in [name(0, "Note"), name(1, "Ordering"), name(4, "high")] {
        replace(shop, StoreName::Definitions, key, Some(Value::from("garbage"))).await;
    }
    let tab = shop.another_tab().await;
    let note = || vec![shop.message("Note", "n")];
    let refusal = tab.send(vec![dialog.initiator.clone()], note(), None).await.expect_err("nobody knows that type");
    assert!(matches!(refusal.code(), ErrorCode::MessageTypeNotFound | ErrorCode::ContractNotFound), "{refusal}");
    tab.define(all()).await.expect("they can be defined again");
    tab.send(vec![dialog.initiator.clone()], note(), None).await.expect("as before");
    let begun = tab.begin_dialog(to_kitchen()).await.expect("as before");
    let rated = tab.info(&begun.handle).await.expect("it can be asked for").expect("it is there");
    assert_eq!(rated.priority, 7);
    tab.close().await;
    shop.assert_sound().await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 n"]);
}

async fn d37_a_queue_or_a_service_that_cannot_be_told_is_named(shop: &Shop) {
    shop.order("m1").await;
    for (kind, what, name) in [(2u32, "queue", "kitchen"), (3, "service", "Kitchen")] {
        let key = || Key::list([kind.into(), name.into()]);
        let before = replace(shop, StoreName::Definitions, key(), Some(Value::from("garbage"))).await;
        let error = shop.try_another_tab().await.expect_err("it can't be opened");
        assert_eq!((error.code(), detail(&error, what).as_deref()), (ErrorCode::StorageCorrupt, Some(name)));
        assert!(error.to_string().contains("deleteBroker"), "it says what to do: {error}");
        assert!(error.to_string().contains(name), "and names it: {error}");
        replace(shop, StoreName::Definitions, key(), Some(before)).await;
    }
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}
