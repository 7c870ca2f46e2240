//! The end of a run: everything that is left is done, and nothing is left over.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::FutureExt;

use super::{Run, Summary, open};
use crate::actor::Actor;
use crate::look::is_under_way;
use crate::model::Model;
use crate::origin::{Kind, Violation};

impl Run {
    /// All tabs go; one comes and does what is left: everything that can be received is received.
    pub(super) fn finish(mut self) -> Result<Summary, Violation> {
        self.calm_down()?;
        self.thaw(|_| true);
        self.close_tabs()?;
        self.origin.shelf.iter().for_each(|shelf| shelf.heal());
        if self.origin.has_jumps {
            self.origin.clock.set(600_000.0);
        }
        let tab = self.new_tab();
        let (origin, id, host) = (Rc::clone(&self.origin), tab.id, self.host_of(&tab));
        self.is_at_rest = self.origin.shelf.is_some();
        let is_done = Rc::new(Cell::new(false));
        let done = Rc::clone(&is_done);
        let knows_until = Rc::clone(&tab.knows_until);
        self.tabs.push(tab);
        let work = async move {
            let (broker, since) = open(&origin, id, host).await;
            knows_until.set(Some(since));
            let actor = Actor { origin, tab: id, broker: Rc::clone(&broker) };
            actor.do_the_rest().await;
            broker.close().await;
            done.set(true);
        };
        self.origin.tasks.spawn(id, work.boxed_local());
        while !is_done.get() {
            if !self.turn() {
                return Err(Violation { kind: Kind::Hangs, text: "what is left can't be done".into() });
            }
        }
        self.calm_down()?;
        self.check()?;
        if self.origin.shelf.as_ref().is_some_and(|shelf| !shelf.is_empty()) || is_under_way(&self.store) {
            return Err(Violation { kind: Kind::Lost, text: "the store keeps something for ever".into() });
        }
        let unread = |model: &Model| model.world.sides.values().any(|side| !side.unread().is_empty());
        if self.models.iter().any(|model| !model.delayed.is_empty()) {
            return Err(Violation { kind: Kind::Lost, text: "something is delayed for ever".into() });
        }
        if self.models.iter().any(unread) {
            return Err(Violation { kind: Kind::Lost, text: "something can't be received".into() });
        }
        Ok(Summary { turns: self.origin.readers.turn.get(), commits: self.origin.journal.len(), lives: self.lives })
    }

    /// Closes every broker: whatever its application is doing, `close` comes to an end, and lets go of everything.
    fn close_tabs(&mut self) -> Result<(), Violation> {
        for tab in &self.tabs {
            let Some(broker) = tab.broker.take() else { continue };
            // Its transactions are rolled back without being asked.
            self.origin.readers.crash(tab.id);
            self.origin.tasks.spawn(tab.id, async move { broker.close().await }.boxed_local());
        }
        self.calm_down()?;
        while !self.tabs.is_empty() {
            self.crash(0);
        }
        match self.origin.locks.held() {
            0 => Ok(()),
            held => Err(Violation { kind: Kind::Hangs, text: format!("{held} locks are held by nobody") }),
        }
    }
}
