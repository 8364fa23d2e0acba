//! Copies that a home knows of beside the one that it names: when that one goes, another is named (rule K11).

use std::collections::HashMap;

use crate::place::Place;
use crate::version::Version;

/// Copies of one object that are remembered.
const MOST_OF_ONE: usize = 16;
/// Objects whose copies are remembered.
const MOST: usize = 1 << 18;

/// Of each key the version, and where copies of it are. Hints: a holder drops a copy without a word.
#[derive(Debug, Default)]
pub(crate) struct Copies(HashMap<u64, (Version, Vec<Place>)>);

impl Copies {
    /// Of another view nothing is known.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A copy is there too.
    pub fn add(&mut self, hash: u64, version: Version, place: Place) {
        if self.0.len() >= MOST && !self.0.contains_key(&hash) {
            return;
        }
        let (of, places) = self.0.entry(hash).or_insert((version, vec![]));
        if *of != version {
            (*of, *places) = (version, vec![]);
        }
        if !places.contains(&place) && places.len() < MOST_OF_ONE {
            places.push(place);
        }
    }

    /// The copy that came last, of this version, but for this one. It is known no more.
    pub fn take(&mut self, hash: u64, version: Version, but: Place) -> Option<Place> {
        let (of, places) = self.0.get_mut(&hash)?;
        places.retain(|place| *place != but);
        let taken = if *of == version { places.pop() } else { None };
        if taken.is_none() || places.is_empty() {
            self.0.remove(&hash);
        }
        taken
    }

    /// This one is none, or is named by now.
    pub fn forget(&mut self, hash: u64, place: Place) {
        if let Some((_, places)) = self.0.get_mut(&hash) {
            places.retain(|other| *other != place);
        }
    }

    /// All of this version, which is not valid any more.
    pub fn take_all(&mut self, hash: u64, version: Version) -> Vec<Place> {
        let all = self.0.remove(&hash);
        all.filter(|(of, _)| *of == version).map_or(vec![], |(_, places)| places)
    }
}

#[cfg(test)]
mod tests {
    use verbena_terms::Rank;

    use super::*;

    #[test]
    fn copies_are_named_from_the_last_to_the_first() {
        let (old, new) = (Version(1), Version(2));
        let place = |rank| Place::new(7, Rank(rank), 0, 1);
        let mut copies = Copies::default();
        copies.add(7, old, place(1));
        (1..=3).for_each(|rank| copies.add(7, new, place(rank)));
        copies.add(7, new, place(3));
        assert_eq!(copies.take(7, new, place(3)), Some(place(2)));
        assert_eq!(copies.take(7, new, place(9)), Some(place(1)));
        assert_eq!(copies.take(7, new, place(9)), None);
        copies.add(7, new, place(1));
        assert_eq!(copies.take(7, old, place(9)), None, "of another version");
        (1..=2).for_each(|rank| copies.add(7, new, place(rank)));
        copies.forget(7, place(1));
        assert_eq!(copies.take_all(7, new), [place(2)]);
        assert_eq!(copies.take_all(7, new), []);
    }
}
