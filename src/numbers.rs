//! Numbers that are given once.

use crate::body::Value;
use crate::clock::Instant;
use crate::core::CONVERSATIONS;
use crate::error::Result;
use crate::stop::Outcome;
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

impl Work<'_> {
    /// The number of a new conversation.
    pub(crate) fn conversation_number(&mut self) -> Outcome<u64> {
        let (next, end) = self.changes.block;
        if next < end {
            self.changes.block.0 += 1;
            return Ok(next);
        }
        if let Some(number) = self.core.next_number() {
            return Ok(number);
        }
        let first = self.claim(Number::Conversation, CONVERSATIONS)?;
        self.changes.block = (first + 1, first + CONVERSATIONS);
        Ok(first)
    }

    /// The first of `count` numbers of a kind that have never been given before.
    pub(crate) fn claim(&mut self, number: Number, count: u64) -> Outcome<u64> {
        self.change_numbers(|numbers| numbers.claim(number, count))
    }

    /// Changes the record of the numbers. In a view nothing is written: any number does.
    pub(crate) fn change_numbers<T: Default>(&mut self, change: impl FnOnce(&mut Numbers) -> T) -> Outcome<T> {
        if self.is_view() {
            return Ok(T::default());
        }
        self.numbers()?;
        self.changes.effects += 1;
        let numbers = self.changes.numbers.get_or_insert_default();
        let changed = change(numbers);
        let record = numbers.record();
        self.changes.writes.push(Change::Put(StoreName::Meta, Numbers::key(), record));
        Ok(changed)
    }

    /// The numbers as they are.
    pub(crate) fn numbers(&mut self) -> Outcome<Numbers> {
        if let Some(numbers) = self.changes.numbers {
            return Ok(numbers);
        }
        let record = self.get(StoreName::Meta, Numbers::key())?;
        let numbers = Numbers::read(record.as_ref())?;
        self.changes.numbers = Some(numbers);
        Ok(numbers)
    }
}

/// Kinds of numbers that are given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Conversation,
    Order,
    Queue,
    Service,
    /// Of the definitions, and of due and archived rows.
    Stamp,
}

/// The next number of each kind: a record of the store `meta`. Whoever stores a delayed message claims a number for it, so the count of those is
/// beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    next: [u64; 5],
    /// How many messages are delayed.
    pub(crate) delayed: u64,
    /// When the last wait began, of those that are to be over when the clock is set back ([`crate::waits`]).
    pub(crate) waited: Instant,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: [1; 5], delayed: 0, waited: f64::MIN }
    }
}

impl Numbers {
    /// Where the record is.
    pub(crate) fn key() -> Key {
        Key::from("numbers")
    }

    /// The next of each kind, in their order, and how many messages are delayed. When a wait began nobody knows: whoever polls next looks.
    pub(crate) fn beginning_with(next: [u64; 5], delayed: u64) -> Self {
        Self { next, delayed, waited: f64::MAX }
    }

    pub(crate) fn read(record: Option<&Value>) -> Result<Self> {
        let mut numbers = Self::default();
        let mut read = || {
            // Every database is born with it.
            let record = record.ok_or(crate::record::Unreadable::Field("it is missing"))?;
            let mut fields = crate::record::Fields::open(record)?;
            for number in &mut numbers.next {
                *number = fields.optional_number()?.unwrap_or(1);
            }
            numbers.delayed = fields.optional_number()?.unwrap_or(0);
            numbers.waited = Some(fields.any()).and_then(|waited| waited.number()).unwrap_or(f64::MIN);
            Ok(())
        };
        read().map_err(|problem: crate::record::Unreadable| problem.at(StoreName::Meta, &Self::key()))?;
        Ok(numbers)
    }

    pub(crate) fn record(&self) -> Value {
        let mut record = vec![Value::from(1u32)];
        record.extend(self.next.map(crate::record::value));
        record.push(crate::record::value(self.delayed));
        record.push(Value::from(self.waited));
        Value::list(record)
    }

    pub(crate) fn claim(&mut self, number: Number, count: u64) -> u64 {
        let position = match number {
            Number::Conversation => 0,
            Number::Order => 1,
            Number::Queue => 2,
            Number::Service => 3,
            Number::Stamp => 4,
        };
        let place = self.next.get_mut(position);
        place.map_or(1, |place| std::mem::replace(place, *place + count))
    }
}
