//! The page that a connection lives in.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::registry::Connection;
use crate::web::lifecycle::Lifecycle;

/// The page, as the events have told.
#[derive(Debug, Default)]
pub(super) struct Page {
    is_away: Cell<bool>,
    /// Once it is open.
    connection: RefCell<Weak<Connection>>,
}

impl Page {
    /// Hears what happens to it, as long as the answer lives.
    pub(super) fn listen(self: &Rc<Self>) -> Option<Lifecycle> {
        let (sleeping, back, awake) = (Rc::clone(self), Rc::clone(self), Rc::clone(self));
        Lifecycle::new(move || sleeping.set(true), move || back.set(false), move || awake.wake())
    }

    /// Whether it was put away, or frozen.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.get()
    }

    /// Tells a connection from now on.
    pub(super) fn lead(&self, connection: &Rc<Connection>) {
        self.connection.replace(Rc::downgrade(connection));
    }

    fn wake(&self) {
        let connection = self.connection.borrow().upgrade();
        connection.into_iter().for_each(|connection| connection.wake_up());
    }

    fn set(&self, is_away: bool) {
        self.is_away.set(is_away);
        let connection = self.connection.borrow().upgrade();
        connection.iter().for_each(|connection| if is_away { connection.suspend() } else { connection.restore() });
    }
}
