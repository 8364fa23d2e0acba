//! Rule P11 with real processes: proxies and nodes that nobody configured are one cluster of this machine, also when the first of
//! them ends; and whoever cannot be in it is refused. What an end costs the others is in dialogues: `verbena-content`, `never_stale::restarts`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_client::wire::LockMode;
use verbena_client::{Locks, Memory, NewSegment, Socket};
use verbena_testkit::nodes::{PATIENCE, are_in};
use verbena_testkit::programs::{json, verbena};

use crate::common::makes_networks;
use crate::common::traffic::{Client, Ended, application, enough, proxy_with, traffic};

const LEASE: Duration = Duration::from_secs(1);

/// A proxy as somebody starts it, but for the directories, which are this test's.
fn plain(directory: &Path, log: &str, origin: &str) -> (Ended, String) {
    proxy_with(directory, log, &directory.join("state"), origin, &["--cluster-lease", "1s"])
}

fn status(directory: &Path) -> Value {
    json(&["status", "--json", "--node-runtime", "run"], directory).1
}

/// Waits until these seats are taken, as the first helper that answers sees it.
fn wait_until_in(directory: &Path, ranks: &[u64]) -> Value {
    let (began, mut last) = (Instant::now(), Value::Null);
    while began.elapsed() < PATIENCE {
        let output = verbena(&["status", "--json", "--node-runtime", "run"]).current_dir(directory).output().unwrap();
        last = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if are_in(&last, ranks) {
            return last;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not {ranks:?} in time: {last:#}");
}

fn signal(process: &Ended, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process.0.id()).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn what_is_written_through_one_is_read_through_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let ((_first, a), (_second, b)) = (plain(directory.path(), "a", &origin), plain(directory.path(), "b", &origin));
    wait_until_in(directory.path(), &[1, 2]);
    let (mut writer, mut reader) = (Client::new(&a), Client::new(&b));
    let mut hits = 0;
    for round in 1..=100 {
        let written = writer.ask("POST", "/page/1");
        assert_eq!((written.status, written.body), (200, format!("value {round}")));
        // A fill that comes before the home has heard of the update's end is not stored: the next one is.
        for _ in 0..4 {
            let read = reader.ask("GET", "/page/1");
            assert!(read.body.contains(&format!("one {round}<")), "round {round}: {}", read.body);
            hits += u32::from(read.hit);
        }
    }
    assert!(hits >= 50, "{hits} hits in 100 rounds");
    enough(&traffic(&[a, b], Duration::from_secs(4)));
}

/// So that we know that the tests here see: with directories that were chosen for each, nobody asks, and they are islands.
#[test]
fn two_islands_are_stale() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_application, origin) = application(one.path());
    let shared = ["--cluster-lease", "1s", "--proxy-shared-origin", "true"];
    let of = |directory: &Path, log| proxy_with(directory, log, &directory.join("state"), &origin, &shared);
    let ((_first, a), (_second, b)) = (of(one.path(), "a"), of(other.path(), "b"));
    let seen = traffic(&[a, b], Duration::from_secs(20));
    assert!(seen.stale.load(SeqCst) > 0, "nothing stale was seen");
}

#[test]
fn the_second_goes_on_when_the_first_is_stopped() {
    the_first_ends(Signal::TERM);
}

#[test]
fn the_second_goes_on_when_the_first_is_killed() {
    the_first_ends(Signal::KILL);
}

/// Whoever takes a dead helper's seat does not wait for its lease, which programs of that helper know too: they see its end first.
#[test]
fn nobody_gets_a_lock_that_a_program_of_a_dead_helper_believes_to_hold() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (first, _second) = (plain(directory.path(), "a", &origin).0, plain(directory.path(), "b", &origin).0);
    wait_until_in(directory.path(), &[1, 2]);
    let connect = |name| {
        let socket = Socket::new(Some(&directory.path().join("run")), Some(name)).unwrap();
        Locks::connect(&socket, PATIENCE).unwrap()
    };
    let [mut holds, mut waits] = ["local", "local-2"].map(connect);
    let hold = holds.acquire(b"one", LockMode::Exclusive, None).unwrap();
    let watch = holds.watch().clone();
    let believes = std::thread::spawn(move || {
        let until = Instant::now() + PATIENCE;
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            assert!(now < until, "it believes for ever");
            if !watch.is_held(&hold) {
                return last;
            }
            last = now;
        }
    });
    let gets = std::thread::spawn(move || {
        let _hold = waits.acquire(b"one", LockMode::Exclusive, Some(PATIENCE)).unwrap();
        Instant::now()
    });
    std::thread::sleep(LEASE / 4);
    signal(&first, Signal::KILL);
    let killed = Instant::now();
    let (believed, got) = (believes.join().unwrap(), gets.join().unwrap());
    println!(
        "counted: believed for {:?} after the helper's end, another one's after {:?}",
        believed.saturating_duration_since(killed),
        got - killed
    );
    assert!(believed <= got, "two held it for {:?}", believed - got);
}

fn the_first_ends(how: Signal) {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let ((mut first, a), (second, b)) = (plain(directory.path(), "a", &origin), plain(directory.path(), "b", &origin));
    wait_until_in(directory.path(), &[1, 2]);
    enough(&traffic(&[a, b.clone()], Duration::from_secs(2)));
    signal(&first, how);
    // Never stale meanwhile, and each write is answered.
    let through_the_change = traffic(std::slice::from_ref(&b), 4 * LEASE);
    enough(&through_the_change);
    first.0.wait().unwrap();

    // As before: writes are answered, pages are cached, and `local` answers.
    let mut client = Client::new(&b);
    for page in 0..4 {
        assert_eq!(client.ask("POST", &format!("/page/{page}")).status, 200);
        let began = Instant::now();
        while !client.ask("GET", &format!("/page/{page}")).hit {
            assert!(began.elapsed() < PATIENCE, "page {page} is not cached");
        }
    }
    let status = wait_until_in(directory.path(), &[1, 2]);
    assert_eq!((&status["name"], &status["pid"]), (&"local".into(), &second.0.id().into()));

    // Whoever comes next takes a seat that is free.
    let (_third, c) = plain(directory.path(), "c", &origin);
    let status = wait_until_in(directory.path(), &[1, 2, 3]);
    let names: Vec<_> = status["member_list"].as_array().unwrap().iter().map(|member| &member["name"]).collect();
    assert_eq!(names, ["local", "local-2", "local-3"]);
    let seen = traffic(&[b, c], LEASE);
    assert_eq!(seen.stale.load(SeqCst), 0);
}

#[test]
fn two_proxies_and_a_node_that_start_at_the_same_moment_are_one_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let state = directory.path().join("state");
    let (path, origin) = (directory.path(), &origin);
    let mut node = verbena(&["node", "--json", "--cluster-lease", "1s", "--node-runtime", "run", "--node-state"]);
    let node = node.arg(&state).current_dir(path).stdout(std::process::Stdio::null());
    let (a, b, _node) = std::thread::scope(|scope| {
        let [a, b] = ["a", "b"].map(|log| scope.spawn(move || plain(path, log, origin)));
        let node = Ended(node.spawn().unwrap());
        (a.join().unwrap(), b.join().unwrap(), node)
    });
    let shown = wait_until_in(path, &[1, 2, 3]);
    assert_eq!(shown["members"], 3);
    enough(&traffic(&[a.1, b.1], Duration::from_secs(3)));
    assert_eq!(status(path)["state"], "member");
}

#[test]
fn a_proxy_says_on_hangup_what_would_change() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let file = directory.path().join("verbena.toml");
    std::fs::write(&file, "[proxy]\nconnections = 100\n").unwrap();
    let (proxy, _) = plain(directory.path(), "a", &origin);
    std::fs::write(&file, "[proxy]\nconnections = 200\n").unwrap();
    signal(&proxy, Signal::HUP);
    let began = Instant::now();
    let log = || std::fs::read_to_string(directory.path().join("a.log")).unwrap();
    while !log().contains("takes effect at the next start") {
        assert!(began.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(log().contains("proxy.connections"), "{}", log());
}

/// Directories that nobody chose, of two users as it were, in a network namespace of their own. Prints what the second is told, and
/// whom one of the first user's joins.
const TWO_USERS: &str = r#"
trap 'kill $first $third $fourth 2>/dev/null' EXIT
as() { export XDG_RUNTIME_DIR="$2/$1" XDG_STATE_HOME="$2/$1/state" HOME="$2/$1"; cd "$2/$1"; }
wait_for() { for turn in $(seq 500); do grep -q "$1" "$2" && return; sleep 0.02; done; exit 9; }
mkdir -p "$1/a" "$1/b"; chmod 700 "$1/a" "$1/b"
(as a "$1"; exec "$0" node --json >"$1/first") & first=$!
wait_for listening "$1/first"
(as b "$1"; timeout 20 "$0" node --json 2>"$1/told"; echo "refused $?")
(as a "$1"; exec "$0" node --json >"$1/third") & third=$!
wait_for listening "$1/third"
grep -o '"node":"[a-z0-9-]*"' "$1/third"
echo "first $first"; cat "$1/told"
kill $first $third; wait $first; wait $third
(as b "$1"; exec "$0" node --json >"$1/fourth") & fourth=$!
wait_for listening "$1/fourth"
echo "then taken"
kill $fourth; wait $fourth
"#;

/// What a script says in a network namespace of its own, which is told of the command, of a directory and of this program. `None` where nobody may make one.
fn in_a_network_of_its_own(script: &str, directory: &Path) -> Option<String> {
    let _networks = makes_networks();
    let how = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let mut command = Command::new("unshare");
    command.args([how, "sh", "-c", script, env!("CARGO_BIN_EXE_verbena")]).arg(directory);
    command.arg(std::env::current_exe().unwrap());
    let output = command.env_remove("VERBENA_CONFIG").output().unwrap();
    if output.stdout.is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("unshare: "), "{stderr}");
        println!("skipped: only root can make network namespaces");
        return None;
    }
    Some(String::from_utf8(output.stdout).unwrap())
}

fn line<'a>(said: &'a str, start: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_else(|| panic!("{start:?} in {said}"))
}

#[test]
fn another_users_is_refused_and_told_who_and_how_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let Some(said) = in_a_network_of_its_own(TWO_USERS, directory.path()) else { return };
    assert_eq!(line(&said, "refused "), "1", "{said}");
    // In there, whoever it is outside.
    let first = format!("process {} of user 0", line(&said, "first "));
    for told in [first.as_str(), "another runtime directory", "[cluster] members", "--node-runtime"] {
        assert!(said.contains(told), "{told:?} is not in: {said}");
    }
    assert!(said.contains(r#""node":"local-2""#), "one in the same directories joins: {said}");
    assert!(said.contains("then taken"), "when they are gone it may: {said}");
}

/// A node, and commands and a program that need one, of which nobody was told anything.
const LOCKS: &str = r#"
trap 'kill $holder $node 2>/dev/null' EXIT
wait_for() { for turn in $(seq 500); do grep -q "$1" "$2" && return; sleep 0.02; done; exit 9; }
chmod 700 "$1"; cd "$1"; export XDG_RUNTIME_DIR="$1" XDG_STATE_HOME="$1/state" HOME="$1"
"$0" lock run x -- true 2>&1; echo "alone $?"
"$0" node --json >node 2>&1 & node=$!
wait_for listening node
"$0" lock run x -- sh -c 'echo "held $VERBENA_LOCK_TOKEN"; exec sleep 30' >holder & holder=$!
wait_for held holder
cat holder; "$0" lock ls; "$0" lock run --no-wait x -- true 2>&1; echo "busy $?"
kill $holder; wait $holder
"$0" lock run --timeout 10s x -- sh -c 'echo "then $VERBENA_LOCK_TOKEN"'
PLAIN_PROGRAM=1 "$2" plain::a_program --exact --ignored --nocapture 2>&1
kill $node; wait $node; echo "ended $?"
"#;

#[test]
#[ignore = "not a test: what a program does that another one starts"]
fn a_program() {
    if std::env::var_os("PLAIN_PROGRAM").is_none() {
        return;
    }
    let mut locks = Locks::connect(&Socket::new(None, None).unwrap(), PATIENCE).unwrap();
    let hold = locks.acquire(b"x", LockMode::Exclusive, Some(PATIENCE)).unwrap();
    println!("\nprogram {}", hold.token());
    locks.release(hold).unwrap();
    let mut memory = Memory::connect(&Socket::new(None, None).unwrap(), PATIENCE).unwrap();
    let made = memory.allocate(NewSegment::of(8).named("hits")).unwrap().id;
    memory.put(made, b"as told.").unwrap();
    println!("remembers {}", String::from_utf8(memory.get("hits").unwrap().bytes).unwrap());
}

#[test]
fn a_node_and_locks_that_nobody_configured_find_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let Some(said) = in_a_network_of_its_own(LOCKS, directory.path()) else { return };
    assert_eq!((line(&said, "alone "), line(&said, "busy "), line(&said, "ended ")), ("3", "75", "0"), "{said}");
    let tokens = ["held ", "then ", "program "].map(|start| line(&said, start).parse::<u64>().unwrap());
    assert!(tokens.is_sorted_by(|a, b| a < b), "{said}");
    assert_eq!(line(&said, "remembers "), "as told.", "{said}");
    assert!(said.contains("\nx\n  held   exclusive  local  process "), "{said}");
}
