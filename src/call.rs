//! What is asked of a broker or of a transaction, on its way to the verb.

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::text;
use crate::stop::{Outcome, Stop};
use crate::verbs::{BeginDialog, Begun, Verb};

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

/// Runs a verb; when it finds its group held, waits for a release and runs it again, at most until the time is over.
pub(crate) async fn wait_for_group<T>(
    core: &Core,
    timeout: f64,
    mut attempt: impl AsyncFnMut() -> Outcome<T>,
) -> Result<T> {
    let mut deadline = None;
    loop {
        let releases = core.locks.releases();
        let stop = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(stop) => stop,
        };
        let Stop::Held(_) = &stop else { return Err(stop.into()) };
        let deadline = deadline.get_or_insert_with(|| core.host.timer.sleep(timeout));
        // Has somebody let go since it was seen held? Then there is nothing to wait for, but the time may be over all the same.
        let is_over = if core.locks.releases() == releases {
            matches!(select(deadline, core.locks.released()).await, Either::Left(_))
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
