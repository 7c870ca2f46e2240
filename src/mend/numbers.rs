//! The numbers that are given once, and the count of delayed messages beside them. Which ones were given, whatever has one tells; what is gone may have had higher ones, and other contexts may have
//! claimed some that nothing has yet. So the next are far above the highest that are found.

use super::number;
use crate::definitions::FIRST_QUEUE;
use crate::delayed::{all_messages, count_messages, custom};
use crate::due::Due;
use crate::message::{Run, count};
use crate::queue::Queue;
use crate::reads::Request;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, Direction, Key, Range, Source, StoreName};
use crate::work::{Numbers, Work};

/// How far above: of each kind far more than can have been given and be gone, and few beside those that there can be.
const CONVERSATIONS: u64 = 1 << 24;
const ORDERS: u64 = 1 << 32;
const DEFINITIONS: u64 = 1 << 16;
const STAMPS: u64 = 1 << 32;

pub(super) fn mend(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    if *key != Numbers::key() {
        return Ok(false);
    }
    match Numbers::read(work.get(StoreName::Meta, key.clone())?.as_ref()) {
        Ok(_) => return Ok(true),
        Err(error) if error.is_corrupt() => {}
        Err(error) => return Err(error.into()),
    }
    if !work.is_fresh {
        return Err(Stop::Stale);
    }
    let conversation = work.get_keys(StoreName::Conversations, Range::all(), None)?.last().and_then(Key::from_value);
    let conversation = conversation.as_ref().and_then(number).unwrap_or_default();
    let of_rows = last_run(work, Source::Store(StoreName::Messages), Range::all())?.map(|run| run.side.conversation);

    let queues: Vec<Queue> = work
        .get_range(StoreName::Queues, Range::all(), None)?
        .iter()
        .filter_map(|record| Queue::from_record(FIRST_QUEUE, record).ok())
        .collect();
    let services: Vec<u32> = work.catalog.services.values().map(|service| service.number).collect();
    let mut order = queues.iter().map(|queue| queue.end_of_orders).max().unwrap_or_default();
    for service in &services {
        let last = last_run(work, Source::Order, Range::prefix(vec![(*service).into()]))?;
        order = order.max(last.map_or(0, |run| run.last_order()));
    }

    let due =
        work.get_keys(StoreName::Due, Range::all(), None)?.iter().filter_map(Due::read).map(|due| due.stamp).max();
    let stamp = queues.iter().map(|queue| queue.stamp).chain(due).max().unwrap_or_default();
    let of_queues = queues.iter().map(|queue| queue.number);
    let queue = work.catalog.queues.values().map(|queue| queue.number).chain(of_queues).max().unwrap_or_default();
    let counted = queues.iter().flat_map(|queue| queue.services.keys()).copied();
    let service = services.iter().copied().chain(counted).max().unwrap_or_default();

    let stamp = stamp.max(work.catalog.stamp);
    let in_hop = work.get_keys(StoreName::Delayed, custom::rows(), None)?.to_vec();
    let hop_stamps = in_hop.iter().filter_map(|key| number(&Key::from_value(&key.item(1))?)).max();
    let (in_hop, stamp) = (count(in_hop.len()), stamp.max(hop_stamps.unwrap_or_default()));
    let delayed = work.get_keys(StoreName::Delayed, all_messages(), None)?;
    let stamps = delayed.iter().filter_map(|key| number(&Key::from_value(&key.item(1))?));
    let (delayed, stamp) = (count_messages(delayed) + in_hop, stamps.fold(stamp, u64::max));
    let next = [
        conversation.max(of_rows.unwrap_or_default()) + CONVERSATIONS,
        order + ORDERS,
        u64::from(queue) + DEFINITIONS,
        u64::from(service) + DEFINITIONS,
        stamp + STAMPS,
    ];
    let numbers = Numbers::beginning_with(next, delayed);
    work.write(Change::Put(StoreName::Meta, key.clone(), numbers.record()));
    work.changes.numbers = Some(numbers);
    Ok(true)
}

/// The last run of a range, if it can be read.
fn last_run(work: &mut Work<'_>, source: Source, range: Range) -> Outcome<Option<Run>> {
    let last = work.reads.answer(Request::Range(source, range, Some(1), Direction::Backward))?;
    Ok(last.first().and_then(|record| Run::read(record).ok()))
}
