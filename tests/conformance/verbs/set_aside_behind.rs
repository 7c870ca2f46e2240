//! D37: rows that can't be read, and are not the next to be received: retained ones, copies, and what waits outside.

use pocket_broker::clock::Clock;
use pocket_broker::definitions::{Definitions, QueueOptions, ServiceOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::StoreName;
use pocket_broker::{Extent, FailedFilter, RowFilter};

use super::super::support::shop::{Shop, archived, begin, dialog_of, refused, show_all};
use super::set_aside::{break_record, failed, raw};

mount! {
    d37_a_copy_and_a_retained_row,
    d37_an_end_archives_what_can_be_read,
    d37_what_waits_for_its_transmission,
    d37_while_the_queue_is_off_it_stays,
}

async fn d37_a_copy_and_a_retained_row(shop: &Shop) {
    shop.retain("counter", true).await;
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    for body in ["m2", "m3"] {
        shop.send(&dialog.initiator, "Note", body).await;
    }
    shop.receive("kitchen").await;
    // The sender's side comes first: its copies, then what the target has received.
    for (place, queue, handle) in [(1, "counter", &dialog.initiator), (4, "kitchen", &dialog.target)] {
        let place = place - usize::from(queue == "kitchen");
        break_record(shop, StoreName::Messages, place).await;
        shop.notices();
        let left = shop.rows_of(queue, handle).await;
        let status = if queue == "counter" { 3 } else { 0 };
        assert_eq!(left, [format!("{status} Order 0 m1"), format!("{status} Note 2 m3")]);
        assert_eq!(shop.dropped(), ["corrupt"]);
        shop.assert_sound().await;
        raw(shop, queue).await;
        assert_eq!(shop.broker.discard_failed(&FailedFilter::default()).await.expect("it can be deleted"), 1);
    }
    let ended = shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!(ended.archived, 2);
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn d37_an_end_archives_what_can_be_read(shop: &Shop) {
    for in_transaction in [false, true] {
        shop.retain("kitchen", true).await;
        let dialog = shop.order("m0").await;
        for body in ["m1", "m2", "m3", "m4"] {
            shop.send(&dialog.initiator, "Note", body).await;
        }
        assert_eq!(shop.receive_top("kitchen", 3).await.len(), 3);
        break_record(shop, StoreName::Messages, 1).await;
        break_record(shop, StoreName::Messages, 4).await;
        shop.notices();
        if in_transaction {
            let transaction = begin(shop);
            transaction.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
            transaction.commit().await.expect("it commits");
        } else {
            let ended = shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
            assert_eq!(ended.archived, 3);
        }
        assert_eq!(shop.dropped(), ["corrupt", "corrupt"]);
        let archive = shop.broker.archive(&RowFilter::default(), None, Extent::All).await.expect("it can be looked at");
        assert_eq!(show_all(&archive.rows), ["0 Order 0 m0", "0 Note 2 m2", "1 Note 3 m3"]);
        assert_eq!(failed(shop).await.len(), 2);
        shop.assert_sound().await;
        assert_eq!(shop.state(&dialog.initiator).await, "DI");
        shop.clean_up(&dialog.initiator).await;
        shop.broker.discard_failed(&FailedFilter::default()).await.expect("they can be deleted");
        shop.clock().advance(1.0);
        shop.broker.purge_archive(shop.clock().now()).await.expect("it can be emptied");
    }
}

async fn d37_while_the_queue_is_off_it_stays(shop: &Shop) {
    shop.switch("kitchen", Status::Off).await;
    let dialog = shop.order("m0").await;
    shop.send(&dialog.initiator, "Note", "m1").await;
    break_record(shop, StoreName::Messages, 0).await;
    refused(shop.broker.transmission_queue(None).await, ErrorCode::StorageCorrupt);
    assert_eq!(failed(shop).await.len(), 0, "it is in no queue");
    shop.switch("kitchen", Status::On).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Note 1 m1"]);
    assert_eq!(failed(shop).await.len(), 1);
    // The error queue itself is off.
    shop.alter("error", QueueOptions { status: Some(Status::Off), ..QueueOptions::default() }).await;
    let other = shop.order("m2").await;
    break_record(shop, StoreName::Messages, 1).await;
    assert_eq!(shop.receive_from("kitchen", &other.target).await, [""; 0]);
    assert_eq!(shop.outside().await.len(), 1, "it waits outside");
    shop.switch("error", Status::On).await;
    assert_eq!(failed(shop).await.len(), 2);
}

async fn d37_what_waits_for_its_transmission(shop: &Shop) {
    let begun = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await;
    let handle = begun.expect("nobody is contacted").handle;
    shop.send(&handle, "Order", "m0").await;
    shop.send(&handle, "Note", "m1").await;
    shop.send(&handle, "Note", "m2").await;
    break_record(shop, StoreName::Messages, 0).await;
    assert_eq!(shop.outside().await, ["Note 1 m1", "Note 2 m2"]);
    shop.assert_sound().await;
    raw(shop, "counter").await;
    let other = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await;
    let other = other.expect("nobody is contacted").handle;
    shop.send(&other, "Order", "o0").await;
    shop.send(&other, "Note", "o1").await;
    shop.send(&other, "Note", "o2").await;
    break_record(shop, StoreName::Messages, 4).await;
    let service = ServiceOptions { queue: Some("kitchen".into()), contracts: vec!["Ordering".into()] };
    let definitions = Definitions { services: vec![("Elsewhere".into(), service)], ..Default::default() };
    shop.broker.define(definitions).await.expect("a new service");
    shop.pass(0.0).await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 o0", "0 Note 1 o2"]);
    assert_eq!(shop.state(&handle).await, "ER", "its first message is lost: nobody is there");
    shop.clean_up(&handle).await;
}
