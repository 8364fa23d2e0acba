//! The tuner on a simulated link: a rate, a delay, a queue, loss, other flows, and a window for each stream.

use std::time::Duration;

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_terms::Time;
use verbena_transfer::{
    ChannelKind, Decision, LOOK_EVERY, Lanes, MOST_STREAMS, Sample, Step, Tuner, TunerSettings, Why,
};

const PACKET: f64 = 1448.0;

/// A link in which flows share what it carries.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Bytes per second.
    rate: f64,
    round_trip: f64,
    /// Bytes that one stream may have under way.
    window: f64,
    /// The chance of a packet to be lost, whatever the load.
    loss: f64,
    /// Flows of others.
    others: f64,
    /// Packets that a flow loses at its queue for each that it sends, once the link is full.
    overflow: f64,
}

const LONG: Link = Link { rate: 1e9, round_trip: 0.02, window: 3e6, loss: 0.0, others: 0.0, overflow: 1e-4 };

impl Link {
    /// What `streams` get: bytes per second, and the part that is lost.
    fn carries(&self, streams: f64) -> (f64, f64) {
        let mut one = self.window / self.round_trip;
        if self.loss > 0.0 {
            // Mathis, Semke, Mahdavi, Ott 1997: what a stream that halves at each loss reaches.
            one = one.min(PACKET / self.round_trip * 1.22 / self.loss.sqrt());
        }
        let share = self.rate * streams / (streams + self.others);
        let is_full = streams * one >= share;
        (share.min(streams * one), self.loss + if is_full { self.overflow * streams } else { 0.0 })
    }
}

struct Run {
    tuner: Tuner,
    now: Time,
    link: Link,
    /// What the second channel gets of it.
    other: Link,
    /// And the third.
    last: Link,
    chance: Pcg64,
    noise: f64,
    /// Streams that are there.
    joined: u16,
}

fn settings(first: u16, channels: &[ChannelKind]) -> TunerSettings {
    TunerSettings { first, most: MOST_STREAMS, channels: channels.to_vec() }
}

impl Run {
    fn new(link: Link, first: u16, seed: u64) -> Run {
        let now = Time::ZERO + Duration::from_secs(5);
        let tuner = Tuner::new(settings(first, &[ChannelKind::Tcp]), now);
        let chance = Pcg64::seed_from_u64(seed);
        Run { tuner, now, link, other: link, last: link, chance, noise: 0.03, joined: MOST_STREAMS }
    }

    /// A session of two channels.
    fn of_two(link: Link, other: Link, seed: u64) -> Run {
        let mut run = Run { other, ..Run::new(link, 1, seed) };
        run.tuner = Tuner::new(settings(1, &[ChannelKind::Tcp, ChannelKind::Quic]), run.now);
        run
    }

    /// A session of three.
    fn of_three([link, other, last]: [Link; 3], seed: u64) -> Run {
        let mut run = Run { other, last, ..Run::new(link, 1, seed) };
        let channels = [ChannelKind::Tcp, ChannelKind::Quic, ChannelKind::Udp];
        run.tuner = Tuner::new(settings(1, &channels), run.now);
        run
    }

    /// Lets time go on, and gives what was decided.
    fn go_on(&mut self, most: Duration) -> Vec<Decision> {
        let (until, mut all) = (self.now + most, Vec::new());
        while self.now < until {
            let step = Duration::from_millis(20 + self.chance.next_u64() % 20);
            self.now = self.now + step;
            let channel = self.tuner.channel();
            let link = match channel {
                ChannelKind::Tcp => self.link,
                ChannelKind::Quic => self.other,
                _ => self.last,
            };
            let (rate, loss) = link.carries(f64::from(self.tuner.streams()));
            let noise = 1.0 + self.noise * ((self.chance.next_u64() % 2001) as f64 / 1000.0 - 1.0);
            let bytes = rate * noise * step.as_secs_f64();
            let packets = bytes / PACKET;
            let sample = Sample {
                bytes: bytes as u64,
                packets: packets as u64,
                again: (packets * loss).round() as u64,
                round_trip: Some(Duration::from_secs_f64(link.round_trip)),
                is_idle: false,
                is_draining: false,
                streams: self.joined,
            };
            let before = self.tuner.streams();
            match self.tuner.sample(self.now, sample) {
                None => assert_eq!(self.tuner.streams(), before, "a change that nobody was told of"),
                Some(Step::Streams(count)) => {
                    assert_eq!(count, self.tuner.streams());
                    let is_double_or_half = count == before * 2 || count == before / 2;
                    assert!(is_double_or_half && (1..=MOST_STREAMS).contains(&count), "{before} to {count}");
                }
                Some(Step::Channel(kind)) => {
                    assert_eq!((kind, before), (self.tuner.channel(), self.tuner.streams()), "one thing at a time");
                    let place =
                        [ChannelKind::Tcp, ChannelKind::Quic, ChannelKind::Udp].iter().position(|one| *one == kind);
                    let first = MOST_STREAMS * place.unwrap() as u16;
                    assert_eq!(self.tuner.lanes(), Lanes { first, count: before });
                }
            }
            all.extend(self.tuner.decisions());
        }
        all
    }
}

fn show(decisions: &[Decision]) -> String {
    decisions.iter().map(|decision| format!("{decision}\n")).collect()
}

#[test]
fn streams_are_added_while_they_pay() {
    for seed in 0..200 {
        // One stream is held by its window at 150 MB/s: eight fill 1 GB/s.
        let mut run = Run::new(LONG, 1, seed);
        let decisions = run.go_on(Duration::from_secs(4));
        assert_eq!(run.tuner.streams(), 8, "seed {seed}:\n{}", show(&decisions));
        // Where one stream fills the link, a second one was tried and taken back.
        let mut run = Run::new(Link { window: 3e7, ..LONG }, 1, seed);
        let decisions = run.go_on(Duration::from_secs(4));
        assert_eq!(run.tuner.streams(), 1, "seed {seed}:\n{}", show(&decisions));
        let whys: Vec<Why> = decisions.iter().map(|decision| decision.why).collect();
        assert_eq!(whys, [Why::Start, Why::Look, Why::NoGain]);
        // On a link that loses one in a thousand every stream pays.
        let mut run = Run::new(Link { loss: 0.001, ..LONG }, 1, seed);
        run.go_on(Duration::from_secs(8));
        assert_eq!(run.tuner.streams(), MOST_STREAMS, "seed {seed}");
    }
}

#[test]
fn packets_that_are_sent_again_end_the_growth() {
    for seed in 0..200 {
        // Beside four flows of others each stream pays, but eight of them overflow the queue.
        let link = Link { window: 3e7, others: 4.0, overflow: 0.003, ..LONG };
        let mut run = Run::new(link, 1, seed);
        let decisions = run.go_on(Duration::from_secs(5));
        assert_eq!(run.tuner.streams(), 4, "seed {seed}:\n{}", show(&decisions));
        assert!(decisions.iter().any(|decision| decision.why == Why::SentAgain));
        // A start from an earlier session is a place to start, no more.
        let mut run = Run::new(link, 16, seed);
        run.go_on(Duration::from_secs(40));
        assert!(run.tuner.streams() <= 4, "seed {seed}");
    }
}

#[test]
fn it_looks_again_each_ten_seconds_and_follows_the_link() {
    let mut run = Run::new(Link { window: 3e7, ..LONG }, 1, 1);
    run.go_on(Duration::from_secs(5));
    assert_eq!(run.tuner.streams(), 1);
    run.link.others = 3.0;
    let decisions = run.go_on(Duration::from_secs(20));
    assert!(run.tuner.streams() >= 8, "{}", show(&decisions));
    let looks: Vec<Duration> =
        run.go_on(Duration::from_secs(60)).iter().filter(|one| one.why == Why::Most).map(|one| one.at).collect();
    assert!(looks.windows(2).all(|pair| pair[1] - pair[0] >= LOOK_EVERY), "{looks:?}");
}

#[test]
fn what_a_disk_holds_up_says_nothing_of_the_link() {
    let mut tuner = Tuner::new(settings(1, &[ChannelKind::Tcp]), Time::ZERO);
    for step in 1..5000u64 {
        let sample = Sample { bytes: step * 1000, is_idle: step % 3 == 0, streams: 16, ..Sample::default() };
        assert_eq!(tuner.sample(Time::ZERO + Duration::from_millis(step * 20), sample), None);
    }
    assert_eq!(tuner.decisions().len(), 1);
}

/// TCP gets a part of what the link carries, because it takes each loss for a full queue.
const LOSSY: Link = Link { loss: 0.001, ..LONG };

#[test]
fn where_tcp_loses_packets_the_better_channel_stays() {
    for seed in 0..200 {
        // A channel that a loss does not slow down, and that one stream of fills half of the link.
        let better = Link { window: 1e7, ..LONG };
        let mut run = Run::of_two(LOSSY, better, seed);
        let decisions = run.go_on(Duration::from_secs(20));
        assert_eq!(run.tuner.channel(), ChannelKind::Quic, "seed {seed}:\n{}", show(&decisions));
        let tried = decisions.iter().find(|one| one.why == Why::Lossy).unwrap();
        assert_eq!((tried.channel, tried.step), (ChannelKind::Tcp, Some(Step::Channel(ChannelKind::Quic))));
        assert!(tried.measured().again * 2000 > tried.measured().packets && tried.measured().round_trip_us == 20_000);
        // One that is no better is left again, with the streams from before, and gets no second trial for a minute.
        let mut run = Run::of_two(LOSSY, LOSSY, seed);
        let decisions = run.go_on(Duration::from_secs(50));
        let back: Vec<&Decision> =
            decisions.iter().filter(|one| one.step == Some(Step::Channel(ChannelKind::Tcp))).collect();
        assert_eq!((run.tuner.channel(), back.len()), (ChannelKind::Tcp, 1), "seed {seed}:\n{}", show(&decisions));
        assert_eq!((back[0].why, run.tuner.streams()), (Why::NoGain, MOST_STREAMS));
        let text = show(&decisions);
        assert!(text.contains("try quic") && text.contains("it is no tenth more, go back to tcp"), "{text}");
        let later = run.go_on(Duration::from_secs(60));
        assert_eq!(later.iter().filter(|one| one.why == Why::Lossy).count(), 1, "{}", show(&later));
        // Where nothing is lost, no other channel is tried, however good.
        let mut run = Run::of_two(Link { overflow: 0.0, ..LONG }, better, seed);
        let decisions = run.go_on(Duration::from_secs(30));
        assert!(decisions.iter().all(|one| one.channel == ChannelKind::Tcp), "{}", show(&decisions));
    }
}

#[test]
fn udp_is_tried_last_and_stays_only_where_it_measures_better() {
    let better = Link { window: 1e7, ..LONG };
    for seed in 0..100 {
        let trials = |decisions: &[Decision]| -> Vec<Option<Step>> {
            decisions.iter().filter(|one| one.why == Why::Lossy).map(|one| one.step).collect()
        };
        let [quic, udp] = [ChannelKind::Quic, ChannelKind::Udp].map(|kind| Some(Step::Channel(kind)));
        let mut run = Run::of_three([LOSSY, LOSSY, better], seed);
        let decisions = run.go_on(Duration::from_secs(50));
        assert_eq!(run.tuner.channel(), ChannelKind::Udp, "seed {seed}:\n{}", show(&decisions));
        assert_eq!(trials(&decisions), [quic, udp]);
        // No better than the others: each has one trial within a minute.
        let mut run = Run::of_three([LOSSY; 3], seed);
        let decisions = run.go_on(Duration::from_secs(50));
        assert_eq!(run.tuner.channel(), ChannelKind::Tcp, "seed {seed}:\n{}", show(&decisions));
        assert_eq!(trials(&decisions), [quic, udp]);
        // From a channel that does better and still loses packets it is tried, and no tenth more is not enough.
        let mut run = Run::of_three([LOSSY, better, better], seed);
        let decisions = run.go_on(Duration::from_secs(50));
        assert_eq!(run.tuner.channel(), ChannelKind::Quic, "seed {seed}:\n{}", show(&decisions));
        assert_eq!(trials(&decisions)[..2], [quic, udp], "{}", show(&decisions));
        assert!(show(&decisions).contains("its congestion control takes for a full link, try udp"));
        let mut run = Run::of_three([Link { overflow: 0.0, ..LONG }, better, better], seed);
        let decisions = run.go_on(Duration::from_secs(30));
        assert!(trials(&decisions).is_empty(), "{}", show(&decisions));
    }
}

#[test]
fn a_channel_that_cannot_be_reached_is_not_tried_again() {
    let mut run = Run::of_two(LOSSY, LOSSY, 5);
    while run.tuner.channel() == ChannelKind::Tcp {
        run.go_on(Duration::from_millis(20));
    }
    let streams = run.tuner.streams();
    assert_eq!(run.tuner.refused(0, run.now), Step::Channel(ChannelKind::Tcp));
    assert_eq!(run.tuner.lanes(), Lanes { first: 0, count: streams });
    let decisions = run.go_on(Duration::from_secs(200));
    assert!(show(&decisions).contains("no stream of it could be made, go back to tcp"), "{}", show(&decisions));
    assert!(decisions.iter().skip(1).all(|one| one.channel == ChannelKind::Tcp), "{}", show(&decisions));
    // A stream that never comes says the same after ten seconds.
    let mut run = Run::of_two(LOSSY, LOSSY, 5);
    while run.tuner.channel() == ChannelKind::Tcp {
        run.go_on(Duration::from_millis(20));
    }
    run.joined = 0;
    let decisions = run.go_on(Duration::from_secs(11));
    assert_eq!(run.tuner.channel(), ChannelKind::Tcp, "{}", show(&decisions));
}

#[test]
fn a_channel_is_judged_once_the_streams_of_the_other_are_empty() {
    let mut run = Run::of_two(LOSSY, Link { window: 1e7, ..LONG }, 6);
    while run.tuner.channel() == ChannelKind::Tcp {
        run.go_on(Duration::from_millis(20));
    }
    run.tuner.decisions();
    for _ in 0..1000 {
        run.now = run.now + Duration::from_millis(20);
        let sample = Sample { bytes: 1000, is_draining: true, streams: 16, ..Sample::default() };
        assert_eq!(run.tuner.sample(run.now, sample), None);
    }
    let decisions = run.go_on(Duration::from_secs(2));
    assert_eq!(run.tuner.channel(), ChannelKind::Quic, "{}", show(&decisions));
}

#[test]
fn a_stream_that_cannot_be_made_is_not_asked_for_again() {
    let mut run = Run::new(LONG, 1, 3);
    while run.tuner.streams() < 4 {
        run.go_on(Duration::from_millis(100));
    }
    run.tuner.refused(3, run.now);
    let decisions = run.go_on(Duration::from_secs(60));
    assert_eq!(run.tuner.streams(), 3, "{}", show(&decisions));
}

#[test]
fn a_count_is_judged_once_its_streams_are_there() {
    let mut run = Run::new(LONG, 1, 4);
    run.joined = 1;
    // The link carries twice as much from the moment at which the second one is there.
    let late = run.go_on(Duration::from_secs(3));
    assert_eq!((run.tuner.streams(), late.len()), (2, 2), "{}", show(&late));
    run.joined = 16;
    run.go_on(Duration::from_secs(4));
    assert_eq!(run.tuner.streams(), 8);
    // One that never comes is given up.
    let mut run = Run::new(LONG, 1, 4);
    run.joined = 1;
    let decisions = run.go_on(Duration::from_secs(60));
    assert_eq!(run.tuner.streams(), 1, "{}", show(&decisions));
    assert_eq!(decisions.last().unwrap().why, Why::Most);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_it_is_told_it_changes_one_thing_and_writes_it_down(
        samples in proptest::collection::vec((0u64..u64::MAX / 4096, any::<u32>(), any::<u32>(), 0u64..4_000, any::<bool>()), 1..400),
        first in any::<u16>(),
    ) {
        let mut tuner = Tuner::new(settings(first, &ChannelKind::ALL), Time::ZERO);
        let (mut now, mut streams) = (Time::ZERO, tuner.streams());
        prop_assert_eq!(tuner.decisions().len(), 1);
        for (bytes, packets, again, millis, is_idle) in samples {
            now = now + Duration::from_millis(millis);
            let round_trip = Some(Duration::from_millis(u64::from(again) % 500));
            let sample = Sample { bytes: bytes / 4096, packets: packets.into(), again: again.into(), round_trip, is_idle, is_draining: packets % 5 == 0, streams: first % 17 };
            let step = tuner.sample(now, sample);
            let decisions = tuner.decisions();
            prop_assert!((1..=MOST_STREAMS).contains(&tuner.streams()));
            prop_assert!(tuner.lanes().numbers().end <= verbena_transfer::MOST_NUMBERS);
            prop_assert!(decisions.len() <= 1);
            if let Some(step) = step {
                prop_assert_eq!(decisions.last().and_then(|decision| decision.step), Some(step));
            }
            if !matches!(step, Some(Step::Streams(_) | Step::Channel(_))) {
                prop_assert_eq!(tuner.streams(), streams);
            }
            prop_assert!(decisions.iter().all(|decision| !decision.to_string().is_empty()));
            streams = tuner.streams();
        }
    }
}
