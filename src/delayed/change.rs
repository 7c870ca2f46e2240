//! Cancelling and rescheduling. Whoever deletes the record has won: exactly one of these and the dispatch.

use std::rc::Rc;

use uuid::Uuid;

use super::schedule::check_lifetime;
use super::{Delay, Delayed, Hop, Place, To, custom};
use crate::body::Value;
use crate::clock::Instant;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::is_id;
use crate::record::Fields;
use crate::seen::SeenId;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, StoreName};
use crate::work::{Number, Purpose, Work};

/// A delayed message is not to be delivered.
#[derive(Debug)]
pub(crate) struct Cancel {
    pub(crate) id: Rc<str>,
}

/// It is to be delivered at another time.
#[derive(Debug)]
pub(crate) struct Reschedule {
    pub(crate) id: Rc<str>,
    pub(crate) to: Instant,
}

fn check_id(id: &str) -> Result<()> {
    if is_id(id) {
        Ok(())
    } else {
        Err(Error::invalid_argument("id", "is not the id of a message: a UUID, as the call that sent it gave it"))
    }
}

impl Cancel {
    pub(crate) fn check(&self) -> Result<()> {
        check_id(&self.id)
    }

    /// Gives whether it was there.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<bool> {
        let Some(delayed) = find(work, &self.id)? else {
            return match Uuid::try_parse(&self.id) {
                Ok(id) if custom::cancel(work, id)? => Ok(true),
                _ => is_gone(work, &self.id),
            };
        };
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(1))?;
        if let To::Conversation(handle) = &delayed.to
            && let Some((mut conversation, role)) = work.find(handle)?
        {
            if let Some(side) = conversation.side_mut(role) {
                side.delayed = side.delayed.saturating_sub(1);
            }
            work.save(conversation);
        }
        if let (To::Lane { queue, .. }, Some(id)) = (&delayed.to, &delayed.seen)
            && let Ok(queue) = work.look_up(|catalog| catalog.queue(queue))
            && !work.is_view()
        {
            // What is never delivered keeps nobody from asking for it again.
            SeenId { queue: queue.number, id: Rc::clone(id) }.forget(work, delayed.id)?;
        }
        delayed.remove(work, true);
        work.changes.note_delayed(delayed.id, None);
        work.changes.notice.delayed = true;
        Ok(true)
    }
}

impl Reschedule {
    pub(crate) fn check(&self) -> Result<()> {
        check_id(&self.id)?;
        match Delay::At(self.to).check(0.0) {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::invalid_argument("to", "is not an instant, or beyond the last one that a Date has")),
        }
    }

    /// Gives whether it was there.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<bool> {
        let Some(delayed) = find(work, &self.id)? else { return is_gone(work, &self.id) };
        let at = Delay::At(self.to).due(work.now);
        if let To::Conversation(handle) = &delayed.to
            && let Some((conversation, _)) = work.find(handle)?
        {
            check_lifetime(work, &conversation, handle, at, "The message would be delivered")?;
        }
        let stamp = work.claim(Number::Stamp, 1)?;
        delayed.remove(work, false);
        let moved =
            Delayed { place: Place { at, stamp }, time: at, waits: 0, is_named: true, ..Delayed::clone(&delayed) };
        // The store may have been offered it under its old time.
        let moved = Delayed { hop: delayed.hop.map(|_| Hop { replaces: true, ..Hop::default() }), ..moved };
        moved.store(work);
        Ok(true)
    }
}

/// The message under a key has waited for long enough: it is due now, but not before its own time.
pub(crate) fn resume(work: &mut Work<'_>, place: Place) -> Outcome<()> {
    let Some(record) = work.get(StoreName::Delayed, place.key())? else { return Ok(()) };
    // What can't be read goes to the error queue when it is due.
    let Ok(delayed) = Delayed::read(&place.key().to_value(), &record) else { return Ok(()) };
    let stamp = work.claim(Number::Stamp, 1)?;
    delayed.remove(work, false);
    let at = delayed.time.max(work.now).ceil();
    Delayed { place: Place { at, stamp }, is_named: true, ..delayed }.store(work);
    Ok(())
}

/// What is not there any more when a transaction commits was dispatched, or cancelled, since it was seen.
pub(super) fn is_gone(work: &Work<'_>, id: &str) -> Outcome<bool> {
    if !matches!(work.purpose, Purpose::CommitOf(_)) {
        return Ok(false);
    }
    let text = format!(
        "The delayed message {id} was delivered or cancelled before the transaction committed. Run the transaction again: it sees what is there now."
    );
    Err(work.at_commit(Error::new(ErrorCode::Conflict, text)).with("messageId", id).into())
}

/// The message with an id, if it waits.
fn find(work: &mut Work<'_>, id: &str) -> Outcome<Option<Rc<Delayed>>> {
    let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
    if let Some(known) = work.changes.delayed.get(&id) {
        return Ok(known.clone());
    }
    work.after_others()?;
    let direct = Place::of(id);
    // Both at once.
    let record = direct.map(|place| work.get(StoreName::Delayed, place.key())).transpose();
    let name = work.get(StoreName::Members, Delayed::name(id));
    let in_hop = custom::find_by_id(work, id);
    let (record, name, in_hop) = match (record, name, in_hop) {
        (Ok(record), Ok(name), Ok(in_hop)) => (record.flatten(), name, in_hop),
        (Err(stop), ..) | (_, Err(stop), _) | (.., Err(stop)) => return Err(stop),
    };
    if let Some(in_hop) = in_hop {
        return in_hop.if_wanted(work);
    }
    if let (Some(place), Some(record)) = (direct, record) {
        let found = read(place, &record)?;
        if found.id == id {
            return found.if_wanted(work);
        }
    }
    let Some(name) = name else { return Ok(None) };
    let read_name = || {
        let mut fields = Fields::open(&name)?;
        Ok(Place { at: fields.float()?, stamp: fields.number()? })
    };
    let place: Place =
        read_name().map_err(|problem: crate::record::Unreadable| problem.at(StoreName::Members, &Delayed::name(id)))?;
    let record = work.get(StoreName::Delayed, place.key())?;
    match record {
        Some(record) => read(place, &record)?.if_wanted(work),
        None => Ok(None),
    }
}

fn read(place: Place, record: &Value) -> Outcome<Delayed> {
    let key = place.key().to_value();
    Delayed::read(&key, record).map_err(|problem| Stop::from(problem.of_delayed(&key)))
}

impl Delayed {
    /// Not one whose conversation has ended in this unit of work, and took it along.
    fn if_wanted(self, work: &mut Work<'_>) -> Outcome<Option<Rc<Self>>> {
        if let To::Conversation(handle) = &self.to {
            let found = work.find(handle)?;
            let waiting = found.and_then(|(conversation, role)| Some(conversation.side(role)?.delayed));
            return Ok(waiting.filter(|waiting| *waiting > 0).map(|_| Rc::new(self)));
        }
        Ok(Some(Rc::new(self)))
    }

    /// Deletes its records; `all`: its name and its body, too.
    pub(super) fn remove(&self, work: &mut Work<'_>, all: bool) {
        if self.hop.is_some() {
            custom::withdraw(work, self, all);
            return;
        }
        work.write(Change::Delete(StoreName::Delayed, self.place.key()));
        if let Some(side) = self.side() {
            work.write(Change::Delete(StoreName::Members, Self::mark(side, self.place)));
        }
        if all && self.is_named {
            work.write(Change::Delete(StoreName::Members, Self::name(self.id)));
        }
        if all && self.is_large() {
            work.write(Change::Delete(StoreName::Bodies, self.body_key()));
        }
    }
}
