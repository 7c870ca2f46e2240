//! Views: reading without locks, from what is committed.

mod endpoints;
mod queues;
mod select;
mod transmission;

use std::rc::Rc;

use crate::core::Core;
use crate::error::Result;
use crate::store::{Mode, StoreName, transact};
use crate::work::{Changes, Outcome, Purpose, Stop, Work};

pub use endpoints::{Endpoint, EndpointFilter};
pub use queues::QueueInfo;
pub use select::RowFilter;
pub(crate) use endpoints::{conversations, info};
pub(crate) use queues::{count, queues};
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
const SCOPE: [StoreName; 8] = [
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
    pub(crate) async fn view<T>(self: &Rc<Self>, scope: &[StoreName], view: impl AsyncFn(&mut Work<'_>) -> Outcome<T>) -> Result<T> {
        loop {
            let read = transact(&*self.host.store, scope, Mode::ReadOnly, async |tx| {
                let mut changes = Changes::default();
                let mut work = Work { core: self, tx, catalog: self.catalog(), now: self.host.clock.now(), purpose: Purpose::View(0), changes: &mut changes };
                view(&mut work).await
            });
            match read.await {
                Err(Stop::Stale) => self.reload_catalog().await?,
                read => return Ok(read?),
            }
        }
    }

    pub(crate) async fn view_rows<T>(self: &Rc<Self>, view: impl AsyncFn(&mut Work<'_>) -> Outcome<T>) -> Result<T> {
        self.view(&SCOPE, view).await
    }
}
