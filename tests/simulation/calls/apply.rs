//! The verbs, told to the model.

use pocket_broker::error::ErrorCode;

use super::{Answer, Call, Later, Wanted};
use pocket_broker::Message;

use crate::conformance::random::model::{End, Row, Side};
use crate::model::{Model, Names, may_give};

/// The model does not come to what the call answered.
#[derive(Debug)]
pub(crate) struct Differs(#[allow(dead_code, reason = "it is shown")] pub(crate) String);

impl Call {
    /// The model makes it too and must come to the same answer; without an answer, whatever the model says is right.
    /// `at`: when it was called, for what counts from then.
    pub(crate) fn apply(
        &self,
        model: &mut Model,
        names: &Names,
        answer: Option<&Answer>,
        (at, now): (f64, f64),
    ) -> Result<Result<(), ErrorCode>, Differs> {
        let resolve = |model: &mut Model, end: &End| model.resolve(names, end);
        let outcome = match (self, answer) {
            (Self::Begin(begin), Some(Answer::Begun(info))) => match model.reused(begin) {
                Some(open) if open == info.conversation_id => Ok(()),
                Some(open) => return Err(Differs(format!("{open} is open"))),
                None => model.begin(names, begin, &info.conversation_id, now),
            },
            (Self::Begin(begin), _) => match model.reused(begin) {
                Some(_) => Ok(()),
                // Only what it says when it is not possible is of interest.
                None => model.clone().begin(names, begin, &"".into(), now),
            },
            (Self::Send(ends, kind, bodies), _) => send(model, names, ends, kind, bodies, false),
            (Self::End(end, how, archive), _) => {
                let end = resolve(model, end);
                let ended = model.end(&end, *how);
                if let (Ok((discarded, archived)), Some(Answer::Ended(result))) = (&ended, answer)
                    && (result.discarded, result.archived) != (*discarded, if *archive { *archived } else { 0 })
                {
                    return Err(Differs(format!("{ended:?}")));
                }
                ended.map(drop)
            }
            (Self::Timer(end, name, timeout, body), _) => {
                let end = resolve(model, end);
                model.world.timer(&end, name, timeout.map(|timeout| at + timeout), body).map(drop)
            }
            (Self::Receive(queue, wanted, top, _), answer) => receive(model, names, (*queue, wanted, *top), answer)?,
            (Self::Move(end, goal), _) => {
                let end = resolve(model, end);
                model.relocate(names, &end, goal)
            }
            (Self::SetState(end, state), _) => {
                let end = resolve(model, end);
                model.set_state(names, &end, state)
            }
            (Self::GetState(end), answer) => {
                let end = resolve(model, end);
                let known = model.state(names, &end);
                if let (Ok(known), Some(Answer::State(told))) = (&known, answer)
                    && known != told
                {
                    return Err(Differs(format!("it is {known:?}")));
                }
                known.map(drop)
            }
            (Self::Alter(queue, ..), _) if !model.is_there(*queue) => Err(ErrorCode::QueueNotFound),
            (Self::Alter(queue, retention, on), _) => {
                retention.iter().for_each(|retention| model.world.retain(*queue, *retention));
                on.iter().for_each(|on| model.switch(*queue, *on));
                Ok(())
            }
            (Self::Fail(handles), _) => {
                for end in handles.iter().filter_map(|handle| names.end_of(handle)) {
                    let end = resolve(model, &end);
                    model.fail(&end);
                }
                Ok(())
            }
            (Self::Recover(failed), answer) => {
                let answer = if let Some(Answer::Recovered(answer)) = answer { Some(answer) } else { None };
                model.recover(names, failed, answer, now)?;
                Ok(())
            }
            (Self::Enqueue(enqueue), answer) => {
                let seen = model.enqueue(enqueue, now);
                if let (Ok(seen), Some(Answer::Seen(told))) = (&seen, answer)
                    && seen != told
                {
                    return Err(Differs(format!("the id is known: {seen}")));
                }
                seen.map(drop)
            }
            (Self::Later(later), answer) => later.apply(model, names, answer, (now, false))?,
            (Self::Resume, _) => {
                model.resume();
                Ok(())
            }
            (Self::MoveService(service, queue), _) => model.move_service(*service, *queue),
            (Self::DropService(service), _) => model.drop_service(*service),
            (Self::DropBin, _) => model.drop_bin(),
            (Self::Define(service), _) => model.define(*service, now),
            // Which messages left the error queue is guessed.
            (Self::Poll | Self::GetGroup(_) | Self::Unbury(_), _) => Ok(()),
            (Self::Commit(done), _) => {
                let mut after = model.clone();
                let outcome =
                    done.iter().try_for_each(|done| done.call.commit(&mut after, names, &done.answer, (done.at, now)));
                if outcome.is_ok() {
                    *model = after;
                }
                outcome
            }
        };
        model.forget_empty_groups(names);
        Ok(outcome)
    }

    /// What a transaction has done comes true.
    fn commit(&self, model: &mut Model, names: &Names, answer: &Answer, times: (f64, f64)) -> Result<(), ErrorCode> {
        match (self, answer) {
            (Self::Begin(begin), Answer::Begun(info)) => match model.reused(begin) {
                Some(open) if open == info.conversation_id => Ok(()),
                // It was open when the transaction was given it.
                _ if model.world.services.contains_key(&info.conversation_id) => Ok(()),
                Some(_) => Err(ErrorCode::Conflict),
                None => model.begin(names, begin, &info.conversation_id, times.1),
            },
            (Self::Send(ends, kind, bodies), _) => send(model, names, ends, kind, bodies, true),
            (Self::End(end, how, _), _) => {
                let end = model.resolve(names, end);
                let ended = model.end(&end, *how).map(drop);
                model.forget_empty_groups(names);
                ended
            }
            (Self::Receive(..), Answer::Received(messages)) => match messages.first() {
                Some(first) => {
                    let taken = model.rows_of(names, messages);
                    model.take(names, &first.conversation_group_id, &taken)
                }
                None => Ok(()),
            },
            (Self::GetState(_) | Self::GetGroup(_), _) => Ok(()),
            (Self::Later(later), answer) => {
                let outcome = later.apply(model, names, Some(answer), (times.1, true));
                outcome.unwrap_or(Err(ErrorCode::Terminated))
            }
            _ => {
                let outcome = self.apply(model, names, None, times);
                outcome.unwrap_or(Err(ErrorCode::Terminated))
            }
        }
    }

    /// Whether it is the commit of a transaction that was only given dialogs that were open already, or finds nothing to cancel.
    pub(crate) fn is_idle(&self, model: &Model, answer: &Answer) -> bool {
        if let Self::Later(later) = self {
            return later.is_idle(model, answer);
        }
        let is_open = |answer: &Answer| matches!(answer, Answer::Begun(info) if model.world.services.contains_key(&info.conversation_id));
        matches!(self, Self::Commit(done) if done.iter().all(|done| is_open(&done.answer)))
    }
}

fn send(
    model: &mut Model,
    names: &Names,
    ends: &[End],
    kind: &'static str,
    bodies: &[String],
    is_late: bool,
) -> Result<(), ErrorCode> {
    let mut after = model.world.clone();
    let shares: Vec<&[String]> = if ends.len() > 1 { bodies.chunks(1).collect() } else { vec![bodies] };
    // All are checked before the first is sent.
    for (end, share) in ends.iter().zip(&shares) {
        let end = &model.resolve(names, end);
        if model.is_lane(end) {
            // Nobody is at its other end.
            return Err(ErrorCode::InvalidState);
        }
        model.world.clone().send(end, kind, share, is_late)?;
    }
    ends.iter().zip(shares).try_for_each(|(end, share)| {
        let is_late = is_late || after.sides.get(end).is_some_and(|side| !["SO", "CO"].contains(&side.state));
        after.send(end, kind, share, is_late)
    })?;
    model.world = after;
    Ok(())
}

fn receive(
    model: &mut Model,
    names: &Names,
    (queue, wanted, top): (usize, &Wanted, Option<u32>),
    answer: Option<&Answer>,
) -> Result<Result<(), ErrorCode>, Differs> {
    if !model.is_there(queue) {
        return Ok(Err(ErrorCode::QueueNotFound));
    }
    if !model.world.queues[queue].on {
        return Ok(Err(ErrorCode::QueueDisabled));
    }
    let wanted = wanted.resolved(model, names);
    let is_here = |end: &End| model.world.sides.get(end).is_some_and(|side| side.queue == queue);
    match &wanted {
        Wanted::Conversation(end) if !is_here(end) => return Ok(Err(ErrorCode::ConversationNotFound)),
        Wanted::Group(group)
            if !model.world.sides.keys().any(|end| is_here(end) && names.group_of(&model.world, end) == *group) =>
        {
            return Ok(Err(ErrorCode::GroupNotFound));
        }
        _ => {}
    }
    let Some(Answer::Received(messages)) = answer else { return Ok(Ok(())) };
    let Some(first) = messages.first() else { return Ok(Ok(())) };
    let (group, taken) = (&first.conversation_group_id, model.rows_of(names, messages));
    let sides = || taken.iter().filter_map(|(end, rows)| Some((model.world.sides.get(end)?, rows)));
    let is_named = matches!(wanted, Wanted::Conversation(_));
    let priority = |side: &Side| side.lane.as_ref().map_or(5, |lane| lane.priority);
    let ready = || model.world.sides.values().filter(|side| side.queue == queue && may_give(side));
    let highest = ready().filter(|side| !side.unread().is_empty()).map(priority).max();
    if matches!(wanted, Wanted::Next) && model.has_bin && sides().next().map(|(side, _)| priority(side)) != highest {
        return Err(Differs(format!("there is something of priority {highest:?}")));
    }
    if !is_named && sides().any(|(side, _)| side.queue != queue || !may_give(side)) {
        return Err(Differs(format!("it is not their turn: {taken:?}")));
    }
    let could = match &wanted {
        Wanted::Conversation(end) => model.world.sides.get(end).map_or(0, |side| side.unread().len()),
        Wanted::Anything | Wanted::Next | Wanted::Group(_) => model.unread_in(names, group),
    };
    if messages.len() != could.min(top.map_or(usize::MAX, |top| top as usize))
        || !shows_attempts(model, &taken, messages)
    {
        return Err(Differs(format!("there are {could} rows, and {taken:?}")));
    }
    model.take(names, group, &taken).map_err(|code| Differs(format!("{code:?} for {taken:?}")))?;
    Ok(Ok(()))
}

/// Whether rows say how often they were tried.
fn shows_attempts(model: &Model, taken: &[(End, Vec<Row>)], messages: &[Message]) -> bool {
    let rows = taken.iter().flat_map(|(end, rows)| rows.iter().map(move |row| (end, row)));
    rows.zip(messages).all(|((end, row), message)| {
        let retry = model.world.sides.get(end).and_then(|side| side.retry.as_ref()).filter(|retry| retry.row == *row);
        (message.attempts, message.last_error.as_deref())
            == (retry.map_or(0, |retry| retry.attempts), retry.map(|retry| &*retry.error))
    })
}

impl Wanted {
    /// The conversation as the model calls it.
    pub(crate) fn resolved(&self, model: &mut Model, names: &Names) -> Self {
        match self {
            Self::Conversation(end) => Self::Conversation(model.resolve(names, end)),
            wanted => wanted.clone(),
        }
    }
}

// ── what the model can't know ──

impl Call {
    /// Whether a call may have been refused for something that the model does not see: which life of a lane a handle is of, as long as nobody was
    /// told another one; what a tab remembers of the definitions, where nothing comes of it; and whether a message that came back from the error queue is the one that was received.
    pub(crate) fn may_be_refused(&self, model: &Model, names: &Names, code: ErrorCode) -> bool {
        let codes = [ErrorCode::ConversationNotFound, ErrorCode::GroupNotFound, ErrorCode::TransactionClosed];
        if code == ErrorCode::ConversationNotFound && self.names_what_is_gone(model) {
            return true;
        }
        if code == ErrorCode::Conflict && model.is_elsewhere && self.changes_what_is_delayed() {
            // It has gone from the hop into the store since it was seen.
            return true;
        }
        codes.contains(&code) && self.ends().iter().any(|end| is_unsure(model, names, end))
            || codes.contains(&code) && self.received().any(|message| has_come_back(model, message))
    }

    /// It may say so before it says something of the definitions: it sends to somebody who is not there, or begins a dialog at a service that is
    /// gone, related to a conversation that went with it.
    fn names_what_is_gone(&self, model: &Model) -> bool {
        match self {
            Self::Send(ends, ..) | Self::Later(Later::Send(ends, ..)) => {
                ends.iter().any(|end| !model.world.sides.contains_key(end))
            }
            Self::Begin(begin) => begin.related_end().is_some() && model.world.queue_of(begin.from).is_none(),
            Self::Commit(done) => done.iter().any(|done| done.call.names_what_is_gone(model)),
            _ => false,
        }
    }

    /// Whether a transaction cancels or moves a delayed message.
    fn changes_what_is_delayed(&self) -> bool {
        let is_change = |call: &Call| matches!(call, Self::Later(Later::Cancel(..) | Later::Reschedule(..)));
        matches!(self, Self::Commit(done) if done.iter().any(|done| is_change(&done.call)))
    }

    /// The ends that it names.
    fn ends(&self) -> Vec<End> {
        match self {
            Self::Send(ends, ..) | Self::Later(Later::Send(ends, ..)) => ends.clone(),
            Self::End(end, ..) | Self::Timer(end, ..) | Self::SetState(end, _) | Self::GetState(end) => {
                vec![end.clone()]
            }
            Self::Move(end, crate::model::Goal::Beside(other)) => vec![end.clone(), other.clone()],
            Self::Move(end, _) | Self::Receive(_, Wanted::Conversation(end), ..) => vec![end.clone()],
            Self::Begin(begin) => begin.related_end().into_iter().collect(),
            Self::Commit(done) => {
                let received = self.received().map(|message| (message.conversation_handle.clone(), false));
                done.iter().flat_map(|done| done.call.ends()).chain(received).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a transaction has received.
    fn received(&self) -> impl Iterator<Item = &Message> {
        let done = if let Self::Commit(done) = self { done.as_slice() } else { &[] };
        done.iter().flat_map(|done| match &done.answer {
            Answer::Received(messages) => messages.as_slice(),
            _ => &[],
        })
    }
}

/// Nobody has told the model whether this is the lane as it is now.
fn is_unsure(model: &Model, names: &Names, end: &End) -> bool {
    let is_bound = |lane: &crate::conformance::random::lane::Lane| lane.handle.as_ref() == Some(&end.0);
    names.lanes.contains_key(&end.0) && !model.world.sides.values().any(|side| side.lane.as_ref().is_some_and(is_bound))
}

fn has_come_back(model: &Model, message: &Message) -> bool {
    let body = message.body.text();
    let is_it = |row: &Row| row.returned.is_some() && Some(&row.body) == body.as_ref();
    model.world.sides.values().any(|side| side.rows.iter().any(is_it))
}
