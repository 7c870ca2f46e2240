//! Records that can't be read are set aside, and what they belong to goes on (D37).
//!
//! A call that meets one stops with `StorageCorrupt`, which says where the record is. It is mended in a storage transaction of its own, by
//! whoever comes first, and the call runs again. Nothing is deleted that somebody could repair by hand: messages move to the error queue as
//! they are. What a newer build has written is not touched: that is `VersionTooNew`.

mod conversations;
mod numbers;
mod others;
mod rows;

pub(crate) use rows::read_or_bury;

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use num_traits::ToPrimitive;

use crate::arrival;
use crate::body::{Body, Value};
use crate::conversation::Conversation;
use crate::core::Core;
use crate::definitions::{DEFAULT, ERROR_QUEUE};
use crate::error::{Error, ErrorCode, Result};
use crate::error_queue::{self, FailedAt};
use crate::ids::{Role, SideId};
use crate::lane::Lane;
use crate::message::{Class, LARGE_BODY, Row};
use crate::notice::Dropped;
use crate::record::Unreadable;
use crate::recoverability::Thrown;
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::turn::{self, HeldTurn, OutgoingTurn, Turn};
use crate::verbs::{Answer, Verb, shared_columns};
use crate::work::{Purpose, Work};

/// Where a record is.
pub(crate) type Place = (StoreName, Key);

impl Error {
    /// Where the record is that can't be read.
    fn place(&self) -> Option<Place> {
        let detail = |wanted: &str| self.details().iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let store = detail("store")?.text().filter(|_| self.is_corrupt())?;
        let store = StoreName::ALL.into_iter().find(|known| known.name() == store)?;
        Some((store, Key::from_value(detail("key")?)?))
    }
}

impl Core {
    /// Mends what a call has failed by; false: it can't be mended, or was mended for this call already. `last`: what was mended for it last.
    pub(crate) fn mend<'a>(
        self: &'a Rc<Self>,
        error: &Error,
        last: &'a mut Option<Place>,
    ) -> LocalBoxFuture<'a, Result<bool>> {
        let place = error.place().filter(|place| last.as_ref() != Some(place));
        // One future for all who may need it: it is small where it is not.
        async move {
            let Some(place) = place else { return Ok(false) };
            *last = Some(place.clone());
            let (mut met, mut next) = (vec![place.clone()], place.clone());
            loop {
                let verb = Rc::new(Verb::Mend(next.clone()));
                let answer = self.commit(verb, Purpose::Commit, 0, None, None).await.map_err(Error::from);
                // Bodies that were handed out with what failed are read anew.
                self.forget_uncommitted();
                match answer {
                    Ok(Answer::Mended(Mended::Partly)) => {}
                    Ok(Answer::Mended(Mended::Yes)) if next != place => next = place.clone(),
                    Ok(answer) => return Ok(matches!(answer, Answer::Mended(Mended::Yes))),
                    // Whatever else stands in the way is mended first, once.
                    Err(error) => match error.place().filter(|other| !met.contains(other)) {
                        Some(other) => {
                            met.push(other.clone());
                            next = other;
                        }
                        None => return Err(error),
                    },
                }
            }
        }
        .boxed_local()
    }

    /// Mends what was passed over, beside whatever else goes on.
    pub(crate) fn mend_beside(self: &Rc<Self>) {
        if let Some(place) = self.passed_over.take().as_ref().and_then(Error::place) {
            drop(self.commit(Rc::new(Verb::Mend(place)), Purpose::Commit, 0, None, None));
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mended {
    /// Whoever met it may go on.
    Yes,
    /// There is more to do, in another storage transaction.
    Partly,
    No,
}

impl From<bool> for Mended {
    fn from(is_mended: bool) -> Self {
        if is_mended { Self::Yes } else { Self::No }
    }
}

/// Sets a record aside, or makes it anew: a verb of its own.
pub(crate) fn mend(work: &mut Work<'_>, place: &Place) -> Outcome<Mended> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    match place {
        (StoreName::Conversations, key) => conversations::mend(work, key),
        place => set_aside_at(work, place).map(Mended::from),
    }
}

/// What a verb has met, within that verb.
pub(crate) fn set_aside(work: &mut Work<'_>, error: &Error) -> Outcome<bool> {
    error.place().map_or(Ok(false), |place| set_aside_at(work, &place))
}

/// Gives whether whoever met it may go on.
fn set_aside_at(work: &mut Work<'_>, (store, key): &Place) -> Outcome<bool> {
    match store {
        StoreName::Messages => rows::mend_run(work, key),
        StoreName::Bodies => rows::mend_body(work, key),
        StoreName::Turns => mend_turn(work, key),
        StoreName::Due => others::mend_timer(work, key),
        StoreName::Members => others::mend_member(work, key),
        StoreName::Queues => others::mend_queue(work, key),
        StoreName::Seen => others::mend_seen(work, key),
        StoreName::Delayed => crate::delayed::mend(work, key),
        StoreName::Meta => numbers::mend(work, key),
        _ => Ok(false),
    }
}

/// A turn is said by its conversation: the record is made anew, or goes.
fn mend_turn(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Some(id) = turn::side_of(key) else { return Ok(false) };
    let conversation = work.conversation(id.conversation)?;
    let mut record = None;
    if let Some((conversation, side)) = conversation.as_deref().and_then(|found| Some((found, found.side(id.role)?))) {
        let queue = work.queue_of(side.service)?.number;
        let turn = Turn::of(conversation, id, queue);
        let to_receive = turn.filter(|turn| turn.key() == *key || turn.twin_key().as_ref() == Some(key));
        let held = side.held_turn.map(|order| HeldTurn { queue, order, side: id }).filter(|turn| turn.key() == *key);
        let outgoing = OutgoingTurn::of(conversation, id.role);
        let outgoing = outgoing.filter(|turn| turn.keys().any(|own| own == *key)).map(|turn| turn.record());
        record = to_receive.map(|turn| turn.record()).or(held.map(|turn| turn.record())).or(outgoing);
    }
    work.write(match record {
        Some(record) => Change::Put(StoreName::Turns, key.clone(), record),
        None => Change::Delete(StoreName::Turns, key.clone()),
    });
    Ok(true)
}

/// Messages of a side that can't be read: where, the first number, and how many.
struct Lost<'a> {
    conversation: &'a Conversation,
    role: Role,
    /// Who sent them.
    sender: Role,
    first: u64,
    count: u64,
}

impl<'a> Lost<'a> {
    /// What is no message.
    fn nothing(conversation: &'a Conversation, role: Role) -> Self {
        Self { conversation, role, sender: role, first: 0, count: 0 }
    }

    /// Every broker hears of them, all together.
    fn tell(&self, work: &mut Work<'_>) {
        let mut message = shared_columns(self.conversation, self.sender);
        message.push(("messageSequenceNumber", crate::record::value(self.shown())));
        work.changes.notice.dropped.push(Dropped { reason: "corrupt".into(), message, envelope: None });
        work.changes.counts.dropped += self.count;
    }

    /// The number as it is shown.
    fn shown(&self) -> u64 {
        let base = self.conversation.lane.as_ref().map_or(0, |lane| lane.base);
        self.first.saturating_sub(base)
    }

    /// What is left of them goes to the error queue. It can't go back from there by itself: it was never tried.
    fn bury(&self, work: &mut Work<'_>, row: Row, problem: &str) -> Outcome<()> {
        let service = self.conversation.side(self.role).map(|side| side.service);
        let lane = Lane::of(self.conversation).map(|lane| (lane.key, lane.priority));
        let failed = lost_in(work, service, self.conversation.handle(self.role), self.shown(), problem);
        error_queue::put(work, FailedAt { lane, ..failed }, row)
    }
}

/// Where something was lost, as far as it is known.
fn lost_in(work: &Work<'_>, service: Option<u32>, handle: Rc<str>, sequence: u64, problem: &str) -> FailedAt {
    let queue = service.and_then(|service| work.catalog.queue_of(service)).map(|queue| Rc::clone(&queue.name));
    FailedAt {
        queue: queue.unwrap_or_else(|| ERROR_QUEUE.into()),
        handle,
        lane: None,
        sequence,
        attempts: 0,
        error: Thrown {
            name: "BrokerError".into(),
            message: problem.into(),
            code: Some(ErrorCode::StorageCorrupt.name().into()),
        },
        stack: "".into(),
        endpoint: Rc::clone(&work.core.host.name),
        at: work.now,
        was_delayed: false,
    }
}

/// Puts a record of messages that nobody has got yet into the error queue, as it is. Their own records stay the caller's to delete.
pub(crate) fn bury_record(
    work: &mut Work<'_>,
    (store, key): (StoreName, &Key),
    (record, count): (Value, u64),
    bodies: Vec<Value>,
    problem: Unreadable,
) -> Outcome<()> {
    let problem = problem_of(problem, (store, key))?;
    let failed = lost_in(work, None, "".into(), 0, &problem);
    let row = raw_row(work, store, key, record, bodies);
    work.changes.notice.dropped.push(Dropped { reason: "corrupt".into(), message: Vec::new(), envelope: None });
    work.changes.counts.dropped += count;
    error_queue::put(work, failed, row)
}

/// Puts what a store of the application's own has given in place of a message into the error queue, as it is.
pub(crate) fn bury_foreign(work: &mut Work<'_>, raw: &Body, problem: &str) -> Outcome<()> {
    let problem =
        format!("The delayed message store has given something that is no message: {}.", problem.trim_end_matches('.'));
    let failed = lost_in(work, None, "".into(), 0, &problem);
    let row = arrival::system_row(work, DEFAULT, raw.clone());
    work.changes.notice.dropped.push(Dropped { reason: "corrupt".into(), message: Vec::new(), envelope: None });
    work.changes.counts.dropped += 1;
    error_queue::put(work, failed, row)
}

/// The row of a record as it is, with the key that it had and the large bodies that belonged to it.
fn raw_row(work: &Work<'_>, store: StoreName, key: &Key, record: Value, bodies: Vec<Value>) -> Row {
    let value = Value::object(vec![
        ("store", Value::from(store.name())),
        ("key", key.to_value()),
        ("record", record),
        ("bodies", Value::list(bodies)),
    ]);
    // Nobody has measured it: it gets a record of its own.
    let body = Body { value: value.into(), packing: 0, size: LARGE_BODY };
    arrival::system_row(work, DEFAULT, body)
}

/// What is wrong with a record, for people.
fn problem_of(problem: Unreadable, (store, key): (StoreName, &Key)) -> Result<String> {
    text_of(problem.at(store, key), store)
}

fn text_of(error: Error, store: StoreName) -> Result<String> {
    let problem = error.details().iter().find(|(name, _)| *name == "problem").and_then(|(_, problem)| problem.text());
    let Some(problem) = problem.filter(|_| error.is_corrupt()) else { return Err(error) };
    Ok(format!("A record of the object store \"{}\" could not be read: {problem}.", store.name()))
}

/// A number in a key.
fn number(part: &Key) -> Option<u64> {
    match part {
        Key::Number(number) => number.to_u64(),
        _ => None,
    }
}

/// The side, the class and the number in a key of a run or a body.
fn read_key(key: &Key) -> Option<(SideId, Class, u64)> {
    let Key::List(parts) = key else { return None };
    let [side, class, last] = parts.as_slice() else { return None };
    let class = number(class)?;
    let class = Class::ALL.into_iter().find(|known| u64::from(known.number()) == class)?;
    Some((SideId::from_number(number(side)?), class, number(last)?))
}
