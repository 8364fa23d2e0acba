//! How bytes are sent from the near site to the far one, as many as get through.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_fabric::{Batch, Buffer, Class, Completed, Done, Operation, Pending};

use super::far::Pair;
use super::line::{BODY_AT, LARGEST_CONTROL};
use super::node::{PATIENCE, text};
use super::places::Places;

/// Datagrams between two looks of their sender at whether others want the core.
const TOGETHER: u64 = 16;

/// What was sent in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    /// Writes, datagrams.
    pub(super) messages: u64,
    /// From the first until the last was acknowledged.
    pub(super) took: Duration,
}

/// Writes `bytes` bytes into the far region again and again for `length`, with `window` writes under way. Makes at
/// least one write, as all functions here do: on a shared core the sender may have to wait for longer than a turn
/// takes.
pub(super) fn write(pair: &Pair, bytes: usize, window: usize, length: Duration) -> Result<Sent, String> {
    let Pair { near, met, .. } = pair;
    let class = if bytes <= LARGEST_CONTROL { Class::Control } else { Class::Bulk };
    let (mut under_way, mut spare): (VecDeque<Pending<Completed>>, Vec<Buffer>) = Default::default();
    let (began, mut messages) = (Instant::now(), 0);
    loop {
        while under_way.len() < window && (messages == 0 && under_way.is_empty() || began.elapsed() < length) {
            let buffer = spare.pop().map_or_else(|| near.fabric.pool().take(bytes), Ok).map_err(text)?;
            let write = Batch::one(Operation::Write { at: BODY_AT, from: buffer });
            under_way.push_back(met.remote.post(write, class, near.deadline()));
        }
        // They are executed as they were posted.
        let Some(oldest) = under_way.pop_front() else { break };
        for done in oldest.wait().map_err(text)? {
            if let Done::Buffer(buffer) = done {
                spare.push(buffer);
                messages += 1;
            }
        }
    }
    Ok(Sent { bytes: messages * bytes as u64, messages, took: began.elapsed() })
}

/// Sends messages of `message` bytes by each of these connections, as many as they take, until something was sent and
/// `go_on` returns false.
pub(super) fn stream(connections: &[TcpStream], message: usize, go_on: impl Fn() -> bool) -> io::Result<Sent> {
    let mut body = Places::of(message, 0x5a);
    let (began, mut bytes) = (Instant::now(), 0);
    while bytes == 0 || go_on() {
        if bytes == 0 && began.elapsed() > PATIENCE {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut all: Vec<PollFd<'_>> = connections.iter().map(|one| PollFd::new(one, PollFlags::OUT)).collect();
        poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }))?;
        for mut connection in connections {
            match connection.write(body.next()) {
                Ok(written) => bytes += written as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    let enough = Instant::now();
    while unacknowledged(connections)? > 0 {
        if enough.elapsed() > PATIENCE {
            return Err(ErrorKind::TimedOut.into());
        }
        std::thread::yield_now();
    }
    Ok(Sent { bytes, messages: bytes / message as u64, took: began.elapsed() })
}

/// Bytes that were given to them and that the other end's system has not acknowledged.
fn unacknowledged(connections: &[TcpStream]) -> io::Result<u64> {
    connections.iter().try_fold(0, |sum, connection| {
        let mut bytes: libc::c_int = 0;
        // SAFETY: it writes one number (tcp(7): SIOCOUTQ, which has the value of TIOCOUTQ), to where there is room for it.
        if unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(sum + u64::from(bytes.cast_unsigned()))
    })
}

/// Sends datagrams of `bytes` that begin with `number` for a while, without acknowledgement; returns when the last one
/// is to arrive, after `delay`.
pub(super) fn fire(
    socket: &UdpSocket,
    number: u64,
    bytes: usize,
    length: Duration,
    delay: Duration,
) -> io::Result<Sent> {
    let mut datagram = number.to_le_bytes().to_vec();
    datagram.resize(bytes, 0x5a);
    let (began, mut messages) = (Instant::now(), 0);
    // The receiver counts from the first to the last.
    while began.elapsed() < length || messages < TOGETHER && began.elapsed() < PATIENCE {
        match socket.send(&datagram) {
            Ok(_) => {
                messages += 1;
                // The receiver shares this core, and nothing else would slow the sender down.
                if messages % TOGETHER == 0 {
                    std::thread::yield_now();
                }
            }
            // The interface has no room for more.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    let took = began.elapsed();
    std::thread::sleep(delay);
    Ok(Sent { bytes: messages * bytes as u64, messages, took })
}
