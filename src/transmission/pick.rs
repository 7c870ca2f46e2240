//! What is handed over next: the rows of some conversations, by priority, then by how long they have waited.
//!
//! A row that waits gains one level of priority every 30 s, so nothing waits for ever behind others. Of one conversation rows go in their order, and
//! never two batches at a time; until its far broker has acknowledged something, one row alone: the first message decides which broker it is.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::MessageEnvelope;
use crate::clock::Instant;
use crate::conversation::Conversation;
use crate::error::{Error, ErrorCode};
use crate::ids::{Role, SideId};
use crate::message::{Class, count};
use crate::reading::{missing, read_runs};
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Key, StoreName};
use crate::turn::OutgoingTurn;
use crate::work::Work;

/// A row gains one level of priority in so many milliseconds.
const LEVEL: f64 = 30_000.0;
/// At most so many bytes of bodies are handed over at once; one larger message goes alone.
const BYTES: f64 = 4_194_304.0;
/// So many services are looked at in one storage transaction, and so many conversations of each that wait for a time.
const SERVICES: usize = 16;
const WAITING: u32 = 64;

/// The far services that a route is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Services {
    One(Rc<str>),
    /// All that have no route of their own here.
    AllBut(Vec<Rc<str>>),
}

impl Services {
    pub(crate) fn has(&self, service: &str) -> bool {
        match self {
            Self::One(one) => **one == *service,
            Self::AllBut(others) => others.iter().all(|other| **other != *service),
        }
    }
}

/// What a route asks for.
#[derive(Debug)]
pub(crate) struct Pick {
    pub(crate) services: Services,
    /// The service looked at last: the others come before it.
    pub(crate) after: Option<Rc<str>>,
    /// The name of the route.
    pub(crate) via: Rc<str>,
    /// Conversations that a call of the transport is under way for, or that can't be read.
    pub(crate) except: Vec<SideId>,
    /// At most so many conversations, and messages of each.
    pub(crate) sides: usize,
    pub(crate) batch: u64,
}

/// What it gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picked {
    pub(crate) handed: Vec<Handed>,
    /// The service looked at last.
    pub(crate) after: Option<Rc<str>>,
    /// Why a conversation was passed over, and which.
    pub(crate) problem: Option<(SideId, Error)>,
}

/// Messages of one conversation that are handed over together.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    pub(crate) side: SideId,
    /// The number of the first.
    pub(crate) first: u64,
    pub(crate) envelopes: Vec<MessageEnvelope>,
}

impl Pick {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Picked> {
        // What the verbs before this one did is to be seen.
        work.after_others()?;
        let mut picked = Picked::default();
        let services = self.services(work, &mut picked)?;
        let mut turns = self.turns(work, &services)?;
        turns.truncate(self.sides);
        work.need(turns.iter().map(|turn| turn.side.conversation), [])?;
        let mut is_missing = false;
        for turn in turns {
            match self.hand_over(work, turn.side) {
                Err(Stop::Missing) => is_missing = true,
                Err(Stop::Failed(error)) if error.is_corrupt() || error.code() == ErrorCode::VersionTooNew => {
                    picked.problem = Some((turn.side, error));
                }
                handed => picked.handed.extend(handed?),
            }
        }
        if is_missing { Err(Stop::Missing) } else { Ok(picked) }
    }

    /// The services that something waits for, from the one behind that of the last time on.
    fn services(&self, work: &mut Work<'_>, picked: &mut Picked) -> Outcome<Vec<Rc<str>>> {
        if let Services::One(service) = &self.services {
            return Ok(vec![Rc::clone(service)]);
        }
        let mut services: Vec<Rc<str>> = Vec::new();
        let mut range = OutgoingTurn::by_service();
        if let Some(after) = &self.after {
            range.lower = Bound::Including(OutgoingTurn::after_service(after));
        }
        let mut is_second_round = self.after.is_none();
        // One read for each, those that have a route of their own included: there are no more of them than routes.
        while services.len() < SERVICES {
            let key = work.get_keys(StoreName::Turns, range.clone(), Some(1))?.first().and_then(Key::from_value);
            let Some((service, _)) = key.as_ref().and_then(OutgoingTurn::place) else {
                if std::mem::replace(&mut is_second_round, true) {
                    break;
                }
                range = OutgoingTurn::by_service();
                continue;
            };
            if services.contains(&service) {
                break;
            }
            range.lower = Bound::Including(OutgoingTurn::after_service(&service));
            if self.services.has(&service) {
                services.push(service);
            } else if is_second_round && self.after.as_ref() == Some(&service) {
                break;
            }
        }
        picked.after = services.last().cloned();
        Ok(services)
    }

    /// Who may hand something over, in their order.
    fn turns(&self, work: &mut Work<'_>, services: &[Rc<str>]) -> Outcome<Vec<OutgoingTurn>> {
        let limit = (self.sides + self.except.len()).to_u32().unwrap_or(u32::MAX).saturating_add(1);
        let (mut found, mut is_missing) = (Vec::new(), false);
        let mut read = |work: &mut Work<'_>, range, limit| match work.read_range(
            StoreName::Turns,
            range,
            Some(limit),
            OutgoingTurn::read,
        ) {
            Ok(turns) => {
                let read = turns.len().to_u32().unwrap_or(u32::MAX);
                found.extend(turns);
                Ok(read)
            }
            // Those that are missing are read together.
            Err(Stop::Missing) => {
                is_missing = true;
                Ok(0)
            }
            Err(stop) => Err(stop),
        };
        // Mostly that is all of them; else those of the lower levels may have waited for long enough to come first.
        let mut is_full = Vec::new();
        for service in services {
            is_full.push(read(work, OutgoingTurn::ready(service), limit)? >= limit);
            read(work, OutgoingTurn::waiting(service), WAITING.saturating_add(limit))?;
        }
        for (service, _) in services.iter().zip(is_full).filter(|(_, is_full)| *is_full) {
            for priority in 1..=10 {
                read(work, OutgoingTurn::ready_of(service, priority), limit)?;
            }
        }
        if is_missing {
            return Err(Stop::Missing);
        }
        found.sort_by_key(|turn: &OutgoingTurn| turn.side);
        found.dedup_by_key(|turn| turn.side);
        let now = work.now;
        found.retain(|turn| turn.at <= now && !self.except.contains(&turn.side));
        let rank = |turn: &OutgoingTurn| (10.0 - level(turn, now), turn.time, turn.side);
        found.sort_by(|one, other| rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal));
        Ok(found)
    }

    /// The next messages of a conversation. That they are handed over is noted before it happens: what acknowledges them is believed.
    fn hand_over(&self, work: &mut Work<'_>, id: SideId) -> Outcome<Option<Handed>> {
        let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(None) };
        let Some(side) = conversation.side(id.role) else { return Ok(None) };
        let Some(outgoing) = side.outgoing.as_ref().filter(|outgoing| outgoing.turn.is_some()) else { return Ok(None) };
        // Its time has come: what was accepted is offered again, unless there is something else, or that has failed.
        let is_over = outgoing.offer_again_at.is_some_and(|at| at <= work.now);
        let nothing_new =
            outgoing.next() >= side.next_send || (outgoing.accepted > outgoing.acknowledged && !outgoing.is_confirmed);
        let offers_again = is_over || nothing_new;
        let first = if offers_again { outgoing.acknowledged } else { outgoing.next() };
        let most = if outgoing.is_confirmed { self.batch.max(1) } else { 1 };
        let end = side.next_send.min(first + most);
        if first >= end {
            return Ok(None);
        }
        let envelopes = self
            .envelopes(work, &conversation, id, first, end)
            .map_err(|stop| stop.about(&conversation.handle(id.role)))?;
        let handed = first + count(envelopes.len());
        let Some(outgoing) = conversation.side_mut(id.role).as_mut().and_then(|side| side.outgoing.as_mut()) else {
            return Ok(None);
        };
        let before = outgoing.clone();
        if offers_again {
            (outgoing.accepted, outgoing.offer_again_at) = (outgoing.acknowledged, None);
        }
        outgoing.handed = outgoing.handed.max(handed);
        outgoing.via = Some(Rc::clone(&self.via));
        if *outgoing != before {
            work.save(conversation);
        }
        Ok(Some(Handed { side: id, first, envelopes }))
    }

    fn envelopes(
        &self,
        work: &mut Work<'_>,
        conversation: &Conversation,
        id: SideId,
        first: u64,
        end: u64,
    ) -> Outcome<Vec<MessageEnvelope>> {
        let runs = read_runs(work, (id, Class::Sent), first, end - first)?;
        let (mut envelopes, mut bytes, mut is_missing, mut next) = (Vec::new(), 0.0, false, first);
        'runs: for run in runs {
            // One that is missing in between ends it.
            let Some(from) = next.checked_sub(run.first()).and_then(|from| from.to_usize()) else { break };
            for index in from..run.count {
                if next >= end || (bytes > 0.0 && bytes + run.size_of(index) > BYTES) {
                    break 'runs;
                }
                bytes += run.size_of(index).max(1.0);
                match run.row(work, index) {
                    Ok(row) => envelopes.push(envelope(work, conversation, id.role, next, row)),
                    // Those that are missing are read together.
                    Err(Stop::Missing) => is_missing = true,
                    // What comes before it can be had.
                    Err(Stop::Failed(error)) if error.is_corrupt() && next > first => break 'runs,
                    Err(stop) => return Err(stop),
                }
                next += 1;
            }
        }
        if is_missing {
            return Err(Stop::Missing);
        }
        if envelopes.is_empty() {
            return Err(missing((id, Class::Sent), first).into());
        }
        Ok(envelopes)
    }
}

/// The priority of what has waited since a time.
fn level(turn: &OutgoingTurn, now: Instant) -> f64 {
    (f64::from(turn.priority) + ((now - turn.time).max(0.0) / LEVEL).floor()).min(10.0)
}

fn envelope(
    work: &Work<'_>,
    conversation: &Conversation,
    role: Role,
    sequence: u64,
    row: crate::message::Row,
) -> MessageEnvelope {
    let asked = conversation.to_broker.clone().filter(|broker| **broker != *"current");
    MessageEnvelope {
        message_id: row.id,
        conversation_id: Rc::clone(&conversation.id),
        from_initiator: role == Role::Initiator,
        sequence,
        from_service: Rc::clone(conversation.service(role)),
        from_broker: Rc::clone(&work.core.instance_id),
        to_service: Rc::clone(conversation.service(role.other())),
        to_broker: conversation.far_broker.clone().or(asked),
        contract: Rc::clone(&conversation.contract),
        message_type: row.message_type,
        lifetime: conversation.lifetime.map(|(at, _)| (at - work.now).max(0.0)),
        headers: row.headers,
        body: row.body,
    }
}
