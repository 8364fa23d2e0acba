//! Which parts of a node's memory are free.

use std::collections::{BTreeMap, BTreeSet};

/// Free memory: pieces by where they are and by how large they are. Neighbours become one.
#[derive(Debug)]
pub(crate) struct Extents {
    by_unit: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    /// All together.
    pub units: u32,
}

impl Extents {
    /// All of so many units.
    pub fn new(units: u32) -> Extents {
        let mut extents = Extents { by_unit: BTreeMap::new(), by_length: BTreeSet::new(), units: 0 };
        if units > 0 {
            extents.give(0, units);
        }
        extents
    }

    /// Best fit.
    pub fn take(&mut self, units: u32) -> Option<u32> {
        let (length, unit) = *self.by_length.range((units, 0)..).next()?;
        self.remove(unit, length);
        if length > units {
            self.insert(unit + units, length - units);
        }
        self.units -= units;
        Some(unit)
    }

    /// These are free again.
    pub fn give(&mut self, unit: u32, units: u32) {
        self.units += units;
        let (mut start, mut length) = (unit, units);
        if let Some((&before, &many)) = self.by_unit.range(..unit).next_back()
            && before + many == unit
        {
            self.remove(before, many);
            (start, length) = (before, length + many);
        }
        if let Some(&many) = self.by_unit.get(&(unit + units)) {
            self.remove(unit + units, many);
            length += many;
        }
        self.insert(start, length);
    }

    fn insert(&mut self, unit: u32, length: u32) {
        self.by_unit.insert(unit, length);
        self.by_length.insert((length, unit));
    }

    fn remove(&mut self, unit: u32, length: u32) {
        self.by_unit.remove(&unit);
        self.by_length.remove(&(length, unit));
    }
}
