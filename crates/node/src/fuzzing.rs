//! What the fuzz target `node_message` drives: what members tell each other of how they are, and what is made of it for people.

use std::time::Duration;

use verbena_protocol::api::{Heard, Told};
use verbena_terms::HasFormat as _;

use crate::services::member_status::Message;
use crate::services::peer_status::heard;

/// What happened, so that a replay of the corpus can say that every road was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outcomes {
    pub asked: u32,
    pub told: u32,
    pub refused: u32,
}

/// Decodes `input` as a message. Formats a member's status at three ages: zero, the rest of its lease, and the longest
/// duration.
///
/// # Panics
/// If encoding the message again gives something longer or something that decodes differently, or if the formatted
/// status differs from the message.
pub fn node_message(input: &[u8]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let Ok(message) = Message::decode(input) else {
        outcomes.refused += 1;
        return outcomes;
    };
    let written = message.encode();
    assert!(written.len() <= input.len(), "{message:?} has grown");
    assert_eq!(Message::decode(&written), Ok(message));
    match message {
        Message::Ask => outcomes.asked += 1,
        // Numbers that are shown as they are.
        Message::Answers(_) => outcomes.told += 1,
        Message::Told(told) => {
            let left = Duration::from_millis(told.lease_left_ms);
            [Duration::ZERO, left, Duration::MAX].into_iter().for_each(|age| show(told, age));
            outcomes.told += 1;
        }
    }
    outcomes
}

/// Its times are another member's to say: no sum of them may wrap, and people see what it said.
fn show(told: Told, age: Duration) {
    let now = heard(told, age);
    let Told { lease_left_ms, uptime_ms, .. } = now.told;
    assert_eq!(lease_left_ms == 0, age.as_millis() >= u128::from(told.lease_left_ms), "{told:?} after {age:?}");
    assert!(lease_left_ms <= told.lease_left_ms && uptime_ms >= told.uptime_ms, "{told:?} after {age:?}");
    assert_eq!(Told { lease_left_ms: told.lease_left_ms, uptime_ms: told.uptime_ms, ..now.told }, told);
    let shown = serde_json::to_string(&now).expect("invariant: numbers and names have a form in JSON");
    let read: Heard = serde_json::from_str(&shown).expect("invariant: what is shown can be read");
    assert_eq!(read, now, "{shown}");
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn every_message_of_the_corpus_is_read_as_it_is_written() {
        let inputs = corpus("node_message");
        let mut all = Outcomes::default();
        for input in &inputs {
            let one = node_message(input);
            all.asked += one.asked;
            all.told += one.told;
            all.refused += one.refused;
        }
        let Outcomes { asked, told, refused } = all;
        assert!(inputs.len() >= 12, "{} inputs", inputs.len());
        assert!(asked >= 3 && told >= 6 && refused >= 8, "{all:?}");
    }
}
