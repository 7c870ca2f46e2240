//! SEND.

use std::rc::Rc;

use pocket_broker::BeginDialog;
use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;

use super::super::support::detail;
use super::super::support::shop::{Shop, cleanup, refused};

mount! {
    b16_the_first_message_makes_the_target,
    b18_a_local_target_gets_it_at_once,
    b21_a_type_outside_the_contract_is_refused,
    b22_a_type_of_the_other_side_is_refused,
    b25_several_handles_get_it_or_none,
    b26_a_handle_may_be_named_once,
    b27_a_state_that_forbids_it_is_named,
    b30_order_holds_in_a_conversation,
    b66_own_queue_off_matters_only_with_retention,
    a_cancelled_send_stores_nothing,
    b23_d28_bodies_and_headers_come_as_sent,
    d06_numbers_begin_at_zero_in_each_direction,
    d11_a_far_endpoint_that_is_gone_answers_with_an_error,
    d11_one_error_is_enough,
    d30_system_types_are_the_brokers,
    nothing_to_send_is_nothing,
    send_many_is_all_or_none,
    unknown_handles_are_refused,
}

async fn b16_the_first_message_makes_the_target(shop: &Shop) {
    let begun = shop.begin().await;
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    assert_eq!((shop.state(&dialog.initiator).await, shop.state(&dialog.target).await), ("CO", "CO"));
    let (one, other) = (shop.info(&dialog.initiator).await.expect("I"), shop.info(&dialog.target).await.expect("T"));
    assert_ne!(one.conversation_handle, other.conversation_handle);
    assert_ne!(one.conversation_group_id, other.conversation_group_id);
    assert_eq!(one.conversation_id, other.conversation_id);
    assert_eq!((&*other.service, &*other.far_service, other.is_initiator), ("Kitchen", "Counter", false));
    assert_eq!(
        (one.far_broker_instance, other.far_broker_instance),
        (Some(shop.broker.instance_id()), Some(shop.broker.instance_id()))
    );
}

async fn b18_a_local_target_gets_it_at_once(shop: &Shop) {
    let dialog = shop.order("m1").await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(shop.rows("counter").await, [""; 0], "the sender's queue is untouched");
    let message = shop.messages("kitchen", Default::default()).await.remove(0);
    assert_eq!(message.conversation_handle, dialog.target);
    assert_eq!(&*message.service_name, "Kitchen", "d07: whom it is addressed to");
    assert_eq!(
        (&*message.service_contract_name, message.validation, message.message_enqueue_time),
        ("Ordering", "N", 1_700_000_000_000.0)
    );
}

async fn d06_numbers_begin_at_zero_in_each_direction(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
    assert_eq!(shop.rows("counter").await, ["1 Confirm 0 r1"]);
    let end = shop.info(&dialog.target).await.expect("it is there");
    assert_eq!((end.send_sequence, end.receive_sequence), (1, 2));
}

/// B24.
async fn b21_a_type_outside_the_contract_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let error = refused(shop.try_send(&dialog.initiator, "DEFAULT", "m2").await, ErrorCode::NotInContract);
    assert_eq!(error.number(), Some(8431));
    let error = refused(shop.try_send(&dialog.initiator, "Nothing", "m2").await, ErrorCode::MessageTypeNotFound);
    assert_eq!(error.number(), Some(8428));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"], "nothing is stored");
    assert_eq!(shop.info(&dialog.initiator).await.map(|end| end.send_sequence), Some(1));
}

/// D32.
async fn b22_a_type_of_the_other_side_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let error = refused(shop.try_send(&dialog.initiator, "Confirm", "m2").await, ErrorCode::WrongDirection);
    assert_eq!(error.number(), Some(8432));
    let error = refused(shop.try_send(&dialog.target, "Order", "m2").await, ErrorCode::WrongDirection);
    assert_eq!(error.number(), Some(8434));
    shop.send(&dialog.target, "Note", "both may").await;
}

async fn d30_system_types_are_the_brokers(shop: &Shop) {
    use pocket_broker::message::system::{DIALOG_TIMER, END_DIALOG, ERROR};
    let dialog = shop.order("m1").await;
    for system in [DIALOG_TIMER, END_DIALOG, ERROR] {
        let error = refused(shop.try_send(&dialog.initiator, system, "m2").await, ErrorCode::NotInContract);
        assert!(error.to_string().contains("broker's own") && !error.to_string().contains("Add it"), "{error}");
    }
    assert_eq!(shop.state(&dialog.target).await, "CO");
}

async fn b25_several_handles_get_it_or_none(shop: &Shop) {
    let (first, second, third) = (shop.order("a").await, shop.order("b").await, shop.order("c").await);
    let to = |dialogs: &[&super::super::support::shop::Dialog]| -> Vec<Rc<str>> {
        dialogs.iter().map(|dialog| Rc::clone(&dialog.initiator)).collect()
    };
    let messages = || ["x", "y", "z"].map(|body| shop.message("Note", body)).into();
    shop.end(&second.target).await;
    let error =
        refused(shop.broker.send(to(&[&first, &second, &third]), messages(), None).await, ErrorCode::InvalidState);
    assert!(error.to_string().contains("DI"), "{error}");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 a", "1 Order 0 c"], "none gets it");
    let plain = BeginDialog { from: "Counter".into(), to: "kitchen".into(), ..BeginDialog::default() };
    let plain = shop.broker.begin_dialog(plain).await.expect("the dialog begins").handle;
    for (bad, code) in [("x".into(), ErrorCode::ConversationNotFound), (plain, ErrorCode::NotInContract)] {
        let to = vec![Rc::clone(&first.initiator), bad, Rc::clone(&third.initiator)];
        refused(shop.broker.send(to, messages(), None).await, code);
        assert_eq!(shop.rows("kitchen").await.len(), 2, "whatever is wrong with one");
    }
    shop.broker
        .send(to(&[&first, &third]), vec![shop.message("Note", "x"), shop.message("Note", "z")], None)
        .await
        .expect("both may send");
    assert_eq!(shop.rows_of("kitchen", &first.target).await, ["1 Order 0 a", "1 Note 1 x"]);
    assert_eq!(shop.rows_of("kitchen", &third.target).await, ["1 Order 0 c", "1 Note 1 z"]);
}

async fn b26_a_handle_may_be_named_once(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let to = vec![Rc::clone(&dialog.initiator), Rc::clone(&dialog.initiator)];
    let twice = vec![shop.message("Note", "x"), shop.message("Note", "y")];
    refused(shop.broker.send(to, twice, None).await, ErrorCode::InvalidArgument);
    let to = vec![Rc::clone(&dialog.initiator), dialog.initiator.to_uppercase().into()];
    let twice = vec![shop.message("Note", "x"), shop.message("Note", "y")];
    let error = refused(shop.broker.send(to, twice, None).await, ErrorCode::InvalidArgument);
    assert_eq!(
        detail(&error, "argument").as_deref(),
        Some("to"),
        "a handle is a UUID, whatever the case of its letters"
    );
    let both = vec![Rc::clone(&dialog.initiator), Rc::clone(&dialog.target)];
    shop.broker
        .send(both, vec![shop.message("Note", "x"), shop.message("Note", "y")], None)
        .await
        .expect("two ends of one conversation");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 x"]);
    assert_eq!(shop.rows("counter").await, ["1 Note 0 y"]);
}

async fn b27_a_state_that_forbids_it_is_named(shop: &Shop) {
    let ended = shop.order("m1").await;
    shop.end(&ended.target).await;
    let failed = shop.order("m2").await;
    shop.fail(&failed.target).await;
    for (dialog, state) in [(&ended, "DI"), (&failed, "ER")] {
        let error = refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::InvalidState);
        assert_eq!(error.number(), Some(8429));
        let details: Vec<_> =
            error.details().iter().map(|(name, value)| (*name, value.text().unwrap_or_default())).collect();
        assert!(
            details.contains(&("state", state.to_owned())) && details.contains(&("operation", "SEND".to_owned())),
            "{details:?}"
        );
        assert!(error.to_string().contains(state), "{error}");
    }
    shop.switch("kitchen", Status::Off).await;
    let waiting = shop.order("m3").await;
    shop.end(&waiting.initiator).await;
    let error = refused(shop.try_send(&waiting.initiator, "Note", "x").await, ErrorCode::InvalidState);
    assert_eq!((error.number(), detail(&error, "state").as_deref()), (Some(8429), Some("DO")));
    let error = refused(shop.try_send(&ended.target, "Note", "x").await, ErrorCode::ConversationNotFound);
    assert_eq!(error.number(), Some(8426), "where Service Broker may still show CD the row is gone");
}

/// B27.
async fn unknown_handles_are_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.initiator).await.expect("it is there").conversation_group_id;
    let guessed = dialog.initiator.replace('a', "b");
    let unknown = [
        "",
        "x",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        &*group,
        &*dialog.id,
        if guessed == *dialog.initiator { "y" } else { &guessed },
    ];
    for handle in unknown {
        let error = refused(shop.try_send(handle, "Note", "x").await, ErrorCode::ConversationNotFound);
        assert_eq!(error.number(), Some(8426));
    }
    shop.end(&dialog.target).await;
    shop.end(&dialog.initiator).await;
    refused(shop.try_send(&dialog.initiator, "Note", "x").await, ErrorCode::ConversationNotFound);
    shop.send(&shop.order("m2").await.initiator.to_uppercase(), "Note", "a handle is a UUID").await;
}

/// D32.
async fn b66_own_queue_off_matters_only_with_retention(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.switch("counter", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.retain("counter", true).await;
    let error = refused(shop.try_send(&dialog.initiator, "Note", "m3").await, ErrorCode::QueueDisabled);
    assert_eq!(error.number(), Some(9618));
    assert!(error.details().iter().any(|(name, value)| *name == "retention" && value.boolean() == Some(true)));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
    shop.switch("counter", Status::On).await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.rows("counter").await, ["3 Note 2 m3"]);
}

async fn d11_a_far_endpoint_that_is_gone_answers_with_an_error(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.clean_up(&dialog.target).await;
    assert_eq!(shop.state(&dialog.initiator).await, "CO", "b65: it was not told");
    shop.notices();
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.dropped().len(), 1, "d13: nothing vanishes without a trace");
    assert_eq!(shop.rows("counter").await, ["1 Error 0 -8462"]);
    assert_eq!(shop.state(&dialog.initiator).await, "ER");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    shop.end(&dialog.initiator).await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn d11_one_error_is_enough(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.clean_up(&dialog.target).await;
    shop.switch("counter", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.outside().await, ["Error 0 -8462"]);
    shop.switch("counter", Status::On).await;
    assert_eq!(shop.rows("counter").await, ["1 Error 0 -8462"]);
    assert_eq!(shop.state(&dialog.initiator).await, "ER");
}

async fn send_many_is_all_or_none(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let mixed = vec![shop.message("Note", "x"), shop.message("Confirm", "y"), shop.message("Note", "z")];
    refused(shop.broker.send(vec![Rc::clone(&dialog.initiator)], mixed, None).await, ErrorCode::WrongDirection);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
}

async fn b30_order_holds_in_a_conversation(shop: &Shop) {
    let dialog = shop.order("first").await;
    shop.send_many(&dialog.initiator, "Note", 0..600).await;
    shop.send(&dialog.initiator, "Order", "last").await;
    let rows = shop.receive("kitchen").await;
    assert_eq!(rows.len(), 602);
    assert_eq!(
        (&*rows[0], &*rows[1], &*rows[600], &*rows[601]),
        ("0 Order 0 first", "0 Note 1 0", "0 Note 600 599", "0 Order 601 last")
    );
    assert!(rows[1..601].iter().enumerate().all(|(index, row)| *row == format!("0 Note {} {index}", index + 1)));
}

async fn b23_d28_bodies_and_headers_come_as_sent(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let headers = Value::object(vec![("language", Value::from("fr"))]);
    let bodies =
        [Body::none(), Body::small(Value::null()), Body { value: Value::from(3.5).into(), packing: 7, size: 8.0 }];
    let messages = bodies.map(|body| shop.message_of("Note", body)).into_iter();
    let messages = messages
        .map(|message| pocket_broker::OutgoingMessage { headers: Some(headers.clone().into()), ..message })
        .collect::<Vec<_>>();
    let ids: Vec<_> = messages.iter().map(|message| pocket_broker::ids::text(message.id)).collect();
    shop.broker.send(vec![Rc::clone(&dialog.initiator)], messages, None).await.expect("the messages can be sent");
    let rows = shop.messages("kitchen", Default::default()).await;
    assert!(rows[0].headers.is_undefined() || rows[0].headers.is_null(), "without headers");
    assert!(
        rows[1..]
            .iter()
            .zip(&ids)
            .all(|(row, id)| row.message_id == *id && row.headers.field("language").text().as_deref() == Some("fr"))
    );
    assert!(rows[1].body.is_undefined() && rows[2].body.is_null(), "d28: null is a value, no body is undefined");
    assert_eq!((rows[3].body.number(), rows[3].packing, rows[2].packing), (Some(3.5), 7.0, 0.0));
}

async fn nothing_to_send_is_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.broker.send(vec![Rc::clone(&dialog.initiator)], Vec::new(), None).await.expect("no message is no error");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
}

/// D27.
async fn a_cancelled_send_stores_nothing(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let cancelled =
        shop.broker.send(vec![Rc::clone(&dialog.initiator)], vec![shop.message("Note", "x")], Some(Rc::new(|| true)));
    let error = refused(cancelled.await, ErrorCode::Timeout);
    assert!(error.details().iter().any(|(name, _)| *name == "aborted"));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    assert!(shop.faults.writes_to(StoreName::Messages) > 0, "faults count");
    let gone = shop.broker.end_conversation(&dialog.target, cleanup()).await;
    gone.expect("the next call works");
}
