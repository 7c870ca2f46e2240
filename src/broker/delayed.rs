//! Delayed delivery, of a broker and of a transaction.

use std::rc::Rc;

use uuid::Uuid;

use super::Broker;
use crate::call::{Call, unexpected};
use crate::clock::Instant;
use crate::commit::Cancelled;
use crate::delayed::{Came, Cancel, Delay, Reschedule, Withdrawn};
use crate::error::Result;
use crate::transaction::Transaction;
use crate::verbs::{Answer, Enqueue, EnqueueOptions, OutgoingMessage, Send, Verb};
use crate::views::{DelayedFilter, DelayedMessage, Extent, Page, Seen, View};

fn send(to: Vec<Rc<str>>, messages: Vec<OutgoingMessage>, delay: Delay) -> Call {
    Call::Verb(Verb::Send(Send { to, messages, delay: Some(delay), validated_by: None }))
}

fn enqueue(queue: &str, messages: Vec<OutgoingMessage>, options: EnqueueOptions) -> Call {
    Call::Verb(Verb::Enqueue(Enqueue { queue: queue.into(), messages, options, validated_by: None }))
}

fn cancel(id: &str) -> Call {
    Call::Verb(Verb::Cancel(Cancel { id: id.into() }))
}

fn reschedule(id: &str, to: Instant) -> Call {
    Call::Verb(Verb::Reschedule(Reschedule { id: id.into(), to }))
}

fn ids(answer: Answer) -> Result<Vec<Uuid>> {
    match answer {
        Answer::Delayed(ids) => Ok(ids),
        Answer::Seen(first) => Ok(vec![first]),
        _ => Err(unexpected()),
    }
}

fn was(answer: Answer) -> Result<bool> {
    match answer {
        Answer::Was(was) => Ok(was),
        _ => Err(unexpected()),
    }
}

impl Broker {
    /// SEND at a later time. Gives the ids of the messages. They take their sequence numbers when they are due.
    ///
    /// # Errors
    /// As of [`Broker::send`]; `InvalidArgument`, `TimerBeyondLifetime`.
    pub async fn send_later(
        &self,
        to: Vec<Rc<str>>,
        messages: Vec<OutgoingMessage>,
        delay: Delay,
        cancelled: Option<Cancelled>,
    ) -> Result<Vec<Uuid>> {
        if messages.is_empty() || to.is_empty() {
            return self.check_open().map(|()| Vec::new());
        }
        ids(self.call(send(to, messages, delay), cancelled).await?)
    }

    /// `enqueue` at the later time that the options say. Gives the ids of the messages, or of the one that was there with the same `dedupe_id`.
    ///
    /// # Errors
    /// As of [`Broker::enqueue`].
    pub async fn enqueue_later(
        &self,
        queue: &str,
        messages: Vec<OutgoingMessage>,
        options: EnqueueOptions,
    ) -> Result<Vec<Uuid>> {
        ids(self.call(enqueue(queue, messages, options), None).await?)
    }

    /// True: the message will not be delivered. False: it does not wait any more, or never did.
    ///
    /// # Errors
    /// `InvalidArgument`; those of the store.
    pub async fn cancel(&self, id: &str) -> Result<bool> {
        Ok(was(self.call(cancel(id), None).await?)? || self.core.cancel_in_store(id).await?)
    }

    /// The message is delivered then. False: it does not wait any more.
    ///
    /// # Errors
    /// `InvalidArgument`, `TimerBeyondLifetime`; those of the store.
    pub async fn reschedule(&self, id: &str, to: Instant) -> Result<bool> {
        if was(self.call(reschedule(id, to), None).await?)? {
            return Ok(true);
        }
        let Some(recall) = self.core.recall(id, to).await? else { return Ok(false) };
        was_custom(self.call(recall, None).await?)
    }

    /// The messages that wait, in the order in which they will be delivered.
    ///
    /// # Errors
    /// `InvalidArgument`; those of the store.
    pub async fn delayed(
        &self,
        filter: &DelayedFilter,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Page<DelayedMessage>> {
        match self.see(&View::Delayed(filter.clone()), position, extent).await? {
            Seen::Delayed(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// How many messages wait.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn count_delayed(&self) -> Result<u64> {
        match self.see(&View::CountDelayed, None, Extent::All).await? {
            Seen::Count(count) => Ok(count),
            _ => Err(unexpected()),
        }
    }

    /// When the first of them is due.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn next_delayed(&self) -> Result<Option<Instant>> {
        match self.see(&View::NextDelayed, None, Extent::All).await? {
            Seen::Next(next) => Ok(next),
            _ => Err(unexpected()),
        }
    }

    /// When something is due next: a delayed message, a timer, a lifetime, a retry.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn next_due(&self) -> Result<Option<Instant>> {
        match self.see(&View::NextDue, None, Extent::All).await? {
            Seen::Next(next) => Ok(next),
            _ => Err(unexpected()),
        }
    }
}

fn was_custom(answer: Answer) -> Result<bool> {
    match answer {
        Answer::Custom(Came::Was(was)) => Ok(was),
        Answer::Custom(Came::Withdrawn(withdrawn)) => Ok(withdrawn != Withdrawn::No),
        _ => Err(unexpected()),
    }
}

impl Transaction {
    /// SEND at a later time; a delay counts from the commit. Gives the ids of the messages.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn send_later(
        &self,
        to: Vec<Rc<str>>,
        messages: Vec<OutgoingMessage>,
        delay: Delay,
    ) -> Result<Vec<Uuid>> {
        ids(self.call(send(to, messages, delay), None).await?)
    }

    /// `enqueue` at a later time; a delay counts from the commit. Gives the ids of the messages.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn enqueue_later(
        &self,
        queue: &str,
        messages: Vec<OutgoingMessage>,
        options: EnqueueOptions,
    ) -> Result<Vec<Uuid>> {
        ids(self.call(enqueue(queue, messages, options), None).await?)
    }

    /// Takes effect at the commit, which rejects with `Conflict` when the message has gone meanwhile.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn cancel(&self, id: &str) -> Result<bool> {
        if was(self.call(cancel(id), None).await?)? {
            return Ok(true);
        }
        let Some(withdraw) = self.core.withdraw(id).await? else { return Ok(false) };
        was_custom(self.call(withdraw, None).await?)
    }

    /// Takes effect at the commit, which rejects with `Conflict` when the message has gone meanwhile.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn reschedule(&self, id: &str, to: Instant) -> Result<bool> {
        if was(self.call(reschedule(id, to), None).await?)? {
            return Ok(true);
        }
        let Some(recall) = self.core.recall(id, to).await? else { return Ok(false) };
        was_custom(self.call(recall, None).await?)
    }
}
