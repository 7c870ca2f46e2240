//! When something may be handed over: a short read for each far service that something waits for.

use std::rc::Rc;

use super::pick::Services;
use crate::clock::Instant;
use crate::error::Result;
use crate::store::{Bound, StoreName, Tx};
use crate::turn::OutgoingTurn;

/// So many services are looked at.
const SERVICES: usize = 1_024;

/// When something for these services may be handed over; 0: at once. `None`: nothing waits.
pub(super) async fn first(tx: &Tx, services: &Services) -> Result<Option<Instant>> {
    Ok(waiting_for(tx, services).await?.into_iter().map(|(_, at)| at).reduce(f64::min))
}

/// When the first of those that wait for a time may be tried again.
pub(crate) async fn first_retry(tx: &Tx, services: &Services) -> Result<Option<Instant>> {
    let mut next: Option<Instant> = None;
    for (service, _) in waiting_for(tx, services).await? {
        let keys = tx.get_keys(StoreName::Turns, &OutgoingTurn::waiting(&service), Some(1)).await?;
        let at = keys.first().and_then(OutgoingTurn::place).map(|(_, at)| at);
        next = [next, at].into_iter().flatten().reduce(f64::min);
    }
    Ok(next)
}

/// Each service that something waits for, and when the first of that may be handed over.
async fn waiting_for(tx: &Tx, services: &Services) -> Result<Vec<(Rc<str>, Instant)>> {
    let mut found = Vec::new();
    let mut range = match services {
        Services::One(service) => OutgoingTurn::of_service(service),
        Services::AllBut(_) => OutgoingTurn::by_service(),
    };
    for _ in 0..SERVICES {
        let keys = tx.get_keys(StoreName::Turns, &range, Some(1)).await?;
        let Some((service, at)) = keys.first().and_then(OutgoingTurn::place) else { break };
        range.lower = Bound::Including(OutgoingTurn::after_service(&service));
        if services.has(&service) {
            found.push((service, at));
        }
        if matches!(services, Services::One(_)) {
            break;
        }
    }
    Ok(found)
}
