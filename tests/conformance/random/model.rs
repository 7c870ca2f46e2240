//! What the broker should do, told in the simplest way: every row is a value in a list, and nothing is clever.

use std::collections::BTreeMap;
use std::rc::Rc;

use pocket_broker::EndOptions;
use pocket_broker::definitions::PriorityRule;
use pocket_broker::error::ErrorCode;

use super::super::support::shop::{cleanup, with_error};
use super::due::{Lifetime, Timer};

pub(crate) const QUEUES: [&str; 3] = ["counter", "kitchen", "house"];
pub(crate) const SERVICES: [(&str, usize); 4] = [("Counter", 0), ("Kitchen", 1), ("Front", 2), ("Back", 2)];

/// The number of a service that is not here.
pub(crate) const ELSEWHERE: usize = SERVICES.len();

/// An end of a conversation: the conversation's id, and whether it is the initiator.
pub(crate) type End = (Rc<str>, bool);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) status: u32,
    pub(crate) kind: &'static str,
    pub(crate) number: u64,
    pub(crate) body: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) service: usize,
    pub(crate) state: &'static str,
    /// The id of the group that it was put into.
    pub(crate) group: Option<Rc<str>>,
    pub(crate) rows: Vec<Row>,
    /// What waits outside because the queue is off.
    pub(crate) held: Vec<Row>,
    /// What is to be transmitted to a service that is not here.
    pub(crate) outgoing: Vec<Row>,
    pub(crate) next_send: u64,
    pub(crate) next_expected: u64,
    pub(crate) timers: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) on: bool,
    pub(crate) retention: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Plain,
    Error,
    Cleanup,
}

impl Ending {
    pub(crate) fn options(self, archive: bool) -> EndOptions {
        let options = match self {
            Self::Plain => EndOptions::default(),
            Self::Error => with_error(42.0, "no more bread"),
            Self::Cleanup => cleanup(),
        };
        EndOptions { archive: archive.then_some(true), ..options }
    }
}

/// Priorities that some conversations have.
pub(crate) fn rules() -> Vec<(String, PriorityRule)> {
    let rule = |contract: Option<&str>, local: &str, remote: &str, level| PriorityRule {
        contract: contract.map(Rc::from),
        local_service: Some(local.into()),
        remote_service: Some(remote.into()),
        level,
    };
    let rules = [
        rule(None, "Kitchen", "Front", 8.0),
        rule(Some("Ordering"), "Counter", "Back", 7.0),
        rule(None, "Back", "Front", 5.0),
    ];
    rules.into_iter().enumerate().map(|(number, rule)| (format!("rule {number}"), rule)).collect()
}

/// Everything that is committed, or what a transaction sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) queues: Vec<Queue>,
    pub(crate) sides: BTreeMap<End, Side>,
    /// Services by conversation: initiator and target.
    pub(crate) services: BTreeMap<Rc<str>, (usize, usize)>,
    pub(crate) lifetimes: BTreeMap<Rc<str>, Lifetime>,
    /// Timers and lifetimes so far: those of one time come in their order.
    pub(crate) stamps: u64,
    /// Messages that went nowhere.
    pub(crate) dropped: usize,
}

impl Row {
    /// It is read before the messages, and has no number of its own.
    pub(crate) fn is_system(&self) -> bool {
        ["DialogTimer", "Error"].contains(&self.kind)
    }

    /// It comes from the broker, not from the far side.
    pub(crate) fn is_own(&self) -> bool {
        self.kind == "DialogTimer" || self.body.starts_with('-')
    }
}

fn in_sequence(rows: &[Row]) -> u64 {
    rows.iter().filter(|row| !row.is_system()).count() as u64
}

pub(crate) fn other(end: &End) -> End {
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

    pub(crate) fn queue(&self) -> usize {
        SERVICES[self.service].1
    }

    /// What RECEIVE gives, in its order.
    pub(crate) fn unread(&self) -> Vec<Row> {
        let ready = || self.rows.iter().filter(|row| row.status == 1);
        let of = |kind| ready().filter(move |row| row.kind == kind);
        of("DialogTimer").chain(of("Error")).chain(ready().filter(|row| !row.is_system())).cloned().collect()
    }
}

impl World {
    pub(crate) fn begin(&mut self, id: &Rc<str>, from: usize, to: usize, group: Option<Rc<str>>, expires: Option<f64>) {
        if let Some(at) = expires {
            self.expect(id, at);
        }
        self.services.insert(Rc::clone(id), (from, to));
        self.sides.insert((Rc::clone(id), true), Side::new(from, "SO", group));
    }

    pub(crate) fn side(&mut self, end: &End) -> Result<&mut Side, ErrorCode> {
        self.sides.get_mut(end).ok_or(ErrorCode::ConversationNotFound)
    }

    /// `is_late`: in the commit of a transaction.
    pub(crate) fn send(
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

    pub(crate) fn arrive(&mut self, end: &End, rows: Vec<Row>) {
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
    pub(crate) fn end(&mut self, end: &End, ending: Ending) -> Result<(u64, u64), ErrorCode> {
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
    pub(crate) fn take(&mut self, end: &End, taken: &[Row]) -> Result<(), ErrorCode> {
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

    pub(crate) fn retain(&mut self, queue: usize, retention: bool) {
        self.queues[queue].retention = retention;
    }

    pub(crate) fn switch(&mut self, queue: usize, on: bool) {
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
