//! From changed records to writes: runs, turns, conversations, queues.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::conversation::Side;
use crate::ids::{Role, SideId};
use crate::message::{self, Class, RUN_BYTES, RUN_ROWS, Row, Run};
use crate::record::float;
use crate::store::{Change, Key, StoreName};
use crate::turn::{HeldTurn, OutgoingTurn, Turn};
use crate::work::{Number, Outcome, Pending, Stop, Work};

/// Order numbers are claimed in blocks of this size.
const ORDERS: u64 = 65_536;

impl Work<'_> {
    /// Hands everything to the storage transaction. What is read afterwards sees it.
    pub(crate) async fn flush(&mut self) -> Outcome<()> {
        if self.is_view() {
            return Ok(());
        }
        // What is handed over was counted when it was stated.
        let effects = self.changes.effects;
        let arrivals = self.flush_rows().await?;
        self.flush_conversations(&arrivals);
        self.changes.effects = effects;
        for change in std::mem::take(&mut self.changes.writes) {
            match change {
                Change::Put(store, key, value) => self.tx.put(store, key, value),
                Change::Delete(store, key) => self.tx.delete(store, key),
                Change::DeleteRange(store, range) => self.tx.delete_range(store, range),
            }
        }
        for (number, cached) in &mut self.changes.queues {
            if cached.dirty {
                if let Some(queue) = &cached.current {
                    self.tx.put(StoreName::Queues, Key::from(*number), queue.record());
                }
                cached.stored.clone_from(&cached.current);
                cached.dirty = false;
            }
        }
        Ok(())
    }

    /// Writes the pending rows as runs. Gives the first order of what each side got, to be received or held.
    async fn flush_rows(&mut self) -> Outcome<BTreeMap<SideId, u64>> {
        let mut arrivals = BTreeMap::new();
        for pending in std::mem::take(&mut self.changes.pending) {
            // An END that came later takes the rows with it.
            let is_there = self.changes.conversations.get(&pending.side.conversation).and_then(|cached| cached.current.as_ref()).is_some_and(|conversation| conversation.side(pending.side.role).is_some());
            if !is_there {
                continue;
            }
            let order = self.orders(pending.service, message::count(pending.rows.len())).await?;
            if pending.class != Class::Sent {
                arrivals.entry(pending.side).or_insert(order);
            }
            self.put_runs(&pending, order);
        }
        Ok(arrivals)
    }

    fn put_runs(&mut self, pending: &Pending, first_order: u64) {
        let (mut runs, mut done, mut has_bodies) = (0, 0, false);
        let mut rest = pending.rows.as_slice();
        while !rest.is_empty() {
            let (rows, remaining) = rest.split_at(run_length(rest));
            let (run, bodies) = Run::of(pending.side, pending.class, pending.is_visible.then_some(pending.service), first_order + done, pending.first + done, pending.sequence + done, rows);
            for (number, value) in bodies {
                has_bodies = true;
                self.tx.put(StoreName::Bodies, message::key(pending.side, pending.class, number), value);
            }
            self.tx.put(StoreName::Messages, run.key(), run.record());
            runs += 1;
            done += message::count(rows.len());
            rest = remaining;
        }
        let cached = self.changes.conversations.get_mut(&pending.side.conversation);
        if let Some(cached) = cached {
            let side = cached.current.as_mut().and_then(|conversation| conversation.side_mut(pending.side.role).as_mut());
            if let Some(side) = side {
                side.runs += runs;
                side.has_bodies |= has_bodies;
                if side.first_order == 0 {
                    side.first_order = first_order;
                }
                side.last_order = first_order + done.saturating_sub(1);
            }
        }
    }

    /// The first of `count` order numbers of a service's queue.
    async fn orders(&mut self, service: u32, count: u64) -> Outcome<u64> {
        let number = self.queue_of(service).await?.number;
        let queue = self.queue(number).await?;
        if queue.next_order + count > queue.end_of_orders {
            // A commit of more rows than a block has takes as many blocks in one piece.
            let size = count.max(1).div_ceil(ORDERS) * ORDERS;
            let first = self.claim(Number::Order, size).await?;
            self.change_queue(number, |queue| (queue.next_order, queue.end_of_orders) = (first, first + size));
        }
        let first = self.queue(number).await?.next_order;
        self.change_queue(number, |queue| queue.next_order += count);
        Ok(first)
    }

    fn flush_conversations(&mut self, arrivals: &BTreeMap<SideId, u64>) {
        let numbers: Vec<u64> = self.changes.conversations.iter().filter(|(_, cached)| cached.dirty).map(|(number, _)| *number).collect();
        for number in numbers {
            for role in [Role::Initiator, Role::Target] {
                self.reconcile(SideId { conversation: number, role }, arrivals);
            }
            self.remember_route(number);
            let Some(cached) = self.changes.conversations.get_mut(&number) else { continue };
            let key = Key::from(float(number));
            match &cached.current {
                Some(conversation) => self.tx.put(StoreName::Conversations, key, conversation.record()),
                None if cached.stored.is_some() => self.tx.delete(StoreName::Conversations, key),
                None => {}
            }
            cached.stored.clone_from(&cached.current);
            cached.dirty = false;
        }
    }

    /// Remembers which queues this commit writes to: the next one of the conversation will probably want to read them ahead.
    fn remember_route(&self, number: u64) {
        let conversation = self.changes.conversations.get(&number).and_then(|cached| cached.current.as_ref());
        let sides = [Role::Initiator, Role::Target].into_iter().filter_map(|role| conversation.and_then(|conversation| conversation.side(role)));
        let queues = sides.filter_map(|side| self.catalog.queue_of(side.service)).map(|queue| queue.number);
        let is_written = |queue: &u32| self.changes.queues.get(queue).is_some_and(|cached| cached.dirty);
        let mut queues: Vec<u32> = queues.filter(is_written).collect();
        queues.dedup();
        self.core.routes.put(number, queues);
    }

    /// Makes the turns of a side what its record says: there is one to receive exactly while something is unread, one to come in exactly
    /// while something is held, one to transmit exactly while something is outgoing.
    fn reconcile(&mut self, id: SideId, arrivals: &BTreeMap<SideId, u64>) {
        let Some(cached) = self.changes.conversations.get_mut(&id.conversation) else { return };
        let before = cached.stored.as_ref().and_then(|conversation| conversation.side(id.role)).cloned();
        let mut after = cached.current.as_mut().and_then(|conversation| conversation.side_mut(id.role).as_mut());
        if let Some(side) = after.as_deref_mut() {
            let arrived = arrivals.get(&id).copied().unwrap_or(side.first_order);
            side.turn = (side.unread > 0).then(|| side.turn.unwrap_or(arrived));
            side.held_turn = (side.held_count() > 0).then(|| side.held_turn.unwrap_or(arrived));
        }
        let after = after.cloned();

        let catalog = Rc::clone(&self.catalog);
        let queue = |side: &Side| catalog.queue_of(side.service).map_or(0, |queue| queue.number);
        let own_group = cached.current.as_ref().or(cached.stored.as_ref()).map(|conversation| conversation.own_group(id.role)).unwrap_or_else(|| "".into());
        let group = |side: &Side| side.group.clone().unwrap_or_else(|| Rc::clone(&own_group));
        let turn = |side: &Side| side.turn.map(|order| Turn { queue: queue(side), priority: side.priority, order, side: id, service: side.service, group: group(side), is_shared: side.group.is_some() });
        let held = |side: &Side| side.held_turn.map(|order| HeldTurn { queue: queue(side), order, side: id });
        let outgoing = |side: &Side| side.outgoing.as_ref().and_then(|outgoing| outgoing.turn).map(|time| OutgoingTurn { priority: side.priority, time, side: id });

        let (old, new) = (before.as_ref().and_then(turn), after.as_ref().and_then(turn));
        if old != new {
            if let Some(old) = &old {
                self.tx.delete(StoreName::Turns, old.key());
                old.twin_key().into_iter().for_each(|key| self.tx.delete(StoreName::Turns, key));
            }
            if let Some(new) = &new {
                self.tx.put(StoreName::Turns, new.key(), new.record());
                new.twin_key().into_iter().for_each(|key| self.tx.put(StoreName::Turns, key, new.record()));
            }
            for turn in [&old, &new].into_iter().flatten() {
                self.change_queue(turn.queue, |queue| queue.turns += 1);
            }
        }
        let (old, new) = (before.as_ref().and_then(held), after.as_ref().and_then(held));
        if old != new {
            old.into_iter().for_each(|old| self.tx.delete(StoreName::Turns, old.key()));
            new.into_iter().for_each(|new| self.tx.put(StoreName::Turns, new.key(), new.record()));
        }
        let (old, new) = (before.as_ref().and_then(outgoing), after.as_ref().and_then(outgoing));
        if old != new {
            old.into_iter().for_each(|old| self.tx.delete(StoreName::Turns, old.key()));
            new.into_iter().for_each(|new| self.tx.put(StoreName::Turns, new.key(), new.record()));
        }
    }
}

/// How many of the rows go into the next run: as many as fit, but at least one.
fn run_length(rows: &[Row]) -> usize {
    let mut size = 0.0;
    let fits = |row: &&Row| {
        size += if row.body.size >= message::LARGE_BODY { 64.0 } else { row.body.size };
        size <= RUN_BYTES
    };
    rows.iter().take(RUN_ROWS).take_while(fits).count().max(1)
}

impl From<Stop> for crate::error::Error {
    /// For callers that neither wait nor begin again.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(error) => error,
            Stop::Stale => Self::new(crate::error::ErrorCode::Conflict, "The definitions changed meanwhile. Try again."),
            Stop::Held(group) => Self::new(
                crate::error::ErrorCode::GroupLocked,
                format!("Another reader holds the conversation group {group}. Try again, or raise `lockTimeout` in openBroker."),
            )
            .with("group", &*group),
        }
    }
}
