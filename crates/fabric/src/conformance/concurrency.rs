//! F3: many nodes on one word at once.

use std::collections::VecDeque;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use verbena_terms::Time;

use super::harness::{Able, Harness};
use super::scene::{PATIENCE, Scene, VIEW, bytes, node, open, soon};
use crate::{
    AtomicScope, Batch, Class, Completed, Error, Fabric, Operation, Pending, Region, Result, Rights, SharedRemote,
};

const NODES: usize = 4;

/// What each node does at least.
const ADDITIONS: u64 = 1000;
const WINS: u64 = 100;

/// How long threads go on, so that they are sure to meet however fast one of them is. In turns they meet anyway.
const STINT: Duration = Duration::from_millis(100);

/// F3: of additions by many nodes, several in flight at each, none is lost and no two find the same word.
pub fn concurrent_additions_all_count(harness: &mut dyn Harness) -> Able<()> {
    let crowd = Crowd::new(harness);
    let mut seen: Vec<Vec<u64>> = vec![Vec::new(); NODES];
    let workers = crowd.members.iter().zip(&mut seen).map(|(member, seen)| {
        let mut posted = 0;
        let crowd = &crowd;
        member.worker(8, move |result| {
            seen.extend(result.map(|done| words(&done)[0]));
            posted += 1;
            crowd.goes_on(posted <= ADDITIONS).then(|| Batch::one(Operation::FetchAdd { at: 0, addend: 1 }))
        })
    });
    together(harness, workers.collect());
    let mut all: Vec<u64> = seen.concat();
    let added = all.len() as u64;
    all.sort_unstable();
    assert!(all.into_iter().eq(0..added), "each addition found another word");
    assert!(added >= NODES as u64 * ADDITIONS);
    assert_eq!(crowd.region.load(0), Ok(added));
    Ok(())
}

/// F3: of swaps that expect the same word one succeeds.
pub fn concurrent_swaps_have_one_winner_each(harness: &mut dyn Harness) -> Able<()> {
    let crowd = Crowd::new(harness);
    let mut won: Vec<Vec<u64>> = vec![Vec::new(); NODES];
    let workers = crowd.members.iter().zip(&mut won).map(|(member, won)| {
        let mut expected = 0;
        let crowd = &crowd;
        member.worker(1, move |result| {
            if let Some(done) = result {
                let found = words(&done)[0];
                if found == expected {
                    won.push(found);
                    expected += 1;
                } else {
                    expected = found;
                }
            }
            crowd
                .goes_on(won.len() < WINS as usize)
                .then(|| Batch::one(Operation::CompareSwap { at: 0, expected, desired: expected + 1 }))
        })
    });
    together(harness, workers.collect());
    let mut all: Vec<u64> = won.concat();
    let wins = all.len() as u64;
    all.sort_unstable();
    assert!(all.into_iter().eq(0..wins), "each word was swapped once");
    assert!(wins >= NODES as u64 * WINS);
    assert_eq!(crowd.region.load(0), Ok(wins));
    Ok(())
}

/// F3: the owner's own atomics count against the peers', or are refused, as [`AtomicScope`] says.
pub fn the_owners_atomics_are_as_the_scope_says(harness: &mut dyn Harness) -> Able<()> {
    let crowd = Crowd::new(harness);
    let Crowd { owner, region, members, .. } = &crowd;
    if owner.capabilities().atomic_scope == AtomicScope::Fabric {
        assert_eq!(region.fetch_add(0, 1), Err(Error::PostInstead));
        assert_eq!(region.compare_swap(0, 0, 1), Err(Error::PostInstead));
        assert_eq!(region.load(0), Ok(0));
        return Ok(());
    }
    assert_eq!(region.compare_swap(8, 0, 5), Ok(0));
    assert_eq!(region.compare_swap(8, 0, 6), Ok(5));
    assert_eq!(region.fetch_add(8, 2), Ok(5));
    assert_eq!(region.load(8), Ok(7));
    let mut added = [0; NODES];
    let [by_owner, by_members @ ..] = &mut added;
    let crowd = &crowd;
    let mut workers: Vec<Worker<'_>> = members[1..]
        .iter()
        .zip(by_members)
        .map(|(member, added)| {
            member.worker(4, move |_| {
                crowd.goes_on(*added < ADDITIONS).then(|| {
                    *added += 1;
                    Batch::one(Operation::FetchAdd { at: 0, addend: 1 })
                })
            })
        })
        .collect();
    workers.push(Worker::new(1, move || {
        region.fetch_add(0, 1).expect("an owner adds");
        *by_owner += 1;
        crowd.goes_on(*by_owner < ADDITIONS).then(|| Pending::ready(Ok(Completed::new())))
    }));
    together(harness, workers);
    assert!(added.iter().all(|added| *added >= ADDITIONS), "{added:?}");
    assert_eq!(region.load(0), Ok(added.iter().sum()));
    Ok(())
}

/// A word is never torn, alone or inside a larger read or write.
pub fn words_are_never_torn(harness: &mut dyn Harness) -> Able<()> {
    const PATTERNS: [u64; 2] = [0, u64::MAX];
    let crowd = Crowd::new(harness);
    let Crowd { region, members, .. } = &crowd;
    let crowd = &crowd;
    let [pool, other_pool] = [1, 3].map(|member| members[member].node.pool());
    let mut checked = [0; 2];
    let [by_word, by_bytes] = &mut checked;
    let mut turns = [0usize; 2];
    let [word_turn, bytes_turn] = &mut turns;
    let workers = vec![
        members[0].worker(2, move |_| {
            *word_turn += 1;
            crowd
                .goes_on(*word_turn <= 1000)
                .then(|| Batch::one(Operation::WriteWord { at: 0, value: PATTERNS[*word_turn % 2] }))
        }),
        members[1].worker(2, move |_| {
            *bytes_turn += 1;
            let pattern = [[0; 64], [0xff; 64]][*bytes_turn % 2];
            let from = || pool.copy_of(&pattern).expect("the pool has room for a check's buffer");
            crowd.goes_on(*bytes_turn <= 1000).then(|| Batch::one(Operation::Write { at: 64, from: from() }))
        }),
        members[2].worker(2, move |result| {
            for word in result.iter().flat_map(words) {
                assert!(PATTERNS.contains(&word), "torn: {word:#x}");
                *by_word += 1;
            }
            crowd.goes_on(*by_word < 2000).then(|| Batch::read_words(&[0, 64, 72]))
        }),
        members[3].worker(2, move |result| {
            for done in result.into_iter().flatten() {
                let bytes = bytes(done);
                for word in bytes.as_chunks::<8>().0 {
                    assert!(PATTERNS.contains(&u64::from_ne_bytes(*word)), "torn: {word:x?}");
                    *by_bytes += 1;
                }
            }
            let into = || other_pool.take(128).expect("the pool has room for a check's buffer");
            crowd.goes_on(*by_bytes < 20_000).then(|| Batch::one(Operation::Read { at: 0, into: into() }))
        }),
    ];
    together(harness, workers);
    assert!(checked[0] >= 2000 && checked[1] >= 20_000, "{checked:?}");
    assert!(region.load(0).is_ok_and(|word| PATTERNS.contains(&word)));
    Ok(())
}

/// One region, and many nodes that have it open.
struct Crowd {
    owner: Arc<dyn Fabric>,
    region: Box<dyn Region>,
    members: Vec<Member>,
    /// Until when all members go on.
    until: Time,
}

struct Member {
    node: Arc<dyn Fabric>,
    remote: SharedRemote,
}

impl Crowd {
    fn new(harness: &mut dyn Harness) -> Crowd {
        let Scene { owner, region, caller, remote } = Scene::new(harness, 4096);
        let mut members = vec![Member { node: caller, remote }];
        while members.len() < NODES {
            let node = node(harness);
            let remote = open(&*node, &*owner, &region.key(Rights::Change)).expect("a key opens its region");
            members.push(Member { node, remote });
        }
        assert_eq!(region.key(Rights::Change).view, VIEW);
        let until = if harness.threads() { owner.clock().now() + STINT } else { Time::ZERO };
        Crowd { owner, region, members, until }
    }

    /// Whether a worker that still has something to do goes on, or one that has not.
    fn goes_on(&self, has_more: bool) -> bool {
        has_more || self.owner.clock().now() < self.until
    }
}

impl Member {
    /// A worker that keeps `depth` batches in flight. It calls `next` with each result (at first none); `next` gives
    /// the next batch, as long as there is one.
    fn worker<'a>(
        &'a self,
        depth: usize,
        mut next: impl FnMut(Option<Completed>) -> Option<Batch> + Send + 'a,
    ) -> Worker<'a> {
        Worker {
            depth,
            step: Box::new(move |result| {
                let done = result.map(|result| result.expect("a sound link loses nothing"));
                next(done).map(|batch| self.remote.post(batch, Class::Control, soon(&*self.node)))
            }),
        }
    }
}

type Step<'a> = Box<dyn FnMut(Option<Result<Completed>>) -> Option<Pending<Completed>> + Send + 'a>;

/// A step that posts, receives the outcome, and posts again.
struct Worker<'a> {
    depth: usize,
    step: Step<'a>,
}

impl<'a> Worker<'a> {
    fn new(depth: usize, mut step: impl FnMut() -> Option<Pending<Completed>> + Send + 'a) -> Self {
        Worker { depth, step: Box::new(move |_| step()) }
    }
}

/// Runs workers to their end: each in a thread, or all in turns where nodes must not be driven by threads.
fn together(harness: &mut dyn Harness, workers: Vec<Worker<'_>>) {
    if harness.threads() {
        let start = Barrier::new(workers.len());
        std::thread::scope(|scope| {
            for mut worker in workers {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let mut flying = VecDeque::new();
                    flying.extend((0..worker.depth).map_while(|_| (worker.step)(None)));
                    while let Some(pending) = flying.pop_front() {
                        flying.extend((worker.step)(Some(pending.wait())));
                    }
                });
            }
        });
        return;
    }
    let mut flying: Vec<(Worker<'_>, Vec<Pending<Completed>>)> = workers
        .into_iter()
        .map(|mut worker| {
            let first = (0..worker.depth).map_while(|_| (worker.step)(None)).collect();
            (worker, first)
        })
        .collect();
    // Far more turns than the work has; what does not end ends here.
    for _ in 0..50_000_000u64 {
        for (worker, pending) in &mut flying {
            let mut index = 0;
            while index < pending.len() {
                match pending[index].poll_now() {
                    None => index += 1,
                    Some(result) => match (worker.step)(Some(result)) {
                        Some(next) => {
                            pending[index] = next;
                            index += 1;
                        }
                        None => drop(pending.swap_remove(index)),
                    },
                }
            }
        }
        flying.retain(|(_, pending)| !pending.is_empty());
        if flying.is_empty() {
            return;
        }
        harness.advance();
    }
    panic!("work that takes a moment did not end in many times {PATIENCE:?}");
}

fn words(done: &Completed) -> Vec<u64> {
    done.iter().filter_map(crate::Done::word).collect()
}
