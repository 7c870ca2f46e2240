//! What the broker should do, told in the simplest way: every row is a value in a list, and nothing is clever.

use std::collections::BTreeMap;
use std::rc::Rc;

use pocket_broker::error::ErrorCode;

use super::due::{Lifetime, Timer};

pub(super) const QUEUES: [&str; 3] = ["counter", "kitchen", "house"];
pub(super) const SERVICES: [(&str, usize); 4] = [("Counter", 0), ("Kitchen", 1), ("Front", 2), ("Back", 2)];

/// The number of a service that is not here.
pub(super) const ELSEWHERE: usize = SERVICES.len();

/// An end of a conversation: the conversation's id, and whether it is the initiator.
pub(super) type End = (Rc<str>, bool);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) status: u32,
    pub(super) kind: &'static str,
    pub(super) number: u64,
    pub(super) body: String,
}

#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) service: usize,
    pub(super) state: &'static str,
    /// The id of the group that it was put into.
    pub(super) group: Option<Rc<str>>,
    pub(super) rows: Vec<Row>,
    /// What waits outside because the queue is off.
    pub(super) held: Vec<Row>,
    /// What is to be transmitted to a service that is not here.
    pub(super) outgoing: Vec<Row>,
    pub(super) next_send: u64,
    pub(super) next_expected: u64,
    pub(super) timers: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) on: bool,
    pub(super) retention: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Plain,
    Error,
    Cleanup,
}

/// Everything that is committed, or what a transaction sees.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) queues: Vec<Queue>,
    pub(super) sides: BTreeMap<End, Side>,
    /// Services by conversation: initiator and target.
    pub(super) services: BTreeMap<Rc<str>, (usize, usize)>,
    pub(super) lifetimes: BTreeMap<Rc<str>, Lifetime>,
    /// Timers and lifetimes so far: those of one time come in their order.
    pub(super) stamps: u64,
    /// Messages that went nowhere.
    pub(super) dropped: usize,
}

impl Row {
    /// It is read before the messages, and has no number of its own.
    pub(super) fn is_system(&self) -> bool {
        ["DialogTimer", "Error"].contains(&self.kind)
    }

    /// It comes from the broker, not from the far side.
    pub(super) fn is_own(&self) -> bool {
        self.kind == "DialogTimer" || self.body.starts_with('-')
    }
}

fn in_sequence(rows: &[Row]) -> u64 {
    rows.iter().filter(|row| !row.is_system()).count() as u64
}

pub(super) fn other(end: &End) -> End {
    (Rc::clone(&end.0), !end.1)
}

impl Side {
    fn new(service: usize, state: &'static str, group: Option<Rc<str>>) -> Self {
        Self {
            service,
            state,
            group,
            rows: Vec::new(),
            held: Vec::new(),
            outgoing: Vec::new(),
            next_send: 0,
            next_expected: 0,
            timers: Vec::new(),
        }
    }

    pub(super) fn queue(&self) -> usize {
        SERVICES[self.service].1
    }

    /// What RECEIVE gives, in its order.
    pub(super) fn unread(&self) -> Vec<Row> {
        let ready = || self.rows.iter().filter(|row| row.status == 1);
        let of = |kind| ready().filter(move |row| row.kind == kind);
        of("DialogTimer").chain(of("Error")).chain(ready().filter(|row| !row.is_system())).cloned().collect()
    }
}

impl World {
    pub(super) fn begin(&mut self, id: &Rc<str>, from: usize, to: usize, group: Option<Rc<str>>, expires: Option<f64>) {
        if let Some(at) = expires {
            self.expect(id, at);
        }
        self.services.insert(Rc::clone(id), (from, to));
        self.sides.insert((Rc::clone(id), true), Side::new(from, "SO", group));
    }

    pub(super) fn side(&mut self, end: &End) -> Result<&mut Side, ErrorCode> {
        self.sides.get_mut(end).ok_or(ErrorCode::ConversationNotFound)
    }

    /// `is_late`: in the commit of a transaction.
    pub(super) fn send(
        &mut self,
        end: &End,
        kind: &'static str,
        bodies: &[String],
        is_late: bool,
    ) -> Result<(), ErrorCode> {
        let side = self.side(end)?.clone();
        let may_send = ["SO", "CO"].contains(&side.state);
        let is_late = is_late && ["DI", "ER"].contains(&side.state);
        if !may_send && !is_late {
            return Err(ErrorCode::InvalidState);
        }
        if (kind == "Order" && !end.1) || (kind == "Confirm" && end.1) {
            return Err(ErrorCode::WrongDirection);
        }
        let queue = self.queues[side.queue()];
        if queue.retention && !queue.on {
            return Err(ErrorCode::QueueDisabled);
        }
        let is_far = self.services[&end.0].1 == ELSEWHERE;
        if is_late && !is_far {
            self.dropped += bodies.len();
            return Ok(());
        }
        let first = side.next_send;
        let row = |status| {
            move |(index, body): (usize, &String)| Row {
                status,
                kind,
                number: first + index as u64,
                body: body.clone(),
            }
        };
        let sender = self.side(end)?;
        sender.next_send += bodies.len() as u64;
        if sender.state == "SO" {
            sender.state = "CO";
        }
        if queue.retention {
            sender.rows.extend(bodies.iter().enumerate().map(row(3)));
        }
        if is_far {
            sender.outgoing.extend(bodies.iter().enumerate().map(row(1)));
            return Ok(());
        }
        let far = other(end);
        if end.1 && first == 0 {
            self.sides.insert(far.clone(), Side::new(self.services[&end.0].1, "CO", None));
        }
        match self.sides.get(&far).map(|side| side.state) {
            Some("DO") => self.dropped += bodies.len(),
            Some(_) => self.arrive(&far, bodies.iter().enumerate().map(row(1)).collect()),
            None => {
                self.dropped += bodies.len();
                let number = self.sides[end].next_expected;
                if !self.sides[end].held.iter().any(|row| row.kind == "Error") {
                    self.arrive(end, vec![Row { status: 1, kind: "Error", number, body: "-8462".into() }]);
                }
            }
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, end: &End, rows: Vec<Row>) {
        let Some(side) = self.sides.get_mut(end) else { return };
        side.next_expected += in_sequence(&rows);
        if self.queues[side.queue()].on {
            for row in &rows {
                match row.kind {
                    "Error" => side.state = "ER",
                    "EndDialog" => side.state = "DI",
                    _ => {}
                }
            }
            side.rows.extend(rows);
        } else {
            side.held.extend(rows);
        }
    }

    /// Gives how many rows were thrown away unread, and how many the archive gets if it gets any.
    pub(super) fn end(&mut self, end: &End, ending: Ending) -> Result<(u64, u64), ErrorCode> {
        let side = self.side(end)?.clone();
        if side.state == "DO" && ending != Ending::Cleanup {
            return Err(ErrorCode::InvalidState);
        }
        let counts = ((side.unread().len() + side.held.len() + side.timers.len()) as u64, side.rows.len() as u64);
        if self.services[&end.0].1 == ELSEWHERE {
            self.end_from_elsewhere(end, ending)?;
            return Ok(counts);
        }
        let far = other(end);
        if self.sides.get(&far).is_some_and(|side| side.state == "DO") {
            self.sides.remove(&far);
        }
        if ending != Ending::Plain
            && let Some(side) = self.sides.get_mut(&far)
        {
            // Their numbers were never seen.
            side.next_expected -= in_sequence(&side.held);
            side.held.retain(Row::is_own);
        }
        if side.state == "CO" && ending != Ending::Cleanup {
            let (kind, body) = if ending == Ending::Error { ("Error", "42") } else { ("EndDialog", "") };
            self.arrive(&far, vec![Row { status: 1, kind, number: side.next_send, body: body.into() }]);
        }
        if self.sides.get(&far).is_some_and(|side| side.held.iter().any(|row| !row.is_own())) {
            let ended = self.side(end)?;
            ended.state = "DO";
            ended.rows.clear();
            ended.held.clear();
            ended.timers.clear();
        } else {
            self.sides.remove(end);
        }
        Ok(counts)
    }

    fn end_from_elsewhere(&mut self, end: &End, ending: Ending) -> Result<(), ErrorCode> {
        let side = self.side(end)?;
        if side.state != "CO" || ending == Ending::Cleanup {
            self.sides.remove(end);
            return Ok(());
        }
        side.state = "DO";
        side.rows.clear();
        side.held.clear();
        side.timers.clear();
        let (kind, body) = if ending == Ending::Error { ("Error", "42") } else { ("EndDialog", "") };
        if ending == Ending::Error {
            side.outgoing.clear();
        }
        side.outgoing.push(Row { status: 1, kind, number: side.next_send, body: body.into() });
        side.next_send += 1;
        Ok(())
    }

    /// Takes out what was received.
    pub(super) fn take(&mut self, end: &End, taken: &[Row]) -> Result<(), ErrorCode> {
        let side = self.side(end)?.clone();
        let unread = side.unread();
        // Errors are read first, so a new one does not change what was received behind it.
        let in_sequence = |rows: &[Row]| rows.iter().filter(|row| !row.is_system()).cloned().collect::<Vec<_>>();
        let errors = taken.iter().filter(|row| row.is_system()).all(|row| unread.contains(row));
        if !in_sequence(&unread).starts_with(&in_sequence(taken)) || !errors {
            return Err(ErrorCode::TransactionClosed);
        }
        let retention = self.queues[side.queue()].retention;
        let side = self.side(end)?;
        let is_taken = |row: &Row| row.status == 1 && taken.contains(row);
        if retention {
            side.rows.iter_mut().filter(|row| is_taken(row)).for_each(|row| row.status = 0);
        } else {
            side.rows.retain(|row| !is_taken(row));
        }
        Ok(())
    }

    pub(super) fn retain(&mut self, queue: usize, retention: bool) {
        self.queues[queue].retention = retention;
    }

    pub(super) fn switch(&mut self, queue: usize, on: bool) {
        self.queues[queue].on = on;
        if !on {
            return;
        }
        let ends: Vec<End> = self
            .sides
            .iter()
            .filter(|(_, side)| side.queue() == queue && !side.held.is_empty())
            .map(|(end, _)| end.clone())
            .collect();
        for end in ends {
            let Some(side) = self.sides.get_mut(&end) else { continue };
            let came = std::mem::take(&mut side.held);
            if came.iter().any(|row| row.kind == "Error") {
                side.state = "ER";
            } else if came.iter().any(|row| row.kind == "EndDialog") {
                side.state = "DI";
            }
            side.rows.extend(came);
            let far = other(&end);
            if self.sides.get(&far).is_some_and(|side| side.state == "DO") {
                self.sides.remove(&far);
            }
        }
    }
}
