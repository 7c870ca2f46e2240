//! Records that other records tell the most of: timers, names, the state of a group, the counters of a queue.

use super::{Lost, lost_in, problem_of, raw_row};
use crate::body::{Body, Value};
use crate::conversation::Conversation;
use crate::delayed;
use crate::due::{Due, DueKind, timer_body, timer_record};
use crate::error_queue::{self, FailedAt};
use crate::ids::SideId;
use crate::lane::Lane;
use crate::membership;
use crate::queue::Queue;
use crate::record;
use crate::reuse::{Reuse, named};
use crate::seen::{self, SeenId};
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Change, Key, Range, StoreName};
use crate::transmission::{name_of, read_side};
use crate::work::Work;

/// A timer fires all the same, without its body, which goes to the error queue as it is.
pub(super) fn mend_timer(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let due = Due::read(&key.to_value()).filter(|due| due.kind == DueKind::Timer);
    let (Some(due), Some(record)) = (due, work.get(StoreName::Due, key.clone())?) else { return Ok(false) };
    let problem = match timer_body(&record) {
        Ok(_) => return Ok(true),
        Err(problem) => problem_of(problem, (StoreName::Due, key))?,
    };
    let id = SideId::from_number(due.number);
    let conversation = work.conversation(id.conversation)?;
    let side = conversation.as_ref().and_then(|conversation| conversation.side(id.role));
    let timer = side.and_then(|side| side.timers.iter().find(|timer| Due::timer(id, timer) == due));
    let (Some(conversation), Some(timer)) = (&conversation, timer) else {
        // Nobody has begun it: it would do nothing.
        work.write(Change::Delete(StoreName::Due, key.clone()));
        return Ok(true);
    };
    let body = match &*timer.name {
        "" => Body::none(),
        name => Body::small(Value::object(vec![("name", Value::from(name))])),
    };
    work.write(Change::Put(StoreName::Due, key.clone(), timer_record(id, &timer.name, &body)));
    let row = raw_row(work, StoreName::Due, key, record, Vec::new());
    Lost::nothing(conversation, id.role).bury(work, row, &problem)?;
    Ok(true)
}

/// What the store `members` holds under a key.
pub(super) fn mend_member(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Key::List(parts) = key else { return Ok(false) };
    let Some(record) = work.get(StoreName::Members, key.clone())? else { return Ok(true) };
    match parts.as_slice() {
        [Key::Text(kind), Key::Text(group)] if &**kind == "s" => mend_state(work, key, record, group),
        [Key::Text(kind), Key::Text(id)] if &**kind == "h" => delayed::mend_name(work, key, id),
        [Key::Text(kind), side, stamp] if &**kind == "o" => match (super::number(side), super::number(stamp)) {
            (Some(side), Some(stamp)) => delayed::mend_mark(work, key, SideId::from_number(side), stamp),
            _ => Ok(false),
        },
        [Key::Text(kind), ..] if &**kind == "c" => mend_far_name(work, key, &record),
        [Key::Text(kind), service, ..] if matches!(&**kind, "l" | "r") => {
            let service = match service {
                Key::Text(name) => work.catalog.service(name).ok().map(|service| service.number),
                number => super::number(number).and_then(|number| u32::try_from(number).ok()),
            };
            service.map_or(Ok(false), |service| mend_name(work, key, &record, service))
        }
        _ => Ok(false),
    }
}

/// The name of a lane, or of a dialog that is used again, is said by its conversation, too. It is looked for among all of the service.
fn mend_name(work: &mut Work<'_>, key: &Key, record: &Value, service: u32) -> Outcome<bool> {
    if let Err(problem) = named(record) {
        problem_of(problem, (StoreName::Members, key))?;
        let sides = work.sides_of(service)?;
        work.need(sides.iter().map(|side| side.conversation), [])?;
        let is_named = |conversation: &Conversation| {
            Lane::of(conversation).is_some_and(|lane| lane.name() == *key)
                || Reuse::of(conversation).is_some_and(|reuse| reuse.key() == *key)
        };
        let mut owner = None;
        for side in sides {
            let conversation = work.conversation(side.conversation)?;
            owner = owner.or(conversation.filter(|conversation| is_named(conversation)).map(|_| side.conversation));
        }
        work.write(match owner {
            Some(number) => {
                let record = Value::list(vec![Value::from(1u32), record::value(number)]);
                Change::Put(StoreName::Members, key.clone(), record)
            }
            None => Change::Delete(StoreName::Members, key.clone()),
        });
    }
    Ok(true)
}

/// The name that an endpoint has for far brokers is said by its conversation, too. It may be any.
fn mend_far_name(work: &mut Work<'_>, key: &Key, record: &Value) -> Outcome<bool> {
    let Err(problem) = read_side(record) else { return Ok(true) };
    problem_of(problem, (StoreName::Members, key))?;
    let catalog = std::rc::Rc::clone(&work.catalog);
    let mut owner = None;
    for service in catalog.services.values() {
        let sides = work.sides_of(service.number)?;
        work.need(sides.iter().map(|side| side.conversation), [])?;
        for side in sides {
            let conversation = pass_over(work.conversation(side.conversation), &mut None)?.flatten();
            let name = conversation.and_then(|conversation| name_of(&conversation, side.role));
            owner = owner.or((name.as_ref() == Some(key)).then_some(side));
        }
    }
    work.write(match owner {
        Some(side) => Change::Put(
            StoreName::Members,
            key.clone(),
            Value::list(vec![Value::from(1u32), record::value(side.number())]),
        ),
        None => Change::Delete(StoreName::Members, key.clone()),
    });
    Ok(true)
}

/// What a group knew goes to the error queue as it is: from now on it knows nothing.
fn mend_state(work: &mut Work<'_>, key: &Key, record: Value, group: &std::rc::Rc<str>) -> Outcome<bool> {
    let problem = match membership::read_state(&record) {
        Ok(_) => return Ok(true),
        Err(problem) => problem_of(problem, (StoreName::Members, key))?,
    };
    let Some((conversation, role)) = membership::any_member(work, group)? else { return Ok(false) };
    membership::set_state(work, group, &Body::none());
    let row = raw_row(work, StoreName::Members, key, record, Vec::new());
    Lost::nothing(&conversation, role).bury(work, row, &problem)?;
    Ok(true)
}

/// An id that `enqueue` was given is free again: which message had it, and for how long, nobody else knows. The record goes to the error queue as it is.
pub(super) fn mend_seen(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Some(seen) = SeenId::of(key) else { return Ok(false) };
    let Some(record) = work.get(StoreName::Seen, key.clone())? else { return Ok(true) };
    let problem = match seen::read(&record) {
        Ok(_) => return Ok(true),
        Err(problem) => problem_of(problem, (StoreName::Seen, key))?,
    };
    // What takes the record away would take the next one of the id away.
    let kind = DueKind::Seen(std::rc::Rc::clone(&seen.id));
    let due: Vec<Due> = work
        .get_keys(StoreName::Due, Range::all(), None)?
        .iter()
        .filter_map(Due::read)
        .filter(|due| due.kind == kind && due.number == u64::from(seen.queue))
        .collect();
    due.iter().for_each(|due| work.drop_due(due));
    work.write(Change::Delete(StoreName::Seen, key.clone()));
    let row = raw_row(work, StoreName::Seen, key, record, Vec::new());
    let queue = work.catalog.queue_by_number(seen.queue).map(|queue| std::rc::Rc::clone(&queue.name));
    let failed = lost_in(work, None, "".into(), 0, &problem);
    let queue = queue.unwrap_or_else(|| std::rc::Rc::clone(&failed.queue));
    error_queue::put(work, FailedAt { queue, ..failed }, row)?;
    Ok(true)
}

/// The counters of a queue are counted anew, from all conversations of its services; and one whose record is missing, or was written under
/// other definitions than those that are stored, gets one that belongs to them.
pub(super) fn mend_queue(work: &mut Work<'_>, key: &Key) -> Outcome<bool> {
    let Some(number) = super::number(key).and_then(|number| u32::try_from(number).ok()) else { return Ok(false) };
    if !work.is_fresh {
        return Err(Stop::Stale);
    }
    let catalog = std::rc::Rc::clone(&work.catalog);
    if let Some(record) = work.get(StoreName::Queues, key.clone())? {
        match Queue::from_record(number, &record) {
            Ok(queue) if queue.stamp == catalog.stamp => return Ok(true),
            Ok(queue) => {
                let queue = Queue { stamp: catalog.stamp, ..queue };
                work.write(Change::Put(StoreName::Queues, key.clone(), queue.record()));
                return Ok(true);
            }
            Err(error) if error.is_corrupt() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let Some(definition) = catalog.queue_by_number(number) else { return Ok(false) };
    // Its due row is named by nobody else.
    let due = work
        .get_keys(StoreName::Due, Range::all(), None)?
        .iter()
        .filter_map(Due::read)
        .find(|due| due.kind == DueKind::Retention && due.number == u64::from(number));
    let mut services = work.recount()?;
    services.retain(|service, _| catalog.queue_of(*service).is_some_and(|queue| queue.number == number));
    // The numbers that it had are not given again. Who remembers its line does not know this number of the turns.
    let turns = num_traits::ToPrimitive::to_u64(&work.now).unwrap_or_default();
    let oldest_due = due.map(|due| due.at);
    let queue = Queue { turns, services, oldest_due, ..Queue::new(number, catalog.stamp) };
    work.write(Change::Put(StoreName::Queues, key.clone(), queue.record()));
    work.changes.notice.touch(&definition.name);
    Ok(true)
}
