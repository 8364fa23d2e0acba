//! Single packets: when they come, which, in which order, and how often.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use verbena_wan::Which;
use verbena_wan::router::Mode;

use super::{PATIENCE, probe, send, there, wan};

/// How far from what was asked the earliest of many datagrams was, before and after. What is behind it tells of a machine that is busy with other
/// things as much as of the router.
fn errors(options: &str, asked: Duration, mode: Mode, is_ipv4: bool) -> Option<(Duration, Duration)> {
    const COUNT: u64 = 100;
    let wan = wan(options, mode)?;
    let mut probe = probe(&wan, is_ipv4);
    let first = (0..COUNT).map(|_| probe.one_way(PATIENCE).unwrap().unwrap()).min().unwrap();
    let seen = there(&wan);
    assert_eq!((seen.counts.packets, seen.counts.arrived), (COUNT, COUNT));
    Some((asked.saturating_sub(first), first.saturating_sub(asked)))
}

#[test]
fn packets_take_the_delay_in_both_modes_and_families() {
    let ms = Duration::from_millis;
    for (options, asked, mode, is_ipv4) in [
        ("", ms(0), Mode::Precise, true),
        ("delay=10ms", ms(10), Mode::Precise, true),
        ("km=1000", ms(5), Mode::Precise, false),
        ("delay=5ms", ms(5), Mode::Sleep, true),
    ] {
        let Some((early, late)) = errors(options, asked, mode, is_ipv4) else { return };
        // What is taken off for handing a frame over is at most 10 us.
        assert!(
            early < Duration::from_micros(20) && late < ms(4),
            "{options} {mode:?}: {early:?} early, {late:?} late"
        );
    }
}

/// A router that took longer for a packet than it takes to the next would delay each by more than the one before it.
#[test]
fn the_last_of_a_burst_is_delayed_as_the_first_is() {
    const BURSTS: usize = 100;
    const PACKETS: usize = 40;
    const GAP: Duration = Duration::from_micros(20);
    let Some(wan) = wan("delay=1ms", Mode::Precise) else { return };
    let mut probe = probe(&wan, true);
    let (mut firsts, mut lasts) = (vec![], vec![]);
    for _ in 0..BURSTS {
        let mut sent: Vec<(u64, Instant)> = vec![];
        for _ in 0..PACKETS {
            let at = sent.last().map_or_else(Instant::now, |(_, before)| *before + GAP);
            while Instant::now() < at {
                std::hint::spin_loop();
            }
            let now = Instant::now();
            sent.push((probe.send(64).unwrap(), now));
        }
        let mut took = vec![];
        while took.len() < PACKETS {
            if let Some(number) = probe.receive().unwrap() {
                assert_eq!(number, sent[took.len()].0);
                took.push(sent[took.len()].1.elapsed());
            }
            assert!(sent[0].1.elapsed() < PATIENCE, "{} of {PACKETS} came", took.len());
        }
        firsts.push(took[0]);
        lasts.push(took[PACKETS - 1]);
    }
    // A quarter of them meet no machine that is elsewhere; each way of being late is late alone.
    let [first, last] = [&mut firsts, &mut lasts].map(|took| {
        took.sort();
        took[BURSTS / 4]
    });
    assert_eq!(there(&wan).counts.arrived, (BURSTS * PACKETS) as u64);
    assert!(first >= Duration::from_micros(980) && last < first + Duration::from_micros(500), "{first:?} {last:?}");
}

#[test]
fn of_every_block_exactly_one_packet_is_lost_and_the_order_is_kept() {
    let Some(wan) = wan("delay=1ms drop_rate=20", Mode::Precise) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan, true), 4000);
    assert_eq!((came.len(), seen.counts.dropped.drop_rate, seen.counts.dropped.all()), (3800, 200, 200));
    assert!(came.is_sorted(), "{came:?}");
    for block in 0..200 {
        assert_eq!(came.iter().filter(|number| **number / 20 == block).count(), 19, "block {block}");
    }
}

#[test]
fn of_every_block_exactly_one_packet_is_overtaken() {
    let Some(wan) = wan("delay=1ms ooo_rate=50 ooo_delay=60ms", Mode::Precise) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan, false), 2000);
    assert_eq!((came.len(), seen.counts.out_of_order, seen.counts.dropped.all()), (2000, 40, 0));
    let is_late = |(place, number): &(usize, &u64)| came[..*place].iter().any(|before| before > number);
    let late: Vec<u64> = came.iter().enumerate().filter(is_late).map(|(_, number)| *number).collect();
    let blocks: BTreeSet<u64> = late.iter().map(|number| number / 50).collect();
    // The last ones are overtaken only if others were sent after them.
    assert!(late.len() == blocks.len() && (38..=40).contains(&late.len()), "{late:?}");
}

#[test]
fn packets_arrive_twice_and_change_as_often_as_is_counted() {
    let Some(wan) = wan("duplicate=10%", Mode::Precise) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan, true), 3000);
    let twice = came.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!((twice, came.len() as u64), (seen.counts.duplicated, 3000 + seen.counts.duplicated));
    // 300, with a deviation of 16.
    assert!(twice.abs_diff(300) < 65, "{twice}");
}

/// A changed packet is found by its checksum and not handed to anybody, though the sender left the checksum to a network card.
#[test]
fn a_changed_packet_is_noticed_by_who_receives_it() {
    let Some(wan) = wan("corrupt=100%", Mode::Precise) else { return };
    for is_ipv4 in [true, false] {
        let mut probe = probe(&wan, is_ipv4);
        for _ in 0..300 {
            probe.send(600).unwrap();
        }
        let mut seen = there(&wan);
        let began = Instant::now();
        while seen.counts.arrived < if is_ipv4 { 300 } else { 600 } {
            assert!(began.elapsed() < PATIENCE, "{seen:?}");
            std::thread::sleep(Duration::from_millis(2));
            seen = there(&wan);
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(seen.counts.corrupted, seen.counts.packets);
        // What was changed in the header of IPv6 where no sum looks (class, flow, hops) is as good as before: a few of a hundred.
        let came = std::iter::from_fn(|| probe.receive().unwrap()).count();
        assert!(came < 25, "{came} of 300 changed packets were taken for good");
    }
}

#[test]
fn a_full_queue_drops_and_says_so_apart() {
    let Some(wan) = wan("rate=8mbit limit=10 loss=0", Mode::Precise) else { return };
    let mut probe = probe(&wan, true);
    for _ in 0..200 {
        probe.send(958).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let came: Vec<u64> = std::iter::from_fn(|| probe.receive().unwrap()).collect();
    let counts = there(&wan).counts;
    // 1000 bytes with headers are a millisecond each: what was sent in one is as much as the queue holds, and a few more.
    assert_eq!((counts.packets, counts.arrived), (200, came.len() as u64));
    assert_eq!(counts.dropped.queue_limit, 200 - came.len() as u64);
    assert!(counts.dropped.queue_limit == counts.dropped.all() && (11..=120).contains(&came.len()), "{counts:?}");
}

#[test]
fn a_link_changes_while_it_runs() {
    let Some(mut wan) = wan("delay=1ms", Mode::Precise) else { return };
    let mut probe = probe(&wan, true);
    let none = |path: &str| Err(path.to_owned());
    // Any one may meet a machine that is elsewhere.
    let least = (0..20).filter_map(|_| probe.one_way(PATIENCE).unwrap()).min().unwrap();
    assert!(least < Duration::from_millis(20), "{least:?}");
    wan.change("wan", Which::There, "delay=30ms", &none).unwrap();
    let took = probe.one_way(PATIENCE).unwrap().unwrap();
    assert!(took >= Duration::from_millis(29), "{took:?}");
    assert_eq!(wan.plan().links[0].ways[1].to_string(), "delay=1ms");
    wan.change("wan", Which::Both, "loss=100%", &none).unwrap();
    assert_eq!(probe.one_way(Duration::from_millis(60)).unwrap(), None);
    assert_eq!(there(&wan).counts.dropped.loss, 1);
    // Back to large frames, for which the end of the link is opened anew.
    wan.change("wan", Which::Both, "loss=none", &none).unwrap();
    assert!(probe.one_way(PATIENCE).unwrap().is_some());
    for (link, options, said) in
        [("sea", "delay=1ms", "no link \"sea\"; there are wan"), ("wan", "dealy=1ms", "no option")]
    {
        let error = wan.change(link, Which::Both, options, &none).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
