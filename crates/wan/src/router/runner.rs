//! The router's thread.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{sched_getcpu, sched_yield, set_current_timer_slack};
use verbena_terms::{Time, stay_on};

use super::buffers::Buffers;
use super::direction::{AT_ONCE, Direction};
use super::entrance::Load;
use super::gauge::{Cost, Gauge};
use super::preference::{Preference, Usual};
use super::steered::{Moment, Standing, Steered};
use super::waking::{LEAST, Waking};
use super::{DataPath, Mode, Order, Setting, now, queue};
use crate::machine::{Leaving, Machine, Packet};
use crate::receivers::{Steering, waits};
use crate::way::Way;

/// With a delay as long as this what was overtaken on its way to the router is there before either is due.
const STAMPS_ORDER: Duration = Duration::from_micros(200);

/// While much crosses by way of a queue of the kernel, the thread looks for what is due this many times in the shortest
/// delay, but with naps within these bounds: senders and receivers have the core meanwhile. With a shorter delay it
/// looks without a nap.
const NAPS: u32 = 20;
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_micros(500);

/// The receiving processors are not changed if a release is nearer than this.
const STEERING: Duration = Duration::from_micros(60);

/// Nearer than [`LEAST`] to a release, code that was not needed for this time goes the way of a frame once more, so
/// that it is in the caches; unless there is less time left than this takes where it is not.
const COLD: Duration = Duration::from_micros(100);
const WARMING: Duration = Duration::from_micros(60);

/// What the thread has. Direction `n` comes from port `n` and goes to port `n ^ 1`.
pub(super) struct Runner {
    directions: Vec<Direction>,
    mode: Mode,
    path: DataPath,
    /// While much crosses: not on a core of its own, which no other thread wants.
    naps: bool,
    /// No frame is due sooner after it has come. It is asked without rest, and a trace is long to look through.
    shortest_delay: Duration,
    gauge: Gauge,
    cost: Cost,
    waking: Waking,
    steering: Steering,
    preference: Preference,
    /// Nothing where this thread goes before no other one.
    usual: Option<Usual>,
    /// When the way of a frame was last gone.
    gone: Time,
    /// When a frame last came or left.
    crossed: Time,
    standing: Standing,
    buffers: Buffers,
    /// What is held by a queue and is let go on now, and when it came; empty but while that is done.
    going: Vec<u32>,
    left: Vec<(Time, bool)>,
}

impl Runner {
    /// In the network of the setting, by the thread that will run it.
    pub fn new(setting: Setting) -> io::Result<Self> {
        let Setting { links, gauge, steering, mode, path, seed, core, .. } = setting;
        core.map_or(Ok(()), stay_on)?;
        let mut directions = vec![];
        for (link, number) in links.iter().zip(0..) {
            for (end, way) in [0, 1].into_iter().zip(&link.ways) {
                let machine = Machine::new(way.clone(), seed, u64::from(number) * 2 + end as u64);
                directions.push(match path {
                    DataPath::Packet => Direction::of_port(machine, link.ends[end].clone(), link.mtu)?,
                    DataPath::Nfqueue => Direction::of_queue(machine, queue(number, end), link.mtu)?,
                });
            }
        }
        // Timers of this thread may be as exact as the machine can; where it may not say so they are later.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        // Otherwise no other thread would get to run on the only processor.
        let may_go_first = mode == Mode::Precise && steering.another_than(sched_getcpu()).is_some();
        let usual = if may_go_first { Usual::of_this_thread() } else { None };
        match core {
            Some(core) => steering.put(Some(core), Some(steering.beside(core))),
            None => steering.put(Some(0), Some(0)),
        }
        let shortest_delay = shortest_delay(&directions);
        let gauge = Gauge::new(Some(&gauge));
        let (cost, waking) = (gauge.cost(), Waking::new());
        Ok(Runner {
            directions,
            mode,
            path,
            naps: path == DataPath::Nfqueue && core.is_none(),
            shortest_delay,
            gauge,
            cost,
            waking,
            steering,
            preference: Preference::new(),
            usual,
            gone: Time::ZERO,
            crossed: Time::ZERO,
            standing: Standing::default(),
            buffers: Buffers::default(),
            going: vec![],
            left: vec![],
        })
    }

    /// Runs until no sender of orders is left.
    pub fn run(mut self, orders: &Receiver<Order>, wake: &OwnedFd) {
        loop {
            let has_received = self.receive();
            let now = now();
            self.prefer(now);
            let has_sent = self.release(now);
            loop {
                match orders.try_recv() {
                    Ok(order) => self.obey(order),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if has_received || has_sent {
                // What was sent takes its time.
                self.crossed = super::now();
            } else {
                self.rest(wake);
            }
        }
    }

    /// Takes what has come. Says whether anything has.
    fn receive(&mut self) -> bool {
        let mut has_received = false;
        for direction in &mut self.directions {
            has_received |= direction.receive(&mut self.buffers, &mut self.preference) > 0;
        }
        has_received
    }

    fn prefer(&mut self, now: Time) {
        if let Some(goes_first) = self.preference.look(now)
            && let Some(usual) = self.usual
        {
            usual.set(goes_first);
        }
    }

    /// Sends what is due. Says whether anything was.
    fn release(&mut self, mut now: Time) -> bool {
        let mut has_sent = false;
        for number in 0..self.directions.len() {
            for _ in 0..AT_ONCE {
                let Some((_, first)) = self.directions[number].machine.ahead() else { break };
                let until = now + self.cost_of(first);
                let Some(leaving) = self.directions[number].machine.leave(until) else { break };
                has_sent = true;
                if let Load::Held(id) = leaving.load {
                    // All of them by one call.
                    self.going.push(id);
                    self.left.push((leaving.arrived, leaving.is_housekeeping));
                } else {
                    now = self.send(number, leaving);
                }
            }
            if !self.going.is_empty() {
                now = self.let_go(number);
            }
        }
        has_sent
    }

    /// What handing it over costs. What stays in the kernel is not copied, so that large packets cost no more.
    fn cost_of(&self, packet: Option<Packet>) -> Duration {
        let copied = packet.filter(|_| self.path == DataPath::Packet);
        self.cost.of(copied.map_or(0, |packet| packet.bytes))
    }

    fn let_go(&mut self, number: usize) -> Time {
        let direction = &mut self.directions[number];
        let sent = direction.entrance.let_go(&self.going);
        let done = now();
        self.gone = done;
        self.going.clear();
        for (arrived, is_housekeeping) in self.left.drain(..) {
            match sent {
                Ok(()) if !is_housekeeping => direction.took.record(done.since(arrived)),
                Ok(()) => {}
                Err(_) => direction.unsent += 1,
            }
        }
        done
    }

    fn send(&mut self, number: usize, leaving: Leaving<Load>) -> Time {
        let Leaving { mut load, arrived, corrupt, is_housekeeping, .. } = leaving;
        let Load::Frame(frame) = &mut load else { return now() };
        if let Some(draw) = corrupt {
            frame.corrupt(draw);
        }
        let sent = self.directions[number ^ 1].entrance.send(frame);
        let done = now();
        self.gone = done;
        let direction = &mut self.directions[number];
        match sent {
            Ok(()) if !is_housekeeping => direction.took.record(done.since(arrived)),
            Ok(()) => {}
            Err(_) => direction.unsent += 1,
        }
        load.take_back(&mut self.buffers);
        done
    }

    /// When the next frame is to be handed over.
    fn next(&self) -> Option<Time> {
        let next = |direction: &Direction| {
            let (at, packet) = direction.machine.ahead()?;
            Some(at - self.cost_of(packet))
        };
        self.directions.iter().filter_map(next).min()
    }

    /// Waits for the next frame, order or release, in the way of the mode.
    fn rest(&mut self, wake: &OwnedFd) {
        let (next, now) = (self.next(), now());
        // It takes a few system calls, and is looked at again soon.
        if next.is_none_or(|next| next <= now || next.since(now) > STEERING) {
            self.steer(now);
        }
        if self.naps
            && self.is_much()
            && let Some(nap) = nap(self.shortest_delay)
        {
            std::thread::sleep(nap);
            return;
        }
        if next.is_none_or(|next| next.since(now) > LEAST)
            && let Some(cost) = self.gauge.tick(now)
        {
            self.cost = cost;
            return;
        }
        let until = match self.mode {
            Mode::Sleep => next,
            Mode::Precise => {
                self.warm(next, now);
                let margin = self.waking.margin(now);
                if self.shortest_delay < margin { Some(now) } else { next.map(|next| next - margin) }
            }
        };
        if self.mode == Mode::Precise && until.is_some_and(|until| until <= now) {
            if self.is_much() {
                sched_yield();
            } else {
                std::hint::spin_loop();
            }
            return;
        }
        let timeout = until.map(|until| until.since(now)).map(|sleep| Timespec {
            tv_sec: sleep.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: sleep.subsec_nanos().into(),
        });
        let ports = self.directions.iter().map(|direction| PollFd::new(&direction.entrance, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = ports.chain([PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)]).collect();
        // Whatever it says, all is looked through.
        let came = wait(&mut all, timeout.as_ref());
        if let (Ok(0), Some(until)) = (came, until) {
            self.waking.note(until, super::now());
        }
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
    }

    /// So that the first release after a while is no later than those behind it.
    fn warm(&mut self, next: Option<Time>, now: Time) {
        let left = next.map_or(Duration::ZERO, |next| next.since(now));
        if left > WARMING && left <= LEAST && now.since(self.gone) > COLD {
            self.gauge.warm(left / 2);
            self.gone = now;
        }
    }

    /// What sites receive is received by the processor of this thread, which sends it: so nothing has to cross to another one, or wake it. What comes to
    /// the router is received by another one, so that it comes in the order in which it was sent; where that is known by its stamp it need not be, and
    /// while much crosses it is faster not to.
    fn steer(&mut self, now: Time) {
        if self.mode == Mode::Sleep {
            return;
        }
        let is_put_right = (self.path == DataPath::Nfqueue || self.shortest_delay >= STAMPS_ORDER)
            && self.directions.iter().all(|direction| direction.machine.has_delay_alone());
        let here = sched_getcpu();
        let router = if is_put_right && self.is_much() { None } else { Some(self.steering.beside(here)) };
        let (wanted, moment) = (Steered { sites: here, router }, Moment { now, crossed: self.crossed, is_put_right });
        if let Some(next) = self.standing.change(wanted, moment, waits) {
            self.steering.put(Some(next.sites), next.router);
        }
    }

    /// Whether so much crosses that its senders and receivers need the core more than this thread, which would only
    /// look.
    fn is_much(&self) -> bool {
        !self.preference.goes_first()
    }

    fn obey(&mut self, order: Order) {
        // The sender of the order may be gone.
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
            direction.change(way, &mut self.buffers, &mut self.preference)?;
        }
        self.shortest_delay = shortest_delay(&self.directions);
        Ok(())
    }
}

/// Waits until something comes, and says how many of them have it. A socket whose interface has gone reports an error
/// until that error is read, and no wait for it would rest until then.
fn wait(all: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> rustix::io::Result<usize> {
    let came = poll(all, timeout);
    for one in all.iter().filter(|one| one.revents().contains(PollFlags::ERR)) {
        let _ = rustix::net::sockopt::socket_error(one.as_fd());
    }
    came
}

fn shortest_delay(directions: &[Direction]) -> Duration {
    directions.iter().map(Direction::shortest_delay).min().unwrap_or(Duration::MAX)
}

/// Where nothing is due sooner after it has come.
fn nap(delay: Duration) -> Option<Duration> {
    Some(delay / NAPS).filter(|nap| *nap >= SHORTEST_NAP).map(|nap| nap.min(LONGEST_NAP))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use verbena_namespaces::{Namespace, ip, or_skipped};

    use super::*;
    use crate::router::frame::{Frame, HEADER};
    use crate::router::port::{Frames, Port};
    use crate::router::{Seen, Wires};

    /// One link in a network of its own; its router, which does nothing by itself; and what is sent there comes to it.
    fn one_link(options: &str) -> Option<(Namespace, Runner, Port)> {
        let network = or_skipped(Namespace::new()).unwrap()?;
        let way = way(options);
        let made = network.visit(|| -> io::Result<_> {
            for [one, other] in [["there", "link0"], ["link1", "back"], ["gauge0", "gauge1"]] {
                ip(&["link", "add", one, "type", "veth", "peer", "name", other]).unwrap();
                for end in [one, other] {
                    ip(&["link", "set", end, "up"]).unwrap();
                }
            }
            let ways = [way.clone(), way];
            let setting = Setting {
                network: Namespace::here().unwrap(),
                links: vec![Wires { ends: ["link0".into(), "link1".into()], mtu: 1500, ways }],
                gauge: ["gauge0".into(), "gauge1".into()],
                steering: Steering::default(),
                mode: Mode::Sleep,
                path: DataPath::Packet,
                seed: 1,
                core: None,
            };
            Ok((Runner::new(setting)?, Port::open("there", Frames::Large)?))
        });
        let (runner, port) = made.unwrap().unwrap();
        Some((network, runner, port))
    }

    fn way(options: &str) -> Way {
        let mut way = Way::default();
        way.change(options, &|path| Err(path.into())).unwrap();
        way
    }

    #[test]
    fn what_waits_at_an_end_is_taken_before_another_one_replaces_it() {
        let Some((network, mut runner, port)) = one_link("drop-rate=1000") else { return };
        let mut frame = vec![0; HEADER + 60];
        frame[HEADER + 12..HEADER + 14].copy_from_slice(&[0x08, 0x00]);
        (0..500).for_each(|_| port.send(&Frame(frame.clone())).unwrap());
        let before = runner.directions[0].machine.counts().packets;
        network.visit(|| runner.change(0, [way("delay=1ms"), way("delay=1ms")])).unwrap().unwrap();
        let Seen { counts, overrun, .. } = runner.directions[0].seen();
        assert_eq!((before, counts.packets, overrun), (0, 500, 0));
    }

    #[test]
    fn nobody_is_kept_awake_by_an_interface_that_has_gone() {
        let Some((network, runner, _)) = one_link("delay=1ms") else { return };
        network.visit(|| ip(&["link", "del", "link0"])).unwrap().unwrap();
        let looked = || {
            let mut all = [PollFd::new(&runner.directions[0].entrance, PollFlags::IN)];
            wait(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            // What its other end said before may wait there too.
            all[0].revents().contains(PollFlags::ERR)
        };
        assert_eq!((looked(), looked()), (true, false));
    }

    #[test]
    fn a_nap_is_a_twentieth_of_the_delay() {
        let micros = |delay| nap(Duration::from_micros(delay)).map(|nap| nap.as_micros());
        assert_eq!([0, 999, 1_000, 4_000, 100_000].map(micros), [None, None, Some(50), Some(200), Some(500)]);
    }
}
