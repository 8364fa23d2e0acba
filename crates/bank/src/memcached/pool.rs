//! Sockets to several daemons. One exchange sends all requests to all daemons at once and polls until every answer is here or
//! its time is up. The calling thread does it all; idle connections wait in a stack for the next exchange.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{Answer, DaemonHealth, Link, Request};
use crate::{Address, Daemons, ListError};

/// Bounds of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// After this time what has not answered is a miss, and its daemon rests.
    pub deadline: Duration,
    /// Idle connections kept to each daemon.
    pub idle: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { deadline: Duration::from_millis(100), idle: 8 }
    }
}

/// The daemons of one bank.
#[derive(Debug)]
pub struct Memcached {
    daemons: Daemons,
    seats: Vec<Seat>,
    options: Options,
    epoch: Instant,
}

/// What is known of one daemon.
#[derive(Debug)]
struct Seat {
    address: SockAddr,
    state: Mutex<(DaemonHealth, Vec<Socket>)>,
}

/// One daemon's part of an exchange.
struct Part {
    seat: usize,
    socket: Socket,
    link: Link,
    is_reused: bool,
    /// Tags of requests without an answer yet.
    open: usize,
}

/// How far a part got.
enum Step {
    Waiting,
    Complete,
    Failed,
}

impl Memcached {
    /// Looks the hosts up; connects when the first request comes.
    pub fn new(daemons: Daemons, options: Options) -> Result<Self, ListError> {
        let seat = |address: &Address| Some(Seat { address: socket_address(address)?, state: Mutex::default() });
        let seats = daemons.list().iter().map(|daemon| {
            seat(&daemon.address).ok_or_else(|| ListError::Unknown { address: daemon.address.to_string() })
        });
        let seats = seats.collect::<Result<_, _>>()?;
        Ok(Memcached { seats, daemons, options, epoch: Instant::now() })
    }

    /// The daemons, in the order of the list.
    pub fn daemons(&self) -> &Daemons {
        &self.daemons
    }

    /// Whether the daemon at this position answered last.
    pub fn is_up(&self, daemon: usize) -> bool {
        self.seats.get(daemon).is_some_and(|seat| !seat.state().0.is_down())
    }

    /// Sends each request to the daemon at its position, all together. Where a daemon rests, fails or is late, nothing stands.
    pub fn exchange(&self, requests: &[(usize, Request)]) -> Vec<Option<Answer>> {
        let until = Instant::now() + self.options.deadline;
        let mut answers: Vec<Option<Answer>> = requests.iter().map(|_| None).collect();
        let mut parts: Vec<Part> =
            (0..self.seats.len()).filter_map(|seat| self.part(seat, requests, &answers, true)).collect();
        while !parts.is_empty() {
            if !wait(&parts, until) {
                break;
            }
            let mut next = vec![];
            for mut part in parts {
                match part.step(&mut answers) {
                    Step::Waiting => next.push(part),
                    Step::Complete => self.complete(part),
                    // An idle connection may have died long ago, with its daemon that is back since.
                    Step::Failed if part.is_reused => next.extend(self.part(part.seat, requests, &answers, false)),
                    Step::Failed => self.failed(part.seat),
                }
            }
            parts = next;
        }
        // The answers of these connections may still come: they are closed, never used again.
        for part in parts {
            self.failed(part.seat);
        }
        answers
    }

    /// The unanswered requests of one daemon, on a connection.
    fn part(
        &self,
        seat: usize,
        requests: &[(usize, Request)],
        answers: &[Option<Answer>],
        may_reuse: bool,
    ) -> Option<Part> {
        let mut link = Link::default();
        let mut open = 0;
        for (tag, (place, request)) in requests.iter().enumerate() {
            if *place == seat && answers[tag].is_none() {
                link.request(request, tag);
                open += 1;
            }
        }
        if open == 0 {
            return None;
        }
        let idle = {
            let mut state = self.seats[seat].state();
            if may_reuse && !state.0.may_ask(self.epoch.elapsed()) {
                return None;
            }
            if !may_reuse {
                state.1.clear();
            }
            state.1.pop()
        };
        let is_reused = idle.is_some();
        let Some(socket) = idle.or_else(|| connect(&self.seats[seat].address)) else {
            self.failed(seat);
            return None;
        };
        Some(Part { seat, socket, link, is_reused, open })
    }

    fn complete(&self, part: Part) {
        let mut state = self.seats[part.seat].state();
        state.0.answered();
        if part.link.is_idle() && state.1.len() < self.options.idle {
            state.1.push(part.socket);
        }
    }

    fn failed(&self, seat: usize) {
        let mut state = self.seats[seat].state();
        state.0.failed(self.epoch.elapsed());
        state.1.clear();
    }
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, (DaemonHealth, Vec<Socket>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Sends and receives what can be without waiting.
    fn step(&mut self, answers: &mut [Option<Answer>]) -> Step {
        while !self.link.to_send().is_empty() {
            match self.socket.write(self.link.to_send()) {
                Ok(bytes) => self.link.sent(bytes),
                Err(error) if is_later(error.kind()) => break,
                Err(_) => return Step::Failed,
            }
        }
        let mut buffer = [0; 64 << 10];
        loop {
            let bytes = match self.socket.read(&mut buffer) {
                Ok(0) => return Step::Failed,
                Ok(bytes) => bytes,
                Err(error) if is_later(error.kind()) => return Step::Waiting,
                Err(_) => return Step::Failed,
            };
            let mut count = 0;
            let took = self.link.received(&buffer[..bytes], |tag, answer| {
                answers[tag] = Some(answer);
                count += 1;
            });
            if took.is_err() {
                return Step::Failed;
            }
            // A daemon that answers at all is believed to be the same process from here on.
            self.is_reused &= count == 0;
            self.open -= count;
            if self.open == 0 {
                return Step::Complete;
            }
        }
    }
}

fn is_later(kind: ErrorKind) -> bool {
    // A connection that is still being made is not connected yet.
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

/// Waits for any of the sockets. Says whether there is time left.
fn wait(parts: &[Part], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let mut sockets: Vec<PollFd<'_>> = parts
        .iter()
        .map(|part| {
            let sends = if part.link.to_send().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&part.socket, PollFlags::IN | sends)
        })
        .collect();
    let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut sockets, Some(&time)) {
        Ok(ready) => ready > 0,
        Err(error) => error == rustix::io::Errno::INTR,
    }
}

/// A socket that is connected, or will be when it can be written. Never waits: not for a host that is gone, nor for a full queue.
fn connect(address: &SockAddr) -> Option<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None).ok()?;
    socket.set_nonblocking(true).ok()?;
    if address.domain() != Domain::UNIX {
        socket.set_tcp_nodelay(true).ok()?;
    }
    match socket.connect(address) {
        Ok(()) => Some(socket),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Some(socket),
        Err(_) => None,
    }
}

fn socket_address(address: &Address) -> Option<SockAddr> {
    match address {
        Address::Unix(path) => SockAddr::unix(path).ok(),
        Address::Tcp(host, port) => {
            let found: Option<SocketAddr> = (host.as_str(), *port).to_socket_addrs().ok()?.next();
            found.map(SockAddr::from)
        }
    }
}
