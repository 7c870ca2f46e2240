//! Views: reading without locks, from what is committed.

use std::rc::Rc;

use pocket_broker::error::ErrorCode;
use pocket_broker::{BeginDialog, EndpointFilter, Extent, Message, ReceiveOptions, RowFilter, Rows};

use super::super::support::shop::{Dialog, Shop, dialog_of, refused, show_message, to_kitchen};

mount! {
    b09_select_changes_nothing,
    d39_pages_are_snapshots_in_queuing_order,
    d39_rows_removed_meanwhile_are_skipped,
    conversations_are_filtered,
    conversations_come_in_pages,
    every_filter_of_rows,
    filters_are_checked,
    one_conversation_comes_in_pages,
    reading_takes_no_lock,
    two_services_of_a_queue_are_merged,
    what_is_ready_is_found_behind_much_that_is_retained,
}

/// Two dialogs with retention on both sides: rows of every status but 2, many of them in long runs.
async fn a_full_queue(shop: &Shop) -> (Dialog, Dialog) {
    shop.retain("kitchen", true).await;
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    shop.send_many(&first.initiator, "Note", 0..300).await;
    shop.receive_from("kitchen", &first.target).await;
    shop.send_many(&second.initiator, "Note", 0..40).await;
    shop.send_many(&first.target, "Confirm", 0..30).await;
    for number in 0..20 {
        let dialog = if number % 3 == 0 { &first } else { &second };
        shop.send(&dialog.initiator, "Note", &format!("single {number}")).await;
    }
    (first, second)
}

/// All rows, page by page.
async fn paged(shop: &Shop, queue: &str, filter: &RowFilter) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut position: Option<Vec<f64>> = None;
    loop {
        let page = shop
            .broker
            .select(queue, filter, position.as_deref(), Extent::Page)
            .await
            .expect("the queue can be looked at");
        let rows: Vec<Message> = page.rows.iter().flat_map(Rows::messages).collect();
        assert!(rows.len() <= 256, "a page has at most 256 rows");
        assert!(!rows.is_empty() || page.next.is_none(), "a page that is not the last has rows");
        messages.extend(rows);
        position = page.next;
        if position.is_none() {
            return messages;
        }
    }
}

fn orders(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(|message| message.queuing_order).collect()
}

async fn every_filter_of_rows(shop: &Shop) {
    let (first, second) = a_full_queue(shop).await;
    let all = shop.messages("kitchen", RowFilter::default()).await;
    assert_eq!(all.len(), 392);
    assert!(orders(&all).is_sorted_by(|a, b| a < b));
    let group = shop.info(&second.target).await.expect("it is there").conversation_group_id;
    let middle = all[200].queuing_order;
    let mut filters = vec![RowFilter::default()];
    for status in [vec![0.0], vec![1.0], vec![2.0], vec![3.0], vec![0.0, 3.0], vec![], vec![1.0, 1.0]] {
        filters.push(RowFilter { status: Some(status), ..RowFilter::default() });
    }
    let with = |change: fn(&mut RowFilter, &Dialog, &Rc<str>, f64), filters: &[RowFilter]| -> Vec<RowFilter> {
        let changed = filters.iter().map(|filter| {
            let mut filter = filter.clone();
            change(&mut filter, &first, &group, middle as f64);
            filter
        });
        filters.iter().cloned().chain(changed.collect::<Vec<_>>()).collect()
    };
    filters = with(|filter, dialog, _, _| filter.conversation = Some(Rc::clone(&dialog.target)), &filters);
    filters = with(|filter, _, group, _| filter.group = Some(group.to_uppercase().into()), &filters);
    filters = with(|filter, _, _, _| filter.message_type = Some("Note".into()), &filters);
    filters = with(|filter, _, _, middle| filter.after = Some(middle), &filters);
    filters = with(|filter, _, _, _| filter.limit = Some(7.0), &filters);
    filters = with(|filter, _, _, _| filter.reverse = true, &filters);
    // In a browser a part of the combinations is enough.
    let stride = if cfg!(target_arch = "wasm32") { 7 } else { 1 };
    for filter in filters.into_iter().step_by(stride) {
        let is_wanted = |message: &&Message| {
            filter.status.as_ref().is_none_or(|wanted| wanted.contains(&f64::from(message.status.number())))
                && filter.conversation.as_ref().is_none_or(|wanted| *wanted == message.conversation_handle)
                && filter
                    .group
                    .as_ref()
                    .is_none_or(|wanted| wanted.eq_ignore_ascii_case(&message.conversation_group_id))
                && filter.message_type.as_ref().is_none_or(|wanted| *wanted == message.message_type_name)
                && filter.after.is_none_or(|after| message.queuing_order as f64 > after)
        };
        let mut expected: Vec<Message> = all.iter().filter(is_wanted).cloned().collect();
        if filter.reverse {
            expected.reverse();
        }
        expected.truncate(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        assert_eq!(orders(&shop.messages("kitchen", filter.clone()).await), orders(&expected), "{filter:?}");
        let paged = paged(shop, "kitchen", &filter).await;
        assert_eq!(orders(&paged), orders(&expected), "page by page: {filter:?}");
    }
}

async fn d39_pages_are_snapshots_in_queuing_order(shop: &Shop) {
    let (first, second) = a_full_queue(shop).await;
    for number in 0..600 {
        let dialog = if number % 2 == 0 { &first } else { &second };
        if number % 100 < 50 {
            shop.send(&dialog.initiator, "Note", &number.to_string()).await;
        } else if number % 50 == 0 {
            shop.send_many(&dialog.initiator, "Note", 0..270).await;
        }
    }
    for reverse in [false, true] {
        let filter = RowFilter { reverse, ..RowFilter::default() };
        let all = shop.messages("kitchen", filter.clone()).await;
        assert!(all.len() > 2_000);
        let paged = paged(shop, "kitchen", &filter).await;
        assert_eq!(
            paged.iter().map(show_message).collect::<Vec<_>>(),
            all.iter().map(show_message).collect::<Vec<_>>()
        );
    }
    // Between two pages rows may come behind.
    let page = shop.broker.select("kitchen", &RowFilter::default(), None, Extent::Page).await.expect("a page");
    let last = page.rows.iter().flat_map(Rows::messages).last().expect("it has rows").queuing_order;
    let next = page.next.expect("there are more");
    shop.send(&first.initiator, "Note", "late").await;
    let page = shop.broker.select("kitchen", &RowFilter::default(), Some(&next), Extent::All).await.expect("the rest");
    let rest: Vec<Message> = page.rows.iter().flat_map(Rows::messages).collect();
    assert!(rest[0].queuing_order > last);
    assert_eq!(rest.last().map(show_message).as_deref().map(|row| row.ends_with("late")), Some(true));
}

async fn d39_rows_removed_meanwhile_are_skipped(shop: &Shop) {
    let (first, second) = (shop.order("a").await, shop.order("b").await);
    for dialog in [&first, &second, &first] {
        shop.send_many(&dialog.initiator, "Note", 0..200).await;
    }
    for filter in [RowFilter::default(), RowFilter { conversation: Some(first.target.clone()), ..RowFilter::default() }]
    {
        let all = shop.messages("kitchen", filter.clone()).await;
        let page = shop.broker.select("kitchen", &filter, None, Extent::Page).await.expect("a page");
        let seen: usize = page.rows.iter().map(|rows| rows.count).sum();
        shop.broker
            .receive(
                "kitchen",
                ReceiveOptions {
                    conversation: Some(first.target.clone()),
                    top: Some(100.0),
                    ..ReceiveOptions::default()
                },
                None,
            )
            .await
            .expect("it can be received");
        let page = shop.broker.select("kitchen", &filter, page.next.as_deref(), Extent::All).await.expect("the rest");
        let rest: Vec<Message> = page.rows.iter().flat_map(Rows::messages).collect();
        assert_eq!(orders(&rest), orders(&all[seen..]), "no row twice, none missing");
    }
    let page = shop.broker.select("kitchen", &RowFilter::default(), None, Extent::Page).await.expect("a page");
    shop.end(&first.target).await;
    let page = shop
        .broker
        .select("kitchen", &RowFilter::default(), page.next.as_deref(), Extent::All)
        .await
        .expect("the rest");
    assert!(page.rows.iter().all(|rows| rows.handle == second.target));
}

async fn one_conversation_comes_in_pages(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    for _ in 0..4 {
        shop.send_many(&dialog.initiator, "Note", 0..260).await;
        shop.send_many(&dialog.target, "Confirm", 0..130).await;
    }
    shop.receive_top("kitchen", 700).await;
    shop.fail(&dialog.initiator).await;
    for reverse in [false, true] {
        for status in [None, Some(vec![3.0]), Some(vec![0.0, 1.0])] {
            let filter =
                RowFilter { conversation: Some(dialog.target.clone()), reverse, status, ..RowFilter::default() };
            let all = shop.messages("kitchen", filter.clone()).await;
            assert_eq!(orders(&paged(shop, "kitchen", &filter).await), orders(&all), "{filter:?}");
        }
    }
    let foreign = RowFilter { conversation: Some(dialog.initiator), ..RowFilter::default() };
    assert_eq!(shop.messages("kitchen", foreign).await, [], "of another queue");
}

async fn two_services_of_a_queue_are_merged(shop: &Shop) {
    let mut dialogs = Vec::new();
    for (from, to) in [("Front", "Back"), ("Back", "Front")] {
        let begun = shop.broker.begin_dialog(dialog_of(from, to)).await.expect("the dialog begins");
        shop.send(&begun.handle, "Order", from).await;
        dialogs.push(shop.dialog(&begun).await);
    }
    for number in 0..10 {
        shop.send(&dialogs[number % 2].initiator, "Note", &number.to_string()).await;
    }
    let bodies: Vec<String> =
        shop.rows("house").await.iter().map(|row| row.rsplit(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(bodies, ["Front", "Back", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let newest = shop.messages("house", RowFilter { reverse: true, limit: Some(3.0), ..RowFilter::default() }).await;
    assert_eq!(newest.iter().map(show_message).collect::<Vec<_>>(), ["1 Note 5 9", "1 Note 5 8", "1 Note 4 7"]);
}

async fn what_is_ready_is_found_behind_much_that_is_retained(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    for _ in 0..20 {
        shop.send_many(&dialog.initiator, "Note", 0..256).await;
    }
    shop.receive("kitchen").await;
    shop.send(&dialog.initiator, "Note", "new").await;
    shop.faults.reset_counts();
    let ready = shop.messages("kitchen", RowFilter { status: Some(vec![1.0]), ..RowFilter::default() }).await;
    assert_eq!(ready.len(), 1);
    assert!(shop.faults.reads() < 20, "it does not begin at the queue's head: {} reads", shop.faults.reads());
}

async fn b09_select_changes_nothing(shop: &Shop) {
    shop.order("m1").await;
    shop.faults.reset_counts();
    for _ in 0..3 {
        assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    }
    assert_eq!(shop.faults.writes(), 0);
}

async fn reading_takes_no_lock(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let transaction = shop.broker.begin().expect("the broker is open");
    transaction.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on");
    transaction.send(vec![dialog.target.clone()], vec![shop.message("Confirm", "r1")]).await.expect("it may send");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"], "from what is committed");
    assert_eq!(shop.rows("counter").await, [""; 0]);
    assert_eq!(shop.info(&dialog.target).await.map(|end| end.send_sequence), Some(0));
    transaction.commit().await.expect("it commits");
}

async fn filters_are_checked(shop: &Shop) {
    let bad = [
        RowFilter { limit: Some(-1.0), ..RowFilter::default() },
        RowFilter { limit: Some(1.5), ..RowFilter::default() },
        RowFilter { limit: Some(f64::NAN), ..RowFilter::default() },
        RowFilter { after: Some(f64::NAN), ..RowFilter::default() },
        RowFilter { status: Some(vec![1.0, 4.0]), ..RowFilter::default() },
    ];
    for filter in bad {
        refused(shop.broker.select("kitchen", &filter, None, Extent::Page).await, ErrorCode::InvalidArgument);
        refused(shop.broker.count("kitchen", &filter).await, ErrorCode::InvalidArgument);
    }
    refused(shop.broker.select("nothing", &RowFilter::default(), None, Extent::Page).await, ErrorCode::QueueNotFound);
    refused(shop.broker.count("nothing", &RowFilter::default()).await, ErrorCode::QueueNotFound);
    shop.order("m1").await;
    assert_eq!(shop.messages("kitchen", RowFilter { limit: Some(0.0), ..RowFilter::default() }).await, []);
    assert_eq!(
        shop.messages("kitchen", RowFilter { conversation: Some("x".into()), ..RowFilter::default() }).await,
        []
    );
}

async fn conversations_are_filtered(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.clock().advance(1_000.0);
    let begun = shop.begin().await;
    let related = BeginDialog { related_conversation: Some(begun.handle.to_string()), ..to_kitchen() };
    let related = shop.broker.begin_dialog(related).await.expect("the dialog begins");
    shop.end(&dialog.target).await;
    let handles = |filter: EndpointFilter| async {
        let mut handles: Vec<Rc<str>> =
            shop.endpoints(filter).await.into_iter().map(|end| end.conversation_handle).collect();
        handles.sort();
        handles
    };
    let sorted = |mut handles: Vec<&Rc<str>>| -> Vec<Rc<str>> {
        handles.sort();
        handles.into_iter().map(Rc::clone).collect()
    };
    let all = EndpointFilter::default;
    assert_eq!(handles(all()).await, sorted(vec![&dialog.initiator, &begun.handle, &related.handle]));
    assert_eq!(handles(EndpointFilter { state: Some("DI".into()), ..all() }).await, sorted(vec![&dialog.initiator]));
    assert_eq!(
        handles(EndpointFilter { state: Some("SO".into()), service: Some("Counter".into()), ..all() }).await,
        sorted(vec![&begun.handle, &related.handle])
    );
    assert_eq!(handles(EndpointFilter { service: Some("Kitchen".into()), ..all() }).await, sorted(vec![]));
    assert_eq!(
        handles(EndpointFilter { group: Some(begun.group_id.to_uppercase().into()), ..all() }).await,
        sorted(vec![&begun.handle, &related.handle])
    );
    assert_eq!(
        handles(EndpointFilter { conversation_id: Some(dialog.id.to_uppercase().into()), ..all() }).await,
        sorted(vec![&dialog.initiator])
    );
    assert_eq!(
        handles(EndpointFilter { created_before: Some(1_700_000_000_500.0), ..all() }).await,
        sorted(vec![&dialog.initiator])
    );
    assert_eq!(shop.info(&dialog.target).await, None);
    assert_eq!(shop.info("").await, None);
}

async fn conversations_come_in_pages(shop: &Shop) {
    let mut begun = Vec::new();
    for _ in 0..600 {
        begun.push(shop.begin().await.handle);
    }
    for filter in [EndpointFilter::default(), EndpointFilter { state: Some("SO".into()), ..EndpointFilter::default() }]
    {
        let mut seen = Vec::new();
        let mut position: Option<Vec<f64>> = None;
        loop {
            let page = shop
                .broker
                .conversations(&filter, position.as_deref(), Extent::Page)
                .await
                .expect("they can be looked at");
            seen.extend(page.rows.into_iter().map(|end| end.conversation_handle));
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(seen, begun);
    }
    let nothing = EndpointFilter { state: Some("ER".into()), ..EndpointFilter::default() };
    assert_eq!(shop.endpoints(nothing).await.len(), 0);
}
