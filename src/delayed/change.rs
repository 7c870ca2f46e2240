//! Cancelling and rescheduling. Whoever takes the message out of its run has won: exactly one of these and the dispatch.

use std::rc::Rc;

use uuid::Uuid;

use super::schedule::check_lifetime;
use super::{Delay, Delayed, Hop, Place, To, custom, run};
use crate::body::Value;
use crate::clock::Instant;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::is_id;
use crate::record::{Fields, Read};
use crate::seen::SeenId;
use crate::stop::{Outcome, Stop, pass_over};
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
        let Some(found) = find(work, &self.id)? else {
            return match Uuid::try_parse(&self.id) {
                Ok(id) if custom::cancel(work, id)? => Ok(true),
                _ => is_gone(work, &self.id),
            };
        };
        let delayed = &found.delayed;
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
        if delayed.hop.is_some() {
            custom::withdraw(work, delayed, true);
        } else if delayed.is_named {
            work.write(Change::Delete(StoreName::Members, Delayed::name(delayed.id)));
        }
        if found.stored.is_some() && delayed.is_large() {
            work.write(Change::Delete(StoreName::Bodies, delayed.body_key()));
        }
        work.shift(delayed.id, found.in_run(), None);
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
        let Some(found) = find(work, &self.id)? else {
            return if custom::is_in_store(work, &self.id)? {
                is_handed_over(work, &self.id)
            } else {
                is_gone(work, &self.id)
            };
        };
        let at = Delay::At(self.to).due(work.now);
        if let To::Conversation(handle) = &found.delayed.to
            && let Some((conversation, _)) = work.find(handle)?
        {
            check_lifetime(work, &conversation, handle, at, "The message would be delivered")?;
        }
        let moved = found.delayed_to(work, at)?;
        if moved.hop.is_some() {
            custom::withdraw(work, &found.delayed, false);
        }
        // The store may have been offered it under its old time.
        let hop = moved.hop.map(Hop::moved);
        work.shift(moved.id, found.in_run(), Some(Delayed { time: at, waits: 0, hop, ..moved }));
        Ok(true)
    }
}

/// The message at a place has waited for long enough: it is due now, but not before its own time.
pub(crate) fn resume(work: &mut Work<'_>, place: Place) -> Outcome<()> {
    // What can't be read goes to the error queue when it is due.
    let run = pass_over(run::at(work, place), &mut None)?.flatten();
    let delayed = run.and_then(|run| run.messages.into_iter().find(|delayed| delayed.place == place));
    let Some(found) = delayed.map(Found::stored) else { return Ok(()) };
    let at = found.delayed.time.max(work.now).ceil();
    let moved = found.delayed_to(work, at)?;
    work.shift(moved.id, found.in_run(), Some(moved));
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

/// What lay here when it was seen, and is in a store of the application's own when the transaction commits, is asked for there.
fn is_handed_over(work: &Work<'_>, id: &str) -> Outcome<bool> {
    if !matches!(work.purpose, Purpose::CommitOf(_)) {
        return Ok(false);
    }
    let text = format!(
        "The delayed message {id} was handed over to the delayed message store before the transaction committed. Run the transaction again: it is found there now."
    );
    Err(work.at_commit(Error::new(ErrorCode::Conflict, text)).with("messageId", id).into())
}

/// A message that waits.
struct Found {
    delayed: Rc<Delayed>,
    /// Where the store has it; `None`: this unit of work has stored or moved it.
    stored: Option<Place>,
}

impl Found {
    fn stored(delayed: Delayed) -> Self {
        Self { stored: Some(delayed.place), delayed: Rc::new(delayed) }
    }

    /// Where it is to be taken out of a run. The hop has none.
    fn in_run(&self) -> Option<Place> {
        self.stored.filter(|_| self.delayed.hop.is_none())
    }

    /// The same at another time. A large body goes along: it lies under the stamp of its message.
    fn delayed_to(&self, work: &mut Work<'_>, at: Instant) -> Outcome<Delayed> {
        let mut moved = Delayed::clone(&self.delayed);
        if let Some(place) = self.stored.filter(|_| moved.is_large() && !work.is_view()) {
            moved.body.value = work.get(StoreName::Bodies, place.body())?.unwrap_or_default().into();
            work.write(Change::Delete(StoreName::Bodies, place.body()));
        }
        (moved.place, moved.is_named) = (Place { at, stamp: work.claim(Number::Stamp, 1)? }, true);
        Ok(moved)
    }

    /// Not one whose conversation has ended in this unit of work, and took it along.
    fn if_wanted(self, work: &mut Work<'_>) -> Outcome<Option<Self>> {
        if let To::Conversation(handle) = &self.delayed.to {
            let found = work.find(handle)?;
            let waiting = found.and_then(|(conversation, role)| Some(conversation.side(role)?.delayed));
            return Ok(waiting.filter(|waiting| *waiting > 0).map(|_| self));
        }
        Ok(Some(self))
    }
}

/// The message with an id, if it waits.
fn find(work: &mut Work<'_>, id: &str) -> Outcome<Option<Found>> {
    let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
    if let Some(known) = work.changes.delayed.get(&id) {
        return Ok(known.to.clone().map(|delayed| Found { delayed, stored: None }));
    }
    work.after_others()?;
    // All at once.
    let run = Place::of(id).map(|place| run::at(work, place));
    let name = work.get(StoreName::Members, Delayed::name(id));
    let in_hop = custom::find_by_id(work, id);
    if matches!(name, Err(Stop::Missing)) {
        return Err(Stop::Missing);
    }
    if let Some(in_hop) = in_hop? {
        return Found::stored(in_hop).if_wanted(work);
    }
    let run = match name? {
        Some(name) => {
            let place = read_name(&name).map_err(|problem| problem.at(StoreName::Members, &Delayed::name(id)))?;
            run::at(work, place)?
        }
        None => run.transpose()?.flatten(),
    };
    run.and_then(|run| run.take(id)).map_or(Ok(None), |delayed| Found::stored(delayed).if_wanted(work))
}

fn read_name(name: &Value) -> Read<Place> {
    let mut fields = Fields::open(name)?;
    Ok(Place { at: fields.float()?, stamp: fields.number()? })
}
