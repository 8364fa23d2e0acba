//! What a node does: gets and puts of all coherences, each with a line before and after.

use std::time::Duration;

use verbena_fabric::sim::Dice;
use verbena_memory::{Answer, Coherence, Refusal, SegmentId};
use verbena_terms::{BootClock, Clock, Incarnation, Time};

use crate::history::{Fate, GetOf, Histories, MODELS, PutOf};
use crate::station::Station;

/// Words of a value that is put as a whole: it takes a while to write.
pub const WORDS: usize = 4096;
/// Words of one whose writers put a word each.
pub const CELLS: usize = 8;

pub fn name(model: usize) -> String {
    format!("s{model}")
}

pub fn words(model: usize) -> usize {
    if MODELS[model] == Coherence::Write { CELLS } else { WORDS }
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
            versions[model] = get(station, model, &mut log);
        } else {
            let number = u64::from(rank) << 32 | nth;
            let is_cell = coherence == Coherence::Write;
            let cell = rank as usize % CELLS;
            let named = (coherence == Coherence::Version).then_some(versions[model]);
            let bytes = number.to_le_bytes().repeat(if is_cell { 1 } else { words(model) });
            log(format!("puts {model} {number} {begun} {}", named.unwrap_or(0)));
            let answer = station.put(&name(model), if is_cell { cell as u64 * 8 } else { 0 }, bytes, named);
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
        get(station, model, &mut log);
    }
}

/// One get; gives the version.
fn get(station: &Station, model: usize, log: &mut impl FnMut(String)) -> u64 {
    let begun = BootClock.now().nanos();
    let answer = station.get(&name(model));
    let Answer::Value(value) = answer else { panic!("a get of {}: {answer:?}", MODELS[model]) };
    let mut seen: Vec<u64> = value.bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    if MODELS[model] != Coherence::Write {
        seen.dedup();
    }
    let seen: Vec<String> = seen.iter().map(u64::to_string).collect();
    log(format!("got {model} {} {begun} {} {}", value.version, BootClock.now().nanos(), seen.join(",")));
    value.version
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
pub fn read(rank: u32, lines: &[String], histories: &mut Histories) -> u64 {
    let mut answered = 0;
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let time = |at| Time::from_nanos(number(at));
        let model = number(1) as usize;
        let coherence = MODELS[model];
        match words[0] {
            "got" => {
                let seen = words[5].split(',').map(|word| word.parse().unwrap()).collect();
                let get = GetOf { words: seen, version: number(2), begun: time(3), ended: time(4) };
                histories.got(id(model), coherence, get);
                answered += 1;
            }
            "puts" => {
                let cell = (coherence == Coherence::Write).then_some(rank as usize % CELLS);
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
