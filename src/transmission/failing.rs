//! A message that can't be what it should: the conversation has failed, here and there.

use super::fault::Fault;
use crate::arrival;
use crate::conversation::{Conversation, Outgoing};
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
