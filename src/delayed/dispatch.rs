//! What is due is sent, or put into its queue: "as if sent then".

use std::rc::Rc;

use super::{Delayed, Place, To};
use crate::arrival;
use crate::conversation::State;
use crate::due;
use crate::error::{Error, ErrorCode};
use crate::error_queue::{self, FailedAt};
use crate::ids::{SideId, text};
use crate::lane::{Lane, ROLE};
use crate::message::{Row, count};
use crate::recoverability::Thrown;
use crate::stop::{Outcome, Stop};
use crate::verbs::send;
use crate::waits;
use crate::work::Work;

/// The first wait of a message whose sender's queue is off, and the longest.
const WAIT: f64 = 1_000.0;
pub(crate) const LONGEST_WAIT: f64 = 60_000.0;

/// Messages of one destination go there. Gives how many.
pub(super) fn dispatch(work: &mut Work<'_>, run: &[Delayed]) -> Outcome<u64> {
    let Some(to) = run.first().map(|delayed| &delayed.to) else { return Ok(0) };
    match to {
        To::Conversation(handle) => {
            leave(work, to.side(), count(run.len())).map_err(|stop| stop.about(handle))?;
            on_conversation(work, handle, run)
        }
        To::Lane { queue, .. } => match work.look_up(|catalog| catalog.queue(queue)) {
            Ok(_) => into_lane(work, to, run),
            Err(Stop::Failed(error)) => {
                let error = Error::new(
                    error.code(),
                    format!(
                        "There is no queue \"{queue}\" for the delayed message: it was dropped, or never was. Define it and return the message."
                    ),
                );
                fail(work, run, &error)
            }
            Err(stop) => Err(stop),
        },
    }
}

/// So many of an endpoint are no longer under way.
pub(super) fn leave(work: &mut Work<'_>, side: Option<SideId>, count: u64) -> Outcome<()> {
    let Some(id) = side else { return Ok(()) };
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    if let Some(side) = conversation.side_mut(id.role) {
        side.delayed = side.delayed.saturating_sub(count);
        work.save(conversation);
    }
    Ok(())
}

fn on_conversation(work: &mut Work<'_>, handle: &Rc<str>, run: &[Delayed]) -> Outcome<u64> {
    let Some((conversation, role)) = work.find(handle)? else {
        let text = format!("The conversation {handle} is gone, so the delayed message could not be sent on it.");
        return fail(work, run, &Error::new(ErrorCode::ConversationNotFound, text));
    };
    let Some(side) = conversation.side(role).cloned() else { return Ok(0) };
    let own = work.queue_of(side.service)?;
    if !side.state.may_send() {
        let ended = if side.state == State::Error { "has failed" } else { "was ended" };
        let text = format!(
            "The conversation {handle} {ended} before the delayed message was due, so it could not be sent on it. Send what it says on another one."
        );
        return fail(work, run, &Error::new(ErrorCode::InvalidState, text).numbered(8429));
    }
    if own.retention && !own.enqueue_enabled {
        // SEND would be refused: what is sent can't be kept. They go when the queue is on again.
        run.iter().try_for_each(|delayed| wait(work, delayed))?;
        return Ok(0);
    }
    let rows = rows(work, run);
    send(work, conversation, role, rows)?;
    work.changes.counts.delayed_dispatched += count(run.len());
    Ok(count(run.len()))
}

fn into_lane(work: &mut Work<'_>, to: &To, run: &[Delayed]) -> Outcome<u64> {
    let Some((lane, service)) = lane(work, to) else { return Ok(0) };
    let mut conversation = lane.open(work, &service)?;
    let rows = rows(work, run);
    arrival::arrive(work, &mut conversation, ROLE, rows, false)?;
    work.save(conversation);
    work.changes.counts.delayed_dispatched += count(run.len());
    Ok(count(run.len()))
}

/// The lane, and the name of its service.
pub(crate) fn lane(work: &Work<'_>, to: &To) -> Option<(Lane, Rc<str>)> {
    let To::Lane { queue, key, priority } = to else { return None };
    let service = work.catalog.service(queue).ok()?;
    Some((Lane { service: service.number, priority: *priority, key: key.clone() }, Rc::clone(&service.name)))
}

/// As they go: at their destination they are as old as this commit.
fn rows(work: &Work<'_>, run: &[Delayed]) -> Vec<Row> {
    run.iter().map(|delayed| delayed.row(work.now)).collect()
}

/// Puts a message back, to be tried again: later each time, and behind what is due by then.
fn wait(work: &mut Work<'_>, delayed: &Delayed) -> Outcome<()> {
    let stamp = waits::begin(work)?;
    work.change_numbers(|numbers| numbers.delayed += 1)?;
    if let Some(handle) = delayed.handle()
        && let Some((mut conversation, role)) = work.find(handle)?
    {
        if let Some(side) = conversation.side_mut(role) {
            side.delayed += 1;
        }
        work.save(conversation);
    }
    let doubled = crate::record::float(1 << delayed.waits.min(6));
    let at = (work.now + (WAIT * doubled).min(LONGEST_WAIT)).ceil();
    let row = due::Due { at, stamp, kind: due::DueKind::PutBack, number: 0 };
    work.put_due(&row, due::put_back_record(work.now));
    let put_back = Delayed { place: Place { at, stamp }, is_named: true, waits: delayed.waits + 1, ..delayed.clone() };
    work.shift(put_back.id, None, Some(put_back));
    Ok(())
}

/// They can't go where they were to go: to the error queue, at once.
pub(super) fn fail(work: &mut Work<'_>, run: &[Delayed], error: &Error) -> Outcome<u64> {
    run.iter().try_for_each(|delayed| fail_one(work, delayed, error, 1))?;
    Ok(0)
}

/// The same of one, after so many attempts.
pub(super) fn fail_one(work: &mut Work<'_>, delayed: &Delayed, error: &Error, attempts: u64) -> Outcome<()> {
    let (queue, handle, lane) = match &delayed.to {
        To::Lane { queue, key, priority } => (Rc::clone(queue), "".into(), Some((key.clone(), *priority))),
        To::Conversation(handle) => (Rc::clone(handle), Rc::clone(handle), None),
    };
    let failed = FailedAt {
        queue,
        handle,
        lane,
        sequence: 0,
        attempts,
        error: Thrown {
            name: "BrokerError".into(),
            message: error.to_string().into(),
            code: Some(error.code().name().into()),
        },
        stack: "".into(),
        endpoint: Rc::clone(&work.core.host.name),
        at: work.now,
        was_delayed: true,
    };
    let row = delayed.row(work.now);
    work.changes.notice.failed.push(failed.notice(text(row.id)));
    error_queue::put(work, failed, row)
}
