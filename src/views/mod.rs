//! Views: reading without locks, from what is committed.

mod endpoints;
mod queues;
mod select;
mod transmission;

use std::rc::Rc;

use crate::changes::Changes;
use crate::core::Core;
use crate::driver::Driver;
use crate::error::Result;
use crate::reads::Reads;
use crate::store::{Mode, StoreName, transact};
use crate::work::{Outcome, Purpose, Stop, Work};

pub use endpoints::{Endpoint, EndpointFilter};
pub use queues::QueueInfo;
pub use select::RowFilter;
pub(crate) use endpoints::{conversations, info};
pub(crate) use queues::{count_rows, queues};
pub(crate) use select::{select, select_archive};
pub use transmission::TransmissionRow;
pub(crate) use transmission::transmission_queue;

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

impl Core {
    /// Runs a view in one read-only storage transaction, begun again when the definitions turn out to be old.
    pub(crate) async fn view<T>(self: &Rc<Self>, scope: &[StoreName], view: impl AsyncFn(&mut Driver<'_>) -> Outcome<T>) -> Result<T> {
        loop {
            let read = transact(&*self.host.store, scope, Mode::ReadOnly, async |tx| {
                let (mut reads, mut changes) = (Reads::default(), Changes::default());
                view(&mut Driver { core: self, tx, catalog: self.catalog(), reads: &mut reads, changes: &mut changes }).await
            });
            match read.await {
                Err(Stop::Stale) => self.reload_catalog().await?,
                read => return Ok(read?),
            }
        }
    }

    /// Runs a view that is a plain function.
    pub(crate) async fn look<T>(self: &Rc<Self>, view: impl Fn(&mut Work<'_>) -> Outcome<T>) -> Result<T> {
        self.view(&SCOPE, async |driver| driver.look(&view).await).await
    }
}

impl Driver<'_> {
    /// Runs a plain function that changes nothing.
    pub(crate) async fn look<T>(&mut self, view: impl Fn(&mut Work<'_>) -> Outcome<T>) -> Outcome<T> {
        self.run(Purpose::View(0), view).await
    }
}
