//! Who does a thing for all contexts of the origin: the one that holds a lock. An economy, and no matter of correctness: storage decides what happens.
//!
//! Whoever can do it waits in line for the lock. The browser gives it to the next when the holder is gone. A holder that is hidden, where timers are
//! late, hands over to a context that can be seen and asks for it. Where there are no locks everybody does it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use futures_channel::oneshot;
use futures_util::future::{Either, select};

use crate::core::Core;
use crate::group::{Guard, Sharing};
use crate::notice::{Notice, RoleKind, RoleNotice};

/// Whether this context has a role.
pub(crate) struct Role {
    pub(crate) name: Rc<str>,
    guard: RefCell<Option<Guard>>,
    is_waiting: Cell<bool>,
    /// Another context is to have it once what is under way is done.
    is_leaving: Cell<bool>,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("name", &self.name).field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}

impl Default for Role {
    /// The one that polls a store of the application's own.
    fn default() -> Self {
        Self::new("poller")
    }
}

impl Role {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            guard: RefCell::default(),
            is_waiting: Cell::new(false),
            is_leaving: Cell::new(false),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guard.borrow().is_some()
    }

    /// Whether it is held, and something more may be begun by it.
    pub(crate) fn leads(&self) -> bool {
        self.is_held() && !self.is_leaving.get()
    }

    /// Nothing more is to be begun by it: whoever does something by it lets go when that is done.
    fn leave(&self) {
        self.is_leaving.set(self.is_held());
    }

    /// Whether it waits in line.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.get()
    }

    /// Lets go of it.
    pub(crate) fn let_go(&self) {
        self.is_leaving.set(false);
        drop(self.guard.take());
    }

    /// The name of its lock. No group is called that.
    fn lock(&self) -> String {
        format!("role:{}", self.name)
    }
}

/// Waits until this context has the role, or is to look for something else. Gives whether it has it. `get`: the role of a database that is open.
pub(crate) async fn lead(core: Rc<Core>, get: impl Fn(&Core) -> Option<Rc<Role>>, rung: oneshot::Receiver<()>) -> bool {
    let Some(role) = get(&core) else { return false };
    let lock = match &core.host.sharing {
        Sharing::Locks(locks) => locks.lock(&role.lock()),
        _ => {
            role.guard.replace(Some(Box::new(())));
            return true;
        }
    };
    let weak: Weak<Core> = Rc::downgrade(&core);
    role.is_waiting.set(true);
    core.ask_for(&role);
    drop(core);
    let granted = select(lock, rung).await;
    role.is_waiting.set(false);
    let Some(core) = weak.upgrade() else { return false };
    let Either::Left((guard, _)) = granted else { return false };
    if !core.is_open() || get(&core).is_none() {
        return false;
    }
    role.guard.replace(Some(guard));
    core.offer(&role);
    true
}

impl Core {
    /// The roles that this context can have.
    fn roles(&self) -> Vec<Rc<Role>> {
        self.host.delayed_store.iter().map(|_| Rc::clone(&self.stored.role)).chain(self.transmission.roles()).collect()
    }

    /// Asks holders that are hidden to hand over to this context, which waits and can be seen.
    pub(crate) fn ask_for_roles(&self) {
        self.roles().iter().for_each(|role| self.ask_for(role));
    }

    fn ask_for(&self, role: &Role) {
        if role.is_waiting.get() && !(self.host.is_hidden)() {
            self.tell_others(role, RoleKind::Wanted);
        }
    }

    /// Whoever can be seen, and waits, may have what this context holds: it has just been hidden, perhaps.
    pub(crate) fn offer_roles(&self) {
        self.roles().iter().for_each(|role| self.offer(role));
    }

    fn offer(&self, role: &Role) {
        if role.is_held() && (self.host.is_hidden)() {
            self.tell_others(role, RoleKind::Hidden);
        }
    }

    /// What another context has said of a role.
    pub(crate) fn hear_of_role(self: &Rc<Self>, notice: &RoleNotice) {
        for role in self.roles().iter().filter(|role| role.name == notice.role) {
            match notice.kind {
                RoleKind::Hidden => self.ask_for(role),
                RoleKind::Wanted if role.is_held() && (self.host.is_hidden)() => {
                    // Of one conversation two calls are never under way: a transmitter waits for the answers that it will get.
                    if Rc::ptr_eq(role, &self.stored.role) {
                        role.let_go()
                    } else {
                        role.leave()
                    }
                    self.stored.ring();
                    self.transmission.ring();
                }
                RoleKind::Wanted => {}
            }
        }
    }

    fn tell_others(&self, role: &Role, kind: RoleKind) {
        let role = Some(RoleNotice { role: Rc::clone(&role.name), kind });
        (self.host.wake)(&Notice { role, ..Notice::default() });
    }
}
