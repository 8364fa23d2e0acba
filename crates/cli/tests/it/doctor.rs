//! `verbena doctor`: what works is said to work, and what does not is not.

use std::process::Command;

use serde_json::Value;
use verbena_testkit::machine;
use verbena_testkit::programs::{json, verbena};

fn provider<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["providers"].as_array().unwrap().iter().find(|provider| provider["name"] == name).unwrap()
}

fn check<'a>(of: &'a Value, what: &str) -> &'a Value {
    of["checks"].as_array().unwrap().iter().find(|check| check["what"] == what).unwrap()
}

#[test]
fn it_tells_what_this_machine_can_do() {
    let directory = tempfile::tempdir().unwrap();
    let (code, report) = json(&["doctor", "--json"], directory.path());
    assert_eq!(code, 0, "{report:#}");
    for (name, executor) in [("shm", "memory"), ("tcp", "agent")] {
        let found = provider(&report, name);
        assert_eq!((&found["usable"], &found["in_build"]), (&true.into(), &true.into()), "{found:#}");
        assert_eq!(found["capabilities"]["executor"], executor);
        assert_eq!(check(found, "a word changed through it")["verdict"], "good");
    }
    // To load programs into a kernel takes rights that not everybody has.
    let xdp = provider(&report, "xdp");
    assert_eq!(xdp["in_build"], true, "{xdp:#}");
    let (usable, tried) = (&xdp["usable"], &check(xdp, "a word changed through it")["verdict"]);
    assert!(usable == true && tried == "good" || usable == false && tried == "missing", "{xdp:#}");
    assert_eq!(xdp["capabilities"]["executor"], if usable == true { "kernel".into() } else { Value::Null });
    // Tests are built with `verbs`.
    for (name, in_build) in [("sim", false), ("verbs", true)] {
        let found = provider(&report, name);
        assert_eq!((&found["usable"], &found["in_build"]), (&false.into(), &in_build.into()), "{found:#}");
        assert!(found["capabilities"].is_null());
    }
    let machine = report["machine"].as_array().unwrap();
    let looked_at: Vec<_> = machine.iter().map(|check| check["what"].as_str().unwrap()).collect();
    let expected =
        ["cores", "kernel", "open files", "locked memory", "CLOCK_BOOTTIME", "runtime directory", "state directory"];
    assert_eq!(looked_at, expected);
    assert_eq!((&report["choice"]["provider"], &report["choice"]["usable"]), (&"shm".into(), &true.into()));
    // Whatever is not good says what to do.
    let checks =
        report["providers"].as_array().unwrap().iter().flat_map(|provider| provider["checks"].as_array().unwrap());
    for check in checks.chain(machine) {
        assert_eq!(check["verdict"] == "good", check["remedy"].is_null(), "{check:#}");
    }
}

#[test]
fn two_capabilities_are_enough_for_xdp() {
    let directory = tempfile::tempdir().unwrap();
    let (_, report) = json(&["doctor", "--json"], directory.path());
    if provider(&report, "xdp")["usable"] != true {
        return println!("skipped: nobody may load a program into this kernel");
    }
    let only = "--bounding-set=-all,+bpf,+net_admin";
    let program = env!("CARGO_BIN_EXE_verbena");
    let output = Command::new("setpriv").args([only, program, "doctor", "--json"]).current_dir(&directory).output();
    let report: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let xdp = provider(&report, "xdp");
    assert_eq!(xdp["usable"], true, "{xdp:#}");
    assert_eq!(check(xdp, "privileges to load a program")["found"], "CAP_NET_ADMIN and CAP_BPF", "{xdp:#}");
}

#[test]
fn people_get_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let output = verbena(&["doctor", "--fabric-provider", "tcp"]).current_dir(&directory).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |begin: &str| {
        text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_else(|| panic!("{text}"))
    };
    let words = |begin: &str| line(begin).split_whitespace().collect::<Vec<_>>().join(" ");
    // Only who may load a program into the kernel has xdp.
    let expected = [
        ("capabilities shm xdp tcp", "target cpu free yes yes no"),
        ("capabilities shm tcp", "target cpu free yes no"),
    ];
    let found = (words("capabilities"), words("target cpu free"));
    assert!(expected.iter().any(|(heads, free)| found == ((*heads).to_owned(), (*free).to_owned())), "{found:?}");
    assert_eq!(line("tcp gives"), "tcp gives tcp: fabric.provider names it");
}

#[test]
fn without_descriptors_nothing_works_and_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_verbena");
    let starved = format!("ulimit -n 6; exec {program} doctor --json");
    let output = Command::new("sh").args(["-c", &starved]).current_dir(&directory).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let shm = provider(&report, "shm");
    assert_eq!((&shm["usable"], &report["choice"]["usable"]), (&false.into(), &false.into()));
    assert_eq!(check(shm, "a word changed through it")["verdict"], "missing");
}

#[test]
fn certificates_are_read_and_their_end_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let found = |directory: &std::path::Path| {
        let (_, report) = json(&["doctor", "--json", "--fabric-keys", "keys"], directory);
        let checks = provider(&report, "tcp")["checks"].as_array().unwrap().clone();
        let of_certificates = checks.into_iter().filter(|check| check["what"] == "certificates");
        of_certificates.map(|check| check["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(directory.path()), ["missing", "missing", "missing"]);
    for arguments in [&["keys", "init"][..], &["keys", "node", "1", "--valid", "3d"]] {
        assert!(verbena(arguments).current_dir(&directory).output().unwrap().status.success());
    }
    assert_eq!(found(directory.path()), ["good", "fair"]);
}

#[test]
fn adapters_are_shown() {
    machine::in_machine("rxe", "doctor::inside_adapters_are_shown");
}

#[test]
fn inside_adapters_are_shown() {
    if !machine::is_inside() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let text = verbena(&["doctor", "--fabric-listen", "10.77.0.2:7000"]).current_dir(&directory).output().unwrap();
    println!("{}", String::from_utf8_lossy(&text.stdout));
    for line in [
        "+ device: rxe0: RoCE, firmware 0.0.0",
        "+ atomics: rxe0: atomic against this device's own",
        "+ port: rxe1/1: active, Ethernet, MTU 4096 bytes",
        "+ GID: rxe1/1, index 1: RoCE v2, ::ffff:10.77.0.2, of v1",
        "+ a node takes: rxe1/1, GID 1 (RoCE v2, ::ffff:10.77.0.2): it has 10.77.0.2, where the node listens",
    ] {
        assert!(String::from_utf8_lossy(&text.stdout).lines().any(|found| found.trim() == line), "{line}");
    }
    let taken = |arguments: &[&str]| {
        let (_, report) = json(&[&["doctor", "--json"], arguments].concat(), directory.path());
        let names = report["adapters"]["devices"].as_array().unwrap().iter().map(|device| device["name"].clone());
        assert_eq!(names.collect::<Vec<_>>(), ["rxe0", "rxe1"]);
        let choice = &report["adapters"]["choice"];
        let check = check(provider(&report, "verbs"), "a node takes").clone();
        (choice["device"].clone(), choice["gid_index"].clone(), check["verdict"].clone(), check["found"].clone())
    };
    let loaded = check(provider(&json(&["doctor", "--json"], directory.path()).1, "verbs"), "library").clone();
    assert!(loaded["found"].as_str().unwrap().contains("/libibverbs.so.1"), "{loaded:#}");
    let (device, gid_index, verdict, _) = taken(&[]);
    assert_eq!((device, gid_index, verdict), ("rxe0".into(), 1.into(), "good".into()));
    let (device, _, verdict, found) = taken(&["--fabric-listen", "10.77.0.9:7000"]);
    assert_eq!((device, verdict), (Value::Null, "missing".into()));
    assert_eq!(found, "no active port has the address 10.77.0.9, where the node listens");
    let members = ["10.77.0.1", "10.77.0.2"]
        .map(|address| format!("{{ name = \"at-{address}\", address = \"tcp://{address}:7000\" }}"))
        .join(", ");
    let config = format!("[cluster]\nname = \"at-10.77.0.2\"\nmembers = [{members}]\n");
    std::fs::write(directory.path().join("verbena.toml"), config).unwrap();
    let (device, _, _, found) = taken(&["--config", "verbena.toml"]);
    assert_eq!(device, "rxe1", "{found}");
    let (_, report) = json(&["doctor", "--json", "--fabric-verbs-device", "rxe1"], directory.path());
    let verbs = provider(&report, "verbs");
    assert_eq!(
        (&verbs["usable"], &report["adapters"]["choice"]["device"]),
        (&true.into(), &"rxe1".into()),
        "{verbs:#}"
    );
    assert_eq!(check(verbs, "a word changed through it")["verdict"], "good");
    assert_eq!(
        (&verbs["capabilities"]["executor"], &verbs["capabilities"]["atomic_scope"]),
        (&"hardware".into(), &"fabric".into())
    );
    println!("\ncounted: 2 adapters shown to people and to programs");
}

#[test]
fn adapters_of_iwarp_are_shown() {
    machine::in_machine_at_length("siw", "doctor::inside_adapters_of_iwarp_are_shown");
}

#[test]
fn inside_adapters_of_iwarp_are_shown() {
    if !machine::is_inside() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (_, report) = json(&["doctor", "--json", "--fabric-listen", "10.77.0.2:7000"], directory.path());
    let verbs = provider(&report, "verbs");
    let choice = &report["adapters"]["choice"];
    assert_eq!((&choice["device"], &choice["address"]), (&"siw1".into(), &"10.77.0.2".into()), "{verbs:#}");
    assert_eq!(
        (&verbs["usable"], &check(verbs, "a word changed through it")["verdict"]),
        (&true.into(), &"good".into())
    );
    let capabilities = ["executor", "changes", "atomics", "atomic_scope"].map(|name| &verbs["capabilities"][name]);
    assert_eq!(capabilities, ["hardware", "agent", "emulated", "processor"]);

    // Without what the manager needs it is said how to get it.
    for (take, give, expected) in [
        (
            "mv /usr/lib/x86_64-linux-gnu/librdmacm.so.1 /tmp",
            "mv /tmp/librdmacm.so.1 /usr/lib/x86_64-linux-gnu",
            "librdmacm.so.1, is not there",
        ),
        ("mv /dev/infiniband/rdma_cm /dev/away", "mv /dev/away /dev/infiniband/rdma_cm", "modprobe rdma_ucm"),
        ("ip addr del 10.77.0.2/24 dev v1", "ip addr add 10.77.0.2/24 dev v1", "10.77.0.2"),
    ] {
        let run = |line: &str| assert!(Command::new("sh").args(["-ec", line]).status().unwrap().success(), "{line}");
        run(take);
        let (_, report) = json(&["doctor", "--json", "--fabric-listen", "10.77.0.2:7000"], directory.path());
        run(give);
        let verbs = provider(&report, "verbs");
        assert!(verbs["usable"] == false && verbs.to_string().contains(expected), "{expected}: {verbs:#}");
    }
    println!("\ncounted: 2 adapters of iWARP, 3 refusals");
}
