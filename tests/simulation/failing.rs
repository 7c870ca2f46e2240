//! What a handler's failure means, in the model: more attempts, waits, the error queue, and how messages come back from there.

use std::rc::Rc;

use pocket_broker::{FailureKind, Finally, Message, Next, Recoverability, Recovered};

use crate::calls::Differs;
use crate::conformance::random::due::Retry;
use crate::conformance::random::lane::{FailedAt, LaneKey};
use crate::conformance::random::model::{ERROR, End, Row};
use crate::conformance::random::seen::row_of;
use crate::lanes::shown;
use crate::model::{Model, Names};

/// A transaction's handler has failed over its first message.
#[derive(Clone, Debug)]
pub(crate) struct Recovering {
    pub(crate) message: Message,
    pub(crate) queue: usize,
    /// The handles of the first rows, one for each queue.
    pub(crate) firsts: Vec<Rc<str>>,
    pub(crate) kind: FailureKind,
    pub(crate) policy: Recoverability,
    pub(crate) error: String,
}

/// `returnToSource` and `discardFailed`.
#[derive(Clone, Debug)]
pub(crate) struct Unbury {
    pub(crate) discard: bool,
    /// This one: its id and its body.
    pub(crate) one: Option<(Rc<str>, String)>,
    pub(crate) limit: Option<u64>,
    /// Nobody is at work on any: all that can go do.
    pub(crate) alone: bool,
}

impl Recovering {
    fn is_counted(&self) -> bool {
        self.policy.finally == Finally::Rollback && !matches!(self.kind, FailureKind::Later(_))
    }

    /// What comes next, and after what wait.
    fn next(&self, retry: &mut Retry) -> (Next, Option<f64>) {
        if let FailureKind::Later(after) = self.kind {
            retry.postponed += 1;
            let doubled = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].get(retry.postponed as usize - 1).copied().unwrap_or(60.0);
            return (Next::Delayed, Some(after.unwrap_or(1_000.0 * doubled)));
        }
        retry.postponed = 0;
        retry.attempts += 1;
        let (attempts, round) = (retry.attempts, self.policy.immediate_retries + 1);
        let is_last = self.kind == FailureKind::Unrecoverable || attempts >= round * (self.policy.delayed_retries + 1);
        let wait = self.policy.time_increase * attempts.div_ceil(round) as f64;
        match self.policy.finally {
            Finally::Rollback => (Next::Rollback, None),
            Finally::ErrorQueue if is_last => (Next::ErrorQueue, None),
            Finally::RetryForever if is_last => (Next::Delayed, Some(wait.clamp(1_000.0, 60_000.0))),
            _ if attempts % round == 0 => (Next::Delayed, Some(wait)),
            _ => (Next::Immediate, None),
        }
    }
}

impl Model {
    /// `Transaction::recover`.
    pub(crate) fn recover(
        &mut self,
        names: &Names,
        failed: &Recovering,
        answer: Option<&Recovered>,
        now: f64,
    ) -> Result<(), Differs> {
        let found = self.first_row(names, &failed.message, failed.queue);
        if failed.is_counted() {
            for handle in &failed.firsts {
                let end = names.end_of(handle).map(|end| self.resolve(names, &end));
                // A lane goes on under another handle after its END.
                let is_first = *handle == failed.message.conversation_handle;
                // One that has stepped aside is in another.
                let is_same = |end: &End| failed.queue == ERROR || self.key_of(end) != Some(&LaneKey::Own);
                let next = found.as_ref().filter(|(end, _)| is_first && is_same(end));
                let end = next.map(|(end, _)| end.clone()).or(end);
                end.into_iter().for_each(|end| self.fail(&end));
            }
        }
        let says_nothing = answer.is_some_and(|answer| answer.handle.is_empty());
        let Some((end, row)) = found else {
            let is_nothing = answer.is_none() || says_nothing;
            return if is_nothing { Ok(()) } else { Err(Differs("there is nothing to try".into())) };
        };
        if says_nothing {
            // It may have gone to the error queue and come back since.
            let may_be = row.returned.is_some() || self.key_of(&end) == Some(&LaneKey::Own);
            return if may_be { Ok(()) } else { Err(Differs(format!("{row:?} is the first"))) };
        }
        let gone = |_| Differs(format!("{end:?} is gone"));
        let side = self.world.side(&end).map_err(gone)?;
        let known = side.retry.take().filter(|retry| retry.row == row);
        let fresh = Retry { row: row.clone(), attempts: 0, postponed: 0, until: None, error: String::new() };
        let mut retry = known.unwrap_or(fresh);
        retry.error.clone_from(&failed.error);
        let (mut next, mut wait) = failed.next(&mut retry);
        let is_loose = !row.is_system() && matches!(self.key_of(&end), Some(LaneKey::Loose(_)));
        // Only a message may be moved.
        let may_step_aside = is_loose && wait.is_some();
        if next == Next::ErrorQueue
            && (["EndDialog", "Error", "DialogTimer"].contains(&row.kind) || failed.queue == ERROR)
        {
            (next, wait) = (Next::Delayed, Some(60_000.0));
        } else if next == Next::ErrorQueue {
            self.bury(&end, &row, failed.queue);
        }
        retry.until = wait.map(|wait| now + wait);
        let told = (retry.attempts, next, retry.until);
        let place = if next == Next::ErrorQueue {
            end
        } else if may_step_aside {
            self.step_aside(&end, &row, retry)
        } else {
            self.world.side(&end).map_err(gone)?.retry = Some(retry);
            end
        };
        let Some(answer) = answer else { return Ok(()) };
        if let Some(lane) = self.world.sides.get_mut(&place).and_then(|side| side.lane.as_mut()) {
            let handle = lane.handle.get_or_insert_with(|| Rc::clone(&answer.handle));
            if *handle != answer.handle {
                return Err(Differs(format!("the lane is {handle}")));
            }
        } else if names.handles.get(&place).is_some_and(|handle| *handle != answer.handle) {
            return Err(Differs("it is another conversation".into()));
        }
        let is_so = told == (answer.attempts, answer.next, answer.retry_at);
        if is_so { Ok(()) } else { Err(Differs(format!("{told:?}"))) }
    }

    fn key_of(&self, end: &End) -> Option<&LaneKey> {
        Some(&self.world.sides.get(end)?.lane.as_ref()?.key)
    }

    /// The row of a message, if it is the next of its side.
    fn first_row(&mut self, names: &Names, message: &Message, queue: usize) -> Option<(End, Row)> {
        let named = names.end_of(&message.conversation_handle)?;
        let (end, wanted) = (self.resolve(names, &named), row_of(message));
        let is_it = |row: &Row| row.kind == wanted.kind && row.body == wanted.body;
        // A lane goes on under another handle after its END.
        let is_next = |side: &crate::conformance::random::model::Side| {
            side.queue == queue && side.lane.is_some() && side.rows.iter().any(|row| row.status == 1 && is_it(row))
        };
        let end = if self.world.sides.contains_key(&end) || !names.lanes.contains_key(&end.0) {
            end
        } else {
            self.world.sides.iter().find(|(_, side)| is_next(side)).map(|(end, _)| end.clone())?
        };
        let side = self.world.sides.get(&end)?;
        let unread = side.unread();
        let first = unread.iter().find(|row| !row.is_system());
        let is_dialog = side.lane.is_none();
        let is_it = |row: &&Row| is_it(row) && (!is_dialog || shown(side, row).number == wanted.number);
        unread.iter().filter(|row| row.is_system()).chain(first).find(is_it).map(|row| (end, row.clone()))
    }

    /// Moves a message to the error queue.
    fn bury(&mut self, end: &End, row: &Row, queue: usize) {
        let lane = self.world.sides.get(end).and_then(|side| side.lane.clone());
        let failed = FailedAt {
            queue,
            end: lane.is_none().then(|| end.clone()),
            lane: lane.map(|lane| (lane.key, lane.priority)),
            number: row.number,
            was_delayed: false,
        };
        self.take_row(end, row);
        let grave = self.open_lane(ERROR, &LaneKey::Own, 5);
        if let Some(lane) = self.world.sides.get_mut(&grave).and_then(|side| side.lane.as_mut()) {
            lane.failed = Some(Rc::new(failed));
        }
        self.world.arrive(&grave, vec![Row::new(row.kind, 0, &row.body)]);
    }

    /// Puts a message whose order does not matter into a lane of its own, where it waits.
    fn step_aside(&mut self, end: &End, row: &Row, retry: Retry) -> End {
        let (queue, lane) = match self.world.sides.get(end) {
            Some(side) => (side.queue, side.lane.clone()),
            None => return end.clone(),
        };
        self.take_row(end, row);
        let own = self.open_lane(queue, &LaneKey::Own, lane.map_or(5, |lane| lane.priority));
        let row = Row::new(row.kind, 0, &row.body);
        self.world.arrive(&own, vec![row.clone()]);
        if let Some(side) = self.world.sides.get_mut(&own) {
            side.retry = Some(Retry { row, ..retry });
        }
        own
    }

    fn take_row(&mut self, end: &End, row: &Row) {
        self.world.take(end, std::slice::from_ref(row)).expect("it is the first");
        self.failures.remove(end);
    }

    /// Sides that were put off are in line again.
    pub(crate) fn resume(&mut self) {
        let retries = self.world.sides.values_mut().filter_map(|side| side.retry.as_mut());
        retries.filter(|retry| retry.postponed > 0).for_each(|retry| retry.until = None);
    }

    // ── out of the error queue ──

    /// The lanes of the error queue that are meant, and whose messages can go where they are to go.
    pub(crate) fn buried(&self, which: &Unbury) -> Vec<End> {
        let is_meant = |end: &&End| {
            let side = &self.world.sides[*end];
            let Some(failed) = side.lane.as_ref().and_then(|lane| lane.failed.as_ref()) else { return false };
            let first = side.unread().into_iter().find(|row| !row.is_system());
            let is_one = |row: Row| which.one.as_ref().is_none_or(|(_, body)| *body == row.body);
            first.is_some_and(is_one) && (which.discard || self.has_source(failed))
        };
        self.world.sides.keys().filter(is_meant).cloned().collect()
    }

    fn has_source(&self, failed: &FailedAt) -> bool {
        match &failed.end {
            Some(end) => self.world.sides.get(end).is_some_and(|side| {
                let queue = self.world.queues[side.queue];
                // What was never sent is sent then.
                if failed.was_delayed {
                    ["SO", "CO"].contains(&side.state) && (queue.on || !queue.retention)
                } else {
                    side.state != "DO"
                }
            }),
            None => self.is_there(failed.queue),
        }
    }

    /// They go.
    pub(crate) fn unbury(&mut self, ends: &[End], discard: bool) {
        let stamp = self.world.stamp();
        for end in ends {
            let side = self.world.sides[end].clone();
            self.remove_lane(end);
            let failed = side.lane.as_ref().and_then(|lane| lane.failed.clone()).filter(|_| !discard);
            let first = side.unread().into_iter().find(|row| !row.is_system());
            let (Some(failed), Some(first)) = (failed, first) else { continue };
            let target = match (&failed.end, &failed.lane) {
                (Some(end), _) => end.clone(),
                (None, Some((key, priority))) => self.open_lane(failed.queue, key, *priority),
                (None, None) => continue,
            };
            if failed.was_delayed && failed.end.is_some() {
                self.world.send(&target, first.kind, &[first.body], false).expect("it may be sent");
                continue;
            }
            let next = self.world.sides[&target].next_expected;
            let row = if failed.was_delayed {
                Row { number: next, ..first }
            } else {
                Row { number: failed.number, returned: Some(stamp), ..first }
            };
            self.world.arrive(&target, vec![row]);
        }
    }
}
