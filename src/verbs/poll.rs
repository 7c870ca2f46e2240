//! What is due: timers that fire, lifetimes and waits that end, ids that expire, and retained rows that are too old.

use num_traits::ToPrimitive;

use super::{change_state, deliver};
use crate::arrival;
use crate::body::{Body, Value};
use crate::clock::Instant;
use crate::conversation::State;
use crate::definitions::FIRST_QUEUE;
use crate::delayed::due::read_due;
use crate::due::{Due, DueKind, timer_body};
use crate::error::Error;
use crate::ids::{Role, SideId};
use crate::recoverability;
use crate::seen;
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Key, Range, StoreName};
use crate::transmission::closed;
use crate::waits;
use crate::work::Work;

/// Some of what is due.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) which: Which,
    /// At most so many of each.
    pub(crate) rows: usize,
}

/// What of all that is due.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    All,
    /// No delayed messages; the due rows of a range.
    Due(Range),
    /// Delayed messages alone. `Some`: they can't be sent, for this reason.
    Delayed(Option<Error>),
}

/// What was due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polled {
    /// How many messages came of it.
    pub(crate) moved: u64,
    /// When the next row is due, maybe now.
    pub(crate) next: Option<Instant>,
    /// Why a row had to be left.
    pub(crate) problem: Option<Error>,
}

impl Poll {
    /// Does what is due, the earliest first. Whoever deletes the row does it, so it is done once, however many contexts try.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Polled> {
        // What the verbs before this one did is to be seen.
        work.after_others()?;
        let now = work.now;
        let most = self.rows.to_u32().unwrap_or(u32::MAX);
        let range = match &self.which {
            Which::All => Some(Range::all()),
            Which::Due(range) => Some(range.clone()),
            Which::Delayed(_) => None,
        };
        // Both stores at once.
        let keys = range.map(|range| work.get_keys(StoreName::Due, range, Some(most + 1)).map(<[Value]>::to_vec));
        let delayed = (!matches!(self.which, Which::Due(_))).then(|| read_due(work, most));
        let was_set_back = if matches!(self.which, Which::All) { waits::are_too_long(work) } else { Ok(false) };
        let (mut keys, delayed) = (keys.transpose()?.unwrap_or_default(), delayed.transpose()?);
        if was_set_back? {
            // What is due by that is read in a storage transaction of its own.
            waits::end(work)?;
            return Ok(Polled { next: Some(f64::NEG_INFINITY), ..Polled::default() });
        }
        let mut rows: Vec<Due> = keys.iter().filter_map(Due::read).collect();
        // Behind a page of which a newer build knows more, there is another one.
        let mut later = self.behind(&keys);
        while let Some((range, _)) = later.take_if(|(_, at)| rows.len() <= self.rows && *at <= now) {
            keys = work.get_keys(StoreName::Due, range, Some(most + 1))?.to_vec();
            rows.extend(keys.iter().filter_map(Due::read));
            later = self.behind(&keys);
        }
        // A message that is due before the end of its conversation's lifetime goes before that.
        let left = delayed.as_ref().and_then(|delayed| delayed.next).filter(|next| *next <= now);
        let is_due = |due: &&Due| due.at <= now && left.is_none_or(|left| due.at < left);
        let count = rows.iter().take(self.rows).take_while(is_due).count();
        let mut next = rows.get(count).map(|due| due.at).or(later.map(|(_, at)| at));
        rows.truncate(count);

        let bodies = read_bodies(work, &rows);
        work.need(rows.iter().filter_map(Due::conversation), [])?;
        let bodies = bodies?;
        let mut moved = 0;
        if let Some(delayed) = delayed {
            next = [next, delayed.next].into_iter().flatten().reduce(f64::min);
            moved += match &self.which {
                Which::Delayed(Some(error)) => delayed.refuse(work, error)?,
                _ => delayed.dispatch(work)?,
            };
        }
        for (due, body) in rows.iter().zip(bodies) {
            work.drop_due(due);
            moved += match (&due.kind, body) {
                (_, Some(body)) => fire(work, due, body)?,
                (DueKind::Seen(_), None) => {
                    seen::expire(work, due);
                    0
                }
                (DueKind::Retention, None) => age(work, due)?,
                (DueKind::Delivery, None) => {
                    let (rows, is_more) = deliver::go_on(work, due)?;
                    next = if is_more { Some(next.map_or(due.at, |next| next.min(due.at))) } else { next };
                    rows
                }
                (DueKind::Retry, None) => {
                    recoverability::resume(work, SideId::from_number(due.number), Some((due.at, due.stamp)))?;
                    0
                }
                (DueKind::PutBack, None) => 0,
                (DueKind::Closed, None) => {
                    closed::expire(work, due)?;
                    0
                }
                (_, None) => expire(work, due)?,
            };
        }
        Ok(Polled { moved, next, problem: None })
    }
}

impl Poll {
    /// What lies behind a page of keys that is full, and from when on.
    fn behind(&self, keys: &[Value]) -> Option<(Range, Instant)> {
        let last = keys.last().filter(|_| keys.len() > self.rows)?;
        let range = Range { lower: Bound::Excluding(Key::from_value(last)?), ..Range::all() };
        Some((range, last.item(0).number()?))
    }
}

/// The bodies of the timers among the rows.
fn read_bodies(work: &mut Work<'_>, rows: &[Due]) -> Outcome<Vec<Option<Body>>> {
    let mut bodies = Vec::with_capacity(rows.len());
    let mut is_missing = false;
    for due in rows {
        bodies.push(match due.kind {
            DueKind::Timer => match work.get(StoreName::Due, due.key()) {
                Ok(record) => {
                    let body = timer_body(&record.unwrap_or_default());
                    Some(body.map_err(|problem| problem.at(StoreName::Due, &due.key()))?)
                }
                // Those that are missing are read together.
                Err(Stop::Missing) => {
                    is_missing = true;
                    None
                }
                Err(stop) => return Err(stop),
            },
            _ => None,
        });
    }
    if is_missing { Err(Stop::Missing) } else { Ok(bodies) }
}

/// A timer fires: a DialogTimer for its own side.
fn fire(work: &mut Work<'_>, due: &Due, body: Body) -> Outcome<u64> {
    let id = SideId::from_number(due.number);
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(0) };
    let Some(side) = conversation.side_mut(id.role) else { return Ok(0) };
    let Some(index) = side.timers.iter().position(|timer| (timer.at, timer.stamp) == (due.at, due.stamp)) else {
        return Ok(0);
    };
    side.timers.remove(index);
    arrival::time_out(work, &mut conversation, id.role, body)?;
    work.changes.counts.timers += 1;
    work.save(conversation);
    Ok(1)
}

/// What a queue retains has become too old: whoever touches the queue drops it.
fn age(work: &mut Work<'_>, due: &Due) -> Outcome<u64> {
    let queue = work.catalog.queues.values().find(|queue| u64::from(queue.number) == due.number).cloned();
    // One that is not known here may be new.
    let number = queue.map_or(FIRST_QUEUE, |queue| queue.number);
    work.queue(number)?;
    if u64::from(number) == due.number {
        work.change_queue(number, |queue| queue.oldest_due = queue.oldest_due.filter(|at| *at != due.at));
    }
    Ok(0)
}

/// A lifetime ends: an Error for both sides. Nothing is sent any more, and both still have to END.
fn expire(work: &mut Work<'_>, due: &Due) -> Outcome<u64> {
    let Some(mut conversation) = work.conversation(due.number)? else { return Ok(0) };
    if conversation.lifetime != Some((due.at, Some(due.stamp))) {
        return Ok(0);
    }
    conversation.lifetime = Some((due.at, None));
    let mut moved = 0;
    for role in [Role::Initiator, Role::Target] {
        let state = conversation.side(role).map(|side| side.state);
        if state == Some(State::DisconnectedOutbound) && conversation.local == Some(false) {
            // Nobody takes it from then on.
            deliver::drop_outgoing(
                work,
                &mut conversation,
                role,
                "the lifetime of the conversation was over before it had arrived",
            )?;
            arrival::finish_outbound(work, &mut conversation, role)?;
            continue;
        }
        // One that has ended hears nothing any more; one that has failed knows.
        if state.is_none_or(|state| matches!(state, State::DisconnectedOutbound | State::Error | State::Closed)) {
            continue;
        }
        arrival::fail_anew(work, &mut conversation, role, -8489, "The lifetime of the conversation is over.")?;
        // At once, even if the Error has to wait outside: nothing is to be sent after the end.
        change_state(work, &mut conversation, role, State::Error)?;
        moved += 1;
    }
    work.save(conversation);
    Ok(moved)
}
