//! Who is about to have the store remove what a row of the hop takes the place of: one at a time.

use uuid::Uuid;

use super::hop::{Hop, find, find_by_id, key, row};
use crate::clock::Instant;
use crate::stop::Outcome;
use crate::store::{Change, StoreName};
use crate::work::Work;

/// For so many milliseconds somebody is at it: a call takes no longer, and does not begin late.
const CLAIM: f64 = 61_000.0;

impl Hop {
    /// Of a message that was moved again. Whoever is at it does not know.
    pub(crate) fn moved(self) -> Self {
        Self { replaces: true, claimed: self.claimed, ..Self::default() }
    }

    /// Until when somebody is at it, if somebody is. One further ahead than it can be: the clock was set back.
    pub(crate) fn claimed_until(&self, now: Instant) -> Option<Instant> {
        Some(self.claimed).filter(|until| *until > now && *until <= now + CLAIM)
    }
}

/// Somebody is about to have the store remove what a row takes the place of.
#[derive(Debug)]
pub(crate) struct Claim(pub(crate) u64);

impl Claim {
    /// Gives the claim if that is to be done, and by nobody else.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Option<Claimed>> {
        work.after_others()?;
        let Some(delayed) = find(work, self.0)? else { return Ok(None) };
        let hop = delayed.hop.unwrap_or_default();
        if hop.claimed_until(work.now).is_some() {
            return Ok(None);
        }
        let until = work.now + CLAIM;
        work.write(Change::Put(StoreName::Delayed, key(self.0), row(&delayed, Hop { claimed: until, ..hop })));
        Ok(Some(Claimed { id: delayed.id, until }))
    }
}

/// Who is at a message. While that lasts nobody else makes such a claim, so the instant tells this one from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    id: Uuid,
    until: Instant,
}

/// The store has answered. A message that was moved meanwhile took the claim along, and would wait for its end.
pub(super) fn give_back(work: &mut Work<'_>, claimed: Option<&Claimed>) -> Outcome<()> {
    let Some(Claimed { id, until }) = claimed else { return Ok(()) };
    let Some(delayed) = find_by_id(work, *id)? else { return Ok(()) };
    let hop = delayed.hop.unwrap_or_default();
    if hop.claimed.total_cmp(until).is_eq() {
        let row = row(&delayed, Hop { claimed: 0.0, ..hop });
        work.write(Change::Put(StoreName::Delayed, key(delayed.place.stamp), row));
        work.changes.notice.hop = true;
    }
    Ok(())
}
