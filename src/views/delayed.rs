//! The delayed store: what waits, how many, and since when the first is due.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{Extent, PAGE_BYTES, PAGE_RECORDS, PAGE_ROWS, Page};
use crate::clock::Instant;
use crate::delayed::{Delayed, DelayedMessage, LONGEST_WAIT as LONGEST, Place, Run, To, all_messages};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::message::count;
use crate::record::float;
use crate::stop::Outcome;
use crate::store::{Bound, Direction, Key, Range, StoreName};
use crate::transmission::first_retry;

/// So many records are read at first, four times as many each time, and so many at most: what is stored together may be a page already.
const FEW: u32 = 2;
const RECORDS: u32 = 128;

/// Which delayed messages.
#[derive(Clone, Debug, Default)]
pub struct DelayedFilter {
    /// Those for this queue, or this conversation by its handle.
    pub destination: Option<Rc<str>>,
    /// Those that are to be delivered before this instant.
    pub before: Option<f64>,
    /// At most so many.
    pub limit: Option<f64>,
}

impl DelayedFilter {
    /// What can be seen without looking anything up.
    pub(super) fn check(&self) -> Result<()> {
        if self.limit.is_some_and(|limit| !(limit >= 0.0 && (limit.fract() == 0.0 || limit.is_infinite()))) {
            return Err(Error::invalid_argument("limit", "is not a whole number from 0 on"));
        }
        if self.before.is_some_and(f64::is_nan) {
            return Err(Error::invalid_argument("before", "is not an instant"));
        }
        Ok(())
    }
}

/// Messages in the order in which they will be delivered. `position` is the place of the last message that was looked at, and how many may still
/// come.
pub(super) async fn select_delayed(
    driver: &mut Driver<'_>,
    filter: &DelayedFilter,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<DelayedMessage>> {
    let mut left = filter.limit.and_then(|limit| limit.to_u64()).unwrap_or(u64::MAX);
    let mut range = all_messages();
    let mut after = None;
    if let Some([at, stamp, rest]) = position {
        // Of the run that it is in, those behind it.
        range.lower = Bound::Excluding(Key::list([(*at).into(), (*stamp).into(), Key::List(Vec::new())]));
        after = Some(Place { at: *at, stamp: stamp.to_u64().unwrap_or(u64::MAX) });
        left = rest.to_u64().unwrap_or(u64::MAX);
    }
    let mut page = Page { rows: Vec::new(), next: None };
    // What had to wait lies behind its time, but no further than that.
    let longest = driver.core.host.clock.now() + LONGEST;
    let is_behind = |at: Instant| filter.before.is_some_and(|before| at >= before.max(longest));
    let is_meant = |delayed: &Delayed| {
        let is_early = filter.before.is_none_or(|before| delayed.time < before);
        is_early
            && filter.destination.as_ref().is_none_or(|wanted| match &delayed.to {
                To::Conversation(handle) => wanted.eq_ignore_ascii_case(handle),
                To::Lane { queue, .. } => wanted == queue,
            })
    };
    let (mut looked_at, mut bytes, mut records) = (0, 0.0, FEW);
    while left > 0 {
        let keys = driver.tx.get_keys(StoreName::Delayed, &range, Some(records)).await?;
        let runs = driver.tx.get_range(StoreName::Delayed, &range, Some(records), Direction::Forward).await?;
        for (key, record) in keys.iter().zip(&runs) {
            // One that can't be read goes to the error queue when it is due.
            let Ok(run) = Run::read(&key.to_value(), record) else { continue };
            for mut delayed in run.messages {
                let place = delayed.place;
                if after.is_some_and(|after| place.at == after.at && place.stamp <= after.stamp) {
                    continue;
                }
                if is_behind(place.at) {
                    return Ok(page);
                }
                looked_at += 1;
                if is_meant(&delayed) {
                    if delayed.is_large() {
                        let body = driver.tx.get(StoreName::Bodies, &place.body()).await?;
                        delayed.body.value = body.unwrap_or_default().into();
                    }
                    bytes += delayed.body.size;
                    left -= 1;
                    page.rows.push(delayed.into());
                }
                let is_full = count(page.rows.len()) >= PAGE_ROWS || bytes >= PAGE_BYTES || looked_at >= PAGE_RECORDS;
                if left == 0 {
                    return Ok(page);
                }
                if extent == Extent::Page && is_full {
                    page.next = Some(vec![place.at, float(place.stamp), left.to_f64().unwrap_or(f64::MAX)]);
                    return Ok(page);
                }
            }
        }
        let Some(last) = keys.last().filter(|_| count(keys.len()) == u64::from(records)) else { return Ok(page) };
        range.lower = Bound::Excluding(last.clone());
        records = RECORDS.min(records * 4);
    }
    Ok(page)
}

/// When the first is due.
pub(super) async fn next_delayed(driver: &mut Driver<'_>) -> Outcome<Option<Instant>> {
    let keys = driver.tx.get_keys(StoreName::Delayed, &all_messages(), Some(1)).await?;
    Ok(keys.first().and_then(|key| key.to_value().item(0).number()))
}

/// When something is due, of whatever kind: of what is to be transmitted, as far as there are routes here, and what may go at once goes by itself.
pub(super) async fn next_due(driver: &mut Driver<'_>) -> Outcome<Option<Instant>> {
    let due = driver.tx.get_keys(StoreName::Due, &Range::all(), Some(1)).await?;
    let due = due.first().and_then(|key| key.to_value().item(0).number());
    let mut next = [due, next_delayed(driver).await?].into_iter().flatten().reduce(f64::min);
    let transmission = &driver.core.transmission;
    for route in transmission.routes() {
        let retry = first_retry(driver.tx, &transmission.services(&route)).await?;
        next = [next, retry].into_iter().flatten().reduce(f64::min);
    }
    Ok(next)
}
