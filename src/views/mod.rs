//! Views: reading without locks, from what is committed.

mod archived;
mod delayed;
mod endpoints;
mod filter;
mod groups;
mod queues;
mod select;
mod stats;
mod transmission;
mod transmittable;

use std::rc::Rc;

use crate::changes::Changes;
use crate::clock::Instant;
use crate::core::Core;
use crate::driver::Driver;
use crate::error::Result;
use crate::reads::Reads;
use crate::rows::Rows;
use crate::stop::{Outcome, Stop};
use crate::store::{Mode, StoreName, transact};
use crate::transmission::Services;
use crate::work::{Purpose, Work};

pub use crate::delayed::DelayedMessage;
use archived::select_archive;
pub use delayed::DelayedFilter;
use delayed::{next_delayed, next_due, select_delayed};
pub use endpoints::{Endpoint, EndpointFilter};
use endpoints::{conversations, info};
pub use filter::RowFilter;
pub use groups::{ConversationGroup, HeldBy};
use groups::{groups, say_who_holds};
pub use queues::QueueInfo;
use queues::{count_rows, queues};
use select::select;
use stats::gauges;
pub use stats::{BrokerStats, Gauges};
pub use transmission::TransmissionRow;
use transmission::transmission_queue;
use transmittable::is_transmittable;

/// How much of a view is wanted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A page: at most 256 rows or 4 MiB.
    Page,
    /// Everything, as one snapshot.
    All,
}

/// Rows a page at a time.
pub(crate) const PAGE_ROWS: u64 = 256;
pub(crate) const PAGE_BYTES: f64 = 4_194_304.0;
/// The most records that a page looks at: where a filter lets little through, a page that is not the last may be short, or empty.
pub(crate) const PAGE_RECORDS: u64 = 4_096;

/// A part of a view, and where the next one begins.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Numbers to give back for the next page; `None`: there is none.
    pub next: Option<Vec<f64>>,
}

/// What views read.
pub(crate) const SCOPE: [StoreName; 8] = [
    StoreName::Meta,
    StoreName::Definitions,
    StoreName::Queues,
    StoreName::Conversations,
    StoreName::Members,
    StoreName::Messages,
    StoreName::Bodies,
    StoreName::Turns,
];

/// A question that changes nothing.
#[derive(Clone, Debug)]
pub(crate) enum View {
    Select(Rc<str>, RowFilter),
    /// The rows of all queues that hold failed messages.
    SelectFailed(RowFilter),
    Count(Rc<str>, RowFilter),
    Queues,
    Stats,
    Conversations(EndpointFilter),
    /// Of one service, or all.
    Groups(Option<Rc<str>>),
    Info(Rc<str>),
    TransmissionQueue(Option<Rc<str>>),
    /// Whether something waits for one of these routes.
    Transmittable(Vec<Services>),
    Archive(RowFilter),
    Delayed(DelayedFilter),
    CountDelayed,
    NextDelayed,
    NextDue,
}

/// Its answer.
#[derive(Debug)]
pub(crate) enum Seen {
    Rows(Page<Rows>),
    Count(u64),
    Queues(Vec<QueueInfo>),
    Stats(BrokerStats),
    Endpoints(Page<Endpoint>),
    Groups(Page<ConversationGroup>),
    TransmissionQueue(Vec<TransmissionRow>),
    Transmittable(bool),
    Delayed(Page<DelayedMessage>),
    Next(Option<Instant>),
}

impl Core {
    /// Answers in one read-only storage transaction. A record that can't be read is set aside first, if it can be.
    /// With what is delayed elsewhere.
    pub(crate) async fn see_all(
        self: &Rc<Self>,
        view: &View,
        position: Option<&[f64]>,
        extent: Extent,
    ) -> Result<Seen> {
        match self.see_delayed(view, position).await? {
            Some(seen) => Ok(seen),
            None => self.see(view, position, extent).await,
        }
    }

    pub(crate) async fn see(self: &Rc<Self>, view: &View, position: Option<&[f64]>, extent: Extent) -> Result<Seen> {
        let mut mended = None;
        loop {
            match self.look(view, position, extent).await {
                Err(error) if self.mend(&error, &mut mended).await? => {}
                seen => return seen,
            }
        }
    }

    async fn look(self: &Rc<Self>, view: &View, position: Option<&[f64]>, extent: Extent) -> Result<Seen> {
        if let View::Select(_, filter) | View::SelectFailed(filter) | View::Count(_, filter) | View::Archive(filter) =
            view
        {
            filter.check()?;
        }
        if let View::Delayed(filter) = view {
            filter.check()?;
        }
        let scope: &[StoreName] = match view {
            View::Archive(_) => &[StoreName::Meta, StoreName::Archive],
            View::Delayed(_) | View::NextDelayed => &[StoreName::Meta, StoreName::Delayed, StoreName::Bodies],
            View::NextDue => &[StoreName::Meta, StoreName::Delayed, StoreName::Due, StoreName::Turns],
            _ => &SCOPE,
        };
        let seen = transact(&*self.host.store, scope, Mode::ReadOnly, async |tx| {
            self.check_database(tx).await?;
            let (mut reads, mut changes) = (Reads::default(), Changes::default());
            let mut driver = Driver::new(self, tx, &mut reads, &mut changes);
            match driver.answer(view, position, extent).await {
                Err(Stop::Stale) => {
                    driver.read_definitions().await?;
                    driver.answer(view, position, extent).await
                }
                seen => seen,
            }
        });
        let mut seen = seen.await?;
        if let Seen::Groups(page) = &mut seen {
            say_who_holds(self, &mut page.rows).await;
        }
        Ok(seen)
    }
}

impl Driver<'_> {
    async fn answer(&mut self, view: &View, position: Option<&[f64]>, extent: Extent) -> Outcome<Seen> {
        match view {
            View::Select(queue, filter) => select(self, Some(queue), filter, position, extent).await.map(Seen::Rows),
            View::SelectFailed(filter) => select(self, None, filter, position, extent).await.map(Seen::Rows),
            View::Count(queue, filter) => count_rows(self, queue, filter).await.map(Seen::Count),
            View::Conversations(filter) => conversations(self, filter, position, extent).await.map(Seen::Endpoints),
            View::Groups(service) => groups(self, service.as_deref(), position, extent).await.map(Seen::Groups),
            View::Archive(filter) => select_archive(self, filter, position, extent).await.map(Seen::Rows),
            View::Delayed(filter) => select_delayed(self, filter, position, extent).await.map(Seen::Delayed),
            View::NextDelayed => next_delayed(self).await.map(Seen::Next),
            View::NextDue => next_due(self).await.map(Seen::Next),
            // These read what they need without paging.
            _ => self.look(|work| look(work, view)).await,
        }
    }

    /// Runs a plain function that changes nothing.
    pub(crate) async fn look<T>(&mut self, view: impl Fn(&mut Work<'_>) -> Outcome<T>) -> Outcome<T> {
        self.run(Purpose::View(0), view).await
    }
}

fn look(work: &mut Work<'_>, view: &View) -> Outcome<Seen> {
    match view {
        View::Info(handle) => {
            info(work, handle).map(|found| Seen::Endpoints(Page { rows: found.into_iter().collect(), next: None }))
        }
        View::TransmissionQueue(conversation) => {
            transmission_queue(work, conversation.as_deref()).map(Seen::TransmissionQueue)
        }
        View::Transmittable(routes) => is_transmittable(work, routes).map(Seen::Transmittable),
        View::CountDelayed => work.numbers().map(|numbers| Seen::Count(numbers.delayed)),
        View::Stats => gauges(work).map(|gauges| Seen::Stats(BrokerStats { gauges, ..BrokerStats::default() })),
        _ => queues(work).map(Seen::Queues),
    }
}
