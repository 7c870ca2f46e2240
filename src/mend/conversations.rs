//! A conversation whose record can't be read. What it has goes to the error queue as it is, run by run, some at a time; then the record itself, and an
//! endpoint whose handle can still be told stays, in state ER. A lane is begun anew by the next message.

use std::rc::Rc;

use super::{Mended, lost_in, raw_row, rows};
use crate::arrival;
use crate::body::Value;
use crate::conversation::{Conversation, State};
use crate::delayed::{count_marked, custom, marks_of};
use crate::due::Due;
use crate::error_queue;
use crate::ids::{Decoded, Role, SideId};
use crate::membership::{all_members, read_member};
use crate::message::count;
use crate::reuse::named;
use crate::stop::Outcome;
use crate::store::{Change, Key, Range, StoreName};
use crate::transmission::read_side;
use crate::turn;
use crate::work::Work;

/// The code of the Error that the endpoints get.
const REMOVED: i32 = -9686;
/// So many runs are moved in one storage transaction.
const RUNS: u32 = 32;

pub(super) fn mend(work: &mut Work<'_>, key: &Key) -> Outcome<Mended> {
    let Some(number) = super::number(key) else { return Ok(Mended::No) };
    let Some(record) = work.get(StoreName::Conversations, key.clone())? else { return Ok(Mended::Yes) };
    let problem = match Conversation::from_record(number, &record) {
        Ok(_) => return Ok(Mended::Yes),
        Err(error) => super::text_of(error, StoreName::Conversations)?,
    };
    let sides = [Role::Initiator, Role::Target].map(|role| SideId { conversation: number, role });
    for side in sides {
        if rows::bury_some(work, side, RUNS, &problem)? {
            return Ok(Mended::Partly);
        }
    }
    let others = expunge(work, number)?;
    // Nobody knows what it had: the counters are counted without it.
    let mut counted = work.recount()?;
    for queue in Rc::clone(&work.catalog).queues.values() {
        work.queue(queue.number)?;
        let services: Vec<u32> = work.catalog.services_on(queue.number).map(|service| service.number).collect();
        work.change_queue(queue.number, |record| {
            record.turns += 1;
            for service in services {
                let mut counters = counted.remove(&service).unwrap_or_default();
                record.count(service, |known| {
                    counters.epoch = counters.epoch.max(known.epoch + 1);
                    *known = counters;
                });
            }
        });
    }
    let left = Conversation::salvage(number, &record);
    let handle = left.as_ref().map_or_else(|| "".into(), |left| left.handle(Role::Initiator));
    let row = raw_row(work, StoreName::Conversations, key, record, others);
    let failed = lost_in(work, None, handle, 0, &problem);
    error_queue::put(work, failed, row)?;
    work.write(Change::Delete(StoreName::Conversations, key.clone()));
    if let Some(left) = left {
        stay(work, left)?;
    }
    work.changes.notice.conversations = true;
    Ok(Mended::Yes)
}

/// The endpoints that were there stay, and say that they have failed.
fn stay(work: &mut Work<'_>, mut conversation: Box<Conversation>) -> Outcome<()> {
    let mut delayed = Vec::new();
    for role in [Role::Initiator, Role::Target] {
        let id = conversation.id_of(role);
        let built_in = count_marked(work.get_keys(StoreName::Members, marks_of(id), None)?);
        let elsewhere = work.get_keys(StoreName::Members, custom::marks_of(id), None)?.len();
        delayed.push(built_in + count(elsewhere));
    }
    for role in [Role::Initiator, Role::Target] {
        let name = Rc::clone(conversation.service(role));
        let service = work.catalog.service(&name).ok().map(|service| service.number);
        match (conversation.side_mut(role), service) {
            (Some(side), Some(service)) => {
                side.service = service;
                // What it has under way is still known.
                side.delayed = delayed.get(usize::from(role == Role::Target)).copied().unwrap_or(0);
            }
            (side, _) => {
                *side = None;
                continue;
            }
        }
        let service = service.unwrap_or_default();
        work.move_state(&conversation, role, service, None, Some(State::Error))?;
        let is_from_outside = conversation.is_from_outside(role);
        work.count(service, |counters| counters.from_outside += u64::from(is_from_outside))?;
        let text = "The record of the conversation could not be read. It lies in the error queue, with what was left of its messages.";
        arrival::fail_anew(work, &mut conversation, role, REMOVED, text)?;
    }
    work.save(conversation);
    Ok(())
}

/// Whatever else names the conversation goes. Gives it, but for the turns, which say nothing of their own.
fn expunge(work: &mut Work<'_>, number: u64) -> Outcome<Vec<Value>> {
    let is_of = |side: SideId| side.conversation == number;
    let members = work.get_keys(StoreName::Members, all_members(), None)?;
    let members: Vec<_> = members.iter().filter_map(Key::from_value).filter_map(|key| read_member(&key)).collect();
    let (own, others): (Vec<_>, Vec<_>) = members.into_iter().partition(|(_, side)| is_of(*side));
    let is_in = |members: &[(Rc<str>, SideId)], group: &Rc<str>| members.iter().any(|(other, _)| other == group);
    // What a group knows goes with the last of its members.
    let was_last = |group: &Rc<str>| {
        let is_own = || Decoded::parse(group).is_some_and(|own| own.is_group && is_of(own.side));
        (is_in(&own, group) || is_own()) && !is_in(&others, group)
    };
    let mut gone = Vec::new();
    // What leads to delayed messages is not among them: they are sent on a conversation, or go to the error queue, when they are due.
    let names = ["g", "l", "r", "s", "c"].map(|kind| (StoreName::Members, Range::prefix(vec![kind.into()])));
    let others = [StoreName::Turns, StoreName::Due].map(|store| (store, Range::all()));
    for (store, range) in names.into_iter().chain(others) {
        let records = work.get_range(store, range.clone(), None)?.to_vec();
        let keys = work.get_keys(store, range, None)?.to_vec();
        for (key, record) in keys.iter().zip(records) {
            let Some(key) = Key::from_value(key) else { continue };
            let is_its = match store {
                StoreName::Turns => turn::side_of(&key).is_some_and(is_of),
                StoreName::Due => Due::read(&key.to_value()).and_then(|due| due.conversation()) == Some(number),
                _ => is_member(&key, &record, number, &was_last),
            };
            if is_its {
                work.write(Change::Delete(store, key.clone()));
                if store != StoreName::Turns {
                    gone.push(Value::list(vec![key.to_value(), record]));
                }
            }
        }
    }
    Ok(gone)
}

/// Whether a record of the store `members` is of a conversation: a member of a group, what a group knows that it was the last of, a name.
fn is_member(key: &Key, record: &Value, number: u64, was_last: &dyn Fn(&Rc<str>) -> bool) -> bool {
    let Key::List(parts) = key else { return false };
    match parts.as_slice() {
        [Key::Text(kind), ..] if &**kind == "g" => {
            read_member(key).is_some_and(|(_, side)| side.conversation == number)
        }
        [Key::Text(kind), Key::Text(group)] if &**kind == "s" => was_last(group),
        [Key::Text(kind), ..] if &**kind == "c" => read_side(record).is_ok_and(|side| side.conversation == number),
        _ => named(record).is_ok_and(|named| named == number),
    }
}
