//! Messages for far services go out: picked by priority and age, in order, and until they are acknowledged.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::clock::Clock;
use pocket_broker::definitions::{Definitions, PriorityRule};
use pocket_broker::error::ErrorCode;
use pocket_broker::message::system;
use pocket_broker::{EndOptions, FailedFilter, Reply, SendResult, Transmitted};

use super::super::support::elsewhere::settle;
use super::super::support::shop::{Shop, dialog_of, refused};
use super::super::support::transport::{Told, Wire, acknowledged, refused as refuses, retry};

mount! {
    rows_leave_when_they_are_acknowledged,
    a_route_may_come_later_and_go,
    names_win_over_the_route_for_all,
    the_first_message_goes_alone_until_it_is_acknowledged,
    batches_are_as_large_as_the_route_says,
    six_conversations_are_under_way_at_a_time,
    of_one_conversation_there_is_one_call_at_a_time,
    b91_what_fails_is_tried_again_after_a_growing_wait,
    one_that_waits_holds_up_no_other,
    the_transport_says_how_long_to_wait,
    what_follows_a_failure_in_a_batch_waits_with_it,
    transmit_does_not_wait,
    what_was_accepted_is_offered_again,
    what_could_go_has_a_route_and_was_not_accepted,
    what_is_new_goes_on_while_the_first_is_accepted,
    a_call_that_hangs_is_given_up_after_two_minutes,
    a_transport_that_gives_too_little_is_asked_again,
    what_is_refused_goes_to_the_error_queue,
    what_is_refused_may_end_the_conversation,
    what_is_refused_comes_back_by_a_new_number,
    an_answer_brings_a_message,
    an_answer_that_may_not_be_is_dropped,
    the_higher_priority_goes_first,
    who_waits_rises_by_a_level_every_half_minute,
    end_is_told_and_the_endpoint_goes,
    retained_copies_stay,
    large_bodies_travel,
    what_is_sent_carries_all_it_has,
    another_broker_may_not_answer,
    a_route_that_is_removed_leaves_what_it_has,
    a_closed_broker_waits_for_no_answer,
    a_reload_goes_on_where_it_was,
    b81_what_waits_at_an_end_is_held,
    failures_are_told_once,
    l15_a_retry_is_among_what_is_due,
    l19_a_retry_lasts_no_longer_when_the_clock_is_set_back,
}
mount_with_locks! {
    d34_one_context_transmits,
    d26_transmit_takes_over_from_who_does_not_answer,
    an_answer_that_comes_twice_brings_one_message,
}

const MINUTE: f64 = 60_000.0;

fn wire(shop: &Shop, service: &str) -> Wire {
    let wire = Wire::default();
    shop.broker.route(service, Rc::new(wire.clone()), 50).expect("there is none yet");
    wire
}

async fn far(shop: &Shop, service: &str) -> Rc<str> {
    shop.broker.begin_dialog(dialog_of("Counter", service)).await.expect("nobody is contacted").handle
}

/// Time passes, for who sleeps and for who waits for an answer.
async fn pass(shop: &Shop, ms: f64) {
    shop.clock().advance(ms);
    shop.timer().fire();
    settle().await;
}

async fn status(shop: &Shop) -> Vec<String> {
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

async fn b91_what_fails_is_tried_again_after_a_growing_wait(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.always(Told::Each(retry("the server is away")));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(wire.calls().len(), 1);
    let mut waits = Vec::new();
    for attempt in 1..=9 {
        let row = shop.transmission().await.remove(0);
        assert_eq!((row.attempts, &*row.transmission_status), (attempt, "the server is away"));
        let wait = row.next_attempt.expect("it waits") - shop.clock().now();
        waits.push(wait);
        pass(shop, wait - 1.0).await;
        assert!(wire.calls().is_empty(), "not before its time");
        pass(shop, 10.0).await;
        assert_eq!(wire.calls().len(), 1);
    }
    for (wait, length) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]) {
        assert!((length * 800.0..=length * 1_200.0).contains(wait), "{waits:?}");
    }
    wire.always(Told::Each(acknowledged()));
    pass(shop, 80_000.0).await;
    assert_eq!(shop.outside().await, [""; 0]);
    wire.always(Told::Fails("it is broken"));
    shop.send(&handle, "Order", "m2").await;
    settle().await;
    let row = shop.transmission().await.remove(0);
    assert_eq!(row.attempts, 1, "it begins anew");
    assert!(row.transmission_status.contains("it is broken"), "{}", row.transmission_status);
}

async fn one_that_waits_holds_up_no_other(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(retry("not this one")));
    let (bad, good) = (far(shop, "Elsewhere").await, far(shop, "Elsewhere").await);
    shop.send(&bad, "Order", "bad").await;
    settle().await;
    shop.send(&good, "Order", "good").await;
    shop.send(&bad, "Order", "worse").await;
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 bad"], ["Order 0 good"]]);
    assert_eq!(shop.outside().await, ["Order 0 bad", "Order 1 worse"]);
}

async fn the_transport_says_how_long_to_wait(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(SendResult::Retry { after: Some(600_000.0), reason: "in ten minutes".into() }));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(wire.calls().len(), 1);
    for _ in 0..9 {
        pass(shop, MINUTE).await;
    }
    assert!(wire.calls().is_empty());
    pass(shop, MINUTE).await;
    assert_eq!(wire.calls().len(), 1);
}

async fn what_follows_a_failure_in_a_batch_waits_with_it(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "0").await;
    settle().await;
    wire.next(Told::These(vec![acknowledged(), retry("not yet"), acknowledged()]));
    shop.send_many(&handle, "Order", 1..4).await;
    settle().await;
    wire.calls();
    assert_eq!(shop.outside().await, ["Order 2 2", "Order 3 3"], "nothing is known of what comes behind it");
    pass(shop, 1_200.0).await;
    assert_eq!(wire.calls(), [["Order 2 2", "Order 3 3"]]);
}

async fn transmit_does_not_wait(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.always(Told::Each(retry("away")));
    for number in 0..3 {
        let handle = far(shop, "Elsewhere").await;
        shop.send(&handle, "Order", &number.to_string()).await;
    }
    settle().await;
    assert_eq!(wire.calls().len(), 3);
    let attempt = shop.broker.transmit().await.expect("it can be tried");
    assert_eq!((attempt, wire.calls().len()), (Transmitted { sent: 0, remaining: 3 }, 3));
    wire.always(Told::Each(acknowledged()));
    let attempt = shop.broker.transmit().await.expect("it can be tried");
    assert_eq!(attempt, Transmitted { sent: 3, remaining: 0 });
    assert_eq!(shop.broker.transmit().await.expect("it can be tried"), Transmitted::default());
}

async fn what_was_accepted_is_offered_again(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(SendResult::Accepted(MINUTE)));
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..2).await;
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 0"]], "the second waits for the first acknowledgement");
    let rows = shop.transmission().await;
    assert!(rows[0].transmission_status.contains("handed over"), "{}", rows[0].transmission_status);
    pass(shop, 59_000.0).await;
    assert!(wire.calls().is_empty());
    pass(shop, 1_000.0).await;
    assert_eq!(wire.calls(), [vec!["Order 0 0"], vec!["Order 1 1"]]);
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn what_could_go_has_a_route_and_was_not_accepted(shop: &Shop) {
    let could_go = async || shop.broker.is_transmittable().await.expect("the store works");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    assert!(!could_go().await, "no route");
    let other = wire(shop, "Nowhere");
    settle().await;
    assert!(!could_go().await, "a route for another service");
    let all = Wire::default();
    all.next(Told::Each(retry("away")));
    let number = shop.broker.route("*", Rc::new(all.clone()), 50).expect("there is none yet");
    assert!(could_go().await, "it goes now");
    settle().await;
    assert_eq!(all.calls(), [["Order 0 m1"]]);
    assert!(could_go().await, "it has failed, and goes again");
    all.next(Told::Each(SendResult::Accepted(MINUTE)));
    pass(shop, 2_000.0).await;
    assert_eq!(all.calls(), [["Order 0 m1"]]);
    assert!(!could_go().await, "it waits for its acknowledgement");
    let second = far(shop, "Nowhere").await;
    other.always(Told::Each(retry("away")));
    shop.send(&second, "Order", "m2").await;
    settle().await;
    assert!(could_go().await, "one of several routes has something");
    other.always(Told::Each(acknowledged()));
    pass(shop, 2_000.0).await;
    assert!(!could_go().await);
    pass(shop, MINUTE).await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert!(!could_go().await, "nothing waits");
    shop.broker.remove_route(number);
}

async fn what_is_new_goes_on_while_the_first_is_accepted(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "0").await;
    settle().await;
    wire.always(Told::Each(SendResult::Accepted(MINUTE)));
    for number in 1..4 {
        shop.send(&handle, "Order", &number.to_string()).await;
        settle().await;
    }
    assert_eq!(wire.calls(), [["Order 0 0"], ["Order 1 1"], ["Order 2 2"], ["Order 3 3"]]);
    assert_eq!(shop.outside().await.len(), 3, "they are there until they are acknowledged");
    pass(shop, MINUTE).await;
    assert_eq!(wire.calls(), [["Order 1 1", "Order 2 2", "Order 3 3"]]);
}

async fn a_call_that_hangs_is_given_up_after_two_minutes(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Hangs);
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(wire.calls().len(), 1);
    shop.pulse().fire();
    settle().await;
    let row = shop.transmission().await.remove(0);
    assert!(row.transmission_status.contains("120 s"), "{}", row.transmission_status);
    pass(shop, 1_200.0).await;
    assert_eq!((wire.calls().len(), shop.outside().await.len()), (1, 0));
}

async fn a_transport_that_gives_too_little_is_asked_again(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "0").await;
    settle().await;
    wire.next(Told::These(vec![acknowledged()]));
    shop.send_many(&handle, "Order", 1..3).await;
    settle().await;
    assert_eq!(shop.outside().await, ["Order 2 2"]);
    assert!(status(shop).await[0].contains("fewer"), "{:?}", status(shop).await);
    wire.next(Told::These(vec![acknowledged(); 7]));
    pass(shop, 1_200.0).await;
    assert_eq!(shop.outside().await, [""; 0], "more than was asked for means nothing");
}

async fn what_is_refused_goes_to_the_error_queue(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..1).await;
    settle().await;
    wire.next(Told::These(vec![acknowledged(), refuses(422.0, false), acknowledged()]));
    shop.send_many(&handle, "Order", 1..4).await;
    settle().await;
    assert_eq!((shop.outside().await.len(), shop.state(&handle).await), (0, "CO"), "the conversation goes on");
    assert_eq!(shop.rows("error").await, ["1 Order 0 2"]);
    let row = shop.messages("error", Default::default()).await.remove(0);
    assert_eq!(row.failed_queue.as_deref(), Some(&*handle));
    assert_eq!(row.headers.field("HttpStatus").text().as_deref(), Some("422"));
    let told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.failed).collect();
    assert_eq!(told.len(), 1);
    let stats = shop.broker.stats().await.expect("it can be looked at");
    assert_eq!((stats.counts.transmitted, stats.gauges.failed), (3, 1));
}

async fn what_is_refused_may_end_the_conversation(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(refuses(422.0, true)));
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..2).await;
    settle().await;
    assert_eq!((shop.state(&handle).await, shop.rows("error").await.len()), ("ER", 0));
    assert_eq!(shop.rows_of("counter", &handle).await, ["1 Error 0 422"]);
    assert_eq!(wire.calls(), [["Order 0 0"]], "what is left is held");
    shop.end(&handle).await;
    settle().await;
    assert!(wire.calls().is_empty());
    assert_eq!((shop.outside().await.len(), shop.state(&handle).await), (0, ""));
}

async fn what_is_refused_comes_back_by_a_new_number(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(refuses(422.0, false)));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    wire.calls();
    assert_eq!(shop.broker.return_to_source(&FailedFilter::default()).await.expect("it can be done"), 1);
    settle().await;
    assert_eq!(wire.calls(), [["Order 1 m1"]]);
    assert_eq!(shop.rows("error").await, [""; 0]);
}

fn answered(message_type: &str, body: &str) -> SendResult {
    let body = Body::small(Value::from(body));
    let reply = Reply { message_type: message_type.into(), body, problem: None };
    SendResult::Acknowledged { up_to: None, from_broker: None, reply: Some(reply) }
}

async fn an_answer_brings_a_message(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(answered("Confirm", "yours")));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!((shop.rows("counter").await, shop.outside().await.len()), (vec!["1 Confirm 0 yours".to_owned()], 0));
    wire.next(Told::Each(answered(system::END_DIALOG, "")));
    shop.send(&handle, "Note", "m2").await;
    settle().await;
    assert_eq!(shop.state(&handle).await, "DI");
    shop.end(&handle).await;
    assert_eq!((shop.outside().await.len(), shop.state(&handle).await), (0, ""));
}

async fn an_answer_that_may_not_be_is_dropped(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    for unfit in ["Order", "Unheard"] {
        wire.next(Told::Each(answered(unfit, "yours")));
        shop.send(&handle, "Order", "m").await;
        settle().await;
        let dropped = shop.dropped();
        assert!(dropped.len() == 1 && dropped[0].contains(unfit), "{dropped:?}");
    }
    let problem =
        Reply { message_type: "Confirm".into(), body: Body::none(), problem: Some("it is no receipt".into()) };
    wire.next(Told::Each(SendResult::Acknowledged { up_to: None, from_broker: None, reply: Some(problem) }));
    shop.send(&handle, "Order", "m").await;
    settle().await;
    assert!(shop.dropped()[0].contains("it is no receipt"));
    assert_eq!((shop.rows("counter").await.len(), shop.outside().await.len(), shop.state(&handle).await), (0, 0, "CO"));
}

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

async fn another_broker_may_not_answer(shop: &Shop) {
    let from = |broker: &str| SendResult::Acknowledged { up_to: None, from_broker: Some(broker.into()), reply: None };
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(from("6f1c2d3e-0000-4000-8000-00000000000a")));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(
        shop.info(&handle).await.and_then(|end| end.far_broker_instance).as_deref(),
        Some("6f1c2d3e-0000-4000-8000-00000000000a")
    );
    for other in ["6f1c2d3e-0000-4000-8000-00000000000b", "nobody", &*shop.broker.instance_id()] {
        wire.next(Told::Each(from(other)));
        shop.send(&handle, "Order", other).await;
        settle().await;
        assert!(status(shop).await[0].contains("answered"), "{:?}", status(shop).await);
        wire.always(Told::Each(acknowledged()));
        shop.broker.transmit().await.expect("it can be tried");
    }
    let sent = wire.envelopes();
    let to: Vec<_> = sent.iter().flatten().map(|envelope| envelope.to_broker.is_some()).collect();
    assert_eq!(to, [false, true, true, true, true, true, true]);
}

async fn a_route_that_is_removed_leaves_what_it_has(shop: &Shop) {
    let wire = Wire::default();
    wire.next(Told::Waits);
    let number = shop.broker.route("Elsewhere", Rc::new(wire.clone()), 50).expect("there is none yet");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(wire.waiting(), 1);
    shop.broker.remove_route(number);
    settle().await;
    assert_eq!((wire.waiting(), shop.outside().await.len(), shop.locks_held()), (0, 1, 0));
    assert!(status(shop).await[0].contains("handed over"));
}

async fn a_closed_broker_waits_for_no_answer(shop: &Shop) {
    let tab = shop.another_tab().await;
    let wire = Wire::default();
    wire.always(Told::Waits);
    tab.route("Elsewhere", Rc::new(wire.clone()), 50).expect("there is none yet");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    tab.transmission_elsewhere();
    settle().await;
    assert_eq!(wire.waiting(), 1);
    tab.close().await;
    settle().await;
    assert_eq!((wire.waiting(), shop.locks_held()), (0, 0));
    refused(tab.transmit().await, ErrorCode::Closed);
    refused(tab.route("Elsewhere", Rc::new(wire), 50), ErrorCode::Closed);
    assert_eq!(shop.outside().await, ["Order 0 m1"]);
}

async fn a_reload_goes_on_where_it_was(shop: &Shop) {
    let tab = shop.another_tab().await;
    let before = Wire::default();
    before.next(Told::Each(acknowledged()));
    before.next(Told::Waits);
    tab.route("Elsewhere", Rc::new(before.clone()), 2).expect("there is none yet");
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..6).await;
    tab.transmission_elsewhere();
    settle().await;
    assert_eq!(before.calls(), [vec!["Order 0 0"], vec!["Order 1 1", "Order 2 2"]]);
    tab.close().await;
    let after = wire(shop, "Elsewhere");
    settle().await;
    assert_eq!(after.calls().concat(), ["Order 1 1", "Order 2 2", "Order 3 3", "Order 4 4", "Order 5 5"]);
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn b81_what_waits_at_an_end_is_held(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(answered(system::END_DIALOG, "")));
    wire.always(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..3).await;
    settle().await;
    assert_eq!((shop.state(&handle).await, wire.calls().len()), ("DI", 1));
    shop.broker.transmit().await.expect("it can be tried");
    assert!(wire.calls().is_empty());
    shop.end(&handle).await;
    assert_eq!((shop.state(&handle).await, shop.outside().await.len()), ("", 0));
}

async fn failures_are_told_once(shop: &Shop) {
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    shop.send(&handle, "Order", "m2").await;
    let unsent = |shop: &Shop| -> Vec<String> {
        shop.notices().into_iter().flat_map(|notice| notice.unsent).map(|(_, status)| status.to_string()).collect()
    };
    let told = unsent(shop);
    assert!(told.len() == 1 && told[0].contains("no route"), "{told:?}");
    let wire = wire(shop, "Elsewhere");
    wire.always(Told::Each(retry("away")));
    settle().await;
    for _ in 0..3 {
        shop.broker.transmit().await.expect("it can be tried");
    }
    assert_eq!(unsent(shop), ["away"]);
    wire.always(Told::Each(retry("401")));
    shop.broker.transmit().await.expect("it can be tried");
    assert_eq!(unsent(shop), ["401"]);
}

async fn l15_a_retry_is_among_what_is_due(shop: &Shop) {
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    let next = async || shop.broker.next_due().await.expect("it can be looked up");
    assert_eq!(next().await, None, "what may go at once, or has no route, is not waited for");
    let wire = wire(shop, "*");
    wire.always(Told::Each(SendResult::Retry { after: Some(5_000.0), reason: "away".into() }));
    settle().await;
    assert_eq!(next().await, Some(shop.clock().now() + 5_000.0));
    wire.calls();
    shop.clock().advance(5_000.0);
    assert_eq!(shop.broker.poll().await.expect("it can be done"), 0);
    assert_eq!(wire.calls().len(), 1);
    wire.always(Told::Each(acknowledged()));
    shop.clock().advance(5_000.0);
    assert_eq!(shop.broker.poll().await.expect("it can be done"), 1, "a message has left");
    assert_eq!(next().await, None);
}

async fn l19_a_retry_lasts_no_longer_when_the_clock_is_set_back(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.next(Told::Each(retry("away")));
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    wire.calls();
    shop.clock().advance(-86_400_000.0);
    shop.broker.poll().await.expect("it can be done");
    settle().await;
    assert_eq!(wire.calls(), [["Order 0 m1"]]);
}

async fn d34_one_context_transmits(shop: &Shop) {
    let (first, second) = (wire(shop, "Elsewhere"), Wire::default());
    let tab = shop.another_tab().await;
    tab.route("Elsewhere", Rc::new(second.clone()), 50).expect("there is none yet");
    first.always(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    tab.transmission_elsewhere();
    settle().await;
    assert_eq!((first.calls().len(), second.calls().len()), (1, 0));
    first.answer();
    settle().await;
    assert_eq!(shop.locks_held(), 0);
    tab.close().await;
}

async fn d26_transmit_takes_over_from_who_does_not_answer(shop: &Shop) {
    let (first, second) = (wire(shop, "Elsewhere"), Wire::default());
    let (tab, pulse) = shop.another_tab_with_pulse().await;
    tab.route("Elsewhere", Rc::new(second.clone()), 50).expect("there is none yet");
    first.always(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    assert_eq!(first.waiting(), 1);
    let (attempt, ()) = futures_util::future::join(tab.transmit(), async {
        settle().await;
        assert_eq!(second.calls().len(), 0);
        pulse.fire();
        settle().await;
    })
    .await;
    assert_eq!(attempt.expect("it can be tried"), Transmitted { sent: 1, remaining: 0 });
    assert_eq!(second.calls().len(), 1);
    first.answer();
    settle().await;
    tab.close().await;
}

async fn an_answer_that_comes_twice_brings_one_message(shop: &Shop) {
    let (first, second) = (wire(shop, "Elsewhere"), Wire::default());
    let (tab, pulse) = shop.another_tab_with_pulse().await;
    tab.route("Elsewhere", Rc::new(second.clone()), 50).expect("there is none yet");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    for wire in [&first, &second] {
        wire.always(Told::WaitsFor(answered("Confirm", "yours")));
    }
    shop.send_many(&handle, "Note", 0..2).await;
    settle().await;
    let (attempt, ()) = futures_util::future::join(tab.transmit(), async {
        settle().await;
        pulse.fire();
        settle().await;
        assert_eq!((first.waiting(), second.waiting()), (1, 1), "both have handed the same over");
        second.answer();
        settle().await;
    })
    .await;
    assert_eq!(attempt.expect("it can be tried"), Transmitted { sent: 2, remaining: 0 });
    assert_eq!(shop.rows("counter").await, ["1 Confirm 0 yours", "1 Confirm 1 yours"], "one for each");
    first.answer();
    settle().await;
    assert_eq!(shop.rows("counter").await.len(), 2);
    tab.close().await;
}
