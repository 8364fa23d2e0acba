//! The socket of streams on datagrams, and the thread that drives all of them: the only part of the channel `udp` that does input and output.
//!
//! Datagrams of one length go to the kernel many at once, where it takes them apart (`UDP_SEGMENT`), and come from it in the same way (`UDP_GRO`). A socket of a
//! maker has one stream, one of a listener those of a session. What the key of no stream opens changes nothing.

use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, IoSliceMut, Result};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use verbena_terms::{BootClock, Clock, Time};

use super::machine::{DatagramError, Datagrams};
use super::seal::{LONGEST_DATAGRAM, Opener, Sealer, SessionSecret, UdpSide, name_of};
use super::shared::{FAREWELL, Handle, Shared, UdpStream, Waker};
use crate::channel::{Token, is_hello};
use crate::frame::{Frame, LENGTHS};
use crate::streams::Arrived;

/// Strangers that may prove themselves at a time, and how long each has (rule T14).
const MOST_PROOFS: usize = 64;
const PROOF: Duration = Duration::from_secs(10);
/// Streams that a port takes in all: a name is never taken twice.
const MOST_NAMES: usize = 256;
/// The longest hello, and what fills its datagram up.
const LONGEST_HELLO: usize = 256;
/// Buffers of the kernel for datagrams, as far as it lets us.
const SOCKET_BYTES: usize = 8 << 20;
/// Buffers that are read into at once, and the bytes of each: as many datagrams as the kernel joins.
const BUFFERS: usize = 8;
const BUFFER: usize = 64 << 10;
/// Datagrams of one system call, at most: the kernel takes less than 64 KiB.
const MOST_SEGMENTS: usize = 48;
/// How long a stream that has ended answers what the other side repeats.
const LINGER: Duration = Duration::from_secs(1);

/// Makes a socket that the thread can be woken at.
pub(crate) fn bind(address: SocketAddr) -> Result<(UdpSocket, Waker)> {
    let socket = UdpSocket::bind(address)?;
    // A kernel that gives less only loses more in bursts.
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
    }
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok((socket, Waker(Arc::new(wake))))
}

pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// What a listener takes streams by.
pub(crate) struct Taking {
    pub token: Token,
    pub streams: u16,
    pub allowed: Vec<IpAddr>,
    pub arriving: Sender<Arrived>,
    /// Whether new ones are still taken.
    pub is_open: Arc<AtomicBool>,
    /// Names that have been here.
    pub names: BTreeSet<u64>,
}

/// A stream whose hello is not here yet.
struct Proving {
    handle: Arc<Handle>,
    since: Time,
    bytes: Vec<u8>,
}

struct Driven {
    shared: Arc<Shared>,
    sealer: Sealer,
    /// What the other side's datagrams bear, and what opens them. `None`: nothing has come yet.
    theirs: Option<(u64, Opener)>,
    /// The name of this side.
    name: u64,
    peer: SocketAddr,
    proving: Option<Proving>,
}

/// Datagrams that the kernel had no room for: all of one length, but for the last one.
struct Pending {
    peer: SocketAddr,
    length: usize,
    bytes: Vec<u8>,
}

/// The thread's part.
pub(crate) struct Driver {
    socket: UdpSocket,
    kernel: UdpSocketState,
    waker: Waker,
    secret: SessionSecret,
    streams: Vec<Driven>,
    taking: Option<Taking>,
    pending: VecDeque<Pending>,
}

impl Driver {
    pub(crate) fn new(
        socket: UdpSocket,
        waker: Waker,
        secret: SessionSecret,
        taking: Option<Taking>,
    ) -> Result<Driver> {
        let kernel = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Driver { socket, kernel, waker, secret, streams: Vec::new(), taking, pending: VecDeque::new() })
    }

    /// Adds the stream that this side makes.
    pub(crate) fn make(&mut self, peer: SocketAddr) -> Result<Arc<Handle>> {
        let name = random()?;
        let shared = Arc::new(Shared::new(self.waker.clone(), BootClock.now()));
        let sealer = Sealer::new(&self.secret, UdpSide::Maker(name));
        let driven = Driven { shared: shared.clone(), sealer, theirs: None, name, peer, proving: None };
        self.streams.push(driven);
        Ok(Arc::new(Handle(shared)))
    }

    /// Drives the streams on a thread of its own, which ends with the last of them.
    pub(crate) fn start(mut self) -> Result<()> {
        std::thread::Builder::new().name("udp".into()).spawn(move || {
            if let Err(error) = self.run() {
                tracing::warn!(%error, "the socket of a session cannot be used any more");
            }
        })?;
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let mut memory = vec![0; BUFFERS * BUFFER];
        loop {
            let mut next = Time::FAR;
            for index in 0..self.streams.len() {
                self.send(index);
                next = next.min(self.streams[index].deadline());
            }
            let now = BootClock.now();
            self.streams.retain(|stream| !stream.is_over(now));
            if self.taking.as_ref().is_some_and(|taking| !taking.is_open.load(Ordering::Acquire)) {
                // Those that have not proven themselves go with it.
                self.taking = None;
                self.streams.iter_mut().for_each(|stream| stream.proving = None);
            }
            if self.streams.is_empty() && self.taking.is_none() {
                return Ok(());
            }
            // While the kernel has no room, what is due waits for that.
            let rest = if self.pending.is_empty() { next.since(BootClock.now()) } else { LINGER };
            self.wait(rest)?;
            self.receive(&mut memory)?;
            self.prove();
        }
    }

    /// Waits until something has come or is to be sent, or until the socket has room again.
    fn wait(&self, most: Duration) -> Result<()> {
        let of_socket = if self.pending.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut waits = [
            PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&self.socket), of_socket),
            PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&*self.waker.0), PollFlags::IN),
        ];
        // A listener that closes wakes it.
        let most = Timespec::try_from(most.min(FAREWELL)).ok();
        match poll(&mut waits, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&*self.waker.0, &mut [0u8; 8]);
        Ok(())
    }

    /// Sends what a stream has to send now.
    fn send(&mut self, index: usize) {
        flush(&mut self.pending, &self.kernel, &self.socket);
        let Driven { shared, sealer, peer, .. } = &mut self.streams[index];
        let most = self.kernel.max_gso_segments().clamp(1, MOST_SEGMENTS);
        let mut machine = shared.machine();
        while self.pending.is_empty() {
            let (mut bytes, mut lengths) = (Vec::with_capacity(most * LONGEST_DATAGRAM), Vec::with_capacity(most));
            while lengths.len() < most {
                let from = bytes.len();
                sealer.begin(&mut bytes);
                let Some(number) = machine.poll(BootClock.now(), &mut bytes) else {
                    bytes.truncate(from);
                    break;
                };
                sealer.seal(number, &mut bytes, from);
                lengths.push(bytes.len() - from);
            }
            if lengths.is_empty() {
                break;
            }
            self.pending.extend(of_one_length(*peer, bytes, &lengths));
            flush(&mut self.pending, &self.kernel, &self.socket);
        }
        shared.notify(&machine);
    }

    fn receive(&mut self, memory: &mut [u8]) -> Result<()> {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut buffers: Vec<IoSliceMut<'_>> = memory.chunks_mut(BUFFER).map(IoSliceMut::new).collect();
        let count = match self.kernel.recv(UdpSockRef::from(&self.socket), &mut buffers, &mut metas) {
            Ok(count) => count,
            // It is about an earlier datagram, and ends no stream.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => 0,
            Err(error) => return Err(error),
        };
        drop(buffers);
        for (meta, buffer) in metas.iter().zip(memory.chunks_mut(BUFFER)).take(count) {
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                self.datagram(meta.addr, datagram);
            }
        }
        Ok(())
    }

    fn datagram(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let Some(name) = name_of(datagram) else { return };
        let now = BootClock.now();
        let of_name = |stream: &&mut Driven| stream.theirs.as_ref().is_some_and(|(theirs, _)| *theirs == name);
        if let Some(stream) = self.streams.iter_mut().find(of_name) {
            let (shared, peer) = (stream.shared.clone(), stream.peer);
            if let Some((_, opener)) = &mut stream.theirs
                && from == peer
                && let Some((number, body)) = opener.open(datagram)
            {
                shared.machine().packet(now, number, body);
            }
        } else if self.taking.is_some() {
            self.take(from, name, datagram, now);
        } else if let Some(stream) = self.streams.iter_mut().find(|stream| stream.theirs.is_none()) {
            let mut opener = Opener::new(&self.secret, UdpSide::Listener(stream.name, name));
            if from == stream.peer
                && let Some((number, body)) = opener.open(datagram)
            {
                stream.shared.machine().packet(now, number, body);
                stream.theirs = Some((name, opener));
            }
        }
    }

    /// Takes the first datagram of a stream.
    fn take(&mut self, from: SocketAddr, name: u64, datagram: &mut [u8], now: Time) {
        let Some(taking) = &mut self.taking else { return };
        let proofs = self.streams.iter().filter(|stream| stream.proving.is_some()).count();
        if !taking.allowed.contains(&from.ip().to_canonical())
            || taking.names.contains(&name)
            || taking.names.len() >= MOST_NAMES
            || proofs >= MOST_PROOFS
        {
            return;
        }
        let mut opener = Opener::new(&self.secret, UdpSide::Maker(name));
        let Some((number, body)) = opener.open(datagram) else {
            tracing::info!(peer = %from, "a stranger at a port of a session was passed over");
            return;
        };
        let Ok(own) = random() else { return };
        taking.names.insert(name);
        let shared = Arc::new(Shared::new(self.waker.clone(), now));
        shared.machine().packet(now, number, body);
        let sealer = Sealer::new(&self.secret, UdpSide::Listener(name, own));
        let proving = Some(Proving { handle: Arc::new(Handle(shared.clone())), since: now, bytes: Vec::new() });
        self.streams.push(Driven { shared, sealer, theirs: Some((name, opener)), name: own, peer: from, proving });
    }

    /// Hands streams on whose hello is there, and closes those whose hello is another one or late.
    fn prove(&mut self) {
        let Some(taking) = &self.taking else { return };
        let now = BootClock.now();
        for stream in &mut self.streams {
            let Some(proving) = &mut stream.proving else { continue };
            let found = proving.read(&mut stream.shared.machine(), &taking.token, taking.streams);
            let is_late = now.since(proving.since) >= PROOF;
            match found {
                None if !is_late => {}
                Some(Some(number)) => {
                    // A session that has ended takes none.
                    let _ = taking.arriving.send((number, Box::new(UdpStream(proving.handle.clone()))));
                    stream.proving = None;
                }
                // Its handle goes, which closes it.
                _ => stream.proving = None,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for stream in &self.streams {
            let mut machine = stream.shared.machine();
            machine.abort();
            stream.shared.notify(&machine);
        }
    }
}

impl Driven {
    fn deadline(&self) -> Time {
        let at = self.shared.machine().deadline();
        let at = self.proving.as_ref().map_or(at, |proving| at.min(proving.since + PROOF));
        let Some(left) = self.shared.left() else { return at };
        let now = BootClock.now();
        at.min(if now < left + LINGER { left + LINGER } else { now + LINGER })
    }

    /// Whether it has ended, and nothing is to be answered any more.
    fn is_over(&self, now: Time) -> bool {
        let Some(left) = self.shared.left() else { return false };
        let machine = self.shared.machine();
        match machine.error() {
            Some(DatagramError::Silent) => true,
            Some(DatagramError::Closed) => machine.is_silent() && now.since(left) >= LINGER,
            None => (machine.is_over() && now.since(left) >= LINGER) || now.since(left) >= FAREWELL,
        }
    }
}

impl Proving {
    /// Reads the hello, with what fills its datagram up. `None`: more is to come. `Some(None)`: it is of another session.
    fn read(&mut self, machine: &mut Datagrams, token: &Token, streams: u16) -> Option<Option<u16>> {
        loop {
            let (mut needed, mut lengths) = (LENGTHS, [0; LENGTHS]);
            if let Some(first) = self.bytes.get(..LENGTHS) {
                lengths.copy_from_slice(first);
                match Frame::lengths(&lengths) {
                    Ok((head, data)) if head <= LONGEST_HELLO && data <= LONGEST_DATAGRAM => needed += head + data,
                    _ => return Some(None),
                }
                if self.bytes.len() == needed {
                    let head = Frame::lengths(&lengths).map_or(0, |(head, _)| head);
                    let frame = Frame::decode(&lengths, &self.bytes[LENGTHS..LENGTHS + head]).ok();
                    let found = frame.and_then(|frame| is_hello(&frame, token));
                    return Some(found.filter(|(_, all)| *all == streams).map(|(number, _)| number));
                }
            }
            let mut buffer = [0; LONGEST_DATAGRAM];
            let most = (needed - self.bytes.len()).min(buffer.len());
            let read = machine.read(&mut buffer[..most]);
            self.bytes.extend_from_slice(&buffer[..read]);
            if read == 0 {
                return None;
            }
        }
    }
}

/// Puts datagrams together that go to the kernel at once: of one length, but for the last one, which may be shorter.
fn of_one_length(peer: SocketAddr, mut bytes: Vec<u8>, lengths: &[usize]) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    let mut is_open = false;
    // Most of the time all are of one length, and nothing is copied.
    if let Some((last, before)) = lengths.split_last()
        && before.iter().all(|length| *length == lengths[0])
        && *last <= lengths[0]
    {
        return vec![Pending { peer, length: lengths[0], bytes }];
    }
    for length in lengths {
        let rest = bytes.split_off(*length);
        match all.last_mut().filter(|pending| is_open && *length <= pending.length) {
            Some(pending) => {
                is_open = *length == pending.length;
                pending.bytes.append(&mut bytes);
            }
            None => {
                all.push(Pending { peer, length: *length, bytes });
                is_open = true;
            }
        }
        bytes = rest;
    }
    all
}

/// Gives the kernel what it has room for.
fn flush(pending: &mut VecDeque<Pending>, kernel: &UdpSocketState, socket: &UdpSocket) {
    while pending.front().is_some_and(|first| transmit(kernel, socket, first)) {
        pending.pop_front();
    }
}

/// Whether the kernel took them, or will never do. What it does not take counts as lost.
fn transmit(kernel: &UdpSocketState, socket: &UdpSocket, pending: &Pending) -> bool {
    let Pending { peer, length, bytes } = pending;
    let segment_size = (bytes.len() > *length).then_some(*length);
    let transmit = Transmit { destination: *peer, ecn: None, contents: bytes, segment_size, src_ip: None };
    !matches!(kernel.send(UdpSockRef::from(socket), &transmit), Err(error) if error.kind() == ErrorKind::WouldBlock)
}
