//! Reads of other nodes' tables and objects: the only one-sided operations of the pool (rule K1).
//!
//! An object that is larger than a batch is read by several, one after the other: its version first and last (rule K3).

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Done, Fabric, Operation};
use verbena_service::batches::{End, Request};
use verbena_terms::{Incarnation, Time};

use super::wire::Layout;
use crate::Completion;
use crate::object::ReadBack;
use crate::place::{Place, UNIT_BYTES};
use crate::table::{BUCKET_WORDS, Geometry, HEADER_WORDS, Look, Table};
use crate::tenant::Tenant;

/// Bytes of one batch.
const BATCH_BYTES: usize = 256 << 10;
/// Elements of one batch.
const BATCH_PARTS: usize = 32;
/// Bytes up to which a batch goes in the class of small things.
const SMALL: usize = 4096;

/// A read of another node's memory.
pub struct PoolRead {
    id: u64,
    of: Incarnation,
    until: Time,
    what: What,
    parts: Vec<Part>,
    /// Those before it are here.
    next: usize,
    /// Of the parts from `next` on, how many the last batch has.
    posted: usize,
}

enum What {
    Table,
    Object(Place),
}

struct Part {
    at: u64,
    /// A word if it is 0.
    bytes: usize,
    word: u64,
    read: Vec<u8>,
}

impl Part {
    fn word(at: u64) -> Part {
        Part { at, bytes: 0, word: 0, read: vec![] }
    }

    fn bytes(at: u64, bytes: usize) -> Part {
        Part { at, bytes, word: 0, read: vec![] }
    }
}

impl PoolRead {
    /// Of a table's head and both buckets of a key. The head comes first: a bucket that is read behind it is of the view that it names, or later.
    pub(super) fn table(id: u64, of: Incarnation, hash: u64, geometry: Geometry, until: Time) -> PoolRead {
        let floor = Table::floor_word(Tenant::of(hash));
        let buckets = geometry.buckets_of(hash).map(|bucket| 8 * Geometry::word_of(bucket) as u64);
        let mut parts = vec![Part::bytes(0, 8 * HEADER_WORDS)];
        parts.extend(buckets.map(|at| Part::bytes(at, 8 * BUCKET_WORDS)));
        if floor >= HEADER_WORDS {
            parts.push(Part::word(8 * floor as u64));
        }
        PoolRead { id, of, until, what: What::Table, parts, next: 0, posted: 0 }
    }

    /// Of an object: its version, its bytes, its version. `None` if it does not lie within the holder's memory.
    pub(super) fn object(
        id: u64,
        of: Incarnation,
        place: Place,
        layout: Layout,
        largest: u32,
        until: Time,
    ) -> Option<PoolRead> {
        if place.units == 0 || u64::from(place.offset) + u64::from(place.units) > u64::from(layout.units) {
            return None;
        }
        let at = layout.table_bytes + u64::from(place.offset) * UNIT_BYTES as u64;
        let bytes = place.units as usize * UNIT_BYTES;
        let most = BATCH_BYTES.min(largest as usize);
        let mut parts = vec![Part::word(at)];
        parts.extend((0..bytes).step_by(most).map(|from| Part::bytes(at + from as u64, most.min(bytes - from))));
        parts.push(Part::word(at));
        Some(PoolRead { id, of, until, what: What::Object(place), parts, next: 0, posted: 0 })
    }

    fn completion(&mut self) -> Completion {
        match self.what {
            What::Table => {
                let mut look = Look { header: [0; HEADER_WORDS], buckets: [[0; BUCKET_WORDS]; 2] };
                let into =
                    [&mut look.header[..]].into_iter().chain(look.buckets.iter_mut().map(|bucket| &mut bucket[..]));
                for (words, part) in into.zip(&self.parts) {
                    for (word, bytes) in words.iter_mut().zip(part.read.chunks_exact(8)) {
                        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
                    }
                }
                if let Some(floor) = self.parts.get(3) {
                    look.set_floor(floor.word);
                }
                Completion::Table(Some(look))
            }
            What::Object(place) => {
                let bytes = self.parts.iter_mut().flat_map(|part| std::mem::take(&mut part.read)).collect();
                let word = |part: Option<&Part>| part.map_or(0, |part| part.word);
                let (first, last) = (word(self.parts.first()), word(self.parts.last()));
                Completion::Object(place, ReadBack { first, bytes, last })
            }
        }
    }
}

/// What a read gives whose outcome does not come.
pub(super) fn nothing(place: Option<Place>) -> Completion {
    place.map_or(Completion::Table(None), |place| Completion::Object(place, ReadBack::default()))
}

impl Request for PoolRead {
    type Id = u64;
    type Outcome = Completion;
    const TIMEOUT: Duration = Duration::from_millis(200);
    const SUBJECT: &'static str = "the pool";

    fn id(&self) -> u64 {
        self.id
    }

    fn target(&self) -> Incarnation {
        self.of
    }

    fn deadline(&self) -> Time {
        self.until
    }

    fn batch(&mut self, fabric: &dyn Fabric) -> Option<(Batch, Class)> {
        let (mut batch, mut bytes, mut count) = (Batch::new(), 0, 0);
        for part in &self.parts[self.next..] {
            bytes += part.bytes.max(8);
            if count > 0 && (bytes > BATCH_BYTES + 16 || count >= BATCH_PARTS) {
                break;
            }
            batch.push(match part.bytes {
                0 => Operation::ReadWord { at: part.at },
                bytes => Operation::Read { at: part.at, into: fabric.pool().take(bytes).ok()? },
            });
            count += 1;
        }
        self.posted = count;
        Some((batch, if bytes > SMALL { Class::Bulk } else { Class::Control }))
    }

    fn completed(&mut self, done: Completed) {
        for (part, done) in self.parts[self.next..].iter_mut().zip(done) {
            match done {
                Done::Word(word) => part.word = word,
                Done::Buffer(buffer) => part.read = buffer.bytes().to_vec(),
            }
        }
        self.next += self.posted;
    }

    /// Nothing of it has an effect.
    fn executed(&mut self, _: u64) {}

    fn missed(&mut self) {
        self.next = 0;
    }

    fn is_complete(&self) -> bool {
        self.next == self.parts.len()
    }

    fn outcome(&mut self, end: End) -> Option<Completion> {
        let place = match self.what {
            What::Table => None,
            What::Object(place) => Some(place),
        };
        Some(if end == End::Complete { self.completion() } else { nothing(place) })
    }
}
