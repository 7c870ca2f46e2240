//! The pump: gives what lies in the hop to the store, and has the store remove what is not to be in it.

use std::rc::Rc;

use super::calls::ask;
use super::hop::{NotStored, Stored, behind, read, rows, shown, stamp_of, whole};
use super::memory::{Fate, Removed, gone, id_of};
use super::poller::{Step, pause};
use super::{DelayedMessage, DelayedMessageStore, hop, memory};
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::Delayed;
use crate::error::{Error, ErrorCode, Result};
use crate::store::{Bound, Direction, Key, Mode, Range, StoreName};
use uuid::Uuid;

/// Rows that are read, and given to the store before a commit says so.
const ROWS: u32 = 32;
/// For so long, in milliseconds, whoever withdraws a message asks the store himself whether it was there.
const ASKING: f64 = 60_000.0;
/// The longest wait of a row that the store does not take.
const LONGEST: f64 = 60_000.0;

/// Rows of the hop, and the key of the last.
struct HopPage {
    messages: Vec<Rc<Delayed>>,
    last: Option<u64>,
    /// The first that can't be read.
    problem: Option<Error>,
}

async fn read_page(core: &Core, range: &Range) -> Result<HopPage> {
    core.transact(&[StoreName::Delayed, StoreName::Bodies], Mode::ReadOnly, async |tx| {
        let keys = tx.get_keys(StoreName::Delayed, range, Some(ROWS)).await?;
        let records = tx.get_range(StoreName::Delayed, range, Some(ROWS), Direction::Forward).await?;
        let mut page = HopPage { messages: Vec::new(), last: None, problem: None };
        for (key, record) in keys.iter().zip(&records) {
            let value = key.to_value();
            let Ok(stamp) = stamp_of(&value) else { continue };
            page.last = Some(stamp);
            match read(stamp, record) {
                Ok(delayed) => {
                    let body = match delayed.is_large() {
                        true => tx.get(StoreName::Bodies, &delayed.body_key()).await?,
                        false => None,
                    };
                    page.messages.push(Rc::new(whole(delayed, body)));
                }
                Err(problem) => page.problem = page.problem.or(Some(problem.at(StoreName::Delayed, key))),
            }
        }
        Ok(page)
    })
    .await
}

/// Gives all that waits to the store. `eager`: what has failed is tried, too. Gives when something is to be tried again.
pub(super) async fn pump(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    eager: bool,
) -> Result<Option<Instant>, Pause> {
    let mut range = rows();
    let mut again: Option<Instant> = None;
    loop {
        let page = read_page(core, &range).await.map_err(|error| Pause::of(core, &error))?;
        if let Some(problem) = &page.problem {
            // It goes to the error queue as it is. Where there is no room for that, the others go on.
            let _ = core.mend(problem, &mut None).await;
        }
        let mut stored = Vec::new();
        let mut trouble = None;
        for delayed in &page.messages {
            let hop = delayed.hop.unwrap_or_default();
            let now = core.host.clock.now();
            // One further ahead than it can be: the clock was set back.
            if !eager && hop.not_before > now && hop.not_before <= now + LONGEST {
                again = Some(again.map_or(hop.not_before, |again| again.min(hop.not_before)));
                continue;
            }
            match give(core, store, delayed, hop).await {
                Ok(()) => {
                    core.stored.store.success();
                    stored.push(delayed.place.stamp);
                }
                Err(error) => {
                    trouble = Some((delayed, hop, error));
                    break;
                }
            }
        }
        if !stored.is_empty() {
            let stored = Step::Stored(Stored(stored));
            core.step(stored).await.map_err(|error| Pause::of(core, &error))?;
        }
        match trouble {
            Some((_, _, error)) if error.code() == ErrorCode::Closed => return Err(Pause::closed()),
            Some((delayed, hop, error)) => {
                let stamp = delayed.place.stamp;
                if is_unrecoverable(&error) {
                    core.stored.store.success();
                    let refused = Step::NotStored(NotStored { stamp, error, again_at: None });
                    core.step(refused).await.map_err(|error| Pause::of(core, &error))?;
                    // Those behind it have not been offered.
                    range = if stamp == 0 { rows() } else { behind(stamp) };
                    continue;
                }
                let pause = Pause::of(core, &error);
                let wait = super::poller::back_off(core, hop.failures).max(pause.wait);
                let again_at = Some(core.host.clock.now() + wait);
                // Where that can't be written, it is the first again.
                let _ = core.step(Step::NotStored(NotStored { stamp, error, again_at })).await;
                return Err(pause);
            }
            None => {}
        }
        match page.last {
            Some(last) => range = behind(last),
            None => return Ok(again),
        }
    }
}

async fn give(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    delayed: &Rc<Delayed>,
    hop: hop::Hop,
) -> Result<()> {
    let message = shown(delayed);
    if hop.replaces {
        ask(core, "remove", store.remove(DelayedMessage::with_id(Rc::clone(&message.message_id)))).await?;
    }
    // Whether it had it already is no matter: the commit that would have said so was lost.
    ask(core, "store", store.store(message)).await.map(drop)
}

/// Whether the store says that it will never take it.
fn is_unrecoverable(error: &Error) -> bool {
    error.details().iter().any(|(name, _)| *name == "unrecoverable")
}

/// It can't go on now.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) wait: f64,
    pub(super) error: Option<Error>,
}

impl Pause {
    fn closed() -> Self {
        Self { wait: 0.0, error: None }
    }

    fn of(core: &Rc<Core>, error: &Error) -> Self {
        if error.code() == ErrorCode::Closed {
            return Self::closed();
        }
        let length = core.host.delayed.store_breaker;
        Self { wait: pause(core, &core.stored.store, length, "store", error), error: Some(error.clone()) }
    }
}

/// Has the store remove what was cancelled, and what was dispatched by somebody who could not ask it any more. Gives when there is something to do
/// again.
pub(super) async fn clean(core: &Rc<Core>, store: &Rc<dyn DelayedMessageStore>) -> Result<Option<Instant>> {
    let mut range = gone();
    let mut again: Option<Instant> = None;
    loop {
        let (keys, records) = core
            .transact(&[StoreName::Delayed], Mode::ReadOnly, async |tx| {
                let keys = tx.get_keys(StoreName::Delayed, &range, Some(ROWS)).await?;
                Ok((keys, tx.get_range(StoreName::Delayed, &range, Some(ROWS), Direction::Forward).await?))
            })
            .await?;
        let mut removed = Vec::new();
        let mut failed = None;
        for (key, record) in keys.iter().zip(&records) {
            let now = core.host.clock.now();
            // One that can't be read says at least that it is not to be there.
            let (fate, since) = memory::read(record).unwrap_or((Fate::Cancelled, now));
            if fate == Fate::Asking && (now - since).abs() < ASKING {
                let end = since + ASKING;
                again = Some(again.map_or(end, |again| again.min(end)));
                continue;
            }
            let Some(id) = id_of(&key.to_value()) else { continue };
            match ask(core, "remove", store.remove(DelayedMessage::with_id(Rc::clone(&id)))).await {
                Ok(_) => removed.extend(Uuid::try_parse(&id).ok()),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if !removed.is_empty() {
            core.step(Step::Removed(Removed(removed))).await?;
        }
        match (failed, keys.last()) {
            (Some(error), _) => return Err(error),
            (None, Some(last)) => range.lower = Bound::Excluding(Key::clone(last)),
            (None, None) => return Ok(again),
        }
    }
}
