//! Records that can't be read: the others go on, and nothing is deleted.

use std::rc::Rc;

use pocket_broker::body::Value;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{BeginDialog, Broker, EndpointFilter, Extent, ReceiveOptions, RowFilter};

use super::super::support::shop::{Dialog, Shop, begin, refused, show_all, to_kitchen, top_of};
use super::super::support::{Bench, async_test, detail, transact};

/// Makes records of a store unreadable, by their places.
async fn break_records(shop: &Shop, store: StoreName, places: std::ops::Range<usize>) {
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let keys: Vec<Key> = tx.get_keys(store, &Range::all(), None).await?;
        keys[places].iter().for_each(|key| tx.put(store, key.clone(), Value::from("garbage")));
        Ok(())
    })
    .await
    .expect("they can be broken");
}

async fn dialogs(shop: &Shop, bodies: &[&str]) -> Vec<Dialog> {
    let mut dialogs = Vec::new();
    for body in bodies {
        dialogs.push(shop.order(body).await);
    }
    dialogs
}

async fn corrupt(broker: &Broker, options: ReceiveOptions) -> Error {
    refused(broker.receive("kitchen", options, None).await, ErrorCode::StorageCorrupt)
}

/// D37.
async fn receive_passes_over_it(bench: fn() -> Bench) {
    let store = StoreName::Conversations;
    let shop = Shop::open(bench()).await;
    dialogs(&shop, &["a", "b", "c"]).await;
    break_records(&shop, store, 0..1).await;
    let before = shop.records_in(store).await;
    let gauges = shop.broker.stats().await.expect("counters can be read").gauges;
    assert_eq!(gauges.open_conversations.iter().sum::<u64>(), 6, "what the commits have counted");

    let transaction = begin(&shop);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("there is another");
    assert_eq!(show_all(&rows), ["0 Order 0 b"]);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("there is another");
    assert_eq!(show_all(&rows), ["0 Order 0 c"]);
    refused(transaction.receive("kitchen", top_of(1)).await, ErrorCode::StorageCorrupt);
    transaction.rollback();

    let tab = shop.another_tab().await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b"]);
    let rows = tab.receive("kitchen", ReceiveOptions::default(), None).await.expect("there is another");
    assert_eq!(show_all(&rows), ["0 Order 0 c"]);
    for broker in [&shop.broker, &tab] {
        let error = corrupt(broker, ReceiveOptions::default()).await;
        assert_eq!(detail(&error, "store").as_deref(), Some(store.name()));
    }
    assert_eq!(shop.order("d").await.id.len(), 36);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 d"]);
    assert_eq!(shop.records_in(store).await, before + 1, "it is left as it is");
    tab.close().await;
    shop.discard().await;
}

/// What is asked for by name is not passed over. D37.
async fn by_its_handle_it_is_refused(bench: fn() -> Bench) {
    let shop = Shop::open(bench()).await;
    let dialogs = dialogs(&shop, &["a", "b"]).await;
    break_records(&shop, StoreName::Conversations, 0..1).await;
    let options = ReceiveOptions { conversation: Some(Rc::clone(&dialogs[0].target)), ..ReceiveOptions::default() };
    let error = corrupt(&shop.broker, options).await;
    assert_eq!(detail(&error, "handle").as_deref(), Some(&*dialogs[0].target));
    let error = refused(shop.broker.info(&dialogs[0].initiator).await, ErrorCode::StorageCorrupt);
    assert_eq!(detail(&error, "handle").as_deref(), Some(&*dialogs[0].initiator));
    let of_it = RowFilter { conversation: Some(Rc::clone(&dialogs[0].target)), ..RowFilter::default() };
    let rows = shop.broker.select("kitchen", &of_it, None, Extent::All).await;
    let error = refused(rows, ErrorCode::StorageCorrupt);
    assert_eq!(detail(&error, "handle").as_deref(), Some(&*dialogs[0].target));
    let rows = shop.broker.select("kitchen", &RowFilter::default(), None, Extent::All).await;
    refused(rows, ErrorCode::StorageCorrupt);
    assert_eq!(shop.receive_from("kitchen", &dialogs[1].target).await, ["0 Order 0 b"]);
    shop.discard().await;
}

/// Calls that share a storage transaction with one that needs it. D37.
async fn only_who_needs_it_fails(bench: fn() -> Bench) {
    let shop = Shop::open(bench()).await;
    let dialogs = dialogs(&shop, &["a", "b", "c"]).await;
    break_records(&shop, StoreName::Conversations, 1..2).await;
    let sends = dialogs.iter().map(|dialog| shop.try_send(&dialog.initiator, "Note", "x"));
    let answers: Vec<_> = futures_util::future::join_all(sends).await;
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a", "0 Note 1 x"]);
    shop.discard().await;
}

/// One member can't be read, the other can.
async fn a_group_gives_what_can_be_read(bench: fn() -> Bench) {
    let store = StoreName::Conversations;
    {
        let shop = Shop::open(bench()).await;
        let first = shop.begin().await;
        let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..to_kitchen() };
        let second = shop.broker.begin_dialog(related).await.expect("the dialog begins");
        for (begun, body) in [(&first, "a"), (&second, "b")] {
            shop.send(&begun.handle, "Order", body).await;
            let target = shop.dialog(begun).await.target;
            shop.receive("kitchen").await;
            shop.send(&target, "Confirm", body).await;
        }
        break_records(&shop, store, 0..1).await;
        let by_id = ReceiveOptions { group: Some(Rc::clone(&first.group_id)), ..ReceiveOptions::default() };
        for options in [ReceiveOptions::default(), by_id.clone()] {
            let transaction = begin(&shop);
            let rows = transaction.receive("counter", options.clone()).await.expect("there is another");
            assert_eq!(show_all(&rows), ["0 Confirm 0 b"], "{store:?}");
            transaction.rollback();
        }
        assert_eq!(shop.receive("counter").await, ["0 Confirm 0 b"], "{store:?}");
        for options in [ReceiveOptions::default(), by_id] {
            refused(shop.broker.receive("counter", options, None).await, ErrorCode::StorageCorrupt);
        }
        shop.discard().await;
    }
}

async fn conversations_shows_the_others(bench: fn() -> Bench) {
    let shop = Shop::open(bench()).await;
    let mut begun = Vec::new();
    for _ in 0..520 {
        begun.push(shop.begin().await);
    }
    let related = BeginDialog { related_conversation: Some(begun[2].handle.to_string()), ..to_kitchen() };
    let member = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    // The last ones of pages among them.
    for place in [2, 255, 511] {
        break_records(&shop, StoreName::Conversations, place..place + 1).await;
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
    shop.discard().await;
}

macro_rules! mount_raw {
    ($($name:ident,)+) => {
        mod memory {
            use super::*;

            $(async_test! { async fn $name() { super::$name(Bench::memory).await; }})+
        }

        #[cfg(target_arch = "wasm32")]
        mod indexed_db {
            use super::*;

            $(async_test! { async fn $name() { super::$name(Bench::indexed_db).await; }})+
        }
    };
}

mount_raw! {
    a_group_gives_what_can_be_read,
    by_its_handle_it_is_refused,
    conversations_shows_the_others,
    only_who_needs_it_fails,
    receive_passes_over_it,
}
