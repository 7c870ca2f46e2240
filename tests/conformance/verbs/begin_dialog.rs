//! BEGIN DIALOG.

use super::super::support::shop::Shop;

mount! {
    b10_a_dialog_begins_in_so_and_nobody_is_contacted,
}

async fn b10_a_dialog_begins_in_so_and_nobody_is_contacted(shop: &Shop) {
    let begun = shop.begin().await;
    assert_eq!(shop.state(&begun.handle).await, "SO");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.endpoints(Default::default()).await.len(), 1);
}
