//! `alterQueue` and `alterService`: only what is given changes.

use std::rc::Rc;

use super::define::{Defining, set_options};
use super::{FIRST_QUEUE, QueueDefinition, QueueOptions, ServiceChange, ServiceDefinition, Status};
use crate::arrival;
use crate::error::{Error, Result};
use crate::ids::SideId;
use crate::queue::Queue;
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::turn::{HeldTurn, Turn};
use crate::work::Work;

/// `ALTER QUEUE`: only the options that are given change.
pub(crate) fn alter_queue(work: &mut Work<'_>, name: &str, options: &QueueOptions) -> Outcome<()> {
    // What the verbs before this one did is to be seen, and no run is half in the queue and half outside.
    work.after_others()?;
    work.queue(FIRST_QUEUE)?;
    let before = work.look_up(|catalog| catalog.queue(name))?;
    let mut after = before.clone();
    set_options(&mut after, options)?;
    if let Some(status) = options.status {
        (after.receive_enabled, after.enqueue_enabled) = (status == Status::On, status == Status::On);
    }
    let mut defining = Defining::from(&work.catalog);
    defining.put_queue(&after, before != after);
    defining.finish(work)?;

    if options.status == Some(Status::On) {
        work.queue(before.number)?;
        work.change_queue(before.number, Queue::forget_trials);
        let waiting = held_turns(work, before.number)?.iter().map(|turn| turn.side).collect();
        come_in(work, waiting)?;
    }
    if before.receive_enabled && !after.receive_enabled {
        work.changes.notice.disabled.push((Rc::clone(&before.name), "altered"));
    }
    // One that says what is so already is not heard of.
    if before != after || options.status == Some(Status::On) {
        work.changes.notice.touch(&before.name);
    }
    Ok(())
}

/// A queue is switched off by the broker itself.
pub(crate) fn switch_off(work: &mut Work<'_>, queue: &QueueDefinition, reason: &'static str) -> Outcome<()> {
    let off = QueueDefinition { receive_enabled: false, enqueue_enabled: false, ..queue.clone() };
    let mut defining = Defining::from(&work.catalog);
    defining.put_queue(&off, true);
    defining.finish(work)?;
    work.changes.notice.disabled.push((Rc::clone(&queue.name), reason));
    Ok(())
}

/// `ALTER SERVICE`: other contracts, another queue. Conversations that are under way go on under the contract that they have.
pub(crate) fn alter_service(work: &mut Work<'_>, name: &str, change: &ServiceChange) -> Outcome<()> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    work.queue(FIRST_QUEUE)?;
    let before = work.look_up(|catalog| catalog.service(name))?;
    refuse_own(work, &before, "altered")?;
    let mut after = before.clone();
    after.contracts = contracts(work, &before, change)?;
    let from = work.queue_of(before.number)?;
    let to = match &change.queue {
        Some(queue) => work.look_up(|catalog| catalog.queue(queue))?,
        None => from.clone(),
    };
    after.queue = to.number;
    if after == before {
        return Ok(());
    }
    let line = if from.number == to.number { Line::default() } else { Line::read(work, &before)? };
    let mut defining = Defining::from(&work.catalog);
    defining.put_service(after);
    defining.finish(work)?;
    if from.number != to.number {
        line.go(work, before.number, &from, &to)?;
    }
    Ok(())
}

/// A queue's own service goes with its queue.
pub(super) fn refuse_own(work: &Work<'_>, service: &ServiceDefinition, verb: &str) -> Result<()> {
    if !work.catalog.is_own(service) {
        return Ok(());
    }
    let problem = format!(
        "is the queue's own service, \"{}\", which can't be {verb}: it is there as long as its queue. Define a service of another name",
        service.name
    );
    Err(Error::invalid_argument("name", &problem))
}

/// The contracts that the service accepts afterwards. What it has already is not added twice, what it has not is not missed: an application
/// that alters its services whenever it starts finds them altered the second time.
fn contracts(work: &mut Work<'_>, service: &ServiceDefinition, change: &ServiceChange) -> Outcome<Vec<Rc<str>>> {
    for contract in change.add_contracts.iter().chain(&change.drop_contracts) {
        work.look_up(|catalog| catalog.contract(contract))?;
    }
    if let Some(both) = change.add_contracts.iter().find(|contract| change.drop_contracts.contains(contract)) {
        let problem = format!("names the contract \"{both}\", and so does `addContracts`: give it in one of the two");
        return Err(Error::invalid_argument("dropContracts", &problem).into());
    }
    let mut contracts = service.contracts.clone();
    contracts.retain(|contract| !change.drop_contracts.contains(contract));
    for added in &change.add_contracts {
        if !contracts.contains(added) {
            contracts.push(Rc::clone(added));
        }
    }
    Ok(contracts)
}

/// Who of a service is in line, to be received from and to come in.
#[derive(Default)]
struct Line {
    turns: Vec<Turn>,
    held: Vec<HeldTurn>,
}

impl Line {
    fn read(work: &mut Work<'_>, service: &ServiceDefinition) -> Outcome<Self> {
        let mut turns = work.read_range(StoreName::Turns, Turn::of_queue(service.queue), None, Turn::read)?;
        turns.retain(|turn| turn.service == service.number);
        let waiting = held_turns(work, service.queue)?;
        work.need(waiting.iter().map(|turn| turn.side.conversation), [])?;
        let mut held = Vec::new();
        for turn in waiting {
            let conversation = work.conversation(turn.side.conversation)?;
            let side = conversation.as_ref().and_then(|conversation| conversation.side(turn.side.role));
            held.extend(side.filter(|side| side.service == service.number).map(|_| turn));
        }
        Ok(Self { turns, held })
    }

    /// A service goes to another queue. Its rows name the service, so they are in the new queue by that; what names the queue is re-keyed.
    ///
    /// A queue that is on lets in what waited outside, as if it were switched on. One that is off takes what was in the old queue as it is,
    /// as a queue that is switched off keeps what it has: only what waited outside, and what comes later, waits (D12).
    fn go(self, work: &mut Work<'_>, service: u32, from: &QueueDefinition, to: &QueueDefinition) -> Outcome<()> {
        for turn in &self.turns {
            let moved = Turn { queue: to.number, ..turn.clone() };
            rekey(work, turn.key(), moved.key(), &moved);
            if let (Some(old), Some(new)) = (turn.twin_key(), moved.twin_key()) {
                rekey(work, old, new, &moved);
            }
        }
        for turn in &self.held {
            let moved = HeldTurn { queue: to.number, ..*turn };
            work.write(Change::Delete(StoreName::Turns, turn.key()));
            work.write(Change::Put(StoreName::Turns, moved.key(), moved.record()));
        }
        let mut counters = None;
        work.change_queue(from.number, |queue| {
            counters = queue.services.remove(&service);
            queue.turns += 1;
        });
        work.change_queue(to.number, |queue| {
            queue.services.insert(service, counters.unwrap_or_default());
            queue.turns += 1;
            // Its next numbers are to be above those that the service brings along: they come from a block that is yet to be claimed.
            queue.next_order = queue.end_of_orders;
        });
        if to.receive_enabled && !self.turns.is_empty() {
            work.changes.notice.enqueue(&to.name);
        }
        // What waits outside has another reason, or comes in.
        work.changes.notice.transmission |= !self.held.is_empty();
        if to.enqueue_enabled {
            come_in(work, self.held.iter().map(|turn| turn.side).collect())?;
        }
        Ok(())
    }
}

fn rekey(work: &mut Work<'_>, old: Key, new: Key, turn: &Turn) {
    work.write(Change::Delete(StoreName::Turns, old));
    work.write(Change::Put(StoreName::Turns, new, turn.record()));
}

fn held_turns(work: &mut Work<'_>, queue: u32) -> Outcome<Vec<HeldTurn>> {
    work.read_range(StoreName::Turns, HeldTurn::of_queue(queue), None, HeldTurn::read)
}

/// What waited outside comes in. No body is touched.
fn come_in(work: &mut Work<'_>, sides: Vec<SideId>) -> Outcome<()> {
    work.need(sides.iter().map(|side| side.conversation), [])?;
    for side in sides {
        if let Some(mut conversation) = work.conversation(side.conversation)? {
            arrival::release(work, &mut conversation, side.role)?;
            work.save(conversation);
        }
    }
    Ok(())
}
