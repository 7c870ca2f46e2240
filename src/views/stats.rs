//! `stats`: what the database holds, from counters that the commits keep, and since when something waits.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::clock::Instant;
use crate::conversation::State;
use crate::definitions::FIRST_QUEUE;
use crate::delayed::BreakerState;
use crate::ids::SideId;
use crate::message::{self, Class, RUN_ROWS, Run, count};
use crate::queue::Counters;
use crate::stats::Counts;
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Bound, Range, StoreName};
use crate::turn::{HeldTurn, OutgoingTurn, Turn};
use crate::work::Work;

/// The most turns of one priority that are looked at: the key of a turn may say less than how long its side has waited.
const TURNS: u32 = 16;

/// What a broker has done, and what the database holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BrokerStats {
    /// Of this broker, since it was opened.
    pub counts: Counts,
    /// Of the database.
    pub gauges: Gauges,
    /// How the breakers of delayed delivery stand, in this context: storing, fetching and dispatching.
    pub breakers: [BreakerState; 3],
}

/// What the database holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Endpoints by state, in the order of [`State::ALL`].
    pub open_conversations: [u64; State::COUNT],
    /// Messages that wait for their transmission, or for a queue that is off.
    pub transmission_queued: u64,
    /// Messages in the delayed store.
    pub delayed: u64,
    /// Failed messages that nobody has received from the error queue.
    pub failed: u64,
    /// When the ready message that has waited longest was sent.
    pub oldest_ready: Option<Instant>,
    /// The same of those that wait outside.
    pub oldest_transmission: Option<Instant>,
}

/// One short read for each queue with something ready, and for each with something outside; no row is counted.
pub(super) fn gauges(work: &mut Work<'_>) -> Outcome<Gauges> {
    let catalog = Rc::clone(&work.catalog);
    let numbers = work.numbers();
    work.need([], catalog.queues.values().map(|queue| queue.number))?;
    // The first queue's stamp says whether a queue is missing here.
    work.queue(FIRST_QUEUE)?;
    let mut gauges = Gauges { delayed: numbers?.delayed, ..Gauges::default() };
    let mut outgoing = 0;
    let (mut ready, mut outside) = (Oldest::default(), Oldest::default());
    for queue in catalog.queues.values() {
        let mut sum = Counters::default();
        work.queue(queue.number)?.services.values().for_each(|counters| sum.add(counters));
        gauges.open_conversations.iter_mut().zip(sum.states).for_each(|(all, some)| *all += some);
        gauges.transmission_queued += sum.held + sum.outgoing;
        outgoing += sum.outgoing;
        // A lane that was received may stay, retained.
        gauges.failed += sum.failed.min(sum.ready);
        if sum.ready > 0 {
            ready.among(oldest_ready(work, queue.number))?;
        }
        if sum.held > 0 {
            outside.among(oldest_held(work, queue.number))?;
        }
    }
    if outgoing > 0 {
        outside.among(oldest_outgoing(work))?;
    }
    (gauges.oldest_ready, gauges.oldest_transmission) = (ready.time()?, outside.time()?);
    Ok(gauges)
}

/// The earliest of several times.
#[derive(Default)]
struct Oldest {
    time: Option<Instant>,
    is_missing: bool,
}

impl Oldest {
    /// Those that are missing are read together; what can't be read says so to who receives it.
    fn among(&mut self, time: Outcome<Option<Instant>>) -> Outcome<()> {
        match pass_over(time, &mut None) {
            Err(Stop::Missing) => self.is_missing = true,
            time => self.add(time?.flatten()),
        }
        Ok(())
    }

    fn add(&mut self, time: Option<Instant>) {
        self.time = [self.time, time].into_iter().flatten().reduce(f64::min);
    }

    fn time(self) -> Outcome<Option<Instant>> {
        if self.is_missing { Err(Stop::Missing) } else { Ok(self.time) }
    }
}

/// Priority by priority the side that has waited longest. The order in the key of a turn is a lower bound: who has waited longer than the next
/// key says is the oldest.
fn oldest_ready(work: &mut Work<'_>, queue: u32) -> Outcome<Option<Instant>> {
    let mut oldest = Oldest::default();
    let mut range = Turn::of_queue(queue);
    for _ in 1..=10 {
        let Some(priority) = first_priority(work, &range, &mut oldest)? else { break };
        range.lower = Bound::Including(Turn::after_priority(queue, priority));
    }
    oldest.time()
}

fn first_priority(work: &mut Work<'_>, range: &Range, oldest: &mut Oldest) -> Outcome<Option<u32>> {
    let turns = work.read_range(StoreName::Turns, range.clone(), Some(TURNS), Turn::read)?;
    let Some(priority) = turns.first().map(|turn| turn.priority) else { return Ok(None) };
    let mut best = None;
    for turn in turns.iter().take_while(|turn| turn.priority == priority) {
        if best.is_some_and(|(order, _)| turn.order >= order) {
            break;
        }
        let first = pass_over(first_row(work, turn.side, false), &mut None)?.flatten();
        best = [best, first].into_iter().flatten().reduce(earlier);
    }
    oldest.add(best.map(|(_, time)| time));
    Ok(Some(priority))
}

/// A queue that is off lets nobody in, so its turns to come in stay as they were made.
fn oldest_held(work: &mut Work<'_>, queue: u32) -> Outcome<Option<Instant>> {
    let turns = work.read_range(StoreName::Turns, HeldTurn::of_queue(queue), Some(1), HeldTurn::read)?;
    let Some(turn) = turns.first() else { return Ok(None) };
    Ok(first_row(work, turn.side, true)?.map(|(_, time)| time))
}

/// The first of the turns to transmit says since when something waits.
fn oldest_outgoing(work: &mut Work<'_>) -> Outcome<Option<Instant>> {
    let turns = work.read_range(StoreName::Turns, OutgoingTurn::all(), Some(1), OutgoingTurn::read)?;
    Ok(turns.first().map(|turn| turn.time))
}

/// The order of a row, and when it was sent.
type Place = (u64, Instant);

fn earlier(one: Place, other: Place) -> Place {
    if other.0 < one.0 { other } else { one }
}

/// The first of the rows of a side that are ready, or that wait outside.
fn first_row(work: &mut Work<'_>, id: SideId, is_held: bool) -> Outcome<Option<Place>> {
    let conversation = work.conversation(id.conversation)?;
    let Some(side) = conversation.as_ref().and_then(|conversation| conversation.side(id.role)) else { return Ok(None) };
    let number = if is_held { side.visible_end() } else { side.cursor };
    let end = if is_held { side.next_expected } else { side.visible_end() };
    let mut places: Vec<(Class, u64)> =
        side.system.iter().filter(|row| row.held == is_held).map(|row| (Class::System, row.number)).collect();
    places.extend((number < end).then_some((Class::Received, number)));
    let mut first = None;
    for (class, number) in places {
        // The run of a number is the first whose last number is not below it.
        let range = message::keys_between(id, class, number, number + count(RUN_ROWS));
        let runs = work.read_range(StoreName::Messages, range, Some(1), Run::read)?;
        let Some(run) = runs.first() else { continue };
        let index = number.saturating_sub(run.first());
        let time = index.to_usize().and_then(|index| run.times.get(index)).copied();
        let place = time.map(|time| (run.first_order + index, time));
        first = [first, place].into_iter().flatten().reduce(earlier);
    }
    Ok(first)
}
