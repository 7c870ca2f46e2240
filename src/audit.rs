//! The audit: reads a whole database and says where it contradicts itself. For tests and diagnosis; the time it takes grows with the rows.
//!
//! | what | must be |
//! |---|---|
//! | counters of a side | a recount of its rows, by what [`crate::visible`] says |
//! | counters of a queue | the sums over the sides of its services |
//! | runs of a side | every row that is in the queue, waits outside or is to be transmitted, once; orders rise with the numbers; nothing that nobody needs |
//! | bodies | one for each large row, and no other |
//! | turns, members, due rows | those that the conversations and the ids of `enqueue` name, and no other |
//! | a delayed message | is counted, by its side too, and found by its id |
//! | a lane | has one end, something in it, and a record that names it |
//! | a side that is gone | leaves nothing, or runs that are listed for the sweep |

mod delayed;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use num_traits::ToPrimitive;

use crate::conversation::{Conversation, Side, State};
use crate::definitions::{self, Catalog};
use crate::due::{Due, DueKind};
use crate::error::Result;
use crate::ids::{Role, SideId};
use crate::lane::Lane;
use crate::membership::{member_key, state_key};
use crate::message::Run;
use crate::queue::{Counters, Queue};
use crate::record::float;
use crate::reuse::{Reuse, named};
use crate::seen::due_key;
use crate::store::{Direction, Key, Mode, Range, Store, StoreName, Tx, transact};
use crate::transmission::name_of;
use crate::turn::{HeldTurn, OutgoingTurn, Turn};

/// Reads everything in one storage transaction and lists what contradicts something else; an empty list: the database is sound.
///
/// # Errors
/// Those of the store; `StorageCorrupt` for definitions that can't be read.
pub async fn audit(store: &dyn Store) -> Result<Vec<String>> {
    transact(store, &StoreName::ALL, Mode::ReadOnly, async |tx| {
        let mut audit = Audit::read(tx).await?;
        audit.check();
        Ok(audit.found)
    })
    .await
}

struct Audit {
    catalog: Catalog,
    queues: BTreeMap<u32, Queue>,
    conversations: BTreeMap<u64, Conversation>,
    runs: BTreeMap<SideId, Vec<Run>>,
    bodies: BTreeSet<Key>,
    turns: BTreeSet<Key>,
    members: BTreeSet<Key>,
    /// Conversations by what they are found again by, and by the lanes that they are.
    named: BTreeMap<Key, u64>,
    /// Ids that `enqueue` was given, each with the key of its due row.
    seen: Vec<(Key, Option<Key>)>,
    due: BTreeSet<Key>,
    swept: BTreeSet<SideId>,
    waiting: delayed::Waiting,
    found: Vec<String>,
}

impl Audit {
    async fn read(tx: &Tx) -> Result<Self> {
        let mut audit = Self {
            catalog: definitions::load(tx).await?,
            queues: BTreeMap::new(),
            conversations: BTreeMap::new(),
            runs: BTreeMap::new(),
            bodies: keys(tx, StoreName::Bodies).await?,
            turns: keys(tx, StoreName::Turns).await?,
            members: keys(tx, StoreName::Members).await?,
            named: BTreeMap::new(),
            seen: Vec::new(),
            due: keys(tx, StoreName::Due).await?,
            swept: BTreeSet::new(),
            waiting: delayed::Waiting::read(tx).await?,
            found: Vec::new(),
        };
        for (key, record) in records(tx, StoreName::Queues).await? {
            match Queue::from_record(0, &record) {
                Ok(queue) => _ = audit.queues.insert(queue.number, queue),
                Err(problem) => audit.find("queue", &key, problem),
            }
        }
        for (key, record) in records(tx, StoreName::Conversations).await? {
            let number = if let Key::Number(number) = &key { number.to_u64().unwrap_or(0) } else { 0 };
            match Conversation::from_record(number, &record) {
                Ok(conversation) => _ = audit.conversations.insert(number, *conversation),
                Err(problem) => audit.find("conversation", &key, problem),
            }
        }
        for (key, record) in records(tx, StoreName::Messages).await? {
            match Run::read(&record) {
                Ok(run) if run.key() == key => audit.runs.entry(run.side).or_default().push(run),
                Ok(run) => audit.find("run", &key, format!("it says that its key is {:?}", run.key())),
                Err(problem) => audit.find("run", &key, problem),
            }
        }
        for (key, record) in records(tx, StoreName::Members).await? {
            let is_name = matches!(&key, Key::List(parts) if matches!(parts.first(), Some(Key::Text(kind)) if matches!(&**kind, "r" | "l")));
            if is_name {
                audit.named.insert(key, named(&record).unwrap_or(0));
            }
        }
        for (key, record) in records(tx, StoreName::Seen).await? {
            let due = due_key(&key, &record);
            audit.seen.push((key, due));
        }
        for key in keys(tx, StoreName::Meta).await? {
            if let Key::List(parts) = &key
                && let [Key::Text(name), Key::Number(side)] = parts.as_slice()
                && &**name == "sweep"
            {
                audit.swept.insert(SideId::from_number(side.to_u64().unwrap_or(0)));
            }
        }
        Ok(audit)
    }

    fn find(&mut self, what: &str, which: impl fmt::Debug, problem: impl fmt::Debug) {
        self.found.push(format!("{what} {which:?}: {problem:?}"));
    }

    fn check(&mut self) {
        let conversations = std::mem::take(&mut self.conversations);
        let mut expected = Expected::default();
        for conversation in conversations.values() {
            self.check_conversation(conversation, &mut expected);
        }
        let bounds = self.queues.values().filter_map(|queue| Some(Queue::due(queue.number, queue.oldest_due?).key()));
        expected.due.extend(bounds);
        let of_kind = |kind: DueKind| {
            let is_it = move |key: &&Key| Due::read(&key.to_value()).is_some_and(|due| due.kind == kind);
            self.due.iter().filter(is_it).cloned().collect::<Vec<Key>>()
        };
        let (deliveries, put_back) = (of_kind(DueKind::Delivery), of_kind(DueKind::PutBack));
        let forgotten = conversations.values().filter(|conversation| self.could_come_in(conversation));
        for number in
            forgotten.filter(|_| deliveries.is_empty()).map(|conversation| conversation.number).collect::<Vec<_>>()
        {
            self.find("conversation", number, "the service that it waits for is here, and nothing lets it in");
        }
        expected.due.extend(deliveries);
        expected.due.extend(put_back);
        for (key, due) in std::mem::take(&mut self.seen) {
            match due {
                Some(due) => _ = expected.due.insert(due),
                None => self.find("id", &key, "it can't be read"),
            }
        }
        self.check_delayed(&conversations, &mut expected);
        self.check_orphans(&conversations);
        self.check_counters(&expected.counters);
        let stored = [
            ("turn", &self.turns, &expected.turns),
            ("member", &self.members, &expected.members),
            ("due row", &self.due, &expected.due),
        ];
        let mut found = Vec::new();
        for (what, stored, expected) in stored {
            found.extend(stored.difference(expected).map(|key| format!("{what} {key:?}: no conversation names it")));
            found.extend(expected.difference(stored).map(|key| format!("{what} {key:?}: it is missing")));
        }
        self.found.append(&mut found);
        self.check_orders();
    }

    fn check_conversation(&mut self, conversation: &Conversation, expected: &mut Expected) {
        if conversation.is_gone() {
            self.find("conversation", conversation.number, "both sides are gone and the record is there");
        }
        if let Some(lane) = Lane::of(conversation) {
            let is_named = self.named.get(&lane.name()) == Some(&conversation.number);
            if !is_named || conversation.initiator.is_some() || conversation.is_empty_lane() {
                self.find("lane", &lane, "it is not named, is not alone, or has nothing");
            }
            expected.members.insert(lane.name());
        }
        expected.due.extend(Due::lifetime(conversation).map(|due| due.key()));
        expected.due.extend(conversation.closes.map(|closes| Due::closes(conversation.number, closes).key()));
        if let Some(key) = Reuse::of(conversation).map(|reuse| reuse.key()) {
            let is_open =
                conversation.side(Role::Initiator).is_some_and(|side| side.state != State::DisconnectedOutbound);
            if !is_open || self.named.get(&key) != Some(&conversation.number) {
                self.find("reuse", &key, "it is another conversation's, or its initiator has ended");
            }
            expected.members.insert(key);
        }
        for role in [Role::Initiator, Role::Target] {
            let Some(side) = conversation.side(role) else { continue };
            let id = conversation.id_of(role);
            let mut counters = self.check_side(conversation, id, side);
            let stated = self.queues.values().find_map(|queue| queue.services.get(&side.service));
            counters.tried(0, side.trial.of(stated.map_or(0, |stated| stated.epoch)).rollbacks);
            self.check_state(conversation, id, side);
            let until = side.retry.as_ref().and_then(|retry| retry.until);
            expected.due.extend(until.map(|until| Due::retry(id, until).key()));
            for timer in &side.timers {
                let is_new = expected.due.insert(Due::timer(id, timer).key());
                let is_only = side.timers.iter().filter(|other| other.name == timer.name).count() == 1;
                if !is_new || !is_only || side.state.is_over() {
                    self.find("timer", (id, &timer.name), "there are two of them, or its side has ended");
                }
            }
            expected.members.extend(name_of(conversation, role));
            expected.add(&self.catalog, conversation, id, side, counters);
            let group = conversation.group(role);
            let state = state_key(&group);
            if side.group.is_some() {
                expected.members.insert(member_key(&group, id));
                // A group may know something or not.
                if self.members.contains(&state) {
                    expected.members.insert(state);
                }
            } else if side.has_group_state {
                expected.members.insert(state);
            }
        }
    }

    fn check_state(&mut self, conversation: &Conversation, id: SideId, side: &Side) {
        let far = conversation.side(id.role.other());
        let waits = side.outgoing.as_ref().is_some_and(|outgoing| outgoing.acknowledged < side.next_send);
        let problem = match side.state {
            State::StartedOutbound if side.next_send > 0 || conversation.local.is_some() => "it has sent something",
            State::DisconnectedOutbound
                if conversation.local == Some(true) && !waits && far.is_none_or(|far| far.held_from_far() == 0) =>
            {
                "nothing of it waits outside"
            }
            State::DisconnectedOutbound if conversation.local == Some(false) && !waits => {
                "nothing of it is to be transmitted"
            }
            State::Conversing
                if far.is_some_and(|far| far.state == State::DisconnectedOutbound && far.outgoing.is_none())
                    && side.held_from_far() == 0 =>
            {
                "the far side has ended"
            }
            State::Closed if id.role == Role::Initiator || conversation.local != Some(false) => {
                "only a target of another broker's is shown when it is finished"
            }
            State::StartedInbound => "this build never gets there",
            state if (state == State::Closed) != (conversation.closes.is_some() && id.role == Role::Target) => {
                "when it goes is not known, or nobody waits for it"
            }
            State::Error if side.parked > 0 => "rows wait for others that never come",
            _ => return,
        };
        self.find("state", (id, side.state), problem);
    }

    /// Whether what a conversation has sent waits for a service that is here.
    fn could_come_in(&self, conversation: &Conversation) -> bool {
        let sent = conversation.initiator.as_ref().and_then(|side| side.outgoing.as_ref());
        conversation.local == Some(false)
            && sent.is_some_and(|outgoing| outgoing.turn.is_some() && outgoing.handed == 0)
            && conversation.far_broker.is_none()
            && conversation.to_broker.as_deref().is_none_or(|broker| broker == "current")
            && self.catalog.services.contains_key(&conversation.target_service)
    }

    /// Runs and bodies of sides that are gone.
    fn check_orphans(&mut self, conversations: &BTreeMap<u64, Conversation>) {
        let state = |side: &SideId| {
            let conversation = conversations.get(&side.conversation);
            conversation.and_then(|conversation| conversation.side(side.role)).map(|side| side.state)
        };
        let is_there = |side: &SideId| state(side).is_some();
        let gone: Vec<SideId> =
            self.runs.keys().filter(|side| !is_there(side) && !self.swept.contains(side)).copied().collect();
        gone.iter().for_each(|side| self.find("runs", side, "the side is gone and not listed for the sweep"));
        let has_rows = |side: &SideId| state(side).is_some_and(|state| !state.is_over());
        let swept: Vec<SideId> = self.swept.iter().filter(|side| has_rows(side)).copied().collect();
        swept.iter().for_each(|side| self.find("sweep", side, "the side has not ended"));
        self.check_bodies(conversations);
    }

    fn check_counters(&mut self, expected: &BTreeMap<u32, Counters>) {
        let stamp = self.catalog.stamp;
        let mut found = Vec::new();
        let defined: BTreeSet<u32> = self.catalog.queues.values().map(|queue| queue.number).collect();
        let stored: BTreeSet<u32> = self.queues.keys().copied().collect();
        found.extend(defined.difference(&stored).map(|number| format!("queue {number}: it has no record")));
        found.extend(stored.difference(&defined).map(|number| format!("queue {number}: nobody has defined it")));
        for queue in self.queues.values() {
            if queue.stamp != stamp {
                found.push(format!(
                    "queue {}: its stamp is {} and that of the definitions {stamp}",
                    queue.number, queue.stamp
                ));
            }
            for (service, counters) in queue.services.iter() {
                let mut expected = expected.get(service).cloned().unwrap_or_default();
                expected.epoch = counters.epoch;
                let is_here =
                    self.catalog.queue_of(*service).is_some_and(|definition| definition.number == queue.number);
                if *counters != expected
                    || (!is_here && expected != Counters { epoch: counters.epoch, ..Counters::default() })
                {
                    found.push(format!(
                        "counters of service {service} in queue {}: {counters:?}, and a recount gives {expected:?}",
                        queue.number
                    ));
                }
            }
        }
        for (service, expected) in expected {
            let queue = self.catalog.queue_of(*service).and_then(|queue| self.queues.get(&queue.number));
            if *expected != Counters::default() && queue.is_none_or(|queue| !queue.services.contains_key(service)) {
                found.push(format!("counters of service {service}: missing, and a recount gives {expected:?}"));
            }
        }
        self.found.append(&mut found);
    }
}

/// What the conversations say that there must be.
#[derive(Default)]
struct Expected {
    turns: BTreeSet<Key>,
    members: BTreeSet<Key>,
    due: BTreeSet<Key>,
    counters: BTreeMap<u32, Counters>,
}

impl Expected {
    fn add(&mut self, catalog: &Catalog, conversation: &Conversation, id: SideId, side: &Side, counters: Counters) {
        let queue = catalog.queue_of(side.service).map_or(0, |queue| queue.number);
        if let Some(turn) = Turn::of(conversation, id, queue) {
            self.turns.extend([Some(turn.key()), turn.twin_key()].into_iter().flatten());
        }
        self.turns.extend(side.held_turn.map(|order| HeldTurn { queue, order, side: id }.key()));
        let outgoing = OutgoingTurn::of(conversation, id.role);
        self.turns.extend(outgoing.iter().flat_map(OutgoingTurn::keys));
        let sum = self.counters.entry(side.service).or_default();
        sum.ready += counters.ready;
        sum.kept += counters.kept;
        sum.copies += counters.copies;
        sum.parked += counters.parked;
        sum.held += counters.held;
        sum.outgoing += counters.outgoing;
        sum.from_outside += u64::from(conversation.is_from_outside(id.role));
        sum.failed += u64::from(conversation.has_failed());
        sum.moved(None, Some(side.state));
        counters.trials.keys().for_each(|rollbacks| sum.tried(0, *rollbacks));
    }
}

async fn keys(tx: &Tx, store: StoreName) -> Result<BTreeSet<Key>> {
    Ok(tx.get_keys(store, &Range::all(), None).await?.into_iter().collect())
}

async fn records(tx: &Tx, store: StoreName) -> Result<Vec<(Key, crate::body::Value)>> {
    let keys = tx.get_keys(store, &Range::all(), None).await?;
    let values = tx.get_range(store, &Range::all(), None, Direction::Forward).await?;
    Ok(keys.into_iter().zip(values).collect())
}

/// A number as a part of a key.
fn part(number: u64) -> Key {
    Key::from(float(number))
}
