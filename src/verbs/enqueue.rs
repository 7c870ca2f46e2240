//! `enqueue`: the short way in, without service, contract and dialog.

use std::rc::Rc;

use uuid::Uuid;

use super::OutgoingMessage;
use crate::arrival;
use crate::core::Core;
use crate::definitions::{Catalog, DEFAULT};
use crate::delayed::{Delay, To, schedule};
use crate::error::{Error, ErrorCode, Result};
use crate::lane::{LOOSE, Lane, LaneKey, ROLE};
use crate::message::Row;
use crate::reads::Reads;
use crate::seen::SeenId;
use crate::stop::Outcome;
use crate::store::StoreName;
use crate::work::Work;

/// How long an id is kept, in milliseconds, if nothing else is said.
pub const DEDUPE_WINDOW: f64 = 300_000.0;
/// The longest key and id, in code points.
const MAX_TEXT: usize = 1_024;
/// The longest window: a hundred years.
const MAX_WINDOW: f64 = 3_155_760_000_000.0;

/// What `enqueue` takes besides messages.
#[derive(Clone, Debug)]
pub struct EnqueueOptions {
    /// Messages of one key come in their order, one reader at a time. Default: the whole queue is one lane.
    pub key: Option<Rc<str>>,
    /// False: the order does not matter. Not together with `key`.
    pub ordered: bool,
    /// 1 to 10, higher first; each is a lane of its own. Default 5.
    pub priority: f64,
    /// A second message with this id is not taken. For one message only.
    pub dedupe_id: Option<Rc<str>>,
    /// For how many milliseconds from the commit.
    pub dedupe_window: f64,
    /// When they are to come into the queue; `None`: now.
    pub delay: Option<Delay>,
}

impl Default for EnqueueOptions {
    fn default() -> Self {
        Self { key: None, ordered: true, priority: 5.0, dedupe_id: None, dedupe_window: DEDUPE_WINDOW, delay: None }
    }
}

/// What became of messages.
pub(crate) enum Enqueued {
    /// They are in the queue.
    Now,
    /// They wait, under these ids.
    Later(Vec<Uuid>),
    /// This one was there already with the same `dedupeId`: nothing was taken.
    Before(Uuid),
}

/// Messages for the lanes of a queue: all or none.
#[derive(Debug)]
pub(crate) struct Enqueue {
    pub(crate) queue: Rc<str>,
    pub(crate) messages: Vec<OutgoingMessage>,
    pub(crate) options: EnqueueOptions,
    /// The definitions that the bodies were validated by, if they were.
    pub(crate) validated_by: Option<Rc<Catalog>>,
}

impl Enqueue {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        let options = &self.options;
        if !options.ordered && options.key.is_some() {
            let problem = "can't be given together with `ordered: false`: a key is there to keep an order";
            return Err(Error::invalid_argument("key", problem));
        }
        if !((1.0..=10.0).contains(&options.priority) && options.priority.fract() == 0.0) {
            return Err(Error::invalid_argument("priority", "is not a whole number from 1 to 10"));
        }
        for (argument, text) in [("key", &options.key), ("dedupeId", &options.dedupe_id)] {
            if text.as_deref().is_some_and(|text| text.chars().take(MAX_TEXT + 1).count() > MAX_TEXT) {
                return Err(Error::invalid_argument(argument, "is longer than 1 024 characters"));
            }
        }
        if options.dedupe_id.is_some() && self.messages.len() > 1 {
            return Err(Error::invalid_argument("dedupeId", "is for one message: give each its own with enqueue"));
        }
        if !(0.0..=MAX_WINDOW).contains(&options.dedupe_window) {
            let problem = "is not a number of milliseconds from 0 to 3 155 760 000 000, a hundred years";
            return Err(Error::invalid_argument("dedupeWindow", problem));
        }
        options.delay.map_or(Ok(()), |delay| delay.check(0.0))
    }

    /// Puts the messages behind those that their lanes have.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Enqueued> {
        let queue = work.look_up(|catalog| catalog.queue(&self.queue))?;
        work.queue(queue.number)?;
        let validated_by = self.validated_by.as_deref().map(|catalog| catalog.queue(&self.queue)).transpose()?;
        if validated_by.is_some_and(|then| then.number != queue.number || then.body != queue.body) {
            let text = format!(
                "What the queue \"{}\" takes was altered while this was on its way, so nobody has looked at it as that. Enqueue it again.",
                self.queue
            );
            return Err(work.at_commit(Error::new(ErrorCode::Conflict, text).with("queue", &*self.queue)).into());
        }
        if let Some(delay) = self.options.delay {
            return self.later(work, queue.number, delay);
        }
        // Nobody sees it before the commit, the transaction itself included.
        if work.is_view() {
            return Ok(Enqueued::Now);
        }
        let service = work.look_up(|catalog| catalog.service(&self.queue))?;
        let shares = self.shares(service.number);
        // A lane that can't be read is refused before there is an effect.
        Lane::read_ahead(work, shares.iter().map(|(lane, _)| lane))?;
        if let (Some(id), Some(message)) = (self.seen_id(queue.number), self.messages.first())
            && let Some(first) = id.take(work, message.id, self.options.dedupe_window)?
        {
            return Ok(Enqueued::Before(first));
        }
        for (lane, messages) in shares {
            let mut conversation = lane.open(work, &service.name)?;
            let rows = messages.into_iter().map(|message| row(work, message)).collect();
            arrival::arrive(work, &mut conversation, ROLE, rows, false)?;
            work.save(conversation);
        }
        Ok(Enqueued::Now)
    }

    /// They wait in the delayed store. What has an id that is not to be taken twice is noted at once.
    fn later(&self, work: &mut Work<'_>, queue: u32, delay: Delay) -> Outcome<Enqueued> {
        delay.check(work.now)?;
        let seen = self.seen_id(queue).filter(|_| !work.is_view());
        if let Some(first) = seen.as_ref().map(|id| id.find(work)).transpose()?.flatten() {
            return Ok(Enqueued::Before(first));
        }
        let (priority, message_type) = (self.priority(), Rc::from(DEFAULT));
        let lane = |message: &OutgoingMessage| {
            let key = if self.options.ordered { self.key() } else { LaneKey::Number(place_of(message) % LOOSE) };
            To::Lane { queue: Rc::clone(&self.queue), key, priority }
        };
        // Of those without an order, what goes into one lane is stored together.
        let all = || self.messages.iter().enumerate();
        let of_place = |place| all().filter(move |(_, message)| place_of(message) % LOOSE == place);
        let messages: Vec<(usize, &OutgoingMessage)> =
            if self.options.ordered { all().collect() } else { (0..LOOSE).flat_map(of_place).collect() };
        let lanes = messages.iter().map(|(_, message)| (lane(message), Rc::clone(&message_type), *message)).collect();
        let stored = schedule(work, delay, seen.as_ref().map(|seen| &seen.id), lanes)?;
        let mut ids = stored.clone();
        for ((index, _), id) in messages.into_iter().zip(stored) {
            ids.get_mut(index).into_iter().for_each(|place| *place = id);
        }
        if let (Some(id), Some(first)) = (seen, ids.first()) {
            id.take(work, *first, self.options.dedupe_window)?;
        }
        Ok(Enqueued::Later(ids))
    }

    /// Asks for what it will probably need.
    pub(super) fn guess(&self, core: &Core, reads: &mut Reads) {
        let catalog = core.catalog();
        let (Ok(queue), Ok(service)) = (catalog.queue(&self.queue), catalog.service(&self.queue)) else { return };
        reads.want_queue(queue.number);
        self.seen_id(queue.number).into_iter().for_each(|id| reads.want(StoreName::Seen, id.key()));
        for (lane, _) in self.shares(service.number) {
            match core.lanes.get(&lane) {
                Some(number) => reads.want_conversation(number),
                None => reads.want(StoreName::Members, lane.name()),
            }
        }
    }

    fn seen_id(&self, queue: u32) -> Option<SeenId> {
        let id = self.options.dedupe_id.as_ref().filter(|_| self.options.dedupe_window > 0.0)?;
        Some(SeenId { queue, id: Rc::clone(id) })
    }

    fn priority(&self) -> u32 {
        num_traits::ToPrimitive::to_u32(&self.options.priority).unwrap_or(5)
    }

    /// Of messages whose order matters.
    fn key(&self) -> LaneKey {
        self.options.key.as_ref().map_or(LaneKey::Number(LOOSE), |key| LaneKey::Text(Rc::clone(key)))
    }

    /// Which messages go into which lane. The broker's own choice goes round, from a place that the first message's id says.
    fn shares(&self, service: u32) -> Vec<(Lane, Vec<&OutgoingMessage>)> {
        let priority = self.priority();
        let lane = |key| Lane { service, priority, key };
        let Some(first) = self.messages.first() else { return Vec::new() };
        if self.options.ordered {
            return vec![(lane(self.key()), self.messages.iter().collect())];
        }
        let start = place_of(first);
        let mut shares: Vec<(Lane, Vec<&OutgoingMessage>)> = Vec::new();
        let mut places = (start..start + LOOSE).map(|place| place % LOOSE).cycle();
        for message in &self.messages {
            let key = LaneKey::Number(places.next().unwrap_or_default());
            match shares.iter_mut().find(|(lane, _)| lane.key == key) {
                Some((_, messages)) => messages.push(message),
                None => shares.push((lane(key), vec![message])),
            }
        }
        shares
    }
}

/// Where the broker's own choice of lanes begins.
fn place_of(message: &OutgoingMessage) -> u32 {
    message.id.as_bytes().last().copied().map_or(0, u32::from)
}

fn row(work: &Work<'_>, message: &OutgoingMessage) -> Row {
    Row {
        message_type: DEFAULT.into(),
        id: message.id,
        time: work.now,
        headers: message.headers.clone(),
        body: message.body.clone(),
    }
}
