//! What should be there: the world of the random tests, and what it does not know: groups that change, what a group knows, dialogs that are used
//! again. Plain lists, one call after the other; nothing in it knows of tabs.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pocket_broker::error::ErrorCode;

use crate::conformance::random::model::{ELSEWHERE, End, Row, SERVICES, Side, World};
use crate::conformance::random::seen::{Handles, group_of, own_group};
use crate::lanes::Hint;
use crate::later::Delayed;

/// What is known of the names that the broker gave.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) handles: Handles,
    /// The services of each conversation: initiator and target.
    pub(crate) services: BTreeMap<Rc<str>, (usize, usize)>,
    /// What was seen of lanes, by their handles. An end of such a name is the lane's.
    pub(crate) lanes: BTreeMap<Rc<str>, Hint>,
    /// The bodies of messages that were delayed, by their ids.
    pub(crate) ids: BTreeMap<Rc<str>, String>,
    /// What a store of the application's own has refused for good.
    pub(crate) refused: BTreeSet<Rc<str>>,
    /// Bodies that were to be put into lanes without a key.
    pub(crate) plain: BTreeSet<String>,
}

impl Names {
    pub(crate) fn group_of(&self, world: &World, end: &End) -> Rc<str> {
        group_of(world, &self.handles, end)
    }

    pub(crate) fn end_of(&self, handle: &str) -> Option<End> {
        self.handles.iter().find(|(_, known)| &***known == handle).map(|(end, _)| end.clone())
    }
}

/// So many failures in a row over one conversation switch its queue off.
const POISON: u64 = 5;

/// BEGIN DIALOG.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) related: Option<Related>,
    pub(crate) lifetime: Option<f64>,
    pub(crate) reuse: Option<&'static str>,
}

/// Whose group a dialog goes into.
#[derive(Clone, Debug)]
pub(crate) enum Related {
    Conversation(End),
    /// The group of that id, which need not be there.
    Group(Rc<str>),
}

/// Where a conversation is moved to.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// The group of another.
    Beside(End),
    /// A group that nobody knows.
    New(Rc<str>),
}

/// Everything that is committed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) world: World,
    reuse: BTreeMap<(usize, usize, &'static str), Rc<str>>,
    states: BTreeMap<Rc<str>, String>,
    /// Failures in a row.
    pub(crate) failures: BTreeMap<End, u64>,
    /// Until when ids of `enqueue` are remembered, by queue, and the body of the message that has it.
    pub(crate) seen: BTreeMap<(usize, &'static str), (f64, String)>,
    /// Handles of lanes that are gone.
    pub(crate) spent: BTreeSet<Rc<str>>,
    pub(crate) has_bin: bool,
    /// What is delayed, in the order in which it will go.
    pub(crate) delayed: Vec<Delayed>,
    /// What was cancelled, where several who do so at a time may all be told that it will not come.
    pub(crate) cancelled: BTreeSet<String>,
    /// Delayed messages are for a store of the application's own.
    pub(crate) is_elsewhere: bool,
}

impl Model {
    pub(crate) fn of(world: World, has_bin: bool, is_elsewhere: bool) -> Self {
        Self { world, has_bin, is_elsewhere, ..Self::default() }
    }

    fn is_open(&self, id: &Rc<str>) -> bool {
        self.world.sides.get(&(Rc::clone(id), true)).is_some_and(|side| ["SO", "CO"].contains(&side.state))
    }

    /// The open dialog that BEGIN would give.
    pub(crate) fn reused(&self, begin: &Begin) -> Option<Rc<str>> {
        let known = self.reuse.get(&(begin.from, begin.to, begin.reuse?))?;
        self.is_open(known).then(|| Rc::clone(known))
    }

    /// A dialog that is not there yet.
    pub(crate) fn begin(&mut self, names: &Names, begin: &Begin, id: &Rc<str>, now: f64) -> Result<(), ErrorCode> {
        self.world.queue_of(begin.from).ok_or(ErrorCode::ServiceNotFound)?;
        let own = |is_initiator| names.handles.get(&(Rc::clone(id), is_initiator)).map(|handle| own_group(handle));
        let is_there = |group: &Rc<str>| self.world.sides.keys().any(|end| names.group_of(&self.world, end) == *group);
        // Whoever was told of its groups before its commit may have made them.
        if own(false).is_some_and(|group| is_there(&group)) {
            return Err(ErrorCode::GroupInvalid);
        }
        let found = own(true).filter(is_there);
        let group = match &begin.related {
            Some(Related::Conversation(related)) => {
                let related = self.resolve(names, related);
                self.world.side(&related)?;
                Some(names.group_of(&self.world, &related))
            }
            Some(Related::Group(group)) => Some(Rc::clone(group)),
            None => found,
        };
        if let Some(group) = &group {
            let is_member = |end: &&End| names.group_of(&self.world, end) == *group;
            let members: Vec<End> = self.world.sides.keys().filter(is_member).cloned().collect();
            if members.is_empty() && self.is_kept(names, group) {
                return Err(ErrorCode::GroupInvalid);
            }
            if members.iter().any(|member| self.world.sides[member].home != begin.from) {
                return Err(ErrorCode::GroupInvalid);
            }
            for member in members {
                self.world.side(&member)?.group = Some(Rc::clone(group));
            }
        }
        if let Some(reuse) = begin.reuse {
            self.reuse.insert((begin.from, begin.to, reuse), Rc::clone(id));
        }
        self.world.begin(id, begin.from, begin.to, group, begin.lifetime.map(|lifetime| now + lifetime));
        Ok(())
    }

    /// Whether a group is to be that of a target that is still to come.
    fn is_kept(&self, names: &Names, group: &Rc<str>) -> bool {
        let is_its = |end: &End| !end.1 && own_group(&names.handles[end]) == *group;
        let is_to_come = |side: &Side, id| side.next_send == 0 || self.world.far.contains(id);
        let initiators =
            self.world.sides.iter().filter(|((id, is_initiator), side)| *is_initiator && is_to_come(side, id));
        initiators
            .map(|((id, _), _)| (Rc::clone(id), false))
            .any(|target| !self.world.sides.contains_key(&target) && is_its(&target))
    }

    /// MOVE CONVERSATION.
    pub(crate) fn relocate(&mut self, names: &Names, end: &End, goal: &Goal) -> Result<(), ErrorCode> {
        let goal = match goal {
            Goal::Beside(other) => Goal::Beside(self.resolve(names, other)),
            goal => goal.clone(),
        };
        let side = self.world.side(end)?.clone();
        let to = match &goal {
            Goal::Beside(other) => {
                if self.world.side(other)?.home != side.home {
                    return Err(ErrorCode::GroupInvalid);
                }
                names.group_of(&self.world, other)
            }
            Goal::New(group) => Rc::clone(group),
        };
        if side.state == "DO" {
            return Err(ErrorCode::InvalidState);
        }
        if names.group_of(&self.world, end) == to {
            return Ok(());
        }
        if let Goal::Beside(other) = &goal {
            self.world.side(other)?.group = Some(Rc::clone(&to));
        }
        self.world.side(end)?.group = Some(to);
        Ok(())
    }

    pub(crate) fn set_state(&mut self, names: &Names, end: &End, state: &str) -> Result<(), ErrorCode> {
        self.world.side(end).map_err(|_| ErrorCode::GroupNotFound)?;
        self.states.insert(names.group_of(&self.world, end), state.to_owned());
        Ok(())
    }

    pub(crate) fn state(&self, names: &Names, end: &End) -> Result<Option<String>, ErrorCode> {
        if !self.world.sides.contains_key(end) {
            return Err(ErrorCode::GroupNotFound);
        }
        Ok(self.states.get(&names.group_of(&self.world, end)).cloned())
    }

    /// A group is gone with its last conversation, and what it knows with it.
    pub(crate) fn forget_empty_groups(&mut self, names: &Names) {
        if self.states.is_empty() {
            return;
        }
        let groups: Vec<Rc<str>> = self.world.sides.keys().map(|end| names.group_of(&self.world, end)).collect();
        self.states.retain(|group, _| groups.contains(group));
    }

    /// Takes what was received, all of one group. `limit`: as many as were asked for, or all.
    pub(crate) fn take(&mut self, names: &Names, group: &Rc<str>, taken: &[(End, Vec<Row>)]) -> Result<(), ErrorCode> {
        for (end, rows) in taken {
            let is_there = self.world.sides.contains_key(end);
            if is_there && names.group_of(&self.world, end) != *group {
                return Err(ErrorCode::TransactionClosed);
            }
            self.world.take(end, rows)?;
            self.failures.remove(end);
        }
        Ok(())
    }

    pub(crate) fn switch(&mut self, queue: usize, on: bool) {
        self.world.switch(queue, on);
        if on {
            let world = &self.world;
            self.failures.retain(|end, _| world.sides.get(end).is_some_and(|side| side.queue != queue));
        }
    }

    /// A transaction that received from a conversation first is given up.
    pub(crate) fn fail(&mut self, end: &End) {
        let Some(side) = self.world.sides.get(end) else { return };
        let queue = side.queue;
        let failures = self.failures.entry(end.clone()).or_default();
        *failures += 1;
        if *failures >= POISON && self.world.queues[queue].on {
            self.world.switch(queue, false);
        }
    }

    /// How many rows a reader of a group could get.
    pub(crate) fn unread_in(&self, names: &Names, group: &Rc<str>) -> usize {
        let sides = self.world.sides.iter().filter(|(end, _)| names.group_of(&self.world, end) == *group);
        sides.filter(|(_, side)| may_give(side)).map(|(_, side)| side.unread().len()).sum()
    }

    /// The highest count of failures in a row of a queue.
    pub(crate) fn rollbacks(&self, queue: usize) -> u64 {
        let of = |end: &End| self.world.sides.get(end).is_some_and(|side| side.queue == queue && side.state != "DO");
        self.failures.iter().filter(|(end, _)| of(end)).map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// Whether anything can fire.
    pub(crate) fn has_due(&self, now: f64) -> bool {
        if self.world.deliveries.iter().any(|(at, _)| *at <= now) && !self.world.deliverable().is_empty() {
            return true;
        }
        let mut world = self.world.clone();
        let waits = |side: &Side| side.timers.len() + usize::from(side.waits());
        let stamps = |world: &World| -> usize { world.sides.values().map(waits).sum() };
        let before = (stamps(&world), world.sides.len());
        // An endpoint that has ended and is not heard goes with its lifetime, and nothing comes of it.
        world.poll(now) > 0 || stamps(&world) < before.0 || world.sides.len() < before.1
    }
}

/// Whether a reader that does not name the conversation is given what a side has.
pub(crate) fn may_give(side: &Side) -> bool {
    !side.waits()
}

pub(crate) fn service_number(name: &str) -> usize {
    SERVICES.iter().position(|(known, _)| *known == name).unwrap_or(ELSEWHERE)
}
