//! `verbena lock run --start`: a helper where none runs, which goes on when the command has ended.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use verbena_testkit::programs::{json, verbena};

use super::{ended, wait_for};

fn run(directory: &Path, state: &str, command: &[&str]) -> Command {
    let own = ["--node-runtime", "run", "--node-state", state, "--cluster-lease", "2s"];
    let mut run = verbena(&["lock", "run", "--start"]);
    run.args(own).args(["x", "--"]).args(command).current_dir(directory);
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

/// The helper that was started, which ends with the test.
struct Helper(Pid);

impl Helper {
    fn of(directory: &Path) -> Helper {
        let (_, status) = json(&["status", "--json", "--node-runtime", "run"], directory);
        let process = status["pid"].as_i64().and_then(|number| i32::try_from(number).ok());
        Helper(process.and_then(Pid::from_raw).unwrap_or_else(|| panic!("no process in {status}")))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(self.0, Signal::TERM);
        wait_for("gone", || kill_process(self.0, Signal::CONT).is_err());
    }
}

#[test]
fn commands_that_begin_at_once_start_one_helper_that_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("number"), "0").unwrap();
    let count = ["sh", "-c", "n=$(cat number); sleep 0.02; echo $((n + 1)) > number"];
    let all: Vec<Child> = (0..4).map(|_| run(directory, "state", &count).spawn().unwrap()).collect();
    let all: Vec<_> = all.into_iter().map(|child| ended(child.wait_with_output().unwrap())).collect();
    let helper = Helper::of(directory);
    assert!(all.iter().all(|said| *said == (Some(0), String::new())), "{all:?}");
    assert_eq!(super::number(directory), 4);
    let log = std::fs::read_to_string(directory.join("run/local.log")).unwrap();
    assert_eq!(log.matches("began incarnation").count(), 1, "{log}");
    // It runs in a session of its own, below no command; and is used again.
    let said = ended(run(directory, "state", &["true"]).output().unwrap());
    assert_eq!(said, (Some(0), String::new()));
    let (_, status) = json(&["status", "--json", "--node-runtime", "run"], directory);
    assert_eq!(status["pid"], helper.0.as_raw_nonzero().get());
}

/// A helper that is leaving has no locks to give: it is waited for, and another one is started.
#[test]
fn a_helper_that_is_leaving_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    assert_eq!(ended(run(directory, "state", &["true"]).output().unwrap()), (Some(0), String::new()));
    let first = Helper::of(directory);
    // While an update of it is open it leaves slowly, for a lease at the most.
    let mut stream = UnixStream::connect(directory.join("run/local.http.sock")).unwrap();
    let body = r#"{"everything":true}"#;
    write!(stream, "POST /v1/updates HTTP/1.1\r\nhost: helper\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    kill_process(first.0, Signal::TERM).unwrap();
    wait_for("it to leave", || json(&["status", "--json", "--node-runtime", "run"], directory).1["state"] == "leaving");
    let said = ended(run(directory, "state", &["true"]).output().unwrap());
    assert_eq!(said, (Some(0), String::new()));
    let second = Helper::of(directory);
    assert_ne!(second.0, first.0);
}

#[test]
fn a_helper_that_cannot_start_is_told_with_its_log() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let (code, said) = ended(run(directory.path(), "file/state", &["true"]).output().unwrap());
    assert!(code == Some(3) && said.contains("run/local.log") && said.contains("file/state"), "{code:?} {said}");
}
