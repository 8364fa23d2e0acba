//! A helper in a thread, and roles in processes of their own: this test's own executable, started again.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use verbena_ipc::{Connection, Counters, Error, Event, Mode, Options, Server, Waker};
use verbena_terms::{BootClock, Clock, Time};

pub const SOCKET: &str = "node.sock";

pub fn within(seconds: u64) -> Time {
    BootClock.now() + Duration::from_secs(seconds)
}

pub fn connect(mode: Mode, path: &Path) -> Connection {
    Connection::connect_in(mode, path, within(20)).unwrap()
}

/// Makes tests out of functions that take a mode, for each mode.
macro_rules! in_every_mode {
    ($($test:ident)*) => { in_every_mode!(mq Mq, rmq Rmq, rcq Rcq, adaptive Adaptive; [$($test)*]); };
    ($($name:ident $mode:ident),*; $tests:tt) => { $(in_every_mode!(@ $name $mode $tests);)* };
    (@ $name:ident $mode:ident [$($test:ident)*]) => {
        mod $name {
            $(#[test] fn $test() { super::$test(verbena_ipc::Mode::$mode) })*
        }
    };
}

/// Keys of the queues that stand in the record of a helper.
pub fn recorded_keys(directory: &Path) -> Vec<i32> {
    let bytes = std::fs::read(directory.join(format!("{SOCKET}.queues"))).unwrap_or_default();
    let entries = bytes.get(32..).unwrap_or(&[]).chunks(16);
    entries.map(|entry| i32::from_le_bytes(entry[..4].try_into().unwrap())).filter(|key| *key != 0).collect()
}

/// Which of these keys have a queue.
pub fn existing(keys: &[i32]) -> Vec<i32> {
    let listed = std::fs::read_to_string("/proc/sysvipc/msg").unwrap();
    let there: Vec<i32> =
        listed.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
    keys.iter().copied().filter(|key| there.contains(key)).collect()
}

/// Answers with the request, or with as many bytes as a request `size N` asks for.
pub fn echo(event: Event<'_>) {
    if let Event::Request(request) = event {
        let bytes = request.bytes();
        match std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix("size ")?.parse().ok()) {
            Some(size) => request.answer(&pattern(request_seed(bytes), size)).unwrap(),
            None => request.answer(bytes).unwrap(),
        }
    }
}

pub fn request_seed(request: &[u8]) -> u64 {
    request.iter().fold(7, |sum, byte| sum * 31 + u64::from(*byte))
}

/// Bytes that tell a wrong offset, a wrong message and a torn one.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (seed.wrapping_mul(2_654_435_761).wrapping_add(at * 167) >> 3) as u8).collect()
}

/// A helper on a thread of this process.
pub struct Helper {
    pub directory: TempDir,
    pub path: PathBuf,
    waker: Waker,
    stop: Arc<AtomicBool>,
    bad_frames: Arc<AtomicU64>,
    thread: Option<JoinHandle<Counters>>,
}

impl Helper {
    pub fn start(options: Options, handler: impl FnMut(Event<'_>) + Send + 'static) -> Helper {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::bind(directory.path(), SOCKET, options).unwrap();
        Helper::run(directory, server, handler)
    }

    pub fn run(directory: TempDir, mut server: Server, mut handler: impl FnMut(Event<'_>) + Send + 'static) -> Helper {
        let (path, waker, stop) = (server.path(), server.waker(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let bad_frames = Arc::new(AtomicU64::new(0));
        let counted = bad_frames.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.poll(Duration::from_secs(60), &mut handler).unwrap();
                counted.store(server.counters().bad_frames, Ordering::Relaxed);
            }
            server.counters()
        });
        Helper { directory, path, waker, stop, bad_frames, thread: Some(thread) }
    }

    /// Frames so far that could not be believed.
    pub fn bad_frames(&self) -> u64 {
        self.bad_frames.load(Ordering::Relaxed)
    }

    /// Ends the helper and gives its counters.
    pub fn stop(mut self) -> Counters {
        self.end().unwrap()
    }

    fn end(&mut self) -> Option<Counters> {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        self.thread.take().map(|thread| thread.join().unwrap())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.end();
        }
    }
}

/// A process that plays a role. Killed when dropped.
pub struct Role {
    pub child: Child,
    said: BufReader<ChildStdout>,
}

impl Role {
    pub fn start(mode: Mode, role: &str, directory: &Path) -> Role {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::role", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env("IPC_ROLE", role)
            .env("IPC_MODE", mode.name())
            .env("IPC_DIRECTORY", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Role { child, said }
    }

    /// Waits until it says this word on a line of its own.
    pub fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if line.trim_end().ends_with(word) {
                return;
            }
            line.clear();
        }
        panic!("the process ended without saying {word}");
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects as soon as a helper listens.
pub fn connect_when_there(mode: Mode, path: &Path) -> Connection {
    let deadline = within(20);
    loop {
        match Connection::connect_in(mode, path, deadline) {
            Ok(connection) => return connection,
            Err(Error::NoHelper { .. }) if BootClock.now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A socket that is connected and says nothing.
pub fn dial(path: &Path) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Small numbers without pattern, the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}
