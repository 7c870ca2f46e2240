//! SEND and `enqueue` with a delay: the message is stored until then. And what END makes of it.

use std::rc::Rc;

use uuid::Uuid;

use super::run::{Mark, RunKey};
use super::{Delay, Delayed, Hop, Place, To, custom, marks_of};
use crate::body::Value;
use crate::conversation::{Conversation, Side};
use crate::error::{Error, ErrorCode};
use crate::ids::SideId;
use crate::message::count;
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
            seen: seen.cloned(),
            hop: (!is_built_in).then(Hop::default),
        };
        ids.push(delayed.id);
        work.shift(delayed.id, None, Some(delayed));
    }
    Ok(ids)
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
    // Of what this unit of work has changed the store does not know yet.
    if side.delayed == 0 && work.changes.delayed.is_empty() {
        return Ok(());
    }
    let (elsewhere, in_hop) = if side.delayed > 0 { custom::forget_all(work, id)? } else { (0, 0) };
    let built_in = side.delayed.saturating_sub(elsewhere);
    work.change_numbers(|numbers| numbers.delayed = numbers.delayed.saturating_sub(built_in + in_hop))?;
    let own = work.changes.delayed.values().filter_map(|shift| shift.to.clone());
    let own: Vec<_> = own.filter(|own| own.side() == Some(id)).collect();
    for delayed in own {
        if delayed.hop.is_some() {
            custom::withdraw(work, &delayed, true);
        }
        work.shift(delayed.id, None, None);
    }
    if work.is_view() {
        return Ok(());
    }
    let keys = work.get_keys(StoreName::Members, marks_of(id), None).map(<[Value]>::to_vec);
    let marks = work.read_range(StoreName::Members, marks_of(id), None, Mark::read);
    let (keys, marks) = match (keys, marks) {
        (Ok(keys), Ok(marks)) => (keys, marks),
        (Err(stop), _) | (_, Err(stop)) => return Err(stop),
    };
    for (key, mark) in keys.iter().zip(marks) {
        let run = RunKey::of_mark(key).map_err(|problem| {
            Stop::from(problem.at(StoreName::Members, &Key::from_value(key).unwrap_or(Key::Number(-1.0))))
        })?;
        work.write(Change::Delete(StoreName::Delayed, run.key()));
        mark.clear(work);
    }
    work.write(Change::DeleteRange(StoreName::Members, marks_of(id)));
    work.changes.notice.delayed |= side.delayed > 0;
    Ok(())
}
