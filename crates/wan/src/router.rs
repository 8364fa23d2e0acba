//! The router: takes frames at the ends of links, asks the machines, and sends what is due.
//!
//! One thread does all of it, in a network of its own. It is triggered as the dissertation says (8.2.2, on-demand scheduling): every frame
//! that comes has all looked through, and while none comes the thread itself looks again and again, as the idle daemon there. Timers are
//! used only to sleep through what is far away: they are late by 50 to 130 us, so in [`Mode::Precise`] the thread is awake before that.
//!
//! A frame is stamped by the kernel when it comes, so what the router does at that moment delays nothing twice. What it costs to hand a frame
//! over is measured all the time, and taken off the delay.

mod frame;
mod port;
mod took;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use verbena_namespaces::Namespace;
use verbena_terms::{BootClock, Clock, Time};

use self::frame::Frame;
#[cfg(any(test, feature = "fuzzing"))]
pub use self::frame::{FrameOutcomes, wan_frame};
pub(crate) use self::port::set;
use self::port::{Frames, Port};
use self::took::Recorder;
pub use self::took::Took;
pub use crate::counts::Seen;
use crate::machine::{Leaving, Machine};
use crate::way::Way;

/// Later than this a timer does not wake: the thread sleeps until so long before the time.
const MARGIN: Duration = Duration::from_micros(200);
/// Frames taken from one end before it is looked what is due.
const AT_ONCE: usize = 64;
/// The kernel's stamp is believed if it is no older than this: the clock that it is of can be set.
const OLDEST_STAMP: Duration = Duration::from_secs(1);
/// What handing over a frame costs at first, and at most, in the account of it.
const USUAL_COST_NS: u64 = 3_000;
const HIGHEST_COST_NS: u64 = 10_000;
/// Buffers kept for the next frames.
const SPARE: usize = 1024;

/// What the router does while nothing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It keeps a core busy near each release, and all the time where a delay is shorter than 200 us.
    #[default]
    Precise,
    /// It sleeps. Each release is late by what a timer is: 50 to 130 us on most machines, more on a busy one.
    Sleep,
}

/// A link to run: its two ends in the router's network, and what happens from the first to the second and back.
#[derive(Clone, Debug)]
pub struct Wires {
    /// Names of the interfaces.
    pub ends: [String; 2],
    /// Bytes of an IP packet at most.
    pub mtu: u32,
    /// There and back.
    pub ways: [Way; 2],
}

/// A running router. It ends with this value.
#[derive(Debug)]
pub struct Router {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Change { link: usize, ways: Box<[Way; 2]>, done: Sender<io::Result<()>> },
    Look(Sender<Vec<[Seen; 2]>>),
}

/// The router's thread has ended, which it does not by itself.
fn gone<T>(_: T) -> io::Error {
    io::Error::other("the router has ended")
}

impl Router {
    /// Runs `links` in `network`, with the chance of `seed`.
    ///
    /// # Errors
    /// What the system said: packet sockets take CAP_NET_RAW in that network.
    pub fn start(network: Namespace, links: Vec<Wires>, mode: Mode, seed: u64) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, inbox) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let waked = wake.clone();
        let work = move || {
            let runner = network.join().map_err(io::Error::other).and_then(|()| Runner::new(&links, mode, seed));
            match runner {
                Ok(runner) => {
                    // Who started it waits for this.
                    let _ = started.send(Ok(()));
                    runner.run(&inbox, &waked);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("wan-router".into()).spawn(work)?;
        let router = Router { orders, wake, thread: Some(thread) };
        is_started.recv().map_err(gone)??;
        Ok(router)
    }

    /// From now on the link with this number does this.
    ///
    /// # Errors
    /// The end of a link could not be opened anew for large frames.
    pub fn change(&self, link: usize, ways: [Way; 2]) -> io::Result<()> {
        let (done, is_done) = mpsc::channel();
        self.order(Order::Change { link, ways: Box::new(ways), done })?;
        is_done.recv().map_err(gone)?
    }

    /// What each link has done, there and back.
    ///
    /// # Errors
    /// Only after the router has ended.
    pub fn look(&self) -> io::Result<Vec<[Seen; 2]>> {
        let (answer, seen) = mpsc::channel();
        self.order(Order::Look(answer))?;
        seen.recv().map_err(gone)
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.orders.send(order).map_err(gone)?;
        self.wake()
    }

    fn wake(&self) -> io::Result<()> {
        rustix::io::write(&self.wake, &1u64.to_ne_bytes())?;
        Ok(())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Without a sender the thread ends.
        self.orders = mpsc::channel().0;
        let _ = self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction: what comes at one port leaves at the other one.
struct Direction {
    machine: Machine<Frame>,
    port: Port,
    name: String,
    mtu: u32,
    frames: Frames,
    overrun_before: u64,
    unsent: u64,
    took: Recorder,
}

/// What the thread has. Direction `n` comes from port `n` and goes to port `n ^ 1`.
struct Runner {
    directions: Vec<Direction>,
    mode: Mode,
    /// A frame may be due before a thread that sleeps would notice that it has come. It is asked without rest, and a trace is long to look through.
    is_short: bool,
    cost_ns: u64,
    spare: Vec<Frame>,
}

impl Runner {
    fn new(links: &[Wires], mode: Mode, seed: u64) -> io::Result<Self> {
        let mut directions = vec![];
        for (link, number) in links.iter().zip(0..) {
            for (end, way) in [0, 1].into_iter().zip(&link.ways) {
                let (name, frames) = (link.ends[end].clone(), frames(way, link.mtu));
                directions.push(Direction {
                    machine: Machine::new(way.clone(), seed, number * 2 + end as u64),
                    port: Port::open(&name, frames)?,
                    name,
                    mtu: link.mtu,
                    frames,
                    overrun_before: 0,
                    unsent: 0,
                    took: Recorder::new(),
                });
            }
        }
        // Timers of this thread may be as exact as the machine can; where it may not say so they are later.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let is_short = is_short(&directions);
        Ok(Runner { directions, mode, is_short, cost_ns: USUAL_COST_NS, spare: vec![] })
    }

    fn run(mut self, orders: &Receiver<Order>, wake: &OwnedFd) {
        loop {
            let has_received = self.receive();
            let has_sent = self.release();
            loop {
                match orders.try_recv() {
                    Ok(order) => self.obey(order),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if !has_received && !has_sent {
                self.rest(wake);
            }
        }
    }

    /// Takes what has come. Says whether anything has.
    fn receive(&mut self) -> bool {
        let mut has_received = false;
        for direction in &mut self.directions {
            let mut set_back = None;
            for _ in 0..AT_ONCE {
                let mut frame = self.spare.pop().unwrap_or_default();
                let Some(stamp) = direction.port.receive(&mut frame) else {
                    self.spare.push(frame);
                    break;
                };
                has_received = true;
                let at = arrival(stamp, *set_back.get_or_insert_with(clocks));
                let packet = frame.packet();
                if frame.is_housekeeping() {
                    direction.machine.pass(at, packet, frame);
                } else {
                    direction.machine.arrive(at, packet, frame);
                }
            }
        }
        has_received
    }

    /// Sends what is due. Says whether anything was.
    fn release(&mut self) -> bool {
        let (mut has_sent, mut now) = (false, now());
        for number in 0..self.directions.len() {
            for _ in 0..AT_ONCE {
                let ahead = now + Duration::from_nanos(self.cost_ns);
                let Some(leaving) = self.directions[number].machine.leave(ahead) else { break };
                has_sent = true;
                now = self.send(number, leaving, now);
            }
        }
        has_sent
    }

    fn send(&mut self, number: usize, leaving: Leaving<Frame>, began: Time) -> Time {
        let Leaving { load: mut frame, arrived, corrupt, packet, is_housekeeping, .. } = leaving;
        if let Some(draw) = corrupt {
            frame.corrupt(draw);
        }
        let sent = self.directions[number ^ 1].port.send(&frame);
        let done = now();
        let direction = &mut self.directions[number];
        match sent {
            Ok(()) if !is_housekeeping => direction.took.record(done.since(arrived)),
            Ok(()) => {}
            Err(_) => direction.unsent += 1,
        }
        if packet.segments == 1 {
            let cost = (done.since(began).as_nanos() as u64).min(HIGHEST_COST_NS);
            self.cost_ns = (self.cost_ns * 63 + cost) / 64;
        }
        // Large buffers go back: after a burst of large frames they would be kept for small ones.
        if self.spare.len() < SPARE && frame.0.capacity() <= 16 << 10 || self.spare.len() < AT_ONCE {
            self.spare.push(frame);
        }
        done
    }

    /// Waits for the next frame, order or release, in the way of the mode.
    fn rest(&self, wake: &OwnedFd) {
        let next = self.directions.iter().filter_map(|direction| direction.machine.next()).min();
        let left = next.map(|next| (next - Duration::from_nanos(self.cost_ns)).since(now()));
        let sleep = match self.mode {
            Mode::Sleep => left,
            Mode::Precise if self.is_short => Some(Duration::ZERO),
            Mode::Precise => left.map(|left| left.saturating_sub(MARGIN)),
        };
        if sleep == Some(Duration::ZERO) && self.mode == Mode::Precise {
            std::hint::spin_loop();
            return;
        }
        let timeout = sleep.map(|sleep| Timespec {
            tv_sec: sleep.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: sleep.subsec_nanos().into(),
        });
        let ports = self.directions.iter().map(|direction| PollFd::new(&direction.port, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = ports.chain([PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)]).collect();
        // Whatever it says, all is looked through.
        let _ = poll(&mut all, timeout.as_ref());
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
    }

    fn obey(&mut self, order: Order) {
        // Who asked may be gone.
        match order {
            Order::Change { link, ways, done } => drop(done.send(self.change(link, *ways))),
            Order::Look(answer) => {
                let mut seen = self.directions.iter_mut().map(Direction::seen);
                let mut all = vec![];
                while let (Some(there), Some(back)) = (seen.next(), seen.next()) {
                    all.push([there, back]);
                }
                drop(answer.send(all));
            }
        }
    }

    fn change(&mut self, link: usize, ways: [Way; 2]) -> io::Result<()> {
        let directions = self.directions.get_mut(2 * link..2 * link + 2).ok_or(io::ErrorKind::NotFound)?;
        for (direction, way) in directions.iter_mut().zip(ways) {
            if frames(&way, direction.mtu) == Frames::Large && direction.frames != Frames::Large {
                // Frames that come in between are lost, as on a line that is plugged elsewhere.
                direction.overrun_before += direction.port.overrun();
                direction.port = Port::open(&direction.name, Frames::Large)?;
                direction.frames = Frames::Large;
            }
            direction.machine.change(way);
        }
        self.is_short = is_short(&self.directions);
        Ok(())
    }
}

impl Direction {
    fn seen(&mut self) -> Seen {
        let (queued_packets, queued_bytes) = self.machine.queued();
        Seen {
            counts: *self.machine.counts(),
            overrun: self.overrun_before + self.port.overrun(),
            unsent: self.unsent,
            under_way: self.machine.under_way(),
            queued_packets,
            queued_bytes,
            took: Some(self.took.look()),
            unknown: vec![],
        }
    }
}

fn is_short(directions: &[Direction]) -> bool {
    directions.iter().map(|direction| direction.machine.way().shortest_delay()).min() < Some(MARGIN)
}

fn frames(way: &Way, mtu: u32) -> Frames {
    if way.needs_single_packets() { Frames::Single { mtu } } else { Frames::Large }
}

fn now() -> Time {
    BootClock.now()
}

/// Now on the clock of the router, and on that of the kernel's stamps.
fn clocks() -> (Time, Time) {
    let real = clock_gettime(ClockId::Realtime);
    (now(), Time::from_nanos(real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64))
}

/// The moment of a stamp, on the clock of the router.
fn arrival(stamp: u64, (now, real): (Time, Time)) -> Time {
    let stamp = Time::from_nanos(stamp);
    let age = real.since(stamp);
    if age > OLDEST_STAMP || stamp > real { now } else { now - age }
}
