//! The rows of one side, recounted.

use std::collections::BTreeMap;

use super::{Audit, part};
use crate::conversation::{Conversation, Interval, Side, State};
use crate::ids::SideId;
use crate::message::{self, Class, Run, Status, count};
use crate::queue::Counters;
use crate::store::Key;
use crate::visible::segments;

impl Audit {
    /// Checks what a side says of its rows against the rows, and gives the recount.
    pub(super) fn check_side(&mut self, conversation: &Conversation, id: SideId, side: &Side) -> Counters {
        // One that has ended and waits outside may have runs that are to be swept: they are not its rows any more.
        let is_swept = side.state.is_over() && self.swept.contains(&id);
        let runs = self.runs.get(&id).filter(|_| !is_swept).cloned().unwrap_or_default();
        let mut problems = Vec::new();
        let counters = recount(side, &runs);
        for (what, said, counted) in [
            ("unread", side.unread, counters.ready),
            ("kept", side.kept, counters.kept),
            ("copies", side.copies, counters.copies),
            ("parked", side.parked, counters.parked),
            ("held", side.held_count(), counters.held),
        ] {
            if said != counted {
                problems.push(format!("{what} is {said}, and a recount gives {counted}"));
            }
        }
        for class in Class::ALL {
            let runs: Vec<&Run> = runs.iter().filter(|run| run.class == class).collect();
            check_line(class, &runs, &mut problems);
            for interval in needed(side, class) {
                check_interval(class, interval, &runs, &mut problems);
            }
            runs.iter()
                .filter(|run| !is_needed(side, run))
                .for_each(|run| problems.push(format!("nobody needs the run {:?}", run.key())));
            let hidden = runs.iter().filter(|run| run.service.is_none() && !segments(side, run).is_empty());
            hidden.for_each(|run| {
                problems.push(format!("the run {:?} has rows in the queue and is not in the index", run.key()))
            });
        }
        check_turns(side, &runs, &mut problems);
        check_system(side, &runs, &mut problems);
        check_ahead(side, &runs, &mut problems);
        check_summary(side, &runs, &mut problems);
        // One that has ended has no rows in a queue, and may have outlived its service.
        if !side.state.is_over() && runs.iter().any(|run| run.service.is_some_and(|service| service != side.service)) {
            problems.push("a run is in another service's queue".to_owned());
        }
        if side.state.is_over()
            && (side.turn.is_some() || counters.ready + counters.kept + counters.copies + counters.held > 0)
        {
            problems.push("it has ended and has rows".to_owned());
        }
        let handle = conversation.handle(id.role);
        problems.into_iter().for_each(|problem| {
            self.found.push(format!("{:?} of conversation {} ({handle}): {problem}", id.role, id.conversation))
        });
        counters
    }

    /// Each large row has a body of its own, and each such body a row. What the END of a lane took has none, though its run may have to stay.
    pub(super) fn check_bodies(&mut self, conversations: &BTreeMap<u64, Conversation>) {
        let ended = |run: &Run| {
            let lane = conversations.get(&run.side.conversation).and_then(|conversation| conversation.lane.as_ref());
            lane.filter(|_| run.class == Class::Received).map_or(0, |lane| lane.base)
        };
        let numbers = |run: &Run| -> Vec<u64> {
            run.columns.large.iter().map(|(index, _)| run.first() + count(*index)).collect()
        };
        let is_left = |run: &Run, number: &u64| *number >= ended(run);
        let mut named = std::collections::BTreeSet::new();
        for run in self.runs.values().flatten() {
            let left = numbers(run).into_iter().filter(|number| is_left(run, number));
            named.extend(left.map(|number| message::key(run.side, run.class, number)));
        }
        let swept: Vec<Key> = self.swept.iter().map(|side| part(side.number())).collect();
        let is_swept =
            |key: &Key| matches!(key, Key::List(parts) if parts.first().is_some_and(|side| swept.contains(side)));
        // Nobody misses the body of a row that has gone while others of its run are there.
        let is_missed = |key: &Key| {
            self.runs.values().flatten().any(|run| {
                let side = conversations.get(&run.side.conversation).and_then(|found| found.side(run.side.role));
                let is_needed = |number: u64| {
                    let is_in = |interval: &Interval| (interval.from..interval.to).contains(&number);
                    run.class == Class::System || side.is_none_or(|side| needed(side, run.class).iter().any(is_in))
                };
                run.columns
                    .large
                    .iter()
                    .any(|(index, _)| self::key(run, *index) == *key && is_needed(run.first() + count(*index)))
            })
        };
        let missing = named.difference(&self.bodies).filter(|key| is_missed(key));
        let missing = missing.map(|key| format!("body {key:?}: it is missing"));
        let extra = self
            .bodies
            .difference(&named)
            .filter(|key| !is_swept(key))
            .map(|key| format!("body {key:?}: no row has it"));
        let found: Vec<String> = missing.chain(extra).collect();
        self.found.extend(found);
    }

    /// No order number is given twice, and none that is still to be given.
    pub(super) fn check_orders(&mut self) {
        let mut orders: BTreeMap<u64, &Run> = BTreeMap::new();
        let mut found = Vec::new();
        for run in self.runs.values().flatten() {
            if orders.insert(run.first_order, run).is_some() {
                found.push(format!("order {} is given twice", run.first_order));
            }
            let queue = run
                .service
                .and_then(|service| self.catalog.queue_of(service))
                .and_then(|queue| self.queues.get(&queue.number));
            if queue.is_some_and(|queue| (queue.next_order..queue.end_of_orders).contains(&run.last_order())) {
                found.push(format!("run {:?}: its order is still to be given", run.key()));
            }
        }
        for ((_, run), (next, _)) in orders.iter().zip(orders.iter().skip(1)) {
            if run.last_order() >= *next {
                found.push(format!("run {:?}: its orders reach into the next run's", run.key()));
            }
        }
        self.found.extend(found);
    }
}

fn key(run: &Run, index: usize) -> Key {
    message::key(run.side, run.class, run.first() + count(index))
}

fn recount(side: &Side, runs: &[Run]) -> Counters {
    let mut counters = Counters::default();
    for run in runs {
        for (from, to, status) in segments(side, run) {
            let rows = count(to - from);
            match status {
                Status::RetainedReceived => counters.kept += rows,
                Status::Ready => counters.ready += rows,
                Status::NotYetComplete => counters.parked += rows,
                Status::RetainedSent => counters.copies += rows,
            }
        }
        counters.held += match run.class {
            Class::Received => rows_in(run, Interval { from: side.visible_end(), to: side.next_expected }),
            Class::System => count(side.system.iter().filter(|row| row.held && row.number == run.last).count()),
            Class::Parked | Class::Sent => 0,
        };
    }
    if let Some(outgoing) = side.outgoing.as_ref().filter(|outgoing| outgoing.turn.is_some()) {
        counters.outgoing = side.next_send.saturating_sub(outgoing.acknowledged);
    }
    counters
}

fn rows_in(run: &Run, interval: Interval) -> u64 {
    interval.to.min(run.last + 1).saturating_sub(interval.from.max(run.first()))
}

/// The stretches of numbers that must be stored.
fn needed(side: &Side, class: Class) -> Vec<Interval> {
    match class {
        Class::System => side.system.iter().map(|row| Interval { from: row.number, to: row.number + 1 }).collect(),
        Class::Received => {
            let mut needed = side.kept_intervals.clone();
            needed.push(Interval { from: side.cursor, to: side.next_expected });
            needed
        }
        Class::Parked => side.ahead.parked.clone(),
        Class::Sent => {
            let mut needed = side.copied_intervals.clone();
            needed.extend(
                side.outgoing.as_ref().map(|outgoing| Interval { from: outgoing.acknowledged, to: side.next_send }),
            );
            needed
        }
    }
}

fn is_needed(side: &Side, run: &Run) -> bool {
    match run.class {
        // Received ones stay if the queue retained them.
        Class::System => !segments(side, run).is_empty() || side.system.iter().any(|row| row.number == run.last),
        class => needed(side, class).into_iter().any(|interval| rows_in(run, interval) > 0),
    }
}

/// Runs of a class do not overlap, and their orders rise with their numbers.
fn check_line(class: Class, runs: &[&Run], problems: &mut Vec<String>) {
    for (run, next) in runs.iter().zip(runs.iter().skip(1)) {
        if next.first() <= run.last {
            problems.push(format!("{class:?}: the number {} is stored twice", next.first()));
        }
        if class != Class::Parked && next.first_order <= run.last_order() {
            problems.push(format!("{class:?}: the order falls at number {}", next.first()));
        }
        if class != Class::System && next.sequence != next.first() {
            problems.push(format!("{class:?}: number {} shows sequence number {}", next.first(), next.sequence));
        }
    }
}

fn check_interval(class: Class, interval: Interval, runs: &[&Run], problems: &mut Vec<String>) {
    let stored: u64 = runs.iter().map(|run| rows_in(run, interval)).sum();
    let wanted = interval.to.saturating_sub(interval.from);
    if stored != wanted {
        problems.push(format!(
            "{class:?}: of the numbers {} to {} (excluded), {stored} are stored",
            interval.from, interval.to
        ));
    }
}

fn check_turns(side: &Side, runs: &[Run], problems: &mut Vec<String>) {
    if side.turn.is_some() != (side.unread > 0 && !side.waits()) {
        problems
            .push(format!("{} rows are unread, and its turn is {:?}; retry: {:?}", side.unread, side.turn, side.retry));
    }
    if side.held_turn.is_some() != (side.held_count() > 0) {
        problems.push(format!("{} rows wait outside, and their turn is {:?}", side.held_count(), side.held_turn));
    }
    let oldest = |status: Status| {
        let segments = runs.iter().flat_map(|run| segments(side, run).into_iter().map(move |segment| (run, segment)));
        segments
            .filter(|(_, (.., found))| *found == status)
            .map(|(run, (from, ..))| run.first_order + count(from))
            .min()
    };
    if let (Some(turn), Some(oldest)) = (side.turn, oldest(Status::Ready))
        && turn > oldest
    {
        problems.push(format!("its turn is {turn}, and the oldest unread row has the order {oldest}"));
    }
    let transmits = side.outgoing.as_ref().is_some_and(|outgoing| outgoing.acknowledged < side.next_send);
    let may_go = side.state.may_send() || side.state == State::DisconnectedOutbound || side.has_last_word();
    let turn = side.outgoing.as_ref().and_then(|outgoing| outgoing.turn);
    if turn.is_some() != (transmits && may_go) {
        problems.push(format!("whether something is to be transmitted: {transmits}, in a state that allows it: {may_go}, and its turn is {turn:?}"));
    }
}

fn check_system(side: &Side, runs: &[Run], problems: &mut Vec<String>) {
    let stored = |number: u64| runs.iter().any(|run| run.class == Class::System && run.last == number);
    let missing = side.system.iter().filter(|row| !stored(row.number));
    missing.for_each(|row| problems.push(format!("the unread system row {} is missing", row.number)));
    if side.next_system <= side.system.iter().map(|row| row.number).max().unwrap_or(0) && !side.system.is_empty() {
        problems.push("the next number of class system is given already".to_owned());
    }
}

/// Rows with status 2 are those that their side knows of, and others are missing before each of them.
fn check_ahead(side: &Side, runs: &[Run], problems: &mut Vec<String>) {
    let ahead = &side.ahead;
    let parked = runs.iter().filter(|run| run.class == Class::Parked);
    let bytes = parked.map(|run| run.columns.size).sum::<f64>();
    if side.parked != ahead.count() || (bytes - ahead.bytes).abs() > 0.0 {
        problems.push(format!("{} rows of {bytes} bytes are parked, and it knows of {ahead:?}", side.parked));
    }
    if ahead.parked.first().is_some_and(|first| first.from <= side.next_expected) {
        problems.push(format!("number {} is expected, and {ahead:?} waits", side.next_expected));
    }
}

/// What END relies on to delete everything.
fn check_summary(side: &Side, runs: &[Run], problems: &mut Vec<String>) {
    if side.runs < count(runs.len()) {
        problems.push(format!("it says that it has {} runs, and there are {}", side.runs, runs.len()));
    }
    if !side.has_bodies && runs.iter().any(|run| !run.columns.large.is_empty()) {
        problems.push("it has large bodies and does not know it".to_owned());
    }
    let visible = || runs.iter().filter(|run| run.service.is_some());
    let first = visible().map(|run| run.first_order).min();
    let last = visible().map(Run::last_order).max();
    if !side.state.is_over()
        && (first.is_some_and(|first| first < side.first_order) || last.is_some_and(|last| last > side.last_order))
    {
        problems.push(format!(
            "its orders are said to go from {} to {}, and go from {first:?} to {last:?}",
            side.first_order, side.last_order
        ));
    }
}
