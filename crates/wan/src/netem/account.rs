//! What happened to packets, by the counts that the kernel has of queues.
//!
//! Of each way four places count: the end at which packets come, the queue of the rate, the end behind it, and the wire. What netem drops by
//! loss and what did not fit are one number, so of a wire that loses, what did not fit counts as lost.

use std::collections::HashMap;

use serde::Deserialize;

use crate::counts::{Counts, Drops};
use crate::router::Seen;
use crate::way::Way;

/// What a place where packets come in counts: `tc` names it so.
const ENTRANCE: &str = "clsact";
const QUEUE: &str = "netem";
/// Of the frames that come in, their Ethernet header is not counted.
const ETHERNET: u64 = 14;
/// Names of numbers in [`Seen`] that are not counted here.
const UNKNOWN: [&str; 5] = ["corrupted", "unsplit", "housekeeping", "unsent", "took"];

/// What one place counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Numbers {
    bytes: u64,
    packets: u64,
    drops: u64,
    backlog: u64,
    qlen: u64,
}

/// All places of a network.
#[derive(Debug)]
pub(crate) struct Looked(HashMap<(String, String), Numbers>);

/// The places of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    came: Numbers,
    queue: Numbers,
    crossed: Numbers,
    wire: Numbers,
}

/// What is known of a way from before its last change, and where its places were then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    dropped: Drops,
    duplicated: u64,
    before: Places,
}

impl Looked {
    /// Reads what `tc -s -j qdisc show` prints.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Place {
            kind: String,
            dev: String,
            #[serde(flatten)]
            numbers: Numbers,
        }
        let places: Vec<Place> = serde_json::from_str(text)?;
        Ok(Looked(places.into_iter().map(|place| ((place.dev, place.kind), place.numbers)).collect()))
    }

    /// The places of a way, by the interfaces: where packets come, where its queue is, what is behind that, and where they leave.
    pub fn places(&self, [from, queue, behind, to]: [String; 4]) -> Places {
        let of = |interface, kind: &str| self.0.get(&(interface, kind.to_owned())).copied().unwrap_or_default();
        Places { came: of(from, ENTRANCE), queue: of(queue, QUEUE), crossed: of(behind, ENTRANCE), wire: of(to, QUEUE) }
    }
}

impl Account {
    /// With all that happened until `now`, while the way was this.
    pub fn until(mut self, now: Places, way: &Way) -> Self {
        let on_wire = |of: Places| of.wire.packets + of.wire.drops + of.wire.qlen;
        let before = std::mem::replace(&mut self.before, now);
        let dropped = now.wire.drops.saturating_sub(before.wire.drops);
        *if way.burst.is_some() {
            &mut self.dropped.burst
        } else if way.loss.part() > 0.0 {
            &mut self.dropped.loss
        } else {
            &mut self.dropped.memory
        } += dropped;
        self.dropped.queue_limit = now.queue.drops;
        if way.duplicate.part() > 0.0 {
            let crossed = now.crossed.packets.saturating_sub(before.crossed.packets);
            self.duplicated += on_wire(now).saturating_sub(on_wire(before)).saturating_sub(crossed);
        }
        self
    }

    /// What there is to see of it.
    pub fn seen(&self) -> Seen {
        let Places { came, queue, crossed, wire } = self.before;
        let Drops { loss, burst, memory, .. } = self.dropped;
        let counts = Counts {
            packets: came.packets,
            bytes: came.bytes + ETHERNET * came.packets,
            arrived: wire.packets,
            arrived_bytes: wire.bytes,
            dropped: self.dropped,
            duplicated: self.duplicated,
            ..Counts::default()
        };
        Seen {
            counts,
            overrun: came.packets.saturating_sub(crossed.packets + queue.drops + queue.qlen),
            unsent: 0,
            under_way: (crossed.packets + self.duplicated).saturating_sub(wire.packets + loss + burst + memory),
            queued_packets: queue.qlen,
            queued_bytes: queue.backlog,
            took: None,
            unknown: UNKNOWN.map(String::from).to_vec(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn way(options: &str) -> Way {
        let mut way = Way::default();
        way.change(options, &|path| Err(path.into())).unwrap();
        way
    }

    fn numbers(packets: u64, drops: u64, qlen: u64) -> Numbers {
        Numbers { bytes: packets * 100, packets, drops, backlog: qlen * 100, qlen }
    }

    fn places(came: u64, queue: Numbers, wire: Numbers) -> Places {
        Places { came: numbers(came, 0, 0), queue, crossed: numbers(queue.packets, 0, 0), wire }
    }

    #[test]
    fn what_tc_prints_is_read() {
        let text = r#"[{"kind":"noqueue","handle":"0:","dev":"p0","root":true,"options":{},"bytes":9,"packets":9,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
            {"kind":"netem","handle":"8003:","dev":"e1","root":true,"options":{"limit":5,"loss-gemodel":{"p":0.01}},"bytes":13822,"packets":152,"drops":5,"overlimits":0,"requeues":0,"backlog":90,"qlen":1},
            {"kind":"clsact","handle":"ffff:","dev":"e1","parent":"ffff:fff1","options":{},"bytes":11478,"packets":148,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}]"#;
        let places = Looked::parse(text).unwrap().places(["e1", "q0", "p0", "e1"].map(String::from));
        assert_eq!(places.wire, Numbers { bytes: 13_822, packets: 152, drops: 5, backlog: 90, qlen: 1 });
        assert_eq!((places.came.packets, places.queue, places.crossed), (148, Numbers::default(), Numbers::default()));
        assert!(Looked::parse("{").is_err());
    }

    #[test]
    fn drops_are_those_of_what_was_asked_when_they_happened() {
        let lossy = Account::default().until(places(100, numbers(90, 4, 6), numbers(70, 8, 12)), &way("loss=10%"));
        let seen = lossy.seen();
        assert_eq!((seen.counts.packets, seen.counts.bytes, seen.counts.arrived), (100, 11_400, 70));
        assert_eq!((seen.counts.dropped.loss, seen.counts.dropped.queue_limit, seen.counts.dropped.all()), (8, 4, 12));
        assert_eq!((seen.under_way, seen.queued_packets, seen.queued_bytes, seen.overrun), (12, 6, 600, 0));
        let bursts = lossy.until(places(200, numbers(196, 4, 0), numbers(180, 11, 5)), &way("burst=1%,20%"));
        let full = bursts.until(places(300, numbers(296, 4, 0), numbers(280, 16, 0)), &way("delay=1ms"));
        let dropped = full.seen().counts.dropped;
        assert_eq!((dropped.loss, dropped.burst, dropped.memory, dropped.queue_limit), (8, 3, 5, 4));
        // What was looked at and not kept changes nothing.
        assert_eq!(lossy.seen(), seen);
    }

    #[test]
    fn second_copies_are_what_the_wire_has_beyond_what_it_was_given() {
        let doubling =
            Account::default().until(places(100, numbers(100, 0, 0), numbers(100, 0, 9)), &way("duplicate=10%"));
        let counts = doubling.seen().counts;
        assert_eq!((counts.duplicated, doubling.seen().under_way), (9, 9));
        // Those from before stay, and the others are zero.
        let plain = doubling.until(places(150, numbers(150, 0, 0), numbers(160, 0, 0)), &way(""));
        assert_eq!((plain.seen().counts.duplicated, plain.seen().under_way), (9, 0));
        let stuck = Places { crossed: numbers(140, 0, 0), ..places(150, numbers(150, 0, 0), numbers(140, 0, 0)) };
        assert_eq!(Account::default().until(stuck, &way("")).seen().overrun, 10);
    }
}
