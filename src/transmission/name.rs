//! The name that an endpoint has for far brokers: the id of its conversation, which both ends share, and which end it is.
//!
//! It is kept as long as the far end is elsewhere and knows the id: a target has heard it from there, an initiator has handed something over.

use crate::body::Value;
use crate::conversation::Conversation;
use crate::ids::{Role, SideId};
use crate::record::{Fields, Read, float};
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

pub(crate) fn key(id: &str, role: Role) -> Key {
    Key::list(["c".into(), id.into(), u32::from(role == Role::Target).into()])
}

/// The key of an endpoint's name, as long as it has one.
pub(crate) fn name_of(conversation: &Conversation, role: Role) -> Option<Key> {
    let side = conversation.side(role).filter(|_| conversation.local == Some(false))?;
    let is_known = role == Role::Target || side.outgoing.as_ref().is_some_and(|outgoing| outgoing.handed > 0);
    is_known.then(|| key(&conversation.id, role))
}

/// The endpoint with this name.
pub(crate) fn find(work: &mut Work<'_>, id: &str, role: Role) -> Outcome<Option<Box<Conversation>>> {
    // Whatever this unit of work has changed the store does not know yet.
    let name = key(id, role);
    let changed = work.changes.conversations.values().filter_map(|cached| cached.current.as_ref());
    if let Some(known) = changed.into_iter().find(|known| name_of(known, role).as_ref() == Some(&name)) {
        return Ok(Some(known.clone()));
    }
    let Some(record) = work.get(StoreName::Members, name)? else { return Ok(None) };
    let side = read_side(&record).map_err(|problem| problem.at(StoreName::Members, &key(id, role)))?;
    let conversation = work.conversation(side.conversation)?;
    Ok(conversation.filter(|found| *found.id == *id && name_of(found, role).is_some()))
}

impl Work<'_> {
    /// Makes the names of a conversation what its record says.
    pub(crate) fn rename(&mut self, number: u64) {
        let Some(cached) = self.changes.conversations.get(&number) else { return };
        let mut writes = Vec::new();
        for role in [Role::Initiator, Role::Target] {
            let name = |conversation: &Option<Box<Conversation>>| name_of(conversation.as_deref()?, role);
            let (old, new) = (name(&cached.stored), name(&cached.current));
            if old != new {
                writes.extend(old.map(|key| Change::Delete(StoreName::Members, key)));
                let side = float(SideId { conversation: number, role }.number());
                let record = Value::list(vec![Value::from(1u32), Value::from(side)]);
                writes.extend(new.map(|key| Change::Put(StoreName::Members, key, record)));
            }
        }
        self.changes.writes.extend(writes);
    }
}

/// The end in the record of a name.
pub(crate) fn read_side(record: &Value) -> Read<SideId> {
    Fields::open(record)?.number().map(SideId::from_number)
}
