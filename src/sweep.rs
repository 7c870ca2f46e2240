//! Sweeping: what can be deleted later is deleted in slices, so that END takes the same time at any size.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::FutureExt;

use crate::body::Value;
use crate::conversation::Side;
use crate::core::Core;
use crate::error::Result;
use crate::ids::SideId;
use crate::map::Map;
use crate::message;
use crate::record::{self, Fields, Read, float};
use crate::store::{Change, Key, Mode, Range, Source, StoreName, Tx};
use crate::work::Work;

/// More runs than this are left to the sweep.
const MANY: u64 = 512;
/// Runs in a slice.
const SLICE: u32 = 128;
/// So many deleted runs are worth a walk over their index entries.
const DEAD: u64 = 64;

/// Index entries of deleted runs, by service: the orders that they span, and how many.
///
/// Chromium keeps the index entries of deleted records until a read-write walk meets them; readers from the front of the index would pay for
/// all of them every time.
#[derive(Debug, Default)]
pub(crate) struct DeadEntries {
    spans: std::cell::RefCell<Map<u32, (u64, u64)>>,
    count: Cell<u64>,
    sweeping: Cell<bool>,
}

fn key(side: SideId) -> Key {
    Key::list(["sweep".into(), float(side.number()).into()])
}

/// Leaves the runs of a side that has ENDed to the sweep. Nobody sees them: the side is gone.
fn later(work: &mut Work<'_>, id: SideId, side: &Side) {
    let record = vec![
        Value::from(1u32),
        record::value(id.number()),
        Value::from(side.service),
        record::value(side.first_order),
        record::value(side.last_order),
    ];
    work.write(Change::Put(StoreName::Meta, key(id), Value::list(record)));
    work.core.dead.count.set(work.core.dead.count.get().saturating_add(DEAD));
}

/// The runs of a side that nobody needs any more: now, or later if there are many.
pub(crate) fn remove(work: &mut Work<'_>, id: SideId, side: &Side) {
    if side.runs > MANY {
        later(work, id, side);
    } else if side.runs > 0 {
        work.write(Change::DeleteRange(StoreName::Messages, message::keys_of(id)));
        if side.has_bodies {
            work.write(Change::DeleteRange(StoreName::Bodies, message::keys_of(id)));
        }
        note(work, side.service, side.first_order, side.last_order, side.runs);
    }
}

/// Notes the index entries of runs that are deleted.
pub(crate) fn note(work: &Work<'_>, service: u32, first_order: u64, last_order: u64, runs: u64) {
    if work.is_view() {
        return;
    }
    let dead = &work.core.dead;
    dead.count.set(dead.count.get().saturating_add(runs));
    let mut spans = dead.spans.borrow_mut();
    let (first, last) = spans.get(&service).copied().unwrap_or((first_order, last_order));
    spans.insert(service, (first.min(first_order), last.max(last_order)));
}

/// After a commit: sweeps when there is enough to sweep.
pub(crate) fn after_commit(core: &Rc<Core>) {
    if core.dead.count.get() >= DEAD {
        resume(core);
    }
}

/// Sweeps beside whatever else goes on.
pub(crate) fn resume(core: &Rc<Core>) {
    if core.dead.sweeping.replace(true) {
        return;
    }
    let core = Rc::clone(core);
    let sweep = {
        let core = Rc::clone(&core);
        async move {
            // What fails is left for the next time: nobody waits for it.
            let _ = sweep(&core).await;
            core.dead.sweeping.set(false);
        }
    };
    (core.host.spawn)(sweep.boxed_local());
}

async fn sweep(core: &Core) -> Result<()> {
    core.dead.count.set(0);
    while !core.closed.get()
        && core
            .transact(&[StoreName::Meta, StoreName::Messages, StoreName::Bodies], Mode::ReadWrite, sweep_slice)
            .await?
    {}
    let spans = core.dead.spans.take();
    if spans.is_empty() || core.closed.get() {
        return Ok(());
    }
    core.transact(&[StoreName::Messages], Mode::ReadWrite, async |tx| {
        for (service, (first, last)) in spans.iter() {
            walk(tx, *service, *first, *last).await?;
        }
        Ok(())
    })
    .await
}

/// Deletes one slice of one side that has ended; false when there is none.
async fn sweep_slice(tx: &Tx) -> Result<bool> {
    let range = Range::prefix(vec!["sweep".into()]);
    let Some(record) = tx.first(StoreName::Meta, &range).await? else { return Ok(false) };
    let read = |record: &Value| -> Read<(SideId, u32, u64, u64)> {
        let mut fields = Fields::open(record)?;
        Ok((SideId::from_number(fields.number()?), fields.small()?, fields.number()?, fields.number()?))
    };
    let (side, service, first, last) = read(&record).map_err(|problem| problem.at(StoreName::Meta, &"sweep".into()))?;
    let keys = tx.get_keys(StoreName::Messages, &message::keys_of(side), Some(SLICE)).await?;
    match (keys.first(), keys.last()) {
        (Some(from), Some(to)) => {
            let range = Range::between(from.clone(), to.clone());
            tx.delete_range(StoreName::Bodies, range.clone());
            tx.delete_range(StoreName::Messages, range);
        }
        _ => {
            tx.delete_range(StoreName::Bodies, message::keys_of(side));
            tx.delete(StoreName::Meta, key(side));
            walk(tx, service, first, last).await?;
        }
    }
    Ok(true)
}

async fn walk(tx: &Tx, service: u32, first: u64, last: u64) -> Result<()> {
    let order = |order: u64| Key::list([service.into(), float(order).into()]);
    tx.count(Source::Order, &Range::between(order(first), order(last))).await.map(drop)
}
