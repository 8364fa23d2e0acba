//! The rows of memory. No time is held against anything; counts are.

use verbena_bench::{Findings, Measurement};

use super::measured;

/// Those whose labels are these, whole: one mode's name is within another's.
fn of<'a>(findings: &'a Findings, quantity: &str, labels: &[&str]) -> Vec<&'a Measurement> {
    let is_label = |one: &Measurement, label: &str| one.labels.iter().any(|(_, value)| value == label);
    let has = |one: &&Measurement| one.quantity == quantity && labels.iter().all(|label| is_label(one, label));
    findings.measurements.iter().filter(has).collect()
}

pub fn values_are_got_and_put() {
    let findings = measured("memory.ops", 4);
    for fabric in ["shm", "tcp"] {
        for operation in ["get", "put"] {
            for mode in ["mq", "rmq", "rcq", "adaptive"] {
                let strict = of(&findings, "latency", &[fabric, operation, mode, "strict"]);
                let sizes: Vec<f64> = strict.iter().map(|one| one.x).collect();
                assert_eq!(
                    sizes,
                    [1.0, 64.0, 1024.0, 16384.0, 131_072.0, 1_048_576.0],
                    "{fabric}, {operation}, {mode}"
                );
                assert!(strict.iter().all(|one| one.rounds.iter().all(|round| round.count >= 5)), "{strict:?}");
            }
            for coherence in ["null", "read", "write", "version", "delta(8)", "temporal(20000us)"] {
                assert_eq!(of(&findings, "latency", &[fabric, operation, coherence]).len(), 1, "{fabric}, {coherence}");
            }
        }
    }
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 12);
}

pub fn many_get_values() {
    let findings = measured("memory.scale", 4);
    let ways = [
        "mq, one node, one home",
        "rmq, one node, one home",
        "rcq, one node, one home",
        "adaptive, one node, one home",
        "adaptive, 2 nodes, one home",
        "adaptive, 2 nodes, 3 homes",
    ];
    for way in ways {
        let gets = of(&findings, "gets", &[way]);
        let threads: Vec<f64> = gets.iter().map(|one| one.x).collect();
        assert_eq!(threads, [1.0, 4.0, 16.0, 64.0, 512.0], "{way}");
        // Each of them got something in each round.
        assert!(gets.iter().all(|one| one.rounds.iter().all(|round| round.count as f64 >= one.x)), "{gets:?}");
    }
    assert_eq!(findings.ratios.len(), 3);
}

pub fn a_proxy_monitors_servers() {
    let findings = measured("memory.onload", 4);
    let servers = |quantity: &str, place: &str| {
        let its = of(&findings, quantity, &[place]);
        assert!(its.iter().all(|one| one.rounds.iter().all(|round| round.count >= 1)), "{its:?}");
        its.iter().map(|one| one.x).collect::<Vec<f64>>()
    };
    assert_eq!(servers("response time", "no monitor"), [0.0]);
    for place in ["monitor on the proxy's core", "monitor on the other core"] {
        assert_eq!(servers("response time", place), [4.0, 8.0, 16.0, 32.0], "{place}");
        // A tenth of what is due at least: the row itself sees to it.
        let reads = of(&findings, "boards read", &[place]);
        assert!(reads.iter().all(|one| one.rounds.iter().all(|round| round.median >= 10.0 * one.x)), "{reads:?}");
    }
    assert_eq!(findings.ratios.len(), 16);
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 1);
}
