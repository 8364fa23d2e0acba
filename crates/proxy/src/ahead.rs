//! What of an answer is here already and its client has not taken yet.
//!
//! One end puts what comes, the other takes it. Small pieces are put together, for each that came by itself would keep the memory that it was read into.
//! When the whole is in the store, what is left here is a part of that, and takes no memory of its own.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use parking_lot::Mutex;

use crate::body::{Cut, Passing};
use crate::joining::Joined;

/// Smaller pieces are copied together, into pieces of up to [`TOGETHER`] bytes.
const SMALL: usize = 4 << 10;
const TOGETHER: usize = 16 << 10;

/// What the client takes next.
pub(crate) enum Next {
    Frame(Frame<Bytes>),
    Cut(Cut),
    /// What was not read yet: it is not kept any more.
    Rest(Passing),
    /// The same, where others read it too.
    Joined(Joined),
    End,
}

enum Piece {
    Copied(BytesMut),
    Other(Next),
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// Bytes that the client has taken.
    taken: usize,
    /// Nothing more comes.
    is_closed: bool,
    waiting: Option<Waker>,
}

/// The end at which it is put.
pub(crate) struct Puts(Arc<Mutex<State>>);

/// The end at which it is taken.
pub(crate) struct Takes(Arc<Mutex<State>>);

pub(crate) fn ahead() -> (Puts, Takes) {
    let state = Arc::new(Mutex::new(State::default()));
    (Puts(state.clone()), Takes(state))
}

impl Puts {
    pub fn frame(&self, frame: Frame<Bytes>) {
        if Arc::strong_count(&self.0) == 1 {
            // The client has gone.
            return;
        }
        let mut state = self.0.lock();
        match frame.data_ref().filter(|data| data.len() < SMALL) {
            Some(data) => match state.pieces.back_mut() {
                Some(Piece::Copied(copied)) if copied.len() + data.len() <= TOGETHER => copied.extend_from_slice(data),
                _ => state.pieces.push_back(Piece::Copied(BytesMut::from(&data[..]))),
            },
            None => state.pieces.push_back(Piece::Other(Next::Frame(frame))),
        }
        state.wake();
    }

    /// The last that comes.
    pub fn last(self, last: Next) {
        let mut state = self.0.lock();
        state.pieces.push_back(Piece::Other(last));
        state.wake();
    }

    /// It ends here. What is not taken yet is a part of `whole` from now on, if that is there in time.
    pub async fn ends(self, whole: impl Future<Output = Option<Bytes>>) {
        let state = self.0.clone();
        self.last(Next::End);
        if let Some(mut whole) = whole.await {
            let mut state = state.lock();
            // The end alone, or nothing, is left where all is taken.
            if state.pieces.len() > 1 {
                let left = whole.split_off(state.taken.min(whole.len()));
                state.pieces = [Next::Frame(Frame::data(left)), Next::End].map(Piece::Other).into();
            }
        }
    }
}

impl Drop for Puts {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.wake();
    }
}

impl Takes {
    /// `None` if the other end has gone without a last word.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Next>> {
        let mut state = self.0.lock();
        let Some(piece) = state.pieces.pop_front() else {
            if state.is_closed {
                return Poll::Ready(None);
            }
            state.waiting = Some(context.waker().clone());
            return Poll::Pending;
        };
        let next = match piece {
            Piece::Copied(copied) => Next::Frame(Frame::data(copied.freeze())),
            Piece::Other(next) => next,
        };
        if let Next::Frame(frame) = &next {
            state.taken += frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(Some(next))
    }
}

impl Drop for Takes {
    fn drop(&mut self) {
        let pieces = mem::take(&mut self.0.lock().pieces);
        drop(pieces);
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// The bytes of the frames that are there, and whether it has ended.
    fn taken(takes: &mut Takes) -> (Vec<Bytes>, bool) {
        let mut context = Context::from_waker(Waker::noop());
        let mut found = vec![];
        loop {
            match takes.poll(&mut context) {
                Poll::Ready(Some(Next::Frame(frame))) => found.push(frame.into_data().unwrap()),
                Poll::Ready(Some(Next::End) | None) => return (found, true),
                _ => return (found, false),
            }
        }
    }

    fn data(bytes: &[u8]) -> Frame<Bytes> {
        Frame::data(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn small_pieces_are_put_together_and_large_ones_are_not_copied() {
        let (puts, mut takes) = ahead();
        for _ in 0..TOGETHER + 1 {
            puts.frame(data(b"a"));
        }
        let large = Bytes::from(vec![b'b'; SMALL]);
        puts.frame(Frame::data(large.clone()));
        puts.frame(data(b"c"));
        let (found, has_ended) = taken(&mut takes);
        assert_eq!(found.iter().map(Bytes::len).collect::<Vec<_>>(), [TOGETHER, 1, SMALL, 1]);
        assert_eq!((found[2].as_ptr(), has_ended), (large.as_ptr(), false));
        drop(puts);
        assert!(taken(&mut takes).1);
    }

    #[test]
    fn nothing_is_held_for_a_client_that_has_gone() {
        let (puts, takes) = ahead();
        let (before, after) = (Bytes::from(vec![b'a'; SMALL]), Bytes::from(vec![b'b'; SMALL]));
        puts.frame(Frame::data(before.clone()));
        assert!(!before.is_unique());
        drop(takes);
        puts.frame(Frame::data(after.clone()));
        assert!(before.is_unique() && after.is_unique());
    }

    #[tokio::test]
    async fn what_is_left_is_a_part_of_the_whole_once_that_is_there() {
        let whole = Bytes::from_static(b"abcdef");
        for taken_before in [false, true] {
            let (puts, mut takes) = ahead();
            puts.frame(data(b"ab"));
            if taken_before {
                assert_eq!(taken(&mut takes).0, ["ab"]);
            }
            puts.frame(data(b"cdef"));
            puts.ends(async { Some(whole.clone()) }).await;
            let (found, has_ended) = taken(&mut takes);
            let from = if taken_before { 2 } else { 0 };
            assert_eq!((found.len(), has_ended), (1, true));
            assert_eq!((&found[0], found[0].as_ptr()), (&whole.slice(from..), whole[from..].as_ptr()));
        }
    }

    #[tokio::test]
    async fn who_took_all_or_cannot_have_the_whole_is_left_what_it_has() {
        let (puts, mut takes) = ahead();
        puts.frame(data(b"ab"));
        assert_eq!(taken(&mut takes).0, ["ab"]);
        puts.ends(async { Some(Bytes::from_static(b"ab")) }).await;
        assert_eq!(taken(&mut takes), (vec![], true));
        let (puts, mut takes) = ahead();
        puts.frame(data(b"ab"));
        puts.ends(async { None }).await;
        assert_eq!(taken(&mut takes), (vec![Bytes::from_static(b"ab")], true));
    }
}
