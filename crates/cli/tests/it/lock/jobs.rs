//! What a command under a lock has started: nobody else has the lock while it runs, and it ends when the lock is lost.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ended, lock_run, moments, on_shm, three, wait_for};
use verbena_testkit::nodes::Cluster;

/// Takes its time to end when it is told to, and says when it has. By itself it ends after more than 20 seconds.
const SLOW: &str =
    "trap 'sleep 0.7; date +%s%N > ended; exit 0' TERM; echo $$ > slow; for i in $(seq 6000); do sleep 0.02; done";
/// Does not end when it is told to; by itself it does so as late.
const STUBBORN: &str = "trap '' TERM; echo $$ > stubborn; for i in $(seq 6000); do sleep 0.02; done";
/// Starts the rest of its arguments as a child that inherits no descriptor, as Python does, and ends.
const PARENT: &str =
    "import subprocess, sys; subprocess.Popen(sys.argv[2:], start_new_session=sys.argv[1] == 'daemon')";

fn script(cluster: &Cluster, name: &str, text: &str) {
    std::fs::write(cluster.path().join(name), text).unwrap();
}

fn tell(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

fn number_in(cluster: &Cluster, file: &str) -> u32 {
    wait_for(file, || !moments(cluster, file).is_empty());
    moments(cluster, file)[0].try_into().unwrap()
}

fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Asks for the lock, at another node, and says when it has it.
fn next(cluster: &Cluster) -> Child {
    lock_run(cluster, "b", &["x", "--", "sh", "-c", "date +%s%N > next"]).spawn().unwrap()
}

fn nobody_else_had_it_before(cluster: &Cluster, next: Child) {
    assert_eq!(ended(next.wait_with_output().unwrap()), (Some(0), String::new()));
    let (ended, next) = (moments(cluster, "ended"), moments(cluster, "next"));
    assert!(!ended.is_empty(), "the next had it, and the last goes on");
    assert!(ended[0] < next[0], "the next began {} ms before the last had ended", (ended[0] - next[0]) / 1_000_000);
}

#[test]
fn lock_run_is_told_to_end_and_nobody_else_has_the_lock_before_all_that_it_started_has_ended() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    script(&cluster, "slow.sh", SLOW);
    let holder = lock_run(&cluster, "a", &["x", "--", "sh", "-c", "sh slow.sh & wait"]).spawn().unwrap();
    number_in(&cluster, "slow");
    let next = next(&cluster);
    // The shell ends at once, and what it started has no signal by then.
    tell(holder.id(), Signal::TERM);
    nobody_else_had_it_before(&cluster, next);
    assert_eq!(ended(holder.wait_with_output().unwrap()).0, Some(143));
}

#[test]
fn the_lock_is_kept_while_something_goes_on_that_has_not_inherited_it() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let late = "echo $$ > began; sleep 1.5; date +%s%N > ended";
    let holder =
        lock_run(&cluster, "a", &["x", "--", "python3", "-c", PARENT, "child", "sh", "-c", late]).spawn().unwrap();
    let child = number_in(&cluster, "began");
    let next = next(&cluster);
    nobody_else_had_it_before(&cluster, next);
    let (code, said) = ended(holder.wait_with_output().unwrap());
    assert!(code == Some(0) && said.contains(&format!("process {child}")), "{code:?} {said}");
}

#[test]
fn a_daemon_lets_go_of_the_lock() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let stays = "echo $$ > daemon; exec sleep 60";
    let command = ["x", "--", "python3", "-c", PARENT, "daemon", "sh", "-c", stays];
    // It keeps standard error, which would not end otherwise.
    let mut holder = lock_run(&cluster, "a", &command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let daemon = number_in(&cluster, "daemon");
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    assert!(runs(daemon));
    assert_eq!(ended(lock_run(&cluster, "b", &["--no-wait", "x", "--", "true"]).output().unwrap()).0, Some(0));
    tell(daemon, Signal::KILL);
}

#[test]
fn all_that_a_command_has_started_ends_when_the_lock_is_lost() {
    let cluster = on_shm();
    let [_a, _b, c] = three(&cluster);
    script(&cluster, "slow.sh", SLOW);
    script(&cluster, "stubborn.sh", STUBBORN);
    script(&cluster, "parent.py", PARENT);
    // The command itself ends first; of the others one is an orphan that has inherited nothing.
    let all = "sh slow.sh & python3 parent.py child sh stubborn.sh & wait";
    let arguments = ["--grace", "2s", "x", "--", "sh", "-c", all];
    let holder = lock_run(&cluster, "c", &arguments).spawn().unwrap();
    let (slow, stubborn) = (number_in(&cluster, "slow"), number_in(&cluster, "stubborn"));
    c.kill();
    let began = Instant::now();
    let (code, said) = ended(holder.wait_with_output().unwrap());
    assert!(code == Some(76) && said.contains("the lock x was lost"), "{code:?} {said}");
    assert!(!runs(slow) && !runs(stubborn), "slow {}, stubborn {}", runs(slow), runs(stubborn));
    assert_eq!(moments(&cluster, "ended").len(), 1, "it was told, and not only killed");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "killed before its grace was over: {took:?}");
    let next = lock_run(&cluster, "b", &["--timeout", "10", "x", "--", "true"]).output().unwrap();
    assert_eq!(ended(next).0, Some(0));
}

/// Ended children that nobody waits for, of those that have ended, are waited for.
#[test]
fn nothing_is_left_of_orphans_while_the_command_runs() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let orphans = "for i in $(seq 30); do (true &) ; done; echo 1 > made; while test -e made; do sleep 0.02; done";
    let holder = lock_run(&cluster, "a", &["x", "--", "sh", "-c", orphans]).spawn().unwrap();
    number_in(&cluster, "made");
    let children = || {
        let own = holder.id().to_string();
        let output = std::process::Command::new("ps").args(["--no-headers", "-o", "stat", "--ppid", &own]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    wait_for("waited for", || children().lines().count() == 1);
    std::fs::remove_file(cluster.path().join("made")).unwrap();
    assert_eq!(ended(holder.wait_with_output().unwrap()), (Some(0), String::new()));
}

/// Commands and orphans are waited for in whatever process group or session they are.
#[test]
fn a_job_may_have_groups_and_sessions_of_its_own() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let run = |command: &[&str]| {
        let output = lock_run(&cluster, "a", &[&["x", "--"], command].concat()).output().unwrap();
        ended(output)
    };
    assert_eq!(run(&["setsid", "sh", "-c", "exit 5"]), (Some(5), String::new()));
    // It keeps the descriptor, so it is no daemon.
    let late = "setsid sh -c 'sleep 0.5; date +%s%N > ended' & exit 3";
    assert_eq!(run(&["sh", "-c", late]), (Some(3), String::new()));
    assert_eq!(moments(&cluster, "ended").len(), 1);
}

/// A container's first process may be of a session that began outside of it: /proc says 0 in there.
#[test]
fn a_session_that_began_in_another_pid_namespace_is_one() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let how = if rustix::process::geteuid().is_root() { "-pf" } else { "-rpf" };
    let script = "ps -o sess= -p $PPID | grep -qx ' *0' && echo of another; sleep 0.3 & exit 3";
    let run = lock_run(&cluster, "a", &["x", "--", "sh", "-c", script]);
    let mut command = Command::new("unshare");
    command.args([how, "--mount-proc"]).arg(run.get_program()).args(run.get_args());
    let output = command.current_dir(cluster.path()).output().unwrap();
    if output.stderr.starts_with(b"unshare: ") {
        println!("skipped: only root can make pid namespaces");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((ended(output), &said[..]), ((Some(3), String::new()), "of another\n"));
}
