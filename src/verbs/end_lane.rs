//! END CONVERSATION of a lane (D24).

use super::EndResult;
use crate::conversation::{Conversation, Side, System, SystemRow};
use crate::due::Due;
use crate::ids::text;
use crate::lane::{self, Place, ROLE};
use crate::membership;
use crate::message::{self, Class, count};
use crate::poison::{self, Trial};
use crate::recoverability::{self, Retry};
use crate::stop::Outcome;
use crate::store::{Change, StoreName};
use crate::sweep;
use crate::work::Work;

/// What was received goes, and with it the timers. What is unread begins the next lane, under another handle and in a group of its own; `all`
/// (WITH CLEANUP) takes it as well. Nobody is at the other end to be told.
pub(crate) fn end_lane(
    work: &mut Work<'_>,
    mut conversation: Box<Conversation>,
    archived: u64,
    all: bool,
) -> Outcome<EndResult> {
    let id = conversation.id_of(ROLE);
    let handle = conversation.handle(ROLE);
    let Some(mut side) = conversation.side(ROLE).cloned() else { return Ok(EndResult::default()) };
    if let Some(side) = conversation.side_mut(ROLE) {
        poison::settle(work, side)?;
    }
    side.timers.iter().for_each(|timer| work.drop_due(&Due::timer(id, timer)));
    let taken = work.changes.taken.get(&id).cloned().unwrap_or_default();
    // DialogTimers are of the conversation that ends. What came back from the error queue is unread.
    let (returned, timers): (Vec<_>, Vec<_>) =
        side.system.iter().copied().partition(|row| row.kind == System::Returned);
    let is_left = |row: &&SystemRow| !taken.system.contains(&(row.kind, row.number));
    let notes = count(side.timers.len() + timers.iter().filter(is_left).count());
    let came_back = count(returned.iter().filter(is_left).count());
    let waiting = side.next_expected.saturating_sub(side.cursor);
    let unread = side.next_expected.saturating_sub(side.cursor.max(taken.cursor));
    let discarded = notes + if all { unread + came_back } else { 0 };

    let held_system = count(side.system.iter().filter(|row| row.held).count());
    let is_over = all || (waiting == 0 && returned.is_empty());
    let outside = count(returned.iter().filter(|row| row.held).count());
    let inside = side.unread_in_sequence() + count(returned.len()) - outside;
    let (left, held) = if is_over { (0, 0) } else { (inside, waiting - side.unread_in_sequence() + outside) };
    work.count(side.service, |counters| {
        counters.ready = counters.ready.saturating_sub(side.unread.saturating_sub(left));
        counters.kept = counters.kept.saturating_sub(side.kept);
        counters.held = counters.held.saturating_sub(side.held_count().saturating_sub(held));
    })?;
    if held_system > 0 || (all && side.held.is_some()) {
        work.changes.notice.transmission = true;
    }
    if work.is_view() {
        // What it gets after the commit is not this transaction's.
        work.changes.ended.push(id);
    }
    if is_over {
        lane::remove(work, conversation)?;
        return Ok(EndResult { discarded, archived });
    }

    // What failed was of the conversation that ends, or is unread and stays.
    let is_gone = |retry: &Retry| {
        let (class, number) = retry.row;
        class == Class::System && !returned.iter().any(|row| row.number == number)
    };
    if side.retry.as_deref().is_some_and(is_gone) {
        recoverability::forget(work, id, &mut side);
    }
    membership::leave(work, &conversation, ROLE)?;
    delete_received(work, &conversation, &side, &returned);
    work.changes.notice.states.push((handle, "CD"));
    let next = Side {
        group: None,
        unread: left,
        kept: 0,
        kept_intervals: Vec::new(),
        // At most: each of those that stay has an unread row.
        runs: side.runs.min(waiting + count(returned.len())),
        system: returned,
        timers: Vec::new(),
        has_group_state: false,
        trial: Trial::default(),
        ..side
    };
    conversation.target = Some(next);
    conversation.bits = work.core.host.ids.bits();
    conversation.id = text(work.core.host.ids.uuid());
    conversation.created_at = work.now;
    if let Some(Place { base, .. }) = &mut conversation.lane {
        *base = conversation.target.as_ref().map_or(0, |side| side.cursor);
    }
    work.save(conversation);
    Ok(EndResult { discarded, archived })
}

/// The runs below the cursor, and every DialogTimer. The run that the cursor points into has unread rows, too: it goes when they are received.
fn delete_received(work: &mut Work<'_>, conversation: &Conversation, side: &Side, returned: &[SystemRow]) {
    let id = conversation.id_of(ROLE);
    let mut stretches = vec![(Class::Received, 0, side.cursor)];
    let mut from = 0;
    for to in returned.iter().map(|row| row.number).chain([side.next_system]) {
        stretches.push((Class::System, from, to));
        from = to + 1;
    }
    for (class, from, to) in stretches {
        if from < to {
            let range = message::keys_between(id, class, from, to - 1);
            work.write(Change::DeleteRange(StoreName::Bodies, range.clone()));
            work.write(Change::DeleteRange(StoreName::Messages, range));
        }
    }
    let stays = |number: u64| returned.iter().any(|row| row.number == number);
    work.changes.drop_rows(|pending| pending.side == id && pending.class == Class::System && !stays(pending.first));
    if side.kept > 0 {
        sweep::note(work, side.service, side.first_order, side.last_order, side.kept.div_ceil(256));
    }
}
