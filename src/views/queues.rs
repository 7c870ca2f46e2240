//! `queues` and `count`: from counters that the commits keep.

use std::rc::Rc;

use super::{Extent, RowFilter, select};
use crate::definitions::QueueDefinition;
use crate::driver::Driver;
use crate::message::count;
use crate::queue::Queue;
use crate::stop::Outcome;
use crate::work::Work;

/// A queue, as `sys.service_queues` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: Rc<str>,
    /// RECEIVE is possible.
    pub is_receive_enabled: bool,
    /// Messages come in; else they wait in the transmission queue.
    pub is_enqueue_enabled: bool,
    /// Sent and received rows stay until END.
    pub is_retention_enabled: bool,
    /// Five rollbacks in a row switch it off.
    pub is_poison_message_handling_enabled: bool,
    /// Activation may start readers.
    pub is_activation_enabled: bool,
    /// Rows of status 1.
    pub ready: u64,
    /// Rows of status 0 and 3.
    pub retained: u64,
    /// The highest count of its conversations.
    pub consecutive_rollbacks: u64,
}

/// Every queue, in the order of the names.
pub(crate) fn queues(work: &mut Work<'_>) -> Outcome<Vec<QueueInfo>> {
    let catalog = Rc::clone(&work.catalog);
    work.need([], catalog.queues.values().map(|queue| queue.number))?;
    // The first queue's stamp says whether a queue is missing here.
    work.queue(crate::definitions::FIRST_QUEUE)?;
    let info = |queue: &QueueDefinition, record: &Queue| QueueInfo {
        name: Rc::clone(&queue.name),
        is_receive_enabled: queue.receive_enabled,
        is_enqueue_enabled: queue.enqueue_enabled,
        is_retention_enabled: queue.retention,
        is_poison_message_handling_enabled: queue.poison_message_handling,
        is_activation_enabled: queue.activation,
        ready: record.total(|counters| counters.ready),
        retained: record.total(|counters| counters.kept + counters.copies),
        consecutive_rollbacks: record.rollbacks(),
    };
    catalog.queues.values().map(|queue| work.queue(queue.number).map(|record| info(queue, record))).collect()
}

/// How many rows `select` would give. A scan only where a message type, a group or an order is asked for.
pub(crate) async fn count_rows(driver: &mut Driver<'_>, name: &str, filter: &RowFilter) -> Outcome<u64> {
    if filter.message_type.is_some() || filter.group.is_some() || filter.after.is_some() {
        let page = select(driver, Some(name), filter, None, Extent::All).await?;
        return Ok(page.rows.iter().map(|rows| count(rows.count)).sum());
    }
    let total = driver.look(|work| counted(work, name, filter)).await?;
    Ok(filter.limit().map_or(total, |limit| total.min(limit)))
}

/// From counters: of the queue, or of one side.
fn counted(work: &mut Work<'_>, name: &str, filter: &RowFilter) -> Outcome<u64> {
    let queue = work.look_up(|catalog| catalog.queue(name))?;
    let record = work.queue(queue.number)?;
    let counts = match &filter.conversation {
        None => [
            record.total(|of| of.kept),
            record.total(|of| of.ready),
            record.total(|of| of.parked),
            record.total(|of| of.copies),
        ],
        Some(handle) => {
            let Some((conversation, role)) = work.find(handle)? else { return Ok(0) };
            let side = conversation
                .side(role)
                .filter(|side| work.catalog.queue_of(side.service).is_some_and(|other| other.number == queue.number));
            side.map_or([0; 4], |side| [side.kept, side.unread, side.parked, side.copies])
        }
    };
    Ok(counts
        .into_iter()
        .zip([0.0, 1.0, 2.0, 3.0])
        .filter(|(_, status)| filter.has_status(*status))
        .map(|(count, _)| count)
        .sum())
}
