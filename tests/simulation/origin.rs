//! What all tabs of a run share: time, tasks, locks, and the notes that are taken of what they do.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use pocket_broker::clock::Clock;
use pocket_broker::definitions::QueueOptions;
use pocket_broker::ids::{Decoded, Ids, Role, SideId, text};
use pocket_broker::{ConversationInfo, Message, Notice};
use uuid::Uuid;

use crate::calls::Under;
use crate::conformance::random::model::{BIN, ERROR, End, QUEUES};
use crate::conformance::random::seen::{own_group, row_of};
use crate::conformance::support::chance::Chance;
use crate::conformance::support::host;
use crate::conformance::support::locks::OriginLocks;
use crate::elsewhere::Shelf;
use crate::executor::{Executor, TabId, Tasks};
use crate::history::History;
use crate::journal::Journal;
use crate::lanes::Hint;
use crate::model::{Names, service_number};
use crate::readers::Readers;
use crate::sabotage::{Sabotage, Saboteur};
use crate::time::{START, Time, Wall};

/// How many ends are well known: the latest ones.
const WELL_KNOWN: usize = 14;

pub(crate) struct Origin {
    pub(crate) chance: RefCell<Chance>,
    pub(crate) time: Rc<Time>,
    /// The clock that applications see.
    pub(crate) clock: Rc<Wall>,
    /// A delayed message store of the application's own.
    pub(crate) shelf: Option<Rc<Shelf>>,
    /// Somebody sets the clock.
    pub(crate) has_jumps: bool,
    pub(crate) tasks: Tasks,
    pub(crate) journal: Rc<Journal>,
    pub(crate) locks: OriginLocks,
    pub(crate) history: History,
    pub(crate) readers: Readers,
    pub(crate) names: RefCell<Names>,
    /// Hints that have not arrived.
    pub(crate) mail: RefCell<Vec<(TabId, Notice)>>,
    pub(crate) violation: RefCell<Option<Violation>>,
    pub(crate) is_told: bool,
    pub(crate) mix: Mix,
    /// The storage never fails, so every failure of an application is counted.
    pub(crate) counts_failures: bool,
    /// Nobody asks the database whether it is sound: what is broken on purpose is to be noticed all the same.
    pub(crate) is_trusting: bool,
    pub(crate) saboteur: Option<Rc<Saboteur>>,
    ids: Rc<dyn Ids>,
    ends: RefCell<Vec<End>>,
    /// Groups that were given names.
    groups: RefCell<Vec<Rc<str>>>,
    /// Messages whose handlers have failed: id and body.
    failed: RefCell<Vec<(Rc<str>, String)>>,
    delayed: RefCell<Vec<Under>>,
    bodies: Cell<u64>,
    gate: RefCell<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    waiting: Vec<Waker>,
}

/// What applications do in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Conversations, groups, timers.
    Dialogs,
    /// Less of these, and lanes, failing handlers, and definitions that change.
    Lanes,
    /// The same, and delayed messages.
    Later,
    /// The same, in a store of the application's own.
    Elsewhere,
}

impl Mix {
    pub(crate) fn of(seed: u64) -> Self {
        match seed % 8 {
            0 | 4 => Self::Later,
            2 => Self::Lanes,
            6 => Self::Elsewhere,
            _ => Self::Dialogs,
        }
    }

    pub(crate) fn has_lanes(self) -> bool {
        self != Self::Dialogs
    }

    pub(crate) fn has_delays(self) -> bool {
        matches!(self, Self::Later | Self::Elsewhere)
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The database contradicts itself, or can't be read.
    Unsound,
    /// Something was received twice.
    Twice,
    /// Messages of a conversation came out of order.
    OutOfOrder,
    /// Something that was sent is nowhere.
    Lost,
    /// Two readers had a group at a time.
    TwoReaders,
    /// A transaction was committed although another reader had been faster.
    NotFenced,
    /// No order of the calls leads to what was answered and what is there.
    Unexplained,
    /// A delayed message came before its time.
    Early,
    /// A delayed message waits for longer than a poller sleeps.
    Late,
    /// A message came although it was cancelled.
    Revived,
    /// A call never came to an end.
    Hangs,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Origin {
    /// Whether anybody can have been robbed, or have stood still for so long that he may have been.
    pub(crate) fn may_rob(&self) -> bool {
        self.readers.has_outlaws() || self.time.now() >= START + 150_000.0
    }

    /// What tabs that were robbed believe to have does not count.
    pub(crate) fn note_robberies(&self) {
        self.locks.robbed().into_iter().for_each(|tab| self.readers.outlaw(tab));
    }

    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, is_told: bool) -> Self {
        let time = Time::new();
        let clock = Wall::new(&time);
        let journal = Journal::new(&clock);
        let saboteur = sabotage.map(|sabotage| Rc::new(Saboteur::new(sabotage, seed)));
        let is_elsewhere = Mix::of(seed) == Mix::Elsewhere;
        Self {
            shelf: is_elsewhere.then(|| Shelf::new(seed, &time, &journal, saboteur.clone(), is_told)),
            has_jumps: is_elsewhere && sabotage.is_none() && (seed / 8).is_multiple_of(4),
            chance: RefCell::new(Chance(seed)),
            journal,
            clock,
            time,
            tasks: Rc::new(Executor::default()),
            locks: OriginLocks::default(),
            history: History::default(),
            readers: Readers::default(),
            names: RefCell::default(),
            mail: RefCell::default(),
            violation: RefCell::default(),
            is_told,
            is_trusting: sabotage.is_some_and(Sabotage::is_unsound),
            saboteur,
            counts_failures: seed.is_multiple_of(3),
            ids: host::ids(seed.wrapping_add(0x00c0_ffee)),
            mix: Mix::of(seed),
            ends: RefCell::default(),
            groups: RefCell::default(),
            failed: RefCell::default(),
            delayed: RefCell::default(),
            bodies: Cell::new(0),
            gate: RefCell::default(),
        }
    }

    pub(crate) fn tell(&self, text: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>9} {}", self.time.now() - crate::time::START, text());
        }
    }

    pub(crate) fn report(&self, kind: Kind, text: String) {
        if kind != Kind::Unsound || !self.is_trusting {
            self.violation.borrow_mut().get_or_insert(Violation { kind, text });
        }
    }

    // ── chance ──

    pub(crate) fn below(&self, limit: usize) -> usize {
        self.chance.borrow_mut().below(limit)
    }

    pub(crate) fn one_in(&self, count: usize) -> bool {
        self.chance.borrow_mut().one_in(count)
    }

    pub(crate) fn some_queue(&self, chance: &mut Chance) -> usize {
        match self.mix {
            Mix::Dialogs => chance.below(QUEUES.len()),
            Mix::Lanes | Mix::Later | Mix::Elsewhere => {
                chance.pick(&[0, 1, 1, 2, 2, 2, ERROR, BIN]).unwrap_or_default()
            }
        }
    }

    /// Something that has failed lately.
    pub(crate) fn any_failed(&self, chance: &mut Chance) -> Option<(Rc<str>, String)> {
        let failed = self.failed.borrow();
        chance.pick(&failed[failed.len().saturating_sub(6)..])
    }

    pub(crate) fn note_failed(&self, message: &Message) {
        self.failed.borrow_mut().push((Rc::clone(&message.message_id), row_of(message).body));
    }

    /// Something that was delayed lately, or is due next. `sender`: of this end.
    pub(crate) fn any_delayed(&self, chance: &mut Chance, sender: Option<&End>) -> Option<(Rc<str>, String)> {
        let known = self.delayed.borrow();
        let is_meant = |delayed: &&Under| sender.is_none_or(|sender| delayed.sender.as_ref() == Some(sender));
        let meant: Vec<&Under> = known.iter().filter(is_meant).collect();
        let now = self.clock.now();
        let next = || meant.iter().filter(|delayed| delayed.due >= now).min_by(|a, b| a.due.total_cmp(&b.due)).copied();
        let found = if chance.one_in(2) { next() } else { None };
        let found = found.or_else(|| chance.pick(&meant[meant.len().saturating_sub(8)..]));
        found.map(|delayed| (Rc::clone(&delayed.id), delayed.body.clone()))
    }

    /// An end that has messages under way, or had lately.
    pub(crate) fn any_sender(&self, chance: &mut Chance) -> Option<End> {
        let delayed = self.delayed.borrow();
        let senders: Vec<&End> = delayed.iter().rev().filter_map(|delayed| delayed.sender.as_ref()).take(8).collect();
        chance.pick(&senders).cloned()
    }

    /// A message is about to be delayed under this id.
    pub(crate) fn note_id(&self, id: Uuid, body: &str) {
        if self.shelf.is_some() {
            self.names.borrow_mut().ids.insert(text(id), body.to_owned());
        }
    }

    /// The id of a message that is delayed.
    pub(crate) fn id_of(&self, body: &str) -> Option<Uuid> {
        let names = self.names.borrow();
        let found = names.ids.iter().find(|(_, known)| *known == body);
        found.and_then(|(id, _)| Uuid::try_parse(id).ok())
    }

    pub(crate) fn note_delayed(&self, delayed: Under) {
        self.delayed.borrow_mut().push(delayed);
    }

    pub(crate) fn forget_delayed(&self, id: &str) {
        self.delayed.borrow_mut().retain(|delayed| *delayed.id != *id);
    }

    /// How queues are made. Where the storage fails nobody knows how many failures were counted.
    pub(crate) fn poison(&self) -> QueueOptions {
        QueueOptions { poison_message_handling: Some(self.counts_failures), ..QueueOptions::default() }
    }

    /// Whether something is to be broken here and now.
    pub(crate) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.saboteur.as_ref().is_some_and(|saboteur| saboteur.strikes(sabotage))
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.ids.uuid()
    }

    /// A body that no other message has.
    pub(crate) fn body(&self) -> String {
        self.bodies.set(self.bodies.get() + 1);
        self.bodies.get().to_string()
    }

    // ── names ──

    /// A conversation was begun, or is to be: both of its ends can be talked about.
    pub(crate) fn learn(&self, info: &ConversationInfo) {
        let services = (service_number(&info.service), service_number(&info.far_service));
        self.learn_of(&info.conversation_id, &info.handle, services);
    }

    pub(crate) fn learn_of(&self, id: &Rc<str>, handle: &Rc<str>, services: (usize, usize)) {
        let mut names = self.names.borrow_mut();
        if names.services.insert(Rc::clone(id), services).is_some() {
            return;
        }
        let decoded = Decoded::parse(handle).expect("a handle");
        let far = Decoded { side: SideId { role: Role::Target, ..decoded.side }, ..decoded };
        let ends = [(Rc::clone(id), true), (Rc::clone(id), false)];
        names.handles.insert(ends[0].clone(), Rc::clone(handle));
        names.handles.insert(ends[1].clone(), far.text());
        self.ends.borrow_mut().extend(ends);
    }

    /// Lanes that somebody was told the handles of.
    pub(crate) fn learn_lanes(&self, queue: usize, messages: &[Message]) {
        for message in messages.iter().filter(|message| *message.service_contract_name == *"DEFAULT") {
            let handle = &message.conversation_handle;
            let mut names = self.names.borrow_mut();
            let hint = names.lanes.entry(Rc::clone(handle)).or_insert_with(|| Hint::of(queue, message));
            hint.add(message);
            let end = (Rc::clone(handle), false);
            if names.handles.insert(end.clone(), Rc::clone(handle)).is_none() {
                self.ends.borrow_mut().push(end);
            }
        }
    }

    pub(crate) fn is_lane(&self, end: &End) -> bool {
        self.names.borrow().lanes.contains_key(&end.0)
    }

    pub(crate) fn any_end(&self, chance: &mut Chance) -> Option<End> {
        let ends = self.ends.borrow();
        let known = if chance.one_in(10) { &ends[..] } else { &ends[ends.len().saturating_sub(WELL_KNOWN)..] };
        chance.pick(known)
    }

    pub(crate) fn handle(&self, end: &End) -> Rc<str> {
        Rc::clone(&self.names.borrow().handles[end])
    }

    pub(crate) fn handles(&self, ends: &[End]) -> Vec<Rc<str>> {
        ends.iter().map(|end| self.handle(end)).collect()
    }

    /// A group that nobody has heard of yet.
    pub(crate) fn new_group(&self) -> Rc<str> {
        let group = text(self.uuid());
        self.groups.borrow_mut().push(Rc::clone(&group));
        group
    }

    /// A group that was named lately, or that of an end.
    pub(crate) fn some_group(&self, chance: &mut Chance, end: Option<End>) -> Option<Rc<str>> {
        let groups = self.groups.borrow();
        let named = chance.pick(&groups[groups.len().saturating_sub(4)..]).filter(|_| chance.one_in(2));
        named.or_else(|| end.filter(|end| !self.is_lane(end)).map(|end| self.own_group(&end)))
    }

    /// The group that an end is in as long as it is put into no other.
    pub(crate) fn own_group(&self, end: &End) -> Rc<str> {
        own_group(&self.handle(end))
    }

    // ── the gate ──

    /// Nobody begins anything before it is opened again.
    pub(crate) fn close_gate(&self) {
        self.gate.borrow_mut().is_closed = true;
    }

    pub(crate) fn open_gate(&self) {
        let waiting = {
            let mut gate = self.gate.borrow_mut();
            gate.is_closed = false;
            std::mem::take(&mut gate.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the gate is open.
    pub(crate) async fn pass_gate(&self) {
        poll_fn(|context| {
            let mut gate = self.gate.borrow_mut();
            if !gate.is_closed {
                return Poll::Ready(());
            }
            gate.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The hint for one tab and every other.
pub(crate) fn post(origin: &Origin, from: TabId, notice: &Notice) {
    origin.mail.borrow_mut().push((from, notice.clone()));
}
