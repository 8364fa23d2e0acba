//! The register that may forget: whether the answers about one key can be put in an order, each between its request and its answer, in which
//! every hit shows what was written last, and what is gone stays gone. It may forget at any moment: so a miss alone proves nothing.

use std::collections::HashMap;

use verbena_coop::{Failure, Reply};
use verbena_memcache::semantics::Answer;

/// What a client asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Get,
    Set,
    Add,
    Replace,
    Append,
    Delete,
    Touch,
    /// The value that had the cas value.
    Cas(String),
    Count,
    Vivify,
    Flush,
    TooLarge,
}

/// One request about one key.
#[derive(Clone, Debug)]
pub struct Record {
    pub kind: Kind,
    /// What it writes.
    pub value: String,
    pub asked: u64,
    /// When it was answered; none if its node died.
    pub answered: Option<(u64, Reply)>,
}

type State = Option<String>;

/// A stub of which its client was not told: so its cas is not known.
const UNKNOWN_STUB: &str = "stub ?";

/// What a hit shows. Stubs have no value but their cas.
pub fn shown(bytes: &[u8], cas: u64) -> String {
    if bytes.is_empty() { format!("stub {cas}") } else { String::from_utf8(bytes.to_vec()).unwrap() }
}

/// Of an answer: the state behind it, if it can be given in this state. `None` in the outer option: it cannot.
fn after(record: &Record, reply: &Reply, state: &State) -> Option<State> {
    let value = || Some(record.value.clone());
    let Reply::Answer(answer, bytes) = reply else {
        return match reply {
            Reply::Flushed | Reply::Failed(Failure::TooLarge | Failure::NoRoom) => Some(None),
            _ => Some(state.clone()),
        };
    };
    match (&record.kind, answer) {
        (Kind::Vivify, Answer::Hit(seen)) if seen.is_created => Some(Some(shown(&[], seen.head.cas))),
        (_, Answer::Hit(seen)) if bytes.is_empty() && state.as_deref() == Some(UNKNOWN_STUB) => {
            Some(Some(shown(bytes, seen.head.cas)))
        }
        (_, Answer::Hit(seen)) => (*state == Some(shown(bytes, seen.head.cas))).then(|| state.clone()),
        (_, Answer::Miss) => Some(state.clone()),
        (Kind::Set | Kind::Add, Answer::Stored { .. }) => Some(value()),
        (Kind::Add, Answer::NotStored) => state.is_some().then(|| state.clone()),
        (Kind::Replace, Answer::Stored { .. }) => state.is_some().then(value),
        (Kind::Append, Answer::Stored { .. }) => state
            .as_ref()
            .map(|old| Some(if old.starts_with("stub") { record.value.clone() } else { old.clone() + &record.value })),
        (Kind::Cas(from), Answer::Stored { .. }) => (state.as_ref() == Some(from)).then(value),
        (Kind::Cas(_), Answer::Exists) => state.is_some().then(|| state.clone()),
        (Kind::Delete, Answer::Deleted) => state.is_some().then_some(None),
        (Kind::Touch, Answer::Touched) => state.is_some().then(|| state.clone()),
        (Kind::Count, Answer::Number { number, .. }) => {
            let old: Option<u64> = state.as_ref().and_then(|old| old.trim().parse().ok());
            (old.map(|old| old + 1) == Some(*number)).then(|| Some(number.to_string()))
        }
        (Kind::Count, Answer::NonNumeric) => state.is_some().then(|| state.clone()),
        (_, Answer::NotFound | Answer::NotStored) => Some(None),
        other => panic!("an answer that the operation cannot have: {other:?}"),
    }
}

/// The state behind a request of which nothing is known, if it took effect.
fn after_unknown(record: &Record, state: &State) -> Option<State> {
    match &record.kind {
        Kind::Get | Kind::Touch => None,
        Kind::Set | Kind::Add => Some(Some(record.value.clone())),
        Kind::Replace => state.is_some().then(|| Some(record.value.clone())),
        Kind::Append => state.as_ref().map(|old| Some(old.clone() + &record.value)),
        Kind::Cas(from) => (state.as_ref() == Some(from)).then(|| Some(record.value.clone())),
        Kind::Count => {
            let old: Option<u64> = state.as_ref().and_then(|old| old.trim().parse().ok());
            old.map(|old| Some((old + 1).to_string()))
        }
        Kind::Vivify => Some(Some(UNKNOWN_STUB.into())),
        Kind::Delete | Kind::Flush | Kind::TooLarge => Some(None),
    }
}

/// Requests that took effect and are not answered yet, and the state then.
type Ways = HashMap<(State, u128), Vec<u128>>;

/// Beyond so many ways the checker gives up and says nothing.
const MOST_WAYS: usize = 4_000;

/// Adds a way: requests that must take effect, requests that may, and the state. One that used fewer of the latter is as good as any that used
/// those and more.
fn add(ways: &mut Ways, state: State, certain: u128, maybe: u128) -> bool {
    let known = ways.entry((state, certain)).or_default();
    if known.iter().any(|fewer| fewer & maybe == *fewer) {
        return false;
    }
    known.retain(|more| more & maybe != maybe);
    known.push(maybe);
    true
}

/// Whether the requests about one key, in the order in which they were asked, can be put in such an order.
///
/// Goes from answer to answer (Lowe, Testing for linearizability, 2017, "just-in-time"): each must have taken effect by then, with whatever had to
/// before it.
pub fn is_register(records: &[Record]) -> bool {
    assert!(records.len() <= 128, "{} requests about a key", records.len());
    let certain =
        records.iter().enumerate().filter(|(_, record)| is_certain(record)).fold(0u128, |mask, (at, _)| mask | 1 << at);
    let mut answers: Vec<(u64, usize)> = records
        .iter()
        .enumerate()
        .filter_map(|(at, record)| record.answered.as_ref().filter(|_| is_certain(record)).map(|(time, _)| (*time, at)))
        .collect();
    answers.sort_unstable();
    let mut ways = Ways::new();
    add(&mut ways, None, 0, 0);
    for (time, answer) in answers {
        let mut next = Ways::new();
        let mut seen = Ways::new();
        let mut stack: Vec<(State, u128, u128)> = vec![];
        for ((state, must), maybes) in ways {
            for maybe in maybes {
                add(&mut seen, state.clone(), must, maybe);
                stack.push((state.clone(), must, maybe));
            }
        }
        while let Some((state, must, maybe)) = stack.pop() {
            if must & 1 << answer != 0 {
                add(&mut next, state, must & !(1 << answer), maybe);
                continue;
            }
            for (at, record) in records.iter().enumerate().take_while(|(_, record)| record.asked <= time) {
                let is_open = (must | maybe) & 1 << at == 0
                    && record
                        .answered
                        .as_ref()
                        .is_none_or(|(ended, _)| !is_certain(record) || (*ended, at) >= (time, answer));
                if !is_open {
                    continue;
                }
                let is_must = certain & 1 << at != 0;
                let after = match &record.answered {
                    Some((_, reply)) if is_must => after(record, reply, &state),
                    _ => after_unknown(record, &state),
                };
                let Some(after) = after else { continue };
                let (must, maybe) = if is_must { (must | 1 << at, maybe) } else { (must, maybe | 1 << at) };
                if add(&mut seen, after.clone(), must, maybe) {
                    stack.push((after, must, maybe));
                }
            }
            if seen.values().map(Vec::len).sum::<usize>() > MOST_WAYS {
                return true;
            }
        }
        if next.is_empty() {
            return false;
        }
        ways = next;
    }
    true
}

fn is_certain(record: &Record) -> bool {
    !matches!(record.answered, None | Some((_, Reply::Unknown)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_memcache::semantics::{Head, Seen};

    fn record(kind: Kind, value: &str, asked: u64, answered: u64, answer: Answer, bytes: &str) -> Record {
        let reply = Reply::Answer(answer, bytes.as_bytes().to_vec());
        Record { kind, value: value.into(), asked, answered: Some((answered, reply)) }
    }

    fn set(value: &str, asked: u64, answered: u64) -> Record {
        record(Kind::Set, value, asked, answered, Answer::Stored { cas: 1, size: 1 }, "")
    }

    fn hit(value: &str, asked: u64, answered: u64) -> Record {
        let seen = Seen { head: Head::default(), ..Seen::default() };
        record(Kind::Get, "", asked, answered, Answer::Hit(seen), value)
    }

    fn unknown(kind: Kind, value: &str, asked: u64) -> Record {
        Record { kind, value: value.into(), asked, answered: None }
    }

    #[test]
    fn the_checker_tells_a_register_from_none() {
        assert!(is_register(&[set("a", 0, 1), hit("a", 2, 3), set("b", 2, 9), hit("b", 4, 5), hit("b", 6, 7)]));
        assert!(!is_register(&[set("a", 0, 1), set("b", 2, 3), hit("a", 4, 5)]), "older than acknowledged");
        assert!(!is_register(&[set("a", 0, 1), set("b", 2, 9), hit("b", 3, 4), hit("a", 5, 6)]), "new, then old");
        assert!(!is_register(&[hit("a", 4, 5)]), "never written");
        let gone = record(Kind::Delete, "", 2, 3, Answer::NotFound, "");
        assert!(!is_register(&[set("a", 0, 1), gone.clone(), hit("a", 4, 5)]), "what was forgotten comes back");
        assert!(is_register(&[set("a", 0, 1), gone.clone(), record(Kind::Get, "", 4, 5, Answer::Miss, "")]));
        assert!(!is_register(&[gone, record(Kind::Add, "a", 4, 5, Answer::NotStored, "")]), "nothing is in the way");
        let late = [set("a", 0, 1), unknown(Kind::Set, "b", 2), hit("a", 3, 4), hit("b", 5, 6)];
        assert!(is_register(&late));
        assert!(!is_register(&[late.to_vec(), vec![hit("a", 7, 8)]].concat()), "once, not twice");
    }
}
