//! WAITFOR: a reader that found nothing sleeps until something may have come.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::commit::{Cancelled, aborted};
use crate::core::Core;
use crate::error::Result;

/// A waiting reader looks this often by itself, in milliseconds: a hint may get lost.
const POLL: f64 = 15_000.0;

/// Tells waiting readers that a commit, of this context or another one, has touched their queue.
#[derive(Debug, Default)]
pub(crate) struct Bell(RefCell<Vec<(Rc<str>, oneshot::Sender<()>)>>);

impl Bell {
    /// Resolves when a queue is touched; "": any queue.
    fn listen(&self, queue: &Rc<str>) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut listeners = self.0.borrow_mut();
        listeners.retain(|(_, listener)| !listener.is_canceled());
        listeners.push((Rc::clone(queue), sender));
        receiver
    }

    /// These queues were touched.
    pub(crate) fn ring(&self, queues: &[Rc<str>]) {
        self.wake(|queue| queue.is_empty() || queues.contains(queue));
    }

    /// Everybody is to look again.
    pub(crate) fn ring_all(&self) {
        self.wake(|_| true);
    }

    fn wake(&self, is_meant: impl Fn(&Rc<str>) -> bool) {
        let (woken, others) = self.0.take().into_iter().partition(|(queue, _)| is_meant(queue));
        self.0.replace(others);
        let woken: Vec<(Rc<str>, oneshot::Sender<()>)> = woken;
        woken.into_iter().for_each(|(_, listener)| _ = listener.send(()));
    }
}

/// How long to wait for what.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) queue: Rc<str>,
    /// In milliseconds.
    pub(crate) timeout: f64,
}

/// Something that may be there or not.
pub(crate) trait MaybeNothing {
    fn is_nothing(&self) -> bool;
}

/// Runs `attempt` until it finds something or the time is over. It sleeps between two attempts, without a storage transaction, until a commit
/// touches the queue, a group is let go of, or the first group that it could not have is free.
pub(crate) async fn wait_for<T: MaybeNothing>(
    core: &Rc<Core>,
    call: u64,
    wait: &Wait,
    cancelled: Option<&Cancelled>,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let mut deadline = None;
    loop {
        // Listened to before it looks: what comes in between is not missed.
        let (rung, released) = (core.bell.listen(&wait.queue), core.locks.released());
        let found = attempt().await?;
        core.besiege(call);
        if wait.timeout <= 0.0 || !found.is_nothing() {
            return Ok(found);
        }
        if cancelled.is_some_and(|cancelled| cancelled()) {
            return Err(aborted());
        }
        let passed = core.locks.passed(call);
        core.locks.finish(call);
        let deadline = deadline.get_or_insert_with(|| core.host.timer.sleep(wait.timeout));
        let mut wakers: Vec<LocalBoxFuture<'_, bool>> = vec![
            deadline.map(|()| true).boxed_local(),
            rung.map(|_| false).boxed_local(),
            released.map(|_| false).boxed_local(),
            core.host.timer.sleep(POLL).map(|()| false).boxed_local(),
        ];
        if let Some((group, true)) = &passed {
            wakers.push(core.locks.wait(group, call).map(|()| false).boxed_local());
        }
        if first_of(wakers).await {
            return Ok(found);
        }
    }
}

/// What the first of several futures gives. The others are dropped.
pub(crate) async fn first_of<T>(mut futures: Vec<LocalBoxFuture<'_, T>>) -> T {
    poll_fn(|context| {
        let first = futures.iter_mut().find_map(|future| match future.poll_unpin(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        });
        first.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
