//! The rows between two sites that the WAN emulator joins.

use std::time::Duration;

use verbena_bench::{Findings, Measurement, Ratio};

use super::alone;
use super::emulator::{measured, of};

/// A turn takes as long as its delay makes it, however short it was to be.
const MEASURING: Duration = Duration::from_secs(1);

/// In microseconds: the most that is believed of what handing over a small frame costs (`router/gauge.rs`) is 10, and 1 KiB is a little more. The
/// gauge may have found that while another program had the processor, and then a frame leaves that much too soon.
const TAKEN_OFF: f64 = 13.0;

/// `None` where networks cannot be made, or no program can stand in their receive paths.
fn measured_with_xdp(name: &str) -> Option<Findings> {
    let findings = measured(name, MEASURING)?;
    match super::have_networks() {
        Ok(()) => Some(findings),
        Err(why) => {
            println!("skipped: what xdp does in {name}: {why}");
            None
        }
    }
}

/// What is not measured says why; the fabric of the papers is missing where no two devices of it are joined.
fn fabrics_are_found(findings: &Findings, expected: &[&str]) {
    let (measured, not): (Vec<_>, Vec<_>) = findings.fabrics.iter().partition(|found| found.measured);
    let names: Vec<&str> = measured.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, expected, "{:?}", findings.fabrics);
    assert!(not.iter().any(|found| found.name == "verbs" && found.because.contains("netem")), "{not:?}");
}

fn xs(measurements: &[&Measurement]) -> Vec<f64> {
    measurements.iter().map(|one| one.x).collect()
}

#[test]
fn one_way_is_timed_by_size_and_by_delay() {
    let _alone = alone();
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
            // Never sooner than by what a precise router may take off for its own cost, and at least once not much later.
            assert!(one.rounds.iter().all(|round| round.min >= one.x - TAKEN_OFF), "{one:?}");
            let most = 1.5 * one.x + 500.0;
            assert!(one.rounds.iter().any(|round| round.min < most), "{one:?}");
        }
    }
    // Two fabrics: two delays that are far above what the ends take, and three sizes over the cable.
    let claims = findings.ratios.iter().filter(|ratio| ratio.claim.is_some());
    assert_eq!(claims.count(), 2 * (2 + 3), "{:?}", findings.ratios);
    assert_eq!(findings.panels.iter().map(|panel| panel.series.len()).collect::<Vec<_>>(), [3; 3]);
}

#[test]
fn throughput_is_counted_by_channel_and_delay() {
    let _alone = alone();
    const KIB: f64 = 1_024.0;
    let Some(findings) = measured("wan.throughput", MEASURING) else { return };
    fabrics_are_found(&findings, &["tcp", "sockets", "datagrams"]);
    let rates = |kind: &str, channel: &str| {
        let rates = of(&findings, "throughput", &[kind, channel]);
        assert_eq!(xs(&rates), [0.0, 10.0, 100.0, 1_000.0, 10_000.0], "{channel}");
        assert!(rates.iter().flat_map(|one| &one.rounds).all(|round| round.count > 0 && round.min > 0.0), "{rates:?}");
        rates
    };
    // No more than a window can be on its way at once.
    let windows = [
        ("writes over tcp", "writes of 2K, 8 under way", 16.0 * KIB),
        ("writes over tcp", "writes of 32K, 8 under way", 256.0 * KIB),
        ("writes over tcp", "writes of 1M, 8 under way", 8_192.0 * KIB),
        ("writes over tcp", "writes of 32K, 1 under way", 32.0 * KIB),
        ("writes over tcp", "writes of 32K, 64 under way", 2_048.0 * KIB),
        // The system takes twice as much as is asked for.
        ("sockets", "sockets, window 64K, 1 stream", 128.0 * KIB),
        ("sockets", "sockets, window 64K, 2 streams", 256.0 * KIB),
        ("sockets", "sockets, window 64K, 4 streams", 512.0 * KIB),
        ("sockets", "sockets, window 64K, 8 streams", 1_024.0 * KIB),
        ("sockets", "sockets, window 512K, 1 stream", 1_024.0 * KIB),
    ];
    for (kind, channel, window) in windows {
        let rates = rates(kind, channel);
        assert!(rates[0].spread.max > 2.0 * rates[4].spread.max, "{rates:?}");
        for one in rates.iter().filter(|one| one.x > 0.0) {
            let most = window / (2.0 * one.x);
            assert!(one.spread.max <= most, "{one:?} with a window of {window}");
            // Where the delay is what limits, a good part of it is used.
            assert!(one.x < 10_000.0 || one.spread.max > most / 8.0, "{one:?} with a window of {window}");
        }
    }
    rates("sockets", "sockets, window the system's, 1 stream");
    for datagrams in ["datagrams of 256", "datagrams of 2K"] {
        rates("datagrams", datagrams);
        let lost = of(&findings, "datagrams that did not arrive", &["datagrams", datagrams]);
        assert!(lost.len() == 5 && lost.iter().all(|one| one.spread.min >= 0.0 && one.spread.max < 1.0), "{lost:?}");
    }
    for what in ["writes of 1 MiB over writes of 2 KiB", "sockets, window 512 KiB over 64 KiB", "8 streams over 1"] {
        let is_it = |ratio: &&Ratio| ratio.what.ends_with(what) && ratio.under == "10000 us";
        let ratio = findings.ratios.iter().find(is_it).unwrap();
        assert!(ratio.spread.median > 2.0 && ratio.claim.is_some(), "{ratio:?}");
    }
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 2 * 3 + 1);
    let lines: Vec<usize> = findings.panels.iter().map(|panel| panel.series.len()).collect();
    assert_eq!(lines, [2, 3, 3, 3, 4, 3]);
}

#[test]
fn overlap_fetching_and_computing_are_timed() {
    let _alone = alone();
    let Some(findings) = measured_with_xdp("wan.overlap") else { return };
    fabrics_are_found(&findings, &["tcp, link", "xdp, link", "sockets"]);
    for way in ["tcp", "xdp", "sockets"] {
        for (delay, computing) in [("0 us", 4), ("100 us", 1), ("1000 us", 4), ("10000 us", 1)] {
            let hidden = of(&findings, "overlap", &[way, delay]);
            assert_eq!(xs(&hidden), &[100.0, 500.0, 2_000.0, 10_000.0][4 - computing..]);
            assert!(hidden.iter().all(|one| one.spread.min > 0.0 && one.spread.max < 1.0), "{hidden:?}");
        }
        // What is hidden is no more than the part that there is: of 2 ms, of 20 ms.
        let hidden = of(&findings, "overlap", &[way, "1000 us"]);
        assert!(hidden[0].spread.min < 0.06 && hidden[3].spread.max > 0.7, "{hidden:?}");
        assert!(of(&findings, "overlap", &[way, "10000 us"])[0].spread.min < 0.51);

        for (delay, loads, least) in [("0 us", 4, 1.0), ("100 us", 1, 200.0), ("1000 us", 1, 2e3), ("10000 us", 1, 2e4)]
        {
            let fetched = of(&findings, "time to fetch", &[way, delay]);
            assert_eq!(xs(&fetched), &[0.0, 1_000.0, 4_000.0, 16_000.0][4 - loads..]);
            assert!(fetched.iter().all(|one| one.spread.min >= least), "{fetched:?}");
        }
        // Whoever computes for 16 ms before it looks lets askers wait, and readers not.
        let loaded = of(&findings, "time to fetch", &[way, "0 us"])[3].spread;
        assert!(if way == "sockets" { loaded.max > 12_000.0 } else { loaded.min < 8_000.0 }, "{way}: {loaded:?}");

        let sizes: &[f64] = if way == "xdp" { &[1_024.0] } else { &[1_024.0, 16_384.0, 65_536.0] };
        let far: &[f64] = if way == "xdp" { &[1_024.0] } else { &[16_384.0] };
        for (delay, sizes) in [("0 us", sizes), ("1000 us", far), ("10000 us", far)] {
            let computed = of(&findings, "running time of a computation", &[way, delay]);
            assert_eq!(xs(&computed), sizes);
            assert!(computed.iter().all(|one| one.spread.min > 2.0), "{computed:?}");
            let sent = of(&findings, "throughput of the senders", &[way, delay]);
            assert!(xs(&sent) == sizes && sent.iter().all(|one| one.spread.min > 0.01), "{sent:?}");
        }
    }
    assert_eq!(of(&findings, "running time of a computation", &["nobody"]).len(), 1);
    // Overlap, fetching under load beside sockets, fetching under load, computing under senders.
    let claims = findings.ratios.iter().filter(|ratio| ratio.claim.is_some());
    assert_eq!(claims.count(), 2 * 2 + 2 * 4 + 3 * 3 + (5 + 5 + 3), "{:?}", findings.ratios);
    assert_eq!(findings.panels.iter().map(|panel| panel.series.len()).collect::<Vec<_>>(), [3; 7]);
}
