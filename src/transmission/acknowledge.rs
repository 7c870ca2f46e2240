//! Rows have arrived at the far broker.

use crate::arrival;
use crate::conversation::Conversation;
use crate::ids::Role;
use crate::message::Class;
use crate::reading::read_runs;
use crate::retention;
use crate::stop::Outcome;
use crate::work::Work;

/// Everything that an endpoint has sent below `end` has arrived for good: the rows go, unless retention keeps them as copies. With the last of them
/// goes an endpoint that has ENDed. Gives how many they were. The conversation is to be saved.
pub(crate) fn acknowledge(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, end: u64) -> Outcome<u64> {
    go(work, conversation, role, end, true)
}

/// The same for what will never arrive, and is elsewhere by now.
pub(crate) fn let_go(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, end: u64) -> Outcome<u64> {
    go(work, conversation, role, end, false)
}

fn go(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, end: u64, has_arrived: bool) -> Outcome<u64> {
    let (id, handle) = (conversation.id_of(role), conversation.handle(role));
    let Some(side) = conversation.side(role) else { return Ok(0) };
    let Some(outgoing) = side.outgoing.as_ref() else { return Ok(0) };
    let (first, end) = (outgoing.acknowledged, end.min(side.next_send));
    let Some(arrived) = end.checked_sub(first).filter(|arrived| *arrived > 0) else { return Ok(0) };
    // One more, if there is one: it says since when the rest waits.
    let runs = read_runs(work, (id, Class::Sent), first, arrived + 1).map_err(|stop| stop.about(&handle))?;
    let queue = work.queue_of(side.service)?;

    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(0) };
    let service = side.service;
    let Some(outgoing) = side.outgoing.as_mut() else { return Ok(0) };
    let was_waiting = outgoing.turn.is_some();
    outgoing.acknowledged = end;
    outgoing.handed = outgoing.handed.max(end);
    outgoing.is_confirmed |= has_arrived;
    (outgoing.attempts, outgoing.retry_at, outgoing.reason) = (0, None, "".into());
    outgoing.offer_again_at = outgoing.offer_again_at.filter(|_| outgoing.accepted > end);
    let next = runs.iter().find(|run| run.last >= end);
    let next = next.and_then(|run| run.times.get(usize::try_from(end.saturating_sub(run.first())).ok()?)).copied();
    outgoing.turn = outgoing.turn.filter(|_| end < side.next_send).map(|time| next.unwrap_or(time));
    for run in runs.iter().filter(|run| run.first() < end) {
        let numbers = if has_arrived { run.first().max(first)..end.min(run.last + 1) } else { 0..0 };
        for number in numbers {
            let index = usize::try_from(number - run.first()).unwrap_or(usize::MAX);
            work.changes.notice.transmitted.push((run.id_of(index), handle.clone()));
        }
        if !side.needs(run) {
            side.runs = side.runs.saturating_sub(1);
            retention::delete(work, run, side);
        }
    }
    work.changes.counts.transmitted += if has_arrived { arrived } else { 0 };
    work.changes.notice.transmission = true;
    work.changes.notice.touch(&queue.name);
    work.count(service, |counters| {
        counters.outgoing = counters.outgoing.saturating_sub(if was_waiting { arrived } else { 0 });
    })?;
    if conversation
        .side(role)
        .is_some_and(|side| side.outgoing.as_ref().is_none_or(|sent| sent.acknowledged >= side.next_send))
    {
        arrival::finish_outbound(work, conversation, role)?;
    }
    Ok(arrived)
}
