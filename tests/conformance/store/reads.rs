//! Keys, ranges, limits.

use pocket_broker::body::Value;
use pocket_broker::error::Result;
use pocket_broker::store::{Bound, Direction, Key, Mode, Range, Store, StoreName, Tx};

use super::super::support::{Bench, get, put, show, transact};

const QUEUES: StoreName = StoreName::Queues;

/// Runs reads in a transaction of their own.
async fn read<T>(store: &dyn Store, work: impl AsyncFnOnce(&Tx) -> Result<T>) -> T {
    transact(store, &[QUEUES], Mode::ReadOnly, work).await.expect("the reads work")
}

/// Puts values under keys, each value showing its key.
async fn fill(store: &dyn Store, keys: &[Key]) {
    transact(store, &[QUEUES], Mode::ReadWrite, async |tx| {
        for key in keys {
            tx.put(QUEUES, key.clone(), Value::from(format!("{key:?}").as_str()));
        }
        Ok(())
    })
    .await
    .expect("the puts commit");
}

async fn numbers(store: &dyn Store, range: Range, limit: Option<u32>, direction: Direction) -> Vec<String> {
    read(store, async |tx| tx.get_range(QUEUES, &range, limit, direction).await).await.iter().map(show).collect()
}

async fn fill_numbers(store: &dyn Store) {
    transact(store, &[QUEUES], Mode::ReadWrite, async |tx| {
        for number in 1..=5_u32 {
            tx.put(QUEUES, number.into(), number.into());
        }
        Ok(())
    })
    .await
    .expect("the puts commit");
}

pub(super) async fn a_missing_key_is_none(bench: &Bench) {
    let store = bench.connect().await;
    assert_eq!(get(&*store, QUEUES, 1_u32).await, None);
    put(&*store, QUEUES, 1_u32, "one").await.expect("the put commits");
    assert_eq!(get(&*store, QUEUES, 1_u32).await.as_deref(), Some("one"));
    assert_eq!(get(&*store, QUEUES, "1").await, None, "a text is not a number");
}

pub(super) async fn reads_see_the_writes_before_them(bench: &Bench) {
    let store = bench.connect().await;
    transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.put(QUEUES, 1_u32.into(), "old".into());
        tx.put(QUEUES, 1_u32.into(), "new".into());
        assert_eq!(tx.get(QUEUES, &1_u32.into()).await?.and_then(|value| value.text()).as_deref(), Some("new"));
        assert_eq!(tx.count(QUEUES, &Range::all()).await?, 1);
        tx.delete(QUEUES, 1_u32.into());
        assert!(tx.get(QUEUES, &1_u32.into()).await?.is_none());
        tx.put(QUEUES, 2_u32.into(), "two".into());
        assert_eq!(tx.get_keys(QUEUES, &Range::all(), None).await?, [Key::from(2_u32)]);
        Ok(())
    })
    .await
    .expect("the transaction commits");
    assert_eq!(get(&*store, QUEUES, 2_u32).await.as_deref(), Some("two"));
}

/// D22.
pub(super) async fn keys_sort_as_in_indexed_db(bench: &Bench) {
    let store = bench.connect().await;
    let sorted = [
        Key::from(f64::NEG_INFINITY),
        Key::from(-1.5),
        Key::from(0.0),
        Key::from(2.0),
        Key::from(10.0),
        Key::from(f64::INFINITY),
        Key::from(""),
        Key::from("10"),
        Key::from("2"),
        Key::from("a"),
        Key::from("a\0"),
        Key::from("b"),
        // UTF-16, as JavaScript compares: the surrogates of an emoji come before U+FFFD. UTF-8 says the opposite.
        Key::from("😀"),
        Key::from("\u{FFFD}"),
        Key::list([]),
        Key::list([1_u32.into()]),
        Key::list([1_u32.into(), "x".into()]),
        Key::list([2_u32.into()]),
        Key::list(["x".into()]),
        Key::list([Key::list([])]),
    ];
    let mut mixed = sorted.to_vec();
    mixed.reverse();
    mixed.swap(3, 11);
    fill(&*store, &mixed).await;
    let found = read(&*store, async |tx| tx.get_keys(QUEUES, &Range::all(), None).await).await;
    assert_eq!(found, sorted);
    assert!(sorted.is_sorted(), "our own order agrees");
    let values = numbers(&*store, Range::all(), None, Direction::Forward).await;
    assert_eq!(values, sorted.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>());
    // The two zeros are one key.
    assert!(get(&*store, QUEUES, -0.0).await.is_some());
}

pub(super) async fn a_range_has_bounds(bench: &Bench) {
    let store = bench.connect().await;
    fill_numbers(&*store).await;
    let bound = |lower, upper| Range { lower, upper };
    let (two, four) = (Key::from(2_u32), Key::from(4_u32));
    for (range, expected) in [
        (Range::all(), "1 2 3 4 5"),
        (Range::between(two.clone(), four.clone()), "2 3 4"),
        (Range::up_to(two.clone(), four.clone()), "2 3"),
        (bound(Bound::Excluding(two.clone()), Bound::Including(four.clone())), "3 4"),
        (bound(Bound::Excluding(two.clone()), Bound::Excluding(four.clone())), "3"),
        (bound(Bound::Excluding(two.clone()), Bound::Open), "3 4 5"),
        (bound(Bound::Including(two.clone()), Bound::Open), "2 3 4 5"),
        (bound(Bound::Open, Bound::Including(four.clone())), "1 2 3 4"),
        (bound(Bound::Open, Bound::Excluding(four.clone())), "1 2 3"),
        (Range::between(two.clone(), two.clone()), "2"),
        (Range::between(6_u32.into(), 9_u32.into()), ""),
    ] {
        assert_eq!(numbers(&*store, range.clone(), None, Direction::Forward).await.join(" "), expected, "{range:?}");
        let count = read(&*store, async |tx| tx.count(QUEUES, &range).await).await;
        assert_eq!(usize::try_from(count), Ok(expected.split_whitespace().count()), "{range:?}");
    }

    let inside = [
        Key::list(["g".into()]),
        Key::list(["g".into(), 1_u32.into()]),
        Key::list(["g".into(), "z".into(), 9_u32.into()]),
    ];
    fill(&*store, &inside).await;
    fill(&*store, &[Key::list(["f".into(), 1_u32.into()]), Key::list(["ga".into()]), Key::list(["h".into()])]).await;
    let found = read(&*store, async |tx| tx.get_keys(QUEUES, &Range::prefix(vec!["g".into()]), None).await).await;
    assert_eq!(found, inside);
}

pub(super) async fn a_range_can_be_read_backward(bench: &Bench) {
    let store = bench.connect().await;
    fill_numbers(&*store).await;
    let range = Range::up_to(2_u32.into(), 5_u32.into());
    for (limit, expected) in [(None, "4 3 2"), (Some(1), "4"), (Some(2), "4 3"), (Some(3), "4 3 2"), (Some(9), "4 3 2")]
    {
        assert_eq!(numbers(&*store, range.clone(), limit, Direction::Backward).await.join(" "), expected);
    }
    assert_eq!(numbers(&*store, Range::all(), Some(2), Direction::Backward).await.join(" "), "5 4");
    let two_at_once = read(&*store, async |tx| {
        let last = tx.get_range(QUEUES, &range, Some(3), Direction::Backward);
        let first = tx.first(QUEUES, &range);
        futures_util::future::try_join(last, first).await
    });
    let (last, first) = two_at_once.await;
    assert_eq!(last.iter().map(show).collect::<Vec<_>>().join(" "), "4 3 2");
    assert_eq!(first.as_ref().map(show).as_deref(), Some("2"));
}

pub(super) async fn a_limit_limits(bench: &Bench) {
    let store = bench.connect().await;
    fill_numbers(&*store).await;
    for (limit, expected) in [(0, ""), (1, "1"), (4, "1 2 3 4"), (5, "1 2 3 4 5"), (u32::MAX, "1 2 3 4 5")] {
        let forward = numbers(&*store, Range::all(), Some(limit), Direction::Forward).await;
        assert_eq!(forward.join(" "), expected);
        let keys = read(&*store, async |tx| tx.get_keys(QUEUES, &Range::all(), Some(limit)).await).await;
        assert_eq!(keys.len(), forward.len());
    }
    assert!(numbers(&*store, Range::all(), Some(0), Direction::Backward).await.is_empty());
}

pub(super) async fn an_empty_range_holds_nothing(bench: &Bench) {
    let store = bench.connect().await;
    fill_numbers(&*store).await;
    let (two, four) = (Key::from(2_u32), Key::from(4_u32));
    let same = Bound::Excluding(two.clone());
    for range in [
        Range::between(four.clone(), two.clone()),
        Range::up_to(two.clone(), two.clone()),
        Range { lower: same.clone(), upper: same },
        Range { lower: Bound::Excluding(two.clone()), upper: Bound::Including(two.clone()) },
    ] {
        transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
            assert!(tx.get_range(QUEUES, &range, None, Direction::Forward).await?.is_empty());
            assert!(tx.get_range(QUEUES, &range, Some(1), Direction::Backward).await?.is_empty());
            assert!(tx.get_keys(QUEUES, &range, None).await?.is_empty());
            assert_eq!(tx.count(QUEUES, &range).await?, 0);
            tx.delete_range(QUEUES, range);
            assert_eq!(tx.count(QUEUES, &Range::all()).await?, 5);
            Ok(())
        })
        .await
        .expect("an empty range is no error");
    }
}

pub(super) async fn deletes_remove_what_they_name(bench: &Bench) {
    let store = bench.connect().await;
    fill_numbers(&*store).await;
    transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.delete(QUEUES, 9_u32.into());
        tx.delete(QUEUES, 1_u32.into());
        tx.delete_range(QUEUES, Range::up_to(3_u32.into(), 5_u32.into()));
        Ok(())
    })
    .await
    .expect("the deletes commit");
    assert_eq!(numbers(&*store, Range::all(), None, Direction::Forward).await.join(" "), "2 5");
    transact(&*store, &[QUEUES], Mode::ReadWrite, async |tx| {
        tx.delete_range(QUEUES, Range::all());
        Ok(())
    })
    .await
    .expect("the delete commits");
    assert!(numbers(&*store, Range::all(), None, Direction::Forward).await.is_empty());
}

/// Natively a value can't be changed, so there is nothing to see but equality.
pub(super) async fn values_are_copies(bench: &Bench) {
    let store = bench.connect().await;
    let given = Value::object(vec![("list", Value::list(vec![1_u32.into(), "two".into(), Value::null()]))]);
    put(&*store, QUEUES, 1_u32, given.clone()).await.expect("the put commits");
    change(&given);
    let first = read(&*store, async |tx| tx.get(QUEUES, &1_u32.into()).await).await.expect("it is there");
    change(&first);
    let second = read(&*store, async |tx| tx.get(QUEUES, &1_u32.into()).await).await.expect("it is there");
    let list = second.field("list");
    assert_eq!(list.len(), 3);
    assert_eq!((list.item(0).number(), list.item(1).text().as_deref()), (Some(1.0), Some("two")));
    assert!(list.item(2).is_null());
}

#[cfg(target_arch = "wasm32")]
fn change(value: &Value) {
    use wasm_bindgen::JsCast;
    value.field("list").0.unchecked_into::<js_sys::Array>().set_length(0);
}

#[cfg(not(target_arch = "wasm32"))]
fn change(_: &Value) {}
