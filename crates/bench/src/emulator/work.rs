//! What the process at the far site does between an order to begin and one to end.

use std::io::{self, ErrorKind, Read};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::line::{Line, Route};
use super::places::Places;

/// The work of the far process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Answer each message with another one of as many bytes, and compute for so long before each look whether one has come.
    Answer { route: Route, bytes: usize, load: Duration },
    /// Nothing but what is asked for.
    Nothing,
    /// Take what comes by `count` connections, from `first` on.
    Take { first: usize, count: usize },
    /// Take what comes as datagrams that begin with this number. Others are late.
    TakeDatagrams { number: u64 },
}

/// What came meanwhile, where it was counted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Came {
    pub(super) bytes: u64,
    /// Calls that found something: of datagrams, one each.
    pub(super) calls: u64,
    /// From the first to the last.
    pub(super) within: Duration,
}

/// How long it sleeps at most before it sees that it is to end.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Nothing comes any more when nothing has come for so long, or for as long where nothing has come yet.
const QUIET: Duration = Duration::from_millis(10);
const FIRST: Duration = Duration::from_secs(1);
/// As much is taken at once.
const AT_ONCE: usize = 256 << 10;

/// Computes for `length`. Returns for how long it did.
pub(super) fn compute_for(length: Duration) -> Duration {
    compute_while(length, || true)
}

fn compute_while(length: Duration, is_wanted: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while began.elapsed() < length && is_wanted() {
        compute(COARSE);
    }
    began.elapsed()
}

/// This many steps take less than a microsecond.
const COARSE: u64 = 100;

/// Computes `steps` steps of a xorshift, with nothing in memory.
pub(super) fn compute(steps: u64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    std::hint::black_box(state);
}

/// A work that has begun.
pub(super) enum Task<'a> {
    Answer(Line<'a>, Duration),
    Take(Taking<'a>),
    Nothing,
}

impl<'a> Task<'a> {
    pub(super) fn take(connections: &'a [TcpStream]) -> Self {
        Task::Take(Taking::new(connections.iter().map(Source::Connection).collect()))
    }

    pub(super) fn take_datagrams(socket: &'a UdpSocket, number: u64) -> Self {
        Task::Take(Taking::new(vec![Source::Datagrams(socket, number)]))
    }

    /// Goes on until `stop`.
    pub(super) fn run(self, stop: &AtomicBool) -> Result<Came, String> {
        match self {
            Task::Nothing => Ok(Came::default()),
            Task::Answer(mut line, load) => {
                while !stop.load(Ordering::Relaxed) {
                    compute_while(load, || !stop.load(Ordering::Relaxed));
                    if line.look()? {
                        line.send()?;
                    } else {
                        std::thread::yield_now();
                    }
                }
                line.finish().map(|()| Came::default())
            }
            Task::Take(mut taking) => {
                while !stop.load(Ordering::Relaxed) {
                    taking.sleep().and_then(|()| taking.take_all()).map_err(|error| error.to_string())?;
                }
                taking.take_rest().map_err(|error| error.to_string())?;
                Ok(taking.came())
            }
        }
    }
}

enum Source<'a> {
    Connection(&'a TcpStream),
    Datagrams(&'a UdpSocket, u64),
}

impl Source<'_> {
    fn descriptor(&self) -> PollFd<'_> {
        match self {
            Source::Connection(stream) => PollFd::new(*stream, PollFlags::IN),
            Source::Datagrams(socket, _) => PollFd::new(*socket, PollFlags::IN),
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Connection(stream) => (&**stream).read(into),
            Source::Datagrams(socket, _) => socket.recv(into),
        }
    }

    fn is_unacknowledged(&self) -> bool {
        matches!(self, Source::Datagrams(..))
    }

    fn is_late(&self, came: &[u8]) -> bool {
        match self {
            Source::Connection(_) => false,
            Source::Datagrams(_, number) => !came.starts_with(&number.to_le_bytes()),
        }
    }
}

pub(super) struct Taking<'a> {
    sources: Vec<Source<'a>>,
    into: Places,
    bytes: u64,
    calls: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl<'a> Taking<'a> {
    fn new(sources: Vec<Source<'a>>) -> Self {
        Taking { sources, into: Places::of(AT_ONCE, 0), bytes: 0, calls: 0, first: None, last: None }
    }

    fn sleep(&self) -> io::Result<()> {
        let mut all: Vec<PollFd<'_>> = self.sources.iter().map(Source::descriptor).collect();
        match poll(&mut all, Some(&NAP)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_all(&mut self) -> io::Result<()> {
        for source in &self.sources {
            // Bounded, so that the others need not wait for a source whose sender never rests.
            for _ in 0..64 {
                let into = self.into.next();
                match source.read(into) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(bytes) if source.is_late(&into[..bytes]) => {}
                    Ok(bytes) => {
                        self.bytes += bytes as u64;
                        self.calls += 1;
                        let now = Instant::now();
                        self.first.get_or_insert(now);
                        self.last = Some(now);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// What was sent by connections is here, for it was acknowledged. Whether datagrams arrive is unknown: the process
    /// waits while some come, and longer for the first.
    fn take_rest(&mut self) -> io::Result<()> {
        self.take_all()?;
        if !self.sources.iter().any(Source::is_unacknowledged) {
            return Ok(());
        }
        let stopped = Instant::now();
        while Instant::now() < self.last.map_or(stopped + FIRST, |last| (last + QUIET).min(stopped + FIRST)) {
            self.sleep()?;
            self.take_all()?;
        }
        Ok(())
    }

    fn came(&self) -> Came {
        let within = self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last - first);
        Came { bytes: self.bytes, calls: self.calls, within }
    }
}
