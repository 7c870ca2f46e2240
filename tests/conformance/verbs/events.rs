//! What the brokers of the origin are told after a commit (D36), and what is told of messages that go nowhere (D13).

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::Value;
use pocket_broker::conversation::State;
use pocket_broker::definitions::{QueueOptions, ServiceChange, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::{Broker, EndOptions, Notice};

use super::super::support::shop::{Shop, archived, begin, dialog_of, receive, refused, send};

mount! {
    d13_an_answer_to_who_fired_and_forgot_is_reported,
    d13_what_a_dropped_service_had_not_read_is_reported,
    d13_what_an_end_takes_back_is_reported,
    d36_a_commit_is_told_once_and_as_a_whole,
    d36_every_broker_hears_every_commit,
    d36_verbs_that_share_a_commit_share_its_notice,
    d36_what_a_commit_touched,
    d36_what_changed_nothing_is_not_told,
    d36_a_queue_is_said_to_be_off_once,
}

/// The notice of one commit.
#[track_caller]
fn only(shop: &Shop) -> Notice {
    let mut notices = shop.notices();
    assert_eq!(notices.len(), 1, "one commit, one notice: {notices:?}");
    notices.remove(0)
}

fn names(queues: &[Rc<str>]) -> Vec<&str> {
    let mut names: Vec<&str> = queues.iter().map(|queue| &**queue).collect();
    names.sort_unstable();
    names
}

/// What a broker hears.
fn heard_by(broker: &Broker) -> Rc<RefCell<Vec<Notice>>> {
    let heard = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&heard);
    broker.listen(Rc::new(move |notice| kept.borrow_mut().push(notice.clone())));
    heard
}

/// Why, from whom, to which service, and the number of each message that went nowhere.
fn dropped(notice: &Notice) -> Vec<(String, String, String, Option<f64>)> {
    let told = notice.dropped.iter().map(|dropped| {
        let column = |name: &str| {
            dropped
                .message
                .iter()
                .find(|(other, _)| *other == name)
                .map_or_else(Value::null, |(_, value)| value.clone())
        };
        let text = |name| column(name).text().unwrap_or_default();
        let number = column("messageSequenceNumber").number();
        (dropped.reason.to_string(), text("conversationHandle"), text("serviceName"), number)
    });
    told.collect()
}

async fn d36_a_commit_is_told_once_and_as_a_whole(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    for body in ["r1", "r2"] {
        send(shop, &transaction, &first.target, "Confirm", body).await.expect("it may send");
        send(shop, &transaction, &second.initiator, "Note", body).await.expect("it may send");
    }
    transaction.end_conversation(&first.target, EndOptions::default()).await.expect("it can be ended");
    shop.notices();
    transaction.commit().await.expect("it commits");
    let notice = only(shop);
    assert_eq!(names(&notice.queues), ["counter", "kitchen"]);
    assert_eq!(names(&notice.enqueued), ["counter", "kitchen"], "each once, however many messages");
    let mut states = notice.states.clone();
    states.sort_unstable();
    let mut expected = vec![(first.initiator, "DI"), (first.target, "CD")];
    expected.sort_unstable();
    assert_eq!(states, expected);
    assert!(notice.conversations && !notice.delayed && !notice.transmission && !notice.archive, "{notice:?}");
    assert_eq!((notice.dropped.len(), notice.disabled.len()), (0, 0));
}

/// Of what happened to an endpoint in one commit only the last is told.
async fn d36_verbs_that_share_a_commit_share_its_notice(shop: &Shop) {
    let begun = shop.begin().await;
    shop.notices();
    let both = join(
        shop.try_send(&begun.handle, "Order", "m"),
        shop.broker.end_conversation(&begun.handle, EndOptions::default()),
    );
    let (sent, ended) = both.await;
    sent.expect("it may send");
    ended.expect("it can be ended");
    let notice = only(shop);
    let own: Vec<_> = notice.states.iter().filter(|(handle, _)| *handle == begun.handle).collect();
    assert_eq!(own.iter().map(|(_, state)| *state).collect::<Vec<_>>(), [State::Closed.letters()]);
    assert_eq!(names(&notice.enqueued), ["kitchen"]);
}

async fn d36_every_broker_hears_every_commit(shop: &Shop) {
    let (second, closed) = (shop.broker.another(), shop.broker.another());
    let heard = [heard_by(&shop.broker), heard_by(&second), heard_by(&closed)];
    closed.close().await;
    shop.notices();
    let dialog = shop.order("m1").await;
    second.end_conversation(&dialog.target, EndOptions::default()).await.expect("it can be ended");
    let told = shop.notices();
    assert_eq!(told.len(), 3, "BEGIN, SEND, END");
    assert_eq!((&*heard[0].borrow(), &*heard[1].borrow()), (&told, &told));
    assert_eq!(heard[2].borrow().len(), 0);
    second.close().await;
}

async fn d36_what_a_commit_touched(shop: &Shop) {
    let begun = shop.begin().await;
    let notice = only_last(shop);
    assert!(notice.conversations && notice.enqueued.is_empty(), "{notice:?}");
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    shop.notices();
    shop.receive("kitchen").await;
    let notice = only(shop);
    assert_eq!((names(&notice.queues), notice.enqueued.len()), (vec!["kitchen"], 0), "receiving makes nothing ready");
    shop.timer_of(&dialog.target, 1_000.0, "").await;
    assert!(only(shop).conversations, "an endpoint shows its timer");
    shop.pass(1_000.0).await;
    let notice = only_last(shop);
    assert_eq!((names(&notice.enqueued), notice.conversations), (vec!["kitchen"], true));
    shop.switch("counter", Status::Off).await;
    shop.notices();
    shop.send(&dialog.target, "Confirm", "r1").await;
    let notice = only(shop);
    assert!(notice.transmission && notice.enqueued.is_empty(), "it waits outside: {notice:?}");
    shop.switch("counter", Status::On).await;
    let notice = only(shop);
    assert!(notice.transmission && names(&notice.enqueued) == ["counter"], "{notice:?}");
    shop.broker.end_conversation(&dialog.initiator, archived()).await.expect("it can be ended");
    assert!(only(shop).archive);
    shop.clock().advance(1.0);
    shop.broker.purge_archive(f64::INFINITY).await.expect("it can be purged");
    assert!(only(shop).archive);

    let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.notices();
    shop.send(&far.handle, "Order", "m").await;
    assert!(only(shop).transmission);
    shop.clean_up(&far.handle).await;
    assert!(only(shop).transmission);
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Kitchen", change).await.expect("it can be altered");
    let notice = only(shop);
    assert!(names(&notice.queues).contains(&"kitchen") && names(&notice.queues).contains(&"house"), "{notice:?}");
    assert_eq!(names(&notice.enqueued), ["house"], "what is ready came along");
}

fn only_last(shop: &Shop) -> Notice {
    shop.notices().pop().expect("a commit was told")
}

async fn d36_what_changed_nothing_is_not_told(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.notices();
    refused(shop.try_send(&dialog.initiator, "Confirm", "x").await, ErrorCode::WrongDirection);
    assert_eq!(shop.receive("counter").await, [""; 0]);
    shop.alter("counter", QueueOptions { retention: Some(false), ..QueueOptions::default() }).await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
    transaction.rollback();
    shop.broker
        .select("kitchen", &Default::default(), None, pocket_broker::Extent::All)
        .await
        .expect("it can be looked at");
    assert_eq!(shop.notices(), []);
    // One that is refused tells nothing beside one that is not.
    let (refusal, sent) =
        join(shop.try_send(&dialog.target, "Order", "x"), shop.try_send(&dialog.initiator, "Note", "m2")).await;
    refused(refusal, ErrorCode::WrongDirection);
    sent.expect("it may send");
    let notice = only(shop);
    assert_eq!((names(&notice.queues), names(&notice.enqueued)), (vec!["kitchen"], vec!["kitchen"]));
}

async fn d36_a_queue_is_said_to_be_off_once(shop: &Shop) {
    shop.notices();
    let off = || QueueOptions { status: Some(Status::Off), ..QueueOptions::default() };
    let (first, second) =
        join(shop.broker.alter_queue("kitchen", off()), shop.broker.alter_queue("kitchen", off())).await;
    first.expect("it can be altered");
    second.expect("it can be altered");
    let told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.disabled).collect();
    assert_eq!(told, [("kitchen".into(), "altered")]);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(only(shop).disabled, []);
}

/// BEGIN, SEND, END: the sender does not care. When the target answers, with a message or with an Error, that is reported.
async fn d13_an_answer_to_who_fired_and_forgot_is_reported(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.clean_up(&dialog.initiator).await;
    shop.notices();
    shop.send(&dialog.target, "Confirm", "r1").await;
    let notice = only(shop);
    let [(reason, handle, service, _)] = &dropped(&notice)[..] else { panic!("one message was dropped: {notice:?}") };
    assert_eq!((&**handle, &**service), (&*dialog.target, "Counter"));
    assert!(reason.contains("gone"), "{reason}");
    assert_eq!(shop.state(&dialog.target).await, "ER", "b74, d11: the sender gets an Error");

    let dialog = shop.order("m1").await;
    shop.end(&dialog.initiator).await;
    shop.notices();
    refused(shop.try_send(&dialog.target, "Confirm", "r1").await, ErrorCode::InvalidState);
    shop.fail(&dialog.target).await;
    assert_eq!(shop.dropped(), [""; 0], "b76: who knows that the other has ended tells nothing");
}

async fn d13_what_an_end_takes_back_is_reported(shop: &Shop) {
    for ending in ["error", "cleanup"] {
        // Outside of a queue that is off …
        let dialog = shop.order("m1").await;
        shop.switch("kitchen", Status::Off).await;
        shop.send_many(&dialog.initiator, "Note", 0..3).await;
        shop.notices();
        end_with(shop, &dialog.initiator, ending).await;
        let notice = only(shop);
        let [(reason, handle, service, number)] = &dropped(&notice)[..] else { panic!("one END: {notice:?}") };
        assert_eq!((&**handle, &**service, *number), (&*dialog.initiator, "Kitchen", Some(1.0)));
        assert!(reason.contains(ending) && reason.contains("3 messages"), "{reason}");
        assert!(notice.transmission);
        shop.switch("kitchen", Status::On).await;
        // … and on the way to another broker.
        let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
        shop.send(&far.handle, "Order", "m").await;
        shop.notices();
        end_with(shop, &far.handle, ending).await;
        let notice = only(shop);
        let [(reason, handle, _, number)] = &dropped(&notice)[..] else { panic!("one message: {notice:?}") };
        assert_eq!((&**handle, *number), (&*far.handle, Some(0.0)));
        assert!(reason.contains(ending) && !reason.contains("messages"), "{reason}");
    }
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&far.handle, "Order", "m").await;
    shop.notices();
    shop.end(&far.handle).await;
    assert_eq!(shop.dropped(), [""; 0], "a plain END goes behind what was sent");
    shop.clean_up(&far.handle).await;
    assert_eq!(shop.dropped().len(), 1, "the message, not the EndDialog");
}

async fn end_with(shop: &Shop, handle: &str, ending: &str) {
    match ending {
        "error" => shop.fail(handle).await,
        _ => shop.clean_up(handle).await,
    };
}

async fn d13_what_a_dropped_service_had_not_read_is_reported(shop: &Shop) {
    let (first, read) = (shop.order("m1").await, shop.order("read").await);
    shop.send(&first.initiator, "Note", "m2").await;
    shop.receive_from("kitchen", &read.target).await;
    shop.notices();
    shop.broker.drop_service("Kitchen").await.expect("it can be dropped");
    let notice = only(shop);
    let [(reason, handle, service, number)] = &dropped(&notice)[..] else { panic!("one conversation: {notice:?}") };
    assert_eq!((&**handle, &**service, *number), (&*first.initiator, "Kitchen", Some(0.0)));
    assert!(reason.contains("dropped") && reason.contains("2 messages"), "{reason}");
    assert_eq!((names(&notice.queues).contains(&"counter"), names(&notice.enqueued)), (true, vec!["counter"]));
}
