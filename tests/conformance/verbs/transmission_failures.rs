//! Messages for far services that can't go out: they wait, and say why.

use pocket_broker::clock::Clock;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{FailedFilter, SendResult, Transmitted};

use super::super::support::elsewhere::settle;
use super::super::support::shop::{Shop, dialog_of};
use super::super::support::transport::{Told, acknowledged, refused as refuses, retry};
use super::transmission::{MINUTE, far, pass, status, wire};

mount! {
    b91_what_fails_is_tried_again_after_a_growing_wait,
    one_that_waits_holds_up_no_other,
    the_transport_says_how_long_to_wait,
    what_follows_a_failure_in_a_batch_waits_with_it,
    transmit_does_not_wait,
    a_call_that_hangs_is_given_up_after_two_minutes,
    a_transport_that_gives_too_little_is_asked_again,
    what_is_refused_goes_to_the_error_queue,
    what_is_refused_may_end_the_conversation,
    what_is_refused_comes_back_by_a_new_number,
    failures_are_told_once,
    what_is_for_this_broker_goes_by_no_route,
    a_lifetime_gives_up_what_waits_after_an_end,
    an_answer_that_can_not_be_stored_is_no_answer,
    l15_a_retry_is_among_what_is_due,
    l19_a_retry_lasts_no_longer_when_the_clock_is_set_back,
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
    assert_eq!(wire.calls(), [["Order 0 0"], ["Error 2 422"]], "what is left never goes, and the far side is told");
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

async fn what_is_for_this_broker_goes_by_no_route(shop: &Shop) {
    let wire = wire(shop, "*");
    for to in ["current".to_owned(), shop.broker.instance_id().to_uppercase()] {
        let mut options = dialog_of("Counter", "Elsewhere");
        options.to_broker = Some(to);
        let begun = shop.broker.begin_dialog(options).await.expect("nobody is contacted");
        shop.send(&begun.handle, "Order", "m1").await;
    }
    settle().await;
    assert!(wire.calls().is_empty());
    assert_eq!(shop.outside().await.len(), 2);
}

async fn a_lifetime_gives_up_what_waits_after_an_end(shop: &Shop) {
    let mut options = dialog_of("Counter", "Elsewhere");
    options.lifetime = Some(5_000.0);
    let begun = shop.broker.begin_dialog(options).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", "m1").await;
    shop.end(&begun.handle).await;
    assert_eq!((shop.state(&begun.handle).await, shop.outside().await.len()), ("DO", 2));
    shop.notices();
    shop.pass(5_000.0).await;
    assert_eq!((shop.state(&begun.handle).await, shop.outside().await.len()), ("", 0));
    let dropped = shop.dropped();
    assert!(dropped.len() == 1 && dropped[0].contains("lifetime"), "{dropped:?}");
}

/// It is asked for again, and what other conversations have to say goes on.
async fn an_answer_that_can_not_be_stored_is_no_answer(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    wire.next(Told::Waits);
    shop.send(&handle, "Order", "m1").await;
    settle().await;
    // Together with what is picked next, and then alone.
    for nth in 1..=2 {
        let full = Error::new(ErrorCode::QuotaExceeded, "The disk is full.");
        shop.faults.plan(Operation::Commit, nth, Fault::Abort(full));
    }
    wire.answer();
    settle().await;
    assert!(status(shop).await[0].contains("could not be stored"), "{:?}", status(shop).await);
    pass(shop, 2_000.0).await;
    assert_eq!((wire.calls().len(), shop.outside().await.len()), (2, 0));
}
