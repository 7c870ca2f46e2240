//! Delayed messages that leave the run that they were stored in: cancelled, rescheduled, or with their conversation.

use std::rc::Rc;

use futures_util::future::{join, join_all, join3, join5};
use pocket_broker::body::{Body, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::ids::text;
use pocket_broker::store::{Key, Mode, StoreName};
use pocket_broker::{EnqueueOptions, RowFilter};

use super::super::support::shop::{Shop, begin, refused};
use super::super::support::transact;
use super::delayed::{at, bodies, count, enqueue_later, later};
use super::delayed_runs::{many_enqueued_later, many_later, runs};

mount! {
    d37_numbers_are_made_anew_with_what_runs_have,
    l14_calls_at_once_leave_one_run_together,
    l14_one_is_cancelled_out_of_a_run,
    l14_one_is_rescheduled_out_of_a_run,
    l14_a_transaction_changes_a_run,
    l14_a_transaction_changes_what_it_has_stored,
    l14_in_a_transaction_a_cancel_frees_an_id,
    l14_in_a_transaction_others_of_a_run_are_no_conflict,
    l14_two_tabs_cancel_and_dispatch_one_run,
    l18_end_takes_the_rest_of_a_run,
    l18_an_end_takes_what_its_transaction_has_moved,
    l18_an_end_at_once_with_what_is_stored,
}

async fn cancelled(shop: &Shop, id: &str) -> bool {
    shop.broker.cancel(id).await.expect("it can be asked")
}

async fn d37_numbers_are_made_anew_with_what_runs_have(shop: &Shop) {
    let dialog = shop.order("m1").await;
    many_later(shop, &dialog.initiator, 0..300, at(1_000.0)).await;
    let ids = many_enqueued_later(shop, "kitchen", 300..310, at(1_000.0)).await;
    assert!(cancelled(shop, &ids[4]).await);
    transact(&*shop.store, &[StoreName::Meta], Mode::ReadWrite, async |tx| {
        tx.put(StoreName::Meta, Key::from("numbers"), Value::from("garbage"));
        Ok::<_, pocket_broker::error::Error>(())
    })
    .await
    .expect("it can be broken");
    enqueue_later(shop, "kitchen", "310", at(1_000.0)).await;
    assert_eq!(count(shop).await, 310);
    shop.assert_sound().await;
}

async fn l14_calls_at_once_leave_one_run_together(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let ids = many_later(shop, &dialog.initiator, 0..10, at(1_000.0)).await;
    let transaction = begin(shop);
    assert!(transaction.cancel(&ids[6]).await.expect("it can be cancelled"));
    assert!(transaction.reschedule(&ids[7], 1_700_000_005_000.0).await.expect("it can be moved"));
    // They share a commit.
    let ((first, one, committed, two, moved), none) = join(
        join5(
            enqueue_later(shop, "counter", "x", at(0.0)),
            shop.broker.cancel(&ids[0]),
            transaction.commit(),
            shop.broker.cancel(&ids[9]),
            shop.broker.reschedule(&ids[3], 1_700_000_000_500.0),
        ),
        shop.broker.cancel(&ids[6]),
    )
    .await;
    committed.expect("it commits");
    assert!(one.expect("it can") && two.expect("it can") && moved.expect("it can") && !none.expect("it can"));
    assert!(cancelled(shop, &first).await);
    assert_eq!(bodies(shop).await, ["3", "1", "2", "4", "5", "8", "7"]);
    shop.assert_sound().await;
    assert_eq!((shop.pass(500.0).await, shop.pass(500.0).await, shop.pass(4_000.0).await), (1, 5, 1));

    // What is dispatched by the same commit is gone.
    let ids = many_later(shop, &dialog.initiator, 0..10, at(6_000.0)).await;
    let transaction = begin(shop);
    assert!(transaction.cancel(&ids[6]).await.expect("it can be cancelled"));
    shop.clock().advance(1_000.0);
    let first = enqueue_later(shop, "counter", "y", at(99_000.0));
    let (_, polled, committed) = join3(first, shop.broker.poll(), transaction.commit()).await;
    assert_eq!(polled.expect("it can be done"), 10);
    refused(committed, ErrorCode::Conflict);
    assert_eq!(bodies(shop).await, ["y"]);
}

async fn l14_one_is_cancelled_out_of_a_run(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let ids = many_later(shop, &dialog.initiator, 0..6, at(1_000.0)).await;
    let lane = many_enqueued_later(shop, "kitchen", 6..9, at(1_000.0)).await;
    for (gone, left) in [(2, 5), (5, 4), (0, 3)] {
        assert!(cancelled(shop, &ids[gone]).await);
        assert!(!cancelled(shop, &ids[gone]).await, "once");
        assert_eq!((runs(shop).await, count(shop).await), (vec![left, 3], u64::from(left) + 3));
        shop.assert_sound().await;
    }
    assert!(cancelled(shop, &lane[1]).await);
    assert_eq!(bodies(shop).await, ["1", "3", "4", "6", "8"]);
    for gone in [3, 1, 4] {
        assert!(cancelled(shop, &ids[gone]).await);
        shop.assert_sound().await;
    }
    assert_eq!(runs(shop).await, [2], "the last one has taken it along");
    for (index, id) in ids.iter().enumerate() {
        assert!(!cancelled(shop, id).await, "{index}");
    }
    assert_eq!(shop.pass(1_000.0).await, 2);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 6", "0 DEFAULT 1 8"]);
    for id in &lane {
        assert!(!cancelled(shop, id).await);
    }
}

async fn l14_one_is_rescheduled_out_of_a_run(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let mut messages: Vec<_> = (0..5).map(|number| shop.message("Note", &number.to_string())).collect();
    messages[2].body = Body { value: Value::from("2").into(), packing: 0, size: 70_000.0 };
    let to = vec![Rc::clone(&dialog.initiator)];
    let ids = shop.broker.send_later(to, messages, at(1_000.0), None).await.expect("they can be sent later");
    let ids: Vec<_> = ids.into_iter().map(text).collect();
    let moves = async |index: usize, ms: f64| {
        let moved = shop.broker.reschedule(&ids[index], 1_700_000_000_000.0 + ms).await.expect("it can be moved");
        shop.assert_sound().await;
        moved
    };
    assert!(moves(2, 500.0).await && moves(4, 3_000.0).await && moves(0, 1_000.0).await);
    assert_eq!((bodies(shop).await, count(shop).await), (["2", "1", "3", "0", "4"].map(Into::into).into(), 5));
    assert_eq!(shop.records_in(StoreName::Bodies).await, 1);
    assert!(moves(2, 2_000.0).await && moves(2, 700.0).await, "more than once");
    assert_eq!((shop.pass(699.0).await, shop.pass(1.0).await, shop.pass(300.0).await), (0, 1, 3));
    assert!(!moves(0, 9_000.0).await && !moves(1, 9_000.0).await && moves(4, 4_000.0).await);
    assert!(cancelled(shop, &ids[4]).await);
    assert_eq!((shop.pass(9_000.0).await, count(shop).await), (0, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 2", "0 Note 2 1", "0 Note 3 3", "0 Note 4 0"]);
    assert_eq!((shop.records_in(StoreName::Bodies).await, shop.records_in(StoreName::Members).await), (0, 0));
}

async fn l14_a_transaction_changes_a_run(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let ids = many_later(shop, &dialog.initiator, 0..6, at(1_000.0)).await;
    for commits in [false, true] {
        let transaction = begin(shop);
        assert!(transaction.cancel(&ids[1]).await.expect("it can be cancelled"));
        assert!(!transaction.cancel(&ids[1]).await.expect("it can be asked"), "it has done so");
        assert!(transaction.cancel(&ids[5]).await.expect("it can be cancelled"));
        assert!(transaction.reschedule(&ids[3], 1_700_000_000_500.0).await.expect("it can be moved"));
        assert!(transaction.reschedule(&ids[0], 1_700_000_009_000.0).await.expect("it can be moved"));
        assert!(transaction.cancel(&ids[0]).await.expect("what was moved can be cancelled"));
        assert!(!transaction.reschedule(&ids[5], 1_700_000_009_000.0).await.expect("it can be asked"));
        assert_eq!((runs(shop).await, count(shop).await), (vec![6], 6), "not before the commit");
        if commits {
            transaction.commit().await.expect("it commits");
        } else {
            transaction.rollback();
        }
    }
    assert_eq!((bodies(shop).await, runs(shop).await), (["3", "2", "4"].map(Into::into).into(), vec![1, 2]));
    shop.assert_sound().await;
    assert_eq!((shop.pass(500.0).await, shop.pass(500.0).await, shop.pass(9_000.0).await), (1, 2, 0));

    // All of them.
    let ids = many_enqueued_later(shop, "kitchen", 0..3, at(11_000.0)).await;
    let transaction = begin(shop);
    for id in &ids {
        assert!(transaction.cancel(id).await.expect("it can be cancelled"));
    }
    transaction.commit().await.expect("it commits");
    assert_eq!((runs(shop).await.len(), count(shop).await), (0, 0));
}

async fn l14_a_transaction_changes_what_it_has_stored(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let transaction = begin(shop);
    let mut messages: Vec<_> = (0..6).map(|number| shop.message("Note", &number.to_string())).collect();
    for index in [1, 2] {
        messages[index].body = Body { value: Value::from(&*index.to_string()).into(), packing: 0, size: 70_000.0 };
    }
    let ids = transaction.send_later(vec![Rc::clone(&dialog.initiator)], messages, at(1_000.0)).await;
    let ids: Vec<_> = ids.expect("they can be sent later").into_iter().map(text).collect();
    assert!(transaction.cancel(&ids[1]).await.expect("it can be cancelled"));
    assert!(transaction.reschedule(&ids[2], 1_700_000_000_500.0).await.expect("it can be moved"));
    assert!(transaction.reschedule(&ids[5], 1_700_000_000_500.0).await.expect("it can be moved"));
    assert!(transaction.cancel(&ids[5]).await.expect("it can be cancelled"));
    transaction.commit().await.expect("it commits");
    assert_eq!((bodies(shop).await, count(shop).await), (["2", "0", "3", "4"].map(Into::into).into(), 4));
    shop.assert_sound().await;

    // From outside they are found by their names.
    let id = &ids[3];
    assert!(shop.broker.reschedule(id, 1_700_000_002_000.0).await.expect("it can be moved"));
    shop.assert_sound().await;
    assert!(cancelled(shop, &ids[0]).await && !cancelled(shop, &ids[1]).await && !cancelled(shop, &ids[5]).await);
    shop.assert_sound().await;
    assert_eq!((shop.pass(500.0).await, shop.pass(500.0).await, shop.pass(1_000.0).await), (1, 1, 1));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 2", "0 Note 2 4", "0 Note 3 3"]);
    assert_eq!((shop.records_in(StoreName::Bodies).await, shop.records_in(StoreName::Members).await), (0, 0));
}

async fn l14_in_a_transaction_a_cancel_frees_an_id(shop: &Shop) {
    let options =
        EnqueueOptions { delay: Some(at(1_000.0)), dedupe_id: Some("once".into()), ..EnqueueOptions::default() };
    let message = |body| vec![shop.message("DEFAULT", body)];
    let transaction = begin(shop);
    let own = transaction.enqueue_later("kitchen", message("1"), options.clone()).await.expect("it can be enqueued");
    assert!(transaction.cancel(&text(own[0])).await.expect("it can be cancelled"));
    transaction.commit().await.expect("it commits");
    assert_eq!((count(shop).await, shop.records_in(StoreName::Seen).await), (0, 0));
    shop.assert_sound().await;

    let first = shop.broker.enqueue_later("kitchen", message("2"), options.clone()).await.expect("it is free");
    let transaction = begin(shop);
    assert!(transaction.cancel(&text(first[0])).await.expect("it can be cancelled"));
    transaction.enqueue_later("kitchen", message("3"), options.clone()).await.expect("it can be enqueued");
    transaction.commit().await.expect("it commits");
    assert_eq!(bodies(shop).await, ["3"]);
    shop.assert_sound().await;

    // In one commit, too.
    let seen = shop.broker.enqueue_later("kitchen", message("4"), options.clone()).await.expect("it can be asked for");
    let (cancelled, sent) =
        join(shop.broker.cancel(&text(seen[0])), shop.broker.enqueue_later("kitchen", message("5"), options.clone()))
            .await;
    assert!(cancelled.expect("it can be cancelled"));
    assert_ne!(sent.expect("it can be enqueued"), seen);
    assert_eq!(bodies(shop).await, ["5"]);
}

async fn l14_in_a_transaction_others_of_a_run_are_no_conflict(shop: &Shop) {
    let ids = many_enqueued_later(shop, "kitchen", 0..5, at(1_000.0)).await;
    let transaction = begin(shop);
    assert!(transaction.cancel(&ids[1]).await.expect("it can be cancelled"));
    assert!(transaction.reschedule(&ids[3], 1_700_000_002_000.0).await.expect("it can be moved"));
    let tab = shop.another_tab().await;
    assert!(tab.cancel(&ids[4]).await.expect("it can be cancelled"));
    assert!(tab.reschedule(&ids[0], 1_700_000_003_000.0).await.expect("it can be moved"));
    transaction.commit().await.expect("it commits");
    assert_eq!(bodies(shop).await, ["2", "3", "0"]);
    shop.assert_sound().await;

    let transaction = begin(shop);
    assert!(transaction.reschedule(&ids[2], 1_700_000_002_500.0).await.expect("it can be moved"));
    assert!(transaction.cancel(&ids[3]).await.expect("it can be cancelled"));
    assert!(tab.cancel(&ids[3]).await.expect("it can be cancelled"));
    refused(transaction.commit().await, ErrorCode::Conflict);
    assert_eq!((bodies(shop).await, count(shop).await), (["2", "0"].map(Into::into).into(), 2), "all or nothing");
    tab.close().await;
}

async fn l14_two_tabs_cancel_and_dispatch_one_run(shop: &Shop) {
    let ids = many_enqueued_later(shop, "kitchen", 0..20, at(1_000.0)).await;
    let tab = shop.another_tab().await;
    shop.clock().advance(1_000.0);
    let cancel = join_all(ids.iter().map(|id| shop.broker.cancel(id)));
    let (polled, cancels) = join(tab.poll(), cancel).await;
    let cancels: Vec<bool> = cancels.into_iter().map(|was| was.expect("it can be asked")).collect();
    let gone = cancels.iter().filter(|was| **was).count();
    assert_eq!(polled.expect("it can be done") + gone as u64, 20);
    let seen = shop.messages("kitchen", RowFilter::default()).await;
    let seen: Vec<_> = seen.iter().map(|message| Rc::clone(&message.message_id)).collect();
    let delivered: Vec<_> = ids.iter().zip(&cancels).filter(|(_, was)| !**was).map(|(id, _)| Rc::clone(id)).collect();
    assert_eq!((seen, count(shop).await), (delivered, 0), "exactly one of the two has each");
    tab.close().await;
}

async fn l18_end_takes_the_rest_of_a_run(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let ids = many_later(shop, &dialog.initiator, 0..300, at(1_000.0)).await;
    many_later(shop, &dialog.target, 0..2, at(1_000.0)).await;
    for gone in [0, 100, 255, 256, 299] {
        assert!(cancelled(shop, &ids[gone]).await);
    }
    assert!(shop.broker.reschedule(&ids[5], 1_700_000_005_000.0).await.expect("it can be moved"));
    assert_eq!(shop.end(&dialog.initiator).await.discarded, 295);
    assert_eq!((runs(shop).await, count(shop).await), (vec![2], 2), "those of the other side");
    shop.assert_sound().await;
    shop.end(&dialog.target).await;
    assert_eq!((shop.pass(9_000.0).await, shop.records_in(StoreName::Members).await), (0, 0));
    assert_eq!(shop.rows("error").await, [""; 0]);
}

async fn l18_an_end_takes_what_its_transaction_has_moved(shop: &Shop) {
    for cancels_all in [false, true] {
        let dialog = shop.order("m1").await;
        shop.receive("kitchen").await;
        let mut messages: Vec<_> = (0..4).map(|number| shop.message("Note", &number.to_string())).collect();
        messages[2].body = Body { value: Value::from("2").into(), packing: 0, size: 70_000.0 };
        let to = vec![Rc::clone(&dialog.initiator)];
        let ids = shop.broker.send_later(to.clone(), messages, at(1_000.0), None).await.expect("they can be sent");
        let transaction = begin(shop);
        let own = transaction.send_later(to, vec![shop.message("Note", "own")], at(1_000.0)).await;
        let own = text(own.expect("it can be sent")[0]);
        for id in &ids {
            let id = text(*id);
            if cancels_all {
                assert!(transaction.cancel(&id).await.expect("it can be cancelled"));
            } else {
                assert!(transaction.reschedule(&id, 1_700_000_005_000.0).await.expect("it can be moved"));
            }
        }
        if cancels_all {
            assert!(transaction.cancel(&own).await.expect("it can be cancelled"));
        }
        let ended = transaction.end_conversation(&dialog.initiator, Default::default()).await.expect("it can be ended");
        assert_eq!(ended.discarded, if cancels_all { 0 } else { 5 });
        transaction.commit().await.expect("it commits");
        assert_eq!((runs(shop).await.len(), count(shop).await), (0, 0));
        shop.assert_sound().await;
        shop.end(&dialog.target).await;
        assert_eq!((shop.records_in(StoreName::Members).await, shop.records_in(StoreName::Bodies).await), (0, 0));
    }
}

async fn l18_an_end_at_once_with_what_is_stored(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    let ids = many_later(shop, &dialog.initiator, 0..3, at(1_000.0)).await;
    let options = EnqueueOptions { delay: Some(at(1_000.0)), ..EnqueueOptions::default() };
    // They share a commit.
    let ((_, cancelled, sent, _, ended), late) = join(
        join5(
            enqueue_later(shop, "kitchen", "a", at(1_000.0)),
            shop.broker.cancel(&ids[1]),
            later(shop, &dialog.initiator, "b", at(1_000.0)),
            shop.broker.enqueue_later("kitchen", vec![shop.message("DEFAULT", "c")], options),
            shop.broker.end_conversation(&dialog.initiator, Default::default()),
        ),
        shop.broker.cancel(&ids[0]),
    )
    .await;
    assert!(cancelled.expect("it can be cancelled") && !late.expect("it can be asked"));
    assert_eq!(ended.expect("it can be ended").discarded, 3);
    assert!(!self::cancelled(shop, &sent).await);
    assert_eq!((bodies(shop).await, count(shop).await), (["a", "c"].map(Into::into).into(), 2));
    shop.assert_sound().await;
    assert_eq!(shop.pass(1_000.0).await, 2);
}
