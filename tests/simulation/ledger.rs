//! The simplest bookkeeping: what was sent, what was received. It knows no states and no order of commits, and so gives a plain name to what the
//! search can only call unexplained.

use std::collections::BTreeSet;
use std::rc::Rc;

use pocket_broker::Message;

use crate::calls::{Answer, Call};
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
}

impl Ledger {
    /// Writes down what is certain.
    pub(crate) fn enter(&mut self, records: &[Record]) -> Result<(), Violation> {
        for record in records {
            self.note_losses(&record.call);
        }
        for record in records {
            match &record.outcome {
                Some(Outcome::Answer(answer)) => self.note(&record.call, answer)?,
                Some(Outcome::Unknown) => self.doubt(&record.call),
                _ => {}
            }
        }
        Ok(())
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
            Call::Commit(done) => done.iter().for_each(|done| self.note_losses(&done.call)),
            _ => {}
        }
    }

    fn receive(&mut self, messages: &[Message]) -> Result<(), Violation> {
        let mut last: Option<&Message> = None;
        for message in messages {
            let (handle, row) = (&message.conversation_handle, show_message(message));
            // System rows come before the others and show the number at which they came.
            if !row.contains("DialogTimer") && !row.contains("Error") && !self.failed.contains(&message.message_id) {
                let before = last.filter(|last| last.conversation_handle == *handle);
                let before = before.map(|before| before.message_sequence_number + 1);
                if before.is_some_and(|expected| expected != message.message_sequence_number) {
                    let text = format!("{handle}: {row} does not follow {before:?}");
                    return Err(Violation { kind: Kind::OutOfOrder, text });
                }
                last = Some(message);
            }
            self.bodies.extend(message.body.text());
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
        if let Call::Commit(done) = call {
            done.iter().for_each(|done| self.doubt(&done.call));
        }
    }

    /// A message that is certainly sent and nowhere, although both ends are there; or one that was put into a lane.
    pub(crate) fn lost(&self, names: &Names, look: &Look) -> Option<String> {
        let is_gone = |(queue, body): &&(usize, String)| {
            let is_known = self.bodies.contains(body) || self.discarded.contains(body) || look.has_message(body);
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
