//! Conversation groups: the lock unit. A transaction that received from a group, or changed one of its conversations, holds it to its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::map::Map;

use futures_channel::oneshot;

/// Who holds which group, among the transactions of this context.
///
/// Other contexts are kept out by the fence: a commit checks that nobody else has received meanwhile.
#[derive(Debug, Default)]
pub(crate) struct GroupLocks {
    holders: RefCell<Map<Rc<str>, u64>>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    /// How often somebody has let go.
    releases: Cell<u64>,
}

impl GroupLocks {
    /// Takes the group for `holder`; false when another holds it.
    pub(crate) fn try_lock(&self, group: &Rc<str>, holder: u64) -> bool {
        let mut holders = self.holders.borrow_mut();
        match holders.get(&**group) {
            Some(other) => *other == holder,
            None => holders.insert(Rc::clone(group), holder).is_none(),
        }
    }

    /// Whether nobody but `holder` holds the group.
    pub(crate) fn is_free(&self, group: &str, holder: u64) -> bool {
        self.holders.borrow().get(group).is_none_or(|other| *other == holder)
    }

    /// Whether anybody holds the group.
    pub(crate) fn is_locked(&self, group: &str) -> bool {
        self.holders.borrow().contains_key(group)
    }

    /// Lets go of everything that `holder` holds, and wakes those who wait.
    pub(crate) fn release(&self, holder: u64) {
        self.holders.borrow_mut().retain(|_, other| *other != holder);
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
        self.waiting.borrow_mut().push(sender);
        receiver
    }
}
