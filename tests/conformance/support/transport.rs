//! A transport that answers what a test tells it to, and keeps what it was handed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::error::{Error, Result};
use pocket_broker::{MessageEnvelope, Refusal, SendResult, Transport};

use super::shop::{short, show_body};

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// One result for each envelope.
    Each(SendResult),
    /// These results.
    These(Vec<SendResult>),
    /// The call fails.
    Fails(&'static str),
    /// Nothing is ever answered.
    Hangs,
    /// It is acknowledged when the test says so.
    Waits,
    /// The same, with another result for each envelope.
    WaitsFor(SendResult),
}

/// Keeps what it was handed.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    told: Rc<RefCell<VecDeque<Told>>>,
    always: Rc<RefCell<Option<Told>>>,
    calls: Rc<RefCell<Vec<Vec<MessageEnvelope>>>>,
    waiting: Rc<RefCell<Vec<oneshot::Sender<()>>>>,
    is_slow: Rc<Cell<bool>>,
}

impl Wire {
    /// For the next call.
    pub(crate) fn next(&self, told: Told) {
        self.told.borrow_mut().push_back(told);
    }

    /// For all calls that nothing else is said of. Otherwise they are acknowledged.
    pub(crate) fn always(&self, told: Told) {
        self.always.replace(Some(told));
    }

    /// The calls since this was asked last, each envelope as "type number body".
    pub(crate) fn calls(&self) -> Vec<Vec<String>> {
        let show = |envelope: &MessageEnvelope| {
            let body = show_body(&envelope.body.value.value());
            format!("{} {} {body}", short(&envelope.message_type), envelope.sequence).trim_end().to_owned()
        };
        self.envelopes().iter().map(|call| call.iter().map(show).collect()).collect()
    }

    /// The same as they are.
    pub(crate) fn envelopes(&self) -> Vec<Vec<MessageEnvelope>> {
        self.calls.take()
    }

    /// It says that it will probably reach nobody, or does so no more.
    pub(crate) fn slow(&self, is_slow: bool) {
        self.is_slow.set(is_slow);
    }

    /// How many calls wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow_mut().retain(|call| !call.is_canceled());
        self.waiting.borrow().len()
    }

    /// Answers the first that waits.
    pub(crate) fn answer(&self) {
        let first = self.waiting.borrow_mut().remove(0);
        first.send(()).expect("the call waits");
    }
}

impl Transport for Wire {
    fn send(&self, envelopes: Vec<MessageEnvelope>) -> LocalBoxFuture<'static, Result<Vec<SendResult>>> {
        let count = envelopes.len();
        self.calls.borrow_mut().push(envelopes);
        let told = self.told.borrow_mut().pop_front().or_else(|| self.always.borrow().clone());
        match told.unwrap_or(Told::Each(acknowledged())) {
            Told::Each(result) => std::future::ready(Ok(vec![result; count])).boxed_local(),
            Told::These(results) => std::future::ready(Ok(results)).boxed_local(),
            Told::Fails(reason) => std::future::ready(Err(Error::invalid_argument("wire", reason))).boxed_local(),
            Told::Hangs => std::future::pending().boxed_local(),
            Told::Waits => self.wait_for(acknowledged(), count),
            Told::WaitsFor(result) => self.wait_for(result, count),
        }
    }

    fn is_slow(&self) -> bool {
        self.is_slow.get()
    }
}

impl Wire {
    fn wait_for(&self, result: SendResult, count: usize) -> LocalBoxFuture<'static, Result<Vec<SendResult>>> {
        let (sender, answered) = oneshot::channel();
        self.waiting.borrow_mut().push(sender);
        async move {
            answered.await.expect("the test answers");
            Ok(vec![result; count])
        }
        .boxed_local()
    }
}

/// It has arrived.
pub(crate) fn acknowledged() -> SendResult {
    SendResult::Acknowledged { up_to: None, from_broker: None, reply: None }
}

/// Not now.
pub(crate) fn retry(reason: &str) -> SendResult {
    SendResult::Retry { after: None, reason: reason.into() }
}

/// Never.
pub(crate) fn refused(code: f64, ends: bool) -> SendResult {
    SendResult::Refused(Refusal {
        code,
        description: "the far side does not want it".into(),
        ends,
        headers: vec![("HttpStatus", "422".into())],
    })
}
