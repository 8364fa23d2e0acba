//! netem in place of a machine: a way in the words of `tc`, and what these cannot say.
//!
//! A way is two queues of netem, one behind the other, as a [`Machine`](crate::Machine) is a queue of the rate and a wire. What waits for the rate is in
//! the first, alone, so that its limit is that of the rate and what it drops is counted apart from loss; the second loses,
//! doubles, changes and delays what was transmitted.
//!
//! netem lets packets overtake each other by jitter, but where it has a rate each is due after the one before it. So a wire that keeps the order has a rate at which
//! no packet takes any time.

mod account;
mod table;

pub(crate) use self::account::{Account, Looked};
pub(crate) use self::table::Table;
use crate::backend::lacks;
use crate::units::{Limit, Probability};
use crate::way::{Impossible, Way};

/// At this rate a frame of 64 KiB takes less than a nanosecond, of which netem has none.
const AT_ONCE: &str = "8000tbit";
/// `tc` hands over delays in ticks of 64 ns, of which 32 bits hold some 275 s.
const LONGEST_DELAY_US: u64 = 270_000_000;
/// What a packet of 1500 bytes takes of the kernel's memory beside those.
const OVERHEAD: u64 = 1024;

/// The two queues of a way, behind `tc qdisc add dev NAME root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// What waits for the rate.
    pub queue: String,
    /// What is on the wire.
    pub wire: String,
    /// The law of the wire's jitter, if there is any.
    pub table: Option<Table>,
}

/// The words for a way whose packets of IP have at most `mtu` bytes. `table` names the law of its jitter.
///
/// # Errors
/// The first option that netem cannot do as it is promised here.
pub(crate) fn words(way: &Way, mtu: u32, table: &str) -> Result<Words, Impossible> {
    refuse(way)?;
    // All of them every time: what is not named would stay as it was when a queue changes.
    let bits = way.rate.map_or(0, |rate| rate.in_bits_per_s());
    let Limit::Packets(waiting) = way.queue_limit() else {
        return Err(lacks("limit", "netem's is of packets"));
    };
    // The one in transmission counts for netem, and not for us.
    let queue = format!("netem limit {} delay 0us rate {bits}bit", waiting.saturating_add(1).min(u32::MAX.into()));
    let law = way.jitter.as_ref().map(Table::of).transpose()?.flatten();
    let delay_us = (way.whole_delay().as_secs_f64() * 1e6).round() as u64 + law.as_ref().map_or(0, |law| law.middle_us);
    if delay_us > LONGEST_DELAY_US {
        return Err(lacks("delay", "its delays are up to 270s"));
    }
    let delay = match &law {
        // Without any delay `tc` takes no law.
        Some(law) => format!("delay {}us {}us distribution {table}", delay_us.max(1), law.scale_us),
        None => format!("delay {delay_us}us"),
    };
    let rate = if way.may_overtake { "0bit" } else { AT_ONCE };
    let loss = match way.burst {
        Some(burst) => {
            let [begins, ends, within, outside] =
                [burst.begins, burst.ends, burst.loss_in, burst.loss_out].map(percent);
            format!("gemodel {begins} {ends} {within} {outside}")
        }
        None => format!("random {}", percent(way.loss)),
    };
    let (duplicate, corrupt) = (percent(way.duplicate), percent(way.corrupt));
    let most = way.memory.0 / (u64::from(mtu) + OVERHEAD);
    let wire = format!("netem limit {most} {delay} rate {rate} loss {loss} duplicate {duplicate} corrupt {corrupt}");
    Ok(Words { queue, wire, table: law })
}

/// What netem cannot do at all, or not as it is promised here.
fn refuse(way: &Way) -> Result<(), Impossible> {
    let is_lossy = way.loss.part() > 0.0 || way.burst.is_some();
    let doubles = way.duplicate.part() > 0.0;
    let refused = [
        (way.drop_rate.is_some(), "drop_rate", "netem loses by chance, and not exactly one packet of each block"),
        (way.ooo_rate.is_some(), "ooo_rate", "netem chooses by chance, and not exactly one packet of each block"),
        (way.codel.is_some(), "queue", "netem's queue drops what does not fit, and nothing else"),
        (way.trace.is_some(), "trace", "netem's delay and rate change by `set` alone"),
        (way.memory != Way::default().memory, "memory", "netem counts packets, and not bytes"),
        (way.burst.is_some() && way.loss.part() > 0.0, "burst", "netem has one loss: this or `loss`"),
        (doubles && is_lossy, "duplicate", "netem hands over what it has chosen both for this and for loss"),
        (
            doubles && way.may_overtake,
            "duplicate",
            "netem times both copies by themselves, so with order=free they part",
        ),
        (
            way.rate.is_some_and(|rate| !rate.in_bits_per_s().is_multiple_of(8)),
            "rate",
            "netem counts whole bytes a second",
        ),
    ];
    match refused.into_iter().find(|(is_there, ..)| *is_there) {
        Some((_, option, because)) => Err(lacks(option, because)),
        None => Ok(()),
    }
}

fn percent(probability: Probability) -> String {
    format!("{}%", probability.part() * 100.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn of(options: &str) -> Result<Words, String> {
        let mut way = Way::default();
        way.change(options, &|path| {
            if path == "times" { Ok("1ms\n3ms\n".into()) } else { Ok("0s 5ms 1mbit\n".into()) }
        })
        .unwrap();
        words(&way, 1500, "law").map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_way_is_said_in_words_of_tc() {
        let nothing = of("").unwrap();
        assert_eq!(nothing.queue, "netem limit 1001 delay 0us rate 0bit");
        assert_eq!(
            nothing.wire, "netem limit 106353 delay 0us rate 8000tbit loss random 0% duplicate 0% corrupt 0%",
            "256 MiB of 1500 bytes and what the kernel needs beside each"
        );
        let all = of("delay=10ms km=100 loss=0.5% corrupt=25% rate=20mbit limit=30").unwrap();
        assert_eq!(all.queue, "netem limit 31 delay 0us rate 20000000bit");
        assert_eq!(
            all.wire,
            "netem limit 106353 delay 10500us rate 8000tbit loss random 0.5% duplicate 0% corrupt 25%"
        );
        assert_eq!((nothing.table, all.table), (None, None));
        assert!(of("duplicate=100%").unwrap().wire.contains(" duplicate 100% "));
        // In its third place `tc` has the loss within.
        assert!(of("burst=1%,20%,50%,3%").unwrap().wire.contains(" loss gemodel 1% 20% 50% 3% "));
        // A half is rounded up.
        assert!(of("delay=1500ns").unwrap().wire.contains(" delay 2us "));
    }

    #[test]
    fn jitter_comes_with_its_law_and_keeps_the_order_by_a_rate() {
        let keeps = of("delay=10ms jitter=2ms").unwrap();
        let scale_us = keeps.table.unwrap().scale_us;
        assert!(
            keeps.wire.contains(&format!(" delay 10000us {scale_us}us distribution law rate 8000tbit ")),
            "{}",
            keeps.wire
        );
        let free = of("delay=10ms jitter=normal:2ms order=free").unwrap();
        assert!(free.wire.contains("us distribution law rate 0bit "), "{}", free.wire);
        // What is only ever added moves the middle.
        let added = of("delay=1ms jitter=file:times").unwrap();
        assert!(added.wire.contains(" delay 3000us ") && added.table.unwrap().middle_us == 2000, "{}", added.wire);
        let bare = of("jitter=normal:2ms").unwrap();
        assert!(bare.wire.contains(" delay 1us "), "{}", bare.wire);
        assert_eq!(of("jitter=0ms").unwrap(), of("").unwrap());
    }

    #[test]
    fn what_netem_cannot_do_is_refused_by_name() {
        for (options, option) in [
            ("drop_rate=10", "drop_rate"),
            ("ooo_rate=10 ooo_delay=1ms", "ooo_rate"),
            ("rate=1mbit queue=codel", "queue"),
            ("trace=changes", "trace"),
            ("memory=1MiB", "memory"),
            ("rate=1mbit limit=64KiB", "limit"),
            ("rate=1mbit limit=50ms", "limit"),
            ("loss=1% burst=1%,20%", "burst"),
            ("loss=1% duplicate=1%", "duplicate"),
            ("burst=1%,20% duplicate=1%", "duplicate"),
            ("delay=5ms jitter=1ms order=free duplicate=1%", "duplicate"),
            ("rate=1001bit", "rate"),
            ("delay=271s", "delay"),
            ("jitter=pareto:1s", "jitter"),
        ] {
            let refused = of(options).unwrap_err();
            assert!(
                refused.starts_with(&format!("{option}: the backend kernel cannot do it: ")),
                "{options}: {refused}"
            );
        }
    }
}
