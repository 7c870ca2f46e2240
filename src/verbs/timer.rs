//! BEGIN CONVERSATION TIMER.

use std::rc::Rc;

use super::wrong_state;
use crate::body::Body;
use crate::clock::Instant;
use crate::conversation::Timer;
use crate::core::Host;
use crate::definitions::MAX_NAME;
use crate::delayed::check_lifetime;
use crate::due::{self, Due};
use crate::error::{Error, Result};
use crate::stop::Outcome;
use crate::work::{Number, Work};

/// The last instant that a JavaScript Date has.
const LATEST: Instant = 8.64e15;

/// What a timer may have besides its time.
#[derive(Clone, Debug)]
pub struct TimerOptions {
    /// An endpoint has one timer of each name. Default "".
    pub name: Rc<str>,
    /// The body of the DialogTimer. The npm package makes `{ name, body }` of what the application gives, before that is cloned and packed.
    pub body: Body,
}

impl Default for TimerOptions {
    fn default() -> Self {
        Self { name: "".into(), body: Body::none() }
    }
}

/// BEGIN CONVERSATION TIMER on the endpoint with a handle. The time counts from the call, however long the call has to wait.
#[derive(Debug)]
pub(crate) struct BeginTimer {
    handle: Rc<str>,
    /// `None` cancels.
    at: Option<Instant>,
    timeout: f64,
    options: TimerOptions,
}

impl BeginTimer {
    pub(crate) fn new(host: &Host, handle: &str, timeout: Option<f64>, options: TimerOptions) -> Self {
        let at = timeout.map(|timeout| host.clock.now() + timeout);
        Self { handle: handle.into(), at, timeout: timeout.unwrap_or(0.0), options }
    }

    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        if !(self.timeout >= 0.0 && self.timeout.is_finite()) {
            return Err(Error::invalid_argument(
                "timeout",
                "is neither a number of milliseconds from 0 on nor null, which cancels the timer",
            ));
        }
        if self.at.is_some_and(|at| at > LATEST) {
            return Err(Error::invalid_argument("timeout", "leads beyond the last instant that a Date has"));
        }
        if self.options.name.chars().take(MAX_NAME + 1).count() > MAX_NAME {
            return Err(Error::invalid_argument("name", "is longer than 128 characters"));
        }
        Ok(())
    }

    pub(crate) fn handle(&self) -> &str {
        &self.handle
    }

    pub(crate) fn size(&self) -> f64 {
        self.options.body.size
    }

    /// Replaces the timer of this name, or cancels it.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<()> {
        let (mut conversation, role) = work.endpoint(&self.handle)?;
        work.lock(&conversation.group(role))?;
        let id = conversation.id_of(role);
        let Some(state) = conversation.side(role).map(|side| side.state) else {
            return Err(work.not_found(&self.handle).into());
        };
        if !state.may_have_timer() {
            let error = wrong_state("TIMER", 8458, &conversation, role, state, "This side has ended.");
            return Err(work.at_commit(error).into());
        }
        if let Some(at) = self.at {
            check_lifetime(work, &conversation, &self.handle, at, "The timer would fire")?;
        }

        let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
        let before = side.timers.iter().position(|timer| timer.name == self.options.name);
        let before = before.map(|index| side.timers.remove(index));
        let begun = match self.at {
            Some(at) => {
                let timer = Timer { name: Rc::clone(&self.options.name), at, stamp: work.claim(Number::Stamp, 1)? };
                side.timers.push(timer.clone());
                Some(timer)
            }
            None => None,
        };
        if before.is_none() && begun.is_none() {
            return Ok(());
        }
        before.iter().for_each(|timer| work.drop_due(&Due::timer(id, timer)));
        if let Some(timer) = &begun {
            work.put_due(&Due::timer(id, timer), due::timer_record(id, &timer.name, &self.options.body));
        }
        work.save(conversation);
        Ok(())
    }
}
