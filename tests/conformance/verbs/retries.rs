//! What handlers that fail come to when nobody has said anything about it, when there is no way out for long, and while activation is off.

use pocket_broker::clock::Clock;
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{FailureKind, Next, ReceiveOptions, Recoverability, Recovered, RowFilter};

use super::super::support::shop::{Shop, begin, refused, show_all, top_of};
use super::recoverability::failure;
use super::set_aside::failed;

mount! {
    b105_activation_is_off_for_whoever_comes_later,
    d35_an_hour_without_a_way_out_loses_nothing,
    d35_without_a_wish_there_are_twenty_four_attempts,
}

/// The handler of the first row that can be had fails; `None`: there is none.
async fn try_and_fail(shop: &Shop, kind: FailureKind) -> Option<(String, Recovered)> {
    let transaction = begin(shop);
    let rows = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    let row = show_all(&rows).pop()?;
    let recovered = transaction.recover(failure(kind), Recoverability::default()).await.expect("it can be stored");
    Some((row, recovered.expect("it counts")))
}

/// (5 + 1) × (3 + 1), with 10, 20 and 30 seconds between the rounds.
async fn d35_without_a_wish_there_are_twenty_four_attempts(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    let mut waits = Vec::new();
    for attempt in 1..24 {
        let (row, recovered) = try_and_fail(shop, FailureKind::Ordinary).await.expect("it is tried again");
        assert_eq!((row.as_str(), recovered.attempts), ("0 Order 0 m1", attempt));
        let Some(at) = recovered.retry_at else {
            assert_eq!(recovered.next, Next::Immediate, "attempt {attempt}");
            continue;
        };
        assert_eq!(recovered.next, Next::Delayed, "attempt {attempt}");
        waits.push((attempt, at - shop.clock().now()));
        assert!(try_and_fail(shop, FailureKind::Ordinary).await.is_none(), "it waits, and what follows it, too");
        shop.pass(at - shop.clock().now()).await;
    }
    assert_eq!(waits, [(6, 10_000.0), (12, 20_000.0), (18, 30_000.0)]);
    let (_, last) = try_and_fail(shop, FailureKind::Ordinary).await.expect("once more");
    assert_eq!((last.attempts, last.next, last.retry_at), (24, Next::ErrorQueue, None));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"], "its conversation goes on");
    let texts: Vec<_> = failed(shop).await.iter().map(|row| row.body.text()).collect();
    assert_eq!(texts, [Some("m1".to_owned())]);
}

/// Whoever has to reach somebody outside puts his messages off for as long as that can't be done.
async fn d35_an_hour_without_a_way_out_loses_nothing(shop: &Shop) {
    let dialogs = [shop.order("a1").await, shop.order("b1").await];
    let end = shop.clock().now() + 3_600_000.0;
    let (mut tries, mut has_grown) = (0, false);
    while shop.clock().now() < end {
        while let Some((row, recovered)) = try_and_fail(shop, FailureKind::Later(None)).await {
            assert!(["0 Order 0 a1", "0 Order 0 b1"].contains(&row.as_str()), "the first of its conversation: {row}");
            assert_eq!((recovered.attempts, recovered.next), (0, Next::Delayed));
            tries += 1;
        }
        // Its users go on meanwhile.
        if !has_grown && tries > 20 {
            has_grown = true;
            for dialog in &dialogs {
                shop.send_many(&dialog.initiator, "Note", 0..3).await;
            }
        }
        shop.pass(1_000.0).await;
    }
    assert!(tries > 2 * 60, "at least once a minute each: {tries}");
    assert_eq!(failed(shop).await.len(), 0);
    let rows = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(rows.iter().map(|row| row.attempts).collect::<Vec<_>>(), [0; 8]);
    shop.pass(60_000.0).await;
    for first in ["0 Order 0 a1", "0 Order 0 b1"] {
        assert_eq!(shop.receive("kitchen").await, [first, "0 Note 1 0", "0 Note 2 1", "0 Note 3 2"]);
    }
    assert_eq!((shop.records_in(StoreName::Due).await, shop.queue("kitchen").await.ready), (0, 0));
}

/// It is kept with the queue, and switched on again by anybody.
async fn b105_activation_is_off_for_whoever_comes_later(shop: &Shop) {
    let switched = |activation| QueueOptions { activation: Some(activation), ..QueueOptions::default() };
    shop.order("m1").await;
    shop.alter("kitchen", switched(Status::Off)).await;
    let activated = || ReceiveOptions { activated: true, ..ReceiveOptions::default() };
    let (later, other) = (shop.another_tab().await, shop.another_tab().await);
    let error = refused(later.receive("kitchen", activated(), None).await, ErrorCode::QueueDisabled);
    assert!(error.to_string().contains("activation"), "{error}");
    let info = later.queues().await.expect("they can be looked at");
    assert!(info.iter().any(|queue| &*queue.name == "kitchen" && !queue.is_activation_enabled));
    other.alter_queue("kitchen", switched(Status::On)).await.expect("anybody may");
    assert_eq!(show_all(&later.receive("kitchen", activated(), None).await.expect("it is on again")), ["0 Order 0 m1"]);
    later.close().await;
    other.close().await;
}
