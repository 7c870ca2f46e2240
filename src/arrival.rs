//! What arrives at a side: messages in sequence, EndDialog, Error. And what waits outside while a queue is off.

use crate::body::{Body, Value};
use crate::changes::Pending;
use crate::conversation::{Conversation, Held, State, System, SystemRow};
use crate::ids::Role;
use crate::message::{Class, Row, count, system};
use crate::stop::Outcome;
use crate::transmission;
use crate::verbs::change_state;
use crate::work::Work;

/// Puts rows behind those that the side has. While its queue is off they lie in place but are not in the queue: the transmission queue shows
/// them. `ends`: the last of them is an EndDialog.
pub(crate) fn arrive(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    rows: Vec<Row>,
    ends: bool,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(service) = conversation.side(role).map(|side| side.service) else { return Ok(()) };
    let queue = work.queue_of(service)?;
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let added = count(rows.len());
    let first = side.next_expected;
    side.next_expected += added;
    if queue.enqueue_enabled {
        side.unread += added;
        work.changes.counts.enqueued += added;
        work.count(service, |counters| counters.ready += added)?;
        work.changes.notice.enqueue(&queue.name);
        if ends {
            change_state(work, conversation, role, State::DisconnectedInbound)?;
        }
    } else {
        let held = side.held.get_or_insert(Held { from: first, ends });
        held.ends |= ends;
        work.changes.notice.transmission = true;
        work.count(service, |counters| counters.held += added)?;
    }
    work.append(Pending { side: id, class: Class::Received, service, is_visible: true, first, sequence: first, rows });
    Ok(())
}

/// An Error of the broker's own for one side, which is in state ER from then on.
pub(crate) fn fail(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    code: i32,
    description: &str,
) -> Outcome<()> {
    let Some(side) = conversation.side(role) else { return Ok(()) };
    work.queue_of(side.service)?;
    if side.system.iter().any(|row| row.kind == System::Error && row.held) {
        // The one that waits outside says it already.
        return Ok(());
    }
    fail_anew(work, conversation, role, code, description)
}

/// The same, whatever waits outside.
pub(crate) fn fail_anew(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    code: i32,
    description: &str,
) -> Outcome<()> {
    let row = error_row(work, f64::from(code), description);
    arrive_own(work, conversation, role, System::Error, row)
}

/// A timer of this side has come to its time: read before everything else.
pub(crate) fn time_out(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, body: Body) -> Outcome<()> {
    let row = system_row(work, system::DIALOG_TIMER, body);
    arrive_own(work, conversation, role, System::DialogTimer, row)
}

/// The row of an Error.
pub(crate) fn error_row(work: &Work<'_>, code: f64, description: &str) -> Row {
    let body = Value::object(vec![("code", Value::from(code)), ("description", Value::from(description))]);
    system_row(work, system::ERROR, Body::small(body))
}

/// A row that the broker makes.
pub(crate) fn system_row(work: &Work<'_>, message_type: &str, body: Body) -> Row {
    Row { message_type: message_type.into(), id: work.core.host.ids.uuid(), time: work.now, headers: None, body }
}

/// What the broker itself has to tell one side shows the number at which it came.
fn arrive_own(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, kind: System, row: Row) -> Outcome<()> {
    let sequence = conversation.side(role).map_or(0, |side| side.next_expected);
    arrive_system(work, conversation, role, (kind, true), row, sequence)
}

/// An Error of the far application: read before the messages, whatever its number.
pub(crate) fn arrive_error(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Row,
    sequence: u64,
) -> Outcome<()> {
    arrive_system(work, conversation, role, (System::Error, false), row, sequence)
}

/// A message that came back from the error queue: ahead of the others, with the number that it had.
pub(crate) fn give_back(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Row,
    sequence: u64,
) -> Outcome<()> {
    arrive_system(work, conversation, role, (System::Returned, true), row, sequence)
}

/// Puts a row of class system before the others. While the queue is off it waits outside, as they do.
fn arrive_system(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    (kind, own): (System, bool),
    row: Row,
    sequence: u64,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(service) = conversation.side(role).map(|side| side.service) else { return Ok(()) };
    let queue = work.queue_of(service)?;
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let held = !queue.enqueue_enabled;
    let number = side.next_system;
    side.next_system += 1;
    side.system.push(SystemRow { kind, number, held, own });
    if held {
        work.changes.notice.transmission = true;
        work.count(service, |counters| counters.held += 1)?;
    } else {
        side.unread += 1;
        work.changes.counts.enqueued += 1;
        work.count(service, |counters| counters.ready += 1)?;
        work.changes.notice.enqueue(&queue.name);
        if kind == System::Error {
            change_state(work, conversation, role, State::Error)?;
        }
    }
    work.append(Pending {
        side: id,
        class: Class::System,
        service,
        is_visible: true,
        first: number,
        sequence,
        rows: vec![row],
    });
    Ok(())
}

/// The queue is on again: what waited outside comes in, in its order, and with the last of it goes the far endpoint that had ENDed.
pub(crate) fn release(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let released = side.held_count();
    let ends = side.held.take().is_some_and(|held| held.ends);
    let fails = side.system.iter().any(|row| row.held && row.kind == System::Error);
    side.system.iter_mut().for_each(|row| row.held = false);
    side.unread += released;
    let held_turn = side.held_turn.take();
    side.turn = side.turn.or(held_turn);
    let service = side.service;
    let queue = work.queue_of(service)?;
    work.changes.counts.enqueued += released;
    work.count(service, |counters| {
        counters.held = counters.held.saturating_sub(released);
        counters.ready += released;
    })?;
    work.changes.notice.enqueue(&queue.name);
    work.changes.notice.transmission = true;
    if fails {
        change_state(work, conversation, role, State::Error)?;
    } else if ends {
        change_state(work, conversation, role, State::DisconnectedInbound)?;
    }
    // What it has sent may have come in partly: see `verbs/deliver.rs`.
    if conversation.side(role.other()).is_some_and(|far| far.outgoing.is_none()) {
        finish_outbound(work, conversation, role.other())?;
    }
    Ok(())
}

/// An endpoint in state DO goes when nothing of it waits outside any more.
pub(crate) fn finish_outbound(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    let is_over = conversation.side(role).is_some_and(|side| side.state == State::DisconnectedOutbound);
    if is_over { transmission::finish(work, conversation, role) } else { Ok(()) }
}
