//! What it costs to hand a frame over, measured: over a line of the router's own, from the decision to send until the kernel stamps the frame as one
//! that has come.
//!
//! What comes after that stamp is no cost of the router. A frame that crosses a cable is stamped at that moment too,
//! and then received like any other, so subtracting the time of the whole call to send would count that part twice.

use std::time::Duration;

use verbena_terms::Time;

use super::buffers::Buffers;
use super::frame::{Frame, HEADER};
use super::port::{Frames, Port};
use super::{arrival, clocks, now};

/// Bytes of the two kinds of frames by which it is known how much of the cost is each frame's, and how much each byte's.
const SIZES: [usize; 2] = [64, 32 << 10];
/// The interface of the gauge takes frames of the larger kind whole.
pub(crate) const MTU: u32 = 65_521;
/// The median of this many of each kind counts.
const RECENT: usize = 15;
/// The time from one measurement to the next.
const EVERY: Duration = Duration::from_millis(5);
/// What a small frame costs before anything was measured, and the most that is believed of it, and of any.
const USUAL: Duration = Duration::from_micros(2);
const HIGHEST_SMALL: Duration = Duration::from_micros(10);
const HIGHEST: Duration = Duration::from_micros(100);
/// Longer is not waited for a frame.
const PATIENCE: Duration = Duration::from_micros(200);
/// An Ethernet type that is free for local experiments (IEEE 802), after two addresses.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const NUMBER: usize = HEADER + 14;

/// A line from the router to itself.
pub(super) struct Gauge {
    ends: Option<[Port; 2]>,
    frames: [Frame; 2],
    buffers: Buffers,
    kinds: [Recent; 2],
    turn: usize,
    number: u64,
    next: Time,
}

/// The last measurements of one kind.
#[derive(Default)]
struct Recent {
    costs: [Duration; RECENT],
    count: usize,
}

/// What a frame costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    each: Duration,
    per_byte_ps: u64,
}

impl Cost {
    /// The cost of a frame of `bytes` bytes.
    pub fn of(self, bytes: u32) -> Duration {
        let more = u64::from(bytes).saturating_sub(SIZES[0] as u64) * self.per_byte_ps;
        (self.each + Duration::from_nanos(more / 1000)).min(HIGHEST)
    }
}

impl Gauge {
    /// Over a pair of interfaces of this network. Without them what is usual is believed.
    pub fn new(ends: Option<&[String; 2]>) -> Self {
        let open = |[one, other]: &[String; 2]| -> std::io::Result<[Port; 2]> {
            Ok([Port::open(one, Frames::Gauge)?, Port::open(other, Frames::Gauge)?])
        };
        let ends = ends.and_then(|names| {
            let opened = open(names);
            opened.inspect_err(|error| tracing::info!("what sending costs is not measured: {error}")).ok()
        });
        let frame = |bytes: usize| {
            let mut frame = vec![0; HEADER + bytes];
            frame[HEADER..HEADER + 6].fill(0xff);
            frame[NUMBER - 2..NUMBER].copy_from_slice(&ETHERTYPE);
            Frame(frame)
        };
        let mut gauge = Gauge {
            ends,
            frames: SIZES.map(frame),
            buffers: Buffers::default(),
            kinds: Default::default(),
            turn: 0,
            number: 0,
            next: Time::ZERO,
        };
        for _ in 0..2 * RECENT {
            gauge.measure();
        }
        gauge
    }

    /// Measures once more if it is time to, which takes some 10 us.
    pub fn tick(&mut self, now: Time) -> Option<Cost> {
        (now >= self.next && self.ends.is_some()).then(|| {
            self.next = now + EVERY;
            self.measure();
            self.cost()
        })
    }

    /// What frames cost now.
    pub fn cost(&self) -> Cost {
        let [small, large] = self.kinds.each_ref().map(Recent::median);
        let more = large.saturating_sub(small).as_nanos() as u64;
        Cost { each: small.min(HIGHEST_SMALL), per_byte_ps: more * 1000 / (SIZES[1] - SIZES[0]) as u64 }
    }

    /// Sends a small frame that counts for nothing, and waits for it no longer than that.
    pub fn warm(&mut self, patience: Duration) {
        self.send(0, patience);
    }

    fn measure(&mut self) {
        if let Some(cost) = self.send(self.turn, PATIENCE) {
            self.kinds[self.turn].put(cost);
        }
        self.turn ^= 1;
    }

    /// What handing over a frame of this kind cost; `None` if it did not come.
    fn send(&mut self, kind: usize, patience: Duration) -> Option<Duration> {
        let [from, to] = self.ends.as_mut()?;
        let frame = &mut self.frames[kind];
        self.number += 1;
        frame.0[NUMBER..NUMBER + 8].copy_from_slice(&self.number.to_le_bytes());
        let began = now();
        from.send(frame).ok()?;
        while now().since(began) < patience {
            let Some((received, stamp)) = to.receive(&mut self.buffers) else { continue };
            // One that was given up before comes first.
            let is_it = received.0.get(NUMBER..NUMBER + 8) == Some(&self.number.to_le_bytes());
            self.buffers.take_back(received);
            if is_it {
                return Some(arrival(stamp, clocks()).since(began));
            }
        }
        None
    }
}

impl Recent {
    fn put(&mut self, cost: Duration) {
        self.costs[self.count % RECENT] = cost;
        self.count += 1;
    }

    fn median(&self) -> Duration {
        let mut costs = self.costs;
        let some = &mut costs[..self.count.min(RECENT)];
        some.sort_unstable();
        some.get(some.len() / 2).copied().unwrap_or(USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_frames_cost_more_by_what_was_measured() {
        let mut gauge = Gauge::new(None);
        assert_eq!(gauge.cost().of(64), USUAL);
        for (kind, micros) in [(0, 1), (1, 9)] {
            // A few that were disturbed count for nothing.
            (0..RECENT)
                .for_each(|nth| gauge.kinds[kind].put(Duration::from_micros(if nth < 5 { 500 } else { micros })));
        }
        let cost = gauge.cost();
        assert_eq!(cost.of(64), Duration::from_micros(1));
        assert_eq!(cost.of(10), cost.of(64));
        let of_large = cost.of(SIZES[1] as u32);
        assert!((Duration::from_nanos(8_900)..=Duration::from_micros(9)).contains(&of_large), "{of_large:?}");
        assert_eq!(cost.of(u32::MAX), HIGHEST);
        (0..RECENT).for_each(|_| gauge.kinds[0].put(PATIENCE));
        assert_eq!(gauge.cost().of(64), HIGHEST_SMALL);
    }
}
