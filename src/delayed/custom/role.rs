//! The leader: the one context that pumps and polls. An economy, and no matter of correctness: what was dispatched is remembered.
//!
//! Whoever has the store waits in line for a lock of the origin. The browser gives it to the next when the leader is gone. A leader that is hidden,
//! where timers are late, hands over to a context that can be seen and asks for it. Where there are no locks everybody leads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::{Either, select};

use crate::core::Core;
use crate::group::{Guard, Sharing};
use crate::notice::{Notice, RoleNotice};

/// The name of the lock. No group is called that.
const LOCK: &str = "role:poller";

/// Whether this context leads.
#[derive(Default)]
pub(crate) struct Role {
    guard: RefCell<Option<Guard>>,
    is_waiting: Cell<bool>,
}

impl Role {
    pub(crate) fn is_held(&self) -> bool {
        self.guard.borrow().is_some()
    }

    /// Lets go of it.
    pub(crate) fn let_go(&self) {
        drop(self.guard.take());
    }
}

/// Waits until this context leads, or is to look for something else. Gives whether it leads.
pub(super) async fn lead(core: Rc<Core>, rung: oneshot::Receiver<()>) -> bool {
    let lock = match &core.host.sharing {
        Sharing::Locks(locks) => locks.lock(LOCK),
        _ => {
            core.stored.role.guard.replace(Some(Box::new(())));
            return true;
        }
    };
    let weak = Rc::downgrade(&core);
    core.stored.role.is_waiting.set(true);
    core.ask_for_role();
    drop(core);
    let granted = select(lock, rung).await;
    let Some(core) = weak.upgrade() else { return false };
    core.stored.role.is_waiting.set(false);
    let Either::Left((guard, _)) = granted else { return false };
    if !core.is_open() {
        return false;
    }
    core.stored.role.guard.replace(Some(guard));
    core.offer_role();
    true
}

impl Core {
    /// Asks a leader that is hidden to hand over to this context, which waits for it and can be seen.
    pub(crate) fn ask_for_role(&self) {
        if self.stored.role.is_waiting.get() && !(self.host.is_hidden)() {
            self.tell_others(RoleNotice::Wanted);
        }
    }

    /// Whoever can be seen, and waits, may have it: this context has just been hidden, perhaps.
    pub(crate) fn offer_role(&self) {
        if self.stored.role.is_held() && (self.host.is_hidden)() {
            self.tell_others(RoleNotice::Hidden);
        }
    }

    /// What another context has said of the role.
    pub(crate) fn hear_of_role(&self, notice: RoleNotice) {
        match notice {
            RoleNotice::Hidden => self.ask_for_role(),
            RoleNotice::Wanted if self.stored.role.is_held() && (self.host.is_hidden)() => {
                self.stored.role.let_go();
                self.stored.ring();
            }
            RoleNotice::Wanted => {}
        }
    }

    fn tell_others(&self, role: RoleNotice) {
        (self.host.wake)(&Notice { role: Some(role), ..Notice::default() });
    }
}
