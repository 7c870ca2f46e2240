//! Delayed messages in a store of the application's own: what meets what, and when.

use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::{Body, Value};
use pocket_broker::store::{Mode, StoreName};
use pocket_broker::{DelayedSettings, EnqueueOptions, Fetched, TransactionMode};

use super::super::support::elsewhere::{Trouble, settle};
use super::super::support::shop::Shop;
use super::super::support::transact;
use super::delayed::at;
use super::elsewhere::{arrived, enqueue_as, enqueue_at, pass, send_at, settings};

mount! {
    what_the_store_never_takes_holds_up_no_other,
    a_moved_message_that_was_fetched_meanwhile_is_let_go_of,
    what_was_fetched_before_a_sleep_is_not_delivered_after_it,
    a_mended_conversation_knows_what_the_store_has,
    what_waits_in_the_hop_hides_nothing_that_is_due,
    a_large_body_is_moved_in_the_hop,
    a_large_body_is_moved_in_the_store,
    what_lingers_in_a_lower_mode_is_not_moved,
    two_tabs_move_one_message,
    two_tabs_move_one_message_of_a_conversation,
    the_last_of_two_moves_counts,
    equal_times_keep_their_order_when_storing_fails,
    a_pump_that_hangs_holds_up_no_delivery,
    a_moved_message_holds_up_no_other,
    what_is_cancelled_in_the_store_frees_its_id,
    nothing_is_asked_after_a_close,
    a_transaction_cancels_what_is_stored_meanwhile,
    a_transaction_moves_one_message_twice,
    numbers_are_counted_with_the_hop,
    what_lingers_in_a_lower_mode_is_not_cancelled,
    an_endpoint_has_no_more_under_way_what_can_not_be_read,
    what_is_no_message_holds_up_no_other,
    what_is_no_message_is_set_aside_once,
}
mount_with_locks! {
    a_leader_that_is_hidden_says_so,
}

async fn wake(shop: &Shop, ms: f64) {
    shop.clock().advance(ms);
    shop.timer().fire();
    settle().await;
}

/// Six of them are as many as the pump tries in a minute.
async fn what_the_store_never_takes_holds_up_no_other(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    elsewhere.never_stores("bad");
    let loose = || EnqueueOptions { delay: Some(at(100.0)), ordered: false, ..EnqueueOptions::default() };
    for _ in 0..8 {
        enqueue_as(shop, &tab, "bad", loose()).await;
    }
    enqueue_as(shop, &tab, "good", loose()).await;
    settle().await;
    for _ in 0..20 {
        wake(shop, 10_000.0).await;
    }
    assert_eq!(arrived(shop).await, ["good"]);
    tab.close().await;
}

async fn a_moved_message_that_was_fetched_meanwhile_is_let_go_of(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(3_600_000.0)).await;
    settle().await;
    // The store has it anew, and its answer takes its time; meanwhile it is fetched.
    elsewhere.once("store", Trouble::AnswersLate);
    tab.reschedule(&id, T0).await.expect("it can be done");
    settle().await;
    wake(shop, 0.0).await;
    elsewhere.answer();
    settle().await;
    for _ in 0..5 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
    tab.close().await;
}

const T0: f64 = 1_700_000_000_000.0;

async fn what_was_fetched_before_a_sleep_is_not_delivered_after_it(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let first = Rc::new(shop.tab_with(settings(), &elsewhere).await);
    settle().await;
    let second = shop.tab_with(settings(), &elsewhere).await;
    enqueue_at(shop, &first, "m1", at(1_000.0)).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"]);
    let frozen = Rc::clone(&first);
    elsewhere.then(move || frozen.suspend());
    shop.clock().advance(1_000.0);
    let later = async {
        settle().await;
        assert!(arrived(shop).await.is_empty());
        // The hold runs out; the other tab delivers it, has it removed, and forgets it half an hour later.
        assert_eq!(pass(shop, &second, 61_000.0).await, 1);
        assert_eq!(elsewhere.bodies().len(), 0);
        pass(shop, &second, 2_000_000.0).await;
        pass(shop, &second, 100_000.0).await;
        first.restore();
    };
    let _ = join(first.poll(), later).await;
    settle().await;
    assert_eq!(arrived(shop).await, ["m1"], "once");
}

async fn two_tabs_move_one_message(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(10_000.0)).await;
    settle().await;
    elsewhere.always("remove", Trouble::Hangs);
    let both = join(tab.reschedule(&id, T0 + 20_000.0), tab.reschedule(&id, T0 + 30_000.0)).await;
    assert!(both.0.expect("a") && both.1.expect("b"));
    shop.assert_sound().await;
}

async fn two_tabs_move_one_message_of_a_conversation(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let dialog = shop.order("m0").await;
    let id = send_at(shop, &tab, &dialog.initiator, "m1", at(10_000.0)).await;
    settle().await;
    let both = join(tab.reschedule(&id, T0 + 20_000.0), tab.reschedule(&id, T0 + 30_000.0)).await;
    assert_eq!((both.0.expect("a"), both.1.expect("b")), (true, true), "it waits all the time");
}

/// The last reschedule says +30 s.
async fn the_last_of_two_moves_counts(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(10_000.0)).await;
    settle().await;
    elsewhere.always("remove", Trouble::Fails);
    let both = join(tab.reschedule(&id, T0 + 20_000.0), tab.reschedule(&id, T0 + 30_000.0)).await;
    assert!(both.0.expect("a") && both.1.expect("b"));
    settle().await;
    for _ in 0..3 {
        wake(shop, 1_000.0).await;
    }
    elsewhere.is_well();
    for _ in 0..26 {
        wake(shop, 1_000.0).await;
    }
    assert!(arrived(shop).await.is_empty(), "nothing before its last time");
    // Whoever was at it when it was moved again may be so for a minute.
    for _ in 0..8 {
        wake(shop, 10_000.0).await;
    }
    assert_eq!((arrived(shop).await, elsewhere.bodies().len()), (vec!["m1".to_owned()], 0));
}

async fn equal_times_keep_their_order_when_storing_fails(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.always("store", Trouble::Fails);
    let options = EnqueueOptions { delay: Some(at(60_000.0)), ..EnqueueOptions::default() };
    let messages = vec![shop.message("DEFAULT", "m1"), shop.message("DEFAULT", "m2")];
    tab.enqueue_later("kitchen", messages, options).await.expect("it can be done");
    settle().await;
    wake(shop, 1_000.0).await;
    elsewhere.is_well();
    for _ in 0..6 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(elsewhere.bodies().len(), 2);
    pass(shop, &tab, 60_000.0).await;
    assert_eq!(arrived(shop).await, ["m1", "m2"]);
}

async fn a_pump_that_hangs_holds_up_no_delivery(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    enqueue_at(shop, &tab, "m2", at(3_600_000.0)).await;
    settle().await;
    for _ in 0..30 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(arrived(shop).await, ["m1"], "29 s after it was due");
}

async fn a_moved_message_holds_up_no_other(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    enqueue_at(shop, &tab, "m2", at(2_000.0)).await;
    settle().await;
    elsewhere.always("remove", Trouble::Fails);
    assert!(tab.reschedule(&id, T0 + 9_000_000.0).await.expect("it can be done"));
    settle().await;
    for _ in 0..60 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(arrived(shop).await, ["m2"], "58 s after it was due");
}

async fn what_is_cancelled_in_the_store_frees_its_id(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let once = || EnqueueOptions { delay: Some(at(1_000.0)), dedupe_id: Some("d".into()), ..EnqueueOptions::default() };
    let first = enqueue_as(shop, &tab, "m1", once()).await;
    settle().await;
    assert_eq!(elsewhere.bodies(), ["m1"]);
    assert!(tab.cancel(&first).await.expect("it can be done"));
    settle().await;
    assert_ne!(enqueue_as(shop, &tab, "m1", once()).await, first, "D38: a cancelled delayed message frees its id");
}

async fn nothing_is_asked_after_a_close(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    elsewhere.always("remove", Trouble::Hangs);
    enqueue_at(shop, &tab, "m2", at(1_000.0)).await;
    settle().await;
    shop.end(&dialog.initiator).await;
    settle().await;
    elsewhere.calls();
    tab.close().await;
    settle().await;
    assert_eq!((elsewhere.calls(), shop.pulse().sleeping()), (Vec::<&str>::new(), 0));
}

async fn a_transaction_cancels_what_is_stored_meanwhile(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.always("store", Trouble::Fails);
    let id = enqueue_at(shop, &tab, "m1", at(60_000.0)).await;
    settle().await;
    let transaction = tab.begin().expect("open");
    assert!(transaction.cancel(&id).await.expect("it can be done"));
    elsewhere.is_well();
    for _ in 0..3 {
        wake(shop, 1_000.0).await;
    }
    assert_eq!(elsewhere.bodies(), ["m1"], "neither delivered nor cancelled");
    transaction.commit().await.expect("it is still there");
}

async fn a_transaction_moves_one_message_twice(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let dialog = shop.order("m0").await;
    let id = send_at(shop, &tab, &dialog.initiator, "m1", at(60_000.0)).await;
    settle().await;
    let transaction = tab.begin().expect("open");
    assert!(transaction.reschedule(&id, T0 + 70_000.0).await.expect("it can be done"));
    assert!(transaction.reschedule(&id, T0 + 80_000.0).await.expect("it can be done"));
    transaction.commit().await.expect("nobody else has touched it");
}

async fn numbers_are_counted_with_the_hop(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.always("store", Trouble::Hangs);
    enqueue_at(shop, &tab, "m1", at(60_000.0)).await;
    settle().await;
    transact(&*shop.store, &[StoreName::Meta], Mode::ReadWrite, async |tx| {
        tx.put(StoreName::Meta, "numbers".into(), Value::from("garbage"));
        Ok(())
    })
    .await
    .expect("broken");
    enqueue_at(shop, &tab, "m2", at(60_000.0)).await;
    shop.assert_sound().await;
}

async fn what_lingers_in_a_lower_mode_is_not_cancelled(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(DelayedSettings { mode: TransactionMode::None, ..settings() }, &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::Fails);
    shop.clock().advance(1_000.0);
    let _ = tab.poll().await;
    assert_eq!(arrived(shop).await, ["m1"]);
    assert!(!tab.cancel(&id).await.expect("it can be done"), "it was delivered");
}

async fn an_endpoint_has_no_more_under_way_what_can_not_be_read(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let dialog = shop.order("m0").await;
    let id = send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.plant(Fetched::Unreadable {
        raw: Body::small("rubbish".into()),
        message_id: Some(Rc::clone(&id)),
        problem: "x".into(),
    });
    shop.clock().advance(1_000.0);
    tab.poll().await.expect("it can be done");
    assert_eq!((shop.rows("error").await.len(), elsewhere.bodies().len()), (1, 0));
    assert!(!tab.cancel(&id).await.expect("it can be done"), "it is in the error queue");
    assert_eq!(shop.end(&dialog.initiator).await.discarded, 0);
}

/// Garbage without an id holds up what is due.
async fn what_is_no_message_holds_up_no_other(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    for _ in 0..20 {
        elsewhere.plant(Fetched::Unreadable {
            raw: Body::small("rubbish".into()),
            message_id: None,
            problem: "x".into(),
        });
    }
    wake(shop, 1_000.0).await;
    assert_eq!(arrived(shop).await, ["m1"], "with {} in the error queue", shop.rows("error").await.len());
}

/// The same garbage is put into the error queue over and over.
async fn what_is_no_message_is_set_aside_once(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    for _ in 0..60 {
        for _ in 0..2 {
            elsewhere.plant(Fetched::Unreadable {
                raw: Body::small("rubbish".into()),
                message_id: None,
                problem: "x".into(),
            });
        }
        wake(shop, 1_000.0).await;
    }
    drop(tab);
    assert!(shop.rows("error").await.len() < 5, "{}", shop.rows("error").await.len());
}

async fn a_leader_that_is_hidden_says_so(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let first = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    let _second = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    shop.notices();
    shop.hide(2, true);
    // `visibilitychange`, to hidden.
    first.wake();
    settle().await;
    let said: Vec<_> = shop.notices().into_iter().filter_map(|notice| notice.role).collect();
    assert!(
        !said.is_empty(),
        "nobody hears that the leader is hidden: the second could be seen all the time, and never asks"
    );
}

async fn a_mended_conversation_knows_what_the_store_has(shop: &Shop) {
    use pocket_broker::store::Range;
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    let dialog = shop.order("m0").await;
    send_at(shop, &tab, &dialog.initiator, "m1", at(1_000.0)).await;
    settle().await;
    transact(&*shop.store, &[StoreName::Conversations], Mode::ReadWrite, async |tx| {
        let key = tx.get_keys(StoreName::Conversations, &Range::all(), None).await?[0].clone();
        let record = tx.get(StoreName::Conversations, &key).await?.expect("there");

        let fields = record.items();
        let last = 14;
        let broken =
            fields.into_iter().enumerate().map(|(index, field)| if index == last { Value::from("x") } else { field });
        tx.put(StoreName::Conversations, key, Value::list(broken.collect()));
        Ok(())
    })
    .await
    .expect("broken");
    let _ = shop.broker.receive("kitchen", pocket_broker::ReceiveOptions::default(), None).await;
    let _ = tab.send(vec![dialog.initiator.clone()], vec![shop.message("Note", "x")], None).await;
    println!("{:?}", shop.endpoints(pocket_broker::EndpointFilter::default()).await.len());
    shop.assert_sound().await;
}

async fn what_waits_in_the_hop_hides_nothing_that_is_due(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.always("store", Trouble::Fails);
    let dialog = shop.order("m0").await;
    enqueue_at(shop, &tab, "m1", at(60_000.0)).await;
    tab.begin_conversation_timer(&dialog.initiator, Some(5_000.0), pocket_broker::TimerOptions::default())
        .await
        .expect("it can be done");
    settle().await;
    assert!(
        tab.next_due().await.expect("it can be done").expect("some") > T0,
        "a test clock sees nothing but now, and passes the timer over"
    );
}

async fn what_lingers_in_a_lower_mode_is_not_moved(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(DelayedSettings { mode: TransactionMode::None, ..settings() }, &elsewhere).await;
    let id = enqueue_at(shop, &tab, "m1", at(1_000.0)).await;
    settle().await;
    elsewhere.once("remove", Trouble::Fails);
    shop.clock().advance(1_000.0);
    let _ = tab.poll().await;
    assert_eq!(arrived(shop).await, ["m1"]);
    let moved = tab.reschedule(&id, T0 + 90_000.0).await.expect("it can be done");
    settle().await;
    pass(shop, &tab, 90_000.0).await;
    assert_eq!(arrived(shop).await.len(), 1 + usize::from(moved), "reschedule said {moved}");
}

fn large() -> Body {
    Body { value: Value::from("large").into(), packing: 0, size: 70_000.0 }
}

async fn a_large_body_is_moved_in_the_hop(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    elsewhere.always("store", Trouble::Fails);
    let dialog = shop.order("m0").await;
    let id = tab
        .send_later(vec![Rc::clone(&dialog.initiator)], vec![shop.message_of("Note", large())], at(60_000.0), None)
        .await
        .expect("it can be done")[0];
    let id = pocket_broker::ids::text(id);
    settle().await;
    assert!(tab.reschedule(&id, T0 + 70_000.0).await.expect("it can be done"));
    shop.assert_sound().await;
    assert!(tab.reschedule(&id, T0 + 80_000.0).await.expect("it can be done"));
    shop.assert_sound().await;
    elsewhere.is_well();
    for _ in 0..6 {
        wake(shop, 1_000.0).await;
    }
    shop.assert_sound().await;
    assert_eq!(elsewhere.bodies(), ["large"]);
    pass(shop, &tab, 80_000.0).await;
    assert_eq!(arrived(shop).await, ["m0", "large"]);
    shop.assert_sound().await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 1);
}

async fn a_large_body_is_moved_in_the_store(shop: &Shop) {
    let elsewhere = shop.elsewhere();
    let tab = shop.tab_with(settings(), &elsewhere).await;
    settle().await;
    let dialog = shop.order("m0").await;
    let id = tab
        .send_later(vec![Rc::clone(&dialog.initiator)], vec![shop.message_of("Note", large())], at(60_000.0), None)
        .await
        .expect("it can be done")[0];
    let id = pocket_broker::ids::text(id);
    settle().await;
    let transaction = tab.begin().expect("open");
    assert!(transaction.reschedule(&id, T0 + 70_000.0).await.expect("it can be done"));
    transaction.commit().await.expect("it can be done");
    shop.assert_sound().await;
    settle().await;
    shop.assert_sound().await;
    assert_eq!((shop.records_in(StoreName::Bodies).await, elsewhere.bodies().len()), (0, 1));
    assert!(tab.reschedule(&id, T0 + 75_000.0).await.expect("it can be done"));
    settle().await;
    shop.retain("counter", true).await;
    shop.switch("counter", pocket_broker::definitions::Status::Off).await;
    pass(shop, &tab, 75_000.0).await;
    shop.assert_sound().await;
    shop.switch("counter", pocket_broker::definitions::Status::On).await;
    pass(shop, &tab, 60_000.0).await;
    assert_eq!(arrived(shop).await, ["m0", "large"]);
}
