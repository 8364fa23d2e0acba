//! Two ends of a stream on datagrams, and a simulated link between them: a rate, a delay, a queue, loss, other order, packets that come twice, flipped
//! bits. Beside them may be a flow of TCP's kind (AIMD).

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_terms::Time;
use verbena_transfer::{DatagramRules, Datagrams, LONGEST_DATAGRAM, Opener, Sealer, UdpSide};

/// One way of a link. Chances are in ten thousand.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bytes per second.
    pub rate: f64,
    pub delay: Duration,
    /// Bytes that wait before the link loses what comes.
    pub queue: f64,
    pub loss: u64,
    /// Packets that take longer, and by how much at most.
    pub late: u64,
    pub later: Duration,
    pub twice: u64,
    /// Packets of which a bit is flipped.
    pub flipped: u64,
}

/// 100 Mbit/s, 20 ms there and back, a queue of as much.
pub const LONG: Link = Link {
    rate: 12.5e6,
    delay: Duration::from_millis(10),
    queue: 250e3,
    loss: 0,
    late: 0,
    later: Duration::from_millis(8),
    twice: 0,
    flipped: 0,
};

/// Bytes of headers below a datagram, and of a packet of the rival.
const BELOW: f64 = 42.0;
const RIVAL: f64 = 1500.0;

enum Event {
    Datagram(usize, Vec<u8>),
    Acked,
    Lost,
}

/// A flow that adds a packet each round trip, and halves what is under way at a loss.
struct Rival {
    window: f64,
    under_way: u32,
    /// Losses of packets that were sent before are of the same event.
    halved: Time,
    acked: u64,
}

pub struct World {
    pub chance: Pcg64,
    pub now: Time,
    pub ends: [Datagrams; 2],
    pub links: [Link; 2],
    sealers: [Sealer; 2],
    openers: [Opener; 2],
    /// When each link has sent what waits.
    free: [Time; 2],
    under_way: BTreeMap<(Time, u64), Event>,
    events: u64,
    /// Packets that went into the first link, those that its queue lost, and the most bytes that waited in it.
    pub went: u64,
    pub overflowed: u64,
    pub longest_queue: f64,
    /// Packets that did not open.
    pub refused: u64,
    /// What the second end has read.
    pub read: Vec<u8>,
    /// Bytes that wait to be written by the first end.
    to_write: Vec<u8>,
    pub written: usize,
    pub is_reading: bool,
    rival: Option<Rival>,
}

impl World {
    pub fn new(seed: u64, link: Link, to_write: Vec<u8>) -> World {
        World::with_rules(DatagramRules::ALL, seed, link, to_write)
    }

    pub fn with_rules(rules: DatagramRules, seed: u64, link: Link, to_write: Vec<u8>) -> World {
        let now = Time::ZERO + Duration::from_secs(9);
        let (secret, maker, listener) = ([7; 32], UdpSide::Maker(1), UdpSide::Listener(1, 2));
        World {
            chance: Pcg64::seed_from_u64(seed),
            now,
            ends: [(); 2].map(|()| Datagrams::with_rules(rules, now)),
            links: [link, link],
            sealers: [maker, listener].map(|side| Sealer::new(&secret, side)),
            openers: [listener, maker].map(|side| Opener::new(&secret, side)),
            free: [now, now],
            under_way: BTreeMap::new(),
            events: 0,
            went: 0,
            overflowed: 0,
            longest_queue: 0.0,
            refused: 0,
            read: Vec::new(),
            to_write,
            written: 0,
            is_reading: true,
            rival: None,
        }
    }

    /// Lets another flow begin, or end. What it has moved so far.
    pub fn rival(&mut self, is_there: bool) -> f64 {
        let moved = self.rival.as_ref().map_or(0.0, |rival| rival.acked as f64 * RIVAL);
        match (is_there, &self.rival) {
            (true, None) => self.rival = Some(Rival { window: 10.0, under_way: 0, halved: Time::ZERO, acked: 0 }),
            (false, _) => self.rival = None,
            (true, Some(_)) => {}
        }
        moved
    }

    fn is_chosen(&mut self, of_ten_thousand: u64) -> bool {
        self.chance.next_u64() % 10_000 < of_ten_thousand
    }

    fn later(&mut self, at: Time, event: Event) {
        self.events += 1;
        self.under_way.insert((at, self.events), event);
    }

    /// When so many bytes are through the queue of a link. `None`: it is full.
    fn through(&mut self, way: usize, bytes: f64) -> Option<Time> {
        let link = self.links[way];
        let waits = self.free[way].since(self.now).as_secs_f64() * link.rate;
        if way == 0 {
            self.longest_queue = self.longest_queue.max(waits);
        }
        if waits > 0.0 && waits + bytes > link.queue {
            return None;
        }
        self.free[way] = self.free[way].max(self.now) + Duration::from_secs_f64(bytes / link.rate);
        Some(self.free[way] + link.delay)
    }

    fn send(&mut self, way: usize, datagram: &[u8]) {
        assert!(datagram.len() <= LONGEST_DATAGRAM, "{} bytes", datagram.len());
        let link = self.links[way];
        self.went += u64::from(way == 0);
        let Some(arrives) = self.through(way, datagram.len() as f64 + BELOW) else {
            self.overflowed += u64::from(way == 0);
            return;
        };
        if self.is_chosen(link.loss) {
            return;
        }
        for _ in 0..1 + u64::from(self.is_chosen(link.twice)) {
            let (mut at, mut copy) = (arrives, datagram.to_vec());
            if self.is_chosen(link.late) {
                at = at + link.later.mul_f64((self.chance.next_u64() % 1000) as f64 / 1000.0);
            }
            if self.is_chosen(link.flipped) {
                let bit = self.chance.next_u64() as usize % (copy.len() * 8);
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            self.later(at, Event::Datagram(1 - way, copy));
        }
    }

    fn send_of_rival(&mut self) {
        while self.rival.as_ref().is_some_and(|rival| f64::from(rival.under_way) < rival.window) {
            let event = match self.through(0, RIVAL) {
                Some(arrives) if !self.is_chosen(self.links[0].loss) => (arrives + self.links[1].delay, Event::Acked),
                // What is behind it says so.
                _ => (self.free[0].max(self.now) + self.links[0].delay + self.links[1].delay, Event::Lost),
            };
            self.later(event.0, event.1);
            if let Some(rival) = &mut self.rival {
                rival.under_way += 1;
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let (now, trip) = (self.now, self.free[0].since(self.now) + self.links[0].delay * 2);
        match (event, &mut self.rival) {
            (Event::Datagram(to, mut datagram), _) => match self.openers[to].open(&mut datagram) {
                Some((number, body)) => self.ends[to].packet(now, number, body),
                None => self.refused += 1,
            },
            (Event::Acked, Some(rival)) => {
                (rival.under_way, rival.acked) = (rival.under_way.saturating_sub(1), rival.acked + 1);
                rival.window += 1.0 / rival.window;
            }
            (Event::Lost, Some(rival)) => {
                rival.under_way = rival.under_way.saturating_sub(1);
                if now >= rival.halved {
                    rival.window = (rival.window / 2.0).max(2.0);
                    rival.halved = now + trip;
                }
            }
            (_, None) => {}
        }
    }

    /// Lets time go on. False if nothing is under way, and nothing is due.
    fn step(&mut self, until: Time) -> bool {
        self.written += self.ends[0].write(&self.to_write[self.written..]);
        for way in 0..2 {
            for _ in 0..1000 {
                let mut datagram = Vec::new();
                self.sealers[way].begin(&mut datagram);
                let Some(number) = self.ends[way].poll(self.now, &mut datagram) else { break };
                self.sealers[way].seal(number, &mut datagram, 0);
                self.send(way, &datagram);
            }
        }
        self.send_of_rival();
        let due = self.ends[0].deadline().min(self.ends[1].deadline()).max(self.now + Duration::from_micros(50));
        let next = self.under_way.first_key_value().map_or(due, |((at, _), _)| due.min(*at));
        if next > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        while let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= self.now) {
            let event = first.remove();
            self.happen(event);
        }
        let mut buffer = [0; 65536];
        while self.is_reading {
            match self.ends[1].read(&mut buffer) {
                0 => break,
                read => self.read.extend(&buffer[..read]),
            }
        }
        true
    }

    pub fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
    }
}

pub fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}
