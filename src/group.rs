//! Conversation groups: the lock unit. A transaction that received from a group, or changed one of its conversations, holds it to its end.
//!
//! Within a context a table says who holds what. Between contexts a group has a lock of the origin ([`Locks`]), or a lease (`lease.rs`) where there
//! are none; a context takes it before anybody in it gets the group, and lets go with the last one in it. A verb can't wait for such a lock
//! in the middle of a storage transaction: it stops with [`Stop::Wanted`](crate::stop::Stop::Wanted), the lock is asked for, and it runs
//! again. The commit does not rely on locks: see `verbs/take.rs`.

mod origin;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;

use crate::clock::Instant;
use crate::lease::Leases;
use crate::map::Map;
use crate::siege::Sieges;

/// A lock that is held. Dropping it lets go.
pub type Guard = Box<dyn Any>;

/// Whom a context shares its database with.
#[derive(Clone, Default)]
pub enum Sharing {
    /// Nobody, or only the commit keeps others out.
    #[default]
    Alone,
    /// Other contexts, which see the same locks.
    Locks(Rc<dyn Locks>),
    /// Other contexts, and there are no such locks: leases in the database take their place.
    Leases,
}

/// Locks over all contexts of an origin. Whoever dies lets go.
pub trait Locks {
    /// Takes the lock; `None` when somebody has it.
    fn try_lock(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>>;
    /// Waits for the lock. Dropping the future gives up.
    fn lock(&self, name: &str) -> LocalBoxFuture<'static, Guard>;
    /// Takes the lock away from whoever has it. `None`: that can't be done.
    fn steal(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>>;
    /// The names of those that are held, and by which context.
    fn held(&self) -> LocalBoxFuture<'static, Vec<(String, String)>>;
    /// Calls `lost` with the name of a lock that was taken away from this context.
    fn on_lost(&self, lost: Rc<dyn Fn(&str)>);
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "Alone",
            Self::Locks(_) => "Locks",
            Self::Leases => "Leases",
        })
    }
}

/// Who asks for a group: a call, on its own or within a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) call: u64,
    pub(crate) transaction: Option<u64>,
}

/// What comes of asking for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller may go on.
    Ours,
    /// Another transaction holds it, here or elsewhere.
    Held,
    /// Nobody here holds it: the lock of the origin is to be asked for first.
    Wanted,
}

/// Who of this context holds a group. With nobody left the guard goes.
#[derive(Default)]
struct Holders {
    transaction: Option<u64>,
    /// Calls that asked for the lock or share it; they are over soon.
    calls: Vec<u64>,
    guard: Option<Guard>,
    /// Which of all the holdings of this context it is.
    number: u64,
    since: Instant,
    /// Others see it in the database.
    has_lease: bool,
}

/// What a call has found out.
#[derive(Debug, Default)]
struct Seen {
    /// Groups that other contexts hold.
    elsewhere: Vec<Rc<str>>,
    /// The first group that it could not have.
    passed: Option<Rc<str>>,
}

/// A group that a call has claimed before its lock was asked for.
type Assumed = (Rc<str>, u64);

/// Who holds which group.
#[derive(Default)]
pub(crate) struct GroupLocks {
    sharing: Sharing,
    /// `None`: this context is alone.
    leases: Option<Rc<Leases>>,
    groups: RefCell<Map<Rc<str>, Holders>>,
    /// Locks that are being asked for, and who waits for the answer.
    asking: RefCell<Map<Rc<str>, Vec<oneshot::Sender<()>>>>,
    calls: RefCell<Map<u64, Seen>>,
    /// What a batch has claimed before its locks were asked for: see [`GroupLocks::assume`].
    assumed: RefCell<Option<Vec<Assumed>>>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    /// Groups of other contexts that are watched.
    pub(crate) sieges: Sieges,
    /// How often somebody has let go.
    releases: Cell<u64>,
    holdings: Cell<u64>,
}

impl GroupLocks {
    pub(crate) fn new(sharing: Sharing, leases: Option<Rc<Leases>>) -> Self {
        Self { sharing, leases, ..Self::default() }
    }

    /// Asks for a group. A transaction that gets it holds it to its end.
    pub(crate) fn claim(&self, group: &Rc<str>, caller: Caller) -> Claim {
        let mut groups = self.groups.borrow_mut();
        if let Some(holders) = groups.get_mut(&**group) {
            if holders.transaction.is_some() && holders.transaction != caller.transaction {
                drop(groups);
                self.pass(group, caller.call);
                return Claim::Held;
            }
            if caller.transaction.is_some() {
                holders.transaction = caller.transaction;
            } else if !holders.calls.contains(&caller.call) {
                holders.calls.push(caller.call);
            }
            return Claim::Ours;
        }
        if self.is_elsewhere(group, caller.call) {
            self.pass(group, caller.call);
            return Claim::Held;
        }
        if self.is_shared() {
            return match &mut *self.assumed.borrow_mut() {
                Some(assumed) if caller.transaction.is_none() => {
                    if !assumed.iter().any(|(other, _)| other == group) {
                        assumed.push((Rc::clone(group), caller.call));
                    }
                    Claim::Ours
                }
                _ => Claim::Wanted,
            };
        }
        if caller.transaction.is_some() {
            groups.insert(Rc::clone(group), Holders { transaction: caller.transaction, ..Holders::default() });
        }
        Claim::Ours
    }

    /// Takes the group of a transaction that is being committed: it held it all the time, or the commit finds out that it did not.
    pub(crate) fn keep(&self, group: &Rc<str>, transaction: u64) -> bool {
        let mut groups = self.groups.borrow_mut();
        match groups.get_mut(&**group) {
            Some(holders) => *holders.transaction.get_or_insert(transaction) == transaction,
            None => {
                groups.insert(Rc::clone(group), Holders { transaction: Some(transaction), ..self.holding() });
                true
            }
        }
    }

    /// Whether nobody else holds the group, as far as is known.
    pub(crate) fn is_free(&self, group: &Rc<str>, caller: Caller) -> bool {
        let holder = self.groups.borrow().get(&**group).and_then(|holders| holders.transaction);
        let is_free = match holder {
            Some(_) => holder == caller.transaction,
            None => !self.is_elsewhere(group, caller.call),
        };
        if !is_free {
            self.pass(group, caller.call);
        }
        is_free
    }

    /// Whether the lock of the origin is to be asked for before the caller can have the group.
    pub(crate) fn is_wanted(&self, group: &Rc<str>, caller: Caller) -> bool {
        let is_assumed = caller.transaction.is_none() && self.assumed.borrow().is_some();
        self.is_shared() && !is_assumed && !self.groups.borrow().contains_key(&**group)
    }

    /// Whether this transaction holds the group.
    pub(crate) fn is_held_by(&self, group: &str, transaction: u64) -> bool {
        self.groups.borrow().get(group).is_some_and(|holders| holders.transaction == Some(transaction))
    }

    /// Whether this transaction holds any group.
    pub(crate) fn holds_any(&self, transaction: u64) -> bool {
        self.groups.borrow().values().any(|holders| holders.transaction == Some(transaction))
    }

    /// Whether somebody of this context holds the group.
    pub(crate) fn is_held_here(&self, group: &str) -> bool {
        self.groups.borrow().contains_key(group)
    }

    /// The groups that anybody holds, as the locks of the origin tell.
    pub(crate) async fn held_in_origin(&self) -> Vec<String> {
        match (&self.sharing, &self.leases) {
            (Sharing::Locks(origin), _) => origin.held().await.into_iter().map(|(name, _)| name).collect(),
            (Sharing::Leases, Some(leases)) => leases.held().await.unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn is_shared(&self) -> bool {
        !matches!(self.sharing, Sharing::Alone)
    }

    fn is_elsewhere(&self, group: &Rc<str>, call: u64) -> bool {
        self.calls.borrow().get(&call).is_some_and(|seen| seen.elsewhere.contains(group))
    }

    fn pass(&self, group: &Rc<str>, call: u64) {
        self.calls.borrow_mut().update(call, |seen| _ = seen.passed.get_or_insert_with(|| Rc::clone(group)));
    }

    /// The first group that a call could not have, and whether another context holds it.
    pub(crate) fn passed(&self, call: u64) -> Option<(Rc<str>, bool)> {
        let calls = self.calls.borrow();
        let seen = calls.get(&call)?;
        let group = seen.passed.clone()?;
        let elsewhere = seen.elsewhere.contains(&group);
        Some((group, elsewhere))
    }

    /// The groups that a call has found in other contexts' hands.
    pub(crate) fn elsewhere(&self, call: u64) -> Vec<Rc<str>> {
        self.calls.borrow().get(&call).map(|seen| seen.elsewhere.clone()).unwrap_or_default()
    }

    /// A call looks anew.
    pub(crate) fn look_again(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
    }

    // ── letting go ──

    /// A call is over: it lets go of what no transaction holds.
    pub(crate) fn finish(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
        self.let_go(|holders| holders.calls.retain(|other| *other != call));
    }

    /// Lets go of everything that a transaction holds, and wakes those who wait.
    pub(crate) fn release(&self, transaction: u64) {
        self.let_go(|holders| _ = holders.transaction.take_if(|holder| *holder == transaction));
        self.wake();
    }

    fn let_go(&self, change: impl Fn(&mut Holders)) {
        let (mut free, mut leased, mut is_waited_for) = (Vec::new(), Vec::new(), false);
        let mut groups = self.groups.borrow_mut();
        groups.retain(|group, holders| {
            let had = holders.transaction.is_some();
            change(holders);
            let is_held = holders.transaction.is_some() || !holders.calls.is_empty();
            if !is_held {
                free.push(holders.guard.take());
                leased.extend(holders.has_lease.then(|| (Rc::clone(group), holders.number)));
                is_waited_for |= had && holders.has_lease;
            }
            is_held
        });
        drop(groups);
        // Only now: letting go may run others.
        drop(free);
        if let Some(leases) = self.leases.as_ref().filter(|_| !leased.is_empty()) {
            leases.give_back(leased, is_waited_for);
        }
    }

    /// Lets go of everything, whoever holds it, and wakes those who wait.
    pub(crate) fn let_go_of_all(&self) {
        self.let_go(|holders| {
            holders.transaction = None;
            holders.calls.clear();
        });
        self.wake();
    }

    /// Lets everybody who waits look again.
    pub(crate) fn wake(&self) {
        self.releases.set(self.releases.get() + 1);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|waiter| _ = waiter.send(()));
    }

    /// A number that is another one after somebody has let go.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.get()
    }

    /// Resolves at the next release of any group.
    pub(crate) fn released(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiter| !waiter.is_canceled());
        waiting.push(sender);
        receiver
    }
}

/// A call that may lock groups. Dropping it lets go of what it holds itself.
pub(crate) struct Locking<'a> {
    pub(crate) locks: &'a GroupLocks,
    pub(crate) call: u64,
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        self.locks.finish(self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_no_more_is_forgotten() {
        let locks = GroupLocks::default();
        let waits = locks.released();
        (0..100).for_each(|_| drop(locks.released()));
        assert!(locks.waiting.borrow().len() <= 2, "{}", locks.waiting.borrow().len());
        locks.wake();
        assert_eq!(futures_util::FutureExt::now_or_never(waits), Some(Ok(())));
    }
}
