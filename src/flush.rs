//! From changed records to writes: runs, turns, conversations, queues.

use crate::changes::Pending;
use crate::columns::run_length;
use crate::conversation::{Conversation, Side};
use crate::ids::{Role, SideId};
use crate::lane::{self, Lane};
use crate::map::Map;
use crate::message::{self, Class, Run};
use crate::record::float;
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::turn::{HeldTurn, OutgoingTurn, Turn};
use crate::work::{Number, Work};

/// Order numbers are claimed in blocks of this size.
const ORDERS: u64 = 65_536;

impl Work<'_> {
    /// Turns everything that has changed into writes.
    pub(crate) fn flush(&mut self) -> Outcome<()> {
        self.flush_delayed()?;
        self.remove_empty_lanes()?;
        self.claim_orders()?;
        let arrivals = self.flush_rows()?;
        let numbers: Vec<u64> =
            self.changes.conversations.iter().filter(|(_, cached)| cached.dirty).map(|(number, _)| *number).collect();
        for number in numbers {
            for role in [Role::Initiator, Role::Target] {
                let id = SideId { conversation: number, role };
                self.reconcile(id, &arrivals);
                self.remember_route(id);
            }
            self.rename(number);
            let Some(cached) = self.changes.conversations.get(&number) else { continue };
            let lane = |conversation: &Option<Box<Conversation>>| conversation.as_deref().and_then(Lane::of);
            match (lane(&cached.stored), lane(&cached.current)) {
                (_, Some(lane)) => self.core.lanes.put(lane, number),
                (Some(gone), None) => self.core.lanes.forget(&gone),
                (None, None) => {}
            }
            let key = Key::from(float(number));
            let write = match &cached.current {
                Some(conversation) => Some(Change::Put(StoreName::Conversations, key, conversation.record())),
                None => cached.stored.is_some().then_some(Change::Delete(StoreName::Conversations, key)),
            };
            self.changes.writes.extend(write);
        }
        let changed = self.changes.queues.iter().filter(|(_, cached)| cached.dirty);
        let writes = changed.map(|(number, cached)| match &cached.current {
            Some(queue) => Change::Put(StoreName::Queues, Key::from(*number), queue.record()),
            None => Change::Delete(StoreName::Queues, Key::from(*number)),
        });
        self.changes.writes.extend(writes);
        Ok(())
    }

    /// A lane is there as long as it has something.
    fn remove_empty_lanes(&mut self) -> Outcome<()> {
        let changed = self.changes.conversations.values().filter(|cached| cached.dirty);
        let lanes = changed.filter_map(|cached| cached.current.as_ref());
        let empty: Vec<_> = lanes.filter(|conversation| conversation.is_empty_lane()).cloned().collect();
        empty.into_iter().try_for_each(|conversation| lane::remove(self, conversation))
    }

    /// Sees to it that every queue has as many order numbers left as rows were added to it.
    pub(crate) fn claim_orders(&mut self) -> Outcome<()> {
        let mut wanted: Map<u32, u64> = Map::default();
        for index in 0..self.changes.pending.len() {
            let pending =
                self.changes.pending.get(index).map(|pending| (pending.service, message::count(pending.rows.len())));
            if let Some((service, rows)) = pending {
                wanted.update(self.queue_of(service)?.number, |count| *count += rows);
            }
        }
        for (number, count) in wanted.iter() {
            let queue = self.queue(*number)?;
            if queue.next_order + count > queue.end_of_orders {
                // A commit of more rows than a block has takes as many blocks in one piece.
                let size = count.div_ceil(ORDERS).max(1) * ORDERS;
                let first = self.claim(Number::Order, size)?;
                self.change_queue(*number, |queue| (queue.next_order, queue.end_of_orders) = (first, first + size));
            }
        }
        Ok(())
    }

    /// The first of `count` order numbers of a service's queue.
    pub(crate) fn orders(&mut self, service: u32, count: u64) -> Outcome<u64> {
        let number = self.queue_of(service)?.number;
        let first = self.queue(number)?.next_order;
        self.change_queue(number, |queue| queue.next_order += count);
        Ok(first)
    }

    /// Writes the pending rows as runs. Gives the first order of what each side got, to be received or held.
    fn flush_rows(&mut self) -> Outcome<Map<SideId, u64>> {
        let mut arrivals = Map::default();
        for pending in std::mem::take(&mut self.changes.pending).into_iter().filter(|pending| !pending.rows.is_empty())
        {
            let order = self.orders(pending.service, message::count(pending.rows.len()))?;
            if matches!(pending.class, Class::System | Class::Received) && !arrivals.contains_key(&pending.side) {
                arrivals.insert(pending.side, order);
            }
            self.put_runs(&pending, order);
        }
        Ok(arrivals)
    }

    fn put_runs(&mut self, pending: &Pending, first_order: u64) {
        let (mut runs, mut has_bodies) = (0, false);
        for (run, bodies) in pending.runs(first_order) {
            for (number, value) in bodies {
                has_bodies = true;
                self.changes.writes.push(Change::Put(
                    StoreName::Bodies,
                    message::key(pending.side, pending.class, number),
                    value,
                ));
            }
            self.changes.writes.push(Change::Put(StoreName::Messages, run.key(), run.record()));
            runs += 1;
        }
        let cached =
            self.changes.conversations.get_mut(&pending.side.conversation).and_then(|cached| cached.current.as_mut());
        if let Some(side) = cached.and_then(|conversation| conversation.side_mut(pending.side.role).as_mut()) {
            side.runs += runs;
            side.has_bodies |= has_bodies;
            if side.first_order == 0 {
                side.first_order = first_order;
            }
            side.last_order = first_order + message::count(pending.rows.len()).saturating_sub(1);
        }
    }

    /// Remembers which queue a side is on: the next verbs of the conversation will want to read it ahead.
    fn remember_route(&self, id: SideId) {
        let conversation = self.changes.conversations.get(&id.conversation).and_then(|cached| cached.current.as_ref());
        let side = conversation.and_then(|conversation| conversation.side(id.role));
        if let Some(queue) = side.and_then(|side| self.catalog.queue_of(side.service)) {
            self.core.routes.put(id, queue.number);
        }
    }

    /// Makes the turns of a side what its record says: there is one to receive exactly while something is unread, one to come in exactly
    /// while something is held, one to transmit exactly while something is outgoing.
    fn reconcile(&mut self, id: SideId, arrivals: &Map<SideId, u64>) {
        let Some(cached) = self.changes.conversations.get_mut(&id.conversation) else { return };
        let before = cached.stored.as_ref().and_then(|stored| stored.side(id.role));
        // One that has waited has older rows than those that come with the end of its wait.
        let has_waited = before.is_some_and(Side::waits);
        if let Some(side) = cached.current.as_mut().and_then(|conversation| conversation.side_mut(id.role).as_mut()) {
            let arrived = arrivals.get(&id).copied().unwrap_or(side.first_order);
            let turn = if has_waited { side.first_order } else { side.turn.unwrap_or(arrived) };
            side.turn = (side.unread > 0 && !side.waits()).then_some(turn);
            side.held_turn = (side.held_count() > 0).then(|| side.held_turn.unwrap_or(arrived));
        }
        let queue = |side: &Side| self.catalog.queue_of(side.service).map_or(0, |queue| queue.number);
        let turn = |conversation: &Option<Box<Conversation>>| {
            let conversation = conversation.as_ref()?;
            Turn::of(conversation, id, queue(conversation.side(id.role)?))
        };
        let turns = (turn(&cached.stored), turn(&cached.current));
        let (before, after) = (
            cached.stored.as_ref().and_then(|stored| stored.side(id.role)),
            cached.current.as_ref().and_then(|current| current.side(id.role)),
        );
        let held = |side: &Side| side.held_turn.map(|order| HeldTurn { queue: queue(side), order, side: id });
        let outgoing = |conversation: &Option<Box<Conversation>>| OutgoingTurn::of(conversation.as_ref()?, id.role);
        let outgoing = (outgoing(&cached.stored), outgoing(&cached.current));

        let mut writes = Vec::new();
        if turns.0 != turns.1 {
            let old = turns.0.iter().flat_map(|turn| [Some(turn.key()), turn.twin_key()]).flatten();
            writes.extend(old.map(|key| Change::Delete(StoreName::Turns, key)));
            let new = turns
                .1
                .iter()
                .flat_map(|turn| [Some((turn.key(), turn.record())), turn.twin_key().map(|key| (key, turn.record()))])
                .flatten();
            writes.extend(new.map(|(key, record)| Change::Put(StoreName::Turns, key, record)));
        }
        let may_go = |turn: &OutgoingTurn| outgoing.0.as_ref().is_none_or(|before| turn.at < before.at);
        self.changes.notice.outgoing |= outgoing.1.as_ref().is_some_and(may_go);
        if outgoing.0 != outgoing.1 {
            writes.extend(
                outgoing.0.iter().flat_map(OutgoingTurn::keys).map(|key| Change::Delete(StoreName::Turns, key)),
            );
            let puts = |turn: &OutgoingTurn| {
                let record = turn.record();
                turn.keys().map(move |key| Change::Put(StoreName::Turns, key, record.clone()))
            };
            writes.extend(outgoing.1.iter().flat_map(puts));
        }
        let (old, new) = (before.and_then(held), after.and_then(held));
        if old != new {
            writes.extend(old.map(|turn| Change::Delete(StoreName::Turns, turn.key())));
            writes.extend(new.map(|turn| Change::Put(StoreName::Turns, turn.key(), turn.record())));
        }
        self.changes.writes.extend(writes);
        if turns.0 != turns.1 {
            for turn in [turns.0, turns.1].into_iter().flatten() {
                self.change_queue(turn.queue, |queue| queue.turns += 1);
            }
        }
    }
}

impl Pending {
    /// The rows as runs, whose orders begin with `first_order`, and the bodies that get records of their own.
    pub(crate) fn runs(&self, first_order: u64) -> Vec<(Run, Vec<message::LargeBody>)> {
        let mut runs = Vec::new();
        let mut done = 0;
        let mut rest = self.rows.as_slice();
        while !rest.is_empty() {
            let (rows, remaining) = rest.split_at(run_length(rest.iter().map(|row| &row.body)));
            runs.push(Run::of(
                self.side,
                self.class,
                self.is_visible.then_some(self.service),
                first_order + done,
                self.first + done,
                self.sequence + done,
                rows,
            ));
            done += message::count(rows.len());
            rest = remaining;
        }
        runs
    }
}
