//! Real processes, killed, paused and restarted while every answer is checked. The long runs are the part `never-stale` of
//! `scripts/test-long.sh`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use verbena_namespaces::{Namespace, or_skipped};
use verbena_testkit::namespaces;

/// One system of seven processes at a time is enough for a small machine.
static ONE: Mutex<()> = Mutex::new(());

fn passes(arguments: &str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // It bounds its own time, and ends what it started.
    let own = Path::new(env!("CARGO_BIN_EXE_never-stale"));
    let programs = own.parent().unwrap();
    let mut command = Command::new(own);
    // A path that means something only where it is said.
    command.current_dir(programs.parent().unwrap()).arg("--programs").arg(programs.file_name().unwrap());
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn in_shared_memory_with_dependency_lists() {
    passes(
        "--fabric shm --scheme dependency-lists --seconds 20 --faults 7 --seed 1
         --min-answers 1000 --min-hits-percent 5 --min-soon 20 --min-updates 50",
    );
}

#[test]
fn with_standard_pages_slices_tls_http2_and_parts() {
    passes(
        "--fabric tcp --scheme dependency-lists --mixed --seconds 15 --faults 5 --seed 4 --every-ms 20
         --min-answers 1000 --min-hits-percent 5 --min-soon 20 --min-updates 50",
    );
}

// Each update empties the cache, and a slow machine needs a while to fill it: updates come less often than in the long run.
#[test]
fn over_tcp_with_an_unchanged_shop() {
    passes(
        "--fabric tcp --scheme invalidate-all --seconds 15 --faults 4 --seed 2 --every-ms 40 --longest-transaction-ms 2200
         --min-answers 500 --min-hits-percent 1 --min-soon 20 --min-updates 30",
    );
}

// Two homes share an interface, and three proxies another, and die on it.
#[test]
fn over_xdp_between_two_networks() {
    let Some(_own) = namespaces::own(IpAddr::V4(Ipv4Addr::new(10, 78, 2, 1))) else { return };
    passes(
        "--fabric xdp --scheme dependency-lists --seconds 15 --faults 7 --seed 3
         --min-answers 1000 --min-hits-percent 5 --min-soon 20 --min-updates 50",
    );
}

// How long it takes until service is back is measured by the long runs; here it must only come back.
#[test]
fn in_networks_of_their_own_that_are_cut() {
    if or_skipped(Namespace::new()).unwrap().is_none() {
        return;
    }
    passes(
        "--fabric tcp --network --scheme dependency-lists --seconds 14 --longest-transaction-ms 2200 --seed 1
         --min-faults 3 --max-back-leases 20 --min-answers 500 --min-hits-percent 1 --min-soon 20 --min-updates 50",
    );
}

// Whoever holds the office keeps; what the seed draws has a member of etcd among it.
#[test]
fn in_networks_of_their_own_where_etcd_keeps() {
    if or_skipped(Namespace::new()).unwrap().is_none() {
        return;
    }
    if Command::new("etcd").arg("--version").output().is_err() {
        return println!("skipped: etcd is not installed");
    }
    passes(
        "--fabric tcp --network --cluster etcd --scheme dependency-lists --seconds 20 --longest-transaction-ms 2200 --seed 1
         --min-faults 5 --max-back-leases 20 --min-answers 500 --min-hits-percent 1 --min-soon 20 --min-updates 50",
    );
}

#[test]
fn only_tcp_goes_through_networks_of_their_own() {
    let own = env!("CARGO_BIN_EXE_never-stale");
    let mut command = Command::new(own);
    command.args(["--fabric", "shm", "--scheme", "invalidate-all", "--network"]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--network goes with --fabric tcp"), "{said}");
}

#[test]
fn without_the_rights_for_xdp_nothing_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_never-stale");
    let mut words = vec![own, "--fabric", "xdp", "--scheme", "invalidate-all"];
    // Whoever is not root has none to lay down.
    if rustix::process::geteuid().is_root() {
        words.splice(..0, ["setpriv", "--bounding-set=-all"]);
    }
    let mut command = Command::new(words[0]);
    let output = command.args(&words[1..]).env("TMPDIR", directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("xdp cannot be used here: "), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no files");
}

#[test]
fn what_cannot_be_started_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let told = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_never-stale"));
        command.current_dir(directory.path()).env("TMPDIR", directory.path());
        command.args(["--fabric", "shm", "--scheme", "invalidate-all", "--programs", "bin"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let program = directory.path().canonicalize().unwrap().join("bin/verbena");
    let program = program.display();
    assert!(told().contains(&format!("{program} is not there")), "{}", told());
    std::fs::create_dir(directory.path().join("bin")).unwrap();
    for name in ["verbena", "shop"] {
        std::fs::write(directory.path().join("bin").join(name), "no program").unwrap();
    }
    assert!(told().contains(&format!("{program}: Permission denied")), "{}", told());
}
