//! A bounded memory of the last events, for things that are gone and whose number has no limit of its own.

use std::collections::BTreeMap;

/// A map that forgets what was put into it first.
#[derive(Clone, Debug)]
pub(crate) struct Recent<K, V> {
    most: usize,
    put: u64,
    known: BTreeMap<K, (u64, V)>,
    /// In which order they were put.
    order: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    /// Empty, with room for `most`.
    pub(crate) fn of_at_most(most: usize) -> Self {
        Recent { most, put: 0, known: BTreeMap::new(), order: BTreeMap::new() }
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.remove(&key);
        if self.known.len() >= self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
        self.put += 1;
        self.order.insert(self.put, key.clone());
        self.known.insert(key, (self.put, value));
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.known.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((put, _)) = self.known.remove(key) {
            self.order.remove(&put);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_not_the_smallest() {
        let mut recent = Recent::of_at_most(2);
        recent.put(9, 'a');
        recent.put(1, 'b');
        recent.put(5, 'c');
        assert_eq!([9, 1, 5].map(|key| recent.get(&key).copied()), [None, Some('b'), Some('c')]);
        // What is put again is new.
        recent.put(1, 'd');
        recent.put(7, 'e');
        assert_eq!([1, 5, 7].map(|key| recent.get(&key).copied()), [Some('d'), None, Some('e')]);
        recent.remove(&1);
        recent.put(3, 'f');
        assert_eq!([1, 7, 3].map(|key| recent.get(&key).copied()), [None, Some('e'), Some('f')]);
        assert_eq!(recent.order.len(), 2);
    }
}
