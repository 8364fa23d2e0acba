//! Rows that start nodes and proxies, run for real: each with `verbena` as it was built for these tests.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "bench_rows/locks.rs"]
mod locks;
#[path = "bench_rows/memory.rs"]
mod memory;
#[path = "../../fabric/tests/common/namespaces.rs"]
mod namespaces;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use verbena_bench::{
    BenchError, CHILD_ARGUMENT, FEWEST_ROUNDS, Findings, KEY_TRACE, Measurement, Options, Ratio, Report, Verdict,
    child_main, row, run,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some(CHILD_ARGUMENT) {
        return child_main(&arguments[2..]);
    }
    let mut tests: Vec<(&str, fn())> = vec![
        ("schemes_are_measured_under_updates", schemes_are_measured_under_updates),
        ("dependencies_are_measured", dependencies_are_measured),
        ("the_back_end_is_loaded", the_back_end_is_loaded),
        ("what_a_page_takes_is_measured", what_a_page_takes_is_measured),
        ("a_key_trace_is_replayed", a_key_trace_is_replayed),
        ("only_pages_whose_home_changed_are_lost", only_pages_whose_home_changed_are_lost),
        ("free_locks_are_timed_and_counted", locks::free_locks_are_timed_and_counted),
        ("locks_go_through_a_queue", locks::locks_go_through_a_queue),
        ("locks_are_taken_as_a_trace_has_it", locks::locks_are_taken_as_a_trace_has_it),
        ("one_lock_is_wanted_by_many", locks::one_lock_is_wanted_by_many),
        ("others_have_locks_too", locks::others_have_locks_too),
        ("values_are_got_and_put", memory::values_are_got_and_put),
        ("many_get_values", memory::many_get_values),
        ("a_proxy_monitors_servers", memory::a_proxy_monitors_servers),
        ("checkpoints_are_saved", memory::checkpoints_are_saved),
        ("applications_ask_for_what_they_need", memory::applications_ask_for_what_they_need),
        ("a_trace_that_is_none_is_an_error", a_trace_that_is_none_is_an_error),
        ("without_the_program_it_is_an_error", without_the_program_it_is_an_error),
    ];
    // With 200 busy threads whatever needs their core takes its time.
    if std::env::var_os("VERBENA_LONG").is_some() {
        tests.push(("hits_are_measured_under_load", hits_are_measured_under_load));
    }
    // As with any test program: only those whose name has one of these words in it.
    let wanted: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with('-')).collect();
    tests.retain(|(name, _)| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())));
    for (name, test) in tests {
        let started = Instant::now();
        test();
        assert_eq!(children(), BTreeSet::new(), "{name} left processes behind");
        println!("test {name} ... ok ({:.1} s)", started.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

fn options(out_dir: &Path, seconds: u64) -> Options {
    let verbena = Some(env!("CARGO_BIN_EXE_verbena").into());
    let measuring = Some(Duration::from_secs(seconds));
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(KEY_TRACE);
    Options { quick: true, seed: 1, rounds: None, measuring, verbena, trace, out_dir: out_dir.to_owned() }
}

/// Runs a row, and looks at what all of them promise.
fn measured(name: &str, seconds: u64) -> Findings {
    let folder = tempfile::tempdir().unwrap();
    let report = run(row(name).unwrap(), &options(folder.path(), seconds), &mut |_| ()).unwrap();
    let findings = &report.findings;
    for measurement in &findings.measurements {
        // A proxy that is kept from reading words in time has no hit in that round.
        let fewest = if measurement.quantity.contains("hit") { 1 } else { FEWEST_ROUNDS as usize };
        assert!((fewest..=FEWEST_ROUNDS as usize).contains(&measurement.rounds.len()), "{measurement:?}");
        assert!(measurement.rounds.iter().all(|round| round.count > 0), "{measurement:?}");
    }
    for ratio in &findings.ratios {
        let claim = ratio.claim.as_ref();
        assert!(
            claim.is_none_or(|claim| (claim.verdict == Verdict::DoesNotHold) == claim.reason.is_some()),
            "{ratio:?}"
        );
        assert!(ratio.spread.min > 0.0 && ratio.spread.max.is_finite(), "{ratio:?}");
    }
    for panel in &findings.panels {
        assert!(!panel.series.is_empty() && panel.series.iter().all(|line| !line.points.is_empty()), "{}", panel.title);
    }
    let json = std::fs::read_to_string(folder.path().join(format!("{name}.json"))).unwrap();
    let written: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(written.findings.measurements.len(), findings.measurements.len());
    assert!(folder.path().join(format!("{name}.svg")).exists());
    report.findings
}

/// The measurements of `quantity` that have these labels, by their place on the axis.
fn of<'a>(findings: &'a Findings, quantity: &str, labels: &[&str]) -> Vec<&'a Measurement> {
    let labelled = |one: &&Measurement| {
        let has = |label: &&str| one.labels.iter().any(|(_, value)| value.contains(label));
        one.quantity == quantity && labels.iter().all(has)
    };
    findings.measurements.iter().filter(labelled).collect()
}

/// The one of them at this place.
fn the_one<'a>(findings: &'a Findings, quantity: &str, labels: &[&str], x: f64) -> &'a Measurement {
    let one: Vec<_> = of(findings, quantity, labels).into_iter().filter(|one| one.x == x).collect();
    assert_eq!(one.len(), 1, "{quantity} of {labels:?} at {x}");
    one[0]
}

fn at(findings: &Findings, quantity: &str, labels: &[&str], x: f64) -> f64 {
    the_one(findings, quantity, labels, x).spread.median
}

/// Of all answers of all rounds, for what is a share of them: in a short round there may be few, where others want the machine too.
fn of_all(findings: &Findings, quantity: &str, labels: &[&str], x: f64) -> f64 {
    let rounds = &the_one(findings, quantity, labels, x).rounds;
    let (count, sum) = rounds.iter().fold((0.0, 0.0), |(count, sum), round| {
        let answers = round.count as f64;
        (count + answers, sum + answers * round.median)
    });
    sum / count
}

/// Whether nodes can use xdp in networks that are made for them: a thread of its own finds that out, for it moves into one.
fn has_xdp() -> bool {
    let address = IpAddr::V4(Ipv4Addr::new(10, 78, 3, 1));
    std::thread::spawn(move || namespaces::own(address).is_some()).join().unwrap()
}

fn checked(findings: &Findings) -> u64 {
    let note = findings.notes.iter().find(|note| note.contains("none was stale")).unwrap();
    note.split(' ').next().unwrap().parse().unwrap()
}

fn hits_are_measured_under_load() {
    let findings = measured("content.load", 5);
    let fabrics: Vec<_> = findings.fabrics.iter().filter(|fabric| fabric.measured).collect();
    assert!(!fabrics.is_empty(), "{:?}", findings.fabrics);
    for fabric in &fabrics {
        let name = format!("({})", fabric.name);
        for (workload, levels) in [("single 8 KB", 4), ("20 files", 3), ("web trace", 3)] {
            assert_eq!(of(&findings, "throughput", &[workload, &name]).len(), levels);
            assert_eq!(of(&findings, "throughput", &[workload, "no cache"]).len(), levels);
            assert!(at(&findings, "cache misses", &[workload, &name], 0.0) < 20.0);
            assert!(at(&findings, "cache misses", &[workload, "no cache"], 0.0) > 99.0);
        }
        for x in [0.0, 200.0] {
            let whole = at(&findings, "mean response time", &["breakdown", &name], x);
            let hit = at(&findings, "mean time of a hit in the proxy", &["breakdown", &name], x);
            assert!(0.0 < hit && hit < whole, "{hit} of {whole} at {x}");
        }
        assert!(at(&findings, "read of a word", &["version check", &fabric.name], 0.0) > 0.0);
    }
    let can_link = has_xdp();
    assert_eq!(fabrics.iter().any(|fabric| fabric.name == "xdp"), can_link, "{:?}", findings.fabrics);
    let is_over = |ratio: &&Ratio| ratio.what == "throughput, one-sided (xdp) over one-sided (shm)";
    let claim = findings.ratios.iter().find(is_over).and_then(|ratio| ratio.claim.as_ref());
    assert_eq!(claim.map(|claim| claim.text.as_str()), can_link.then_some("at least 0.7"));
    // What needs the loaded core is slower there.
    let passed = |x| at(&findings, "throughput", &["single 8 KB", "no cache"], x);
    assert!(passed(200.0) < 0.5 * passed(0.0), "{} and {}", passed(200.0), passed(0.0));
    assert_eq!(of(&findings, "throughput", &["bare hyper loop"]).len(), 8);
}

fn schemes_are_measured_under_updates() {
    let findings = measured("content.updates", 5);
    for scheme in ["no cache", "invalidate all", "dependency lists"] {
        assert_eq!(of(&findings, "throughput", &["traces 1 to 6", scheme]).len(), 6);
    }
    let misses = |scheme, trace| of_all(&findings, "cache misses", &["traces 1 to 6", scheme], trace);
    assert!(misses("no cache", 1.0) > 99.0 && misses("dependency lists", 1.0) < 5.0);
    assert!(misses("invalidate all", 5.0) > misses("dependency lists", 5.0));
    // In a round of 20 ms there may be none.
    let updates = of(&findings, "acknowledged updates", &["traces 1 to 6", "dependency lists"]);
    assert!(updates.iter().any(|one| one.x == 5.0 && one.spread.max > 0.0), "{updates:?}");
    let sized = |size| of_all(&findings, "cache misses", &["cache size", "dependency lists"], size);
    assert!(sized(1.0) > sized(25.0) && sized(25.0) > sized(100.0), "{} {} {}", sized(1.0), sized(25.0), sized(100.0));
    assert!(checked(&findings) > 1_000);
}

fn dependencies_are_measured() {
    in_one_of_three(|| {
        let findings = measured("content.dependencies", 3);
        assert_eq!(of(&findings, "throughput", &["dependency lists"]).len(), 7);
        assert!(checked(&findings) > 1_000);
        let misses = |each| of_all(&findings, "cache misses", &["dependency lists"], each);
        if misses(64.0) > misses(1.0) { Ok(()) } else { Err(format!("{} and {}", misses(64.0), misses(1.0))) }
    });
}

/// For what short runs on a machine that others use too do not always show: one of three has to. Everything else they have to show each time.
fn in_one_of_three(run: fn() -> Result<(), String>) {
    let told: Vec<String> = (0..3).map_while(|_| run().err()).collect();
    assert!(told.len() < 3, "{told:?}");
}

fn the_back_end_is_loaded() {
    in_one_of_three(|| {
        let findings = measured("content.backend", 3);
        assert_eq!(of(&findings, "throughput", &["dependency lists"]).len(), 5);
        assert!(checked(&findings) > 1_000);
        let kept = |scheme| at(&findings, "throughput", &[scheme], 8.0) / at(&findings, "throughput", &[scheme], 0.0);
        // A ninth is left by eight threads; more of it where others want the core in both cases.
        if kept("no cache") < 0.8 { Ok(()) } else { Err(format!("{} is kept", kept("no cache"))) }
    });
}

fn what_a_page_takes_is_measured() {
    // What processes take besides, and now and then give back, is a part of so few pages.
    in_one_of_three(a_page_makes_sense);
}

fn a_page_makes_sense() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let report = run(row("content.memory").unwrap(), &options(folder.path(), 5), &mut |_| ()).unwrap();
    let findings = report.findings;
    let said = at(&findings, "the same in the proxy's store, as it says", &["no dependencies"], 40_000.0);
    assert!((90.0..200.0).contains(&said), "{said} bytes of the store");
    let starts = of(&findings, "start to first hit", &[]);
    assert!(starts.len() == 1 && starts[0].rounds.len() == FEWEST_ROUNDS as usize && starts[0].spread.min > 1.0);
    assert!(folder.path().join("content.memory.svg").exists());
    let beside = |variant, pages| at(&findings, "memory of a page beside key, own fields and body", &[variant], pages);
    let (none, one, nine) = (beside("no dependencies", 40_000.0), beside("1 dep", 20_000.0), beside("9 dep", 20_000.0));
    let makes_sense = (50.0..300.0).contains(&none) && none < one && one < nine && said < 1.3 * none;
    if makes_sense { Ok(()) } else { Err(format!("{none}, {one} and {nine} bytes, {said} in the store")) }
}

fn only_pages_whose_home_changed_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let findings = run(row("content.views").unwrap(), &options(folder.path(), 5), &mut |_| ()).unwrap().findings;
    let (changed, lost) = (of(&findings, "pages whose home changed", &[]), of(&findings, "pages lost", &[]));
    assert_eq!((changed.len(), lost.len()), (4, 4));
    for (changed, lost) in changed.iter().zip(lost) {
        assert!((600.0..1_500.0).contains(&changed.spread.median), "of 3048 pages: {changed:?}");
        assert_eq!(lost.spread.median, changed.spread.median, "{:?}: {:?}", changed.labels, findings.notes);
    }
    for quantity in ["until the view is in effect", "until all pages hit"] {
        let times = of(&findings, quantity, &[]);
        assert!(times.len() == 4 && times.iter().all(|time| time.rounds.len() == FEWEST_ROUNDS as usize), "{times:?}");
    }
}

fn a_key_trace_is_replayed() {
    let findings = measured("content.keys", 3);
    let hits = |policy, size| at(&findings, "hit ratio", &["with updates", policy], size);
    for policy in ["s3-fifo", "lru"] {
        let sizes = [1.0, 3.0, 10.0, 30.0, 60.0, 100.0].map(|size| hits(policy, size));
        assert!(sizes[0] > 5.0 && sizes[0] + 5.0 < sizes[5], "{policy}: {sizes:?}");
        assert!(sizes.is_sorted_by(|less, more| *less < more + 2.0), "{policy}: {sizes:?}");
        // Little but requests that overtake each other, and pages that share a word, is between this and every page kept.
        let kept = hits("every page kept", 100.0);
        assert!((0.8..=1.02).contains(&(sizes[5] / kept)), "{policy}: {} of {kept}", sizes[5]);
        let read = at(&findings, "hit ratio", &["reads only", policy], 100.0);
        assert!(read + 2.0 > sizes[5], "{policy}: {read} without updates, {} with", sizes[5]);
        assert!(at(&findings, "acknowledged updates", &[policy], 10.0) > 5.0);
        assert_eq!(at(&findings, "stale answers", &[policy], 10.0), 0.0);
    }
    assert_eq!(of(&findings, "hit ratio", &["reads only"]).len(), 9);
    // Of 12 variants, nine of ten parts of 3,000 requests.
    assert_eq!(checked(&findings), 12 * 2_700);
    assert!(findings.notes.iter().any(|note| note.contains("SYNTHESISED")), "{:?}", findings.notes);
}

fn a_trace_that_is_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.csv");
    let wrong = |content: &str| {
        std::fs::write(&trace, content).unwrap();
        let options = Options { trace: trace.clone(), ..options(folder.path(), 1) };
        run(row("content.keys").unwrap(), &options, &mut |_| ()).unwrap_err().to_string()
    };
    let malformed = wrong("time_s,key,size_bytes\n1,a,2\n2,b,large\n");
    assert!(malformed.contains("trace.csv, line 3, column 5") && malformed.contains("--trace"), "{malformed}");
    let short = wrong("time_s,key,size_bytes\n1,a,2\n");
    assert!(short.contains("1 requests: 500 are needed"), "{short}");
}

fn without_the_program_it_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out_dir = folder.path().join("out");
    for name in [
        "content.load",
        "content.updates",
        "content.dependencies",
        "content.backend",
        "content.memory",
        "content.keys",
        "content.views",
        "locks.basic",
        "locks.others",
    ] {
        let without = Options { verbena: None, ..options(folder.path(), 1) };
        let error = run(row(name).unwrap(), &without, &mut |_| ()).unwrap_err();
        assert!(matches!(error, BenchError::NoProgram { name: named } if named == name), "{error}");
        // A program that is none of ours: it is told what did not come up, with what it said.
        let other =
            Options { verbena: Some("/bin/false".into()), out_dir: out_dir.clone(), ..options(folder.path(), 1) };
        let error = run(row(name).unwrap(), &other, &mut |_| ()).unwrap_err();
        assert!(matches!(&error, BenchError::Process { happened, .. } if happened.contains("ended")), "{error}");
    }
    assert_eq!(std::fs::read_dir(&out_dir).unwrap().count(), 0, "no files");
}

/// Processes whose parent is this one.
fn children() -> BTreeSet<String> {
    let own = std::process::id().to_string();
    let stat = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stat")).ok();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| stat(entry.ok()?));
    // `pid (name) state parent ...`
    all.filter(|stat| stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&own)).collect()
}
