//! What a unit of work has read, and what it still wants: questions in, answers out, in as few phases as can be.

use std::rc::Rc;

use futures_util::future::try_join_all;
use num_traits::ToPrimitive;

use crate::body::Value;
use crate::changes::{Cached, Changes};
use crate::conversation::{Conversation, Side};
use crate::error::Result;
use crate::ids::Role;
use crate::map::Map;
use crate::message::count;
use crate::queue::{Counters, Queue};
use crate::record::{float, value};
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Direction, Key, Range, Source, StoreName, Tx};

/// So many conversations are worth a ranged read.
const MANY: usize = 8;
/// So many conversations are looked through at once.
const PAGE: u32 = 256;

/// A question to the store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    Get(StoreName, Key),
    Range(Source, Range, Option<u32>, Direction),
    /// Primary keys, as values.
    Keys(StoreName, Range, Option<u32>),
    /// The numbers of a service's sides. There is no index: every conversation is looked at.
    Sides(u32),
    /// What all sides say of their rows, counted, by service.
    Recount,
}

/// Answers that came, and questions that are to be asked.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Values by their keys: a batch may ask for thousands.
    values: Map<(StoreName, Key), Option<Value>>,
    answers: Vec<(Request, Rc<[Value]>)>,
    gets: Map<(StoreName, Key), ()>,
    requests: Vec<Request>,
    conversations: Vec<u64>,
    queues: Vec<u32>,
}

impl Reads {
    /// The answer to a question, or [`Stop::Missing`] when it has not been asked yet.
    pub(crate) fn answer(&mut self, request: Request) -> Outcome<&[Value]> {
        match self.answers.iter().position(|(other, _)| *other == request).and_then(|index| self.answers.get(index)) {
            Some((_, answer)) => Ok(answer),
            None => {
                self.requests.push(request);
                Err(Stop::Missing)
            }
        }
    }

    /// The value of a key, or [`Stop::Missing`] when it has not been asked for yet.
    pub(crate) fn value(&mut self, store: StoreName, key: Key) -> Outcome<Option<Value>> {
        let place = (store, key);
        match self.values.get(&place) {
            Some(value) => Ok(value.clone()),
            None => {
                self.gets.insert(place, ());
                Err(Stop::Missing)
            }
        }
    }

    /// The value of a key is to be read.
    pub(crate) fn want(&mut self, store: StoreName, key: Key) {
        let place = (store, key);
        if !self.values.contains_key(&place) {
            self.gets.insert(place, ());
        }
    }

    /// A conversation is to be read.
    pub(crate) fn want_conversation(&mut self, number: u64) {
        if self.conversations.last() != Some(&number) && !self.conversations.contains(&number) {
            self.conversations.push(number);
        }
    }

    /// A queue is to be read.
    pub(crate) fn want_queue(&mut self, number: u32) {
        if !self.queues.contains(&number) {
            self.queues.push(number);
        }
    }

    /// Forgets the answers: they have changed.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.answers.clear();
    }

    /// Whether nothing is to be asked.
    pub(crate) fn is_complete(&self) -> bool {
        self.requests.is_empty() && self.gets.is_empty() && self.conversations.is_empty() && self.queues.is_empty()
    }

    /// Asks everything that is to be asked, at once.
    pub(crate) async fn fetch(&mut self, tx: &Tx, changes: &mut Changes) -> Result<()> {
        let mut conversations = std::mem::take(&mut self.conversations);
        if conversations.len() >= MANY {
            read_neighbours(tx, &conversations, changes).await?;
            conversations.retain(|number| !changes.has_read(*number));
        }
        let queues = std::mem::take(&mut self.queues);
        let requests = std::mem::take(&mut self.requests);
        let wanted = std::mem::take(&mut self.gets);
        let gets = conversations.iter().map(|number| Request::Get(StoreName::Conversations, Key::from(float(*number))));
        let gets = gets.chain(queues.iter().map(|number| Request::Get(StoreName::Queues, Key::from(*number))));
        let gets = gets.chain(wanted.keys().map(|(store, key)| Request::Get(*store, key.clone())));
        let all: Vec<Request> = gets.chain(requests).collect();
        let mut answers = try_join_all(all.iter().map(|request| ask(tx, request))).await?.into_iter();
        for number in &conversations {
            let record = answers.next().and_then(|answer| answer.first().cloned());
            changes.read_conversation(*number, record.as_ref());
        }
        for number in &queues {
            let record = answers.next().and_then(|answer| answer.first().cloned());
            changes
                .queues
                .insert(*number, Cached::read(record.map(|record| Queue::from_record(*number, &record)).transpose()?));
        }
        for place in wanted.keys() {
            let value = answers.next().and_then(|answer| answer.into_iter().next());
            self.values.insert(place.clone(), value);
        }
        let others = all.into_iter().skip(conversations.len() + queues.len() + wanted.len());
        self.answers.extend(others.zip(answers.map(Rc::from)));
        Ok(())
    }
}

async fn ask(tx: &Tx, request: &Request) -> Result<Vec<Value>> {
    match request {
        Request::Get(store, key) => Ok(tx.get(*store, key).await?.into_iter().collect()),
        Request::Range(source, range, limit, direction) => tx.get_range(*source, range, *limit, *direction).await,
        Request::Keys(store, range, limit) => {
            Ok(tx.get_keys(*store, range, *limit).await?.iter().map(Key::to_value).collect())
        }
        Request::Sides(service) => {
            let mut sides = Vec::new();
            walk(tx, false, &mut |conversation, role, side| {
                sides.extend((side.service == *service).then(|| value(conversation.id_of(role).number())));
            })
            .await?;
            Ok(sides)
        }
        Request::Recount => {
            let mut services: Map<u32, Counters> = Map::default();
            walk(tx, true, &mut |conversation, role, side| {
                services.update(side.service, |counters| counters.add_side(conversation, role, side));
            })
            .await?;
            Ok(services.iter().map(|(service, counters)| counters.record(*service)).collect())
        }
    }
}

/// Looks at all sides, a page of conversations at a time, so that no more than a page is in memory. `passes`: over those that can't be read.
async fn walk(tx: &Tx, passes: bool, see: &mut dyn FnMut(&Conversation, Role, &Side)) -> Result<()> {
    let mut range = Range::all();
    loop {
        let keys = tx.get_keys(StoreName::Conversations, &range, Some(PAGE)).await?;
        let records = tx.get_range(StoreName::Conversations, &range, Some(PAGE), Direction::Forward).await?;
        for (key, record) in keys.iter().zip(&records) {
            let number = if let Key::Number(number) = key { number.to_u64().unwrap_or(0) } else { 0 };
            let conversation = match Conversation::from_record(number, record) {
                Err(error) if passes && error.is_corrupt() => continue,
                conversation => conversation?,
            };
            for role in [Role::Initiator, Role::Target] {
                conversation.side(role).into_iter().for_each(|side| see(&conversation, role, side));
            }
        }
        match keys.last() {
            Some(last) => range.lower = Bound::Excluding(last.clone()),
            None => return Ok(()),
        }
    }
}

/// Conversations that were begun one after the other have numbers that follow each other: one ranged read gets them all.
async fn read_neighbours(tx: &Tx, numbers: &[u64], changes: &mut Changes) -> Result<()> {
    let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else { return Ok(()) };
    if last - first >= count(numbers.len()) * 4 {
        return Ok(());
    }
    let range = Range::between(float(*first).into(), float(*last).into());
    for record in tx.get_range(StoreName::Conversations, &range, None, Direction::Forward).await? {
        // One that does not say which it is is read again by its number, and named by it.
        let Some(number) = record.item(1).number().and_then(|number| number.to_u64()) else { continue };
        if !changes.has_read(number) {
            changes.read_conversation(number, Some(&record));
        }
    }
    Ok(())
}
