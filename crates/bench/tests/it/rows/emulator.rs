//! The rows that measure the WAN emulator.

use std::time::Duration;

use verbena_bench::{BenchError, FEWEST_ROUNDS, Findings, Measurement, Options, row, run};
use verbena_namespaces::{Namespace, or_skipped};

use super::{alone, options};

/// `None` where networks cannot be made, which the row says too.
pub fn measured(name: &str, measuring: Duration) -> Option<Findings> {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { measuring: Some(measuring), ..options(folder.path()) };
    let found = run(row(name).unwrap(), &options, &mut |_| ());
    if or_skipped(Namespace::new()).unwrap().is_none() {
        assert!(matches!(found, Err(BenchError::Network(_))), "{found:?}");
        return None;
    }
    let report = found.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    Some(report.findings)
}

/// Those of `quantity` with these labels.
pub fn of<'a>(findings: &'a Findings, quantity: &str, labels: &[&str]) -> Vec<&'a Measurement> {
    let has = |one: &&Measurement| {
        let found: Vec<&str> = one.labels.iter().map(|(_, value)| value.as_str()).collect();
        one.quantity == quantity && found.starts_with(labels)
    };
    let found: Vec<_> = findings.measurements.iter().filter(has).collect();
    assert!(found.iter().all(|one| one.rounds.len() == FEWEST_ROUNDS as usize), "{found:?}");
    found
}

fn is_measured(findings: &Findings, program: &str) -> bool {
    let found = findings.fabrics.iter().find(|one| one.name == program).unwrap();
    let is_there =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(program).is_file());
    assert_eq!(found.measured, is_there, "{found:?}");
    assert!(is_there || found.because.contains("install"), "{found:?}");
    is_there
}

/// Whether packets could stay in the kernel.
fn is_held(findings: &Findings) -> bool {
    let found = findings.fabrics.iter().find(|one| one.name == "nfqueue").unwrap();
    if !found.measured {
        println!("skipped: packets do not stay in this kernel: {}", found.because);
    }
    found.measured
}

#[test]
fn delays_are_held_against_a_cable() {
    let _alone = alone();
    let Some(findings) = measured("wan.precision", Duration::from_secs(3)) else { return };
    for mode in ["precise", "sleep"] {
        for (path, cable) in [
            ("small datagrams", "small datagrams"),
            ("large frames", "large frames"),
            ("single packets", "small datagrams"),
        ] {
            let cables = of(&findings, "time over the cable", &["cable", cable]);
            let errors = of(&findings, "error of the added delay", &[mode, path]);
            let asked: Vec<f64> = errors.iter().map(|one| one.x).collect();
            assert_eq!(asked, [0.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0], "{mode}, {path}");
            for (error, cable) in errors.into_iter().zip(cables) {
                assert!(cable.spread.min > 0.0 && cable.x == error.x, "{cable:?}");
                for (round, cable) in error.rounds.iter().zip(&cable.rounds) {
                    // Not before its time, less what handing it over may be thought to cost.
                    assert!(round.min + cable.median > -15.0, "{error:?}, {cable:?}");
                    assert!(round.min <= round.median && round.median <= round.p99, "{round:?}");
                }
                // Of the first rounds of a machine that does ten other things one is as good.
                assert!(error.rounds.iter().any(|round| round.min < 30_000.0), "{error:?}");
            }
            assert_eq!(of(&findings, "error of the added delay, 99th percentile", &[mode, path]).len(), 6);
        }
        let bursts = of(&findings, "delay of a burst's last packet over that of its first", &[mode]);
        assert_eq!(bursts.len(), 2, "{bursts:?}");
    }
    let cables = of(&findings, "delay of a burst's last packet over that of its first", &["cable"]);
    assert_eq!(cables.len(), 1, "{cables:?}");
    let threads = of(&findings, "time from the thread that knows of it to the one that waits", &["two threads"]);
    // 20 ms at the least, a word every 0.3 ms.
    assert!(threads.len() == 1 && threads[0].rounds.iter().all(|round| round.count >= 66), "{threads:?}");
    let (has_theirs, has_held) = (is_measured(&findings, "rattan"), is_held(&findings));
    let targets = findings.ratios.iter().filter(|ratio| ratio.claim.is_some());
    // Median and 99th percentile of each path and delay, and bursts by path.
    let by_path = |paths: usize| 2 * paths * 5;
    let wanted = by_path(3) + 2 + if has_held { by_path(2) + 1 } else { 0 };
    assert_eq!(targets.count(), wanted, "{:?}", findings.ratios);
    assert_eq!(of(&findings, "error of the added delay", &["rattan"]).len(), if has_theirs { 6 } else { 0 });
    for (system, path) in ["nfqueue", "nfqueue, sleep"]
        .iter()
        .flat_map(|system| ["small datagrams", "large frames"].map(|path| (*system, path)))
    {
        let errors = of(&findings, "error of the added delay", &[system, path]);
        assert_eq!(errors.len(), if has_held { 6 } else { 0 }, "{errors:?}");
        assert!(errors.iter().all(|error| error.rounds.iter().any(|round| round.min.abs() < 30_000.0)), "{errors:?}");
    }
    let lines: Vec<usize> = findings.panels.iter().map(|panel| panel.series.len()).collect();
    assert_eq!(lines, [3 + usize::from(has_theirs) + usize::from(has_held); 4]);
}

#[test]
fn streams_are_held_against_a_kernel_that_forwards() {
    let _alone = alone();
    let Some(findings) = measured("wan.bandwidth", Duration::from_secs(1)) else { return };
    let (theirs, held) = (is_measured(&findings, "rattan"), is_held(&findings));
    for (system, crossing, delays) in [
        ("kernel forwarding", "large frames", &[0.0][..]),
        ("kernel forwarding, larger", "large frames", &[0.0]),
        ("kernel forwarding", "single packets", &[0.0]),
        ("precise", "large frames", &[0.0, 1.0, 10.0]),
        ("precise", "single packets", &[0.0, 1.0, 10.0]),
        ("sleep", "large frames", &[0.0, 1.0, 10.0]),
        ("nfqueue", "large frames", if held { &[0.0, 1.0, 10.0] } else { &[] }),
        ("rattan", "large frames", if theirs { &[0.0, 1.0, 10.0] } else { &[] }),
    ] {
        for quantity in ["throughput", "processor time"] {
            let found = of(&findings, quantity, &[system, crossing]);
            assert_eq!(found.iter().map(|one| one.x).collect::<Vec<_>>(), delays, "{quantity}: {system}, {crossing}");
            let has_come = |one: &&Measurement| one.rounds.iter().all(|round| round.count > 0 && round.median >= 0.0);
            assert!(found.iter().all(has_come), "{found:?}");
        }
    }
    let smallest = of(&findings, "packets of 64 bytes", &[]);
    assert_eq!(smallest.len(), 2, "{smallest:?}");
    let of_ratio = |what: &str, under: &str| {
        let found = findings.ratios.iter().find(|ratio| ratio.what == what && ratio.under.starts_with(under)).unwrap();
        (found.spread, found.claim.is_some())
    };
    let over = "throughput, precise over kernel forwarding";
    for delay in ["0s", "1ms", "10ms"] {
        assert!(of_ratio(over, &format!("precise, large frames, {delay}")).1, "{delay} has a target");
        if held {
            let of_held = |over| {
                of_ratio(&format!("throughput, nfqueue over {over}"), &format!("nfqueue, large frames, {delay}"))
            };
            assert_eq!(["kernel forwarding", "kernel forwarding, larger"].map(|over| of_held(over).1), [true, false]);
        }
    }
    // Where TCP makes single packets by itself this is a thirteenth.
    let (single, _) = of_ratio(over, "precise, single packets, 0s");
    assert!(single.max > 0.12, "{single:?}");
    let lines: Vec<usize> = findings.panels.iter().map(|panel| panel.series.len()).collect();
    let large = 4 + usize::from(held) + usize::from(theirs);
    assert_eq!(lines, [large, large, 2, 2]);
}
