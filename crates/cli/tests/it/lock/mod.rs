//! Locks with real processes: `verbena lock run` and programs at several nodes, of which some are stopped or killed.

mod client;
mod jobs;
mod memory;
mod removing;
mod restarting;
mod seen;
mod signals;
mod starting;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Hold, Locks, Socket};
use verbena_testkit::nodes::{Cluster, Node, are_in};
use verbena_testkit::programs::verbena;

use seen::counted;

/// Long enough for a machine with much else to do. Waiting costs no processor.
const LEASE: &str = "2s";
const NAMES: [&str; 3] = ["a", "b", "c"];

fn on_shm() -> Cluster {
    Cluster::on_shm(LEASE)
}

fn on_tcp() -> Cluster {
    Cluster::on_tcp(LEASE)
}

fn three(cluster: &Cluster) -> [Node; 3] {
    let nodes = NAMES.map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    nodes
}

/// `verbena lock` and one of its commands, at a node.
fn lock(cluster: &Cluster, what: &str, node: &str) -> Command {
    let mut command = verbena(&["lock", what, "--cluster-name", node]);
    command.current_dir(cluster.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `verbena lock run` at a node.
fn lock_run(cluster: &Cluster, node: &str, arguments: &[&str]) -> Command {
    let mut command = lock(cluster, "run", node);
    command.args(arguments);
    command
}

/// What it ended with, and what it complained of.
fn ended(output: Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn connect(cluster: &Cluster, node: &str) -> Locks {
    let socket = Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap();
    Locks::connect(&socket, Duration::from_secs(5)).unwrap()
}

fn acquire(locks: &mut Locks, name: &str, mode: LockMode) -> Hold {
    locks.acquire(name.as_bytes(), mode, Some(Duration::from_secs(20))).unwrap()
}

/// The moments that commands wrote into a file, nanoseconds.
fn moments(cluster: &Cluster, file: &str) -> Vec<u128> {
    let text = std::fs::read_to_string(cluster.path().join(file)).unwrap_or_default();
    text.lines().map(|line| line.trim().parse().unwrap()).collect()
}

fn wait_for(what: &str, mut is_it: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_it() {
        assert!(began.elapsed() < Duration::from_secs(60), "not {what} in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a number, takes its time, and writes the next one.
const COUNTS: &str = "n=$(cat number); sleep 0.02; echo $((n + 1)) > number; echo \"$VERBENA_LOCK_TOKEN\" >> tokens";

fn number(directory: &Path) -> usize {
    std::fs::read_to_string(directory.join("number")).unwrap().trim().parse().unwrap()
}

fn commands_take_turns(cluster: &Cluster) {
    let _nodes = three(cluster);
    std::fs::write(cluster.path().join("number"), "0").unwrap();
    let run = |at: usize| lock_run(cluster, NAMES[at % 3], &["count", "--", "sh", "-c", COUNTS]).spawn().unwrap();
    for child in (0..30).map(run).collect::<Vec<Child>>() {
        assert_eq!(ended(child.wait_with_output().unwrap()), (Some(0), String::new()));
    }
    assert_eq!(number(cluster.path()), 30);
    let tokens = moments(cluster, "tokens");
    assert!(tokens.len() == 30 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // Those who share hold it together, and with nobody who holds it alone.
    let meet = "touch in-$1; for i in $(seq 400); do test -e in-1 -a -e in-2 && exit 0; sleep 0.01; done; exit 1";
    let readers = ["1", "2"].map(|reader| {
        let arguments = ["--shared", "count", "--", "sh", "-c", meet, "sh", reader];
        lock_run(cluster, NAMES[reader.len()], &arguments).spawn().unwrap()
    });
    for reader in readers {
        assert_eq!(ended(reader.wait_with_output().unwrap()), (Some(0), String::new()));
    }
}

#[test]
fn commands_take_turns_on_shm() {
    commands_take_turns(&on_shm());
}

#[test]
fn commands_take_turns_on_tcp() {
    commands_take_turns(&on_tcp());
}

/// So that we know that the commands above would be seen not to take turns.
#[test]
fn commands_without_a_lock_lose_some() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("number"), "0").unwrap();
    let run = |_| Command::new("sh").args(["-c", COUNTS]).current_dir(directory.path()).spawn().unwrap();
    for mut child in (0..30).map(run).collect::<Vec<Child>>() {
        child.wait().unwrap();
    }
    assert!(number(directory.path()) < 30);
}

/// Text or not, with whatever is in it, and as long as names may be.
#[test]
fn names_are_any_bytes() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    for bytes in [&b"\xff\n\x1b[2J"[..], "\u{2028} ".as_bytes(), b"-", &[b'n'; 1024]] {
        let name = OsStr::from_bytes(bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let json = |command: &mut Command| -> (Option<i32>, Value) {
            let output = command.arg("--json").arg("--").arg(name).output().unwrap();
            (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
        };
        let lists = || {
            let (code, list) = json(&mut lock(&cluster, "ls", "c"));
            assert_eq!(code, Some(0), "{list}");
            list["locks"].as_array().unwrap().iter().map(|lock| lock["name_hex"].clone()).collect::<Vec<_>>()
        };
        let mut run = lock(&cluster, "run", "a");
        run.arg(name).args(["--", "sh", "-c", "touch held; while test -e held; do sleep 0.01; done"]);
        let child = run.spawn().unwrap();
        wait_for("it is held", || cluster.path().join("held").exists());
        assert_eq!(lists(), [hex.as_str()]);
        let text = lock(&cluster, "ls", "b").output().unwrap().stdout;
        assert!(!text.contains(&0x1b) && text.iter().filter(|byte| **byte == b'\n').count() == 2, "{text:?}");
        std::fs::remove_file(cluster.path().join("held")).unwrap();
        assert_eq!(ended(child.wait_with_output().unwrap()), (Some(0), String::new()));
        assert_eq!(lock(&cluster, "ls", "c").output().unwrap().stdout, b"", "nobody has any");
        let (code, said) = json(&mut lock(&cluster, "rm", "b"));
        assert_eq!((code, &said["outcome"]), (Some(0), &Value::from("removed")), "{said}");
    }
    let long = lock_run(&cluster, "a", &[&"n".repeat(1025), "--", "true"]).output().unwrap();
    let (code, said) = ended(long);
    assert!(code != Some(0) && said.contains("1024"), "{code:?} {said}");
}

/// A node that is stopped for longer than its lease has lost what its programs held: `verbena lock stress` says so.
#[test]
fn stress_says_what_was_lost() {
    // Shorter than what it is held for: a loss more or less by another cause does no harm here.
    let cluster = Cluster::on_shm("500ms");
    let [_a, b, _c] = three(&cluster);
    let mut stress = lock(&cluster, "stress", "b");
    let stress = stress.args(["--seconds", "6", "--hold", "400ms", "--json"]).spawn().unwrap();
    wait_for("it is held", || counted(&cluster, "b", &["held"]) == [1.0]);
    b.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1500));
    b.signal(Signal::CONT);
    let output = stress.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &said["broken"]), (Some(1), &Value::from(0)), "{said}");
    assert!(said["lost"].as_u64() >= Some(1) && said["taken"].as_u64() >= Some(3), "{said}");
}

#[test]
fn exit_codes_say_how_it_went() {
    let cluster = on_shm();
    let no_helper = lock_run(&cluster, "a", &["x", "--", "true"]).output().unwrap();
    assert_eq!(no_helper.status.code(), Some(3));
    let _nodes = three(&cluster);
    let run = |arguments: &[&str]| ended(lock_run(&cluster, "a", arguments).output().unwrap());
    assert_eq!(run(&["x", "--", "sh", "-c", "exit 42"]), (Some(42), String::new()));
    assert_eq!(run(&["x", "--", "sh", "-c", "kill -9 $$"]), (Some(137), String::new()));
    let (code, said) = run(&["x", "--", "nonesuch"]);
    assert!(code == Some(127) && said.contains("cannot run nonesuch"), "{said}");
    let (code, said) = run(&["x", "--", "/etc/passwd"]);
    assert!(code == Some(126) && said.contains("Permission denied"), "{said}");
    let mut other = connect(&cluster, "b");
    let held = acquire(&mut other, "x", LockMode::Exclusive);
    let not_free = "verbena: x: the lock is not free\n";
    assert_eq!(run(&["--no-wait", "x", "--", "true"]), (Some(75), not_free.into()));
    assert_eq!(run(&["--no-wait", "--conflict-exit-code", "9", "x", "--", "true"]).0, Some(9));
    let (code, said) = run(&["--timeout", "50ms", "x", "--", "true"]);
    assert_eq!((code, &said[..]), (Some(75), "verbena: x: the lock was not free within 50ms\n"));
    other.release(held).unwrap();
    let (code, said) = run(&[&"n".repeat(1025), "--", "true"]);
    assert!(code == Some(2) && said.contains("a lock's name of 1025 bytes: it must have 1 to 1024"), "{said}");
    for wrong in
        [&["x"][..], &["--no-wait", "--timeout", "1s", "x", "--", "true"], &["--timeout", "soon", "x", "--", "true"]]
    {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
    assert_eq!(run(&["--no-wait", "x", "--", "true"]), (Some(0), String::new()));
}

/// The program that holds it dies, and with it the command that it ran.
#[test]
fn who_dies_leaves_nothing_behind() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let held = "echo $$ > pid; exec sleep 60";
    let mut holder = lock_run(&cluster, "a", &["x", "--", "sh", "-c", held]).spawn().unwrap();
    wait_for("held", || cluster.path().join("pid").exists() && !moments(&cluster, "pid").is_empty());
    let waits = lock_run(&cluster, "b", &["x", "--", "true"]).spawn().unwrap();
    let mut dies = lock_run(&cluster, "c", &["x", "--", "true"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    // One that waits dies before it is granted, one that holds while others wait.
    dies.kill().unwrap();
    holder.kill().unwrap();
    assert_eq!(ended(waits.wait_with_output().unwrap()), (Some(0), String::new()));
    let command = moments(&cluster, "pid")[0];
    wait_for("dead", || !Path::new(&format!("/proc/{command}/fd/0")).exists());
    assert_eq!(ended(lock_run(&cluster, "c", &["x", "--", "true"]).output().unwrap()).0, Some(0));
    let _ = (holder.wait(), dies.wait());
}

/// `lock run` is killed while its command has started another process: nobody has the lock while that runs.
#[test]
fn what_a_command_started_is_protected_when_lock_run_is_killed() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let held = "(date +%s%N > began; sleep 1.5; date +%s%N > ended) & wait";
    let mut holder = lock_run(&cluster, "a", &["x", "--", "sh", "-c", held]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("held", || !moments(&cluster, "began").is_empty());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let next = lock_run(&cluster, "b", &["x", "--", "sh", "-c", "date +%s%N > next"]).output().unwrap();
    assert_eq!(ended(next), (Some(0), String::new()));
    let (end, next) = (moments(&cluster, "ended"), moments(&cluster, "next"));
    assert!(end[0] < next[0], "the next began {} us before the last had ended", (end[0] - next[0]) / 1000);
}

/// The helper of a holder is killed, or stopped for longer than a lease: the command is told before anybody else has the lock.
fn a_holder_is_told(cluster: &Cluster, hurt: impl FnOnce(Node) -> Option<Node>) {
    let [a, b, c] = three(cluster);
    let told = "trap 'date +%s%N >> told; exit 0' TERM; echo 1 >> held; for i in $(seq 6000); do sleep 0.01; done";
    let holder = lock_run(cluster, "c", &["x", "--", "sh", "-c", told]).spawn().unwrap();
    wait_for("held", || !moments(cluster, "held").is_empty());
    let next = lock_run(cluster, "a", &["x", "--", "sh", "-c", "date +%s%N >> next"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let hurt = hurt(c);
    assert_eq!(ended(next.wait_with_output().unwrap()), (Some(0), String::new()));
    let (code, said) = ended(holder.wait_with_output().unwrap());
    assert!(code == Some(76) && said.contains("the lock x was lost"), "{code:?} {said}");
    let (told, next) = (moments(cluster, "told"), moments(cluster, "next"));
    assert!(told.len() == 1 && next.len() == 1 && told[0] < next[0], "told {told:?}, next {next:?}");
    println!("counted: told {:?} before the next had it", Duration::from_nanos((next[0] - told[0]) as u64));
    if let Some(hurt) = hurt {
        hurt.signal(Signal::CONT);
        hurt.wait_until("back", |status| are_in(status, &[1, 2, 3]));
        assert_eq!(ended(lock_run(cluster, "c", &["x", "--", "true"]).output().unwrap()), (Some(0), String::new()));
    }
    drop((a, b));
}

fn killed(node: Node) -> Option<Node> {
    node.kill();
    None
}

fn stopped(node: Node) -> Option<Node> {
    node.signal(Signal::STOP);
    Some(node)
}

#[test]
fn a_holder_is_told_when_its_helper_is_killed_on_shm() {
    a_holder_is_told(&on_shm(), killed);
}

#[test]
fn a_holder_is_told_when_its_helper_is_killed_on_tcp() {
    a_holder_is_told(&on_tcp(), killed);
}

#[test]
fn a_holder_is_told_when_its_helper_is_stopped_on_shm() {
    a_holder_is_told(&on_shm(), stopped);
}

#[test]
fn a_holder_is_told_when_its_helper_is_stopped_on_tcp() {
    a_holder_is_told(&on_tcp(), stopped);
}

#[test]
fn a_command_that_does_not_end_is_killed_after_its_grace_and_one_that_is_only_told_of_goes_on() {
    let stays = "trap '' TERM; echo 1 >> held; for i in $(seq 300); do sleep 0.01; done; echo 1 >> ended";
    for (arguments, ends) in [(["--grace", "200ms"], 0), (["--on-loss", "tell"], 1)] {
        let cluster = on_shm();
        let [_a, _b, c] = three(&cluster);
        let command = [&arguments[..], &["x", "--", "sh", "-c", stays]].concat();
        let holder = lock_run(&cluster, "c", &command).spawn().unwrap();
        wait_for("held", || !moments(&cluster, "held").is_empty());
        c.kill();
        let (code, said) = ended(holder.wait_with_output().unwrap());
        assert!(code == Some(76) && said.contains("the lock x was lost"), "{arguments:?}: {code:?} {said}");
        assert_eq!(moments(&cluster, "ended").len(), ends, "{arguments:?}");
    }
}

#[test]
fn a_command_knows_under_which_lock_it_runs() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let script = "echo \"$VERBENA_LOCK $VERBENA_LOCK_MODE $VERBENA_LOCK_TOKEN\"";
    for (flags, mode) in [(&[][..], "exclusive"), (&["--shared"], "shared")] {
        let command = [flags, &["nightly/née", "--", "sh", "-c", script]].concat();
        let output = lock_run(&cluster, "a", &command).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let token = said.trim_end().strip_prefix(&format!("nightly/née {mode} "));
        assert!(token.is_some_and(|token| token.parse::<u64>().is_ok_and(|token| token > 0)), "{said}");
    }
}

/// The command's own check, of each run: three at once, at three nodes.
#[test]
fn a_lock_that_goes_round_is_held_by_one_at_a_time() {
    let cluster = on_tcp();
    let _nodes = three(&cluster);
    let stress = |node: &&str| {
        let arguments = ["lock", "stress", "x", "--clients", "3", "--shared", "40", "--seconds", "2", "--json"];
        let mut command = verbena(&arguments);
        command.args(["--cluster-name", *node]).current_dir(cluster.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in NAMES.iter().map(stress).collect::<Vec<Child>>() {
        let output = child.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), report["broken"].as_u64(), report["lost"].as_u64()),
            (Some(0), Some(0), Some(0))
        );
        assert!(report["taken"].as_u64().unwrap() > 50 && report["fairness"].as_f64().unwrap() > 0.5, "{report}");
    }
}

/// A home is killed: locks that it was the home of are held on, and those who wait for them get them.
#[test]
fn holds_outlive_their_home() {
    let cluster = on_tcp();
    let [_a, b, c] = three(&cluster);
    let names: Vec<String> = (0..24).map(|nth| format!("lock {nth}")).collect();
    let (mut here, mut there) = (connect(&cluster, "a"), connect(&cluster, "b"));
    let held: Vec<Hold> = names.iter().map(|name| acquire(&mut here, name, LockMode::Exclusive)).collect();
    c.kill();
    b.wait_until("two in", |status| are_in(status, &[1, 2]));
    for (name, held) in names.iter().zip(held) {
        assert!(here.is_held(&held), "{name} was lost");
        assert!(matches!(there.try_acquire(name.as_bytes(), LockMode::Shared), Err(Error::NotFree)), "{name}");
        here.release(held).unwrap();
        let next = acquire(&mut there, name, LockMode::Exclusive);
        assert!(next.token() > held.token());
        there.release(next).unwrap();
    }
}

#[test]
fn what_a_program_may_not_do_is_an_error_and_changes_nothing() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let mut locks = connect(&cluster, "a");
    let refused = |result: Result<Hold, Error>| match result {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(locks.acquire(b"", LockMode::Shared, None)).contains("of 0 bytes"));
    let mut reader = acquire(&mut locks, "x", LockMode::Shared);
    assert!(matches!(locks.share(&mut reader), Err(Error::Refused(_))));
    assert!(locks.is_held(&reader));
    locks.release(reader).unwrap();
    assert!(matches!(locks.release(reader), Err(Error::Refused(_))), "released twice");
    let mut writer = acquire(&mut locks, "x", LockMode::Exclusive);
    let before = writer.token();
    locks.share(&mut writer).unwrap();
    assert!(writer.token() > before && writer.mode() == LockMode::Shared && locks.is_held(&writer));
    let mut other = connect(&cluster, "b");
    let with = other.try_acquire(b"x", LockMode::Shared).unwrap();
    other.release(with).unwrap();
    locks.release(writer).unwrap();
    // Who waited or tried in vain holds up nobody, however often, and keeps what it has.
    let held = acquire(&mut other, "x", LockMode::Exclusive);
    let kept = acquire(&mut locks, "y", LockMode::Exclusive);
    for nth in 0..3000 {
        let tried = locks.try_acquire(b"x", LockMode::Shared);
        assert!(matches!(tried, Err(Error::NotFree)), "{nth}: {tried:?}");
    }
    locks.release(kept).unwrap();
    let in_vain = locks.acquire(b"x", LockMode::Exclusive, Some(Duration::from_millis(20)));
    assert!(matches!(in_vain, Err(Error::NotInTime { .. })));
    other.release(held).unwrap();
    let again = acquire(&mut other, "x", LockMode::Exclusive);
    other.release(again).unwrap();
}

/// Three programs at three nodes wait for each other: the last that began is told who waits for whom, and the others get on when it has let go.
#[test]
fn programs_that_wait_for_each_other_are_told() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let all_hold = std::sync::Barrier::new(3);
    let told = std::thread::scope(|scope| {
        let programs: Vec<_> = [("a", "x", "y", 0), ("b", "y", "z", 1), ("c", "z", "x", 2)]
            .into_iter()
            .map(|(node, own, wanted, order)| {
                let (cluster, all_hold) = (&cluster, &all_hold);
                scope.spawn(move || {
                    let mut locks = connect(cluster, node);
                    let held = acquire(&mut locks, own, LockMode::Exclusive);
                    all_hold.wait();
                    std::thread::sleep(Duration::from_millis(100 * order));
                    let got = locks.acquire(wanted.as_bytes(), LockMode::Exclusive, Some(Duration::from_secs(20)));
                    let got = got.map(|got| locks.release(got).unwrap());
                    locks.release(held).unwrap();
                    got
                })
            })
            .collect();
        programs.into_iter().map(|program| program.join().unwrap()).collect::<Vec<_>>()
    });
    let [Ok(()), Ok(()), Err(error @ Error::Deadlock { .. })] = &told[..] else { panic!("{told:?}") };
    let said = error.to_string();
    for part in [
        "deadlock: ",
        " on node 1 waits for \"y\", which process ",
        " on node 2 waits for \"z\", which process ",
        " on node 3 waits for \"x\", which process ",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_program_has_once_more_what_it_has() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let (mut locks, mut other) = (connect(&cluster, "a"), connect(&cluster, "b"));
    let outer = acquire(&mut locks, "x", LockMode::Exclusive);
    let inner = acquire(&mut locks, "x", LockMode::Exclusive);
    assert_eq!(inner.token(), outer.token());
    locks.release(inner).unwrap();
    assert!(matches!(other.try_acquire(b"x", LockMode::Shared), Err(Error::NotFree)), "it is held once more");
    locks.release(outer).unwrap();
    let next = other.try_acquire(b"x", LockMode::Shared).unwrap();
    let alone = other.acquire(b"x", LockMode::Exclusive, None);
    assert!(matches!(&alone, Err(Error::Refused(why)) if why.contains("holds it shared")), "{alone:?}");
    other.release(next).unwrap();
}

/// A node that is drained waits for those who hold locks, but not for ever.
#[test]
fn a_node_that_is_drained_waits_for_who_is_about_to_release() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let drain = |node: &str| {
        let mut drain = verbena(&["node", "drain", "--cluster-name", node]);
        drain.current_dir(cluster.path()).stdout(Stdio::null()).spawn().unwrap()
    };
    let holds = "echo held > c; until test -e end; do sleep 0.01; done";
    let short = lock_run(&cluster, "c", &["x", "--", "sh", "-c", holds]).spawn().unwrap();
    wait_for("c has it", || cluster.path().join("c").exists());
    let waits = lock_run(&cluster, "c", &["x", "--", "true"]).spawn().unwrap();
    wait_for("another waits", || counted(&cluster, "c", &["waiting"]) == [1.0]);
    let mut drained = drain("c");
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(cluster.path().join("end"), "").unwrap();
    assert!(drained.wait().unwrap().success());
    assert_eq!(ended(short.wait_with_output().unwrap()), (Some(0), String::new()));
    let (code, said) = ended(waits.wait_with_output().unwrap());
    assert!(code == Some(1) && said.contains("the node leaves the cluster"), "{code:?}: {said}");
    let long = lock_run(&cluster, "b", &["x", "--", "sh", "-c", "echo held > b; exec sleep 20"]).spawn().unwrap();
    wait_for("b has it", || cluster.path().join("b").exists());
    assert!(drain("b").wait().unwrap().success());
    assert_eq!(ended(long.wait_with_output().unwrap()).0, Some(76), "told that it was lost");
    let next = lock_run(&cluster, "a", &["x", "--", "true"]).output().unwrap();
    assert_eq!(ended(next), (Some(0), String::new()));
}
