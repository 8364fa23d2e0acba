use crate::place::UNIT_BYTES;

/// A node's own memory, in units, which others read while it is written.
pub trait Memory {
    /// Writes bytes, whole words in order.
    fn write(&mut self, unit: u32, bytes: &[u8]);
    /// Writes one word, at the start of a unit, at once.
    fn write_word(&mut self, unit: u32, word: u64);
    /// Reads bytes.
    fn read(&self, unit: u32, units: u32) -> Vec<u8>;
    /// Reads one word, at the start of a unit.
    fn read_word(&self, unit: u32) -> u64;
}

/// Memory of this process alone: for tests and for nodes that hold nothing for others.
#[derive(Clone, Debug, Default)]
pub struct OwnMemory(Vec<u8>);

impl OwnMemory {
    /// So many units.
    pub fn new(units: u32) -> OwnMemory {
        OwnMemory(vec![0; units as usize * UNIT_BYTES])
    }
}

impl Memory for OwnMemory {
    fn write(&mut self, unit: u32, bytes: &[u8]) {
        let at = unit as usize * UNIT_BYTES;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn write_word(&mut self, unit: u32, word: u64) {
        self.write(unit, &word.to_le_bytes());
    }

    fn read(&self, unit: u32, units: u32) -> Vec<u8> {
        let at = unit as usize * UNIT_BYTES;
        self.0.get(at..at + units as usize * UNIT_BYTES).map_or(vec![], <[u8]>::to_vec)
    }

    fn read_word(&self, unit: u32) -> u64 {
        let at = unit as usize * UNIT_BYTES;
        let word = self.0.get(at..at + 8).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_le_bytes)
    }
}
