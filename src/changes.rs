//! What a unit of work has read and changed, and how to take the changes of a verb back.

use std::rc::Rc;

use uuid::Uuid;

use crate::body::{Body, Value};
use crate::clock::Instant;
use crate::conversation::{Conversation, System};
use crate::delayed::Shift;
use crate::error::Error;
use crate::ids::{Role, SideId};
use crate::lane::Lane;
use crate::map::Map;
use crate::message::{Class, Row, count};
use crate::notice::{Notice, Told};
use crate::queue::Queue;
use crate::stats::Counts;
use crate::store::Change;
use crate::work::Numbers;

/// A record as it is stored, and as it will be.
#[derive(Clone, Debug)]
pub(crate) struct Cached<T> {
    pub(crate) stored: Option<T>,
    pub(crate) current: Option<T>,
    pub(crate) dirty: bool,
}

impl<T: Clone> Cached<T> {
    /// A record as it was read.
    pub(crate) fn read(value: Option<T>) -> Self {
        Self { stored: value.clone(), current: value, dirty: false }
    }
}

impl<T: Clone> Cached<T> {
    fn handed_over(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.stored.clone_from(&self.current);
        }
    }
}

/// Rows of one side and class that follow each other and are not in a run yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) side: SideId,
    pub(crate) class: Class,
    /// The service whose queue numbers them.
    pub(crate) service: u32,
    /// Whether that queue shows them.
    pub(crate) is_visible: bool,
    /// The number of the first within side and class.
    pub(crate) first: u64,
    pub(crate) sequence: u64,
    pub(crate) rows: Vec<Row>,
}

/// What a transaction has received from a side. It is not given to it again, and taken out at the commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) cursor: u64,
    pub(crate) system: Vec<(System, u64)>,
    pub(crate) rows: u64,
}

/// Which message has an id, and until when; `None`: it is free again.
type Noted = Option<(Uuid, Instant)>;

/// What has been read and changed. A transaction keeps it from call to call; every other unit of work begins with an empty one.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) conversations: Map<u64, Cached<Box<Conversation>>>,
    /// Conversations whose records can't be read, and why.
    pub(crate) unreadable: Map<u64, Error>,
    pub(crate) queues: Map<u32, Cached<Queue>>,
    pub(crate) numbers: Option<Numbers>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) taken: Map<SideId, Taken>,
    /// What has been ENDed.
    pub(crate) ended: Vec<SideId>,
    /// Sides whose turns are stored too far in front, and the orders of their oldest unread rows.
    pub(crate) late: Vec<(SideId, u64)>,
    pub(crate) group_states: Map<Rc<str>, Option<Body>>,
    /// Lanes that were begun, and ids that were noted (queue, id) with the message that has it and until when, or are noted no more.
    pub(crate) lanes: Map<Lane, u64>,
    pub(crate) seen: Map<(u32, Rc<str>), Noted>,
    /// What becomes of delayed messages.
    pub(crate) delayed: Map<Uuid, Shift>,
    /// What is left of a block of conversation numbers that was claimed: the next, and its end.
    pub(crate) block: (u64, u64),
    /// Writes that concern no cached record.
    pub(crate) writes: Vec<Change>,
    pub(crate) notice: Notice,
    /// What the verb that runs has done.
    pub(crate) counts: Counts,
    /// How many effects there have been.
    pub(crate) effects: u64,
    undo: Vec<Undo>,
}

/// How to take one effect back.
#[derive(Debug)]
enum Undo {
    Conversation {
        number: u64,
        current: Option<Box<Conversation>>,
        dirty: bool,
    },
    NewConversation(u64),
    Queue {
        number: u32,
        current: Option<Queue>,
        dirty: bool,
    },
    /// So many rows were pending at this place.
    Rows(usize, usize),
    /// These rows were pending at this place.
    Dropped(usize, Vec<Row>),
    /// The lane was this conversation.
    Lane(Lane, Option<u64>),
    /// This was noted of the id.
    Seen((u32, Rc<str>), Option<Noted>),
    /// This was noted of the delayed message.
    Delayed(Uuid, Option<Shift>),
}

/// A point to go back to.
#[derive(Debug)]
pub(crate) struct Mark {
    effects: u64,
    numbers: Option<Numbers>,
    block: (u64, u64),
    pending: usize,
    ended: usize,
    late: usize,
    writes: usize,
    told: Told,
    counts: Counts,
}

impl Changes {
    /// A conversation as it was found in the store.
    pub(crate) fn read_conversation(&mut self, number: u64, record: Option<&Value>) {
        match record.map(|record| Conversation::from_record(number, record)).transpose() {
            Ok(conversation) => _ = self.conversations.insert(number, Cached::read(conversation)),
            Err(error) => _ = self.unreadable.insert(number, error),
        }
    }

    /// Whether a conversation need not be read any more.
    pub(crate) fn has_read(&self, number: u64) -> bool {
        self.conversations.contains_key(&number) || self.unreadable.contains_key(&number)
    }

    /// Forgets what was only read: others may have changed it since.
    pub(crate) fn forget_unchanged(&mut self) {
        self.unreadable = Map::default();
        self.conversations.retain(|_, cached| cached.dirty);
        self.queues.clear();
        self.late.clear();
    }

    /// Everything has been handed to the storage transaction: it is stored as far as this unit of work can see.
    pub(crate) fn handed_over(&mut self) {
        self.conversations.for_each(Cached::handed_over);
        self.queues.for_each(Cached::handed_over);
        self.delayed.clear();
        self.effects = 0;
    }

    /// The present: [`Changes::back_to`] takes back what comes after it.
    pub(crate) fn mark(&mut self) -> Mark {
        self.undo.clear();
        Mark {
            effects: self.effects,
            numbers: self.numbers,
            block: self.block,
            pending: self.pending.len(),
            ended: self.ended.len(),
            late: self.late.len(),
            writes: self.writes.len(),
            told: self.notice.told(),
            counts: self.counts,
        }
    }

    /// Takes everything back that came after the last mark.
    pub(crate) fn back_to(&mut self, mark: &Mark) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Conversation { number, current, dirty } => {
                    if let Some(cached) = self.conversations.get_mut(&number) {
                        (cached.current, cached.dirty) = (current, dirty);
                    }
                }
                Undo::NewConversation(number) => _ = self.conversations.remove(&number),
                Undo::Queue { number, current, dirty } => {
                    if let Some(cached) = self.queues.get_mut(&number) {
                        (cached.current, cached.dirty) = (current, dirty);
                    }
                }
                Undo::Rows(index, length) => {
                    if let Some(pending) = self.pending.get_mut(index) {
                        pending.rows.truncate(length);
                    }
                }
                Undo::Dropped(index, rows) => {
                    if let Some(pending) = self.pending.get_mut(index) {
                        pending.rows = rows;
                    }
                }
                Undo::Lane(lane, Some(number)) => _ = self.lanes.insert(lane, number),
                Undo::Lane(lane, None) => _ = self.lanes.remove(&lane),
                Undo::Seen(key, Some(before)) => _ = self.seen.insert(key, before),
                Undo::Seen(key, None) => _ = self.seen.remove(&key),
                Undo::Delayed(id, Some(before)) => _ = self.delayed.insert(id, before),
                Undo::Delayed(id, None) => _ = self.delayed.remove(&id),
            }
        }
        self.effects = mark.effects;
        self.numbers = mark.numbers;
        self.block = mark.block;
        self.pending.truncate(mark.pending);
        self.ended.truncate(mark.ended);
        self.late.truncate(mark.late);
        self.writes.truncate(mark.writes);
        self.notice.back_to(mark.told);
        self.counts = mark.counts;
    }

    /// The sides that this unit of work has put into another group than they are stored in.
    pub(crate) fn moved(&self) -> Vec<SideId> {
        let mut moved = Vec::new();
        for (number, cached) in self.conversations.iter().filter(|(_, cached)| cached.dirty) {
            let (Some(stored), Some(current)) = (&cached.stored, &cached.current) else { continue };
            for role in [Role::Initiator, Role::Target] {
                let (before, after) = (stored.side(role), current.side(role));
                if before.is_some_and(|before| after.is_some_and(|after| before.group != after.group)) {
                    moved.push(SideId { conversation: *number, role });
                }
            }
        }
        moved
    }

    /// Puts the sides of a conversation, as it is stored now, into the groups that this unit of work has put them into.
    pub(crate) fn regroup(&self, stored: &mut Conversation) {
        let own = self.conversations.get(&stored.number).filter(|cached| cached.dirty);
        let Some(own) = own.and_then(|cached| cached.current.as_ref()) else { return };
        for role in [Role::Initiator, Role::Target] {
            if let (Some(side), Some(own)) = (stored.side_mut(role).as_mut(), own.side(role)) {
                side.group.clone_from(&own.group);
            }
        }
    }

    pub(crate) fn set_conversation(&mut self, number: u64, current: Option<Box<Conversation>>) {
        self.effects += 1;
        match self.conversations.get_mut(&number) {
            Some(cached) => {
                let current = std::mem::replace(&mut cached.current, current);
                self.undo.push(Undo::Conversation { number, current, dirty: cached.dirty });
                cached.dirty = true;
            }
            None => {
                self.conversations.insert(number, Cached { stored: None, current, dirty: true });
                self.undo.push(Undo::NewConversation(number));
            }
        }
    }

    pub(crate) fn change_queue(&mut self, number: u32, change: impl FnOnce(&mut Queue)) {
        self.effects += 1;
        if let Some(cached) = self.queues.get_mut(&number) {
            let is_noted =
                self.undo.iter().any(|undo| matches!(undo, Undo::Queue { number: noted, .. } if *noted == number));
            if !is_noted {
                self.undo.push(Undo::Queue { number, current: cached.current.clone(), dirty: cached.dirty });
            }
            cached.dirty = true;
            if let Some(queue) = &mut cached.current {
                change(queue);
            }
        }
    }

    /// A lane was begun.
    pub(crate) fn name_lane(&mut self, lane: Lane, number: u64) {
        let before = self.lanes.insert(lane.clone(), number);
        self.undo.push(Undo::Lane(lane, before));
    }

    /// An id is noted with this message until then; `None`: it is noted no more.
    pub(crate) fn note_seen(&mut self, key: (u32, Rc<str>), noted: Noted) {
        let before = self.seen.insert(key.clone(), noted);
        self.undo.push(Undo::Seen(key, before));
    }

    /// This becomes of a delayed message.
    pub(crate) fn note_delayed(&mut self, id: Uuid, shift: Shift) {
        self.effects += 1;
        let before = self.delayed.insert(id, shift);
        self.undo.push(Undo::Delayed(id, before));
    }

    /// A queue's record goes.
    pub(crate) fn remove_queue(&mut self, number: u32) {
        self.change_queue(number, |_| {});
        if let Some(cached) = self.queues.get_mut(&number) {
            cached.current = None;
        }
    }

    /// Rows that follow others of their side and class become one piece with them.
    pub(crate) fn append(&mut self, added: Pending) {
        let follows = |pending: &Pending| {
            let same = pending.is_visible == added.is_visible && added.class != Class::System;
            same && pending.first + count(pending.rows.len()) == added.first
        };
        let last = self
            .pending
            .iter_mut()
            .enumerate()
            .rev()
            .find(|(_, pending)| pending.side == added.side && pending.class == added.class);
        match last.filter(|(_, pending)| follows(pending)) {
            Some((index, pending)) => {
                self.undo.push(Undo::Rows(index, pending.rows.len()));
                pending.rows.extend(added.rows);
            }
            None => self.pending.push(added),
        }
    }

    /// Rows that were to be stored are not to be any more. What is left of a piece stays in its place: others are found by their places.
    pub(crate) fn drop_rows(&mut self, is_dropped: impl Fn(&Pending) -> bool) {
        for (index, pending) in self.pending.iter_mut().enumerate().filter(|(_, pending)| is_dropped(pending)) {
            self.undo.push(Undo::Dropped(index, std::mem::take(&mut pending.rows)));
        }
    }
}
