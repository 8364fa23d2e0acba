//! One connection as a machine without input or output: requests to bytes, bytes to answers, in order.

use std::collections::VecDeque;

use thiserror::Error;

use super::{Answer, Request, parse_answer};

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// The daemon said what the protocol has not.
    #[error("the daemon answered {0:?}, which is no answer of memcached's meta protocol")]
    Answer(String),
    /// The daemon answered another request than the next.
    #[error("the daemon answered request {found} where {expected} was next")]
    Order {
        /// The number that was next.
        expected: u32,
        /// The number that came.
        found: u32,
    },
    /// The daemon answered a request that was not made.
    #[error("the daemon answered without being asked")]
    Unasked,
}

/// Requests in flight on one connection, and the bytes on their way.
#[derive(Debug, Default)]
pub struct Link {
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    next: u32,
    waiting: VecDeque<(u32, usize)>,
}

impl Link {
    /// Queues a request; `tag` comes back with its answer.
    pub fn request(&mut self, request: &Request, tag: usize) {
        request.write(self.next, &mut self.out);
        self.waiting.push_back((self.next, tag));
        self.next = self.next.wrapping_add(1);
    }

    /// Bytes to send.
    pub fn to_send(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Notes that the first `bytes` of [`Link::to_send`] are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Takes bytes that arrived. `answered` is called for each whole answer, with the tag of its request. An error ends the connection.
    pub fn received(&mut self, bytes: &[u8], mut answered: impl FnMut(usize, Answer)) -> Result<(), LinkError> {
        self.input.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((reply, bytes)) = parse_answer(&self.input[used..])? {
            used += bytes;
            let (expected, tag) = self.waiting.pop_front().ok_or(LinkError::Unasked)?;
            if let Some(found) = reply.number.filter(|found| *found != expected) {
                return Err(LinkError::Order { expected, found });
            }
            answered(tag, reply.answer);
        }
        self.input.drain(..used);
        Ok(())
    }

    /// Whether every request is answered and no byte is left over, so that the connection can serve another exchange.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.input.is_empty() && self.out.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(requests: usize) -> Link {
        let mut link = Link::default();
        for tag in 0..requests {
            link.request(&Request::Get { name: b"k".to_vec() }, tag + 10);
        }
        link
    }

    #[test]
    fn answers_find_their_requests_however_the_bytes_are_cut() {
        let bytes = b"VA 1 O0\r\na\r\nEN\r\nVA 1 O2\r\nc\r\n";
        for cut in 0..bytes.len() {
            let mut link = link(3);
            link.sent(link.to_send().len());
            let mut answers = vec![];
            for part in [&bytes[..cut], &bytes[cut..]] {
                link.received(part, |tag, answer| answers.push((tag, answer))).unwrap();
            }
            assert_eq!(
                answers,
                [(10, Answer::Item(b"a".to_vec())), (11, Answer::None), (12, Answer::Item(b"c".to_vec()))]
            );
            assert!(link.is_idle());
        }
    }

    #[test]
    fn an_answer_out_of_order_or_unasked_ends_the_link() {
        let error = |requests, bytes: &[u8]| link(requests).received(bytes, |_, _| ()).unwrap_err();
        assert_eq!(error(2, b"VA 1 O1\r\nb\r\n"), LinkError::Order { expected: 0, found: 1 });
        assert_eq!(error(0, b"EN\r\n"), LinkError::Unasked);
    }

    #[test]
    fn what_is_sent_in_part_goes_on_where_it_stopped() {
        let mut link = link(1);
        let whole = link.to_send().to_vec();
        link.sent(3);
        assert_eq!(link.to_send(), &whole[3..]);
        link.sent(whole.len() - 3);
        assert!(link.to_send().is_empty() && !link.is_idle());
    }
}
