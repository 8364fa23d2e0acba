//! Programs in C against real nodes: the example, and one that does everything wrong.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use verbena_client::wire::LockMode;
use verbena_client::{Locks, Memory, Socket};
use verbena_testkit::nodes::{Cluster, Node, are_in};
use verbena_testkit::programs;

/// Two nodes of one cluster.
fn two() -> (Cluster, [Node; 2]) {
    let cluster = Cluster::new("500ms", &["a", "b"].map(|name| (name, format!("shm://{name}"))));
    let nodes = ["a", "b"].map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
    }
    (cluster, nodes)
}

fn socket(cluster: &Cluster, node: &str) -> PathBuf {
    cluster.path().join("run").join(format!("{node}.sock"))
}

enum Link {
    Shared,
    Static,
}

/// Compiles a program of ours, with every warning an error.
fn compile(source: &str, link: Link, directory: &Path) -> PathBuf {
    let (here, libraries) = (Path::new(env!("CARGO_MANIFEST_DIR")), std::env::current_exe().unwrap());
    // Beside this test, where cargo makes it for the test; what lies one above may be older.
    let libraries = libraries.parent().unwrap();
    let program = directory.join(Path::new(source).file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(here.join("include"));
    cc.arg(here.join(source)).arg("-o").arg(&program);
    match link {
        Link::Shared => {
            // As an old one, which comes before `LD_LIBRARY_PATH`: cargo puts what lies one above there.
            let path = format!("-Wl,--disable-new-dtags,-rpath,{}", libraries.display());
            cc.arg("-L").arg(libraries).arg("-lverbena").arg(path);
        }
        Link::Static => {
            cc.arg(libraries.join("libverbena.a")).args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]);
        }
    }
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn ended(output: Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
}

fn the_example(link: Link) {
    let (cluster, _nodes) = two();
    let program = compile("examples/lock.c", link, cluster.path());
    let raise = |socket: &Path, limit_ms: &str| {
        let mut command = Command::new(&program);
        command.args([
            "counter".as_ref(),
            cluster.path().join("counter").as_os_str(),
            socket.as_ref(),
            limit_ms.as_ref(),
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (a, b) = (socket(&cluster, "a"), socket(&cluster, "b"));
    let all: Vec<_> = (0..20).map(|nth| raise([&a, &b][nth % 2], "20000")).collect();
    let mut said: Vec<_> = all.into_iter().map(|child| ended(child.wait_with_output().unwrap())).collect();
    assert!(said.iter().all(|(code, _)| *code == Some(0)), "{said:?}");
    // "7 under token 4294967309, good for 480 ms more"
    let mut tokens: Vec<(u64, u64)> = Vec::new();
    for (_, line) in said.drain(..) {
        let (number, rest) = line.split_once(" under token ").unwrap();
        tokens.push((number.parse().unwrap(), rest.split_once(',').unwrap().0.parse().unwrap()));
    }
    tokens.sort_unstable();
    assert!(tokens.iter().map(|(number, _)| *number).eq(1..=20), "each once: {tokens:?}");
    assert!(tokens.is_sorted_by(|a, b| a.1 < b.1), "{tokens:?}");
    // The file is in the directory of the socket's own name, if that is called local.sock.
    let nowhere = ended(raise(cluster.path(), "0").wait_with_output().unwrap());
    assert!(nowhere.0 == Some(1) && nowhere.1.contains("local.sock"), "{nowhere:?}");
    let mut locks = Locks::connect(&Socket::at(&a), Duration::from_secs(5)).unwrap();
    let hold = locks.acquire(b"counter", LockMode::Shared, Some(Duration::from_secs(5))).unwrap();
    for limit_ms in ["0", "50"] {
        let (code, said) = ended(raise(&b, limit_ms).wait_with_output().unwrap());
        assert!(code == Some(75) && said.contains("cannot take the lock: the lock"), "{code:?} {said}");
    }
    locks.release(hold).unwrap();
}

#[test]
fn the_example_counts_with_the_shared_library() {
    the_example(Link::Shared);
}

#[test]
fn the_example_counts_with_the_static_library() {
    the_example(Link::Static);
}

/// Programs at both nodes raise two counters of one table, and none of what they do is lost.
fn the_table(link: Link) {
    const TIMES: u64 = 100;
    let (cluster, _nodes) = two();
    let program = compile("examples/memory.c", link, cluster.path());
    let raise = |table: &str, counter: &str, times: u64, socket: &Path| {
        let mut command = Command::new(&program);
        command.args([table, counter, &times.to_string()]).arg(socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let sockets = ["a", "b"].map(|node| socket(&cluster, node));
    // "counter 7 at a is 200; others were faster 31 times"
    let again = |line: &str| line.split_once("faster ").unwrap().1.split_once(' ').unwrap().0.parse::<u64>().unwrap();
    // Until they have been in each other's way: on a busy machine one may end before the next begins.
    let (mut rounds, mut conflicts) = (0, 0);
    while conflicts == 0 && rounds < 20 {
        rounds += 1;
        let all: Vec<_> = (0..4).map(|nth| raise("table", ["7", "63"][nth / 2], TIMES, &sockets[nth % 2])).collect();
        let said: Vec<_> = all.into_iter().map(|child| ended(child.wait_with_output().unwrap())).collect();
        assert!(said.iter().all(|(code, _)| *code == Some(0)), "{said:?}");
        conflicts = said.iter().map(|(_, line)| again(line)).sum::<u64>();
    }
    assert!(conflicts > 0, "nobody was in another's way in {rounds} rounds");
    let mut memory = Memory::connect(&Socket::at(&sockets[1]), Duration::from_secs(5)).unwrap();
    let value = memory.get("table").unwrap();
    let counters: Vec<_> =
        value.bytes.chunks_exact(8).map(|counter| u64::from_ne_bytes(counter.try_into().unwrap())).collect();
    let raised = |nth| if [7, 63].contains(&nth) { 2 * TIMES * rounds } else { 0 };
    assert!(counters.iter().copied().eq((0..64).map(raised)), "{counters:?}");
    assert_eq!(memory.stat("table").unwrap().segment.bytes, 512);
    let no_table = ended(raise("two\nlines", "7", 1, &sockets[0]).wait_with_output().unwrap());
    assert!(no_table.0 == Some(1) && no_table.1.contains("cannot open the table"), "{no_table:?}");
}

#[test]
fn the_table_of_counters_with_the_shared_library() {
    the_table(Link::Shared);
}

#[test]
fn the_table_of_counters_with_the_static_library() {
    the_table(Link::Static);
}

/// Three processes save together, and one of them is killed: all go on from one checkpoint, and none loses or repeats a step.
#[test]
fn who_is_killed_goes_on_from_a_checkpoint_and_the_others_with_it() {
    const LAST: u64 = 1500;
    let (cluster, _nodes) = two();
    let program = compile("examples/checkpoint.c", Link::Shared, cluster.path());
    let sockets = ["a", "b"].map(|node| socket(&cluster, node));
    let start = |process: usize| {
        let mut command = Command::new(&program);
        command.args(["run", &process.to_string(), "3", &LAST.to_string()]).arg(&sockets[process % 2]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first_line = |child: &mut std::process::Child| {
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line
    };
    let mut first = start(0);
    assert_eq!(first_line(&mut first), "process 0 goes on from 0 in era 1\n");
    let (mut killed, third) = (start(1), start(2));
    let mut memory = Memory::connect(&Socket::at(&sockets[0]), Duration::from_secs(5)).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while memory.checkpoints("run").unwrap().complete < 10 {
        assert!(Instant::now() < until, "{:?}", memory.checkpoints("run"));
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success(), "it had come to its end");
    let mut again = start(1);
    let line = first_line(&mut again);
    let from = line.strip_prefix("process 1 goes on from ").and_then(|rest| rest.strip_suffix(" in era 2\n"));
    let from: u64 = from.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    assert!((10..LAST).contains(&from), "{from}");
    for (process, child) in [first, again, third].into_iter().enumerate() {
        let (code, said) = ended(child.wait_with_output().unwrap());
        let sum = LAST * (LAST + 1) / 2;
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said.lines().last().unwrap(), format!("process {process} has {sum} at checkpoint {LAST}"));
        let with_it = format!("process {process} goes on from {from} in era 2");
        assert!(process == 1 || said.lines().any(|line| line == with_it), "{said}");
    }
    let record = memory.checkpoints("run").unwrap();
    assert_eq!((record.era, record.complete), (2, LAST));
}

fn misuse(source: &str) {
    let (cluster, [_a, b]) = two();
    let program = compile(source, Link::Shared, cluster.path());
    let mut command = Command::new(program);
    command.args([socket(&cluster, "a"), socket(&cluster, "b")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    b.kill();
    assert_eq!((line.as_str(), ended(child.wait_with_output().unwrap())), ("held\n", (Some(0), String::new())));
}

#[test]
fn what_c_does_wrong_with_locks_is_an_error_and_no_crash() {
    misuse("tests/misuse.c");
}

#[test]
fn what_c_does_wrong_with_memory_is_an_error_and_no_crash() {
    misuse("tests/memory.c");
}

#[test]
fn the_header_is_one_of_cpp_as_well() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/verbena.h");
    let flags = ["-std=c++11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++"];
    let output = Command::new("c++").args(flags).arg(header).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A node and programs of which nobody was told anything, in a network of their own: who has chosen no directories would ask others on this machine.
const PLAIN: &str = r#"
trap 'kill $node 2>/dev/null' EXIT
chmod 700 "$1"; cd "$1"; export XDG_RUNTIME_DIR="$1" XDG_STATE_HOME="$1/state" HOME="$1"
./lock counter number 2>&1
"$0" node --json >node 2>&1 & node=$!
for turn in $(seq 500); do grep -qs listening node && break; sleep 0.02; done
./lock counter number 2>&1
./memory table 7 3 2>&1
kill $node; wait $node; echo "ended $?"
"#;

#[test]
fn programs_find_a_node_that_nobody_configured() {
    let directory = tempfile::tempdir().unwrap();
    for example in ["examples/lock.c", "examples/memory.c"] {
        compile(example, Link::Shared, directory.path());
    }
    let how = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let mut command = Command::new("unshare");
    command.args([how, "sh", "-c", PLAIN]).arg(programs::path("verbena")).arg(directory.path());
    let output = command.env_remove("VERBENA_CONFIG").output().unwrap();
    if output.stdout.is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("unshare: "), "{stderr}");
        return println!("skipped: only root can make network namespaces");
    }
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let begins = ["lock: cannot connect: no helper runs", "1 under token ", "counter 7 at local is 3", "ended 0"];
    let is_right = lines.len() == begins.len() && lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin));
    assert!(is_right, "{said}");
    assert!(lines[0].contains(&directory.path().join("verbena/local.sock").display().to_string()), "{said}");
}
