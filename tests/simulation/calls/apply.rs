//! The verbs, told to the model.

use pocket_broker::error::ErrorCode;

use super::{Answer, Call, Wanted};
use crate::conformance::random::model::End;
use crate::conformance::random::seen::in_order;
use crate::model::{Model, Names};

/// The model does not come to what the call answered.
#[derive(Debug)]
pub(crate) struct Differs;

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
        let outcome = match (self, answer) {
            (Self::Begin(begin), Some(Answer::Begun(info))) => match model.reused(begin) {
                Some(open) if open == info.conversation_id => Ok(()),
                Some(_) => return Err(Differs),
                None => model.begin(names, begin, &info.conversation_id, now),
            },
            (Self::Begin(begin), _) => match model.reused(begin) {
                Some(_) => Ok(()),
                // Only what it says when it is not possible is of interest.
                None => model.begin(names, begin, &"".into(), now),
            },
            (Self::Send(ends, kind, bodies), _) => send(model, ends, kind, bodies, false),
            (Self::End(end, how, archive), _) => {
                let ended = model.world.end(end, *how);
                if let (Ok((discarded, archived)), Some(Answer::Ended(result))) = (&ended, answer)
                    && (result.discarded, result.archived) != (*discarded, if *archive { *archived } else { 0 })
                {
                    return Err(Differs);
                }
                ended.map(drop)
            }
            (Self::Timer(end, name, timeout, body), _) => {
                model.world.timer(end, name, timeout.map(|timeout| at + timeout), body).map(drop)
            }
            (Self::Receive(queue, wanted, top, _), answer) => receive(model, names, (*queue, wanted, *top), answer)?,
            (Self::Move(end, goal), _) => model.relocate(names, end, goal),
            (Self::SetState(end, state), _) => model.set_state(names, end, state),
            (Self::GetState(end), answer) => {
                let known = model.state(names, end);
                if let (Ok(known), Some(Answer::State(told))) = (&known, answer)
                    && known != told
                {
                    return Err(Differs);
                }
                known.map(drop)
            }
            (Self::Alter(queue, retention, on), _) => {
                retention.iter().for_each(|retention| model.world.retain(*queue, *retention));
                on.iter().for_each(|on| model.switch(*queue, *on));
                Ok(())
            }
            (Self::Fail(handles), _) => {
                handles.iter().filter_map(|handle| names.end_of(handle)).for_each(|end| model.fail(&end));
                Ok(())
            }
            (Self::Poll | Self::GetGroup(_), _) => Ok(()),
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
            (Self::Send(ends, kind, bodies), _) => send(model, ends, kind, bodies, true),
            (Self::End(end, how, _), _) => {
                let ended = model.world.end(end, *how).map(drop);
                model.forget_empty_groups(names);
                ended
            }
            (Self::Receive(..), Answer::Received(messages)) => match messages.first() {
                Some(first) => model.take(names, &first.conversation_group_id, &in_order(&names.handles, messages)),
                None => Ok(()),
            },
            (Self::GetState(_) | Self::GetGroup(_), _) => Ok(()),
            _ => {
                let outcome = self.apply(model, names, None, times);
                outcome.unwrap_or(Err(ErrorCode::Terminated))
            }
        }
    }

    /// Whether it is the commit of a transaction that was only given dialogs that were open already.
    pub(crate) fn is_idle(&self, model: &Model) -> bool {
        let is_open = |answer: &Answer| matches!(answer, Answer::Begun(info) if model.world.services.contains_key(&info.conversation_id));
        matches!(self, Self::Commit(done) if done.iter().all(|done| is_open(&done.answer)))
    }
}

fn send(
    model: &mut Model,
    ends: &[End],
    kind: &'static str,
    bodies: &[String],
    is_late: bool,
) -> Result<(), ErrorCode> {
    let mut after = model.world.clone();
    let shares: Vec<&[String]> = if ends.len() > 1 { bodies.chunks(1).collect() } else { vec![bodies] };
    // All are checked before the first is sent.
    for (end, share) in ends.iter().zip(&shares) {
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
    if !model.world.queues[queue].on {
        return Ok(Err(ErrorCode::QueueDisabled));
    }
    let is_here = |end: &End| model.world.sides.get(end).is_some_and(|side| side.queue() == queue);
    match wanted {
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
    let (group, taken) = (&first.conversation_group_id, in_order(&names.handles, messages));
    let could = match wanted {
        Wanted::Conversation(end) => model.world.sides.get(end).map_or(0, |side| side.unread().len()),
        Wanted::Anything | Wanted::Group(_) => model.unread_in(names, group),
    };
    if messages.len() != could.min(top.map_or(usize::MAX, |top| top as usize)) {
        return Err(Differs);
    }
    model.take(names, group, &taken).map_err(|_| Differs)?;
    Ok(Ok(()))
}
