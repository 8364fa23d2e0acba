//! What the kinds of messages in a ring mean (layout.rs has their frame).
//!
//! ```text
//!  kind 1  request   payload: the application's
//!  kind 2  answer    payload: the application's
//!  kind 3  refused   payload: [ reason : u32 | bytes : u32 | limit : u32 ], in the machine's own order
//!                    reason 1: the answer has `bytes` where `limit` are allowed; reason 2: no answer will come
//! ```

use crate::error::{Breach, Refusal};

pub(crate) const REQUEST: u32 = 1;
pub(crate) const ANSWER: u32 = 2;
pub(crate) const REFUSED: u32 = 3;

const TOO_LONG: u32 = 1;
const UNANSWERED: u32 = 2;

pub(crate) fn encode_refusal(refusal: Refusal) -> Vec<u8> {
    let words = match refusal {
        Refusal::AnswerTooLong { bytes, limit } => [TOO_LONG, bytes, limit],
        Refusal::Unanswered => [UNANSWERED, 0, 0],
    };
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

pub(crate) fn parse_refusal(payload: &[u8]) -> Result<Refusal, Breach> {
    let &[r0, r1, r2, r3, b0, b1, b2, b3, l0, l1, l2, l3] = payload else { return Err(Breach::Refusal) };
    match u32::from_ne_bytes([r0, r1, r2, r3]) {
        TOO_LONG => Ok(Refusal::AnswerTooLong {
            bytes: u32::from_ne_bytes([b0, b1, b2, b3]),
            limit: u32::from_ne_bytes([l0, l1, l2, l3]),
        }),
        UNANSWERED => Ok(Refusal::Unanswered),
        _ => Err(Breach::Refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_survive_their_bytes() {
        for refusal in [Refusal::Unanswered, Refusal::AnswerTooLong { bytes: u32::MAX, limit: 16384 }] {
            assert_eq!(parse_refusal(&encode_refusal(refusal)), Ok(refusal));
        }
        for bad in [&[][..], &[0; 11], &[0; 12], &[1; 13]] {
            assert_eq!(parse_refusal(bad), Err(Breach::Refusal));
        }
    }
}
