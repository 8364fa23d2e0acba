//! Targets that are processes of their own, for the harnesses of real providers: the test program starts itself again.
//!
//! A test program has a `#[test] fn target()` that calls [`serve_if_asked`]: in an ordinary run it does nothing, and in the process
//! that [`Processes`] starts it says on standard output who it is and serves until its standard input ends (so that it
//! never outlives who started it).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use verbena_terms::Incarnation;

use super::harness::Target;
use super::scene::VIEW;
use crate::{Fabric, Rights};

/// Carries the target's incarnation (as a word) and the bytes of its region, and is what tells a target from a test.
const ASKED: &str = "VERBENA_CONFORMANCE_TARGET";

/// Stands before the line that a target says, among what a test program prints.
const MARK: &str = "conformance target: ";

/// Serves a region until standard input ends, if this process was started for it.
pub fn serve_if_asked(fabric: impl FnOnce(Incarnation) -> Arc<dyn Fabric>) {
    let Ok(asked) = std::env::var(ASKED) else { return };
    let (who, bytes) = asked.split_once(' ').expect("the variable has two fields");
    let incarnation = Incarnation::from_word(who.parse().expect("the first is an incarnation"));
    let fabric = fabric(incarnation);
    fabric.set_view(VIEW);
    let region =
        fabric.register(bytes.parse().expect("the second is a size"), VIEW).expect("a target registers memory");
    let target = Target { incarnation, address: fabric.address(), key: region.key(Rights::Change) };
    println!("\n{MARK}{target}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The targets that a harness has started. Ended when dropped.
#[derive(Debug, Default)]
pub struct Processes {
    running: HashMap<Incarnation, Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Kept open, so that a target can end in peace.
    _output: BufReader<ChildStdout>,
}

impl Processes {
    /// Starts a target: runs the test `name` of this very program in a process of its own.
    pub fn start(&mut self, name: &str, incarnation: Incarnation, bytes: u64) -> Target {
        let program = std::env::current_exe().expect("a test program knows its file");
        let mut child = Command::new(program)
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(ASKED, format!("{} {bytes}", incarnation.to_word()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test program starts itself");
        let mut output = BufReader::new(child.stdout.take().expect("its output was asked for"));
        let line = output
            .by_ref()
            .lines()
            .map_while(std::result::Result::ok)
            .find_map(|line| line.strip_prefix(MARK).map(str::to_owned));
        self.running.insert(incarnation, Running { child, _output: output });
        line.expect("a target says who it is").parse().expect("a target says it in its form")
    }

    /// Stops a target; it has stopped when this returns.
    pub fn pause(&self, target: Incarnation) {
        self.signal(target, Signal::STOP);
        let child = self.running.get(&target).expect("a target that was started");
        let stopped =
            waitpid(Some(Pid::from_child(&child.child)), WaitOptions::UNTRACED).expect("a child is waited for");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "a target stops when it is told to");
    }

    /// Lets a stopped target go on.
    pub fn resume(&self, target: Incarnation) {
        self.signal(target, Signal::CONT);
    }

    /// Ends a target without warning.
    pub fn kill(&mut self, target: Incarnation) {
        self.signal(target, Signal::KILL);
        let mut running = self.running.remove(&target).expect("a target that was started");
        running.child.wait().expect("a child is waited for");
    }

    fn signal(&self, target: Incarnation, signal: Signal) {
        let running = self.running.get(&target).expect("a target that was started");
        kill_process(Pid::from_child(&running.child), signal).expect("a child takes signals");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for Running { child, .. } in self.running.values_mut() {
            // Failing means that it has ended already, which is all that is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
