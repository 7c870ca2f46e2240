//! Routes: where messages for far services go, in this context. None of it is stored: a route is given again after a reload, and rows wait until then.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;

use super::Transport;
use super::pick::Services;
use crate::ids::SideId;
use crate::role::Role;

/// The name of a route for every service that has none of its own.
pub(crate) const ANY: &str = "*";

/// A route, and how it stands.
pub(crate) struct Route {
    /// No two of a context have the same.
    pub(crate) number: u64,
    /// The far service, or [`ANY`].
    pub(crate) name: Rc<str>,
    pub(crate) transport: Rc<dyn Transport>,
    /// At most so many messages are handed over at once.
    pub(crate) batch: u64,
    pub(super) role: Rc<Role>,
    pub(super) is_removed: Cell<bool>,
    pub(super) is_running: Cell<bool>,
    /// Something has come since it last looked.
    pub(super) is_wanted: Cell<bool>,
    /// Who hears it: the transmitter, and whoever hands over in its place.
    bells: RefCell<Vec<oneshot::Sender<()>>>,
    /// Of the calls that are under way: told when nobody waits for their answers any more.
    closing: RefCell<Vec<oneshot::Sender<()>>>,
    /// Who waits until there is nothing to do.
    idle: RefCell<Vec<oneshot::Sender<()>>>,
    /// How many messages have left by it, or were accepted.
    pub(super) sent: Cell<u64>,
    /// The service looked at last.
    pub(super) after: RefCell<Option<Rc<str>>>,
    /// Conversations that can't be read, and can't be mended.
    pub(super) unreadable: RefCell<Vec<SideId>>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

impl Route {
    pub(crate) fn new(number: u64, name: Rc<str>, transport: Rc<dyn Transport>, batch: u64) -> Self {
        Self {
            number,
            role: Rc::new(Role::new(&format!("route:{name}"))),
            name,
            transport,
            batch,
            is_removed: Cell::new(false),
            is_running: Cell::new(false),
            is_wanted: Cell::new(false),
            bells: RefCell::default(),
            closing: RefCell::default(),
            idle: RefCell::default(),
            sent: Cell::new(0),
            after: RefCell::default(),
            unreadable: RefCell::default(),
        }
    }

    /// Wakes it, whatever it waits for.
    pub(super) fn ring(&self) {
        self.is_wanted.set(true);
        self.bells.take().into_iter().for_each(|bell| _ = bell.send(()));
    }

    /// Resolves when it is woken.
    pub(super) fn rung(&self) -> oneshot::Receiver<()> {
        let (bell, rung) = oneshot::channel();
        let mut bells = self.bells.borrow_mut();
        bells.retain(|bell| !bell.is_canceled());
        bells.push(bell);
        rung
    }

    /// Something is to be transmitted. Who waits for the role keeps its place in the line.
    pub(super) fn want(&self) {
        self.is_wanted.set(true);
        if !self.role.is_waiting() {
            self.ring();
        }
    }

    /// Nobody waits for the answers of the calls that are under way.
    pub(super) fn close_calls(&self) {
        self.closing.take().into_iter().for_each(|call| _ = call.send(()));
    }

    /// Resolves when nobody waits for the answer of a call any more.
    pub(super) fn closed(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut closing = self.closing.borrow_mut();
        closing.retain(|call| !call.is_canceled());
        closing.push(sender);
        receiver
    }

    /// How many messages have left by it, or were accepted.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Whether this context transmits by it.
    pub(crate) fn transmits(&self) -> bool {
        self.role.is_held()
    }

    /// Looks now. Resolves when there is nothing to do.
    pub(crate) fn wake(&self) -> oneshot::Receiver<()> {
        let idle = self.idle();
        self.want();
        idle
    }

    /// Resolves when there is nothing to do.
    fn idle(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.idle.borrow_mut().push(sender);
        receiver
    }

    pub(super) fn tell_idle(&self) {
        self.idle.take().into_iter().for_each(|waiter| _ = waiter.send(()));
    }
}

/// The routes of a context.
#[derive(Debug, Default)]
pub(crate) struct Transmission {
    routes: RefCell<Vec<Rc<Route>>>,
}

impl Transmission {
    pub(crate) fn add(&self, route: &Rc<Route>) {
        self.routes.borrow_mut().push(Rc::clone(route));
        // Another one may not be for this service any more.
        self.ring();
    }

    pub(crate) fn remove(&self, number: u64) {
        let removed = self.routes.borrow().iter().position(|route| route.number == number);
        let Some(route) = removed.map(|index| self.routes.borrow_mut().remove(index)) else { return };
        route.is_removed.set(true);
        route.role.let_go();
        route.close_calls();
        route.ring();
        // "*" may be for its service from now on.
        self.ring();
    }

    pub(crate) fn routes(&self) -> Vec<Rc<Route>> {
        self.routes.borrow().clone()
    }

    pub(crate) fn roles(&self) -> Vec<Rc<Role>> {
        self.routes.borrow().iter().map(|route| Rc::clone(&route.role)).collect()
    }

    /// Whether there is a route of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.routes.borrow().iter().any(|route| *route.name == *name)
    }

    /// Whether there is a route to a service.
    pub(crate) fn leads_to(&self, service: &str) -> bool {
        self.routes.borrow().iter().any(|route| *route.name == *service || *route.name == *ANY)
    }

    /// The services that a route is for: names win.
    pub(crate) fn services(&self, route: &Route) -> Services {
        if *route.name != *ANY {
            return Services::One(Rc::clone(&route.name));
        }
        let routes = self.routes.borrow();
        let named = routes.iter().map(|route| &route.name).filter(|name| ***name != *ANY);
        Services::AllBut(named.cloned().collect())
    }

    /// Wakes all.
    pub(crate) fn ring(&self) {
        self.routes().iter().for_each(|route| route.ring());
    }

    /// Something is to be transmitted.
    pub(crate) fn want(&self) {
        self.routes().iter().for_each(|route| route.want());
    }

    /// The page sleeps, or the last broker is closed: another context is to transmit, and no answer is waited for.
    pub(crate) fn close(&self) {
        for route in self.routes() {
            route.role.let_go();
            route.close_calls();
            route.ring();
        }
    }
}
