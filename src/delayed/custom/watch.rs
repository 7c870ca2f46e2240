//! The tasks of a store of the application's own: who leads does the chores, each as often as it is wanted.

use std::rc::{Rc, Weak};

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{join, join3, select};

use super::poller::Chore;
use crate::clock::Instant;
use crate::core::Core;
use crate::role::lead;

/// The shortest sleep, and the longest, in milliseconds.
const SHORTEST: f64 = 10.0;
const LONGEST: f64 = 60_000.0;

/// Lives as long as a broker is open. It does not keep the database open.
pub(super) async fn run(core: Weak<Core>) {
    loop {
        let Some(this) = core.upgrade() else { return };
        if !this.is_open() {
            this.stored.is_running.set(false);
            return;
        }
        if !this.stored.role.is_held() {
            let (bell, rung) = oneshot::channel();
            this.stored.bell.replace(Some(bell));
            lead(this, |core| Some(Rc::clone(&core.stored.role)), rung).await;
            continue;
        }
        drop(this);
        let chores =
            join3(run_chore(&core, Chore::Pump), run_chore(&core, Chore::Clean), run_chore(&core, Chore::Fetch));
        join(chores, watch_breakers(&core)).await;
    }
}

/// A chore, as long as this context leads.
async fn run_chore(core: &Weak<Core>, chore: Chore) {
    loop {
        let Some(this) = core.upgrade().filter(|this| this.is_open() && this.stored.role.is_held()) else { return };
        let state = this.stored.state(chore);
        let (bell, rung) = oneshot::channel();
        state.bell.replace(Some(bell));
        let round = this.do_chore(chore, state.is_eager.take()).await;
        if !this.is_open() || !this.stored.role.is_held() || state.is_wanted.get() {
            // A failure that can't pause because the broker is closed ends with it.
            continue;
        }
        let wait = round.again.map_or(LONGEST, |at| (at - this.host.clock.now()).clamp(SHORTEST, LONGEST));
        let sleep = this.host.timer.sleep(wait);
        drop(this);
        // Either way it looks.
        select(sleep, rung).await;
    }
}

/// Triggers the breakers whose time is over, also if nothing is tried any more.
async fn watch_breakers(core: &Weak<Core>) {
    loop {
        let Some(this) = core.upgrade().filter(|this| this.is_open() && this.stored.role.is_held()) else { return };
        let (bell, rung) = oneshot::channel();
        this.stored.bell.replace(Some(bell));
        let sleep = match trip(&this) {
            Some(at) => this.host.timer.sleep((at - this.host.clock.now()).clamp(SHORTEST, LONGEST)),
            None => std::future::pending().boxed_local(),
        };
        drop(this);
        select(sleep, rung).await;
    }
}

/// Tells what has failed for long enough, also if nothing was tried since. Gives when the next of the breakers would trigger.
fn trip(core: &Rc<Core>) -> Option<Instant> {
    let (now, settings, poller) = (core.host.clock.now(), &core.host.delayed, &core.stored);
    let breakers = [
        ("store", &poller.store, settings.store_breaker),
        ("fetch", &poller.fetch, settings.fetch_breaker),
        ("dispatch", &poller.dispatch, settings.dispatch_breaker),
    ];
    let mut next: Option<Instant> = None;
    for (source, breaker, length) in breakers {
        if let Some(error) = breaker.expire(now, length) {
            core.warn(source, (&error).into());
        }
        let at = breaker.triggers_at(length);
        next = [next, at].into_iter().flatten().reduce(f64::min);
    }
    next
}
