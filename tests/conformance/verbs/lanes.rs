//! Lanes as conversations: END, timers, groups, and that they leave nothing behind (D24).

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{Destination, EndOptions, EndResult, EndpointFilter, ReceiveOptions, RowFilter};

use super::super::support::shop::{
    Shop, archived, begin, dialog_of, keyed, named, receive, refused, short, show_all, top_of, with_error,
};

mount! {
    a_dead_tab_leaves_the_lane_as_it_was,
    a_timer_keeps_a_lane,
    cleanup_takes_what_is_unread,
    d08_an_end_cancels_the_timers,
    d24_a_lane_goes_with_its_last_row,
    d24_an_end_archives_what_was_received,
    d24_an_end_in_a_transaction_takes_what_it_received,
    d24_an_end_leaves_what_waits_outside,
    d24_an_end_with_an_error_tells_nobody,
    d24_large_bodies_go_with_the_end,
    d24_thousands_of_keys_leave_nothing_behind,
    d24_unread_messages_begin_the_next_lane,
    d24_what_was_kept_goes_with_the_end,
    a_lane_can_be_moved,
    a_queue_with_lanes_is_in_use,
    an_end_and_a_receive_that_share_a_commit,
    nothing_can_be_sent_on_a_lane,
    the_state_of_a_lane_goes_with_it,
    who_comes_late_is_refused,
}

async fn handle_of(shop: &Shop, key: &str) -> Rc<str> {
    let ends = shop.endpoints(EndpointFilter::default()).await;
    let end = ends.into_iter().find(|end| end.key.as_deref() == Some(key));
    end.map_or_else(|| "".into(), |end| end.conversation_handle)
}

/// Nothing of any lane is left.
async fn assert_nothing_left(shop: &Shop) {
    let stores = [StoreName::Conversations, StoreName::Members, StoreName::Messages, StoreName::Bodies];
    for store in stores.into_iter().chain([StoreName::Turns, StoreName::Due, StoreName::Seen]) {
        assert_eq!(shop.records_in(store).await, 0, "{store:?}");
    }
}

async fn d24_a_lane_goes_with_its_last_row(shop: &Shop) {
    for round in 0..3 {
        shop.enqueue_key("kitchen", "a", "1").await;
        shop.enqueue_key("kitchen", "a", "2").await;
        let handle = handle_of(shop, "a").await;
        assert_eq!(shop.receive_top("kitchen", 1).await, ["0 DEFAULT 0 1"], "{round}");
        assert_eq!(shop.state(&handle).await, "CO");
        assert_eq!(shop.receive_top("kitchen", 1).await, ["0 DEFAULT 1 2"]);
        assert_eq!(shop.state(&handle).await, "");
        assert_nothing_left(shop).await;
        refused(shop.broker.end_conversation(&handle, EndOptions::default()).await, ErrorCode::ConversationNotFound);
    }
    let notices = shop.notices();
    let gone = notices.iter().flat_map(|notice| &notice.states).filter(|(_, state)| *state == "CD");
    assert_eq!(gone.count(), 3);
}

async fn d24_thousands_of_keys_leave_nothing_behind(shop: &Shop) {
    for round in 0..3_000 {
        shop.enqueue_key("kitchen", &format!("key {round}"), "m").await;
        if round % 3 == 2 {
            for _ in 0..3 {
                assert_eq!(shop.receive("kitchen").await.len(), 1);
            }
        }
    }
    assert_nothing_left(shop).await;
    let queue = shop.queue("kitchen").await;
    assert_eq!((queue.ready, queue.retained), (0, 0));
}

async fn d24_unread_messages_begin_the_next_lane(shop: &Shop) {
    shop.retain("kitchen", true).await;
    for number in 0..6 {
        shop.enqueue_key("kitchen", "a", &number.to_string()).await;
    }
    let first = handle_of(shop, "a").await;
    assert_eq!(shop.receive_top("kitchen", 4).await.len(), 4);
    let before = shop.info(&first).await.expect("it is there");
    assert_eq!(shop.end(&first).await, EndResult { discarded: 0, archived: 0 });
    assert_eq!(shop.state(&first).await, "", "its handle is of the lane that ended");
    refused(shop.broker.end_conversation(&first, EndOptions::default()).await, ErrorCode::ConversationNotFound);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 4", "1 DEFAULT 1 5"], "d06: numbered from 0");
    let second = shop.info(&handle_of(shop, "a").await).await.expect("the next lane");
    assert!(
        second.conversation_handle != before.conversation_handle
            && second.conversation_id != before.conversation_id
            && second.conversation_group_id != before.conversation_group_id
    );
    assert_eq!(second.receive_sequence, 2);
    let queue = shop.queue("kitchen").await;
    assert_eq!((queue.ready, queue.retained), (2, 0));
    shop.assert_sound().await;

    shop.enqueue_key("kitchen", "a", "6").await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 DEFAULT 0 4"]);
    assert_eq!(shop.end(&second.conversation_handle).await.discarded, 0);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 5", "1 DEFAULT 1 6"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 5", "0 DEFAULT 1 6"]);
    assert_eq!(shop.rows("kitchen").await, ["0 DEFAULT 0 5", "0 DEFAULT 1 6"]);
    shop.end(&handle_of(shop, "a").await).await;
    assert_nothing_left(shop).await;
}

async fn d24_what_was_kept_goes_with_the_end(shop: &Shop) {
    shop.retain("kitchen", true).await;
    // In runs of 256: the cursor ends up in the middle of one.
    shop.enqueue_many("kitchen", 0..1_000, keyed("a")).await;
    assert_eq!(shop.receive_top("kitchen", 600).await.len(), 600);
    shop.end(&handle_of(shop, "a").await).await;
    assert_eq!(shop.records_in(StoreName::Messages).await, 2);
    assert_eq!(shop.rows("kitchen").await.len(), 400);
    shop.assert_sound().await;
    shop.retain("kitchen", false).await;
    assert_eq!(shop.receive_top("kitchen", 100).await[0], "0 DEFAULT 0 600");
    assert_eq!(shop.receive("kitchen").await.len(), 300);
    assert_nothing_left(shop).await;
}

async fn d24_an_end_archives_what_was_received(shop: &Shop) {
    shop.alter("kitchen", QueueOptions { retention: Some(true), archive: Some(true), ..Default::default() }).await;
    shop.enqueue_many("kitchen", 0..10, keyed("a")).await;
    shop.receive_top("kitchen", 4).await;
    let handle = handle_of(shop, "a").await;
    let transaction = begin(shop);
    let received = transaction.receive("kitchen", top_of(2)).await.expect("the queue is on");
    assert_eq!(show_all(&received).len(), 2);
    let ended = transaction.end_conversation(&handle, EndOptions::default()).await.expect("it can be ended");
    assert_eq!(ended, EndResult { discarded: 0, archived: 6 });
    transaction.commit().await.expect("it commits");
    let filter = RowFilter::default();
    let page = shop.broker.archive(&filter, None, pocket_broker::Extent::All).await.expect("it can be looked at");
    let rows: Vec<_> = page.rows.iter().flat_map(pocket_broker::Rows::messages).collect();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row.key.as_deref() == Some("a") && row.status.number() == 0));
    assert_eq!(shop.rows("kitchen").await.len(), 4);

    shop.receive_top("kitchen", 1).await;
    assert_eq!(shop.end(&handle_of(shop, "a").await).await, EndResult { discarded: 0, archived: 1 });
    let handle = handle_of(shop, "a").await;
    let ended = shop.broker.end_conversation(&handle, EndOptions { cleanup: true, ..archived() }).await;
    assert_eq!(ended.expect("it can be cleaned up"), EndResult { discarded: 3, archived: 3 });
    shop.broker.purge_archive(f64::MAX).await.expect("it can be purged");
    assert_nothing_left(shop).await;
}

async fn d24_an_end_in_a_transaction_takes_what_it_received(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..3, keyed("a")).await;
    let handle = handle_of(shop, "a").await;
    let transaction = begin(shop);
    let received = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    assert_eq!(show_all(&received), ["0 DEFAULT 0 0"]);
    let ended = transaction.end_conversation(&handle, EndOptions::default()).await.expect("it can be ended");
    assert_eq!(ended, EndResult { discarded: 0, archived: 0 });
    let next = vec![shop.message("DEFAULT", "3")];
    transaction.enqueue("kitchen", next, keyed("a")).await.expect("it is accepted");
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0], "the next lane begins with the commit");
    let again = transaction.end_conversation(&handle, EndOptions::default()).await;
    refused(again, ErrorCode::ConversationNotFound);
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 1", "1 DEFAULT 1 2", "1 DEFAULT 2 3"]);

    // All of it: the lane is gone, and one that is begun behind it is another.
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await.len(), 3);
    let ended = transaction.end_conversation(&handle_of(shop, "a").await, EndOptions::default()).await;
    assert_eq!(ended.expect("it can be ended").discarded, 0);
    let next = vec![shop.message("DEFAULT", "4")];
    transaction.enqueue("kitchen", next, keyed("a")).await.expect("it is accepted");
    transaction.commit().await.expect("it commits");
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 4"]);
    shop.receive("kitchen").await;
    assert_nothing_left(shop).await;
}

async fn an_end_and_a_receive_that_share_a_commit(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..3, keyed("a")).await;
    let handle = handle_of(shop, "a").await;
    let (first, ended, rest) = futures_util::future::join3(
        shop.broker.receive("kitchen", top_of(1), None),
        shop.broker.end_conversation(&handle, EndOptions::default()),
        shop.broker.receive("kitchen", ReceiveOptions::default(), None),
    )
    .await;
    assert_eq!(show_all(&first.expect("the queue is on")), ["0 DEFAULT 0 0"]);
    assert_eq!(ended.expect("it can be ended").discarded, 0);
    assert_eq!(show_all(&rest.expect("the queue is on")), ["0 DEFAULT 0 1", "0 DEFAULT 1 2"]);
    assert_nothing_left(shop).await;
}

async fn d24_an_end_leaves_what_waits_outside(shop: &Shop) {
    shop.retain("kitchen", true).await;
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    shop.receive_top("kitchen", 1).await;
    shop.switch("kitchen", Status::Off).await;
    shop.enqueue_key("kitchen", "a", "2").await;
    assert_eq!(shop.end(&handle_of(shop, "a").await).await.discarded, 0);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 1"]);
    assert_eq!(shop.outside().await, ["DEFAULT 1 2"]);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 1", "0 DEFAULT 1 2"]);
    shop.switch("kitchen", Status::Off).await;
    shop.enqueue_key("kitchen", "a", "3").await;
    shop.end(&handle_of(shop, "a").await).await;
    assert_eq!((shop.rows("kitchen").await.len(), shop.outside().await), (0, vec!["DEFAULT 0 3".to_owned()]));
    assert_eq!(shop.clean_up(&handle_of(shop, "a").await).await.discarded, 1);
    assert_nothing_left(shop).await;
    shop.switch("kitchen", Status::On).await;
}

async fn d24_an_end_with_an_error_tells_nobody(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    shop.receive_top("kitchen", 1).await;
    let ended = shop.broker.end_conversation(&handle_of(shop, "a").await, with_error(1.0, "no bread")).await;
    assert_eq!(ended.expect("it can be ended").discarded, 0);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 1"]);
    assert_eq!(shop.dropped(), [""; 0]);
    shop.receive("kitchen").await;
}

async fn d24_large_bodies_go_with_the_end(shop: &Shop) {
    shop.retain("kitchen", true).await;
    for body in ["0", "1", "2"] {
        let body = Body { value: Value::from(body).into(), packing: 0, size: 70_000.0 };
        let message = vec![shop.message_of("DEFAULT", body)];
        shop.broker.enqueue("kitchen", message, keyed("a"), None).await.expect("it can be enqueued");
    }
    shop.receive_top("kitchen", 2).await;
    shop.end(&handle_of(shop, "a").await).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 1);
    shop.retain("kitchen", false).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 2"]);
    assert_nothing_left(shop).await;
}

async fn cleanup_takes_what_is_unread(shop: &Shop) {
    shop.retain("kitchen", true).await;
    shop.enqueue_many("kitchen", 0..5, keyed("a")).await;
    shop.receive_top("kitchen", 2).await;
    assert_eq!(shop.clean_up(&handle_of(shop, "a").await).await, EndResult { discarded: 3, archived: 0 });
    assert_nothing_left(shop).await;
    let queue = shop.queue("kitchen").await;
    assert_eq!((queue.ready, queue.retained), (0, 0));
}

async fn nothing_can_be_sent_on_a_lane(shop: &Shop) {
    shop.enqueue_key("kitchen", "a", "1").await;
    let handle = handle_of(shop, "a").await;
    let error = refused(shop.try_send(&handle, "DEFAULT", "x").await, ErrorCode::InvalidState);
    assert!(error.to_string().contains("enqueue"), "{error}");
    assert_eq!(shop.rows("kitchen").await.len(), 1);
}

async fn a_timer_keeps_a_lane(shop: &Shop) {
    shop.enqueue_key("kitchen", "a", "1").await;
    let handle = handle_of(shop, "a").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1);
    transaction.begin_conversation_timer(&handle, Some(1_000.0), named("", None)).await.expect("it can be begun");
    transaction.commit().await.expect("it commits");
    assert_eq!((shop.state(&handle).await, shop.rows("kitchen").await.len()), ("CO", 0));
    shop.enqueue_key("kitchen", "a", "2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 1 2"], "the same lane");
    assert_eq!(shop.pass(1_000.0).await, 1);
    let received = shop.broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on");
    let types: Vec<_> = received.iter().flat_map(pocket_broker::Rows::messages).collect();
    assert_eq!(types.iter().map(|row| short(&row.message_type_name)).collect::<Vec<_>>(), ["DialogTimer"]);
    assert_nothing_left(shop).await;

    // One that is cancelled.
    shop.enqueue_key("kitchen", "a", "1").await;
    let handle = handle_of(shop, "a").await;
    shop.timer_of(&handle, 1_000.0, "x").await;
    shop.receive("kitchen").await;
    assert_eq!(shop.state(&handle).await, "CO");
    let cancelled = shop.broker.begin_conversation_timer(&handle, None, named("x", None)).await;
    cancelled.expect("it can be cancelled");
    assert_nothing_left(shop).await;
}

async fn d08_an_end_cancels_the_timers(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    let handle = handle_of(shop, "a").await;
    shop.timer_of(&handle, 1_000.0, "one").await;
    shop.timer_of(&handle, 2_000.0, "two").await;
    assert_eq!(shop.pass(1_500.0).await, 1);
    assert_eq!(shop.end(&handle).await.discarded, 2, "one that has fired, and one that has not");
    assert_eq!(shop.records_in(StoreName::Due).await, 0);
    assert_eq!(shop.rows("kitchen").await, ["1 DEFAULT 0 0", "1 DEFAULT 1 1"]);
    shop.receive("kitchen").await;
    assert_nothing_left(shop).await;
}

async fn a_lane_can_be_moved(shop: &Shop) {
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    shop.enqueue_key("kitchen", "b", "b").await;
    let (a, b) = (handle_of(shop, "a").await, handle_of(shop, "b").await);
    let moved = shop.broker.move_conversation(&a, Destination::Named(Rc::clone(&b))).await;
    moved.expect("they are of one service");
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await.len(), 3, "one group");
    transaction.rollback();
    shop.receive_top("kitchen", 1).await;
    shop.end(&a).await;
    assert_eq!(shop.receive("kitchen").await.len(), 1, "the next lane has a group of its own");
    assert_eq!(shop.receive("kitchen").await.len(), 1);
    assert_nothing_left(shop).await;

    shop.enqueue_key("kitchen", "a", "a").await;
    let dialog = shop.broker.begin_dialog(dialog_of("Kitchen", "Counter")).await.expect("the dialog begins");
    let to = Destination::Conversation(dialog.handle);
    let moved = shop.broker.move_conversation(&handle_of(shop, "a").await, to).await;
    refused(moved, ErrorCode::GroupInvalid);
    shop.receive("kitchen").await;
}

async fn the_state_of_a_lane_goes_with_it(shop: &Shop) {
    let body = || Body::small(Value::from("half"));
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    let handle = handle_of(shop, "a").await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    transaction.set_group_state(&handle, body()).await.expect("it can be set");
    transaction.commit().await.expect("the lane is emptied by the same commit");
    assert_nothing_left(shop).await;

    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    let handle = handle_of(shop, "a").await;
    shop.broker.set_group_state(&handle, body()).await.expect("it can be set");
    shop.receive_top("kitchen", 1).await;
    shop.end(&handle).await;
    let state = shop.broker.get_group_state(&handle_of(shop, "a").await).await.expect("it can be asked for");
    assert!(state.is_none());
    shop.receive("kitchen").await;
    assert_nothing_left(shop).await;
}

async fn a_queue_with_lanes_is_in_use(shop: &Shop) {
    let queue = || ("spare".to_owned(), QueueOptions::default());
    let spare = pocket_broker::definitions::Definitions { queues: vec![queue()], ..Default::default() };
    shop.broker.define(spare).await.expect("it can be defined");
    shop.enqueue_key("spare", "a", "1").await;
    refused(shop.broker.drop_queue("spare").await, ErrorCode::InUse);
    shop.end(&handle_of(shop, "a").await).await;
    refused(shop.broker.drop_queue("spare").await, ErrorCode::InUse);
    shop.clean_up(&handle_of(shop, "a").await).await;
    shop.broker.drop_queue("spare").await.expect("nothing is left in it");
    refused(shop.try_enqueue("spare", "x", keyed("a")).await, ErrorCode::QueueNotFound);
}

async fn a_dead_tab_leaves_the_lane_as_it_was(shop: &Shop) {
    let other = shop.another_tab().await;
    shop.enqueue_key("kitchen", "a", "1").await;
    let transaction = other.begin().expect("the broker is open");
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1);
    assert_eq!(shop.receive("kitchen").await, [""; 0], "held");
    drop(transaction);
    other.close().await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 1"]);
    assert_nothing_left(shop).await;
}

async fn who_comes_late_is_refused(shop: &Shop) {
    let late = shop.tab_without_locks().await;
    shop.enqueue_many("kitchen", 0..2, keyed("a")).await;
    let transaction = late.begin().expect("the broker is open");
    let received = transaction.receive("kitchen", top_of(1)).await.expect("the queue is on");
    assert_eq!(show_all(&received), ["0 DEFAULT 0 0"]);
    // Ended meanwhile: what is there now is another lane, though it is stored under the same number.
    shop.end(&handle_of(shop, "a").await).await;
    refused(transaction.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(shop.rows("kitchen").await.len(), 2);

    let transaction = late.begin().expect("the broker is open");
    assert_eq!(receive(&transaction, "kitchen").await.len(), 2);
    shop.receive("kitchen").await;
    refused(transaction.commit().await, ErrorCode::ConversationNotFound);
    assert_nothing_left(shop).await;
}
