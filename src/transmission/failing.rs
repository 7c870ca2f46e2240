//! A message that can't be what it should: the conversation has failed, here and there.

use super::fault::Fault;
use crate::arrival;
use crate::conversation::{Conversation, Outgoing, State};
use crate::ids::Role;
use crate::stop::Outcome;
use crate::verbs::append_last_word;
use crate::work::Work;

/// An Error for this side, and one for the far side. It goes although this side is in state ER: what this side has sent before and has not arrived
/// never will.
pub(super) fn fail(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, fault: &Fault) -> Outcome<()> {
    arrival::fail_anew(work, conversation, role, fault.code, &fault.text)?;
    if let Some(side) = conversation.side_mut(role) {
        side.ahead.last = None;
        side.outgoing.get_or_insert_with(Outgoing::default).is_last_word = true;
    }
    let row = arrival::error_row(work, f64::from(fault.code), &fault.text);
    append_last_word(work, conversation, role, Some(row), true, "the conversation has failed before it had arrived")
}

/// The far side refuses a message for good, and with it the conversation: an Error here, and one for the far side, which may have had what came before.
pub(super) fn end(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    code: f64,
    text: &str,
) -> Outcome<()> {
    let state = conversation.side(role).map(|side| side.state);
    let row = arrival::error_row(work, code, text);
    match state {
        Some(State::Conversing) => {
            arrival::arrive_error(work, conversation, role, row.clone(), 0)?;
            if let Some(side) = conversation.side_mut(role) {
                side.outgoing.get_or_insert_with(Outgoing::default).is_last_word = true;
            }
        }
        // Nobody is here any more to be told.
        Some(State::DisconnectedOutbound) => {}
        _ => return Ok(()),
    }
    append_last_word(
        work,
        conversation,
        role,
        Some(row),
        true,
        "the far side has refused the conversation before it had arrived",
    )
}
