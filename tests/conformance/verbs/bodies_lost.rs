//! D37: large bodies that are missing, among rows of one run.

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, ServiceOptions};
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{Extent, RowFilter};

use super::super::support::shop::{Shop, begin, dialog_of, receive};
use super::super::support::transact;
use super::set_aside::failed;

mount! {
    d37_rows_before_a_missing_body_are_received,
    d37_rows_beside_a_missing_body_come_in,
    d37_delivery_goes_on_behind_a_missing_body,
}

/// Sends messages in one call, so that they are one run; those whose text begins with "large" have bodies with records of their own.
async fn send(shop: &Shop, handle: &str, texts: &[&str]) {
    let messages = texts.iter().map(|text| {
        let size = if text.starts_with("large") { 70_000.0 } else { 10.0 };
        shop.message_of("Note", Body { value: Value::from(*text).into(), packing: 0, size })
    });
    shop.broker.send(vec![handle.into()], messages.collect(), None).await.expect("the messages can be sent");
}

/// Deletes large bodies by their places in the order of the store.
async fn lose(shop: &Shop, places: &[usize]) {
    transact(&*shop.store, &[StoreName::Bodies], Mode::ReadWrite, async |tx| {
        let keys: Vec<Key> = tx.get_keys(StoreName::Bodies, &Range::all(), None).await?;
        places.iter().for_each(|place| tx.delete(StoreName::Bodies, keys[*place].clone()));
        Ok(())
    })
    .await
    .expect("they can be lost");
}

async fn define_elsewhere(shop: &Shop) {
    let service = ServiceOptions { queue: Some("kitchen".into()), contracts: vec!["Ordering".into()] };
    let definitions = Definitions { services: vec![("Elsewhere".into(), service)], ..Default::default() };
    shop.broker.define(definitions).await.expect("a new service");
}

async fn d37_rows_before_a_missing_body_are_received(shop: &Shop) {
    let dialog = shop.order("first").await;
    send(shop, &dialog.initiator, &["m1", "large 2", "m3", "large 4", "large 5", "m6"]).await;
    lose(shop, &[0, 2]).await;
    // Whoever looks behind them does not take them away.
    let of_it = RowFilter { conversation: Some(dialog.target.clone()), ..RowFilter::default() };
    assert!(shop.broker.select("kitchen", &of_it, None, Extent::All).await.is_err());
    assert_eq!(failed(shop).await.len(), 0, "what can be read comes before it");
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 first", "0 Note 1 m1"]);
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0], "the rest comes later");
    transaction.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 first", "0 Note 1 m1"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 3 m3", "0 Note 4 large 4"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 6 m6"]);
    assert_eq!(failed(shop).await.len(), 2);
    assert_eq!(shop.queue("kitchen").await.ready, 0);
}

async fn d37_rows_beside_a_missing_body_come_in(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await;
    let handle = begun.expect("nobody is contacted").handle;
    send(shop, &handle, &["m0", "large 1", "m2", "large 3", "m4"]).await;
    send(shop, &handle, &["m5"]).await;
    lose(shop, &[0]).await;
    define_elsewhere(shop).await;
    shop.pass(0.0).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(
        shop.receive("kitchen").await,
        ["0 Note 0 m0", "0 Note 1 m2", "0 Note 2 large 3", "0 Note 3 m4", "0 Note 4 m5"]
    );
    assert_eq!(failed(shop).await.len(), 1);
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

async fn d37_delivery_goes_on_behind_a_missing_body(shop: &Shop) {
    let mut handles = Vec::new();
    for texts in [["large 0", "m1"], ["m0", "m1"]] {
        let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await;
        handles.push(begun.expect("nobody is contacted").handle);
        send(shop, &handles[handles.len() - 1], &texts).await;
    }
    lose(shop, &[0]).await;
    define_elsewhere(shop).await;
    shop.pass(0.0).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0, "everything has come in");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 0 m0", "0 Note 1 m1"]);
    assert_eq!(failed(shop).await.len(), 1);
    assert_eq!(shop.state(&handles[0]).await, "ER", "its first message is lost: nobody is there");
    shop.clean_up(&handles[0]).await;
}
