//! Signals to `verbena lock run`, locks within locks, and what a command line may say.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::{Cluster, ended, lock_run, on_shm, three};
use verbena_testkit::programs::verbena;

/// Prints the number of each signal that it gets, and ends by the one that it is told to, or when it has slept 30 times.
const LISTENS: &str = "\
import signal, sys, time
def heard(number, _):
    print(number, flush=True)
    if number == int(sys.argv[1]): sys.exit(7)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(number, heard)
print('listens', flush=True)
for _ in range(30): time.sleep(1)
";

/// `verbena lock run` in a terminal, in which SIGINT is typed: how often the command got it.
const TYPES: &str = "\
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
said = b''
def until(word):
    global said
    while word not in said: said += os.read(terminal, 1000)
until(b'listens')
os.write(terminal, b'\\x03')
until(b'2\\r\\n')
time.sleep(0.5)
os.kill(pid, 15)
until(b'15\\r\\n')
print(said.count(b'2\\r\\n'), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

fn program() -> String {
    verbena(&[]).get_program().to_str().unwrap().to_owned()
}

#[test]
fn every_signal_that_a_process_sends_is_passed_on() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let mut run = lock_run(&cluster, "a", &["x", "--", "python3", "-c", LISTENS, "15"]).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().as_deref(), Some("listens"));
    let pid = run.id().to_string();
    // KILL and STOP cannot be caught; 32 and 33 are the C library's own; TSTP, TTIN and TTOU stop whoever gets them.
    let not_passed = BTreeSet::from([9, 19, 20, 21, 22, 32, 33]);
    for number in (1..=64).filter(|number| *number != 15 && !not_passed.contains(number)).chain([15]) {
        let sent = Command::new("kill").args([&format!("-{number}"), &pid]).status().unwrap();
        assert!(sent.success());
        assert_eq!(lines.next(), Some(number.to_string()));
    }
    let output = run.wait_with_output().unwrap();
    assert_eq!(ended(output), (Some(7), String::new()));
}

#[test]
fn a_command_gets_what_its_terminal_says_once() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let run = lock_run(&cluster, "a", &["x", "--", "python3", "-c", LISTENS, "15"]);
    let mut typed = Command::new("python3");
    typed.args(["-c", TYPES, &program()]).args(run.get_args()).current_dir(cluster.path());
    let output = typed.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 7\n", "{output:?}");
}

/// It stops with its command, so that a shell sees it, and goes on with it.
#[test]
fn lock_run_stops_and_goes_on() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    // In a group that is not orphaned: there nothing stops.
    let run = lock_run(&cluster, "a", &["x", "--", "sh", "-c", "echo up; sleep 1"]);
    let stops = "\
import os, signal, subprocess, sys
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, process_group=0)
run.stdout.readline()
os.kill(run.pid, signal.SIGTSTP)
print(os.WIFSTOPPED(os.waitpid(run.pid, os.WUNTRACED)[1]), flush=True)
os.kill(run.pid, signal.SIGCONT)
print(run.wait())
";
    let mut shell = Command::new("timeout");
    shell.args(["20", "python3", "-c", stops, &program()]).args(run.get_args()).current_dir(cluster.path());
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n0\n", "{output:?}");
}

/// What `lock run` says of a lock around it, and how long that took.
fn nested(cluster: &Cluster, names: &[(&[&str], &str)]) -> (Option<i32>, String) {
    let mut words: Vec<String> = vec![];
    for (flags, name) in names {
        if !words.is_empty() {
            words.extend(["--".into(), program(), "lock".into(), "run".into(), "--cluster-name".into(), "a".into()]);
        }
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.push((*name).into());
    }
    words.extend(["--".into(), "true".into()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut outer = Command::new("timeout");
    outer.arg("60").arg(program()).args(lock_run(cluster, "a", &words).get_args());
    let said = ended(outer.current_dir(cluster.path()).output().unwrap());
    assert_ne!(said.0, Some(124), "{names:?} waits for ever: {said:?}");
    said
}

#[test]
fn a_lock_within_itself_is_told_at_once() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let limit = &["--timeout", "1m"][..];
    let shared = &["--shared"][..];
    for names in [
        &[(&[][..], "n"), (&[], "n")][..],
        &[(&[], "n"), (limit, "n")],
        &[(&[], "n"), (shared, "n")],
        &[(shared, "n"), (&[], "n")],
        &[(&[], "n"), (&[], "m"), (&[], "n")],
    ] {
        let (code, said) = nested(&cluster, names);
        assert!(code == Some(1) && said.contains("n is held by the `lock run` around this one"), "{code:?} {said}");
    }
    assert_eq!(nested(&cluster, &[(shared, "n"), (shared, "n")]), (Some(0), String::new()));
    assert_eq!(nested(&cluster, &[(&[], "n"), (&[], "m")]), (Some(0), String::new()));
    assert_eq!(nested(&cluster, &[(&[], "n"), (&["--timeout", "0"], "n")]).0, Some(75));
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    for name in ["-x", "--no-wait", "--"] {
        let words = ["--", name, "--", "sh", "-c", "printf %s \"$VERBENA_LOCK\""];
        let output = lock_run(&cluster, "a", &words).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), name.as_bytes()), "{output:?}");
    }
    for wrong in [&["--", "true"][..], &["--", "true", "--", "true"], &["--", "-x", "--"], &["--", "-x", "true"]] {
        let (code, said) = ended(lock_run(&cluster, "a", wrong).output().unwrap());
        assert!(code == Some(2) && said.contains("-- -x -- COMMAND"), "{wrong:?}: {code:?} {said}");
    }
}

#[test]
fn a_number_alone_is_a_time_in_seconds() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let mut holder = lock_run(&cluster, "b", &["x", "--", "sh", "-c", "echo up; exec sleep 60"]).spawn().unwrap();
    let mut up = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut up).unwrap();
    for (time, shown) in [("0.2", "200ms"), ("1", "1s"), ("0.15s", "150ms")] {
        let (code, said) = ended(lock_run(&cluster, "a", &["--timeout", time, "x", "--", "true"]).output().unwrap());
        assert_eq!((code, said), (Some(75), format!("verbena: x: the lock was not free within {shown}\n")));
    }
    let (code, said) = ended(lock_run(&cluster, "a", &["--timeout", "soon", "x", "--", "true"]).output().unwrap());
    assert!(code == Some(2) && said.contains("a number without a unit is seconds"), "{said}");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_process_out_of_descriptors_says_so() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let mut refused = 0;
    for limit in 4..=16 {
        let run = lock_run(&cluster, "a", &["u", "--", "true"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh", &program()]).args(run.get_args());
        let (code, said) = ended(limited.current_dir(cluster.path()).output().unwrap());
        let is_told = said.contains("file descriptors are left") || said.contains("Too many open files");
        assert!(code == Some(0) && said.is_empty() || code != Some(0) && is_told, "{limit}: {code:?} {said}");
        refused += u32::from(code != Some(0));
    }
    assert!((2..=12).contains(&refused), "{refused}");
}
