//! END CONVERSATION, plain, WITH ERROR and WITH CLEANUP.

use std::rc::Rc;

use super::deliver::drop_outgoing;
use super::dropped::{HAS_ENDED, IS_GONE, drop_rows, drop_stored};
use super::end_lane::end_lane;
use super::{change_state, wrong_state};
use crate::arrival;
use crate::body::Body;
use crate::changes::Pending;
use crate::conversation::{Conversation, Outgoing, Side, State};
use crate::due::Due;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Role, SideId};
use crate::message::{self, Class, Row, system};
use crate::poison;
use crate::stop::Outcome;
use crate::store::{Change, StoreName};
use crate::work::Work;
use crate::{archive, delayed, recoverability, reuse, sweep, transmission};

/// The longest description of an error, in code points.
const MAX_DESCRIPTION: usize = 3_000;

/// What END takes.
#[derive(Clone, Debug, Default)]
pub struct EndOptions {
    /// `WITH ERROR`.
    pub error: Option<EndError>,
    /// `WITH CLEANUP`: the far side is not told.
    pub cleanup: bool,
    /// Copies every row of this side to the archive before they go. Default: as the queue says.
    pub archive: Option<bool>,
}

/// `WITH ERROR = code DESCRIPTION = description`.
#[derive(Clone, Debug)]
pub struct EndError {
    /// A whole number above 0; NaN: it is missing.
    pub code: f64,
    /// 1 to 3 000 characters.
    pub description: String,
}

/// What END threw away unread, and what it archived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndResult {
    /// Rows that nobody had received.
    pub discarded: u64,
    /// Rows that were copied to the archive.
    pub archived: u64,
}

/// END of the endpoint with a handle.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) handle: Rc<str>,
    pub(crate) options: EndOptions,
}

impl EndOptions {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(error) = &self.error else { return Ok(()) };
        if self.cleanup {
            return Err(Error::invalid_argument(
                "error",
                "can't be given together with `cleanup`: with cleanup the far side is not told anything",
            ));
        }
        let refuse = |argument: &str, number, problem: &str| {
            let error = Error::new(ErrorCode::InvalidEndError, format!("END WITH ERROR needs {problem}."));
            Err(error.numbered(number).with("argument", argument))
        };
        let length = error.description.chars().take(MAX_DESCRIPTION + 1).count();
        if error.code.is_nan() && length == 0 {
            return refuse("error", 8424, "a `code` and a `description`");
        }
        if !(error.code >= 1.0 && error.code <= f64::from(i32::MAX) && error.code.fract() == 0.0) {
            return refuse("error.code", 8419, "a `code` that is a whole number from 1 to 2 147 483 647");
        }
        if !(1..=MAX_DESCRIPTION).contains(&length) {
            return refuse("error.description", 8422, "a `description` of 1 to 3 000 characters");
        }
        Ok(())
    }
}

impl End {
    /// Every row of this side goes, read or not. The far side hears of it unless it has ended first, or WITH CLEANUP.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<EndResult> {
        let (mut conversation, role) = work.endpoint(&self.handle)?;
        work.lock(&conversation.group(role))?;
        let Some(side) = conversation.side(role).cloned() else { return Err(work.not_found(&self.handle).into()) };
        if !side.state.may_end() && !self.options.cleanup {
            let error = wrong_state(
                "END",
                8427,
                &conversation,
                role,
                side.state,
                "It goes by itself once the far side has been told; END WITH CLEANUP removes it now.",
            );
            return Err(work.at_commit(error).into());
        }
        let queue = work.queue_of(side.service)?;

        let archived = if self.options.archive.unwrap_or(queue.archive) {
            archive::copy(work, &conversation, role, &queue.name, conversation.lane.is_some() && !self.options.cleanup)?
        } else {
            0
        };
        if conversation.lane.is_some() {
            return end_lane(work, conversation, archived, self.options.cleanup);
        }
        let received = work.changes.taken.get(&conversation.id_of(role)).map_or(0, |taken| taken.rows);
        let timers = message::count(side.timers.len());
        let discarded =
            (side.unread + side.parked + side.held_count() + timers + side.delayed).saturating_sub(received);
        let is_told = side.state == State::Conversing && !self.options.cleanup;
        side.timers.iter().for_each(|timer| work.drop_due(&Due::timer(conversation.id_of(role), timer)));
        let id = conversation.id_of(role);
        if let Some(side) = conversation.side_mut(role) {
            poison::settle(work, side)?;
            recoverability::forget(work, id, side);
        }
        delayed::forget_all(work, id, &side)?;
        remove_rows(work, &mut conversation, role, &side)?;
        // The far side's turn is not where it was, or what it had sent is gone.
        work.changes.notice.transmission |= side.held_count() > 0;
        let far = role.other();
        let reason = if conversation.side(far).is_some() { HAS_ENDED } else { IS_GONE };
        // What the far side had sent and could not bring in is gone with our rows.
        if conversation.side(far).is_some_and(|far| far.state == State::DisconnectedOutbound) {
            drop_outgoing(work, &mut conversation, far, HAS_ENDED)?;
            arrival::finish_outbound(work, &mut conversation, far)?;
        }
        if self.options.error.is_some() || self.options.cleanup {
            drop_held(work, &mut conversation, far, self.why_dropped())?;
        }
        let has_last_word = side.has_last_word() && !self.options.cleanup;
        let waits_outside = if has_last_word {
            // The Error by which it has failed is still to go.
            true
        } else if conversation.transmits(role) {
            // One that is here and gone is not told.
            let is_told = is_told && (conversation.local == Some(false) || conversation.side(far).is_some());
            self.tell_later(work, &mut conversation, role, is_told)?
        } else {
            self.tell_far_side(work, &mut conversation, role, is_told, reason)?
        };
        if role == Role::Initiator {
            reuse::forget(work, &mut conversation);
        }
        if waits_outside {
            change_state(work, &mut conversation, role, State::DisconnectedOutbound)?;
        } else if self.options.cleanup {
            transmission::remove(work, &mut conversation, role)?;
        } else {
            transmission::finish(work, &mut conversation, role)?;
        }
        work.changes.ended.push(conversation.id_of(role));
        work.save(conversation);
        Ok(EndResult { discarded, archived })
    }

    /// Both ends are here. Gives whether something of ours waits outside: the far queue is off.
    fn tell_far_side(
        &self,
        work: &mut Work<'_>,
        conversation: &mut Conversation,
        role: Role,
        is_told: bool,
        reason: &str,
    ) -> Outcome<bool> {
        let far = role.other();
        if is_told {
            let is_there = conversation.side(far).is_some();
            let sequence = conversation.side(role).map_or(0, |side| side.next_send);
            match &self.options.error {
                Some(error) => {
                    let row = arrival::error_row(work, error.code, &error.description);
                    if is_there {
                        arrival::arrive_error(work, conversation, far, row, sequence)?;
                    } else {
                        drop_rows(work, conversation, role, &[row], reason);
                    }
                }
                None if is_there => arrival::arrive(work, conversation, far, vec![end_dialog(work)], true)?,
                // Both have ended: that is all an EndDialog says.
                None => {}
            }
        }
        Ok(conversation.side(far).is_some_and(|side| side.held_from_far() > 0))
    }

    /// Why what this side has sent, and has not arrived, never will.
    fn why_dropped(&self) -> &'static str {
        match (&self.options.error, self.options.cleanup) {
            (Some(_), _) => "the sender ended the conversation with an error before it had arrived",
            (None, true) => "the sender ended the conversation with cleanup before it had arrived",
            (None, false) => "the sender ended the conversation before it had arrived",
        }
    }

    /// What this side has sent waits for its transmission: the far end is in another broker, or its service is not known, or came late. Gives
    /// whether something is to be transmitted.
    fn tell_later(
        &self,
        work: &mut Work<'_>,
        conversation: &mut Conversation,
        role: Role,
        is_told: bool,
    ) -> Outcome<bool> {
        let row = match &self.options.error {
            Some(error) => arrival::error_row(work, error.code, &error.description),
            None => end_dialog(work),
        };
        let drops = !is_told || self.options.error.is_some();
        append_last_word(work, conversation, role, is_told.then_some(row), drops, self.why_dropped())?;
        Ok(is_told)
    }
}

/// The last row that an endpoint has for the far side, if it has one. `drops`: what waits before it goes nowhere. Copies of it stay.
pub(crate) fn append_last_word(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    row: Option<Row>,
    drops: bool,
    reason: &str,
) -> Outcome<()> {
    let (id, now, is_told) = (conversation.id_of(role), work.now, row.is_some());
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let (service, next) = (side.service, side.next_send);
    // The last number of one that has ended is its EndDialog's.
    let messages_end = next.saturating_sub(u64::from(side.state == State::DisconnectedOutbound));
    let outgoing = side.outgoing.get_or_insert_with(Outgoing::default);
    let first = outgoing.acknowledged;
    let waiting = if outgoing.turn.is_some() { next.saturating_sub(first) } else { 0 };
    if drops {
        outgoing.acknowledged = next;
        let copied: Vec<_> = side.copied_intervals.iter().map(|interval| (interval.from, interval.to)).collect();
        let is_copied = |number: u64| copied.iter().any(|(from, to)| (*from..*to).contains(&number));
        work.changes
            .drop_rows(|pending| pending.side == id && pending.class == Class::Sent && !is_copied(pending.first));
        // Not the number of the Error that takes their place.
        let mut from = 0;
        for (copy, end) in copied.iter().copied().chain([(next, next)]) {
            if from < copy {
                let range = message::keys_between(id, Class::Sent, from, copy - 1);
                work.write(Change::DeleteRange(StoreName::Bodies, range.clone()));
                work.write(Change::DeleteRange(StoreName::Messages, range));
            }
            from = end;
        }
    }
    outgoing.turn = is_told.then(|| outgoing.turn.unwrap_or(now));
    if let Some(row) = row {
        side.next_send += 1;
        work.append(Pending {
            side: id,
            class: Class::Sent,
            service,
            is_visible: false,
            first: next,
            sequence: next,
            rows: vec![row],
        });
    }
    work.changes.notice.transmission = true;
    work.count(service, |counters| {
        if drops {
            counters.outgoing = counters.outgoing.saturating_sub(waiting);
        }
        counters.outgoing += u64::from(is_told);
    })?;
    if drops {
        drop_stored(work, conversation, role, (first, messages_end.saturating_sub(first)), reason);
    }
    Ok(())
}

impl Side {
    /// What it still has to say is an Error of the broker's own.
    pub(crate) fn has_last_word(&self) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.is_last_word && outgoing.acknowledged < self.next_send)
    }
}

fn end_dialog(work: &Work<'_>) -> Row {
    arrival::system_row(work, system::END_DIALOG, Body::none())
}

/// Takes this side's rows out of its queue: unread, retained received, retained sent. What is to be transmitted stays.
fn remove_rows(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, side: &Side) -> Outcome<()> {
    let id = conversation.id_of(role);
    let held = side.held_count();
    work.count(side.service, |counters| {
        counters.ready = counters.ready.saturating_sub(side.unread);
        counters.kept = counters.kept.saturating_sub(side.kept);
        counters.copies = counters.copies.saturating_sub(side.copies);
        counters.parked = counters.parked.saturating_sub(side.parked);
        counters.held = counters.held.saturating_sub(held);
    })?;
    let transmits = conversation.transmits(role);
    work.changes.drop_rows(|pending| pending.side == id && !(transmits && pending.class == Class::Sent));
    remove_runs(work, id, side, transmits);
    if let Some(left) = conversation.side_mut(role) {
        // What stays of it has no rows: a fresh side in the same group, with the numbers that must not be given again.
        let mut bare = Side::new(side.service, side.state, side.priority, side.group.clone());
        bare.has_group_state = side.has_group_state;
        (bare.next_send, bare.next_expected, bare.cursor, bare.next_system) =
            (side.next_send, side.next_expected, side.next_expected, side.next_system);
        (bare.outgoing, bare.runs, bare.has_bodies) = (side.outgoing.clone(), side.runs, side.has_bodies);
        *left = bare;
    }
    Ok(())
}

fn remove_runs(work: &mut Work<'_>, id: SideId, side: &Side, transmits: bool) {
    if transmits {
        let others = [Class::System, Class::Received].map(|class| (class, side.next_expected.max(side.next_system)));
        let parked = side.ahead.parked.last().map(|last| (Class::Parked, last.to));
        // Of what has arrived there may be copies.
        let arrived = side.outgoing.as_ref().and_then(|outgoing| outgoing.acknowledged.checked_sub(1));
        for (class, last) in others.into_iter().chain(parked).chain(arrived.map(|last| (Class::Sent, last))) {
            let range = message::keys_between(id, class, 0, last);
            work.write(Change::DeleteRange(StoreName::Bodies, range.clone()));
            work.write(Change::DeleteRange(StoreName::Messages, range));
        }
    } else {
        sweep::remove(work, id, side);
    }
}

/// What this side has sent and waits outside the far queue is not to come in any more.
fn drop_held(work: &mut Work<'_>, conversation: &mut Conversation, far: Role, reason: &str) -> Outcome<()> {
    let id = conversation.id_of(far);
    let Some(side) = conversation.side_mut(far).as_mut() else { return Ok(()) };
    let dropped = side.held_from_far();
    if dropped == 0 {
        return Ok(());
    }
    work.changes.notice.transmission = true;
    let mut messages = (0, 0);
    if let Some(held) = side.held.take() {
        // An EndDialog is no loss: who ends with an error says more, and who cleans up wants nothing said.
        messages = (held.from, side.next_expected.saturating_sub(held.from + u64::from(held.ends)));
        let range = message::keys_between(id, Class::Received, held.from, side.next_expected);
        side.next_expected = held.from;
        work.write(Change::DeleteRange(StoreName::Bodies, range.clone()));
        work.write(Change::DeleteRange(StoreName::Messages, range));
        work.changes
            .drop_rows(|pending| pending.side == id && pending.class == Class::Received && pending.first >= held.from);
    }
    for row in side.system.iter().filter(|row| row.held && !row.own) {
        work.write(Change::Delete(StoreName::Messages, message::key(id, Class::System, row.number)));
        work.changes
            .drop_rows(|pending| pending.side == id && pending.class == Class::System && pending.first == row.number);
    }
    side.system.retain(|row| !row.held || row.own);
    let service = side.service;
    work.count(service, |counters| counters.held = counters.held.saturating_sub(dropped))?;
    drop_stored(work, conversation, far.other(), messages, reason);
    Ok(())
}
