//! Whether something waits for a route: what a service worker asks before it lets the browser believe that everything has gone.

use crate::stop::Outcome;
use crate::store::StoreName;
use crate::transmission::Services;
use crate::turn::OutgoingTurn;
use crate::work::Work;

/// So many conversations are read together.
const PAGE: usize = 64;

/// Whether one of the routes could hand something over, now or after a failure. What was accepted waits for its acknowledgement alone.
pub(super) fn is_transmittable(work: &mut Work<'_>, routes: &[Services]) -> Outcome<bool> {
    if routes.is_empty() {
        return Ok(false);
    }
    let mut turns = work.read_range(StoreName::Turns, OutgoingTurn::all(), None, OutgoingTurn::read)?;
    turns.retain(|turn| routes.iter().any(|services| services.has(&turn.service)));
    if turns.iter().any(|turn| turn.at <= 0.0) {
        return Ok(true);
    }
    for page in turns.chunks(PAGE) {
        let sides = page.iter().map(|turn| turn.side);
        work.need(sides.clone().map(|side| side.conversation), [])?;
        for id in sides {
            let conversation = work.conversation(id.conversation)?;
            let side = conversation.as_ref().and_then(|conversation| conversation.side(id.role));
            if side.and_then(|side| side.outgoing.as_ref()?.retry_at).is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
