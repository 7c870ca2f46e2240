//! Breaks the broker at its ports, to show that the simulation would notice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use pocket_broker::body::Value;
use pocket_broker::error::Result;
use pocket_broker::store::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};
use pocket_broker::{Guard, Locks};

use crate::conformance::support::chance::Chance;
use crate::executor::TabId;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// What was received is not taken out: the cursor stays where it was.
    Cursor,
    /// There are no locks, and the commit of a transaction finds what was there before another tab changed it.
    Fence,
    /// Locks keep nobody out.
    Locks,
    /// Half of the writes of a commit are not made.
    Half,
    /// A commit is answered, and then does not happen.
    Early,
    /// An `enqueue` is committed twice.
    Double,
    /// An id of `enqueue` is not remembered.
    Forgetful,
    /// What is moved to the error queue does not stay there.
    Grave,
    /// Nobody is told when a wait is over.
    Sleep,
    /// A dialog that names a group is begun without it.
    Alone,
    /// A page that is put away lets go of its locks, and goes on as if it held them.
    Walk,
    /// What is dispatched stays in the delayed store.
    Undead,
    /// What is cancelled stays there, too.
    Deaf,
    /// Delays are half as long as was asked for.
    Hurry,
    /// A store of the application's own says that it has a message, and does not.
    Leak,
    /// It gives messages before their time, and says that it has come.
    Rush,
    /// It says that nothing is due.
    Idle,
    /// What came out of it is not remembered.
    Amnesia,
    /// What is cancelled is not remembered.
    Mute,
}

impl Sabotage {
    /// What is broken contradicts itself, and the audit would say so: it is to be noticed without.
    pub(crate) fn is_unsound(self) -> bool {
        matches!(self, Self::Fence | Self::Forgetful | Self::Sleep | Self::Undead | Self::Deaf | Self::Mute)
    }

    /// There is so seldom a chance for it that none is left out.
    fn is_rare(self) -> bool {
        matches!(self, Self::Forgetful | Self::Grave | Self::Walk | Self::Idle)
    }
}

/// Does it, now and then.
pub(crate) struct Saboteur {
    sabotage: Sabotage,
    chance: RefCell<Chance>,
    /// Conversations as they were before the last change, and whose it was.
    before: RefCell<BTreeMap<Key, Version>>,
}

struct Version {
    by: TabId,
    before: Option<Value>,
    now: Option<Value>,
}

impl Saboteur {
    pub(crate) fn new(sabotage: Sabotage, seed: u64) -> Self {
        Self { sabotage, chance: RefCell::new(Chance(!seed)), before: RefCell::default() }
    }

    pub(crate) fn strikes(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage && (sabotage.is_rare() || self.chance.borrow_mut().one_in(3))
    }

    /// `commits`: whether a transaction of the tab is being committed.
    pub(crate) fn store(
        self: &Rc<Self>,
        inner: Rc<dyn Store>,
        tab: TabId,
        commits: Rc<dyn Fn() -> bool>,
    ) -> Rc<dyn Store> {
        Rc::new(BrokenStore { inner, saboteur: Rc::clone(self), tab, commits })
    }

    pub(crate) fn locks(&self, inner: Rc<dyn Locks>) -> Rc<dyn Locks> {
        if self.sabotage == Sabotage::Locks { Rc::new(NoLocks) } else { inner }
    }

    /// What a conversation was before another tab changed it.
    fn stale(&self, key: &Key, tab: TabId) -> Option<Value> {
        if self.sabotage != Sabotage::Fence {
            return None;
        }
        let versions = self.before.borrow();
        versions.get(key).filter(|version| version.by != tab)?.before.clone()
    }

    /// A tab writes. That it may be undone does not matter: it is sabotage.
    fn note(&self, tab: TabId, changes: &[Change]) {
        let mut versions = self.before.borrow_mut();
        for change in changes {
            if let Change::Put(StoreName::Conversations, key, value) = change {
                let version = versions.entry(key.clone()).or_insert(Version { by: tab, before: None, now: None });
                (version.before, version.now, version.by) = (version.now.take(), Some(value.clone()), tab);
            }
        }
    }
}

struct NoLocks;

impl Locks for NoLocks {
    fn held(&self) -> LocalBoxFuture<'static, Vec<(String, String)>> {
        ready(Vec::new()).boxed_local()
    }

    fn steal(&self, _name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        ready(None).boxed_local()
    }

    fn on_lost(&self, _lost: Rc<dyn Fn(&str)>) {}

    fn try_lock(&self, _name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        let guard: Guard = Box::new(());
        ready(Some(guard)).boxed_local()
    }

    fn lock(&self, _name: &str) -> LocalBoxFuture<'static, Guard> {
        let guard: Guard = Box::new(());
        ready(guard).boxed_local()
    }
}

struct BrokenStore {
    inner: Rc<dyn Store>,
    saboteur: Rc<Saboteur>,
    tab: TabId,
    commits: Rc<dyn Fn() -> bool>,
}

impl Store for BrokenStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            let inner = self.inner.begin(scope, mode).await?;
            let session: Box<dyn Session> = Box::new(BrokenSession {
                inner,
                saboteur: Rc::clone(&self.saboteur),
                tab: self.tab,
                is_commit: mode != Mode::ReadOnly && scope.contains(&StoreName::Conversations),
                commits: Rc::clone(&self.commits),
                changes: RefCell::default(),
            });
            Ok(session)
        }
        .boxed_local()
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct BrokenSession {
    inner: Box<dyn Session>,
    saboteur: Rc<Saboteur>,
    tab: TabId,
    is_commit: bool,
    commits: Rc<dyn Fn() -> bool>,
    /// Writes since the last read.
    changes: RefCell<Vec<Change>>,
}

impl BrokenSession {
    /// Makes the writes since the last read: those that sabotage has left.
    fn flush(&self) {
        let changes = self.broken(self.changes.take());
        self.saboteur.note(self.tab, &changes);
        // What can't be written shows at the commit.
        changes.into_iter().for_each(|change| drop(self.inner.write(change)));
    }

    fn broken(&self, mut changes: Vec<Change>) -> Vec<Change> {
        let arrives = changes.iter().any(|change| matches!(change, Change::Put(StoreName::Messages, ..)));
        if !arrives && self.saboteur.strikes(Sabotage::Cursor) {
            changes.retain(|change| matches!(change.store(), StoreName::Meta | StoreName::Definitions));
        }
        let is_put = |change: &Change, store| change.store() == store && matches!(change, Change::Put(..));
        if self.saboteur.strikes(Sabotage::Forgetful) {
            changes.retain(|change| !is_put(change, StoreName::Seen));
        }
        if self.saboteur.strikes(Sabotage::Sleep) {
            changes.retain(|change| !is_put(change, StoreName::Due));
        }
        if self.saboteur.strikes(Sabotage::Undead) {
            changes.retain(|change| !matches!(change, Change::DeleteRange(StoreName::Delayed, _)));
        }
        if self.saboteur.strikes(Sabotage::Deaf) {
            changes.retain(|change| !matches!(change, Change::Delete(StoreName::Delayed, _)));
        }
        let fate = |change: &Change| match change {
            Change::Put(StoreName::Delayed, Key::List(parts), record) if parts[0] == Key::from("gone") => {
                record.item(1).number()
            }
            _ => None,
        };
        if self.saboteur.strikes(Sabotage::Amnesia) {
            changes.retain(|change| fate(change) != Some(0.0));
        }
        if self.saboteur.strikes(Sabotage::Mute) {
            changes.retain(|change| fate(change).is_none_or(|fate| fate == 0.0));
        }
        if changes.len() > 1 && self.saboteur.strikes(Sabotage::Half) {
            changes.truncate(changes.len() / 2);
        }
        changes
    }
}

impl Session for BrokenSession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        self.flush();
        let answer = self.inner.get(store, key);
        let is_meant = self.is_commit && store == StoreName::Conversations && (self.commits)();
        let stale = if is_meant { self.saboteur.stale(key, self.tab) } else { None };
        async move {
            let answer = answer.await?;
            Ok(answer.map(|value| stale.unwrap_or(value)))
        }
        .boxed_local()
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        self.flush();
        self.inner.get_range(source, range, limit, direction)
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        self.flush();
        self.inner.get_keys(source, range, limit)
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        self.flush();
        self.inner.count(source, range)
    }

    fn write(&self, change: Change) -> Result<()> {
        if !self.is_commit {
            return self.inner.write(change);
        }
        self.changes.borrow_mut().push(change);
        Ok(())
    }

    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        let wrote = !self.changes.borrow().is_empty();
        self.flush();
        if wrote && self.saboteur.strikes(Sabotage::Early) {
            return self.inner.abort().map(|()| Ok(())).boxed_local();
        }
        self.inner.commit()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.inner.abort()
    }
}
