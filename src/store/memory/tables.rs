//! The records of a memory store, and how to undo what was done to them.

use super::super::{Change, Direction, Key, ORDER_INDEX_PATH, Range, Source, StoreName};
use crate::body::Value;
use crate::error::Result;
use crate::map::Map;

/// A record as it was before a write; `None` where there was none.
pub(super) type Before = (StoreName, Key, Option<Value>);

#[derive(Debug, Default)]
pub(super) struct Tables {
    stores: Map<StoreName, Map<Key, Value>>,
    /// The index `order`: index keys and the primary keys of `messages`.
    order: Map<(Key, Key), ()>,
}

type Records<'a> = Box<dyn DoubleEndedIterator<Item = (&'a Key, &'a Value)> + 'a>;

impl Tables {
    pub(super) fn get(&self, store: StoreName, key: &Key) -> Result<Option<Value>> {
        self.record(store, key).map(Value::copy).transpose()
    }

    pub(super) fn get_range(
        &self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> Result<Vec<Value>> {
        let records = self.records(source, range);
        let records: Records<'_> = match direction {
            Direction::Forward => records,
            Direction::Backward => Box::new(records.rev()),
        };
        records.take(most(limit)).map(|(_, value)| value.copy()).collect()
    }

    pub(super) fn get_keys(&self, source: Source, range: &Range, limit: Option<u32>) -> Vec<Key> {
        self.records(source, range).take(most(limit)).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn count(&self, source: Source, range: &Range) -> u64 {
        self.records(source, range).fold(0, |count, _| count + 1)
    }

    /// Writes, and notes in `undo` what was there before.
    pub(super) fn apply(&mut self, change: Change, undo: &mut Vec<Before>) {
        match change {
            Change::Put(store, key, value) => {
                let before = self.set(store, &key, Some(value));
                undo.push((store, key, before));
            }
            Change::Delete(store, key) => {
                let before = self.set(store, &key, None);
                undo.push((store, key, before));
            }
            Change::DeleteRange(store, range) => {
                let mut removed = Vec::new();
                let take = |records: &mut Map<Key, Value>| {
                    removed = records.take_between(|key| range.is_above(key), |key| range.is_below(key));
                };
                self.stores.update(store, take);
                for (key, value) in removed {
                    self.file(store, &key, Some(&value), None);
                    undo.push((store, key, Some(value)));
                }
            }
        }
    }

    /// Puts everything back, the last write first.
    pub(super) fn revert(&mut self, undo: Vec<Before>) {
        for (store, key, before) in undo.into_iter().rev() {
            self.set(store, &key, before);
        }
    }

    fn record(&self, store: StoreName, key: &Key) -> Option<&Value> {
        self.stores.get(&store).and_then(|records| records.get(key))
    }

    fn records<'a>(&'a self, source: Source, range: &Range) -> Records<'a> {
        match source {
            Source::Store(store) => {
                let records = self.stores.get(&store);
                let inside =
                    records.map(|records| records.between(|key| range.is_above(key), |key| range.is_below(key)));
                Box::new(inside.unwrap_or_default().iter().map(|(key, value)| (key, value)))
            }
            Source::Order => {
                let inside = self.order.between(|(index, _)| range.is_above(index), |(index, _)| range.is_below(index));
                let record = |key| self.record(StoreName::Messages, key).map(|value| (key, value));
                Box::new(inside.iter().filter_map(move |((_, key), ())| record(key)))
            }
        }
    }

    /// Replaces or removes one record and returns the one that was there.
    fn set(&mut self, store: StoreName, key: &Key, value: Option<Value>) -> Option<Value> {
        let after = value.clone();
        let mut before = None;
        let replace = |records: &mut Map<Key, Value>| {
            before = match value {
                Some(value) => records.insert(key.clone(), value),
                None => records.remove(key),
            };
        };
        self.stores.update(store, replace);
        self.file(store, key, before.as_ref(), after.as_ref());
        before
    }

    /// Keeps the index in step with a record.
    fn file(&mut self, store: StoreName, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        if let Some(entry) = before.and_then(|before| index_key(store, before)) {
            self.order.remove(&(entry, key.clone()));
        }
        if let Some(entry) = after.and_then(|after| index_key(store, after)) {
            self.order.insert((entry, key.clone()), ());
        }
    }
}

/// What the index `order` files a record under: nothing, unless all its fields are there.
fn index_key(store: StoreName, value: &Value) -> Option<Key> {
    if store != StoreName::Messages {
        return None;
    }
    ORDER_INDEX_PATH
        .iter()
        .map(|name| value.field(name).number().map(Key::Number))
        .collect::<Option<_>>()
        .map(Key::List)
}

fn most(limit: Option<u32>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}
