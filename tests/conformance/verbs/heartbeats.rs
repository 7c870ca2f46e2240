//! D26: who holds a group for long shows that he is alive, and who does not is robbed. And leases, where the origin has no locks.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::Value;
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Key, Operation, StoreName};
use pocket_broker::{Broker, EndOptions, ReceiveOptions, Transaction};

use super::super::support::host::tick;
use super::super::support::shop::{Shop, begin, receive, refused, show_all};
use super::super::support::{detail, put};

mount! {
    d26_a_long_hold_gives_signs_of_life,
    d26_a_sign_of_life_keeps_the_group,
    d26_of_two_robbers_one_gets_it,
    d26_the_robbed_one_that_has_not_heard_is_refused,
    d26_end_robs_too,
    d26_holders_that_change_are_not_robbed,
}

mount_with_locks! {
    d26_the_last_sign_of_one_who_died_robs_nobody,
    d26_a_short_hold_writes_nothing,
    d26_who_gives_no_sign_is_robbed,
}

const BEAT: f64 = 30_000.0;
const LIFE: f64 = 150_000.0;

/// How many records `meta` has: what is more than before is leases.
async fn meta(shop: &Shop) -> u64 {
    shop.records_in(StoreName::Meta).await
}

/// Time passes, and whoever gives signs of life has given the next one.
async fn beat(shop: &Shop) {
    shop.pulse().until_sleeping().await;
    shop.clock().advance(BEAT);
    shop.pulse().fire();
    // The next sleep begins after the sign was stored.
    shop.pulse().until_sleeping().await;
}

async fn look(broker: &Broker) -> Vec<String> {
    show_all(&broker.receive("kitchen", ReceiveOptions::default(), None).await.expect("the queue is on"))
}

/// So much time passes, and these look in between: who has not looked for so long does not know who had the group meanwhile.
async fn outlive(shop: &Shop, witnesses: &[&Broker]) {
    for _ in 0..2 {
        for witness in witnesses {
            assert_eq!(look(witness).await, [""; 0]);
        }
        shop.clock().advance(LIFE / 2.0);
    }
}

fn watched(transaction: &Transaction) -> Rc<RefCell<Option<String>>> {
    let heard = Rc::new(RefCell::new(None));
    let hears = Rc::clone(&heard);
    transaction.on_lost(move |error| _ = hears.replace(detail(error, "reason")));
    heard
}

async fn d26_a_short_hold_writes_nothing(shop: &Shop) {
    shop.order("m1").await;
    let before = meta(shop).await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    assert_eq!((meta(shop).await, shop.pulse().sleeps()), (before, vec![BEAT]));
    transaction.commit().await.expect("it commits");
    shop.clock().advance(BEAT);
    let commits = shop.faults.calls(Operation::Commit);
    shop.pulse().fire();
    tick().await;
    assert_eq!((meta(shop).await, shop.pulse().sleeping()), (before, 0), "with nothing held the heart stops");
    assert!(shop.faults.calls(Operation::Commit) <= commits + 1, "and costs nothing: only this test has looked");
}

async fn d26_a_long_hold_gives_signs_of_life(shop: &Shop) {
    shop.order("m1").await;
    let before = meta(shop).await;
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    for _ in 0..3 {
        beat(shop).await;
        assert_eq!(meta(shop).await, before + 1);
        assert_eq!(shop.pulse().sleeps(), [BEAT], "less than 60 s apart");
    }
    transaction.commit().await.expect("it is alive");
    while meta(shop).await > before {
        tick().await;
    }
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.locks_held(), 0);
}

async fn d26_who_gives_no_sign_is_robbed(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let other = shop.another_tab().await;
    let wedged = begin(shop);
    let heard = watched(&wedged);
    receive(&wedged, "kitchen").await;
    assert_eq!(look(&other).await, [""; 0], "from here on it has been seen");
    shop.clock().advance(LIFE - 1.0);
    assert_eq!(look(&other).await, [""; 0]);
    shop.clock().advance(1.0);
    let robber = other.begin().expect("the broker is open");
    let waiting = ReceiveOptions { timeout: Some(1.0), ..ReceiveOptions::default() };
    let found = robber.receive("kitchen", waiting).await.expect("it takes it away");
    assert_eq!(show_all(&found), ["0 Order 0 m1"]);
    shop.host_locks().hear();
    assert_eq!(heard.take().as_deref(), Some("robbed"), "its signal aborts");
    refused(wedged.receive("kitchen", ReceiveOptions::default()).await, ErrorCode::TransactionClosed);
    refused(wedged.end_conversation(&dialog.target, EndOptions::default()).await, ErrorCode::TransactionClosed);
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
    robber.commit().await.expect("it has the group");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!(shop.locks_held(), 0);
}

async fn d26_a_sign_of_life_keeps_the_group(shop: &Shop) {
    shop.order("m1").await;
    let other = shop.another_tab().await;
    let slow = begin(shop);
    receive(&slow, "kitchen").await;
    assert_eq!(look(&other).await, [""; 0]);
    for _ in 0..6 {
        beat(shop).await;
        assert_eq!(look(&other).await, [""; 0], "slow, but alive");
    }
    // The last sign was just now: it counts as alive that long.
    shop.clock().advance(LIFE - 1.0);
    assert_eq!(look(&other).await, [""; 0]);
    shop.clock().advance(1.0);
    let waiting = ReceiveOptions { timeout: Some(1.0), ..ReceiveOptions::default() };
    let found = other.receive("kitchen", waiting, None).await.expect("now it is taken away");
    assert_eq!(show_all(&found), ["0 Order 0 m1"]);
    shop.host_locks().hear();
    refused(slow.commit().await, ErrorCode::TransactionClosed);
}

async fn d26_of_two_robbers_one_gets_it(shop: &Shop) {
    shop.order("m1").await;
    let (one, two) = (shop.another_tab().await, shop.another_tab().await);
    let wedged = begin(shop);
    receive(&wedged, "kitchen").await;
    outlive(shop, &[&one, &two]).await;
    let (first, second) = (one.begin().expect("it is open"), two.begin().expect("it is open"));
    let wait = || ReceiveOptions { timeout: Some(1.0), ..ReceiveOptions::default() };
    let both = pin!(join(first.receive("kitchen", wait()), second.receive("kitchen", wait())));
    let (found, other) = shop.timer().wakes(both, async || shop.timer().fire()).await;
    let count = show_all(&found.expect("no error")).len() + show_all(&other.expect("no error")).len();
    assert_eq!(count, 1);
    shop.host_locks().hear();
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
}

/// Its context was frozen: its own call comes before it is told.
async fn d26_the_robbed_one_that_has_not_heard_is_refused(shop: &Shop) {
    shop.order("m1").await;
    let other = shop.another_tab().await;
    let frozen = begin(shop);
    receive(&frozen, "kitchen").await;
    beat(shop).await;
    outlive(shop, &[&other]).await;
    let robber = other.begin().expect("the broker is open");
    let waiting = ReceiveOptions { timeout: Some(1.0), ..ReceiveOptions::default() };
    robber.receive("kitchen", waiting).await.expect("it takes it away");
    let error = refused(frozen.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(
        (detail(&error, "reason").as_deref(), detail(&error, "at").as_deref()),
        (Some("robbed"), Some("commit"))
    );
    robber.rollback();
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    shop.host_locks().hear();
}

/// D25: a verb that finds its group held.
async fn d26_end_robs_too(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let other = shop.another_tab().await;
    let wedged = begin(shop);
    receive(&wedged, "kitchen").await;
    let early = pin!(other.end_conversation(&dialog.target, EndOptions::default()));
    let ended = shop.timer().wakes(early, async || shop.timer().fire()).await;
    refused(ended, ErrorCode::GroupLocked);
    outlive(shop, &[&other]).await;
    other.end_conversation(&dialog.target, EndOptions::default()).await.expect("it need not wait");
    shop.host_locks().hear();
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
}

async fn d26_holders_that_change_are_not_robbed(shop: &Shop) {
    shop.order("m1").await;
    let (other, third) = (shop.another_tab().await, shop.another_tab().await);
    for holder in [&shop.broker, &third, &shop.broker] {
        let holding = holder.begin().expect("the broker is open");
        assert_eq!(
            show_all(&holding.receive("kitchen", ReceiveOptions::default()).await.expect("it is free")).len(),
            1
        );
        assert_eq!(look(&other).await, [""; 0]);
        shop.clock().advance(LIFE - 1.0);
        assert_eq!(look(&other).await, [""; 0]);
        holding.rollback();
    }
    assert_eq!(look(&other).await, ["0 Order 0 m1"]);
}

/// Its lock was free at once, and its lease lives on for a while.
async fn d26_the_last_sign_of_one_who_died_robs_nobody(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let group = shop.info(&dialog.target).await.expect("it is there").conversation_group_id;
    let until: f64 = 1_700_000_000_000.0 + LIFE;
    let last = Value::list(vec![1u32.into(), "another tab".into(), 1u32.into(), until.into()]);
    put(&*shop.store, StoreName::Meta, Key::list(["lease".into(), (&*group).into()]), last)
        .await
        .expect("it can be written");
    let transaction = begin(shop);
    receive(&transaction, "kitchen").await;
    beat(shop).await;
    transaction.commit().await.expect("nobody has taken it away");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}
