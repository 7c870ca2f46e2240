//! Suspension: what is held while a page sleeps is in others' way, so a page that is put away or frozen lets go of everything.
//!
//! Open transactions are rolled back, groups and the connection are let go of, the poller ends. What has been asked for and is not committed waits:
//! for a storage transaction or a lock, at the [`Gate`] before the ports. A storage transaction that was in the middle of its reads is rolled back
//! and begun again. When the page comes back, everybody looks again, because hints were missed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, select};

use crate::broker::Broker;
use crate::core::{Core, Host};
use crate::error::{Error, Result};
use crate::group::{Guard, Locks, Sharing};
use crate::notice::Notice;
use crate::store::{Mode, Session, Store, StoreName, Tx, transact};
use crate::transaction::Loss;

/// Closed while the context sleeps: nobody gets to the ports.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: Cell<bool>,
    closings: Cell<u64>,
    /// Told when it is opened or closed.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
}

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// How often it was closed: what has failed meanwhile may have failed by that.
    pub(crate) fn closings(&self) -> u64 {
        self.closings.get()
    }

    /// Gives whether that changed anything.
    fn set(&self, closed: bool) -> bool {
        if self.is_closed.replace(closed) == closed {
            return false;
        }
        self.closings.set(self.closings.get() + u64::from(closed));
        self.waiting.take().into_iter().for_each(|waiter| _ = waiter.send(()));
        true
    }

    /// Resolves when it is opened or closed.
    fn changed(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiter| !waiter.is_canceled());
        waiting.push(sender);
        receiver
    }

    /// Opens it for good: who waits finds out what has become of the ports.
    pub(crate) fn unlock(&self) {
        self.set(false);
    }

    async fn opened(&self) {
        while self.is_closed() {
            // Whatever has become of it: it is looked at again.
            let _ = self.changed().await;
        }
    }
}

/// A port behind the gate.
struct Gated<T: ?Sized> {
    port: Rc<T>,
    gate: Rc<Gate>,
}

/// The same host behind a gate.
pub(crate) fn gated(host: Host, gate: &Rc<Gate>) -> Host {
    let sharing = match host.sharing {
        Sharing::Locks(port) => Sharing::Locks(Rc::new(Gated { port, gate: Rc::clone(gate) })),
        other => other,
    };
    Host { store: Rc::new(Gated { port: host.store, gate: Rc::clone(gate) }), sharing, ..host }
}

impl<T: ?Sized> fmt::Debug for Gated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Store for Gated<dyn Store> {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            loop {
                self.gate.opened().await;
                let session = self.port.begin(scope, mode).await;
                if !self.gate.is_closed() {
                    return session;
                }
                // Closed while it was begun, perhaps on a connection that was opened too late to be let go of.
                drop(session);
                self.port.let_go();
            }
        }
        .boxed_local()
    }

    fn let_go(&self) {
        self.port.let_go();
    }

    fn connections(&self) -> u64 {
        self.port.connections()
    }

    fn close(&self) {
        self.port.close();
    }
}

impl Locks for Gated<dyn Locks> {
    fn try_lock(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        let (port, gate, name) = (Rc::clone(&self.port), Rc::clone(&self.gate), name.to_owned());
        async move {
            loop {
                gate.opened().await;
                let guard = port.try_lock(&name).await;
                if !gate.is_closed() {
                    return guard;
                }
            }
        }
        .boxed_local()
    }

    fn lock(&self, name: &str) -> LocalBoxFuture<'static, Guard> {
        let (port, gate, name) = (Rc::clone(&self.port), Rc::clone(&self.gate), name.to_owned());
        async move {
            loop {
                gate.opened().await;
                // Who waits for a lock would get it while he sleeps.
                match select(port.lock(&name), gate.changed()).await {
                    Either::Left((guard, _)) if !gate.is_closed() => return guard,
                    _ => {}
                }
            }
        }
        .boxed_local()
    }

    fn steal(&self, name: &str) -> LocalBoxFuture<'static, Option<Guard>> {
        // Who sleeps takes nothing away.
        if self.gate.is_closed() { std::future::ready(None).boxed_local() } else { self.port.steal(name) }
    }

    fn held(&self) -> LocalBoxFuture<'static, Vec<(String, String)>> {
        self.port.held()
    }

    fn on_lost(&self, lost: Rc<dyn Fn(&str)>) {
        self.port.on_lost(lost);
    }
}

impl Core {
    /// Whether an error came of a suspension: nothing has happened then, and the same may be begun again. `closings`: how many there were before.
    pub(crate) fn was_suspended(&self, error: &Error, closings: u64) -> bool {
        error.is_rolled_back() && self.gate.closings() != closings
    }

    /// One storage transaction; another one when a suspension has cut it off.
    pub(crate) async fn transact<T>(
        &self,
        scope: &[StoreName],
        mode: Mode,
        work: impl AsyncFn(&Tx) -> Result<T>,
    ) -> Result<T> {
        loop {
            let closings = self.gate.closings();
            match transact(&*self.host.store, scope, mode, &work).await {
                Err(error) if self.was_suspended(&error, closings) => {}
                outcome => return outcome,
            }
        }
    }

    fn suspend(&self) {
        if !self.gate.set(true) {
            return;
        }
        self.lose(Loss::Suspended, |_| true);
        self.locks.sieges.clear();
        self.locks.let_go_of_all();
        self.host.store.let_go();
        self.poller.ring();
        self.stored.close();
        self.transmission.close();
    }

    fn restore(self: &Rc<Self>) {
        if !self.gate.set(false) {
            return;
        }
        self.locks.wake();
        self.bell.ring_all();
        // What is due may be another thing by now, or in another database.
        self.poll_by(self.host.clock.now());
        self.keep_polling();
        self.pump_eagerly();
        self.keep_polling_store();
        self.transmit_by();
        self.keep_transmitting();
        self.ask_for_roles();
        let queues = self.catalog().queues.keys().cloned().collect();
        let (conversations, delayed, transmission, archive) = (true, true, true, true);
        self.tell(&Notice { queues, conversations, delayed, transmission, archive, ..Notice::default() });
    }
}

impl Broker {
    /// The page is put away or frozen: rolls back the open transactions of all brokers over this connection, and lets go of the connection and of
    /// every lock. What is asked for from now on waits. Idempotent.
    pub fn suspend(&self) {
        self.core.suspend();
    }

    /// The page is back: what was asked for goes on, whoever waits looks again, and listeners hear that everything may have changed.
    pub fn restore(&self) {
        self.core.restore();
    }

    /// The page may have been in the background, where timers are late: what is due by now is done, if anything is.
    pub fn wake(&self) {
        // Not by what is known alone: a tab that died between its commit and its hint told nobody.
        self.core.poll_by(self.core.host.clock.now());
        self.core.poller.ring();
        self.core.pump_eagerly();
        self.core.transmit_by();
        self.core.ask_for_roles();
        self.core.offer_roles();
    }

    /// Whether [`Broker::suspend`] was called last.
    pub fn is_suspended(&self) -> bool {
        self.core.gate.is_closed()
    }
}
