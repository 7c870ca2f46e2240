//! The poller of a store of the application's own: pumps, fetches what is due, dispatches it, has it removed, and sleeps until the next is due.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use uuid::Uuid;

use super::calls::{Calls, ask};
use super::change::{Recall, Settle, Withdraw, Withdrawn};
use super::dispatch::{Arrive, Arrived};
use super::due::fetch_all;
use super::hop::{NotStored, Stored};
use super::memory::Removed;
use super::pump::{clean, pump};
use super::role::{Role, lead};
use super::{DelayedMessageStore, hop};
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::{CircuitBreaker, FailureRate};
use crate::error::{Error, ErrorCode, Result};
use crate::map::Map;
use crate::stop::Outcome;
use crate::store::{Mode, StoreName};
use crate::verbs::{Answer, Verb};
use crate::work::{Purpose, Work};

/// The shortest sleep, and the longest, in milliseconds.
const SHORTEST: f64 = 10.0;
const LONGEST: f64 = 60_000.0;
/// The first wait after a failure.
const FIRST: f64 = 1_000.0;

/// What the poller knows, and how to wake it.
#[derive(Default)]
pub(crate) struct StorePoller {
    pub(super) calls: Calls,
    pub(super) role: Role,
    /// Giving messages to the store, fetching what is due, dispatching it.
    pub(crate) store: CircuitBreaker,
    pub(crate) fetch: CircuitBreaker,
    pub(crate) dispatch: CircuitBreaker,
    pub(super) rate: FailureRate,
    /// How often messages that can't be dispatched were tried here, whatever the store counts.
    pub(super) attempts: RefCell<Map<Uuid, u64>>,
    /// What was dispatched here in a mode that remembers nothing, and could not be removed: it does not come again and again.
    pub(super) lingering: RefCell<Vec<Uuid>>,
    is_running: Cell<bool>,
    /// Something has come into the hop, or the page is back, since it last looked.
    is_wanted: Cell<bool>,
    /// Whether what has failed is not waited for.
    is_eager: Cell<bool>,
    bell: RefCell<Option<oneshot::Sender<()>>>,
    /// Who waits for the round that runs.
    turns: RefCell<Option<Vec<oneshot::Sender<()>>>>,
    /// Not before: the pump, the removing, the fetching.
    paused: Cell<[Instant; 3]>,
    /// How often removing has failed in a row.
    cleaned: Cell<u64>,
    /// How often in a row nothing could be had although something was due: others hold it.
    passed: Cell<u64>,
}

impl fmt::Debug for StorePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePoller").field("is_running", &self.is_running).finish_non_exhaustive()
    }
}

/// What is done in the broker's database for a store of the application's own.
#[derive(Debug)]
pub(crate) enum Step {
    Stored(Stored),
    NotStored(NotStored),
    Removed(Removed),
    Arrive(Arrive),
    Withdraw(Withdraw),
    Settle(Settle),
    Recall(Recall),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came {
    Nothing,
    Arrived(Arrived),
    Withdrawn(Withdrawn),
    Was(bool),
}

impl Step {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Came> {
        match self {
            Self::Stored(stored) => stored.run(work).map(|()| Came::Nothing),
            Self::NotStored(failed) => failed.run(work).map(|()| Came::Nothing),
            Self::Removed(removed) => removed.run(work).map(|()| Came::Nothing),
            Self::Arrive(arrive) => arrive.run(work).map(Came::Arrived),
            Self::Withdraw(withdraw) => withdraw.run(work).map(Came::Withdrawn),
            Self::Settle(settle) => settle.run(work).map(Came::Was),
            Self::Recall(recall) => recall.run(work).map(Came::Was),
        }
    }
}

impl StorePoller {
    /// Wakes it.
    pub(crate) fn ring(&self) {
        self.bell.take().into_iter().for_each(|bell| _ = bell.send(()));
    }

    /// The page sleeps: another context is to lead.
    pub(crate) fn let_go(&self) {
        self.role.let_go();
        self.ring();
    }

    /// Resolves when what a close waits for has come to its end, or when that takes too long.
    pub(crate) async fn ended(&self, core: &Core) {
        self.calls.ended(core).await;
    }

    /// The broker is closed.
    pub(crate) fn close(&self) {
        self.role.let_go();
        self.calls.close();
        self.ring();
    }
}

/// What a round has done.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) moved: u64,
    /// When something is to be done again.
    pub(crate) again: Option<Instant>,
    pub(crate) problem: Option<Error>,
}

impl Round {
    fn again_at(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }
}

/// The wait after so many failures of one message: 1 s, doubling to 60 s, and not the same for all.
pub(super) fn back_off(core: &Core, failures: u64) -> f64 {
    let doubled = crate::record::float(1 << failures.min(6));
    let chance = core.host.ids.uuid().as_bytes().last().copied().map_or(0.0, f64::from) / 256.0;
    (FIRST * doubled).min(LONGEST) * (1.0 - chance / 4.0)
}

/// A failure: tells it, if it is time to, and gives the pause before it is tried again.
pub(super) fn pause(core: &Rc<Core>, breaker: &CircuitBreaker, length: f64, source: &str, error: &Error) -> f64 {
    let failing = breaker.failure(core.host.clock.now(), length);
    breaker.keep(error.clone());
    if failing.is_to_be_told && core.is_open() {
        core.warn(source, error.into());
    }
    failing.pause
}

impl Core {
    /// One step, in a storage transaction that it may share.
    pub(super) async fn step(self: &Rc<Self>, step: Step) -> Result<Came> {
        let verb = Rc::new(Verb::Custom(step));
        let mut mended = None;
        loop {
            match self.commit(Rc::clone(&verb), Purpose::Commit, 0, None, None).await.map_err(Error::from) {
                Err(error) if self.mend(&error, &mut mended).await.unwrap_or(false) => {}
                Ok(Answer::Custom(came)) => return Ok(came),
                Ok(_) => return Err(crate::call::unexpected()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Something lies in the hop, or is to be removed: committed here, or, as a hint says, elsewhere.
    pub(crate) fn pump_by(self: &Rc<Self>) {
        if self.host.delayed_store.is_some() {
            self.stored.is_wanted.set(true);
            // Who waits to lead keeps its place in the line.
            if self.stored.role.is_held() {
                self.stored.ring();
            }
        }
    }

    /// The page is back: what has failed is tried at once, and whoever can be seen leads.
    pub(crate) fn pump_eagerly(self: &Rc<Self>) {
        self.stored.is_eager.set(true);
        self.pump_by();
        self.ask_for_role();
    }

    /// Sees to it that there is a poller, if there is a store of the application's own.
    pub(crate) fn keep_polling_store(self: &Rc<Self>) {
        if self.is_open() && self.host.delayed_store.is_some() && !self.stored.is_running.replace(true) {
            (self.host.spawn)(run(Rc::downgrade(self)).boxed_local());
        }
    }

    /// One round, after the one that runs, if one does. `eager`: what has failed is not waited for.
    pub(crate) async fn poll_store(self: &Rc<Self>, eager: bool) -> Round {
        let Some(store) = self.host.delayed_store.clone() else { return Round::default() };
        loop {
            let running = self.stored.turns.borrow_mut().as_mut().map(|waiting| {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                receiver
            });
            let Some(running) = running else { break };
            // However it ended: this one looks for itself.
            let _ = running.await;
        }
        self.stored.turns.replace(Some(Vec::new()));
        let turn = Turn(&self.stored);
        let round = round(self, &store, eager).await;
        drop(turn);
        round
    }
}

/// The round that runs; whoever waits for it is told of its end.
struct Turn<'a>(&'a StorePoller);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.0.turns.take();
        waiting.into_iter().flatten().for_each(|waiter| _ = waiter.send(()));
    }
}

async fn round(core: &Rc<Core>, store: &Rc<dyn DelayedMessageStore>, eager: bool) -> Round {
    let mut round = Round::default();
    let (poller, now) = (&core.stored, core.host.clock.now());
    poller.is_wanted.set(false);
    let [mut pumping, mut cleaning, mut fetching] = poller.paused.get();
    // A pause further ahead than it can be: the clock was set back.
    let is_over = |at: Instant| eager || at <= now || at > now + LONGEST;
    if is_over(pumping) {
        pumping = 0.0;
        match pump(core, store, eager).await {
            Ok(again) => again.into_iter().for_each(|at| round.again_at(at)),
            Err(pause) => {
                pumping = core.host.clock.now() + pause.wait;
                round.problem = pause.error;
            }
        }
    }
    if is_over(cleaning) {
        cleaning = 0.0;
        match clean(core, store).await {
            Ok(again) => {
                poller.cleaned.set(0);
                again.into_iter().for_each(|at| round.again_at(at));
            }
            Err(error) => {
                cleaning = core.host.clock.now() + back_off(core, poller.cleaned.get());
                poller.cleaned.set(poller.cleaned.get() + 1);
                round.problem = round.problem.or(Some(error));
            }
        }
    }
    if is_over(fetching) {
        fetching = 0.0;
        match fetch_all(core, store, &mut round).await {
            Ok(pause) => pause.into_iter().for_each(|pause| fetching = core.host.clock.now() + pause),
            Err(error) => {
                let wait = pause(core, &poller.fetch, core.host.delayed.fetch_breaker, "fetch", &error);
                fetching = core.host.clock.now() + wait;
                round.problem = round.problem.or(Some(error));
            }
        }
    }
    poller.paused.set([pumping, cleaning, fetching]);
    [pumping, cleaning, fetching].into_iter().filter(|at| *at > 0.0).for_each(|at| round.again_at(at));
    if fetching <= 0.0 && core.is_open() {
        match ask(core, "next", store.next()).await {
            Ok(next) => {
                poller.fetch.success();
                next.into_iter().for_each(|next| round.again_at(look_again(core, next)));
            }
            Err(error) if error.code() == ErrorCode::Closed => {}
            Err(error) => {
                let wait = pause(core, &poller.fetch, core.host.delayed.fetch_breaker, "fetch", &error);
                poller.paused.set([pumping, cleaning, core.host.clock.now() + wait]);
                round.again_at(core.host.clock.now() + wait);
                round.problem = round.problem.take().or(Some(error));
            }
        }
    }
    if round.problem.as_ref().is_some_and(|problem| problem.code() == ErrorCode::Closed) {
        round.problem = None;
    }
    round
}

/// What is due and could not be had is held by another instance: it is looked at less and less often.
fn look_again(core: &Core, next: Instant) -> Instant {
    let now = core.host.clock.now();
    if next > now {
        core.stored.passed.set(0);
        return next;
    }
    let passed = core.stored.passed.get();
    core.stored.passed.set(passed + 1);
    now + (SHORTEST * crate::record::float(1 << passed.min(7))).min(FIRST)
}

/// Whether something lies in the hop.
pub(crate) async fn has_hop(core: &Core) -> Result<bool> {
    let range = hop::rows();
    let keys = core.transact(&[StoreName::Delayed], Mode::ReadOnly, async |tx| {
        tx.get_keys(StoreName::Delayed, &range, Some(1)).await
    });
    Ok(!keys.await?.is_empty())
}

/// Lives as long as a broker is open. It does not keep the database open.
async fn run(core: Weak<Core>) {
    loop {
        let Some(this) = core.upgrade() else { return };
        if !this.is_open() {
            this.stored.is_running.set(false);
            return;
        }
        let (bell, rung) = oneshot::channel();
        this.stored.bell.replace(Some(bell));
        if !this.stored.role.is_held() {
            lead(this, rung).await;
            continue;
        }
        let round = this.poll_store(this.stored.is_eager.take()).await;
        let breakers = trip(&this);
        if !this.is_open() || !this.stored.role.is_held() || this.stored.is_wanted.get() {
            continue;
        }
        let now = this.host.clock.now();
        let again = [round.again, breakers].into_iter().flatten().reduce(f64::min);
        let wait = again.map_or(LONGEST, |at| (at - now).clamp(SHORTEST, LONGEST));
        let sleep = this.host.timer.sleep(wait);
        drop(this);
        // Either way it looks.
        match select(sleep, rung).await {
            Either::Left(_) | Either::Right(_) => {}
        }
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
