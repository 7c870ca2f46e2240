//! What a broker asks of a store of the application's own.

use std::rc::Rc;

use uuid::Uuid;

use super::calls::ask;
use super::change::{Recall, Settle, Withdraw, Withdrawn};
use super::step::{Came, Step};
use super::views::find;
use super::{DelayedMessage, TransactionMode};
use crate::call::{Call, unexpected};
use crate::clock::Instant;
use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};
use crate::verbs::Verb;

impl Core {
    /// Makes the store ready, before anything else is asked of it.
    pub(crate) async fn initialize_store(self: &Rc<Self>) -> Result<()> {
        let (Some(store), mode) = (self.host.delayed_store.clone(), self.host.delayed.mode) else { return Ok(()) };
        if mode == TransactionMode::TransactionScope {
            let text = "A delayed message store of your own can't take part in a commit of the broker, so `transactionMode` \"transaction-scope\" is for the built-in store only. Leave it out, or give \"sends-atomic-with-receive\".";
            return Err(unsupported(text.into(), mode));
        }
        let name = Rc::clone(&self.host.name);
        ask(self, "setupInfrastructure", store.setup_infrastructure(&name, mode, &self.instance_id)).await?;
        ask(self, "initialize", store.initialize(&name, mode)).await.map_err(|error| {
            if error.code() != ErrorCode::DelayedStoreFailed || error.is_timeout() {
                return error;
            }
            let text = format!(
                "The delayed message store could not be initialized for the transaction mode \"{}\": {error}",
                mode.name()
            );
            let refused = unsupported(text, mode);
            match error.cause() {
                Some(cause) => refused.caused_by(cause.clone()),
                None => refused,
            }
        })
    }

    /// Cancels a message that neither the built-in store nor the hop has. Gives whether it will not be delivered.
    pub(crate) async fn cancel_in_store(self: &Rc<Self>, id: &str) -> Result<bool> {
        let (Some(store), Ok(id)) = (self.host.delayed_store.clone(), Uuid::try_parse(id)) else { return Ok(false) };
        if self.stored.lingering.borrow().contains(&id) {
            // It was delivered: the store has only not removed it.
            return Ok(false);
        }
        match self.step(Step::Withdraw(Withdraw { id, asks: true })).await? {
            Came::Withdrawn(Withdrawn::Yes) => return Ok(true),
            Came::Withdrawn(Withdrawn::No) => return Ok(false),
            Came::Withdrawn(Withdrawn::AskTheStore) => {}
            _ => return Err(unexpected()),
        }
        let removed = ask(self, "remove", store.remove(DelayedMessage::with_id(crate::ids::text(id)))).await;
        let was_there = removed.as_ref().ok().copied();
        let Came::Was(was) = self.step(Step::Settle(Settle { id, was_there })).await? else { return Err(unexpected()) };
        match removed {
            Err(error) if !was => Err(unknown(&error, id)),
            _ => Ok(was),
        }
    }

    /// What cancels such a message in a transaction. `None`: the store does not have it.
    pub(crate) async fn withdraw(self: &Rc<Self>, id: &str) -> Result<Option<Call>> {
        let (Some(store), Ok(uuid)) = (self.host.delayed_store.clone(), Uuid::try_parse(id)) else { return Ok(None) };
        let found = find(self, &store, id).await?;
        Ok(found.map(|_| Call::Verb(Verb::Custom(Step::Withdraw(Withdraw { id: uuid, asks: false })))))
    }

    /// What delivers such a message at another time. `None`: the store does not have it.
    pub(crate) async fn recall(self: &Rc<Self>, id: &str, to: Instant) -> Result<Option<Call>> {
        let Some(store) = self.host.delayed_store.clone() else { return Ok(None) };
        let is_lingering = |id: Uuid| self.stored.lingering.borrow().contains(&id);
        if Uuid::try_parse(id).is_ok_and(is_lingering) {
            return Ok(None);
        }
        let Some(found) = find(self, &store, id).await? else { return Ok(None) };
        let message = found.read().map_err(|problem| {
            let text = format!(
                "The delayed message store gives the message {id} back as something else: {problem}. It must keep what it was given as it is."
            );
            Error::new(ErrorCode::DelayedStoreFailed, text).with("messageId", id)
        })?;
        Ok(Some(Call::Verb(Verb::Custom(Step::Recall(Recall { message: Rc::new(message), to })))))
    }
}

fn unsupported(text: String, mode: TransactionMode) -> Error {
    Error::new(ErrorCode::UnsupportedTransactionMode, text).with("transactionMode", mode.name())
}

/// Whether it was there is not known, and it will not be delivered from now on.
fn unknown(error: &Error, id: Uuid) -> Error {
    let text = format!(
        "The delayed message store could not be asked to remove the message {id}, so it is not known whether it was still there. It is not delivered from now on, and the store is asked again. {error}"
    );
    let unknown = Error::new(ErrorCode::DelayedStoreFailed, text).with("messageId", &*crate::ids::text(id));
    match error.cause() {
        Some(cause) => unknown.caused_by(cause.clone()),
        None => unknown,
    }
}
