//! The locks of an origin that lives in memory: what Web Locks are to tabs.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::{Guard, Locks};

/// Who waits for each lock that is held.
type Held = BTreeMap<String, VecDeque<oneshot::Sender<HeldLock>>>;

/// The locks that all tabs of a test share.
#[derive(Clone, Debug, Default)]
pub(crate) struct OriginLocks(Rc<RefCell<Held>>);

/// A lock. Dropping it gives it to the next who waits.
#[derive(Debug)]
struct HeldLock {
    name: String,
    locks: OriginLocks,
}

impl OriginLocks {
    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.0.borrow().len()
    }

    fn take(&self, name: &str) -> Option<HeldLock> {
        let mut held = self.0.borrow_mut();
        if held.contains_key(name) {
            return None;
        }
        held.insert(name.to_owned(), VecDeque::new());
        Some(HeldLock { name: name.to_owned(), locks: self.clone() })
    }

    fn pass_on(&self, name: &str) {
        loop {
            let next = self.0.borrow_mut().get_mut(name).and_then(VecDeque::pop_front);
            match next {
                None => {
                    self.0.borrow_mut().remove(name);
                    return;
                }
                Some(next) => {
                    let lock = HeldLock { name: name.to_owned(), locks: self.clone() };
                    match next.send(lock) {
                        Ok(()) => return,
                        // Nobody waits any more. It is still held, by this one, and goes to the next.
                        Err(lock) => std::mem::forget(lock),
                    }
                }
            }
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.locks.pass_on(&self.name);
    }
}

impl Locks for OriginLocks {
    fn held(&self) -> LocalBoxFuture<'static, Vec<String>> {
        std::future::ready(self.0.borrow().keys().cloned().collect()).boxed_local()
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
        self.0.borrow_mut().entry(name.to_owned()).or_default().push_back(sender);
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
