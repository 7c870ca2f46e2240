//! Timers and lifetimes, in the model.

use std::rc::Rc;

use pocket_broker::error::ErrorCode;

use super::model::{End, Row, World};

#[derive(Clone, Debug)]
pub(crate) struct Timer {
    pub(crate) name: &'static str,
    pub(crate) at: f64,
    stamp: u64,
    body: String,
}

/// When a conversation ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) at: f64,
    stamp: u64,
    is_over: bool,
}

impl World {
    fn stamp(&mut self) -> u64 {
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
        let timers = self.sides.iter().flat_map(|(end, side)| {
            side.timers.iter().map(|timer| (timer.at, timer.stamp, Some(end.clone()), Rc::clone(&end.0)))
        });
        let lifetimes = self.lifetimes.iter().filter(|(_, lifetime)| !lifetime.is_over);
        let lifetimes = lifetimes.map(|(id, lifetime)| (lifetime.at, lifetime.stamp, None, Rc::clone(id)));
        let mut due: Vec<_> = timers.chain(lifetimes).filter(|(at, ..)| *at <= now).collect();
        due.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).expect("numbers"));
        due.into_iter()
            .map(|(_, stamp, end, id)| match end {
                Some(end) => self.fire(&end, stamp),
                None => self.expire(&id),
            })
            .sum()
    }

    fn fire(&mut self, end: &End, stamp: u64) -> u64 {
        let Some(side) = self.sides.get_mut(end) else { return 0 };
        let Some(index) = side.timers.iter().position(|timer| timer.stamp == stamp) else { return 0 };
        let timer = side.timers.remove(index);
        let number = side.next_expected;
        self.arrive(end, vec![Row { status: 1, kind: "DialogTimer", number, body: timer.body }]);
        1
    }

    fn expire(&mut self, id: &Rc<str>) -> u64 {
        if let Some(lifetime) = self.lifetimes.get_mut(id) {
            lifetime.is_over = true;
        }
        let mut moved = 0;
        for end in [(Rc::clone(id), true), (Rc::clone(id), false)] {
            let Some(side) = self.sides.get(&end).filter(|side| !["DO", "ER"].contains(&side.state)) else { continue };
            let number = side.next_expected;
            self.arrive(&end, vec![Row { status: 1, kind: "Error", number, body: "-8489".into() }]);
            self.sides.get_mut(&end).expect("it is there").state = "ER";
            moved += 1;
        }
        moved
    }
}
