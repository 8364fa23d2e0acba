//! Rows that start nodes and proxies, run for real: each with `verbena` as it was built for these tests.

mod bank;
mod content;
mod coop;
mod http;
mod locks;
mod memory;
mod relayed;
mod transfer;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use verbena_bench::{
    FEWEST_ROUNDS, Findings, KEY_TRACE, Measurement, Options, Report, Verdict, child_program, row, run,
};
use verbena_testkit::{namespaces, programs};

use crate::common::makes_networks;

/// Makes a test of each, of its name.
macro_rules! tests {
    ($($module:ident::$name:ident,)*) => {$(
        #[test]
        fn $name() {
            alone(stringify!($name), $module::$name);
        }
    )*};
}

tests! {
    content::hits_are_measured_under_load,
    content::schemes_are_measured_under_updates,
    content::dependencies_are_measured,
    content::the_back_end_is_loaded,
    content::what_a_page_takes_is_measured,
    content::a_key_trace_is_replayed,
    content::only_pages_whose_home_changed_are_lost,
    locks::free_locks_are_timed_and_counted,
    locks::locks_go_through_a_queue,
    locks::locks_are_taken_as_a_trace_has_it,
    locks::one_lock_is_wanted_by_many,
    locks::others_have_locks_too,
    relayed::the_relay_is_measured_beside_direct_connections,
    relayed::sites_are_read_while_they_are_edited,
    http::many_clients_ask_for_one_page_at_once,
    http::hits_are_counted_beside_other_caches,
    http::what_was_purged_is_not_answered_again,
    http::the_module_for_apache_asks_before_each_hit,
    memory::values_are_got_and_put,
    memory::many_get_values,
    memory::a_proxy_monitors_servers,
    memory::checkpoints_are_saved,
    memory::applications_ask_for_what_they_need,
    coop::a_pool_stands_beside_memcached,
    coop::schemes_miss_what_their_memory_cannot_hold,
    coop::a_trace_goes_through_four_nodes,
    coop::a_lookup_is_timed,
    transfer::files_are_copied_within_a_machine,
    transfer::processor_time_is_counted_at_both_ends,
    transfer::files_are_fetched_over_a_long_link,
    transfer::many_files_go_in_one_session,
    transfer::trees_are_fetched_over_a_long_link,
    bank::a_volume_is_read_with_the_bank_and_without,
    content::a_trace_that_is_none_is_an_error,
    content::without_the_program_it_is_an_error,
}

/// Runs a test alone in its process, which shows that no other process is left behind. One at a time: each wants two cores.
fn alone(name: &str, test: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _networks = makes_networks();
    programs::alone(&format!("bench_rows::{name}"), || {
        child_program(verbena());
        test();
        assert_eq!(children(), BTreeSet::new(), "{name} left processes behind");
    });
}

fn verbena() -> PathBuf {
    env!("CARGO_BIN_EXE_verbena").into()
}

fn options(out_dir: &Path, seconds: u64) -> Options {
    let verbena = Some(verbena());
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

/// Processes whose parent is this one.
fn children() -> BTreeSet<String> {
    let own = std::process::id().to_string();
    let stat = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stat")).ok();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| stat(entry.ok()?));
    // `pid (name) state parent ...`
    all.filter(|stat| stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&own)).collect()
}
