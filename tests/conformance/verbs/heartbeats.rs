//! D26: who holds a group for long shows that he is alive, and who does not is robbed. And leases, where the origin has no locks.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::join;
use pocket_broker::body::{Body, Value};
use pocket_broker::error::ErrorCode;
use pocket_broker::store::{Key, Mode, Operation, Range, StoreName};
use pocket_broker::{Broker, EndOptions, ReceiveOptions, Transaction};

use super::super::support::host::{ManualTimer, tick};
use super::super::support::shop::{Shop, begin, receive, refused, show_all};
use super::super::support::{detail, put, transact};

mount! {
    d26_a_long_hold_gives_signs_of_life,
    d26_who_waits_with_a_group_gives_signs_of_life,
}

mount_with_locks! {
    d26_a_short_hold_writes_nothing,
    d26_who_gives_no_sign_is_robbed,
    d26_a_sign_of_life_keeps_the_group,
    d26_of_two_robbers_one_gets_it,
    d26_the_robbed_one_that_has_not_heard_is_refused,
    d26_who_was_wedged_before_his_first_sign_is_refused,
    d26_who_lets_go_and_takes_again_is_not_robbed,
    d26_a_reader_with_other_work_frees_a_group_too,
    d26_a_verb_that_finds_its_group_held_besieges_it,
    d26_sieges_end_with_the_broker,
    d26_who_got_the_group_besieges_it_no_more,
    d26_the_last_sign_of_one_who_died_robs_nobody,
    d26_a_late_sign_is_no_robbery,
    d26_sieges_end_with_the_connection,
    d26_who_slept_while_it_asked_for_a_group_has_held_it_for_a_moment,
}

const BEAT: f64 = 30_000.0;
const LIFE: f64 = 150_000.0;

/// How many records `meta` has: what is more than before is leases.
async fn meta(shop: &Shop) -> u64 {
    shop.records_in(StoreName::Meta).await
}

/// Whether there is a lease.
async fn leases(shop: &Shop) -> bool {
    let range = Range::prefix(vec!["lease".into()]);
    let leases =
        transact(&*shop.store, &[StoreName::Meta], Mode::ReadOnly, async |tx| tx.count(StoreName::Meta, &range).await);
    leases.await.expect("the store can be read") > 0
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

/// A tab has met a group in others' hands: it waits a while before it takes notice, and then for as long as a holder may be silent.
async fn besiege(shop: &Shop, pulse: &ManualTimer) {
    pulse.until_sleeping().await;
    assert_eq!(pulse.sleeps(), [BEAT]);
    shop.clock().advance(BEAT);
    pulse.fire();
    pulse.until_sleeping().await;
    assert_eq!(pulse.sleeps(), [LIFE]);
}

/// That time passes.
fn outlast(shop: &Shop, pulse: &ManualTimer) {
    shop.clock().advance(LIFE);
    pulse.fire();
}

/// What another tab receives, once there is something.
async fn get(broker: &Broker) -> Vec<String> {
    loop {
        let found = look(broker).await;
        if !found.is_empty() {
            return found;
        }
        tick().await;
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
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1, "it has the group");
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
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1, "it has the group");
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

/// The call that got the group goes on for as long as it waits.
async fn d26_who_waits_with_a_group_gives_signs_of_life(shop: &Shop) {
    let dialog = shop.order("m1").await;
    assert_eq!(shop.receive("kitchen").await.len(), 1, "nothing is left");
    let transaction = begin(shop);
    let named = ReceiveOptions {
        conversation: Some(Rc::clone(&dialog.target)),
        timeout: Some(f64::INFINITY),
        ..ReceiveOptions::default()
    };
    let found = shop.timer().wakes(transaction.receive("kitchen", named), async || {
        for _ in 0..20 {
            tick().await;
        }
        assert_eq!(shop.pulse().sleeps(), [BEAT], "its heart beats");
        for _ in 0..6 {
            beat(shop).await;
        }
        assert!(leases(shop).await, "others see that it is alive");
        shop.send(&dialog.initiator, "Note", "m2").await;
    });
    assert_eq!(show_all(&found.await.expect("it comes")), ["0 Note 1 m2"]);
    transaction.commit().await.expect("nobody has taken the group away");
    while leases(shop).await {
        tick().await;
    }
    assert_eq!(shop.locks_held(), 0);
}

async fn d26_who_gives_no_sign_is_robbed(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let wedged = begin(shop);
    let heard = watched(&wedged);
    assert_eq!(receive(&wedged, "kitchen").await.len(), 1, "it has the group");
    let forever = ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() };
    let waiting = other.receive("kitchen", forever, None);
    let robbing = async {
        besiege(shop, &pulse).await;
        outlast(shop, &pulse);
    };
    let (found, ()) = join(waiting, robbing).await;
    assert_eq!(
        show_all(&found.expect("it waits until it has it")),
        ["0 Order 0 m1"],
        "it did not wait for its next look"
    );
    shop.host_locks().hear();
    assert_eq!(heard.take().as_deref(), Some("robbed"), "its signal aborts");
    refused(wedged.receive("kitchen", ReceiveOptions::default()).await, ErrorCode::TransactionClosed);
    refused(wedged.end_conversation(&dialog.target, EndOptions::default()).await, ErrorCode::TransactionClosed);
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
    assert_eq!((shop.locks_held(), pulse.sleeping()), (0, 0));
}

async fn d26_a_sign_of_life_keeps_the_group(shop: &Shop) {
    shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let slow = begin(shop);
    assert_eq!(receive(&slow, "kitchen").await.len(), 1, "it has the group");
    assert_eq!(look(&other).await, [""; 0]);
    besiege(shop, &pulse).await;
    for _ in 0..5 {
        beat(shop).await;
    }
    pulse.fire();
    pulse.until_sleeping().await;
    assert_eq!(pulse.sleeps(), [LIFE], "the last sign was just now: so long it counts as alive");
    assert_eq!(look(&other).await, [""; 0]);
    outlast(shop, &pulse);
    assert_eq!(get(&other).await, ["0 Order 0 m1"]);
    shop.host_locks().hear();
    refused(slow.commit().await, ErrorCode::TransactionClosed);
}

async fn d26_of_two_robbers_one_gets_it(shop: &Shop) {
    shop.order("m1").await;
    let ((one, first), (two, second)) = (shop.another_tab_with_pulse().await, shop.another_tab_with_pulse().await);
    let wedged = begin(shop);
    assert_eq!(receive(&wedged, "kitchen").await.len(), 1, "it has the group");
    assert_eq!((look(&one).await, look(&two).await), (vec![], vec![]));
    first.until_sleeping().await;
    second.until_sleeping().await;
    shop.clock().advance(BEAT);
    [&first, &second].into_iter().for_each(|pulse| pulse.fire());
    first.until_sleeping().await;
    second.until_sleeping().await;
    shop.clock().advance(LIFE);
    [&first, &second].into_iter().for_each(|pulse| pulse.fire());
    assert_eq!(get(&one).await, ["0 Order 0 m1"]);
    assert_eq!(look(&two).await, [""; 0]);
    shop.host_locks().hear();
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
}

/// Its context was frozen: its own call comes before it is told.
async fn d26_the_robbed_one_that_has_not_heard_is_refused(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let frozen = begin(shop);
    assert_eq!(receive(&frozen, "kitchen").await.len(), 1, "it has the group");
    beat(shop).await;
    assert_eq!(look(&other).await, [""; 0]);
    besiege(shop, &pulse).await;
    outlast(shop, &pulse);
    let robber = other.begin().expect("the broker is open");
    while robber.receive("kitchen", ReceiveOptions::default()).await.expect("the queue is on").is_empty() {
        tick().await;
    }
    frozen.set_group_state(&dialog.target, Body::small("stale".into())).await.expect("it believes to have the group");
    let error = refused(frozen.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(
        (detail(&error, "reason").as_deref(), detail(&error, "at").as_deref()),
        (Some("robbed"), Some("commit"))
    );
    robber.rollback();
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1"]);
    shop.host_locks().hear();
}

/// He has no lease to lose, and wakes before he hears of it.
async fn d26_who_was_wedged_before_his_first_sign_is_refused(shop: &Shop) {
    shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let (wedged, late) = (begin(shop), begin(shop));
    assert_eq!(receive(&wedged, "kitchen").await.len(), 1, "it has the group");
    shop.order("m2").await;
    assert_eq!(receive(&late, "kitchen").await.len(), 1, "it has the group");
    assert_eq!(look(&other).await, [""; 0]);
    besiege_both(shop, &pulse).await;
    outlast(shop, &pulse);
    assert_eq!(get(&other).await, ["0 Order 0 m1"]);
    // His overdue sign comes first: it takes nothing away from anybody.
    shop.pulse().fire();
    while late.is_open() {
        tick().await;
    }
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
    refused(late.commit().await, ErrorCode::TransactionClosed);
    assert_eq!(get(&other).await, ["0 Order 0 m2"]);
    shop.host_locks().hear();
}

/// Two groups at once.
async fn besiege_both(shop: &Shop, pulse: &ManualTimer) {
    for length in [BEAT, LIFE] {
        while pulse.sleeps() != [length, length] {
            tick().await;
        }
        if length == BEAT {
            shop.clock().advance(BEAT);
            pulse.fire();
        }
    }
}

/// Every look meets the same tab, and each time it has the group anew.
async fn d26_who_lets_go_and_takes_again_is_not_robbed(shop: &Shop) {
    shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    for _ in 0..3 {
        let holding = begin(shop);
        assert_eq!(receive(&holding, "kitchen").await.len(), 1, "it has the group");
        assert_eq!(look(&other).await, [""; 0]);
        besiege(shop, &pulse).await;
        holding.rollback();
        while shop.locks_held() > 0 {
            tick().await;
        }
    }
    let last = begin(shop);
    assert_eq!(receive(&last, "kitchen").await.len(), 1, "it has the group");
    assert_eq!(pulse.sleeping(), 0, "each siege ended with the holding that it was of");
    assert_eq!(look(&other).await, [""; 0]);
    last.commit().await.expect("nobody has robbed it");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

async fn d26_a_reader_with_other_work_frees_a_group_too(shop: &Shop) {
    shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let wedged = begin(shop);
    assert_eq!(receive(&wedged, "kitchen").await.len(), 1, "it has the group");
    shop.order("m2").await;
    assert_eq!(look(&other).await, ["0 Order 0 m2"], "it never finds nothing");
    besiege(shop, &pulse).await;
    outlast(shop, &pulse);
    assert_eq!(get(&other).await, ["0 Order 0 m1"]);
    shop.host_locks().hear();
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
}

/// D25.
async fn d26_a_verb_that_finds_its_group_held_besieges_it(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let wedged = begin(shop);
    assert_eq!(receive(&wedged, "kitchen").await.len(), 1, "it has the group");
    let early = pin!(other.end_conversation(&dialog.target, EndOptions::default()));
    let ended = shop.timer().wakes(early, async || shop.timer().fire()).await;
    refused(ended, ErrorCode::GroupLocked);
    besiege(shop, &pulse).await;
    outlast(shop, &pulse);
    other.end_conversation(&dialog.target, EndOptions::default()).await.expect("it is free, or will be in a moment");
    shop.host_locks().hear();
    refused(wedged.commit().await, ErrorCode::TransactionClosed);
}

/// Its own wait got the group while it watched the holder before it.
async fn d26_who_got_the_group_besieges_it_no_more(shop: &Shop) {
    shop.order("m1").await;
    let (other, next) = (shop.another_tab().await, begin(shop));
    let first = other.begin().expect("the broker is open");
    first.receive("kitchen", ReceiveOptions::default()).await.expect("it has the group");
    let forever = ReceiveOptions { timeout: Some(f64::INFINITY), ..ReceiveOptions::default() };
    let waiting = shop.timer().wakes(next.receive("kitchen", forever), async || {
        shop.pulse().until_sleeping().await;
        assert_eq!(shop.pulse().sleeps(), [BEAT], "it takes notice of the holder");
        first.rollback();
    });
    assert_eq!(show_all(&waiting.await.expect("it is free")), ["0 Order 0 m1"]);
    for _ in 0..8 {
        beat(shop).await;
        assert_eq!(shop.pulse().sleeps(), [BEAT], "the siege is over: only its own heart beats");
    }
    shop.host_locks().hear();
    next.commit().await.expect("nobody has robbed it, least of all itself");
    assert_eq!((shop.rows("kitchen").await, shop.locks_held()), (vec![], 0));
}

async fn d26_sieges_end_with_the_broker(shop: &Shop) {
    shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let holding = begin(shop);
    assert_eq!(receive(&holding, "kitchen").await.len(), 1, "it has the group");
    assert_eq!(look(&other).await, [""; 0]);
    besiege(shop, &pulse).await;
    other.close().await;
    while pulse.sleeping() > 0 {
        tick().await;
    }
    holding.commit().await.expect("it commits");
    assert_eq!(shop.locks_held(), 0);
}

/// The last broker of the page is closed; the one that keeps the connection is never.
async fn d26_sieges_end_with_the_connection(shop: &Shop) {
    shop.order("m1").await;
    let (root, pulse) = shop.another_tab_with_pulse().await;
    let last = root.another();
    let holding = begin(shop);
    assert_eq!(receive(&holding, "kitchen").await.len(), 1, "it has the group");
    assert_eq!(look(&last).await, [""; 0]);
    besiege(shop, &pulse).await;
    last.close().await;
    root.abandon();
    for _ in 0..20 {
        tick().await;
    }
    assert_eq!(pulse.sleeping(), 0);
    holding.commit().await.expect("it commits");
    assert_eq!(shop.locks_held(), 0);
}

/// The machine slept. Another tab clears away the leases of the dead first.
async fn d26_a_late_sign_is_no_robbery(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let (other, pulse) = shop.another_tab_with_pulse().await;
    let late = begin(shop);
    assert_eq!(receive(&late, "kitchen").await.len(), 1, "it has the group");
    shop.send(&dialog.target, "Confirm", "r1").await;
    let beside = other.begin().expect("the broker is open");
    assert_eq!(beside.receive("counter", ReceiveOptions::default()).await.expect("it is free").len(), 1);
    beat(shop).await;
    pulse.fire();
    pulse.until_sleeping().await;
    shop.clock().advance(LIFE);
    for heart in [&*pulse, shop.pulse(), &*pulse, shop.pulse()] {
        heart.fire();
        for _ in 0..20 {
            tick().await;
        }
    }
    late.commit().await.expect("nobody has taken the group over");
    beside.commit().await.expect("nor that one");
    while leases(shop).await {
        tick().await;
    }
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
    assert_eq!(receive(&transaction, "kitchen").await.len(), 1, "it has the group");
    beat(shop).await;
    transaction.commit().await.expect("nobody has taken it away");
    assert_eq!(shop.rows("kitchen").await, [""; 0]);
}

/// Its lock came when the page was back: nobody has waited for it for so long, and nobody can have taken it.
async fn d26_who_slept_while_it_asked_for_a_group_has_held_it_for_a_moment(shop: &Shop) {
    for body in ["m1", "m2"] {
        shop.order(body).await;
    }
    // From here on it is known whose turn comes next, so the lock is asked for before the storage.
    assert_eq!(look(&shop.broker).await, ["0 Order 0 m1"]);
    shop.broker.suspend();
    let transaction = begin(shop);
    let sleeping = async {
        for _ in 0..20 {
            tick().await;
        }
        shop.clock().advance(BEAT + LIFE);
        shop.broker.restore();
    };
    let (received, ()) = join(receive(&transaction, "kitchen"), sleeping).await;
    assert_eq!(received, ["0 Order 0 m2"]);
    transaction.commit().await.expect("nobody has robbed it");
    assert_eq!((shop.rows("kitchen").await, shop.locks_held()), (vec![], 0));
}
