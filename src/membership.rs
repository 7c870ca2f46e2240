//! Who is in which group, and what a group knows.
//!
//! A side is alone in its own group until another joins it or it is put into one: from then on the group has a record per member.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::{Body, Value};
use crate::conversation::{Conversation, Side};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Decoded, Role, SideId};
use crate::record::{Fields, Read, float};
use crate::stop::{Outcome, pass_over};
use crate::store::{Change, Key, Range, StoreName};
use crate::work::Work;

pub(crate) fn member_key(group: &str, side: SideId) -> Key {
    Key::list(["g".into(), group.into(), float(side.number()).into()])
}

/// Every member of every group that sides were put into.
pub(crate) fn all_members() -> Range {
    Range::prefix(vec!["g".into()])
}

/// The group and the side in the key of a member.
pub(crate) fn read_member(key: &Key) -> Option<(Rc<str>, SideId)> {
    let Key::List(parts) = key else { return None };
    match parts.as_slice() {
        [_, Key::Text(group), Key::Number(side)] => Some((Rc::clone(group), SideId::from_number(side.to_u64()?))),
        _ => None,
    }
}

pub(crate) fn state_key(group: &str) -> Key {
    Key::list(["s".into(), group.into()])
}

/// A side is put into a group.
pub(crate) fn join(work: &mut Work<'_>, group: &str, side: SideId) {
    let number = Value::from(float(side.number()));
    work.write(Change::Put(StoreName::Members, member_key(group, side), Value::list(vec![Value::from(1u32), number])));
}

/// Others are to be put into the group of a side. If it is still alone in its own group, it becomes a member of it like them.
pub(crate) fn open(
    work: &mut Work<'_>,
    group: &Rc<str>,
    mut conversation: Box<Conversation>,
    role: Role,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(side) = conversation.side_mut(role).as_mut().filter(|side| side.group.is_none()) else { return Ok(()) };
    side.group = Some(Rc::clone(group));
    // Its turn gets a twin.
    work.count(side.service, |_| {})?;
    join(work, group, id);
    work.save(conversation);
    Ok(())
}

/// Reads what [`leave`] will want to know of a group that sides were put into.
pub(crate) fn read_ahead(work: &mut Work<'_>, group: &str) -> Outcome<()> {
    some_members(work, group).map(drop)
}

/// A side ends, or is put into another group: it leaves its group, and the last to leave takes what the group knows with it.
pub(crate) fn leave(work: &mut Work<'_>, conversation: &Conversation, role: Role) -> Outcome<()> {
    let Some(side) = conversation.side(role) else { return Ok(()) };
    let id = conversation.id_of(role);
    match &side.group {
        None if side.has_group_state => forget_state(work, &conversation.own_group(role)),
        None => {}
        Some(group) => {
            let others = some_members(work, group)?;
            work.write(Change::Delete(StoreName::Members, member_key(group, id)));
            if others.iter().all(|other| *other == id) {
                forget_state(work, group);
            }
        }
    }
    Ok(())
}

fn forget_state(work: &mut Work<'_>, group: &str) {
    work.changes.group_states.insert(group.into(), None);
    work.write(Change::Delete(StoreName::Members, state_key(group)));
}

/// The sides that were put into a group.
pub(crate) fn members(work: &mut Work<'_>, group: &str) -> Outcome<Vec<SideId>> {
    read_members(work, group, None)
}

/// Some of them; none only if there is none. One more than can have left in this unit of work tells.
fn some_members(work: &mut Work<'_>, group: &str) -> Outcome<Vec<SideId>> {
    let known = (work.changes.conversations.len() * 2 + 2).next_power_of_two();
    read_members(work, group, u32::try_from(known).ok())
}

fn read_members(work: &mut Work<'_>, group: &str, limit: Option<u32>) -> Outcome<Vec<SideId>> {
    let range = Range::prefix(vec!["g".into(), group.into()]);
    // The key says it all.
    let keys = work.get_keys(StoreName::Members, range, limit)?.iter().filter_map(Key::from_value);
    let mut sides: Vec<_> = keys.filter_map(|key| read_member(&key)).map(|(_, side)| side).collect();
    // Those that joined or left in this unit of work: the store does not know them yet.
    for (number, cached) in work.changes.conversations.iter() {
        for role in [Role::Initiator, Role::Target] {
            let side = SideId { conversation: *number, role };
            sides.retain(|other| *other != side);
            let member = cached.current.as_ref().and_then(|conversation| conversation.side(role));
            if member.is_some_and(|member| member.group.as_deref() == Some(group)) {
                sides.push(side);
            }
        }
    }
    Ok(sides)
}

/// The side that is alone in its own group and whether it waits, as the store has it: a transaction may have put another one beside it already.
pub(crate) fn stored_alone(work: &mut Work<'_>, group: &str) -> Outcome<Option<(SideId, bool)>> {
    let Some(own) = Decoded::parse(group).filter(|own| own.is_group) else { return Ok(None) };
    // One that can't be read was passed over for another member.
    let conversation = pass_over(work.stored(own.side.conversation), &mut None)?.flatten();
    let alone = conversation.filter(|conversation| is_alone(conversation, own));
    Ok(alone.map(|alone| (own.side, alone.side(own.side.role).is_some_and(Side::waits))))
}

/// Whether a side is in its own group, and none else.
fn is_alone(conversation: &Conversation, own: Decoded) -> bool {
    conversation.bits == own.bits && conversation.side(own.side.role).is_some_and(|side| side.group.is_none())
}

/// Some conversation of a group that can be read: the one whose own group it is, or one that was put into it.
pub(crate) fn any_member(work: &mut Work<'_>, group: &str) -> Outcome<Option<(Box<Conversation>, Role)>> {
    let mut problem = None;
    if let Some(own) = Decoded::parse(group).filter(|own| own.is_group) {
        let conversation = pass_over(work.conversation(own.side.conversation), &mut problem)?.flatten();
        if let Some(conversation) = conversation.filter(|conversation| is_alone(conversation, own)) {
            return Ok(Some((conversation, own.side.role)));
        }
    }
    for side in some_members(work, group)? {
        if let Some(conversation) = pass_over(work.conversation(side.conversation), &mut problem)?.flatten()
            && conversation.side(side.role).is_some()
        {
            return Ok(Some((conversation, side.role)));
        }
    }
    problem.map_or(Ok(None), |problem| Err(problem.into()))
}

/// A group that nobody is in is to be made. Refused when the id is that of a target's own group, and the target is still to come: it would find
/// others in a group that it must be alone in.
pub(crate) fn check_new(work: &mut Work<'_>, group: &str) -> Outcome<()> {
    let Some(own) = Decoded::parse(group).filter(|own| own.is_group && own.side.role == Role::Target) else {
        return Ok(());
    };
    let conversation = pass_over(work.conversation(own.side.conversation), &mut None)?.flatten();
    let is_to_come = |conversation: &Conversation| {
        conversation.bits == own.bits && conversation.target.is_none() && conversation.local != Some(true)
    };
    if !conversation.is_some_and(|conversation| is_to_come(&conversation)) {
        return Ok(());
    }
    Err(is_kept(work, group).into())
}

/// The error for a group of an id that is kept.
pub(crate) fn is_kept(work: &Work<'_>, group: &str) -> Error {
    let text = format!(
        "The id {group} is kept for the group of an endpoint that is still to come. Take a random UUID for a new group."
    );
    work.at_commit(Error::new(ErrorCode::GroupInvalid, text).with("group", group))
}

/// What a group knows.
pub(crate) fn state(work: &mut Work<'_>, group: &Rc<str>) -> Outcome<Option<Body>> {
    if let Some(state) = work.changes.group_states.get(group) {
        // A copy: what was handed out or in is not shared with the caller.
        return Ok(state.as_ref().map(copy).transpose()?);
    }
    let Some(record) = work.get(StoreName::Members, state_key(group))? else { return Ok(None) };
    Ok(Some(read_state(&record).map_err(|problem| problem.at(StoreName::Members, &state_key(group)))?))
}

/// Reads a record of what a group knows.
pub(crate) fn read_state(record: &Value) -> Read<Body> {
    let mut fields = Fields::open(record)?;
    Ok(Body { value: fields.any().into(), packing: fields.small()?, size: fields.float()? })
}

fn copy(body: &Body) -> Result<Body> {
    Ok(Body { value: body.value.value().copy()?.into(), ..body.clone() })
}

/// What a group is to know from now on.
pub(crate) fn set_state(work: &mut Work<'_>, group: &Rc<str>, state: &Body) {
    work.changes.group_states.insert(Rc::clone(group), Some(state.clone()));
    let record =
        Value::list(vec![Value::from(1u32), state.value.value(), Value::from(state.packing), Value::from(state.size)]);
    work.write(Change::Put(StoreName::Members, state_key(group), record));
}
