//! Caches that are only simulated: what would be a hit in one memory, or in several that know nothing of each other.

use std::collections::{BTreeMap, VecDeque};

/// Of the memory of S3-FIFO, the queue of what is new; and how often what is in it was asked for again when it goes over to the other queue.
const NEW: u64 = 10;
const WANTED: u8 = 2;
/// More often is not counted.
const MOST_COUNTED: u8 = 3;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    New,
    Kept,
    /// It went, and is remembered.
    Remembered,
}

/// One memory with S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak, SOSP 2023).
pub(super) struct S3Fifo {
    room: u64,
    places: Vec<Place>,
    counts: Vec<u8>,
    new: VecDeque<u32>,
    kept: VecDeque<u32>,
    remembered: VecDeque<u32>,
    new_bytes: u64,
    kept_bytes: u64,
}

impl S3Fifo {
    /// Of so many bytes, for so many objects.
    pub(super) fn of(room: u64, objects: usize) -> Self {
        let (new, kept, remembered) = Default::default();
        let (places, counts) = (vec![Place::Nowhere; objects], vec![0; objects]);
        S3Fifo { room, places, counts, new, kept, remembered, new_bytes: 0, kept_bytes: 0 }
    }

    /// Whether an object is there. If it is not, it is stored; `bytes` are those of any object.
    pub(super) fn ask(&mut self, object: u32, bytes: impl Fn(u32) -> u64) -> bool {
        let at = object as usize;
        if matches!(self.places[at], Place::New | Place::Kept) {
            self.counts[at] = (self.counts[at] + 1).min(MOST_COUNTED);
            return true;
        }
        while self.new_bytes + self.kept_bytes + bytes(object) > self.room {
            let before = self.new_bytes + self.kept_bytes;
            if self.new_bytes * NEW > self.room || self.kept.is_empty() {
                self.let_new_go(&bytes)
            } else {
                self.let_kept_go(&bytes)
            }
            if before == 0 {
                return false;
            }
        }
        self.counts[at] = 0;
        if self.places[at] == Place::Remembered {
            (self.places[at], self.kept_bytes) = (Place::Kept, self.kept_bytes + bytes(object));
            self.kept.push_back(object);
        } else {
            (self.places[at], self.new_bytes) = (Place::New, self.new_bytes + bytes(object));
            self.new.push_back(object);
        }
        false
    }

    fn let_new_go(&mut self, bytes: &impl Fn(u32) -> u64) {
        let Some(object) = self.new.pop_front() else { return };
        let at = object as usize;
        self.new_bytes -= bytes(object);
        if self.counts[at] >= WANTED {
            (self.places[at], self.counts[at], self.kept_bytes) = (Place::Kept, 0, self.kept_bytes + bytes(object));
            self.kept.push_back(object);
            return;
        }
        self.places[at] = Place::Remembered;
        self.remembered.push_back(object);
        // As many as there are.
        while self.remembered.len() > self.kept.len().max(1) {
            let Some(oldest) = self.remembered.pop_front() else { return };
            let place = &mut self.places[oldest as usize];
            if *place == Place::Remembered {
                *place = Place::Nowhere;
            }
        }
    }

    fn let_kept_go(&mut self, bytes: &impl Fn(u32) -> u64) {
        let Some(object) = self.kept.pop_front() else { return };
        let at = object as usize;
        if self.counts[at] > 0 {
            self.counts[at] -= 1;
            self.kept.push_back(object);
        } else {
            (self.places[at], self.kept_bytes) = (Place::Nowhere, self.kept_bytes - bytes(object));
        }
    }
}

/// One memory from which the least recently used goes.
pub(super) struct Lru {
    room: u64,
    used: u64,
    now: u64,
    /// When each object was last asked for; 0: it is not there.
    asked: Vec<u64>,
    by_time: BTreeMap<u64, u32>,
}

impl Lru {
    /// Of so many bytes, for so many objects.
    pub(super) fn of(room: u64, objects: usize) -> Self {
        Lru { room, used: 0, now: 0, asked: vec![0; objects], by_time: BTreeMap::new() }
    }

    /// See [`S3Fifo::ask`].
    pub(super) fn ask(&mut self, object: u32, bytes: impl Fn(u32) -> u64) -> bool {
        let at = object as usize;
        let was_there = self.by_time.remove(&self.asked[at]).is_some();
        if !was_there {
            self.used += bytes(object);
            while self.used > self.room {
                let Some((_, oldest)) = self.by_time.pop_first() else { break };
                self.asked[oldest as usize] = 0;
                self.used -= bytes(oldest);
            }
        }
        self.now += 1;
        self.asked[at] = self.now;
        self.by_time.insert(self.now, object);
        was_there
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rand_core::Rng;

    use super::super::Trace;
    use super::*;
    use crate::run::KEY_TRACE;
    use crate::traces::generator;

    /// Against figures that another program found for this trace.
    #[test]
    fn what_the_trace_hits_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let trace = Trace::read(&root.join(KEY_TRACE)).unwrap();
        assert_eq!((trace.lines.len(), trace.bytes.len()), (200_000, 39_346));
        let (all, bytes) = (trace.set(), |object: u32| trace.bytes(object));
        for (part, central, alone) in [(0.05, 0.703, 0.486), (0.10, 0.738, 0.528), (0.25, 0.776, 0.584)] {
            let room = (all as f64 * part) as u64;
            let mut one = S3Fifo::of(room, trace.bytes.len());
            let mut four: Vec<Lru> = (0..4).map(|_| Lru::of(room / 4, trace.bytes.len())).collect();
            let mut random = generator(1, 1);
            let (mut hits, mut hits_alone) = (0, 0);
            for object in &trace.lines {
                hits += u32::from(one.ask(*object, bytes));
                hits_alone += u32::from(four[(random.next_u64() % 4) as usize].ask(*object, bytes));
            }
            let share = |hits: u32| f64::from(hits) / trace.lines.len() as f64;
            assert!((share(hits) - central).abs() < 0.01, "{part}: {} of one S3-FIFO", share(hits));
            assert!((share(hits_alone) - alone).abs() < 0.01, "{part}: {} of four LRU", share(hits_alone));
        }
    }
}
