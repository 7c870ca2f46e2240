//! Signs of life: what a transaction holds for long is shown to be held, so that others can tell a slow holder from a dead one (D26).

use std::rc::{Rc, Weak};

use futures_util::FutureExt;

use crate::core::Core;
use crate::transaction::Loss;

/// From one sign of life to the next, in milliseconds, and how long a group is held without any.
pub(crate) const BEAT: f64 = 30_000.0;

impl Core {
    /// A transaction may hold a group: sees to it that there are signs of life while one does.
    pub(crate) fn keep_beating(self: &Rc<Self>) {
        if self.leases.is_some() && self.locks.is_any_held() && !self.is_beating.replace(true) {
            (self.host.spawn)(beat(Rc::downgrade(self)).boxed_local());
        }
    }

    /// Another context has taken a group over.
    pub(crate) fn lost(&self, group: &str, number: Option<u64>) {
        let Some(robbed) = self.locks.lost(group, number) else { return };
        self.lose(Loss::Robbed, |transaction| transaction.is_number(robbed));
    }
}

/// Lives as long as any transaction holds a group. It does not keep the database open.
async fn beat(core: Weak<Core>) {
    loop {
        let Some(this) = core.upgrade() else { return };
        let Some(leases) = this.leases.clone().filter(|_| this.locks.is_any_held() && this.is_open()) else {
            this.is_beating.set(false);
            return;
        };
        let beat = this.host.pulse.timer.sleep(BEAT);
        drop(this);
        beat.await;

        let Some(this) = core.upgrade() else { return };
        let held = this.locks.held_since(leases.now() - BEAT);
        if held.is_empty() {
            continue;
        }
        // One that can't be written is missed; if others take it for the last one, the commit keeps them apart.
        let Ok(lost) = leases.renew(&held).await else { continue };
        for (holding, _) in held {
            if lost.contains(&holding) {
                this.lost(&holding.0, Some(holding.1));
            } else if !this.locks.leased(&holding) {
                leases.give_back(vec![holding], true);
            }
        }
    }
}
