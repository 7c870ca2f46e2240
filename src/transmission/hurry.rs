//! What has failed is not waited for any more: the network is back, or somebody asks for an attempt.

use super::pick::Services;
use crate::ids::SideId;
use crate::stop::Outcome;
use crate::store::{Bound, Key, StoreName};
use crate::turn::{OutgoingTurn, side_of};
use crate::work::Work;

/// So many conversations are looked at in one storage transaction.
const PAGE: u32 = 256;

/// A page of the conversations that wait, whoever has waited longest first.
#[derive(Debug)]
pub(crate) struct Hurry {
    /// `Some`: instead, what a transport has accepted for these services is offered again.
    pub(crate) accepted: Option<Services>,
    /// Behind this key.
    pub(crate) after: Option<Key>,
}

impl Hurry {
    /// Gives the key behind which the next page begins, if there is one.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Option<Key>> {
        work.after_others()?;
        let mut range = OutgoingTurn::all();
        if let Some(after) = &self.after {
            range.lower = Bound::Excluding(after.clone());
        }
        let keys: Vec<Key> =
            work.get_keys(StoreName::Turns, range, Some(PAGE))?.iter().filter_map(Key::from_value).collect();
        let sides: Vec<SideId> = keys.iter().filter_map(side_of).collect();
        work.need(sides.iter().map(|side| side.conversation), [])?;
        for id in sides {
            match &self.accepted {
                Some(services) => offer_again(work, id, services)?,
                None => resume(work, id)?,
            }
        }
        let is_full = u32::try_from(keys.len()).unwrap_or(u32::MAX) >= PAGE;
        Ok(keys.last().filter(|_| is_full).cloned())
    }
}

/// All waits that lie in the future are over, at once: the clock was set back, and nobody knows any more how long they were meant to last.
pub(crate) fn hurry_all(work: &mut Work<'_>) -> Outcome<()> {
    let keys = work.get_keys(StoreName::Turns, OutgoingTurn::all(), None)?.iter().filter_map(Key::from_value);
    let sides: Vec<SideId> = keys.filter_map(|key| side_of(&key)).collect();
    work.need(sides.iter().map(|side| side.conversation), [])?;
    for id in sides {
        resume(work, id)?;
        offer_again(work, id, &Services::AllBut(Vec::new()))?;
    }
    Ok(())
}

/// Nobody has acknowledged what was handed over, and it may be lost.
fn offer_again(work: &mut Work<'_>, id: SideId, services: &Services) -> Outcome<()> {
    let conversation = crate::stop::pass_over(work.conversation(id.conversation), &mut None)?.flatten();
    let Some(mut conversation) = conversation else { return Ok(()) };
    let is_its = services.has(conversation.service(id.role.other()));
    let outgoing = conversation.side_mut(id.role).as_mut().and_then(|side| side.outgoing.as_mut());
    let Some(outgoing) = outgoing.filter(|outgoing| is_its && outgoing.accepted > outgoing.acknowledged) else {
        return Ok(());
    };
    (outgoing.accepted, outgoing.offer_again_at) = (outgoing.acknowledged, None);
    work.changes.notice.transmission = true;
    work.save(conversation);
    Ok(())
}

/// A conversation whose last attempt failed may be tried again. One that can't be read is the trouble of who transmits it.
fn resume(work: &mut Work<'_>, id: SideId) -> Outcome<()> {
    let conversation = crate::stop::pass_over(work.conversation(id.conversation), &mut None)?.flatten();
    let Some(mut conversation) = conversation else { return Ok(()) };
    let outgoing = conversation.side_mut(id.role).as_mut().and_then(|side| side.outgoing.as_mut());
    if outgoing.is_some_and(|outgoing| outgoing.retry_at.take().is_some()) {
        work.changes.notice.transmission = true;
        work.save(conversation);
    }
    Ok(())
}
