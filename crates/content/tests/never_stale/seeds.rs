//! Runs of the world, with all rules and with each of them off.

use verbena_content::Rules;

use crate::database::PAGES;
use crate::dice::Dice;
use crate::world::{Event, Faults, Kind, LEASE_MS, MAX_TRANSACTION_MS, MILLI, Settings, World};

/// What a run came to.
pub struct Run {
    pub broken: Vec<String>,
    answers: u64,
    hits: u64,
    acknowledged: u64,
    struck: u64,
}

/// Which faults a seed has, and how often, is chance too: a run in which all go wrong at once finds less.
pub fn settings(seed: u64) -> Settings {
    let mut dice = Dice::new(seed ^ 0xfa17);
    let mut sometimes = |most: u64| if dice.permille(600) { dice.within(0, most + 1) } else { 0 };
    let faults = Faults {
        loss: sometimes(100),
        doubled: sometimes(100),
        slow: sometimes(200),
        late_write: sometimes(200),
        pauses: sometimes(300),
        longest_pause_ms: 5 + sometimes(3 * LEASE_MS),
        crashes: sometimes(150),
        cuts: sometimes(300),
        outcome_unknown: sometimes(100),
        memory_outlives: sometimes(1) == 1,
        memory_needs_cpu: sometimes(1) == 1,
    };
    Settings {
        seed,
        rules: Rules::ALL,
        lease_looked_at: true,
        faults,
        writes_of_everything: sometimes(500),
        pages_of_everything: sometimes(700),
        answers_do_not_count: false,
        duration_ms: 1000,
        read_every_us: 700,
        write_every_us: 4000 + 200 * sometimes(200),
        pages_kept: 2 + sometimes(20) as usize,
        pages_share_ids: sometimes(1) == 1,
        gap_us: sometimes(2000),
    }
}

pub fn run(settings: Settings) -> Run {
    let mut world = World::new(settings);
    world.schedule(0, Event::Client { write: false });
    world.schedule(0, Event::Client { write: true });
    world.schedule(30 * MILLI, Event::Fault);
    world.run_until(settings.duration_ms * MILLI);
    world.calm_down();
    check_that_nothing_is_stuck(&mut world);
    let checker = world.checker;
    Run {
        broken: checker.broken,
        answers: checker.answers,
        hits: checker.hits,
        acknowledged: checker.acknowledged,
        struck: world.struck,
    }
}

/// Faults have ended: within a few leases and the longest transaction every page hits again at every node, and every
/// update is acknowledged and seen.
fn check_that_nothing_is_stuck(world: &mut World) {
    let settle = 8 * LEASE_MS + MAX_TRANSACTION_MS + 100;
    world.run_until(world.now + settle * MILLI);
    for node in 0..world.nodes.len() {
        let rows = vec![node as u64];
        let write = world.request(node, Kind::Write { rows, announces: true, commit: None });
        world.run_until(world.now + 60 * MILLI);
        if world.outcomes.get(&write) != Some(&"acknowledged") {
            let how = world.outcomes.get(&write);
            world.checker.broken.push(format!("stuck: a write at node {node} after the faults is {how:?}"));
        }
    }
    for node in 0..world.nodes.len() {
        for page in 0..PAGES {
            let mut how = None;
            // Pages share words here, and a registration may bump its neighbour once.
            for _ in 0..4 {
                let read = world.request(node, Kind::Read { page });
                world.run_until(world.now + 50 * MILLI);
                how = world.outcomes.get(&read).copied();
                if how == Some("hit") {
                    break;
                }
            }
            if how != Some("hit") {
                world.checker.broken.push(format!("stuck: page {page} at node {node} after the faults is {how:?}"));
            }
        }
    }
}

fn number_of_seeds(default: u64) -> u64 {
    std::env::var("VERBENA_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

#[test]
fn no_answer_is_ever_stale_and_nothing_is_stuck() {
    let one: Option<u64> = std::env::var("VERBENA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..number_of_seeds(120), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut answers, mut hits, mut acknowledged, mut struck) = (0, 0, 0, 0);
    for seed in seeds {
        let run = run(settings(seed));
        assert!(
            run.broken.is_empty(),
            "seed {seed}: {}\nreplay: VERBENA_SEED={seed} cargo test -p verbena-content --test never_stale no_answer",
            run.broken.join("\n"),
        );
        answers += run.answers;
        hits += run.hits;
        acknowledged += run.acknowledged;
        struck += run.struck;
    }
    println!("{count} seeds: {answers} answers, {hits} hits, {acknowledged} updates acknowledged, {struck} faults");
    assert!(answers > 800 * count, "{answers} answers");
    assert!(hits * 12 > answers, "{hits} hits of {answers} answers");
    assert!(acknowledged > 20 * count, "{acknowledged} updates acknowledged");
    assert!(struck > 3 * count || count < 10, "{struck} faults");
}
