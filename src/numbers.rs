//! Numbers that are given once.

use crate::body::Value;
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
        if self.is_view() {
            // Nothing is written: any number does.
            return Ok(0);
        }
        let key = || Key::from("numbers");
        if self.changes.numbers.is_none() {
            let record = self.get(StoreName::Meta, key())?;
            self.changes.numbers = Some(Numbers::read(record.as_ref())?);
        }
        self.changes.effects += 1;
        let numbers = self.changes.numbers.get_or_insert_default();
        let first = numbers.claim(number, count);
        let record = numbers.record();
        self.changes.writes.push(Change::Put(StoreName::Meta, key(), record));
        Ok(first)
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

/// The next number of each kind: a record of the store `meta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers([u64; 5]);

impl Default for Numbers {
    fn default() -> Self {
        Self([1; 5])
    }
}

impl Numbers {
    pub(crate) fn read(record: Option<&Value>) -> Result<Self> {
        let mut numbers = Self::default();
        let Some(record) = record else { return Ok(numbers) };
        let mut read = || {
            let mut fields = crate::record::Fields::open(record)?;
            for number in &mut numbers.0 {
                *number = fields.optional_number()?.unwrap_or(1);
            }
            Ok(())
        };
        read().map_err(|problem: crate::record::Unreadable| problem.at(StoreName::Meta, &Key::from("numbers")))?;
        Ok(numbers)
    }

    pub(crate) fn record(&self) -> Value {
        let mut record = vec![Value::from(1u32)];
        record.extend(self.0.map(crate::record::value));
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
        let place = self.0.get_mut(position);
        place.map_or(1, |place| std::mem::replace(place, *place + count))
    }
}
