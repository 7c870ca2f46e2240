//! What was dispatched, and what is not to be: a message that the store gives again is only removed.
//!
//! | object store | key | value |
//! |---|---|---|
//! | delayed | ["gone", message id] | its fate, its time: the store is still to remove it |
//! | seen | of queue 0 and the message id | the store has removed it: for half an hour more |

use std::rc::Rc;

use uuid::Uuid;

use crate::body::Value;
use crate::clock::Instant;
use crate::ids::text;
use crate::record::{Fields, Read, Unreadable};
use crate::seen::SeenId;
use crate::stop::Outcome;
use crate::store::{Change, Key, Range, StoreName};
use crate::work::Work;

/// For so many milliseconds a message is known after the store has removed it.
const KNOWN: f64 = 1_800_000.0;

/// What has become of a message that the store may still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is where it was to go.
    Dispatched,
    /// It is not to be delivered.
    Cancelled,
    /// The same, and somebody is just asking the store whether it was there.
    Asking,
    /// The same, and somebody who was about to deliver it did not.
    Spared,
}

/// The messages that the store is to remove.
pub(crate) fn gone() -> Range {
    Range::prefix(vec!["gone".into()])
}

fn key(id: Uuid) -> Key {
    Key::list(["gone".into(), Key::Text(text(id))])
}

/// No queue has this number.
fn seen(id: Uuid) -> SeenId {
    SeenId { queue: 0, id: text(id) }
}

pub(crate) fn remember(work: &mut Work<'_>, id: Uuid, fate: Fate, time: Instant) {
    let fate: u32 = match fate {
        Fate::Dispatched => 0,
        Fate::Cancelled => 1,
        Fate::Spared => 2,
        Fate::Asking => 3,
    };
    work.write(Change::Put(
        StoreName::Delayed,
        key(id),
        Value::list(vec![Value::from(1u32), Value::from(fate), Value::from(time)]),
    ));
    work.changes.notice.hop = true;
}

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known {
    /// The store is still to remove it.
    Gone(Fate, Instant),
    /// It has done so. `is_spared`: it was not delivered.
    Removed { is_spared: bool },
}

/// What has become of a message.
pub(crate) fn recall(work: &mut Work<'_>, id: Uuid) -> Outcome<Option<Known>> {
    // Both at once.
    let gone = work.get(StoreName::Delayed, key(id));
    let seen = seen(id).find(work);
    let (gone, seen) = (gone?, seen?);
    let gone =
        gone.map(|record| read(&record)).transpose().map_err(|problem| problem.at(StoreName::Delayed, &key(id)))?;
    Ok(gone
        .map(|(fate, time)| Known::Gone(fate, time))
        .or(seen.map(|message| Known::Removed { is_spared: message.is_nil() })))
}

/// What a record says: the fate and the time of a message.
pub(crate) fn read(record: &Value) -> Read<(Fate, Instant)> {
    let mut fields = Fields::open(record)?;
    let fate = match fields.number()? {
        0 => Fate::Dispatched,
        1 => Fate::Cancelled,
        2 => Fate::Spared,
        3 => Fate::Asking,
        _ => return Err(Unreadable::Field("the fate of a message is none")),
    };
    Ok((fate, fields.float()?))
}

/// The message that a key is of.
pub(crate) fn id_of(key: &Value) -> Option<Rc<str>> {
    key.item(1).text().map(Rc::from)
}

/// It is not known any more.
pub(crate) fn forget(work: &mut Work<'_>, id: Uuid) {
    work.write(Change::Delete(StoreName::Delayed, key(id)));
}

/// The store has removed messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removed(pub(crate) Vec<Uuid>);

impl Removed {
    /// They are known for a while. What was cancelled before its time may be on its way into the store: it is known until that is over.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<()> {
        for id in &self.0 {
            work.reads.want(StoreName::Delayed, key(*id));
            work.reads.want(StoreName::Seen, seen(*id).key());
        }
        for id in &self.0 {
            let Some(Known::Gone(fate, time)) = recall(work, *id)? else { continue };
            forget(work, *id);
            let window = (time - work.now).max(0.0) + KNOWN;
            let message = if fate == Fate::Dispatched { *id } else { Uuid::nil() };
            seen(*id).take(work, message, window)?;
        }
        Ok(())
    }
}
