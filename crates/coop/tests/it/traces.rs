//! The traces of chapter 7: files asked for uniformly through proxies with 64 MiB each, and what each scheme misses.
//!
//! The simulation carries out what the schemes say on exact slots with LRU at each node, as Table 7.1 counts them. It decides nothing itself.

use verbena_coop::placement::{Fetched, Measures, Scheme, Situation, Store, scheme};
use verbena_terms::Rank;

use crate::random::Random;

const FILES: usize = 10_240;
const NODE_BYTES: usize = 64 << 20;
const PASSIVE: usize = 2;
const REQUESTS: usize = 30_000;
const REQUESTS_LONG: usize = 60_000;
const SCHEMES: [&str; 7] = ["ac", "bcc", "ccwr", "mtacc", "hybcc", "hybcc-single", "adaptive"];

/// An LRU list over file numbers, as an array of links.
struct Lru {
    next: Vec<u32>,
    before: Vec<u32>,
    /// When it was used last; 0 if it is not here.
    used: Vec<u64>,
    len: usize,
    slots: usize,
    /// Files here that are elsewhere too.
    redundant: usize,
}

const END: u32 = FILES as u32;

impl Lru {
    fn new(slots: usize) -> Lru {
        let (mut next, mut before) = (vec![0; FILES + 1], vec![0; FILES + 1]);
        (next[FILES], before[FILES]) = (END, END);
        Lru { next, before, used: vec![0; FILES], len: 0, slots, redundant: 0 }
    }

    fn has(&self, file: u32) -> bool {
        self.used[file as usize] != 0
    }

    fn take(&mut self, file: u32) {
        let (next, before) = (self.next[file as usize], self.before[file as usize]);
        self.next[before as usize] = next;
        self.before[next as usize] = before;
        self.used[file as usize] = 0;
        self.len -= 1;
    }

    fn put(&mut self, file: u32, now: u64) {
        assert!(!self.has(file) && self.len < self.slots, "no room was made");
        let last = self.before[FILES];
        self.next[last as usize] = file;
        self.before[file as usize] = last;
        self.next[file as usize] = END;
        self.before[FILES] = file;
        self.used[file as usize] = now;
        self.len += 1;
    }

    fn touch(&mut self, file: u32, now: u64) {
        self.take(file);
        self.put(file, now);
    }

    fn files(&self) -> impl Iterator<Item = u32> + '_ {
        let known = |file: u32| (file != END).then_some(file);
        std::iter::successors(known(self.next[FILES]), move |file| known(self.next[*file as usize]))
    }

    fn age_of_oldest(&self) -> u64 {
        self.files().next().map_or(u64::MAX, |file| self.used[file as usize])
    }

    fn is_full(&self) -> bool {
        self.len == self.slots
    }
}

/// Hundredths of the requests behind the warm-up.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    local: f64,
    remote: f64,
    missed: f64,
}

impl Counts {
    /// Requests in the time of one local hit.
    fn rate(&self, (remote_cost, miss_cost): (f64, f64)) -> f64 {
        100.0 / (self.local + self.remote * (1.0 + remote_cost) + self.missed * (1.0 + miss_cost))
    }
}

struct Pool {
    nodes: Vec<Lru>,
    proxies: usize,
    /// The nodes where each file is.
    holders: Vec<Vec<usize>>,
    /// Of each node, for each file: which of its evictions of a copy, and of a single file, was the last of that file; 0: none.
    ghosts: Vec<[Vec<u64>; 2]>,
    evictions: Vec<[u64; 2]>,
    measures: Vec<Measures>,
    now: u64,
}

impl Pool {
    fn new(proxies: usize, slots: usize) -> Pool {
        let nodes = (0..proxies + PASSIVE).map(|_| Lru::new(slots)).collect();
        let all = proxies + PASSIVE;
        let ghosts = vec![[vec![0; FILES], vec![0; FILES]]; all];
        let (evictions, measures) = (vec![[0; 2]; all], vec![Measures::default(); all]);
        Pool { nodes, proxies, holders: vec![vec![]; FILES], ghosts, evictions, measures, now: 0 }
    }

    fn situation(&self, at: usize, bytes: usize, from: Option<usize>, uses_passive: bool) -> Situation {
        let rank = |node: usize| Rank(node as u32 + 1);
        let free = |nodes: std::ops::Range<usize>| {
            nodes.into_iter().find(|&node| node != at && !self.nodes[node].is_full()).map(rank)
        };
        let all = if uses_passive { self.nodes.len() } else { self.proxies };
        let remote_redundant = (0..all).find(|&node| node != at && self.nodes[node].redundant > 0);
        let age = |node: usize| self.nodes[node].age_of_oldest();
        let passive_older = (self.proxies..all).filter(|&node| age(node) < age(at)).min_by_key(|&node| age(node));
        Situation {
            bytes: bytes as u32,
            has_local_free: !self.nodes[at].is_full(),
            active_free: free(0..self.proxies),
            passive_free: free(self.proxies..all),
            has_local_redundant: self.nodes[at].redundant > 0,
            remote_redundant: remote_redundant.map(rank),
            is_redundant_passive: remote_redundant.is_some_and(|node| node >= self.proxies),
            passive_older: passive_older.map(rank),
            copies_share: (self.nodes[at].redundant * 10_000 / self.nodes[at].slots) as u16,
            is_at_passive: from.is_some_and(|node| node >= self.proxies),
        }
    }

    fn put(&mut self, node: usize, file: u32) {
        self.nodes[node].put(file, self.now);
        let holders = &mut self.holders[file as usize];
        holders.push(node);
        match holders[..] {
            [_] => {}
            [first, _] => [first, node].into_iter().for_each(|node| self.nodes[node].redundant += 1),
            _ => self.nodes[node].redundant += 1,
        }
    }

    fn take(&mut self, node: usize, file: u32) {
        self.nodes[node].take(file);
        let holders = &mut self.holders[file as usize];
        holders.retain(|holder| *holder != node);
        match holders[..] {
            [] => {}
            [other] => [other, node].into_iter().for_each(|node| self.nodes[node].redundant -= 1),
            _ => self.nodes[node].redundant -= 1,
        }
    }

    fn oldest_redundant(&self, node: usize) -> Option<u32> {
        let has_any = self.nodes[node].redundant > 0;
        has_any.then(|| self.nodes[node].files().find(|file| self.holders[*file as usize].len() > 1))?
    }

    /// Room for one more, of redundant files first if the scheme wants that.
    fn make_room(&mut self, node: usize, redundant_first: bool) {
        if !self.nodes[node].is_full() {
            return;
        }
        let redundant = if redundant_first { self.oldest_redundant(node) } else { None };
        let victim = redundant.or_else(|| self.nodes[node].files().next()).unwrap();
        self.take(node, victim);
        let kind = usize::from(self.holders[victim as usize].is_empty());
        self.evictions[node][kind] += 1;
        self.ghosts[node][kind][victim as usize] = self.evictions[node][kind];
    }

    /// Whether this file left the node a little while ago, as a copy (0) or as a single one (1).
    fn is_ghost(&self, node: usize, kind: usize, file: u32) -> bool {
        let left = self.ghosts[node][kind][file as usize];
        left != 0 && self.evictions[node][kind] - left < self.nodes[node].slots as u64 / 8
    }

    /// 0: hit here, 1: elsewhere, 2: missed.
    fn request(&mut self, at: usize, file: u32, bytes: usize, scheme: &mut dyn Scheme) -> usize {
        self.now += 1;
        if self.nodes[at].has(file) {
            self.nodes[at].touch(file, self.now);
            return 0;
        }
        let from = self.holders[file as usize].first().copied().filter(|_| scheme.cooperates());
        let situation = self.situation(at, bytes, from, scheme.uses_passive(bytes as u32));
        let is_first = scheme.drops_redundant_first();
        let Some(from) = from else {
            for node in 0..self.nodes.len() {
                self.measures[node].ghost_misses += u64::from(self.is_ghost(node, 1, file));
            }
            let node_of = |rank: Rank| rank.0 as usize - 1;
            let node = match scheme.store(&situation) {
                Store::Local | Store::OverRedundant | Store::Replace => at,
                Store::Remote(there) | Store::OverRemoteRedundant(there) | Store::ReplaceAt(there) => node_of(there),
            };
            self.make_room(node, is_first);
            self.put(node, file);
            return 2;
        };
        self.measures[at].ghost_reads += u64::from(self.is_ghost(at, 0, file));
        match scheme.fetched(&situation) {
            Fetched::Stay => self.nodes[from].touch(file, self.now),
            Fetched::Copy => {
                self.nodes[from].touch(file, self.now);
                self.make_room(at, false);
                self.put(at, file);
            }
            Fetched::CopyOver => {
                self.nodes[from].touch(file, self.now);
                self.make_room(at, true);
                self.put(at, file);
            }
            Fetched::Move => {
                self.take(from, file);
                self.make_room(at, true);
                self.put(at, file);
            }
            Fetched::Swap => {
                let other = self.nodes[at].files().next().unwrap();
                self.take(at, other);
                self.take(from, file);
                self.put(at, file);
                if !self.nodes[from].has(other) {
                    self.put(from, other);
                }
            }
        }
        1
    }
}

fn run(name: &str, proxies: usize, file_bytes: usize, costs: (f64, f64), requests: usize) -> Counts {
    let mut schemes: Vec<_> = (0..proxies).map(|_| scheme(name).unwrap()).collect();
    let mut random = Random::new(7);
    let mut pool = Pool::new(proxies, NODE_BYTES / file_bytes);
    let mut counts = [0u64; 3];
    // Alone, each proxy has to see each file.
    let warm = requests * proxies;
    for request in 0..warm + requests {
        let (at, file) = (random.below(proxies), random.below(FILES) as u32);
        let outcome = pool.request(at, file, file_bytes, schemes[at].as_mut());
        if request >= warm {
            counts[outcome] += 1;
        }
        if request % 2_000 == 1_999 {
            let measures = std::mem::replace(&mut pool.measures, vec![Measures::default(); proxies + PASSIVE]);
            for (node, scheme) in schemes.iter_mut().enumerate() {
                let (remote_cost, miss_cost) = costs;
                let is_full = pool.nodes[node].is_full();
                scheme.measured(&Measures { remote_cost, miss_cost, is_full, ..measures[node] });
            }
        }
    }
    if ["ccwr", "mtacc", "hybcc-single"].contains(&name) {
        assert!(pool.nodes.iter().all(|node| node.redundant == 0), "{name} keeps no object twice");
    }
    let [local, remote, missed] = counts.map(|count| count as f64 * 100.0 / requests as f64);
    Counts { local, remote, missed }
}

/// Misses of Table 7.1's configurations in hundredths, 8k to 64k: what exact slots with LRU give.
const EXPECTED: [(&str, usize, [f64; 4]); 16] = [
    ("ac", 2, [20.0, 60.0, 80.0, 90.0]),
    ("bcc", 2, [5.0, 40.0, 66.0, 82.0]),
    ("ccwr", 2, [0.0, 20.0, 60.0, 80.0]),
    ("mtacc", 2, [0.0, 0.0, 20.0, 60.0]),
    ("ac", 4, [20.0, 60.0, 80.0, 90.0]),
    ("bcc", 4, [0.0, 18.0, 46.0, 68.0]),
    ("ccwr", 4, [0.0, 0.0, 20.0, 60.0]),
    ("mtacc", 4, [0.0, 0.0, 0.0, 40.0]),
    ("ac", 8, [20.0, 60.0, 80.0, 90.0]),
    ("bcc", 8, [0.0, 4.0, 24.0, 49.0]),
    ("ccwr", 8, [0.0, 0.0, 0.0, 20.0]),
    ("mtacc", 8, [0.0, 0.0, 0.0, 0.0]),
    ("ac", 10, [20.0, 60.0, 80.0, 90.0]),
    ("bcc", 10, [0.0, 2.0, 17.0, 42.0]),
    ("ccwr", 10, [0.0, 0.0, 0.0, 0.0]),
    ("mtacc", 10, [0.0, 0.0, 0.0, 0.0]),
];

/// A remote read takes a tenth longer than a local hit, a miss six times as long.
const COSTS: (f64, f64) = (0.1, 5.0);

#[test]
fn schemes_miss_what_the_memory_cannot_hold() {
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let requests = if is_long { REQUESTS_LONG } else { REQUESTS };
    let proxies: &[usize] = if is_long { &[2, 4, 8, 10] } else { &[2, 8] };
    println!("misses in hundredths, and in brackets requests in the time of one local hit");
    println!("{:18} {:>7}  {:>14} {:>14} {:>14} {:>14}", "scheme", "proxies", "8k", "16k", "32k", "64k");
    let mut most_over = [0.0f64; 2];
    for &proxies in proxies {
        let mut rates = vec![];
        for name in SCHEMES {
            let cells = [8, 16, 32, 64].map(|kib| run(name, proxies, kib << 10, COSTS, requests));
            let shown = cells.map(|cell| format!("{:5.1} ({:4.2})", cell.missed, cell.rate(COSTS)));
            println!("{name:18} {proxies:>7}  {:>14} {:>14} {:>14} {:>14}", shown[0], shown[1], shown[2], shown[3]);
            let expected = EXPECTED.iter().find(|row| row.0 == name && row.1 == proxies);
            for (cell, expected) in cells.iter().zip(expected.into_iter().flat_map(|row| row.2)) {
                assert!((cell.missed - expected).abs() <= 3.0, "{name}, {proxies} proxies: {cell:?}, not {expected}");
            }
            rates.push(cells.map(|cell| cell.rate(COSTS)));
        }
        for size in 0..4 {
            let best = rates.iter().map(|row| row[size]).fold(0.0, f64::max);
            for name in ["hybcc", "adaptive"] {
                let rate = rates[SCHEMES.iter().position(|scheme| *scheme == name).unwrap()][size];
                assert!(rate >= 0.97 * best, "{name}, {proxies} proxies, size {size}: {rate} of {best}");
            }
            most_over[0] = most_over[0].max(best / rates[0][size]);
            most_over[1] = most_over[1].max(best / rates[1][size]);
        }
    }
    println!("the best scheme is at most {:.2} times AC and {:.2} times BCC", most_over[0], most_over[1]);
    assert!(most_over[0] >= 2.8 && most_over[1] >= 1.35, "{most_over:?}");
}
