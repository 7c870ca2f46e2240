//! Ids that `enqueue` was given: a second message with the same one is not taken (D38).
//!
//! A record of the store `seen` keeps the id of the first message and when it expires; a due row takes the record away some time after that.
//! Each has the other.

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use crate::body::Value;
use crate::clock::Instant;
use crate::due::{Due, DueKind};
use crate::record::{Fields, Read, Unreadable};
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

/// Expired ids are taken away together: once in so many milliseconds.
const STEP: f64 = 60_000.0;

/// An id, of one queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenId {
    pub(crate) queue: u32,
    pub(crate) id: Rc<str>,
}

impl SeenId {
    /// The id that a key is of.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        let Key::List(parts) = key else { return None };
        let [_, Key::Number(queue), Key::Text(id)] = parts.as_slice() else { return None };
        Some(Self { queue: queue.to_u32()?, id: Rc::clone(id) })
    }

    pub(crate) fn key(&self) -> Key {
        Key::list([0u32.into(), self.queue.into(), Key::Text(Rc::clone(&self.id))])
    }

    /// The row that takes the record away.
    fn due(&self, expires_at: Instant) -> Due {
        let at = ((expires_at / STEP).floor() + 1.0) * STEP;
        Due { at, stamp: 0, kind: DueKind::Seen(Rc::clone(&self.id)), number: self.queue.into() }
    }

    /// The message that has the id already.
    pub(crate) fn find(&self, work: &mut Work<'_>) -> Outcome<Option<Uuid>> {
        let before = self.known(work)?;
        Ok(before.filter(|(_, expires_at)| *expires_at > work.now).map(|(first, _)| first))
    }

    /// What is known of it, with what this unit of work has noted: of that the store does not know yet.
    fn known(&self, work: &mut Work<'_>) -> Outcome<Option<(Uuid, Instant)>> {
        match work.changes.seen.get(&(self.queue, Rc::clone(&self.id))) {
            Some(noted) => Ok(*noted),
            None => self.read(work),
        }
    }

    fn read(&self, work: &mut Work<'_>) -> Outcome<Option<(Uuid, Instant)>> {
        let record = work.get(StoreName::Seen, self.key())?;
        Ok(record
            .map(|record| read(&record))
            .transpose()
            .map_err(|problem| problem.at(StoreName::Seen, &self.key()))?)
    }

    /// The id is free again, if this message has it.
    pub(crate) fn forget(&self, work: &mut Work<'_>, message: Uuid) -> Outcome<()> {
        let Some((_, expires_at)) = self.known(work)?.filter(|(first, _)| *first == message) else { return Ok(()) };
        work.drop_due(&self.due(expires_at));
        work.write(Change::Delete(StoreName::Seen, self.key()));
        work.changes.note_seen((self.queue, Rc::clone(&self.id)), None);
        Ok(())
    }

    /// The message that has the id already. If there is none, it is this one's for `window` milliseconds from now.
    pub(crate) fn take(&self, work: &mut Work<'_>, message: Uuid, window: f64) -> Outcome<Option<Uuid>> {
        // One of this unit of work the store does not know yet.
        if let Some(first) = self.find(work)? {
            return Ok(Some(first));
        }
        if let Some((_, expired_at)) = self.read(work)? {
            work.drop_due(&self.due(expired_at));
        }
        let expires_at = work.now + window;
        work.changes.note_seen((self.queue, Rc::clone(&self.id)), Some((message, expires_at)));
        let record = vec![Value::from(1u32), Value::from_bytes(message.as_bytes()), Value::from(expires_at)];
        work.write(Change::Put(StoreName::Seen, self.key(), Value::list(record)));
        work.put_due(&self.due(expires_at), Value::list(vec![Value::from(1u32)]));
        Ok(None)
    }
}

/// What a record says: the first message, and when the id is free again.
pub(crate) fn read(record: &Value) -> Read<(Uuid, Instant)> {
    let mut fields = Fields::open(record)?;
    let message = fields.any().bytes().and_then(|bytes| Uuid::from_slice(&bytes).ok());
    Ok((message.ok_or(Unreadable::Field("the id of a message is missing"))?, fields.float()?))
}

/// The key of the due row that belongs to a record, for the audit.
#[cfg(feature = "audit")]
pub(crate) fn due_key(key: &Key, record: &Value) -> Option<Key> {
    let (_, expires_at) = read(record).ok()?;
    Some(SeenId::of(key)?.due(expires_at).key())
}

/// A due row: the id has expired.
pub(crate) fn expire(work: &mut Work<'_>, due: &Due) {
    if let (DueKind::Seen(id), Ok(queue)) = (&due.kind, u32::try_from(due.number)) {
        let key = SeenId { queue, id: Rc::clone(id) }.key();
        work.write(Change::Delete(StoreName::Seen, key));
    }
}
