//! Group commit: calls without `await` share storage transactions, and each stands for itself.

use std::rc::Rc;

use futures_util::future::{join, join_all};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{EndOptions, ReceiveOptions};

use super::super::support::detail;
use super::super::support::shop::{Shop, refused, show_all, top_of};

mount! {
    a_bad_call_among_good_ones_fails_alone,
    calls_take_effect_in_their_order,
    close_lets_commits_finish,
    d27_an_unknown_outcome_is_told,
    d27_what_was_rolled_back_is_tried_again,
    receives_among_sends_see_what_came_before,
    storage_failures_fail_all_and_store_nothing,
    ten_thousand_sends_need_few_transactions,
}

mount_with_locks! {
    quota_fails_the_guilty_one_only,
}

/// D2.
async fn ten_thousand_sends_need_few_transactions(shop: &Shop) {
    let dialog = shop.order("first").await;
    shop.faults.reset_counts();
    let sends = (0..10_000).map(|number| {
        let message = shop.message("Note", &number.to_string());
        shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![message], None)
    });
    assert!(join_all(sends).await.iter().all(Result::is_ok));
    let commits = shop.faults.calls(Operation::Commit);
    assert!(commits <= 100, "{commits} storage transactions");
    assert!(shop.faults.writes_to(StoreName::Messages) <= 10_000 / 64, "neighbours share a run");
    assert_eq!(shop.queue("kitchen").await.ready, 10_001);
    let rows = shop.receive("kitchen").await;
    assert_eq!(rows.len(), 10_000, "d02: at most so many without `top`");
    assert!(rows[1..].iter().enumerate().all(|(number, row)| *row == format!("0 Note {} {number}", number + 1)));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 10000 9999"]);
}

async fn a_bad_call_among_good_ones_fails_alone(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let sends = (0..100).map(|number| {
        let (handle, message_type): (&str, &str) = match number {
            17 => ("x", "Note"),
            40 => (&dialog.initiator, "Confirm"),
            41 => (&dialog.initiator, "nothing"),
            _ => (&dialog.initiator, "Note"),
        };
        shop.broker.send(vec![handle.into()], vec![shop.message(message_type, &number.to_string())], None)
    });
    shop.faults.reset_counts();
    let answers = join_all(sends).await;
    assert_eq!(shop.faults.calls(Operation::Commit), 1, "who is refused costs the others nothing");
    let refused: Vec<usize> =
        answers.iter().enumerate().filter(|(_, answer)| answer.is_err()).map(|(number, _)| number).collect();
    assert_eq!(refused, [17, 40, 41]);
    let rows = shop.receive("kitchen").await;
    assert_eq!(rows.len(), 98);
    assert_eq!(rows[97], "0 Note 97 99", "numbers have no gaps");
}

async fn calls_take_effect_in_their_order(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (sent, ended) = join(
        join_all((0..5).map(|number| {
            shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", &number.to_string())], None)
        })),
        join_all([
            shop.broker.end_conversation(&dialog.initiator, EndOptions::default()),
            shop.broker.end_conversation(&dialog.initiator, EndOptions::default()),
            shop.broker.end_conversation(&dialog.target, EndOptions::default()),
        ]),
    )
    .await;
    assert!(sent.iter().all(Result::is_ok));
    assert!(ended[0].is_ok());
    assert_eq!(ended[1].as_ref().map_err(Error::code), Err(ErrorCode::ConversationNotFound));
    assert_eq!(
        ended[2].as_ref().map(|ended| ended.discarded).map_err(Error::code),
        Ok(7),
        "m1, five notes and the EndDialog"
    );
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn receives_among_sends_see_what_came_before(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let send =
        |body: &str| shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", body)], None);
    let receive = || shop.broker.receive("kitchen", top_of(2), None);
    let ((first, one), (second, (two, three))) =
        join(join(send("a"), receive()), join(send("b"), join(receive(), receive()))).await;
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(show_all(&one.expect("the queue is on")), ["0 Order 0 m1", "0 Note 1 a"]);
    assert_eq!(show_all(&two.expect("the queue is on")), ["0 Note 2 b"]);
    assert_eq!(show_all(&three.expect("the queue is on")), [""; 0]);
}

fn quota() -> Error {
    Error::new(ErrorCode::QuotaExceeded, "No space.")
}

async fn quota_fails_the_guilty_one_only(shop: &Shop) {
    let dialog = shop.order("m1").await;
    // Every part that the first call is in fails: of eight, four, two and one.
    for nth in 1..=4 {
        shop.faults.plan(Operation::Commit, nth, Fault::Abort(quota()));
    }
    shop.faults.reset_counts();
    let sends = (0..8).map(|number| {
        shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", &number.to_string())], None)
    });
    let answers = join_all(sends).await;
    assert_eq!(answers[0].as_ref().map_err(Error::code), Err(ErrorCode::QuotaExceeded));
    assert!(answers[1..].iter().all(Result::is_ok));
    assert_eq!(shop.faults.calls(Operation::Commit), 7, "halved, and each half tried once");
    let bodies: Vec<String> = shop.receive("kitchen").await;
    assert_eq!(bodies[1..].join(","), "0 Note 1 1,0 Note 2 2,0 Note 3 3,0 Note 4 4,0 Note 5 5,0 Note 6 6,0 Note 7 7");
    // What was read for the commit that failed is not believed any more.
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(quota()));
    refused(shop.broker.receive("kitchen", ReceiveOptions::default(), None).await, ErrorCode::QuotaExceeded);
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(quota()));
    let other = shop.order_after_a_failure("o1").await;
    shop.send(&other.initiator, "Note", "o2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 o1", "0 Note 1 o2"]);
}

async fn storage_failures_fail_all_and_store_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    for (operation, code) in [
        (Operation::Begin, ErrorCode::StorageUnavailable),
        (Operation::Get, ErrorCode::StorageUnavailable),
        (Operation::Write, ErrorCode::StorageUnavailable),
        (Operation::Commit, ErrorCode::StorageUnavailable),
    ] {
        // The second attempt fails, too.
        (1..=20)
            .for_each(|nth| shop.faults.plan(operation, nth, Fault::Fail(Error::new(code, "The disk is on fire."))));
        let sends = (0..8).map(|number| {
            shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", &number.to_string())], None)
        });
        let answers = join_all(sends).await;
        shop.faults.clear();
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.code() == code)),
            "{operation:?}: {answers:?}"
        );
        assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"], "{operation:?}");
    }
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

async fn d27_what_was_rolled_back_is_tried_again(shop: &Shop) {
    let dialog = shop.order("m0").await;
    for (number, operation) in
        [Operation::Begin, Operation::Get, Operation::Write, Operation::Commit].into_iter().enumerate()
    {
        for (fault, code) in
            [(Fault::Fail as fn(Error) -> Fault, ErrorCode::StorageUnavailable), (Fault::Abort, ErrorCode::StorageLost)]
        {
            shop.faults.plan(operation, 1, fault(Error::new(code, "It passes.")));
            shop.send(&dialog.initiator, "Note", "x").await;
        }
        assert_eq!(
            shop.receive("kitchen").await.len(),
            if number == 0 { 3 } else { 2 },
            "{operation:?}: once, not twice"
        );
    }
}

async fn d27_an_unknown_outcome_is_told(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.faults.plan(Operation::Commit, 1, Fault::LoseAnswer);
    let error = refused(shop.try_send(&dialog.initiator, "Note", "m2").await, ErrorCode::StorageLost);
    assert_eq!(detail(&error, "outcome").as_deref(), Some("unknown"));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"], "it happened, and is not tried again");
}

async fn close_lets_commits_finish(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let other = shop.broker.another();
    let sends = join_all((0..5).map(|number| {
        other.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", &number.to_string())], None)
    }));
    let (sent, ()) = join(sends, other.close()).await;
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(shop.queue("kitchen").await.ready, 6);
    refused(
        other.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", "x")], None).await,
        ErrorCode::Closed,
    );
}
