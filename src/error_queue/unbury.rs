//! The way back: messages of the error queue go where they failed, or are deleted.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{FailedAt, Unread};
use crate::arrival;
use crate::conversation::{Conversation, State};
use crate::ids::{Decoded, Role, text};
use crate::lane::{self, Lane, LaneKey, ROLE};
use crate::message::{self, Class, Row};
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Key, StoreName};
use crate::verbs::{end_lane, send};
use crate::work::Work;

/// So many messages are looked at in one storage transaction.
const PAGE: u32 = 256;

/// Where a page begins: in which service's lanes, and behind which of them.
pub(crate) type From = (u32, Option<Key>);

/// Which messages of the error queue.
#[derive(Clone, Debug, Default)]
pub struct FailedFilter {
    /// This one.
    pub message_id: Option<Rc<str>>,
    /// Those that failed in this queue.
    pub failed_queue: Option<Rc<str>>,
    /// Those that failed before this instant.
    pub failed_before: Option<f64>,
    /// At most so many.
    pub limit: Option<f64>,
}

impl FailedFilter {
    pub(crate) fn limit(&self) -> u64 {
        self.limit.and_then(|limit| limit.to_u64()).unwrap_or(u64::MAX)
    }

    fn has(&self, failed: &FailedAt) -> bool {
        self.failed_queue.as_ref().is_none_or(|queue| *queue == failed.queue)
            && self.failed_before.is_none_or(|before| failed.at < before)
    }
}

/// Moves messages of the error queue back to where they failed, or deletes them: a page of them.
#[derive(Debug)]
pub(crate) struct Unbury {
    pub(crate) filter: FailedFilter,
    pub(crate) discard: bool,
    /// From here on; `None`: all.
    pub(crate) from: Option<From>,
    /// At most so many.
    pub(crate) limit: u64,
}

/// What became of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unburied {
    pub(crate) count: u64,
    /// Where the next page begins; `None`: there is none.
    pub(crate) next: Option<From>,
}

impl Unbury {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Unburied> {
        work.after_others()?;
        let mut services = Vec::new();
        for queue in super::queues(work)? {
            services.extend(work.catalog.services_on(queue).map(|service| service.number));
        }
        services.sort_unstable();
        let from = self.from.as_ref();
        let mut services = services.into_iter().filter(|service| from.is_none_or(|(first, _)| service >= first));
        let (Some(service), next) = (services.next(), services.next()) else { return Ok(Unburied::default()) };
        let range = match from {
            Some((first, Some(after))) if *first == service => lane::names_of(service).behind(after.clone()),
            _ => lane::names_of(service),
        };
        let numbers = work.read_range(StoreName::Members, range.clone(), Some(PAGE), lane::named)?;
        let last = work.get_keys(StoreName::Members, range, Some(PAGE))?.last().and_then(Key::from_value);
        let candidates = self.candidates(work, &numbers)?;
        read_targets_ahead(work, &candidates)?;
        let mut unburied = Unburied::default();
        let mut problem = None;
        for candidate in candidates {
            if unburied.count == self.limit {
                return Ok(unburied);
            }
            unburied.count += u64::from(pass_over(self.one(work, candidate), &mut problem)?.unwrap_or(false));
        }
        let is_full = message::count(numbers.len()) == u64::from(PAGE);
        unburied.next = if is_full { Some((service, last)) } else { next.map(|service| (service, None)) };
        Ok(unburied)
    }

    /// Those that are meant and can be read. What they need is read together.
    fn candidates(&self, work: &mut Work<'_>, numbers: &[u64]) -> Outcome<Vec<Candidate>> {
        work.need(numbers.iter().copied(), [])?;
        let (mut candidates, mut problem, mut is_missing) = (Vec::new(), None, false);
        for number in numbers {
            match self.candidate(work, *number) {
                Err(Stop::Missing) => is_missing = true,
                candidate => candidates.extend(pass_over(candidate, &mut problem)?.flatten()),
            }
        }
        if is_missing { Err(Stop::Missing) } else { Ok(candidates) }
    }

    fn candidate(&self, work: &mut Work<'_>, number: u64) -> Outcome<Option<Candidate>> {
        let Some(conversation) = work.conversation(number)? else { return Ok(None) };
        let failed = conversation.lane.as_ref().and_then(|lane| lane.failed.clone());
        let unread = conversation.side(ROLE).filter(|side| side.cursor < side.visible_end()).map(|side| side.cursor);
        // What was never tried is there because it could not be read: it is no message any more.
        let may_go = |failed: &Rc<FailedAt>| self.discard || failed.attempts > 0;
        let failed = failed.filter(|failed| self.filter.has(failed) && may_go(failed));
        let (Some(failed), Some(first)) = (failed, unread) else {
            return Ok(None);
        };
        let unread = Unread::read(work, conversation.id_of(ROLE), (Class::Received, first))?;
        let is_meant = self.filter.message_id.as_ref().is_none_or(|wanted| **wanted == *text(unread.row.id));
        Ok(is_meant.then_some(Candidate { number, failed, row: unread.row }))
    }

    fn one(&self, work: &mut Work<'_>, Candidate { number, failed, row }: Candidate) -> Outcome<bool> {
        let Some(conversation) = work.conversation(number)? else { return Ok(false) };
        // Somebody may be at work on it.
        if !work.try_lock(&conversation.group(ROLE))? {
            return Ok(false);
        }
        if self.discard {
            end_lane(work, conversation, 0, true)?;
            return Ok(true);
        }
        let Some((mut target, role)) = source(work, &failed)? else {
            work.changes.notice.failed.push(failed.notice(text(row.id)));
            return Ok(false);
        };
        end_lane(work, conversation, 0, true)?;
        match (failed.was_delayed, &failed.lane) {
            // What was never there goes as it would have gone.
            (true, None) => send(work, target, role, vec![Row { time: work.now, ..row }])?,
            (true, Some(_)) => {
                arrival::arrive(work, &mut target, role, vec![Row { time: work.now, ..row }], false)?;
                work.save(target);
            }
            (false, _) => {
                arrival::give_back(work, &mut target, role, row, failed.sequence)?;
                work.save(target);
            }
        }
        Ok(true)
    }
}

/// A message of the error queue that may leave it.
struct Candidate {
    /// Of its conversation there.
    number: u64,
    failed: Rc<FailedAt>,
    row: Row,
}

/// Reads where they go, all at once.
fn read_targets_ahead(work: &mut Work<'_>, candidates: &[Candidate]) -> Outcome<()> {
    let handles = candidates.iter().filter(|candidate| candidate.failed.lane.is_none());
    let sides = handles.filter_map(|candidate| Decoded::parse(&candidate.failed.handle));
    work.need(sides.map(|decoded| decoded.side.conversation).collect::<Vec<_>>(), [])?;
    let lanes = candidates.iter().filter_map(|candidate| lane_of(work, &candidate.failed).map(|(lane, _)| lane));
    let lanes: Vec<Lane> = lanes.collect();
    Lane::read_ahead(work, lanes.iter())
}

/// The lane that a message failed in, and the name of its service; `None`: it was none, or its queue is gone.
fn lane_of(work: &Work<'_>, failed: &FailedAt) -> Option<(Lane, Rc<str>)> {
    let (key, priority) = failed.lane.as_ref()?;
    let service = work.catalog.service(&failed.queue).ok()?;
    let lane = Lane { service: service.number, priority: *priority, key: key.clone() };
    Some((lane, Rc::clone(&service.name)))
}

/// Where a message failed; `None`: that is gone. The definitions are the present ones: the queues' records have been read.
fn source(work: &mut Work<'_>, failed: &FailedAt) -> Outcome<Option<(Box<Conversation>, Role)>> {
    if failed.lane.is_some() {
        let Some((lane, name)) = lane_of(work, failed) else { return Ok(None) };
        let conversation = match lane.key {
            LaneKey::Own(_) => Lane::of_one(work, (lane.service, &name), lane.priority, None)?,
            _ => lane.open(work, &name)?,
        };
        return Ok(Some((conversation, ROLE)));
    }
    let is_there = |(conversation, role): &(Box<Conversation>, Role)| {
        let may_take = |state: State| if failed.was_delayed { state.may_send() } else { !state.is_over() };
        conversation.side(*role).is_some_and(|side| may_take(side.state))
    };
    let found = work.find(&failed.handle)?.filter(is_there);
    if failed.was_delayed
        && let Some(service) = found.as_ref().and_then(|(conversation, role)| Some(conversation.side(*role)?.service))
    {
        // As SEND: what is sent can't be kept while the sender's queue is off.
        let own = work.queue_of(service)?;
        return Ok(found.filter(|_| own.enqueue_enabled || !own.retention));
    }
    Ok(found)
}
