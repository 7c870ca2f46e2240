//! The locks of an origin that lives in memory: what Web Locks are to tabs.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::{Guard, Locks};

/// A lock that is held: by which tab, as which of all that were ever taken, and who waits for it.
#[derive(Debug)]
struct Held {
    owner: u64,
    number: u64,
    waiting: VecDeque<(u64, oneshot::Sender<HeldLock>)>,
}

/// What a tab wants to be told.
type OnLost = Rc<dyn Fn(&str)>;

#[derive(Default)]
struct Origin {
    held: BTreeMap<String, Held>,
    taken: u64,
    on_lost: BTreeMap<u64, OnLost>,
    /// Robberies that the robbed have not heard of.
    robbed: Vec<(u64, String)>,
}

/// The locks that all tabs of a test share, as one of the tabs sees them.
#[derive(Clone, Default)]
pub(crate) struct OriginLocks {
    origin: Rc<RefCell<Origin>>,
    owner: u64,
}

/// A lock. Dropping it gives it to the next who waits, unless its owner was robbed of it.
struct HeldLock {
    name: String,
    number: u64,
    locks: OriginLocks,
}

impl OriginLocks {
    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.origin.borrow().held.len()
    }

    /// The same locks as a tab with a number sees them.
    pub(crate) fn of_tab(&self, owner: u64) -> Self {
        Self { origin: Rc::clone(&self.origin), owner }
    }

    /// Takes away all that this tab holds, as `steal` and the death of a tab do. It does not hear of it before [`Self::hear`].
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn rob(&self) {
        let lost = |(name, held): (&String, &Held)| (held.owner == self.owner).then(|| (name.clone(), held.number));
        let lost: Vec<_> = self.origin.borrow().held.iter().filter_map(lost).collect();
        for (name, number) in lost {
            self.origin.borrow_mut().robbed.push((self.owner, name.clone()));
            self.pass_on(&name, number);
        }
    }

    /// Lets go of all that this tab holds, behind its back.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn slip(&self) {
        self.rob();
        self.origin.borrow_mut().robbed.retain(|(owner, _)| *owner != self.owner);
    }

    /// Which tabs have been robbed and have not heard of it.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn robbed(&self) -> Vec<u64> {
        self.origin.borrow().robbed.iter().map(|(owner, _)| *owner).collect()
    }

    /// Tells this tab what it was robbed of.
    pub(crate) fn hear(&self) {
        let mut origin = self.origin.borrow_mut();
        let (own, others) = std::mem::take(&mut origin.robbed).into_iter().partition(|(owner, _)| *owner == self.owner);
        origin.robbed = others;
        let own: Vec<(u64, String)> = own;
        let on_lost = origin.on_lost.get(&self.owner).cloned();
        drop(origin);
        on_lost.into_iter().for_each(|on_lost| own.iter().for_each(|(_, name)| on_lost(name)));
    }

    fn lock_for(&self, name: &str, owner: u64) -> HeldLock {
        let mut origin = self.origin.borrow_mut();
        origin.taken += 1;
        let number = origin.taken;
        let held =
            origin.held.entry(name.to_owned()).or_insert_with(|| Held { owner, number, waiting: VecDeque::new() });
        (held.owner, held.number) = (owner, number);
        HeldLock { name: name.to_owned(), number, locks: self.of_tab(owner) }
    }

    fn take(&self, name: &str) -> Option<HeldLock> {
        let is_held = self.origin.borrow().held.contains_key(name);
        (!is_held).then(|| self.lock_for(name, self.owner))
    }

    /// Gives a lock to the next who waits, if it is still the one with this number.
    fn pass_on(&self, name: &str, number: u64) {
        let mut number = number;
        loop {
            let next = {
                let mut origin = self.origin.borrow_mut();
                let Some(held) = origin.held.get_mut(name).filter(|held| held.number == number) else { return };
                let next = held.waiting.pop_front();
                if next.is_none() {
                    origin.held.remove(name);
                }
                next
            };
            let Some((owner, next)) = next else { return };
            let lock = self.lock_for(name, owner);
            number = lock.number;
            match next.send(lock) {
                Ok(()) => return,
                // Nobody waits any more. It is still held, by this one, and goes to the next.
                Err(lock) => std::mem::forget(lock),
            }
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.locks.pass_on(&self.name, self.number);
    }
}

impl Locks for OriginLocks {
    fn held(&self) -> LocalBoxFuture<'static, Vec<(String, String)>> {
        let origin = self.origin.borrow();
        let held = origin.held.iter().map(|(name, held)| (name.clone(), held.owner.to_string()));
        std::future::ready(held.collect()).boxed_local()
    }

    fn steal(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        let robbed = self.origin.borrow().held.get(name).map(|held| (held.owner, name.to_owned()));
        self.origin.borrow_mut().robbed.extend(robbed);
        let guard: Guard = Box::new(self.lock_for(name, self.owner));
        std::future::ready(Some(guard)).boxed_local()
    }

    fn on_lost(&self, lost: Rc<dyn Fn(&str)>) {
        self.origin.borrow_mut().on_lost.insert(self.owner, lost);
    }

    fn try_lock(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        let taken = self.take(name).map(|lock| -> Guard { Box::new(lock) });
        std::future::ready(taken).boxed_local()
    }

    fn lock(&self, name: &str) -> LocalBoxFuture<'static, Guard> {
        if let Some(lock) = self.take(name) {
            let guard: Guard = Box::new(lock);
            return std::future::ready(guard).boxed_local();
        }
        let (sender, receiver) = oneshot::channel();
        if let Some(held) = self.origin.borrow_mut().held.get_mut(name) {
            held.waiting.push_back((self.owner, sender));
        }
        async move {
            match receiver.await {
                Ok(lock) => {
                    let guard: Guard = Box::new(lock);
                    guard
                }
                Err(_) => std::future::pending().await,
            }
        }
        .boxed_local()
    }
}
