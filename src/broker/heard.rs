//! What a broker is told from outside: by other contexts, and by whoever holds its connection.

use std::rc::Rc;

use super::Broker;
use crate::notice::RoleNotice;
use crate::recoverability::Thrown;

impl Broker {
    /// Another context has committed something that touches these queues.
    pub fn hear(&self, queues: &[Rc<str>]) {
        self.core.bell.ring(queues);
    }

    /// Another context has given a group back.
    pub fn released_elsewhere(&self) {
        self.core.locks.wake();
        self.core.bell.ring_all();
    }

    /// Lets whoever waits look whether it is still wanted.
    pub fn nudge(&self) {
        self.core.bell.ring_all();
    }

    /// The connection is gone, or nobody needs it any more: whatever is asked of any broker over it is refused from now on.
    pub fn abandon(&self) {
        self.core.closed.set(true);
        self.core.gate.unlock();
        self.core.locks.sieges.clear();
        self.core.poller.ring();
        self.core.stored.close();
        self.core.transmission.close();
    }

    /// Another context has committed something that is due at a time.
    pub fn due_elsewhere(&self, at: f64) {
        self.core.poll_by(at);
    }

    /// Another context has committed something for a store of the application's own.
    pub fn hop_elsewhere(&self) {
        self.core.pump_by();
    }

    /// Another context has committed something that is to be transmitted.
    pub fn transmission_elsewhere(&self) {
        self.core.transmit_by();
    }

    /// What another context says about who does a thing for all.
    pub fn hear_of_role(&self, notice: &RoleNotice) {
        self.core.hear_of_role(notice);
    }

    /// Something goes wrong that is no message's fault: whoever is open hears of it.
    pub fn warn(&self, source: &str, error: Thrown) {
        self.core.warn(source, error);
    }

    /// Calls `lost` when the database is gone: with `true` if it may have been deleted while the page slept, with `false` if the browser has thrown
    /// it away.
    pub fn on_lost(&self, lost: Rc<dyn Fn(bool)>) {
        self.core.on_lost(lost);
    }
}
