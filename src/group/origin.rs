//! Groups over all contexts: asking for a lock, waiting for it, and what becomes of one whose holder shows no sign of life.

use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::join_all;

use super::{Assumed, GroupLocks, Holders, Sharing};
use crate::clock::Instant;
use crate::lease::{Holding, LIFE};

impl GroupLocks {
    /// Asks for the lock of a group that nobody here holds. What came of it, [`GroupLocks::claim`] says.
    pub(crate) async fn ask(&self, group: &Rc<str>, call: u64) {
        if !self.is_shared() || self.groups.borrow().contains_key(&**group) {
            return;
        }
        let answered = self.asking.borrow_mut().get_mut(&**group).map(|others| {
            let (sender, receiver) = oneshot::channel();
            others.push(sender);
            receiver
        });
        if let Some(answered) = answered {
            // However it ended for the other call: this one looks for itself.
            let _ = answered.await;
            return;
        }
        self.asking.borrow_mut().insert(Rc::clone(group), Vec::new());
        let asking = Asking { locks: self, group };
        let holders = self.take(group).await;
        drop(asking);
        match holders {
            Some(holders) => self.got(group, call, holders),
            None => {
                if !self.groups.borrow().contains_key(&**group) {
                    self.calls.borrow_mut().update(call, |seen| seen.elsewhere.push(Rc::clone(group)));
                }
            }
        }
    }

    /// Whether asking costs no storage transaction.
    pub(crate) fn are_asked_for_cheaply(&self) -> bool {
        !matches!(self.sharing, Sharing::Leases)
    }

    async fn take(&self, group: &Rc<str>) -> Option<Holders> {
        let (mut guard, mut has_lease, number) = (None, false, self.next_number());
        match (&self.sharing, &self.leases) {
            (Sharing::Locks(origin), _) => guard = Some(origin.try_lock(group).await?),
            (_, Some(leases)) => match leases.take(group, number).await {
                Ok(None) => has_lease = true,
                Ok(Some(_)) => return None,
                // Where there is no room for a lease, receiving is what makes room: the commit keeps others out.
                Err(_) => {}
            },
            _ => {}
        }
        // It begins now: the page may have slept meanwhile.
        Some(Holders { guard, has_lease, number, ..self.holding() })
    }

    /// A number for a holding.
    pub(crate) fn next_number(&self) -> u64 {
        self.holdings.set(self.holdings.get() + 1);
        self.holdings.get()
    }

    /// A holding that begins.
    pub(super) fn holding(&self) -> Holders {
        let since = self.leases.as_ref().map_or(0.0, |leases| leases.now());
        Holders { number: self.next_number(), since, ..Holders::default() }
    }

    /// A batch finds out which groups it needs: until [`GroupLocks::assumed`], a group that is wanted counts as had. When there were any, the
    /// batch must not be committed: its locks are asked for, and it is run again.
    pub(crate) fn assume(&self) {
        self.assumed.replace(Some(Vec::new()));
    }

    /// The first of them, if there are any.
    pub(crate) fn first_assumed(&self) -> Option<Rc<str>> {
        self.assumed.borrow().as_ref().and_then(|assumed| assumed.first()).map(|(group, _)| Rc::clone(group))
    }

    /// Ends it: the groups that were assumed.
    pub(crate) fn assumed(&self) -> Vec<Assumed> {
        self.assumed.take().unwrap_or_default()
    }

    /// Asks for many at once.
    pub(crate) async fn ask_all(&self, wanted: Vec<Assumed>) {
        if self.is_shared() {
            join_all(wanted.iter().map(|(group, call)| self.ask(group, *call))).await;
        }
    }

    /// Waits for the lock of a group that another context holds. A lease is looked at now and then; mostly, who gives it back tells.
    pub(crate) async fn wait(&self, group: &Rc<str>, call: u64) {
        match (&self.sharing, &self.leases) {
            (Sharing::Locks(origin), _) => {
                let guard = Some(origin.lock(group).await);
                self.look_again(call);
                self.got(group, call, Holders { guard, ..self.holding() });
            }
            (Sharing::Leases, Some(leases)) => leases.wait(group).await,
            _ => std::future::pending().await,
        }
    }

    fn got(&self, group: &Rc<str>, call: u64, new: Holders) {
        self.sieges.lift(group);
        self.groups.borrow_mut().update(Rc::clone(group), |holders| {
            // A commit may have taken it for granted meanwhile.
            let (transaction, mut calls) = (holders.transaction, std::mem::take(&mut holders.calls));
            calls.push(call);
            *holders = Holders { transaction, calls, ..new };
        });
    }

    // ── signs of life ──

    /// What transactions have held at least since a time, and whether there is a sign of it that others have seen, or should have seen.
    pub(crate) fn held_since(&self, time: Instant) -> Vec<(Holding, bool)> {
        let groups = self.groups.borrow();
        let long = groups.iter().filter(|(_, holders)| holders.transaction.is_some() && holders.since <= time);
        let is_late = |holders: &Holders| holders.since <= time - LIFE;
        long.map(|(group, holders)| ((Rc::clone(group), holders.number), holders.has_lease || is_late(holders)))
            .collect()
    }

    /// Whether any transaction holds a group.
    pub(crate) fn is_any_held(&self) -> bool {
        self.groups.borrow().values().any(|holders| holders.transaction.is_some())
    }

    /// A holding has a lease now; `false`: it is over.
    pub(crate) fn leased(&self, (group, number): &Holding) -> bool {
        let mut groups = self.groups.borrow_mut();
        let holders = groups.get_mut(&**group).filter(|holders| holders.number == *number);
        holders.map(|holders| holders.has_lease = true).is_some()
    }

    /// What a transaction holds that others may have taken over: what they can see, and what they should have seen for long.
    pub(crate) fn leases_of(&self, transaction: u64) -> Vec<Holding> {
        let Some(leases) = &self.leases else { return Vec::new() };
        let (groups, time) = (self.groups.borrow(), leases.now() - LIFE);
        let is_leased = |holders: &Holders| {
            holders.transaction == Some(transaction) && (holders.has_lease || holders.since <= time)
        };
        let leased = groups.iter().filter(|(_, holders)| is_leased(holders));
        leased.map(|(group, holders)| (Rc::clone(group), holders.number)).collect()
    }

    /// A transaction has committed, and its commit has given back what it held.
    pub(crate) fn given_back(&self, transaction: u64) {
        let mut had_lease = false;
        self.groups.borrow_mut().for_each(|holders| {
            if holders.transaction == Some(transaction) && std::mem::take(&mut holders.has_lease) {
                had_lease = true;
                // Where the lease was the lock, other calls have lost it, too: they ask again.
                if holders.guard.is_none() {
                    holders.calls.clear();
                }
            }
        });
        self.leases.iter().filter(|_| had_lease).for_each(|leases| leases.tell());
    }

    /// A group was taken away. Gives the transaction that held it: until it ends it has the group to lose. `number`: only if it is still that
    /// holding.
    pub(crate) fn lost(&self, group: &str, number: Option<u64>) -> Option<u64> {
        let mut groups = self.groups.borrow_mut();
        let holders = groups.get_mut(group).filter(|holders| number.is_none_or(|number| holders.number == number))?;
        // Its commit looks for a lease that it does not find.
        holders.has_lease = true;
        // What other calls had by it is lost with it.
        holders.calls.clear();
        let (transaction, guard) = (holders.transaction, holders.guard.take());
        if transaction.is_none() {
            groups.remove(group);
        }
        drop(groups);
        // Only now: letting go may run others.
        drop(guard);
        transaction
    }
}

/// Tells those who wait for the same answer, also when the call that asked is given up.
struct Asking<'a> {
    locks: &'a GroupLocks,
    group: &'a Rc<str>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let others = self.locks.asking.borrow_mut().remove(&**self.group);
        others.into_iter().flatten().for_each(|other| _ = other.send(()));
    }
}
