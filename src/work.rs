//! The unit of work: what a verb reads, and what it changes.
//!
//! A verb asks for records, checks its preconditions, and then states its effects. Nothing is written before [`Work::flush`], so verbs
//! that share a storage transaction see each other's effects, and a verb that fails before its first effect leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::try_join_all;
use num_traits::ToPrimitive;

use crate::body::{Body, Value};
use crate::clock::Instant;
use crate::conversation::{Conversation, State, System};
use crate::core::Core;
use crate::definitions::{Catalog, QueueDefinition};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Decoded, Role, SideId};
use crate::message::{Class, Row};
use crate::notice::Notice;
use crate::queue::{Counters, Queue};
use crate::record::float;
use crate::store::{Change, Direction, Key, Range, StoreName, Tx};

/// Why a verb stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is refused, or the storage failed.
    Failed(Error),
    /// The definitions have changed elsewhere: load them and begin again.
    Stale,
    /// Another transaction holds this group.
    Held(Rc<str>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a verb gives.
pub(crate) type Outcome<T> = std::result::Result<T, Stop>;

/// A record as it is stored, and as it will be.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    pub(crate) stored: Option<T>,
    pub(crate) current: Option<T>,
    pub(crate) dirty: bool,
}

impl<T: Clone> Cached<T> {
    fn read(value: Option<T>) -> Self {
        Self { stored: value.clone(), current: value, dirty: false }
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

/// So many are worth a ranged read.
const MANY_CONVERSATIONS: usize = 8;

/// What has been read and changed. A transaction keeps it from call to call; every other unit of work begins with an empty one.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) conversations: BTreeMap<u64, Cached<Conversation>>,
    pub(crate) queues: BTreeMap<u32, Cached<Queue>>,
    pub(crate) pending: Vec<Pending>,
    /// What a transaction has received: the cursor, and the system rows.
    pub(crate) taken: BTreeMap<SideId, Taken>,
    /// What has been ENDed.
    pub(crate) ended: BTreeSet<SideId>,
    pub(crate) group_states: BTreeMap<Rc<str>, Option<Body>>,
    /// Writes that concern no cached record.
    pub(crate) writes: Vec<Change>,
    pub(crate) notice: Notice,
    /// How many effects there have been.
    pub(crate) effects: u64,
}

impl Changes {
    /// Forgets what was only read: others may have changed it since.
    pub(crate) fn forget_unchanged(&mut self) {
        self.conversations.retain(|_, cached| cached.dirty);
        self.queues.clear();
    }
}

/// What a transaction has received from a side. It is not given to it again, and taken out at the commit.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) cursor: u64,
    pub(crate) system: Vec<(System, u64)>,
    pub(crate) rows: u64,
}

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

/// A unit of work over one storage transaction.
pub(crate) struct Work<'a> {
    pub(crate) core: &'a Core,
    pub(crate) tx: &'a Tx,
    pub(crate) catalog: Rc<Catalog>,
    pub(crate) now: Instant,
    pub(crate) purpose: Purpose,
    pub(crate) changes: &'a mut Changes,
}

impl Work<'_> {
    // ── reading ──

    /// Reads what will be needed in one phase instead of one after the other. What is known already is not read again.
    pub(crate) async fn prefetch(&mut self, conversations: impl IntoIterator<Item = u64>, queues: impl IntoIterator<Item = u32>) -> Outcome<()> {
        let tx = self.tx;
        let missing: Vec<u64> = conversations.into_iter().filter(|number| !self.changes.conversations.contains_key(number)).collect();
        let queues: Vec<u32> = queues.into_iter().filter(|number| !self.changes.queues.contains_key(number)).collect();
        if missing.len() >= MANY_CONVERSATIONS {
            self.read_neighbours(&missing).await?;
        }
        let missing: Vec<u64> = missing.into_iter().filter(|number| !self.changes.conversations.contains_key(number)).collect();
        let conversations = try_join_all(missing.iter().map(|number| read_conversation(tx, *number)));
        let queue_records = try_join_all(queues.iter().map(|number| read_queue(tx, *number)));
        let (conversations, queue_records) = futures_util::future::try_join(conversations, queue_records).await?;
        for (number, conversation) in missing.into_iter().zip(conversations) {
            self.changes.conversations.insert(number, Cached::read(conversation));
        }
        for (number, queue) in queues.into_iter().zip(queue_records) {
            self.changes.queues.insert(number, Cached::read(queue));
        }
        Ok(())
    }

    /// Conversations that were begun one after the other have numbers that follow each other: one ranged read gets them all.
    async fn read_neighbours(&mut self, numbers: &[u64]) -> Outcome<()> {
        let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else { return Ok(()) };
        if last - first >= crate::message::count(numbers.len()) * 4 {
            return Ok(());
        }
        let range = Range::between(float(*first).into(), float(*last).into());
        for record in self.tx.get_range(StoreName::Conversations, &range, None, Direction::Forward).await? {
            let number = record.item(1).number().and_then(|number| number.to_u64()).unwrap_or(0);
            let conversation = Conversation::read(number, &record).map_err(|problem| problem.at(StoreName::Conversations, number))?;
            self.changes.conversations.entry(number).or_insert_with(|| Cached::read(Some(conversation)));
        }
        Ok(())
    }

    /// A conversation by its number.
    pub(crate) async fn conversation(&mut self, number: u64) -> Outcome<Option<Conversation>> {
        if !self.changes.conversations.contains_key(&number) {
            self.prefetch([number], []).await?;
        }
        Ok(self.changes.conversations.get(&number).and_then(|cached| cached.current.clone()))
    }

    /// A conversation as it is stored now: a transaction that receives wants to know what has arrived since its last call.
    pub(crate) async fn stored(&mut self, number: u64) -> Outcome<Option<Conversation>> {
        if self.is_view() { Ok(read_conversation(self.tx, number).await?) } else { self.conversation(number).await }
    }

    /// The conversation and the end that a handle names.
    pub(crate) async fn endpoint(&mut self, handle: &str) -> Outcome<(Conversation, Role)> {
        self.find(handle).await?.ok_or_else(|| self.not_found(handle).into())
    }

    /// The same, or `None`.
    pub(crate) async fn find(&mut self, handle: &str) -> Outcome<Option<(Conversation, Role)>> {
        let Some(decoded) = Decoded::parse(handle).filter(|decoded| !decoded.is_group) else { return Ok(None) };
        let role = decoded.side.role;
        let conversation = self.conversation(decoded.side.conversation).await?;
        Ok(conversation.filter(|conversation| conversation.bits == decoded.bits && conversation.side(role).is_some()).map(|conversation| (conversation, role)))
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

    /// A queue's record. Stops when it was written under newer definitions than ours.
    pub(crate) async fn queue(&mut self, number: u32) -> Outcome<Queue> {
        if !self.changes.queues.contains_key(&number) {
            self.prefetch([], [number]).await?;
        }
        match self.changes.queues.get(&number).and_then(|cached| cached.current.clone()) {
            Some(queue) if queue.stamp == self.catalog.stamp => Ok(queue),
            _ => Err(Stop::Stale),
        }
    }

    /// The definition of the queue that a service has, checked to be the present one.
    pub(crate) async fn queue_of(&mut self, service: u32) -> Outcome<QueueDefinition> {
        let definition = self.catalog.queue_of(service).cloned().ok_or(Stop::Stale)?;
        self.queue(definition.number).await?;
        Ok(definition)
    }

    /// What the catalogue says under a name that it may not know yet.
    pub(crate) async fn look_up<T: Clone>(&mut self, find: impl Fn(&Catalog) -> Result<&T>) -> Outcome<T> {
        let catalog = Rc::clone(&self.catalog);
        match find(&catalog) {
            Ok(definition) => Ok(definition.clone()),
            Err(error) => {
                // Before saying no: has another tab defined it meanwhile?
                self.queue(crate::definitions::FIRST_QUEUE).await?;
                Err(self.at_commit(error).into())
            }
        }
    }

    /// Refuses with [`Stop::Held`] when another transaction holds the group; takes it for this one otherwise.
    pub(crate) fn lock(&self, group: &Rc<str>) -> Outcome<()> {
        if self.try_lock(group) { Ok(()) } else { Err(Stop::Held(Rc::clone(group))) }
    }

    /// Whether the group is free, or ours already. A transaction takes it.
    pub(crate) fn try_lock(&self, group: &Rc<str>) -> bool {
        match self.purpose {
            Purpose::Commit => !self.core.locks.is_locked(group),
            Purpose::CommitOf(holder) | Purpose::View(holder) => self.core.locks.try_lock(group, holder),
        }
    }

    /// Whether the group is free, or ours already.
    pub(crate) fn is_free(&self, group: &Rc<str>) -> bool {
        match self.purpose {
            Purpose::Commit => !self.core.locks.is_locked(group),
            Purpose::CommitOf(holder) | Purpose::View(holder) => self.core.locks.is_free(group, holder),
        }
    }

    /// Whether nothing will be written.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self.purpose, Purpose::View(_))
    }

    // ── effects ──

    /// Keeps a changed conversation.
    pub(crate) fn save(&mut self, conversation: Conversation) {
        self.changes.effects += 1;
        self.changes.notice.conversations = true;
        let cached = self.changes.conversations.entry(conversation.number).or_insert(Cached { stored: None, current: None, dirty: true });
        cached.dirty = true;
        cached.current = (!conversation.is_gone()).then_some(conversation);
    }

    /// Changes the counters of a service in its queue's record.
    pub(crate) async fn count(&mut self, service: u32, change: impl FnOnce(&mut Counters)) -> Outcome<()> {
        let queue = self.queue_of(service).await?;
        self.changes.notice.touch(&queue.name);
        self.change_queue(queue.number, |record| change(record.of(service)));
        Ok(())
    }

    /// Changes a queue's record that has been read.
    pub(crate) fn change_queue(&mut self, number: u32, change: impl FnOnce(&mut Queue)) {
        self.changes.effects += 1;
        if let Some(cached) = self.changes.queues.get_mut(&number) {
            cached.dirty = true;
            cached.current.as_mut().map(change);
        }
    }

    /// An endpoint goes from one state to another.
    pub(crate) async fn move_state(&mut self, conversation: &Conversation, role: Role, service: u32, from: Option<State>, to: Option<State>) -> Outcome<()> {
        if from == to {
            return Ok(());
        }
        let letters = to.map_or("", State::letters);
        if from.is_some() {
            self.changes.notice.states.push((conversation.handle(role), letters));
        }
        self.count(service, |counters| counters.moved(from, to)).await
    }

    /// Adds rows to a side. They follow the ones that were added before.
    pub(crate) fn append(&mut self, side: SideId, class: Class, service: u32, is_visible: bool, first: u64, sequence: u64, rows: impl IntoIterator<Item = Row>) {
        self.changes.effects += 1;
        let last = self.changes.pending.iter_mut().rev().find(|pending| pending.side == side && pending.class == class);
        match last.filter(|pending| pending.is_visible == is_visible && pending.first + crate::message::count(pending.rows.len()) == first && class != Class::System) {
            Some(pending) => pending.rows.extend(rows),
            None => self.changes.pending.push(Pending { side, class, service, is_visible, first, sequence, rows: rows.into_iter().collect() }),
        }
    }

    /// A write that concerns no cached record.
    pub(crate) fn write(&mut self, change: Change) {
        self.changes.effects += 1;
        self.changes.writes.push(change);
    }

    /// The first of `count` numbers of a kind that have never been given before.
    pub(crate) async fn claim(&mut self, number: Number, count: u64) -> Outcome<u64> {
        Ok(claim(self.tx, number, count).await?)
    }
}

/// Numbers that are given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Conversation,
    Order,
    Queue,
    Service,
    /// Of the definitions, and of due and archived rows.
    Stamp,
}

impl Number {
    const COUNT: usize = 5;

    fn position(self) -> usize {
        match self {
            Self::Conversation => 0,
            Self::Order => 1,
            Self::Queue => 2,
            Self::Service => 3,
            Self::Stamp => 4,
        }
    }
}

/// Claims `count` numbers and gives the first.
pub(crate) async fn claim(tx: &Tx, number: Number, count: u64) -> Result<u64> {
    let key = Key::from("numbers");
    let stored = tx.get(StoreName::Meta, &key).await?;
    let mut next = [1u64; Number::COUNT];
    if let Some(record) = stored {
        let read = |record: &Value| {
            let mut fields = crate::record::Fields::open(record)?;
            for number in &mut next {
                *number = fields.optional_number()?.unwrap_or(1);
            }
            Ok(())
        };
        let mut read = read;
        read(&record).map_err(|problem: crate::record::Unreadable| problem.at(StoreName::Meta, &key))?;
    }
    let mut first = 1;
    if let Some(place) = next.get_mut(number.position()) {
        first = *place;
        *place += count;
    }
    let mut record = vec![Value::from(1u32)];
    record.extend(next.map(crate::record::value));
    tx.put(StoreName::Meta, key, Value::list(record));
    Ok(first)
}

async fn read_conversation(tx: &Tx, number: u64) -> Result<Option<Conversation>> {
    let key = Key::from(float(number));
    let record = tx.get(StoreName::Conversations, &key).await?;
    record.map(|record| Conversation::read(number, &record).map_err(|problem| problem.at(StoreName::Conversations, &key))).transpose()
}

/// A queue's record, from the store.
pub(crate) async fn read_queue(tx: &Tx, number: u32) -> Result<Option<Queue>> {
    let key = Key::from(number);
    let record = tx.get(StoreName::Queues, &key).await?;
    record.map(|record| Queue::read(&record).map_err(|problem| problem.at(StoreName::Queues, &key))).transpose()
}
