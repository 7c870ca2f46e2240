//! Sieges: a group that another context holds for long is watched, and taken away from a holder who shows no sign of life (D26).
//!
//! A siege waits in line for the group's lock. Whoever lets go of it ends the siege, so a holder that is still the same at its end has held the
//! group all the time, however often others have taken turns before.

use std::cell::RefCell;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select};

use crate::core::Core;
use crate::group::{Locks, Sharing};
use crate::heart::BEAT;
use crate::lease::{LIFE, Leases};
use crate::map::Map;

/// The groups under siege. Dropping a sender gives one up.
#[derive(Debug, Default)]
pub(crate) struct Sieges(RefCell<Map<Rc<str>, oneshot::Sender<()>>>);

impl Sieges {
    /// Gives all of them up.
    pub(crate) fn clear(&self) {
        drop(self.0.take());
    }

    /// This context has got the group: who goes on watching would besiege himself.
    pub(crate) fn lift(&self, group: &str) {
        let siege = self.0.borrow_mut().remove(group);
        drop(siege);
    }
}

/// What a siege needs. It does not keep the database open.
struct Siege {
    origin: Rc<dyn Locks>,
    leases: Rc<Leases>,
    group: Rc<str>,
    /// That of the holding that ends it.
    number: u64,
}

impl Core {
    /// A call has met groups that other contexts hold: sees to it that they are watched.
    pub(crate) fn besiege(self: &Rc<Self>, call: u64) {
        let (Sharing::Locks(origin), Some(leases)) = (&self.host.sharing, &self.leases) else { return };
        // Another call may have got it since.
        let elsewhere = self.locks.elsewhere(call).into_iter().filter(|group| !self.locks.is_held_here(group));
        for group in elsewhere.filter(|_| self.is_open()) {
            let sieges = &self.locks.sieges.0;
            if sieges.borrow().contains_key(&*group) {
                continue;
            }
            let (siege, over) = oneshot::channel();
            sieges.borrow_mut().insert(Rc::clone(&group), siege);
            let (origin, leases, number) = (Rc::clone(origin), Rc::clone(leases), self.locks.next_number());
            let siege = Siege { origin, leases, group, number };
            let core = Rc::downgrade(self);
            let watch = async move {
                let group = Rc::clone(&siege.group);
                // One that was given up may have a successor, which is left alone.
                let Either::Right((has_fallen, _)) = select(over, siege.lay().boxed_local()).await else { return };
                let Some(core) = core.upgrade() else { return };
                core.locks.sieges.lift(&group);
                if has_fallen {
                    core.locks.wake();
                    core.bell.ring_all();
                }
            };
            (self.host.spawn)(watch.boxed_local());
        }
    }
}

impl Siege {
    /// Ends when the group is free; `true`: it was taken away from its holder.
    async fn lay(&self) -> bool {
        // Most are free long before that.
        self.leases.sleep(BEAT).await;
        loop {
            let Some(holder) = self.holder().await else { return false };
            let mut turn = self.origin.lock(&self.group);
            let mut patience = LIFE;
            loop {
                match select(turn, self.leases.sleep(patience)).await {
                    Either::Left(_) => return false,
                    Either::Right(((), waiting)) => turn = waiting,
                }
                if self.holder().await.as_ref() != Some(&holder) {
                    break;
                }
                patience = match self.leases.take(&self.group, self.number).await {
                    Ok(None) => return self.storm(&holder).await,
                    Ok(Some(until)) => until - self.leases.now(),
                    Err(_) => BEAT,
                };
            }
        }
    }

    async fn holder(&self) -> Option<String> {
        let held = self.origin.held().await;
        held.into_iter().find(|(name, _)| **name == *self.group).map(|(_, owner)| owner)
    }

    /// Takes the lock away, and lets go of it at once: who wants the group asks for it as always.
    async fn storm(&self, holder: &str) -> bool {
        // The lease was written meanwhile.
        let is_same = self.holder().await.as_deref() == Some(holder);
        let guard = if is_same { self.origin.steal(&self.group).await } else { None };
        self.leases.give_back(vec![(Rc::clone(&self.group), self.number)], true);
        guard.is_some()
    }
}
