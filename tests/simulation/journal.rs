//! What the storage has committed, in order: who, when, and who was told in the same breath. The model is asked for an order of calls that fits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::body::Value;
use pocket_broker::clock::Clock;
use pocket_broker::error::Result;
use pocket_broker::store::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};

use crate::executor::{TabId, TaskId};
use crate::time::Wall;
use crate::waiting::Waiting;

/// A storage transaction over the conversations that was committed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) tab: TabId,
    pub(crate) now: f64,
    pub(crate) wrote: bool,
    /// It removed due rows: something may have fired.
    pub(crate) fires: bool,
    /// So many delayed messages have gone, the first ones.
    pub(crate) delivers: usize,
    /// Messages of a store of the application's own that were dispatched, and whether each was before.
    pub(crate) dispatches: Vec<(Rc<str>, bool)>,
    /// Those that are not to be delivered, from now on.
    pub(crate) withdraws: Vec<Rc<str>>,
    /// The tasks that were woken when the commit was answered; `None`: it never was.
    pub(crate) told: Option<Vec<TaskId>>,
}

impl Event {
    /// How often something delayed goes.
    pub(crate) fn deliveries(&self) -> usize {
        usize::from(self.delivers > 0) + self.dispatches.len()
    }
}

/// All commits.
pub(crate) struct Journal {
    clock: Rc<Wall>,
    pub(crate) events: RefCell<Vec<Event>>,
    /// Commits whose answers have come in this turn.
    answered: RefCell<Vec<usize>>,
    /// Storage transactions that have not ended.
    live: Cell<usize>,
    pub(crate) waiting: Waiting,
    dispatched: RefCell<BTreeMap<Rc<str>, f64>>,
}

impl Journal {
    pub(crate) fn new(clock: &Rc<Wall>) -> Rc<Self> {
        Rc::new(Self {
            clock: Rc::clone(clock),
            events: RefCell::default(),
            answered: RefCell::default(),
            live: Cell::new(0),
            waiting: Waiting::default(),
            dispatched: RefCell::default(),
        })
    }

    /// When a message of a store of the application's own has come out of it, by real time, as a commit says.
    pub(crate) fn dispatched_at(&self, id: &str) -> Option<f64> {
        self.dispatched.borrow().get(id).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.borrow().len()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.live.get() == 0
    }

    /// A turn is over, in which these tasks were woken.
    pub(crate) fn note_woken(&self, woken: &[TaskId]) {
        for number in self.answered.take() {
            self.events.borrow_mut()[number].told = Some(woken.to_vec());
        }
    }
}

/// A store that writes the journal.
pub(crate) struct JournalStore {
    pub(crate) inner: Rc<dyn Store>,
    pub(crate) journal: Rc<Journal>,
    pub(crate) tab: TabId,
}

impl Store for JournalStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            let inner = self.inner.begin(scope, mode).await?;
            let is_event = mode != Mode::ReadOnly && scope.contains(&StoreName::Conversations);
            let live = Live::new(&self.journal);
            let session: Box<dyn Session> = Box::new(JournalSession {
                inner,
                live,
                tab: self.tab,
                is_event,
                wrote: Cell::new(false),
                fires: Cell::new(false),
                delayed: RefCell::default(),
                gone: RefCell::default(),
            });
            Ok(session)
        }
        .boxed_local()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// A storage transaction that has not ended.
struct Live(Rc<Journal>);

impl Live {
    fn new(journal: &Rc<Journal>) -> Self {
        journal.live.set(journal.live.get() + 1);
        Self(Rc::clone(journal))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.set(self.0.live.get() - 1);
    }
}

struct JournalSession {
    inner: Box<dyn Session>,
    live: Live,
    tab: TabId,
    is_event: bool,
    wrote: Cell<bool>,
    fires: Cell<bool>,
    /// What becomes of delayed messages.
    delayed: RefCell<Vec<Change>>,
    /// What becomes of messages that a store of the application's own has: 0 for one that was dispatched, 1 for one that is not to be.
    gone: RefCell<Vec<(Rc<str>, f64)>>,
}

/// Whether a key is of the built-in delayed store.
fn is_built_in(change: &Change) -> bool {
    let (Change::Put(_, key, _) | Change::Delete(_, key)) = change else { return true };
    matches!(key, Key::List(parts) if matches!(parts.first(), Some(Key::Number(_))))
}

/// What a record says of a message that a store of the application's own is to remove.
fn gone(change: &Change) -> Option<(Rc<str>, f64)> {
    let Change::Put(_, Key::List(parts), record) = change else { return None };
    match parts.as_slice() {
        [Key::Text(kind), Key::Text(id)] if **kind == *"gone" => Some((Rc::clone(id), record.item(1).number()?)),
        _ => None,
    }
}

impl Session for JournalSession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        self.inner.get(store, key)
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        self.inner.get_range(source, range, limit, direction)
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        self.inner.get_keys(source, range, limit)
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        self.inner.count(source, range)
    }

    fn write(&self, change: Change) -> Result<()> {
        self.wrote.set(true);
        if change.store() == StoreName::Due && !matches!(change, Change::Put(..)) {
            self.fires.set(true);
        }
        if change.store() == StoreName::Delayed {
            if is_built_in(&change) {
                self.delayed.borrow_mut().push(change.clone());
            }
            self.gone.borrow_mut().extend(gone(&change));
        }
        self.inner.write(change)
    }

    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        let Self { inner, live, tab, is_event, wrote, fires, delayed, gone } = *self;
        let number = live.0.len();
        let committed = inner.commit();
        if is_event {
            // It has happened now, whether or not anybody lives to hear of it.
            let now = live.0.clock.now();
            let delivers = live.0.waiting.change(tab, now, delayed.take());
            let of_fate = |wanted| {
                gone.borrow()
                    .iter()
                    .filter(move |(_, fate)| *fate == wanted)
                    .map(|(id, _)| Rc::clone(id))
                    .collect::<Vec<_>>()
            };
            let dispatches = of_fate(0.0).into_iter().map(|id| {
                let at = live.0.clock.time.now();
                let is_first = live.0.dispatched.borrow_mut().insert(Rc::clone(&id), at).is_none();
                (id, !is_first)
            });
            let dispatches = dispatches.collect();
            let (wrote, fires, withdraws) = (wrote.get(), fires.get(), of_fate(1.0));
            let event = Event { tab, now, wrote, fires, delivers, dispatches, withdraws, told: None };
            live.0.events.borrow_mut().push(event);
        }
        committed
            .map(move |outcome| {
                if is_event {
                    if outcome.is_err() {
                        live.0.events.borrow_mut()[number].wrote = false;
                    }
                    live.0.answered.borrow_mut().push(number);
                }
                outcome
            })
            .boxed_local()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        let Self { inner, live, .. } = *self;
        inner
            .abort()
            .then(move |()| {
                drop(live);
                future::ready(())
            })
            .boxed_local()
    }
}
