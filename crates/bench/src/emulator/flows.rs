//! What crosses: a stream of TCP, or datagrams without end, from one network to another. Each has a thread at either end, which rests until it is
//! measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use verbena_namespaces::Namespace;

use super::paths::{Ends, set_ipv4};
use super::places::Places;
use crate::error::BenchError;

/// What is written and read at once.
const BLOCK: usize = 128 << 10;
/// Bytes of a datagram that make a frame of 64 bytes: Ethernet, IPv4, UDP and its check sequence take the others.
const SMALLEST: usize = 64 - 14 - 20 - 8 - 4;
const PORT: u16 = 5201;
/// A thread that has nothing to do looks so often whether that is still so.
const LOOKS: Duration = Duration::from_millis(20);
/// A connection sends again what was lost; in a way that is as short as those here, no later than this. Datagrams that were lost never come.
pub(super) const SENDS_AGAIN: Duration = Duration::from_secs(2);
const NEVER_COMES: Duration = Duration::from_millis(20);

/// One that can be let flow.
pub(super) struct Flow {
    shared: Arc<Shared>,
    sender: Thread,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// So long something may come yet.
    patience: Duration,
}

#[derive(Default)]
struct Shared {
    flows: AtomicBool,
    ends: AtomicBool,
    /// Bytes, or datagrams.
    sent: AtomicU64,
    came: AtomicU64,
}

/// Connections that have rested do not begin slowly again.
pub(super) const KEEPS_WHAT_WAS_LEARNT: (&str, &str) = ("tcp_slow_start_after_idle", "0");

/// Windows may grow until they hold what is under way: 20 ms of 20 Gbit/s are 50 MB. What was learnt is kept while nothing flows.
pub(super) fn large_windows(network: &Namespace) -> Result<(), BenchError> {
    const GROWS: &str = "4096 131072 268435456";
    set_ipv4(network, &[("tcp_rmem", GROWS), ("tcp_wmem", GROWS), KEEPS_WHAT_WAS_LEARNT])
}

impl Flow {
    /// A connection, whose sender writes and whose receiver reads as much as it takes.
    pub(super) fn stream(ends: Ends<'_>) -> io::Result<Self> {
        let at = SocketAddr::new(ends.address, PORT);
        let listener = inside(ends.far, || TcpListener::bind(at))?;
        let mut from = inside(ends.near, || TcpStream::connect(at))?;
        let (mut to, _) = listener.accept()?;
        // So that an end that waits sees when it is to end.
        to.set_read_timeout(Some(LOOKS))?;
        from.set_write_timeout(Some(LOOKS))?;
        let (mut block, mut room) = (Places::of(BLOCK, 0x5a), Places::of(BLOCK, 0));
        Flow::new(
            move || from.write(block.next()).map(|bytes| bytes as u64),
            move || to.read(room.next()).map(|bytes| bytes as u64),
            SENDS_AGAIN,
        )
    }

    /// Datagrams in frames of 64 bytes, as many as their sender makes.
    pub(super) fn datagrams(ends: Ends<'_>) -> io::Result<Self> {
        let at = SocketAddr::new(ends.address, PORT);
        let to = inside(ends.far, || UdpSocket::bind(at))?;
        let from = inside(ends.near, || UdpSocket::bind(("0.0.0.0", 0)))?;
        from.connect(at)?;
        to.set_read_timeout(Some(LOOKS))?;
        let mut room = [0; 2 * SMALLEST];
        // One that finds no room is one that does not come.
        let send = move || match from.send(&[0x5a; SMALLEST]) {
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => Err(error),
            _ => Ok(1),
        };
        Flow::new(send, move || to.recv(&mut room).map(|_| 1), NEVER_COMES)
    }

    fn new(
        mut send: impl FnMut() -> io::Result<u64> + Send + 'static,
        mut receive: impl FnMut() -> io::Result<u64> + Send + 'static,
        patience: Duration,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let of_sender = shared.clone();
        let sender = named("sender").spawn(move || {
            while !of_sender.ends.load(Ordering::Relaxed) {
                if of_sender.flows.load(Ordering::Relaxed) {
                    let sent = or_nothing(send())?.unwrap_or(0);
                    of_sender.sent.fetch_add(sent, Ordering::Relaxed);
                } else {
                    std::thread::park_timeout(LOOKS);
                }
            }
            Ok(())
        })?;
        let of_receiver = shared.clone();
        let receiver = named("receiver").spawn(move || {
            while !of_receiver.ends.load(Ordering::Relaxed) {
                let came = or_nothing(receive())?.unwrap_or(0);
                of_receiver.came.fetch_add(came, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(Flow { shared, sender: sender.thread().clone(), threads: vec![sender, receiver], patience })
    }

    /// Lets it flow, for `before` and then while `measure` runs, to which it gives a function that returns how much has
    /// come so far. Returns what came meanwhile: bytes or datagrams. Then it waits for what was sent, looking every
    /// `quiet`, as long as it may come: a later change of the way meets nothing on it.
    pub(super) fn run<T>(
        &self,
        before: Duration,
        quiet: Duration,
        measure: impl FnOnce(&dyn Fn() -> u64) -> T,
    ) -> io::Result<(u64, T)> {
        let came = || self.shared.came.load(Ordering::Relaxed);
        self.shared.flows.store(true, Ordering::Relaxed);
        self.sender.unpark();
        std::thread::sleep(before);
        let first = came();
        let since = || came() - first;
        let measured = measure(&since);
        let count = since();
        self.shared.flows.store(false, Ordering::Relaxed);
        let (mut last, mut since) = (came(), Instant::now());
        loop {
            std::thread::sleep(quiet);
            let now = came();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if now == self.shared.sent.load(Ordering::Relaxed) || since.elapsed() > self.patience {
                break;
            }
        }
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(io::Error::other("an end has failed"));
        }
        Ok((count, measured))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.sender.unpark();
        for thread in self.threads.drain(..) {
            // What failed was said when it was measured.
            let _ = thread.join();
        }
    }
}

fn inside<T: Send>(network: &Namespace, open: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    network.enter(open).map_err(io::Error::other)?
}

/// Nothing, if it is only that it took too long.
fn or_nothing<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}
