use serde::{Deserialize, Serialize};
use verbena_terms::ViewNumber;

const SEAT_BITS: u32 = 10;
const COUNT_BITS: u32 = 34;

/// Which value of a key: `[view : 20 | count : 34 | seat : 10]`. No other value has it, of any key, home or life of a home, and a home
/// gives a key a larger one at each change (rule K2).
///
/// A home counts anew in each view, in which it has one seat among the homes. So a version of a later view is larger than every version of an
/// earlier one, whichever home gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// No value.
    pub const NONE: Version = Version(0);

    /// The view in which it was given.
    pub fn view(self) -> ViewNumber {
        ViewNumber((self.0 >> (COUNT_BITS + SEAT_BITS)) as u32)
    }
}

/// The versions that a home gives in one view.
#[derive(Clone, Copy, Debug, Default)]
pub struct Versions {
    next: u64,
    end: u64,
    seat: u64,
}

impl Versions {
    /// For the home with this seat in this view. `None` if the words are too small for either.
    pub fn new(view: ViewNumber, seat: usize) -> Option<Versions> {
        let (view, seat) = (u64::from(view.0), seat as u64);
        if view >= 1 << (64 - COUNT_BITS - SEAT_BITS) || seat >= 1 << SEAT_BITS {
            return None;
        }
        let next = view << COUNT_BITS;
        // 0 is given to nothing.
        Some(Versions { next: next + 1, end: next + (1 << COUNT_BITS), seat })
    }

    /// The next one; `None` when this view has no more, so that a new view is needed.
    pub fn give(&mut self) -> Option<Version> {
        let given = self.next;
        if given >= self.end {
            return None;
        }
        self.next += 1;
        Some(Version(given << SEAT_BITS | self.seat))
    }

    /// All that were given before are smaller, all that will be are not: a floor (rule K10).
    pub fn floor(&self) -> Version {
        Version(self.next << SEAT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_and_are_given_once() {
        let mut seen = std::collections::BTreeSet::new();
        for view in 1..4 {
            for seat in 0..3 {
                let mut versions = Versions::new(ViewNumber(view), seat).unwrap();
                let mut last = Version::NONE;
                for _ in 0..10 {
                    let floor = versions.floor();
                    let version = versions.give().unwrap();
                    assert!(version > last && version >= floor && last < floor && seen.insert(version));
                    assert_eq!(version.view(), ViewNumber(view));
                    last = version;
                }
            }
        }
        let ends: Vec<Version> = (1..3).map(|view| Versions::new(ViewNumber(view), 9).unwrap().floor()).collect();
        assert!(ends[0] < ends[1]);
    }

    #[test]
    fn a_view_without_versions_left_gives_none() {
        let mut versions = Versions::new(ViewNumber(7), 1).unwrap();
        versions.next = versions.end - 1;
        let last = versions.give().unwrap();
        assert_eq!(versions.give(), None);
        assert!(Versions::new(ViewNumber(8), 0).unwrap().give().unwrap() > last);
        assert!(Versions::new(ViewNumber(1 << 20), 0).is_none() && Versions::new(ViewNumber(1), 1 << 10).is_none());
    }
}
