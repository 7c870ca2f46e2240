//! The index `order` of the messages.

use pocket_broker::body::Value;
use pocket_broker::error::{Error, Result};
use pocket_broker::store::{Direction, Key, Mode, Range, Source, Store, StoreName, Tx};

use super::super::support::{Bench, show, transact};

const MESSAGES: StoreName = StoreName::Messages;

/// Runs reads in a transaction of their own.
async fn read<T>(store: &dyn Store, work: impl AsyncFnOnce(&Tx) -> Result<T>) -> T {
    transact(store, &[MESSAGES], Mode::ReadOnly, work).await.expect("the reads work")
}

/// A run of messages as the index sees it.
fn run(service: u32, order: u32, label: &str) -> Value {
    Value::object(vec![("s", service.into()), ("o", order.into()), ("label", label.into())])
}

async fn labels(store: &dyn Store, range: Range, limit: Option<u32>, direction: Direction) -> String {
    let runs = read(store, async |tx| tx.get_range(Source::Order, &range, limit, direction).await).await;
    runs.iter().map(|run| show(&run.field("label"))).collect::<Vec<_>>().join(" ")
}

fn of_service(service: u32) -> Range {
    Range::prefix(vec![service.into()])
}

pub(super) async fn the_index_follows_the_messages(bench: &Bench) {
    let store = bench.connect().await;
    transact(&*store, &[MESSAGES], Mode::ReadWrite, async |tx| {
        tx.put(MESSAGES, 1_u32.into(), run(7, 30, "c"));
        tx.put(MESSAGES, 2_u32.into(), run(7, 10, "a"));
        tx.put(MESSAGES, 3_u32.into(), run(8, 20, "other"));
        tx.put(MESSAGES, 4_u32.into(), Value::object(vec![("o", 15_u32.into())]));
        tx.put(MESSAGES, 5_u32.into(), "not an object".into());
        tx.put(MESSAGES, 6_u32.into(), run(7, 20, "b"));
        let seen = tx.get_range(Source::Order, &of_service(7), None, Direction::Forward).await?;
        assert_eq!(seen.len(), 3, "the index shows the writes before the read");
        Ok(())
    })
    .await
    .expect("the puts commit");
    assert_eq!(labels(&*store, of_service(7), None, Direction::Forward).await, "a b c");
    assert_eq!(labels(&*store, Range::all(), None, Direction::Forward).await, "a b c other");

    transact(&*store, &[MESSAGES], Mode::ReadWrite, async |tx| {
        tx.put(MESSAGES, 2_u32.into(), run(7, 40, "a again"));
        tx.put(MESSAGES, 6_u32.into(), Value::object(vec![("label", "b, not in the index".into())]));
        tx.delete_range(MESSAGES, Range::between(3_u32.into(), 4_u32.into()));
        Ok(())
    })
    .await
    .expect("the changes commit");
    assert_eq!(labels(&*store, Range::all(), None, Direction::Forward).await, "c a again");

    let failed: Result<()> = transact(&*store, &[MESSAGES], Mode::ReadWrite, async |tx| {
        tx.delete_range(MESSAGES, Range::all());
        tx.put(MESSAGES, 9_u32.into(), run(7, 1, "never"));
        tx.count(Source::Order, &Range::all()).await?;
        Err(Error::closed())
    })
    .await;
    assert!(failed.is_err());
    assert_eq!(
        labels(&*store, Range::all(), None, Direction::Forward).await,
        "c a again",
        "a rollback restores the index"
    );
}

pub(super) async fn the_index_reads_backward_and_gives_primary_keys(bench: &Bench) {
    let store = bench.connect().await;
    transact(&*store, &[MESSAGES], Mode::ReadWrite, async |tx| {
        tx.put(MESSAGES, 9_u32.into(), run(7, 10, "a"));
        tx.put(MESSAGES, 8_u32.into(), run(7, 20, "b"));
        // The same index key: primary keys decide.
        tx.put(MESSAGES, 3_u32.into(), run(7, 20, "b0"));
        tx.put(MESSAGES, 1_u32.into(), run(7, 30, "c"));
        Ok(())
    })
    .await
    .expect("the puts commit");
    assert_eq!(labels(&*store, of_service(7), None, Direction::Forward).await, "a b0 b c");
    assert_eq!(labels(&*store, of_service(7), Some(2), Direction::Forward).await, "a b0");
    assert_eq!(labels(&*store, of_service(7), None, Direction::Backward).await, "c b b0 a");
    assert_eq!(labels(&*store, of_service(7), Some(3), Direction::Backward).await, "c b b0");
    let below = Range::up_to(Key::list([7_u32.into(), 0_u32.into()]), Key::list([7_u32.into(), 20_u32.into()]));
    assert_eq!(labels(&*store, below, Some(5), Direction::Backward).await, "a");
    let (keys, count) = read(&*store, async |tx| {
        Ok((tx.get_keys(Source::Order, &of_service(7), Some(3)).await?, tx.count(Source::Order, &of_service(7)).await?))
    })
    .await;
    assert_eq!(keys, [Key::from(9_u32), Key::from(3_u32), Key::from(8_u32)]);
    assert_eq!(count, 4);
}
