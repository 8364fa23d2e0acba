//! A WAN that stays up, and the commands that use it.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use verbena_testkit::programs::{verbena, wait_for};

use super::{
    ASK, ECHO, Nobody, PATIENCE, came_and_took, cores_of, interfaces, made_by, nothing_is_left, rules, said, turn,
    two_cores,
};

const LAB: &str = "\
seed = 7

[[site]]
name = \"paris\"

[[site]]
name = \"tokyo\"
addresses = [\"10.2.0.1\", \"fd02::1\"]

[[site]]
name = \"rome\"

[[link]]
name = \"sea\"
between = [\"paris\", \"tokyo\"]
delay = \"12ms\"
there = { drop_rate = 10 }

[[link]]
name = \"land\"
between = [\"paris\", \"rome\"]
km = 1000
";

/// A directory with a file `lab.toml`, and its own place for sockets. What is up there when a test ends is ended.
pub(super) struct Lab(TempDir);

impl Lab {
    pub(super) fn new(file: &str) -> Self {
        let lab = Lab(tempfile::tempdir().unwrap());
        std::fs::write(lab.path().join("lab.toml"), file).unwrap();
        lab
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut process = verbena(&[&["wan"], arguments].concat());
        process.current_dir(self.path()).env("XDG_RUNTIME_DIR", self.path());
        process
    }

    fn wan(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of what has to succeed.
    pub(super) fn good(&self, arguments: &[&str]) -> String {
        let output = self.wan(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Refused with this exit code and these words.
    pub(super) fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.wan(arguments);
        assert!(output.status.code() == Some(code) && said(&output).contains(words), "{arguments:?}: {output:?}");
    }

    /// Brought up as `--detach` does it: the number of the process.
    pub(super) fn up(&self) -> u32 {
        // By its whole path, by which its processes are found.
        let file = self.path().join("lab.toml").display().to_string();
        let line: Value = serde_json::from_str(&self.good(&["up", &file, "--detach", "--json"])).unwrap();
        assert_eq!(line["event"], "up");
        line["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// A command in a site that has said so.
    pub(super) fn running(&self, site: &str, script: &str) -> Child {
        let mut process = self.command(&["exec", site, "--", "sh", "-c", &format!("echo up; {script}")]);
        let mut child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        child
    }

    /// Sends back what comes to it in this site: it listens already.
    pub(super) fn echo(&self, site: &str) -> Child {
        let mut child = self.running(site, &ECHO.replace("while True", "print('up', flush=True)\nwhile True"));
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        child
    }

    pub(super) fn link(&self, name: &str) -> Value {
        let report: Value = serde_json::from_str(&self.good(&["show", name, "--interval", "200ms", "--json"])).unwrap();
        report["links"][0].clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// How many of twenty datagrams from a site came back, and how long most took, in seconds.
fn ask(lab: &Lab, from: &str, to: &str) -> (u32, f64) {
    let script = format!("VERBENA_WAN_PEER={to} exec python3 -c \"$0\" 20");
    let text = lab.good(&["exec", from, "--", "sh", "-c", &script, ASK]);
    came_and_took(&text)
}

#[test]
fn commands_run_in_sites_and_links_change_while_they_do() {
    let Some(_turn) = turn() else { return };
    let (interfaces_before, lab) = (interfaces(), Lab::new(LAB));
    let made = made_by(lab.up());
    let mut echo = lab.echo("tokyo");
    let (came, took_s) = ask(&lab, "paris", "10.2.0.1");
    assert!(came == 18 && (0.0239..0.2).contains(&took_s), "{came} {took_s}");
    // By way of paris, over both links.
    lab.good(&["set", "sea", "--there", "drop_rate=none"]);
    let (came, took_s) = ask(&lab, "rome", "10.2.0.1");
    assert!(came == 20 && (0.0339..0.2).contains(&took_s), "{came} {took_s}");
    lab.good(&["set", "sea", "delay=30ms"]);
    let (came, took_s) = ask(&lab, "paris", "10.2.0.1");
    assert!(came == 20 && (0.0599..0.3).contains(&took_s), "{came} {took_s}");
    let sea = lab.link("sea");
    assert_eq!((&sea["name"], &sea["ways"][0]["options"]["delay"]), (&"sea".into(), &"30ms".into()));
    assert_eq!(sea["ways"][0]["dropped"]["drop_rate"], 2);
    assert!(sea["ways"][1]["took"]["median_ns"].as_u64() > Some(11_900_000), "{sea:#}");
    let told = lab.good(&["exec", "rome", "--", "sh", "-c", "echo $VERBENA_WAN_SITE $VERBENA_WAN_SITE_TOKYO6"]);
    assert_eq!(told, "rome fd02::1\n");
    assert_eq!(lab.wan(&["exec", "rome", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    // It ends, and with it what runs there.
    lab.good(&["down"]);
    let (code, stderr) = (echo.wait().unwrap().code(), std::io::read_to_string(echo.stderr.take().unwrap()).unwrap());
    assert_eq!((code, stderr.as_str()), (Some(143), "verbena: the WAN default has ended: so does the command\n"));
    nothing_is_left(&made, &interfaces_before, &lab.path().display().to_string());
}

#[test]
fn rates_are_of_the_interval() {
    let Some(_turn) = turn() else { return };
    let lab = Lab::new(LAB);
    lab.up();
    let idle = &lab.link("sea")["ways"][0]["rates"]["packets_per_s"];
    assert_eq!(idle.as_f64(), Some(0.0));
    // 100 bytes and 42 of headers, a hundred times a second.
    const SEND: &str = "exec python3 -c \"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    s.sendto(bytes(100), ('10.2.0.1', 9)); time.sleep(0.01)
\"";
    let mut sends = lab.running("paris", SEND);
    let [mut rates, mut packets, mut bits] = [Value::Null, Value::from(0.0), Value::from(0.0)];
    // A machine that is busy sends fewer, and nothing for a while.
    wait_for("twenty packets a second are sent", || {
        let report: Value = serde_json::from_str(&lab.good(&["show", "sea", "--json"])).unwrap();
        rates = report["links"][0]["ways"][0]["rates"].clone();
        [packets, bits] = ["packets_per_s", "bits_per_s"].map(|name| rates[name].clone());
        packets.as_f64() >= Some(20.0)
    });
    let [packets, bits] = [packets, bits].map(|rate| rate.as_f64().unwrap());
    assert!(packets < 101.0 && (bits / packets - 8.0 * 142.0).abs() < 1.0, "{rates:#}");
    let text = lab.good(&["show", "sea", "--interval", "100ms", "--count", "2"]);
    assert_eq!(text.matches("sea: paris to tokyo  delay=12ms drop_rate=10\n").count(), 2, "{text}");
    assert!(text.contains("  rate       ") && text.contains("kbit/s sent; "), "{text}");
    // What comes faster than it goes on waits, and then what does not fit is dropped.
    lab.good(&["set", "sea", "--there", "rate=10kbit limit=5"]);
    let mut there = Value::Null;
    wait_for("a packet has waited for others, and one is dropped where the queue is full", || {
        there = lab.link("sea")["ways"][0].clone();
        there["dropped"]["queue_limit"].as_u64() > Some(0) && there["took"]["most_ns"].as_u64() > Some(100_000_000)
    });
    let of = |what: &str| there[what].as_u64().unwrap();
    assert!((1..=5).contains(&of("queued_packets")) && of("queued_bytes") == 142 * of("queued_packets"), "{there:#}");
    let took = ["least_ns", "median_ns", "p99_ns", "most_ns"].map(|part| there["took"][part].as_u64().unwrap());
    assert!(took.is_sorted() && took[0] > 11_900_000, "{took:?}");
    let text = lab.good(&["show", "sea"]);
    assert!(text.contains("  queue      ") && text.contains("the queue was full"), "{text}");
    kill_process(Pid::from_child(&sends), Signal::TERM).unwrap();
    assert_eq!(sends.wait().unwrap().code(), Some(143));
}

#[test]
fn what_cannot_be_is_said_with_its_place_and_changes_nothing() {
    let lab = Lab::new("");
    for (file, at, problem) in [
        ("mode = \"fast\"", "lab.toml:1:8", "`fast` is not one of the choices"),
        ("path = \"short\"", "lab.toml:1:8", "`short` is not one of the choices"),
        (
            &LAB.replace("seed = 7", "path = \"nfqueue\""),
            "lab.toml:13:1",
            "sea: drop_rate: the path nfqueue cannot do it",
        ),
        ("[[site]]\nname = \"a\"\nadresses = []", "lab.toml:3:1", "did you mean addresses?"),
        (
            "[[site]]\nname = \"a b\"\n[[link]]\nname = \"l\"\nbetween = [\"a b\", \"a b\"]",
            "lab.toml:2:8",
            "\"a b\" cannot name",
        ),
        (&LAB.replace("\"paris\", \"rome\"", "\"paris\", \"roma\""), "lab.toml:21:21", "did you mean \"rome\"?"),
        (&LAB.replace("km = 1000", "kn = 1000"), "lab.toml:22:6", "did you mean km?"),
        (&LAB.replace("delay = \"12ms\"", "delay = 12"), "lab.toml:16:9", "\"12\" is not a time"),
        (&LAB.replace("drop_rate = 10", "drop_rate = 0"), "lab.toml:17:23", "\"0\" is not a number of packets"),
        (&LAB.replace("10.2.0.1", "10.77.0.3"), "lab.toml:10:1", "10.77.0.3 is given to tokyo and to rome"),
        (&LAB.replace("\"12ms\"", "\"12ms\"\ntrace = \"none.txt\""), "lab.toml:17:9", "none.txt: No such file"),
        (&format!("backend = \"kernel\"\n{LAB}"), "lab.toml:2:8", "the backend kernel cannot do it: the kernel draws"),
        (
            &LAB.replace("seed = 7", "backend = \"kernel\""),
            "lab.toml:13:1",
            "sea: drop_rate: the backend kernel cannot do it",
        ),
        (&format!("core = 9999\n{LAB}"), "lab.toml:1:8", "core 9999: this process may use "),
        (&LAB.replace("seed = 7", "backend = \"kernel\"\ncore = 0"), "lab.toml:2:8", "core: the backend kernel"),
        ("backend = \"netem\"", "lab.toml:1:11", "`netem` is not one of the choices"),
        ("", "lab.toml", "0 sites; there may be 1 to 250"),
        ("site = 3", "lab.toml:1:8", "expected a list in brackets"),
        ("[[site]\n", "lab.toml:1:8", ""),
    ] {
        std::fs::write(lab.path().join("lab.toml"), file).unwrap();
        for arguments in [&["up", "lab.toml"][..], &["up", "lab.toml", "--check"], &["up", "lab.toml", "--detach"]] {
            let output = lab.wan(arguments);
            let text = said(&output);
            assert!(output.status.code() == Some(2) && text.contains(at) && text.contains(problem), "{file}: {text}");
        }
    }
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 1, "no socket was made");
    for arguments in [&["exec", "paris", "--", "true"][..], &["set", "sea", "delay=1ms"], &["show"], &["down"]] {
        lab.refused(arguments, 3, "no WAN called default is up; `verbena wan up FILE.toml` brings one up");
    }
    lab.refused(&["up", "none.toml"], 2, "none.toml: No such file");
    lab.refused(&["show", "--name", "a/b"], 2, "a name is 1 to 32 letters");
    let Some(_turn) = turn() else { return };
    std::fs::write(lab.path().join("lab.toml"), LAB).unwrap();
    lab.up();
    lab.refused(&["up", "lab.toml"], 1, "a WAN called default is up already (process ");
    lab.refused(&["exec", "berlin", "--", "true"], 2, "there is no site \"berlin\"; there are paris, tokyo, rome");
    lab.refused(&["exec", "paris", "--", "nonesuch"], 127, "cannot run nonesuch");
    lab.refused(&["set", "see", "delay=1ms"], 2, "there is no link \"see\"; there are sea, land");
    lab.refused(&["set", "sea", "loss=2"], 2, "sea: loss: \"2\" is not a probability");
    lab.refused(&["set", "sea", "delay=1ms", "dealy=2"], 2, "sea: there is no option \"dealy\"");
    lab.refused(&["show", "see"], 2, "there is no link \"see\"");
    lab.refused(&["down", "--name", "other"], 3, "--name chooses another one: default");
    assert_eq!(lab.link("sea")["ways"][0]["options"]["delay"], "12ms", "what was refused has changed nothing");
    // Another one beside it, with the same addresses.
    lab.good(&["up", "lab.toml", "--detach", "--name", "other"]);
    assert_eq!(lab.good(&["exec", "rome", "--name", "other", "--", "sh", "-c", "echo $VERBENA_WAN_SITE"]), "rome\n");
    lab.good(&["down", "--name", "other"]);
}

#[test]
fn the_router_has_the_core_that_the_file_gives_it() {
    let (Some(_turn), Some((first, _))) = (turn(), two_cores()) else { return };
    let lab = Lab::new(&format!("core = {first}\n{LAB}"));
    let pid = lab.up();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|thread| thread.path());
    let named = |thread: &std::path::PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "wan-router")
    };
    let routers: Vec<_> = threads.filter(named).collect();
    assert_eq!(routers.len(), 1);
    let status = std::fs::read_to_string(routers[0].join("status")).unwrap();
    assert_eq!(cores_of(&status).into_iter().collect::<Vec<_>>(), [first]);
    let seen = cores_of(&lab.good(&["exec", "paris", "--", "cat", "/proc/self/status"]));
    assert!(!seen.is_empty() && !seen.contains(&first), "{seen:?}");
    let (came, took_s) = {
        let echo = lab.echo("rome");
        let asked = ask(&lab, "paris", "10.77.0.3");
        drop(echo);
        asked
    };
    assert!(came >= 15 && took_s >= 0.0099, "{came} {took_s}");
}

/// Who keeps it up, or who runs a command there, killed at any time.
#[test]
fn nothing_is_left_after_kill_9_of_any_part() {
    let Some(_turn) = turn() else { return };
    let (interfaces_before, lab) = (interfaces(), Lab::new(LAB));
    let pid = lab.up();
    let made = made_by(pid);
    // What a command has started is not a child of ours.
    let mut command = lab.running("paris", "sleep 78.25; true");
    let mut killed = lab.running("rome", "sleep 78.5; true");
    killed.kill().unwrap();
    killed.wait().unwrap();
    kill(pid);
    assert_eq!(command.wait().unwrap().code(), Some(143));
    nothing_is_left(&made, &interfaces_before, "^sleep 78[.]");
    let socket = lab.path().join("verbena/default.wan");
    assert!(socket.exists());
    lab.good(&["down"]);
    assert!(!socket.exists());
    // Whoever comes after one that was killed does not need that.
    kill(lab.up());
    lab.up();
    lab.good(&["down"]);
}

/// Whatever it was about to make.
#[test]
fn nothing_is_left_of_one_that_was_killed_while_it_comes_up() {
    let Some(_turn) = turn() else { return };
    let nfqueue = LAB.replace("seed = 7", "path = \"nfqueue\"").replace("there = { drop_rate = 10 }\n", "");
    let (interfaces_before, rules_before) = (interfaces(), rules());
    for file in [LAB, &nfqueue] {
        let lab = Lab::new(file);
        let path = lab.path().join("lab.toml").display().to_string();
        let start = || lab.command(&["up", &path]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The second start finds what it needs in the kernel already.
        let takes = [(); 2].map(|()| {
            let (began, mut up) = (Instant::now(), start());
            let is_up = std::io::Read::read_exact(up.stdout.as_mut().unwrap(), &mut [0; 3]).is_ok();
            let _ = up.kill();
            up.wait().unwrap();
            is_up.then(|| began.elapsed())
        });
        let [Some(_), Some(takes)] = takes else {
            assert_eq!(file, &nfqueue, "it did not come up");
            println!("skipped: this kernel does not hold packets");
            continue;
        };
        let (began, mut halfway) = (Instant::now(), 0);
        // By what it has made so far: by time alone a busy machine would be met before the first thing and after the last.
        for (nth, wanted) in (2..=8).cycle().enumerate() {
            let (started, mut up) = (Instant::now(), start());
            let mut made = made_by(up.id());
            while made.len() < wanted && started.elapsed() < takes {
                std::thread::sleep(takes / 64);
                made = made_by(up.id());
            }
            up.kill().unwrap();
            up.wait().unwrap();
            if made.len() >= 2 {
                nothing_is_left(&made, &interfaces_before, &path);
            }
            assert_eq!(rules(), rules_before);
            let is_up = !std::io::read_to_string(up.stdout.take().unwrap()).unwrap().is_empty();
            halfway += u32::from(made.len() >= 2 && !is_up);
            if halfway >= 3 && nth >= 6 {
                break;
            }
            assert!(began.elapsed() < 3 * PATIENCE, "killed {halfway} times halfway");
        }
    }
}

#[test]
fn a_router_that_sleeps_uses_no_processor_while_nothing_crosses() {
    let Some(_turn) = turn() else { return };
    // Hundredths of a second that it uses in at least so many seconds, and until it has used enough.
    let used = |mode: &str, enough: u64| {
        let lab = Lab::new(&LAB.replace("seed = 7", &format!("mode = \"{mode}\"")).replace("12ms", "50us"));
        let pid = lab.up();
        // What sites say by themselves at first has crossed.
        std::thread::sleep(Duration::from_secs(1));
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
            fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
        };
        let (before, began) = (ticks(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        while ticks() - before < enough && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
        ticks() - before
    };
    let asleep = used("sleep", 0);
    assert!(asleep <= 4, "{asleep}");
    // So short a delay is waited for without rest, as far as others leave it the processor: ten times as long would the one that sleeps use it, at most, for this.
    let awake = used("precise", 41);
    assert!(awake > 40, "{awake}");
}

/// A process that was killed takes connections until all of it is gone, and ends them without a word.
#[test]
fn one_that_is_about_to_be_gone_is_not_up() {
    let lab = Lab::new(LAB);
    let folder = lab.path().join("verbena");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let dying = UnixListener::bind(folder.join("default.wan")).unwrap();
    std::thread::spawn(move || dying.incoming().for_each(drop));
    for asked in [&["show"][..], &["set", "sea", "delay=1ms"], &["exec", "paris", "--", "true"]] {
        lab.refused(asked, 3, "no WAN called default is up");
    }
}

#[test]
fn it_ends_by_a_signal() {
    let Some(_turn) = turn() else { return };
    let lab = Lab::new(LAB);
    let mut up = lab.command(&["up", "lab.toml"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = std::io::BufReader::new(up.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut text, &mut line).unwrap();
    assert_eq!(
        line,
        "the WAN default is up: sites paris (10.77.0.1 fd77::1), tokyo (10.2.0.1 fd02::1), rome (10.77.0.3 fd77::3); links sea, land\n"
    );
    kill_process(Pid::from_child(&up), Signal::TERM).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0));
    assert_eq!(std::io::read_to_string(text).unwrap(), "the WAN default is down\n");
    lab.refused(&["down"], 3, "no WAN called default is up");
}

#[test]
fn it_stays_up_without_root_too() {
    let Some(_turn) = turn() else { return };
    let Some(nobody) = Nobody::new() else { return };
    std::fs::write(nobody.own().join("lab.toml"), LAB).unwrap();
    let good = |arguments: &[&str]| {
        let output = nobody.verbena(&[&["wan"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    good(&["up", "lab.toml", "--detach"]);
    let told = good(&[
        "exec",
        "paris",
        "--",
        "sh",
        "-c",
        "id -u; echo $VERBENA_WAN_ADDRESS; cat /proc/self/net/dev | grep -c :",
    ]);
    assert_eq!(told, "0\n10.77.0.1\n3\n", "lo and two links");
    good(&["set", "sea", "loss=100%"]);
    assert_eq!(
        good(&["exec", "paris", "--", "sh", "-c", "VERBENA_WAN_PEER=10.2.0.1 exec python3 -c \"$0\" 1", ASK]),
        "0 0\n"
    );
    let report: Value = serde_json::from_str(&good(&["show", "sea", "--json"])).unwrap();
    assert_eq!(report["links"][0]["ways"][0]["dropped"]["loss"], 1);
    good(&["down"]);
}
