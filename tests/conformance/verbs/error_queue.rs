//! The error queue: what moves there, and comes back.

use std::rc::Rc;

use pocket_broker::definitions::Status;
use pocket_broker::store::StoreName;
use pocket_broker::{
    EndOptions, EnqueueOptions, FailedFilter, Failure, FailureKind, Finally, Next, ReceiveOptions, Recoverability,
    Recovered, RowFilter,
};

use super::super::support::shop::{Shop, begin, show_all, top_of};
use super::recoverability::failure;

mount! {
    d31_a_conversation_that_is_gone_leaves_its_message_in_the_error_queue,
    d31_a_lane_is_begun_again,
    d31_a_large_body_goes_along,
    d31_a_message_moves_and_its_conversation_goes_on,
    d31_discarding_deletes,
    d31_filters_and_limits,
    d31_system_messages_never_move,
    d31_what_comes_back_is_first_and_may_fail_again,
    d31_what_else_its_lane_has_goes_along,
    d31_what_fails_in_the_error_queue_stays_there,
    d31_what_waits_in_the_error_queue_can_leave_it,
    d31_what_comes_back_to_a_queue_that_is_off_waits,
    d24_a_failing_message_without_order_steps_aside,
    d24_the_end_of_a_lane_keeps_what_came_back,
}

async fn fails_in(shop: &Shop, queue: &str, policy: &Recoverability) -> Recovered {
    let transaction = begin(shop);
    let rows = transaction.receive(queue, top_of(1)).await.expect("the queue is on");
    let message = rows.first().map(|rows| rows.messages()).and_then(|mut rows| rows.pop()).expect("there is one");
    let failure = Failure { message_id: message.message_id, queue: queue.into(), ..failure(FailureKind::Ordinary) };
    transaction.recover(failure, policy.clone()).await.expect("it can be stored").expect("it counts")
}

fn at_once() -> Recoverability {
    Recoverability { immediate_retries: 0, delayed_retries: 0, ..Recoverability::default() }
}

async fn buried(shop: &Shop, queue: &str) {
    let recovered = fails_in(shop, queue, &at_once()).await;
    assert_eq!((recovered.next, recovered.retry_at), (Next::ErrorQueue, None));
}

async fn back(shop: &Shop) -> u64 {
    shop.broker.return_to_source(&FailedFilter::default()).await.expect("it can be done")
}

async fn d31_a_message_moves_and_its_conversation_goes_on(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    let before = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    shop.notices();
    buried(shop, "kitchen").await;
    let failed: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.failed).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(shop.rows("kitchen").await, ["1 Note 1 m2"]);
    assert_eq!(shop.rows("error").await, ["1 Order 0 m1"]);
    let after = shop.messages("error", RowFilter::default()).await.remove(0);
    assert_eq!((&after.message_id, after.message_enqueue_time), (&before.message_id, before.message_enqueue_time));
    assert_ne!(after.conversation_handle, before.conversation_handle);
    assert_eq!((after.failed_queue.as_deref(), before.failed_queue), (Some("kitchen"), None));
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m2"], "it goes on");
    shop.assert_sound().await;

    assert_eq!(back(shop).await, 1);
    assert_eq!((shop.rows("error").await, shop.rows("kitchen").await), (vec![], vec!["1 Order 0 m1".to_owned()]));
    let again = shop.messages("kitchen", RowFilter::default()).await.remove(0);
    assert_eq!((&again.message_id, &again.conversation_handle), (&before.message_id, &before.conversation_handle));
    assert_eq!((again.attempts, again.last_error), (0, None));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    assert_eq!(shop.records_in(StoreName::Conversations).await, 1, "nothing is left of its lane");
}

async fn d31_what_comes_back_is_first_and_may_fail_again(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    buried(shop, "kitchen").await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    back(shop).await;
    assert_eq!(shop.rows_of("kitchen", &dialog.target).await.len(), 3);
    buried(shop, "kitchen").await;
    assert_eq!(shop.rows("error").await, ["1 Order 0 m1"], "it was the first again");
    shop.assert_sound().await;
    back(shop).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2", "0 Note 2 m3"]);
    shop.end(&dialog.target).await;
}

async fn d31_system_messages_never_move(shop: &Shop) {
    let dialog = shop.order("m1").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    shop.timer_of(&dialog.target, 1.0, "").await;
    shop.pass(1.0).await;
    let stuck = fails_in(shop, "kitchen", &at_once()).await;
    assert_eq!((stuck.next, stuck.retry_at.is_some()), (Next::Delayed, true));
    shop.pass(60_000.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1"]);
    shop.end(&dialog.initiator).await;
    assert_eq!(fails_in(shop, "kitchen", &at_once()).await.next, Next::Delayed, "an EndDialog, too");
    shop.pass(60_000.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 EndDialog 1"]);
    assert_eq!(shop.rows("error").await, [""; 0]);
}

async fn d31_a_conversation_that_is_gone_leaves_its_message_in_the_error_queue(shop: &Shop) {
    let dialog = shop.order("m1").await;
    buried(shop, "kitchen").await;
    shop.end(&dialog.target).await;
    shop.notices();
    assert_eq!(back(shop).await, 0);
    let told: Vec<_> =
        shop.notices().into_iter().flat_map(|notice| notice.failed).map(|failed| failed.recovered.next).collect();
    assert_eq!(told, [Next::ErrorQueue]);
    assert_eq!(shop.rows("error").await, ["1 Order 0 m1"]);
}

async fn d31_filters_and_limits(shop: &Shop) {
    for body in ["a", "b", "c", "d"] {
        shop.order(body).await;
        buried(shop, "kitchen").await;
        shop.clock().advance(1_000.0);
    }
    let rows = shop.messages("error", RowFilter::default()).await;
    let of = |filter: FailedFilter| async move { shop.broker.return_to_source(&filter).await.expect("it can be done") };
    assert_eq!(of(FailedFilter { failed_queue: Some("counter".into()), ..FailedFilter::default() }).await, 0);
    let third: Option<Rc<str>> = rows.get(2).map(|row| Rc::clone(&row.message_id));
    assert_eq!(of(FailedFilter { message_id: third, ..FailedFilter::default() }).await, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 c"]);
    assert_eq!(of(FailedFilter { limit: Some(1.0), ..FailedFilter::default() }).await, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a"]);
    let now = pocket_broker::clock::Clock::now(shop.clock());
    assert_eq!(of(FailedFilter { failed_before: Some(now - 1_000.0), ..FailedFilter::default() }).await, 1);
    assert_eq!(shop.rows("error").await, ["1 Order 0 d"]);
}

async fn d31_discarding_deletes(shop: &Shop) {
    for body in ["a", "b"] {
        shop.order(body).await;
        buried(shop, "kitchen").await;
    }
    let held = begin(shop);
    held.receive("error", top_of(1)).await.expect("the queue is on");
    let discard = || async { shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be done") };
    assert_eq!(discard().await, 1, "not what somebody is at work on");
    held.rollback();
    assert_eq!(discard().await, 1);
    assert_eq!(shop.rows("error").await, [""; 0]);
    assert_eq!(shop.queue("error").await.ready, 0);
}

async fn d31_what_waits_in_the_error_queue_can_leave_it(shop: &Shop) {
    for body in ["a", "b"] {
        shop.order(body).await;
        buried(shop, "kitchen").await;
        let stuck = fails_in(shop, "error", &at_once()).await;
        assert!(stuck.retry_at.is_some());
    }
    assert_eq!(shop.records_in(StoreName::Due).await, 2);
    let one = FailedFilter { limit: Some(1.0), ..FailedFilter::default() };
    assert_eq!(shop.broker.discard_failed(&one).await.expect("it can be done"), 1);
    assert_eq!(back(shop).await, 1);
    assert_eq!((shop.records_in(StoreName::Due).await, shop.queue("error").await.ready), (0, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b"]);
}

async fn d31_what_else_its_lane_has_goes_along(shop: &Shop) {
    shop.order("a").await;
    buried(shop, "kitchen").await;
    let handle = shop.messages("error", RowFilter::default()).await.remove(0).conversation_handle;
    shop.timer_of(&handle, 1_000.0, "fires").await;
    shop.timer_of(&handle, 9_000.0, "runs").await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!(back(shop).await, 1);
    assert_eq!((shop.records_in(StoreName::Due).await, shop.queue("error").await.ready), (0, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a"]);
}

async fn d31_what_fails_in_the_error_queue_stays_there(shop: &Shop) {
    shop.order("m1").await;
    buried(shop, "kitchen").await;
    let stuck = fails_in(shop, "error", &at_once()).await;
    assert_eq!((stuck.next, stuck.attempts), (Next::Delayed, 1));
    assert_eq!(shop.rows("error").await, ["1 Order 0 m1"]);
    shop.pass(60_000.0).await;
    assert_eq!(back(shop).await, 1);
}

async fn d31_what_comes_back_to_a_queue_that_is_off_waits(shop: &Shop) {
    let dialog = shop.order("m1").await;
    buried(shop, "kitchen").await;
    shop.switch("kitchen", Status::Off).await;
    assert_eq!(back(shop).await, 1);
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

async fn d31_a_large_body_goes_along(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send_large(&dialog.initiator, "large").await;
    buried(shop, "kitchen").await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 1);
    assert_eq!(shop.rows("error").await, ["1 Note 0 large"]);
    back(shop).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 large"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn enqueue(shop: &Shop, bodies: &[&str], options: EnqueueOptions) {
    let messages = bodies.iter().map(|body| shop.message("DEFAULT", body)).collect();
    shop.broker.enqueue("house", messages, options, None).await.expect("it can be enqueued");
}

async fn d31_a_lane_is_begun_again(shop: &Shop) {
    enqueue(shop, &["a"], EnqueueOptions { key: Some("k".into()), ..EnqueueOptions::default() }).await;
    buried(shop, "house").await;
    assert_eq!(shop.records_in(StoreName::Conversations).await, 1, "the lane is gone, the error row is one");
    assert_eq!(back(shop).await, 1);
    let row = shop.messages("house", RowFilter::default()).await.remove(0);
    assert_eq!((row.key.as_deref(), row.message_sequence_number), (Some("k"), 0));
    enqueue(shop, &["b"], EnqueueOptions { key: Some("k".into()), ..EnqueueOptions::default() }).await;
    assert_eq!(shop.receive("house").await.len(), 2, "one lane");
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
}

async fn d24_a_failing_message_without_order_steps_aside(shop: &Shop) {
    let loose = || EnqueueOptions { ordered: false, ..EnqueueOptions::default() };
    let bodies: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    enqueue(shop, &bodies.iter().map(String::as_str).collect::<Vec<_>>(), loose()).await;
    let policy = Recoverability {
        immediate_retries: 0,
        delayed_retries: 1,
        finally: Finally::ErrorQueue,
        ..Recoverability::default()
    };
    let failed = fails_in(shop, "house", &policy).await;
    assert_eq!((failed.attempts, failed.next), (1, Next::Delayed));
    let mut rest = 0;
    loop {
        let transaction = begin(shop);
        let rows = show_all(&transaction.receive("house", ReceiveOptions::default()).await.expect("the queue is on"));
        transaction.commit().await.expect("it commits");
        if rows.is_empty() {
            break;
        }
        rest += rows.len();
    }
    assert_eq!(rest, 39, "it holds up nobody");
    shop.assert_sound().await;
    let row = shop.messages("house", RowFilter::default()).await.remove(0);
    assert_eq!((row.attempts, row.retry_at, row.key), (1, failed.retry_at, None));
    shop.pass(10_000.0).await;
    let last = fails_in(shop, "house", &policy).await;
    assert_eq!((last.attempts, last.next), (2, Next::ErrorQueue));
    assert_eq!(back(shop).await, 1);
    assert_eq!(shop.receive("house").await.len(), 1);
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
}

async fn d24_the_end_of_a_lane_keeps_what_came_back(shop: &Shop) {
    let own = || EnqueueOptions { key: Some("k".into()), ..EnqueueOptions::default() };
    shop.retain("house", true).await;
    enqueue(shop, &["a", "b"], own()).await;
    buried(shop, "house").await;
    assert_eq!(shop.receive("house").await.len(), 1);
    back(shop).await;
    let handle = shop.messages("house", RowFilter::default()).await.remove(0).conversation_handle;
    let ended = shop.broker.end_conversation(&handle, EndOptions::default()).await.expect("it is there");
    assert_eq!(ended.discarded, 0);
    shop.assert_sound().await;
    let rows = shop.messages("house", RowFilter { status: Some(vec![1.0]), ..RowFilter::default() }).await;
    assert_eq!(rows.len(), 1, "what is unread begins the next lane");
    assert_eq!(shop.receive("house").await.len(), 1);
}
