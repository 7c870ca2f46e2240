//! SEND and `enqueue` with a delay: the message is stored until then. And what END makes of it.

use std::rc::Rc;

use uuid::Uuid;

use super::{Delay, Delayed, Hop, Place, To, custom, marks_of};
use crate::body::Value;
use crate::conversation::{Conversation, Side};
use crate::error::{Error, ErrorCode};
use crate::ids::{SideId, text};
use crate::message::count;
use crate::record::{self, Fields, Read};
use crate::stop::{Outcome, Stop};
use crate::store::{Change, Key, StoreName};
use crate::verbs::OutgoingMessage;
use crate::work::{Number, Purpose, Work};

/// Stores messages, all due at one time, and gives their ids. Those that are sent on a conversation are counted by its side, which is the caller's
/// to do. `seen`: the id that a single one was given, not to be taken twice.
pub(crate) fn schedule(
    work: &mut Work<'_>,
    delay: Delay,
    seen: Option<&Rc<str>>,
    messages: Vec<(To, Rc<str>, &OutgoingMessage)>,
) -> Outcome<Vec<Uuid>> {
    let added = count(messages.len());
    let first = work.change_numbers(|numbers| {
        numbers.delayed += added;
        numbers.claim(Number::Stamp, added)
    })?;
    let at = delay.due(work.now);
    let mut ids = Vec::with_capacity(messages.len());
    for (stamp, (to, message_type, message)) in (first..).zip(messages) {
        let place = Place { at, stamp };
        // In a transaction the application has the id already.
        let is_built_in = work.core.host.delayed_store.is_none();
        let may_choose = is_built_in && work.purpose == Purpose::Commit;
        let chosen = Some(place).filter(|_| may_choose).and_then(|place| place.id(message.id));
        let delayed = Delayed {
            place,
            to,
            id: chosen.unwrap_or(message.id),
            is_named: chosen.is_none(),
            message_type,
            headers: message.headers.clone(),
            body: message.body.clone(),
            time: at,
            waits: 0,
            body_stamp: stamp,
            seen: seen.cloned(),
            hop: (!is_built_in).then(Hop::default),
        };
        ids.push(delayed.id);
        if delayed.is_large() {
            work.write(Change::Put(StoreName::Bodies, delayed.body_key(), message.body.value.value()));
        }
        delayed.store(work);
    }
    Ok(ids)
}

impl Delayed {
    /// Writes its records, but for a large body.
    pub(super) fn store(self, work: &mut Work<'_>) {
        if let Some(hop) = self.hop {
            custom::put(work, &self, hop);
            work.changes.note_delayed(self.id, Some(Rc::new(self)));
            return;
        }
        if let Some(side) = self.side() {
            let name = if self.is_named { Value::from(&*text(self.id)) } else { Value::null() };
            let large = if self.is_large() { record::value(self.body_stamp) } else { Value::null() };
            let mark = Value::list(vec![Value::from(1u32), name, large]);
            work.write(Change::Put(StoreName::Members, Self::mark(side, self.place), mark));
        }
        if self.is_named {
            let place =
                Value::list(vec![Value::from(1u32), Value::from(self.place.at), record::value(self.place.stamp)]);
            work.write(Change::Put(StoreName::Members, Self::name(self.id), place));
        }
        work.write(Change::Put(StoreName::Delayed, self.place.key(), self.record()));
        work.changes.notice.delayed = true;
        work.changes.notice.due_by(self.place.at);
        work.changes.note_delayed(self.id, Some(Rc::new(self)));
    }
}

/// Refuses what would come after the end of the conversation.
pub(crate) fn check_lifetime(
    work: &Work<'_>,
    conversation: &Conversation,
    handle: &str,
    at: f64,
    what: &str,
) -> Result<(), Error> {
    let Some((end, _)) = conversation.lifetime.filter(|(end, _)| at > *end) else { return Ok(()) };
    let error = Error::new(
        ErrorCode::TimerBeyondLifetime,
        format!(
            "{what} after the lifetime of the conversation {handle} is over. Give a shorter time, or begin the dialog with a longer `lifetime`."
        ),
    );
    Err(work.at_commit(error.with("handle", handle).with("lifetime", end)))
}

/// What a side has under way goes with it.
pub(crate) fn forget_all(work: &mut Work<'_>, id: SideId, side: &Side) -> Outcome<()> {
    if side.delayed == 0 {
        return Ok(());
    }
    let (elsewhere, in_hop) = custom::forget_all(work, id)?;
    let built_in = side.delayed.saturating_sub(elsewhere);
    work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(built_in + in_hop))?;
    work.changes.notice.delayed = true;
    // Those that this unit of work has stored, the store does not know yet.
    let own: Vec<_> = work.changes.delayed.values().flatten().filter(|own| own.side() == Some(id)).cloned().collect();
    for delayed in own {
        work.changes.note_delayed(delayed.id, None);
        delayed.remove(work, true);
    }
    if work.is_view() {
        return Ok(());
    }
    let keys = work.get_keys(StoreName::Members, marks_of(id), None).map(<[Value]>::to_vec);
    let marks = work.read_range(StoreName::Members, marks_of(id), None, read_mark);
    let (keys, marks) = match (keys, marks) {
        (Ok(keys), Ok(marks)) => (keys, marks),
        (Err(stop), _) | (_, Err(stop)) => return Err(stop),
    };
    for (key, (name, large)) in keys.iter().zip(marks) {
        let place = key.slice(2, 4);
        let place = Place::read(&place).map_err(|problem| {
            Stop::from(problem.at(StoreName::Members, &Key::from_value(key).unwrap_or(Key::Number(-1.0))))
        })?;
        work.write(Change::Delete(StoreName::Delayed, place.key()));
        let name = name.map(|name| Key::list(["i".into(), Key::Text(name)]));
        name.into_iter().for_each(|name| work.write(Change::Delete(StoreName::Members, name)));
        let body = large.map(|stamp| Place { stamp, ..place }.body());
        body.into_iter().for_each(|body| work.write(Change::Delete(StoreName::Bodies, body)));
    }
    work.write(Change::DeleteRange(StoreName::Members, marks_of(id)));
    Ok(())
}

/// The name of the message, if it has a record of that, and the stamp of its large body, if it has one.
fn read_mark(record: &Value) -> Read<(Option<Rc<str>>, Option<u64>)> {
    let mut fields = Fields::open(record)?;
    Ok((fields.optional_text()?, fields.optional_number()?))
}
