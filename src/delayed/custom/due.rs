//! What is due in the store: fetched, dispatched, removed.

use std::rc::Rc;

use uuid::Uuid;

use super::calls::{ask, ask_to_the_end};
use super::dispatch::{Arrive, Arrived, Incoming};
use super::memory::Removed;
use super::poller::{Round, back_off, pause};
use super::step::{Came, Step};
use super::{DelayedMessage, DelayedMessageStore, Fetched};
use crate::clock::Instant;
use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};
use crate::map::Map;

/// The wait when a store gives one message again and again.
const REPEATED: f64 = 1_000.0;
/// At most so many things that are no messages are passed over at once.
const STRANGE: usize = 64;
/// So many messages that failed are counted here.
const COUNTED: usize = 1_024;

/// Fetches until there is nothing, dispatching one after the other. Gives a pause, if it has to stop before.
pub(super) async fn fetch_all(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    round: &mut Round,
) -> Result<Option<f64>> {
    let mut removed = Removed::default();
    let mut had: Map<Rc<str>, ()> = Map::default();
    let mut passed: Vec<Error> = Vec::new();
    let outcome = loop {
        if !core.is_open() {
            break Ok(None);
        }
        let when = (core.host.pulse.clock.now(), core.gate.closings());
        let at = core.host.clock.now();
        let fetched = match ask(core, "fetchNextDueTimeout", store.fetch_next_due_timeout(at)).await {
            Ok(fetched) => fetched,
            Err(error) => break Err(error),
        };
        // Nothing is not a success yet: `next` is still to come.
        let Some((incoming, message)) = read(fetched) else { break Ok(None) };
        let is_early = matches!(incoming, Incoming::Message(_)) && message.time > at;
        if is_early {
            // A message that has not come to its time is none that is due, whatever the store says.
            let error = early(&message);
            let _ = ask(core, "release", store.release(message)).await;
            break Err(error);
        }
        if let Incoming::Unreadable { id: None, problem, .. } = &incoming
            && core.stored.strange.replace(Some(Rc::clone(problem))).as_ref() == Some(problem)
        {
            // It is in the error queue already, and can't be told from others like it. What is behind it is to have its turn.
            passed.push(strange(problem));
            match passed.len() {
                STRANGE.. => break Ok(None),
                _ => continue,
            }
        }
        let is_repeated = had.insert(Rc::clone(&message.message_id), ()).is_some();
        match take(core, store, (incoming, when), message, &mut removed, round).await {
            Ok(()) => {}
            Err(Left::Closed) => break Ok(None),
            Err(Left::Waits(error)) => round.problem = round.problem.take().or(Some(error)),
            Err(Left::Stuck(error)) => {
                round.problem = round.problem.take().or(Some(error));
                break Ok(Some(REPEATED));
            }
        }
        if is_repeated {
            break Ok(Some(REPEATED));
        }
    };
    let noted = if removed.0.is_empty() { Ok(Came::Nothing) } else { core.step(Step::Removed(removed)).await };
    core.stored.in_hand.take();
    noted?;
    match passed.pop() {
        Some(error) if outcome.is_ok() => Err(error),
        _ => outcome,
    }
}

/// What was fetched, if anything was, as the rules know it and as the store does.
fn read(fetched: Fetched) -> Option<(Incoming, DelayedMessage)> {
    Some(match fetched {
        Fetched::Nothing => return None,
        Fetched::Message(message) => match message.read() {
            Ok(delayed) => (Incoming::Message(Rc::new(delayed)), message),
            Err(problem) => {
                let id = Uuid::try_parse(&message.message_id).ok();
                (Incoming::Unreadable { raw: message.body.clone(), id, problem: problem.into() }, message)
            }
        },
        Fetched::Unreadable { raw, message_id, problem } => {
            let message = DelayedMessage::with_id(message_id.clone().unwrap_or_default());
            let id = message_id.and_then(|id| Uuid::try_parse(&id).ok());
            (Incoming::Unreadable { raw, id, problem }, message)
        }
    })
}

fn strange(problem: &str) -> Error {
    let text = format!(
        "The delayed message store goes on giving something that is no message and has no UUID as its `messageId`: {problem}. It lies in the error queue as it is; take it out of the store."
    );
    Error::new(ErrorCode::DelayedStoreFailed, text)
}

fn early(message: &DelayedMessage) -> Error {
    let text = format!(
        "The delayed message store has given the message {} before its time. `fetchNextDueTimeout(at)` must give messages whose `time` is not after `at`.",
        message.message_id
    );
    Error::new(ErrorCode::DelayedStoreFailed, text).with("messageId", &*message.message_id)
}

/// Why a message is still in the store.
enum Left {
    Closed,
    /// It is due again later.
    Waits(Error),
    /// Nor could that be said to the store.
    Stuck(Error),
}

/// Dispatches one message and has it removed.
async fn take(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    (incoming, fetched): (Incoming, (Instant, u64)),
    message: DelayedMessage,
    removed: &mut Removed,
    round: &mut Round,
) -> Result<(), Left> {
    let settings = &core.host.delayed;
    let id = Uuid::try_parse(&message.message_id).ok();
    let arrive = |refused| Arrive {
        incoming: incoming.clone(),
        refused,
        mode: settings.mode,
        removed: Removed(Vec::new()),
        fetched,
    };
    if id.is_some_and(|id| core.stored.lingering.borrow().contains(&id)) {
        return remove(core, store, id, message, removed).await;
    }
    core.stored.in_hand.borrow_mut().extend(id);
    let first = Arrive { removed: Removed(std::mem::take(&mut removed.0)), ..arrive(None) };
    let noted = first.removed.clone();
    let arrived = match core.step(Step::Arrive(first)).await {
        Ok(came) => came,
        Err(error) => {
            // Nothing was noted.
            removed.0 = noted.0;
            if error.code() == ErrorCode::Closed {
                let _ = ask_to_the_end(core, "release", store.release(message)).await;
                return Err(Left::Closed);
            }
            let wait = pause(core, &core.stored.dispatch, settings.dispatch_breaker, "dispatch", &error);
            let attempts = attempt(core, id, message.number_of_retries);
            if attempts <= settings.number_of_retries {
                return Err(put_off(core, store, message, wait.max(back_off(core, attempts - 1)), error).await);
            }
            match core.step(Step::Arrive(arrive(Some((error.clone(), attempts))))).await {
                Ok(came) => came,
                // Not even the error queue takes it: it stays.
                Err(_) => {
                    return Err(put_off(core, store, message, wait.max(back_off(core, attempts - 1)), error).await);
                }
            }
        }
    };
    let moved = match arrived {
        Came::Arrived(Arrived::Done(moved)) => moved,
        // The pump tells the store at once, and then lets go of it. Until then it comes not again.
        Came::Arrived(Arrived::Moved) => {
            let mut moved = core.stored.moved.borrow_mut();
            moved.retain(|other| other.message_id != message.message_id);
            moved.push(message);
            drop(moved);
            core.pump_by();
            return Ok(());
        }
        _ => return Ok(()),
    };
    // What came of it came, whatever the store answers.
    round.moved += moved;
    remove(core, store, id, message, removed).await
}

/// Has the store remove what was dispatched.
async fn remove(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    id: Option<Uuid>,
    message: DelayedMessage,
    removed: &mut Removed,
) -> Result<(), Left> {
    let settings = &core.host.delayed;
    let answer = ask_to_the_end(core, "remove", store.remove(message.clone())).await;
    note_lingering(core, id, answer.is_err() && !settings.mode.remembers());
    match answer {
        Ok(_) => {
            core.stored.dispatch.success();
            removed.0.extend(id);
            id.into_iter().for_each(|id| _ = core.stored.attempts.borrow_mut().remove(&id));
            Ok(())
        }
        Err(error) => {
            let wait = pause(core, &core.stored.dispatch, settings.dispatch_breaker, "dispatch", &error);
            let attempts = attempt(core, id, message.number_of_retries);
            Err(put_off(core, store, message, wait.max(back_off(core, attempts - 1)), error).await)
        }
    }
}

/// Whether a message that was dispatched is still in the store, and nothing else says that it was.
fn note_lingering(core: &Core, id: Option<Uuid>, lingers: bool) {
    let mut lingering = core.stored.lingering.borrow_mut();
    lingering.retain(|other| Some(*other) != id);
    if lingers {
        lingering.extend(id);
        let first = lingering.len().saturating_sub(COUNTED);
        lingering.drain(..first);
    }
}

/// How often a message was tried by now, this time included. A store that does not count is not believed.
fn attempt(core: &Core, id: Option<Uuid>, counted: u64) -> u64 {
    let mut attempts = core.stored.attempts.borrow_mut();
    let Some(id) = id else { return counted + 1 };
    if attempts.len() >= COUNTED {
        *attempts = Map::default();
    }
    let known = attempts.get(&id).copied().unwrap_or_default();
    let attempt = known.max(counted) + 1;
    attempts.insert(id, attempt);
    attempt
}

/// The message is due again later, and holds up nobody.
async fn put_off(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    message: DelayedMessage,
    wait: f64,
    error: Error,
) -> Left {
    let next_attempt = (core.host.clock.now() + wait).ceil();
    let counting = store.increment_failure_count(message, next_attempt);
    match ask_to_the_end(core, "incrementFailureCount", counting).await {
        Ok(_) => Left::Waits(error),
        Err(failure) => {
            if core.stored.rate.failure(core.host.clock.now(), core.host.delayed.recovery_failures) {
                core.warn("recovery", (&failure).into());
            }
            Left::Stuck(error)
        }
    }
}
