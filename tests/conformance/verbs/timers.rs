//! BEGIN CONVERSATION TIMER, and what comes of it.

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Key, Mode, Operation, Range, StoreName};
use pocket_broker::{BeginDialog, TimerOptions};

use super::super::support::shop::{Shop, begin, named, receive, refused, to_kitchen};
use super::super::support::{detail, transact};

mount! {
    b41_a_dialog_timer_comes_before_errors_and_messages,
    b82_a_timer_fires_on_its_own_side_only,
    b83_d08_a_second_timer_of_a_name_replaces_the_first,
    b84_a_timer_beyond_the_lifetime_is_refused,
    b87_d08_end_cancels_all_timers,
    d08_timers_of_other_names_run_side_by_side,
    d14_pending_timers_are_discarded_by_end,
    d16_a_timer_needs_the_group,
    d16_timers_by_state,
    d16_a_timer_survives_the_far_end,
    a_body_of_any_size_comes_with_the_timer,
    a_dialog_timer_is_retained_like_a_message,
    a_dialog_timer_waits_outside_an_off_queue,
    a_held_dialog_timer_is_nothing_of_the_far_side,
    a_timer_in_a_transaction_counts_from_its_call,
    what_can_not_be_read_holds_up_no_timer,
    many_timers_of_one_moment,
    timeouts_and_names_have_bounds,
}

mount_with_locks! {
    d08_null_cancels_a_timer,
}

/// What a queue's rows are, without their numbers.
async fn types(shop: &Shop, queue: &str) -> Vec<String> {
    let rows = shop.rows(queue).await;
    rows.iter().map(|row| row.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

async fn dialog_timer(shop: &Shop, handle: &str) -> Option<f64> {
    shop.info(handle).await.expect("it is there").dialog_timer
}

async fn b82_a_timer_fires_on_its_own_side_only(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.notices();
    shop.timer_of(&dialog.initiator, 2_000.0, "").await;
    assert!(shop.notices().iter().any(|notice| notice.due == Some(1_700_000_002_000.0)), "other contexts hear of it");
    assert_eq!(dialog_timer(shop, &dialog.initiator).await, Some(1_700_000_002_000.0));
    assert_eq!(shop.pass(1_999.0).await, 0);
    assert_eq!(shop.rows("counter").await, [""; 0]);
    assert_eq!(shop.pass(1.0).await, 1);
    assert_eq!((shop.rows("counter").await, shop.rows("kitchen").await), (vec!["1 DialogTimer 0".to_owned()], vec![]));
    assert!(shop.notices().iter().any(|notice| notice.enqueued.iter().any(|queue| &**queue == "counter")));
    assert_eq!(dialog_timer(shop, &dialog.initiator).await, None);
    let message = shop.messages("counter", Default::default()).await.remove(0);
    assert!(message.body.is_undefined(), "neither name nor body");
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0"]);
    assert_eq!(shop.pass(10_000.0).await, 0, "once");
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("CO", "CO"));
}

async fn b83_d08_a_second_timer_of_a_name_replaces_the_first(shop: &Shop) {
    let begun = shop.begin().await;
    shop.timer_of(&begun.handle, 1_000.0, "").await;
    shop.timer_of(&begun.handle, 3_000.0, "").await;
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    assert_eq!(shop.pass(2_999.0).await, 0);
    assert_eq!(shop.pass(1.0).await, 1);
    shop.timer_of(&begun.handle, 3_000.0, "").await;
    shop.timer_of(&begun.handle, 1_000.0, "").await;
    assert_eq!((shop.pass(1_000.0).await, shop.pass(9_000.0).await), (1, 0));
}

async fn d08_timers_of_other_names_run_side_by_side(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    for (name, timeout) in [("late", 3_000.0), ("early", 1_000.0), ("also early", 1_000.0), ("", 2_000.0)] {
        let options = named(name, Some(name));
        shop.broker.begin_conversation_timer(&dialog.target, Some(timeout), options).await.expect("it can be begun");
    }
    assert_eq!(dialog_timer(shop, &dialog.target).await, Some(1_700_000_001_000.0), "the earliest is shown");
    assert_eq!(shop.pass(2_500.0).await, 3);
    assert_eq!(
        shop.receive("kitchen").await,
        ["0 DialogTimer 1 early", "0 DialogTimer 1 also early", "0 DialogTimer 1"],
        "in the order in which they were due"
    );
    assert_eq!(shop.pass(500.0).await, 1);
}

async fn d08_null_cancels_a_timer(shop: &Shop) {
    let begun = shop.begin().await;
    shop.timer_of(&begun.handle, 1_000.0, "").await;
    shop.timer_of(&begun.handle, 1_000.0, "other").await;
    let cancel = |name| shop.broker.begin_conversation_timer(&begun.handle, None, named(name, None));
    cancel("").await.expect("it can be cancelled");
    shop.faults.reset_counts();
    cancel("nobody").await.expect("nothing to cancel is no error");
    assert_eq!(shop.faults.writes(), 0);
    assert_eq!(shop.records_in(StoreName::Due).await, 1);
    assert_eq!(shop.pass(1_000.0).await, 1);
}

async fn b87_d08_end_cancels_all_timers(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for handle in [&dialog.initiator, &dialog.target] {
        shop.timer_of(handle, 1_000.0, "").await;
        shop.timer_of(handle, 1_000.0, "second").await;
    }
    shop.switch("kitchen", Status::Off).await;
    shop.end(&dialog.initiator).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.records_in(StoreName::Due).await), ("DO", 2));
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.pass(1_000.0).await, 2, "those of the other side fire");
    shop.end(&dialog.target).await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn d14_pending_timers_are_discarded_by_end(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.target, 1_000.0, "").await;
    shop.timer_of(&dialog.target, 1_000.0, "second").await;
    assert_eq!(shop.end(&dialog.target).await.discarded, 3, "the message and both timers");
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    assert_eq!(shop.pass(1_000.0).await, 0);
}

async fn b41_a_dialog_timer_comes_before_errors_and_messages(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.fail(&dialog.target).await;
    shop.timer_of(&dialog.initiator, 0.0, "").await;
    assert_eq!(shop.pass(0.0).await, 1);
    assert_eq!(shop.rows("counter").await, ["1 Confirm 0 r1", "1 Error 1 42", "1 DialogTimer 1"]);
    assert_eq!(shop.receive_top("counter", 1).await, ["0 DialogTimer 1"]);
    assert_eq!(shop.receive("counter").await, ["0 Error 1 42", "0 Confirm 0 r1"]);
}

async fn d16_timers_by_state(shop: &Shop) {
    let begun = shop.begin().await;
    shop.timer_of(&begun.handle, 0.0, "SO").await;
    let dialog = shop.order("CO").await;
    shop.timer_of(&dialog.target, 0.0, "CO").await;
    shop.end(&dialog.target).await;
    shop.timer_of(&dialog.initiator, 0.0, "DI").await;
    let failed = shop.order("ER").await;
    shop.fail(&failed.target).await;
    shop.timer_of(&failed.initiator, 0.0, "ER").await;
    assert_eq!(shop.pass(0.0).await, 3, "END took the one in CO along");

    shop.switch("kitchen", Status::Off).await;
    let waiting = shop.order("DO").await;
    shop.end(&waiting.initiator).await;
    let error = refused(shop.try_timer(&waiting.initiator, 0.0, "").await, ErrorCode::InvalidState);
    assert_eq!((error.number(), detail(&error, "state").as_deref()), (Some(8458), Some("DO")));
    let error = refused(shop.try_timer(&dialog.target, 0.0, "").await, ErrorCode::ConversationNotFound);
    assert_eq!(error.number(), Some(8426));
}

async fn d16_a_timer_survives_the_far_end(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.initiator, 1_000.0, "").await;
    shop.end(&dialog.target).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 1", "0 EndDialog 0"]);
    assert_eq!(shop.state(&dialog.initiator).await, "DI");
}

async fn d16_a_timer_needs_the_group(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    transaction.begin_conversation_timer(&dialog.target, Some(0.0), named("", None)).await.expect("it is free");
    assert_eq!(shop.receive("kitchen").await, [""; 0], "the group is held");
    let waiting = async {
        shop.timer().until_sleeping().await;
        shop.timer().fire();
    };
    let (begun, ()) = futures_util::future::join(shop.try_timer(&dialog.target, 0.0, ""), waiting).await;
    refused(begun, ErrorCode::GroupLocked);
    transaction.rollback();
    shop.timer_of(&dialog.target, 0.0, "").await;
}

async fn a_timer_in_a_transaction_counts_from_its_call(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"]);
    for (name, timeout) in [("rolled back", Some(0.0)), ("kept", Some(500.0)), ("rolled back", None)] {
        transaction
            .begin_conversation_timer(&dialog.target, timeout, named(name, Some(name)))
            .await
            .expect("it can be begun");
    }
    assert_eq!((shop.pass(400.0).await, shop.records_in(StoreName::Due).await), (0, 0), "nothing is stored yet");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.pass(100.0).await, 1, "the time counts from the call");
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1 kept"]);

    let transaction = begin(shop);
    transaction.begin_conversation_timer(&dialog.target, Some(0.0), named("", None)).await.expect("it is free");
    assert_eq!(
        transaction.end_conversation(&dialog.target, Default::default()).await.expect("it can be ended").discarded,
        1
    );
    let gone = transaction.begin_conversation_timer(&dialog.target, Some(0.0), named("", None)).await;
    refused(gone, ErrorCode::ConversationNotFound);
    transaction.rollback();
    assert_eq!(shop.pass(0.0).await, 0);
}

async fn b84_a_timer_beyond_the_lifetime_is_refused(shop: &Shop) {
    let begun = shop
        .broker
        .begin_dialog(BeginDialog { lifetime: Some(1_000.0), ..to_kitchen() })
        .await
        .expect("the dialog begins");
    shop.clock().advance(10.0);
    let error = refused(shop.try_timer(&begun.handle, 991.0, "").await, ErrorCode::TimerBeyondLifetime);
    assert_eq!(error.number(), Some(8410));
    shop.timer_of(&begun.handle, 990.0, "").await;
    shop.end(&begun.handle).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

async fn timeouts_and_names_have_bounds(shop: &Shop) {
    let begun = shop.begin().await;
    for timeout in [-1.0, f64::NAN, f64::INFINITY, 8.64e15] {
        refused(shop.try_timer(&begun.handle, timeout, "").await, ErrorCode::InvalidArgument);
    }
    let long = "😀".repeat(128);
    refused(shop.try_timer(&begun.handle, 0.0, &format!("{long}x")).await, ErrorCode::InvalidArgument);
    shop.timer_of(&begun.handle, 8.64e15 - 1_700_000_000_000.0, &long).await;
    shop.timer_of(&begun.handle, 0.0, "__proto__").await;
    assert_eq!(shop.pass(0.0).await, 1);
    refused(shop.try_timer("x", 0.0, "").await, ErrorCode::ConversationNotFound);
}

async fn a_body_of_any_size_comes_with_the_timer(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for (name, size, packing) in [("small", 10.0, 0), ("large", 70_000.0, 1)] {
        let body = Body { value: Value::from(name).into(), packing, size };
        let options = TimerOptions { name: name.into(), body };
        shop.broker.begin_conversation_timer(&dialog.initiator, Some(0.0), options).await.expect("it can be begun");
    }
    assert_eq!(shop.pass(0.0).await, 2);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 1);
    let seen = shop.messages("counter", Default::default()).await;
    let seen: Vec<_> =
        seen.iter().map(|row| (row.body.text().unwrap_or_default(), row.packing, row.validation)).collect();
    assert_eq!(seen, [("small".to_owned(), 0.0, "N"), ("large".to_owned(), 1.0, "N")]);
    shop.assert_sound().await;
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0 small", "0 DialogTimer 0 large"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0, "what is received is gone");
}

async fn a_dialog_timer_is_retained_like_a_message(shop: &Shop) {
    shop.retain("counter", true).await;
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.initiator, 0.0, "").await;
    shop.pass(0.0).await;
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0"]);
    assert_eq!(types(shop, "counter").await, ["3 Order", "0 DialogTimer"]);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.rows("counter").await, [""; 0]);
}

async fn a_dialog_timer_waits_outside_an_off_queue(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("counter", Status::Off).await;
    shop.timer_of(&dialog.initiator, 0.0, "").await;
    assert_eq!(shop.pass(0.0).await, 1);
    assert_eq!(shop.rows("counter").await, [""; 0]);
    assert_eq!(shop.outside().await, ["DialogTimer 0"]);
    let row = shop.transmission().await.remove(0);
    assert_eq!(
        (row.conversation_handle, &*row.from_service, &*row.to_service),
        (dialog.initiator.clone(), "Counter", "Counter"),
        "it is the side's own"
    );
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.switch("counter", Status::On).await;
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0", "0 Confirm 0 r1"]);
    assert_eq!(shop.state(&dialog.initiator).await, "CO");
}

async fn a_held_dialog_timer_is_nothing_of_the_far_side(shop: &Shop) {
    for fails in [false, true] {
        shop.switch("counter", Status::On).await;
        let dialog = shop.order("m1").await;
        shop.switch("counter", Status::Off).await;
        shop.timer_of(&dialog.initiator, 0.0, "").await;
        shop.pass(0.0).await;
        if fails {
            shop.fail(&dialog.target).await;
            assert_eq!(shop.state(&dialog.target).await, "DO", "its Error waits");
            shop.clean_up(&dialog.target).await;
        } else {
            shop.clean_up(&dialog.target).await;
        }
        assert_eq!(shop.state(&dialog.target).await, "", "nothing of it waits");
        assert_eq!(shop.outside().await, ["DialogTimer 0"], "and the timer does not go with it");
        assert_eq!(shop.end(&dialog.initiator).await.discarded, 1);
    }
}

async fn many_timers_of_one_moment(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for number in 0..300 {
        let handle = if number % 2 == 0 { &dialog.initiator } else { &dialog.target };
        shop.timer_of(handle, 1_000.0, &number.to_string()).await;
    }
    shop.faults.reset_counts();
    assert_eq!(shop.pass(1_000.0).await, 300);
    assert!(shop.faults.calls(Operation::Begin) >= 2, "in more than one storage transaction");
    assert_eq!((shop.queue("counter").await.ready, shop.queue("kitchen").await.ready), (150, 151));
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
}

async fn what_can_not_be_read_holds_up_no_timer(shop: &Shop) {
    let (bad, good) = (shop.begin().await, shop.order("m1").await);
    shop.timer_of(&bad.handle, 10.0, "bad").await;
    shop.timer_of(&good.initiator, 20.0, "good").await;
    let stores = [StoreName::Conversations];
    transact(&*shop.store, &stores, Mode::ReadWrite, async |tx| {
        let key: Key = tx.get_keys(StoreName::Conversations, &Range::all(), Some(1)).await?.remove(0);
        tx.put(StoreName::Conversations, key, Value::from("garbage"));
        Ok(())
    })
    .await
    .expect("it can be broken");
    shop.clock().advance(1_000.0);
    // There is no room to set it aside in.
    let full = Error::new(ErrorCode::QuotaExceeded, "No space.");
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(full));
    let error = refused(shop.broker.poll().await, ErrorCode::StorageCorrupt);
    assert!(error.to_string().contains("conversations"), "{error}");
    assert_eq!(shop.receive("counter").await, ["0 DialogTimer 0"], "the other one has fired");
    assert_eq!(shop.pass(0.0).await, 0, "it is set aside, with its timer");
    assert_eq!(shop.queue("error").await.ready, 1);
}
