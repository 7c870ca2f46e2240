//! `groups`: conversation groups as a view, and who holds them.

use std::rc::Rc;

use futures_util::future::join_all;
use pocket_broker::definitions::ServiceChange;
use pocket_broker::{
    BeginDialog, Broker, ConversationGroup, Destination, EndpointFilter, Extent, HeldBy, ReceiveOptions,
};

use super::super::support::shop::{Shop, begin, dialog_of, receive, to_kitchen};

mount! {
    d36_a_group_of_many_conversations_is_one_row,
    d36_groups_come_in_pages,
    d36_groups_of_one_service,
    d36_who_holds_a_group,
    d39_a_page_looks_at_so_many_records,
}

async fn all(broker: &Broker, service: Option<&str>) -> Vec<ConversationGroup> {
    let page = broker.groups(service, None, Extent::All).await.expect("the groups can be looked at");
    assert_eq!(page.next, None, "everything is one page");
    page.rows
}

/// Page by page.
async fn paged(broker: &Broker, service: Option<&str>) -> (Vec<ConversationGroup>, usize) {
    let (mut groups, mut pages, mut position) = (Vec::new(), 0, None::<Vec<f64>>);
    loop {
        let page =
            broker.groups(service, position.as_deref(), Extent::Page).await.expect("the groups can be looked at");
        groups.extend(page.rows);
        pages += 1;
        position = page.next;
        if position.is_none() {
            return (groups, pages);
        }
    }
}

async fn group_of(shop: &Shop, handle: &str) -> Rc<str> {
    shop.info(handle).await.expect("it is there").conversation_group_id
}

/// The row of one group.
async fn row(broker: &Broker, group: &str) -> Option<ConversationGroup> {
    all(broker, None).await.into_iter().find(|row| *row.conversation_group_id == *group)
}

async fn d36_groups_of_one_service(shop: &Shop) {
    assert_eq!(all(&shop.broker, None).await, []);
    let dialog = shop.order("m1").await;
    shop.send_many(&dialog.initiator, "Note", 0..3).await;
    shop.receive_top("kitchen", 1).await;
    shop.broker.begin_dialog(dialog_of("Front", "Back")).await.expect("the dialog begins");
    let kitchen = ConversationGroup {
        conversation_group_id: group_of(shop, &dialog.target).await,
        service: "Kitchen".into(),
        queue: "kitchen".into(),
        conversations: 1,
        ready: 3,
        held_by: None,
    };
    assert_eq!(all(&shop.broker, Some("Kitchen")).await, std::slice::from_ref(&kitchen));
    let services =
        async || all(&shop.broker, None).await.into_iter().map(|row| row.service.to_string()).collect::<Vec<_>>();
    assert_eq!(services().await, ["Counter", "Kitchen", "Front"]);
    assert_eq!(all(&shop.broker, Some("Nobody")).await, []);
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Kitchen", change).await.expect("it can be altered");
    assert_eq!(all(&shop.broker, Some("Kitchen")).await, [ConversationGroup { queue: "house".into(), ..kitchen }]);
    shop.end(&dialog.target).await;
    shop.end(&dialog.initiator).await;
    assert_eq!(services().await, ["Front"]);
}

async fn d36_a_group_of_many_conversations_is_one_row(shop: &Shop) {
    let (first, second, third) = (shop.order("a").await, shop.order("b").await, shop.order("c").await);
    shop.send(&second.initiator, "Note", "b2").await;
    let to = Destination::Conversation(Rc::clone(&first.target));
    shop.broker.move_conversation(&second.target, to).await.expect("it can be moved");
    let group = group_of(shop, &first.target).await;
    let kitchen = all(&shop.broker, Some("Kitchen")).await;
    assert_eq!(kitchen.iter().map(|row| (row.conversations, row.ready)).collect::<Vec<_>>(), [(2, 3), (1, 1)]);
    assert_eq!(kitchen[0].conversation_group_id, group, "those that others were put into come first");
    assert_eq!(kitchen[1].conversation_group_id, group_of(shop, &third.target).await);
    let ends = shop.endpoints(EndpointFilter { group: Some(Rc::clone(&group)), ..EndpointFilter::default() }).await;
    assert_eq!(ends.len(), 2);
    shop.end(&first.target).await;
    assert_eq!(row(&shop.broker, &group).await.map(|row| (row.conversations, row.ready)), Some((1, 2)));
    shop.end(&second.target).await;
    assert_eq!(row(&shop.broker, &group).await, None);
}

async fn d36_who_holds_a_group(shop: &Shop) {
    let other = shop.another_tab().await;
    let lonely = shop.tab_without_locks().await;
    let dialog = shop.order("m1").await;
    let group = group_of(shop, &dialog.target).await;
    let holders = async || {
        let mut holders = Vec::new();
        for broker in [&shop.broker, &other, &lonely] {
            holders.push(row(broker, &group).await.expect("it is there").held_by);
        }
        holders
    };
    assert_eq!(holders().await, [None, None, None]);
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    assert_eq!(holders().await, [Some(HeldBy::This), Some(HeldBy::Other), None], "who has no locks can't tell");
    let held = all(&shop.broker, None).await.iter().filter(|row| row.held_by.is_some()).count();
    assert_eq!(held, 1, "only what was received from");
    transaction.rollback();
    assert_eq!(holders().await, [None, None, None]);
    let transaction = other.begin().expect("the broker is open");
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on");
    assert_eq!(holders().await, [Some(HeldBy::Other), Some(HeldBy::This), None]);
    transaction.commit().await.expect("it commits");
    let transaction = lonely.begin().expect("the broker is open");
    shop.send(&dialog.initiator, "Note", "m2").await;
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on");
    assert_eq!(holders().await, [None, None, Some(HeldBy::This)], "nobody sees what has no lock");
    drop(transaction);
}

/// Dialogs that only exist, begun together.
async fn begin_many(shop: &Shop, many: usize, options: impl Fn(usize) -> BeginDialog) {
    // The first claims numbers for the others.
    shop.broker.begin_dialog(options(0)).await.expect("the dialog begins");
    let begun = join_all((1..many).map(|number| shop.broker.begin_dialog(options(number)))).await;
    begun.into_iter().for_each(|begun| drop(begun.expect("the dialog begins")));
}

/// A group id that is the same in every run.
fn group_id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{:012x}", 0xabcd_0000_0000_u64 + number as u64)
}

async fn d36_groups_come_in_pages(shop: &Shop) {
    // A large group between many small ones, where the first page ends; and many conversations that are alone.
    let in_group = |group: usize| BeginDialog { related_group: Some(group_id(group)), ..to_kitchen() };
    begin_many(shop, 261, in_group).await;
    begin_many(shop, 399, |_| in_group(260)).await;
    begin_many(shop, 39, |number| in_group(261 + number)).await;
    begin_many(shop, 300, |_| to_kitchen()).await;
    let whole = all(&shop.broker, None).await;
    assert_eq!(whole.len(), 261 + 39 + 300);
    let sizes: Vec<u64> = whole.iter().map(|row| row.conversations).collect();
    assert_eq!((sizes.iter().sum::<u64>(), sizes[260]), (999, 400));
    let (groups, pages) = paged(&shop.broker, None).await;
    assert_eq!(groups, whole);
    assert!(pages >= 3, "{pages}");
    let first = shop.broker.groups(None, None, Extent::Page).await.expect("the groups can be looked at");
    assert_eq!(first.rows.len(), 260, "it ends within the large group, which is counted on in the second");
    assert_eq!(paged(&shop.broker, Some("Counter")).await.0, whole);
    assert_eq!(paged(&shop.broker, Some("Kitchen")).await.0, []);
}

/// However little a filter lets through.
async fn d39_a_page_looks_at_so_many_records(shop: &Shop) {
    begin_many(shop, 4_200, |_| to_kitchen()).await;
    let first = shop.broker.groups(Some("Kitchen"), None, Extent::Page).await.expect("the groups can be looked at");
    assert_eq!(first.rows, []);
    let next = first.next.expect("there is more");
    let second = shop.broker.groups(Some("Kitchen"), Some(&next), Extent::Page).await.expect("it can be looked at");
    assert_eq!((second.rows.len(), second.next), (0, None));

    let filter = EndpointFilter { state: Some("ER".into()), ..EndpointFilter::default() };
    let first = shop.broker.conversations(&filter, None, Extent::Page).await.expect("it can be looked at");
    assert_eq!(first.rows, []);
    let next = first.next.expect("there is more");
    let second = shop.broker.conversations(&filter, Some(&next), Extent::Page).await.expect("it can be looked at");
    assert_eq!((second.rows.len(), second.next), (0, None));
}
