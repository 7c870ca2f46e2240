//! What is delayed, and what leads to it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Audit, Expected, keys, records};
use crate::conversation::Conversation;
use crate::delayed::Delayed;
use crate::delayed::custom::{self, Whereabouts};
use crate::error::Result;
use crate::ids::{Decoded, SideId};
use crate::message::count;
use crate::numbers::Numbers;
use crate::store::{Key, StoreName, Tx};

/// The delayed store, and how many messages the numbers say that it has.
#[derive(Default)]
pub(super) struct Waiting {
    messages: Vec<Delayed>,
    /// Those that came through the hop, and have a name.
    named: Vec<(Uuid, Whereabouts)>,
    problems: Vec<String>,
    counted: u64,
}

impl Waiting {
    pub(super) async fn read(tx: &Tx) -> Result<Self> {
        let mut waiting = Self::default();
        for (key, record) in records(tx, StoreName::Delayed).await? {
            let value = key.to_value();
            let read = match value.item(0).text().as_deref() {
                Some("gone") => custom::read_gone(&record).map(|_| None),
                Some(_) => custom::stamp_of(&value).and_then(|stamp| custom::read(stamp, &record)).map(Some),
                None => Delayed::read(&value, &record).map(Some),
            };
            match read {
                Ok(delayed) => waiting.messages.extend(delayed),
                Err(problem) => waiting.problems.push(format!("delayed message {key:?}: {problem:?}")),
            }
        }
        for (key, record) in records(tx, StoreName::Members).await? {
            let value = key.to_value();
            if value.item(0).text().as_deref() != Some("h") {
                continue;
            }
            match (value.item(1).text().and_then(|id| Uuid::try_parse(&id).ok()), custom::read_name(&record)) {
                (Some(id), Ok(whereabouts)) => waiting.named.push((id, whereabouts)),
                (_, problem) => waiting.problems.push(format!("name {key:?}: {problem:?}")),
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
        let Waiting { messages, named, problems, counted } = std::mem::take(&mut self.waiting);
        self.found.extend(problems);
        if counted != count(messages.len()) {
            self.find("delayed messages", counted, format!("a recount gives {}", messages.len()));
        }
        let mut sides: BTreeMap<SideId, u64> = BTreeMap::new();
        for (id, found) in &named {
            if let Some(side) = found.side {
                *sides.entry(side).or_default() += 1;
                expected.members.insert(custom::mark(side, found.place.stamp));
            } else if found.is_in_store {
                self.find("delayed message", id, "it has a name that leads nowhere");
            }
            expected.members.insert(custom::name(*id));
        }
        for delayed in messages.iter().filter(|delayed| delayed.hop.is_some()) {
            let whereabouts = Whereabouts { place: delayed.place, side: delayed.side(), is_in_store: false };
            if !named.contains(&(delayed.id, whereabouts)) {
                self.find("delayed message", delayed.id, "it is in the hop, and has no name");
            }
            if delayed.is_large() && !self.bodies.remove(&delayed.body_key()) {
                self.find("delayed message", delayed.id, "its body is missing");
            }
        }
        for delayed in messages.iter().filter(|delayed| delayed.hop.is_none()) {
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
