//! What is delayed, wherever it is: in the built-in store, in the hop, and in the store of the application's own.

use std::rc::Rc;

use super::calls::ask;
use super::hop::{read, rows, stamp_of, whole};
use super::{DelayedMessage, DelayedMessageStore};
use crate::body::Value;
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::Delayed;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Decoded, text};
use crate::store::{Direction, Key, Mode, StoreName};
use crate::views::{DelayedFilter, Extent, Seen, View};

impl Core {
    /// Completes the answer of a view of what is delayed. `None`: it is about something else, or there is nothing to add. Without a store the hop
    /// may have something all the same: it was opened with one before, and will be again.
    pub(crate) async fn see_delayed(self: &Rc<Self>, view: &View, position: Option<&[f64]>) -> Result<Option<Seen>> {
        let store = self.host.delayed_store.clone();
        match (view, store) {
            (View::Delayed(filter), store) if position.is_none() => {
                let hop = in_hop(self).await?;
                if store.is_none() && hop.is_empty() {
                    return Ok(None);
                }
                let Seen::Delayed(mut page) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                // Those that the hop replaces do not count.
                let unlimited = DelayedFilter { limit: None, ..filter.clone() };
                let stored = match store {
                    Some(store) => selected(self, &store, &unlimited).await?,
                    None => Vec::new(),
                };
                page.rows = merge(self, page.rows, stored, filter).await?;
                Ok(Some(Seen::Delayed(page)))
            }
            (View::CountDelayed, Some(store)) => {
                let Seen::Count(own) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let stored = ask(self, "count", store.count()).await?.ok_or_else(|| not_supported("count"))?;
                Ok(Some(Seen::Count(own + stored)))
            }
            (View::NextDelayed, store) => {
                let Seen::Next(own) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let hop = in_hop(self).await?.iter().map(|delayed| delayed.time).reduce(f64::min);
                let stored = match store {
                    Some(store) => ask(self, "next", store.next()).await?,
                    None => None,
                };
                Ok(Some(Seen::Next([own, hop, stored].into_iter().flatten().reduce(f64::min))))
            }
            (View::NextDue, Some(store)) => {
                let Seen::Next(own) = self.see(view, None, Extent::All).await? else { return Ok(None) };
                let hop = in_hop(self).await?;
                let hop = hop.iter().map(|delayed| delayed.hop.unwrap_or_default().not_before);
                let stored = ask(self, "next", store.next()).await?;
                let all: Vec<Instant> = hop.chain(own).chain(stored).collect();
                // What can't be done now is no reason to pass over what is due later.
                let now = self.host.clock.now();
                let ahead = all.iter().copied().filter(|at| *at > now).reduce(f64::min);
                Ok(Some(Seen::Next(ahead.or_else(|| all.first().map(|_| now)))))
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

/// The messages of the hop, in the order in which they were sent, without large bodies.
async fn in_hop(core: &Core) -> Result<Vec<Delayed>> {
    core.transact(&[StoreName::Delayed], Mode::ReadOnly, async |tx| {
        let keys = tx.get_keys(StoreName::Delayed, &rows(), None).await?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let records = tx.get_range(StoreName::Delayed, &rows(), None, Direction::Forward).await?;
        let read = |(key, record): (&Key, &Value)| stamp_of(&key.to_value()).and_then(|stamp| read(stamp, record)).ok();
        // One that can't be read goes to the error queue.
        Ok(keys.iter().zip(&records).filter_map(read).collect())
    })
    .await
}

/// The same with their large bodies.
async fn with_bodies(core: &Core, messages: Vec<Delayed>) -> Result<Vec<DelayedMessage>> {
    core.transact(&[StoreName::Bodies], Mode::ReadOnly, async |tx| {
        let mut shown = Vec::with_capacity(messages.len());
        for delayed in &messages {
            let body = match delayed.is_large() {
                true => tx.get(StoreName::Bodies, &delayed.body_key()).await?,
                false => None,
            };
            shown.push(whole(delayed.clone(), body).into());
        }
        Ok(shown)
    })
    .await
}

/// Whether a destination is the one that is wanted: the letters of a handle may be of either case.
fn is_same(wanted: &str, destination: &str) -> bool {
    wanted == destination || (Decoded::parse(destination).is_some() && wanted.eq_ignore_ascii_case(destination))
}

/// In the order of their times. What is in the hop counts: the store may have it already, or still under another time.
async fn merge(
    core: &Core,
    own: Vec<DelayedMessage>,
    stored: Vec<DelayedMessage>,
    filter: &DelayedFilter,
) -> Result<Vec<DelayedMessage>> {
    let mut hop = in_hop(core).await?;
    let is_wanted = |message: &DelayedMessage| {
        filter.before.is_none_or(|before| message.time < before)
            && filter.destination.as_ref().is_none_or(|wanted| is_same(wanted, &message.destination))
    };
    let ids: Vec<Rc<str>> = hop.iter().map(|delayed| text(delayed.id)).collect();
    let limit = filter.limit.and_then(|limit| num_traits::ToPrimitive::to_usize(&limit)).unwrap_or(usize::MAX);
    hop.retain(|delayed| is_wanted(&DelayedMessage::from(delayed.clone())));
    hop.sort_by(|one, other| one.time.total_cmp(&other.time));
    hop.truncate(limit);
    let is_elsewhere = |message: &DelayedMessage| is_wanted(message) && !ids.contains(&message.message_id);
    let mut all = own;
    all.extend(stored.into_iter().filter(is_elsewhere));
    all.extend(with_bodies(core, hop).await?);
    all.sort_by(|one, other| one.time.total_cmp(&other.time));
    all.truncate(limit);
    Ok(all)
}
