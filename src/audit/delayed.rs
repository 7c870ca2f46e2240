//! What is delayed, and what leads to it.

use std::collections::BTreeMap;

use super::{Audit, Expected, keys, records};
use crate::conversation::Conversation;
use crate::delayed::Delayed;
use crate::error::Result;
use crate::ids::{Decoded, SideId};
use crate::message::count;
use crate::numbers::Numbers;
use crate::store::{Key, StoreName, Tx};

/// The delayed store, and how many messages the numbers say that it has.
#[derive(Default)]
pub(super) struct Waiting {
    messages: Vec<Delayed>,
    problems: Vec<String>,
    counted: u64,
}

impl Waiting {
    pub(super) async fn read(tx: &Tx) -> Result<Self> {
        let mut waiting = Self::default();
        for (key, record) in records(tx, StoreName::Delayed).await? {
            match Delayed::read(&key.to_value(), &record) {
                Ok(delayed) => waiting.messages.push(delayed),
                Err(problem) => waiting.problems.push(format!("delayed message {key:?}: {problem:?}")),
            }
        }
        let key = Key::from("numbers");
        if keys(tx, StoreName::Meta).await?.contains(&key) {
            waiting.counted = Numbers::read(tx.get(StoreName::Meta, &key).await?.as_ref())?.delayed;
        }
        Ok(waiting)
    }
}

impl Audit {
    pub(super) fn check_delayed(&mut self, conversations: &BTreeMap<u64, Conversation>, expected: &mut Expected) {
        let Waiting { messages, problems, counted } = std::mem::take(&mut self.waiting);
        self.found.extend(problems);
        if counted != count(messages.len()) {
            self.find("delayed messages", counted, format!("a recount gives {}", messages.len()));
        }
        let mut sides: BTreeMap<SideId, u64> = BTreeMap::new();
        for delayed in &messages {
            if let Some(side) = delayed.side() {
                *sides.entry(side).or_default() += 1;
                expected.members.insert(Delayed::mark(side, delayed.place));
                let is_there = delayed.handle().and_then(|handle| Decoded::parse(handle)).is_some_and(|decoded| {
                    conversations.get(&side.conversation).is_some_and(|conversation| conversation.has(decoded))
                });
                if !is_there {
                    self.find("delayed message", delayed.id, "its conversation is gone");
                }
            }
            if delayed.is_named {
                expected.members.insert(Delayed::name(delayed.id));
            }
            if delayed.is_large() && !self.bodies.remove(&delayed.body_key()) {
                self.find("delayed message", delayed.id, "its body is missing");
            }
        }
        for conversation in conversations.values() {
            for role in [crate::ids::Role::Initiator, crate::ids::Role::Target] {
                let Some(side) = conversation.side(role) else { continue };
                let id = conversation.id_of(role);
                let waiting = sides.get(&id).copied().unwrap_or(0);
                if side.delayed != waiting {
                    self.find(
                        "side",
                        id,
                        format!("it says that {} messages are delayed, and {waiting} are", side.delayed),
                    );
                }
            }
        }
    }
}
