//! One direction of a link, as a machine: it takes packets and the time, and says what leaves when.
//!
//! A packet first waits in the queue of the rate limit, if there is one, and is transmitted; then it is on the wire,
//! where it is lost, duplicated, corrupted and delayed. So what the wire loses has taken its time of the transmitter,
//! and what the queue drops has not, as on a real line. The machine looks at no clock: each packet that leaves carries
//! the exact moment at which it should. The caller, which has the clock, asks as often as it can, with every packet
//! that comes and when it is idle (dissertation 8.2.2, on-demand scheduling).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use verbena_terms::Time;

use crate::chance::{Chance, Purpose};
use crate::counts::{Cause, Counts};
use crate::loss::{Blocks, Weather};
use crate::queue::{Queue, Waiting};
use crate::units::Rate;
use crate::way::Way;

/// A packet, or several that came in one large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// From the Ethernet header to its end, without checksum.
    pub bytes: u32,
    /// How many packets it is on the wire: 1, or more for a frame that is still to be segmented.
    pub segments: u16,
}

/// What leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving<T> {
    /// What came with the packet.
    pub load: T,
    /// What it is.
    pub packet: Packet,
    /// When it was sent.
    pub arrived: Time,
    /// When it should leave.
    pub due: Time,
    /// A bit to change, by a number that is drawn anew for each packet: it stands for that number modulo the bits that can be changed.
    pub corrupt: Option<u64>,
    /// What came by [`Machine::pass`]: it is in no count of packets.
    pub is_housekeeping: bool,
}

/// One direction of a link. `T` is what comes with a packet and leaves with it: its bytes, or in tests its number.
#[derive(Debug)]
pub struct Machine<T> {
    way: Way,
    seed: u64,
    number: u64,
    began: Option<Time>,
    last_arrival: Time,
    /// The latest due time of those that keep their order, and what it was when the way last changed.
    last_due: Time,
    last_due_before: Time,
    queue: Queue<Carried<T>>,
    wire: Wire,
    under_way: BinaryHeap<Reverse<Flying<T>>>,
    sent: u64,
    held_bytes: u64,
    counts: Counts,
}

/// A packet that waits, and what came with it.
type Carried<T> = (Packet, T);

/// What the wire decides by.
#[derive(Debug)]
struct Wire {
    blocks: Option<Blocks>,
    loss: Chance,
    weather: Option<Weather>,
    out_of_order: Option<Blocks>,
    corrupt: Chance,
    bit: Chance,
    duplicate: Chance,
    jitter: Chance,
}

/// On the wire. In order of when it is due; at the same moment, of when it was sent.
#[derive(Debug)]
struct Flying<T> {
    leaving: Leaving<T>,
    number: u64,
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Flying<T> {}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Flying<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.leaving.due, self.number).cmp(&(other.leaving.due, other.number))
    }
}

impl Wire {
    fn new(way: &Way, seed: u64, number: u64) -> Self {
        let chance = |purpose| Chance::new(seed, number, purpose);
        Wire {
            blocks: way.drop_rate.map(|length| Blocks::new(length, chance(Purpose::DropRate))),
            loss: chance(Purpose::Loss),
            weather: way.burst.map(|burst| Weather::new(burst, chance(Purpose::Burst), chance(Purpose::BurstLoss))),
            out_of_order: way.ooo_rate.map(|length| Blocks::new(length, chance(Purpose::OutOfOrder))),
            corrupt: chance(Purpose::Corrupt),
            bit: chance(Purpose::Bit),
            duplicate: chance(Purpose::Duplicate),
            jitter: chance(Purpose::Jitter),
        }
    }

    /// Whether it loses the next packet. Every rule is asked of every packet, so that blocks are of all packets.
    fn loses(&mut self, way: &Way) -> Option<Cause> {
        let by_block = self.blocks.as_mut().is_some_and(Blocks::chooses);
        let by_chance = self.loss.happens(way.loss.part());
        let by_weather = self.weather.as_mut().is_some_and(Weather::loses);
        let causes = [(by_block, Cause::DropRate), (by_chance, Cause::Loss), (by_weather, Cause::Burst)];
        causes.iter().find(|(loses, _)| *loses).map(|(_, cause)| *cause)
    }
}

impl<T: Clone> Machine<T> {
    /// That of `way`, with the chance of `seed`. `number` tells apart the ways of one seed.
    pub fn new(way: Way, seed: u64, number: u64) -> Self {
        Machine {
            seed,
            number,
            began: None,
            last_arrival: Time::ZERO,
            last_due: Time::ZERO,
            last_due_before: Time::ZERO,
            queue: Queue::new(way.codel),
            wire: Wire::new(&way, seed, number),
            under_way: BinaryHeap::new(),
            sent: 0,
            held_bytes: 0,
            counts: Counts::default(),
            way,
        }
    }

    /// What it does.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// From now on it does this. Chance and blocks begin anew; what is under way or waits goes on, and is not overtaken where packets keep
    /// their order.
    pub fn change(&mut self, way: Way) {
        self.wire = Wire::new(&way, self.seed, self.number);
        if way.codel != self.way.codel {
            self.queue.drop_by(way.codel);
        }
        self.began = None;
        self.last_due_before = self.last_due;
        self.way = way;
    }

    /// What has happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Packets and bytes that wait for the rate.
    pub fn queued(&self) -> (u64, u64) {
        self.queue.depth()
    }

    /// Packets on the wire: sent, and neither dropped nor handed over yet.
    pub fn under_way(&self) -> u64 {
        let Counts { packets, arrived, dropped, duplicated, .. } = self.counts;
        (packets + duplicated).saturating_sub(arrived + dropped.all() + self.queue.depth().0)
    }

    /// A packet that was sent at `at`. Packets are given in the order in which they came. One that comes with a moment before that of an earlier one was
    /// sent by another processor, and overtaken on the way here: where there is delay alone it is put back into its place, otherwise its moment
    /// counts as that of the earlier one, for rules count packets as they come.
    ///
    /// # Errors
    /// What came with it, if there is no room for it, which is counted.
    pub fn arrive(&mut self, at: Time, packet: Packet, load: T) -> Result<(), T> {
        let stamp = at;
        let at = self.note(at);
        let segments = u64::from(packet.segments.max(1));
        self.counts.packets += segments;
        self.counts.bytes += u64::from(packet.bytes);
        if segments > 1 && self.way.needs_single_packets() {
            self.counts.unsplit += segments;
        }
        self.transmit(at);
        if !self.has_room(packet) {
            self.counts.dropped.add(Cause::Memory, segments);
            return Err(load);
        }
        if self.has_delay_alone() {
            self.held_bytes += u64::from(packet.bytes);
            let due = (stamp + self.way.whole_delay()).max(self.last_due_before);
            self.last_due = self.last_due.max(due);
            self.fly(Leaving { load, packet, arrived: stamp, due, corrupt: None, is_housekeeping: false });
            return Ok(());
        }
        let waiting = Waiting { bytes: packet.bytes.into(), packets: segments, arrived: at, load: (packet, load) };
        match self.queue.push(waiting, self.way.queue_limit(), self.rate(at)) {
            Ok(()) => {
                self.held_bytes += u64::from(packet.bytes);
                self.transmit(at);
                Ok(())
            }
            Err(Waiting { load: (_, load), .. }) => {
                self.counts.dropped.add(Cause::QueueLimit, segments);
                Err(load)
            }
        }
    }

    /// What the two ends say to find each other (ARP, neighbour discovery): the kernel sends it when it likes, so it takes the delay and
    /// nothing else, and no rule counts it. Otherwise no run could be repeated.
    ///
    /// # Errors
    /// What came with it, if there is no room for it.
    pub fn pass(&mut self, at: Time, packet: Packet, load: T) -> Result<(), T> {
        let at = self.note(at);
        self.counts.housekeeping += 1;
        if !self.has_room(packet) {
            return Err(load);
        }
        self.held_bytes += u64::from(packet.bytes);
        let due = at + self.delay(at);
        self.fly(Leaving { load, packet, arrived: at, due, corrupt: None, is_housekeeping: true });
        Ok(())
    }

    /// When something is to be done next.
    pub fn next(&self) -> Option<Time> {
        self.ahead().map(|(at, _)| at)
    }

    /// The same, with the packet that leaves then, if it is on the wire already.
    pub fn ahead(&self) -> Option<(Time, Option<Packet>)> {
        let first = self.under_way.peek().map(|Reverse(first)| (first.leaving.due, Some(first.leaving.packet)));
        first.into_iter().chain(self.queue.next().map(|begins| (begins, None))).min_by_key(|(at, _)| *at)
    }

    /// The next packet that is due at `now`. Call it until it returns `None`.
    pub fn leave(&mut self, now: Time) -> Option<Leaving<T>> {
        self.transmit(now);
        if self.under_way.peek()?.0.leaving.due > now {
            return None;
        }
        let Reverse(Flying { leaving, .. }) = self.under_way.pop()?;
        self.held_bytes -= u64::from(leaving.packet.bytes);
        if !leaving.is_housekeeping {
            self.counts.arrived += u64::from(leaving.packet.segments.max(1));
            self.counts.arrived_bytes += u64::from(leaving.packet.bytes);
        }
        Some(leaving)
    }

    fn note(&mut self, at: Time) -> Time {
        self.began.get_or_insert(at);
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }

    /// The way only delays: it draws nothing for any packet, and no packet waits in a queue.
    pub(crate) fn has_delay_alone(&self) -> bool {
        !self.way.needs_single_packets() && self.way.trace.is_none() && self.queue.next().is_none()
    }

    fn has_room(&self, packet: Packet) -> bool {
        self.held_bytes + u64::from(packet.bytes) <= self.way.memory.0
    }

    /// Everything whose transmission has begun by `now` is put on the wire, at the moment at which it ends.
    fn transmit(&mut self, now: Time) {
        while let Some(begins) = self.queue.next()
            && begins <= now
        {
            let rate = self.rate(begins);
            let (counts, held) = (&mut self.counts, &mut self.held_bytes);
            let dropped = |packet: Waiting<_>| {
                counts.dropped.add(Cause::CoDel, packet.packets);
                *held -= packet.bytes;
            };
            if let Some((packet, sent)) = self.queue.pop(rate, dropped) {
                self.cross(sent, packet);
            }
        }
    }

    fn cross(&mut self, sent: Time, Waiting { bytes, packets, arrived, load: (packet, load) }: Waiting<Carried<T>>) {
        if let Some(cause) = self.wire.loses(&self.way) {
            self.held_bytes -= bytes;
            self.counts.dropped.add(cause, packets);
            return;
        }
        let due = self.due(sent, packets);
        let corrupt = self.wire.corrupt.happens(self.way.corrupt.part()).then(|| self.wire.bit.below(u64::MAX));
        self.counts.corrupted += if corrupt.is_some() { packets } else { 0 };
        let leaving = Leaving { load, packet, arrived, due, corrupt, is_housekeeping: false };
        if self.wire.duplicate.happens(self.way.duplicate.part()) && self.has_room(packet) {
            self.counts.duplicated += packets;
            self.held_bytes += bytes;
            self.fly(leaving.clone());
        }
        self.fly(leaving);
    }

    /// When what was sent now arrives.
    fn due(&mut self, sent: Time, packets: u64) -> Time {
        let delay = self.delay(sent);
        if let (Some(blocks), Some(ooo_delay)) = (&mut self.wire.out_of_order, self.way.ooo_delay)
            && blocks.chooses()
        {
            self.counts.out_of_order += packets;
            // It is there to be overtaken: those behind it do not wait.
            return sent + ooo_delay;
        }
        let varied = match &self.way.jitter {
            Some(jitter) => jitter.draw(delay, &mut self.wire.jitter),
            None => delay,
        };
        if self.way.may_overtake {
            return sent + varied;
        }
        self.last_due = self.last_due.max(sent + varied);
        self.last_due
    }

    fn fly(&mut self, leaving: Leaving<T>) {
        self.sent += 1;
        self.under_way.push(Reverse(Flying { leaving, number: self.sent }));
    }

    fn delay(&self, at: Time) -> Duration {
        self.traced(at).0.unwrap_or_else(|| self.way.whole_delay())
    }

    fn rate(&self, at: Time) -> Option<Rate> {
        self.traced(at).1.or(self.way.rate)
    }

    fn traced(&self, at: Time) -> (Option<Duration>, Option<Rate>) {
        match &self.way.trace {
            Some((_, trace)) => trace.at(self.began.unwrap_or(at), at),
            None => (None, None),
        }
    }
}
