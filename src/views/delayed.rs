//! The delayed store: what waits, how many, and since when the first is due.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{Extent, PAGE_BYTES, PAGE_RECORDS, PAGE_ROWS, Page};
use crate::body::Value;
use crate::clock::Instant;
use crate::delayed::{Delayed, DelayedMessage, LONGEST_WAIT as LONGEST, To, all_messages};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::message::count;
use crate::stop::Outcome;
use crate::store::{Bound, Direction, Key, Range, StoreName};

/// Records that are read at once.
const RECORDS: u32 = 64;

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

/// Messages in the order in which they will be delivered. `position` is the key of the last record that was read, and how many may still come.
pub(super) async fn select_delayed(
    driver: &mut Driver<'_>,
    filter: &DelayedFilter,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<DelayedMessage>> {
    let mut left = filter.limit.and_then(|limit| limit.to_u64()).unwrap_or(u64::MAX);
    let mut range = all_messages();
    if let Some([key @ .., rest]) = position {
        range.lower = Bound::Excluding(Key::List(key.iter().map(|part| Key::Number(*part)).collect()));
        left = rest.to_u64().unwrap_or(u64::MAX);
    }
    let mut page = Page { rows: Vec::new(), next: None };
    // What had to wait lies behind its time, but no further than that.
    let longest = driver.core.host.clock.now() + LONGEST;
    let is_behind = |at: Instant| filter.before.is_some_and(|before| at >= before.max(longest));
    let (mut looked_at, mut bytes) = (0, 0.0);
    while left > 0 {
        let keys = driver.tx.get_keys(StoreName::Delayed, &range, Some(RECORDS)).await?;
        let records = driver.tx.get_range(StoreName::Delayed, &range, Some(RECORDS), Direction::Forward).await?;
        for (key, record) in keys.iter().zip(&records) {
            let key_value = key.to_value();
            // One that can't be read goes to the error queue when it is due.
            let Ok(mut delayed) = Delayed::read(&key_value, record) else { continue };
            if is_behind(delayed.place.at) {
                return Ok(page);
            }
            let is_meant = |wanted: &Rc<str>| match &delayed.to {
                To::Conversation(handle) => wanted.eq_ignore_ascii_case(handle),
                To::Lane { queue, .. } => wanted == queue,
            };
            let is_early = filter.before.is_none_or(|before| delayed.time < before);
            if is_early && filter.destination.as_ref().is_none_or(is_meant) {
                if delayed.is_large() {
                    let body = driver.tx.get(StoreName::Bodies, &delayed.body_key()).await?;
                    delayed.body.value = body.unwrap_or_default().into();
                }
                bytes += delayed.body.size;
                page.rows.push(delayed.into());
                left -= 1;
                if left == 0 {
                    return Ok(page);
                }
                if extent == Extent::Page && bytes >= PAGE_BYTES {
                    page.next = Some(position_of(&key_value, left));
                    return Ok(page);
                }
            }
        }
        looked_at += count(keys.len());
        let Some(last) = keys.last().filter(|_| count(keys.len()) == u64::from(RECORDS)) else { return Ok(page) };
        range.lower = Bound::Excluding(last.clone());
        let is_full = count(page.rows.len()) >= PAGE_ROWS || bytes >= PAGE_BYTES || looked_at >= PAGE_RECORDS;
        if extent == Extent::Page && is_full {
            page.next = Some(position_of(&last.to_value(), left));
            return Ok(page);
        }
    }
    Ok(page)
}

/// Behind a key, and how many may still come.
fn position_of(key: &Value, left: u64) -> Vec<f64> {
    let mut position: Vec<f64> = key.items().iter().filter_map(Value::number).collect();
    position.push(left.to_f64().unwrap_or(f64::MAX));
    position
}

/// When the first is due.
pub(super) async fn next_delayed(driver: &mut Driver<'_>) -> Outcome<Option<Instant>> {
    let keys = driver.tx.get_keys(StoreName::Delayed, &all_messages(), Some(1)).await?;
    Ok(keys.first().and_then(|key| key.to_value().item(0).number()))
}

/// When something is due, of whatever kind.
pub(super) async fn next_due(driver: &mut Driver<'_>) -> Outcome<Option<Instant>> {
    let due = driver.tx.get_keys(StoreName::Due, &Range::all(), Some(1)).await?;
    let due = due.first().and_then(|key| key.to_value().item(0).number());
    Ok([due, next_delayed(driver).await?].into_iter().flatten().reduce(f64::min))
}
