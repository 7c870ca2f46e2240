//! A map in a sorted list: small in code, and quick at the sizes that occur here.

use std::borrow::Borrow;

/// Keys and values, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map<K, V>(Vec<(K, V)>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Map<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Map<K, V> {
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(other, _)| other.borrow().cmp(key))
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().and_then(|index| self.0.get(index)).map(|(_, value)| value)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().and_then(|index| self.0.get_mut(index)).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Sets a value, and gives the one that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(index) => self.0.get_mut(index).map(|(_, place)| std::mem::replace(place, value)),
            Err(index) => {
                self.0.insert(index, (key, value));
                None
            }
        }
    }

    /// Changes the value of a key; one that is not there begins with the default.
    pub(crate) fn update(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        match self.get_mut(&key) {
            Some(value) => change(value),
            None => {
                let mut value = V::default();
                change(&mut value);
                self.insert(key, value);
            }
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|index| self.0.remove(index).1)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The pairs from the first whose key is not `before` to the last whose key is not `behind`.
    pub(crate) fn between(&self, before: impl Fn(&K) -> bool, behind: impl Fn(&K) -> bool) -> &[(K, V)] {
        let from = self.0.partition_point(|(key, _)| before(key));
        let to = self.0.partition_point(|(key, _)| !behind(key));
        self.0.get(from..to).unwrap_or_default()
    }

    /// Takes those pairs out.
    pub(crate) fn take_between(&mut self, before: impl Fn(&K) -> bool, behind: impl Fn(&K) -> bool) -> Vec<(K, V)> {
        let from = self.0.partition_point(|(key, _)| before(key));
        let to = self.0.partition_point(|(key, _)| !behind(key));
        if from < to { self.0.drain(from..to).collect() } else { Vec::new() }
    }

    pub(crate) fn for_each(&mut self, change: impl FnMut(&mut V)) {
        self.0.iter_mut().map(|(_, value)| value).for_each(change);
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn pop_first(&mut self) {
        if !self.0.is_empty() {
            self.0.remove(0);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        pairs.into_iter().for_each(|(key, value)| _ = map.insert(key, value));
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_once() {
        let mut map: Map<u32, &str> = [(3, "c"), (1, "a"), (2, "b"), (1, "again")].into_iter().collect();
        assert_eq!(map.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((map.get(&1), map.get(&4)), (Some(&"again"), None));
        assert_eq!((map.remove(&2), map.remove(&2), map.len()), (Some("b"), None, 2));
    }
}
