//! One connection per database and context, however many brokers are opened over it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_channel::oneshot;
use js_sys::Function;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use super::notice;
use super::page::Page;
use super::settings::{Given, Settings};
use crate::DelayedMessageStore;
use crate::broker::Broker;
use crate::clock::Pulse;
use crate::core::Host;
use crate::error::{Error, Result};
use crate::group::Sharing;
use crate::map::Map;
use crate::store::{CloseReason, Durability, IndexedDbOptions, IndexedDbStore, MemoryStore, Store};
use crate::web::clock::WebClock;
use crate::web::ids::WebIds;
use crate::web::lifecycle::Lifecycle;
use crate::web::locks::WebLocks;
use crate::web::timer::WebTimer;
use crate::web::wake::Wake;

/// Called with what a commit touched, and with why the broker was closed.
#[derive(Clone, Debug)]
pub(super) struct Callbacks {
    pub(super) on_notice: Function,
    pub(super) on_close: Function,
}

/// A connection, and the brokers over it.
#[derive(Debug)]
pub(super) struct Connection {
    name: String,
    durability: String,
    given: Given,
    pub(super) host: Host,
    root: Broker,
    members: RefCell<Vec<Weak<Member>>>,
    open: Cell<u32>,
    can_store_blobs: Cell<Option<bool>>,
    /// The package keeps here what its brokers over the connection were given: validators, by message type.
    pub(super) validators: js_sys::Map,
    /// Taken away when the connection is closed, and while the page sleeps.
    wake: Rc<RefCell<Option<Wake>>>,
    lifecycle: RefCell<Option<Lifecycle>>,
}

/// One broker over a connection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) broker: Broker,
    pub(super) connection: Rc<Connection>,
    callbacks: Callbacks,
    is_closed: Cell<bool>,
}

enum Entry {
    /// Somebody opens it; the others wait.
    Opening(Vec<oneshot::Sender<()>>),
    Open(Rc<Connection>),
}

thread_local! {
    static CONNECTIONS: RefCell<Map<String, Entry>> = const { RefCell::new(Map::new()) };
}

fn with<T>(work: impl FnOnce(&mut Map<String, Entry>) -> T) -> T {
    CONNECTIONS.with_borrow_mut(work)
}

/// Opens a broker over the connection of this name, and the connection if there is none.
pub(super) async fn join(name: &str, settings: &Settings, given: Given, callbacks: Callbacks) -> Result<Rc<Member>> {
    if settings.storage == "memory" {
        let connection = Rc::new(Connection::open(name, settings, given).await?);
        return connection.join(settings, callbacks).await;
    }
    loop {
        let waiting = with(|connections| match connections.get_mut(name) {
            Some(Entry::Open(connection)) => Some(Ok(Rc::clone(connection))),
            Some(Entry::Opening(waiting)) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Some(Err(receiver))
            }
            None => {
                connections.insert(name.to_owned(), Entry::Opening(Vec::new()));
                None
            }
        });
        match waiting {
            Some(Ok(connection)) => {
                connection.check_same(settings, &given)?;
                return connection.join(settings, callbacks).await;
            }
            // However it ended for the other one: look again.
            Some(Err(receiver)) => _ = receiver.await,
            None => {
                // From now on, because the page may be put away while it is opened.
                let page = Rc::new(Page::default());
                let lifecycle = page.listen();
                let connection = Connection::open(name, settings, given.clone()).await.map(Rc::new);
                let connection = connection.inspect(|connection| connection.follow(&page, lifecycle));
                let opened = connection.as_ref().ok().map(|connection| Entry::Open(Rc::clone(connection)));
                let before = with(|connections| match opened {
                    Some(entry) => connections.insert(name.to_owned(), entry),
                    None => connections.remove(name),
                });
                if let Some(Entry::Opening(waiting)) = before {
                    waiting.into_iter().for_each(|waiter| _ = waiter.send(()));
                }
                return connection?.join(settings, callbacks).await;
            }
        }
    }
}

/// Closes every broker of this context over a database.
pub(super) fn close_all(name: &str, reason: &str) {
    let connection = with(|connections| match connections.get(name) {
        Some(Entry::Open(connection)) => Some(Rc::clone(connection)),
        _ => None,
    });
    if let Some(connection) = connection {
        connection.close_from_outside(reason);
    }
}

impl Connection {
    async fn open(name: &str, settings: &Settings, given: Given) -> Result<Self> {
        let store: Rc<dyn Store> = if settings.storage == "memory" {
            Rc::new(MemoryStore::new())
        } else {
            let durability = if settings.durability == "relaxed" { Durability::Relaxed } else { Durability::Strict };
            let database = name.to_owned();
            let on_close = Rc::new(move |reason| close_all(&database, why(reason)));
            Rc::new(IndexedDbStore::open(name, IndexedDbOptions { durability, on_close: Some(on_close) }).await?)
        };
        let is_shared = settings.storage != "memory";
        let database = name.to_owned();
        let wake = Rc::new(RefCell::new(is_shared.then(|| listening(name))));
        let notified = Rc::clone(&wake);
        let mut delayed_store: Option<Rc<dyn DelayedMessageStore>> = None;
        if let Some(store) = &given.store {
            delayed_store = Some(Rc::new(store.clone()));
        }
        let host = Host {
            name: name.into(),
            store,
            clock: Rc::new(WebClock { now: given.clock.now.clone() }),
            timer: Rc::new(WebTimer { clock: given.clock.sleep.clone() }),
            ids: Rc::new(WebIds::new()?),
            sharing: match WebLocks::new(name) {
                _ if !is_shared => Sharing::Alone,
                Some(locks) => Sharing::Locks(Rc::new(locks)),
                None => Sharing::Leases,
            },
            pulse: Pulse { clock: Rc::new(WebClock { now: None }), timer: Rc::new(WebTimer { clock: None }) },
            delayed: settings.delayed.settings(),
            delayed_store,
            is_hidden: Rc::new(crate::web::lifecycle::is_hidden),
            spawn: Rc::new(spawn_local),
            wake: Rc::new(move |notice| {
                match &*notified.borrow() {
                    Some(wake) => wake.notify(notice),
                    // A commit that has come to its end while the page falls asleep: it is told, and nothing is left open.
                    None if is_shared => Wake::new(&database, notice::notice, drop).notify(notice),
                    None => {}
                }
            }),
        };
        let root = match Broker::open(host.clone()).await {
            Ok(root) => root,
            Err(error) => {
                host.store.close();
                return Err(error);
            }
        };
        let database = name.to_owned();
        root.on_lost(Rc::new(move |was_deleted| {
            close_all(&database, if was_deleted { why(CloseReason::Deleted) } else { "storage-lost" });
        }));
        Ok(Self {
            name: name.to_owned(),
            durability: settings.durability.clone(),
            given,
            host,
            root,
            members: RefCell::default(),
            open: Cell::new(0),
            can_store_blobs: Cell::new(None),
            validators: js_sys::Map::new(),
            wake,
            lifecycle: RefCell::default(),
        })
    }

    fn check_same(&self, settings: &Settings, given: &Given) -> Result<()> {
        let differs = if self.durability != settings.durability {
            Some("durability")
        } else if self.given.clock != given.clock {
            Some("clock")
        } else if self.given.store != given.store {
            Some("delayedDelivery.store")
        } else if self.host.delayed != settings.delayed.settings() {
            Some("delayedDelivery")
        } else {
            None
        };
        match differs {
            Some(option) => Err(Error::invalid_argument(
                option,
                "differs from that of a broker that is open on the same database here: all of them share one connection. Close it first, or give the same",
            )),
            None => Ok(()),
        }
    }

    async fn join(self: Rc<Self>, settings: &Settings, callbacks: Callbacks) -> Result<Rc<Member>> {
        self.open.set(self.open.get() + 1);
        let broker = self.root.another().with_lock_timeout(settings.lock_timeout);
        let on_notice = callbacks.on_notice.clone();
        broker.listen(Rc::new(move |notice| tell(&on_notice, &notice::notice(notice))));
        let member = Rc::new(Member { broker, connection: Rc::clone(&self), callbacks, is_closed: Cell::new(false) });
        let mut members = self.members.borrow_mut();
        members.retain(|member| member.strong_count() > 0);
        members.push(Rc::downgrade(&member));
        drop(members);
        Ok(member)
    }

    /// Whether bodies may hold Blobs. Asked once.
    pub(super) async fn can_store_blobs(&self) -> bool {
        if let Some(known) = self.can_store_blobs.get() {
            return known;
        }
        let known = crate::web::blobs::can_store(&*self.root.core.host.store).await;
        self.can_store_blobs.set(Some(known));
        known
    }

    /// Lets go of everything while the page sleeps.
    fn follow(self: &Rc<Self>, page: &Page, lifecycle: Option<Lifecycle>) {
        page.lead(self);
        self.lifecycle.replace(lifecycle);
        if page.is_away() {
            self.suspend();
        }
    }

    pub(super) fn suspend(&self) {
        if self.root.is_suspended() {
            return;
        }
        self.root.suspend();
        self.wake.take();
    }

    /// What is due by now is done, if anything is.
    pub(super) fn wake_up(&self) {
        self.root.wake();
    }

    pub(super) fn restore(&self) {
        if self.root.is_suspended() {
            self.wake.replace(Some(listening(&self.name)));
            self.root.restore();
        }
    }

    /// The database is deleted, or upgraded by a newer build: the connection is gone.
    fn close_from_outside(self: &Rc<Self>, reason: &str) {
        self.forget();
        self.disconnect();
        for member in self.living() {
            if !member.is_closed.replace(true) {
                let broker = Rc::clone(&member);
                spawn_local(async move { broker.broker.close().await });
                tell(&member.callbacks.on_close, &JsValue::from_str(reason));
            }
        }
    }

    /// Lets go of the database and of the channel.
    fn disconnect(&self) {
        self.root.abandon();
        self.host.store.close();
        self.wake.take();
        self.lifecycle.take();
    }

    fn living(&self) -> Vec<Rc<Member>> {
        self.members.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Nobody opens a broker over it any more.
    fn forget(self: &Rc<Self>) {
        with(|connections| {
            let is_current =
                matches!(connections.get(&self.name), Some(Entry::Open(current)) if Rc::ptr_eq(current, self));
            if is_current {
                connections.remove(&self.name);
            }
        });
    }
}

impl Member {
    /// Closes the broker, and the connection with the last one.
    pub(super) async fn close(&self) {
        if self.is_closed.replace(true) {
            self.broker.close().await;
            return;
        }
        let connection = &self.connection;
        connection.open.set(connection.open.get().saturating_sub(1));
        let is_last = connection.open.get() == 0;
        if is_last {
            connection.forget();
        }
        self.broker.close().await;
        if is_last {
            connection.disconnect();
        }
        tell(&self.callbacks.on_close, &JsValue::from_str("closed"));
    }
}

/// As the package names it.
fn why(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Deleted => "deleted",
        CloseReason::UpgradedElsewhere => "upgraded-elsewhere",
    }
}

/// The hints of the other contexts.
fn listening(name: &str) -> Wake {
    let database = name.to_owned();
    Wake::new(name, notice::notice, move |message| hear(&database, &message))
}

/// A hint from another context.
fn hear(name: &str, message: &JsValue) {
    let connection = with(|connections| match connections.get(name) {
        Some(Entry::Open(connection)) => Some(Rc::clone(connection)),
        _ => None,
    });
    if notice::is_release(message) {
        connection.iter().for_each(|connection| connection.root.released_elsewhere());
        return;
    }
    if let Some(role) = notice::role(message) {
        connection.iter().for_each(|connection| connection.root.hear_of_role(&role));
        return;
    }
    let queues = notice::touched(message);
    connection.iter().for_each(|connection| connection.root.hear(&queues));
    if let (Some(connection), Some(at)) = (&connection, notice::due(message)) {
        connection.root.due_elsewhere(at);
    }
    connection.iter().filter(|_| notice::is_hop(message)).for_each(|connection| connection.root.hop_elsewhere());
    let outgoing = connection.iter().filter(|_| notice::is_outgoing(message));
    outgoing.for_each(|connection| connection.root.transmission_elsewhere());
    for member in connection.iter().flat_map(|connection| connection.living()).filter(|member| !member.is_closed.get())
    {
        tell(&member.callbacks.on_notice, message);
    }
}

/// Calls into the package, which throws nothing.
fn tell(callback: &Function, message: &JsValue) {
    let _ = callback.call1(&JsValue::UNDEFINED, message);
}
