//! Delayed messages in a store of the application's own: looked at, cancelled and moved.

use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::{Body, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::ids::text;
use pocket_broker::{Broker, DelayedFilter, EndOptions, EnqueueOptions, Extent};
use uuid::Uuid;

use super::super::support::elsewhere::{Elsewhere, Trouble, settle};
use super::super::support::host::tick;
use super::super::support::shop::{Shop, refused};
use super::delayed::at;
use super::elsewhere::{arrived, enqueue_as, enqueue_at, pass, send_at, settings};

mount! {
    l14_what_waits_is_shown_wherever_it_is,
    l14_a_store_that_can_not_tell_is_not_supported,
    l14_what_is_cancelled_in_the_hop_never_comes,
    l14_what_is_cancelled_in_the_store_never_comes,
    l14_cancel_and_delivery_exclude_each_other_elsewhere,
    l14_a_cancel_that_the_store_does_not_answer_is_kept,
    l14_two_tabs_cancel_one_message,
    l14_it_comes_at_its_new_time_alone,
    l14_what_is_moved_in_the_hop_replaces_what_the_store_has,
    l14_a_transaction_cancels_and_moves,
    l14_a_transaction_that_comes_too_late_is_a_conflict,
    l14_a_transaction_knows_what_it_has_cancelled_and_moved,
    l18_what_a_transaction_has_ended_it_finds_no_more_elsewhere,
    l14_a_broker_without_the_store_shows_what_waits_for_it,
    a_cancelled_message_frees_its_id,
}

async fn open(shop: &Shop) -> (Broker, Elsewhere) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    (tab, elsewhere)
}

async fn cancel(tab: &Broker, id: &str) -> bool {
    tab.cancel(id).await.expect("it can be cancelled")
}

async fn reschedule(tab: &Broker, id: &str, ms: f64) -> bool {
    tab.reschedule(id, 1_700_000_000_000.0 + ms).await.expect("it can be moved")
}

/// The bodies of what waits, with this filter.
async fn shown(tab: &Broker, filter: DelayedFilter) -> Vec<String> {
    let page = tab.delayed(&filter, None, Extent::Page).await.expect("it can be looked at");
    page.rows.iter().map(|message| message.body.value.value().text().unwrap_or_default()).collect()
}

async fn l14_what_waits_is_shown_wherever_it_is(shop: &Shop) {
    let built_in = EnqueueOptions { delay: Some(at(2_000.0)), ..EnqueueOptions::default() };
    let message = shop.message("DEFAULT", "m2");
    shop.broker.enqueue_later("kitchen", vec![message], built_in).await.expect("it can be enqueued later");
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m3", at(3_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let all = DelayedFilter::default;
    assert_eq!(shown(&tab, all()).await, ["m1", "m2", "m3"]);
    assert_eq!(tab.count_delayed().await.expect("it can be counted"), 3);
    assert_eq!(tab.next_delayed().await.expect("it can be read"), Some(1_700_000_001_000.0));
    assert_eq!(shown(&tab, DelayedFilter { limit: Some(2.0), ..all() }).await, ["m1", "m2"]);
    assert_eq!(shown(&tab, DelayedFilter { before: Some(1_700_000_002_000.0), ..all() }).await, ["m1"]);
    let upper: Rc<str> = dialog.initiator.to_uppercase().into();
    assert_eq!(shown(&tab, DelayedFilter { destination: Some(upper), ..all() }).await, ["m3"]);
    assert_eq!(shown(&tab, DelayedFilter { destination: Some("kitchen".into()), ..all() }).await, ["m1", "m2"]);
    tab.close().await;
}

async fn l14_a_store_that_can_not_tell_is_not_supported(shop: &Shop) {
    let elsewhere = shop.elsewhere().without_views();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    refused(tab.delayed(&DelayedFilter::default(), None, Extent::All).await, ErrorCode::NotSupported);
    refused(tab.count_delayed().await, ErrorCode::NotSupported);
    refused(tab.reschedule(&id, 1_700_000_009_000.0).await, ErrorCode::NotSupported);
    assert_eq!(tab.next_delayed().await.expect("it can be read"), Some(1_700_000_001_000.0));
    assert!(cancel(&tab, &id).await, "that takes no view");
    tab.close().await;
}

async fn l14_what_is_cancelled_in_the_hop_never_comes(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    elsewhere.once("store", Trouble::AnswerIsLost);
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!((elsewhere.bodies().len(), tab.stats().await.expect("it can be counted").gauges.delayed), (1, 1));
    assert!(cancel(&tab, &id).await);
    assert!(!cancel(&tab, &id).await, "only once");
    settle().await;
    shop.assert_sound().await;
    assert_eq!((pass(shop, &tab, 1_000.0).await, elsewhere.bodies().len()), (0, 0));
    assert!(arrived(shop).await.is_empty());
    tab.close().await;
}

/// D34: it delivers none of it.
async fn l14_a_broker_without_the_store_shows_what_waits_for_it(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    enqueue_at(shop, &tab, "there", at(500.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Fails);
    let large = Body { value: Value::from("m1").into(), packing: 0, size: 70_000.0 };
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    let ids = tab.enqueue_later("kitchen", vec![shop.message_of("DEFAULT", large)], options).await;
    let first = text(ids.expect("it can be enqueued later")[0]);
    let second = send_at(shop, &tab, &dialog.initiator, "m2", at(3_000.0)).await;
    settle().await;
    tab.close().await;

    let all = DelayedFilter::default;
    let own = EnqueueOptions { delay: Some(at(2_000.0)), ..EnqueueOptions::default() };
    shop.broker.enqueue_later("kitchen", vec![shop.message("DEFAULT", "own")], own).await.expect("it can be enqueued");
    let broker = &shop.broker;
    assert_eq!(shown(broker, all()).await, ["m1", "own", "m2"]);
    assert_eq!(shown(broker, DelayedFilter { limit: Some(2.0), ..all() }).await, ["m1", "own"]);
    let of = |destination: &str| DelayedFilter { destination: Some(destination.into()), ..all() };
    assert_eq!(shown(broker, of(&dialog.initiator)).await, ["m2"]);
    assert_eq!(super::delayed::count(shop).await, 3);
    assert_eq!(broker.next_delayed().await.expect("it can be read"), Some(1_700_000_001_000.0));
    assert_eq!(shop.pass(1_500.0).await, 0, "nobody but the store says when it is to be delivered");
    assert_eq!(super::delayed::count(shop).await, 3);
    assert!(reschedule(broker, &first, 5_000.0).await);
    assert_eq!(shown(broker, all()).await, ["own", "m2", "m1"]);
    assert_eq!(broker.next_delayed().await.expect("it can be read"), Some(1_700_000_002_000.0));
    assert!(cancel(broker, &second).await);
    assert!(!cancel(broker, &second).await && !reschedule(broker, &second, 5_000.0).await);
    assert_eq!((super::delayed::count(shop).await, shown(broker, all()).await), (2, vec!["own".into(), "m1".into()]));
    shop.assert_sound().await;

    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!(
        (shown(&tab, all()).await, arrived(shop).await.len()),
        (vec!["own".into(), "m1".into()], 2),
        "that was due"
    );
    pass(shop, &tab, 5_000.0).await;
    assert_eq!((arrived(shop).await.len(), elsewhere.bodies().len()), (4, 0), "each once, beside the order");
    tab.close().await;
}

async fn l14_what_is_cancelled_in_the_store_never_comes(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let ids = [
        enqueue_at(shop, &tab, "m1", at(1_000.0)).await,
        send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await,
    ];
    settle().await;
    assert_eq!(elsewhere.bodies().len(), 2);
    for id in &ids {
        assert_eq!((cancel(&tab, id).await, cancel(&tab, id).await), (true, false));
        settle().await;
        shop.assert_sound().await;
    }
    assert_eq!(elsewhere.bodies().len(), 0);
    assert!(!cancel(&tab, &Uuid::from_u128(7).to_string()).await, "that never was");
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    let late = enqueue_at(shop, &tab, "m3", at(2_000.0)).await;
    settle().await;
    assert_eq!((pass(shop, &tab, 1_000.0).await, cancel(&tab, &late).await), (1, false), "it was delivered");
    tab.close().await;
}

async fn l14_cancel_and_delivery_exclude_each_other_elsewhere(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let mut cancelled = 0;
    for head_start in 0..14_usize {
        let id = enqueue_at(shop, &tab, "m1", pocket_broker::Delay::After(1_000.0)).await;
        settle().await;
        shop.clock().advance(1_000.0);
        let late = async {
            for _ in 0..head_start {
                tick().await;
            }
            cancel(&tab, &id).await
        };
        let (_, won) = join(tab.poll(), late).await;
        settle().await;
        pass(shop, &tab, 120_000.0).await;
        let came = shop.receive("kitchen").await.len();
        assert_eq!((came, elsewhere.bodies().len()), (usize::from(!won), 0), "with a head start of {head_start}");
        cancelled += usize::from(won);
    }
    assert!((1..14).contains(&cancelled), "each wins now and then: {cancelled}");
    tab.close().await;
}

async fn l14_a_cancel_that_the_store_does_not_answer_is_kept(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    // This broker has not sent them: only the store knows whether they are there.
    let id = elsewhere.foreign("m1", 1_700_000_001_000.0);
    let other = elsewhere.foreign("m2", 1_700_000_001_000.0);
    elsewhere.always("remove", Trouble::Fails);
    let error = refused(tab.cancel(&id).await, ErrorCode::DelayedStoreFailed);
    assert!(error.is_retryable() && error.to_string().contains("not delivered from now on"), "{error}");
    refused(tab.cancel(&other).await, ErrorCode::DelayedStoreFailed);
    elsewhere.is_well();
    assert!(cancel(&tab, &other).await, "asked again it says so");
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    assert_eq!((arrived(shop).await.len(), elsewhere.bodies().len()), (0, 0));
    tab.close().await;
}

async fn l14_two_tabs_cancel_one_message(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let second = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    let both = join(cancel(&tab, &id), cancel(&second, &id)).await;
    assert!(both.0 || both.1);
    assert_eq!(pass(shop, &tab, 1_000.0).await, 0);
    tab.close().await;
    second.close().await;
}

async fn l14_it_comes_at_its_new_time_alone(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let later = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    let earlier = send_at(shop, &tab, &dialog.initiator, "m2", at(9_000.0)).await;
    settle().await;
    assert!(reschedule(&tab, &later, 5_000.0).await && reschedule(&tab, &earlier, 500.0).await);
    settle().await;
    shop.assert_sound().await;
    assert_eq!(elsewhere.messages().iter().map(|message| message.time).fold(0.0, f64::max), 1_700_000_005_000.0);
    assert_eq!(pass(shop, &tab, 500.0).await, 1);
    assert_eq!(
        (pass(shop, &tab, 500.0).await, pass(shop, &tab, 3_999.0).await, pass(shop, &tab, 1.0).await),
        (0, 0, 1)
    );
    assert_eq!(arrived(shop).await, ["m0", "m2", "m1"]);
    assert!(!reschedule(&tab, &later, 50_000.0).await, "it was delivered");
    assert!(!reschedule(&tab, &Uuid::from_u128(7).to_string(), 50_000.0).await, "that never was");
    tab.close().await;
}

async fn l14_what_is_moved_in_the_hop_replaces_what_the_store_has(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    elsewhere.once("store", Trouble::AnswerIsLost);
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"], "the store has it, and so has the hop");
    assert!(reschedule(&tab, &id, 3_000.0).await);
    elsewhere.always("remove", Trouble::Fails);
    shop.clock().advance(1_000.0);
    let _ = tab.poll().await;
    assert!(arrived(shop).await.is_empty(), "the old one does not count any more");
    elsewhere.is_well();
    assert_eq!((pass(shop, &tab, 1_000.0).await, pass(shop, &tab, 1_000.0).await), (0, 1));
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    tab.close().await;
}

async fn l14_a_transaction_cancels_and_moves(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let gone = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    let moved = enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    let transaction = tab.begin().expect("it is open");
    assert!(transaction.cancel(&gone).await.expect("it can be cancelled"));
    assert!(transaction.reschedule(&moved, 1_700_000_002_000.0).await.expect("it can be moved"));
    assert!(!transaction.cancel(&Uuid::from_u128(7).to_string()).await.expect("it is looked for"));
    settle().await;
    assert_eq!(elsewhere.bodies().len(), 2, "the commit does it");
    transaction.commit().await.expect("it can be committed");
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m2"]);
    assert_eq!((pass(shop, &tab, 1_000.0).await, pass(shop, &tab, 1_000.0).await), (0, 1));
    let kept = enqueue_at(shop, &tab, "m3", at(3_000.0)).await;
    settle().await;
    let transaction = tab.begin().expect("it is open");
    transaction.cancel(&kept).await.expect("it can be cancelled");
    transaction.rollback();
    assert_eq!(pass(shop, &tab, 1_000.0).await, 1, "it was rolled back");
    tab.close().await;
}

async fn l14_a_transaction_that_comes_too_late_is_a_conflict(shop: &Shop) {
    let (tab, _elsewhere) = open(shop).await;
    for is_cancel in [true, false] {
        let id = enqueue_at(shop, &tab, "m1", pocket_broker::Delay::After(1_000.0)).await;
        settle().await;
        let transaction = tab.begin().expect("it is open");
        if is_cancel {
            transaction.cancel(&id).await.expect("it can be cancelled");
        } else {
            transaction.reschedule(&id, 1_800_000_000_000.0).await.expect("it can be moved");
        }
        assert_eq!(pass(shop, &tab, 1_000.0).await, 1);
        refused(transaction.commit().await, ErrorCode::Conflict);
        settle().await;
    }
    assert_eq!(arrived(shop).await, ["m1", "m1"]);
    tab.close().await;
}

async fn l14_a_transaction_knows_what_it_has_cancelled_and_moved(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let sent = |body| send_at(shop, &tab, &dialog.initiator, body, at(1_000.0));
    let stored = [
        enqueue_at(shop, &tab, "m1", at(1_000.0)).await,
        sent("m2").await,
        enqueue_at(shop, &tab, "m3", at(1_000.0)).await,
        sent("m4").await,
    ];
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1", "m2", "m3", "m4"]);
    elsewhere.always("store", Trouble::Hangs);
    let in_hop = [enqueue_at(shop, &tab, "m5", at(1_000.0)).await, sent("m6").await];
    let _last = sent("m7").await;
    settle().await;
    let transaction = tab.begin().expect("it is open");
    let cancel = async |id: &str| transaction.cancel(id).await.expect("it is looked for");
    let move_to =
        async |id: &str, ms: f64| transaction.reschedule(id, 1_700_000_000_000.0 + ms).await.expect("it is looked for");
    for id in [&stored[0], &stored[1], &in_hop[0], &in_hop[1]] {
        assert!(cancel(id).await);
        assert!(!cancel(id).await, "it does not wait any more");
        assert!(!move_to(id, 2_000.0).await, "it does not wait any more");
    }
    for id in &stored[2..] {
        assert!(move_to(id, 2_000.0).await);
        assert!(move_to(id, 3_000.0).await, "it still waits");
        assert!(cancel(id).await, "it still waits");
        assert!(!cancel(id).await, "it does not wait any more");
    }
    let ended = transaction.end_conversation(&dialog.initiator, EndOptions::default()).await.expect("it can be ended");
    assert_eq!(ended.discarded, 1, "one was left");
    transaction.commit().await.expect("it can be committed");
    settle().await;
    shop.assert_sound().await;
    tab.close().await;
    elsewhere.is_well();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    assert_eq!((pass(shop, &tab, 9_000.0).await, elsewhere.bodies().len()), (0, 0));
    tab.close().await;
}

async fn l18_what_a_transaction_has_ended_it_finds_no_more_elsewhere(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    let dialog = shop.order("m0").await;
    let stored = send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    let in_hop = send_at(shop, &tab, &dialog.initiator, "m2", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"]);
    let transaction = tab.begin().expect("it is open");
    transaction.end_conversation(&dialog.initiator, EndOptions::default()).await.expect("it can be ended");
    for id in [&stored, &in_hop] {
        assert!(!transaction.cancel(id).await.expect("it is looked for"), "its END has taken it along");
        let to = 1_700_000_002_000.0;
        assert!(!transaction.reschedule(id, to).await.expect("it is looked for"), "its END has taken it along");
    }
    transaction.commit().await.expect("it can be committed");
    settle().await;
    shop.assert_sound().await;
    tab.close().await;
}

async fn a_cancelled_message_frees_its_id(shop: &Shop) {
    let (tab, elsewhere) = open(shop).await;
    elsewhere.always("store", Trouble::Hangs);
    let once = || EnqueueOptions { delay: Some(at(1_000.0)), dedupe_id: Some("d".into()), ..EnqueueOptions::default() };
    let first = enqueue_as(shop, &tab, "m1", once()).await;
    assert_eq!(enqueue_as(shop, &tab, "m1", once()).await, first, "it is there already");
    assert!(cancel(&tab, &first).await);
    assert_ne!(enqueue_as(shop, &tab, "m1", once()).await, first);
    tab.close().await;
}
