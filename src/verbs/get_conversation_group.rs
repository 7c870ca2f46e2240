//! GET CONVERSATION GROUP.

use std::rc::Rc;

use super::receivable;
use crate::line::Line;
use crate::stop::Outcome;
use crate::work::Work;

/// The next group of a queue that has something to receive and that nobody holds, this transaction included. The transaction holds it from
/// here on. Nothing is read, and nothing changes.
pub(crate) fn get_conversation_group(work: &mut Work<'_>, name: &str) -> Outcome<Option<Rc<str>>> {
    let queue = work.look_up(|catalog| catalog.queue(name))?;
    receivable(work, &queue)?;
    let mut line = Line::of(queue.number).of_others();
    while let Some(turn) = line.next(work)? {
        if work.try_lock(&turn.group)? {
            return Ok(Some(turn.group));
        }
    }
    Ok(None)
}
