//! What becomes of an envelope.

use std::rc::Rc;

use super::read::{GivenEnvelope, Refusal};
use super::{Acknowledgement, MessageEnvelope};
use crate::notice::{Dropped, Notice};

/// What became of an envelope, after the commit.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// It is here for good. The acknowledgement is to be sent back; `None` while number 0 is missing, and for what is an acknowledgement itself.
    Stored(Option<Acknowledgement>),
    /// It was here before, or nobody wants it any more.
    Repeated(Option<Acknowledgement>),
    /// It is to be delivered again.
    Later {
        /// Not before so many milliseconds.
        after: Option<f64>,
        /// Why.
        reason: Rc<str>,
    },
    /// It is never to be delivered again.
    Refused {
        /// Why: a name, and what is wrong with this one.
        reason: Rc<str>,
        /// The Error that is to be sent back.
        reply: Option<Box<MessageEnvelope>>,
    },
}

/// Who delivers.
#[derive(Clone, Debug, Default)]
pub struct DeliverContext {
    /// The peer's broker, where the transport has proved it.
    pub from: Option<Rc<str>>,
    /// The names of the transport's routes; `None`: the application delivers.
    pub via: Option<Vec<Rc<str>>>,
}

/// An envelope that is refused before anything is looked up: every broker hears of it.
pub(crate) fn refuse_given(given: &GivenEnvelope, refusal: &Refusal, notice: &mut Notice) -> Delivery {
    let reason = Rc::clone(&refusal.0);
    notice.dropped.push(Dropped { reason: Rc::clone(&reason), message: Vec::new(), envelope: Some(given.shown()) });
    Delivery::Refused { reason, reply: None }
}

/// It is to be delivered again.
pub(super) fn later(after: Option<f64>, reason: impl Into<Rc<str>>) -> Delivery {
    Delivery::Later { after, reason: reason.into() }
}
