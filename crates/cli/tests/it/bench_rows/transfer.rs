//! The rows of bulk transfer. No time is held against anything.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use verbena_bench::Findings;
use verbena_testkit::namespaces;

use super::{at, measured, of};

const OURS: [&str; 5] =
    ["verbena cp, descriptor", "verbena cp, tcp", "verbena cp, quic", "verbena cp, udp", "curl at verbena ftp serve"];

/// Whether networks can be made: a thread of its own finds that out, for it moves into one.
fn has_networks() -> bool {
    std::thread::spawn(|| namespaces::own(Ipv4Addr::new(10, 99, 0, 1).into()).is_some()).join().unwrap()
}

/// What was measured, and that it is what is there.
fn measured_ways(findings: &Findings, label: &str) -> BTreeSet<String> {
    let there: BTreeSet<String> =
        findings.fabrics.iter().filter(|found| found.measured).map(|found| found.name.clone()).collect();
    let all = findings.measurements.iter().flat_map(|one| &one.labels);
    let seen: BTreeSet<String> = all.filter(|(name, _)| name == label).map(|(_, value)| value.clone()).collect();
    assert_eq!(seen, there);
    seen
}

pub fn files_are_copied_within_a_machine() {
    let findings = measured("transfer.lan", 5);
    let ways = measured_ways(&findings, "way");
    assert!(OURS.iter().all(|way| ways.contains(*way)), "{ways:?}");
    for way in &ways {
        for direction in ["get", "put"] {
            let [small, large] =
                [1_u64 << 20, 64 << 20].map(|bytes| at(&findings, "time of a file", &[way, direction], bytes as f64));
            assert!(0.0 < small && small < large, "{way}, {direction}: {small} s, {large} s");
        }
    }
    // `cp` is always there.
    assert!(findings.ratios.iter().any(|ratio| ratio.what.ends_with("over cp")), "{:?}", findings.ratios);
}

pub fn processor_time_is_counted_at_both_ends() {
    let findings = measured("transfer.cpu", 5);
    for way in OURS {
        for direction in [1.0, 2.0] {
            let [server, client, both] =
                ["server", "client", "both"].map(|end| at(&findings, "processor time", &[way, end], direction));
            // A byte that is copied takes a processor a tenth of a nanosecond and no more than some tens.
            assert!(server > 0.0 && client > 0.0 && both < 60.0, "{way}: {server}, {client}, {both}");
        }
    }
}

pub fn files_are_fetched_over_a_long_link() {
    if !has_networks() {
        return;
    }
    let findings = measured("transfer.wan", 5);
    let ways = measured_ways(&findings, "way");
    assert!(OURS[1..].iter().all(|way| ways.contains(*way)), "{ways:?}");
    for way in ways {
        let far = at(&findings, "time of a file", &[&way], 10_000.0);
        // A session has some round trips of 20 ms.
        assert!(far > 0.04, "{way}: {far} s");
    }
}

pub fn many_files_go_in_one_session() {
    if !has_networks() {
        return;
    }
    let findings = measured("transfer.sessions", 5);
    let hows = measured_ways(&findings, "how");
    assert!(hows.contains("one session") && hows.contains("a session for each file"), "{hows:?}");
    assert!(of(&findings, "time of 16 files", &["one session"]).iter().all(|one| one.rounds[0].count == 16));
}

pub fn trees_are_fetched_over_a_long_link() {
    if !has_networks() {
        return;
    }
    for (row, files) in [("transfer.replicate", 200), ("transfer.small", 1_000)] {
        let findings = measured(row, 5);
        let hows = measured_ways(&findings, "how");
        assert!(hows.contains("verbena cp, tcp"), "{hows:?}");
        assert!(of(&findings, "time of a tree", &[]).iter().all(|one| one.rounds[0].count == files), "{row}");
    }
}
