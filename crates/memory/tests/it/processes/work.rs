//! What a node does: gets and puts of all coherences, each with a line before and after.

use std::time::Duration;

use verbena_fabric::sim::Dice;
use verbena_memory::{Answer, Coherence, Refusal, SegmentId};
use verbena_terms::{BootClock, Clock, Incarnation, Time};

use crate::common::history::{Fate, GetOf, Histories, MODELS, Manner, PutOf, manner};
use crate::processes::station::Station;

/// Words of a value: it takes a while to write.
pub const WORDS: usize = 4096;
/// Parts of one that is put in parts, each of so many words that it takes a while too.
const CELLS: usize = 8;
const CELL_WORDS: usize = WORDS / CELLS;

pub fn name(model: usize) -> String {
    format!("s{model}")
}

/// So many operations on segments of all coherences. What is written down holds for the same machine's other processes: their clock is one.
pub fn run(station: &Station, rank: u32, operations: u64, mut log: impl FnMut(String)) {
    let mut dice = Dice::new(u64::from(rank));
    let mut versions = [1; MODELS.len()];
    for nth in 1..=operations {
        let model = if dice.below(3) == 0 { 3 } else { dice.below(MODELS.len() as u64) as usize };
        let coherence = MODELS[model];
        let begun = BootClock.now().nanos();
        if dice.below(2) == 0 {
            let some = (dice.below(3) == 0).then(|| dice.below(CELLS as u64) as usize);
            versions[model] = get(station, model, some, &mut log);
        } else {
            let number = u64::from(rank) << 32 | nth;
            let cell = match manner(model) {
                Manner::Whole => None,
                Manner::Owned => Some(rank as usize % CELLS),
                Manner::Mixed => (dice.below(4) > 0).then(|| dice.below(CELLS as u64) as usize),
            };
            let named = (coherence == Coherence::Version).then_some(versions[model]);
            let bytes = number.to_le_bytes().repeat(if cell.is_some() { CELL_WORDS } else { WORDS });
            let said = cell.map_or("all".to_owned(), |cell| cell.to_string());
            log(format!("puts {model} {number} {begun} {} {said}", named.unwrap_or(0)));
            let answer = station.put(&name(model), offset_of(cell.unwrap_or(0)), bytes, named);
            match answer {
                Answer::Put(version) => {
                    versions[model] = version;
                    log(format!("put {model} {number} {version} {}", BootClock.now().nanos()));
                }
                Answer::Refused(Refusal::Conflict { current, .. }) => {
                    versions[model] = current;
                    log(format!("not {model} {number}"));
                }
                Answer::Refused(Refusal::TimedOut { .. }) => log(format!("not {model} {number}")),
                Answer::Refused(Refusal::Unknown) => {}
                answer => panic!("a put to {coherence}: {answer:?}"),
            }
        }
        std::thread::sleep(Duration::from_micros(dice.below(300)));
    }
}

/// Gets all segments once.
pub fn look(station: &Station, mut log: impl FnMut(String)) {
    for model in 0..MODELS.len() {
        get(station, model, None, &mut log);
    }
}

/// Where a part begins.
fn offset_of(cell: usize) -> u64 {
    (cell * CELL_WORDS * 8) as u64
}

/// One get, of all or of one part; gives the version.
fn get(station: &Station, model: usize, cell: Option<usize>, log: &mut impl FnMut(String)) -> u64 {
    let begun = BootClock.now().nanos();
    let (from, length) = (cell.unwrap_or(0), cell.map(|_| offset_of(1)));
    let answer = station.get_part(&name(model), offset_of(from), length);
    let ended = BootClock.now().nanos();
    let Answer::Value(value) = answer else { panic!("a get of {}: {answer:?}", MODELS[model]) };
    let seen: Vec<String> = value.bytes.chunks(CELL_WORDS * 8).map(number_in).collect();
    log(format!("got {model} {} {begun} {ended} {from} {}", value.version, seen.join(",")));
    value.version
}

/// The number that fills a part; more of them if it is half one's and half another's.
fn number_in(part: &[u8]) -> String {
    let (words, _) = part.as_chunks::<8>();
    let mut numbers: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    numbers.dedup();
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("+")
}

/// Puts values of this segment without a pause, until it is killed. Says when it has begun.
pub fn fill(station: &Station, rank: u32, name: &str, begun: impl Fn()) {
    let Answer::Value(value) = station.get(name) else { panic!("{name} is not there") };
    for nth in 1u64.. {
        let number = u64::from(rank) << 32 | nth;
        let answer = station.put(name, 0, number.to_le_bytes().repeat(value.bytes.len() / 8), None);
        assert!(matches!(answer, Answer::Put(_)), "{answer:?}");
        if nth == 2 {
            begun();
        }
    }
}

/// Which segment a line is of; there is one of each coherence.
fn id(model: usize) -> SegmentId {
    SegmentId { home: Incarnation::new(1, 1), number: model as u64 }
}

/// What a node wrote down. Gives how many operations had an answer.
pub fn read(lines: &[String], histories: &mut Histories) -> u64 {
    let mut answered = 0;
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let time = |at| Time::from_nanos(number(at));
        let model = number(1) as usize;
        let coherence = MODELS[model];
        match words[0] {
            "got" => {
                let parts: Vec<Vec<u64>> = words[6]
                    .split(',')
                    .map(|part| part.split('+').map(|word| word.parse().unwrap()).collect())
                    .collect();
                let is_torn = parts.iter().any(|part| part.len() > 1);
                assert!(!is_torn || coherence == Coherence::Null, "half a part of {coherence} was read: {line}");
                // What is put here has no time stamp of its own.
                let (from, seen, stamp) = (number(5) as usize, parts.into_iter().flatten().collect(), None);
                let get = GetOf { from, words: seen, version: number(2), stamp, begun: time(3), ended: time(4) };
                histories.got(id(model), coherence, get);
                answered += 1;
            }
            "puts" => {
                let cell = words[5].parse().ok();
                let named = Some(number(4)).filter(|named| *named > 0);
                let put = PutOf { number: number(2), cell, named, begun: time(3), fate: Fate::Open };
                histories.put(id(model), coherence, put);
            }
            "put" => {
                histories.fate(id(model), number(2), Fate::Done(number(3), time(4)));
                answered += 1;
            }
            "not" => histories.fate(id(model), number(2), Fate::Not),
            _ => panic!("{line} is nothing that a node writes down"),
        }
    }
    answered
}
