//! Clients that are processes of their own, so that they can be killed and stopped. They run until their standard input is closed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_client::Error;
use verbena_client::wire::LockMode;

use super::session::{Place, Session};
use super::store;

/// What a client is told, in its environment.
const PART: &str = "LOCK_CRASHES_PART";
const DIRECTORY: &str = "LOCK_CRASHES_DIRECTORY";
const NODE: &str = "LOCK_CRASHES_NODE";
/// Before each word that it says: the test harness says others.
const MARK: &str = "says:";
/// The longest wait for a word, and for its end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a holder looks whether it holds.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
/// Threads of a process that takes locks all the time.
const THREADS: u64 = 2;
/// Locks that such processes share.
pub const TRAFFIC_LOCKS: u64 = 6;

/// A client, from outside. Killed when dropped.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    words: Receiver<String>,
    pub node: usize,
}

impl Client {
    /// A process that takes and lets go locks that it shares with others.
    pub fn traffic(directory: &Path, node: usize, seed: u64) -> Client {
        Client::start(directory, node, &format!("traffic {seed}"))
    }

    /// One that takes one lock, says `asks` before and `has` then, and releases it when it is told anything. It says then how that went.
    pub fn holder(directory: &Path, node: usize, lock: &str, mode: LockMode) -> Client {
        let mode = if mode == LockMode::Exclusive { "writer" } else { "reader" };
        Client::start(directory, node, &format!("hold {lock} {mode}"))
    }

    /// One that writes to a store under a lock: [`store::play`].
    pub fn writer(directory: &Path, node: usize) -> Client {
        Client::start(directory, node, "store")
    }

    fn start(directory: &Path, node: usize, part: &str) -> Client {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["lock_crashes::client", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env(DIRECTORY, directory)
            .env(NODE, super::NAMES[node])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (tell, words) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, word)) = line.split_once(MARK)
                    && tell.send(word.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Client { child, input, words, node }
    }

    /// Its next word.
    pub fn hear(&self) -> String {
        self.words.recv_timeout(PATIENCE).expect("a client says what it does")
    }

    pub fn tell(&mut self, word: &str) {
        writeln!(self.input.as_mut().unwrap(), "{word}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// With -9. Gives its number.
    pub fn kill(mut self) -> u32 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child.id()
    }

    /// Tells it to end.
    pub fn end(&mut self) {
        self.input = None;
    }

    /// Waits until it has.
    pub fn ended(mut self) {
        self.end();
        let until = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return assert!(status.success(), "a client at {}: {status}", self.node),
                None => assert!(Instant::now() < until, "a call of a client at {} hangs", self.node),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process does.
pub fn play() {
    let Ok(part) = std::env::var(PART) else { return };
    let [directory, node] = [DIRECTORY, NODE].map(|name| std::env::var(name).unwrap());
    let place = Place::of(Path::new(&directory));
    match part.split(' ').collect::<Vec<_>>()[..] {
        ["traffic", seed] => traffic(&place, &node, seed.parse().unwrap()),
        ["hold", lock, "writer"] => hold(&place, &node, lock, LockMode::Exclusive),
        ["hold", lock, "reader"] => hold(&place, &node, lock, LockMode::Shared),
        ["store"] => store::play(&place, &node, Path::new(&directory)),
        _ => panic!("no part: {part}"),
    }
}

pub fn say(word: &str) {
    println!("{MARK}{word}");
}

/// The next line that it is told; nothing at the end.
pub fn told() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).unwrap();
    (read > 0).then_some(line)
}

fn hold(place: &Place, node: &str, lock: &str, mode: LockMode) {
    let mut session = Session::connect(place, node, "holder").unwrap();
    say("asks");
    let held = session.acquire(lock, mode, Some(PATIENCE)).unwrap();
    say("has");
    let is_told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            told();
            is_told.store(true, Ordering::SeqCst);
        });
        while !is_told.load(Ordering::SeqCst) {
            session.look(&held);
            std::thread::sleep(LOOK_EVERY);
        }
    });
    let released = session.release(held);
    say(if released.is_ok() { "released" } else { "lost" });
}

/// Numbers that look like chance, the same for a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        // Knuth's multiplier for 64 bits.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn traffic(place: &Place, node: &str, seed: u64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut dice = Dice(seed * THREADS + thread);
                while !is_over.load(Ordering::SeqCst) {
                    // Its helper may be dead or stopped: then it asks again, as often as it takes.
                    if let Ok(mut session) = Session::connect(place, node, "traffic") {
                        let _ = takes_locks(&mut session, &mut dice, is_over);
                    }
                    std::thread::sleep(CONNECT_AGAIN);
                }
            });
        }
        while told().is_some() {}
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Until it is over, or the connection is not to be used any more.
fn takes_locks(session: &mut Session, dice: &mut Dice, is_over: &AtomicBool) -> Result<(), Error> {
    while !is_over.load(Ordering::SeqCst) {
        let lock = format!("traffic-{}", dice.below(TRAFFIC_LOCKS));
        let mode = if dice.below(100) < 60 { LockMode::Shared } else { LockMode::Exclusive };
        let at_most = match dice.below(10) {
            0..3 => None,
            // Most of these are cancelled.
            3..5 => Some(Duration::from_millis(dice.below(10))),
            _ => Some(Duration::from_secs(10)),
        };
        let mut held = match session.acquire(&lock, mode, at_most) {
            Err(Error::NotFree | Error::NotInTime { .. }) => {
                std::thread::sleep(Duration::from_millis(dice.below(8)));
                continue;
            }
            other => other?,
        };
        let mut goes_on = session.look(&held);
        for _ in 0..dice.below(5) {
            std::thread::sleep(LOOK_EVERY);
            goes_on = goes_on && session.look(&held);
        }
        if goes_on && mode == LockMode::Exclusive && dice.below(4) == 0 {
            held = match session.share(held) {
                Err(Error::Lost) => continue,
                other => other?,
            };
            std::thread::sleep(LOOK_EVERY);
            session.look(&held);
        }
        match session.release(held) {
            Err(Error::Lost) | Ok(()) => {}
            other => return other,
        }
        std::thread::sleep(Duration::from_millis(dice.below(10)));
    }
    Ok(())
}
