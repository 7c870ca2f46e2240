//! Which context transmits, and what it costs.

use std::rc::Rc;

use pocket_broker::error::ErrorCode;
use pocket_broker::store::Operation;
use pocket_broker::{DelayedSettings, RoleKind, RoleNotice, SendResult, Transmitted};

use super::super::support::elsewhere::settle;
use super::super::support::shop::{Shop, refused};
use super::super::support::transport::{Told, Wire, acknowledged, retry};
use super::transmission::{MINUTE, far, pass, status, wire};

mount! {
    a_route_that_is_removed_leaves_what_it_has,
    a_closed_broker_waits_for_no_answer,
    a_reload_goes_on_where_it_was,
    a_batch_costs_one_storage_transaction,
    what_could_go_has_a_route_and_was_not_accepted,
    many_that_wait_cost_a_batch_nothing,
}
mount_with_locks! {
    d34_one_context_transmits,
    d34_what_is_under_way_is_not_handed_over,
    d26_transmit_takes_over_from_who_does_not_answer,
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

/// What one call has come to is stored with the picking of the next.
async fn a_batch_costs_one_storage_transaction(shop: &Shop) {
    let wire = Wire::default();
    let handle = far(shop, "Elsewhere").await;
    shop.send_many(&handle, "Order", 0..100).await;
    shop.faults.reset_counts();
    shop.broker.route("Elsewhere", Rc::new(wire.clone()), 10).expect("there is none yet");
    settle().await;
    let calls = u32::try_from(wire.calls().len()).expect("few");
    assert_eq!(calls, 11);
    let begun = shop.faults.calls(Operation::Begin);
    // One before the first call, and looks at what is to be done: before, for the role, and after.
    assert!(begun <= calls + 6, "{begun} storage transactions for {calls} calls");
}

async fn many_that_wait_cost_a_batch_nothing(shop: &Shop) {
    let wire = wire(shop, "Elsewhere");
    wire.always(Told::Each(SendResult::Retry { after: Some(3_000_000.0), reason: "not now".into() }));
    for number in 0..300 {
        let handle = far(shop, "Elsewhere").await;
        shop.send(&handle, "Order", &number.to_string()).await;
    }
    settle().await;
    assert_eq!(wire.calls().len(), 300);
    wire.always(Told::Each(acknowledged()));
    let handle = far(shop, "Elsewhere").await;
    shop.faults.reset_counts();
    shop.send(&handle, "Order", "m").await;
    settle().await;
    let reads = shop.faults.reads();
    assert!(reads < 60, "{reads} reads");
    assert_eq!((wire.calls().len(), shop.transmission().await.len()), (1, 300));
}

async fn d34_what_is_under_way_is_not_handed_over(shop: &Shop) {
    let tab = shop.tab_of(DelayedSettings::default()).await;
    let theirs = Wire::default();
    tab.route("Elsewhere", Rc::new(theirs.clone()), 50).expect("there is none yet");
    theirs.always(Told::Waits);
    let handle = far(shop, "Elsewhere").await;
    shop.send(&handle, "Order", "m1").await;
    shop.send(&handle, "Note", "m2").await;
    tab.transmission_elsewhere();
    settle().await;
    assert_eq!(theirs.calls(), [["Order 0 m1"]]);
    let ours = wire(shop, "Elsewhere");
    settle().await;
    shop.hide(2, true);
    tab.hear_of_role(&RoleNotice { role: "route:Elsewhere".into(), kind: RoleKind::Wanted });
    settle().await;
    assert!(ours.calls().is_empty(), "its answer is waited for");
    theirs.answer();
    settle().await;
    assert_eq!(ours.calls(), [["Note 1 m2"]]);
    assert!(theirs.calls().is_empty(), "who is hidden sends nothing more");
    assert_eq!(shop.locks_held(), 0);
    tab.close().await;
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
