//! The pump: gives what lies in the hop to the store.

use std::rc::Rc;

use super::calls::ask;
use super::claim::{Claim, Claimed};
use super::hop::{NotStored, Stored, behind, read, rows, shown, stamp_of, whole};
use super::poller::{again_at, back_off, pause};
use super::step::{Came, Step};
use super::{DelayedMessage, DelayedMessageStore, hop};
use crate::clock::Instant;
use crate::core::Core;
use crate::delayed::{Delayed, To};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::text;
use crate::message::count;
use crate::store::{Bound, Direction, Key, Mode, Range, StoreName};

/// Rows that are read, and given to the store before a commit says so; and the most bytes of their bodies.
const ROWS: u32 = 32;
const BYTES: f64 = 16_777_216.0;
/// What is said to be begun is begun within so many milliseconds of real time, or not at all.
const PROMPT: f64 = 1_000.0;
/// The longest wait of a row that the store does not take.
const LONGEST: f64 = 60_000.0;

/// Rows of the hop, and the key of the last record that was read.
struct HopPage {
    messages: Vec<Rc<Delayed>>,
    last: Option<Key>,
    /// The first that can't be read.
    problem: Option<Error>,
    /// How often the page had slept.
    closings: u64,
}

async fn read_page(core: &Core, range: &Range) -> Result<HopPage> {
    let closings = core.gate.closings();
    core.transact(&[StoreName::Delayed, StoreName::Bodies], Mode::ReadOnly, async |tx| {
        let keys = tx.get_keys(StoreName::Delayed, range, Some(ROWS)).await?;
        let records = tx.get_range(StoreName::Delayed, range, Some(ROWS), Direction::Forward).await?;
        let mut page = HopPage { messages: Vec::new(), last: None, problem: None, closings };
        let mut bytes = 0.0;
        for (key, record) in keys.iter().zip(&records) {
            let read = stamp_of(&key.to_value()).and_then(|stamp| read(stamp, record));
            if let Ok(delayed) = &read {
                bytes += delayed.body.size;
                if bytes > BYTES && !page.messages.is_empty() {
                    break;
                }
            }
            page.last = Some(key.clone());
            match read {
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
    given: &mut u64,
) -> Result<Option<Instant>, Pause> {
    // It goes on behind what has failed last, and comes to that at its end: what the store never takes holds up nobody else.
    let resumed = core.stored.resume.take();
    let mut range = resumed.as_ref().map_or_else(rows, |(stamp, _)| behind(*stamp));
    let mut is_whole = resumed.is_none();
    let mut again: Option<Instant> = None;
    // What waits keeps those of its time and destination behind it: they were stored after it.
    let mut waiting: Vec<Waiting> = resumed.map(|(_, waiting)| waiting).unwrap_or_default();
    while core.is_open() {
        let page = read_page(core, &range).await.map_err(|error| Pause::of(core, &error))?;
        if let Some(problem) = &page.problem {
            // It goes to the error queue as it is. Where there is no room for that, the others go on.
            let _ = core.mend(problem, &mut None).await;
        }
        let mut stored = Vec::new();
        let mut trouble = None;
        for delayed in &page.messages {
            let hop = delayed.hop.unwrap_or_default();
            let (now, own) = (core.host.clock.now(), Waiting::of(delayed));
            // One further ahead than it can be: the clock was set back.
            let is_put_off = !eager && hop.not_before > now && hop.not_before <= now + LONGEST;
            let claimed = hop.claimed_until(now).filter(|_| hop.replaces);
            if is_put_off || claimed.is_some() || waiting.iter().any(|other| other.keeps(&own)) {
                if is_put_off {
                    again_at(&mut again, hop.not_before);
                }
                claimed.into_iter().for_each(|until| again_at(&mut again, until));
                waiting.push(own);
                continue;
            }
            // While the page slept others may have pumped.
            if core.gate.closings() != page.closings || !core.is_open() {
                return Ok(Some(now));
            }
            let mut claimed = None;
            match give(core, store, delayed, hop, &mut claimed).await {
                Ok(true) => {
                    core.stored.store.success();
                    stored.push((delayed.place.stamp, claimed));
                }
                Ok(false) => waiting.push(own),
                Err(error) => {
                    trouble = Some((delayed, hop, claimed, error));
                    break;
                }
            }
        }
        if !stored.is_empty() {
            *given += count(stored.len());
            let stored = Step::Stored(Stored(stored));
            core.step(stored).await.map_err(|error| Pause::of(core, &error))?;
            core.stored.fetch_again();
        }
        match trouble {
            Some((.., error)) if error.code() == ErrorCode::Closed => return Err(Pause::closed()),
            Some((delayed, hop, claimed, error)) => {
                let stamp = delayed.place.stamp;
                if is_unrecoverable(&error) {
                    core.stored.store.success();
                    let refused = Step::NotStored(NotStored { stamp, claimed, error, again_at: None });
                    core.step(refused).await.map_err(|error| Pause::of(core, &error))?;
                    // Those behind it have not been offered.
                    range = behind(stamp);
                    continue;
                }
                let pause = Pause::of(core, &error);
                let wait = back_off(core, hop.failures).max(pause.wait);
                let again_at = Some(core.host.clock.now() + wait);
                // Where that can't be written, it is the first again.
                let _ = core.step(Step::NotStored(NotStored { stamp, claimed, error, again_at })).await;
                waiting.push(Waiting::of(delayed));
                core.stored.resume.replace(Some((stamp, waiting)));
                return Err(pause);
            }
            None => {}
        }
        match page.last {
            Some(last) => range.lower = Bound::Excluding(last),
            None if is_whole => break,
            None => {
                is_whole = true;
                range = rows();
            }
        }
    }
    // What was fetched under its old time is not held any longer: it was replaced. What waits to be would only be fetched again.
    let mut moved = core.stored.moved.take();
    let is_waiting = |message: &DelayedMessage| waiting.iter().any(|other| *other.id == *message.message_id);
    core.stored.moved.borrow_mut().extend(moved.extract_if(.., |message| is_waiting(message)));
    for message in moved {
        let _ = ask(core, "release", store.release(message)).await;
    }
    Ok(again)
}

/// A row that waits: those of its time and destination that were stored after it are not to go first.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    id: Rc<str>,
    at: Instant,
    to: To,
    stamp: u64,
}

impl Waiting {
    fn of(delayed: &Delayed) -> Self {
        Self { id: text(delayed.id), at: delayed.place.at, to: delayed.to.clone(), stamp: delayed.place.stamp }
    }

    fn keeps(&self, other: &Self) -> bool {
        let has_order = !matches!(&self.to, To::Lane { key, .. } if key.is_loose());
        has_order && self.stamp < other.stamp && self.at.total_cmp(&other.at).is_eq() && self.to == other.to
    }
}

/// The store has it. False: somebody else is at it, or it is there no more.
async fn give(
    core: &Rc<Core>,
    store: &Rc<dyn DelayedMessageStore>,
    delayed: &Rc<Delayed>,
    hop: hop::Hop,
    claimed: &mut Option<Claimed>,
) -> Result<bool> {
    let message = shown(delayed);
    if !hop.replaces {
        // Whether it had it already is no matter: the commit that would have said so was lost.
        return ask(core, "store", store.store(message)).await.map(|_| true);
    }
    let began = core.host.pulse.clock.now();
    let came = core.step(Step::Claim(Claim(delayed.place.stamp))).await?;
    let Came::Claimed(Some(own)) = came else { return Ok(false) };
    *claimed = Some(own);
    if (core.host.pulse.clock.now() - began).abs() > PROMPT {
        // The page has slept: by now somebody else may be at it.
        return Ok(false);
    }
    let id = Rc::clone(&message.message_id);
    ask(core, "remove", store.remove(DelayedMessage::with_id(Rc::clone(&id)))).await?;
    match ask(core, "store", store.store(message)).await? {
        true => Ok(true),
        false => Err(still_there(&id)),
    }
}

/// What was there before was not removed, or was stored again by a call that took its time.
fn still_there(id: &str) -> Error {
    let text = format!(
        "The delayed message store still has the message {id}, which was moved to another time, although it was asked to remove it. It is asked again."
    );
    Error::new(ErrorCode::DelayedStoreFailed, text).with("messageId", id)
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
