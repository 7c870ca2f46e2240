//! The views of a broker: what is there. Nothing changes by them.

use std::rc::Rc;

use super::Broker;
use crate::call::unexpected;
use crate::error::Result;
use crate::rows::Rows;
use crate::views::{
    BrokerStats, ConversationGroup, Endpoint, EndpointFilter, Extent, Page, QueueInfo, RowFilter, Seen,
    TransmissionRow, View,
};

impl Broker {
    /// The rows of a queue, every status, in queuing order.
    ///
    /// # Errors
    /// `QueueNotFound`, `InvalidArgument`.
    pub async fn select(
        &self,
        queue: &str,
        filter: &RowFilter,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Page<Rows>> {
        match self.see(&View::Select(queue.into(), filter.clone()), position, extent).await? {
            Seen::Rows(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// The rows of the queues that failed messages are in: the one where they go, "error", and all that hold some.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub async fn select_failed(
        &self,
        filter: &RowFilter,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Page<Rows>> {
        match self.see(&View::SelectFailed(filter.clone()), position, extent).await? {
            Seen::Rows(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// How many rows [`Broker::select`] would give.
    ///
    /// # Errors
    /// `QueueNotFound`, `InvalidArgument`.
    pub async fn count(&self, queue: &str, filter: &RowFilter) -> Result<u64> {
        match self.see(&View::Count(queue.into(), filter.clone()), None, Extent::All).await? {
            Seen::Count(count) => Ok(count),
            _ => Err(unexpected()),
        }
    }

    /// Every queue.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>> {
        match self.see(&View::Queues, None, Extent::All).await? {
            Seen::Queues(queues) => Ok(queues),
            _ => Err(unexpected()),
        }
    }

    /// What this broker has done since it was opened, and what the database holds.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn stats(&self) -> Result<BrokerStats> {
        match self.see(&View::Stats, None, Extent::All).await? {
            Seen::Stats(stats) => Ok(stats),
            _ => Err(unexpected()),
        }
    }

    /// Endpoints of conversations.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn conversations(
        &self,
        filter: &EndpointFilter,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Page<Endpoint>> {
        match self.see(&View::Conversations(filter.clone()), position, extent).await? {
            Seen::Endpoints(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// Conversation groups, of one service or of all, and who holds them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn groups(
        &self,
        service: Option<&str>,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Page<ConversationGroup>> {
        match self.see(&View::Groups(service.map(Rc::from)), position, extent).await? {
            Seen::Groups(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// One endpoint; `None` when it is gone.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn info(&self, handle: &str) -> Result<Option<Endpoint>> {
        match self.see(&View::Info(handle.into()), None, Extent::All).await? {
            Seen::Endpoints(mut page) => Ok(page.rows.pop()),
            _ => Err(unexpected()),
        }
    }

    /// What has been sent and is not where it should be; of one sending endpoint, or of all.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn transmission_queue(&self, conversation: Option<&str>) -> Result<Vec<TransmissionRow>> {
        match self.see(&View::TransmissionQueue(conversation.map(Rc::from)), None, Extent::All).await? {
            Seen::TransmissionQueue(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    /// Rows that END copied.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub async fn archive(&self, filter: &RowFilter, position: Option<&[f64]>, extent: Extent) -> Result<Page<Rows>> {
        match self.see(&View::Archive(filter.clone()), position, extent).await? {
            Seen::Rows(page) => Ok(page),
            _ => Err(unexpected()),
        }
    }

    /// Whatever view it is.
    pub(crate) async fn see(&self, view: &View, position: Option<&[f64]>, extent: Extent) -> Result<Seen> {
        self.check_open()?;
        let mut seen = loop {
            let closings = self.core.gate.closings();
            match self.core.see_all(view, position, extent).await {
                Err(error) if self.core.was_suspended(&error, closings) => {}
                seen => break seen?,
            }
        };
        if let Seen::Stats(stats) = &mut seen {
            stats.counts = self.tally.counts();
            let (poller, stored) = (&self.core.poller, &self.core.stored);
            let fetch = poller.breaker.state().max(stored.fetch.state());
            stats.breakers = [stored.store.state(), fetch, stored.dispatch.state()];
        }
        Ok(seen)
    }
}
