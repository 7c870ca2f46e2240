//! Messages for far services go out: picked by priority and age, in order, until they are acknowledged.

use std::rc::Rc;

use pocket_broker::EndOptions;
use pocket_broker::body::Value;
use pocket_broker::definitions::{Definitions, PriorityRule};
use pocket_broker::error::ErrorCode;

use super::super::support::elsewhere::settle;
use super::super::support::shop::{Shop, dialog_of, refused};
use super::super::support::transport::{Told, Wire};

mount! {
    rows_leave_when_they_are_acknowledged,
    a_route_may_come_later_and_go,
    names_win_over_the_route_for_all,
    the_first_message_goes_alone_until_it_is_acknowledged,
    batches_are_as_large_as_the_route_says,
    six_conversations_are_under_way_at_a_time,
    one_is_tried_at_a_time_while_the_network_is_away,
    of_one_conversation_there_is_one_call_at_a_time,
    the_higher_priority_goes_first,
    who_waits_rises_by_a_level_every_half_minute,
    end_is_told_and_the_endpoint_goes,
    retained_copies_stay,
    large_bodies_travel,
    what_is_sent_carries_all_it_has,
}

pub(super) const MINUTE: f64 = 60_000.0;

pub(super) fn wire(shop: &Shop, service: &str) -> Wire {
    let wire = Wire::default();
    shop.broker.route(service, Rc::new(wire.clone()), 50).expect("there is none yet");
    wire
}

pub(super) async fn far(shop: &Shop, service: &str) -> Rc<str> {
    shop.broker.begin_dialog(dialog_of("Counter", service)).await.expect("nobody is contacted").handle
}

/// Time passes, for who sleeps and for who waits for an answer.
pub(super) async fn pass(shop: &Shop, ms: f64) {
    shop.clock().advance(ms);
    shop.timer().fire();
    settle().await;
}

pub(super) async fn status(shop: &Shop) -> Vec<String> {
    shop.transmission().await.iter().map(|row| row.transmission_status.to_string()).collect()
}

async fn rows_leave_when_they_are_acknowledged(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    assert!(wire.calls().is_empty(), "there is nothing to transmit");
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 m1"]]);
    assert_eq!(shop.outside().await, [""; 0]);
    shop.send_many(&handle, "Note", 1..4).await;
    settle().await;
    assert_eq!(wire.calls(), [["Note 1 1", "Note 2 2", "Note 3 3"]]);
    assert_eq!((shop.state(&handle).await, shop.info(&handle).await.map(|end| end.send_sequence)), ("CO", Some(4)));
    let stats = shop.broker.stats().await.expect("it can be looked at");
    assert_eq!(
        (stats.counts.transmitted, stats.gauges.transmission_queued, stats.gauges.oldest_transmission),
        (4, 0, None)
    );
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Messages).await, 0);
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Turns).await, 0);
    let told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.transmitted).collect();
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, by)| *by == handle));
    assert_eq!(shop.locks_held(), 0, "nobody keeps a role without anything to do");
}

async fn a_route_may_come_later_and_go(shop: &Shop) {
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    let rows = shop.transmission().await;
    assert!(rows[0].transmission_status.contains("no route"), "{}", rows[0].transmission_status);
    assert_eq!((rows[0].attempts, rows[0].next_attempt), (0, None));
    let wire = Wire::default();
    let number = shop.broker.route("*", Rc::new(wire.clone()), 50).expect("there is none yet");
    refused(shop.broker.route("*", Rc::new(wire.clone()), 50), ErrorCode::AlreadyExists);
    refused(shop.broker.route("", Rc::new(wire.clone()), 50), ErrorCode::InvalidArgument);
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 m1"]]);
    shop.broker.remove_route(number);
    shop.broker.remove_route(number);
    settle().await;
    shop.send(&handle, "Note", "m2").await;
    settle().await;
    assert!(wire.calls().is_empty());
    assert_eq!(shop.outside().await, ["Note 1 m2"]);
    shop.broker.route("*", Rc::new(wire.clone()), 50).expect("there is none any more");
    settle().await;
    assert_eq!(wire.calls(), [["Note 1 m2"]]);
}

async fn names_win_over_the_route_for_all(shop: &Shop) {
    let (all, named) = (wire(shop, "*"), wire(shop, "Bank"));
    for service in ["Bank", "Arsenal", "Zoo"] {
        let handle = far(shop, service).await;
        shop.send(&handle, "Order", service).await;
    }
    settle().await;
    assert_eq!(named.calls(), [["Order 0 Bank"]]);
    let mut others = all.calls();
    others.sort();
    assert_eq!(others, [["Order 0 Arsenal"], ["Order 0 Zoo"]]);
}

async fn the_first_message_goes_alone_until_it_is_acknowledged(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..5).await;
    settle().await;
    shop.send(&handle, "Order", "5").await;
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 0"]]);
    wire.answer();
    settle().await;
    assert_eq!(wire.calls(), [["Order 1 1", "Order 2 2", "Order 3 3", "Order 4 4", "Order 5 5"]]);
}

async fn batches_are_as_large_as_the_route_says(shop: &Shop) {
    let wire = Wire::default();
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..8).await;
    shop.broker.route("Elsewhere", Rc::new(wire.clone()), 3).expect("there is none yet");
    settle().await;
    assert_eq!(wire.calls().iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 3, 1]);
}

async fn six_conversations_are_under_way_at_a_time(shop: &Shop) {
    let wire = Wire::default();
    for number in 0..9 {
        let handle = far(shop, "Elsewhere").await;
        shop.send(&handle, "Order", &number.to_string()).await;
    }
    wire.always(Told::Waits);
    shop.broker.route("Elsewhere", Rc::new(wire.clone()), 50).expect("there is none yet");
    settle().await;
    assert_eq!((wire.calls().len(), wire.waiting()), (6, 6));
    wire.answer();
    settle().await;
    assert_eq!((wire.calls(), wire.waiting()), (vec![vec!["Order 0 6".to_owned()]], 6));
    while wire.waiting() > 0 {
        wire.answer();
        settle().await;
    }
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn one_is_tried_at_a_time_while_the_network_is_away(shop: &Shop) {
    let wire = Wire::default();
    for number in 0..9 {
        let handle = far(shop, "Elsewhere").await;
        shop.send(&handle, "Order", &number.to_string()).await;
    }
    wire.always(Told::Waits);
    wire.slow(true);
    shop.broker.route("Elsewhere", Rc::new(wire.clone()), 50).expect("there is none yet");
    settle().await;
    assert_eq!((wire.calls().len(), wire.waiting()), (1, 1));
    wire.answer();
    settle().await;
    assert_eq!((wire.calls().len(), wire.waiting()), (1, 1), "it never stops");
    wire.slow(false);
    wire.answer();
    settle().await;
    assert_eq!((wire.calls().len(), wire.waiting()), (6, 6));
    while wire.waiting() > 0 {
        wire.answer();
        settle().await;
    }
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn of_one_conversation_there_is_one_call_at_a_time(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "0").await;
    settle().await;
    wire.always(Told::Waits);
    for number in 1..4 {
        shop.send(&handle, "Order", &number.to_string()).await;
        settle().await;
    }
    assert_eq!(wire.calls(), [["Order 0 0"], ["Order 1 1"]]);
    wire.answer();
    settle().await;
    assert_eq!(wire.calls(), [["Order 2 2", "Order 3 3"]]);
    wire.answer();
    settle().await;
}

/// B95: there is no switch.
async fn the_higher_priority_goes_first(shop: &Shop) {
    let rule = |far: &str, level| PriorityRule {
        contract: None,
        local_service: None,
        remote_service: Some(far.into()),
        level,
    };
    let priorities = vec![("low".into(), rule("Low", 2.0)), ("high".into(), rule("High", 9.0))];
    shop.broker.define(Definitions { priorities, ..Definitions::default() }).await.expect("they are right");
    for service in ["Low", "Middle", "High"] {
        let handle = far(shop, service).await;
        shop.send(&handle, "Order", service).await;
        shop.clock().advance(10.0);
    }
    let wire = wire(shop, "*");
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 High"], ["Order 0 Middle"], ["Order 0 Low"]]);
}

async fn who_waits_rises_by_a_level_every_half_minute(shop: &Shop) {
    let rule = |far: &str, level| PriorityRule {
        contract: None,
        local_service: None,
        remote_service: Some(far.into()),
        level,
    };
    let priorities = vec![("low".into(), rule("Low", 2.0)), ("high".into(), rule("High", 4.0))];
    shop.broker.define(Definitions { priorities, ..Definitions::default() }).await.expect("they are right");
    let (low, high) = (far(shop, "Low").await, far(shop, "High").await);
    shop.send(&low, "Order", "low").await;
    shop.clock().advance(90_000.0);
    shop.send(&high, "Order", "high").await;
    let wire = wire(shop, "*");
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 low"], ["Order 0 high"]], "2 and three levels more against 4");
}

async fn end_is_told_and_the_endpoint_goes(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    shop.end(&handle).await;
    settle().await;
    assert_eq!(shop.state(&handle).await, "DO");
    wire.answer();
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 m1"], ["EndDialog 1"]]);
    assert_eq!((shop.outside().await.len(), shop.state(&handle).await), (0, ""));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m2").await;
    settle().await;
    shop.fail(&handle).await;
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 m2"], ["Error 1 42"]]);
    assert_eq!((shop.outside().await.len(), shop.state(&handle).await), (0, ""));
    for store in [pocket_broker::store::StoreName::Conversations, pocket_broker::store::StoreName::Members] {
        assert_eq!(shop.records_in(store).await, 0, "{store:?}");
    }
}

async fn retained_copies_stay(shop: &Shop) {
    shop.retain("counter", true).await;
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    shop.send(&handle, "Note", "m2").await;
    settle().await;
    assert_eq!(wire.calls().len(), 2);
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "3 Note 1 m2"]);
    assert_eq!(shop.outside().await, [""; 0]);
    shop.broker.end_conversation(&handle, EndOptions::default()).await.expect("it can be ended");
    settle().await;
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Messages).await, 0);
}

async fn large_bodies_travel(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send_large(&handle, "large").await;
    settle().await;
    assert_eq!(wire.calls(), [["Note 0 large"]]);
    assert_eq!(shop.records_in(pocket_broker::store::StoreName::Bodies).await, 0);
}

async fn what_is_sent_carries_all_it_has(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let mut options = dialog_of("Counter", "Elsewhere");
    options.lifetime = Some(5_000.0);
    let begun = shop.broker.begin_dialog(options).await.expect("nobody is contacted");
    let mut message = shop.message("Order", "m1");
    message.headers = Some(Value::object(vec![("Trace", Value::from("17"))]).into());
    let id = message.id;
    shop.clock().advance(1_000.0);
    shop.broker.send(vec![begun.handle], vec![message], None).await.expect("it can be sent");
    settle().await;
    let envelope = wire.envelopes().remove(0).remove(0);
    assert_eq!(envelope.message_id, id);
    assert_eq!(
        (&envelope.conversation_id, envelope.from_initiator, envelope.sequence),
        (&begun.conversation_id, true, 0)
    );
    assert_eq!((&*envelope.from_service, &*envelope.to_service), ("Counter", "Elsewhere"));
    assert_eq!((&envelope.from_broker, &envelope.to_broker), (&shop.broker.instance_id(), &None));
    assert_eq!((&*envelope.contract, &*envelope.message_type, envelope.lifetime), ("Ordering", "Order", Some(4_000.0)));
    let headers = envelope.headers.expect("it has some").value();
    assert_eq!(headers.field("Trace").text().as_deref(), Some("17"));
    assert_eq!(envelope.body.value.value().text().as_deref(), Some("m1"));
}
