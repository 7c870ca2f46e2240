//! What is asked of a broker or of a transaction, on its way to the verb.

use std::rc::Rc;

use futures_util::FutureExt;

use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::text;
use crate::stop::{Outcome, Stop};
use crate::verbs::{BeginDialog, Begun, Verb};
use crate::waiting::first_of;

/// What is asked of a broker or a transaction.
#[derive(Debug)]
pub(crate) enum Call {
    Verb(Verb),
    /// BEGIN DIALOG gets its numbers first.
    Begin(BeginDialog),
}

impl Call {
    /// The verb, after all that can be checked without looking anything up.
    pub(crate) async fn verb(self, core: &Rc<Core>) -> Result<Verb> {
        match self {
            Self::Begin(options) => {
                options.check()?;
                let number = core.conversation_number().await?;
                Ok(Verb::BeginDialog(Begun {
                    options,
                    number,
                    bits: core.host.ids.bits(),
                    id: text(core.host.ids.uuid()),
                }))
            }
            Self::Verb(verb) => verb.check().map(|()| verb),
        }
    }
}

/// Runs a verb, which stops when it needs a lock of the origin first, and asks for it. When the verb finds its group held, waits for a release
/// and runs it again, at most until the time is over. `guesses`: the groups that it will probably need.
pub(crate) async fn with_groups<T>(
    core: &Rc<Core>,
    timeout: f64,
    call: u64,
    guesses: Vec<Rc<str>>,
    mut attempt: impl AsyncFnMut() -> Outcome<T>,
) -> Result<T> {
    core.locks.ask_all(guesses.into_iter().map(|group| (group, call)).collect()).await;
    let (mut deadline, mut mended) = (None, None);
    loop {
        let releases = core.locks.releases();
        let stop = match attempt().await {
            Ok(answer) => {
                core.mend_beside();
                return Ok(answer);
            }
            Err(stop) => stop,
        };
        match &stop {
            Stop::Wanted(group) => {
                core.locks.ask(group, call).await;
                continue;
            }
            Stop::Failed(error) if core.mend(error, &mut mended).await? => continue,
            Stop::Held(_) => {}
            _ => return Err(stop.into()),
        }
        let elsewhere = core.locks.passed(call).filter(|(_, elsewhere)| *elsewhere);
        core.besiege(call);
        // Who waits for one group keeps no other, but what its transaction holds.
        core.locks.finish(call);
        let deadline = deadline.get_or_insert_with(|| core.host.timer.sleep(timeout));
        // Has somebody let go since it was seen held? Then there is nothing to wait for, but the time may be over all the same.
        let is_over = if core.locks.releases() == releases {
            let released = core.locks.released().map(|_| false).boxed_local();
            let mut wakers = vec![deadline.map(|()| true).boxed_local(), released];
            if let Some((group, _)) = &elsewhere {
                wakers.push(core.locks.wait(group, call).map(|()| false).boxed_local());
            }
            first_of(wakers).await
        } else {
            deadline.now_or_never().is_some()
        };
        if is_over {
            return Err(stop.into());
        }
    }
}

/// A verb answered with something that is not its answer: can't be, and says so instead of panicking.
pub(crate) fn unexpected() -> Error {
    Error::new(
        ErrorCode::Terminated,
        "The broker gave an answer that does not belong to the call. Reload the page, and please report it.",
    )
}
