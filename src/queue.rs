//! The queue record: counters that the commits keep, so that nobody ever counts rows.

use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::{Conversation, Side, State};
use crate::error::Result;
use crate::ids::Role;
use crate::map::Map;
use crate::record::{self, Fields, Read, Unreadable};
use crate::store::{Key, StoreName};

/// What a service has in its queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Rows of status 1.
    pub(crate) ready: u64,
    /// Rows of status 0.
    pub(crate) kept: u64,
    /// Rows of status 3.
    pub(crate) copies: u64,
    /// Rows of status 2.
    pub(crate) parked: u64,
    /// Rows that wait outside because the queue is off.
    pub(crate) held: u64,
    /// Rows that wait for their transmission, of endpoints whose state allows it.
    pub(crate) outgoing: u64,
    /// Endpoints by state.
    pub(crate) states: [u64; State::COUNT],
    /// Endpoints by their rollbacks in a row, for those that have any.
    pub(crate) trials: Map<u64, u64>,
    /// Rises when all of these are forgotten: what the endpoints say of an earlier one does not count.
    pub(crate) epoch: u64,
    /// Endpoints that were begun from outside and are not finished.
    pub(crate) from_outside: u64,
    /// Lanes of a message that failed.
    pub(crate) failed: u64,
}

/// A record of the store `queues`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    /// Of the definitions: whoever reads a queue sees whether its catalogue is current.
    pub(crate) stamp: u64,
    /// The next order number, and the end of the block that it is from. Blocks are claimed in rising order, so numbers rise in a queue
    /// and are unique over all of them.
    pub(crate) next_order: u64,
    pub(crate) end_of_orders: u64,
    /// Rises with every change to who has something to receive.
    pub(crate) turns: u64,
    pub(crate) services: Map<u32, Counters>,
    /// When its oldest retained row is too old, if there is a due row that says so.
    pub(crate) oldest_due: Option<Instant>,
}

impl Queue {
    pub(crate) fn new(number: u32, stamp: u64) -> Self {
        Self { number, stamp, next_order: 0, end_of_orders: 0, turns: 0, services: Map::default(), oldest_due: None }
    }

    /// Changes the counters of one service.
    pub(crate) fn count(&mut self, service: u32, change: impl FnOnce(&mut Counters)) {
        self.services.update(service, change);
    }

    /// A sum over the queue's services.
    pub(crate) fn total(&self, counter: impl Fn(&Counters) -> u64) -> u64 {
        self.services.values().map(counter).sum()
    }

    /// The highest count of rollbacks in a row of one of its conversations.
    pub(crate) fn rollbacks(&self) -> u64 {
        self.services.values().flat_map(|counters| counters.trials.keys()).copied().max().unwrap_or(0)
    }

    /// Nobody has failed yet.
    pub(crate) fn forget_trials(&mut self) {
        self.services.for_each(|counters| {
            counters.trials.clear();
            counters.epoch += 1;
        });
    }

    /// Reads the record with this key.
    pub(crate) fn from_record(number: u32, value: &Value) -> Result<Self> {
        Self::read(value).map_err(|problem| problem.at(StoreName::Queues, &Key::from(number)))
    }

    fn read(record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        Ok(Self {
            number: fields.small()?,
            stamp: fields.number()?,
            next_order: fields.number()?,
            end_of_orders: fields.number()?,
            turns: fields.number()?,
            services: fields.list()?.iter().map(read_counters).collect::<Read<_>>()?,
            oldest_due: fields.any().number(),
        })
    }

    pub(crate) fn record(&self) -> Value {
        let mut record = vec![Value::from(1u32), Value::from(self.number)];
        record.extend([self.stamp, self.next_order, self.end_of_orders, self.turns].map(record::value));
        record.push(Value::list(self.services.iter().map(|(service, counters)| counters.record(*service)).collect()));
        record.push(self.oldest_due.map_or_else(Value::null, Value::from));
        Value::list(record)
    }
}

/// Reads the counters of one service.
pub(crate) fn read_counters(record: &Value) -> Read<(u32, Counters)> {
    let mut fields = Fields::part(record)?;
    let service = fields.small()?;
    let mut counters = Counters {
        ready: fields.number()?,
        kept: fields.number()?,
        copies: fields.number()?,
        parked: fields.number()?,
        held: fields.number()?,
        outgoing: fields.number()?,
        states: [0; State::COUNT],
        trials: Map::default(),
        epoch: 0,
        from_outside: 0,
        failed: 0,
    };
    for state in &mut counters.states {
        *state = fields.optional_number()?.ok_or(Unreadable::Field("a counter is missing"))?;
    }
    let mut trials = Fields::part(&fields.any())?;
    while let Some(rollbacks) = trials.optional_number()? {
        counters.trials.insert(rollbacks, trials.number()?);
    }
    counters.epoch = fields.number()?;
    counters.from_outside = fields.optional_number()?.unwrap_or(0);
    counters.failed = fields.optional_number()?.unwrap_or(0);
    Ok((service, counters))
}

impl Counters {
    pub(crate) fn record(&self, service: u32) -> Value {
        let mut record = vec![Value::from(service)];
        record.extend([self.ready, self.kept, self.copies, self.parked, self.held, self.outgoing].map(record::value));
        record.extend(self.states.map(record::value));
        let trials = self.trials.iter().flat_map(|(rollbacks, sides)| [*rollbacks, *sides].map(record::value));
        record.push(Value::list(trials.collect()));
        record.push(record::value(self.epoch));
        if self.from_outside + self.failed > 0 {
            record.extend([self.from_outside, self.failed].map(record::value));
        }
        Value::list(record)
    }

    /// Counts what an endpoint says of its rows. How transactions have fared with them is forgotten.
    pub(crate) fn add_side(&mut self, conversation: &Conversation, role: Role, side: &Side) {
        self.ready += side.unread;
        self.kept += side.kept;
        self.copies += side.copies;
        self.parked += side.parked;
        self.held += side.held_count();
        let outgoing = side.outgoing.as_ref().filter(|outgoing| outgoing.turn.is_some());
        self.outgoing += outgoing.map_or(0, |outgoing| side.next_send.saturating_sub(outgoing.acknowledged));
        self.from_outside += u64::from(conversation.is_from_outside(role));
        self.failed += u64::from(conversation.has_failed());
        self.moved(None, Some(side.state));
        self.epoch = self.epoch.max(side.trial.epoch + 1);
    }

    /// Takes over what another service had.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ready += other.ready;
        self.kept += other.kept;
        self.copies += other.copies;
        self.parked += other.parked;
        self.held += other.held;
        self.outgoing += other.outgoing;
        self.from_outside += other.from_outside;
        self.failed += other.failed;
        self.states.iter_mut().zip(other.states).for_each(|(count, more)| *count += more);
    }

    /// An endpoint has gone from one count of rollbacks in a row to another.
    pub(crate) fn tried(&mut self, before: u64, after: u64) {
        if before > 0 {
            self.trials.update(before, |sides| *sides = sides.saturating_sub(1));
        }
        if after > 0 {
            self.trials.update(after, |sides| *sides += 1);
        }
        self.trials.retain(|_, sides| *sides > 0);
    }

    /// An endpoint has gone from one state to another; `None`: it was not there, or is gone.
    pub(crate) fn moved(&mut self, from: Option<State>, to: Option<State>) {
        if let Some(count) = from.and_then(|state| self.states.get_mut(state.index())) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = to.and_then(|state| self.states.get_mut(state.index())) {
            *count += 1;
        }
    }
}
