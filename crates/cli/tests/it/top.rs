//! `verbena top` against a helper: its lines, and its window in a terminal that `script` makes.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Ended, started};

/// A node in this directory, and where its port is.
fn node(directory: &Path) -> (Ended, String) {
    let arguments = ["node", "--json", "--node-api", "127.0.0.1:0", "--node-runtime", "run", "--node-state", "state"];
    let mut command = verbena(&arguments);
    let command = command.current_dir(directory).stdin(Stdio::null()).stderr(Stdio::null());
    let (node, line) = started(command, |line| line.contains(r#""event":"listening""#));
    let listening: Value = serde_json::from_str(&line).unwrap();
    (node, listening["api"].as_str().unwrap().to_owned())
}

fn top(directory: &Path, arguments: &[&str]) -> std::process::Output {
    verbena(&[&["top"], arguments].concat()).current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn it_prints_so_many_lines_where_nobody_looks() {
    let directory = tempfile::tempdir().unwrap();
    let (_node, api) = node(directory.path());
    for place in [["--node-runtime", "run"], ["--address", &api]] {
        let output = top(directory.path(), &[&["--json", "--count", "3", "--interval", "100ms"], &place[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in lines {
            assert_eq!(
                (&line["node"], &line["has_proxy"], &line["hit_ratio"]),
                (&"local".into(), &false.into(), &Value::Null)
            );
            assert!(line["seconds"].as_f64().unwrap() > 0.05, "{line}");
        }
    }
    let output = top(directory.path(), &["--count", "2", "--interval", "50ms", "--node-runtime", "run"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("requests/s    hits") && text.lines().count() == 3, "{text}");
}

#[test]
fn nobody_there_has_its_own_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    for place in [["--node-runtime", "run"], ["--address", "127.0.0.1:1"]] {
        let output = top(directory.path(), &[&["--count", "1"], &place[..]].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no helper"), "{output:?}");
    }
    let output = top(directory.path(), &["--address", "example.org:80"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_helper_that_goes_is_missed_and_one_that_comes_back_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _) = node(directory.path());
    let mut command = verbena(&["top", "--json", "--interval", "50ms", "--node-runtime", "run"]);
    let command =
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().unwrap());
    let said = Said::hear(child.0.stdout.take().unwrap());
    let complaints = Said::hear(child.0.stderr.take().unwrap());
    said.wait_for("\"node\":\"local\"");
    drop(first);
    complaints.wait_for("no helper answers at");
    let before = said.text().len();
    let (_second, _) = node(directory.path());
    let began = Instant::now();
    while said.text().len() <= before {
        assert!(began.elapsed() < PATIENCE, "{}", complaints.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What is written, as it comes.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn hear(mut from: impl Read + Send + 'static) -> Said {
        let (said, mut piece) = (Said::default(), [0; 4096]);
        let into = said.clone();
        std::thread::spawn(move || {
            while let Ok(length @ 1..) = from.read(&mut piece) {
                into.0.lock().unwrap().extend(&piece[..length]);
            }
        });
        said
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, words: &str) {
        let began = Instant::now();
        while !self.text().contains(words) {
            let last = self.0.lock().unwrap().iter().rev().take(500).rev().copied().collect::<Vec<_>>();
            assert!(began.elapsed() < PATIENCE, "never {words:?}: ... {}", last.escape_ascii());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `verbena top` in a terminal of 100 columns and 30 lines.
struct Window {
    script: Child,
    keys: ChildStdin,
    said: Said,
}

const ENTERS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";

impl Window {
    fn open(directory: &Path) -> Window {
        let inside =
            r#"stty rows 30 cols 100; echo "pid $$;"; exec "$VERBENA" top --node-runtime run --interval 100ms"#;
        let mut command = Command::new("script");
        command.args(["-qec", inside, "/dev/null"]).env("VERBENA", env!("CARGO_BIN_EXE_verbena")).env("TERM", "xterm");
        command.env("SHELL", "/bin/sh").env_remove("VERBENA_CONFIG").current_dir(directory);
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (keys, said) = (script.stdin.take().unwrap(), Said::hear(script.stdout.take().unwrap()));
        let window = Window { script, keys, said };
        window.said.wait_for(ENTERS);
        // Only what changes is drawn: these words come at once, or where none of their letters stood.
        for words in ["requests/s", "member", "q quits", "this node runs no p"] {
            window.said.wait_for(words);
        }
        window
    }

    /// Waits for its end; what the terminal was told at the end.
    fn ends(mut self) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.script.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        self.said.wait_for(LEAVES);
        assert_eq!(status.code(), Some(0), "{:?}", self.said.text());
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn the_terminal_is_as_before_however_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _) = node(directory.path());
    for key in ["q", "\u{1b}", "\u{3}"] {
        let mut window = Window::open(directory.path());
        window.keys.write_all(key.as_bytes()).unwrap();
        window.ends();
    }
    let window = Window::open(directory.path());
    let text = window.said.text();
    let pid = text.split("pid ").nth(1).unwrap().split(';').next().unwrap();
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    window.ends();

    let mut window = Window::open(directory.path());
    drop(first);
    window.said.wait_for("no answer, trying");
    window.keys.write_all(b"q").unwrap();
    window.ends();
}
