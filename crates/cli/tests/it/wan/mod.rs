//! `verbena wan`: commands in networks of their own, with a link between them.

mod kernel;
mod names;
mod up;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use verbena_namespaces::{Namespace, or_skipped};
use verbena_testkit::programs::verbena;

use crate::common::counts_networks;

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends datagrams to b, which sends each back, and prints how many came.
const ASK: &str = "\
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
came, took = 0, []
for n in range(int(sys.argv[1])):
    began = time.monotonic()
    s.sendto(b'%d' % n, (os.environ['VERBENA_WAN_PEER'], 7))
    try:
        s.recv(100); came += 1; took.append(time.monotonic() - began)
    except TimeoutError: pass
print(came, sorted(took)[len(took) // 10] if took else 0)
";
const ECHO: &str = "exec python3 -c \"
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(('::', 7))
while True:
    d, a = s.recvfrom(100); s.sendto(d, a)
\"";

/// One test at a time: each keeps a core busy. `None` where networks cannot be made.
fn turn() -> Option<RwLockWriteGuard<'static, ()>> {
    let turn = counts_networks();
    or_skipped(Namespace::new()).unwrap()?;
    Some(turn)
}

fn run(arguments: &[&str], command: &[&str]) -> Output {
    verbena(&[&["wan", "run"], arguments, &["--"], command].concat()).output().unwrap()
}

/// What [`ASK`] prints: how many came, and how long nine in ten of them took at least, in seconds.
fn came_and_took(line: &str) -> (u32, f64) {
    let (came, took_s) = line.trim().split_once(' ').unwrap();
    (came.parse().unwrap(), took_s.parse().unwrap())
}

/// The same of a run that asked, and its report.
fn asked(output: &Output) -> (u32, f64, Value) {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let (line, json) = text.split_once('\n').unwrap();
    let (came, took_s) = came_and_took(line);
    (came, took_s, serde_json::from_str(json).unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The network namespaces that processes are in or hold open: of one process, or of all.
fn namespaces(of: Option<u32>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let number = process.file_name().to_string_lossy().parse::<u32>();
        if number.is_err() || of.is_some_and(|of| number != Ok(of)) {
            continue;
        }
        let open =
            std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        let links = open.chain([process.path().join("ns/net")]).flat_map(std::fs::read_link);
        found.extend(links.map(|link| link.display().to_string()).filter(|link| link.starts_with("net:")));
    }
    found
}

fn interfaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_command_runs_in_its_site_and_its_exit_code_is_the_commands() {
    let Some(_turn) = turn() else { return };
    let script = "echo $VERBENA_WAN_SITE $VERBENA_WAN_ADDRESS $VERBENA_WAN_ADDRESS6 $VERBENA_WAN_PEER $VERBENA_WAN_PEER6 $VERBENA_WAN_SITE_B; exit 7";
    let output = run(&[], &["sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a 10.77.0.1 fd77::1 10.77.0.2 fd77::2 10.77.0.2\n");
    assert_eq!((output.status.code(), said(&output)), (Some(7), String::new()));
    assert_eq!(run(&[], &["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    let output = run(&[], &["nonesuch"]);
    assert!(output.status.code() == Some(127) && said(&output).contains("cannot run nonesuch"), "{output:?}");
    let output = run(&[], &["/etc/passwd"]);
    assert!(output.status.code() == Some(126) && said(&output).contains("Permission denied"), "{output:?}");
    // Nothing else is reached from there.
    let output = run(&[], &["sh", "-c", "ls /proc/self/net/dev && cat /proc/self/net/dev | grep -c :"]);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("\n2\n"), "lo and the link: {output:?}");
}

#[test]
fn what_is_lost_is_counted_and_the_delay_is_there_both_ways() {
    let Some(_turn) = turn() else { return };
    let output =
        run(&["--delay", "15ms", "--there", "drop_rate=10", "--peer", ECHO, "--json"], &["python3", "-c", ASK, "20"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (came, took_s, report) = asked(&output);
    // Of each ten exactly one is lost on its way there.
    assert_eq!(came, 18);
    assert!((0.0299..0.1).contains(&took_s), "{took_s}");
    let [there, back] = [0, 1].map(|way| &report["links"][0]["ways"][way]);
    assert_eq!(
        (&there["from"], &there["to"], &there["options"]["drop_rate"]),
        (&"a".into(), &"b".into(), &"10".into())
    );
    assert_eq!(
        (&there["packets"], &there["dropped"]["drop_rate"], &there["arrived"]),
        (&20.into(), &2.into(), &18.into())
    );
    assert_eq!((&back["packets"], &back["arrived"]), (&18.into(), &18.into()));
    assert!(back["took"]["median_ns"].as_u64() > Some(14_900_000), "{back:#}");
    assert_eq!((report["seed"].as_u64(), report["mode"].as_str()), (Some(1), Some("precise")));
}

#[test]
fn packets_may_stay_in_the_kernel_until_they_go_on() {
    let Some(_turn) = turn() else { return };
    let options = ["--path", "nfqueue", "--delay", "15ms", "--peer", ECHO, "--json"];
    let output = run(&options, &["python3", "-c", ASK, "20"]);
    if said(&output).contains("this kernel has no ") {
        println!("skipped: this kernel does not hold packets: {}", said(&output));
        return;
    }
    let (came, took_s, report) = asked(&output);
    assert_eq!(came, 20, "{report:#}");
    assert!((0.0299..0.1).contains(&took_s), "{took_s}");
    let ways = [0, 1].map(|way| &report["links"][0]["ways"][way]);
    assert_eq!(
        ways.map(|way| (way["packets"].as_u64(), way["arrived"].as_u64())),
        [(Some(20), Some(20)); 2],
        "{report:#}"
    );
    assert_eq!(report["path"].as_str(), Some("nfqueue"), "{report:#}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    for (arguments, expected) in [
        (&["--loss", "200%"][..], "loss: \"200%\" is not a probability"),
        (&["--jitter", "5ms"], "jitter: 5ms around a delay of 0s"),
        (&["--limit", "5"], "limit: without a rate nothing waits"),
        (&["--there", "dealy=5ms"], "there is no option \"dealy\"; there are delay, km"),
        (&["--there", "delay"], "\"delay\" is not NAME=VALUE"),
        (&["--trace", "/nonexistent"], "/nonexistent: No such file"),
        (&["--backend", "kernel", "--drop-rate", "9"], "wan: drop_rate: the backend kernel cannot do it: "),
        (&["--backend", "kernel", "--there", "memory=1MiB"], "wan: memory: the backend kernel cannot do it: "),
        (&["--backend", "kernel", "--seed", "1"], "seed: the backend kernel cannot do it: "),
        (&["--backend", "kernel", "--mode", "precise"], "mode: the backend kernel cannot do it: "),
        (&["--backend", "kernel", "--path", "packet"], "path: the backend kernel cannot do it: "),
        (&["--path", "nfqueue", "--loss", "1%"], "wan: loss: the path nfqueue cannot do it: "),
        (&["--path", "nfqueue", "--there", "rate=1mbit"], "wan: rate: the path nfqueue cannot do it: "),
        (&["--backend", "kernel", "--core", "0"], "core: the backend kernel cannot do it: "),
        (&["--core", "9999"], "core 9999: this process may use "),
    ] {
        let output = run(arguments, &["touch", "/nonexistent/made"]);
        assert!(output.status.code() == Some(2) && said(&output).contains(expected), "{arguments:?}: {output:?}");
    }
    assert_eq!(verbena(&["wan", "run", "--delay", "5ms"]).output().unwrap().status.code(), Some(2), "no command");
}

/// Cores as a list of proc(5) has them, such as 0-2,5.
fn cores(list: &str) -> BTreeSet<usize> {
    let ranges = list.trim().split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap()).collect()
}

/// The cores that a process of this status may use.
fn cores_of(status: &str) -> BTreeSet<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores(line.expect("a list of cores"))
}

/// Two cores that this process may use, or a line that says what is skipped.
fn two_cores() -> Option<(usize, usize)> {
    let usable = verbena_terms::usable_cores().unwrap();
    if let [first, .., last] = usable[..] {
        return Some((first, last));
    }
    println!("skipped: there is one core, and nothing can keep off it");
    None
}

#[test]
fn what_runs_in_the_sites_keeps_off_the_routers_core() {
    let (Some(_turn), Some((_, last))) = (turn(), two_cores()) else { return };
    let own = last.to_string();
    for mode in ["precise", "sleep"] {
        let look = ["cat", "/proc/self/status"];
        let output = run(&["--core", &own, "--mode", mode, "--peer", &look.join(" ")], &look);
        // What the peer prints goes to standard error.
        for text in [String::from_utf8_lossy(&output.stdout), said(&output).into()] {
            let seen = cores_of(&text);
            assert!(!seen.is_empty() && !seen.contains(&last), "{output:?}");
        }
    }
    let output = run(&[], &["cat", "/proc/self/status"]);
    assert!(cores_of(&String::from_utf8_lossy(&output.stdout)).contains(&last), "where none is kept: {output:?}");
}

/// The networks that a process has made or is in, beside that of this test.
fn made_by(process: u32) -> BTreeSet<String> {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let mut made = namespaces(Some(process));
    made.remove(&own.display().to_string());
    made
}

/// Waits until there are neither these networks, nor other interfaces than before, nor processes whose command line matches.
fn nothing_is_left(made: &BTreeSet<String>, interfaces_before: &BTreeSet<String>, processes: &str) {
    assert!(made.len() >= 2, "it had no networks to leave: {made:?}");
    let began = Instant::now();
    let run = || Command::new("pgrep").args(["-f", processes]).output().unwrap().stdout;
    loop {
        let left = &namespaces(None) & made;
        if run().is_empty() && left.is_empty() && interfaces() == *interfaces_before {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "left: {left:?} {:?}", interfaces());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The rules of netfilter here, without counts; empty where there is no such command.
fn rules() -> String {
    let said = Command::new("iptables-save").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().filter(|line| line.starts_with('-')).collect()
}

/// Killed in the middle, it leaves neither processes nor networks nor rules.
#[test]
fn nothing_is_left_after_kill_9() {
    let Some(_turn) = turn() else { return };
    let (interfaces_before, rules_before) = (interfaces(), rules());
    // What a command has started is not a child of ours.
    let sleeps = ["sleep 77.25; true", "echo up; sleep 77.5; true"];
    for path in ["packet", "nfqueue"] {
        let options =
            ["wan", "run", "--path", path, "--delay", "1ms", "--peer", sleeps[0], "--", "sh", "-c", sleeps[1]];
        let mut process = verbena(&options);
        let mut child = process.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        if std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).is_err() && path == "nfqueue" {
            // Where that cannot be it has said so.
            assert_eq!(child.wait().unwrap().code(), Some(1));
            println!("skipped: this kernel does not hold packets");
            return;
        }
        let made = made_by(child.id());
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        nothing_is_left(&made, &interfaces_before, "^sleep 77[.]");
        assert_eq!(rules(), rules_before);
    }
}

#[test]
fn what_a_command_leaves_in_its_site_ends_too() {
    let Some(_turn) = turn() else { return };
    let interfaces_before = interfaces();
    // They keep nothing open for which anybody would wait.
    let script = "exec 3>&1 >/dev/null 2>&1; sleep 76.25 3>&- & (trap '' TERM; exec sleep 76.5 3>&-) &
        readlink /proc/self/ns/net >&3; sleep 0.1; exit 3";
    let output = run(&["--peer", "exec >/dev/null 2>&1; sleep 76.75 & exec sleep 76.875"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let network = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert!(network.starts_with("net:["), "{network}");
    let left = Command::new("pgrep").args(["-f", "^sleep 76[.]"]).output().unwrap().stdout;
    assert_eq!((String::from_utf8_lossy(&left), interfaces()), ("".into(), interfaces_before));
    assert!(!namespaces(None).contains(&network));
}

#[test]
fn a_signal_to_end_is_passed_on() {
    let Some(_turn) = turn() else { return };
    let script = "trap 'exit 33' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = verbena(&["wan", "run", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(33));
}

#[test]
fn whoever_may_not_have_networks_is_told_what_it_takes_and_nothing_is_made() {
    let Some(_turn) = turn() else { return };
    let lab = up::Lab::new(
        "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n",
    );
    let (interfaces_before, folder_before) = (interfaces(), std::fs::read_dir(lab.path()).unwrap().count());
    // No rights, and no user namespace in which there would be any.
    let script =
        "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    for command in [
        &["run", "--", "touch", "made"][..],
        &["run", "--path", "nfqueue", "--", "touch", "made"],
        &["up", "lab.toml"],
        &["up", "lab.toml", "--detach"],
    ] {
        let mut process = Command::new("unshare");
        process.args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_verbena"), "wan"]);
        process.args(command).current_dir(lab.path()).env("XDG_RUNTIME_DIR", lab.path());
        let output = process.output().unwrap();
        let expected =
            "verbena: networks cannot be made: that takes root, or a user namespace, which is refused (No space";
        assert!(output.status.code() == Some(1) && said(&output).starts_with(expected), "{command:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{command:?}: {output:?}");
    }
    assert_eq!(interfaces(), interfaces_before);
    // The claim of a name is one file that stays, in the folder of the sockets.
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), folder_before + 1);
    lab.refused(&["show"], 3, "no WAN called default is up");
}

#[test]
fn delays_and_rates_come_from_files() {
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // There each packet takes 100 ms more; back all but the first take 20 ms. What took longest to come is not looked at, nor that first one.
    let jitter = format!("jitter=file:{}", file("delays", "# measured\n100ms\n100ms\n"));
    let trace = format!("trace={}", file("trace", "0s 0s -\n1us 20ms 1mbit\n"));
    let options = ["--delay", "5ms", "--there", &jitter, "--back", &trace, "--peer", ECHO, "--json"];
    let output = run(&options, &["python3", "-c", ASK, "12"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (came, took_s, report) = asked(&output);
    assert!(came == 12 && (0.1249..0.3).contains(&took_s), "{came} {took_s}");
    let least_ns = [0, 1].map(|way| report["links"][0]["ways"][way]["took"]["least_ns"].as_u64().unwrap());
    assert!(least_ns[0] > 104_900_000 && least_ns[1] < 104_000_000, "{least_ns:?}");
    for (option, problem) in [
        (format!("jitter=file:{}", file("bad", "1ms\nsoon\n")), "bad: line 2: "),
        (format!("trace={}", file("bad_trace", "0s 1ms -\n0s 2ms -\n")), "bad_trace: line 2: "),
    ] {
        let output = run(&["--there", &option], &["true"]);
        assert!(output.status.code() == Some(2) && said(&output).contains(problem), "{output:?}");
    }
}

/// A user who is not root, with a copy of the program: where it was built others may not look.
struct Nobody(TempDir);

impl Nobody {
    const ID: u32 = 65_534;

    /// `None`, after it was said that the test is skipped, where such a user may not have networks.
    fn new() -> Option<Self> {
        let mut process = Command::new("unshare");
        let may = process.args(["--user", "true"]).uid(Self::ID).gid(Self::ID).output().unwrap();
        if !may.status.success() {
            println!("skipped: only root can make network namespaces");
            return None;
        }
        let copy = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_verbena"), copy.path().join("verbena")).unwrap();
        std::fs::create_dir(copy.path().join("own")).unwrap();
        std::os::unix::fs::chown(copy.path().join("own"), Some(Self::ID), Some(Self::ID)).unwrap();
        Some(Nobody(copy))
    }

    /// A directory that belongs to the user.
    fn own(&self) -> PathBuf {
        self.0.path().join("own")
    }

    fn verbena(&self, arguments: &[&str]) -> Output {
        let mut process = Command::new(self.0.path().join("verbena"));
        process.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("XDG_RUNTIME_DIR", self.own());
        process.current_dir(self.own()).uid(Self::ID).gid(Self::ID).output().unwrap()
    }
}

/// As a user who is not root, in a user namespace.
#[test]
fn it_runs_without_root_where_user_namespaces_may_be_made() {
    let Some(_turn) = turn() else { return };
    let Some(nobody) = Nobody::new() else { return };
    let script = "id -u; exec python3 -c \"$0\" 1";
    let output = nobody.verbena(&["wan", "run", "--loss", "100%", "--verbose", "--", "sh", "-c", script, ASK]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0 0\n", "{output:?}");
    assert!(said(&output).contains("wan: a to b  loss=1\n  packets    1 sent, 0 arrived"), "{output:?}");
    assert!(said(&output).contains("  dropped    1 loss\n"), "{output:?}");
}
