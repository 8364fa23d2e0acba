//! Links that netem of the kernel runs, where it has that; where not, that this is said.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::programs::verbena;

use super::up::Lab;
use super::{ASK, ECHO, Nobody, asked, interfaces, made_by, nothing_is_left, run, said, turn};

const LAB: &str = "\
backend = \"kernel\"

[[site]]
name = \"paris\"

[[site]]
name = \"tokyo\"
addresses = [\"10.2.0.1\"]

[[link]]
name = \"sea\"
between = [\"paris\", \"tokyo\"]
delay = \"12ms\"
";

/// Whether this kernel has netem; says that the test is skipped if not.
fn has_netem() -> bool {
    let output = run(&["--backend", "kernel"], &["true"]);
    if output.status.success() {
        return true;
    }
    assert!(std::env::var_os("VERBENA_NETEM").is_none(), "{output:?}");
    println!("skipped: this kernel has no netem");
    false
}

/// Never the router instead.
#[test]
fn a_kernel_without_netem_is_named_and_nothing_is_left() {
    let Some(_turn) = turn() else { return };
    let interfaces_before = interfaces();
    let output = run(&["--backend", "kernel", "--delay", "5ms"], &["echo", "it ran"]);
    if output.status.success() {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it ran\n");
    } else {
        let part =
            "this kernel has no netem (module sch_netem): `modprobe -a sch_netem` as root, or leave the backend out";
        assert!(output.status.code() == Some(1) && said(&output).contains(part), "{output:?}");
        assert_eq!(output.stdout, b"", "the command did not run");
        let lab = Lab::new(LAB);
        for detach in [&["up", "lab.toml"][..], &["up", "lab.toml", "--detach"]] {
            lab.refused(detach, 1, part);
        }
        lab.refused(&["show"], 3, "no WAN called default is up");
    }
    assert_eq!(interfaces(), interfaces_before);
}

#[test]
fn a_command_meets_delay_and_loss_and_is_told_what_is_known() {
    let Some(_turn) = turn() else { return };
    if !has_netem() {
        return;
    }
    let arguments =
        ["--backend", "kernel", "--delay", "20ms", "--there", "loss=25%", "--peer", ECHO, "--json", "--verbose"];
    let output = run(&arguments, &["python3", "-c", ASK, "60"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (came, took_s, report) = asked(&output);
    // 45, with a deviation of 3.4.
    assert!((25..=58).contains(&came) && took_s > 0.0399, "{came} {took_s}");
    assert_eq!((&report["backend"], &report["seed"], &report["mode"]), (&"kernel".into(), &Value::Null, &Value::Null));
    let there = &report["links"][0]["ways"][0];
    let number = |name: &str| there[name].as_u64().unwrap();
    assert!(number("packets") >= 60 && there["dropped"]["loss"].as_u64().unwrap() >= 60 - u64::from(came), "{there:#}");
    assert!(there["took"].is_null() && there["unknown"].as_array().unwrap().contains(&"took".into()), "{there:#}");
    let said = said(&output);
    assert!(said.contains("wan: a to b  delay=20ms loss=0.25\n") && said.contains(" loss\n"), "{said}");
    assert!(said.contains("  not known  corrupted, ") && !said.contains("  took  "), "{said}");
}

#[test]
fn it_stays_up_changes_and_goes_with_its_process() {
    let Some(_turn) = turn() else { return };
    if !has_netem() {
        return;
    }
    let (interfaces_before, lab) = (interfaces(), Lab::new(LAB));
    let pid = lab.up();
    let made = made_by(pid);
    let mut echo = lab.echo("tokyo");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let ask = || {
        let script = "VERBENA_WAN_PEER=10.2.0.1 exec python3 -c \"$0\" 10";
        let text = lab.good(&["exec", "paris", "--", "sh", "-c", script, ASK]);
        let (came, took_s) = text.trim().split_once(' ').unwrap();
        (came.parse::<u32>().unwrap(), took_s.parse::<f64>().unwrap())
    };
    let (came, took_s) = ask();
    assert!(came == 10 && took_s > 0.0239, "{came} {took_s}");
    lab.good(&["set", "sea", "--back", "delay=100ms", "jitter=normal:1ms"]);
    let (came, took_s) = ask();
    assert!(came == 10 && took_s > 0.1, "{came} {took_s}");
    lab.refused(&["set", "sea", "delay=1ms", "drop_rate=10"], 2, "sea: drop_rate: the backend kernel cannot do it");
    let sea = lab.link("sea");
    assert_eq!(sea["ways"][0]["options"]["delay"], "12ms", "what was refused has changed nothing");
    assert!(sea["ways"][1]["arrived"].as_u64() >= Some(20), "{sea:#}");
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(echo.wait().unwrap().code(), Some(143));
    nothing_is_left(&made, &interfaces_before, &lab.path().display().to_string());
}

#[test]
fn nothing_is_left_after_kill_9() {
    let Some(_turn) = turn() else { return };
    if !has_netem() {
        return;
    }
    let interfaces_before = interfaces();
    let script = "echo up; exec sleep 79.25";
    let arguments =
        ["wan", "run", "--backend", "kernel", "--delay", "9ms", "--jitter", "2ms", "--", "sh", "-c", script];
    let mut child = verbena(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
    let made = made_by(child.id());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    nothing_is_left(&made, &interfaces_before, "^sleep 79[.]");
}

/// As a user who is not root, in a user namespace.
#[test]
fn it_runs_without_root_too() {
    let Some(_turn) = turn() else { return };
    if !has_netem() {
        return;
    }
    let Some(nobody) = Nobody::new() else { return };
    let script = "exec python3 -c \"$0\" 3";
    let options =
        ["wan", "run", "--backend", "kernel", "--delay", "3ms", "--jitter", "1ms", "--verbose", "--there", "loss=1"];
    let output = nobody.verbena(&[&options[..], &["--", "sh", "-c", script, ASK]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0\n", "{output:?}");
    assert!(said(&output).contains(" loss\n  not known  "), "{output:?}");
}
