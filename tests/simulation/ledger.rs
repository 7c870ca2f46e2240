//! The simplest bookkeeping: what was sent, what was received. It knows no states and no order of commits, and so gives a plain name to what the
//! search can only call unexplained.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pocket_broker::Message;

use pocket_broker::Delay;

use crate::calls::{Answer, Call, Later};
use crate::conformance::random::model::{ERROR, End, Ending, PLACES, SERVICES, other};
use crate::conformance::support::shop::show_message;
use crate::failing::Unbury;
use crate::history::{Outcome, Record};
use crate::look::Look;
use crate::model::Names;
use crate::origin::{Kind, Violation};

#[derive(Default)]
pub(crate) struct Ledger {
    received: BTreeSet<Rc<str>>,
    /// Messages that may have been in the error queue: they come back with their numbers, ahead of others.
    failed: BTreeSet<Rc<str>>,
    bodies: BTreeSet<String>,
    /// The sender and the body.
    sent: Vec<(End, String)>,
    /// The queue and the body of what was put into a lane.
    enqueued: Vec<(usize, String)>,
    /// Bodies that were thrown away on purpose; all may have been.
    discarded: BTreeSet<String>,
    may_discard: bool,
    /// Queues that somebody may have received from without hearing what.
    unsure: BTreeSet<usize>,
    /// The earliest that delayed messages may come, by their bodies.
    due: BTreeMap<String, f64>,
    /// Those that were to come at another time since.
    moved: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    /// The clock is set now and then, so a delay says little.
    has_jumps: bool,
}

impl Ledger {
    pub(crate) fn new(has_jumps: bool) -> Self {
        Self { has_jumps, ..Self::default() }
    }

    /// Writes down what is certain.
    pub(crate) fn enter(&mut self, records: &[Record]) -> Result<(), Violation> {
        for record in records {
            self.note_losses(&record.call);
            if let Some(Outcome::Answer(answer)) = &record.outcome {
                self.note_delays(&record.call, answer, record.at);
            }
        }
        for record in records {
            match &record.outcome {
                Some(Outcome::Answer(answer)) => self.note(&record.call, answer)?,
                Some(Outcome::Unknown) => self.doubt(&record.call),
                _ => {}
            }
        }
        match self.cancelled.iter().find(|body| self.bodies.contains(*body)) {
            Some(body) => Err(Violation { kind: Kind::Revived, text: format!("{body} came, and was cancelled") }),
            None => Ok(()),
        }
    }

    /// What a store has refused for good comes to the error queue before its time, and back from there.
    pub(crate) fn note_refused(&mut self, refused: impl Iterator<Item = Rc<str>>, names: &Names) {
        self.moved.extend(refused.filter_map(|id| names.ids.get(&id).cloned()));
    }

    /// When delayed messages may come at the earliest.
    fn note_delays(&mut self, call: &Call, answer: &Answer, at: f64) {
        match (call, answer) {
            (Call::Commit(done), _) => done.iter().for_each(|done| self.note_delays(&done.call, &done.answer, done.at)),
            (Call::Later(Later::Cancel(_, body)), Answer::Was(true)) => _ = self.cancelled.insert(body.clone()),
            (Call::Later(later @ (Later::Send(.., delay) | Later::Enqueue(_, delay))), _) if !self.has_jumps => {
                let due = match delay {
                    Delay::After(ms) => at + ms,
                    Delay::At(at) => *at,
                };
                self.due.extend(later.bodies().into_iter().map(|body| (body.to_owned(), due)));
            }
            _ => {}
        }
    }

    fn note(&mut self, call: &Call, answer: &Answer) -> Result<(), Violation> {
        match (call, answer) {
            (Call::Commit(done), _) => done.iter().try_for_each(|done| self.note(&done.call, &done.answer)),
            (Call::Receive(..), Answer::Received(messages)) => self.receive(messages),
            (Call::Enqueue(enqueue), answer) => {
                // In a transaction nobody hears whether there was one with the id.
                if matches!(answer, Answer::Seen(false)) || enqueue.dedupe.is_none() {
                    let bodies = enqueue.messages.iter().map(|(_, body)| (enqueue.queue, body.clone()));
                    self.enqueued.extend(bodies);
                }
                Ok(())
            }
            (Call::Later(Later::Enqueue(enqueue, _)), _) if enqueue.dedupe.is_none() => {
                let bodies = enqueue.messages.iter().map(|(_, body)| (enqueue.queue, body.clone()));
                self.enqueued.extend(bodies);
                Ok(())
            }
            (Call::Send(ends, _, bodies), _) if ends.len() > 1 => {
                self.sent.extend(ends.iter().cloned().zip(bodies.iter().cloned()));
                Ok(())
            }
            (Call::Send(ends, _, bodies), _) => {
                self.sent.extend(bodies.iter().map(|body| (ends[0].clone(), body.clone())));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Messages that may be out of their place, or gone.
    fn note_losses(&mut self, call: &Call) {
        match call {
            Call::Recover(failed) => _ = self.failed.insert(Rc::clone(&failed.message.message_id)),
            Call::Unbury(Unbury { discard: true, one: Some((_, body)), .. }) => _ = self.discarded.insert(body.clone()),
            Call::Unbury(Unbury { discard: true, one: None, .. }) | Call::End(_, Ending::Cleanup, _) => {
                self.may_discard = true;
            }
            Call::Later(Later::Reschedule(_, body, _)) => _ = self.moved.insert(body.clone()),
            Call::Commit(done) => done.iter().for_each(|done| self.note_losses(&done.call)),
            _ => {}
        }
    }

    fn receive(&mut self, messages: &[Message]) -> Result<(), Violation> {
        let mut last: Option<&Message> = None;
        for message in messages {
            let (handle, row) = (&message.conversation_handle, show_message(message));
            // System rows come before the others and show the number at which they came.
            if self.failed.contains(&message.message_id) {
                // Nor does it say what has to follow it.
                last = None;
            } else if !row.contains("DialogTimer") && !row.contains("Error") {
                let before = last.filter(|last| last.conversation_handle == *handle);
                let before = before.map(|before| before.message_sequence_number + 1);
                if before.is_some_and(|expected| expected != message.message_sequence_number) {
                    let text = format!("{handle}: {row} does not follow {before:?}");
                    return Err(Violation { kind: Kind::OutOfOrder, text });
                }
                last = Some(message);
            }
            let body = message.body.text();
            let due = body.as_ref().filter(|body| !self.moved.contains(*body)).and_then(|body| self.due.get(body));
            if due.is_some_and(|due| message.message_enqueue_time < *due) {
                let text = format!("{row} came at {}, and was due at {due:?}", message.message_enqueue_time);
                return Err(Violation { kind: Kind::Early, text });
            }
            self.bodies.extend(body);
            if !self.received.insert(Rc::clone(&message.message_id)) {
                return Err(Violation { kind: Kind::Twice, text: format!("{handle} was given {row} twice") });
            }
        }
        Ok(())
    }

    fn doubt(&mut self, call: &Call) {
        if let Call::Receive(queue, ..) = call {
            self.unsure.insert(*queue);
        }
        if let Call::Later(Later::Cancel(_, body)) = call {
            self.discarded.insert(body.clone());
        }
        if let Call::Commit(done) = call {
            done.iter().for_each(|done| self.doubt(&done.call));
        }
    }

    /// A message that was cancelled, and is there all the same.
    pub(crate) fn revived(&self, look: &Look) -> Option<String> {
        let found = self.cancelled.iter().find(|body| look.holds(body));
        found.map(|body| format!("{body} is there, and was cancelled"))
    }

    /// A message that is certainly sent and nowhere, although both ends are there; or one that was put into a lane.
    pub(crate) fn lost(&self, names: &Names, look: &Look) -> Option<String> {
        let is_gone = |(queue, body): &&(usize, String)| {
            let is_known = [&self.bodies, &self.discarded, &self.cancelled].iter().any(|bodies| bodies.contains(body))
                || look.has_message(body);
            !self.may_discard && !self.unsure.contains(queue) && !self.unsure.contains(&ERROR) && !is_known
        };
        if let Some((queue, body)) = self.enqueued.iter().find(is_gone) {
            return Some(format!("{body}, which was put into {}, is nowhere", PLACES[*queue]));
        }
        let is_lost = |(sender, body): &&(End, String)| {
            let far = other(sender);
            let Some((from, to)) = names.services.get(&sender.0) else { return false };
            let Some((_, queue)) = SERVICES.get(if sender.1 { *to } else { *from }) else { return false };
            look.end(sender).is_some()
                && look.end(&far).is_some()
                && !self.unsure.contains(queue)
                && !self.bodies.contains(body)
                && !look.has_body(&names.handles[&far], body)
        };
        self.sent.iter().find(is_lost).map(|(sender, body)| format!("{body}, which {sender:?} has sent, is nowhere"))
    }
}
