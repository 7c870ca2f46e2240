//! Timers and lifetimes, in the model.

use std::rc::Rc;

use pocket_broker::error::ErrorCode;

use super::model::{End, Row, Side, World, other};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timer {
    pub(crate) name: &'static str,
    pub(crate) at: f64,
    stamp: u64,
    body: String,
}

/// What is due.
enum What {
    Timer(End),
    Lifetime(Rc<str>),
    Delivery,
}

/// What handlers have made of a side's first row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retry {
    pub(crate) row: Row,
    pub(crate) attempts: u64,
    /// Times in a row that it was put off.
    pub(crate) postponed: u64,
    /// Until when the side waits.
    pub(crate) until: Option<f64>,
    pub(crate) error: String,
}

/// When a conversation ends by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lifetime {
    pub(crate) at: f64,
    stamp: u64,
    is_over: bool,
}

impl World {
    pub(crate) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// The conversation is to end by itself at a time.
    pub(crate) fn expect(&mut self, id: &Rc<str>, at: f64) {
        let lifetime = Lifetime { at, stamp: self.stamp(), is_over: false };
        self.lifetimes.insert(Rc::clone(id), lifetime);
    }

    /// Gives whether anything is another way now.
    pub(crate) fn timer(
        &mut self,
        end: &End,
        name: &'static str,
        at: Option<f64>,
        body: &str,
    ) -> Result<bool, ErrorCode> {
        if self.side(end)?.state == "DO" {
            return Err(ErrorCode::InvalidState);
        }
        if at.is_some_and(|at| self.lifetimes.get(&end.0).is_some_and(|lifetime| at > lifetime.at)) {
            return Err(ErrorCode::TimerBeyondLifetime);
        }
        let stamp = self.stamp();
        let side = self.side(end)?;
        let before = side.timers.len();
        side.timers.retain(|timer| timer.name != name);
        let is_replaced = side.timers.len() < before;
        side.timers.extend(at.map(|at| Timer { name, at, stamp, body: body.to_owned() }));
        Ok(is_replaced || at.is_some())
    }

    /// What is due by now happens. Gives how many messages come of it.
    pub(crate) fn poll(&mut self, now: f64) -> u64 {
        for retry in self.sides.values_mut().filter_map(|side| side.retry.as_mut()) {
            retry.until = retry.until.filter(|until| *until > now);
        }
        let timers = self
            .sides
            .iter()
            .flat_map(|(end, side)| side.timers.iter().map(|timer| (timer.at, timer.stamp, What::Timer(end.clone()))));
        let lifetimes = self.lifetimes.iter().filter(|(_, lifetime)| !lifetime.is_over);
        let lifetimes = lifetimes.map(|(id, lifetime)| (lifetime.at, lifetime.stamp, What::Lifetime(Rc::clone(id))));
        let deliveries = self.deliveries.iter().map(|(at, stamp)| (*at, *stamp, What::Delivery));
        let mut due: Vec<_> = timers.chain(lifetimes).chain(deliveries).filter(|(at, ..)| *at <= now).collect();
        due.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).expect("numbers"));
        self.deliveries.retain(|(at, _)| *at > now);
        due.into_iter()
            .map(|(_, stamp, what)| match what {
                What::Timer(end) => self.fire(&end, stamp),
                What::Lifetime(id) => self.expire(&id),
                What::Delivery => self.deliver(),
            })
            .sum()
    }

    /// Services were defined: what was sent to them before comes in soon.
    pub(crate) fn deliver_later(&mut self, now: f64) {
        let stamp = self.stamp();
        self.deliveries.push((now, stamp));
    }

    /// Conversations whose messages may come in now: their target's service is here at last.
    pub(crate) fn deliverable(&self) -> Vec<End> {
        let may_come = |end: &End| {
            let side = self.sides.get(end).filter(|side| !side.outgoing.is_empty() && side.state != "ER");
            side.is_some() && self.queue_of(self.services[&end.0].1).is_some()
        };
        self.far.iter().map(|id| (Rc::clone(id), true)).filter(may_come).collect()
    }

    fn deliver(&mut self) -> u64 {
        let mut moved = 0;
        for end in self.deliverable() {
            self.far.remove(&end.0);
            let (to, far) = (self.services[&end.0].1, other(&end));
            let Some(sender) = self.sides.get_mut(&end) else { continue };
            let (rows, is_over) = (std::mem::take(&mut sender.outgoing), sender.state == "DO");
            // An END WITH ERROR has dropped what comes before it, and nobody is there to hear it.
            if rows.first().is_some_and(|row| row.number == 0) {
                let queue = self.queue_of(to).unwrap_or_default();
                self.sides.insert(far.clone(), Side::new(to, queue, "CO", None));
                moved += rows.len() as u64;
                self.arrive(&far, rows);
            }
            let waits = self.sides.get(&far).is_some_and(|side| side.held.iter().any(|row| !row.is_own()));
            if is_over && !waits {
                self.sides.remove(&end);
            }
        }
        moved
    }

    fn fire(&mut self, end: &End, stamp: u64) -> u64 {
        let Some(side) = self.sides.get_mut(end) else { return 0 };
        let Some(index) = side.timers.iter().position(|timer| timer.stamp == stamp) else { return 0 };
        let timer = side.timers.remove(index);
        let number = side.next_expected;
        self.arrive(end, vec![Row::new("DialogTimer", number, &timer.body)]);
        1
    }

    fn expire(&mut self, id: &Rc<str>) -> u64 {
        if let Some(lifetime) = self.lifetimes.get_mut(id) {
            lifetime.is_over = true;
        }
        let mut moved = 0;
        for end in [(Rc::clone(id), true), (Rc::clone(id), false)] {
            if let Some(side) = self.sides.get(&end).filter(|side| side.state == "DO" && self.far.contains(id)) {
                // Nobody takes what it has left. Its last word is no loss.
                self.dropped += side.outgoing.len().saturating_sub(1);
                self.sides.remove(&end);
                continue;
            }
            let Some(side) = self.sides.get(&end).filter(|side| !["DO", "ER"].contains(&side.state)) else { continue };
            let number = side.next_expected;
            self.arrive(&end, vec![Row::new("Error", number, "-8489")]);
            self.sides.get_mut(&end).expect("it is there").state = "ER";
            moved += 1;
        }
        moved
    }
}
