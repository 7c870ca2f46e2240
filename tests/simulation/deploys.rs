//! Definitions that change while everybody works, in the model.

use pocket_broker::error::ErrorCode;

use crate::conformance::random::model::{BIN, End, Ending, OWN, Queue};
use crate::model::Model;

/// A queue as it is made.
pub(crate) const NEW: Queue = Queue { on: true, retention: false };

impl Model {
    pub(crate) fn is_there(&self, queue: usize) -> bool {
        queue != BIN || self.has_bin
    }

    /// ALTER SERVICE: it goes to another queue with all that it has.
    pub(crate) fn move_service(&mut self, service: usize, to: usize) -> Result<(), ErrorCode> {
        let from = self.world.queue_of(service).ok_or(ErrorCode::ServiceNotFound)?;
        if !self.is_there(to) {
            return Err(ErrorCode::QueueNotFound);
        }
        if from == to {
            return Ok(());
        }
        self.world.homes.insert(service, Some(to));
        self.world.sides.values_mut().filter(|side| side.home == service).for_each(|side| side.queue = to);
        if self.world.queues[to].on {
            self.world.come_in(|side| side.home == service);
        }
        Ok(())
    }

    /// DROP SERVICE: its conversations end with an error; what the far sides are still to hear is the queue's from then on.
    pub(crate) fn drop_service(&mut self, service: usize) -> Result<(), ErrorCode> {
        self.world.queue_of(service).ok_or(ErrorCode::ServiceNotFound)?;
        let ends: Vec<End> =
            self.world.sides.iter().filter(|(_, side)| side.home == service).map(|(end, _)| end.clone()).collect();
        for end in &ends {
            if self.world.sides.get(end).is_some_and(|side| side.state != "DO") {
                self.world.end(end, Ending::Dropped)?;
            }
            self.failures.remove(end);
            self.forget_delayed(end);
        }
        self.world.sides.values_mut().filter(|side| side.home == service).for_each(|side| side.home = OWN + side.queue);
        self.world.homes.insert(service, None);
        Ok(())
    }

    /// DROP QUEUE.
    pub(crate) fn drop_bin(&mut self) -> Result<(), ErrorCode> {
        if !self.has_bin {
            return Err(ErrorCode::QueueNotFound);
        }
        let is_home = self.world.homes.values().any(|queue| *queue == Some(BIN));
        if is_home || self.world.sides.values().any(|side| side.queue == BIN) {
            return Err(ErrorCode::InUse);
        }
        self.has_bin = false;
        self.seen.retain(|(queue, _), _| *queue != BIN);
        Ok(())
    }

    /// CREATE: the queue that comes and goes, and maybe a service.
    pub(crate) fn define(&mut self, service: Option<(usize, usize)>, now: f64) -> Result<(), ErrorCode> {
        if let Some((service, queue)) = service {
            if self.world.queue_of(service).is_some_and(|known| known != queue) {
                return Err(ErrorCode::DefinitionConflict);
            }
            self.world.homes.insert(service, Some(queue));
        }
        self.world.deliver_later(now);
        if !self.has_bin {
            self.has_bin = true;
            self.world.queues[BIN] = NEW;
        }
        Ok(())
    }
}
