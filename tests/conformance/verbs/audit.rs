//! The audit finds what is wrong, and what is wrong does not hang anybody.

use pocket_broker::store::{Key, Mode, Range, StoreName};

use super::super::support::shop::Shop;
use super::super::support::{Bench, async_test, transact};

/// A database with something in every store that the verbs use.
async fn a_database(bench: Bench) -> Shop {
    let shop = Shop::open(bench).await;
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.send_large(&dialog.initiator, "m2").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.receive_top("kitchen", 1).await;
    let related = pocket_broker::BeginDialog {
        related_conversation: Some(dialog.initiator.to_string()),
        lifetime: Some(1_000.0),
        reuse: Some("x".into()),
        ..super::super::support::shop::to_kitchen()
    };
    shop.broker.begin_dialog(related).await.expect("the dialog begins");
    shop.assert_sound().await;
    shop
}

/// Takes the first record of a store away.
async fn take_one(shop: &Shop, store: StoreName) {
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let key: Option<Key> = tx.get_keys(store, &Range::all(), Some(1)).await?.pop();
        tx.delete(store, key.expect("there is a record"));
        Ok(())
    })
    .await
    .expect("it can be taken away");
}

async fn a_missing_record_is_found(bench: fn() -> Bench) {
    for store in [
        StoreName::Conversations,
        StoreName::Messages,
        StoreName::Bodies,
        StoreName::Turns,
        StoreName::Members,
        StoreName::Due,
    ] {
        let shop = a_database(bench()).await;
        take_one(&shop, store).await;
        let found = pocket_broker::audit(&*shop.store).await.expect("the database can be read");
        assert!(!found.is_empty(), "{store:?}");
        shop.discard().await;
    }
}

/// D37: the queue "counter" has lost its record, which whoever needs it makes anew.
async fn a_missing_queue_hangs_nobody(bench: fn() -> Bench) {
    let shop = Shop::open(bench()).await;
    let dialog = shop.order("m1").await;
    let second: Key = 2_u32.into();
    transact(&*shop.store, &[StoreName::Queues], Mode::ReadWrite, async |tx| {
        tx.delete(StoreName::Queues, second.clone());
        Ok(())
    })
    .await
    .expect("it can be taken away");
    let transaction = shop.broker.begin().expect("the broker is open");
    transaction.end_conversation(&dialog.initiator, Default::default()).await.expect("it is made anew");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.queue("counter").await.ready, 0);
    shop.close().await;
}

mod memory {
    use super::*;

    async_test! { async fn a_missing_record_is_found() { super::a_missing_record_is_found(Bench::memory).await; }}
    async_test! { async fn a_missing_queue_hangs_nobody() { super::a_missing_queue_hangs_nobody(Bench::memory).await; }}
}

#[cfg(target_arch = "wasm32")]
mod indexed_db {
    use super::*;

    async_test! { async fn a_missing_record_is_found() { super::a_missing_record_is_found(Bench::indexed_db).await; }}
    async_test! { async fn a_missing_queue_hangs_nobody() { super::a_missing_queue_hangs_nobody(Bench::indexed_db).await; }}
}
