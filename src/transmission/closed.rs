//! Targets whose far sides are elsewhere, when they are finished: shown as CD for a while, and remembered for long, so that nothing that is
//! delivered again begins a conversation anew.

use std::rc::Rc;

use uuid::Uuid;

use crate::conversation::{Conversation, Side, State};
use crate::due::{self, Due, DueKind};
use crate::ids::Role;
use crate::membership;
use crate::seen::SeenId;
use crate::stop::Outcome;
use crate::work::{Number, Work};

/// So long it is shown, and so long its id is remembered, in milliseconds.
const SHOWN: f64 = 1_800_000.0;
const REMEMBERED: f64 = 2_592_000_000.0;

/// No queue has this number, and no message this id.
fn seen(id: &str) -> SeenId {
    SeenId { queue: 0, id: format!("c:{id}").into() }
}

/// Whether a conversation was a target's here that is finished.
pub(crate) fn is_remembered(work: &mut Work<'_>, id: &str) -> Outcome<bool> {
    Ok(seen(id).find(work)?.is_some())
}

/// The key of what remembers it, to be read ahead.
pub(crate) fn key(id: &str) -> crate::store::Key {
    seen(id).key()
}

/// From now on it is remembered.
pub(crate) fn remember(work: &mut Work<'_>, id: &Rc<str>) -> Outcome<()> {
    if work.is_view() {
        // The commit does it: nobody asks before.
        return Ok(());
    }
    seen(id).take(work, Uuid::try_parse(id).unwrap_or_default(), REMEMBERED).map(drop)
}

/// An endpoint without rows is finished: nobody is to be told anything any more. A target of a far broker's is shown for a while.
pub(crate) fn finish(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    if conversation.is_from_outside(role) { close(work, conversation) } else { remove(work, conversation, role) }
}

/// An endpoint without rows goes at once.
pub(crate) fn remove(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    let Some((service, state)) = conversation.side(role).map(|side| (side.service, side.state)) else { return Ok(()) };
    if conversation.is_from_outside(role) {
        remember(work, &conversation.id)?;
        work.count(service, |counters| counters.from_outside = counters.from_outside.saturating_sub(1))?;
    }
    membership::leave(work, conversation, role)?;
    if state == State::Closed {
        // Everybody knows.
        work.count(service, |counters| counters.moved(Some(state), None))?;
    } else {
        work.move_state(conversation, role, service, Some(state), None)?;
    }
    *conversation.side_mut(role) = None;
    if conversation.is_gone() {
        let closes = conversation.closes.take();
        let due = closes.map(|closes| Due::closes(conversation.number, closes));
        due.or_else(|| Due::lifetime(conversation)).into_iter().for_each(|due| work.drop_due(&due));
    }
    Ok(())
}

fn close(work: &mut Work<'_>, conversation: &mut Conversation) -> Outcome<()> {
    let role = Role::Target;
    let Some(side) = conversation.side(role).cloned() else { return Ok(()) };
    let closes = (work.now + SHOWN, work.claim(Number::Stamp, 1)?);
    remember(work, &conversation.id)?;
    membership::leave(work, conversation, role)?;
    work.count(side.service, |counters| counters.from_outside = counters.from_outside.saturating_sub(1))?;
    work.move_state(conversation, role, side.service, Some(side.state), Some(State::Closed))?;
    Due::lifetime(conversation).into_iter().for_each(|due| work.drop_due(&due));
    conversation.lifetime = conversation.lifetime.map(|(at, _)| (at, None));
    let mut closed = Side::new(side.service, State::Closed, side.priority, None);
    (closed.next_send, closed.next_expected, closed.cursor) = (side.next_send, side.next_expected, side.next_expected);
    conversation.target = Some(closed);
    conversation.closes = Some(closes);
    work.put_due(&Due::closes(conversation.number, closes), due::lifetime_record(conversation.number));
    Ok(())
}

/// A due row: it has been shown for long enough.
pub(crate) fn expire(work: &mut Work<'_>, due: &Due) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(due.number)? else { return Ok(()) };
    if conversation.closes == Some((due.at, due.stamp)) {
        remove(work, &mut conversation, Role::Target)?;
        work.save(conversation);
    }
    Ok(())
}

impl Conversation {
    /// Whether one of its ends was begun from outside, and is not finished.
    pub(crate) fn is_from_outside(&self, role: Role) -> bool {
        let is_open = self.side(role).is_some_and(|side| side.state != State::Closed);
        role == Role::Target && self.local == Some(false) && is_open
    }
}

impl Due {
    /// The row that says when an endpoint in state CD goes.
    pub(crate) fn closes(conversation: u64, (at, stamp): (f64, u64)) -> Self {
        Self { at, stamp, kind: DueKind::Closed, number: conversation }
    }
}
