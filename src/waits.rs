//! Waits that the clock was set back over. A retry or a back-off lasts so long and no longer: one that began in the future, as the clock is now, lies
//! further ahead than it was ever meant to, and is over (L19). What an application has asked for at an instant is none of these: it does not come early.
//!
//! The record of the numbers says when the last of them began, so nobody looks for any unless the clock was set back. A lease says by its own end
//! whether that can be ([`crate::lease`]).

use crate::body::Value;
use crate::clock::Instant;
use crate::delayed::{self, Place};
use crate::due::{Due, DueKind};
use crate::error::Result;
use crate::ids::SideId;
use crate::lease::BLUR;
use crate::numbers::Numbers;
use crate::recoverability;
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Bound, Key, Range, StoreName, Tx};
use crate::transmission::hurry_all;
use crate::work::{Number, Work};

/// Such a wait begins. Gives the stamp for its row.
pub(crate) fn begin(work: &mut Work<'_>) -> Outcome<u64> {
    let now = work.now;
    work.change_numbers(|numbers| {
        numbers.waited = numbers.waited.max(now);
        numbers.claim(Number::Stamp, 1)
    })
}

/// Whether something that began at an instant can have begun. The clocks of two contexts differ a little.
fn is_to_come(since: Instant, now: Instant) -> bool {
    since > now + BLUR
}

/// Whether there may be waits that began in the future.
pub(crate) fn are_too_long(work: &mut Work<'_>) -> Outcome<bool> {
    let now = work.now;
    work.numbers().map(|numbers| is_to_come(numbers.waited, now))
}

/// The same when a database is opened: when somebody has to look.
pub(crate) async fn next(tx: &Tx, now: Instant) -> Result<Option<Instant>> {
    let record = tx.get(StoreName::Meta, &Numbers::key()).await?;
    // What can't be read is mended by whoever needs it.
    let numbers = Numbers::read(record.as_ref()).unwrap_or_default();
    Ok(is_to_come(numbers.waited, now).then_some(now))
}

/// Ends them.
pub(crate) fn end(work: &mut Work<'_>) -> Outcome<()> {
    let now = work.now;
    hurry_all(work)?;
    let range = Range { lower: Bound::Including(Key::list([now.into()])), ..Range::all() };
    let waits = work.get_keys(StoreName::Due, range, None)?.iter().filter_map(Due::read);
    let waits: Vec<Due> =
        waits.filter(|due| matches!(due.kind, DueKind::Retry | DueKind::PutBack | DueKind::Delivery)).collect();
    let mut too_long = Vec::new();
    let records = read(work, StoreName::Due, waits.iter().map(Due::key))?;
    for (due, record) in waits.into_iter().zip(records) {
        let since = match due.kind {
            DueKind::Retry => record.item(2).number(),
            DueKind::PutBack => record.item(1).number(),
            // It was to be done at once.
            _ => Some(due.at),
        };
        if since.is_some_and(|since| is_to_come(since, now)) {
            too_long.push((due, record));
        }
    }
    // All that they are about, at once.
    let put_back = too_long.iter().filter(|(due, _)| due.kind == DueKind::PutBack).map(|(due, _)| place(due));
    let put_back = delayed::read_ahead(work, put_back);
    work.need(too_long.iter().filter_map(|(due, _)| due.conversation()), [])?;
    put_back?;
    for (due, record) in too_long {
        match due.kind {
            DueKind::Retry => {
                let side = SideId::from_number(due.number);
                let resumed = recoverability::resume(work, side, Some((due.at, due.stamp)));
                // The row of a conversation that can't be read goes with that.
                if pass_over(resumed, &mut None)?.is_none() {
                    continue;
                }
            }
            DueKind::PutBack => delayed::resume(work, place(&due))?,
            _ => work.put_due(&Due { at: now, ..due.clone() }, record),
        }
        work.drop_due(&due);
    }
    work.change_numbers(|numbers| numbers.waited = now)
}

/// Where the delayed message is that such a row is about.
fn place(due: &Due) -> Place {
    Place { at: due.at, stamp: due.stamp }
}

/// Reads records, all at once.
fn read(work: &mut Work<'_>, store: StoreName, keys: impl Iterator<Item = Key>) -> Outcome<Vec<Value>> {
    let (mut records, mut is_missing) = (Vec::new(), false);
    for key in keys {
        match work.get(store, key) {
            Ok(record) => records.push(record.unwrap_or_default()),
            Err(Stop::Missing) => is_missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(records) }
}
