//! Objects that left a little while ago, by the hashes of their keys.

use std::collections::{HashMap, VecDeque};

/// The last hashes that were added, each once.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    order: VecDeque<(u64, u64)>,
    serials: HashMap<u64, u64>,
    serial: u64,
}

impl Ghosts {
    /// Remembers it; at most that many.
    pub fn add(&mut self, hash: u64, most: usize) {
        self.serial += 1;
        self.serials.insert(hash, self.serial);
        self.order.push_back((hash, self.serial));
        while self.order.len() > most.max(1) {
            if let Some((hash, serial)) = self.order.pop_front()
                && self.serials.get(&hash) == Some(&serial)
            {
                self.serials.remove(&hash);
            }
        }
    }

    /// Whether it is remembered. It is no longer then.
    pub fn take(&mut self, hash: u64) -> bool {
        self.serials.remove(&hash).is_some()
    }
}
