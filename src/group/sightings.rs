//! Who was seen to hold a group, and since when.

use std::cell::RefCell;
use std::rc::Rc;

use crate::clock::Instant;
use crate::lease::LIFE;
use crate::map::Map;

/// A holder.
#[derive(Debug)]
struct Sighting {
    owner: String,
    /// The first time, or its last known sign of life.
    since: Instant,
    /// The last time.
    seen: Instant,
}

/// The holders that this context has met.
#[derive(Debug, Default)]
pub(super) struct Sightings(RefCell<Map<Rc<str>, Sighting>>);

impl Sightings {
    /// A group is seen in somebody's hands. Gives since when it is known to be in those.
    pub(super) fn see(&self, group: &Rc<str>, owner: String, now: Instant) -> Option<Instant> {
        let mut sightings = self.0.borrow_mut();
        // Who has not looked for so long can't say what was in between. A clock that was set back begins anew, too.
        sightings.retain(|_, sighting| (sighting.seen..sighting.seen + LIFE).contains(&now));
        if sightings.get(&**group).is_none_or(|sighting| sighting.owner != owner) {
            sightings.insert(Rc::clone(group), Sighting { owner, since: now, seen: now });
        }
        let sighting = sightings.get_mut(&**group)?;
        sighting.seen = now;
        Some(sighting.since)
    }

    /// Its holder has given a sign of life.
    pub(super) fn believe(&self, group: &str, at: Instant) {
        if let Some(sighting) = self.0.borrow_mut().get_mut(group) {
            sighting.since = at;
        }
    }
}
