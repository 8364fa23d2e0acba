//! CoDel: drops where packets have waited too long for too long, rather than where there are many (RFC 8289, "Controlled Delay Active Queue
//! Management").
//!
//! Of each packet that leaves the queue it is looked how long it waited. If that was at least `target` for a whole `interval`, one is dropped, and
//! more at shorter and shorter distances (`interval` / sqrt(count)) until one has waited less. The names are the RFC's, section 5.

use std::time::Duration;

use verbena_terms::Time;

/// The constants of section 4.2 and 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelOptions {
    /// So long may packets wait, as the least of an interval.
    pub target: Duration,
    /// A round trip that most connections through the queue do not exceed.
    pub interval: Duration,
}

impl Default for CoDelOptions {
    fn default() -> Self {
        CoDelOptions { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// What CoDel remembers of a queue.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    options: CoDelOptions,
    first_above: Option<Time>,
    drop_next: Time,
    count: u64,
    last_count: u64,
    is_dropping: bool,
}

/// A packet that leaves the queue, and how it stands behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// How long it waited.
    pub waited: Duration,
    /// Whether what is left behind it is no more than one full packet.
    pub is_almost_last: bool,
}

impl CoDel {
    pub fn new(options: CoDelOptions) -> Self {
        CoDel { options, first_above: None, drop_next: Time::ZERO, count: 0, last_count: 0, is_dropping: false }
    }

    /// The packet that leaves a queue `now` (section 5.5). `pop` takes its first, `drop` gets those that are dropped before it.
    pub fn dequeue<P>(
        &mut self,
        now: Time,
        mut pop: impl FnMut() -> Option<(P, Head)>,
        mut drop: impl FnMut(P),
    ) -> Option<P> {
        let mut next = || pop().map_or((None, None), |(packet, head)| (Some(packet), Some(head)));
        let (mut packet, head) = next();
        let mut may_drop = self.is_above(now, head);
        if self.is_dropping {
            self.is_dropping = may_drop;
            while self.is_dropping && now >= self.drop_next {
                packet.into_iter().for_each(&mut drop);
                self.count += 1;
                let (following, head) = next();
                packet = following;
                may_drop = self.is_above(now, head);
                if may_drop {
                    self.drop_next = self.after(self.drop_next);
                } else {
                    self.is_dropping = false;
                }
            }
        } else if may_drop {
            packet.into_iter().for_each(&mut drop);
            let (following, head) = next();
            packet = following;
            self.is_above(now, head);
            self.is_dropping = true;
            // Where dropping ended only a moment ago it goes on about as fast as it did then.
            let more = self.count - self.last_count;
            self.count = if more > 1 && now.since(self.drop_next) < 16 * self.options.interval { more } else { 1 };
            self.drop_next = self.after(now);
            self.last_count = self.count;
        }
        packet
    }

    /// Whether packets have waited too long for an interval (section 5.6).
    fn is_above(&mut self, now: Time, head: Option<Head>) -> bool {
        match (head, self.first_above) {
            (Some(head), first_above) if head.waited >= self.options.target && !head.is_almost_last => {
                let since = *self.first_above.get_or_insert(now + self.options.interval);
                first_above.is_some() && now >= since
            }
            _ => {
                self.first_above = None;
                false
            }
        }
    }

    /// The control law (section 5.7).
    fn after(&self, time: Time) -> Time {
        time + self.options.interval.div_f64((self.count as f64).sqrt())
    }
}
