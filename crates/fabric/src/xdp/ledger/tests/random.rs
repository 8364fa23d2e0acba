//! Thousands of operations over a network that loses, doubles, delays and reorders, to a target that forgets its caller now and then.
//!
//! Every element with an effect adds 1 to a word of its own, so that the target's memory says how often it was executed, whatever
//! ledger and window believe.

use super::*;
use crate::operation::Done;
use crate::sim::Dice;
use crate::window::WINDOW;

const BATCHES: usize = 4000;
const LARGEST: u64 = 130;
/// What a word is before 1 is added to it.
const BEFORE: u64 = 1000;

struct Run {
    pair: Pair,
    dice: Dice,
    /// What is on its way: when it comes, whether to the target, and what it is.
    network: Vec<(Time, bool, Vec<u8>)>,
    batches: Vec<Posted>,
    /// Identifier, the word that the operation adds to, and the outcome.
    settles: Vec<(u64, usize, Pending<Settled>)>,
    next_word: u64,
    /// When to settle what ended as unknown, and the word that it adds to.
    unsettled: Vec<(Time, u64, usize)>,
    seen: Seen,
}

struct Posted {
    /// The words that its effects add to, in order.
    adds: Vec<usize>,
    kinds: Vec<Kind>,
    pending: Pending<Completed>,
}

#[derive(Clone, Copy)]
enum Kind {
    Add,
    /// Reads the word that the element before it adds to.
    ReadAfter,
    ReadMany(usize),
}

#[derive(Debug, Default)]
struct Seen {
    done: u64,
    executed: u64,
    barred: u64,
    late: u64,
    unknown: u64,
    forgotten: u64,
    settle_first: u64,
    full: u64,
    strangers: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut pair = Pair::new(0);
        pair.target.memory = vec![BEFORE; BATCHES * 12];
        Run {
            pair,
            dice: Dice::new(seed),
            network: Vec::new(),
            batches: Vec::new(),
            settles: Vec::new(),
            next_word: 0,
            unsettled: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn deadline(&mut self) -> Time {
        self.pair.now + self.dice.between(Duration::from_millis(1), Duration::from_millis(400))
    }

    fn post(&mut self) {
        let size = if self.dice.happens(30) { LARGEST } else { 5 };
        let (mut batch, mut adds, mut kinds) = (Batch::new(), Vec::new(), Vec::new());
        for _ in 0..=self.dice.below(size) {
            let room = self.next_word < self.pair.target.memory.len() as u64;
            match self.dice.below(20) {
                0 => {
                    let (at, length) = (self.dice.below(1000), self.dice.below(3000) as usize);
                    batch.push(self.pair.read(at, length));
                    kinds.push(Kind::ReadMany(length));
                }
                1..=4 if !adds.is_empty() && matches!(kinds.last(), Some(Kind::Add)) => {
                    batch.push(Operation::ReadWord { at: 8 * (self.next_word - 1) });
                    kinds.push(Kind::ReadAfter);
                }
                _ if room => {
                    batch.push(Operation::FetchAdd { at: 8 * self.next_word, addend: 1 });
                    adds.push(self.next_word as usize);
                    kinds.push(Kind::Add);
                    self.next_word += 1;
                }
                _ => {}
            }
        }
        let deadline = self.deadline();
        let pending = self.pair.post(batch, deadline);
        self.batches.push(Posted { adds, kinds, pending });
    }

    /// Sends what is due into the network.
    fn send(&mut self) {
        let now = self.pair.now;
        let next = self.pair.expire(now);
        for frame in self.pair.gather_all() {
            self.enter(true, &frame);
        }
        assert!(next > now || self.pair.expire(now) > now, "it does not want to be called at once for ever");
    }

    fn enter(&mut self, to_target: bool, bytes: &[u8]) {
        let copies = if self.dice.happens(200) { 0 } else { 1 + u64::from(self.dice.happens(100)) };
        for _ in 0..copies {
            let most = if self.dice.happens(50) { 150_000 } else { 6000 };
            let delay = self.dice.between(Duration::from_micros(50), Duration::from_micros(most));
            self.network.push((self.pair.now + delay, to_target, bytes.to_vec()));
        }
    }

    fn arrive(&mut self) {
        let now = self.pair.now;
        let (come, coming): (Vec<_>, _) = self.network.drain(..).partition(|(at, ..)| *at <= now);
        self.network = coming;
        for (_, to_target, bytes) in come {
            if to_target {
                if let Some(answer) = self.pair.target.receive(&bytes) {
                    self.enter(false, &answer);
                }
            } else if self.pair.take(&bytes) == Arrival::Stranger {
                self.seen.strangers += 1;
                let key = self.pair.target.introduce(self.pair.ledger.next_id());
                self.pair.ledger.introduced(CALLER, key);
            }
        }
    }

    fn added(&self, word: usize) -> u64 {
        self.pair.target.memory[word] - BEFORE
    }

    /// Looks at what has ended, and checks it against the memory.
    fn harvest(&mut self) {
        for mut posted in std::mem::take(&mut self.batches) {
            match posted.pending.poll_now() {
                None => self.batches.push(posted),
                Some(Ok(results)) => self.completed(&posted, &results),
                Some(Err(Error::Unknown { first, last, .. })) => {
                    self.seen.unknown += 1;
                    let ids = first.map_or(0, |first| first.0)..=last.map_or(0, |last| last.0);
                    assert_eq!(first.is_some(), !posted.adds.is_empty());
                    for (word, id) in posted.adds.into_iter().zip(ids) {
                        let rest = if self.dice.happens(5) { 300 } else { 5 };
                        self.unsettled.push((self.pair.now + Duration::from_millis(rest), id, word));
                    }
                }
                Some(Err(error)) => {
                    match error {
                        Error::Late => self.seen.late += 1,
                        Error::Full { .. } => self.seen.full += 1,
                        Error::SettleFirst { .. } => self.seen.settle_first += 1,
                        other => panic!("{other}"),
                    }
                    assert!(posted.adds.iter().all(|word| self.added(*word) == 0), "it never left");
                }
            }
        }
        for (id, word, mut pending) in std::mem::take(&mut self.settles) {
            match pending.poll_now() {
                None => self.settles.push((id, word, pending)),
                Some(Ok(Settled::Executed(before))) => {
                    self.seen.executed += 1;
                    assert_eq!((self.added(word), before), (1, BEFORE));
                }
                Some(Ok(Settled::Barred)) => {
                    self.seen.barred += 1;
                    assert_eq!(self.added(word), 0);
                    self.pair.target.memory[word] = u64::MAX - 1;
                }
                Some(Err(Error::Forgotten { .. })) => {
                    self.seen.forgotten += 1;
                    assert!(self.seen.strangers > 0, "the window keeps what is not settled");
                }
                Some(Err(_)) => self.unsettled.push((self.pair.now, id, word)),
            }
        }
    }

    fn completed(&mut self, posted: &Posted, results: &[Done]) {
        assert_eq!(results.len(), posted.kinds.len());
        for (kind, result) in posted.kinds.iter().zip(results) {
            match (kind, result) {
                (Kind::Add, Done::Word(before)) => assert_eq!(*before, BEFORE),
                (Kind::ReadAfter, Done::Word(word)) => assert_eq!(*word, BEFORE + 1, "a batch is in order"),
                (Kind::ReadMany(length), Done::Buffer(read)) => assert_eq!(read.len(), *length),
                other => panic!("{:?}", other.1),
            }
        }
        self.seen.done += posted.adds.len() as u64;
        assert!(posted.adds.iter().all(|word| self.added(*word) == 1));
    }

    fn settle_what_is_unknown(&mut self) {
        let now = self.pair.now;
        let (due, rest): (Vec<_>, _) = self.unsettled.drain(..).partition(|(at, ..)| *at <= now);
        self.unsettled = rest;
        for (_, id, word) in due {
            let deadline = self.deadline();
            self.settles.push((id, word, self.pair.settle(id, deadline)));
        }
    }

    fn step(&mut self) {
        self.pair.now = self.pair.now + self.dice.between(Duration::ZERO, Duration::from_millis(1));
        self.arrive();
        self.settle_what_is_unknown();
        self.send();
        self.harvest();
        assert!(self.pair.ledger.open.span() <= WINDOW as u64);
    }
}

fn run(seed: u64, forgets: bool) -> Seen {
    let mut run = Run::new(seed);
    let mut left = BATCHES;
    for step in 0.. {
        assert!(step < 200_000, "everything ends");
        if left == 0 && run.batches.is_empty() && run.settles.is_empty() && run.unsettled.is_empty() {
            break;
        }
        let posts = if run.dice.happens(150) { run.dice.below(9) } else { 0 };
        for _ in 0..posts.min(left as u64) {
            run.post();
            left -= 1;
        }
        if forgets && run.dice.happens(2) {
            run.pair.target.knows = false;
        }
        run.step();
    }
    // What is still on its way is never executed again.
    let before = run.pair.target.memory.clone();
    run.pair.now = MUCH_LATER + Duration::from_secs(100);
    run.arrive();
    if !forgets {
        assert_eq!(run.pair.target.memory, before);
        let sum: u64 = before.iter().filter(|word| **word < u64::MAX - 1).map(|word| word - BEFORE).sum();
        assert_eq!(sum, run.seen.done + run.seen.executed);
        assert_eq!(run.seen.forgotten, 0);
    }
    assert!(before.iter().all(|word| matches!(*word, BEFORE | 1001) || *word == u64::MAX - 1), "once or not at all");
    assert!(run.pair.ledger.open.is_empty() && run.pair.ledger.frames.remembered() == 0);
    assert_eq!(run.pair.ledger.queued_effects, 0);
    assert_eq!(run.pair.ledger.counts().malformed == 0, !forgets, "{:?}", run.pair.ledger.counts());
    run.seen
}

#[test]
fn whatever_the_network_does_everything_ends_and_happens_once_or_never() {
    let mut all = Seen::default();
    for seed in 0..4 {
        let seen = run(seed, false);
        all.settle_first += seen.settle_first;
        all.barred += seen.barred;
        all.late += seen.late;
        assert!(seen.done > 1000 && seen.executed > 50 && seen.unknown > 100, "seed {seed}: {seen:?}");
    }
    assert!(all.settle_first > 0 && all.barred > 0 && all.late > 0, "{all:?}");
}

#[test]
fn a_target_that_forgets_its_caller_executes_nothing_twice() {
    for seed in 0..2 {
        let seen = run(seed, true);
        assert!(seen.strangers > 3 && seen.forgotten > 0 && seen.done > 1000, "seed {seed}: {seen:?}");
    }
}
