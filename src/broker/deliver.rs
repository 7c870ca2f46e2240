//! What arrives from outside.

use std::rc::Rc;

use futures_util::future::join_all;

use super::Broker;
use crate::call::{Call, unexpected};
use crate::error::{ErrorCode, Result};
use crate::notice::Notice;
use crate::stats::Counts;
use crate::transmission::{Deliver, DeliverContext, Delivery, GivenEnvelope, refuse_given};
use crate::verbs::{Answer, Verb};

/// The most endpoints of one queue that were begun from outside and are not finished.
pub const MOST_FROM_OUTSIDE: u64 = 10_000;

impl Broker {
    /// The same with another number of endpoints of one queue that may be begun from outside.
    #[must_use]
    pub fn with_most_from_outside(mut self, most: u64) -> Self {
        self.most_from_outside = most;
        self
    }

    /// Takes in what arrived from outside: one [`Delivery`] per envelope, in order, after the commit. What is no envelope, or may not be, is refused
    /// by name and does nothing; what can't be taken in now is to be delivered again.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn deliver(&self, envelopes: Vec<GivenEnvelope>, context: DeliverContext) -> Result<Vec<Delivery>> {
        self.check_open()?;
        let (context, mut notice) = (Rc::new(context), Notice::default());
        let read: Vec<_> = envelopes
            .into_iter()
            .map(|given| match given.read() {
                Ok(envelope) => {
                    let (shown, context) = (given.shown(), Rc::clone(&context));
                    Ok(Deliver { envelope, shown, context, most: self.most_from_outside })
                }
                Err(refusal) => Err(refuse_given(&given, &refusal, &mut notice)),
            })
            .collect();
        let dropped = crate::message::count(notice.dropped.len());
        self.tally.add(&Counts { dropped, ..Counts::default() });
        self.core.announce(&notice);
        // They share a storage transaction, and one that fails fails alone.
        let all = join_all(read.into_iter().map(|read| self.deliver_one(read))).await;
        all.into_iter().collect()
    }

    async fn deliver_one(&self, read: std::result::Result<Deliver, Delivery>) -> Result<Delivery> {
        let deliver = match read {
            Ok(deliver) => deliver,
            Err(refused) => return Ok(refused),
        };
        match self.call(Call::Verb(Verb::Deliver(deliver)), None).await {
            Ok(Answer::Delivered(delivery)) => Ok(delivery),
            Ok(_) => Err(unexpected()),
            Err(error) if error.code() == ErrorCode::Closed => Err(error),
            Err(error) => Ok(Delivery::Later { after: None, reason: error.to_string().into() }),
        }
    }
}
