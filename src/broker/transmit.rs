//! Routes, what is asked of transmission, and what was put off.

use std::rc::Rc;

use futures_util::future::{Either, join_all, select};

use super::Broker;
use crate::call::{Call, unexpected};
use crate::definitions::check_name;
use crate::error::{Error, ErrorCode, Result};
use crate::transmission::{Route, Transport};
use crate::verbs::Verb;
use crate::views::{Extent, Seen, View};

/// So long another context that transmits is waited for, in milliseconds; then this one does it itself.
const PATIENCE: f64 = 5_000.0;

/// What an attempt to transmit everything has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Messages that have left, or were accepted by a transport.
    pub sent: u64,
    /// Messages that are still in the transmission queue.
    pub remaining: u64,
}

impl Broker {
    /// A route: where messages for a far service go, or, with "*", those for all that have no route of their own. It is there until it is removed or the
    /// broker is closed; nothing of it is stored. Gives a number to remove it by.
    ///
    /// # Errors
    /// `InvalidArgument` for a name; `AlreadyExists` when the broker has a route for the service; `Closed`.
    pub fn route(&self, service: &str, transport: Rc<dyn Transport>, batch: u64) -> Result<u64> {
        self.check_open()?;
        check_name("service", service)?;
        let own = self.routes.borrow().clone();
        let routes = self.core.transmission.routes();
        if routes.iter().any(|route| *route.name == *service && own.contains(&route.number)) {
            let text = format!("The broker has a route for \"{service}\". Remove it before you give another one.");
            return Err(Error::new(ErrorCode::AlreadyExists, text).with("service", service));
        }
        let number = self.core.unique();
        self.core.transmission.add(&Rc::new(Route::new(number, service.into(), transport, batch)));
        self.routes.borrow_mut().push(number);
        self.core.keep_transmitting();
        Ok(number)
    }

    /// Removes a route. Calls of its transport that are under way are not waited for: what they were about is handed over again by another one.
    pub fn remove_route(&self, number: u64) {
        self.routes.borrow_mut().retain(|other| *other != number);
        self.core.transmission.remove(number);
    }

    pub(super) fn remove_routes(&self) {
        self.routes.take().into_iter().for_each(|number| self.core.transmission.remove(number));
    }

    /// One full attempt to transmit what waits, what has failed before included. Where another context transmits it is waited for.
    ///
    /// # Errors
    /// Those of the store; `Closed`.
    pub async fn transmit(&self) -> Result<Transmitted> {
        self.check_open()?;
        let before = self.waiting_outside().await?;
        self.core.hurry().await?;
        let sent = self.transmit_due().await;
        self.check_open()?;
        let remaining = self.waiting_outside().await?;
        Ok(Transmitted { sent: sent.max(before.saturating_sub(remaining)), remaining })
    }

    /// Whether something waits that a route of this context could hand over, now or after a failure. What a transport has accepted waits for its
    /// acknowledgement alone, and what has no route here for somebody else.
    ///
    /// # Errors
    /// Those of the store; `Closed`.
    pub async fn is_transmittable(&self) -> Result<bool> {
        let transmission = &self.core.transmission;
        let routes = transmission.routes().iter().map(|route| transmission.services(route)).collect();
        match self.see(&View::Transmittable(routes), None, Extent::All).await? {
            Seen::Transmittable(is_transmittable) => Ok(is_transmittable),
            _ => Err(unexpected()),
        }
    }

    /// Conversations that handlers have put off are in line again at once.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn resume(&self) -> Result<()> {
        self.call(Call::Verb(Verb::Resume), None).await.map(drop)
    }

    /// What has failed is tried again at once, in whatever context.
    ///
    /// # Errors
    /// Those of the store; `Closed`.
    pub async fn hurry(&self) -> Result<()> {
        self.check_open()?;
        self.core.hurry().await
    }

    /// What a transport has accepted and nobody has acknowledged is offered again at once by the route with a number: what it was handed to may have
    /// lost it.
    ///
    /// # Errors
    /// Those of the store; `Closed`.
    pub async fn offer_again(&self, number: u64) -> Result<()> {
        self.check_open()?;
        self.core.offer_again(number).await
    }

    /// The names of the services that other brokers can send to, as far as they are known here: not those of queues.
    pub fn targets(&self) -> Vec<Rc<str>> {
        let catalog = self.core.catalog();
        let services = catalog.services.iter().filter(|(_, service)| !service.contracts.is_empty());
        services.map(|(name, _)| Rc::clone(name)).filter(|name| !catalog.queues.contains_key(name)).collect()
    }

    async fn waiting_outside(&self) -> Result<u64> {
        Ok(self.stats().await?.gauges.transmission_queued)
    }

    /// Resolves when there is nothing left that could go now by a route of this context. Gives how much has gone.
    pub(super) async fn transmit_due(&self) -> u64 {
        let routes = self.core.transmission.routes();
        let attempts = routes.iter().map(async |route| {
            let before = route.sent();
            let mut idle = route.wake();
            // Another context may transmit, and may be frozen.
            while let Either::Right((_, waiting)) = select(idle, self.core.host.pulse.timer.sleep(PATIENCE)).await {
                if !route.transmits() && self.core.is_open() {
                    // What fails is told by the transmitter.
                    _ = self.core.drain(route, true).await;
                    break;
                }
                idle = waiting;
            }
            route.sent() - before
        });
        join_all(attempts).await.into_iter().sum()
    }
}
