//! Rows run for real, with their target in a process of its own: `verbena`.

mod emulator;
mod sites;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use verbena_bench::{
    BenchError, CHILD_ARGUMENT, FEWEST_ROUNDS, KEY_TRACE, Measurement, Options, Report, Verdict, child_program,
    report_html, row, run,
};
use verbena_testkit::programs::path;

/// Rows use both cores: one at a time. Their targets are played by `verbena`.
fn alone() -> MutexGuard<'static, ()> {
    child_program(path("verbena"));
    crate::turn()
}

fn options(out_dir: &Path) -> Options {
    let measuring = Some(Duration::from_secs(3));
    let (trace, out_dir) = (KEY_TRACE.into(), out_dir.to_owned());
    Options { quick: true, seed: 1, rounds: None, measuring, verbena: None, trace, out_dir }
}

#[test]
fn asking_the_helper_is_timed_in_every_mode() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let report =
        run(row("memory.ipc").unwrap(), &options(folder.path()), &mut |_: &verbena_bench::Progress| ()).unwrap();
    let findings = &report.findings;
    let of = |mode: &str| -> Vec<_> {
        let is_mean = |one: &&Measurement| one.quantity == "mean round trip";
        let of_mode = |one: &&Measurement| one.labels == [("mode".to_owned(), mode.to_owned())];
        findings.measurements.iter().filter(is_mean).filter(of_mode).collect()
    };
    assert_eq!(["a bare cache line", "a line of a ring each way"].map(|way| of(way).len()), [1, 1]);
    assert_eq!(of("rcq, helper on a core of its own").len(), 1);
    let modes = ["mq", "rmq", "rcq", "adaptive"];
    for mode in modes {
        let counts: Vec<f64> = of(mode).iter().map(|one| one.x).collect();
        assert_eq!(counts, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0], "{mode}");
    }
    // Enough was asked, of those at least that sleep while they wait.
    for one in ["mq", "rmq", "adaptive"].into_iter().flat_map(of) {
        let answered: u64 = one.rounds.iter().map(|round| round.count).sum();
        assert!(one.rounds.len() == 9 && answered > 9, "{one:?}");
    }
    let claimed = findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count();
    assert_eq!((claimed, findings.panels.len(), findings.panels[0].series.len()), (2 + 10 + 2, 2, modes.len()));
}

#[test]
fn primitives_are_measured_on_every_fabric() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Vec::new();
    let mut sink = |progress: &verbena_bench::Progress| steps.push((progress.done, progress.of));
    let report = run(row("fabric.primitives").unwrap(), &options(folder.path()), &mut sink).unwrap();

    let findings = &report.findings;
    // A machine with an RDMA device measures that too, and one without says so; what follows is of the others.
    let (adapters, fabrics): (Vec<_>, Vec<_>) =
        findings.fabrics.iter().partition(|fabric| fabric.name.starts_with("verbs"));
    assert_eq!(adapters.len(), 2, "{adapters:?}");
    assert!(adapters.iter().all(|one| one.measured || one.because.contains("verbs")), "{adapters:?}");
    let (measured, not): (Vec<_>, Vec<_>) = fabrics.into_iter().partition(|fabric| fabric.measured);
    let fabrics: Vec<&str> = measured.iter().map(|fabric| fabric.name.as_str()).collect();
    let expected: &[&str] = match have_networks() {
        Ok(()) => &["shm", "xdp", "tcp", "tcp over a link", "UDP responder"],
        Err(why) => {
            println!("skipped: what goes over a link: {why}");
            assert_eq!(not.len(), 3, "{not:?}");
            &["shm", "tcp"]
        }
    };
    assert_eq!(fabrics, expected, "{:?}", findings.fabrics);
    assert!(not.iter().all(|fabric| fabric.because.contains("root")), "{not:?}");
    for fabric in fabrics.iter().filter(|fabric| **fabric != "UDP responder") {
        for operation in ["send/recv", "read", "write", "CAS", "FAA"] {
            let of = |quantity: &str| {
                let labelled = |measurement: &&verbena_bench::Measurement| {
                    let values: Vec<&str> = measurement.labels.iter().map(|(_, value)| value.as_str()).collect();
                    values.contains(fabric) && values.contains(&operation) && measurement.quantity == quantity
                };
                findings.measurements.iter().filter(labelled).collect::<Vec<_>>()
            };
            let (latencies, costs) = (of("latency"), of("processor time of the target"));
            assert!(!latencies.is_empty() && latencies.len() == costs.len(), "{fabric}, {operation}");
            let own = of("processor time of the caller");
            assert_eq!(own.len(), costs.len());
            // Whoever calls takes some time; a target may take none.
            assert!(own.iter().all(|cost| cost.spread.min > 0.0), "{fabric}, {operation}");
            for latency in latencies {
                assert_eq!(latency.rounds.len(), FEWEST_ROUNDS as usize);
                assert!(latency.rounds.iter().all(|round| round.count >= 3 && round.min > 0.0));
                assert!(latency.spread.min <= latency.spread.median && latency.spread.median <= latency.spread.max);
            }
        }
        let of_fabric = findings.ratios.iter().filter(|ratio| ratio.under.starts_with(&format!("{fabric},"))).count();
        assert!(of_fabric >= 8, "{of_fabric} ratios of {fabric}");
        assert_eq!(findings.panels.iter().filter(|panel| panel.title.starts_with(&format!("{fabric}:"))).count(), 3);
    }
    let together = findings.panels.iter().filter(|panel| panel.title.starts_with("read, notification:"));
    let lines: Vec<usize> = together.map(|panel| panel.series.len()).collect();
    assert_eq!(lines, [fabrics.len(); 3]);
    for ratio in &findings.ratios {
        let claim = ratio.claim.as_ref();
        assert!(
            claim.is_none_or(|claim| (claim.verdict == Verdict::DoesNotHold) == claim.reason.is_some()),
            "{ratio:?}"
        );
    }
    assert_eq!(steps.first().map(|step| step.0), Some(0));
    assert!(steps.last().is_some_and(|(done, of)| done == of && *of as usize == steps.len() - 1));

    let json = std::fs::read_to_string(folder.path().join("fabric.primitives.json")).unwrap();
    let written: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(written.findings.measurements.len(), findings.measurements.len());
    assert_eq!((written.row, written.machine), (report.row.clone(), report.machine.clone()));
    let svg = std::fs::read_to_string(folder.path().join("fabric.primitives.svg")).unwrap();
    assert!(svg.contains("CPU seconds per million operations") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(report_html(&[report]).unwrap().matches("<svg").count() >= 3);
}

/// Whether there can be networks with programs on their interfaces here, or why not. Found out by other means than those that are tested.
fn have_networks() -> Result<(), String> {
    verbena_namespaces::Namespace::new().map_err(|error| error.to_string())?;
    let tried = verbena_fabric::try_out(verbena_fabric::Provider::Xdp, &verbena_fabric::FabricConfig::default());
    tried.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn reads_are_timed_on_every_fabric() {
    let _alone = alone();
    for (provider, needs_networks) in [("shm", false), ("tcp", false), ("xdp", true)] {
        if let (true, Err(why)) = (needs_networks, have_networks()) {
            println!("skipped: reads over {provider}: {why}");
            continue;
        }
        let program = path("verbena");
        let mut reader = Command::new(program);
        reader.args([CHILD_ARGUMENT, "on-core", "0", "reads", provider, "0"]);
        let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        writeln!(reader.stdin.take().unwrap(), r#"{{"secs": 0, "nanos": 50000000}}"#).unwrap();
        let said = std::io::read_to_string(reader.stdout.take().unwrap()).unwrap();
        assert!(reader.wait().unwrap().success(), "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(said["Done"]["count"].as_u64().unwrap() > 20, "{provider}: {said}");
    }
}

#[test]
fn reads_are_measured_under_load() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let findings = run(row("fabric.load").unwrap(), &options(folder.path()), &mut |_| ()).unwrap().findings;
    let (measured, not): (Vec<_>, Vec<_>) = findings.fabrics.iter().partition(|fabric| fabric.measured);
    let mut expected = vec!["xdp, caller's core", "xdp, target's core", "shm", "tcp over a link", "UDP responder"];
    if let Err(why) = have_networks() {
        println!("skipped: what goes over a link: {why}");
        expected = vec!["shm"];
    } else if !std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        println!("skipped: threads of the kernel are not seen here: {not:?}");
        expected.remove(1);
    }
    let names: Vec<&str> = measured.iter().map(|fabric| fabric.name.as_str()).collect();
    assert_eq!(names, expected, "{:?}", findings.fabrics);
    assert!(not.iter().all(|fabric| fabric.because.len() > 20), "{not:?}");

    for name in &names {
        let of = |quantity: &str, bytes: &str, x: f64| {
            let found = findings.measurements.iter().find(|one| {
                let has = |value: &str| one.labels.iter().any(|(_, it)| it == value);
                one.quantity == quantity && one.x == x && has(name) && has(bytes)
            });
            found.unwrap_or_else(|| panic!("no {quantity} of {name} with {bytes} bytes at {x}"))
        };
        for x in [0.0, 50.0, 100.0, 200.0] {
            let latency = of("latency", "8", x);
            assert_eq!(latency.rounds.len(), FEWEST_ROUNDS as usize);
            assert!(latency.rounds.iter().all(|round| round.count >= 3 && round.min > 0.0), "{latency:?}");
            assert!(of("processor time of the caller", "8", x).spread.min > 0.0, "{name}");
            assert_eq!(of("processor time of the target", "8", x).rounds.len(), FEWEST_ROUNDS as usize);
            if *name != "UDP responder" {
                assert!(of("bandwidth", "4096", x).spread.min > 0.0);
            }
            let busy = of("processor time of the busy threads", "8", x).spread;
            assert!(if x == 0.0 { busy.median < 0.05 } else { busy.max > 0.1 }, "{name}, {x}: {busy:?}");
        }
        let ratios = findings.ratios.iter().filter(|ratio| ratio.under.starts_with(&format!("{name}, 8")));
        assert_eq!(ratios.filter(|ratio| ratio.claim.is_some()).count(), 6);
    }
    // What the target does for others is none of its processes' doing, or its kernel's, or an agent's: somebody's time it is.
    let targets = findings.panels.iter().find(|panel| panel.title.contains("processor time of the target")).unwrap();
    for line in targets.series.iter().filter(|line| line.name != "shm" && line.name != "xdp, caller's core") {
        assert!(line.points.iter().all(|point| point.y.min > 0.0), "{line:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn what_cannot_be_run_is_an_error_and_leaves_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out_dir = folder.path().join("out");
    let few = Options { rounds: Some(FEWEST_ROUNDS - 1), ..options(&out_dir) };
    let error = run(row("fabric.primitives").unwrap(), &few, &mut |_| ()).unwrap_err();
    assert!(matches!(error, BenchError::TooFewRounds { rounds: 8 }), "{error}");
    assert!(!out_dir.exists());
}

#[test]
fn a_target_that_is_asked_nonsense_says_so() {
    let _alone = alone();
    for arguments in [&["primitives", "carrier pigeon"][..], &["cooking"], &[]] {
        let program = path("verbena");
        let output = Command::new(program).arg(CHILD_ARGUMENT).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!output.status.success() && said.starts_with("{\"Failed\":"), "{arguments:?}: {said}");
    }
}

/// A part of an experiment with web pages; ended when dropped.
struct Part(std::process::Child);

impl Part {
    fn start(words: &[&str]) -> Part {
        let program = path("verbena");
        Part(Command::new(program).arg(CHILD_ARGUMENT).args(words).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Starts a server and waits until it takes connections.
    fn server(address: &str, words: &[&str]) -> Part {
        let part = Part::start(&[&words[..1], &["--listen", address], &words[1..]].concat());
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "{words:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        part
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address where nobody listens.
fn address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_client_keeps_to_its_rate() {
    let _alone = alone();
    let (pages, bare) = (address(), address());
    let _pages = Part::server(&pages, &["pages"]);
    let _bare = Part::server(&bare, &["bare", "--like", &pages, "--path", "/2000/a"]);
    let ask = |to: &str, path: &str| {
        let words = ["paced", "--connect", to, "--path", path, "--rate", "500", "--seconds", "1", "--connections", "8"];
        let mut part = Part::start(&words);
        let said = std::io::read_to_string(part.0.stdout.take().unwrap()).unwrap();
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    // What bare gives is another's page, whatever it is asked for.
    for (to, path) in [(&pages, "/30000/b"), (&bare, "/30000/b")] {
        let found = &ask(to, path)["Done"];
        let (answered, lost) = (found["answered"].as_u64().unwrap(), found["lost"].as_u64().unwrap());
        assert!((499..=501).contains(&(answered + lost)), "{found}");
        assert!(answered > 400 && found["p50_us"].as_f64().unwrap() > 1.0, "{found}");
        assert!(found["p50_us"].as_f64() <= found["p99_us"].as_f64(), "{found}");
    }
    let refused = ask(&pages, "/none");
    assert!(refused["Failed"].as_str().is_some_and(|reason| reason.contains("404")), "{refused}");
}

/// A server that acknowledges updates, and goes on giving the pages of before.
fn serve_stale(mut stream: std::net::TcpStream, update_to: u32) -> std::io::Result<()> {
    let mut asked = std::io::BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if asked.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap();
        let mut body = if head.starts_with("POST") { format!("{update_to}\n") } else { format!("{path}\n1 \n") };
        if head.starts_with("GET") {
            body.extend(std::iter::repeat_n(' ', 8_192 - body.len()));
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

#[test]
fn a_client_sees_what_is_stale() {
    let _alone = alone();
    // Version 1 is what the pages show.
    for (update_to, is_stale) in [(1, false), (2, true)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || serve_stale(stream, update_to));
            }
        });
        let program = path("verbena");
        let mut client = Command::new(program);
        client.args([CHILD_ARGUMENT, "closed", "--seed", "1"]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let order = serde_json::json!({
            "address": address, "workload": {"Database": {"dependencies": 1, "alpha": 1.0}}, "cached": true, "connections": 4,
            "sweep": {"secs": 1, "nanos": 0}, "updates": {"per_s": 200.0, "alpha": 1.0}, "length": {"secs": 1, "nanos": 0},
        });
        writeln!(client.stdin.take().unwrap(), "{order}").unwrap();
        let said = std::io::read_to_string(client.stdout.take().unwrap()).unwrap();
        assert!(client.wait().unwrap().success(), "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = &said["Done"];
        assert!(found["checked"].as_u64().unwrap() > 100 && found["updates_per_s"].as_f64().unwrap() > 20.0, "{said}");
        assert_eq!(found["stale"].as_u64().unwrap() > 0, is_stale, "{said}");
    }
}

#[test]
fn a_malformed_log_prints_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let good = "time_s,key,size_bytes\n".to_owned() + &"1,a,2\n".repeat(50_000);
    for (content, lines) in [(good.clone(), 50_001), (good + "1,a\n", 0)] {
        std::fs::write(&log, content).unwrap();
        let program = path("verbena");
        let output = Command::new(program).args(["traces", "keys"]).arg(&log).output().unwrap();
        assert_eq!(output.status.success(), lines > 0);
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), lines);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("line 50002, column 4"), lines == 0, "{said}");
    }
}
