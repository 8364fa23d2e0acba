//! `verbena bench` and `verbena traces`: what they run is tested where it is; here, that the command runs it.

use std::fs;
use std::process::Command;

use verbena_bench::{Measurement, Report};
use verbena_testkit::machine;
use verbena_testkit::programs::{json, verbena};

#[test]
fn the_table_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let (code, rows) = json(&["bench", "--list", "--json"], directory.path());
    let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(code == 0 && names.len() > 20 && names.contains(&"fabric.primitives"), "{names:?}");
    let text = String::from_utf8(verbena(&["bench", "--list"]).output().unwrap().stdout).unwrap();
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn what_is_not_there_is_told_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = verbena(&["bench", "nothing.such"]).current_dir(&directory).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("there is no experiment"), "{told}");
    assert_eq!(verbena(&["bench"]).output().unwrap().status.code(), Some(2), "no name");
    let output = verbena(&["bench", "fabric.primitives", "--trace", "keys.csv"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--trace is for `content.keys`"), "{said}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_target_process_is_this_program() {
    let output = verbena(&[verbena_bench::CHILD_ARGUMENT, "nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no target is called"), "{output:?}");
}

#[test]
fn a_trace_is_written() {
    let arguments = ["traces", "zipf", "--requests", "50", "--seed", "3"];
    let [first, second] = [0, 1].map(|_| verbena(&arguments).output().unwrap().stdout);
    assert_eq!(first, second, "the same seed gives the same trace");
    assert_eq!(String::from_utf8(first).unwrap().lines().count(), 51);
}

#[test]
fn adapters_are_measured_between_two_sites() {
    for row in ["latency", "overlap", "throughput"] {
        machine::in_machine_at_length("rxe", &format!("bench::inside_{row}_by_adapters"));
    }
}

#[test]
fn inside_latency_by_adapters() {
    inside("wan.latency", true, |found| {
        for delay in [1_000.0, 10_000.0] {
            let one = found.the("one-way latency", &["link", "verbs", "delay"], delay);
            // Nothing is sooner than netem lets it go, and not all is much later.
            assert!(one.spread.min >= delay && one.spread.min < 1.5 * delay + 5_000.0, "{one:?}");
        }
        for between in ["cable", "link"] {
            found.the("one-way latency", &[between, "verbs", "size"], 65_536.0);
        }
    });
}

#[test]
fn inside_overlap_by_adapters() {
    inside("wan.overlap", false, |found| {
        let hidden = found.the("overlap", &["verbs", "10000 us"], 10_000.0);
        // There and back takes twice as long as what is hidden behind it.
        assert!(hidden.spread.max < 0.51, "{hidden:?}");
        // Nobody there has to look.
        let [idle, loaded] = [0.0, 16_000.0].map(|load| found.the("time to fetch", &["verbs", "0 us"], load));
        assert!(idle.spread.median < 16_000.0 && loaded.spread.median < 16_000.0, "{idle:?} {loaded:?}");
        for bytes in [1_024.0, 16_384.0, 65_536.0] {
            let sent = found.the("throughput of the senders", &["verbs", "0 us"], bytes);
            assert!(sent.spread.min > 0.01 && sent.spread.max < 2_000.0, "{sent:?}");
        }
    });
}

#[test]
fn inside_throughput_by_adapters() {
    inside("wan.throughput", false, |found| {
        const DELAY_US: f64 = 10_000.0;
        for (channel, window) in [
            ("writes over verbs of 2K, 8 under way", 16 << 10),
            ("writes over verbs of 32K, 1 under way", 32 << 10),
            // Soft-RoCE has no more than 128 packets on their way.
            ("writes over verbs of 1M, 8 under way", 128 * (4 << 10)),
        ] {
            let one = found.the("throughput", &["writes over verbs", channel], DELAY_US);
            // No more than a window can be on its way.
            let most = f64::from(window) / (2.0 * DELAY_US);
            assert!(one.spread.max <= most && one.spread.min > 0.01, "{one:?}");
            found.the("throughput", &["writes over verbs", channel], 0.0);
        }
    });
}

/// Runs a row in a machine with two adapters, looks at what it found of them, and that the link between them is as it was, or as it was before a run that was killed.
fn inside(name: &str, was_killed: bool, look: impl FnOnce(&Found)) {
    if !machine::is_inside() {
        return;
    }
    let tc = |words: &[&str]| {
        let output = Command::new("tc").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let receivers = || fs::read_to_string("/sys/class/net/v1/queues/rx-0/rps_cpus").unwrap();
    if was_killed {
        tc(&["qdisc", "add", "dev", "v0", "root", "handle", "7662:", "netem", "delay", "1s"]);
    }
    let usual = receivers();
    fs::write("/sys/class/net/v1/queues/rx-0/rps_cpus", "3").unwrap();
    let before = if was_killed { usual } else { receivers() };
    let directory = tempfile::tempdir().unwrap();
    let output = verbena(&["bench", name, "--quick", "--out", "."]).current_dir(&directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for interface in ["v0", "v1"] {
        let queues = tc(&["qdisc", "show", "dev", interface, "root"]);
        assert!(queues.contains("noqueue"), "{queues}");
    }
    assert_eq!(receivers(), before);

    let text = fs::read_to_string(directory.path().join(format!("{name}.json"))).unwrap();
    let found = Found(serde_json::from_str(&text).unwrap());
    let verbs = found.0.findings.fabrics.iter().find(|fabric| fabric.name == "verbs").unwrap();
    assert!(verbs.measured && verbs.because.contains("rxe0 on v0 and rxe1 on v1"), "{verbs:?}");
    assert!(verbs.because.contains("the delay is netem's"), "{verbs:?}");
    look(&found);
    let by_verbs = found.0.findings.measurements.iter().filter(|one| labels(one).iter().any(|of| of.contains("verbs")));
    println!("\ncounted: {} points of {name} by adapters", by_verbs.count());
}

struct Found(Report);

impl Found {
    /// The one measurement of this with these labels, of which each round has something.
    fn the(&self, quantity: &str, with: &[&str], x: f64) -> &Measurement {
        let is_it = |one: &&Measurement| {
            one.quantity == quantity && one.x == x && with.iter().all(|label| labels(one).contains(label))
        };
        let all: Vec<&Measurement> = self.0.findings.measurements.iter().filter(is_it).collect();
        let [one] = all[..] else { panic!("{quantity} {with:?} {x}: {all:?}") };
        assert!(one.rounds.len() >= 9 && one.rounds.iter().all(|round| round.count > 0), "{one:?}");
        one
    }
}

fn labels(one: &Measurement) -> Vec<&str> {
    one.labels.iter().map(|(_, value)| value.as_str()).collect()
}
