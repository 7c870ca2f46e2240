//! What carries envelopes.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::MessageEnvelope;
use crate::body::Body;
use crate::error::Result;

/// Carries envelopes to another broker, or to a server. It may lose, repeat, delay and reorder them.
pub trait Transport {
    /// Hands envelopes of one conversation over, in their order: one result for each, in order. An error means that all of them are to be tried
    /// again. Dropping the future says that nobody waits for the answer any more.
    fn send(&self, envelopes: Vec<MessageEnvelope>) -> LocalBoxFuture<'static, Result<Vec<SendResult>>>;

    /// Whether it will probably reach nobody now: then one conversation at a time is tried. It never stops anything.
    fn is_slow(&self) -> bool {
        false
    }
}

/// What became of an envelope that was handed over.
#[derive(Clone, Debug)]
pub enum SendResult {
    /// It has arrived for good.
    Acknowledged {
        /// Everything up to this number has; `None`: up to its own.
        up_to: Option<u64>,
        /// The far broker, where the transport knows it.
        from_broker: Option<Rc<str>>,
        /// A message that came with the answer.
        reply: Option<Reply>,
    },
    /// An acknowledgement will come by itself. It is offered again after so many milliseconds.
    Accepted(f64),
    /// Not now.
    Retry {
        /// After so many milliseconds, an hour at most; `None`: 1 s, doubling to 60 s.
        after: Option<f64>,
        /// Why, for people.
        reason: Rc<str>,
    },
    /// Never.
    Refused(Refusal),
}

/// A message that comes with the answer to another one.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its type.
    pub message_type: Rc<str>,
    /// Its body.
    pub body: Body,
    /// Why it can't be taken, if it can't be: its body is not what its type says.
    pub problem: Option<Rc<str>>,
}

/// Why an envelope is refused for good, and what comes of it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// A number, of the transport's own: the status of an HTTP answer, say.
    pub code: f64,
    /// For people.
    pub description: Rc<str>,
    /// The conversation gets an Error with that; else the message goes to the error queue, and the conversation goes on.
    pub ends: bool,
    /// Headers that the message gets in the error queue.
    pub headers: Vec<(&'static str, Rc<str>)>,
}
