//! The poller of a store of the application's own: pumps, fetches what is due, dispatches it, has it removed, and sleeps until the next is due.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, join3, select};
use uuid::Uuid;

use super::calls::{Calls, ask};
use super::clean::clean;
use super::due::fetch_all;
use super::pump::{Waiting, pump};
use super::watch::run;
use super::{DelayedMessage, DelayedMessageStore};
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::{CircuitBreaker, FailureRate};
use crate::error::{Error, ErrorCode};
use crate::map::Map;
use crate::role::Role;

/// The shortest sleep, and the longest, in milliseconds.
const SHORTEST: f64 = 10.0;
const LONGEST: f64 = 60_000.0;
/// For so many milliseconds of real time whoever asks for a poll waits for what is not delivering.
const PATIENCE: f64 = 5_000.0;
/// The first wait after a failure.
const FIRST: f64 = 1_000.0;

/// What the leader does, each beside the others: what one of them waits for does not hold up the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// Giving the store what lies in the hop.
    Pump,
    /// Having it remove what is not to be there any more.
    Clean,
    /// Dispatching what is due.
    Fetch,
}

/// How a chore stands.
#[derive(Default)]
pub(super) struct State {
    /// Something has come, or the page is back, since it last looked.
    pub(super) is_wanted: Cell<bool>,
    /// Whether what has failed is not waited for.
    pub(super) is_eager: Cell<bool>,
    pub(super) bell: RefCell<Option<oneshot::Sender<()>>>,
    /// Who waits for the round that runs; `None`: none runs.
    turns: RefCell<Option<Vec<oneshot::Sender<()>>>>,
    /// Until then it pauses after a failure.
    paused_until: Cell<Instant>,
    /// How often it has failed in a row.
    failures: Cell<u64>,
}

impl State {
    fn want(&self, eager: bool) {
        self.is_wanted.set(true);
        self.is_eager.set(self.is_eager.get() || eager);
    }

    fn ring(&self) {
        self.bell.take().into_iter().for_each(|bell| _ = bell.send(()));
    }
}

/// What the poller knows, and how to wake it.
#[derive(Default)]
pub(crate) struct StorePoller {
    pub(super) calls: Calls,
    pub(crate) role: Rc<Role>,
    /// Giving messages to the store, fetching what is due, dispatching it.
    pub(crate) store: CircuitBreaker,
    pub(crate) fetch: CircuitBreaker,
    pub(crate) dispatch: CircuitBreaker,
    pub(super) rate: FailureRate,
    /// How often messages that can't be dispatched were tried here, whatever the store counts.
    pub(super) attempts: RefCell<Map<Uuid, u64>>,
    /// What was dispatched here in a mode that remembers nothing, and could not be removed: it does not come again and again.
    pub(super) lingering: RefCell<Vec<Uuid>>,
    /// What is no message and has no id to be known by, as it was told last.
    pub(super) strange: RefCell<Option<Rc<str>>>,
    /// Behind which row of the hop the pump goes on, and what waits before that.
    pub(super) resume: RefCell<Option<(u64, Vec<Waiting>)>>,
    /// What was fetched and had been moved: held until the pump has been there.
    pub(super) moved: RefCell<Vec<DelayedMessage>>,
    /// What this context has dispatched and is about to have removed.
    pub(super) in_hand: RefCell<Vec<Uuid>>,
    pub(super) is_running: Cell<bool>,
    /// Of who waits to lead, or for a breaker to trigger.
    pub(super) bell: RefCell<Option<oneshot::Sender<()>>>,
    pump: State,
    clean: State,
    fetching: State,
    /// How often in a row nothing could be had although something was due: others hold it.
    passed: Cell<u64>,
}

impl fmt::Debug for StorePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorePoller").field("is_running", &self.is_running).finish_non_exhaustive()
    }
}

impl StorePoller {
    pub(super) fn state(&self, chore: Chore) -> &State {
        match chore {
            Chore::Pump => &self.pump,
            Chore::Clean => &self.clean,
            Chore::Fetch => &self.fetching,
        }
    }

    /// Wakes it, whatever it waits for.
    pub(crate) fn ring(&self) {
        self.bell.take().into_iter().for_each(|bell| _ = bell.send(()));
        Chore::ALL.into_iter().for_each(|chore| self.state(chore).ring());
    }

    /// The store has something new: when the next is due is to be asked again.
    pub(super) fn fetch_again(&self) {
        let state = self.state(Chore::Fetch);
        state.want(false);
        state.ring();
    }

    /// Calls may be made from now on.
    pub(crate) fn open(&self) {
        self.calls.open();
    }

    /// Resolves when what a close waits for has come to its end, or when that takes too long.
    pub(crate) async fn ended(&self, core: &Core) {
        self.calls.ended(core).await;
    }

    /// The broker is closed, or the page sleeps: another context is to lead, and nothing that the store has begun for this one is to be in its way.
    pub(crate) fn close(&self) {
        self.role.let_go();
        self.calls.close();
        self.ring();
    }
}

impl Chore {
    const ALL: [Self; 3] = [Self::Pump, Self::Clean, Self::Fetch];

    /// The longest pause after a failure.
    fn longest_pause(self) -> f64 {
        if self == Self::Clean { LONGEST } else { 10_000.0 }
    }
}

/// The earlier of two times.
pub(super) fn again_at(again: &mut Option<Instant>, at: Instant) {
    *again = Some(again.map_or(at, |again| again.min(at)));
}

/// What a round has done.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) moved: u64,
    /// When something is to be done again.
    pub(crate) again: Option<Instant>,
    pub(crate) problem: Option<Error>,
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
    // Whoever watches the breakers has something to wait for.
    core.stored.bell.take().into_iter().for_each(|bell| _ = bell.send(()));
    if failing.is_to_be_told && core.is_open() {
        core.warn(source, error.into());
    }
    failing.pause
}

impl Core {
    /// Something lies in the hop, or is to be removed: committed here, or, as a hint says, elsewhere.
    pub(crate) fn pump_by(self: &Rc<Self>) {
        self.want_chores(false);
    }

    /// The page is back, or is seen by somebody: what has failed is tried at once, and whoever can be seen leads.
    pub(crate) fn pump_eagerly(self: &Rc<Self>) {
        self.want_chores(true);
    }

    fn want_chores(&self, eager: bool) {
        if self.host.delayed_store.is_none() {
            return;
        }
        for chore in Chore::ALL {
            let state = self.stored.state(chore);
            state.want(eager);
            // Who waits to lead keeps its place in the line.
            if self.stored.role.is_held() {
                state.ring();
            }
        }
    }

    /// Sees to it that there is a poller, if there is a store of the application's own.
    pub(crate) fn keep_polling_store(self: &Rc<Self>) {
        if self.is_open() && self.host.delayed_store.is_some() {
            self.stored.open();
            if !self.stored.is_running.replace(true) {
                (self.host.spawn)(run(Rc::downgrade(self)).boxed_local());
            }
        }
    }

    /// One round of each chore, after those that run. `eager`: what has failed is not waited for. A store that hangs over what it is given is not waited
    /// for until it has taken too long: that goes on by itself.
    pub(crate) async fn poll_store(self: &Rc<Self>, eager: bool) -> Round {
        if self.host.delayed_store.is_none() {
            return Round::default();
        }
        let (pumped, cleaned, fetched) = join3(
            self.do_beside(Chore::Pump, eager),
            self.do_beside(Chore::Clean, eager),
            self.do_chore(Chore::Fetch, eager),
        )
        .await;
        // What was pumped is perhaps due.
        let more = if pumped.moved > 0 { self.do_chore(Chore::Fetch, eager).await } else { Round::default() };
        let problem = pumped.problem.or(cleaned.problem).or(fetched.problem).or(more.problem);
        Round { moved: fetched.moved + more.moved, again: more.again, problem }
    }

    /// A round that goes on when nobody waits for it any more.
    async fn do_beside(self: &Rc<Self>, chore: Chore, eager: bool) -> Round {
        let (sender, round) = oneshot::channel();
        let core = Rc::clone(self);
        (self.host.spawn)(async move { _ = sender.send(core.do_chore(chore, eager).await) }.boxed_local());
        match select(round, self.host.pulse.timer.sleep(PATIENCE)).await {
            Either::Left((Ok(round), _)) => round,
            _ => Round::default(),
        }
    }

    /// One round of a chore, after the one that runs, if one does.
    pub(super) async fn do_chore(self: &Rc<Self>, chore: Chore, eager: bool) -> Round {
        let Some(store) = self.host.delayed_store.clone() else { return Round::default() };
        let state = self.stored.state(chore);
        loop {
            let running = state.turns.borrow_mut().as_mut().map(|waiting| {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                receiver
            });
            let Some(running) = running else { break };
            // However it ended: this one looks for itself.
            let _ = running.await;
        }
        state.turns.replace(Some(Vec::new()));
        let turn = Turn(state);
        state.is_wanted.set(false);
        let now = self.host.clock.now();
        let until = state.paused_until.get();
        let mut round = Round::default();
        // A pause further ahead than it can be: the clock was set back.
        if !eager && until > now && until <= now + chore.longest_pause() {
            round.again = Some(until);
            return round;
        }
        let pause = match chore {
            Chore::Pump => match pump(self, &store, eager, &mut round.moved).await {
                Ok(again) => {
                    round.again = again;
                    None
                }
                Err(pause) => {
                    round.problem = pause.error;
                    Some(pause.wait)
                }
            },
            Chore::Clean => match clean(self, &store).await {
                Ok(again) => {
                    round.again = again;
                    None
                }
                Err(error) => {
                    let wait = back_off(self, state.failures.get());
                    round.problem = Some(error);
                    Some(wait)
                }
            },
            Chore::Fetch => self.fetch_due(&store, &mut round).await,
        };
        let is_closed = round.problem.as_ref().is_some_and(|problem| problem.code() == ErrorCode::Closed);
        round.problem = round.problem.filter(|_| !is_closed);
        match pause.filter(|_| !is_closed) {
            Some(pause) => {
                let until = self.host.clock.now() + pause;
                state.paused_until.set(until);
                state.failures.set(state.failures.get() + 1);
                again_at(&mut round.again, until);
            }
            None => {
                state.paused_until.set(0.0);
                state.failures.set(0);
            }
        }
        drop(turn);
        round
    }

    /// Dispatches what is due, and finds out what is next. Gives the pause after a failure.
    async fn fetch_due(self: &Rc<Self>, store: &Rc<dyn DelayedMessageStore>, round: &mut Round) -> Option<f64> {
        let failed = |round: &mut Round, error: Error| {
            let is_closed = error.code() == ErrorCode::Closed;
            let wait =
                (!is_closed).then(|| pause(self, &self.stored.fetch, self.host.delayed.fetch_breaker, "fetch", &error));
            round.problem = round.problem.take().or(Some(error));
            wait
        };
        match fetch_all(self, store, round).await {
            Ok(None) => {}
            Ok(pause) => return pause,
            Err(error) => return failed(round, error),
        }
        match ask(self, "next", store.next()).await {
            Ok(next) => {
                self.stored.fetch.success();
                next.into_iter().for_each(|next| again_at(&mut round.again, look_again(self, next)));
                None
            }
            Err(error) => failed(round, error),
        }
    }
}

/// The round that runs; whoever waits for it is told of its end.
struct Turn<'a>(&'a State);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.0.turns.take();
        waiting.into_iter().flatten().for_each(|waiter| _ = waiter.send(()));
    }
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
