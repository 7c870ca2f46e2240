//! What far brokers answer to messages, and when.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::message::system;
use pocket_broker::{Reply, SendResult, Transmitted};

use super::super::support::elsewhere::settle;
use super::super::support::shop::Shop;
use super::super::support::transport::{Told, Wire, acknowledged};
use super::transmission::{MINUTE, far, pass, status, wire};

mount! {
    what_was_accepted_is_offered_again,
    what_is_new_goes_on_while_the_first_is_accepted,
    an_acknowledgement_covers_what_it_says,
    an_answer_brings_a_message,
    an_answer_that_may_not_be_is_dropped,
    another_broker_may_not_answer,
    b81_what_waits_at_an_end_is_held,
}
mount_with_locks! {
    an_answer_that_comes_twice_brings_one_message,
}

fn answered(message_type: &str, body: &str) -> SendResult {
    let body = Body::small(Value::from(body));
    let reply = Reply { message_type: message_type.into(), body, problem: None };
    SendResult::Acknowledged { up_to: None, from_broker: None, reply: Some(reply) }
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

async fn an_acknowledgement_covers_what_it_says(shop: &Shop) {
    let up_to = |number| SendResult::Acknowledged { up_to: Some(number), from_broker: None, reply: None };
    let wire = wire(shop, "Elsewhere");
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "0").await;
    settle().await;
    wire.next(Told::Each(up_to(2)));
    shop.send_many(&handle, "Order", 1..5).await;
    settle().await;
    assert_eq!(shop.outside().await, ["Order 3 3", "Order 4 4"], "those behind have not arrived yet");
    wire.calls();
    pass(shop, MINUTE).await;
    assert_eq!(
        (wire.calls(), shop.outside().await.len()),
        (vec![vec!["Order 3 3".to_owned(), "Order 4 4".to_owned()]], 0)
    );
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
