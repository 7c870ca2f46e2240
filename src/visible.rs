//! Which rows of a run are in the queue, and with what status. Nothing else decides.
//!
//! | class | number | status |
//! |---|---|---|
//! | system | unread and not held | 1; received and still stored: 0 |
//! | received | ≥ cursor, and not held | 1 |
//! | | < cursor, inside a retained stretch | 0 |
//! | parked | any | 2 |
//! | sent | inside a copied stretch | 3 |
//!
//! Everything else is not in the queue, even where its run still is on disk. An endpoint in state DO or CD has no rows.

use crate::conversation::{Interval, Side};
use crate::message::{Class, Run, Status, count};

/// The rows of a run that are in the queue: stretches `from` (included) to `to` (excluded) with their status, in order.
pub(crate) fn segments(side: &Side, run: &Run) -> Vec<(usize, usize, Status)> {
    if side.state.is_over() {
        return Vec::new();
    }
    let whole = |status| vec![(0, run.count, status)];
    match run.class {
        Class::System => match side.system.iter().find(|row| row.number == run.last) {
            Some(row) if row.held => Vec::new(),
            Some(_) => whole(Status::Ready),
            None => whole(Status::RetainedReceived),
        },
        Class::Received => {
            let mut found: Vec<_> = side
                .kept_intervals
                .iter()
                .filter_map(|interval| overlap(run, *interval, Status::RetainedReceived))
                .collect();
            found.extend(overlap(run, Interval { from: side.cursor, to: side.visible_end() }, Status::Ready));
            found
        }
        Class::Parked => whole(Status::NotYetComplete),
        Class::Sent => {
            side.copied_intervals.iter().filter_map(|interval| overlap(run, *interval, Status::RetainedSent)).collect()
        }
    }
}

fn overlap(run: &Run, interval: Interval, status: Status) -> Option<(usize, usize, Status)> {
    let first = run.first();
    let index = |number: u64| usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX).min(run.count);
    let (from, to) = (index(interval.from), if interval.to > first { index(interval.to) } else { 0 });
    (from < to && first + count(from) < interval.to).then_some((from, to, status))
}
