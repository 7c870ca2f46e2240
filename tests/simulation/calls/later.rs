//! Delayed messages, as applications deal with them.

use std::rc::Rc;

use pocket_broker::clock::Clock;
use pocket_broker::error::{ErrorCode, Result};
use pocket_broker::ids::text;
use pocket_broker::{Broker, Delay, EnqueueOptions, Transaction};
use uuid::Uuid;

use super::{Answer, Differs, messages};
use crate::conformance::random::model::{BIN, End};
use crate::conformance::support::chance::Chance;
use crate::lanes::Enqueue;
use crate::model::{Model, Names};
use crate::origin::Origin;
use crate::sabotage::Sabotage;

/// What concerns delayed messages. The model knows them by their bodies, the broker by their ids.
#[derive(Clone, Debug)]
pub(crate) enum Later {
    Send(Vec<End>, &'static str, Vec<String>, Delay),
    Enqueue(Enqueue, Delay),
    Cancel(Rc<str>, String),
    Reschedule(Rc<str>, String, f64),
}

/// A delayed message that somebody was told the id of.
#[derive(Clone, Debug)]
pub(crate) struct Under {
    pub(crate) id: Rc<str>,
    pub(crate) body: String,
    /// The end that it is sent by.
    pub(crate) sender: Option<End>,
    /// When it is due, or a little earlier.
    pub(crate) due: f64,
}

impl Later {
    /// A transaction has ended an endpoint: what that had under way is gone for it.
    pub(crate) fn behind(origin: &Origin, end: &End) -> Option<Self> {
        let mut chance = origin.chance.borrow_mut();
        let (id, body) = origin.any_delayed(&mut chance, Some(end))?;
        Some(if chance.one_in(2) {
            Self::Cancel(id, body)
        } else {
            Self::Reschedule(id, body, origin.clock.now() + 1_000.0)
        })
    }

    pub(super) fn think_up(origin: &Origin, chance: &mut Chance) -> Option<Self> {
        Some(match chance.below(20) {
            0..=7 => {
                let end = origin.any_end(chance)?;
                let kind = match chance.below(4) {
                    0 | 1 => "Note",
                    _ if end.1 != chance.one_in(20) => "Order",
                    _ => "Confirm",
                };
                let mut ends = vec![end];
                if kind == "Note" && chance.one_in(4) {
                    let other = origin.any_end(chance);
                    ends.extend(other.filter(|other| *other != ends[0]));
                }
                let count = if ends.len() > 1 { ends.len() } else { 1 + chance.below(3) };
                let bodies = (0..count).map(|_| origin.body()).collect();
                Self::Send(ends, kind, bodies, delay(origin, chance)?)
            }
            8..=12 => {
                let queue = chance.pick(&[0, 1, 2, BIN, BIN])?;
                // Not so many that may end in the error queue: nobody could try all ways to take some of them out.
                let count = if queue != BIN && chance.one_in(20) { 40 } else { 1 + chance.below(3) };
                let mut enqueue = Enqueue { queue, ..Enqueue::think_up(origin, chance, count) };
                // Whether a cancel frees the id hangs on where the message is.
                enqueue.dedupe = enqueue.dedupe.filter(|_| origin.shelf.is_none());
                Self::Enqueue(enqueue, delay(origin, chance)?)
            }
            13..=17 => {
                let (id, body) = origin.any_delayed(chance, None)?;
                Self::Cancel(id, body)
            }
            _ => {
                let (id, body) = origin.any_delayed(chance, None)?;
                let to = match delay(origin, chance)? {
                    Delay::After(delay) => origin.clock.now() + delay,
                    Delay::At(at) => at,
                };
                Self::Reschedule(id, body, to)
            }
        })
    }

    pub(super) async fn make(&self, origin: &Origin, broker: &Broker) -> Result<Answer> {
        match self {
            Self::Send(ends, kind, bodies, delay) => {
                let messages = messages(origin, kind, bodies);
                let ids = broker.send_later(origin.handles(ends), messages, hurried(origin, *delay), None).await?;
                Ok(self.learn(origin, &ids, false))
            }
            Self::Enqueue(enqueue, delay) => {
                enqueue.messages.iter().for_each(|(id, body)| origin.note_id(*id, body));
                let (messages, options) = (enqueue.messages(), options(origin, enqueue, *delay));
                let ids = broker.enqueue_later(enqueue.place(), messages, options).await?;
                Ok(self.learn(origin, &ids, false))
            }
            Self::Cancel(id, _) => broker.cancel(id).await.map(|was| self.unlearn(origin, was)),
            Self::Reschedule(id, _, to) => broker.reschedule(id, *to).await.map(|was| self.unlearn(origin, was)),
        }
    }

    pub(super) async fn make_in(&self, origin: &Origin, transaction: &Transaction) -> Result<Answer> {
        match self {
            Self::Send(ends, kind, bodies, delay) => {
                let messages = messages(origin, kind, bodies);
                let ids = transaction.send_later(origin.handles(ends), messages, hurried(origin, *delay)).await?;
                Ok(self.learn(origin, &ids, true))
            }
            Self::Enqueue(enqueue, delay) => {
                enqueue.messages.iter().for_each(|(id, body)| origin.note_id(*id, body));
                let (messages, options) = (enqueue.messages(), options(origin, enqueue, *delay));
                let ids = transaction.enqueue_later(enqueue.place(), messages, options).await?;
                Ok(self.learn(origin, &ids, true))
            }
            Self::Cancel(id, _) => transaction.cancel(id).await.map(|was| self.unlearn(origin, was)),
            Self::Reschedule(id, _, to) => transaction.reschedule(id, *to).await.map(|was| self.unlearn(origin, was)),
        }
    }

    /// The ids are known from now on, even those of a transaction that is still to be committed. But who cancels one that is for a store of the
    /// application's own before it is there, and is not told what comes of it, may have cancelled it by the time that it is.
    fn learn(&self, origin: &Origin, ids: &[Uuid], is_in_transaction: bool) -> Answer {
        if origin.shelf.is_some() && is_in_transaction {
            return Answer::Done;
        }
        // With an id that is not to be taken twice the answer may be about another message. A transaction has its own in any case.
        let is_own = |enqueue: &Enqueue| enqueue.dedupe.is_none() || ids.first() == Some(&enqueue.messages[0].0);
        if !matches!(self, Self::Enqueue(enqueue, _) if !is_own(enqueue)) {
            let due = match self {
                Self::Send(.., Delay::After(ms)) | Self::Enqueue(_, Delay::After(ms)) => origin.clock.now() + ms,
                Self::Send(.., Delay::At(at)) | Self::Enqueue(_, Delay::At(at)) | Self::Reschedule(_, _, at) => *at,
                Self::Cancel(..) => 0.0,
            };
            for (number, (id, body)) in ids.iter().zip(self.bodies()).enumerate() {
                let sender = match self {
                    Self::Send(ends, ..) => ends.get(number).or(ends.first()).cloned(),
                    _ => None,
                };
                origin.note_delayed(Under { id: text(*id), body: body.to_owned(), sender, due });
            }
        }
        Answer::Done
    }

    /// The transaction that made this call is committed.
    pub(crate) fn learn_late(&self, origin: &Origin) {
        if origin.shelf.is_some() {
            let ids: Vec<Uuid> = self.bodies().into_iter().filter_map(|body| origin.id_of(body)).collect();
            self.learn(origin, &ids, false);
        }
    }

    /// What is gone is asked for again now and then only.
    fn unlearn(&self, origin: &Origin, was: bool) -> Answer {
        if let Self::Cancel(id, _) | Self::Reschedule(id, ..) = self
            && !(was && matches!(self, Self::Reschedule(..)))
            && !origin.one_in(4)
        {
            origin.forget_delayed(id);
        }
        Answer::Was(was)
    }

    /// What it stores.
    pub(crate) fn bodies(&self) -> Vec<&str> {
        match self {
            Self::Send(_, _, bodies, _) => bodies.iter().map(String::as_str).collect(),
            Self::Enqueue(enqueue, _) => enqueue.messages.iter().map(|(_, body)| body.as_str()).collect(),
            Self::Cancel(..) | Self::Reschedule(..) => Vec::new(),
        }
    }

    /// `is_late`: in the commit of a transaction.
    pub(super) fn apply(
        &self,
        model: &mut Model,
        names: &Names,
        answer: Option<&Answer>,
        (now, is_late): (f64, bool),
    ) -> Result<Result<(), ErrorCode>, Differs> {
        let was = match self {
            Self::Send(ends, kind, bodies, delay) => {
                return Ok(model.send_later(names, ends, (*kind, bodies), (*delay, now), is_late));
            }
            Self::Enqueue(enqueue, delay) => return Ok(model.enqueue_later(enqueue, *delay, now)),
            Self::Cancel(_, body) => Ok(model.cancel(body)),
            Self::Reschedule(_, body, to) => model.reschedule(body, *to),
        };
        Ok(match (was, answer) {
            (Ok(false), Some(Answer::Was(true))) if !is_late && self.is_cancelled(model) => Ok(()),
            // What a transaction has seen is gone.
            (Ok(false), _) if is_late => Err(ErrorCode::Conflict),
            (Ok(was), Some(Answer::Was(told))) if was != *told => return Err(Differs(format!("it waits: {was}"))),
            (was, _) => was.map(drop),
        })
    }

    fn is_cancelled(&self, model: &Model) -> bool {
        matches!(self, Self::Cancel(_, body) if model.cancelled.contains(body))
    }

    /// Whether it changes nothing.
    pub(super) fn is_idle(&self, model: &Model, answer: &Answer) -> bool {
        let (Self::Cancel(_, body) | Self::Reschedule(_, body, _)) = self else { return false };
        matches!(answer, Answer::Was(false)) && !model.delayed.iter().any(|delayed| delayed.body == *body)
    }
}

fn delay(origin: &Origin, chance: &mut Chance) -> Option<Delay> {
    let ms = chance.pick(&[0.0, 1.0, 0.5, 50.0, 500.0, 500.0, 3_000.0, 20_000.0, 70_000.0, 250_000.0])?;
    Some(match chance.below(6) {
        0 => Delay::At(origin.clock.now() - ms),
        1 | 2 => Delay::At(origin.clock.now() + ms),
        _ => Delay::After(ms),
    })
}

/// The time as it is asked for, unless it is to be noticed that it is another one.
fn hurried(origin: &Origin, delay: Delay) -> Delay {
    match delay {
        Delay::After(ms) if origin.breaks(Sabotage::Hurry) => Delay::After(ms / 2.0),
        delay => delay,
    }
}

fn options(origin: &Origin, enqueue: &Enqueue, delay: Delay) -> EnqueueOptions {
    EnqueueOptions { delay: Some(hurried(origin, delay)), ..enqueue.options() }
}
