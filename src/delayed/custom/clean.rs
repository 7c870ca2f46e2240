//! Has the store remove what was cancelled, and what was dispatched by somebody who could not ask it any more.

use std::rc::Rc;

use uuid::Uuid;

use super::DelayedMessage;
use super::calls::ask;
use super::change::Settle;
use super::memory::{Fate, Removed, gone, id_of, read};
use super::poller::again_at;
use super::step::Step;
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::DelayedMessageStore;
use crate::error::Result;
use crate::store::{Bound, Direction, Key, Mode, StoreName};

/// Records that are read at once.
const ROWS: u32 = 32;
/// So many failures end it.
const FAILURES: u32 = 8;
/// For so long, in milliseconds, whoever withdraws a message asks the store himself whether it was there.
const ASKING: f64 = 60_000.0;

/// Gives when there is something to do again.
pub(super) async fn clean(core: &Rc<Core>, store: &Rc<dyn DelayedMessageStore>) -> Result<Option<Instant>> {
    let mut range = gone();
    let mut again: Option<Instant> = None;
    let (mut failed, mut failures) = (None, 0);
    while core.is_open() {
        let (keys, records) = core
            .transact(&[StoreName::Delayed], Mode::ReadOnly, async |tx| {
                let keys = tx.get_keys(StoreName::Delayed, &range, Some(ROWS)).await?;
                Ok((keys, tx.get_range(StoreName::Delayed, &range, Some(ROWS), Direction::Forward).await?))
            })
            .await?;
        let mut removed = Vec::new();
        for (key, record) in keys.iter().zip(&records) {
            let now = core.host.clock.now();
            // One that can't be read says at least that it is not to be there.
            let (fate, since) = read(record).unwrap_or((Fate::Cancelled, now));
            if fate == Fate::Asking && (now - since).abs() < ASKING {
                again_at(&mut again, since + ASKING);
                continue;
            }
            let Some(id) = id_of(&key.to_value()) else { continue };
            let uuid = Uuid::try_parse(&id).ok();
            if uuid.is_some_and(|id| core.stored.in_hand.borrow().contains(&id)) {
                continue;
            }
            match ask(core, "remove", store.remove(DelayedMessage::with_id(Rc::clone(&id)))).await {
                // It was not there, so nobody who has asked is told that it was.
                Ok(false) if fate == Fate::Asking => {
                    let Some(id) = uuid else { continue };
                    core.step(Step::Settle(Settle { id, was_there: Some(false) })).await?;
                }
                Ok(_) => removed.extend(uuid),
                // One that can't be removed is in nobody's way; a store that is out of reach is left alone.
                Err(error) => {
                    failures += 1;
                    failed = failed.or(Some(error));
                    if failures >= FAILURES {
                        break;
                    }
                }
            }
        }
        if !removed.is_empty() {
            core.step(Step::Removed(Removed(removed))).await?;
        }
        match keys.last() {
            Some(last) if failures < FAILURES => range.lower = Bound::Excluding(Key::clone(last)),
            _ => break,
        }
    }
    failed.map_or(Ok(again), Err)
}
