//! What the store gives is sent, or put into its queue, unless that was done already, or is not to be.

use std::rc::Rc;

use uuid::Uuid;

use super::memory::{self, Fate, Known, Removed, recall, remember};
use super::{TransactionMode, hop};
use crate::body::Body;
use crate::clock::Instant;
use crate::delayed::Delayed;
use crate::delayed::dispatch::{dispatch, fail_one, lane, leave};
use crate::error::Error;
use crate::ids::SideId;
use crate::lane::Lane;
use crate::stop::Outcome;
use crate::work::Work;

/// What was fetched.
#[derive(Clone, Debug)]
pub(crate) enum Incoming {
    Message(Rc<Delayed>),
    /// It can't be read: it goes to the error queue as it is.
    Unreadable {
        raw: Body,
        id: Option<Uuid>,
        problem: Rc<str>,
    },
}

/// A message comes out of the store.
#[derive(Debug)]
pub(crate) struct Arrive {
    pub(crate) incoming: Incoming,
    /// Why it is to go to the error queue, if it is, and after how many attempts.
    pub(crate) refused: Option<(Error, u64)>,
    pub(crate) mode: TransactionMode,
    /// What the store has removed since the last one.
    pub(crate) removed: Removed,
    /// When it was fetched, by real time, and how often the page had slept by then.
    pub(crate) fetched: (Instant, u64),
}

/// So long after it was fetched, in milliseconds of real time, a message is surely still held. Another instance may have it a little later.
const SURELY_HELD: f64 = 50_000.0;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The store is to remove it. So many messages came of it.
    Done(u64),
    /// It is to be delivered at another time, and the pump will tell the store.
    Moved,
    /// It was fetched too long ago: another instance may have it by now.
    Stale,
}

impl Arrive {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Arrived> {
        work.after_others()?;
        let (fetched_at, closings) = self.fetched;
        let held_for = work.core.host.pulse.clock.now() - fetched_at;
        if work.core.gate.closings() != closings || held_for.abs() > SURELY_HELD {
            return Ok(Arrived::Stale);
        }
        let delayed = match &self.incoming {
            Incoming::Message(delayed) => Rc::clone(delayed),
            Incoming::Unreadable { raw, id, problem } => return self.bury(work, raw, *id, problem),
        };
        let id = delayed.id;
        // Both at once.
        let (known, name) = (recall(work, id), hop::find_name(work, id));
        let (known, name) = (known?, name?);
        self.removed.run(work)?;
        match known {
            Some(Known::Gone(Fate::Cancelled | Fate::Asking, time)) => {
                remember(work, id, Fate::Spared, time);
                return Ok(Arrived::Done(0));
            }
            Some(_) => return Ok(Arrived::Done(0)),
            None => {}
        }
        if delayed.time > work.now || name.as_ref().is_some_and(|name| name.is_in_store && name.place.at > work.now) {
            // The clock was set back, or it was moved, after this was fetched.
            return Ok(Arrived::Moved);
        }
        if let Some(name) = name.as_ref().filter(|name| !name.is_in_store) {
            // It lies in the hop, too: the pump has not noted yet that the store has it, or it was moved.
            let Some(row) = hop::find(work, name.place.stamp)? else { return Ok(Arrived::Done(0)) };
            if row.hop.is_some_and(|hop| hop.replaces) {
                return Ok(Arrived::Moved);
            }
            hop::withdraw(work, &row, true);
            work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(1))?;
        } else if let Some(handle) = delayed.handle()
            && name.is_none()
            && work.find(handle)?.is_some()
        {
            // Its endpoint has nothing of it under way: it was dispatched before.
            return Ok(Arrived::Done(0));
        }
        let stamp = name.as_ref().map(|name| name.place.stamp);
        stamp.into_iter().for_each(|stamp| hop::forget(work, id, delayed.side(), stamp));
        let moved = match &self.refused {
            Some((error, attempts)) => {
                leave_all(work, &delayed)?;
                fail_one(work, &delayed, error, *attempts)?;
                0
            }
            None => {
                let own = lane(work, &delayed.to).map(|(lane, _)| lane);
                Lane::read_ahead(work, own.iter())?;
                dispatch(work, std::slice::from_ref(&*delayed))?
            }
        };
        if self.mode.remembers() {
            remember(work, id, Fate::Dispatched, delayed.time);
        } else {
            memory::forget(work, id);
        }
        work.changes.notice.delayed = true;
        Ok(Arrived::Done(moved))
    }

    fn bury(&self, work: &mut Work<'_>, raw: &Body, id: Option<Uuid>, problem: &str) -> Outcome<Arrived> {
        let known = id.map(|id| recall(work, id)).transpose()?.flatten();
        self.removed.run(work)?;
        if known.is_none() {
            let name = id.map(|id| hop::find_name(work, id)).transpose()?.flatten();
            if let (Some(id), Some(name)) = (id, name.filter(|name| name.is_in_store)) {
                hop::forget(work, id, name.side, name.place.stamp);
                name.side.map_or(Ok(()), |side| leave_side(work, side))?;
            }
            crate::mend::bury_foreign(work, raw, problem)?;
            if let Some(id) = id.filter(|_| self.mode.remembers()) {
                remember(work, id, Fate::Dispatched, 0.0);
            }
        }
        Ok(Arrived::Done(0))
    }
}

/// A side has one less under way.
pub(super) fn leave_side(work: &mut Work<'_>, side: SideId) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(side.conversation)? else { return Ok(()) };
    if let Some(side) = conversation.side_mut(side.role) {
        side.delayed = side.delayed.saturating_sub(1);
    }
    work.save(conversation);
    Ok(())
}

/// Its endpoint has one less under way.
pub(super) fn leave_all(work: &mut Work<'_>, delayed: &Delayed) -> Outcome<()> {
    delayed.handle().map_or(Ok(()), |handle| leave(work, delayed.side(), 1).map_err(|stop| stop.about(handle)))
}
