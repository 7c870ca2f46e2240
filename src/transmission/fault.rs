//! What is wrong with a message that is none of its contract.

use std::rc::Rc;

use super::MessageEnvelope;
use super::delivery::{Delivery, later};
use super::read::{MOST_DESCRIPTION, Verdict};
use crate::definitions::FIRST_QUEUE;
use crate::error::ErrorCode;
use crate::ids::Role;
use crate::stop::{Outcome, Stop};
use crate::work::Work;

/// Why a message can't be taken as one of its conversation: a code for the sender, and a text.
pub(crate) struct Fault {
    pub(crate) code: i32,
    pub(crate) text: String,
}

/// Why a message is none of its contract; `Err`: nobody can tell for now.
pub(super) fn fault(
    work: &mut Work<'_>,
    contract: &str,
    message: &MessageEnvelope,
    verdict: &Verdict,
) -> Outcome<Option<Result<Fault, Delivery>>> {
    let definition = match work.look_up(|catalog| catalog.contract(contract)) {
        Ok(definition) => definition,
        Err(Stop::Failed(error)) if error.code() == ErrorCode::ContractNotFound => {
            return Ok(Some(Err(later(None, error.to_string()))));
        }
        Err(stop) => return Err(stop),
    };
    let entry = definition.entries.iter().find(|(name, _)| *name == message.message_type);
    let Some((_, sent_by)) = entry else {
        // It may have grown meanwhile.
        work.queue(FIRST_QUEUE)?;
        let text = format!("The contract \"{contract}\" does not have the message type \"{}\".", message.message_type);
        return Ok(Some(Ok(Fault { code: -8431, text })));
    };
    let sender = if message.from_initiator { Role::Initiator } else { Role::Target };
    if !sent_by.lets(sender) {
        let code = if message.from_initiator { -8457 } else { -8437 };
        let text = format!(
            "Only the {} may send \"{}\" on the contract \"{contract}\".",
            sent_by.name(),
            message.message_type
        );
        return Ok(Some(Ok(Fault { code, text })));
    }
    Ok(match verdict {
        Verdict::Fine => None,
        Verdict::Invalid(problem) => {
            // It travels as an Error's description.
            Some(Ok(Fault { code: -9615, text: problem.chars().take(MOST_DESCRIPTION).collect() }))
        }
        Verdict::Unchecked(problem) => Some(Err(later(None, Rc::clone(problem)))),
    })
}
