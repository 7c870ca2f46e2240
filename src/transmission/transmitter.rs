//! The transmitter of a route: one among the contexts that have the route. It hands over what waits, and sleeps until something may be tried again.

use std::rc::{Rc, Weak};

use futures_util::future::{Either, LocalBoxFuture, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::SendResult;
use super::hurry::Hurry;
use super::next;
use super::pick::{Handed, Pick, Services};
use super::route::Route;
use super::settle::Settle;
use super::step::{Came, Step};
use crate::clock::Instant;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::ids::SideId;
use crate::role::lead;
use crate::store::{Mode, StoreName};
use crate::verbs::{Answer, Verb};
use crate::work::Purpose;

/// So many conversations are under way at a time.
const SIDES: usize = 6;
/// So long a call may take, in milliseconds of real time.
const CALL: f64 = 120_000.0;
/// The shortest sleep, and the longest, in milliseconds.
const SHORTEST: f64 = 10.0;
const LONGEST: f64 = 60_000.0;
/// The first pause after the storage has failed; it doubles.
const PAUSE: f64 = 1_000.0;

/// Lives as long as its route is given and a broker is open. It does not keep the database open.
pub(super) async fn run(core: Weak<Core>, route: Rc<Route>) {
    let mut failures = 0;
    while let Some(this) = core.upgrade().filter(|this| this.is_open() && !route.is_removed.get()) {
        let rung = route.rung();
        route.is_wanted.set(false);
        let now = this.host.clock.now();
        let wait = match this.next_to_transmit(&route).await {
            Ok(Some(at)) if at <= now && !route.role.is_held() => {
                let ours = Rc::clone(&route);
                lead(this, move |_| (!ours.is_removed.get()).then(|| Rc::clone(&ours.role)), rung).await;
                continue;
            }
            Ok(Some(at)) if at <= now => match this.drain(&route, false).await {
                // What can't be read is passed over, and looked at again later.
                Ok(0) if route.role.leads() => {
                    route.unreadable.take();
                    LONGEST
                }
                Ok(_) => {
                    failures = 0;
                    if !route.role.leads() {
                        route.role.let_go();
                    }
                    continue;
                }
                Err(error) => this.trouble(&mut failures, &error),
            },
            Ok(next) => next.map_or(LONGEST, |at| at - now),
            Err(error) => this.trouble(&mut failures, &error),
        };
        // Nobody keeps a role without anything to do.
        route.role.let_go();
        route.tell_idle();
        if route.is_wanted.get() && failures == 0 {
            continue;
        }
        let sleep = this.host.timer.sleep(wait.clamp(SHORTEST, LONGEST));
        drop(this);
        // Either way it looks.
        select(sleep, rung).await;
    }
    route.is_running.set(false);
    route.role.let_go();
    route.tell_idle();
}

/// A call of the transport, and the conversation that it is about.
type Called = (SideId, Option<Settle>);

impl Core {
    /// Something is to be transmitted: committed here, or, as a hint says, elsewhere.
    pub(crate) fn transmit_by(&self) {
        self.transmission.want();
    }

    /// Sees to it that each route has its transmitter.
    pub(crate) fn keep_transmitting(self: &Rc<Self>) {
        if !self.is_open() {
            return;
        }
        for route in self.transmission.routes() {
            if !route.is_running.replace(true) {
                (self.host.spawn)(run(Rc::downgrade(self), route).boxed_local());
            }
        }
    }

    /// The storage fails: tells it, and gives the pause before it is tried again.
    fn trouble(self: &Rc<Self>, failures: &mut u32, error: &Error) -> f64 {
        if *failures == 0 && self.is_open() {
            self.warn("transmission", error.into());
        }
        *failures = failures.saturating_add(1);
        PAUSE * f64::from(1u32 << failures.saturating_sub(1).min(6))
    }

    /// When a route may hand something over; 0: at once.
    async fn next_to_transmit(&self, route: &Route) -> Result<Option<Instant>> {
        let services = self.transmission.services(route);
        self.transact(&[StoreName::Turns], Mode::ReadOnly, async |tx| next::first(tx, &services).await).await
    }

    /// Hands over what may go, some conversations side by side, until nothing may.
    ///
    /// `anyway`: although another context transmits, which has not come to an end of it. Gives how many calls there were.
    pub(crate) async fn drain(self: &Rc<Self>, route: &Rc<Route>, anyway: bool) -> Result<u64> {
        let mut called = 0;
        let mut calls: FuturesUnordered<LocalBoxFuture<'static, Called>> = FuturesUnordered::new();
        let (mut under_way, mut settled): (Vec<SideId>, Vec<Settle>) = (Vec::new(), Vec::new());
        loop {
            let may_go_on = self.may_go_on(route, anyway);
            route.is_wanted.set(false);
            let most = if route.transport.is_slow() { 1 } else { SIDES };
            let free = most.saturating_sub(under_way.len());
            let pick = (may_go_on && free > 0).then(|| self.pick(route, &under_way, free));
            let picked = self.round(route, &mut settled, pick).await?;
            // While that was committed the route may have been removed, or the broker closed: then nobody would end a call any more.
            for handed in picked.into_iter().filter(|_| self.may_go_on(route, anyway)) {
                under_way.push(handed.side);
                calls.push(self.call(route, handed));
                called += 1;
            }
            loop {
                if calls.is_empty() {
                    if settled.is_empty() {
                        return Ok(called);
                    }
                    break;
                }
                if route.is_wanted.get() && may_go_on && under_way.len() < most {
                    break;
                }
                match select(calls.next(), route.rung()).await {
                    Either::Left((Some((side, outcome)), _)) => {
                        under_way.retain(|other| *other != side);
                        settled.extend(outcome);
                    }
                    Either::Left((None, _)) => break,
                    // Somebody else may have something to send.
                    Either::Right(_) if under_way.len() < most => break,
                    Either::Right(_) => continue,
                }
                // What has come meanwhile is settled together.
                while let Some(Some((side, outcome))) = calls.next().now_or_never() {
                    under_way.retain(|other| *other != side);
                    settled.extend(outcome);
                }
                break;
            }
        }
    }

    /// Whether something more may be handed over. A holder of the role that is to hand it on begins nothing new.
    fn may_go_on(&self, route: &Route, anyway: bool) -> bool {
        self.is_open() && !route.is_removed.get() && (anyway || route.role.leads())
    }

    fn pick(&self, route: &Route, under_way: &[SideId], sides: usize) -> Pick {
        Pick {
            services: self.transmission.services(route),
            after: route.after.borrow().clone(),
            via: Rc::clone(&route.name),
            except: under_way.iter().chain(route.unreadable.borrow().iter()).copied().collect(),
            sides,
            batch: route.batch,
        }
    }

    /// What has been answered is stored, and the next is picked: one storage transaction. An answer that can't be stored is no answer, and is told next time.
    async fn round(
        self: &Rc<Self>,
        route: &Route,
        settled: &mut Vec<Settle>,
        pick: Option<Pick>,
    ) -> Result<Vec<Handed>> {
        let settling: Vec<_> = std::mem::take(settled)
            .into_iter()
            .map(|settle| {
                let (side, first, is_failure) = (settle.side, settle.first, settle.is_failure);
                self.transmission_step(Step::Settle(settle))
                    .map(move |came| (side, first, is_failure, came))
                    .boxed_local()
            })
            .collect();
        let picking = pick.map(|pick| self.transmission_step(Step::Pick(pick)));
        let mut failed = None;
        for (side, first, is_failure, came) in join_all(settling).await {
            match came {
                Ok(Came::Sent(sent)) => route.sent.set(route.sent.get() + sent),
                Ok(_) => {}
                Err(error) if is_failure || error.is_storage() => failed = Some(error),
                Err(error) => {
                    let reason = format!("What came of it could not be stored: {error}").into();
                    let results = vec![SendResult::Retry { after: None, reason }];
                    settled.push(Settle { side, first, results, is_failure: true });
                }
            }
        }
        let picked = match picking {
            Some(picking) => match picking.await? {
                Came::Picked(picked) => picked,
                _ => return Err(crate::call::unexpected()),
            },
            None => return failed.map_or(Ok(Vec::new()), Err),
        };
        // The answers are lost, and what they were about is handed over again: it arrives once all the same.
        if let Some(error) = failed {
            return Err(error);
        }
        if picked.after.is_some() {
            route.after.replace(picked.after);
        }
        if let Some((side, error)) = picked.problem
            && !self.mend(&error, &mut None).await.unwrap_or(false)
        {
            self.warn("transmission", (&error).into());
            route.unreadable.borrow_mut().push(side);
        }
        // What came of it is not known in the database: nothing more of it goes before it is.
        let is_known = |handed: &Handed| settled.iter().all(|settle| settle.side != handed.side);
        Ok(picked.handed.into_iter().filter(is_known).collect())
    }

    /// A step, with the verbs that wait. What can't be read is mended first.
    fn transmission_step(self: &Rc<Self>, step: Step) -> LocalBoxFuture<'static, Result<Came>> {
        let (core, verb) = (Rc::clone(self), Rc::new(Verb::Transmit(step)));
        // Issued now: steps that are issued together share a storage transaction.
        let mut attempt = core.commit(Rc::clone(&verb), Purpose::Commit, 0, None, None).boxed_local();
        async move {
            let mut mended = None;
            loop {
                match attempt.await.map_err(Error::from) {
                    Ok(Answer::Transmission(came)) => return Ok(came),
                    Ok(_) => return Err(crate::call::unexpected()),
                    Err(error) if core.mend(&error, &mut mended).await? => {}
                    Err(error) => return Err(error),
                }
                attempt = core.commit(Rc::clone(&verb), Purpose::Commit, 0, None, None).boxed_local();
            }
        }
        .boxed_local()
    }

    /// One call of the transport. `None`: nobody waits for the answer any more.
    fn call(&self, route: &Route, handed: Handed) -> LocalBoxFuture<'static, Called> {
        let (side, first, count) = (handed.side, handed.first, handed.envelopes.len());
        let closed = route.closed();
        let sending = route.transport.send(handed.envelopes);
        let limit = self.host.pulse.timer.sleep(CALL);
        async move {
            let retry = |reason: Rc<str>| SendResult::Retry { after: None, reason };
            let mut results = match select(closed, select(sending, limit)).await {
                Either::Left(_) => return (side, None),
                Either::Right((Either::Left((Ok(results), _)), _)) => results,
                Either::Right((Either::Left((Err(error), _)), _)) => vec![retry(error.to_string().into())],
                Either::Right((Either::Right(_), _)) => {
                    vec![retry("The transport has not answered for 120 s.".into())]
                }
            };
            results.truncate(count);
            if results.len() < count {
                results.push(retry("The transport gave fewer results than there were messages.".into()));
            }
            (side, Some(Settle { side, first, results, is_failure: false }))
        }
        .boxed_local()
    }

    /// What has failed is tried at once, by whoever transmits.
    pub(crate) async fn hurry(self: &Rc<Self>) -> Result<()> {
        self.hurry_all(None).await
    }

    /// What was accepted and not acknowledged is offered again by a route.
    pub(crate) async fn offer_again(self: &Rc<Self>, number: u64) -> Result<()> {
        let routes = self.transmission.routes();
        let Some(route) = routes.iter().find(|route| route.number == number) else { return Ok(()) };
        self.hurry_all(Some(self.transmission.services(route))).await
    }

    async fn hurry_all(self: &Rc<Self>, accepted: Option<Services>) -> Result<()> {
        let mut after = None;
        loop {
            let page = Hurry { accepted: accepted.clone(), after };
            let Came::Hurried(next) = self.transmission_step(Step::Hurry(page)).await? else {
                return Err(crate::call::unexpected());
            };
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }
}
