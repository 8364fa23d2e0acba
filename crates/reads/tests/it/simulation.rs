//! A relay that stores word by word, and a proxy that reads word by word between its stores: whatever a request can have read is in what the proxy makes of it, or the proxy
//! knows that it does not know.

use verbena_reads::layout::{EPOCH_AT, Layout, MOMENT_AT, WRITTEN_AT};
use verbena_reads::{End, Entry, Group, Read, Reading, Rules, Seen, Start, Writer};
use verbena_terms::Incarnation;

const OWN: u64 = 7;
const OTHER: u64 = 8;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % below
    }
}

/// A statement that the relay has recorded, or is about to.
struct Statement {
    entry: Entry,
    /// When its transaction began, its first word was stored, and its answer passed on.
    began: Option<u64>,
    first: u64,
    passed: Option<u64>,
}

struct World {
    random: Random,
    memory: Vec<u64>,
    layout: Layout,
    writer: Writer,
    /// What the relay is about to store, in its order.
    stores: std::collections::VecDeque<(u64, u64)>,
    statements: Vec<Statement>,
    /// Moments of open transactions, and when each was counted.
    transactions: Vec<(u64, u64)>,
    /// Stores and loads so far.
    time: u64,
    /// After so many stores the relay dies.
    dies_at: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let ring_words = 32 << random.next(3);
        let layout = Layout { owner: Incarnation::new(2, 1), ring_words, names: 1, is_complete: true };
        let memory = vec![0; usize::try_from(layout.bytes() / 8).unwrap()];
        let mut world = World {
            memory,
            layout,
            writer: Writer::new(layout, 0),
            stores: Default::default(),
            statements: Vec::new(),
            transactions: Vec::new(),
            time: 1,
            dies_at: if random.next(4) == 0 { 100 + random.next(400) } else { u64::MAX },
            random,
        };
        world.write(|writer, stores| writer.open(true, |stored| stores.push_back(stored)));
        world
    }

    fn write<T>(&mut self, what: impl FnOnce(&mut Writer, &mut std::collections::VecDeque<(u64, u64)>) -> T) -> T {
        what(&mut self.writer, &mut self.stores)
    }

    /// One store of the relay, which decides what is next when it has stored all that there was.
    fn relay(&mut self) {
        if self.time >= self.dies_at {
            return;
        }
        let Some((at, word)) = self.stores.pop_front() else { return self.decide() };
        self.memory[usize::try_from(at / 8).unwrap()] = word;
        if self.stores.is_empty()
            && let Some(last) = self.statements.last_mut().filter(|last| last.passed.is_none())
        {
            last.passed = Some(self.time);
        }
    }

    fn decide(&mut self) {
        let (time, name) = (self.time, self.statements.len() as u64 + 100);
        match self.random.next(16) {
            0 => {
                let is_open = self.writer.is_open();
                self.write(|writer, stores| writer.open(!is_open, |stored| stores.push_back(stored)));
            }
            1 => {
                let moment = self.write(|writer, stores| writer.moment(|stored| stores.push_back(stored)));
                self.transactions.push((moment, time));
            }
            2..10 => {
                let tag = [None, Some(OWN), Some(OTHER)][self.random.next(3) as usize];
                let since = match self.transactions.len() as u64 {
                    0 => None,
                    count => (self.random.next(3) == 0).then(|| self.transactions[self.random.next(count) as usize]),
                };
                let names = (0..self.random.next(3)).map(|more| 1_000_000 * (more + 1) + name);
                let names = [name].into_iter().chain(names).collect();
                let seen = Seen::Names(vec![Group { table: 1, any: 2, names }]);
                let entry = Entry { tag, since: since.map(|(moment, _)| moment), seen };
                self.write(|writer, stores| writer.record(&entry, |stored| stores.push_back(stored)));
                // One that is not recorded is passed on all the same.
                let passed = self.stores.is_empty().then_some(time);
                self.statements.push(Statement { entry, began: since.map(|(_, at)| at), first: time, passed });
            }
            _ => {}
        }
    }

    /// A load of the proxy, after some stores of the relay.
    fn load(&mut self, at: u64) -> u64 {
        // Now and then it is held up for as long as the ring takes to come round.
        let most = if self.random.next(24) == 0 { 400 } else { 3 };
        for _ in 0..self.random.next(most) {
            self.time += 1;
            self.relay();
        }
        self.memory[usize::try_from(at / 8).unwrap()]
    }

    /// A fill: what it makes of the ring, when its first look began and ended, and when its second began.
    fn fill(&mut self, rules: Rules) -> (Read, [u64; 3]) {
        let looked = self.time;
        let (epoch, moment) = (self.load(EPOCH_AT), self.load(MOMENT_AT));
        let start = Start { epoch, moment, written: self.load(WRITTEN_AT) };
        let forwarded = self.time;
        for _ in 0..self.random.next(60) {
            self.time += 1;
            self.relay();
        }
        self.time += 1;
        let ended = self.time;
        let (epoch, written) = (self.load(EPOCH_AT), self.load(WRITTEN_AT));
        let mut words = Vec::new();
        let mut read = |world: &mut World, span: verbena_reads::Span| {
            for (at, count) in span.parts(&world.layout) {
                words.extend((0..count).map(|word| world.load(at + 8 * word)));
            }
        };
        read(self, start.guess(&self.layout));
        let mut reading = Reading::with_rules(rules);
        match start.rest(&self.layout, written) {
            Ok(rest) => {
                if let Some(rest) = rest {
                    read(self, rest);
                }
                reading.add(OWN, &self.layout, &start, &End { epoch, written }, &words);
            }
            Err(why) => reading.lose(why),
        }
        (reading.read(), [looked, forwarded, ended])
    }

    /// What is wrong with a fill, if something is.
    fn judge(&self, read: &Read, [looked, forwarded, ended]: [u64; 3]) -> Option<String> {
        let is_in = |statement: &&Statement| {
            statement.entry.tag != Some(OTHER)
                && statement.first > forwarded
                && statement.passed.is_some_and(|passed| passed < ended)
        };
        for statement in self.statements.iter().filter(is_in) {
            let is_old = statement.began.is_some_and(|began| began < looked);
            let (Read::Names(names), Seen::Names(groups)) = (read, &statement.entry.seen) else { continue };
            if is_old {
                return Some(format!("a transaction that began at {:?}, before {looked}", statement.began));
            }
            if !groups.iter().flat_map(|group| &group.names).all(|name| names.contains(name)) {
                return Some(format!("{:?} is missing", statement.entry));
            }
        }
        if let Read::Names(names) = read {
            let known = |name: &u64| {
                let of = |statement: &Statement| match &statement.entry.seen {
                    Seen::Names(groups) => groups.iter().any(|group| group.names.contains(name)),
                    _ => false,
                };
                self.statements.iter().any(of)
            };
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Some(format!("{name} was never recorded"));
            }
        }
        None
    }
}

#[derive(Debug, Default)]
struct Tally {
    fills: u64,
    names: u64,
    lost: std::collections::BTreeMap<&'static str, u64>,
    old: u64,
    wrong: Vec<String>,
}

fn run(rules: Rules, seeds: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..12 {
            let (read, times) = world.fill(rules);
            tally.fills += 1;
            match &read {
                Read::Names(_) => tally.names += 1,
                Read::Lost(why) => *tally.lost.entry(why.name()).or_default() += 1,
                Read::OldSnapshot(_) => tally.old += 1,
                _ => {}
            }
            tally.wrong.extend(world.judge(&read, times).map(|why| format!("seed {seed}: {why}")));
        }
    }
    tally
}

#[test]
fn what_a_request_read_is_found_or_known_to_be_lost() {
    let tally = run(Rules::default(), 4_000);
    println!("{} fills: {} with names, {} old, lost {:?}", tally.fills, tally.names, tally.old, tally.lost);
    assert!(tally.wrong.is_empty(), "{} of {}: {}", tally.wrong.len(), tally.fills, tally.wrong[0]);
    assert!(tally.names > 10_000 && tally.old > 500, "{tally:?}");
    for why in ["overrun", "torn", "closed"] {
        assert!(tally.lost.get(why).is_some_and(|count| *count > 20), "{why}: {tally:?}");
    }
}

#[test]
fn each_guard_protects_something() {
    for (guard, rules) in [
        ("position", Rules { position: false, ..Rules::default() }),
        ("hash", Rules { hash: false, ..Rules::default() }),
        ("epoch", Rules { epoch: false, ..Rules::default() }),
        ("moment", Rules { moment: false, ..Rules::default() }),
    ] {
        let tally = run(rules, 4_000);
        println!("without {guard}: {} of {} wrong, such as {:?}", tally.wrong.len(), tally.fills, tally.wrong.first());
        assert!(!tally.wrong.is_empty(), "{guard} protects nothing");
    }
}
