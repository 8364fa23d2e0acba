//! A put to a segment with copies (rule M3): filled everywhere, decided at one copy, and read at another when all have it.
//!
//! The copies stand in a line: the backups in their order, and the home last. A put goes along it three times.
//!
//! ```text
//!            home ... last backup ... second        first backup            second ... last backup    home
//!   filling ------------------------------> deciding -----------> spreading -------------------------------> done
//!                                              |  the word is another                                         ^
//!                                              v                        helping: as spreading, for another's  |
//!                                           looking ------------------> put that was decided -----------------+--> from the beginning
//!                                          at the home's word
//! ```
//! Each word goes from one value to the next by a swap that names both. The first backup's swap alone decides which
//! value is next. So all copies go the same way, none is behind the home, and the first backup is at most one version
//! ahead of it. Readers look at the home: what they see is at every copy. Any node can complete a put that is decided,
//! because its slots are filled. So a writer that dies or is cut off delays no other writer.
//!
//! The end mark of a segment goes the same way, from the first backup to the home. A put that meets it there completes
//! it too, at each copy, before any node reports it: until the home has the mark, the value is read.

use crate::access::Step;
use crate::layout::{Word, word_at};
use crate::{Place, Segment};

/// A put on its way along the copies.
#[derive(Clone, Debug)]
pub(super) enum Chain {
    Filling {
        nth: usize,
        slot: u8,
        word: Word,
    },
    Deciding {
        slot: u8,
        word: Word,
    },
    Spreading {
        nth: usize,
        slot: u8,
        word: Word,
    },
    /// What was found to be decided.
    Looking(Word),
    Helping {
        nth: usize,
        word: Word,
        decided: Word,
    },
}

/// What came of a step.
pub(super) enum Linked {
    /// There is another.
    On,
    /// It is at all copies; what it replaced, and what is read now.
    Put { replaced: Word, now: Word },
    /// This is read, and at all copies, and not what it would have replaced.
    Other(Word),
}

impl Chain {
    pub(super) fn filling(segment: &Segment, slot: u8, word: Word) -> Self {
        Chain::Filling { nth: segment.backups.len(), slot, word }
    }

    pub(super) fn looking(decided: Word) -> Self {
        Chain::Looking(decided)
    }

    pub(super) fn is_publishing(&self) -> bool {
        matches!(self, Chain::Deciding { .. } | Chain::Spreading { .. })
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(self, Chain::Spreading { .. })
    }

    /// What is to be posted, and where. `fill` fills a slot, if it is not filled already.
    pub(super) fn steps(&self, segment: &Segment, fill: impl Fn(Place, u8) -> Vec<Step>) -> (Place, Vec<Step>) {
        let swap =
            |place: Place, word: Word, next: Word| Step::Swap(word_at(place.control), word.to_bits(), next.to_bits());
        let filled = |place: Place, slot: u8, word: Word| {
            let mut steps = fill(place, slot);
            steps.push(Step::WriteWord(segment.slot_at(place, slot), word.version() + 1));
            steps
        };
        match *self {
            Chain::Filling { nth, slot, word } => {
                let place = segment.link(nth);
                (place, filled(place, slot, word))
            }
            Chain::Deciding { slot, word } => {
                let place = segment.link(0);
                let mut steps = filled(place, slot, word);
                steps.push(swap(place, word, word.next_in(slot)));
                (place, steps)
            }
            Chain::Spreading { nth, slot, word } => {
                let place = segment.link(nth);
                (place, vec![swap(place, word, word.next_in(slot))])
            }
            Chain::Looking(_) => {
                let place = segment.primary();
                (place, vec![Step::ReadWord(word_at(place.control))])
            }
            Chain::Helping { nth, word, decided } => {
                let place = segment.link(nth);
                (place, vec![swap(place, word, helped(word, decided))])
            }
        }
    }

    /// The last step of what was posted has found this.
    pub(super) fn completed(&mut self, segment: &Segment, found: Word) -> Linked {
        let home = segment.backups.len();
        *self = match *self {
            Chain::Filling { nth: 1, slot, word } => Chain::Deciding { slot, word },
            Chain::Filling { nth, slot, word } => Chain::Filling { nth: nth - 1, slot, word },
            Chain::Deciding { slot, word } if found == word => Chain::Spreading { nth: 1, slot, word },
            Chain::Deciding { .. } => Chain::Looking(found),
            Chain::Spreading { nth, slot, word } if nth == home => {
                let now = if found == word { word.next_in(slot) } else { found };
                return Linked::Put { replaced: word, now };
            }
            Chain::Spreading { nth, slot, word } => Chain::Spreading { nth: nth + 1, slot, word },
            Chain::Looking(_) if found.slot().is_none() => return Linked::Other(found),
            Chain::Looking(decided) if decided.slot().is_some() && found.version() >= decided.version() => {
                return Linked::Other(found);
            }
            Chain::Looking(decided) => Chain::Helping { nth: 1, word: found, decided },
            // What one copy lacks the others may have by now; a mark is missing at none.
            Chain::Helping { nth, word, decided }
                if decided.slot().is_none() && found != word && found.slot().is_some() =>
            {
                Chain::Helping { nth, word: found, decided }
            }
            Chain::Helping { nth, word, decided } if nth == home => {
                return Linked::Other(if found == word { helped(word, decided) } else { found });
            }
            Chain::Helping { nth, word, decided } => Chain::Helping { nth: nth + 1, word, decided },
        };
        Linked::On
    }
}

/// What a copy is brought to that has `word`. A mark leaves it its own version: so it says what could be read there.
fn helped(word: Word, decided: Word) -> Word {
    decided.end().map_or(decided, |end| word.ended(end))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::access::Given;
    use crate::layout::{End, claims_at};
    use crate::node::put::{Known, Next, Put};
    use crate::{Coherence, Refusal, Rules, SegmentId, Wanted};
    use verbena_terms::Incarnation;

    type Memory = BTreeMap<(Incarnation, u64), u64>;

    /// A writer of one value, which acts in single steps.
    #[derive(Clone, Debug)]
    struct Writer {
        put: Put,
        known: Known,
        at: Incarnation,
        steps: Vec<Step>,
        given: Vec<Given>,
        done: Option<u64>,
        is_refused: bool,
    }

    #[derive(Clone, Debug)]
    struct World {
        memory: Memory,
        writers: Vec<Writer>,
        /// The home marks the segment: at which copy, and what it believes to stand there.
        marking: Option<(usize, Word)>,
        /// What could be read.
        values: BTreeMap<u64, u64>,
        /// Versions that the home had, where they are read.
        read: BTreeSet<u64>,
    }

    fn segment(copies: u32) -> Segment {
        let place = |rank| Place { home: Incarnation::new(rank, 1), control: rank, at: 4096 };
        let wanted = Wanted { copies: copies as u8, writers: 4, ..Wanted::new(None, 8, Coherence::Strict, 0) };
        let Place { home, control, at } = place(1);
        Segment {
            id: SegmentId { home, number: 1 },
            wanted,
            home,
            control,
            at,
            backups: (2..=copies).map(place).collect(),
        }
    }

    fn new(segment: &Segment) -> Memory {
        let mut memory = Memory::new();
        for place in segment.places() {
            memory.insert((place.home, word_at(place.control)), Word::new(1, 0).to_bits());
            memory.insert((place.home, claims_at(place.control)), 1);
            memory.insert((place.home, segment.slot_at(place, 0)), 1);
        }
        memory
    }

    fn word_of(memory: &Memory, place: Place) -> Word {
        Word::from_bits(memory[&(place.home, word_at(place.control))])
    }

    impl Writer {
        fn new(segment: &Segment, number: u64) -> Writer {
            let put = Put::new(0, number.to_le_bytes().as_slice().into(), None, 0);
            let known = Known { claims: 1, ..Known::default() };
            let (steps, given, done, is_refused) = (vec![], vec![], None, false);
            let mut writer = Writer { put, known, at: segment.home, steps, given, done, is_refused };
            let next = writer.put.begin(segment, &mut writer.known, Rules::ALL);
            writer.goes_on(next);
            writer
        }

        fn goes_on(&mut self, next: Next) {
            match next {
                Next::Post(at, steps) => (self.at, self.steps) = (at, steps),
                Next::Put(version) => self.done = Some(version),
                Next::Refused(Refusal::Released { .. }) => self.is_refused = true,
                next => panic!("{next:?}"),
            }
        }

        fn is_over(&self) -> bool {
            self.done.is_some() || self.is_refused
        }

        /// One step of what it has posted.
        fn step(&mut self, segment: &Segment, memory: &mut Memory) {
            let at = self.at;
            self.given.push(match self.steps.remove(0) {
                Step::ReadWord(to) => Given::Word(*memory.entry((at, to)).or_default()),
                Step::WriteWord(to, value) => Given::Word(memory.insert((at, to), value).unwrap_or_default()),
                Step::Write(to, bytes) => {
                    memory.insert((at, to), u64::from_le_bytes(bytes.try_into().unwrap()));
                    Given::Bytes(vec![])
                }
                Step::Swap(to, expected, desired) => {
                    let found = memory.get(&(at, to)).copied().unwrap_or_default();
                    if found == expected {
                        memory.insert((at, to), desired);
                    }
                    Given::Word(found)
                }
                step => panic!("{step:?}"),
            });
            if self.steps.is_empty() {
                let given = std::mem::take(&mut self.given);
                let next = self.put.completed(segment, &mut self.known, Rules::ALL, given);
                self.goes_on(next);
            }
        }
    }

    impl World {
        fn check(&mut self, segment: &Segment) {
            let words: Vec<Word> =
                (0..=segment.backups.len()).map(|nth| word_of(&self.memory, segment.link(nth))).collect();
            let is_marked = |word: &Word| word.slot().is_none();
            // A marked word is never read again, whatever it held.
            let versions: Vec<u64> = words.iter().filter(|word| !is_marked(word)).map(|word| word.version()).collect();
            assert!(versions.is_sorted_by(|a, b| a >= b), "a copy is behind the home: {words:?}");
            let (first, home) = (versions.first().copied(), versions.last().copied());
            assert!(first <= home.map(|home| home + 1), "{words:?}");
            for (nth, word) in words.iter().enumerate() {
                let place = segment.link(nth);
                let Some(slot) = word.slot() else { continue };
                let at = segment.slot_at(place, slot);
                assert_eq!(self.memory[&(place.home, at)], word.version(), "half a value at {place:?}: {self:?}");
                let value = self.memory.get(&(place.home, at + 16)).copied().unwrap_or(0);
                let known = *self.values.entry(word.version()).or_insert(value);
                assert_eq!(value, known, "version {} at {place:?}", word.version());
            }
            let home = words[words.len() - 1];
            self.read.extend((!is_marked(&home)).then(|| home.version()));
            for version in self.writers.iter().filter_map(|writer| writer.done) {
                assert!(self.read.contains(&version), "{version} is done, and nobody could read it: {words:?}");
                let has_it = |word: &Word| word.version() >= version || is_marked(word);
                assert!(words.iter().all(has_it), "{version} is done, and not everywhere: {words:?}");
            }
            let is_told = self.writers.iter().any(|writer| writer.is_refused);
            assert!(
                !is_told || words.iter().all(is_marked),
                "somebody knows that it was released, and it is read: {words:?}"
            );
        }

        /// Whatever the others have begun, one more comes to its end.
        fn is_held_up(&self, segment: &Segment) -> bool {
            let (mut memory, mut last) = (self.memory.clone(), Writer::new(segment, 77));
            let is_told = self.writers.iter().any(|writer| writer.is_refused);
            for _ in 0..200 {
                if last.is_over() {
                    assert!(!is_told || last.is_refused, "it is put after somebody was told that it was released");
                    return false;
                }
                last.step(segment, &mut memory);
            }
            true
        }

        /// The next swap of the home's, as `home::mark_ended` has it.
        fn mark(&mut self, segment: &Segment) {
            let Some((nth, guess)) = self.marking else { return };
            let place = segment.link(nth);
            let found = word_of(&self.memory, place);
            if found == guess {
                self.memory.insert((place.home, word_at(place.control)), guess.ended(End::Released).to_bits());
            }
            let (next, word) = if found != guess && found.slot().is_some() { (nth, found) } else { (nth + 1, guess) };
            self.marking = Some((next, word)).filter(|(next, _)| *next <= segment.backups.len());
        }
    }

    /// Explores all orders of the steps of `writers` writers, each of which may stop for ever after any step, and of
    /// the home that marks the segment if `is_released`. Returns the number of states, and of those in which a node
    /// reported the release.
    fn explore(copies: u32, writers: u64, is_released: bool) -> (usize, usize) {
        let segment = segment(copies);
        let writers = (1..=writers).map(|number| Writer::new(&segment, number)).collect();
        let marking = is_released.then_some((0, Word::new(1, 0)));
        let mut open =
            vec![World { memory: new(&segment), writers, marking, values: BTreeMap::new(), read: BTreeSet::new() }];
        let (mut seen, mut told) = (BTreeSet::new(), 0);
        while let Some(mut world) = open.pop() {
            world.check(&segment);
            if !seen.insert(format!("{world:?}")) {
                continue;
            }
            assert!(!world.is_held_up(&segment), "{world:?}");
            told += usize::from(world.writers.iter().any(|writer| writer.is_refused));
            if world.marking.is_some() {
                let mut next = world.clone();
                next.mark(&segment);
                open.push(next);
            }
            for nth in 0..world.writers.len() {
                if !world.writers[nth].is_over() {
                    let mut next = world.clone();
                    next.writers[nth].step(&segment, &mut next.memory);
                    open.push(next);
                }
            }
        }
        (seen.len(), told)
    }

    #[test]
    fn copies_go_the_same_way_in_whatever_order_writers_come() {
        for (copies, writers, least) in [(2, 2, 400), (2, 3, 30_000), (3, 2, 800)] {
            let (states, told) = explore(copies, writers, false);
            println!("counted: {copies} copies, {writers} writers: {states} states");
            assert!(states > least && told == 0, "{states} {told}");
        }
    }

    #[test]
    fn nobody_is_told_of_a_release_before_it_is_at_all_copies() {
        let mut all = vec![(2, 2, 400), (3, 2, 800)];
        // Of these there are 276,000: half a minute without optimization.
        all.extend(std::env::var_os("VERBENA_LONG").map(|_| (2, 3, 200_000)));
        for (copies, writers, least) in all {
            let (states, told) = explore(copies, writers, true);
            println!(
                "counted: {copies} copies, {writers} writers, a release: {states} states, {told} after it was told"
            );
            assert!(states > least && told > least / 4, "{states} {told}");
        }
    }
}
