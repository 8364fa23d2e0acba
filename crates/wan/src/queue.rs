//! The queue in front of a rate limit.

use std::collections::VecDeque;
use std::time::Duration;

use verbena_terms::Time;

use crate::codel::{CoDel, CoDelOptions, Head};
use crate::units::{Limit, Rate};

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub bytes: u64,
    pub packets: u64,
    pub arrived: Time,
    pub load: T,
}

/// A transmitter that is busy for as long as a packet takes, and those that wait for it. The one in transmission is not in the queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    packets: u64,
    largest: u64,
    free_at: Time,
    codel: Option<CoDel>,
}

impl<T> Queue<T> {
    pub fn new(codel: Option<CoDelOptions>) -> Self {
        Queue {
            waiting: VecDeque::new(),
            bytes: 0,
            packets: 0,
            largest: 0,
            free_at: Time::ZERO,
            codel: codel.map(CoDel::new),
        }
    }

    /// From now on it drops by this; packets that wait go on waiting.
    pub fn drop_by(&mut self, codel: Option<CoDelOptions>) {
        self.codel = codel.map(CoDel::new);
    }

    /// Packets and bytes that wait.
    pub fn depth(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    /// Puts a packet at the end, or gives it back where the limit does not leave it room.
    pub fn push(&mut self, packet: Waiting<T>, limit: Limit, rate: Option<Rate>) -> Result<(), Waiting<T>> {
        // A transmitter that is free takes one without a queue.
        let must_wait = !self.waiting.is_empty() || self.free_at > packet.arrived;
        let fits = match limit {
            Limit::Packets(most) => self.packets + packet.packets <= most,
            Limit::Bytes(most) => self.bytes + packet.bytes <= most,
            Limit::Time(most) => {
                let behind = rate.map_or(Duration::ZERO, |rate| rate.lasts(self.bytes));
                self.free_at.since(packet.arrived) + behind <= most
            }
        };
        if must_wait && !fits {
            return Err(packet);
        }
        self.bytes += packet.bytes;
        self.packets += packet.packets;
        self.largest = self.largest.max(packet.bytes);
        self.waiting.push_back(packet);
        Ok(())
    }

    /// When the next one begins to be transmitted.
    pub fn next(&self) -> Option<Time> {
        self.waiting.front().map(|head| head.arrived.max(self.free_at))
    }

    /// Takes the next one out at [`next`](Self::next), and says when it is transmitted. `dropped` gets what CoDel drops before it.
    pub fn pop(&mut self, rate: Option<Rate>, dropped: impl FnMut(Waiting<T>)) -> Option<(Waiting<T>, Time)> {
        let now = self.next()?;
        let Queue { waiting, bytes, packets, largest, codel, .. } = self;
        let mut first = || {
            let packet = waiting.pop_front()?;
            *bytes -= packet.bytes;
            *packets -= packet.packets;
            let head = Head { waited: now.since(packet.arrived), is_almost_last: *bytes <= *largest };
            Some((packet, head))
        };
        let packet = match codel {
            Some(codel) => codel.dequeue(now, first, dropped),
            None => first().map(|(packet, _)| packet),
        }?;
        self.free_at = rate.map_or(now, |rate| now + rate.lasts(packet.bytes));
        Some((packet, self.free_at))
    }
}
