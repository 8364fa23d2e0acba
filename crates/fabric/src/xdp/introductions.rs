//! How a caller is introduced to a node: a request by message, and the answer with a number and a key.
//!
//! ```text
//!  request                            answer
//!  0         8       16               0         8        12       16            32
//!  +---------+--------+---- - -       +---------+--------+--------+-------------+
//!  | VXIN, 1 | next   | address       | VXIA, 1 | caller |   0    | key         |
//!  +---------+--------+---- - -       +---------+--------+--------+-------------+
//! ```
//!
//! `next` is the first identifier that the caller has not given out: the window that it gets knows nothing of earlier
//! ones. The answer goes to `address`, where only the caller itself is taken for it. Messages name their sender, and an
//! answer has the number of its request. A request that comes again, with the same number, is answered as before:
//! making a window takes the kernel its time, and a caller that waits asks again.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use verbena_terms::{Format, Incarnation, Rank};

use super::node::Node;
use super::wire::TagKey;
use crate::error::{Error, Result};
use crate::message::Port;
use crate::operation::OperationId;
use crate::provider::Address;
use crate::region::Secret;

/// Where introductions are asked for, and answered.
pub(super) const PORT: Port = Port(u16::MAX);

const REQUEST: Format = Format::new(*b"VXIN", 1);
const ANSWER: Format = Format::new(*b"VXIA", 1);

/// What a caller is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) caller: u32,
    pub(super) key: TagKey,
}

/// A message of either kind.
pub(super) enum Said {
    /// A caller whose next identifier this is asks to be introduced, and gives the address for the answer.
    Request(OperationId, Address),
    /// What was asked for.
    Answer(Introduction),
}

pub(super) fn request(next: OperationId, answers: &Address) -> Vec<u8> {
    [&REQUEST.header()[..], &next.0.to_le_bytes(), answers.0.as_bytes()].concat()
}

pub(super) fn answer(introduction: &Introduction) -> Vec<u8> {
    let [first, second] = introduction.key.0.map(u64::to_le_bytes);
    [ANSWER.header(), u64::from(introduction.caller).to_le_bytes(), first, second].concat()
}

/// Takes a message apart.
///
/// # Errors
/// [`Error::Malformed`], with what is wrong.
pub(super) fn parse(from: Incarnation, body: &[u8]) -> Result<Said> {
    let malformed = |what: &str| Error::Malformed { from: from.to_string(), reason: what.to_owned() };
    if body.starts_with(&REQUEST.magic) {
        let rest = REQUEST.check(body).map_err(|error| Error::format(from, &error))?;
        let (next, address) = rest.split_first_chunk().ok_or_else(|| malformed("a request that is cut off"))?;
        let address = std::str::from_utf8(address).ok().filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| malformed("a request whose address is no text"))?;
        return Ok(Said::Request(OperationId(u64::from_le_bytes(*next)), Address(address.to_owned())));
    }
    let rest = ANSWER.check(body).map_err(|error| Error::format(from, &error))?;
    let (words, behind) = rest.as_chunks::<8>();
    match words {
        [caller, first, second] if behind.is_empty() && caller[4..] == [0; 4] => {
            let [caller, first, second] = [caller, first, second].map(|word| u64::from_le_bytes(*word));
            Ok(Said::Answer(Introduction { caller: caller as u32, key: TagKey([first, second]) }))
        }
        _ => Err(malformed("an answer of another length")),
    }
}

/// What was said of a caller last.
struct Known {
    start: u32,
    /// Of the request that it was introduced by.
    request: u64,
    introduction: Introduction,
}

/// The callers that a node knows: one incarnation of each rank.
pub(super) struct Callers {
    node: Arc<Node>,
    by_rank: HashMap<Rank, Known>,
}

impl Callers {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Callers { node, by_rank: HashMap::new() }
    }

    /// Introduces a caller whose next identifier is `next`, in the place of what was known of its rank before, or says again how it was by this
    /// `request`. `None` for a request that a later one has superseded, of this incarnation or of a later one (C1).
    pub(super) fn introduce(
        &mut self,
        caller: Incarnation,
        request: u64,
        next: OperationId,
    ) -> Result<Option<Introduction>> {
        if let Some(known) = self.by_rank.get(&caller.rank) {
            match (known.start, known.request).cmp(&(caller.start, request)) {
                Ordering::Greater => return Ok(None),
                Ordering::Equal => return Ok(Some(known.introduction)),
                Ordering::Less => {}
            }
            // Before the next window is there: what is still on its way for this one is executed in neither.
            self.node.dismiss(known.introduction.caller);
            self.by_rank.remove(&caller.rank);
        }
        let key = TagKey(Secret::random()?.words());
        let introduction = Introduction { caller: self.node.admit(key, next)?, key };
        self.by_rank.insert(caller.rank, Known { start: caller.start, request, introduction });
        Ok(Some(introduction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::if_allowed;
    use crate::xdp::program::Program;
    use crate::xdp::share::Share;

    fn somebody() -> Incarnation {
        Incarnation::new(3, 1)
    }

    #[test]
    fn what_is_said_is_understood() {
        let introduction = Introduction { caller: 7, key: TagKey([1, u64::MAX]) };
        let here = Address("tcp://here:1".into());
        let Ok(Said::Request(next, address)) = parse(somebody(), &request(OperationId(9), &here)) else {
            panic!("no request")
        };
        assert_eq!((next, address), (OperationId(9), here));
        let Ok(Said::Answer(found)) = parse(somebody(), &answer(&introduction)) else { panic!("no answer") };
        assert!(found == introduction);
    }

    #[test]
    fn a_request_that_comes_again_is_answered_as_before_and_a_later_one_anew() {
        let Some(program) = if_allowed(Program::load()) else { return };
        let mut callers = Callers::new(Arc::new(Node::new(Share::alone(program)).unwrap()));
        let mut ask = |start, request| {
            let found = callers.introduce(Incarnation::new(3, start), request, OperationId(9)).unwrap();
            found.map(|introduction| (introduction.caller, introduction.key.0))
        };
        let first = ask(1, 1);
        assert!(first.is_some() && ask(1, 1) == first);
        let second = ask(1, 2);
        assert!(second.is_some() && second != first && ask(1, 2) == second);
        assert_eq!(ask(1, 1), None, "an earlier request");
        let later = ask(2, 1);
        assert!(later.is_some() && later != second);
        assert_eq!(ask(1, 3), None, "an earlier incarnation");
    }

    #[test]
    fn what_is_cut_or_of_another_version_is_an_error() {
        let here = Address("x".into());
        for sound in [request(OperationId(9), &here), answer(&Introduction { caller: 7, key: TagKey([1, 2]) })] {
            for length in 0..sound.len() {
                assert!(parse(somebody(), &sound[..length]).is_err(), "{length} bytes");
            }
            assert!(parse(somebody(), &[&sound[..], &[0xff]].concat()).is_err());
            let mut other = sound;
            other[4] = 9;
            let error = parse(somebody(), &other).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains('9') || error.contains("magic"), "{error}");
        }
    }
}
