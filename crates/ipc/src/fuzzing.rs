//! What the fuzz targets drive. `ipc_queue` puts together what comes out of a queue, and reads records of queues. `ipc_ring` drives both ends of a ring against an adversary that answers every read as it likes.
//!
//! For the reader, memory that another process changes during the read is memory whose every load gives any value at
//! all. So the input is the list of values that loads give, in order; after its end they are 0. Checked: no access
//! outside the ring and its positions, no more loads for one message than a message has words, no payload longer than
//! the limit.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::Breach;
use crate::layout::{Geometry, LINE_WORDS, Place, WORD_BYTES, message_lines};
use crate::memory::Memory;
use crate::message::parse_refusal;
use crate::piece::Assembler;
use crate::record::Record;
use crate::ring::{Consumer, Header, Producer};

/// What happened, so that a replay of the corpus can say that every road was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outcomes {
    pub messages: u32,
    pub sent: u32,
    pub full: u32,
    pub bad_positions: u32,
    pub bad_heads: u32,
    pub bad_lengths: u32,
}

const MOST_STEPS: usize = 4096;

/// The first byte chooses the end: even is the consumer, odd the producer. Then words of 8 bytes, little endian.
///
/// # Panics
/// If an end of the ring does what it must not.
pub fn ring_ends(input: &[u8]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let Some((which, values)) = input.split_first() else { return outcomes };
    let geometry = Geometry::new(4096).expect("invariant: the layout allows 4 KiB");
    let place = geometry.requests();
    let memory = Adversary { values: RefCell::new(values), place, loads: Cell::new(0) };
    if which % 2 == 0 {
        consume(&memory, &mut outcomes)
    } else {
        produce(&memory, &mut outcomes)
    }
    outcomes
}

fn consume(memory: &Adversary<'_>, outcomes: &mut Outcomes) {
    let mut consumer = Consumer::new(memory.place);
    let mut payload = Vec::new();
    for _ in 0..MOST_STEPS {
        memory.loads.set(0);
        let popped = consumer.pop(memory, &mut payload);
        assert!(payload.len() <= memory.place.longest);
        assert!(memory.loads.get() <= message_lines(memory.place.longest) * LINE_WORDS as u64);
        match popped {
            Ok(None) => return,
            Ok(Some(_)) => outcomes.messages += 1,
            Err(breach) => return outcomes.note(breach),
        }
        // What a client does with a refusal's body.
        let _ = parse_refusal(&payload);
    }
}

fn produce(memory: &Adversary<'_>, outcomes: &mut Outcomes) {
    let mut producer = Producer::new(memory.place);
    for step in 0..MOST_STEPS {
        if memory.values.borrow().is_empty() {
            return;
        }
        memory.loads.set(0);
        let length = step * 251 % (memory.place.longest + 1);
        let pushed = producer.push(memory, Header { kind: 1, number: step as u64 }, &vec![0xa5; length]);
        assert!(memory.loads.get() <= 1);
        match pushed {
            Ok(true) => outcomes.sent += 1,
            Ok(false) => outcomes.full += 1,
            Err(breach) => return outcomes.note(breach),
        }
        // Every other step looks, or an honest ring would never be asked for its head.
        producer.has_room(memory, memory.place.longest);
    }
}

impl Outcomes {
    fn note(&mut self, breach: Breach) {
        match breach {
            Breach::Position { .. } => self.bad_positions += 1,
            Breach::Head { .. } => self.bad_heads += 1,
            Breach::Length { .. } => self.bad_lengths += 1,
            other => panic!("a ring does not know of {other}"),
        }
    }
}

/// What became of the inputs of `ipc_queue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct QueueOutcomes {
    pub parts: u32,
    pub messages: u32,
    pub bad_pieces: u32,
    pub bad_lengths: u32,
    pub records: u32,
    pub bad_records: u32,
}

const LONGEST: usize = 16 << 10;

/// The first byte chooses: even is a queue, odd a record of queues. A queue gives texts, each after its length in two bytes, little
/// endian; after the end of the input nothing.
///
/// # Panics
/// If what is put together is longer than it may be, or than what came.
pub fn queue_ends(input: &[u8]) -> QueueOutcomes {
    let mut outcomes = QueueOutcomes::default();
    let Some((which, mut rest)) = input.split_first() else { return outcomes };
    if which % 2 == 1 {
        match Record::parse(rest) {
            Ok(_) => outcomes.records += 1,
            Err(_) => outcomes.bad_records += 1,
        }
        return outcomes;
    }
    let mut assembler = Assembler::new(LONGEST);
    let (mut payload, mut came) = (Vec::new(), 0);
    while let Some((length, texts)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(texts.len());
        let (text, later) = texts.split_at(length);
        (rest, came) = (later, came + length);
        match assembler.add(text, &mut payload) {
            Ok(Some(_)) => {
                assert!(payload.len() <= LONGEST && payload.len() <= came);
                outcomes.messages += 1;
                came = 0;
                let _ = parse_refusal(&payload);
            }
            Ok(None) => outcomes.parts += 1,
            Err(breach) => {
                match breach {
                    Breach::Piece => outcomes.bad_pieces += 1,
                    Breach::Length { .. } => outcomes.bad_lengths += 1,
                    other => panic!("a queue does not know of {other}"),
                }
                return outcomes;
            }
        }
    }
    outcomes
}

struct Adversary<'a> {
    values: RefCell<&'a [u8]>,
    place: Place,
    loads: Cell<u64>,
}

impl Adversary<'_> {
    fn is_data(&self, word: usize) -> bool {
        (self.place.data..self.place.data + self.place.lines as usize * LINE_WORDS).contains(&word)
    }
}

impl Memory for Adversary<'_> {
    fn load(&self, word: usize, _: Ordering) -> u64 {
        assert!(self.is_data(word) || word == self.place.head, "load of word {word}");
        self.loads.set(self.loads.get() + 1);
        let mut values = self.values.borrow_mut();
        let mut value = [0; WORD_BYTES];
        let length = values.len().min(WORD_BYTES);
        let (now, later) = values.split_at(length);
        value[..length].copy_from_slice(now);
        *values = later;
        u64::from_le_bytes(value)
    }

    fn store(&self, word: usize, _: u64, _: Ordering) {
        assert!(self.is_data(word) || word == self.place.head, "store to word {word}");
    }

    fn swap(&self, _: usize, _: u64, _: Ordering) -> u64 {
        unreachable!("a ring swaps nothing")
    }

    fn fence(&self) {}

    fn sleep(&self, _: usize, _: u64, _: Duration) {
        unreachable!("a ring does not sleep")
    }

    fn wake(&self, _: usize) {
        unreachable!("a ring wakes nobody")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verbena_terms::testing::corpus;

    #[test]
    fn every_input_of_the_corpus_is_survived_and_every_outcome_reached() {
        let inputs = corpus("ipc_ring");
        let mut all = Outcomes::default();
        for input in &inputs {
            let one = ring_ends(input);
            all.messages += one.messages;
            all.sent += one.sent;
            all.full += one.full;
            all.bad_positions += one.bad_positions;
            all.bad_heads += one.bad_heads;
            all.bad_lengths += one.bad_lengths;
        }
        assert!(inputs.len() >= 25, "{} inputs", inputs.len());
        let Outcomes { messages, sent, full, bad_positions, bad_heads, bad_lengths } = all;
        assert!(messages >= 20 && sent >= 20, "{all:?}");
        assert!([full, bad_positions, bad_heads, bad_lengths].iter().all(|count| *count >= 2), "{all:?}");
    }

    #[test]
    fn every_input_of_a_queue_is_survived_and_every_outcome_reached() {
        let inputs = corpus("ipc_queue");
        let mut all = [0; 6];
        for input in &inputs {
            let QueueOutcomes { parts, messages, bad_pieces, bad_lengths, records, bad_records } = queue_ends(input);
            for (sum, one) in all.iter_mut().zip([parts, messages, bad_pieces, bad_lengths, records, bad_records]) {
                *sum += one;
            }
        }
        assert!(inputs.len() >= 15, "{} inputs", inputs.len());
        assert!(all.iter().all(|count| *count >= 2), "{all:?}");
    }

    /// Inputs made on the spot: most values small, so that they get past the first check.
    #[test]
    fn made_inputs_are_survived() {
        let value = prop_oneof![
            3 => 0u64..600,
            2 => (1u64..4, 0u64..1100).prop_map(|(kind, length)| kind << 32 | length),
            1 => any::<u64>(),
        ];
        let input = (any::<u8>(), prop::collection::vec(value, 0..200), prop::collection::vec(any::<u8>(), 0..8));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(2_000)
        });
        runner
            .run(&input, |(which, values, rest)| {
                let mut bytes = vec![which];
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                bytes.extend(rest);
                ring_ends(&bytes);
                Ok(())
            })
            .unwrap();
    }
}
