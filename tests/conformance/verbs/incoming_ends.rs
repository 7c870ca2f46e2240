//! How conversations with other brokers end, and what comes after the end.

use std::rc::Rc;

use pocket_broker::definitions::ServiceChange;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{EndResult, GivenBody, SendResult};

use super::super::support::elsewhere::settle;
use super::super::support::far::{Far, deliver, deliver_one};
use super::super::support::shop::{Shop, archived, begin, dialog_of, receive, refused, send};
use super::super::support::transport::{Told, Wire};

mount! {
    a_finished_conversation_is_in_no_group,
    a_lifetime_ends_here_by_our_clock,
    a_service_that_goes_to_another_queue_takes_along_what_waits,
    an_end_takes_along_what_waits_for_others,
    an_end_that_overtakes_waits,
    an_error_that_overtakes_the_first_message_ends_it,
    b78_an_error_for_who_has_ended_ends_it,
    b79_a_finished_target_is_remembered,
    b79_cleanup_does_not_let_it_begin_anew,
    b108_the_far_side_of_a_dropped_service_is_told,
    d10_the_error_goes_before_the_end_or_after_it,
    d11_a_target_is_closed_when_its_end_is_acknowledged,
    d11_an_initiator_goes_when_its_end_is_acknowledged,
    d18_a_second_end_of_a_closed_one_is_refused,
    d20_after_an_error_an_end_closes,
    nothing_comes_behind_an_end,
    what_is_sent_behind_a_last_word_is_dropped,
    when_both_have_ended_it_is_closed,
}

const HALF_AN_HOUR: f64 = 1_800_000.0;

/// A route whose transport takes everything, and from which nothing comes back by itself.
fn accepting(shop: &Shop) -> Wire {
    let wire = Wire::default();
    wire.always(Told::Each(SendResult::Accepted(HALF_AN_HOUR * 100.0)));
    shop.broker.route("*", Rc::new(wire.clone()), 50).expect("there is none yet");
    wire
}

async fn begun(shop: &Shop, number: u32) -> (Far, Rc<str>) {
    let far = Far::begins(shop, number);
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "stored, 0");
    let handle = far.handle(shop).await;
    (far, handle)
}

async fn b79_a_finished_target_is_remembered(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    let first = far.message(0, "Order", "soup");
    assert_eq!(deliver_one(shop, far.end_dialog(1)).await, "stored, 1");
    assert_eq!(far.state(shop).await, "DI");
    shop.end(&handle).await;
    assert_eq!(shop.state(&handle).await, "CD");
    assert_eq!(shop.outside().await, [""; 0]);
    shop.notices();
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    assert_eq!(shop.dropped(), ["the far side has ended the conversation"]);
    shop.pass(HALF_AN_HOUR).await;
    assert_eq!(shop.state(&handle).await, "");
    let told: Vec<_> = shop.notices().into_iter().flat_map(|notice| notice.states).collect();
    assert!(told.is_empty(), "it was told when it was finished: {told:?}");
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    shop.pass(29.9 * 86_400_000.0).await;
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    shop.pass(86_400_000.0).await;
    assert_eq!(shop.records_in(StoreName::Seen).await, 0);
    assert_eq!(deliver_one(shop, first).await, "stored, 0", "after 30 days nobody knows");
}

async fn b79_cleanup_does_not_let_it_begin_anew(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    shop.clean_up(&handle).await;
    assert_eq!(shop.state(&handle).await, "");
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "x")).await, "repeated, 1");
    assert_eq!(deliver_one(shop, far.end_dialog(2)).await, "repeated, 2");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    // And one that was finished before.
    let (far, handle) = begun(shop, 2).await;
    deliver_one(shop, far.end_dialog(1)).await;
    shop.end(&handle).await;
    shop.clean_up(&handle).await;
    assert_eq!(shop.state(&handle).await, "");
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0");
    assert_eq!(shop.pass(HALF_AN_HOUR).await, 0);
}

async fn d11_a_target_is_closed_when_its_end_is_acknowledged(shop: &Shop) {
    let wire = accepting(shop);
    let (far, handle) = begun(shop, 1).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    shop.end(&handle).await;
    settle().await;
    assert_eq!(wire.calls().concat(), ["Confirm 0 it cooks", "EndDialog 1"]);
    assert_eq!(shop.state(&handle).await, "DO");
    assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
    assert_eq!(shop.state(&handle).await, "DO");
    shop.notices();
    assert_eq!(deliver_one(shop, far.message(1, "Note", "late")).await, "repeated, 1");
    assert_eq!(shop.dropped(), ["the far side has ended the conversation"]);
    assert_eq!(deliver_one(shop, far.acknowledges(1)).await, "stored, nothing");
    assert_eq!(shop.state(&handle).await, "CD");
    for made in [far.message(0, "Order", "soup"), far.message(1, "Note", "late")] {
        assert!(deliver_one(shop, made).await.starts_with("repeated, "));
    }
    assert_eq!(deliver_one(shop, far.acknowledges(1)).await, "repeated, nothing");
    shop.pass(HALF_AN_HOUR).await;
    assert_eq!(shop.state(&handle).await, "");
    let late = deliver_one(shop, far.acknowledges(1)).await;
    assert_eq!(late, "refused: no such conversation: nothing that was handed over waits to be acknowledged");
}

async fn d10_the_error_goes_before_the_end_or_after_it(shop: &Shop) {
    let wire = accepting(shop);
    for (number, ends_first) in [(1, true), (2, false)] {
        let (far, handle) = begun(shop, number).await;
        let invalid = far.message(1, "Note", "x").with_body(GivenBody::Invalid("too salty".into()));
        assert_eq!(deliver_one(shop, invalid).await, "stored, 1");
        settle().await;
        assert_eq!(wire.calls().concat(), ["Error 0 -9615"], "in state ER, too");
        if ends_first {
            shop.end(&handle).await;
            assert_eq!(shop.state(&handle).await, "DO");
        }
        assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
        assert_eq!(shop.outside().await, [""; 0]);
        if !ends_first {
            assert_eq!(shop.state(&handle).await, "ER");
            shop.end(&handle).await;
        }
        assert_eq!(shop.state(&handle).await, "CD");
        assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0");
    }
}

async fn d11_an_initiator_goes_when_its_end_is_acknowledged(shop: &Shop) {
    accepting(shop);
    for (is_acknowledged, number) in [(true, 0), (false, 1)] {
        let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
        shop.send(&begun.handle, "Order", "m1").await;
        settle().await;
        let far = Far::target_of(shop, &begun);
        assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
        shop.end(&begun.handle).await;
        settle().await;
        assert_eq!(shop.state(&begun.handle).await, "DO");
        let last = if is_acknowledged { far.acknowledges(1) } else { far.end_dialog(0) };
        assert!(deliver_one(shop, last).await.starts_with("stored, "));
        assert_eq!(shop.state(&begun.handle).await, "", "nobody can begin it anew");
        assert_eq!(shop.outside().await, [""; 0]);
        assert_eq!(deliver_one(shop, far.message(number, "Confirm", "late")).await, format!("repeated, {number}"));
    }
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
}

async fn when_both_have_ended_it_is_closed(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    shop.end(&handle).await;
    assert_eq!(shop.outside().await, ["Confirm 0 it cooks", "EndDialog 1"]);
    shop.notices();
    assert_eq!(deliver_one(shop, far.end_dialog(1)).await, "stored, 1");
    assert_eq!(shop.state(&handle).await, "CD");
    assert_eq!(shop.outside().await, [""; 0], "nobody hears it any more");
    assert_eq!(shop.dropped(), ["the far side has ended the conversation"], "the confirmation");
    // Whatever is missing before it.
    let (far, handle) = begun(shop, 2).await;
    shop.end(&handle).await;
    assert_eq!(deliver_one(shop, far.end_dialog(7)).await, "stored, 7");
    assert_eq!(shop.state(&handle).await, "CD");
}

async fn b78_an_error_for_who_has_ended_ends_it(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    shop.end(&handle).await;
    shop.notices();
    assert_eq!(deliver_one(shop, far.error(1, 42)).await, "repeated, 1");
    assert_eq!(shop.state(&handle).await, "");
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(shop.dropped().len(), 2, "the Error, and the confirmation");
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0", "it is remembered");
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
}

async fn d20_after_an_error_an_end_closes(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    deliver_one(shop, far.error(1, 42)).await;
    assert_eq!(shop.state(&handle).await, "ER");
    assert_eq!(shop.outside().await, [""; 0], "what waits is held");
    assert_eq!(shop.end(&handle).await, EndResult { discarded: 2, archived: 0 });
    assert_eq!(shop.state(&handle).await, "CD");
    assert_eq!(deliver_one(shop, far.error(1, 42)).await, "repeated, 1");
}

async fn d18_a_second_end_of_a_closed_one_is_refused(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    deliver_one(shop, far.end_dialog(1)).await;
    shop.end(&handle).await;
    let error = refused(shop.broker.end_conversation(&handle, Default::default()).await, ErrorCode::InvalidState);
    assert!(error.to_string().contains("CD"), "{error}");
    refused(shop.try_send(&handle, "Confirm", "x").await, ErrorCode::InvalidState);
    refused(shop.try_timer(&handle, 1_000.0, "").await, ErrorCode::InvalidState);
}

async fn nothing_comes_behind_an_end(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    assert_eq!(deliver_one(shop, far.end_dialog(1)).await, "stored, 1");
    let behind = "refused: behind the end: nothing comes behind an EndDialog or an Error, and number 2 would";
    for made in [far.message(2, "Note", "x"), far.error(2, 42), far.end_dialog(2)] {
        assert_eq!(deliver_one(shop, made).await, behind);
    }
    assert_eq!(deliver_one(shop, far.end_dialog(1)).await, "repeated, 1");
    assert_eq!(shop.outside().await, [""; 0], "what waits is held");
    assert_eq!(shop.state(&handle).await, "DI");
    // Nor has it come before.
    let (far, _) = begun(shop, 2).await;
    deliver_one(shop, far.message(3, "Note", "waits")).await;
    for made in [far.end_dialog(1), far.error(2, 42)] {
        assert!(deliver_one(shop, made).await.starts_with("refused: behind the end: "));
    }
    assert_eq!(far.state(shop).await, "CO");
}

async fn an_end_that_overtakes_waits(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    assert_eq!(deliver_one(shop, far.end_dialog(3)).await, "stored, 0");
    assert_eq!(shop.state(&handle).await, "CO");
    assert!(deliver_one(shop, far.message(4, "Note", "x")).await.starts_with("refused: behind the end: "));
    assert_eq!(deliver_one(shop, far.end_dialog(3)).await, "repeated, 0");
    assert_eq!(deliver_one(shop, far.message(2, "Note", "b")).await, "stored, 0");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "a")).await, "stored, 3");
    assert_eq!(shop.state(&handle).await, "DI");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 soup", "0 Note 1 a", "0 Note 2 b", "0 EndDialog 3"]);
    assert!(deliver_one(shop, far.message(4, "Note", "x")).await.starts_with("refused: behind the end: "));
}

/// D14.
async fn an_end_takes_along_what_waits_for_others(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    for number in [2, 3, 5] {
        let waits = far.message(number, "Note", "waits");
        deliver_one(shop, if number == 3 { waits.sized(70_000.0) } else { waits }).await;
    }
    assert_eq!(
        shop.broker.end_conversation(&handle, archived()).await.expect("it can be ended"),
        EndResult { discarded: 4, archived: 4 }
    );
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
    assert_eq!(shop.state(&handle).await, "DO");
    assert_eq!(deliver_one(shop, far.message(1, "Note", "late")).await, "repeated, 1");
    let (far, handle) = begun(shop, 2).await;
    deliver_one(shop, far.message(9, "Note", "waits")).await;
    shop.clean_up(&handle).await;
    assert_eq!(shop.records_in(StoreName::Messages).await, 1, "the EndDialog of the other one");
}

async fn a_lifetime_ends_here_by_our_clock(shop: &Shop) {
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup").with("lifetime", 1_000.0)).await;
    let handle = far.handle(shop).await;
    shop.send(&handle, "Confirm", "it cooks").await;
    assert_eq!(deliver_one(shop, far.end_dialog(5)).await, "stored, 0");
    deliver_one(shop, far.message(3, "Note", "waits")).await;
    shop.notices();
    shop.pass(999.0).await;
    assert_eq!(shop.state(&handle).await, "CO");
    shop.pass(1.0).await;
    assert_eq!(shop.state(&handle).await, "ER");
    assert_eq!(shop.outside().await, [""; 0], "what waits is held");
    assert_eq!(shop.dropped().len(), 1, "what had waited for others");
    assert_eq!(shop.receive("kitchen").await, ["0 Error 1 -8489", "0 Order 0 soup"]);
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "repeated, 0");
    for (made, number) in [(far.message(1, "Note", "late"), 1), (far.error(6, 42), 6), (far.end_dialog(5), 5)] {
        assert_eq!(deliver_one(shop, made).await, format!("repeated, {number}"));
    }
    assert_eq!(shop.dropped().len(), 3);
    shop.end(&handle).await;
    assert_eq!(shop.state(&handle).await, "CD");
    shop.pass(HALF_AN_HOUR).await;
    assert_eq!(shop.state(&handle).await, "");
    // One that is over when it comes.
    let far = Far::begins(shop, 2);
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup").with("lifetime", 0.0)).await, "stored, 0");
    shop.pass(0.0).await;
    assert_eq!(far.state(shop).await, "ER");
}

async fn b108_the_far_side_of_a_dropped_service_is_told(shop: &Shop) {
    let wire = accepting(shop);
    let (closed, closed_handle) = begun(shop, 1).await;
    deliver_one(shop, closed.end_dialog(1)).await;
    shop.end(&closed_handle).await;
    let (far, handle) = begun(shop, 2).await;
    deliver_one(shop, far.message(2, "Note", "waits")).await;
    shop.broker.drop_service("Kitchen").await.expect("nothing holds it");
    settle().await;
    assert_eq!(wire.calls().concat(), ["Error 0 -8470"]);
    assert_eq!((shop.state(&handle).await, shop.state(&closed_handle).await), ("DO", ""));
    assert_eq!(deliver_one(shop, far.message(1, "Note", "late")).await, "repeated, 1");
    assert_eq!(deliver_one(shop, closed.message(0, "Order", "soup")).await, "repeated, 0", "it is remembered");
    let unknown = deliver_one(shop, Far::begins(shop, 3).message(0, "Order", "soup")).await;
    assert!(unknown.starts_with("refused with -8490: "), "{unknown}");
    refused(shop.broker.drop_queue("kitchen").await, ErrorCode::InUse);
    assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
    assert_eq!(shop.state(&handle).await, "CD");
    // What is only shown is in nobody's way.
    shop.broker.drop_queue("kitchen").await.expect("nothing holds it");
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
    shop.assert_sound().await;
}

async fn a_service_that_goes_to_another_queue_takes_along_what_waits(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    deliver(shop, &[far.message(2, "Note", "b"), far.message(4, "Note", "d")]).await;
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Kitchen", change).await.expect("it can go there");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.rows("house").await, ["1 Order 0 soup", "2 Note 2 b", "2 Note 4 d"]);
    assert_eq!(deliver_one(shop, far.message(1, "Note", "a")).await, "stored, 2");
    assert_eq!(shop.rows_of("house", &handle).await, ["1 Order 0 soup", "2 Note 4 d", "1 Note 1 a", "1 Note 2 b"]);
    assert_eq!(shop.receive("house").await, ["0 Order 0 soup", "0 Note 1 a", "0 Note 2 b"]);
}

async fn a_finished_conversation_is_in_no_group(shop: &Shop) {
    let (far, handle) = begun(shop, 1).await;
    let (_, other) = begun(shop, 2).await;
    let group = shop.info(&other).await.expect("it is there").conversation_group_id;
    let to = pocket_broker::Destination::Named(Rc::clone(&group));
    shop.broker.move_conversation(&handle, to).await.expect("it can be moved");
    deliver_one(shop, far.end_dialog(1)).await;
    shop.end(&handle).await;
    let groups = shop.broker.groups(None, None, pocket_broker::Extent::All).await.expect("they can be looked at");
    let shown: Vec<_> = groups.rows.iter().map(|group| (&group.conversation_group_id, group.conversations)).collect();
    assert_eq!(shown, [(&group, 1)]);
    assert_ne!(shop.info(&handle).await.expect("it is shown").conversation_group_id, group);
}

/// The initiator goes as soon as its Error is acknowledged: nobody would tell an endpoint that is begun after that.
async fn an_error_that_overtakes_the_first_message_ends_it(shop: &Shop) {
    let far = Far::begins(shop, 1);
    assert_eq!(deliver_one(shop, far.error(2, 42)).await, "repeated, 2");
    assert_eq!(
        deliver(shop, &[far.message(0, "Order", "soup"), far.error(2, 42)]).await,
        ["repeated, 0", "repeated, 2"]
    );
    assert_eq!(shop.records_in(StoreName::Conversations).await, 0);
    assert_eq!(shop.dropped().len(), 3);
    // A target's says nothing of what an initiator begins.
    let far = Far::begins(shop, 2);
    assert_eq!(deliver_one(shop, far.error(2, 42).with("fromInitiator", false)).await, "repeated, 2");
    assert_eq!(deliver_one(shop, far.message(0, "Order", "soup")).await, "stored, 0");
    shop.clean_up(&far.handle(shop).await).await;
}

/// A transaction has sent, and the conversation fails before its commit.
async fn what_is_sent_behind_a_last_word_is_dropped(shop: &Shop) {
    let wire = accepting(shop);
    let far = Far::begins(shop, 1);
    deliver_one(shop, far.message(0, "Order", "soup")).await;
    let handle = far.handle(shop).await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 soup"]);
    send(shop, &transaction, &handle, "Confirm", "it cooks").await.expect("it is open");
    let sour = far.message(1, "Note", "x").with_body(GivenBody::Invalid("too sour".into()));
    assert_eq!(deliver_one(shop, sour).await, "stored, 1");
    shop.notices();
    transaction.commit().await.expect("it is not its fault");
    settle().await;
    assert_eq!(wire.calls(), [["Error 0 -9615"]]);
    assert_eq!(shop.dropped().len(), 1);
    assert_eq!(shop.outside().await, ["Error 0 -9615"]);
    assert_eq!(deliver_one(shop, far.acknowledges(0)).await, "stored, nothing");
    shop.end(&handle).await;
    settle().await;
    assert_eq!((wire.calls().len(), shop.outside().await.len(), far.state(shop).await), (0, 0, "CD"));
}
