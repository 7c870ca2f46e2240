//! D37: records that can't be read, of conversations with other brokers.

use pocket_broker::body::Value;
use pocket_broker::store::{Key, Mode, Range, StoreName};
use pocket_broker::{FailedFilter, RowFilter};

use super::super::support::far::{Far, deliver, deliver_one};
use super::super::support::shop::Shop;
use super::super::support::transact;
use super::set_aside::failed;

mount! {
    d37_a_name_is_made_anew,
    d37_a_target_stays_and_has_failed,
    d37_what_waits_and_is_lost_comes_again,
}

/// Puts another record, or none, where the first record of a class of the first target is.
async fn change(shop: &Shop, store: StoreName, class: u32, record: Option<Value>) {
    transact(&*shop.store, &[store], Mode::ReadWrite, async |tx| {
        let keys = tx.get_keys(store, &Range::all(), None).await?;
        let is_of = |key: &Key| matches!(key, Key::List(parts) if parts.get(1) == Some(&class.into()));
        let key = keys.into_iter().find(is_of).expect("there is one");
        match &record {
            Some(record) => tx.put(store, key, record.clone()),
            None => tx.delete(store, key),
        }
        Ok(())
    })
    .await
    .expect("it can be broken");
}

async fn d37_what_waits_and_is_lost_comes_again(shop: &Shop) {
    const PARKED: u32 = 2;
    let cases = [
        (StoreName::Messages, Some(Value::from("garbage")), 1),
        (StoreName::Messages, None, 0),
        (StoreName::Bodies, None, 0),
    ];
    for (number, (store, record, left)) in (1..).zip(cases) {
        let far = Far::begins(shop, number);
        let large = |sequence| far.message(sequence, "Note", "large").sized(70_000.0);
        deliver_one(shop, far.message(0, "Order", "soup")).await;
        // The first two are one run.
        deliver(shop, &[large(2), far.message(3, "Note", "c"), far.message(5, "Note", "e")]).await;
        change(shop, store, PARKED, record).await;
        shop.notices();
        assert_eq!(deliver_one(shop, far.message(1, "Note", "a")).await, "stored, 1");
        assert_eq!(shop.dropped(), ["corrupt"]);
        shop.assert_sound().await;
        assert_eq!(failed(shop).await.len(), left, "a record as it was");
        let parked = RowFilter { status: Some(vec![2.0]), ..RowFilter::default() };
        assert_eq!(shop.messages("kitchen", parked).await.len(), 1, "number 5");
        assert_eq!(deliver(shop, &[large(2), far.message(3, "Note", "c")]).await, ["stored, 2", "stored, 3"]);
        assert_eq!(deliver_one(shop, far.message(4, "Note", "d")).await, "stored, 5");
        assert_eq!(shop.receive("kitchen").await.len(), 6);
        shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be discarded");
    }
}

async fn d37_a_name_is_made_anew(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    transact(&*shop.store, &[StoreName::Members], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Members, &Range::all(), None).await?.remove(0);
        tx.put(StoreName::Members, key, Value::from("garbage"));
        let nobody = Key::list(["c".into(), "nobody".into(), 1u32.into()]);
        tx.put(StoreName::Members, nobody, Value::from("garbage"));
        Ok(())
    })
    .await
    .expect("it can be broken");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "a")).await, "stored, 1");
    transact(&*shop.store, &[StoreName::Members], Mode::ReadWrite, async |tx| {
        tx.delete(StoreName::Members, Key::list(["c".into(), "nobody".into(), 1u32.into()]));
        Ok(())
    })
    .await
    .expect("it can be deleted");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 soup", "0 Note 1 a"]);
}

async fn d37_a_target_stays_and_has_failed(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver(shop, &[far.message(0, "Order", "soup"), far.message(2, "Note", "waits")]).await;
    let handle = far.handle(shop).await;
    transact(&*shop.store, &[StoreName::Conversations], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Conversations, &Range::all(), None).await?.remove(0);
        let record = tx.get(StoreName::Conversations, &key).await?.unwrap_or_default();
        let target = record.item(14).with_item(7, "garbage".into());
        tx.put(StoreName::Conversations, key, record.with_item(14, target));
        Ok(())
    })
    .await
    .expect("it can be broken");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "a")).await, "repeated, 1", "nobody wants it any more");
    assert_eq!(shop.state(&handle).await, "ER");
    assert_eq!(shop.receive("kitchen").await, ["0 Error 0 -9686"]);
    shop.assert_sound().await;
    shop.end(&handle).await;
    assert_eq!(shop.state(&handle).await, "CD");
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0");
}
