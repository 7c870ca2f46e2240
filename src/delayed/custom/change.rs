//! Cancelling and moving what a store of the application's own has. Only the broker's database says who was first; the store is told afterwards.

use std::rc::Rc;

use uuid::Uuid;

use super::memory::{self, Fate, Known, recall, remember};
use super::{Hop, hop};
use crate::clock::Instant;
use crate::delayed::change::is_gone;
use crate::delayed::{Delay, Delayed, Place, Reschedule, check_lifetime};
use crate::ids::text;
use crate::seen::SeenId;
use crate::stop::Outcome;
use crate::work::{Number, Work};

/// A message that neither the built-in store nor the hop has is not to be delivered.
#[derive(Debug)]
pub(crate) struct Withdraw {
    pub(crate) id: Uuid,
    /// Whoever withdraws it asks the store whether it was there.
    pub(crate) asks: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// It will not be delivered.
    Yes,
    /// It was delivered, or cancelled, before.
    No,
    /// It is marked: whether it was there, the store says when it is asked to remove it.
    AskTheStore,
}

impl Withdraw {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Withdrawn> {
        work.after_others()?;
        let id = self.id;
        if is_withdrawn(work, id) {
            return is_gone(work, &text(id)).map(|_| Withdrawn::No);
        }
        let (known, name) = (recall(work, id), hop::find_name(work, id));
        let (known, name) = (known?, name?);
        match known {
            Some(Known::Gone(Fate::Asking, _)) => {
                remember(work, id, Fate::Asking, work.now);
                return Ok(Withdrawn::AskTheStore);
            }
            Some(_) => return is_gone(work, &text(id)).map(|_| Withdrawn::No),
            None => {}
        }
        if name.is_some() {
            // It has come back into sight since it was looked for.
            return Ok(if cancel(work, id)? { Withdrawn::Yes } else { Withdrawn::No });
        }
        remember(work, id, if self.asks { Fate::Asking } else { Fate::Cancelled }, work.now);
        if !self.asks {
            work.shift(id, None, None);
        }
        Ok(Withdrawn::AskTheStore)
    }
}

/// Whether this unit of work has cancelled a message: what was read does not say so.
fn is_withdrawn(work: &Work<'_>, id: Uuid) -> bool {
    work.changes.delayed.get(&id).is_some_and(|shift| shift.is_gone())
}

/// Cancels a message that came through the hop, wherever it is now. Gives whether it is still under way.
pub(crate) fn cancel(work: &mut Work<'_>, id: Uuid) -> Outcome<bool> {
    if work.changes.delayed.contains_key(&id) {
        return Ok(false);
    }
    let Some(name) = hop::find_name(work, id)? else { return Ok(false) };
    if let Some(side) = name.side {
        let conversation = work.conversation(side.conversation)?;
        // Not one whose endpoint has ended in this unit of work, and took it along.
        let Some(mut conversation) = conversation else { return Ok(false) };
        let Some(side) = conversation.side_mut(side.role) else { return Ok(false) };
        if side.delayed == 0 {
            return Ok(false);
        }
        side.delayed -= 1;
        work.save(conversation);
    }
    if name.is_in_store {
        hop::forget(work, id, name.side, name.place.stamp);
        remember(work, id, Fate::Cancelled, name.place.at);
    } else {
        let Some(delayed) = hop::find(work, name.place.stamp)? else { return Ok(false) };
        hop::withdraw(work, &delayed, true);
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(1))?;
    }
    if let Some((queue, seen)) = name.seen
        && let Ok(queue) = work.look_up(|catalog| catalog.queue(&queue))
        && !work.is_view()
    {
        SeenId { queue: queue.number, id: seen }.forget(work, id)?;
    }
    work.shift(id, None, None);
    Ok(true)
}

/// A message that the store has shown is to be delivered at another time: it goes through the hop again.
#[derive(Debug)]
pub(crate) struct Recall {
    pub(crate) message: Rc<Delayed>,
    pub(crate) to: Instant,
}

impl Recall {
    /// Gives whether it was not dispatched, or cancelled, meanwhile.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<bool> {
        work.after_others()?;
        let id = self.message.id;
        let (known, name) = (recall(work, id), hop::find_name(work, id));
        let (known, name) = (known?, name?);
        if work.changes.delayed.contains_key(&id) || name.as_ref().is_some_and(|name| !name.is_in_store) {
            // Somebody has moved it since it was shown.
            return Reschedule { id: text(id), to: self.to }.run(work);
        }
        if known.is_some() || (name.is_none() && self.message.handle().is_some()) {
            return is_gone(work, &text(id));
        }
        let at = Delay::At(self.to).due(work.now);
        if let Some(handle) = self.message.handle() {
            let Some((conversation, role)) = work.find(handle)? else { return is_gone(work, &text(id)) };
            if conversation.side(role).is_none_or(|side| side.delayed == 0) {
                return is_gone(work, &text(id));
            }
            check_lifetime(work, &conversation, handle, at, "The message would be delivered")?;
        }
        let stamp = work.change_numbers(|numbers| {
            numbers.delayed += 1;
            numbers.claim(Number::Stamp, 1)
        })?;
        name.into_iter().for_each(|name| hop::forget(work, id, name.side, name.place.stamp));
        let hop = Some(Hop::default().moved());
        let moved = Delayed { place: Place { at, stamp }, time: at, waits: 0, hop, ..Delayed::clone(&self.message) };
        work.shift(id, None, Some(moved));
        Ok(true)
    }
}

/// The store has been asked to remove a message that was withdrawn.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) id: Uuid,
    /// `None`: it did not answer.
    pub(crate) was_there: Option<bool>,
}

impl Settle {
    /// Gives whether it was there. One that somebody was about to deliver, and did not, was.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<bool> {
        work.after_others()?;
        match (recall(work, self.id)?, self.was_there) {
            (Some(Known::Gone(Fate::Spared, _)), _) => Ok(true),
            (Some(Known::Gone(Fate::Asking, _)), Some(true)) => {
                memory::Removed(vec![self.id]).run(work)?;
                Ok(true)
            }
            (Some(Known::Gone(Fate::Asking, _)), Some(false)) => {
                memory::forget(work, self.id);
                Ok(false)
            }
            // Whoever cancels it again asks again; after a while the leader does.
            (Some(Known::Removed { is_spared }), _) => Ok(is_spared),
            (_, was_there) => Ok(was_there.unwrap_or_default()),
        }
    }
}
