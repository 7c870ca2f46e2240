//! Delayed messages, in the model: a list by time, and by the order of storing among those of one time.

use std::collections::BTreeSet;
use std::rc::Rc;

use pocket_broker::error::ErrorCode;
use pocket_broker::{Delay, DelayedMessage};

use crate::conformance::random::lane::{FailedAt, LaneKey};
use crate::conformance::random::model::{ERROR, End, PLACES, Row, World};
use crate::journal::Event;
use crate::lanes::Enqueue;
use crate::model::{Model, Names};
use crate::origin::Kind;

/// The first wait of a message whose sender's queue is off, and the longest.
const WAIT: f64 = 1_000.0;
const LONGEST: f64 = 60_000.0;

/// A message that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delayed {
    to: To,
    kind: &'static str,
    pub(crate) body: String,
    /// When it is to be delivered, and when that is tried next.
    time: f64,
    at: f64,
    stamp: u64,
    waits: u32,
    /// It is in a store of the application's own, or on its way there.
    is_elsewhere: bool,
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq)]
enum To {
    /// The end that it is sent by.
    End(End),
    Lane(usize, LaneKey, u32),
}

fn due(delay: Delay, now: f64) -> f64 {
    match delay {
        Delay::After(ms) => (now + ms).ceil(),
        Delay::At(at) => at.ceil(),
    }
}

impl Model {
    /// SEND with a delay. `is_late`: in the commit of a transaction.
    pub(crate) fn send_later(
        &mut self,
        names: &Names,
        ends: &[End],
        (kind, bodies): (&'static str, &[String]),
        (delay, now): (Delay, f64),
        is_late: bool,
    ) -> Result<(), ErrorCode> {
        let shares: Vec<&[String]> = if ends.len() > 1 { bodies.chunks(1).collect() } else { vec![bodies] };
        let ends: Vec<End> = ends.iter().map(|end| self.resolve(names, end)).collect();
        let at = due(delay, now);
        for (end, share) in ends.iter().zip(&shares) {
            if self.is_lane(end) {
                return Err(ErrorCode::InvalidState);
            }
            self.world.clone().send(end, kind, share, is_late)?;
            self.check_lifetime(end, at)?;
        }
        for (end, share) in ends.into_iter().zip(shares) {
            share.iter().for_each(|body| self.delay(To::End(end.clone()), kind, body, at));
        }
        Ok(())
    }

    /// `enqueue` with a delay.
    pub(crate) fn enqueue_later(&mut self, enqueue: &Enqueue, delay: Delay, now: f64) -> Result<(), ErrorCode> {
        if !self.is_there(enqueue.queue) {
            return Err(ErrorCode::QueueNotFound);
        }
        if self.is_seen(enqueue, now) {
            return Ok(());
        }
        for (key, body) in enqueue.shares_later() {
            self.delay(To::Lane(enqueue.queue, key, enqueue.priority), "DEFAULT", body, due(delay, now));
        }
        Ok(())
    }

    fn delay(&mut self, to: To, kind: &'static str, body: &str, at: f64) {
        let stamp = self.world.stamp();
        let is_elsewhere = self.is_elsewhere;
        self.keep(Delayed { to, kind, body: body.to_owned(), time: at, at, stamp, waits: 0, is_elsewhere });
    }

    fn keep(&mut self, delayed: Delayed) {
        self.delayed.push(delayed);
        self.delayed.sort_by(|a, b| (a.at, a.stamp).partial_cmp(&(b.at, b.stamp)).expect("numbers"));
    }

    fn check_lifetime(&self, end: &End, at: f64) -> Result<(), ErrorCode> {
        let is_beyond = self.world.lifetimes.get(&end.0).is_some_and(|lifetime| at > lifetime.at);
        if is_beyond { Err(ErrorCode::TimerBeyondLifetime) } else { Ok(()) }
    }

    /// Gives whether it was there. Its id of `enqueue` is free again.
    pub(crate) fn cancel(&mut self, body: &str) -> bool {
        let is_there = self.remove(body);
        if is_there {
            self.seen.retain(|_, (_, first)| first != body);
            self.cancelled.extend(self.is_elsewhere.then(|| body.to_owned()));
        }
        is_there
    }

    fn remove(&mut self, body: &str) -> bool {
        let before = self.delayed.len();
        self.delayed.retain(|delayed| delayed.body != body);
        self.delayed.len() < before
    }

    /// Gives whether it was there.
    pub(crate) fn reschedule(&mut self, body: &str, to: f64) -> Result<bool, ErrorCode> {
        let Some(known) = self.delayed.iter().find(|delayed| delayed.body == body).cloned() else { return Ok(false) };
        let at = to.ceil();
        if let To::End(end) = &known.to {
            self.check_lifetime(end, at)?;
        }
        self.remove(body);
        let stamp = self.world.stamp();
        self.keep(Delayed { at, stamp, time: at, waits: 0, ..known });
        Ok(true)
    }

    /// An end takes what it has under way along. Gives how many messages that were.
    pub(crate) fn forget_delayed(&mut self, end: &End) -> u64 {
        let before = self.delayed.len();
        self.delayed.retain(|delayed| !matches!(&delayed.to, To::End(sender) if sender == end));
        (before - self.delayed.len()) as u64
    }

    /// What a commit delivers: the first ones of the built-in store together, each one of another store by itself.
    pub(crate) fn deliver_some(&mut self, names: &Names, event: &Event, number: usize) -> Result<(), Kind> {
        let built_in = usize::from(event.delivers > 0);
        let Some(number) = number.checked_sub(built_in) else {
            return if self.deliver(event.delivers, event.now) { Ok(()) } else { Err(Kind::Early) };
        };
        let (id, is_again) = &event.dispatches[number];
        let body = names.ids.get(id);
        let found = self.delayed.iter().position(|delayed| delayed.is_elsewhere && Some(&delayed.body) == body);
        match found {
            _ if *is_again => Err(Kind::Twice),
            None => Err(Kind::Unexplained),
            Some(found) if self.delayed[found].at > event.now => Err(Kind::Early),
            Some(found) => {
                // It comes after what its commit has done before.
                self.sweep(names);
                let going = self.delayed.remove(found);
                self.deliver_run(&[going], event.now);
                Ok(())
            }
        }
    }

    /// The store does not take it. Gives whether it was there.
    pub(crate) fn refuse_for_good(&mut self, names: &Names, id: &str) -> bool {
        let body = names.ids.get(id);
        let found = self.delayed.iter().position(|delayed| delayed.is_elsewhere && Some(&delayed.body) == body);
        let Some(found) = found else { return false };
        let refused = self.delayed.remove(found);
        self.refuse(&refused);
        true
    }

    /// So many go, the first ones. False: they are not due.
    fn deliver(&mut self, count: usize, now: f64) -> bool {
        let is_due = |delayed: &&Delayed| !delayed.is_elsewhere && delayed.at <= now;
        if self.delayed.iter().filter(is_due).count() < count {
            return false;
        }
        let (mut going, mut left) = (Vec::new(), Vec::new());
        for delayed in std::mem::take(&mut self.delayed) {
            let goes = !delayed.is_elsewhere && going.len() < count;
            if goes { going.push(delayed) } else { left.push(delayed) }
        }
        self.delayed = left;
        going.chunk_by(|one, other| one.to == other.to).for_each(|run| self.deliver_run(run, now));
        true
    }

    /// Those that follow each other to one place go together.
    fn deliver_run(&mut self, run: &[Delayed], now: f64) {
        let Some(first) = run.first() else { return };
        match &first.to {
            To::Lane(queue, key, priority) if self.is_there(*queue) => {
                let end = self.open_lane(*queue, key, *priority);
                for delayed in run {
                    let number = self.world.sides[&end].next_expected;
                    self.world.arrive(&end, vec![Row::new(delayed.kind, number, &delayed.body)]);
                }
            }
            To::Lane(..) => run.iter().for_each(|delayed| self.refuse(delayed)),
            To::End(end) => {
                let mut world = self.world.clone();
                match send_run(&mut world, end, run) {
                    Ok(()) => self.world = world,
                    // The copies that the queue retains could not be kept.
                    Err(ErrorCode::QueueDisabled) => run.iter().for_each(|delayed| {
                        let wait = (WAIT * f64::from(1_u32 << delayed.waits.min(6))).min(LONGEST);
                        let (at, stamp) = ((now + wait).ceil(), self.world.stamp());
                        let waits = delayed.waits + 1;
                        self.keep(Delayed { at, stamp, waits, is_elsewhere: false, ..delayed.clone() });
                    }),
                    Err(_) => run.iter().for_each(|delayed| self.refuse(delayed)),
                }
            }
        }
    }

    /// It can't go where it was to go.
    fn refuse(&mut self, delayed: &Delayed) {
        let (queue, end, lane) = match &delayed.to {
            To::End(end) => (0, Some(end.clone()), None),
            To::Lane(queue, key, priority) => (*queue, None, Some((key.clone(), *priority))),
        };
        let failed = FailedAt { queue, end, lane, number: 0, was_delayed: true };
        let grave = self.open_lane(ERROR, &LaneKey::Own, 5);
        if let Some(lane) = self.world.sides.get_mut(&grave).and_then(|side| side.lane.as_mut()) {
            lane.failed = Some(Rc::new(failed));
        }
        self.world.arrive(&grave, vec![Row::new(delayed.kind, 0, &delayed.body)]);
    }

    // ── what can be seen ──

    /// All that waits, in its order; by its body where a store of the application's own has a word in it. `put_off`: nobody else knows when these are due.
    pub(crate) fn show_delayed(&self, names: &Names, put_off: &BTreeSet<String>) -> Vec<String> {
        let show = |delayed: &Delayed| {
            let (to, key, priority) = match &delayed.to {
                To::End(end) => (&*names.handles[end], None, None),
                To::Lane(queue, key, priority) => (PLACES[*queue], key.text(), Some(*priority)),
            };
            let (time, waits) = if put_off.contains(&delayed.body) { (0.0, 0) } else { (delayed.time, delayed.waits) };
            show((to, key, priority), delayed.kind, (&delayed.body, time, waits.into()))
        };
        let mut shown: Vec<String> = self.delayed.iter().map(show).collect();
        if self.is_elsewhere {
            shown.sort();
        }
        shown
    }
}

/// All at once, though they may be of several types.
fn send_run(world: &mut World, end: &End, run: &[Delayed]) -> Result<(), ErrorCode> {
    for (number, share) in run.chunk_by(|one, other| one.kind == other.kind).enumerate() {
        let (kind, bodies) = (share[0].kind, share.iter().map(|delayed| delayed.body.clone()));
        let bodies: Vec<String> = bodies.collect();
        let has_failed = world.sides.get(end).is_some_and(|side| side.state == "ER");
        if number == 0 || !has_failed {
            world.send(end, kind, &bodies, false)?;
            continue;
        }
        // The first ones have found nobody. The others are sent all the same, and the Error is there already.
        let number = world.side(end)?.queue;
        let queue = world.queues[number];
        let side = world.side(end)?;
        for body in bodies.iter().filter(|_| queue.retention) {
            side.rows.push(Row { status: 3, ..Row::new(kind, side.next_send, body) });
            side.next_send += 1;
        }
        side.next_send += if queue.retention { 0 } else { bodies.len() as u64 };
        world.dropped += bodies.len();
    }
    Ok(())
}

fn show(to: (&str, Option<&str>, Option<u32>), kind: &str, (body, time, waits): (&str, f64, u64)) -> String {
    format!("{kind} {body} for {to:?} at {time}, tried {waits} times")
}

/// The same, as the broker says.
pub(crate) fn seen(messages: &[DelayedMessage], put_off: &BTreeSet<String>) -> Vec<String> {
    let seen = |message: &DelayedMessage| {
        let body = message.body.value.value().text().unwrap_or_default();
        let property = |name: &str| message.property(name).map(|value| &**value);
        let priority = property("priority").and_then(|priority| priority.parse().ok());
        let to = (&*message.destination, property("key"), priority);
        let (time, waits) = if put_off.contains(&body) { (0.0, 0) } else { (message.time, message.number_of_retries) };
        show(to, property("messageType").unwrap_or_default(), (&body, time, waits))
    };
    messages.iter().map(seen).collect()
}
