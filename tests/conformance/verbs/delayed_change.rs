//! Delayed messages that are looked at, cancelled and rescheduled, and that go with their conversation.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::ids::text;
use pocket_broker::store::StoreName;
use pocket_broker::{BeginDialog, Delay, DelayedFilter, EnqueueOptions, Extent, RowFilter};

use super::super::support::shop::{Shop, begin, refused, to_kitchen};
use super::delayed::{at, bodies, count, enqueue_later, later};
use super::delayed_failures::spoil;

mount! {
    l14_cancel_and_dispatch_exclude_each_other,
    l14_cancel_in_a_transaction,
    l14_reschedule_moves_it,
    l18_what_an_end_took_along_can_not_be_cancelled,
    l14_select_count_and_next,
    l18_a_delay_beyond_the_lifetime_is_refused,
    l18_end_takes_them_along,
    l18_it_goes_before_the_end_of_the_lifetime,
    l18_what_is_under_way_is_known_when_the_conversation_was_mended,
}

/// P74.
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

/// P74.
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

/// P75.
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

/// P36.
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

async fn l18_what_an_end_took_along_can_not_be_cancelled(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let one = later(shop, &dialog.initiator, "m2", at(1_000.0)).await;
    let other = later(shop, &dialog.initiator, "m3", at(1_000.0)).await;
    // Something waits outside, so the endpoint stays for a while.
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m4").await;
    let transaction = begin(shop);
    transaction.end_conversation(&dialog.initiator, Default::default()).await.expect("it can be ended");
    assert!(!transaction.cancel(&one).await.expect("it can be asked"));
    assert!(!transaction.reschedule(&other, 1_700_000_009_000.0).await.expect("it can be asked"));
    transaction.commit().await.expect("it commits");
    assert_eq!((count(shop).await, shop.state(&dialog.initiator).await), (0, "DO"));
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.pass(10_000.0).await, 0);
}
