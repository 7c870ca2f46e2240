//! The unit of work: what a verb reads, and what it changes.
//!
//! A verb is a plain function. It asks for records, checks its preconditions, and then states its effects. A record that has not been read
//! yet makes it stop with [`Stop::Missing`]: whoever runs it reads what is missing, all at once, undoes what the verb had begun, and runs it
//! again from the start. So a verb never waits, and everything it needs is read in as few phases as can be.
//!
//! Nothing is written before [`Work::flush`], so verbs that share a storage transaction see each other's effects.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;
use crate::changes::{Changes, Pending};
use crate::clock::Instant;
use crate::conversation::{Conversation, State};
use crate::core::Core;
use crate::definitions::{Catalog, QueueDefinition};
use crate::error::{Error, ErrorCode, Result};
use crate::group::{Caller, Claim};
use crate::ids::{Decoded, Role, SideId};
use crate::map::Map;
pub(crate) use crate::numbers::{Number, Numbers};
use crate::queue::{Counters, Queue, read_counters};
use crate::reads::{Reads, Request};
use crate::record::{Read, read_all};
use crate::stop::{Outcome, Stop};
use crate::store::{Change, Direction, Key, Range, Source, StoreName};

/// Why a unit of work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be committed at once.
    Commit,
    /// The commit of transaction `holder`: preconditions were checked before, and some may have changed since.
    CommitOf(u64),
    /// A call inside transaction `holder`: nothing will be written.
    View(u64),
}

/// A unit of work.
pub(crate) struct Work<'a> {
    pub(crate) core: &'a Core,
    pub(crate) catalog: Rc<Catalog>,
    /// It is the one that is stored: it was read in this very storage transaction.
    pub(crate) is_fresh: bool,
    pub(crate) now: Instant,
    pub(crate) purpose: Purpose,
    /// The call that the verb is run for.
    pub(crate) call: u64,
    pub(crate) reads: &'a mut Reads,
    pub(crate) changes: &'a mut Changes,
}

impl Work<'_> {
    // ── reading ──

    /// One value of a store.
    pub(crate) fn get(&mut self, store: StoreName, key: Key) -> Outcome<Option<Value>> {
        self.reads.value(store, key)
    }

    /// A range of a store, in the order of its keys.
    pub(crate) fn get_range(&mut self, store: StoreName, range: Range, limit: Option<u32>) -> Outcome<&[Value]> {
        self.reads.answer(Request::Range(Source::Store(store), range, limit, Direction::Forward))
    }

    /// The first records of a range of a store or its index.
    pub(crate) fn get_page(&mut self, source: Source, range: Range, limit: u32) -> Outcome<Vec<Value>> {
        Ok(self.reads.answer(Request::Range(source, range, Some(limit), Direction::Forward))?.to_vec())
    }

    /// What a range of a store holds, read. A record that can't be read is named by its key, which only the store knows for sure.
    pub(crate) fn read_range<T>(
        &mut self,
        store: StoreName,
        range: Range,
        limit: Option<u32>,
        read: impl Fn(&Value) -> Read<T>,
    ) -> Outcome<Vec<T>> {
        match read_all(self.get_range(store, range.clone(), limit)?, read) {
            Ok(found) => Ok(found),
            Err((index, problem)) => {
                let key = self.get_keys(store, range, limit)?.get(index).and_then(Key::from_value);
                Err(problem.at(store, &key.unwrap_or(Key::Number(-1.0))).into())
            }
        }
    }

    /// The keys of a range of a store, in their order.
    pub(crate) fn get_keys(&mut self, store: StoreName, range: Range, limit: Option<u32>) -> Outcome<&[Value]> {
        self.reads.answer(Request::Keys(store, range, limit))
    }

    /// The sides of a service, as they are stored. Takes a time that grows with the number of all conversations.
    pub(crate) fn sides_of(&mut self, service: u32) -> Outcome<Vec<SideId>> {
        let numbers = self.reads.answer(Request::Sides(service))?.iter().filter_map(Value::number);
        Ok(numbers.filter_map(|number| number.to_u64()).map(SideId::from_number).collect())
    }

    /// What all endpoints say of their rows, by service. Takes as long. One that can't be read has nothing.
    pub(crate) fn recount(&mut self) -> Outcome<Map<u32, Counters>> {
        let counted = self.reads.answer(Request::Recount)?.iter().map(read_counters).collect::<Read<_>>();
        Ok(counted.map_err(|problem| problem.at(StoreName::Queues, &Key::Number(0.0)))?)
    }

    /// Stops unless all of these have been read: for what will be needed anyway. One that can't be read is the trouble of who asks for it.
    pub(crate) fn need(
        &mut self,
        conversations: impl IntoIterator<Item = u64>,
        queues: impl IntoIterator<Item = u32>,
    ) -> Outcome<()> {
        conversations
            .into_iter()
            .filter(|number| !self.changes.has_read(*number))
            .for_each(|number| self.reads.want_conversation(number));
        queues
            .into_iter()
            .filter(|number| !self.changes.queues.contains_key(number))
            .for_each(|number| self.reads.want_queue(number));
        if self.reads.is_complete() { Ok(()) } else { Err(Stop::Missing) }
    }

    /// A conversation by its number.
    pub(crate) fn conversation(&mut self, number: u64) -> Outcome<Option<Box<Conversation>>> {
        self.need([number], [])?;
        if let Some(error) = self.changes.unreadable.get(&number) {
            return Err(error.clone().into());
        }
        Ok(self.changes.conversations.get(&number).and_then(|cached| cached.current.clone()))
    }

    /// A conversation as it is stored now, but for the groups that its sides were moved to: a transaction that receives wants to know what
    /// has arrived since its last call.
    pub(crate) fn stored(&mut self, number: u64) -> Outcome<Option<Box<Conversation>>> {
        if !self.is_view() {
            return self.conversation(number);
        }
        let key = Key::from(crate::record::float(number));
        match self.get(StoreName::Conversations, key)? {
            Some(record) => {
                let mut conversation = Conversation::from_record(number, &record)?;
                self.changes.regroup(&mut conversation);
                Ok(Some(conversation))
            }
            None => Ok(None),
        }
    }

    /// The conversation and the end that a handle names.
    pub(crate) fn endpoint(&mut self, handle: &str) -> Outcome<(Box<Conversation>, Role)> {
        self.find(handle)?.ok_or_else(|| self.not_found(handle).into())
    }

    /// The same, or `None`.
    pub(crate) fn find(&mut self, handle: &str) -> Outcome<Option<(Box<Conversation>, Role)>> {
        let Some(decoded) = Decoded::parse(handle).filter(|decoded| !decoded.is_group) else { return Ok(None) };
        let conversation = self.conversation(decoded.side.conversation).map_err(|stop| stop.about(handle))?;
        Ok(conversation
            .filter(|conversation| conversation.has(decoded))
            .map(|conversation| (conversation, decoded.side.role)))
    }

    /// The error for a handle without an endpoint.
    pub(crate) fn not_found(&self, handle: &str) -> Error {
        let shown: String = handle.chars().take(64).collect();
        let error = Error::new(
            ErrorCode::ConversationNotFound,
            format!("No conversation here has the handle \"{shown}\": it was ended or cleaned up, or the handle is another broker's. Begin a new dialog."),
        )
        .with("handle", shown.as_str());
        self.at_commit(error)
    }

    /// Says that an error came up only when a transaction was committed.
    pub(crate) fn at_commit(&self, error: Error) -> Error {
        if matches!(self.purpose, Purpose::CommitOf(_)) { error.with("at", "commit") } else { error }
    }

    /// A queue's record. Stops when it was written under other definitions than ours.
    pub(crate) fn queue(&mut self, number: u32) -> Outcome<&Queue> {
        self.need([], [number])?;
        let is_fresh = self.is_fresh;
        match self.changes.queues.get(&number).and_then(|cached| cached.current.as_ref()) {
            Some(queue) if queue.stamp == self.catalog.stamp => Ok(queue),
            _ if !is_fresh => Err(Stop::Stale),
            known => {
                let problem = if known.is_some() {
                    "it belongs to other definitions than those that are stored"
                } else {
                    "it is missing"
                };
                Err(Error::corrupt(StoreName::Queues.name(), &Key::from(number), problem).into())
            }
        }
    }

    /// The definition of the queue that a service has, checked to be the present one.
    pub(crate) fn queue_of(&mut self, service: u32) -> Outcome<QueueDefinition> {
        let Some(definition) = self.catalog.queue_of(service).cloned() else {
            // Not heard of yet, or dropped since this transaction first saw the conversation.
            self.queue(crate::definitions::FIRST_QUEUE)?;
            let text = "The service of the conversation was dropped meanwhile, and the conversation with it.";
            return Err(self.at_commit(Error::new(ErrorCode::ServiceNotFound, text)).into());
        };
        self.queue(definition.number)?;
        Ok(definition)
    }

    /// What the catalogue says under a name that it may not know yet.
    pub(crate) fn look_up<T: Clone>(&mut self, find: impl Fn(&Catalog) -> Result<&T>) -> Outcome<T> {
        let catalog = Rc::clone(&self.catalog);
        match find(&catalog) {
            Ok(definition) => Ok(definition.clone()),
            Err(error) => {
                // Before saying no: has another tab defined it meanwhile?
                self.queue(crate::definitions::FIRST_QUEUE)?;
                Err(self.at_commit(error).into())
            }
        }
    }

    /// Refuses with [`Stop::Held`] when another transaction holds the group; takes it for this one otherwise.
    pub(crate) fn lock(&self, group: &Rc<str>) -> Outcome<()> {
        if self.try_lock(group)? { Ok(()) } else { Err(Stop::Held(Rc::clone(group))) }
    }

    /// Several groups, all or none: who held some and waited for another would keep others from them.
    pub(crate) fn lock_all(&self, groups: &[&Rc<str>]) -> Outcome<()> {
        if let Some(held) = groups.iter().find(|group| !self.is_free(group)) {
            return Err(Stop::Held(Rc::clone(held)));
        }
        let is_commit = matches!(self.purpose, Purpose::CommitOf(_));
        let wanted = |group: &&&Rc<str>| !is_commit && self.core.locks.is_wanted(group, self.caller());
        if let Some(wanted) = groups.iter().find(wanted) {
            return Err(Stop::Wanted(Rc::clone(wanted)));
        }
        groups.iter().try_for_each(|group| self.lock(group))
    }

    /// Whether the group is free, or ours already. A transaction takes it.
    pub(crate) fn try_lock(&self, group: &Rc<str>) -> Outcome<bool> {
        if let Purpose::CommitOf(transaction) = self.purpose {
            return Ok(self.core.locks.keep(group, transaction));
        }
        match self.core.locks.claim(group, self.caller()) {
            Claim::Ours => Ok(true),
            Claim::Held => Ok(false),
            Claim::Wanted => Err(Stop::Wanted(Rc::clone(group))),
        }
    }

    /// In the commit of a transaction: refuses when another context has taken over what it holds.
    pub(crate) fn check_leases(&mut self) -> Outcome<()> {
        let (Purpose::CommitOf(transaction), Some(leases)) = (self.purpose, &self.core.leases) else { return Ok(()) };
        let leased = self.core.locks.leases_of(transaction);
        Rc::clone(leases).check(self, &leased)
    }

    /// Whether the group is free, or ours already, as far as is known.
    pub(crate) fn is_free(&self, group: &Rc<str>) -> bool {
        self.core.locks.is_free(group, self.caller())
    }

    /// Whether the transaction holds the group already.
    pub(crate) fn holds(&self, group: &str) -> bool {
        self.caller().transaction.is_some_and(|transaction| self.core.locks.is_held_by(group, transaction))
    }

    fn caller(&self) -> Caller {
        let transaction = match self.purpose {
            Purpose::Commit => None,
            Purpose::CommitOf(transaction) | Purpose::View(transaction) => Some(transaction),
        };
        Caller { call: self.call, transaction }
    }

    /// Whether nothing will be written.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self.purpose, Purpose::View(_))
    }

    /// Stops a verb that has to see in the store what the verbs before it did.
    pub(crate) fn after_others(&self) -> Outcome<()> {
        if self.purpose == Purpose::Commit && self.changes.effects > 0 { Err(Stop::Later) } else { Ok(()) }
    }

    // ── effects ──

    /// Keeps a changed conversation.
    pub(crate) fn save(&mut self, conversation: Box<Conversation>) {
        self.changes.notice.conversations = true;
        let number = conversation.number;
        self.changes.set_conversation(number, (!conversation.is_gone()).then_some(conversation));
    }

    /// Changes the counters of a service in its queue's record.
    pub(crate) fn count(&mut self, service: u32, change: impl FnOnce(&mut Counters)) -> Outcome<()> {
        let queue = self.queue_of(service)?;
        self.changes.notice.touch(&queue.name);
        self.change_queue(queue.number, |record| record.count(service, change));
        Ok(())
    }

    /// Changes a queue's record that has been read.
    pub(crate) fn change_queue(&mut self, number: u32, change: impl FnOnce(&mut Queue)) {
        self.changes.change_queue(number, change);
    }

    /// An endpoint goes from one state to another.
    pub(crate) fn move_state(
        &mut self,
        conversation: &Conversation,
        role: Role,
        service: u32,
        from: Option<State>,
        to: Option<State>,
    ) -> Outcome<()> {
        if from == to {
            return Ok(());
        }
        self.count(service, |counters| counters.moved(from, to))?;
        if from.is_some() {
            let to = to.unwrap_or(State::Closed);
            self.changes.notice.states.push((conversation.handle(role), to.letters()));
        }
        Ok(())
    }

    /// Adds rows to a side. They follow the ones that were added before.
    pub(crate) fn append(&mut self, pending: Pending) {
        self.changes.effects += 1;
        if !self.is_view() {
            self.changes.append(pending);
        }
    }

    /// A write that concerns no cached record.
    pub(crate) fn write(&mut self, change: Change) {
        self.changes.effects += 1;
        if !self.is_view() {
            self.changes.writes.push(change);
        }
    }
}
