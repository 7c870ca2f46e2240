//! The short way in, of a broker and of a transaction.

use uuid::Uuid;

use super::Broker;
use crate::call::Call;
use crate::commit::Cancelled;
use crate::error::Result;
use crate::transaction::Transaction;
use crate::verbs::{Answer, Enqueue, EnqueueOptions, OutgoingMessage, Verb};

impl Broker {
    /// Puts messages into a queue without a dialog: into the lane of their key, all or none. Gives the id of the message that was there already
    /// with the same `dedupe_id`; then this one was dropped.
    ///
    /// # Errors
    /// `QueueNotFound`, `InvalidArgument`, `Conflict` (what the queue takes was altered meanwhile), `NotCloneable`, `MessageTooLarge`,
    /// `QuotaExceeded`.
    pub async fn enqueue(
        &self,
        queue: &str,
        messages: Vec<OutgoingMessage>,
        options: EnqueueOptions,
        cancelled: Option<Cancelled>,
    ) -> Result<Option<Uuid>> {
        let enqueue = Enqueue { queue: queue.into(), messages, options, validated_by: None };
        match self.call(Call::Verb(Verb::Enqueue(enqueue)), cancelled).await? {
            Answer::Seen(first) => Ok(Some(first)),
            _ => Ok(None),
        }
    }
}

impl Transaction {
    /// Puts messages into a queue without a dialog. Nobody sees them before the commit, and whether there is one with the same `dedupe_id`
    /// already is seen then: it is dropped, and nobody hears of it.
    ///
    /// # Errors
    /// As on a broker; `TransactionClosed`.
    pub async fn enqueue(&self, queue: &str, messages: Vec<OutgoingMessage>, options: EnqueueOptions) -> Result<()> {
        let enqueue = Enqueue { queue: queue.into(), messages, options, validated_by: None };
        self.call(Call::Verb(Verb::Enqueue(enqueue)), None).await.map(drop)
    }
}
