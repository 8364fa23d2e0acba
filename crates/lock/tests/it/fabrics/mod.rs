//! Each scheme over each provider that needs no adapter: services as nodes have them, whose clients take a lock by turns. What nodes use is killed, stopped and cut off
//! in `crates/cli/tests/it/lock_crashes`, and there over adapters too.

mod ground;
mod station;

use std::sync::atomic::{AtomicU64, Ordering};

use verbena_lock::{Mode, Scheme};

use ground::Ground;
use station::Station;

/// The first is the home, and has a client like the others.
const NODES: u32 = 3;
/// Locks of each client, of which every third is shared.
const TURNS: u64 = 120;

/// What holders of the lock see of each other.
#[derive(Default)]
struct Seen {
    inside: AtomicU64,
    /// Raised by writers, in two steps: two at a time would lose one.
    count: AtomicU64,
    token: AtomicU64,
}

/// Counts for as many readers as there cannot be.
const WRITER: u64 = 1 << 32;

impl Seen {
    fn writes(&self, token: u64) {
        assert_eq!(self.inside.fetch_add(WRITER, Ordering::SeqCst), 0, "somebody is beside a writer");
        let before = self.count.load(Ordering::Relaxed);
        std::thread::yield_now();
        self.count.store(before + 1, Ordering::Relaxed);
        let last = self.token.swap(token, Ordering::SeqCst);
        assert!(last < token, "token {token} after {last}");
        self.inside.fetch_sub(WRITER, Ordering::SeqCst);
    }

    fn reads(&self, token: u64) {
        assert!(self.inside.fetch_add(1, Ordering::SeqCst) < WRITER, "a reader is beside a writer");
        std::thread::yield_now();
        let last = self.token.load(Ordering::SeqCst);
        assert!(last < token, "a reader's token {token} after a writer's {last}");
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

fn every_scheme_on(provider: &str) {
    let Some(ground) = Ground::of(provider) else { return };
    for (life, scheme) in (1..).zip([Scheme::Srsl, Scheme::Dqnl, Scheme::Ncosed]) {
        let stations: Vec<Station> = (1..=NODES).map(|rank| ground.station(rank, life, scheme)).collect();
        let members: Vec<_> = stations.iter().map(Station::member).collect();
        stations.iter().for_each(|station| station.view(&members));
        let seen = Seen::default();
        std::thread::scope(|scope| {
            for (nth, station) in (0..).zip(&stations) {
                let seen = &seen;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let mode = if (turn + nth) % 3 == 0 { Mode::Shared } else { Mode::Exclusive };
                        let (held, token) = station.acquire("x", mode);
                        match mode {
                            Mode::Exclusive => seen.writes(token),
                            Mode::Shared => seen.reads(token),
                        }
                        station.release(held);
                    }
                });
            }
        });
        assert_eq!(seen.count.into_inner(), u64::from(NODES) * TURNS * 2 / 3, "{provider}, {scheme:?}");
        if scheme != Scheme::Srsl {
            ground.is_used(&stations);
        }
        println!("counted: {provider}, {scheme:?}: {} locks", u64::from(NODES) * TURNS);
    }
}

#[test]
fn every_scheme_works_on_shm() {
    every_scheme_on("shm");
}

#[test]
fn every_scheme_works_on_tcp() {
    every_scheme_on("tcp");
}

#[test]
fn every_scheme_works_on_xdp() {
    every_scheme_on("xdp");
}
