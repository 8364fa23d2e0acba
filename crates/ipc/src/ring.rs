//! One ring, seen from its producing and from its consuming end (layout.rs has the bytes).
//!
//! Each end keeps its own position in private memory and only publishes it; it never reads its own position back. Of the
//! other side's position it takes one value at a time, and checks it: a producer can have at most a full ring before
//! it, a consumer's head lies between what it last was and the tail. Of a message, the first word is read once, and what
//! is copied is as long as that value says, checked against the limit and against what the tail announced. So whatever
//! the other side writes, and whenever, an end does at most a message's worth of work, inside the ring, and either gives
//! back a message or names the [`Breach`]. After a breach the ring is not used again.

use std::sync::atomic::Ordering;

use crate::error::Breach;
use crate::layout::{FRAME_WORDS, Place, WORD_BYTES, message_words};
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
        let needed = message_words(payload.len());
        if self.room() < needed {
            self.look(memory)?;
            if self.room() < needed {
                return Ok(false);
            }
        }
        self.put(memory, 0, u64::from(header.kind) << 32 | payload.len() as u64);
        self.put(memory, 1, header.number);
        for (offset, chunk) in (FRAME_WORDS..).zip(payload.chunks(WORD_BYTES)) {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            self.put(memory, offset, u64::from_ne_bytes(word));
        }
        self.tail += needed;
        memory.store(self.place.tail, self.tail, Ordering::Release);
        Ok(true)
    }

    /// Whether a payload of that many bytes would find room now. A broken head counts as room, so that the one who
    /// waits stops waiting and meets the breach.
    pub(crate) fn has_room(&mut self, memory: &impl Memory, bytes: usize) -> bool {
        let needed = message_words(bytes);
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
        self.place.words - (self.tail - self.head_seen)
    }

    fn put(&self, memory: &impl Memory, offset: u64, value: u64) {
        memory.store(self.place.word(self.tail + offset), value, Ordering::Relaxed);
    }
}

impl Consumer {
    /// The consuming end of a ring that nothing has passed through yet.
    pub(crate) fn new(place: Place) -> Self {
        Consumer { place, head: 0 }
    }

    /// Whether something is there. Also true when the producer's tail makes no sense, so that [`pop`](Self::pop) says so.
    pub(crate) fn waiting(&self, memory: &impl Memory) -> bool {
        memory.load(self.place.tail, Ordering::Acquire) != self.head
    }

    /// Takes the next message, its payload into `payload` (which is emptied first), and gives its room back.
    pub(crate) fn pop(&mut self, memory: &impl Memory, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        payload.clear();
        let tail = memory.load(self.place.tail, Ordering::Acquire);
        if tail == self.head {
            return Ok(None);
        }
        let there = tail.wrapping_sub(self.head);
        if there > self.place.words {
            return Err(Breach::Tail { tail, head: self.head, words: self.place.words });
        }
        let first = self.take(memory, 0);
        let (kind, length) = ((first >> 32) as u32, first as u32 as usize);
        if length > self.place.longest {
            return Err(Breach::Length { length, longest: self.place.longest });
        }
        let needed = message_words(length);
        if needed > there {
            return Err(Breach::Cut { needed, there });
        }
        let number = self.take(memory, 1);
        payload.reserve(length.next_multiple_of(WORD_BYTES));
        for offset in FRAME_WORDS..needed {
            payload.extend_from_slice(&self.take(memory, offset).to_ne_bytes());
        }
        payload.truncate(length);
        self.head += needed;
        memory.store(self.place.head, self.head, Ordering::Release);
        Ok(Some(Header { kind, number }))
    }

    fn take(&self, memory: &impl Memory, offset: u64) -> u64 {
        memory.load(self.place.word(self.head.wrapping_add(offset)), Ordering::Relaxed)
    }
}

impl Place {
    fn word(&self, position: u64) -> usize {
        self.data + (position & (self.words - 1)) as usize
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
        let (memory, _) = Mapping::create("test", geometry.total_bytes(), Sharing::Both).unwrap();
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
                    let held: u64 = model.iter().map(|(_, bytes): &(Header, Vec<u8>)| message_words(bytes.len())).sum();
                    let fits = held + message_words(length) <= 512;
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
    fn a_tail_beyond_a_full_ring_is_a_breach() {
        for tail in [513, u64::MAX, 1 << 63] {
            let (memory, _, mut consumer, place) = ring();
            memory.store(place.tail, tail, Ordering::Relaxed);
            let breach = consumer.pop(&memory, &mut Vec::new()).unwrap_err();
            assert_eq!(breach, Breach::Tail { tail, head: 0, words: 512 });
        }
    }

    #[test]
    fn a_tail_that_goes_back_is_a_breach() {
        let (memory, mut producer, mut consumer, place) = ring();
        assert_eq!(producer.push(&memory, ANY, b"12345678"), Ok(true));
        consumer.pop(&memory, &mut Vec::new()).unwrap();
        memory.store(place.tail, 2, Ordering::Relaxed);
        assert!(matches!(consumer.pop(&memory, &mut Vec::new()), Err(Breach::Tail { tail: 2, head: 3, .. })));
    }

    #[test]
    fn a_length_beyond_the_limit_or_the_tail_is_a_breach() {
        let (memory, mut producer, mut consumer, place) = ring();
        assert_eq!(producer.push(&memory, ANY, b""), Ok(true));
        memory.store(place.data, 1025, Ordering::Relaxed);
        let mut payload = Vec::new();
        assert_eq!(consumer.pop(&memory, &mut payload), Err(Breach::Length { length: 1025, longest: 1024 }));
        memory.store(place.data, 1, Ordering::Relaxed);
        assert_eq!(consumer.pop(&memory, &mut payload), Err(Breach::Cut { needed: 3, there: 2 }));
        assert!(payload.is_empty());
    }

    #[test]
    fn a_head_beyond_the_tail_or_going_back_is_a_breach() {
        let (memory, mut producer, mut consumer, place) = ring();
        while producer.push(&memory, ANY, &[1; 1000]).unwrap() {}
        consumer.pop(&memory, &mut Vec::new()).unwrap();
        assert_eq!(producer.push(&memory, ANY, &[1; 1000]), Ok(true));
        let (before, tail) = (127, 4 * 127 + 127);
        for head in [0, 126, tail + 1, u64::MAX] {
            memory.store(place.head, head, Ordering::Relaxed);
            assert_eq!(producer.push(&memory, ANY, &[1; 1000]), Err(Breach::Head { head, before, tail }));
            assert!(producer.has_room(&memory, 1000));
        }
    }
}
