//! The router: takes frames at the ends of links, asks the machines, and sends what is due.
//!
//! One thread does all of it, in a network of its own. It is triggered as the dissertation says (8.2.2, on-demand scheduling): every frame
//! that comes has all looked through, and while none comes the thread itself looks again and again, as the idle daemon there. Timers are
//! used only to sleep through what is far away: they are late by 50 to 130 us, so in [`Mode::Precise`] the thread is awake before that.
//!
//! A frame is stamped by the kernel when it comes, so what the router does at that moment delays nothing twice. What it costs to hand a frame
//! over is measured all the time ([`gauge`]), and taken off the delay.

mod buffers;
mod direction;
mod entrance;
mod frame;
mod gauge;
mod nfqueue;
mod port;
mod preference;
mod runner;
mod stamps;
mod steered;
mod took;
mod waking;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use verbena_namespaces::Namespace;
use verbena_terms::{BootClock, Clock, Time};

#[cfg(any(test, feature = "fuzzing"))]
pub use self::frame::{FrameOutcomes, wan_frame};
pub(crate) use self::gauge::MTU as GAUGE_MTU;
pub(crate) use self::port::set;
use self::runner::Runner;
pub use self::took::Took;
pub use crate::counts::Seen;
use crate::receivers::Steering;
use crate::way::Way;

/// The kernel's stamp is believed if it is no older than this: the clock that it is of can be set.
const OLDEST_STAMP: Duration = Duration::from_secs(1);

/// What the router does while nothing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It keeps a core busy near each release, and all the time where a delay is shorter than 200 us, or than what timers are late by.
    #[default]
    Precise,
    /// It sleeps. Each release is late by what a timer is: 50 to 130 us on most machines, more on a busy one.
    Sleep,
}

/// What packets are for the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Frames that it takes from the end of a link and sends at the other one (packet sockets): everything that is Ethernet, with all options.
    #[default]
    Packet,
    /// Packets of IP that stay in the kernel until it lets them go on (NFQUEUE on a bridge): nothing is copied. Delay alone.
    Nfqueue,
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

/// Where a router runs, and what it runs.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The network that it is in.
    pub network: Namespace,
    /// The links.
    pub links: Vec<Wires>,
    /// A pair of interfaces of that network, by which it measures itself.
    pub gauge: [String; 2],
    /// Which processor receives what.
    pub steering: Steering,
    /// What it does while nothing is due.
    pub mode: Mode,
    /// What packets are for it.
    pub path: DataPath,
    /// Of all chance.
    pub seed: u64,
    /// The core that the thread stays on.
    pub core: Option<usize>,
}

/// The number of the kernel's queue for what comes at this end of a link.
pub(crate) fn queue(link: u16, end: usize) -> u16 {
    link * 2 + end as u16
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
    /// Runs what the setting says.
    ///
    /// # Errors
    /// What the system said: packet sockets take CAP_NET_RAW in that network.
    pub(crate) fn start(setting: Setting) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, inbox) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let waked = wake.clone();
        let work = move || {
            let joined = setting.network.join().map_err(io::Error::other);
            match joined.and_then(|()| Runner::new(setting)) {
                Ok(runner) => {
                    // The thread that started it waits for this.
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
