//! The rows of the cooperative cache.

use verbena_bench::Findings;

use super::{at, measured, of, of_all};

/// Beside memcached where it is installed.
pub fn a_pool_stands_beside_memcached() {
    let findings = measured("coop.memcached", 4);
    let is_beside = findings.ratios.iter().any(|ratio| ratio.what.ends_with("over memcached"));
    let has_none = findings.notes.iter().any(|note| note.contains("memcached is not installed"));
    assert!(is_beside != has_none, "{:?}", findings.notes);
    for work in ["get", "get, 16 at once", "set"] {
        for name in ["one pool", "a pool of four"] {
            let found = of(&findings, "throughput", &[name]);
            let found: Vec<_> =
                found.into_iter().filter(|one| one.labels.iter().any(|(_, label)| label == work)).collect();
            assert_eq!(found.iter().map(|one| one.x).collect::<Vec<_>>(), [1.0, 16.0], "{work}, {name}");
            assert!(found.iter().all(|one| one.spread.min > 0.0));
        }
    }
    let over = |what: &str| findings.ratios.iter().filter(|ratio| ratio.what.ends_with(what)).count();
    assert_eq!(over("a pool of four over one pool"), 2);
    assert_eq!(over("over memcached"), if is_beside { 12 } else { 0 });
}

fn missed(findings: &Findings, scheme: &str, proxies: &str, kib: f64) -> f64 {
    of_all(findings, "cache misses", &[scheme, proxies], kib)
}

/// Some thirty processes at a time: in the long runs alone.
pub fn schemes_miss_what_their_memory_cannot_hold() {
    if std::env::var_os("VERBENA_LONG").is_none() {
        return;
    }
    let findings = measured("coop.schemes", 20);
    for scheme in ["ac", "bcc", "ccwr", "mtacc", "hybcc", "adaptive"] {
        for proxies in ["2 proxies", "4 proxies"] {
            assert_eq!(of(&findings, "throughput", &[scheme, proxies]).len(), 2);
        }
    }
    // Of 64 MiB for each of two proxies and two more nodes, and 10,240 files.
    for (scheme, kib, expected) in
        [("ccwr", 16.0, 20.0), ("ccwr", 64.0, 80.0), ("mtacc", 16.0, 0.0), ("mtacc", 64.0, 60.0), ("bcc", 16.0, 40.0)]
    {
        let found = missed(&findings, scheme, "2 proxies", kib);
        assert!((found - expected).abs() < 6.0, "{scheme}, {kib} KiB: {found}, not {expected}");
    }
    assert!(missed(&findings, "bcc", "4 proxies", 64.0) > missed(&findings, "mtacc", "4 proxies", 64.0) + 20.0);
}

pub fn a_trace_goes_through_four_nodes() {
    let findings = measured("coop.trace", 12);
    for share in [5.0, 10.0, 25.0] {
        let hits = |kind: &str| of_all(&findings, "hits", &[kind], share);
        let (ours, central, alone) = (hits("adaptive"), hits("one S3-FIFO"), hits("four LRU alone"));
        assert!(ours > 0.1 && central < 1.0, "{share}%: {ours} of {central}");
        assert!(ours > alone + 0.03, "{share}% in one cache of four nodes: {ours}; alone: {alone}");
    }
}

/// As many: in the long runs alone.
pub fn a_lookup_is_timed() {
    if std::env::var_os("VERBENA_LONG").is_none() {
        return;
    }
    let findings = measured("coop.lookup", 5);
    for scheme in ["bcc", "ccwr", "mtacc", "hybcc", "adaptive"] {
        for proxies in [2.0, 10.0] {
            let request = at(&findings, "a request for 8 KiB", &[scheme], proxies);
            assert!(request > 0.0 && at(&findings, "a request for a key without a value", &[scheme], proxies) > 0.0);
        }
    }
    assert!(findings.ratios.iter().any(|ratio| ratio.what == "lookup of ccwr over a request of 8 KiB"));
}
