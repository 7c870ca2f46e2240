//! What the broker should do, told in the simplest way: every row is a value in a list, and nothing is clever.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pocket_broker::EndOptions;
use pocket_broker::definitions::PriorityRule;
use pocket_broker::error::ErrorCode;

use super::super::support::shop::{cleanup, with_error};
use super::due::Lifetime;
pub(crate) use super::side::{Row, Side};

pub(crate) const QUEUES: [&str; 3] = ["counter", "kitchen", "house"];
pub(crate) const SERVICES: [(&str, usize); 4] = [("Counter", 0), ("Kitchen", 1), ("Front", 2), ("Back", 2)];

/// The number of a service that is not here.
pub(crate) const ELSEWHERE: usize = SERVICES.len();

/// All queues that there may be.
pub(crate) const PLACES: [&str; 5] = ["counter", "kitchen", "house", "error", "bin"];
/// The queue of what has failed.
pub(crate) const ERROR: usize = 3;
/// One that comes and goes.
pub(crate) const BIN: usize = 4;
/// The number of the first queue's own service; those of the others follow.
pub(crate) const OWN: usize = ELSEWHERE + 1;

pub(crate) fn service_name(number: usize) -> &'static str {
    let own = number.checked_sub(OWN).and_then(|queue| PLACES.get(queue).copied());
    own.or_else(|| SERVICES.get(number).map(|(name, _)| *name)).unwrap_or("Elsewhere")
}

/// An end of a conversation: the conversation's id, and whether it is the initiator.
pub(crate) type End = (Rc<str>, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) on: bool,
    pub(crate) retention: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Plain,
    Error,
    Cleanup,
    /// With the error that DROP SERVICE gives.
    Dropped,
}

impl Ending {
    pub(crate) fn options(self, archive: bool) -> EndOptions {
        let options = match self {
            Self::Plain => EndOptions::default(),
            Self::Error | Self::Dropped => with_error(42.0, "no more bread"),
            Self::Cleanup => cleanup(),
        };
        EndOptions { archive: archive.then_some(true), ..options }
    }

    /// What the far side is told.
    fn last_row(self, number: u64) -> Row {
        match self {
            Self::Error => Row::new("Error", number, "42"),
            Self::Dropped => Row::new("Error", number, "-8470"),
            Self::Plain | Self::Cleanup => Row::new("EndDialog", number, ""),
        }
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
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    pub(crate) queues: Vec<Queue>,
    pub(crate) sides: BTreeMap<End, Side>,
    /// Services by conversation: initiator and target.
    pub(crate) services: BTreeMap<Rc<str>, (usize, usize)>,
    pub(crate) lifetimes: BTreeMap<Rc<str>, Lifetime>,
    /// The queues of the services, where they are not those of [`SERVICES`]; `None`: it was dropped.
    pub(crate) homes: BTreeMap<usize, Option<usize>>,
    /// Conversations whose first message found no service here.
    pub(crate) far: BTreeSet<Rc<str>>,
    /// When what was sent to services that were not here comes in, if they are here by then.
    pub(crate) deliveries: Vec<(f64, u64)>,
    /// Timers and lifetimes so far: those of one time come in their order. And lanes, and what came back.
    pub(crate) stamps: u64,
    /// Messages that went nowhere.
    pub(crate) dropped: usize,
}

fn in_sequence(rows: &[Row]) -> u64 {
    rows.iter().filter(|row| !row.is_system()).count() as u64
}

pub(crate) fn other(end: &End) -> End {
    (Rc::clone(&end.0), !end.1)
}

impl World {
    pub(crate) fn begin(&mut self, id: &Rc<str>, from: usize, to: usize, group: Option<Rc<str>>, expires: Option<f64>) {
        if let Some(at) = expires {
            self.expect(id, at);
        }
        self.services.insert(Rc::clone(id), (from, to));
        let queue = self.queue_of(from).unwrap_or_default();
        self.sides.insert((Rc::clone(id), true), Side::new(from, queue, "SO", group));
    }

    /// The queue of a service, if it is here.
    pub(crate) fn queue_of(&self, service: usize) -> Option<usize> {
        let first = || service.checked_sub(OWN).or_else(|| SERVICES.get(service).map(|(_, queue)| *queue));
        self.homes.get(&service).copied().unwrap_or_else(first)
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
        let queue = self.queues[side.queue];
        if queue.retention && !queue.on {
            return Err(ErrorCode::QueueDisabled);
        }
        let to = self.services[&end.0].1;
        let is_undecided = end.1 && side.next_send == 0;
        let is_far = self.far.contains(&end.0) || (is_undecided && self.queue_of(to).is_none());
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
                returned: None,
            }
        };
        if is_far {
            self.far.insert(Rc::clone(&end.0));
        }
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
            self.sides.insert(far.clone(), Side::new(to, self.queue_of(to).unwrap_or_default(), "CO", None));
        }
        match self.sides.get(&far).map(|side| side.state) {
            Some("DO") => self.dropped += bodies.len(),
            Some(_) => self.arrive(&far, bodies.iter().enumerate().map(row(1)).collect()),
            None => {
                self.dropped += bodies.len();
                let number = self.sides[end].next_expected;
                if !self.sides[end].held.iter().any(|row| row.kind == "Error") {
                    self.arrive(end, vec![Row::new("Error", number, "-8462")]);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn arrive(&mut self, end: &End, rows: Vec<Row>) {
        let Some(side) = self.sides.get_mut(end) else { return };
        side.next_expected += in_sequence(&rows);
        if self.queues[side.queue].on {
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
        if self.far.contains(&end.0) {
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
            self.arrive(&far, vec![ending.last_row(side.next_send)]);
        }
        if self.sides.get(&far).is_some_and(|side| side.held.iter().any(|row| !row.is_own())) {
            let ended = self.side(end)?;
            ended.close();
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
        side.close();
        if ending != Ending::Plain {
            side.outgoing.clear();
        }
        side.outgoing.push(ending.last_row(side.next_send));
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
        let retention = self.queues[side.queue].retention;
        let side = self.side(end)?;
        if side.retry.as_ref().is_some_and(|retry| taken.contains(&retry.row)) {
            side.retry = None;
        }
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
        self.come_in(|side| side.queue == queue);
    }

    /// What waited outside comes in.
    pub(crate) fn come_in(&mut self, where_to: impl Fn(&Side) -> bool) {
        let waiting = self.sides.iter().filter(|(_, side)| where_to(side) && !side.held.is_empty());
        let ends: Vec<End> = waiting.map(|(end, _)| end.clone()).collect();
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
