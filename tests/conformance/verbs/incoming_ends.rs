//! How conversations with other brokers end.

use super::super::support::far::{Far, deliver_one};
use super::super::support::shop::Shop;

mount! {
    b79_a_finished_target_is_remembered,
}

async fn b79_a_finished_target_is_remembered(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let first = far.message(0, "Order", "soup");
    deliver_one(shop, first.clone()).await;
    assert_eq!(deliver_one(shop, far.end_dialog(1)).await, "stored, 1");
    assert_eq!(far.state(shop).await, "DI");
    let handle = far.handle(shop).await;
    shop.end(&handle).await;
    assert_eq!(shop.state(&handle).await, "CD");
    assert_eq!(shop.outside().await, [""; 0]);
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    assert_eq!(shop.dropped(), ["the far side has ended the conversation"]);
    shop.pass(1_800_000.0).await;
    assert_eq!(shop.state(&handle).await, "");
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    shop.pass(29.9 * 86_400_000.0).await;
    assert_eq!(deliver_one(shop, first.clone()).await, "repeated, 0");
    shop.pass(86_400_000.0).await;
    assert_eq!(deliver_one(shop, first).await, "stored, 0", "after 30 days nobody knows");
}
