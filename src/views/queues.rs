//! `queues` and `count`: from counters that the commits keep.

use std::rc::Rc;

use super::{Extent, RowFilter, select};
use crate::message::count as length;
use crate::work::{Outcome, Work};

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
pub(crate) async fn queues(work: &mut Work<'_>) -> Outcome<Vec<QueueInfo>> {
    let catalog = Rc::clone(&work.catalog);
    work.prefetch([], catalog.queues.values().map(|queue| queue.number)).await?;
    // The first queue's stamp says whether a queue is missing here.
    work.queue(crate::definitions::FIRST_QUEUE).await?;
    let mut infos = Vec::with_capacity(catalog.queues.len());
    for queue in catalog.queues.values() {
        let record = work.queue(queue.number).await?;
        infos.push(QueueInfo {
            name: Rc::clone(&queue.name),
            is_receive_enabled: queue.receive_enabled,
            is_enqueue_enabled: queue.enqueue_enabled,
            is_retention_enabled: queue.retention,
            is_poison_message_handling_enabled: queue.poison_message_handling,
            is_activation_enabled: queue.activation,
            ready: record.total(|counters| counters.ready),
            retained: record.total(|counters| counters.kept + counters.copies),
            consecutive_rollbacks: record.rollbacks,
        });
    }
    Ok(infos)
}

/// How many rows `select` would give. A scan only where a message type, a group or an order is asked for.
pub(crate) async fn count(work: &mut Work<'_>, name: &str, filter: &RowFilter) -> Outcome<u64> {
    let queue = work.look_up(|catalog| catalog.queue(name)).await?;
    let record = work.queue(queue.number).await?;
    let by_counters = filter.message_type.is_none() && filter.group.is_none() && filter.after.is_none();
    let total = if !by_counters {
        let page = select(work, name, filter, None, Extent::All).await?;
        return Ok(page.rows.iter().map(|rows| length(rows.count)).sum());
    } else if let Some(handle) = &filter.conversation {
        let Some((conversation, role)) = work.find(handle).await? else { return Ok(0) };
        let side = conversation.side(role).filter(|side| work.catalog.queue_of(side.service).is_some_and(|other| other.number == queue.number));
        side.map_or(0, |side| by_status(filter, [side.kept, side.unread, side.parked, side.copies]))
    } else {
        by_status(filter, [record.total(|of| of.kept), record.total(|of| of.ready), record.total(|of| of.parked), record.total(|of| of.copies)])
    };
    Ok(filter.limit().map_or(total, |limit| total.min(limit)))
}

/// Counts by status, 0 to 3.
fn by_status(filter: &RowFilter, counts: [u64; 4]) -> u64 {
    counts.into_iter().zip([0.0, 1.0, 2.0, 3.0]).filter(|(_, status)| filter.has_status(*status)).map(|(count, _)| count).sum()
}
