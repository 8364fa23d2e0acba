//! One ring, seen from its producing and from its consuming end (layout.rs has the bytes).
//!
//! Each end keeps its own position in private memory and never reads it back. The producer takes the consumer's head, one
//! value at a time, and checks it: it lies between what it last was and what was produced. The consumer looks at the first
//! word of the line that comes next, which is either smaller than that line's place, and nothing is there, or is its
//! place; anything else is a breach. Of a message, length and kind are read once, and what is copied is as long as that value
//! says, checked against the limit. So whatever the other side writes, and whenever, an end does at most a message's worth
//! of work, inside the ring, and either gives back a message or names the [`Breach`]. After a breach the ring is not used
//! again.

use std::sync::atomic::Ordering;

use crate::error::Breach;
use crate::layout::{FRAME_WORDS, LINE_WORDS, Place, WORD_BYTES, message_lines};
use crate::memory::Memory;

/// What a message is, and which request it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u32,
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) struct Producer {
    place: Place,
    tail: u64,
    head_seen: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    place: Place,
    head: u64,
}

impl Producer {
    /// The producing end of a ring that nothing has passed through yet.
    pub(crate) fn new(place: Place) -> Self {
        Producer { place, tail: 0, head_seen: 0 }
    }

    pub(crate) fn longest(&self) -> usize {
        self.place.longest
    }

    /// Puts a message in and publishes it, or says that there is no room now.
    ///
    /// # Panics
    /// If the payload is longer than [`longest`](Self::longest): callers check, because they have the error to give.
    pub(crate) fn push(&mut self, memory: &impl Memory, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        assert!(payload.len() <= self.place.longest, "invariant: lengths are checked before a message is sent");
        let needed = message_lines(payload.len());
        if self.room() < needed {
            self.look(memory)?;
            if self.room() < needed {
                return Ok(false);
            }
        }
        let first = self.place.line(self.tail);
        memory.store(first + 1, u64::from(header.kind) << 32 | payload.len() as u64, Ordering::Relaxed);
        memory.store(first + 2, header.number, Ordering::Relaxed);
        let mut words = self.place.payload(self.tail);
        for chunk in payload.chunks(WORD_BYTES) {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            memory.store(words.take(), u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        memory.store(first, self.tail + 1, Ordering::Release);
        self.tail += needed;
        Ok(true)
    }

    /// Whether a payload of that many bytes would find room now. A broken head counts as room, so that the one who
    /// waits stops waiting and meets the breach.
    pub(crate) fn has_room(&mut self, memory: &impl Memory, bytes: usize) -> bool {
        let needed = message_lines(bytes);
        self.room() >= needed || self.look(memory).is_err() || self.room() >= needed
    }

    /// Takes in how far the consumer is.
    fn look(&mut self, memory: &impl Memory) -> Result<(), Breach> {
        let head = memory.load(self.place.head, Ordering::Acquire);
        if head < self.head_seen || head > self.tail {
            return Err(Breach::Head { head, before: self.head_seen, tail: self.tail });
        }
        self.head_seen = head;
        Ok(())
    }

    fn room(&self) -> u64 {
        self.place.lines - (self.tail - self.head_seen)
    }
}

impl Consumer {
    /// The consuming end of a ring that nothing has passed through yet.
    pub(crate) fn new(place: Place) -> Self {
        Consumer { place, head: 0 }
    }

    /// Whether something is there. Also true when the producer's word makes no sense, so that [`pop`](Self::pop) says so.
    pub(crate) fn waiting(&self, memory: &impl Memory) -> bool {
        memory.load(self.place.line(self.head), Ordering::Acquire) > self.head
    }

    /// Takes the next message, its payload alone into `payload`, and gives its room back.
    pub(crate) fn pop(&mut self, memory: &impl Memory, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let first = self.place.line(self.head);
        let position = memory.load(first, Ordering::Acquire);
        if position <= self.head {
            return Ok(None);
        }
        payload.clear();
        if position != self.head + 1 {
            return Err(Breach::Position { position, expected: self.head + 1 });
        }
        let sizes = memory.load(first + 1, Ordering::Relaxed);
        let (kind, length) = ((sizes >> 32) as u32, sizes as u32 as usize);
        if length > self.place.longest {
            return Err(Breach::Length { length, longest: self.place.longest });
        }
        let number = memory.load(first + 2, Ordering::Relaxed);
        payload.reserve(length.next_multiple_of(WORD_BYTES));
        let mut words = self.place.payload(self.head);
        for _ in 0..length.div_ceil(WORD_BYTES) {
            payload.extend_from_slice(&memory.load(words.take(), Ordering::Relaxed).to_ne_bytes());
        }
        payload.truncate(length);
        self.head += message_lines(length);
        memory.store(self.place.head, self.head, Ordering::Release);
        Ok(Some(Header { kind, number }))
    }
}

impl Place {
    /// The first word of the line at a position.
    fn line(&self, position: u64) -> usize {
        self.data + (position & (self.lines - 1)) as usize * LINE_WORDS
    }

    fn payload(&self, position: u64) -> PayloadWords<'_> {
        PayloadWords { place: self, position, line: self.line(position), word: FRAME_WORDS }
    }
}

/// The words that the payload of a message takes, one after the other.
struct PayloadWords<'a> {
    place: &'a Place,
    position: u64,
    line: usize,
    word: usize,
}

impl PayloadWords<'_> {
    fn take(&mut self) -> usize {
        if self.word == LINE_WORDS {
            self.position += 1;
            self.line = self.place.line(self.position);
            self.word = 1;
        }
        self.word += 1;
        self.line + self.word - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Geometry;
    use crate::memory::{Mapping, Sharing};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring() -> (Mapping, Producer, Consumer, Place) {
        let geometry = Geometry::new(4096).unwrap();
        let (memory, _) = Mapping::create("test", geometry.bytes_with(2), Sharing::Both).unwrap();
        let place = geometry.requests();
        (memory, Producer::new(place), Consumer::new(place), place)
    }

    const ANY: Header = Header { kind: 1, number: 9 };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in prop::collection::vec((any::<bool>(), 0usize..=1024), 1..400),
        ) {
            let (memory, mut producer, mut consumer, _) = ring();
            let mut model = VecDeque::new();
            let mut payload = Vec::new();
            for (step, (produce, length)) in steps.into_iter().enumerate() {
                let header = Header { kind: step as u32, number: u64::MAX - step as u64 };
                if produce {
                    let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                    let held: u64 = model.iter().map(|(_, bytes): &(Header, Vec<u8>)| message_lines(bytes.len())).sum();
                    let fits = held + message_lines(length) <= 64;
                    prop_assert_eq!(producer.has_room(&memory, length), fits);
                    prop_assert_eq!(producer.push(&memory, header, &bytes), Ok(fits));
                    if fits {
                        model.push_back((header, bytes));
                    }
                } else {
                    prop_assert_eq!(consumer.waiting(&memory), !model.is_empty());
                    let got = consumer.pop(&memory, &mut payload).unwrap();
                    match model.pop_front() {
                        None => prop_assert_eq!(got, None),
                        Some((header, bytes)) => {
                            prop_assert_eq!(got, Some(header));
                            prop_assert_eq!(&payload, &bytes);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_ahead_of_its_place_is_a_breach_and_one_behind_is_nothing() {
        let (memory, mut producer, mut consumer, place) = ring();
        assert_eq!(producer.push(&memory, ANY, b"12345678"), Ok(true));
        consumer.pop(&memory, &mut Vec::new()).unwrap();
        for position in [0, 1] {
            memory.store(place.line(1), position, Ordering::Relaxed);
            assert!(!consumer.waiting(&memory));
            assert_eq!(consumer.pop(&memory, &mut Vec::new()), Ok(None));
        }
        for position in [3, 66, u64::MAX] {
            memory.store(place.line(1), position, Ordering::Relaxed);
            assert!(consumer.waiting(&memory));
            let breach = consumer.pop(&memory, &mut Vec::new()).unwrap_err();
            assert_eq!(breach, Breach::Position { position, expected: 2 });
        }
    }

    /// Payload that looks like the first word of every line that is to come.
    #[test]
    fn what_was_payload_is_never_taken_for_a_message() {
        let (memory, mut producer, mut consumer, place) = ring();
        let mut payload = Vec::new();
        for length in [40usize, 1000, 96, 41, 0, 500].repeat(40) {
            let bytes: Vec<u8> =
                (0..length as u64 / 8 + 1).flat_map(|_| (producer.tail + 1 + place.lines).to_ne_bytes()).collect();
            assert_eq!(producer.push(&memory, ANY, &bytes[..length]), Ok(true));
            assert_eq!(consumer.pop(&memory, &mut payload), Ok(Some(ANY)));
            assert_eq!(payload, &bytes[..length]);
            assert!(!consumer.waiting(&memory), "at {}", consumer.head);
            assert_eq!(consumer.head, producer.tail);
        }
        assert!(consumer.head > 10 * place.lines);
    }

    #[test]
    fn a_length_beyond_the_limit_is_a_breach() {
        let (memory, mut producer, mut consumer, place) = ring();
        assert_eq!(producer.push(&memory, ANY, b""), Ok(true));
        memory.store(place.data + 1, 1025, Ordering::Relaxed);
        let mut payload = Vec::new();
        assert_eq!(consumer.pop(&memory, &mut payload), Err(Breach::Length { length: 1025, longest: 1024 }));
        assert!(payload.is_empty());
    }

    #[test]
    fn a_head_beyond_the_tail_or_going_back_is_a_breach() {
        let (memory, mut producer, mut consumer, place) = ring();
        while producer.push(&memory, ANY, &[1; 1000]).unwrap() {}
        consumer.pop(&memory, &mut Vec::new()).unwrap();
        assert_eq!(producer.push(&memory, ANY, &[1; 1000]), Ok(true));
        let (before, tail) = (19, 3 * 19 + 19);
        for head in [0, 18, tail + 1, u64::MAX] {
            memory.store(place.head, head, Ordering::Relaxed);
            assert_eq!(producer.push(&memory, ANY, &[1; 1000]), Err(Breach::Head { head, before, tail }));
            assert!(producer.has_room(&memory, 1000));
        }
    }
}
