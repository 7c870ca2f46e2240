//! A service that is defined after messages were sent to it: they come in.

use std::rc::Rc;

use pocket_broker::definitions::{Definitions, QueueOptions, ServiceOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};
use pocket_broker::{BeginDialog, Broker};

use super::super::support::shop::{Shop, archived, dialog_of, refused};

mount! {
    an_end_and_an_error_come_in_too,
    an_implicit_service_is_a_service,
    another_brokers_rows_stay,
    another_tab_defines_it,
    b11_messages_come_in_order,
    b11_what_is_sent_meanwhile_comes_behind,
    b17_one_that_refuses_the_contract_says_so,
    b17_refused_while_the_senders_queue_is_off,
    copies_stay,
    d12_into_a_queue_that_is_off,
    dropped_before_all_is_in,
    ends_of_a_conversation_that_has_come_in_partly,
    in_one_batch_with_the_send,
    large_bodies_come_too,
    others_wait_on,
    so_many_in_one_storage_transaction,
}

fn elsewhere(contracts: &[&str]) -> Definitions {
    let contracts = contracts.iter().map(|contract| (*contract).into()).collect();
    let service = ServiceOptions { queue: Some("kitchen".into()), contracts };
    Definitions { services: vec![("Elsewhere".into(), service)], ..Definitions::default() }
}

async fn define(broker: &Broker, contracts: &[&str]) {
    broker.define(elsewhere(contracts)).await.expect("a new service");
}

async fn far(shop: &Shop, body: &str) -> Rc<str> {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", body).await;
    begun.handle
}

/// The other end.
async fn target(shop: &Shop) -> Rc<str> {
    let ends = shop.endpoints(Default::default()).await;
    ends.into_iter().find(|end| !end.is_initiator).expect("it was opened").conversation_handle
}

async fn b11_messages_come_in_order(shop: &Shop) {
    let first = far(shop, "a1").await;
    shop.clock().advance(1.0);
    far(shop, "b1").await;
    shop.send(&first, "Note", "a2").await;
    define(&shop.broker, &["Ordering"]).await;
    shop.assert_sound().await;
    assert_eq!(shop.pass(0.0).await, 3);
    shop.assert_sound().await;
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 a1", "1 Note 1 a2", "1 Order 0 b1"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a1", "0 Note 1 a2"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b1"]);
    // From now on it is an ordinary conversation.
    shop.send(&first, "Note", "a3").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 2 a3"]);
    let target = target(shop).await;
    shop.send(&target, "Confirm", "r").await;
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 r"]);
    shop.end(&first).await;
    assert_eq!((shop.state(&first).await, shop.state(&target).await), ("", "DI"));
}

async fn another_tab_defines_it(shop: &Shop) {
    far(shop, "m1").await;
    let (one, two) = (shop.another_tab().await, shop.another_tab().await);
    define(&one, &["Ordering"]).await;
    let polled = futures_util::future::join(one.poll(), two.poll()).await;
    assert_eq!((polled.0.expect("it polls") + polled.1.expect("it polls"), shop.pass(0.0).await), (1, 0));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
    one.close().await;
    two.close().await;
}

async fn in_one_batch_with_the_send(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    let send = shop.send(&begun.handle, "Order", "m1");
    futures_util::future::join(send, define(&shop.broker, &["Ordering"])).await;
    shop.pass(0.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}

async fn an_implicit_service_is_a_service(shop: &Shop) {
    let options = BeginDialog { from: "Counter".into(), to: "oven".into(), ..BeginDialog::default() };
    let begun = shop.broker.begin_dialog(options).await.expect("nobody is contacted");
    shop.send(&begun.handle, "DEFAULT", "m1").await;
    let queues = vec![("oven".into(), QueueOptions::default())];
    shop.broker.define(Definitions { queues, ..Definitions::default() }).await.expect("a new queue");
    shop.pass(0.0).await;
    assert_eq!(shop.receive("oven").await, ["0 DEFAULT 0 m1"]);
}

async fn others_wait_on(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Nowhere")).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", "x").await;
    far(shop, "m1").await;
    define(&shop.broker, &["Ordering"]).await;
    assert!(shop.transmission().await[1].transmission_status.contains("defined"));
    assert_eq!(shop.pass(0.0).await, 1);
    assert_eq!(shop.outside().await, ["Order 0 x"]);
    assert_eq!(shop.records_in(StoreName::Due).await, 0, "nothing is left to do");
    define(&shop.broker, &["Ordering"]).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0, "nothing new");
}

async fn another_brokers_rows_stay(shop: &Shop) {
    let other = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    let options = BeginDialog { to_broker: Some(other.into()), ..dialog_of("Counter", "Elsewhere") };
    let begun = shop.broker.begin_dialog(options).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", "m1").await;
    define(&shop.broker, &["Ordering"]).await;
    assert_eq!(shop.pass(0.0).await, 0);
    assert_eq!(shop.outside().await, ["Order 0 m1"]);
    assert!(shop.transmission().await[0].transmission_status.contains("no route"));
}

async fn b17_one_that_refuses_the_contract_says_so(shop: &Shop) {
    let (open, ended) = (far(shop, "m1").await, far(shop, "m2").await);
    shop.end(&ended).await;
    define(&shop.broker, &[]).await;
    shop.notices();
    assert_eq!(shop.pass(0.0).await, 0);
    assert_eq!(shop.dropped().len(), 1, "of the one that has ended");
    assert_eq!((shop.state(&open).await, shop.state(&ended).await), ("ER", ""));
    assert_eq!(shop.receive("counter").await, ["0 Error 0 -8409"]);
    assert_eq!((shop.outside().await, shop.rows("kitchen").await), (vec![], vec![]));
    shop.end(&open).await;
    assert_eq!(shop.dropped().len(), 1, "what was held goes with it, and is heard of");
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}

async fn b17_refused_while_the_senders_queue_is_off(shop: &Shop) {
    for ends in [false, true] {
        let open = far(shop, "m1").await;
        shop.switch("counter", Status::Off).await;
        define(&shop.broker, &[]).await;
        shop.pass(0.0).await;
        shop.assert_sound().await;
        assert_eq!(shop.state(&open).await, "CO", "the Error waits");
        if ends {
            shop.end(&open).await;
            assert_eq!(shop.state(&open).await, "", "nobody is there to be told");
        }
        shop.switch("counter", Status::On).await;
        assert_eq!(shop.state(&open).await, if ends { "" } else { "ER" });
        if !ends {
            shop.end(&open).await;
        }
        shop.broker.drop_service("Elsewhere").await.expect("it can be dropped");
    }
    assert_eq!(shop.outside().await, [""; 0]);
}

async fn d12_into_a_queue_that_is_off(shop: &Shop) {
    let handle = far(shop, "m1").await;
    shop.end(&handle).await;
    shop.switch("kitchen", Status::Off).await;
    define(&shop.broker, &["Ordering"]).await;
    shop.pass(0.0).await;
    shop.assert_sound().await;
    assert_eq!(shop.outside().await, ["Order 0 m1", "EndDialog 1"], "they wait for the queue now");
    assert_eq!(shop.state(&handle).await, "DO");
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 EndDialog 1"]);
    assert_eq!(shop.state(&handle).await, "");
}

async fn an_end_and_an_error_come_in_too(shop: &Shop) {
    let (ended, failed) = (far(shop, "m1").await, far(shop, "m2").await);
    shop.end(&ended).await;
    shop.fail(&failed).await;
    define(&shop.broker, &["Ordering"]).await;
    shop.pass(0.0).await;
    assert_eq!((shop.state(&ended).await, shop.state(&failed).await), ("", ""));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 EndDialog 1"]);
    assert_eq!(shop.rows("kitchen").await, [""; 0], "an Error alone begins nothing");
    let lifetime = BeginDialog { lifetime: Some(1_000.0), ..dialog_of("Counter", "Nowhere") };
    let begun = shop.broker.begin_dialog(lifetime).await.expect("nobody is contacted");
    shop.send(&begun.handle, "Order", "m3").await;
    shop.fail(&begun.handle).await;
    let service = ServiceOptions { queue: Some("kitchen".into()), contracts: vec!["Ordering".into()] };
    let nowhere = Definitions { services: vec![("Nowhere".into(), service)], ..Definitions::default() };
    shop.broker.define(nowhere).await.expect("a new service");
    shop.pass(0.0).await;
    assert_eq!(shop.records_in(StoreName::Due).await, 0, "its lifetime goes with it");
}

async fn large_bodies_come_too(shop: &Shop) {
    shop.retain("counter", true).await;
    let handle = far(shop, "m1").await;
    shop.send_large(&handle, "large").await;
    define(&shop.broker, &["Ordering"]).await;
    shop.pass(0.0).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 2, "the copy's, and the message's");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 large"]);
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1", "3 Note 1 large"]);
    shop.end(&handle).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn copies_stay(shop: &Shop) {
    shop.retain("counter", true).await;
    let handle = far(shop, "m1").await;
    shop.retain("counter", false).await;
    shop.send(&handle, "Note", "m2").await;
    define(&shop.broker, &["Ordering"]).await;
    shop.pass(0.0).await;
    assert_eq!(shop.rows("counter").await, ["3 Order 0 m1"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    let ended = shop.broker.end_conversation(&handle, archived()).await.expect("it can be ended");
    assert_eq!(ended.archived, 1);
}

/// More than one storage transaction lets in: 64 runs.
async fn many(shop: &Shop) -> Rc<str> {
    let handle = far(shop, "m0").await;
    for run in 0..70 {
        shop.send_many(&handle, "Note", run * 2..run * 2 + 2).await;
    }
    handle
}

/// One storage transaction's share of what waits.
async fn one_share(shop: &Shop) {
    // For the next one there is no room, nor is there when its row is tried alone.
    for commit in [2, 4] {
        shop.faults.plan(Operation::Commit, commit, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    }
    refused(shop.broker.poll().await, ErrorCode::QuotaExceeded);
}

async fn so_many_in_one_storage_transaction(shop: &Shop) {
    let handle = many(shop).await;
    for number in 0..150 {
        far(shop, &number.to_string()).await;
    }
    define(&shop.broker, &["Ordering"]).await;
    shop.faults.reset_counts();
    assert_eq!(shop.pass(0.0).await, 141 + 150);
    assert!(shop.faults.calls(Operation::Begin) >= 4, "a bounded share in each");
    let options = pocket_broker::ReceiveOptions { top: Some(141.0), ..Default::default() };
    let rows = shop.broker.receive("kitchen", options, None).await.expect("they are here");
    let rows = super::super::support::shop::show_all(&rows);
    assert_eq!((rows.len(), &*rows[1], &*rows[140]), (141, "0 Note 1 0", "0 Note 140 139"));
    assert_eq!((shop.queue("kitchen").await.ready, shop.state(&handle).await), (150, "CO"));
}

async fn b11_what_is_sent_meanwhile_comes_behind(shop: &Shop) {
    let handle = many(shop).await;
    define(&shop.broker, &["Ordering"]).await;
    one_share(shop).await;
    shop.assert_sound().await;
    let first = shop.outside().await;
    assert!(!first.is_empty() && first.len() < 141, "{}", first.len());
    shop.send(&handle, "Note", "last").await;
    assert_eq!(shop.outside().await.len(), first.len() + 1);
    // The other end may answer already.
    let target = target(shop).await;
    shop.send(&target, "Confirm", "r").await;
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 r"]);
    shop.pass(0.0).await;
    let rows = shop.receive("kitchen").await;
    assert_eq!((rows.len(), &*rows[141]), (142, "0 Note 141 last"));
}

async fn ends_of_a_conversation_that_has_come_in_partly(shop: &Shop) {
    for (near, how) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2), (true, 3), (false, 3)] {
        let handle = many(shop).await;
        define(&shop.broker, &["Ordering"]).await;
        one_share(shop).await;
        let target = target(shop).await;
        let end = if near { &handle } else { &target };
        match how {
            0 => _ = shop.end(end).await,
            1 => _ = shop.fail(end).await,
            2 => _ = shop.clean_up(end).await,
            _ => {
                // Both: the near end first, which then waits for its EndDialog to come in.
                shop.end(if near { &handle } else { &target }).await;
                shop.end(if near { &target } else { &handle }).await;
            }
        }
        shop.assert_sound().await;
        shop.pass(0.0).await;
        shop.assert_sound().await;
        assert_eq!(shop.outside().await, [""; 0], "{near} {how}");
        let states = (shop.state(&handle).await, shop.state(&target).await);
        let expected = match (near, how) {
            (true, 0) => ("", "DI"),
            (true, 1) => ("", "ER"),
            (true, 2) => ("", "CO"),
            (false, 0) => ("DI", ""),
            (false, 1 | 2) => ("ER", ""),
            _ => ("", ""),
        };
        assert_eq!(states, expected, "{near} {how}");
        for end in [&handle, &target] {
            if !shop.state(end).await.is_empty() {
                shop.clean_up(end).await;
            }
        }
        assert_eq!(shop.records_in(StoreName::Messages).await, 0, "{near} {how}");
        shop.broker.drop_service("Elsewhere").await.expect("it can be dropped");
    }
}

async fn dropped_before_all_is_in(shop: &Shop) {
    for ends in [false, true] {
        let handle = many(shop).await;
        define(&shop.broker, &["Ordering"]).await;
        one_share(shop).await;
        if ends {
            shop.end(&handle).await;
        }
        shop.broker.drop_service("Elsewhere").await.expect("it can be dropped");
        shop.assert_sound().await;
        shop.pass(0.0).await;
        shop.assert_sound().await;
        assert_eq!(shop.state(&handle).await, if ends { "" } else { "ER" });
        if !ends {
            shop.end(&handle).await;
        }
    }
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}
