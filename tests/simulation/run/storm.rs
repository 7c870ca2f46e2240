//! What happens to tabs that they have not asked for: they die, freeze, are robbed, come back, and their storage fails.

use pocket_broker::clock::Clock;
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation};

use super::{Run, Tab};
use crate::origin::Kind;
use crate::sabotage::Sabotage;
use crate::waiting::Stored;

impl Run {
    /// A tab dies where it stands.
    pub(super) fn crash(&mut self, number: usize) {
        let tab = self.tabs.remove(number);
        self.origin.tell(|| format!("tab {} dies", tab.id));
        self.origin.history.crash(tab.id, self.origin.journal.len());
        self.origin.readers.crash(tab.id);
        self.origin.tasks.crash(tab.id);
        drop(tab.broker.take());
        self.origin.locks.of_tab(tab.id).rob();
    }

    pub(super) fn thaw(&mut self, which: impl Fn(&Tab) -> bool) {
        for tab in self.tabs.iter_mut().filter(|tab| (tab.is_frozen || tab.is_away) && which(tab)) {
            self.origin.tell(|| format!("tab {} comes back", tab.id));
            tab.is_frozen = false;
            if std::mem::take(&mut tab.is_away) {
                let knows = tab.knows_until.take().map(|_| self.origin.time.now());
                tab.knows_until.set(knows);
                tab.broker.borrow().iter().for_each(|broker| broker.restore());
            }
            self.origin.note_robberies();
            self.origin.locks.of_tab(tab.id).hear();
        }
        let now = self.origin.time.now();
        self.origin.time.advance_to(now, self.may_run());
    }

    /// Time passes, as nobody has anything to do. Nothing that is due waits longer than a poller sleeps, if somebody is there who knows of it. Where the
    /// storage fails, nobody can say how long that takes.
    pub(super) fn pass_time(&self, to: f64) {
        let from = self.origin.time.now();
        self.origin.time.advance_to(to, self.may_run());
        if self.has_faults || self.origin.has_jumps {
            return;
        }
        let is_here = |tab: &Tab| !tab.is_frozen && !tab.is_away;
        let knows = |tab: &Tab, stored: &Stored| {
            tab.knows_until.get().is_some_and(|until| stored.by == tab.id || until >= stored.since)
        };
        let is_known = |stored: &Stored| self.tabs.iter().any(|tab| is_here(tab) && knows(tab, stored));
        if let Some(late) = self.origin.journal.waiting.pass(from, to, is_known) {
            self.origin.report(Kind::Late, format!("somebody knows of it, and does nothing: {late:?}"));
        }
    }

    /// Something is in the way: an answer that is held back, a frozen tab, one that waits for ever.
    pub(super) fn unblock(&mut self) -> bool {
        let is_held = self.tabs.iter().any(|tab| tab.faults.held() > 0);
        self.tabs.iter().for_each(|tab| tab.faults.release());
        if is_held {
            return true;
        }
        if let Some(number) = self.tabs.iter().position(|tab| tab.is_doomed) {
            self.crash(number);
            self.open_tab();
            return true;
        }
        let is_frozen = self.tabs.iter().any(|tab| tab.is_frozen || tab.is_away);
        self.thaw(|_| true);
        is_frozen
    }

    /// What else happens in the world.
    pub(super) fn disturb(&mut self) {
        let number = self.origin.below(self.tabs.len());
        if self.origin.shelf.is_some() {
            self.look_away(number);
        }
        match self.origin.below(1_000) {
            0..=5 => {
                self.crash(number);
                self.open_tab();
            }
            6..=11 if self.origin.one_in(3) => self.put_away(number),
            6..=11 => {
                let tab = &mut self.tabs[number];
                tab.is_frozen = true;
                self.origin.tell(|| format!("tab {} freezes", tab.id));
                if self.origin.one_in(2) {
                    self.origin.tell(|| "and is robbed".into());
                    self.origin.readers.outlaw(tab.id);
                    self.origin.locks.of_tab(tab.id).rob();
                }
            }
            12..=27 => {
                let id = self.tabs[number].id;
                self.thaw(|tab| tab.id == id);
            }
            28..=57 if self.has_faults => self.break_something(number),
            58..=100 => self.tabs[number].faults.release(),
            _ => {}
        }
    }

    /// A tab is hidden, or can be seen again; somebody sets the clock.
    fn look_away(&self, number: usize) {
        let (tab, origin) = (&self.tabs[number], &self.origin);
        match origin.below(120) {
            0 => {
                tab.is_hidden.set(!tab.is_hidden.get());
                origin.tell(|| format!("tab {} is hidden: {}", tab.id, tab.is_hidden.get()));
                if !tab.is_hidden.get() && !tab.is_frozen && !tab.is_away {
                    tab.broker.borrow().iter().for_each(|broker| broker.wake());
                }
            }
            // Not in the midst of a commit, which has its time from the beginning.
            1..=2 if origin.has_jumps && origin.journal.is_quiet() => {
                let ahead = [0.0, 2_500.0, 65_000.0, 600_000.0, -900.0, -70_000.0, -600_000.0][origin.below(7)];
                origin.tell(|| format!("the clock is set: {ahead}"));
                origin.clock.set(ahead);
            }
            _ => {}
        }
    }

    /// A tab lets go of everything. What it does then is done before it freezes, or is left for when it comes back.
    fn put_away(&mut self, number: usize) {
        let tab = &mut self.tabs[number];
        let Some(broker) = tab.broker.borrow().clone() else { return };
        self.origin.tell(|| format!("tab {} is put away", tab.id));
        if self.origin.breaks(Sabotage::Walk) {
            return self.origin.locks.of_tab(tab.id).slip();
        }
        broker.suspend();
        self.origin.readers.sleep(tab.id);
        (tab.is_away, tab.is_frozen) = (true, self.origin.one_in(2));
    }

    fn break_something(&mut self, number: usize) {
        let origin = &self.origin;
        let quota = || Error::new(ErrorCode::QuotaExceeded, "No space.");
        let failed = || Error::new(ErrorCode::StorageUnavailable, "It failed.");
        let read = [Operation::Get, Operation::GetRange, Operation::GetKeys][origin.below(3)];
        let (operation, fault) = match origin.below(10) {
            0 => (Operation::Begin, Fault::Fail(failed())),
            1 => (Operation::Begin, Fault::Delay),
            2 => (read, Fault::Fail(failed())),
            3 => (read, Fault::Delay),
            4 => (read, Fault::LoseAnswer),
            5 => (Operation::Write, Fault::Abort(quota())),
            6 => (Operation::Commit, Fault::Abort(quota())),
            7 => (Operation::Commit, Fault::Delay),
            8 => (Operation::Commit, Fault::LoseAnswer),
            _ => (Operation::Commit, Fault::Lose),
        };
        let tab = &mut self.tabs[number];
        tab.is_doomed |= matches!(fault, Fault::Lose);
        origin.tell(|| format!("tab {}: {operation:?} will meet {fault:?}", tab.id));
        tab.faults.plan(operation, 1 + origin.below(4) as u32, fault);
    }
}
