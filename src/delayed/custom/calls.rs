//! Calls of a store, which may fail, hang or never answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::{Either, LocalBoxFuture, select};

use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};

/// For so many milliseconds an answer is waited for.
const LIMIT: f64 = 60_000.0;
/// For so many, when the broker is closed meanwhile.
const LAST: f64 = 5_000.0;

/// The calls that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Told when the broker is closed, or the page sleeps.
    closing: RefCell<Vec<oneshot::Sender<()>>>,
    is_closed: Cell<bool>,
    /// How many a close waits for.
    lasting: Cell<u32>,
    ended: RefCell<Vec<oneshot::Sender<()>>>,
}

impl Calls {
    /// Nobody waits for an answer any more, and nothing is asked.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.closing.take().into_iter().for_each(|call| _ = call.send(()));
    }

    /// From now on calls may be made.
    pub(crate) fn open(&self) {
        self.is_closed.set(false);
    }

    fn closed(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut closing = self.closing.borrow_mut();
        closing.retain(|call| !call.is_canceled());
        closing.push(sender);
        receiver
    }

    /// Resolves when what was begun and has to come to its end has, or when that takes too long.
    pub(crate) async fn ended(&self, core: &Core) {
        if self.lasting.get() > 0 {
            let (sender, receiver) = oneshot::channel();
            self.ended.borrow_mut().push(sender);
            select(receiver, core.host.pulse.timer.sleep(LAST)).await;
        }
    }
}

/// One call more that a close waits for.
struct Lasting<'a>(&'a Calls);

impl<'a> Lasting<'a> {
    fn new(calls: &'a Calls) -> Self {
        calls.lasting.set(calls.lasting.get() + 1);
        Self(calls)
    }
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        self.0.lasting.set(self.0.lasting.get().saturating_sub(1));
        if self.0.lasting.get() == 0 {
            self.0.ended.take().into_iter().for_each(|waiter| _ = waiter.send(()));
        }
    }
}

/// Waits for an answer, not longer than the broker is open.
pub(super) async fn ask<T>(core: &Rc<Core>, method: &str, call: LocalBoxFuture<'static, Result<T>>) -> Result<T> {
    if core.stored.calls.is_closed.get() {
        return Err(Error::closed());
    }
    let closed = core.stored.calls.closed();
    match select(closed, Box::pin(limited(core, method, call))).await {
        Either::Left(_) => Err(Error::closed()),
        Either::Right((answer, _)) => answer,
    }
}

/// Waits for an answer, whatever becomes of the broker.
pub(super) async fn ask_to_the_end<T>(
    core: &Rc<Core>,
    method: &str,
    call: LocalBoxFuture<'static, Result<T>>,
) -> Result<T> {
    if core.gate.is_closed() {
        return Err(Error::closed());
    }
    let lasting = Lasting::new(&core.stored.calls);
    let answer = limited(core, method, call).await;
    drop(lasting);
    answer
}

/// By real time, whatever the application's clock says: so long a call may take.
async fn limited<T>(core: &Rc<Core>, method: &str, call: LocalBoxFuture<'static, Result<T>>) -> Result<T> {
    match select(call, core.host.pulse.timer.sleep(LIMIT)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let text =
                format!("The delayed message store has not answered `{method}` for 60 s. Nothing is lost by that.");
            Err(Error::new(ErrorCode::DelayedStoreFailed, text).with("method", method).with("timeout", LIMIT))
        }
    }
}
