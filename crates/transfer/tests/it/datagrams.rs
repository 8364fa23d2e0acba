//! Streams on datagrams over a simulated link: what was written is read, the rate follows the link, and each rule that is switched off is seen.

use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_terms::Time;
use verbena_transfer::{DatagramError, DatagramRules, Datagrams};

use crate::datagram_link::{LONG, Link, World, bytes};

const ALL: DatagramRules = DatagramRules::ALL;
/// A link that loses everything.
const DEAD: Link = Link { loss: 10_000, ..LONG };

#[test]
fn what_was_written_is_read_whatever_the_link_does() {
    let seeds = if std::env::var_os("VERBENA_LONG").is_some() { 10_000 } else { 150 };
    let mut refused = 0;
    for seed in 0..seeds {
        let mut chance = Pcg64::seed_from_u64(seed + 1000);
        let mut below = |limit: u64| chance.next_u64() % limit;
        let link = Link {
            rate: [20e3, 1e6, 100e6][below(3) as usize],
            delay: Duration::from_micros(below(60_000)),
            queue: [4e3, 40e3, 1e6][below(3) as usize],
            loss: [0, 10, 500, 2500][below(4) as usize],
            late: [0, 300, 5000][below(3) as usize],
            later: Duration::from_micros(1 + below(40_000)),
            twice: [0, 2000][below(2) as usize],
            flipped: [0, 500][below(2) as usize],
        };
        let sent = bytes(below(400_000) as usize);
        let mut world = World::new(seed, link, sent.clone());
        // The end is told at any time.
        world.run(Duration::from_millis(below(500)));
        while world.written < sent.len() {
            world.run(Duration::from_millis(100));
        }
        world.ends.iter_mut().for_each(Datagrams::finish);
        for _ in 0..6000 {
            if world.ends[0].is_delivered() && world.ends[1].is_at_end() && world.ends[0].is_at_end() {
                break;
            }
            world.run(Duration::from_millis(100));
        }
        assert!(world.read == sent, "seed {seed}: {} of {} bytes: {link:?}", world.read.len(), sent.len());
        assert!(world.ends[0].is_over() && world.ends[1].is_at_end(), "seed {seed}: no end: {link:?}");
        assert_eq!((world.ends[0].error(), world.ends[1].error()), (None, None), "seed {seed}");
        refused += world.refused;
    }
    assert!(refused > 100, "{refused} packets with flipped bits were refused");
}

#[test]
fn a_link_is_filled_and_its_losses_alone_slow_nothing_down() {
    for (seed, loss) in [(1, 0), (2, 10), (3, 50)] {
        let mut world = World::new(seed, Link { loss, ..LONG }, bytes(200 << 20));
        world.run(Duration::from_secs(2));
        let before = world.read.len();
        world.run(Duration::from_secs(8));
        let part = (world.read.len() - before) as f64 / 8.0 / LONG.rate;
        eprintln!("loss {loss}: {part:.3} of the link; {} of {} overflowed", world.overflowed, world.went);
        assert!(part > 0.85, "loss {loss}: {part:.2} of the link");
        // It does not pay for that with a queue that overflows.
        assert!(world.overflowed * 50 < world.went, "{} of {} overflowed", world.overflowed, world.went);
        let counts = world.ends[0].counts();
        assert!(counts.packets > 1000 && counts.again * 25 < counts.packets, "{counts:?}");
    }
}

/// Before the first acknowledgement nothing says how long one takes: half a second is no loss.
#[test]
fn a_round_trip_of_half_a_second_is_no_loss() {
    let far = Link { delay: Duration::from_millis(250), queue: LONG.rate, ..LONG };
    let mut world = World::new(1, far, bytes(200 << 20));
    world.run(Duration::from_millis(900));
    let counts = world.ends[0].counts();
    assert!(counts.packets >= 10 && counts.again == 0, "{counts:?}");
    world.run(Duration::from_secs(10));
    let read = world.read.len();
    eprintln!("{read} bytes in 11 s");
    assert!(read as f64 > LONG.rate * 5.0, "{read} bytes in 11 s");
}

#[test]
fn it_slows_down_with_the_link_and_does_not_send_blindly() {
    let mut world = World::new(4, LONG, bytes(200 << 20));
    world.run(Duration::from_secs(3));
    // A tenth of the link is left: after a second the rest fits.
    world.links[0].rate = LONG.rate / 10.0;
    world.run(Duration::from_secs(1));
    let (went, overflowed) = (world.went, world.overflowed);
    world.run(Duration::from_secs(5));
    let (went, overflowed) = (world.went - went, world.overflowed - overflowed);
    assert!(overflowed * 20 < went, "{overflowed} of {went} overflowed");
    assert!(world.ends[0].rate() < LONG.rate / 5.0, "{}", world.ends[0].rate());
    // Nothing arrives: it falls silent but for a few tries, and goes on when the link is back.
    world.links = [DEAD; 2];
    world.run(Duration::from_secs(1));
    let went = world.went;
    world.run(Duration::from_secs(10));
    assert!(world.went - went < 400, "{} packets without any answer", world.went - went);
    world.links = [LONG; 2];
    let read = world.read.len();
    world.run(Duration::from_secs(10));
    assert!(world.read.len() - read > 20 << 20, "{} bytes", world.read.len() - read);
    assert_eq!(world.ends[0].error(), None);
}

#[test]
fn a_dead_peer_ends_a_stream_after_a_minute_and_a_closed_one_at_once() {
    let mut world = World::new(4, LONG, bytes(1 << 20));
    world.run(Duration::from_secs(3));
    world.links = [DEAD; 2];
    world.run(Duration::from_secs(50));
    assert_eq!(world.ends.each_ref().map(Datagrams::error), [None; 2]);
    world.run(Duration::from_secs(20));
    assert_eq!(world.ends.each_ref().map(Datagrams::error), [Some(DatagramError::Silent); 2]);
    let mut world = World::new(5, Link { loss: 2000, ..LONG }, bytes(1 << 20));
    world.run(Duration::from_millis(50));
    world.ends[0].abort();
    world.run(Duration::from_secs(5));
    assert_eq!(world.ends.each_ref().map(Datagrams::error), [Some(DatagramError::Closed); 2]);
    let went = world.went;
    world.run(Duration::from_secs(100));
    assert_eq!(world.went, went, "what was closed goes on");
}

#[test]
fn a_reader_that_rests_holds_the_sender_up_and_not_its_memory() {
    let sent = bytes(60 << 20);
    for rules in [ALL, DatagramRules { grant: false, ..ALL }] {
        let link = Link { rate: 100e6, loss: 20, queue: 2e6, ..LONG };
        let mut world = World::with_rules(rules, 5, link, sent.clone());
        world.is_reading = false;
        world.run(Duration::from_secs(20));
        let held = world.ends[1].held();
        assert_eq!(held <= 16 << 20, rules.grant, "{held} bytes wait for the reader");
        assert_eq!(world.written <= 33 << 20, rules.grant, "{} bytes were taken", world.written);
        if !rules.grant {
            continue;
        }
        // Pings keep it for as long as it takes.
        world.run(Duration::from_secs(200));
        assert_eq!(world.ends.each_ref().map(Datagrams::error), [None; 2]);
        world.is_reading = true;
        world.run(Duration::from_secs(20));
        assert!(world.read == sent, "{} bytes", world.read.len());
    }
}

/// The longest queue of a link that keeps all that waits, in seconds, once the start is over; and the part that a short queue loses.
fn queue_and_loss(rules: DatagramRules) -> (f64, f64) {
    let mut deep = World::with_rules(rules, 6, Link { queue: 1e9, ..LONG }, bytes(100 << 20));
    deep.run(Duration::from_secs(3));
    deep.longest_queue = 0.0;
    deep.run(Duration::from_secs(4));
    let mut short = World::with_rules(rules, 7, Link { queue: 25e3, ..LONG }, bytes(100 << 20));
    short.run(Duration::from_secs(3));
    let (went, overflowed) = (short.went, short.overflowed);
    short.run(Duration::from_secs(4));
    (deep.longest_queue / LONG.rate, (short.overflowed - overflowed) as f64 / (short.went - went).max(1) as f64)
}

#[test]
fn without_slowing_down_a_queue_grows_or_overflows() {
    let all = queue_and_loss(ALL);
    let no_delay = queue_and_loss(DatagramRules { slow_on_delay: false, ..ALL });
    let no_loss = queue_and_loss(DatagramRules { slow_on_loss: false, ..ALL });
    eprintln!("all rules {all:.3?}, without delay {no_delay:.3?}, without loss {no_loss:.3?}");
    assert!(all.0 < 0.02 && all.1 < 0.04, "{all:?}");
    assert!(no_delay.0 > 0.5, "{no_delay:?}");
    assert!(no_loss.1 > 0.15, "{no_loss:?}");
}

#[test]
fn without_fresh_numbers_an_acknowledgement_is_taken_for_another_packet() {
    let link = Link { loss: 200, late: 500, later: Duration::from_millis(60), ..LONG };
    let sent = bytes(4 << 20);
    let stand = |rules| {
        let stands = |seed: &u64| {
            let mut world = World::with_rules(rules, *seed, link, sent.clone());
            world.run(Duration::from_secs(20));
            world.read != sent
        };
        (0..5).filter(stands).count()
    };
    assert_eq!(stand(ALL), 0);
    assert!(stand(DatagramRules { fresh_numbers: false, ..ALL }) > 0);
}

/// The part of what two flows move that the datagrams have.
fn share_beside_a_rival(queue: f64) -> f64 {
    let mut world = World::new(8, Link { queue, ..LONG }, bytes(900 << 20));
    world.run(Duration::from_secs(5));
    world.rival(true);
    world.run(Duration::from_secs(20));
    let (read, rival) = (world.read.len(), world.rival(true));
    world.run(Duration::from_secs(40));
    let (ours, theirs) = ((world.read.len() - read) as f64, world.rival(true) - rival);
    // It takes the link again once it is alone.
    world.rival(false);
    world.run(Duration::from_secs(10));
    let read = world.read.len();
    world.run(Duration::from_secs(4));
    let part = (world.read.len() - read) as f64 / 4.0 / LONG.rate;
    let (share, used) = (ours / (ours + theirs), (ours + theirs) / 40.0 / LONG.rate);
    eprintln!("queue of {queue}: {share:.2} of what both move, {used:.2} of the link; alone again {part:.2}");
    assert!(part > 0.8, "alone again {part:.2} of the link");
    share
}

#[test]
fn beside_a_flow_like_tcp_both_have_a_share() {
    for queue in [60e3, 250e3, 1e6] {
        let share = share_beside_a_rival(queue);
        assert!((0.1..=0.96).contains(&share), "queue of {queue}: {share:.2}");
    }
}

#[test]
fn any_packet_is_taken_or_passed_over() {
    let mut chance = Pcg64::seed_from_u64(6);
    let mut end = Datagrams::new(Time::ZERO);
    end.write(&bytes(100_000));
    for step in 0..20_000u64 {
        let now = Time::ZERO + Duration::from_micros(step * 100);
        let length = chance.next_u64() as usize % 60;
        let mut body: Vec<u8> = (0..length).map(|_| (chance.next_u64() >> 7) as u8).collect();
        let mut polled = Vec::new();
        if end.poll(now, &mut polled).is_some() && step % 2 == 0 {
            body = polled;
            for _ in 0..chance.next_u64() % 4 {
                let at = chance.next_u64() as usize % body.len().min(40);
                body[at] = (chance.next_u64() >> 9) as u8;
            }
        }
        end.packet(now, chance.next_u64() >> (chance.next_u64() % 64), &body);
        end.read(&mut [0; 100]);
        end.deadline();
        assert!(end.held() <= Datagrams::MOST_HELD);
    }
}
