//! The records of a memory store, and how to undo what was done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops;

use super::super::{Bound, Change, Direction, Key, ORDER_INDEX_PATH, Range, Source, StoreName};
use crate::body::Value;
use crate::error::Result;

/// A record as it was before a write; `None` where there was none.
pub(super) type Before = (StoreName, Key, Option<Value>);

#[derive(Debug, Default)]
pub(super) struct Tables {
    stores: BTreeMap<StoreName, BTreeMap<Key, Value>>,
    /// The index `order`: primary keys of `messages` by index key.
    order: BTreeMap<Key, BTreeSet<Key>>,
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
                for key in self.get_keys(store.into(), &range, None) {
                    self.apply(Change::Delete(store, key), undo);
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
        // A BTreeMap panics on such a range.
        if range.is_empty() {
            return Box::new(std::iter::empty());
        }
        let bounds = (bound(&range.lower), bound(&range.upper));
        match source {
            Source::Store(store) => {
                Box::new(self.stores.get(&store).into_iter().flat_map(move |records| records.range(bounds.clone())))
            }
            Source::Order => Box::new(
                self.order
                    .range(bounds)
                    .flat_map(|(_, keys)| keys)
                    .filter_map(|key| self.record(StoreName::Messages, key).map(|value| (key, value))),
            ),
        }
    }

    /// Replaces or removes one record and returns the one that was there.
    fn set(&mut self, store: StoreName, key: &Key, value: Option<Value>) -> Option<Value> {
        let entry = value.as_ref().and_then(|value| index_key(store, value));
        let records = self.stores.entry(store).or_default();
        let before = match value {
            Some(value) => records.insert(key.clone(), value),
            None => records.remove(key),
        };
        if let Some(entry) = before.as_ref().and_then(|before| index_key(store, before))
            && let Some(keys) = self.order.get_mut(&entry)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.order.remove(&entry);
            }
        }
        if let Some(entry) = entry {
            self.order.entry(entry).or_default().insert(key.clone());
        }
        before
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

fn bound(bound: &Bound) -> ops::Bound<Key> {
    match bound {
        Bound::Open => ops::Bound::Unbounded,
        Bound::Including(key) => ops::Bound::Included(key.clone()),
        Bound::Excluding(key) => ops::Bound::Excluded(key.clone()),
    }
}

fn most(limit: Option<u32>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}
