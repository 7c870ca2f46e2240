//! Locks over all contexts of an origin: Web Locks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::AbortController;

use crate::body::Value;
use crate::group::{Guard, Locks};
use crate::map::Map;

#[wasm_bindgen]
extern "C" {
    /// A `LockManager`.
    #[derive(Clone, Debug)]
    type LockManager;

    #[wasm_bindgen(method, catch)]
    fn request(this: &LockManager, name: &str, options: &Object, callback: &JsValue) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn query(this: &LockManager) -> Result<Promise, JsValue>;
}

/// The Web Locks of one database. A tab that dies lets go of what it holds.
#[derive(Clone)]
pub(crate) struct WebLocks {
    manager: LockManager,
    prefix: Rc<str>,
    releasing: Releasing,
    on_lost: OnLost,
}

/// Is told of locks that were stolen from this context.
type OnLost = Rc<RefCell<Option<Rc<dyn Fn(&str)>>>>;

/// Locks that were let go of and that the browser still counts as held, by name, and who wants to have one again.
type Releasing = Rc<RefCell<Map<Rc<str>, Vec<oneshot::Sender<()>>>>>;

/// A Web Lock is held as long as a promise is pending.
struct Held {
    settle: Function,
    name: Rc<str>,
    releasing: Releasing,
    /// The browser counts it as held no more: another script has stolen it.
    is_over: Rc<Cell<bool>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.releasing.borrow_mut().insert(Rc::clone(&self.name), Vec::new());
        }
        // The function that settles a promise throws nothing.
        let _ = self.settle.call0(&JsValue::UNDEFINED);
    }
}

/// Takes a request back when nobody waits for it any more.
struct Waiting(Option<AbortController>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortController::abort);
    }
}

impl WebLocks {
    /// `None` where there are none: on plain http, or in an opaque origin.
    pub(crate) fn new(database: &str) -> Option<Self> {
        let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
        let manager = Reflect::get(&navigator, &"locks".into()).ok()?;
        let prefix = format!("pocket-broker:{database}:").into();
        let (releasing, on_lost) = (Releasing::default(), OnLost::default());
        manager.is_object().then(|| Self { manager: manager.unchecked_into(), prefix, releasing, on_lost })
    }

    /// Asks for a lock with an option. Gives nothing when it is not to be had.
    fn request(&self, name: &str, option: &str, value: &JsValue) -> oneshot::Receiver<Guard> {
        let (sender, receiver) = oneshot::channel();
        // A browser may refuse without a call back.
        let sender = Rc::new(Cell::new(Some(sender)));
        let answer = Rc::clone(&sender);
        let name: Rc<str> = name.into();
        let (held_name, releasing) = (Rc::clone(&name), Rc::clone(&self.releasing));
        let is_over = Rc::new(Cell::new(false));
        let held_is_over = Rc::clone(&is_over);
        let was_granted = Rc::new(Cell::new(false));
        let is_granted = Rc::clone(&was_granted);
        let granted = move |lock: JsValue| {
            if lock.is_null() {
                return JsValue::UNDEFINED;
            }
            is_granted.set(true);
            let mut held = None;
            let until = Promise::new(&mut |settle, _| {
                held = Some(Held {
                    settle,
                    name: Rc::clone(&held_name),
                    releasing: Rc::clone(&releasing),
                    is_over: Rc::clone(&held_is_over),
                });
            });
            if let Some(held) = held {
                // If nobody waits any more, it is let go of right here.
                let guard: Guard = Box::new(held);
                let _ = answer.take().map(|answer| answer.send(guard));
            }
            until.into()
        };
        let options = Object::new();
        // An ordinary object takes every field.
        let _ = Reflect::set(&options, &option.into(), value);
        let full = format!("{}{name}", self.prefix);
        if let Ok(request) = self.manager.request(&full, &options, &Closure::once_into_js(granted)) {
            let (releasing, on_lost) = (Rc::clone(&self.releasing), Rc::clone(&self.on_lost));
            spawn_local(async move {
                // A request that was taken back rejects; that is what was wanted. One that was granted resolves when the lock is free, and
                // rejects when it was stolen.
                let outcome = JsFuture::from(request).await;
                drop(sender.take());
                is_over.set(true);
                let waiting = releasing.borrow_mut().remove(&*name);
                waiting.into_iter().flatten().for_each(|waiter| _ = waiter.send(()));
                let on_lost = on_lost.borrow().clone();
                if let Some(on_lost) = on_lost.filter(|_| outcome.is_err() && was_granted.get()) {
                    on_lost(&name);
                }
            });
        }
        receiver
    }
}

/// Names that begin with a prefix, without it, and whose they are, in what `query` gives.
fn names(snapshot: &JsValue, prefix: &str) -> Vec<(String, String)> {
    let held = Value(snapshot.clone()).field("held").items();
    let own = |lock: &Value| {
        let name = lock.field("name").text()?.strip_prefix(prefix)?.to_owned();
        Some((name, lock.field("clientId").text().unwrap_or_default()))
    };
    held.iter().filter_map(own).collect()
}

impl WebLocks {
    /// Resolves when a lock that is being released is free; `None`: it is not being released.
    fn released(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        self.releasing.borrow_mut().get_mut(name).map(|waiting| {
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            receiver
        })
    }
}

impl Locks for WebLocks {
    fn try_lock(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        let (locks, name) = (self.clone(), name.to_owned());
        async move {
            // One that this context has just let go of would look held.
            while let Some(released) = locks.released(&name) {
                let _ = released.await;
            }
            locks.request(&name, "ifAvailable", &JsValue::TRUE).await.ok()
        }
        .boxed_local()
    }

    fn lock(&self, name: &str) -> LocalBoxFuture<'static, Guard> {
        let controller = AbortController::new().ok();
        let signal = controller.as_ref().map_or(JsValue::UNDEFINED, |controller| controller.signal().into());
        let granted = self.request(name, "signal", &signal);
        let waiting = Waiting(controller);
        async move {
            let guard = granted.await;
            drop(waiting);
            match guard {
                Ok(guard) => guard,
                // The browser refuses: whoever waits looks again by itself.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed_local()
    }

    fn steal(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        self.request(name, "steal", &JsValue::TRUE).map(std::result::Result::ok).boxed_local()
    }

    fn on_lost(&self, lost: Rc<dyn Fn(&str)>) {
        self.on_lost.replace(Some(lost));
    }

    fn held(&self) -> LocalBoxFuture<'static, Vec<(String, String)>> {
        let (snapshot, prefix) = (self.manager.query(), self.prefix.clone());
        // A browser that does not tell: then nobody is said to hold anything.
        async move {
            match snapshot {
                Ok(snapshot) => {
                    JsFuture::from(snapshot).await.map_or_else(|_| Vec::new(), |held| names(&held, &prefix))
                }
                Err(_) => Vec::new(),
            }
        }
        .boxed_local()
    }
}
