//! The second half of RECEIVE: the rows that a reader got are taken out, or become retained ones.

use std::rc::Rc;

use crate::conversation::{Interval, Side, System};
use crate::error::{Error, ErrorCode};
use crate::ids::SideId;
use crate::message::{self, Class};
use crate::poison;
use crate::recoverability;
use crate::stop::Outcome;
use crate::store::{Change, StoreName};
use crate::sweep;
use crate::work::Work;

/// What was received from one side.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub(crate) side: SideId,
    /// The group that was held meanwhile.
    pub(crate) group: Rc<str>,
    /// What the side was when the rows were read.
    pub(crate) fence: u64,
    /// The rows in sequence: the cursor as it was, and as it will be.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) system: Vec<(System, u64)>,
    /// The runs that the rows were in.
    pub(crate) runs: Vec<TakenRun>,
    /// What comes after them in sequence has no lower order; `None`: nothing does.
    pub(crate) left: Option<u64>,
}

/// A run that rows were taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenRun {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) first_order: u64,
    pub(crate) last_order: u64,
}

impl Take {
    /// How many rows.
    pub(crate) fn count(&self) -> u64 {
        self.to.saturating_sub(self.from) + message::count(self.system.len())
    }

    /// The lowest order that what follows the rows in sequence can have.
    pub(crate) fn next_order(&self) -> u64 {
        self.runs.last().map_or(0, |run| match self.to {
            to if to <= run.last => run.first_order + to.saturating_sub(run.first),
            _ => run.last_order + 1,
        })
    }

    fn has(&self, (class, number): (Class, u64)) -> bool {
        match class {
            Class::System => self.system.iter().any(|(_, taken)| *taken == number),
            _ => (self.from..self.to).contains(&number),
        }
    }

    /// The first of them.
    pub(crate) fn first(&self) -> (Class, u64) {
        self.system.first().map_or((Class::Received, self.from), |(_, number)| (Class::System, *number))
    }

    /// Moves the cursor. Whoever comes late, because the group was taken from him or another reader was faster, is refused: nothing is
    /// received twice.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<()> {
        let conversation = work.conversation(self.side.conversation)?;
        let Some(mut conversation) = conversation.filter(|conversation| conversation.side(self.side.role).is_some())
        else {
            let error = Error::new(
                ErrorCode::ConversationNotFound,
                "A conversation that messages were received from was ended before the transaction committed. It was rolled back.",
            );
            return Err(work.at_commit(error).into());
        };
        let (handle, group) = (conversation.handle(self.side.role), conversation.group(self.side.role));
        let Some(side) = conversation.side_mut(self.side.role).as_mut() else { return Ok(()) };
        let is_unchanged = group == self.group
            && side.cursor == self.from
            && side.fence == self.fence
            && self
                .system
                .iter()
                .all(|(kind, number)| side.system.iter().any(|row| (row.kind, row.number) == (*kind, *number)));
        if !is_unchanged {
            let error = Error::new(
                ErrorCode::TransactionClosed,
                format!(
                    "Another reader has received from the conversation {handle} meanwhile, or moved it to another group. The transaction was rolled back; run it again and it gets what is there now."
                ),
            );
            return Err(work.at_commit(error.with("handle", &*handle)).into());
        }
        let service = side.service;
        let taken = self.count();
        poison::settle(work, side)?;
        work.changes.counts.receives += taken;
        if side.retry.as_ref().is_some_and(|retry| self.has(retry.row)) {
            recoverability::forget(work, self.side, side);
        }
        side.cursor = self.to;
        side.system.retain(|row| !self.system.contains(&(row.kind, row.number)));
        side.unread = side.unread.saturating_sub(taken);
        let retains = work.queue_of(service)?.retention;
        if retains {
            side.kept += taken;
            Side::add_interval(&mut side.kept_intervals, self.from, self.to);
        } else {
            self.delete(work, side);
        }
        work.count(service, |counters| {
            counters.ready = counters.ready.saturating_sub(taken);
            counters.kept += if retains { taken } else { 0 };
        })?;
        work.save(conversation);
        Ok(())
    }

    /// Deletes the runs that nobody needs any more: all their rows are received, and none is retained.
    fn delete(&self, work: &mut Work<'_>, side: &mut Side) {
        for (_, number) in &self.system {
            work.write(Change::Delete(StoreName::Messages, message::key(self.side, Class::System, *number)));
            if side.has_bodies {
                work.write(Change::Delete(StoreName::Bodies, message::key(self.side, Class::System, *number)));
            }
            side.runs = side.runs.saturating_sub(1);
        }
        let is_kept = |run: &TakenRun| {
            side.kept_intervals.iter().any(|Interval { from, to }| *from <= run.last && run.first < *to)
        };
        let gone: Vec<&TakenRun> = self.runs.iter().filter(|run| run.last < self.to && !is_kept(run)).collect();
        let (Some(first), Some(last)) = (gone.first(), gone.last()) else { return };
        // They follow each other, unless a retained one is between them.
        let ranges = if gone.len() == self.runs.len() || side.kept_intervals.is_empty() {
            vec![(first.first, last.last)]
        } else {
            gone.iter().map(|run| (run.first, run.last)).collect()
        };
        for (from, to) in ranges {
            work.write(Change::DeleteRange(
                StoreName::Messages,
                message::keys_between(self.side, Class::Received, from, to),
            ));
            if side.has_bodies {
                work.write(Change::DeleteRange(
                    StoreName::Bodies,
                    message::keys_between(self.side, Class::Received, from, to),
                ));
            }
        }
        side.runs = side.runs.saturating_sub(message::count(gone.len()));
        sweep::note(work, side.service, first.first_order, last.last_order, message::count(gone.len()));
    }
}
