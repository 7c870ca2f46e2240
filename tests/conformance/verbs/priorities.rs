//! Priorities: which rule an endpoint gets its level from, when, and whom RECEIVE takes first.

use std::rc::Rc;

use pocket_broker::definitions::{Definitions, PriorityRule, ServiceChange, ServiceOptions, Status};
use pocket_broker::{BeginDialog, Broker, ConversationInfo, Destination, ReceiveOptions};

use super::super::support::shop::{
    Dialog, Shop, begin, dialog_of, receive, show_all, show_message, to_kitchen, top_of,
};

mount! {
    the_most_exact_rule_counts_in_eight_steps,
    every_end_is_rated_by_itself,
    a_rule_may_name_what_is_not_there,
    b94_a_rule_that_comes_later_leaves_endpoints_alone,
    b94_the_target_is_rated_at_its_first_message,
    b94_a_move_and_another_queue_change_no_level,
    b93_the_higher_level_first,
    b93_a_group_that_is_held_is_passed_over,
    b93_b49_the_next_group_is_that_of_the_highest_level,
    b93_a_system_message_does_not_get_ahead_of_a_higher_level,
    b31_in_a_group_the_higher_level_comes_first_whatever_it_is,
    b31_d17_in_a_group_the_same_level_goes_by_waiting,
    d17_a_group_has_the_level_of_what_is_ready,
    d17_only_what_gives_the_level_has_waited,
    d17_who_has_waited_longest_comes_first,
    d17_after_a_part_the_turn_is_another_ones,
    d17_many_take_turns_by_their_oldest_row,
    d17_a_rollback_loses_nobodys_place,
    d17_waiting_outside_is_waiting,
}

fn rule(contract: Option<&str>, local: Option<&str>, remote: Option<&str>, level: u32) -> PriorityRule {
    PriorityRule {
        contract: contract.map(Rc::from),
        local_service: local.map(Rc::from),
        remote_service: remote.map(Rc::from),
        level: f64::from(level),
    }
}

async fn define(shop: &Shop, rules: impl IntoIterator<Item = (&str, PriorityRule)>) {
    let priorities = rules.into_iter().map(|(name, rule)| (name.to_owned(), rule)).collect();
    shop.broker.define(Definitions { priorities, ..Definitions::default() }).await.expect("the rules are right");
}

/// The counter's dialogs with the back have level 8 at the counter, and the kitchen's with the front have it at the kitchen. All others have 5.
async fn two_levels(shop: &Shop) {
    define(
        shop,
        [
            ("back", rule(None, Some("Counter"), Some("Back"), 8)),
            ("front", rule(None, Some("Kitchen"), Some("Front"), 8)),
        ],
    )
    .await;
}

async fn begun(shop: &Shop, options: BeginDialog) -> ConversationInfo {
    shop.broker.begin_dialog(options).await.expect("the dialog begins")
}

/// A dialog with its first message.
async fn dialog(shop: &Shop, options: BeginDialog, body: &str) -> Dialog {
    let begun = begun(shop, options).await;
    shop.send(&begun.handle, "Order", body).await;
    shop.dialog(&begun).await
}

async fn levels(shop: &Shop, dialog: &Dialog) -> (u32, u32) {
    (level(shop, &dialog.initiator).await, level(shop, &dialog.target).await)
}

async fn level(shop: &Shop, handle: &str) -> u32 {
    shop.info(handle).await.expect("it is there").priority
}

/// Two dialogs of the counter in one group, the second of level 8 by [`two_levels`].
async fn a_group_of_two(shop: &Shop) -> (Dialog, Dialog) {
    let low = dialog(shop, to_kitchen(), "x").await;
    let related = BeginDialog { related_conversation: Some(low.initiator.to_string()), ..dialog_of("Counter", "Back") };
    let high = dialog(shop, related, "x").await;
    (low, high)
}

async fn bodies(broker: &Broker, queue: &str, top: u32) -> Vec<String> {
    let rows = broker.receive(queue, top_of(top), None).await.expect("the queue is on");
    show_all(&rows).iter().map(|row| row.rsplit(' ').next().unwrap_or_default().to_owned()).collect()
}

async fn the_most_exact_rule_counts_in_eight_steps(shop: &Shop) {
    let (contract, local, remote) = (Some("Ordering"), Some("Counter"), Some("Kitchen"));
    // From the least exact to the most exact one. Neither the names nor the levels are in that order.
    let steps = [
        ("g", rule(None, None, None, 9)),
        ("c", rule(None, None, remote, 2)),
        ("h", rule(None, local, None, 7)),
        ("a", rule(None, local, remote, 1)),
        ("e", rule(contract, None, None, 10)),
        ("b", rule(contract, None, remote, 3)),
        ("f", rule(contract, local, None, 6)),
        ("d", rule(contract, local, remote, 4)),
    ];
    // More exact than all of them, but for others.
    define(
        shop,
        [
            ("other contract", rule(Some("DEFAULT"), local, remote, 8)),
            ("other local", rule(contract, Some("counter"), remote, 8)),
            ("other remote", rule(contract, local, Some("kitchen"), 8)),
            ("swapped", rule(contract, remote, local, 8)),
        ],
    )
    .await;
    assert_eq!(level(shop, &shop.begin().await.handle).await, 5, "no rule fits");
    for (name, rule) in steps {
        let expected = rule.level;
        define(shop, [(name, rule)]).await;
        assert_eq!(f64::from(level(shop, &shop.begin().await.handle).await), expected, "rule {name:?}");
    }
}

async fn every_end_is_rated_by_itself(shop: &Shop) {
    define(
        shop,
        [
            ("counter", rule(None, Some("Counter"), Some("Kitchen"), 9)),
            ("kitchen", rule(Some("Ordering"), Some("Kitchen"), None, 2)),
        ],
    )
    .await;
    shop.retain("counter", true).await;
    let dialog = shop.order("m1").await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    assert_eq!(levels(shop, &dialog).await, (9, 2), "the local service is the endpoint's own");
    let shown = |rows: Vec<pocket_broker::Message>| -> Vec<String> {
        rows.iter().map(|row| format!("{} {}", row.priority, show_message(row))).collect()
    };
    assert_eq!(shown(shop.messages("counter", Default::default()).await), ["9 3 Order 0 m1", "9 1 Confirm 0 r1"]);
    assert_eq!(shown(shop.messages("kitchen", Default::default()).await), ["2 1 Order 0 m1"]);
    let back = dialog_of("Kitchen", "Counter");
    let answered = self::dialog(shop, back, "m2").await;
    assert_eq!(levels(shop, &answered).await, (2, 9), "whoever began it");
}

async fn a_rule_may_name_what_is_not_there(shop: &Shop) {
    define(shop, [("late", rule(Some("Late"), Some("Late"), Some("Elsewhere"), 7))]).await;
    let options = ServiceOptions { queue: Some("house".into()), contracts: Vec::new() };
    let late = Definitions {
        contracts: vec![("Late".into(), vec![("Note".into(), pocket_broker::definitions::SentBy::Any)])],
        services: vec![("Late".into(), options)],
        ..Definitions::default()
    };
    shop.broker.define(late).await.expect("they come later");
    let options = BeginDialog { contract: Some("Late".into()), ..dialog_of("Late", "Elsewhere") };
    let handle = begun(shop, options).await.handle;
    assert_eq!(level(shop, &handle).await, 7);
    shop.send(&handle, "Note", "m1").await;
    assert_eq!(shop.transmission().await[0].priority, 7, "and so have the rows that wait for their transmission");
}

async fn b94_a_rule_that_comes_later_leaves_endpoints_alone(shop: &Shop) {
    define(shop, [("all", rule(None, None, None, 3))]).await;
    let dialog = shop.order("m1").await;
    assert_eq!(levels(shop, &dialog).await, (3, 3));
    // A rule more, and the one that it had is another.
    define(shop, [("all", rule(None, None, None, 10)), ("kitchen", rule(None, Some("Kitchen"), None, 9))]).await;
    shop.send(&dialog.initiator, "Order", "m2").await;
    let tab = shop.another_tab().await;
    tab.send(vec![dialog.initiator.clone()], vec![shop.message("Order", "m3")], None).await.expect("it may send");
    tab.close().await;
    assert_eq!(levels(shop, &dialog).await, (3, 3));
    let later = shop.order("later").await;
    assert_eq!(levels(shop, &later).await, (10, 9));
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 later"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Order 1 m2", "0 Order 2 m3"]);
}

async fn b94_the_target_is_rated_at_its_first_message(shop: &Shop) {
    let begun = shop.begin().await;
    define(shop, [("all", rule(None, None, None, 8))]).await;
    shop.send(&begun.handle, "Order", "m1").await;
    let dialog = shop.dialog(&begun).await;
    define(shop, [("all", rule(None, None, None, 2))]).await;
    shop.send(&begun.handle, "Order", "m2").await;
    assert_eq!(levels(shop, &dialog).await, (5, 8), "each has the level of the moment in which it was made");
}

async fn b94_a_move_and_another_queue_change_no_level(shop: &Shop) {
    two_levels(shop).await;
    let (low, high) = a_group_of_two(shop).await;
    shop.receive("house").await;
    shop.send(&low.target, "Confirm", "low").await;
    shop.send(&high.target, "Confirm", "high").await;
    let alone = Destination::Named("6ba7b810-9dad-11d1-80b4-00c04fd430c8".into());
    shop.broker.move_conversation(&high.initiator, alone).await.expect("it can be moved");
    assert_eq!((level(shop, &low.initiator).await, level(shop, &high.initiator).await), (5, 8));
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Counter", change).await.expect("the service can be altered");
    assert_eq!((level(shop, &low.initiator).await, level(shop, &high.initiator).await), (5, 8));
    assert_eq!(shop.receive("house").await, ["0 Confirm 0 high"]);
    assert_eq!(shop.receive("house").await, ["0 Confirm 0 low"]);
}

/// B95.
async fn b93_the_higher_level_first(shop: &Shop) {
    define(
        shop,
        [
            ("front", rule(None, Some("Kitchen"), Some("Front"), 10)),
            ("back", rule(None, Some("Kitchen"), Some("Back"), 1)),
        ],
    )
    .await;
    dialog(shop, dialog_of("Back", "Kitchen"), "lowest").await;
    shop.order("low").await;
    let high = dialog(shop, dialog_of("Front", "Kitchen"), "high").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 high"]);
    shop.send(&high.initiator, "Note", "again").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 again"], "there is no protection from starvation");
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 low"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 lowest"]);
}

async fn b93_a_group_that_is_held_is_passed_over(shop: &Shop) {
    two_levels(shop).await;
    let high = dialog(shop, dialog_of("Front", "Kitchen"), "high").await;
    shop.order("low").await;
    let holder = begin(shop);
    assert_eq!(receive(&holder, "kitchen").await, ["0 Order 0 high"]);
    shop.send(&high.initiator, "Note", "more").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 low"], "a lower level does not wait for it");
    holder.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 high", "0 Note 1 more"]);
}

async fn b93_b49_the_next_group_is_that_of_the_highest_level(shop: &Shop) {
    two_levels(shop).await;
    let low = shop.order("low").await;
    let high = dialog(shop, dialog_of("Front", "Kitchen"), "high").await;
    let transaction = begin(shop);
    for dialog in [high, low] {
        let group = transaction.get_conversation_group("kitchen", None).await.expect("the queue is on");
        assert_eq!(group, Some(shop.info(&dialog.target).await.expect("it is there").conversation_group_id));
    }
    assert_eq!(transaction.get_conversation_group("kitchen", None).await.expect("the queue is on"), None);
}

async fn b93_a_system_message_does_not_get_ahead_of_a_higher_level(shop: &Shop) {
    two_levels(shop).await;
    let low = shop.order("low").await;
    let timed = shop.order("timed").await;
    shop.timer_of(&timed.target, 0.0, "").await;
    shop.pass(0.0).await;
    shop.fail(&low.initiator).await;
    dialog(shop, dialog_of("Front", "Kitchen"), "high").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 high"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Error 1 42", "0 Order 0 low"]);
    assert_eq!(shop.receive("kitchen").await, ["0 DialogTimer 1", "0 Order 0 timed"]);
}

async fn b31_in_a_group_the_higher_level_comes_first_whatever_it_is(shop: &Shop) {
    two_levels(shop).await;
    let (low, high) = a_group_of_two(shop).await;
    shop.send(&low.target, "Confirm", "a1").await;
    shop.fail(&low.target).await;
    shop.timer_of(&low.initiator, 0.0, "").await;
    shop.pass(0.0).await;
    shop.send(&high.target, "Confirm", "b1").await;
    shop.send(&high.target, "Confirm", "b2").await;
    assert_eq!(
        shop.receive("counter").await,
        ["0 Confirm 0 b1", "0 Confirm 1 b2", "0 DialogTimer 1", "0 Error 1 42", "0 Confirm 0 a1"],
        "conversation by conversation, system messages too"
    );
}

async fn b31_d17_in_a_group_the_same_level_goes_by_waiting(shop: &Shop) {
    let first = shop.order("x").await;
    let related = BeginDialog { related_conversation: Some(first.initiator.to_string()), ..to_kitchen() };
    let second = dialog(shop, related, "x").await;
    for (dialog, body) in [(&second, "b1"), (&first, "a1"), (&second, "b2"), (&first, "a2")] {
        shop.send(&dialog.target, "Confirm", body).await;
    }
    assert_eq!(bodies(&shop.broker, "counter", 3).await, ["b1", "b2", "a1"]);
    shop.send(&second.target, "Confirm", "b3").await;
    assert_eq!(bodies(&shop.broker, "counter", 3).await, ["a2", "b3"]);
}

async fn d17_a_group_has_the_level_of_what_is_ready(shop: &Shop) {
    two_levels(shop).await;
    let old = shop.order("x").await;
    let (low, high) = a_group_of_two(shop).await;
    shop.send(&low.target, "Confirm", "a").await;
    shop.send(&old.target, "Confirm", "old").await;
    assert_eq!(
        shop.receive_top("counter", 1).await,
        ["0 Confirm 0 a"],
        "its member of level 8 has nothing: who waits longest"
    );
    shop.send(&low.target, "Confirm", "a2").await;
    shop.send(&high.target, "Confirm", "b").await;
    assert_eq!(
        shop.receive("counter").await,
        ["0 Confirm 0 b", "0 Confirm 1 a2"],
        "the group as a whole comes before what is older"
    );
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 old"]);
}

async fn d17_only_what_gives_the_level_has_waited(shop: &Shop) {
    two_levels(shop).await;
    let (low, high) = a_group_of_two(shop).await;
    let other = dialog(shop, dialog_of("Counter", "Back"), "x").await;
    shop.send(&low.target, "Confirm", "oldest").await;
    shop.send(&other.target, "Confirm", "older").await;
    shop.send(&high.target, "Confirm", "newest").await;
    assert_eq!(
        shop.receive("counter").await,
        ["0 Confirm 0 older"],
        "of the group's rows only those of level 8 are compared with it"
    );
    assert_eq!(shop.receive("counter").await, ["0 Confirm 0 newest", "0 Confirm 0 oldest"]);
}

async fn d17_who_has_waited_longest_comes_first(shop: &Shop) {
    let (first, second) = (shop.order("a1").await, shop.order("b1").await);
    shop.send(&second.initiator, "Note", "b2").await;
    shop.send(&first.initiator, "Note", "a2").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a1", "0 Note 1 a2"]);
    shop.send(&first.initiator, "Note", "a3").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 b1", "0 Note 1 b2"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Note 2 a3"]);
}

async fn d17_after_a_part_the_turn_is_another_ones(shop: &Shop) {
    let (first, second) = (shop.order("a0").await, shop.order("b0").await);
    for number in 1..4 {
        shop.send(&first.initiator, "Note", &format!("a{number}")).await;
        shop.send(&second.initiator, "Note", &format!("b{number}")).await;
    }
    let mut received = Vec::new();
    for _ in 0..8 {
        received.extend(bodies(&shop.broker, "kitchen", 1).await);
    }
    assert_eq!(
        received,
        ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"],
        "the oldest unread row decides, not the oldest there ever was"
    );
}

/// More conversations than are looked at together, each with rows of several moments, read by two tabs in parts.
async fn d17_many_take_turns_by_their_oldest_row(shop: &Shop) {
    let mut dialogs = Vec::new();
    for number in 0..40 {
        dialogs.push(shop.order(&number.to_string()).await);
    }
    // 40 … 119: each conversation in another place than before.
    for (number, place) in (40..120).zip((0..80).map(|number| (number * 27 + 13) % 40)) {
        shop.send(&dialogs[place].initiator, "Note", &number.to_string()).await;
    }
    let tabs = [shop.broker.another(), shop.another_tab().await];
    let mut received = Vec::new();
    for turn in 0..120 {
        received.extend(bodies(&tabs[turn % 2], "kitchen", 1).await);
    }
    let expected: Vec<String> = (0..120).map(|number| number.to_string()).collect();
    assert_eq!(received, expected, "with `top: 1` and a group each it is the order in which they came");
    for tab in tabs {
        tab.close().await;
    }
}

async fn d17_a_rollback_loses_nobodys_place(shop: &Shop) {
    let first = shop.order("a1").await;
    shop.order("b1").await;
    let transaction = begin(shop);
    assert_eq!(receive(&transaction, "kitchen").await, ["0 Order 0 a1"]);
    shop.send(&first.initiator, "Note", "a2").await;
    transaction.rollback();
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 a1", "0 Note 1 a2"]);
}

async fn d17_waiting_outside_is_waiting(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    assert_eq!((shop.receive("kitchen").await.len(), shop.receive("kitchen").await.len()), (1, 1));
    shop.switch("kitchen", Status::Off).await;
    shop.send(&second.initiator, "Note", "b2").await;
    shop.send(&first.initiator, "Note", "a2").await;
    shop.switch("kitchen", Status::On).await;
    let third = shop.order("c").await;
    let got = shop.broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on");
    assert_eq!(show_all(&got), ["0 Note 1 b2"], "by the order in which they were sent");
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 a2"]);
    assert_eq!(shop.receive_from("kitchen", &third.target).await, ["0 Order 0 c"]);
}
