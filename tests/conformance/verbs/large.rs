//! Large bodies, and how much comes at once.

use pocket_broker::body::{Body, Value};
use pocket_broker::store::StoreName;
use pocket_broker::{Extent, ReceiveOptions, RowFilter, Rows};

use super::super::support::shop::{Shop, keyed, show_all, top_of};

mount! {
    a_body_of_64_kib_has_a_record_of_its_own,
    a_page_of_a_view_has_4_mib,
    a_rollback_leaves_large_bodies,
    bodies_go_with_their_rows,
    d24_the_end_of_a_lane_takes_the_bodies_of_what_was_received,
    d02_receive_gives_64_mib_and_a_larger_row_alone,
    runs_have_at_most_64_kib,
}

const KIB: f64 = 1_024.0;
const MIB: f64 = 1_048_576.0;

async fn send(shop: &Shop, handle: &str, bodies: &[(&str, f64)]) {
    let message = |(body, size): &(&str, f64)| {
        shop.message_of("Note", Body { value: Value::from(*body).into(), packing: 0, size: *size })
    };
    shop.broker
        .send(vec![handle.into()], bodies.iter().map(message).collect(), None)
        .await
        .expect("the messages can be sent");
}

async fn a_body_of_64_kib_has_a_record_of_its_own(shop: &Shop) {
    let dialog = shop.order("m1").await;
    send(shop, &dialog.initiator, &[("a", 64.0 * KIB - 1.0), ("b", 64.0 * KIB), ("c", 1.0), ("d", 100.0 * KIB)]).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 2);
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 a", "1 Note 2 b", "1 Note 3 c", "1 Note 4 d"]);
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1", "0 Note 1 a", "0 Note 2 b", "0 Note 3 c", "0 Note 4 d"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn runs_have_at_most_64_kib(shop: &Shop) {
    let dialog = shop.order("m1").await;
    send(shop, &dialog.initiator, &[("x", 20.0 * KIB); 10]).await;
    assert_eq!(shop.records_in(StoreName::Messages).await, 1 + 4, "three rows to a run");
    send(shop, &dialog.initiator, &[("x", 1.0); 600]).await;
    assert_eq!(shop.records_in(StoreName::Messages).await, 5 + 3, "256 rows to a run");
    assert_eq!(shop.receive("kitchen").await.len(), 611);
    assert_eq!(shop.records_in(StoreName::Messages).await, 0);
}

async fn bodies_go_with_their_rows(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    send(shop, &dialog.initiator, &[("a", 70.0 * KIB), ("b", 1.0), ("c", 70.0 * KIB)]).await;
    assert_eq!(shop.receive_top("kitchen", 2).await, ["0 Order 0 m1", "0 Note 1 a"]);
    assert_eq!(shop.receive_top("kitchen", 5).await, ["0 Note 2 b", "0 Note 3 c"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 2, "retained");
    assert_eq!(shop.rows("kitchen").await, ["0 Order 0 m1", "0 Note 1 a", "0 Note 2 b", "0 Note 3 c"]);
    shop.retain("kitchen", false).await;
    send(shop, &dialog.initiator, &[("d", 70.0 * KIB), ("e", 70.0 * KIB)]).await;
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Note 4 d"]);
    assert_eq!(shop.receive_top("kitchen", 1).await, ["0 Note 5 e"]);
    assert_eq!(shop.records_in(StoreName::Bodies).await, 2);
    shop.end(&dialog.target).await;
    assert_eq!(shop.records_in(StoreName::Bodies).await, 0);
}

async fn a_rollback_leaves_large_bodies(shop: &Shop) {
    let dialog = shop.order("m1").await;
    send(shop, &dialog.initiator, &[("a", 70.0 * KIB), ("b", 70.0 * KIB)]).await;
    for _ in 0..2 {
        let transaction = shop.broker.begin().expect("the broker is open");
        let rows = transaction.receive("kitchen", top_of(2)).await.expect("the queue is on");
        assert_eq!(show_all(&rows), ["0 Order 0 m1", "0 Note 1 a"]);
        let rows = transaction.receive("kitchen", top_of(2)).await.expect("the queue is on");
        assert_eq!(show_all(&rows), ["0 Note 2 b"]);
        transaction.rollback();
    }
    assert_eq!(shop.receive("kitchen").await.len(), 3);
}

async fn d02_receive_gives_64_mib_and_a_larger_row_alone(shop: &Shop) {
    let dialog = shop.order("m1").await;
    send(
        shop,
        &dialog.initiator,
        &[
            ("a", 100.0 * MIB),
            ("b", 20.0 * MIB),
            ("c", 20.0 * MIB),
            ("d", 20.0 * MIB),
            ("e", 20.0 * MIB),
            ("f", 65.0 * MIB),
            ("g", 1.0),
        ],
    )
    .await;
    let mut received = Vec::new();
    for _ in 0..5 {
        received.push(shop.receive("kitchen").await.join(", "));
    }
    assert_eq!(
        received,
        ["0 Order 0 m1", "0 Note 1 a", "0 Note 2 b, 0 Note 3 c, 0 Note 4 d", "0 Note 5 e", "0 Note 6 f"]
    );
    assert_eq!(shop.receive("kitchen").await, ["0 Note 7 g"]);
    let options = ReceiveOptions { conversation: Some(dialog.target.clone()), ..top_of(3) };
    send(shop, &dialog.initiator, &[("h", 40.0 * MIB), ("i", 40.0 * MIB)]).await;
    assert_eq!(
        show_all(&shop.broker.receive("kitchen", options, None).await.expect("the queue is on")),
        ["0 Note 8 h", "0 Note 9 i"],
        "with `top` exactly so many, whatever their size"
    );
}

async fn a_page_of_a_view_has_4_mib(shop: &Shop) {
    let dialog = shop.order("m1").await;
    send(shop, &dialog.initiator, &[("x", 1.5 * MIB); 8]).await;
    for filter in [
        RowFilter::default(),
        RowFilter { reverse: true, ..RowFilter::default() },
        RowFilter { conversation: Some(dialog.target.clone()), ..RowFilter::default() },
    ] {
        let mut position: Option<Vec<f64>> = None;
        let mut seen = Vec::new();
        loop {
            let page = shop.broker.select("kitchen", &filter, position.as_deref(), Extent::Page).await.expect("a page");
            let rows: Vec<_> = page.rows.iter().flat_map(Rows::messages).collect();
            assert!(rows.len() <= 5, "{} rows at once: {filter:?}", rows.len());
            seen.extend(rows);
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(seen, shop.messages("kitchen", filter).await);
    }
}

/// The run that they are in goes later, with the last of it.
async fn d24_the_end_of_a_lane_takes_the_bodies_of_what_was_received(shop: &Shop) {
    let large = |body: &str| Body { value: Value::from(body).into(), packing: 0, size: 64.0 * KIB };
    let messages = ["0", "1", "2"].map(|body| shop.message_of("DEFAULT", large(body))).into();
    shop.broker.enqueue("kitchen", messages, keyed("a"), None).await.expect("it can be enqueued");
    shop.receive_top("kitchen", 1).await;
    let lane = shop.messages("kitchen", RowFilter::default()).await.remove(0).conversation_handle;
    shop.end(&lane).await;
    assert_eq!((shop.records_in(StoreName::Messages).await, shop.records_in(StoreName::Bodies).await), (1, 2));
    shop.assert_sound().await;
    assert_eq!(shop.receive("kitchen").await, ["0 DEFAULT 0 1", "0 DEFAULT 1 2"]);
    assert_eq!((shop.records_in(StoreName::Messages).await, shop.records_in(StoreName::Bodies).await), (0, 0));
}
