//! Dialogs that are used again: whoever begins one with the same services, contract and `reuse` gets the one that is open.
//!
//! A record of the store `members` names the conversation, and the conversation says that it is named: each the other, until its initiator ENDs
//! or another takes its place.

use crate::body::Value;
use crate::conversation::Conversation;
use crate::record::{self, Fields, Read};
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

/// What dialogs have in common that may stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reuse<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) contract: &'a str,
    pub(crate) reuse: &'a str,
}

impl<'a> Reuse<'a> {
    /// What a conversation is named by, if it is.
    pub(crate) fn of(conversation: &'a Conversation) -> Option<Self> {
        Some(Self {
            from: &conversation.initiator_service,
            to: &conversation.target_service,
            contract: &conversation.contract,
            reuse: conversation.reuse.as_deref()?,
        })
    }

    pub(crate) fn key(&self) -> Key {
        Key::list(["r".into(), self.from.into(), self.to.into(), self.contract.into(), self.reuse.into()])
    }

    /// The conversation that is named, in whatever state it is.
    pub(crate) fn find(&self, work: &mut Work<'_>) -> Outcome<Option<Box<Conversation>>> {
        let is_named = |conversation: &Conversation| Reuse::of(conversation) == Some(*self);
        // One of this unit of work: the store does not know it yet.
        let known = work
            .changes
            .conversations
            .values()
            .filter_map(|cached| cached.current.as_ref())
            .find(|known| is_named(known));
        if known.is_some() {
            return Ok(known.cloned());
        }
        let Some(record) = work.get(StoreName::Members, self.key())? else { return Ok(None) };
        let number = named(&record).map_err(|problem| problem.at(StoreName::Members, &self.key()))?;
        Ok(work.conversation(number)?.filter(|conversation| is_named(conversation)))
    }

    /// Names a conversation, in place of the one before.
    pub(crate) fn name(&self, work: &mut Work<'_>, number: u64) {
        let record = Value::list(vec![Value::from(1u32), record::value(number)]);
        work.write(Change::Put(StoreName::Members, self.key(), record));
    }
}

/// The number of the conversation in a record.
pub(crate) fn named(record: &Value) -> Read<u64> {
    Fields::open(record)?.number()
}

/// The initiator ENDs: nobody gets its dialog any more.
pub(crate) fn forget(work: &mut Work<'_>, conversation: &mut Conversation) {
    if let Some(key) = Reuse::of(conversation).map(|reuse| reuse.key()) {
        work.write(Change::Delete(StoreName::Members, key));
        conversation.reuse = None;
    }
}
