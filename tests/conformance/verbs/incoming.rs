//! What arrives from other brokers, row by row of the table in docs/wire.md.

use std::rc::Rc;

use pocket_broker::body::Value;
use pocket_broker::definitions::Status;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Faults, Operation, StoreName};
use pocket_broker::{BeginDialog, DeliverContext, GivenBody, RowFilter, SendResult};

use super::super::support::elsewhere::settle;
use super::super::support::far::{FAR, Far, Made, STRANGER, deliver, deliver_one, deliver_to};
use super::super::support::shop::{Shop, dialog_of};
use super::super::support::transport::{Told, Wire};

mount! {
    a_first_message_makes_a_target,
    d30_a_service_that_is_not_here_is_refused,
    an_error_comes_out_of_turn,
    b88_what_comes_twice_is_one_row,
    b89_what_overtakes_waits_with_status_2,
    b90_what_can_not_be_stored_is_to_come_again,
    d10_a_body_that_is_not_valid_ends_it_on_both_sides,
    gaps_close_in_any_order,
    no_more_waits_than_may,
    only_so_many_are_begun_from_outside,
    replies_go_out_and_are_acknowledged,
    the_far_side_pins_itself,
    two_of_one_conversation_share_a_transaction,
    what_a_queue_that_is_off_is_to_get_comes_again,
    what_nobody_can_check_comes_again,
}

async fn a_first_message_makes_a_target(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let message = far.message(0, "Order", "soup").with("headers", Value::object(vec![("table", "7".into())]));
    assert_eq!(deliver_one(shop, message).await, "stored, 0");
    let end = shop.info(&far.handle(shop).await).await.expect("it is there");
    assert_eq!((&*end.service, &*end.far_service, &*end.contract), ("Kitchen", "Desk", "Ordering"));
    assert_eq!((end.is_initiator, end.state.letters(), end.far_broker_instance.as_deref()), (false, "CO", Some(FAR)));
    assert_eq!((end.send_sequence, end.receive_sequence, end.lifetime), (0, 1, None));
    let rows = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(rows[0].headers.field("table").text().as_deref(), Some("7"));
    assert_eq!(&*rows[0].message_id, "6ba7b812-9dad-41d1-80b4-000000000000");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 soup"]);
    let stats = shop.broker.stats().await.expect("it can be looked at");
    assert_eq!((stats.counts.enqueued, stats.counts.dropped), (1, 0));
}

async fn b88_what_comes_twice_is_one_row(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let first = far.message(0, "Order", "soup");
    assert_eq!(deliver(shop, &[first.clone(), first.clone()]).await, ["stored, 0", "repeated, 0"]);
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "hot")).await, "stored, 1");
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 1", "everything up to there is here");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 soup", "0 Note 1 hot"]);
    assert_eq!(deliver_one(shop, first).await, "repeated, 1", "read or not");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    // One that waits for others comes twice, too.
    let ahead = far.message(3, "Note", "late");
    assert_eq!(deliver(shop, &[ahead.clone(), ahead.clone()]).await, ["stored, 1", "repeated, 1"]);
    assert_eq!(shop.dropped(), [""; 0], "nobody has lost anything");
}

/// D01: 2 is what is not complete.
async fn b89_what_overtakes_waits_with_status_2(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    assert_eq!(deliver_one(shop, far.message(2, "Note", "second")).await, "stored, 0");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 soup", "2 Note 2 second"]);
    let parked = RowFilter { status: Some(vec![2.0]), ..RowFilter::default() };
    assert_eq!(shop.messages("kitchen", parked).await.len(), 1);
    assert_eq!(shop.queue("kitchen").await.ready, 1);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 soup"]);
    assert_eq!(shop.receive("kitchen").await, [""; 0]);
    assert_eq!(shop.rows_of("kitchen", &far.handle(shop).await).await, ["2 Note 2 second"]);
    assert_eq!(deliver_one(shop, far.message(1, "Note", "first")).await, "stored, 2");
    assert_eq!(shop.rows("kitchen").await, ["1 Note 1 first", "1 Note 2 second"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 first", "0 Note 2 second"]);
}

async fn gaps_close_in_any_order(shop: &Shop) {
    let order = [9, 3, 4, 11, 2, 6, 10, 8, 1, 5, 7];
    for (number, retention) in [(1, false), (2, true)] {
        shop.retain("kitchen", retention).await;
        let far = Far::begins(shop, number);
        deliver_one(shop, far.message(0, "Order", "0")).await;
        for sequence in order {
            let made = far.message(sequence, "Note", &sequence.to_string());
            // Some have records of their own.
            let made = if sequence % 3 == 0 { made.sized(70_000.0) } else { made };
            assert!(deliver_one(shop, made).await.starts_with("stored"));
            shop.assert_sound().await;
        }
        let received = shop.receive("kitchen").await;
        let expected: Vec<String> = (0..12)
            .map(|number| format!("0 {} {number} {number}", if number == 0 { "Order" } else { "Note" }))
            .collect();
        assert_eq!(received, expected);
    }
    // All in one call, one of them before those that it overtakes.
    let far = Far::begins(shop, 3);
    let made: Vec<_> = [0, 3, 2, 5, 1, 4].map(|number| far.message(number, "Note", &number.to_string())).into();
    let deliveries = deliver(shop, &made).await;
    assert_eq!(deliveries, ["stored, 0", "stored, 0", "stored, 0", "stored, 0", "stored, 3", "stored, 5"]);
    assert_eq!(shop.receive("kitchen").await.len(), 6);
}

async fn b90_what_can_not_be_stored_is_to_come_again(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let full = Error::new(ErrorCode::QuotaExceeded, "No space.");
    shop.faults.plan(Operation::Change, 1, Fault::Abort(full));
    let first = far.message(0, "Order", "soup");
    let failed = deliver_one(shop, first.clone()).await;
    assert!(failed.starts_with("later: "), "{failed}");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(deliver_one(shop, first).await, "stored, 0");
}

async fn an_error_comes_out_of_turn(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    deliver_one(shop, far.message(2, "Note", "waits")).await;
    deliver_one(shop, far.message(3, "Note", "waits, too").sized(70_000.0)).await;
    shop.notices();
    assert_eq!(deliver_one(shop, far.error(5, 42)).await, "stored, 5", "1 and 4 never come");
    assert_eq!(far.state(shop).await, "ER");
    let dropped = shop.dropped();
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].ends_with("(2 messages)"), "{dropped:?}");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 soup", "1 Error 5 42"]);
    for number in [1, 4, 5] {
        assert_eq!(deliver_one(shop, far.message(number, "Note", "late")).await, "repeated, 5");
    }
    assert!(deliver_one(shop, far.message(6, "Note", "behind")).await.starts_with("refused: behind the end"));
    assert_eq!(shop.receive("kitchen").await, ["0 Error 5 42", "0 Order 0 soup"], "it is read first");
}

async fn d30_a_service_that_is_not_here_is_refused(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let unknown = far.message(0, "Order", "soup").with("toService", "Cellar");
    assert_eq!(
        deliver_one(shop, unknown).await,
        "refused with -8490: no such service: There is no service \"Cellar\" here."
    );
    // D30: a queue's own is for `enqueue` alone.
    let implicit = far.message(0, "DEFAULT", "soup").with("toService", "kitchen").with("contract", "DEFAULT");
    assert!(deliver_one(shop, implicit).await.starts_with("refused with -8490: "));
    let contract = far.message(0, "DEFAULT", "soup").with("contract", "DEFAULT");
    assert!(deliver_one(shop, contract).await.starts_with("refused with -8409: contract not accepted: "));
    let message_type = far.message(0, "Bill", "soup");
    assert!(deliver_one(shop, message_type).await.starts_with("refused with -8431: not in the contract: "));
    let direction = far.message(0, "Confirm", "soup");
    assert!(deliver_one(shop, direction).await.starts_with("refused with -8457: not in the contract: "));
    let body = far.message(0, "Order", "soup").with_body(GivenBody::Invalid("too salty".into()));
    assert_eq!(deliver_one(shop, body).await, "refused with -9615: invalid body: too salty");
    // What goes back can be taken there.
    let wordy = GivenBody::Invalid("x".repeat(10_000).into());
    let wordy = deliver_one(shop, far.message(0, "Order", "soup").with_body(wordy)).await;
    assert_eq!(wordy.chars().filter(|letter| *letter == 'x').count(), 3_000);
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0, "no endpoint was made");
    assert_eq!(shop.dropped().len(), 7);
    assert_eq!(shop.broker.stats().await.expect("it can be looked at").counts.dropped, 7);
    // What is right is taken.
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "stored, 0");
}

/// And so does one that is not in the contract.
async fn d10_a_body_that_is_not_valid_ends_it_on_both_sides(shop: &Shop) {
    type Make = fn(&Far) -> Made;
    let cases: [(Make, i32); 3] = [
        (|far| far.message(2, "Note", "x").with_body(GivenBody::Invalid("too salty".into())), -9615),
        (|far| far.message(2, "Bill", "x"), -8431),
        (|far| far.message(2, "Confirm", "x"), -8457),
    ];
    for (number, (make, code)) in (1..).zip(cases) {
        let far = Far::begins(shop, number);
        deliver_one(shop, far.message(0, "Order", "soup")).await;
        let handle = far.handle(shop).await;
        shop.retain("kitchen", number == 2).await;
        shop.send(&handle, "Confirm", "it cooks").await;
        shop.send(&handle, "Confirm", "it boils").await;
        assert_eq!(deliver_one(shop, far.message(4, "Note", "waits")).await, "stored, 0");
        shop.notices();
        assert_eq!(deliver_one(shop, make(&far)).await, "stored, 2", "its number is used up");
        assert_eq!(shop.state(&handle).await, "ER");
        let dropped = shop.dropped();
        assert_eq!(dropped.len(), 3, "what waited here and there, and the message: {dropped:?}");
        assert_eq!(shop.outside().await, [format!("Error 2 {code}")], "it goes although the state is ER");
        let rows = shop.rows_of("kitchen", &handle).await;
        assert!(rows.contains(&format!("1 Error 1 {code}")), "{rows:?}");
        assert_eq!(deliver_one(shop, make(&far)).await, "repeated, 2");
        assert_eq!(deliver_one(shop, far.message(5, "Note", "x")).await, "repeated, 5", "nobody wants it");
        assert_eq!(shop.dropped().len(), 2);
        shop.end(&handle).await;
        assert_eq!(shop.state(&handle).await, "DO", "until the far side knows");
        assert_eq!(shop.outside().await, [format!("Error 2 {code}")]);
        shop.assert_sound().await;
        shop.clean_up(&handle).await;
    }
}

async fn what_nobody_can_check_comes_again(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let unchecked = |number| {
        let body = GivenBody::Unchecked("the validator is missing".into());
        far.message(number, "Note", "x").with_body(body)
    };
    assert_eq!(deliver_one(shop, unchecked(0)).await, "later: the validator is missing");
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    assert_eq!(deliver_one(shop, unchecked(1)).await, "later: the validator is missing");
    assert_eq!(deliver_one(shop, unchecked(0)).await, "repeated, 0", "it has been checked before");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 soup"]);
}

async fn what_a_queue_that_is_off_is_to_get_comes_again(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let first = far.message(0, "Order", "soup");
    shop.switch("kitchen", Status::Off).await;
    assert_eq!(deliver_one(shop, first.clone()).await, "later: the queue \"kitchen\" is off");
    shop.switch("kitchen", Status::On).await;
    deliver_one(shop, first.clone()).await;
    shop.switch("kitchen", Status::Off).await;
    for made in [far.message(1, "Note", "x"), far.message(2, "Note", "x"), far.error(1, 42), far.end_dialog(1)] {
        assert_eq!(deliver_one(shop, made).await, "later: the queue \"kitchen\" is off");
    }
    assert_eq!(deliver_one(shop, first).await, "repeated, 0");
}

async fn no_more_waits_than_may(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    let ahead: Vec<_> = (2..1_002).map(|number| far.message(number, "Note", "x")).collect();
    assert!(deliver(shop, &ahead).await.iter().all(|delivery| delivery == "stored, 0"));
    let one_more = far.message(1_002, "Note", "x");
    assert_eq!(deliver_one(shop, one_more.clone()).await, "later: 1000 messages wait for number 1 already");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "x")).await, "stored, 1001");
    assert_eq!(deliver_one(shop, one_more).await, "stored, 1002");
    assert_eq!(shop.queue("kitchen").await.ready, 1_003);
    // Or so many bytes.
    let far = Far::begins(shop, 2);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    for number in 2..6 {
        let large = far.message(number, "Note", "x").sized(4_194_304.0);
        assert_eq!(deliver_one(shop, large).await, "stored, 0");
    }
    assert!(deliver_one(shop, far.message(6, "Note", "x").sized(1.0)).await.starts_with("later: "));
    assert_eq!(
        deliver_one(shop, far.message(1, "Note", "x").sized(4_194_304.0)).await,
        "stored, 5",
        "it closes the gap"
    );
    assert_eq!(deliver_one(shop, far.message(7, "Note", "x")).await, "stored, 5");
    shop.clean_up(&far.handle(shop).await).await;
}

async fn only_so_many_are_begun_from_outside(shop: &Shop) {
    let broker = shop.broker.another().with_most_from_outside(2);
    let deliver = async |number| {
        let made = Far::begins(shop, number).message(0, "Order", "soup");
        deliver_to(&broker, &[made], DeliverContext::default()).await.remove(0)
    };
    assert_eq!(deliver(1).await, "stored, 0");
    assert_eq!(deliver(2).await, "stored, 0");
    // What is begun here does not count.
    shop.order("here").await;
    assert_eq!(deliver(3).await, "later: 2 conversations that were begun from outside are open");
    assert_eq!(deliver(1).await, "repeated, 0");
    shop.clean_up(&Far::begins(shop, 1).handle(shop).await).await;
    assert_eq!(deliver(3).await, "stored, 0");
    broker.close().await;
}

async fn replies_go_out_and_are_acknowledged(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    let handle = far.handle(shop).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    assert_eq!(shop.outside().await, ["Confirm 0 it cooks"]);
    assert_eq!(shop.transmission().await[0].to_broker.as_deref(), Some(FAR));
    let early = deliver_one(shop, far.acknowledges(0)).await;
    assert_eq!(early, "refused: not sent yet: number 0 was not handed over yet");
    assert_eq!(shop.outside().await.len(), 1);
}

async fn the_far_side_pins_itself(shop: &Shop) {
    let wire = Wire::default();
    wire.always(Told::Each(SendResult::Accepted(3_600_000.0)));
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    for body in ["m1", "m2", "m3"] {
        shop.send(&begun.handle, "Note", body).await;
    }
    let far = Far::target_of(shop, &begun);
    let unknown = deliver_one(shop, far.acknowledges(0)).await;
    assert_eq!(unknown, "refused: no such conversation: nothing that was handed over waits to be acknowledged");
    assert_eq!(deliver_one(shop, far.message(0, "Confirm", "guessed")).await, "repeated, 0", "it goes nowhere");
    shop.broker.route("*", Rc::new(wire.clone()), 50).expect("there is none yet");
    settle().await;
    assert_eq!(wire.calls(), [["Note 0 m1"]]);
    assert_eq!(shop.info(&begun.handle).await.expect("it is there").far_broker_instance, None);
    let too_much = deliver_one(shop, far.acknowledges(1)).await;
    assert_eq!(too_much, "refused: not sent yet: number 1 was not handed over yet");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "overtakes")).await, "stored, nothing", "number 0 is missing");
    let info = shop.info(&begun.handle).await.expect("it is there");
    assert_eq!((info.far_broker_instance.as_deref(), info.state.letters()), (Some(FAR), "CO"));
    for made in [far.acknowledges(0), far.message(0, "Confirm", "x")] {
        let refused = deliver_one(shop, made.with("fromBroker", STRANGER)).await;
        assert_eq!(refused, "refused: wrong sender: the conversation is another broker's");
    }
    assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
    settle().await;
    assert_eq!(wire.calls(), [["Note 1 m2", "Note 2 m3"]]);
    assert_eq!(deliver_one(shop, far.acknowledges(1)).await, "stored, nothing");
    assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "repeated, nothing");
    assert_eq!(shop.outside().await, ["Note 2 m3"]);
    assert_eq!(deliver_one(shop, far.message(0, "Confirm", "it cooks")).await, "stored, 1");
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 it cooks", "0 Note 1 overtakes"]);
    // An acknowledgement alone does it, too; but not one of another broker than the one that was asked for.
    for asked in [None, Some(FAR), Some(STRANGER)] {
        let dialog = BeginDialog { to_broker: asked.map(str::to_owned), ..dialog_of("Counter", "Elsewhere") };
        let begun = shop.broker.begin_dialog(dialog).await.expect("nobody is contacted");
        shop.send(&begun.handle, "Note", "m1").await;
        settle().await;
        let far = Far::target_of(shop, &begun);
        let is_right = asked != Some(STRANGER);
        assert_eq!(deliver_one(shop, far.acknowledges(0)).await == "stored, nothing", is_right);
        let known = shop.info(&begun.handle).await.expect("it is there").far_broker_instance;
        assert_eq!(known.as_deref(), is_right.then_some(FAR));
    }
}

/// Beside the numbers that it needs now and then.
async fn two_of_one_conversation_share_a_transaction(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    let cost = |faults: &Faults| (faults.calls(Operation::Begin), faults.reads(), faults.writes());
    shop.faults.reset_counts();
    assert_eq!(
        deliver(shop, &[far.message(1, "Note", "a"), far.message(2, "Note", "b")]).await,
        ["stored, 1", "stored, 2"]
    );
    let (transactions, reads, writes) = cost(&shop.faults);
    assert_eq!(transactions, 1);
    assert!(reads <= 3 && writes <= 3, "{reads} reads and {writes} writes");
    shop.faults.reset_counts();
    let others = [Far::begins(shop, 2).message(0, "Order", "x"), Far::begins(shop, 3).message(0, "Order", "y")];
    assert_eq!(deliver(shop, &others).await, ["stored, 0", "stored, 0"]);
    assert_eq!(cost(&shop.faults).0, 1);
    // What is no envelope costs none.
    shop.faults.reset_counts();
    assert!(deliver_one(shop, far.message(3, "Note", "x").with("v", 2u32)).await.starts_with("refused: "));
    assert_eq!(cost(&shop.faults).0, 0);
}
