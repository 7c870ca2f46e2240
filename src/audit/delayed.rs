//! What is delayed, and what leads to it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Audit, Expected, keys, records};
use crate::conversation::Conversation;
use crate::delayed::custom::{self, Whereabouts};
use crate::delayed::{Delayed, Place, Run};
use crate::error::Result;
use crate::ids::{Decoded, SideId};
use crate::message::count;
use crate::numbers::Numbers;
use crate::store::{Key, StoreName, Tx};

/// The delayed store, and how many messages the numbers say that it has.
#[derive(Default)]
pub(super) struct Waiting {
    runs: Vec<Run>,
    /// Those that lie in the hop, and those that came through it and have a name.
    in_hop: Vec<Delayed>,
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
                Some("gone") => custom::read_gone(&record).map(drop),
                Some(_) => {
                    let read = custom::stamp_of(&value).and_then(|stamp| custom::read(stamp, &record));
                    read.map(|delayed| waiting.in_hop.push(delayed))
                }
                None => Run::read(&value, &record).map(|run| waiting.runs.push(run)),
            };
            if let Err(problem) = read {
                waiting.problems.push(format!("delayed messages {key:?}: {problem:?}"));
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
        let Waiting { runs, in_hop, named, problems, counted } = std::mem::take(&mut self.waiting);
        self.found.extend(problems);
        let recount = runs.iter().map(|run| run.key.count).sum::<u64>() + count(in_hop.len());
        if counted != recount {
            self.find("delayed messages", counted, format!("a recount gives {recount}"));
        }
        let mut sides: BTreeMap<SideId, u64> = BTreeMap::new();
        self.check_hop(&in_hop, &named, &mut sides, expected);
        let mut before: Option<Place> = None;
        for run in &runs {
            if let (Some(side), Some(mark)) = (run.key.side, run.key.mark()) {
                *sides.entry(side).or_default() += run.key.count;
                expected.members.insert(mark);
            }
            for delayed in &run.messages {
                if before.replace(delayed.place).is_some_and(|before| before.key() >= delayed.place.key()) {
                    self.find("delayed message", delayed.id, "it is not behind those that were stored before it");
                }
                self.check_message(delayed, conversations, expected);
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

    fn check_hop(
        &mut self,
        in_hop: &[Delayed],
        named: &[(Uuid, Whereabouts)],
        sides: &mut BTreeMap<SideId, u64>,
        expected: &mut Expected,
    ) {
        for (id, found) in named {
            if let Some(side) = found.side {
                *sides.entry(side).or_default() += 1;
                expected.members.insert(custom::mark(side, found.place.stamp));
            }
            expected.members.insert(custom::name(*id));
        }
        for delayed in in_hop {
            let whereabouts = Whereabouts::of(delayed, false);
            if !named.contains(&(delayed.id, whereabouts)) {
                self.find("delayed message", delayed.id, "it is in the hop, and has no name");
            }
            if delayed.is_large() && !self.bodies.remove(&delayed.body_key()) {
                self.find("delayed message", delayed.id, "its body is missing");
            }
        }
    }

    fn check_message(
        &mut self,
        delayed: &Delayed,
        conversations: &BTreeMap<u64, Conversation>,
        expected: &mut Expected,
    ) {
        if let Some(decoded) = delayed.handle().and_then(|handle| Decoded::parse(handle)) {
            let conversation = conversations.get(&decoded.side.conversation);
            if !conversation.is_some_and(|conversation| conversation.has(decoded)) {
                self.find("delayed message", delayed.id, "its conversation is gone");
            }
        }
        if delayed.is_named {
            expected.members.insert(Delayed::name(delayed.id));
        } else if Place::of(delayed.id) != Some(delayed.place) {
            self.find("delayed message", delayed.id, "nothing leads to it");
        }
        if delayed.is_large() && !self.bodies.remove(&delayed.body_key()) {
            self.find("delayed message", delayed.id, "its body is missing");
        }
    }
}
