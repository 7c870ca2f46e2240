//! What can't be read of the hop and of what was dispatched.

use uuid::Uuid;

use super::hop::{self, Whereabouts};
use super::memory::{self, Fate};
use crate::body::Value;
use crate::delayed::run::read_ids;
use crate::delayed::{Delayed, Place};
use crate::ids::{Decoded, SideId};
use crate::mend::bury_record;
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

/// A row of the hop goes to the error queue as it is, and is not delivered, even if the store has it; of what is to be removed no more needs to be known.
pub(crate) fn mend(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let value = key.to_value();
    let Some(record) = work.get(StoreName::Delayed, key.clone())? else { return Ok(true) };
    match (value.item(0).text().as_deref(), hop::stamp_of(&value)) {
        (Some("hop"), Ok(stamp)) => mend_row(work, key, stamp, &record),
        (Some("gone"), _) => {
            if let (Err(_), Some(id)) = (memory::read(&record), memory::id_of(&value)) {
                let id = Uuid::try_parse(&id).unwrap_or_default();
                memory::remember(work, id, Fate::Cancelled, work.now);
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn mend_row(work: &mut Work<'_>, key: &Key, stamp: u64, record: &Value) -> Outcome<bool> {
    let Err(problem) = hop::read(stamp, record) else { return Ok(true) };
    // What it still says of itself.
    let message = record.item(2);
    let side = message.item(1).text().and_then(|handle| Decoded::parse(&handle)).map(|decoded| decoded.side);
    let id = read_ids(&message.item(4)).first().copied();
    let body_key = Place { at: 0.0, stamp }.body();
    let bodies = work.get(StoreName::Bodies, body_key.clone())?;
    if let Some(side) = side
        && let Some(mut conversation) = work.conversation(side.conversation)?
    {
        if let Some(side) = conversation.side_mut(side.role) {
            side.delayed = side.delayed.saturating_sub(1);
        }
        work.save(conversation);
    }
    work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(1))?;
    work.write(Change::Delete(StoreName::Delayed, key.clone()));
    work.write(Change::Delete(StoreName::Bodies, body_key));
    if let Some(id) = id {
        hop::forget(work, id, side, stamp);
        memory::remember(work, id, Fate::Cancelled, work.now);
    }
    bury_record(work, (StoreName::Delayed, key), (record.clone(), 1), bodies.into_iter().collect(), problem)?;
    Ok(true)
}

/// The name of a message is said by its row in the hop, or by the mark of its endpoint. Each of them is looked for among all.
pub(crate) fn mend_name(work: &mut Work<'_>, key: &Key, id: &str) -> Outcome<bool> {
    let id = Uuid::try_parse(id).unwrap_or_default();
    let rows = work.get_keys(StoreName::Delayed, hop::rows(), None).map(<[Value]>::to_vec);
    let records = work.get_range(StoreName::Delayed, hop::rows(), None).map(<[Value]>::to_vec);
    let marks = hop::marks(work);
    let (rows, records, marks) = (rows?, records?, marks?);
    let read = |(key, record): (&Value, &Value)| hop::stamp_of(key).and_then(|stamp| hop::read(stamp, record)).ok();
    let row: Option<Delayed> = rows.iter().zip(&records).filter_map(read).find(|delayed| delayed.id == id);
    let marked = || marks.into_iter().find(|(_, _, marked)| *marked == Some(id));
    let found = match row {
        Some(delayed) => Some(Whereabouts::of(&delayed, false)),
        None => marked().map(|(side, stamp, _)| Whereabouts {
            place: Place { at: work.now, stamp },
            side: Some(side),
            is_in_store: true,
            seen: None,
        }),
    };
    work.write(match found {
        Some(found) => Change::Put(StoreName::Members, key.clone(), found.record()),
        None => Change::Delete(StoreName::Members, key.clone()),
    });
    Ok(true)
}

/// The mark of a message is said by its name, which is looked for among all.
pub(crate) fn mend_mark(work: &mut Work<'_>, key: &Key, side: SideId, stamp: u64) -> Outcome<bool> {
    let named = hop::names(work)?.into_iter().find(|(_, found)| found.place.stamp == stamp && found.side == Some(side));
    work.write(match named {
        Some((id, _)) => Change::Put(StoreName::Members, key.clone(), hop::mark_record(id)),
        None => Change::Delete(StoreName::Members, key.clone()),
    });
    Ok(true)
}
