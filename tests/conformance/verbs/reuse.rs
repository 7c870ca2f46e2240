//! BEGIN DIALOG with `reuse`: the one that is open already.

use std::rc::Rc;

use futures_util::future::join_all;
use pocket_broker::definitions::Status;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{BeginDialog, Broker, ConversationInfo};

use super::super::support::detail;
use super::super::support::shop::{Shop, begin, dialog_of, refused, send, to_kitchen};

mount! {
    a_dialog_that_is_open_is_used_again,
    a_dialog_that_is_not_open_gives_its_place_away,
    a_dialog_takes_the_place_of_the_one_whose_group_it_joins,
    dialogs_that_differ_are_others,
    end_lets_nobody_find_it,
    in_one_transaction_it_is_one_dialog,
    of_two_transactions_one_is_refused,
    several_tabs_at_once_get_the_same,
    what_is_reused_is_not_begun_at_the_commit,
    reuse_has_bounds,
}

fn reuse(name: &str) -> BeginDialog {
    BeginDialog { reuse: Some(name.into()), ..to_kitchen() }
}

async fn get(broker: &Broker, options: BeginDialog) -> ConversationInfo {
    broker.begin_dialog(options).await.expect("the dialog begins")
}

async fn a_dialog_that_is_open_is_used_again(shop: &Shop) {
    let first = get(&shop.broker, reuse("x")).await;
    shop.faults.reset_counts();
    assert_eq!(get(&shop.broker, reuse("x")).await, first, "in state SO");
    assert_eq!(shop.faults.writes(), 0);
    shop.send(&first.handle, "Order", "m1").await;
    let tab = shop.another_tab().await;
    let other_options = BeginDialog { lifetime: Some(5.0), ..reuse("x") };
    assert_eq!(get(&tab, other_options).await, first, "in state CO, in another tab");
    tab.close().await;
    assert_eq!(shop.endpoints(Default::default()).await.len(), 2);
    assert_eq!(shop.records_in(StoreName::Members).await, 1);
}

async fn a_dialog_takes_the_place_of_the_one_whose_group_it_joins(shop: &Shop) {
    let first = get(&shop.broker, BeginDialog { lifetime: Some(5.0), ..reuse("x") }).await;
    shop.pass(10.0).await;
    assert_eq!(shop.state(&first.handle).await, "ER", "nobody gets it any more");
    let related = BeginDialog { related_conversation: Some(first.handle.to_string()), ..reuse("x") };
    let second = get(&shop.broker, related).await;
    assert_ne!(second.handle, first.handle);
    assert_eq!(second.group_id, first.group_id);
    shop.end(&second.handle).await;
    shop.end(&first.handle).await;
    assert_eq!(shop.records_in(StoreName::Members).await, 0, "the group is gone with both");
}

async fn dialogs_that_differ_are_others(shop: &Shop) {
    let all = [
        reuse("x"),
        reuse("y"),
        BeginDialog { reuse: Some("x".into()), ..dialog_of("Counter", "Back") },
        BeginDialog { reuse: Some("x".into()), ..dialog_of("Front", "Kitchen") },
        BeginDialog { contract: None, ..reuse("x") },
        to_kitchen(),
        to_kitchen(),
    ];
    let mut handles: Vec<Rc<str>> = Vec::new();
    for options in all {
        handles.push(get(&shop.broker, options).await.handle);
    }
    handles.sort();
    handles.dedup();
    assert_eq!(handles.len(), 7);
}

async fn end_lets_nobody_find_it(shop: &Shop) {
    let first = get(&shop.broker, reuse("x")).await;
    shop.end(&first.handle).await;
    assert_eq!(shop.records_in(StoreName::Members).await, 0);
    let second = get(&shop.broker, reuse("x")).await;
    assert_ne!(second.handle, first.handle);
    shop.send(&second.handle, "Order", "m1").await;
    shop.switch("kitchen", Status::Off).await;
    shop.end(&second.handle).await;
    assert_eq!(shop.state(&second.handle).await, "DO", "it waits");
    assert_eq!(shop.records_in(StoreName::Members).await, 0);
    let third = get(&shop.broker, reuse("x")).await;
    let ending = shop.broker.end_conversation(&third.handle, Default::default());
    let (ended, fourth) = futures_util::future::join(ending, get(&shop.broker, reuse("x"))).await;
    ended.expect("it can be ended");
    assert_ne!(fourth.handle, third.handle, "together in one storage transaction");
}

async fn a_dialog_that_is_not_open_gives_its_place_away(shop: &Shop) {
    let mut last = get(&shop.broker, reuse("x")).await;
    for fails in [false, true] {
        shop.send(&last.handle, "Order", "m1").await;
        let dialog = shop.dialog(&last).await;
        if fails {
            shop.fail(&dialog.target).await;
        } else {
            shop.end(&dialog.target).await;
        }
        let next = get(&shop.broker, reuse("x")).await;
        assert_ne!(next.handle, last.handle);
        shop.end(&last.handle).await;
        assert_eq!(get(&shop.broker, reuse("x")).await, next, "the END of the one before changes nothing");
        last = next;
    }
    assert_eq!(shop.records_in(StoreName::Members).await, 1);
}

async fn several_tabs_at_once_get_the_same(shop: &Shop) {
    let tabs = [shop.another_tab().await, shop.another_tab().await];
    let brokers = [&shop.broker, &shop.broker, &tabs[0], &tabs[1]];
    let begun = join_all(brokers.map(|broker| get(broker, reuse("x")))).await;
    assert!(begun.iter().all(|info| *info == begun[0]), "{begun:?}");
    assert_eq!(shop.endpoints(Default::default()).await.len(), 1);
    for tab in tabs {
        tab.close().await;
    }
}

async fn in_one_transaction_it_is_one_dialog(shop: &Shop) {
    for commits in [false, true] {
        let transaction = begin(shop);
        let first = transaction.begin_dialog(reuse("x")).await.expect("the dialog begins");
        send(shop, &transaction, &first.handle, "Order", "m1").await.expect("it may send");
        assert_eq!(transaction.begin_dialog(reuse("x")).await.expect("it is there"), first);
        if commits {
            transaction.commit().await.expect("it commits");
            assert_eq!(get(&shop.broker, reuse("x")).await, first);
        } else {
            transaction.rollback();
            assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
        }
    }
    let transaction = begin(shop);
    let first = transaction.begin_dialog(reuse("y")).await.expect("the dialog begins");
    transaction.end_conversation(&first.handle, Default::default()).await.expect("it can be ended");
    let second = transaction.begin_dialog(reuse("y")).await.expect("the dialog begins");
    assert_ne!(second.handle, first.handle);
    transaction.commit().await.expect("it commits");
    assert_eq!(get(&shop.broker, reuse("y")).await, second);
}

async fn of_two_transactions_one_is_refused(shop: &Shop) {
    let (one, two) = (begin(shop), begin(shop));
    let first = one.begin_dialog(reuse("x")).await.expect("the dialog begins");
    let second = two.begin_dialog(reuse("x")).await.expect("nobody knows of the other");
    send(shop, &two, &second.handle, "Order", "m1").await.expect("it may send");
    one.commit().await.expect("the faster commits");
    let error = refused(two.commit().await, ErrorCode::Conflict);
    assert_eq!((detail(&error, "at").as_deref(), error.is_retryable()), (Some("commit"), true));
    assert_eq!(detail(&error, "handle").as_deref(), Some(&*first.handle));
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(get(&shop.broker, reuse("x")).await, first);
}

async fn what_is_reused_is_not_begun_at_the_commit(shop: &Shop) {
    let first = get(&shop.broker, reuse("x")).await;
    let transaction = begin(shop);
    assert_eq!(transaction.begin_dialog(reuse("x")).await.expect("it is there"), first);
    shop.end(&first.handle).await;
    transaction.commit().await.expect("it has done nothing");
    assert_eq!(shop.endpoints(Default::default()).await.len(), 0);
}

async fn reuse_has_bounds(shop: &Shop) {
    for bad in [String::new(), "x".repeat(129)] {
        refused(shop.broker.begin_dialog(reuse(&bad)).await, ErrorCode::InvalidArgument);
    }
    get(&shop.broker, reuse(&"😀".repeat(128))).await;
    get(&shop.broker, reuse("__proto__")).await;
}
