//! What is due: read, and taken out of the store, to be dispatched.

use super::dispatch::{dispatch, fail, lane, leave};
use super::run::{Mark, read_ids};
use super::{Delayed, Run, RunKey, Shift, due_at, marks_of};
use crate::body::Value;
use crate::clock::Instant;
use crate::error::Error;
use crate::ids::SideId;
use crate::lane::Lane;
use crate::map::Map;
use crate::mend;
use crate::message::count;
use crate::record::Unreadable;
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Bound, Change, Key, Range, StoreName};
use crate::work::Work;

/// The most messages, and bytes of bodies, in one storage transaction.
const MESSAGES: u64 = 4_096;
const BYTES: f64 = 16_777_216.0;
/// So many runs are read at first: full ones have no fewer messages. Where they have, four times as many are read each time.
const RUNS: u32 = 16;

/// What is due, and when more is.
#[derive(Default)]
pub(crate) struct Due {
    messages: Vec<Delayed>,
    /// Those whose large bodies are not there.
    bodiless: Vec<Delayed>,
    /// Runs that can't be read.
    unreadable: Vec<Remains>,
    /// So many runs these are, and so many messages and bytes.
    runs: usize,
    count: u64,
    bytes: f64,
    /// The last run of each side.
    sides: Map<SideId, RunKey>,
    /// The first and the last key.
    span: Option<(Key, Key)>,
    pub(crate) next: Option<Instant>,
}

/// Reads the first messages that are due, in so many runs at most.
pub(crate) fn read_due(work: &mut Work<'_>, most: u32) -> Outcome<Due> {
    let (range, later) = due_at(work.now);
    let mut size = RUNS.min(most);
    // All at once.
    let keys = work.get_keys(StoreName::Delayed, range.clone(), Some(most + 1)).map(<[Value]>::to_vec);
    let records = work.get_range(StoreName::Delayed, range.clone(), Some(size)).map(<[Value]>::to_vec);
    let later = work.get_keys(StoreName::Delayed, later, Some(1)).map(|keys| keys.first().cloned());
    let (keys, mut records, later) = (keys?, records?, later?);
    let mut due = Due::default();
    let key = |index: Option<usize>| keys.get(index?).and_then(Key::from_value);
    loop {
        let is_full = records.iter().any(|record| keys.get(due.runs).is_none_or(|key| !due.take(key, record)));
        let last = key(due.runs.checked_sub(1));
        let left = most.saturating_sub(u32::try_from(due.runs).unwrap_or(u32::MAX));
        due.span = key(Some(0)).zip(last.clone());
        let Some(last) = last.filter(|_| !is_full && left > 0 && due.runs < keys.len()) else { break };
        size = size.saturating_mul(4).min(left);
        let behind = Range { lower: Bound::Excluding(last), ..range.clone() };
        records = work.get_range(StoreName::Delayed, behind, Some(size))?.to_vec();
    }
    due.next = keys.get(due.runs).or(later.as_ref()).and_then(|key| key.item(0).number());
    let bodies = due.read_bodies(work);
    let remains = read_remains(work, &mut due.unreadable);
    bodies?;
    remains?;
    Ok(due)
}

/// What is left of a run that can't be read.
struct Remains {
    key: Key,
    run: Option<RunKey>,
    record: Value,
    problem: Unreadable,
    mark: Option<Mark>,
    bodies: Vec<Value>,
}

impl Remains {
    /// It goes to the error queue as it is, and what led to its messages goes.
    fn bury(self, work: &mut Work<'_>) -> Outcome<()> {
        if let Some(run) = self.run {
            match &self.mark {
                Some(mark) => mark.clear(work),
                // What it still says of itself.
                None => {
                    Mark { names: read_ids(&self.record.item(4)), large: Vec::new() }.clear(work);
                    work.write(Change::DeleteRange(StoreName::Bodies, run.bodies()));
                }
            }
            leave(work, run.side, run.count)?;
        }
        let count = self.run.map_or(1, |run| run.count);
        mend::bury_record(work, (StoreName::Delayed, &self.key), (self.record, count), self.bodies, self.problem)
    }

    /// What its side knows of it, and its large bodies.
    fn read(&mut self, work: &mut Work<'_>) -> Outcome<()> {
        let Some(run) = self.run else { return Ok(()) };
        let mark = run.mark().map(|mark| work.get(StoreName::Members, mark)).transpose()?.flatten();
        self.mark = mark.and_then(|mark| Mark::read(&mark).ok());
        self.bodies = match &self.mark {
            Some(mark) => mark.read_bodies(work)?,
            None => work.get_range(StoreName::Bodies, run.bodies(), None)?.to_vec(),
        };
        Ok(())
    }
}

/// All at once.
fn read_remains(work: &mut Work<'_>, unreadable: &mut [Remains]) -> Outcome<()> {
    let mut is_missing = false;
    for remains in unreadable {
        match remains.read(work) {
            Err(Stop::Missing) => is_missing = true,
            read => read?,
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(()) }
}

impl Due {
    /// Takes a run, if there is room for it.
    fn take(&mut self, key: &Value, record: &Value) -> bool {
        let run_key = RunKey::read(key).ok();
        let count = run_key.map_or(0, |run| run.count);
        match Run::read(key, record) {
            Ok(mut run) => {
                let bytes = run.messages.iter().map(|delayed| delayed.body.size).sum::<f64>();
                if self.runs > 0 && (self.count + count > MESSAGES || self.bytes + bytes > BYTES) {
                    return false;
                }
                self.bytes += bytes;
                self.messages.append(&mut run.messages);
            }
            Err(problem) => self.unreadable.push(Remains {
                key: Key::from_value(key).unwrap_or(Key::Number(-1.0)),
                run: run_key,
                record: record.clone(),
                problem,
                mark: None,
                bodies: Vec::new(),
            }),
        }
        if let Some((side, run)) = run_key.and_then(|run| Some((run.side?, run))) {
            self.sides.insert(side, run);
        }
        self.runs += 1;
        self.count += count;
        true
    }

    /// Reads the large bodies, all at once, and takes out the messages whose bodies are not there.
    fn read_bodies(&mut self, work: &mut Work<'_>) -> Outcome<()> {
        let (mut is_missing, mut lost) = (false, Vec::new());
        for delayed in self.messages.iter_mut().filter(|delayed| delayed.is_large()) {
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
        self.bodiless = self.messages.extract_if(.., |delayed| lost.contains(&delayed.place)).collect();
        Ok(())
    }

    /// Dispatches all of it, in its order, and deletes it. Gives how many messages that were.
    pub(crate) fn dispatch(self, work: &mut Work<'_>) -> Outcome<u64> {
        let lanes = self.to_each().filter_map(|first| lane(work, &first.to)).map(|(lane, _)| lane);
        let lanes: Vec<Lane> = lanes.collect();
        // All that they will need, at once: of an endpoint, the queues that it was last seen on, and its far end.
        let of_lanes = lanes.iter().filter_map(|lane| work.catalog.queue_of(lane.service)).map(|queue| queue.number);
        let of_sides = self.sides.keys().flat_map(|side| [*side, side.far()]);
        let of_sides = of_sides.filter_map(|side| work.core.routes.get(side));
        let queues: Vec<u32> = of_lanes.chain(of_sides).collect();
        let lanes = Lane::read_ahead(work, lanes.iter());
        self.need_conversations(work, queues)?;
        lanes?;
        self.go(work, &|work, together| dispatch(work, together))
    }

    /// All of it goes to the error queue. What can't be read stands in nobody's way.
    pub(crate) fn refuse(self, work: &mut Work<'_>, error: &Error) -> Outcome<u64> {
        self.go(work, &|work, together| {
            let side = together.first().and_then(|delayed| delayed.side());
            pass_over(leave(work, side, count(together.len())), &mut None)?;
            fail(work, together, error)
        })
    }

    fn need_conversations(&self, work: &mut Work<'_>, queues: Vec<u32>) -> Outcome<()> {
        work.need(self.sides.keys().map(|side| side.conversation), queues)
    }

    /// Of messages that follow each other to one destination: the first.
    fn to_each(&self) -> impl Iterator<Item = &Delayed> {
        self.messages.chunk_by(|one, other| one.to == other.to).filter_map(|together| together.first())
    }

    fn go(self, work: &mut Work<'_>, send: &dyn Fn(&mut Work<'_>, &[Delayed]) -> Outcome<u64>) -> Outcome<u64> {
        let Some((first, last)) = self.span.clone() else { return Ok(0) };
        self.need_conversations(work, Vec::new())?;
        work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(self.count))?;
        work.changes.notice.delayed = true;
        work.write(Change::DeleteRange(StoreName::Delayed, Range::between(first, last)));
        // Whatever a side has before the last of them is among them.
        for (side, mark) in self.sides.iter().filter_map(|(side, run)| Some((*side, run.mark()?))) {
            let range = Range { upper: Bound::Including(mark), ..marks_of(side) };
            work.write(Change::DeleteRange(StoreName::Members, range));
        }
        self.messages.iter().chain(&self.bodiless).for_each(|delayed| forget(work, delayed));
        self.unreadable.into_iter().try_for_each(|remains| remains.bury(work))?;
        for delayed in &self.bodiless {
            let error = Error::corrupt(StoreName::Bodies.name(), &delayed.body_key(), "it is not there");
            leave(work, delayed.side(), 1)?;
            fail(work, std::slice::from_ref(delayed), &error)?;
        }
        let mut moved = 0;
        for together in self.messages.chunk_by(|one, other| one.to == other.to) {
            moved += send(work, together)?;
        }
        Ok(moved)
    }
}

/// Deletes what leads to a message, and its large body.
fn forget(work: &mut Work<'_>, delayed: &Delayed) {
    if delayed.is_named {
        work.write(Change::Delete(StoreName::Members, Delayed::name(delayed.id)));
    }
    if delayed.is_large() {
        work.write(Change::Delete(StoreName::Bodies, delayed.body_key()));
    }
    work.changes.note_delayed(delayed.id, Shift::gone());
}
