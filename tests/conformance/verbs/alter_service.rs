//! ALTER SERVICE: other contracts, another queue.

use std::rc::Rc;

use pocket_broker::definitions::{Definitions, PriorityRule, QueueOptions, SentBy, ServiceChange, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{BeginDialog, ReceiveOptions};

use super::super::support::detail;
use super::super::support::shop::{Shop, begin, dialog_of, receive, refused, send, to_kitchen};

mount! {
    b109_a_service_takes_its_rows_to_the_new_queue,
    b109_a_conversation_is_not_found_in_the_old_queue,
    b109_members_of_a_group_stay_together,
    d12_a_queue_that_is_on_lets_in_what_waited,
    d12_a_queue_that_is_off_keeps_what_was_in,
    d12_the_last_that_waited_takes_the_sender_with_it,
    d17_numbers_go_on_rising_in_both_queues,
    contracts_come_and_go_for_new_conversations,
    a_transaction_outlives_the_move_of_its_service,
    another_tab_sees_the_move_at_once,
    what_is_not_there_is_refused,
    a_failed_move_moves_nothing,
    timers_fire_in_the_new_queue,
    d12_dialog_timers_that_wait_outside_come_along,
}

fn to(queue: &str) -> ServiceChange {
    ServiceChange { queue: Some(queue.into()), ..ServiceChange::default() }
}

fn contracts(added: &[&str], dropped: &[&str]) -> ServiceChange {
    let names = |names: &[&str]| names.iter().map(|name| Rc::from(*name)).collect();
    ServiceChange { queue: None, add_contracts: names(added), drop_contracts: names(dropped) }
}

async fn alter(shop: &Shop, service: &str, change: ServiceChange) {
    shop.broker.alter_service(service, change).await.expect("the service can be altered");
    shop.assert_sound().await;
}

async fn b109_a_service_takes_its_rows_to_the_new_queue(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.send_large(&dialog.initiator, "m2").await;
    shop.receive_top("kitchen", 1).await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    let (other, _) = (shop.order("other").await, shop.broker.begin_dialog(dialog_of("Counter", "Back")).await);
    shop.notices();
    alter(shop, "Kitchen", to("house")).await;
    let notices = shop.notices();
    assert!(notices.iter().any(|notice| notice.enqueued.iter().any(|queue| &**queue == "house")), "{notices:?}");
    assert_eq!((shop.rows("kitchen").await, shop.queue("kitchen").await.ready), (vec![], 0));
    assert_eq!(shop.rows("house").await, ["0 Order 0 m1", "1 Note 1 m2", "3 Confirm 0 r1", "1 Order 0 other"]);
    assert_eq!((shop.queue("house").await.ready, shop.queue("house").await.retained), (2, 2));
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.receive("house").await, ["0 Note 1 m2", "0 Note 2 m3"]);
    assert_eq!(
        shop.rows_of("house", &dialog.target).await,
        ["0 Order 0 m1", "3 Confirm 0 r1"],
        "the new queue retains nothing, and what was retained stays"
    );
    shop.end(&other.target).await;
    alter(shop, "Kitchen", to("kitchen")).await;
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "3 Confirm 0 r1"]);
    shop.end(&dialog.target).await;
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn b109_a_conversation_is_not_found_in_the_old_queue(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    alter(shop, "Kitchen", to("house")).await;
    let of = |conversation, group| ReceiveOptions { conversation, group, ..ReceiveOptions::default() };
    let by_handle = shop.broker.receive("kitchen", of(Some(dialog.target.clone()), None), None).await;
    refused(by_handle, ErrorCode::ConversationNotFound);
    refused(shop.broker.receive("kitchen", of(None, Some(group.clone())), None).await, ErrorCode::GroupNotFound);
    assert_eq!(shop.receive_from("", &dialog.target).await, ["0 Order 0 m1"], "its own queue is the new one");
}

async fn b109_members_of_a_group_stay_together(shop: &Shop) {
    let rule = PriorityRule {
        contract: None,
        local_service: Some("Counter".into()),
        remote_service: Some("Back".into()),
        level: 8.0,
    };
    let rules = Definitions { priorities: vec![("back".into(), rule)], ..Definitions::default() };
    shop.broker.define(rules).await.expect("the rule is right");
    let first = shop.begin().await;
    let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..dialog_of("Counter", "Back") };
    let second = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    for begun in [&first, &second] {
        shop.send(&begun.handle, "Order", "x").await;
        let dialog = shop.dialog(begun).await;
        shop.send(&dialog.target, "Confirm", &begun.far_service).await;
    }
    alter(shop, "Counter", to("house")).await;
    assert_eq!(shop.receive_top("house", 2).await, ["0 Confirm 0 Back", "0 Confirm 0 Kitchen"]);
    shop.broker
        .move_conversation(&first.handle, pocket_broker::Destination::Named(first.handle.clone()))
        .await
        .expect("it is there");
    shop.end(&first.handle).await;
    shop.end(&second.handle).await;
}

async fn d12_a_queue_that_is_on_lets_in_what_waited(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    let failed = shop.order("failed").await;
    shop.fail(&failed.initiator).await;
    shop.broker
        .define(Definitions {
            services: vec![("Oven".into(), super::super::support::shop::definitions().services[1].1.clone())],
            ..Definitions::default()
        })
        .await
        .expect("a new service");
    let oven = shop.broker.begin_dialog(dialog_of("Counter", "Oven")).await.expect("the dialog begins");
    shop.send(&oven.handle, "Order", "stays").await;
    alter(shop, "Kitchen", to("house")).await;
    assert_eq!(shop.outside().await, ["Order 0 stays"], "the other service of the old queue still waits");
    assert_eq!(shop.state(&failed.target).await, "ER");
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    assert_eq!(shop.receive("house").await, ["0 Error 1 42"]);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 stays"]);
}

async fn d12_a_queue_that_is_off_keeps_what_was_in(shop: &Shop) {
    let (dialog, waiting) = (shop.order("m1").await, shop.order("w1").await);
    shop.switch("kitchen", Status::Off).await;
    shop.send(&waiting.initiator, "Note", "w2").await;
    shop.switch("house", Status::Off).await;
    alter(shop, "Kitchen", to("house")).await;
    assert_eq!(shop.rows("house").await, ["1 Order 0 m1", "1 Order 0 w1"]);
    assert_eq!(shop.outside().await, ["Note 1 w2"]);
    assert!(shop.transmission().await[0].transmission_status.contains("house"));
    refused(shop.broker.receive("house", ReceiveOptions::default(), None).await, ErrorCode::QueueDisabled);
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.outside().await, ["Note 1 w2", "Note 1 m2"]);
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.outside().await.len(), 2, "the old queue has nothing of it");
    shop.switch("house", Status::On).await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    assert_eq!(shop.receive("house").await, ["0 Order 0 w1", "0 Note 1 w2"]);
}

async fn d12_the_last_that_waited_takes_the_sender_with_it(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let dialog = shop.order("m1").await;
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.state(&dialog.initiator).await, "DO");
    alter(shop, "Counter", to("house")).await;
    assert_eq!(shop.state(&dialog.initiator).await, "DO");
    alter(shop, "Kitchen", to("counter")).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("", "DI"));
    assert_eq!(shop.receive("counter").await, ["0 Order 0 m1", "0 EndDialog 1"]);
}

async fn d17_numbers_go_on_rising_in_both_queues(shop: &Shop) {
    let back = shop.broker.begin_dialog(dialog_of("Counter", "Back")).await.expect("the dialog begins");
    shop.send(&back.handle, "Order", "old").await;
    let dialog = shop.order("m1").await;
    alter(shop, "Kitchen", to("house")).await;
    shop.send(&back.handle, "Note", "later").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    let rows = shop.messages("house", Default::default()).await;
    let bodies: Vec<_> = rows.iter().filter_map(|row| row.body.text()).collect();
    assert_eq!(bodies, ["old", "m1", "later", "m2"]);
    assert!(rows.windows(2).all(|pair| pair[0].queuing_order < pair[1].queuing_order));
    assert_eq!(shop.receive("house").await, ["0 Order 0 old", "0 Note 1 later"]);
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

/// B17.
async fn contracts_come_and_go_for_new_conversations(shop: &Shop) {
    let second = Definitions {
        contracts: vec![("Second".into(), vec![("Note".into(), SentBy::Any)])],
        ..Definitions::default()
    };
    shop.broker.define(second).await.expect("a new contract");
    let old = shop.order("m1").await;
    for _ in 0..2 {
        alter(shop, "Kitchen", contracts(&["Second"], &["Ordering"])).await;
        let begun = shop.begin().await;
        shop.send(&begun.handle, "Order", "refused").await;
        assert_eq!(shop.receive_from("", &begun.handle).await, ["0 Error 0 -8409"]);
        let other = BeginDialog { contract: Some("Second".into()), ..to_kitchen() };
        let other = shop.broker.begin_dialog(other).await.expect("the dialog begins");
        shop.send(&other.handle, "Note", "accepted").await;
        assert_eq!(shop.state(&other.handle).await, "CO");
    }
    shop.send(&old.initiator, "Note", "m2").await;
    shop.send(&old.target, "Confirm", "r1").await;
    assert_eq!(shop.rows_of("kitchen", &old.target).await, ["1 Order 0 m1", "1 Note 1 m2"], "it goes on");
    alter(shop, "Kitchen", contracts(&["Ordering"], &[])).await;
    let again = shop.order("again").await;
    assert_eq!(shop.rows_of("kitchen", &again.target).await, ["1 Order 0 again"]);
}

async fn a_transaction_outlives_the_move_of_its_service(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 m1"]);
    shop.another_tab().await.alter_service("Kitchen", to("house")).await.expect("the service can be altered");
    shop.send(&dialog.initiator, "Note", "m2").await;
    send(shop, &transaction, &dialog.target, "Confirm", "r1").await.expect("it may send");
    assert_eq!(receive(&transaction, "kitchen").await, [""; 0]);
    assert_eq!(receive(&transaction, "house").await, ["0 Note 1 m2"]);
    transaction.commit().await.expect("it commits");
    assert_eq!((shop.rows("house").await, shop.receive("counter").await), (vec![], vec!["0 Confirm 0 r1".to_owned()]));
}

async fn another_tab_sees_the_move_at_once(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    alter(shop, "Kitchen", to("house")).await;
    assert_eq!(other.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on").len(), 0);
    other.send(vec![dialog.initiator.clone()], vec![shop.message("Note", "m2")], None).await.expect("it may send");
    assert_eq!(shop.rows("house").await, ["1 Order 0 m1", "1 Note 1 m2"]);
    assert_eq!(other.count("house", &Default::default()).await.expect("it is there"), 2);
}

async fn what_is_not_there_is_refused(shop: &Shop) {
    let alter = async |service: &str, change, code| {
        let error = refused(shop.broker.alter_service(service, change).await, code);
        (error.number(), error.to_string())
    };
    assert_eq!(alter("Nobody", to("house"), ErrorCode::ServiceNotFound).await.0, Some(8423));
    alter("Kitchen", to("nowhere"), ErrorCode::QueueNotFound).await;
    assert_eq!(alter("Kitchen", contracts(&["Nothing"], &[]), ErrorCode::ContractNotFound).await.0, Some(8425));
    alter("Kitchen", contracts(&[], &["Nothing"]), ErrorCode::ContractNotFound).await;
    alter("Kitchen", contracts(&["Ordering"], &["Ordering"]), ErrorCode::InvalidArgument).await;
    for change in [to("house"), contracts(&["Ordering"], &[])] {
        assert!(alter("kitchen", change, ErrorCode::InvalidArgument).await.1.contains("kitchen"));
    }
    shop.notices();
    shop.broker.alter_service("Kitchen", ServiceChange::default()).await.expect("nothing is to be done");
    shop.broker.alter_service("Kitchen", to("kitchen")).await.expect("nothing is to be done");
    assert_eq!(shop.notices().len(), 0);
    shop.broker
        .define(Definitions { queues: vec![("new".into(), QueueOptions::default())], ..Definitions::default() })
        .await
        .expect("a new queue");
    shop.broker.alter_service("Kitchen", to("new")).await.expect("the service can be altered");
    let error =
        refused(shop.broker.define(super::super::support::shop::definitions()).await, ErrorCode::DefinitionConflict);
    assert_eq!(detail(&error, "name").as_deref(), Some("Kitchen"), "d33: definitions say where a service is");
}

async fn a_failed_move_moves_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let full = pocket_broker::error::Error::new(ErrorCode::QuotaExceeded, "No space.");
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(full));
    refused(shop.broker.alter_service("Kitchen", to("house")).await, ErrorCode::QuotaExceeded);
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
}

async fn timers_fire_in_the_new_queue(shop: &Shop) {
    let options = BeginDialog { lifetime: Some(2_000.0), ..to_kitchen() };
    let begun = shop.broker.begin_dialog(options).await.expect("the dialog begins");
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    shop.timer_of(&dialog.target, 1_000.0, "").await;
    shop.receive("kitchen").await;
    alter(shop, "Kitchen", to("house")).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    assert_eq!((shop.rows("kitchen").await, shop.rows("house").await), (vec![], vec!["1 DialogTimer 1".to_owned()]));
    alter(shop, "Kitchen", to("kitchen")).await;
    assert_eq!(shop.pass(1_000.0).await, 2);
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1", "0 Error 1 -8489"]);
}

async fn d12_dialog_timers_that_wait_outside_come_along(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.timer_of(&dialog.target, 1_000.0, "").await;
    shop.receive("kitchen").await;
    shop.switch("kitchen", Status::Off).await;
    shop.switch("house", Status::Off).await;
    assert_eq!(shop.pass(1_000.0).await, 1);
    alter(shop, "Kitchen", to("house")).await;
    assert_eq!((shop.rows("kitchen").await, shop.rows("house").await), (vec![], vec![]));
    shop.switch("kitchen", Status::On).await;
    alter(shop, "Kitchen", to("kitchen")).await;
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1"]);
}
