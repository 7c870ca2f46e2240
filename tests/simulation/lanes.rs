//! Lanes, in the model: a lane is a side without another end, whose name in the model says what it is the lane of. What the broker calls it the
//! model learns when somebody is told.

use std::rc::Rc;

use pocket_broker::Message;
use pocket_broker::error::ErrorCode;
use uuid::Uuid;

use crate::conformance::random::lane::{Lane, LaneKey};
use crate::conformance::random::model::{End, Ending, OWN, Row, Side};
use crate::conformance::random::seen::row_of;
use crate::model::{Model, Names};

/// So many lanes are there for messages whose order does not matter.
const LOOSE: u32 = 16;

/// `enqueue`.
#[derive(Clone, Debug)]
pub(crate) struct Enqueue {
    pub(crate) queue: usize,
    pub(crate) messages: Vec<(Uuid, String)>,
    pub(crate) key: Option<&'static str>,
    pub(crate) ordered: bool,
    pub(crate) priority: u32,
    /// An id, and for how long it is remembered.
    pub(crate) dedupe: Option<(&'static str, f64)>,
}

/// What somebody has seen of a lane whose handle he was told.
#[derive(Clone, Debug)]
pub(crate) struct Hint {
    queue: usize,
    key: Option<String>,
    priority: u32,
    bodies: Vec<String>,
}

impl Hint {
    pub(crate) fn of(queue: usize, message: &Message) -> Self {
        let key = message.key.as_deref().map(str::to_owned);
        Self { queue, key, priority: message.priority, bodies: Vec::new() }
    }

    pub(crate) fn add(&mut self, message: &Message) {
        self.bodies.push(row_of(message).body);
    }

    fn fits(&self, side: &Side) -> bool {
        let fits = |lane: &Lane| {
            lane.handle.is_none() && lane.key.text() == self.key.as_deref() && lane.priority == self.priority
        };
        side.queue == self.queue && side.lane.as_ref().is_some_and(fits)
    }

    fn is_plain(&self, names: &Names) -> bool {
        self.bodies.iter().any(|body| names.plain.contains(body))
    }

    fn has_seen(&self, side: &Side) -> bool {
        side.rows.iter().chain(&side.held).any(|row| self.bodies.contains(&row.body))
    }
}

impl Enqueue {
    /// Which bodies go into which lane. Without order they go round, from a place that the first id says.
    fn shares(&self) -> Vec<(LaneKey, &str)> {
        let start = self.messages[0].0.as_bytes()[15];
        let key = |number: usize| match self.key {
            Some(key) => LaneKey::Text(key),
            None if self.ordered => LaneKey::Plain,
            None => LaneKey::Loose((u32::from(start) + number as u32) % LOOSE),
        };
        self.messages.iter().enumerate().map(|(number, (_, body))| (key(number), &**body)).collect()
    }

    /// The same for those that are delayed, in the order of storing: each says its own place, and those of one lane lie together.
    pub(crate) fn shares_later(&self) -> Vec<(LaneKey, &str)> {
        let share = |(id, body): &(Uuid, String)| {
            let one = Self { messages: vec![(*id, body.clone())], ..self.clone() };
            one.shares().remove(0).0
        };
        let mut shares: Vec<_> = self.messages.iter().map(|message| (share(message), &*message.1)).collect();
        shares.sort_by(|(one, _), (other, _)| one.cmp(other));
        shares
    }
}

/// A row as a reader sees it.
pub(crate) fn shown(side: &Side, row: &Row) -> Row {
    let base = side.lane.as_ref().map_or(0, |lane| lane.base);
    Row { number: row.number.saturating_sub(base), ..row.clone() }
}

impl Model {
    /// Gives whether there was one with that id already.
    pub(crate) fn enqueue(&mut self, enqueue: &Enqueue, now: f64) -> Result<bool, ErrorCode> {
        if !self.is_there(enqueue.queue) {
            return Err(ErrorCode::QueueNotFound);
        }
        if self.is_seen(enqueue, now) {
            return Ok(true);
        }
        for (key, body) in enqueue.shares() {
            let end = self.open_lane(enqueue.queue, &key, enqueue.priority);
            let number = self.world.sides[&end].next_expected;
            self.world.arrive(&end, vec![Row::new("DEFAULT", number, body)]);
        }
        Ok(false)
    }

    /// Whether there was one with that id already. If not, there is one now.
    pub(crate) fn is_seen(&mut self, enqueue: &Enqueue, now: f64) -> bool {
        let Some((id, window)) = enqueue.dedupe else { return false };
        if self.seen.get(&(enqueue.queue, id)).is_some_and(|(expiry, _)| *expiry > now) {
            return true;
        }
        self.seen.insert((enqueue.queue, id), (now + window, enqueue.messages[0].1.clone()));
        false
    }

    /// The lane of a key, which is begun if there is none.
    pub(crate) fn open_lane(&mut self, queue: usize, key: &LaneKey, priority: u32) -> End {
        let name = match key {
            // Texts in the order of their numbers.
            LaneKey::Own => format!("own {:09}", self.world.stamp()),
            key => format!("{queue} {key:?} {priority}"),
        };
        let end: End = (name.into(), false);
        self.world.sides.entry(end.clone()).or_insert_with(|| {
            let lane = Lane { key: key.clone(), priority, base: 0, handle: None, failed: None };
            Side { lane: Some(lane), ..Side::new(OWN + queue, queue, "CO", None) }
        });
        end
    }

    pub(crate) fn is_lane(&self, end: &End) -> bool {
        self.world.sides.get(end).is_some_and(|side| side.lane.is_some())
    }

    /// END, of whatever it is.
    pub(crate) fn end(&mut self, end: &End, how: Ending) -> Result<(u64, u64), ErrorCode> {
        if self.is_lane(end) {
            return Ok(self.end_lane(end, how == Ending::Cleanup));
        }
        let (discarded, archived) = self.world.end(end, how)?;
        self.failures.remove(end);
        Ok((discarded + self.forget_delayed(end), archived))
    }

    /// END of a lane. Gives how many rows were thrown away unread, and how many the archive gets if it gets any.
    fn end_lane(&mut self, end: &End, all: bool) -> (u64, u64) {
        let Some(side) = self.world.sides.get(end) else { return (0, 0) };
        let is_timer = |row: &&Row| row.kind == "DialogTimer";
        let waiting = || side.rows.iter().filter(|row| row.status == 1).chain(&side.held);
        let (timers, messages) = (waiting().filter(is_timer).count(), waiting().filter(|row| !is_timer(row)).count());
        let kept = side.rows.iter().filter(|row| row.status != 1).count();
        let discarded = side.timers.len() + timers + if all { messages } else { 0 };
        let counts = (discarded as u64, if all { side.rows.len() } else { kept } as u64);
        if all || messages == 0 {
            self.remove_lane(end);
            return counts;
        }
        let first = waiting().filter(|row| !row.is_system()).map(|row| row.number).min();
        let base = first.unwrap_or(side.next_expected);
        self.failures.remove(end);
        let Some(side) = self.world.sides.get_mut(end) else { return counts };
        side.rows.retain(|row| row.status == 1 && row.kind != "DialogTimer");
        side.held.retain(|row| row.kind != "DialogTimer");
        side.timers.clear();
        side.group = None;
        side.retry = side.retry.take().filter(|retry| retry.row.kind != "DialogTimer");
        if let Some(lane) = &mut side.lane {
            lane.base = base;
            self.spent.extend(lane.handle.take());
        }
        counts
    }

    pub(crate) fn remove_lane(&mut self, end: &End) {
        let side = self.world.sides.remove(end);
        self.failures.remove(end);
        self.spent.extend(side.and_then(|side| side.lane?.handle));
    }

    /// A lane is there as long as it has something: those that a commit has left empty go with it. But within the commit the next call may
    /// still find it.
    pub(crate) fn empty_lanes(&self) -> Vec<End> {
        let is_empty =
            |side: &Side| side.lane.is_some() && side.rows.is_empty() && side.held.is_empty() && side.timers.is_empty();
        self.world.sides.iter().filter(|(_, side)| is_empty(side)).map(|(end, _)| end.clone()).collect()
    }

    /// The commit is over.
    pub(crate) fn sweep(&mut self, names: &Names) {
        let empty = self.empty_lanes();
        if !empty.is_empty() {
            empty.iter().for_each(|end| self.remove_lane(end));
            self.forget_empty_groups(names);
        }
    }

    // ── names ──

    /// The end with a handle, as the model calls it. Whoever was told the handle of a lane tells it to the model.
    pub(crate) fn resolve(&mut self, names: &Names, end: &End) -> End {
        let Some(hint) = names.lanes.get(&end.0) else { return end.clone() };
        let handle = &end.0;
        let bound = |side: &Side| side.lane.as_ref().is_some_and(|lane| lane.handle.as_ref() == Some(handle));
        if let Some((known, _)) = self.world.sides.iter().find(|(_, side)| bound(side)) {
            return known.clone();
        }
        if self.spent.contains(handle) {
            return end.clone();
        }
        let fits = |also: &dyn Fn(&Side) -> bool| {
            let found = self.world.sides.iter().find(|(_, side)| hint.fits(side) && also(side));
            found.map(|(end, _)| end.clone())
        };
        // Another reader may have got what was seen.
        let is_named = |side: &Side| {
            side.lane.as_ref().is_some_and(|lane| {
                matches!(lane.key, LaneKey::Text(_)) || (lane.key == LaneKey::Plain && hint.is_plain(names))
            })
        };
        let found = fits(&|side| hint.has_seen(side)).or_else(|| fits(&is_named));
        let Some(found) = found else { return end.clone() };
        self.bind(&found, handle);
        found
    }

    pub(crate) fn bind(&mut self, end: &End, handle: &Rc<str>) {
        if let Some(lane) = self.world.sides.get_mut(end).and_then(|side| side.lane.as_mut()) {
            lane.handle = Some(Rc::clone(handle));
        }
    }

    /// What was received, by end, as the rows that the model has.
    pub(crate) fn rows_of(&mut self, names: &Names, messages: &[Message]) -> Vec<(End, Vec<Row>)> {
        let mut ends: Vec<(End, Vec<Row>)> = Vec::new();
        for message in messages {
            let named = names.end_of(&message.conversation_handle).expect("a known handle");
            let (end, row) = (self.resolve(names, &named), row_of(message));
            let row = self.world.sides.get(&end).and_then(|side| {
                let is_it = |known: &&Row| known.status == 1 && Row { returned: None, ..shown(side, known) } == row;
                side.rows.iter().find(is_it).cloned()
            });
            let row = row.unwrap_or_else(|| row_of(message));
            match ends.last_mut().filter(|(last, _)| *last == end) {
                Some((_, rows)) => rows.push(row),
                None => ends.push((end, vec![row])),
            }
        }
        ends
    }
}
