//! The poller: sleeps until the earliest due row is due, then does what is due.
//!
//! Every context with an open broker has one; which of them does a thing is decided by the storage transaction that deletes its row. A poller
//! knows one number, the earliest time: read when the database is opened, made earlier by what commits tell, read anew by each poll, and once a
//! minute, since nobody need have told: a tab may be gone between its commit and that.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select};

use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::{CircuitBreaker, all_messages};
use crate::error::{Error, ErrorCode, Result};
use crate::lease::BLUR;
use crate::store::{Bound, Key, Mode, Range, StoreName, Tx, transact};
use crate::verbs::{Answer, Poll, Polled, Verb, Which};
use crate::waits;
use crate::work::Purpose;

/// The shortest sleep: whatever is due by then is done together.
const SHORTEST: f64 = 10.0;
/// The longest, in milliseconds: a clock that was set is noticed by then, and what nobody told of.
const LONGEST: f64 = 60_000.0;
/// Without anything to wait for it looks this often, in milliseconds.
const LOOK: f64 = 50_000.0;
/// The most due rows in one storage transaction.
const ROWS: usize = 256;

/// What is known, and how to wake who sleeps.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    /// When the earliest row is due, as far as is known.
    next: Cell<Option<Instant>>,
    is_running: Cell<bool>,
    bell: RefCell<Option<oneshot::Sender<()>>>,
    /// Reading what is due, and doing it, which is one storage transaction.
    pub(crate) breaker: CircuitBreaker,
}

impl Poller {
    /// Wakes it: what it sleeps for has changed.
    pub(crate) fn ring(&self) {
        self.bell.take().into_iter().for_each(|bell| _ = bell.send(()));
    }
}

impl Core {
    /// Something is due at a time: committed here, or, as a hint says, elsewhere.
    pub(crate) fn poll_by(self: &Rc<Self>, at: Instant) {
        let poller = &self.poller;
        if poller.next.get().is_some_and(|next| next <= at) {
            return;
        }
        poller.next.set(Some(at));
        poller.ring();
        self.keep_polling();
    }

    /// Sees to it that there is a poller.
    pub(crate) fn keep_polling(self: &Rc<Self>) {
        if self.is_open() && !self.poller.is_running.replace(true) {
            (self.host.spawn)(run(Rc::downgrade(self)).boxed_local());
        }
    }

    /// One storage transaction for what is due.
    pub(crate) async fn poll(self: &Rc<Self>) -> Result<Polled> {
        let mut mended = None;
        loop {
            match self.poll_some(Which::All, ROWS).await {
                // Where there is no room to mend in, the others go on all the same.
                Err(error) if self.mend(&error, &mut mended).await.unwrap_or(false) => {}
                Err(error) if leaves_a_row(&error) => return self.poll_singly().await,
                polled => return polled,
            }
        }
    }

    /// There is a record that can't be read, or no room for what comes of a row. Each row for itself: what is due elsewhere does not have to wait
    /// for it.
    async fn poll_singly(self: &Rc<Self>) -> Result<Polled> {
        let now = self.host.clock.now();
        let mut all = self.poll_delayed(now).await?;
        let delayed = all.next.take();
        let mut range = Range::all();
        loop {
            match self.poll_some(Which::Due(range.clone()), 1).await {
                Ok(polled) => {
                    all.moved += polled.moved;
                    all.next = polled.next;
                }
                Err(error) if leaves_a_row(&error) => {
                    let keys =
                        transact::<Vec<Key>, Error>(&*self.host.store, &[StoreName::Due], Mode::ReadOnly, async |tx| {
                            tx.get_keys(StoreName::Due, &range, Some(2)).await
                        });
                    let mut keys = keys.await?.into_iter();
                    let Some(left) = keys.next() else { return Err(error) };
                    range.lower = Bound::Excluding(left);
                    all.next = keys.next().and_then(|key| key.to_value().item(0).number());
                    all.problem = Some(error);
                }
                Err(error) => return Err(error),
            }
            if all.next.is_none_or(|next| next > now) {
                break;
            }
        }
        all.next = [all.next, delayed].into_iter().flatten().reduce(f64::min);
        Ok(all)
    }

    /// What is delayed goes first, as much of it as there is room for: before the lifetimes that end meanwhile. What can't be sent for what can't be
    /// read goes to the error queue.
    async fn poll_delayed(self: &Rc<Self>, now: Instant) -> Result<Polled> {
        let mut all = Polled::default();
        let mut attempts = vec![(Which::Delayed(None), 1), (Which::Delayed(None), ROWS)];
        while let Some((which, rows)) = attempts.pop() {
            match self.poll_some(which.clone(), rows).await {
                Ok(polled) => {
                    all.moved += polled.moved;
                    all.next = polled.next;
                    if polled.next.is_none_or(|next| next > now) {
                        break;
                    }
                    attempts = vec![(Which::Delayed(None), 1), (Which::Delayed(None), ROWS)];
                }
                Err(error) if leaves_a_row(&error) => {
                    let may_refuse = rows == 1 && error.is_corrupt() && matches!(which, Which::Delayed(None));
                    attempts.extend(may_refuse.then(|| (Which::Delayed(Some(error.clone())), 1)));
                    all.problem = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Looks when something is due: somebody may have stored it who could tell nobody any more.
    async fn look_up_next(self: &Rc<Self>) {
        let now = self.host.clock.now();
        let first =
            transact::<_, Error>(&*self.host.store, &FIRST_DUE, Mode::ReadOnly, async |tx| first_due(tx, now).await);
        // What can't be read now is read in a minute. A poll tells what is wrong.
        first.await.ok().flatten().into_iter().for_each(|at| self.poll_by(at));
    }

    async fn poll_some(self: &Rc<Self>, which: Which, rows: usize) -> Result<Polled> {
        let poll = Rc::new(Verb::Poll(Poll { which, rows }));
        match self.commit(poll, Purpose::Commit, 0, None, None).await? {
            Answer::Polled(polled) => Ok(polled),
            _ => Err(crate::call::unexpected()),
        }
    }
}

/// Where [`first_due`] looks.
const FIRST_DUE: [StoreName; 3] = [StoreName::Meta, StoreName::Due, StoreName::Delayed];

/// When the first is due, or has to be looked after.
pub(crate) async fn first_due(tx: &Tx, now: Instant) -> Result<Option<Instant>> {
    let mut due = tx.get_keys(StoreName::Due, &Range::all(), Some(1)).await?;
    due.extend(tx.get_keys(StoreName::Delayed, &all_messages(), Some(1)).await?);
    let due = due.iter().filter_map(|key| key.to_value().item(0).number());
    Ok(due.chain(waits::next(tx, now).await?).reduce(f64::min))
}

/// Whether it is the fault of one row, and others may go on.
fn leaves_a_row(error: &Error) -> bool {
    error.is_corrupt() || error.code() == ErrorCode::QuotaExceeded
}

/// Tells what is wrong, if it is time to. Gives the pause before it is tried again.
fn trouble(core: &Rc<Core>, error: &Error) -> f64 {
    let failing = core.poller.breaker.failure(core.host.clock.now(), core.host.delayed.fetch_breaker);
    if failing.is_to_be_told && core.is_open() {
        core.warn("fetch", error.into());
    }
    failing.pause
}

/// Lives as long as there is somebody to do it for. It does not keep the database open.
async fn run(core: Weak<Core>) {
    let (mut pause, mut seen, mut is_more) = (0.0, f64::MIN, false);
    loop {
        let Some(this) = core.upgrade() else { return };
        let now = this.host.clock.now();
        if !this.is_open() {
            this.poller.is_running.set(false);
            return;
        }
        if now < seen - BLUR {
            // The clock was set back: what was to come soon may have become far, and should not have.
            this.poller.next.set(Some(now));
        }
        seen = now;
        let next = this.poller.next.get();
        if !std::mem::take(&mut is_more) {
            let (bell, rung) = oneshot::channel();
            this.poller.bell.replace(Some(bell));
            let sleep = match next {
                Some(_) if pause > 0.0 => this.host.timer.sleep(pause),
                Some(next) => this.host.timer.sleep((next - now).clamp(SHORTEST, LONGEST)),
                // By real time: a test's clock stands still as long as nothing is due by it.
                None => this.host.pulse.timer.sleep(LOOK),
            };
            drop(this);
            if matches!(select(sleep, rung).await, Either::Right(_)) {
                continue;
            }
        }

        let Some(this) = core.upgrade() else { return };
        if !this.is_open() {
            continue;
        }
        let Some(next) = next.filter(|next| *next <= this.host.clock.now()) else {
            this.look_up_next().await;
            continue;
        };
        // What is committed from now on is told, and what was before is read.
        this.poller.next.set(None);
        match this.poll().await {
            Ok(polled) => {
                pause = 0.0;
                // A hidden page may sleep for a minute between two of them.
                is_more = polled.moved > 0 && polled.next.is_some_and(|next| next <= this.host.clock.now());
                polled.next.into_iter().for_each(|next| this.poll_by(next));
                match polled.problem {
                    // The others go on meanwhile.
                    Some(problem) => {
                        let again = trouble(&this, &problem);
                        this.poll_by(this.host.clock.now() + again);
                    }
                    None => this.poller.breaker.success(),
                }
            }
            // Nobody waits for an answer: it is tried again.
            Err(error) => {
                pause = trouble(&this, &error);
                this.poll_by(next);
            }
        }
    }
}
