//! The rows of locks. No time is held against anything; counts are.

use verbena_bench::Verdict;

use super::{at, measured, of};

const FABRICS: [&str; 2] = ["shm", "tcp"];

pub fn free_locks_are_timed_and_counted() {
    let findings = measured("locks.basic", 3);
    for fabric in FABRICS {
        for (scheme, batches, messages) in [("SRSL", 0.0, 1.0), ("DQNL", 1.0, 0.0), ("N-CoSED", 1.0, 0.0)] {
            let counted = |quantity| at(&findings, quantity, &[fabric, scheme], 0.0);
            for quantity in ["batches of a free lock", "atomics of a free lock", "batches of a release"] {
                assert_eq!(counted(quantity), batches, "{fabric}, {scheme}: {quantity}");
            }
            for quantity in ["messages of a free lock", "messages of a release"] {
                assert_eq!(counted(quantity), messages, "{fabric}, {scheme}: {quantity}");
            }
            for x in [1.0, 2.0] {
                for lock in ["exclusive", "shared"] {
                    let within = of(&findings, "latency of lock", &[fabric, scheme, lock]);
                    assert!(within.iter().any(|one| one.x == x && one.spread.min > 0.0), "{fabric}, {scheme}, {lock}");
                }
            }
        }
        let helped = of(&findings, "latency of lock", &[fabric, "through a helper"]);
        assert!(helped.len() == 2 && helped.iter().all(|one| one.rounds.iter().all(|round| round.count >= 3)));
    }
    let counts = findings.ratios.iter().filter(|ratio| ratio.what.ends_with("of a free lock"));
    let held = counts.filter_map(|ratio| ratio.claim.as_ref()).filter(|claim| claim.verdict == Verdict::Holds);
    assert_eq!(held.count(), 4, "{:?}", findings.ratios);
}

pub fn locks_go_through_a_queue() {
    let findings = measured("locks.cascade", 2);
    for fabric in FABRICS {
        for scheme in ["SRSL", "DQNL", "N-CoSED"] {
            for lock in ["shared", "exclusive"] {
                assert_eq!(of(&findings, "until the last has it", &[fabric, scheme, lock]).len(), 10);
                let quiet = at(&findings, "sent and posted by those who wait", &[fabric, scheme, lock], 8.0);
                assert_eq!(quiet, 0.0, "{fabric}, {scheme}, {lock}");
            }
            let messages = at(&findings, "messages from the release on", &[fabric, scheme, "exclusive"], 8.0);
            // One to the next, and a server's besides.
            let expected = if scheme == "SRSL" { 2.0..=2.5 } else { 1.0..=1.5 };
            assert!(expected.contains(&messages), "{fabric}, {scheme}: {messages}");
        }
    }
}

pub fn locks_are_taken_as_a_trace_has_it() {
    let findings = measured("locks.trace", 2);
    for fabric in FABRICS {
        for scheme in ["SRSL", "DQNL", "N-CoSED"] {
            let rates = of(&findings, "locks", &[fabric, scheme]);
            assert_eq!(rates.len(), 4, "{fabric}, {scheme}");
            assert!(rates.iter().all(|one| one.rounds.iter().all(|round| round.count as f64 >= one.x)), "{rates:?}");
            assert_eq!(of(&findings, "locks for processor time", &[fabric, scheme]).len(), 4);
        }
    }
}

pub fn one_lock_is_wanted_by_many() {
    let findings = measured("locks.contention", 3);
    for fabric in FABRICS {
        for scheme in ["SRSL", "DQNL", "N-CoSED"] {
            for hold in ["0 us", "100 us", "1000 us"] {
                let fair = of(&findings, "Jain's index", &[fabric]);
                let has = |one: &verbena_bench::Measurement, label: &str| one.labels.iter().any(|(_, it)| it == label);
                let fair: Vec<_> = fair.into_iter().filter(|one| has(one, scheme) && has(one, hold)).collect();
                assert_eq!(fair.len(), 5, "{fabric}, {scheme}, {hold}");
                // Each has it once at least.
                let is_shared = |one: &&verbena_bench::Measurement| {
                    one.rounds.iter().all(|round| round.count as f64 >= one.x && round.median <= 1.0 + 1e-9)
                };
                assert!(fair.iter().all(is_shared), "{fair:?}");
            }
        }
    }
}

pub fn others_have_locks_too() {
    let findings = measured("locks.others", 3);
    for found in &findings.fabrics {
        let is_there = |program: &str| {
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|path| path.join(program).exists())
        };
        let expected = match found.name.split(' ').next().unwrap() {
            "etcd" => cfg!(feature = "etcd") && is_there("etcd"),
            "Redis" => is_there("redis-server"),
            _ => true,
        };
        assert_eq!(found.measured, expected, "{found:?}");
        if !expected {
            println!("skipped: {}: {}", found.name, found.because);
            continue;
        }
        let has = |one: &&&verbena_bench::Measurement| one.labels[0].1 == found.name;
        let rates = of(&findings, "locks", &[]);
        let rates: Vec<_> = rates.iter().filter(has).collect();
        assert_eq!(rates.len(), 3, "{}", found.name);
        assert!(rates.iter().all(|one| one.rounds.iter().all(|round| round.count as f64 >= one.x)), "{rates:?}");
        let alone = of(&findings, "latency of lock", &[]);
        assert_eq!(alone.iter().filter(has).count(), 1, "{}", found.name);
    }
}
