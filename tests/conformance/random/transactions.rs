//! Transactions that are open for several steps.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::{join, join_all};
use pocket_broker::error::ErrorCode;
use pocket_broker::{Rows, Transaction};

use super::super::support::shop::named;
use super::model::{End, Ending, QUEUES, Row, World, other};
use super::steps::{Call, Wanted};
use super::{Random, agree};

/// A transaction of the application, and what the model knows of it.
pub(super) struct Open {
    pub(super) tab: usize,
    transaction: Rc<Transaction>,
    /// The conversations that it has looked at, as it sees them.
    pub(super) view: World,
    changed: BTreeSet<Rc<str>>,
    pub(super) locks: BTreeSet<Rc<str>>,
    pub(super) taken: BTreeMap<End, Vec<Row>>,
    done: Vec<Done>,
}

#[derive(Debug)]
enum Done {
    Send(End, &'static str, Vec<String>),
    End(End, Ending),
    Timer(End, &'static str, Option<f64>, String),
    Take(Vec<(End, Vec<Row>)>),
}

impl Open {
    /// Sees a conversation as it is now, or as this transaction has left it.
    fn look(&mut self, world: &World, end: &End) {
        self.view.queues.clone_from(&world.queues);
        self.view.far.extend(world.far.iter().cloned());
        if self.changed.contains(&end.0) {
            return;
        }
        for end in [end.clone(), other(end)] {
            match world.sides.get(&end) {
                Some(side) => _ = self.view.sides.insert(end, side.clone()),
                None => _ = self.view.sides.remove(&end),
            }
        }
        self.view.lifetimes.extend(world.lifetimes.get(&end.0).map(|lifetime| (Rc::clone(&end.0), *lifetime)));
        self.view.services.extend(world.services.get(&end.0).map(|services| (Rc::clone(&end.0), *services)));
    }

    fn note(&mut self, end: &End, done: Done) {
        self.changed.insert(Rc::clone(&end.0));
        self.done.push(done);
    }

    pub(super) fn has_ended(&self, end: &End) -> bool {
        self.done.iter().any(|done| matches!(done, Done::End(ended, _) if ended == end))
    }
}

impl Random {
    pub(super) async fn transaction_step(&mut self) {
        if self.open.len() < 2 && (self.open.is_empty() || self.chance.one_in(4)) {
            let tab = self.chance.below(2);
            let transaction = self.tabs[tab].begin().expect("the broker is open");
            self.tell(|| format!("tab {tab} begins transaction {}", self.open.len()));
            let view = World { queues: self.world.queues.clone(), ..World::default() };
            self.open.push(Open {
                tab,
                transaction,
                view,
                changed: BTreeSet::new(),
                locks: BTreeSet::new(),
                taken: BTreeMap::new(),
                done: Vec::new(),
            });
        }
        let number = self.chance.below(self.open.len());
        match self.chance.below(9) {
            0 => {
                self.tell(|| format!("transaction {number} is rolled back"));
                self.open.remove(number).transaction.rollback();
            }
            1 | 2 => self.commit(number).await,
            _ => self.call_in(number).await,
        }
    }

    async fn call_in(&mut self, number: usize) {
        let Some(call) = self.call() else { return };
        self.tell(|| format!("transaction {number} (tab {}): {call:?}", self.open[number].tab));
        match call {
            Call::Send(end, kind, bodies) => {
                let transaction = Rc::clone(&self.open[number].transaction);
                let sent = transaction.send(vec![Rc::clone(&self.handles[&end])], self.messages(kind, &bodies)).await;
                let open = &mut self.open[number];
                open.look(&self.world, &end);
                let expected = open.view.send(&end, kind, &bodies, false);
                if expected.is_ok() {
                    open.note(&end.clone(), Done::Send(end, kind, bodies));
                }
                agree(sent, expected);
            }
            Call::End(end, ending, archive) => self.end_in(number, end, ending, archive).await,
            Call::Timer(end, name, timeout, body) => self.timer_in(number, end, name, timeout, body).await,
            Call::Receive(queue, wanted, top) if !matches!(wanted, Wanted::Group(_)) => {
                self.receive_in(number, queue, wanted, top).await
            }
            Call::Receive(..) | Call::Alter(..) => {}
        }
    }

    async fn end_in(&mut self, number: usize, end: End, ending: Ending, archive: bool) {
        let transaction = Rc::clone(&self.open[number].transaction);
        let ended = transaction.end_conversation(&self.handles[&end], ending.options(archive)).await;
        self.open[number].look(&self.world, &end);
        let open = &self.open[number];
        let side = open.view.sides.get(&end).cloned();
        let taken = open.taken.get(&end).cloned().unwrap_or_default();
        let group = side.as_ref().map(|_| self.group_in(&open.view, &end));
        let expected = match &group {
            Some(group) if self.is_locked(open.tab, group, Some(number)) => Err(ErrorCode::GroupLocked),
            _ => self.open[number].view.end(&end, ending),
        };
        let gone = if side.as_ref().is_some_and(|side| self.world.queues[side.queue].retention) {
            0
        } else {
            taken.len() as u64
        };
        let expected = expected.map(|(discarded, archived)| {
            (discarded.saturating_sub(taken.len() as u64), if archive { archived.saturating_sub(gone) } else { 0 })
        });
        let open = &mut self.open[number];
        // The lock comes before the look at the state.
        if expected != Err(ErrorCode::GroupLocked) {
            open.locks.extend(group);
        }
        if expected.is_ok() {
            open.note(&end.clone(), Done::End(end, ending));
        }
        agree(ended.map(|ended| (ended.discarded, ended.archived)), expected);
    }

    async fn timer_in(&mut self, number: usize, end: End, name: &'static str, timeout: Option<f64>, body: String) {
        let transaction = Rc::clone(&self.open[number].transaction);
        let options = named(name, Some(&body));
        let begun = transaction.begin_conversation_timer(&self.handles[&end], timeout, options).await;
        self.open[number].look(&self.world, &end);
        let open = &self.open[number];
        let group = open.view.sides.get(&end).map(|_| self.group_in(&open.view, &end));
        let at = timeout.map(|timeout| self.now + timeout);
        let expected = match &group {
            Some(group) if self.is_locked(open.tab, group, Some(number)) => Err(ErrorCode::GroupLocked),
            _ => self.open[number].view.timer(&end, name, at, &body),
        };
        let open = &mut self.open[number];
        if expected != Err(ErrorCode::GroupLocked) {
            open.locks.extend(group);
        }
        if let Ok(is_changed) = expected {
            let done = Done::Timer(end.clone(), name, at, body);
            if is_changed { open.note(&end, done) } else { open.done.push(done) }
        }
        agree(begun, expected.map(drop));
    }

    async fn receive_in(&mut self, number: usize, queue: usize, wanted: Wanted, top: Option<u32>) {
        let transaction = Rc::clone(&self.open[number].transaction);
        let received = transaction.receive(QUEUES[queue], self.wanted(&wanted, top)).await;
        let tab = self.open[number].tab;
        if let (Wanted::Conversation(end), true) = (&wanted, self.world.queues[queue].on) {
            self.open[number].look(&self.world, end);
        }
        let receivable = self.receivable(tab, queue, &wanted, Some(number));
        match (received, receivable) {
            (Ok(rows), Ok(receivable)) => {
                let messages: Vec<_> = rows.iter().flat_map(Rows::messages).collect();
                self.check_received(&messages, &receivable, top, None);
                let taken = self.in_order(&messages);
                let asked = if let Wanted::Conversation(end) = &wanted {
                    Some(self.group_in(&self.open[number].view, end))
                } else {
                    None
                };
                let is_free = asked.as_ref().is_some_and(|group| !self.is_locked(tab, group, Some(number)));
                let open = &mut self.open[number];
                open.locks.extend(asked.filter(|_| is_free));
                open.locks.extend(messages.iter().map(|message| Rc::clone(&message.conversation_group_id)));
                for (end, rows) in &taken {
                    open.taken.entry(end.clone()).or_default().extend(rows.iter().cloned());
                }
                if !taken.is_empty() {
                    open.done.push(Done::Take(taken));
                }
            }
            (received, receivable) => agree(received.map(drop), receivable.map(drop)),
        }
    }

    async fn commit(&mut self, number: usize) {
        // What is called together with it and does not wait for its locks.
        let count = self.chance.below(4);
        let mut calls: Vec<Call> = (0..count).filter_map(|_| self.call()).collect();
        let open = &self.open[number];
        calls.retain(|call| match call {
            Call::Send(..) => true,
            Call::End(end, ..) | Call::Timer(end, ..) => {
                self.world.sides.contains_key(end) && !open.locks.contains(&self.group_of(end))
            }
            Call::Receive(..) | Call::Alter(..) => false,
        });
        let open = self.open.remove(number);
        let tab = open.tab;
        self.tell(|| format!("transaction {number} (tab {tab}) commits {:?}, together with {calls:?}", open.done));
        let (committed, answers) =
            join(open.transaction.commit(), join_all(calls.iter().map(|call| self.make(tab, call)))).await;
        let mut world = self.world.clone();
        let outcome = open.done.iter().try_for_each(|done| match done {
            Done::Send(end, kind, bodies) => world.send(end, kind, bodies, true),
            Done::End(end, ending) => world.end(end, *ending).map(drop),
            Done::Timer(end, name, at, body) => world.timer(end, name, *at, body).map(drop),
            Done::Take(taken) => taken.iter().try_for_each(|(end, rows)| world.take(end, rows)),
        });
        if outcome.is_ok() {
            self.world = world;
        }
        agree(committed, outcome);
        for (call, answer) in calls.iter().zip(answers) {
            self.compare(tab, call, answer, None);
        }
    }
}
