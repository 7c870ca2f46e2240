//! DROP SERVICE: its endpoints and their rows go, and their far sides hear of it.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, join, select};
use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, PriorityRule, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{BeginDialog, EndpointFilter};

use super::super::support::detail;
use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, cleanup, definitions, dialog_of, receive, refused, send, to_kitchen};

mount! {
    b08_a_service_that_a_priority_names_is_refused,
    b108_rows_go_and_far_sides_get_an_error,
    b108_far_sides_elsewhere_are_told_when_they_can_be,
    b108_many_rows_are_swept,
    b108_many_conversations_end_together,
    d12_a_far_queue_that_is_off_hears_of_it_later,
    d25_it_waits_for_the_readers_of_its_groups,
    a_service_that_talks_to_itself,
    groups_go_with_what_they_know,
    it_is_gone_in_every_tab,
    a_transaction_finds_it_gone,
    a_queues_own_service_is_refused,
    a_service_may_come_again,
    b87_timers_lifetimes_and_reuse_go_as_with_end,
}

mount_with_locks! {
    a_failed_drop_drops_nothing,
    d25_it_waits_for_a_reader_of_another_tab,
}

async fn drop_it(shop: &Shop, service: &str) {
    shop.broker.drop_service(service).await.expect("the service can be dropped");
    shop.assert_sound().await;
}

async fn b08_a_service_that_a_priority_names_is_refused(shop: &Shop) {
    for (name, local, remote) in [("local", Some("Kitchen"), None), ("remote", None, Some("Counter"))] {
        let rule = PriorityRule {
            contract: None,
            local_service: local.map(Rc::from),
            remote_service: remote.map(Rc::from),
            level: 7.0,
        };
        let rules = Definitions { priorities: vec![(name.into(), rule)], ..Definitions::default() };
        shop.broker.define(rules).await.expect("the rule is right");
    }
    for (service, priority) in [("Kitchen", "local"), ("Counter", "remote")] {
        let error = refused(shop.broker.drop_service(service).await, ErrorCode::InUse);
        assert_eq!(detail(&error, "priority").as_deref(), Some(priority));
    }
    drop_it(shop, "Back").await;
}

async fn b108_rows_go_and_far_sides_get_an_error(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.receive("kitchen").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    shop.send_large(&dialog.initiator, "m2").await;
    let (ended, failed) = (shop.order("ended").await, shop.order("failed").await);
    shop.end(&ended.initiator).await;
    shop.fail(&failed.initiator).await;
    let begun = shop.broker.begin_dialog(dialog_of("Kitchen", "Back")).await.expect("the dialog begins");
    assert_eq!(shop.rows("kitchen").await.len(), 7);
    drop_it(shop, "Kitchen").await;
    assert_eq!((shop.rows("kitchen").await, shop.queue("kitchen").await.retained), (vec![], 0));
    for handle in [&dialog.target, &ended.target, &failed.target, &begun.handle] {
        assert_eq!(shop.state(handle).await, "");
    }
    assert_eq!(shop.state(&dialog.initiator).await, "ER");
    assert_eq!(shop.receive("counter").await, ["0 Error 1 -8470", "0 Confirm 0 r1"]);
    assert_eq!(shop.rows("counter").await, [""; 0], "who had ended is not told");
    assert_eq!((shop.records_in(StoreName::Messages).await, shop.records_in(StoreName::Bodies).await), (0, 0));
    assert_eq!(shop.records_in(StoreName::Archive).await, 0);
    let error = refused(shop.broker.begin_dialog(dialog_of("Kitchen", "Back")).await, ErrorCode::ServiceNotFound);
    assert_eq!(error.number(), Some(8423));
    refused(shop.broker.drop_service("Kitchen").await, ErrorCode::ServiceNotFound);
    let later = shop.begin().await;
    shop.send(&later.handle, "Order", "b11").await;
    assert_eq!(shop.outside().await, ["Order 0 b11"], "a target that is not here is waited for");
}

async fn b108_far_sides_elsewhere_are_told_when_they_can_be(shop: &Shop) {
    shop.retain("counter", true).await;
    let far = async |body: &str| {
        let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
        shop.send(&begun.handle, "Order", body).await;
        begun.handle
    };
    let (open, ended) = (far("m1").await, far("m2").await);
    shop.end(&ended).await;
    drop_it(shop, "Counter").await;
    assert_eq!((shop.state(&open).await, shop.state(&ended).await), ("DO", "DO"));
    assert_eq!(
        shop.outside().await,
        ["Error 1 -8470", "Order 0 m2", "EndDialog 1"],
        "the Error takes the place of what waited"
    );
    assert_eq!((&*shop.transmission().await[0].from_service, shop.rows("counter").await), ("Counter", vec![]));
    let error = refused(shop.broker.drop_queue("counter").await, ErrorCode::InUse);
    assert!(error.to_string().contains('2'), "{error}");
    for handle in [&open, &ended] {
        shop.broker.end_conversation(handle, cleanup()).await.expect("what waits can be given up");
    }
    assert_eq!((shop.outside().await, shop.records_in(StoreName::Messages).await), (vec![], 0));
    shop.broker.drop_queue("counter").await.expect("nothing is left of it");
}

async fn b108_many_rows_are_swept(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let body = || Body { value: Value::from(1.0).into(), packing: 0, size: 60_000.0 };
    let messages = (0..600).map(|_| shop.message_of("Note", body())).collect();
    shop.broker.send(vec![dialog.initiator.clone()], messages, None).await.expect("they can be sent");
    drop_it(shop, "Kitchen").await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    for _ in 0..2_000 {
        tick().await;
        if shop.records_in(StoreName::Messages).await == 1 {
            break;
        }
    }
    assert_eq!(shop.records_in(StoreName::Messages).await, 1, "the Error at the counter");
}

async fn b108_many_conversations_end_together(shop: &Shop) {
    let mut others = Vec::new();
    for number in 0..300 {
        let to = if number % 3 == 0 { "Kitchen" } else { "Back" };
        let begun = shop.broker.begin_dialog(dialog_of("Counter", to)).await.expect("the dialog begins");
        shop.send(&begun.handle, "Order", "x").await;
        others.push(begun.handle);
    }
    drop_it(shop, "Back").await;
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 400);
    assert_eq!(shop.queue("counter").await.ready, 200);
    drop_it(shop, "Counter").await;
    assert_eq!(shop.endpoints(EndpointFilter::default()).await.len(), 100);
    assert_eq!(shop.queue("counter").await.ready, 0);
}

async fn d12_a_far_queue_that_is_off_hears_of_it_later(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let (open, ended) = (shop.order("m1").await, shop.order("m2").await);
    shop.end(&ended.initiator).await;
    drop_it(shop, "Counter").await;
    assert_eq!((shop.state(&open.initiator).await, shop.state(&ended.initiator).await), ("DO", "DO"));
    assert_eq!(shop.outside().await, ["Error 1 -8470", "Order 0 m2", "EndDialog 1"]);
    shop.switch("kitchen", Status::On).await;
    shop.assert_sound().await;
    assert_eq!((shop.state(&open.initiator).await, shop.state(&ended.initiator).await), ("", ""));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m2", "0 EndDialog 1"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Error 1 -8470"]);

    let waiting = shop.broker.begin_dialog(dialog_of("Front", "Kitchen")).await.expect("the dialog begins");
    shop.switch("kitchen", Status::Off).await;
    shop.send(&waiting.handle, "Order", "m1").await;
    drop_it(shop, "Kitchen").await;
    assert_eq!(shop.outside().await, [""; 0], "what waited for it goes with it");
    assert_eq!(shop.receive("house").await, ["0 Error 0 -8470"]);
}

async fn d25_it_waits_for_the_readers_of_its_groups(shop: &Shop) {
    let (first, _) = (shop.order("a").await, shop.order("b").await);
    let reader = begin(shop);
    assert_eq!(receive(&reader, "kitchen").await, ["0 Order 0 a"]);
    let dropping = shop.broker.drop_service("Kitchen");
    let told = async {
        shop.timer().until_sleeping().await;
        shop.timer().fire();
    };
    let (dropped, ()) = futures_util::future::join(dropping, told).await;
    refused(dropped, ErrorCode::GroupLocked);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 a", "1 Order 0 b"], "nothing is half done");
    let dropping = shop.broker.drop_service("Kitchen");
    let committing = async {
        shop.timer().until_sleeping().await;
        reader.commit().await
    };
    let (dropped, committed) = futures_util::future::join(dropping, committing).await;
    committed.expect("it commits");
    dropped.expect("the groups are free");
    assert_eq!(shop.state(&first.initiator).await, "ER");
}

async fn a_service_that_talks_to_itself(shop: &Shop) {
    let mirror = definitions().services[2].1.clone();
    let mirror = Definitions { services: vec![("Mirror".into(), mirror)], ..Definitions::default() };
    shop.broker.define(mirror).await.expect("a new service");
    let begun = shop.broker.begin_dialog(dialog_of("Mirror", "Mirror")).await.expect("the dialog begins");
    shop.send(&begun.handle, "Order", "m1").await;
    drop_it(shop, "Mirror").await;
    assert_eq!((shop.endpoints(EndpointFilter::default()).await.len(), shop.rows("house").await), (0, vec![]));
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}

async fn groups_go_with_what_they_know(shop: &Shop) {
    let first = shop.begin().await;
    for _ in 0..3 {
        let related =
            BeginDialog { related_conversation: Some(first.handle.to_string()), ..dialog_of("Counter", "Back") };
        shop.broker.begin_dialog(related).await.expect("the dialog begins");
        shop.begin().await;
    }
    shop.broker.set_group_state(&first.handle, Body::small(Value::from("known"))).await.expect("the group is there");
    drop_it(shop, "Counter").await;
    assert_eq!(shop.records_in(StoreName::Members).await, 0);
}

async fn it_is_gone_in_every_tab(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    drop_it(shop, "Kitchen").await;
    refused(other.begin_dialog(dialog_of("Kitchen", "Back")).await, ErrorCode::ServiceNotFound);
    refused(other.drop_service("Kitchen").await, ErrorCode::ServiceNotFound);
    let answer = other.send(vec![dialog.target.clone()], vec![shop.message("Confirm", "r1")], None).await;
    refused(answer, ErrorCode::ConversationNotFound);
    assert_eq!(other.receive("kitchen", Default::default(), None).await.expect("the queue is on").len(), 0);
    let begun = other.begin_dialog(dialog_of("Counter", "Kitchen")).await.expect("the dialog begins");
    other.send(vec![begun.handle], vec![shop.message("Order", "m2")], None).await.expect("it may send");
    assert_eq!(shop.outside().await, ["Order 0 m2"]);
}

async fn a_transaction_finds_it_gone(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (sender, reader) = (begin(shop), begin(shop));
    send(shop, &sender, &dialog.target, "Confirm", "r1").await.expect("it may send");
    assert_eq!(receive(&reader, "kitchen").await, ["0 Order 0 m1"]);
    shop.tab_without_locks().await.drop_service("Kitchen").await.expect("nobody holds it back");
    for transaction in [sender, reader] {
        let error = refused(transaction.commit().await, ErrorCode::ConversationNotFound);
        assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
    }
    let late = begin(shop);
    late.begin_dialog(dialog_of("Counter", "Back")).await.expect("the dialog begins");
    drop_it(shop, "Counter").await;
    let error = refused(late.commit().await, ErrorCode::ServiceNotFound);
    assert_eq!(detail(&error, "at").as_deref(), Some("commit"));
}

async fn a_queues_own_service_is_refused(shop: &Shop) {
    for name in ["kitchen", "error"] {
        refused(shop.broker.drop_service(name).await, ErrorCode::InvalidArgument);
    }
    refused(shop.broker.drop_service("Nobody").await, ErrorCode::ServiceNotFound);
}

async fn a_service_may_come_again(shop: &Shop) {
    let dialog = shop.order("m1").await;
    drop_it(shop, "Kitchen").await;
    shop.broker.define(definitions()).await.expect("the definitions are right");
    refused(shop.try_send(&dialog.target, "Confirm", "r1").await, ErrorCode::ConversationNotFound);
    let again = shop.order("again").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 again"]);
    shop.end(&again.target).await;
}

async fn a_failed_drop_drops_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    refused(shop.broker.drop_service("Kitchen").await, ErrorCode::QuotaExceeded);
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

async fn b87_timers_lifetimes_and_reuse_go_as_with_end(shop: &Shop) {
    let begin = async |reuse: &str| {
        let options = BeginDialog { lifetime: Some(60_000.0), reuse: Some(reuse.into()), ..to_kitchen() };
        shop.broker.begin_dialog(options).await.expect("the dialog begins")
    };
    let (used, unused) = (begin("used").await, begin("unused").await);
    shop.send(&used.handle, "Order", "m1").await;
    let dialog = shop.dialog(&used).await;
    for (handle, timeout) in [(&dialog.initiator, 1_000.0), (&dialog.target, 2_000.0), (&unused.handle, 1_000.0)] {
        shop.timer_of(handle, timeout, "").await;
    }
    assert_eq!((shop.records_in(StoreName::Due).await, shop.records_in(StoreName::Members).await), (5, 2));
    drop_it(shop, "Kitchen").await;
    assert_eq!((shop.records_in(StoreName::Due).await, shop.records_in(StoreName::Members).await), (4, 2));
    assert_ne!(begin("used").await.handle, used.handle, "one that has failed is not used again");
    drop_it(shop, "Counter").await;
    assert_eq!((shop.records_in(StoreName::Due).await, shop.records_in(StoreName::Members).await), (0, 0));
    assert_eq!((shop.pass(90_000.0).await, shop.endpoints(EndpointFilter::default()).await.len()), (0, 0));
}

async fn d25_it_waits_for_a_reader_of_another_tab(shop: &Shop) {
    for body in ["a", "b", "c"] {
        shop.order(body).await;
    }
    let other = shop.another_tab().await;
    let holder = other.begin().expect("the broker is open");
    assert_eq!(receive(&holder, "kitchen").await, ["0 Order 0 a"]);
    let dropping = pin!(shop.broker.drop_service("Kitchen"));
    match select(dropping, pin!(shop.timer().until_sleeping())).await {
        Either::Left((dropped, _)) => panic!("it must wait: {dropped:?}"),
        Either::Right(((), dropping)) => {
            assert_eq!(shop.locks_held(), 1, "meanwhile it keeps no group");
            let (dropped, ()) = join(dropping, async { holder.rollback() }).await;
            dropped.expect("all groups are free");
        }
    }
    assert_eq!((shop.locks_held(), shop.rows("kitchen").await), (0, vec![]));
}
