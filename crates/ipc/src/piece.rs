//! Messages in pieces: how what is longer than a queue's message goes through a queue.
//!
//! The text of a message in a queue, in the machine's own order:
//!
//! ```text
//!  0        4                 8               12       16               24
//!  +--------+-----------------+---------------+--------+----------------+---------+
//!  |  kind  | bytes of the    | from which of |   0    | request number | payload |
//!  |        | whole payload   | them on       |        |                |         |
//!  +--------+-----------------+---------------+--------+----------------+---------+
//! ```
//!
//! The pieces of a message come one after the other. A first piece (from byte 0 on) begins anew: the one before was given up
//! by its sender, at a deadline. Every other one continues where the last one ended. What does not is a breach.

use crate::error::Breach;
use crate::queue::{LONGEST_TEXT, Message};
use crate::ring::Header;

pub(crate) const HEAD_BYTES: usize = 24;
/// Payload in one piece.
pub(crate) const PIECE_BYTES: usize = LONGEST_TEXT - HEAD_BYTES;

/// Makes the piece of `payload` that begins at `from`, and says where the next one does.
pub(crate) fn cut(header: Header, payload: &[u8], from: usize, message: &mut Message) -> usize {
    let to = payload.len().min(from + PIECE_BYTES);
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&header.kind.to_ne_bytes());
    head[4..8].copy_from_slice(&(payload.len() as u32).to_ne_bytes());
    head[8..12].copy_from_slice(&(from as u32).to_ne_bytes());
    head[16..].copy_from_slice(&header.number.to_ne_bytes());
    message.set([&head, &payload[from..to]]);
    to
}

/// Puts pieces together.
#[derive(Debug)]
pub(crate) struct Assembler {
    longest: usize,
    begun: Option<(Header, usize)>,
    bytes: Vec<u8>,
}

impl Assembler {
    pub(crate) fn new(longest: usize) -> Self {
        Assembler { longest, begun: None, bytes: Vec::new() }
    }

    /// Takes a piece. When the message is whole, its payload goes into `payload`.
    pub(crate) fn add(&mut self, text: &[u8], payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let Some((head, piece)) = text.split_first_chunk::<HEAD_BYTES>() else { return Err(Breach::Piece) };
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, length, from) = (word(0), word(4) as usize, word(8) as usize);
        let [.., n0, n1, n2, n3, n4, n5, n6, n7] = *head;
        let header = Header { kind, number: u64::from_ne_bytes([n0, n1, n2, n3, n4, n5, n6, n7]) };
        if length > self.longest {
            return Err(Breach::Length { length, longest: self.longest });
        }
        if from == 0 {
            self.bytes.clear();
        } else if self.begun != Some((header, length)) || from != self.bytes.len() {
            return Err(Breach::Piece);
        }
        if piece.len() > PIECE_BYTES || piece.len() > length - from || piece.is_empty() && length > 0 {
            return Err(Breach::Piece);
        }
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() < length {
            self.begun = Some((header, length));
            return Ok(None);
        }
        self.begun = None;
        std::mem::swap(&mut self.bytes, payload);
        Ok(Some(header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { kind: 1, number: 7 };

    fn pieces(header: Header, payload: &[u8]) -> Vec<Vec<u8>> {
        let (mut all, mut from, mut message) = (Vec::new(), 0, Message::default());
        loop {
            from = cut(header, payload, from, &mut message);
            all.push(message.piece().unwrap().to_vec());
            if from == payload.len() {
                return all;
            }
        }
    }

    #[test]
    fn what_is_cut_is_put_together() {
        let mut assembler = Assembler::new(16 << 10);
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 16 << 10] {
            let sent: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let pieces = pieces(HEADER, &sent);
            assert_eq!(pieces.len(), length.div_ceil(PIECE_BYTES).max(1));
            let mut payload = vec![1, 2, 3];
            for (at, piece) in pieces.iter().enumerate() {
                let whole = assembler.add(piece, &mut payload).unwrap();
                assert_eq!(whole, (at + 1 == pieces.len()).then_some(HEADER), "{length}");
            }
            assert_eq!(payload, sent);
        }
    }

    #[test]
    fn a_message_that_was_given_up_is_forgotten() {
        let mut assembler = Assembler::new(16 << 10);
        let mut payload = Vec::new();
        assert_eq!(assembler.add(&pieces(HEADER, &[1; 9000])[0], &mut payload), Ok(None));
        assert_eq!(assembler.add(&pieces(HEADER, b"anew")[0], &mut payload), Ok(Some(HEADER)));
        assert_eq!(payload, b"anew");
    }

    #[test]
    fn what_does_not_continue_is_a_breach() {
        let other = Header { number: 8, ..HEADER };
        let long = pieces(HEADER, &[1; 9000]);
        let bad = [
            vec![],
            long[0][..HEAD_BYTES - 1].to_vec(),
            long[2].clone(),
            pieces(other, &[1; 9000])[1].clone(),
            pieces(HEADER, &[1; 9001])[1].clone(),
            long[1][..HEAD_BYTES].to_vec(),
        ];
        for piece in bad {
            let mut assembler = Assembler::new(16 << 10);
            assert_eq!(assembler.add(&long[0], &mut Vec::new()), Ok(None));
            assert_eq!(assembler.add(&piece, &mut Vec::new()), Err(Breach::Piece));
        }
        let mut assembler = Assembler::new(8999);
        let long = assembler.add(&long[0], &mut Vec::new());
        assert_eq!(long, Err(Breach::Length { length: 9000, longest: 8999 }));
        let mut more = pieces(HEADER, b"four")[0].clone();
        more.push(0);
        assert_eq!(Assembler::new(100).add(&more, &mut Vec::new()), Err(Breach::Piece));
    }
}
