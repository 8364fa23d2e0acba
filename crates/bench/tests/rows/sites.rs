//! The rows between two sites that the WAN emulator joins.

use verbena_bench::{Findings, Measurement};

use super::emulator::{measured, of};

/// `None` where networks cannot be made, or no program can stand in their receive paths.
fn measured_with_xdp(name: &str) -> Option<Findings> {
    let findings = measured(name)?;
    match super::have_networks() {
        Ok(()) => Some(findings),
        Err(why) => {
            println!("skipped: what xdp does in {name}: {why}");
            None
        }
    }
}

/// What is not measured says why; the fabric of the papers always is missing.
fn fabrics_are_found(findings: &Findings, expected: &[&str]) {
    let (measured, not): (Vec<_>, Vec<_>) = findings.fabrics.iter().partition(|found| found.measured);
    let names: Vec<&str> = measured.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, expected, "{:?}", findings.fabrics);
    assert!(not.iter().any(|found| found.name == "verbs" && found.because.contains("netem")), "{not:?}");
}

fn xs(measurements: &[&Measurement]) -> Vec<f64> {
    measurements.iter().map(|one| one.x).collect()
}

pub fn one_way_is_timed_by_size_and_by_delay() {
    let Some(findings) = measured_with_xdp("wan.latency") else { return };
    fabrics_are_found(&findings, &["tcp, cable", "xdp, cable", "tcp, link", "xdp, link", "sockets"]);
    for way in ["tcp", "xdp", "sockets"] {
        for between in ["cable", "link"] {
            let by_size = of(&findings, "one-way latency", &[between, way, "size"]);
            // A write over xdp has at most 1 KiB.
            let sizes = [8.0, 64.0, 1_024.0, 8_192.0, 65_536.0];
            assert_eq!(xs(&by_size), if way == "xdp" { &sizes[..3] } else { &sizes });
            assert!(by_size.iter().flat_map(|one| &one.rounds).all(|round| round.count >= 3 && round.min > 0.5));
        }
        let by_delay = of(&findings, "one-way latency", &["link", way, "delay"]);
        assert_eq!(xs(&by_delay), [10.0, 100.0, 1_000.0, 10_000.0]);
        for one in by_delay {
            // Never sooner, and at least once not much later.
            assert!(one.rounds.iter().all(|round| round.min >= one.x), "{one:?}");
            let most = 1.5 * one.x + 500.0;
            assert!(one.rounds.iter().any(|round| round.min < most), "{one:?}");
        }
    }
    // Two fabrics: two delays that are far above what the ends take, and three sizes over the cable.
    let claims = findings.ratios.iter().filter(|ratio| ratio.claim.is_some());
    assert_eq!(claims.count(), 2 * (2 + 3), "{:?}", findings.ratios);
    assert_eq!(findings.panels.iter().map(|panel| panel.series.len()).collect::<Vec<_>>(), [3; 3]);
}
