//! Names of sites within a WAN, and signals to the commands there.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::up::Lab;
use super::{run, said, turn};
use verbena_testkit::programs::verbena;

const LAB: &str = "\
[[site]]
name = \"paris\"

[[site]]
name = \"to-k_1\"
addresses = [\"10.2.0.1\", \"10.2.0.9\", \"fd02::1\"]

[[link]]
name = \"sea\"
between = [\"paris\", \"to-k_1\"]
";

#[test]
fn the_sites_of_a_run_have_names() {
    let Some(_turn) = turn() else { return };
    let before = std::fs::read_to_string("/etc/hosts").unwrap();
    let ask = "getent ahostsv4 b | head -1; getent hosts b; getent hosts a";
    let output = run(&["--peer", "getent ahostsv4 a | head -1"], &["sh", "-c", ask]);
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text, "10.77.0.2 STREAM b fd77::2 b fd77::1 a", "{output:?}");
    assert!(said(&output).contains("10.77.0.1 ") && said(&output).contains(" a"), "the peer: {output:?}");
    // What the machine has is there too, behind them, and it has nothing new.
    let output = run(&[], &["cat", "/etc/hosts"]);
    let expected = format!("10.77.0.1 a\nfd77::1 a\n10.77.0.2 b\nfd77::2 b\n{before}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let output = run(&[], &["sh", "-c", "echo 10.9.9.9 c >> /etc/hosts; getent hosts c; ls -A /etc | wc -l"]);
    let count = std::fs::read_dir("/etc").unwrap().count();
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text, format!("10.9.9.9 c {count}"), "{output:?}");
    assert_eq!(std::fs::read_to_string("/etc/hosts").unwrap(), before);
}

/// Commands start where they were asked for, with the files that they would have.
#[test]
fn a_command_stays_in_its_directory() {
    let Some(_turn) = turn() else { return };
    let directory = tempfile::tempdir().unwrap();
    let command = ["wan", "run", "--", "sh", "-c", "pwd -P; umask; cat /proc/self/mountinfo | grep -c ' /etc '"];
    let mut command = verbena(&command);
    let output = command.current_dir(directory.path()).output().unwrap();
    let own = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = own.lines().filter(|line| line.contains(" /etc ")).count();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (directory.path().to_str().unwrap(), &own.to_string()[..]), "{output:?}");
}

#[test]
fn the_sites_of_a_wan_that_is_up_have_names() {
    let Some(_turn) = turn() else { return };
    let lab = Lab::new(LAB);
    lab.up();
    let text = lab.good(&["exec", "paris", "--", "sh", "-c", "getent ahostsv4 to-k_1; cat /etc/hosts"]);
    assert!(text.contains("10.2.0.1") && text.contains("\nfd02::1 to-k_1\n"), "{text}");
    let text = lab.good(&["exec", "to-k_1", "--", "getent", "hosts", "paris"]);
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["fd77::1", "paris"]);
}

#[test]
fn signals_are_passed_on_to_the_command_of_a_run() {
    let Some(_turn) = turn() else { return };
    let listens = "trap 'echo usr1' USR1; trap 'echo int; exit 9' INT; echo up; while :; do sleep 0.02; done";
    let mut command = verbena(&["wan", "run", "--", "bash", "-c", listens]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let number = child.id().to_string();
    assert_eq!(lines.next().as_deref(), Some("up"));
    for (signal, heard) in [("-USR1", "usr1"), ("-INT", "int")] {
        assert!(Command::new("kill").args([signal, &number]).status().unwrap().success());
        assert_eq!(lines.next().as_deref(), Some(heard));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output)), (Some(9), String::new()));
}
