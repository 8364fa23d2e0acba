//! The same with real processes on real fabrics: what each coherence promises holds for what they write down, writers are killed in the middle of puts, and
//! values outlive views.

mod child;
mod ground;
mod station;
mod work;

use std::time::{Duration, Instant};

use verbena_memory::{Answer, Coherence, Refusal};
use verbena_testkit::machine;

use crate::common::history::{self, Histories, MODELS};
use child::{Node, next_view};
use ground::Ground;

/// What the other tests start. It does nothing where nobody told it what.
#[test]
fn child() {
    child::serve();
}

fn allocated(answer: &Answer) {
    assert!(matches!(answer, Answer::Allocated(_)), "{answer:?}");
}

fn promises_hold_on(provider: &str) {
    let Some(ground) = Ground::of(provider) else { return };
    let (station, operations) = (ground.station(), ground.operations());
    let mut nodes: Vec<Node> = (2..=4).map(|rank| ground.node(rank)).collect();
    next_view(1, 1, &station, &mut nodes);
    for (model, coherence) in MODELS.into_iter().enumerate() {
        allocated(&station.allocate(&work::name(model), work::WORDS as u64 * 8, coherence));
    }
    for node in &mut nodes {
        node.tell(&format!("work {operations}"));
    }
    // One of them is killed somewhere in it.
    std::thread::sleep(Duration::from_millis(150));
    nodes[2].kill();
    let mut lines = vec![];
    work::run(&station, 1, operations, |line| lines.push(line));
    let mut histories = Histories::default();
    let mut answered = work::read(&lines, &mut histories);
    for node in &mut nodes {
        answered += work::read(&node.all_until("done"), &mut histories);
    }
    let broken = histories.broken();
    assert!(broken.is_empty(), "{provider}: {broken:#?}");
    // Versions that were taken are answered too, but not counted.
    assert!(answered > 3 * operations * 8 / 10, "{provider}: {answered} answers");
    ground.is_used(&station);
    println!("counted: {provider}: {answered} answers");

    // The view without it has other memory, with the same values.
    let before: Vec<Answer> = (0..MODELS.len()).map(|model| station.get(&work::name(model))).collect();
    nodes.truncate(2);
    next_view(2, 1, &station, &mut nodes);
    for (model, before) in before.into_iter().enumerate() {
        assert_eq!(station.get(&work::name(model)), before, "{provider}: {}", MODELS[model]);
    }
    let answer = station.allocate(&work::name(3), 8, Coherence::Strict);
    assert!(matches!(answer, Answer::Refused(Refusal::Exists { .. })), "{answer:?}");
    nodes[0].tell("work 50");
    assert!(nodes[0].all_until("done").len() > 50);
}

#[test]
fn promises_hold_on_shm() {
    promises_hold_on("shm");
}

#[test]
fn promises_hold_on_tcp() {
    promises_hold_on("tcp");
}

#[test]
fn promises_hold_on_xdp() {
    promises_hold_on("xdp");
}

/// Segments at two homes, of which the one that is read is killed while all others get and put.
fn copies_hold_on(provider: &str) {
    let Some(ground) = Ground::of(provider) else { return };
    let (station, operations) = (ground.station(), ground.operations());
    let mut nodes: Vec<Node> = (2..=4).map(|rank| ground.node(rank)).collect();
    next_view(1, 3, &station, &mut nodes);
    let homes = |model: usize| match station.stat(&work::name(model)) {
        Answer::Stat { segment, .. } => segment.places().map(|place| place.home.rank.0).collect::<Vec<_>>(),
        answer => panic!("{provider}: {answer:?}"),
    };
    for (model, coherence) in MODELS.into_iter().enumerate() {
        let (name, bytes) = (work::name(model), work::WORDS as u64 * 8);
        let null = || station.allocate_at(&name, bytes, coherence, 1, 1);
        allocated(&if model == 0 { null() } else { station.allocate_at(&name, bytes, coherence, 2, 2) });
        assert_eq!(homes(model), if model == 0 { vec![1] } else { vec![2, 3] }, "{provider}: {coherence}");
    }
    let mut lines = vec![];
    std::thread::scope(|scope| {
        for node in &mut nodes {
            node.tell(&format!("work {operations}"));
        }
        scope.spawn(|| work::run(&station, 1, operations, |line| lines.push(line)));
        std::thread::sleep(Duration::from_millis(200));
        nodes[0].kill();
        // Its lease runs out.
        std::thread::sleep(Duration::from_millis(100));
        let mut rest = nodes.split_off(1);
        next_view(2, 2, &station, &mut rest);
        nodes.append(&mut rest);
    });
    let mut histories = Histories::default();
    let mut answered = work::read(&lines, &mut histories);
    for node in &mut nodes {
        answered += work::read(&node.all_until("done"), &mut histories);
    }
    // What is there when all have ended was put by somebody, and nothing that was done is lost.
    let mut last = vec![];
    work::look(&station, |line| last.push(line));
    work::read(&last, &mut histories);
    let broken = histories.broken();
    assert!(broken.is_empty(), "{provider}: {broken:#?}");
    assert!(answered > 3 * operations * 8 / 10, "{provider}: {answered} answers");
    let puts = |history: &history::History| history.puts.len();
    let strict = histories.of.values().find(|history| history.coherence == Coherence::Strict).map_or(0, puts);
    ground.is_used(&station);
    println!("counted: {provider}: {answered} answers, {strict} puts to the strict segment");
    // Another home has taken its place, and a third has a copy now.
    for (model, coherence) in MODELS.into_iter().enumerate().skip(1) {
        assert_eq!(homes(model), [3, 1], "{provider}: {coherence}");
    }
}

#[test]
fn a_home_that_is_killed_loses_nothing_of_which_there_is_a_copy() {
    ["shm", "tcp", "xdp"].into_iter().for_each(copies_hold_on);
}

/// Whether all that a reader sees beside two writers that do not pause are whole values, some of which were put between two gets. The reader has it in its own memory, and
/// both writers reach it by the fabric; or one of the writers has it, and the reader reaches it so.
fn is_whole_beside_writers(provider: &str, is_the_readers: bool) {
    const VERSIONS: usize = 50;
    let Some(ground) = Ground::of(provider) else { return };
    let station = ground.station();
    let mut nodes = [ground.node(2), ground.node(3)];
    next_view(1, 3, &station, &mut nodes);
    let (home, enough) = if is_the_readers { (1, 200) } else { (2, 50) };
    allocated(&station.allocate_at("large", ground.large(), Coherence::Read, home, 1));
    for node in &mut nodes {
        node.tell("fill large");
        node.hear("filling");
    }
    let (mut gets, mut versions, until) = (0, vec![], Instant::now() + Duration::from_secs(60));
    while (gets < enough || versions.len() < VERSIONS) && Instant::now() < until {
        let Answer::Value(value) = station.get("large") else { continue };
        let (words, _) = value.bytes.as_chunks::<8>();
        let other = words.iter().position(|word| *word != words[0]);
        assert_eq!(other, None, "{provider}: half a value, of version {}", value.version);
        gets += 1;
        versions.push(value.version);
        versions.dedup();
    }
    assert!(versions.is_sorted(), "{provider}: {versions:?}");
    if is_the_readers {
        ground.is_used(&station);
    }
    println!("counted: {provider}: {gets} gets, {} versions of {:?}", versions.len(), versions.last());
    assert!(versions.len() >= 20, "{provider}: {gets} gets saw {} versions", versions.len());
}

#[test]
fn a_reader_beside_writers_sees_whole_values() {
    ["shm", "tcp", "xdp"].into_iter().for_each(|provider| is_whole_beside_writers(provider, true));
}

#[test]
fn a_reader_of_a_writers_memory_sees_whole_values() {
    ["shm", "tcp", "xdp"].into_iter().for_each(|provider| is_whole_beside_writers(provider, false));
}

/// How many of the values that writers left who were killed in the middle of puts are no one put's. It ends when there are enough.
fn torn_by_killing(ground: &Ground, coherence: Coherence, rounds: u32, enough: u32) -> u32 {
    let (station, provider) = (ground.station(), ground.name());
    let mut torn = 0;
    for round in 1..=rounds {
        let mut nodes = [ground.node(round + 1)];
        next_view(round, 1, &station, &mut nodes);
        if round == 1 {
            allocated(&station.allocate("large", ground.huge(), coherence));
        }
        nodes[0].tell("fill large");
        nodes[0].hear("filling");
        std::thread::sleep(Duration::from_millis(u64::from(round) * 7 % 40));
        nodes[0].kill();
        // In the view in which it was killed: nothing has to be repaired.
        let Answer::Value(value) = station.get("large") else { panic!("{provider}: it is not there") };
        let (words, _) = value.bytes.as_chunks::<8>();
        assert!(u64::from_le_bytes(words[0]) >> 32 == u64::from(round + 1), "{provider}: somebody else's value");
        torn += u32::from(words.iter().any(|word| *word != words[0]));
        let answer = station.put("large", 0, vec![7; 8], None);
        assert!(matches!(answer, Answer::Put(_)), "{provider}: {answer:?}");
        if torn == enough {
            break;
        }
    }
    torn
}

fn old_values_stay_on(provider: &str) {
    let ground = || Ground::of(provider);
    let (Some(first), Some(second)) = (ground(), ground()) else { return };
    // Where nothing is promised it is seen that they were in the middle of it.
    let enough = first.enough_killed();
    let torn = torn_by_killing(&first, Coherence::Null, 60, enough);
    assert_eq!(torn, enough, "{provider}: of 60 so many were killed in the middle of a put");
    assert_eq!(torn_by_killing(&second, Coherence::Read, 6 * enough, 1), 0, "{provider}");
    println!("counted: {provider}: {torn} were killed in the middle of a put, and {} left the old value", 6 * enough);
}

#[test]
fn a_writer_that_is_killed_in_the_middle_of_a_put_leaves_the_old_value() {
    ["shm", "tcp", "xdp"].into_iter().for_each(old_values_stay_on);
}

#[test]
fn soft_roce() {
    machine::in_machine_at_length("rxe", "processes::inside_rxe");
}

#[test]
fn soft_iwarp() {
    machine::in_machine_at_length("siw", "processes::inside_siw");
}

#[test]
fn inside_rxe() {
    all_hold_in_a_machine("rxe");
}

#[test]
fn inside_siw() {
    all_hold_in_a_machine("siw");
}

fn all_hold_in_a_machine(kind: &str) {
    if machine::is_inside() {
        [promises_hold_on, copies_hold_on, old_values_stay_on].into_iter().for_each(|holds| holds(kind));
        [true, false].into_iter().for_each(|is_the_readers| is_whole_beside_writers(kind, is_the_readers));
    }
}
