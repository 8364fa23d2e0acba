//! A node's own part of the pool, which others read: its table, and its objects behind it.

use std::sync::Arc;

use verbena_fabric::Region;

use super::wire::Layout;
use crate::holder::Memory;
use crate::place::UNIT_BYTES;
use crate::table::Words;

/// Why accesses succeed.
const WITHIN: &str = "invariant: a table and the objects behind it lie within the region that was made for them";

/// The words of the node's table, at the start of its region.
pub(super) struct TableWords(pub(super) Arc<dyn Region>);

/// The node's objects, behind its table.
pub(super) struct Objects {
    pub(super) region: Arc<dyn Region>,
    pub(super) layout: Layout,
}

impl std::fmt::Debug for TableWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TableWords")
    }
}

impl Words for TableWords {
    fn load(&self, at: usize) -> u64 {
        self.0.load(8 * at as u64).expect(WITHIN)
    }

    fn store(&mut self, at: usize, word: u64) {
        // A word that cannot be stored would leave an old value valid: better no node than such a one.
        self.0.store(8 * at as u64, word).expect(WITHIN);
    }
}

impl Objects {
    fn at(&self, unit: u32) -> u64 {
        self.layout.table_bytes + u64::from(unit) * UNIT_BYTES as u64
    }
}

impl Memory for Objects {
    fn write(&mut self, unit: u32, bytes: &[u8]) {
        self.region.write(self.at(unit), bytes).expect(WITHIN);
    }

    fn write_word(&mut self, unit: u32, word: u64) {
        self.region.store(self.at(unit), word).expect(WITHIN);
    }

    fn read(&self, unit: u32, units: u32) -> Vec<u8> {
        let is_within = u64::from(unit) + u64::from(units) <= u64::from(self.layout.units);
        let mut bytes = vec![0; if is_within { units as usize * UNIT_BYTES } else { 0 }];
        self.region.read(self.at(unit), &mut bytes).expect(WITHIN);
        bytes
    }

    fn read_word(&self, unit: u32) -> u64 {
        if unit < self.layout.units { self.region.load(self.at(unit)).expect(WITHIN) } else { 0 }
    }
}
