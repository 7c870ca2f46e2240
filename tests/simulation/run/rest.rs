//! A delayed message store of the application's own comes to rest, and what it has done is told.

use std::rc::Rc;

use pocket_broker::clock::Clock;

use super::Run;
use crate::journal::Event;
use crate::look::is_under_way;
use crate::model::Names;
use crate::origin::{Kind, Violation};
use crate::time::START;

/// What a delayed message store has kept others from is done so many milliseconds after it is well again: a call that it does not answer ends after 60 s, and
/// what has failed is tried again within 60 s.
const RECOVERY: f64 = 200_000.0;

impl Run {
    /// The delayed message store is well again, and everybody is awake: what it keeps others from is done soon.
    pub(super) fn rest(&mut self) -> Result<(), Violation> {
        let Some(shelf) = self.origin.shelf.clone() else { return Ok(()) };
        shelf.heal();
        self.origin.tell(|| "── rest".into());
        while let Some(number) = self.tabs.iter().position(|tab| tab.is_doomed) {
            self.crash(number);
            self.open_tab();
        }
        self.thaw(|_| true);
        self.is_at_rest = true;
        let since = self.origin.time.now();
        loop {
            self.origin.violation.take().map_or(Ok(()), Err)?;
            self.tabs.iter().for_each(|tab| tab.faults.release());
            let is_idle = self.origin.tasks.ready(self.may_run()).is_empty() && self.origin.mail.borrow().is_empty();
            if is_idle && self.origin.journal.is_quiet() {
                let due = shelf.due(self.origin.clock.now());
                let is_under_way = is_under_way(&self.store);
                if due.is_empty() && !is_under_way {
                    break;
                }
                if self.origin.time.now() - since > RECOVERY {
                    let text = format!("these should have come: {due:?}; something is on its way: {is_under_way}");
                    return Err(Violation { kind: Kind::Late, text });
                }
            }
            if !self.turn() {
                return Err(Violation { kind: Kind::Hangs, text: "nobody does what is left".into() });
            }
        }
        let passed = self.origin.time.now() - since;
        self.origin.tell(|| format!("── rest after {passed}"));
        self.is_at_rest = false;
        self.calm_down()
    }

    /// What became of delayed messages.
    pub(super) fn tell_of(&self, events: &[Event], names: &Names) {
        for (number, event) in events.iter().enumerate() {
            let bodies = |id: &Rc<str>| names.ids.get(id).cloned().unwrap_or_default();
            let gone: Vec<_> = event.dispatches.iter().map(|(id, _)| bodies(id)).collect();
            let withdrawn: Vec<_> = event.withdraws.iter().map(bodies).collect();
            if !gone.is_empty() || !withdrawn.is_empty() || event.delivers > 0 {
                self.origin.tell(|| {
                    let Event { tab, now, wrote, delivers, told, .. } = event;
                    let now = now - START;
                    format!("event {number} of tab {tab} at {now}: {gone:?} come, {withdrawn:?} do not, {delivers}, {wrote} {told:?}")
                });
            }
        }
    }
}
