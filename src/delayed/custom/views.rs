//! What is delayed, wherever it is: in the built-in store, in the hop, and in the store of the application's own.

use std::rc::Rc;

use super::calls::ask;
use super::hop::{read, rows, stamp_of, whole};
use super::poller::has_hop;
use super::{DelayedMessage, DelayedMessageStore};
use crate::clock::Instant;
use crate::core::Core;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::Decoded;
use crate::store::{Direction, Mode, StoreName};
use crate::views::{DelayedFilter, Extent, Seen, View};

impl Core {
    /// Completes the answer of a view of what is delayed. `None`: it is about something else, or there is nothing to add.
    pub(crate) async fn see_delayed(self: &Rc<Self>, view: &View, position: Option<&[f64]>) -> Result<Option<Seen>> {
        let Some(store) = self.host.delayed_store.clone() else { return Ok(None) };
        match view {
            View::Delayed(filter) if position.is_none() => {
                let hop = in_hop(self).await?;
                let Seen::Delayed(mut page) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let stored = selected(self, &store, filter).await?;
                page.rows = merge(page.rows, hop, stored, filter);
                Ok(Some(Seen::Delayed(page)))
            }
            View::CountDelayed => {
                let Seen::Count(own) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let stored = ask(self, "count", store.count()).await?.ok_or_else(|| not_supported("count"))?;
                Ok(Some(Seen::Count(own + stored)))
            }
            View::NextDelayed | View::NextDue => {
                let Seen::Next(own) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let hop = match view {
                    // The pump has something to do.
                    View::NextDue if has_hop(self).await? => Some(self.host.clock.now()),
                    View::NextDue => None,
                    _ => in_hop(self).await?.iter().map(|message| message.time).reduce(f64::min),
                };
                let stored = ask(self, "next", store.next()).await?;
                Ok(Some(Seen::Next([own, hop, stored].into_iter().flatten().reduce(Instant::min))))
            }
            _ => Ok(None),
        }
    }
}

/// What the store has.
async fn selected(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    filter: &DelayedFilter,
) -> Result<Vec<DelayedMessage>> {
    ask(core, "select", store.select(filter)).await?.ok_or_else(|| not_supported("select"))
}

/// The message with an id, if the store has it.
pub(crate) async fn find(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    id: &str,
) -> Result<Option<DelayedMessage>> {
    let all = selected(core, store, &DelayedFilter::default()).await?;
    Ok(all.into_iter().find(|message| message.message_id.eq_ignore_ascii_case(id)))
}

fn not_supported(method: &str) -> Error {
    let text = format!(
        "The delayed message store has no method `{method}`, so this can't be told. Give it one, or keep account of what is sent."
    );
    Error::new(ErrorCode::NotSupported, text).with("method", method)
}

/// The messages of the hop, in the order in which they were sent.
async fn in_hop(core: &Core) -> Result<Vec<DelayedMessage>> {
    core.transact(&[StoreName::Delayed, StoreName::Bodies], Mode::ReadOnly, async |tx| {
        let keys = tx.get_keys(StoreName::Delayed, &rows(), None).await?;
        let records = tx.get_range(StoreName::Delayed, &rows(), None, Direction::Forward).await?;
        let mut messages = Vec::with_capacity(keys.len());
        for (key, record) in keys.iter().zip(&records) {
            // One that can't be read goes to the error queue.
            let Ok(Ok(delayed)) = stamp_of(&key.to_value()).map(|stamp| read(stamp, record)) else { continue };
            let body = match delayed.is_large() {
                true => tx.get(StoreName::Bodies, &delayed.body_key()).await?,
                false => None,
            };
            messages.push(whole(delayed, body).into());
        }
        Ok(messages)
    })
    .await
}

/// Whether a destination is the one that is wanted: the letters of a handle may be of either case.
fn is_same(wanted: &str, destination: &str) -> bool {
    wanted == destination || (Decoded::parse(destination).is_some() && wanted.eq_ignore_ascii_case(destination))
}

/// In the order of their times. What is in the hop counts: the store may have it already, or still under another time.
fn merge(
    own: Vec<DelayedMessage>,
    hop: Vec<DelayedMessage>,
    stored: Vec<DelayedMessage>,
    filter: &DelayedFilter,
) -> Vec<DelayedMessage> {
    let is_wanted = |message: &DelayedMessage| {
        filter.before.is_none_or(|before| message.time < before)
            && filter.destination.as_ref().is_none_or(|wanted| is_same(wanted, &message.destination))
    };
    let is_in_hop = |message: &DelayedMessage| hop.iter().any(|other| other.message_id == message.message_id);
    let stored: Vec<_> = stored.into_iter().filter(|message| is_wanted(message) && !is_in_hop(message)).collect();
    let mut all = own;
    all.extend(stored);
    all.extend(hop.into_iter().filter(is_wanted));
    all.sort_by(|one, other| one.time.total_cmp(&other.time));
    let limit = filter.limit.and_then(|limit| num_traits::ToPrimitive::to_usize(&limit)).unwrap_or(usize::MAX);
    all.truncate(limit);
    all
}
