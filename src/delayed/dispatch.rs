//! What is due is sent, or put into its queue: "as if sent then".

use std::rc::Rc;

use uuid::Uuid;

use super::{Delayed, Place, To, due_at, marks_of};
use crate::arrival;
use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::State;
use crate::due;
use crate::error::{Error, ErrorCode};
use crate::error_queue::{self, FailedAt};
use crate::ids::{Decoded, SideId, text};
use crate::lane::{Lane, ROLE};
use crate::map::Map;
use crate::mend;
use crate::message::{Row, count};
use crate::record::Unreadable;
use crate::recoverability::Thrown;
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Bound, Change, Key, Range, StoreName};
use crate::verbs::send;
use crate::waits;
use crate::work::Work;

/// The most bytes of bodies in one storage transaction.
const BYTES: f64 = 16_777_216.0;
/// The first wait of a message whose sender's queue is off, and the longest.
const WAIT: f64 = 1_000.0;
pub(crate) const LONGEST_WAIT: f64 = 60_000.0;

/// What is due, and when more is.
pub(crate) struct Due {
    messages: Vec<Delayed>,
    /// Those whose large bodies are not there.
    bodiless: Vec<Delayed>,
    /// Records that can't be read.
    unreadable: Vec<Remains>,
    /// Of all of these, the first and the last key.
    span: Option<(Key, Key)>,
    pub(crate) next: Option<Instant>,
}

/// Reads the first messages that are due.
pub(crate) fn read_due(work: &mut Work<'_>, most: u32) -> Outcome<Due> {
    let (range, later) = due_at(work.now);
    // All at once.
    let keys = work.get_keys(StoreName::Delayed, range.clone(), Some(most + 1)).map(<[Value]>::to_vec);
    let records = work.get_range(StoreName::Delayed, range, Some(most)).map(<[Value]>::to_vec);
    let later = work.get_keys(StoreName::Delayed, later, Some(1)).map(|keys| keys.first().cloned());
    let (keys, records, later) = (keys?, records?, later?);
    let (mut messages, mut unreadable, mut bytes, mut taken) = (Vec::new(), Vec::new(), 0.0, 0_usize);
    for (key, record) in keys.iter().zip(&records) {
        match Delayed::read(key, record) {
            Ok(delayed) => {
                bytes += delayed.body.size;
                if bytes > BYTES && taken > 0 {
                    break;
                }
                messages.push(delayed);
            }
            Err(problem) => {
                unreadable.push(Remains::of(key, record, problem));
            }
        }
        taken += 1;
    }
    let last = taken.checked_sub(1).and_then(|last| keys.get(last)).and_then(Key::from_value);
    let span = keys.first().and_then(Key::from_value).zip(last);
    let next = keys.get(taken).or(later.as_ref()).and_then(|key| key.item(0).number());
    let bodiless = read_bodies(work, &mut messages);
    let remains = read_remains(work, &mut unreadable);
    let bodiless = bodiless?;
    remains?;
    Ok(Due { messages, bodiless, unreadable, span, next })
}

/// What is left of a message whose record can't be read.
struct Remains {
    key: Key,
    record: Value,
    problem: Unreadable,
    place: Option<Place>,
    /// What it still says of itself.
    handle: Option<Rc<str>>,
    id: Option<Uuid>,
    body: Option<Value>,
}

impl Remains {
    fn of(key: &Value, record: &Value, problem: Unreadable) -> Self {
        let bytes = record.item(2).bytes();
        Self {
            place: Place::read(key).ok(),
            handle: record.item(1).text().map(Rc::from),
            id: bytes.and_then(|bytes| Uuid::from_slice(&bytes).ok()),
            key: Key::from_value(key).unwrap_or(Key::Number(-1.0)),
            record: record.clone(),
            problem,
            body: None,
        }
    }

    fn side(&self) -> Option<SideId> {
        self.handle.as_ref().and_then(|handle| Decoded::parse(handle)).map(|decoded| decoded.side)
    }

    /// It goes to the error queue as it is, and what led to it goes.
    fn bury(self, work: &mut Work<'_>) -> Outcome<()> {
        let id = self.id.into_iter().map(Delayed::name);
        id.for_each(|name| work.write(Change::Delete(StoreName::Members, name)));
        if let Some(place) = self.place {
            let mark = self.side().map(|side| Delayed::mark(side, place));
            mark.into_iter().for_each(|mark| work.write(Change::Delete(StoreName::Members, mark)));
            work.write(Change::Delete(StoreName::Bodies, place.body()));
        }
        self.handle.iter().try_for_each(|handle| leave(work, handle, 1))?;
        let bodies = self.body.into_iter().collect();
        mend::bury_record(work, (StoreName::Delayed, &self.key), self.record, bodies, self.problem)
    }
}

/// The large bodies that may belong to them, all at once.
fn read_remains(work: &mut Work<'_>, unreadable: &mut [Remains]) -> Outcome<()> {
    let mut is_missing = false;
    for remains in unreadable {
        match remains.place.map(|place| work.get(StoreName::Bodies, place.body())).transpose() {
            Ok(body) => remains.body = body.flatten(),
            Err(Stop::Missing) => is_missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(()) }
}

/// Reads the large bodies, all at once, and takes out the messages whose bodies are not there.
fn read_bodies(work: &mut Work<'_>, messages: &mut Vec<Delayed>) -> Outcome<Vec<Delayed>> {
    let mut is_missing = false;
    let mut lost = Vec::new();
    for delayed in messages.iter_mut().filter(|delayed| delayed.is_large()) {
        match work.get(StoreName::Bodies, delayed.body_key()) {
            Ok(Some(body)) => delayed.body.value = body.into(),
            Ok(None) => lost.push(delayed.place),
            Err(Stop::Missing) => is_missing = true,
            Err(stop) => return Err(stop),
        }
    }
    if is_missing {
        return Err(Stop::Missing);
    }
    let bodiless = messages.extract_if(.., |delayed| lost.contains(&delayed.place));
    Ok(bodiless.collect())
}

impl Due {
    /// Dispatches all of it, in its order, and deletes it. Gives how many messages that were.
    pub(crate) fn dispatch(self, work: &mut Work<'_>) -> Outcome<u64> {
        let lanes = self.messages.iter().filter_map(|delayed| lane(work, &delayed.to)).map(|(lane, _)| lane);
        let lanes: Vec<Lane> = lanes.collect();
        Lane::read_ahead(work, lanes.iter())?;
        self.take(work, &|work, run| dispatch(work, run))
    }

    /// All of it goes to the error queue. What can't be read stands in nobody's way.
    pub(crate) fn refuse(self, work: &mut Work<'_>, error: &Error) -> Outcome<u64> {
        self.take(work, &|work, run| {
            if let Some(handle) = run.first().and_then(Delayed::handle) {
                pass_over(leave(work, handle, count(run.len())), &mut None)?;
            }
            fail(work, run, error)
        })
    }

    fn take(self, work: &mut Work<'_>, send: &dyn Fn(&mut Work<'_>, &[Delayed]) -> Outcome<u64>) -> Outcome<u64> {
        let Some((first, last)) = self.span else { return Ok(0) };
        let Self { messages, bodiless, unreadable, .. } = self;
        let total = count(messages.len() + bodiless.len() + unreadable.len());
        let all = || messages.iter().chain(&bodiless);
        let sides = all().filter_map(Delayed::side).chain(unreadable.iter().filter_map(Remains::side));
        work.need(sides.map(|side| side.conversation).collect::<Vec<_>>(), [])?;
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(total))?;
        work.changes.notice.delayed = true;
        work.write(Change::DeleteRange(StoreName::Delayed, Range::between(first, last)));
        remove_marks(work, all());
        unreadable.into_iter().try_for_each(|remains| remains.bury(work))?;
        for delayed in &bodiless {
            let error = Error::corrupt(StoreName::Bodies.name(), &delayed.body_key(), "it is not there");
            delayed.handle().map_or(Ok(()), |handle| leave(work, handle, 1))?;
            fail(work, std::slice::from_ref(delayed), &error)?;
        }
        let mut moved = 0;
        for run in messages.chunk_by(|one, other| one.to == other.to) {
            moved += send(work, run)?;
        }
        Ok(moved)
    }
}

/// Deletes what leads to them.
fn remove_marks<'a>(work: &mut Work<'_>, messages: impl Iterator<Item = &'a Delayed>) {
    let mut sides: Map<SideId, Place> = Map::default();
    for delayed in messages {
        delayed.side().into_iter().for_each(|side| {
            let known = sides.get(&side).copied().unwrap_or(delayed.place);
            sides.insert(side, if known.is_before(delayed.place) { delayed.place } else { known });
        });
        if delayed.is_named {
            work.write(Change::Delete(StoreName::Members, Delayed::name(delayed.id)));
        }
        if delayed.is_large() {
            work.write(Change::Delete(StoreName::Bodies, delayed.body_key()));
        }
        work.changes.note_delayed(delayed.id, None);
    }
    // Whatever a side has before the last of them is among them.
    for (side, last) in sides.iter() {
        let range = Range { upper: Bound::Including(Delayed::mark(*side, *last)), ..marks_of(*side) };
        work.write(Change::DeleteRange(StoreName::Members, range));
    }
}

/// Messages of one destination.
pub(super) fn dispatch(work: &mut Work<'_>, run: &[Delayed]) -> Outcome<u64> {
    let Some(to) = run.first().map(|delayed| &delayed.to) else { return Ok(0) };
    match to {
        To::Conversation(handle) => {
            leave(work, handle, count(run.len()))?;
            on_conversation(work, handle, run)
        }
        To::Lane { queue, .. } => match work.look_up(|catalog| catalog.queue(queue)) {
            Ok(_) => into_lane(work, to, run),
            Err(Stop::Failed(error)) => {
                let error = Error::new(
                    error.code(),
                    format!(
                        "The queue \"{queue}\" was dropped before the delayed message could go into it. Define it again and return the message."
                    ),
                );
                fail(work, run, &error)
            }
            Err(stop) => Err(stop),
        },
    }
}

/// So many of an endpoint are no longer under way.
pub(super) fn leave(work: &mut Work<'_>, handle: &Rc<str>, count: u64) -> Outcome<()> {
    let Some((mut conversation, role)) = work.find(handle)? else { return Ok(()) };
    if let Some(side) = conversation.side_mut(role) {
        side.delayed = side.delayed.saturating_sub(count);
    }
    work.save(conversation);
    Ok(())
}

fn on_conversation(work: &mut Work<'_>, handle: &Rc<str>, run: &[Delayed]) -> Outcome<u64> {
    let Some((conversation, role)) = work.find(handle)? else {
        let text = format!("The conversation {handle} is gone, so the delayed message could not be sent on it.");
        return fail(work, run, &Error::new(ErrorCode::ConversationNotFound, text));
    };
    let Some(side) = conversation.side(role).cloned() else { return Ok(0) };
    let own = work.queue_of(side.service)?;
    if !side.state.may_send() {
        let ended = if side.state == State::Error { "has failed" } else { "was ended" };
        let text = format!(
            "The conversation {handle} {ended} before the delayed message was due, so it could not be sent on it. Send what it says on another one."
        );
        return fail(work, run, &Error::new(ErrorCode::InvalidState, text).numbered(8429));
    }
    if own.retention && !own.enqueue_enabled {
        // SEND would be refused: what is sent can't be kept. They go when the queue is on again.
        run.iter().try_for_each(|delayed| wait(work, delayed))?;
        return Ok(0);
    }
    let rows = rows(work, run);
    send(work, conversation, role, rows)?;
    work.changes.counts.delayed_dispatched += count(run.len());
    Ok(count(run.len()))
}

fn into_lane(work: &mut Work<'_>, to: &To, run: &[Delayed]) -> Outcome<u64> {
    let Some((lane, service)) = lane(work, to) else { return Ok(0) };
    let mut conversation = lane.open(work, &service)?;
    let rows = rows(work, run);
    arrival::arrive(work, &mut conversation, ROLE, rows, false)?;
    work.save(conversation);
    work.changes.counts.delayed_dispatched += count(run.len());
    Ok(count(run.len()))
}

/// The lane, and the name of its service.
pub(crate) fn lane(work: &Work<'_>, to: &To) -> Option<(Lane, Rc<str>)> {
    let To::Lane { queue, key, priority } = to else { return None };
    let service = work.catalog.service(queue).ok()?;
    Some((Lane { service: service.number, priority: *priority, key: key.clone() }, Rc::clone(&service.name)))
}

/// As they go: at their destination they are as old as this commit.
fn rows(work: &Work<'_>, run: &[Delayed]) -> Vec<Row> {
    run.iter().map(|delayed| row(work, delayed)).collect()
}

fn row(work: &Work<'_>, delayed: &Delayed) -> Row {
    Row {
        message_type: Rc::clone(&delayed.message_type),
        id: delayed.id,
        time: work.now,
        headers: delayed.headers.clone(),
        body: delayed.body.clone(),
    }
}

/// Puts a message back, to be tried again: later each time, and behind what is due by then.
fn wait(work: &mut Work<'_>, delayed: &Delayed) -> Outcome<()> {
    let stamp = waits::begin(work)?;
    work.change_numbers(|numbers| numbers.delayed += 1)?;
    if let Some((mut conversation, role)) = delayed.handle().map(|handle| work.find(handle)).transpose()?.flatten() {
        if let Some(side) = conversation.side_mut(role) {
            side.delayed += 1;
        }
        work.save(conversation);
    }
    let doubled = crate::record::float(1 << delayed.waits.min(6));
    let at = (work.now + (WAIT * doubled).min(LONGEST_WAIT)).ceil();
    if delayed.is_large() {
        work.write(Change::Put(StoreName::Bodies, delayed.body_key(), delayed.body.value.value()));
    }
    let row = due::Due { at, stamp, kind: due::DueKind::PutBack, number: 0 };
    work.put_due(&row, due::put_back_record(work.now));
    let put_back = Delayed { place: Place { at, stamp }, is_named: true, waits: delayed.waits + 1, ..delayed.clone() };
    put_back.store(work);
    Ok(())
}

/// They can't go where they were to go: to the error queue, at once.
fn fail(work: &mut Work<'_>, run: &[Delayed], error: &Error) -> Outcome<u64> {
    run.iter().try_for_each(|delayed| fail_one(work, delayed, error, 1))?;
    Ok(0)
}

/// The same of one, after so many attempts.
pub(super) fn fail_one(work: &mut Work<'_>, delayed: &Delayed, error: &Error, attempts: u64) -> Outcome<()> {
    let (queue, handle, lane) = match &delayed.to {
        To::Lane { queue, key, priority } => (Rc::clone(queue), "".into(), Some((key.clone(), *priority))),
        To::Conversation(handle) => (Rc::clone(handle), Rc::clone(handle), None),
    };
    let failed = FailedAt {
        queue,
        handle,
        lane,
        sequence: 0,
        attempts,
        error: Thrown {
            name: "BrokerError".into(),
            message: error.to_string().into(),
            code: Some(error.code().name().into()),
        },
        stack: "".into(),
        endpoint: Rc::clone(&work.core.host.name),
        at: work.now,
        was_delayed: true,
    };
    let row = row(work, delayed);
    work.changes.notice.failed.push(failed.notice(text(row.id)));
    error_queue::put(work, failed, row)
}
