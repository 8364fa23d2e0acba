//! A page that is still coming, and the requests that join it (rules H5, H13).
//!
//! ```text
//!  head here     what the page depends on is registered at its home: from now on the page has a stamp, as a stored one has
//!      accepted      those that waited get the head, and all of the body that is here; a request that comes later joins if its words,
//!                    read after it arrived, equal the stamp
//!      refused       those that waited go on as if there had been no fill; the client that it was for gets the rest
//!  body here     the page is stored, if no newer fill of it was registered meanwhile (rule H6)
//!  body broken   all are cut, and nothing is kept
//! ```
//!
//! The rules of storing were applied to the head before any of this. What only the whole answer can show is not joined: what a relay sees the application ask its database, and
//! whether a body carries one client's cookie. Such a page is registered when it is whole (see `fill`).
//!
//! The body stands in one piece of memory, from which each request that joined copies what its client takes. A body that turns out not to be stored (too large,
//! too slow) is read on at the pace of the slowest that joined, with [`WINDOW`] bytes between, and no further request joins it.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::ETAG;
use http::{Response, StatusCode, request};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use verbena_caching::{CacheStatus, Keys, Route, may_be_coded, varies_by_coding};
use verbena_content::service::Content;
use verbena_content::{Kind, Verdict, Words, look};
use verbena_terms::ViewNumber;

use crate::answer;
use crate::body::{Body, Cut};
use crate::exchange::Exchange;
use crate::origin::Failure;
use crate::page::Page;

/// The most that is copied for a client at once.
const PIECE: usize = 64 << 10;
/// What may be here of a body that is not kept, and not taken by all that joined it.
const WINDOW: usize = 256 << 10;

/// A page whose head is registered and whose body is on its way.
pub(crate) struct Coming {
    /// Its head, stamp and times: a page without a body.
    pub head: Page,
    pub body: Arc<Growing>,
    /// Of the whole.
    pub hint: SizeHint,
}

impl Coming {
    /// Whether a request whose page has these words may be answered with it, as far as they tell (rule H5).
    pub fn is_for(&self, kind: Kind, (posted, words): (ViewNumber, &Words), content: &Content) -> bool {
        let (stamp, now) = (self.head.stamp(), content.now());
        look(stamp, words, posted, &content.lease(), now) == Verdict::Fresh && stamp.kind() == kind
    }
}

/// A body as it comes.
#[derive(Default)]
pub(crate) struct Growing(Mutex<State>);

#[derive(Default)]
struct State {
    /// What is here, but for what was dropped.
    bytes: Vec<u8>,
    /// Bytes before it that all have taken.
    dropped: usize,
    end: Option<End>,
    /// No further request joins it.
    is_closed: bool,
    /// Those that joined, each in its slot.
    joined: Vec<Option<Reading>>,
    /// The task that reads a body which is not kept waits for room.
    reader: Option<Waker>,
}

struct Reading {
    at: usize,
    waiting: Option<Waker>,
}

enum End {
    /// It is a part of this from now on.
    Stored(Bytes),
    /// All is here.
    Whole,
    Cut,
}

/// The end of one client that joined.
pub(crate) struct Joined {
    body: Arc<Growing>,
    slot: usize,
    /// Bytes that were read and put back.
    read: Option<Bytes>,
    hint: SizeHint,
}

impl Exchange {
    /// An answer with the page that another request fetches, while that is still coming.
    pub async fn joined(
        &self,
        (head, route): (&request::Parts, &Route),
        copy: Page,
        joined: Box<Joined>,
        noted: CacheStatus,
    ) -> Response<Body> {
        let status = copy.status();
        let aged = copy.times().map(|times| times.aged(self.cache.content.now()));
        let CacheStatus::Forwarded { why, .. } = noted else { unreachable!("invariant: what is joined was forwarded") };
        let mut response = self.copied(head, copy, noted, aged);
        if !route.compress.is_empty() && may_be_coded(status, response.headers(), usize::MAX) {
            varies_by_coding(response.headers_mut());
        }
        if response.status() != status {
            return response;
        }
        let body = Body::Joined(joined);
        // A tag that was made here of a body is known at its end.
        let has_own_tag =
            status == StatusCode::OK && !response.headers().contains_key(ETAG) && Keys::are_tagged_in(head);
        if !has_own_tag {
            *response.body_mut() = body;
            return response;
        }
        match self.has_body(head, body).await {
            Err(_) => self.failed(Failure::Broken, why),
            Ok((body, None)) => {
                *response.body_mut() = body;
                response
            }
            Ok((_, Some(tag))) => {
                answer::not_modified(&mut response);
                response.headers_mut().insert(ETAG, tag);
                response
            }
        }
    }
}

impl Growing {
    /// More of it is here. Gives how much there is in all.
    pub fn more(&self, data: &[u8]) -> usize {
        let mut state = self.0.lock();
        state.bytes.extend_from_slice(data);
        state.wake();
        state.dropped + state.bytes.len()
    }

    /// Reserves room for `bytes` more bytes.
    pub fn reserve(&self, bytes: usize) {
        self.0.lock().bytes.reserve_exact(bytes);
    }

    /// All is here, and is to be stored: gives it. Until [`stored`](Self::stored) nothing more can be taken of it.
    pub fn take(&self) -> Vec<u8> {
        mem::take(&mut self.0.lock().bytes)
    }

    /// It is stored; those that joined have parts of that from now on.
    pub fn stored(&self, body: Bytes) {
        self.ends(End::Stored(body));
    }

    /// All is here, and it is not stored.
    pub fn whole(&self) {
        self.ends(End::Whole);
    }

    /// It broke off.
    pub fn cut(&self) {
        self.ends(End::Cut);
    }

    fn ends(&self, end: End) {
        let mut state = self.0.lock();
        if state.end.is_none() {
            state.end = Some(end);
        }
        state.wake();
    }

    /// A client joins it, from its first byte on. `None`: it takes no further client.
    pub fn join(self: &Arc<Self>, hint: SizeHint) -> Option<Joined> {
        let mut state = self.0.lock();
        let slot = (!state.is_closed).then(|| state.slot(0))?;
        Some(Joined { body: self.clone(), slot, read: None, hint })
    }

    /// Whether no further request can join it.
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Lets no further request join it, for it is not stored. Returns whether any request has joined.
    pub fn close(&self) -> bool {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.joined.iter().any(Option::is_some)
    }

    /// The client that it is fetched for, which has all that is here, reads it on beside those that joined.
    pub fn beside(self: &Arc<Self>, hint: SizeHint) -> Joined {
        let mut state = self.0.lock();
        let at = state.dropped + state.bytes.len();
        Joined { body: self.clone(), slot: state.slot(at), read: None, hint }
    }

    /// Waits until more of a body that is not kept may be read. `false`: it has no reader left.
    pub async fn room(&self) -> bool {
        std::future::poll_fn(|context| {
            let mut state = self.0.lock();
            state.drop_taken();
            if state.joined.iter().all(Option::is_none) {
                return Poll::Ready(false);
            }
            if state.bytes.len() < WINDOW {
                return Poll::Ready(true);
            }
            state.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl State {
    /// A slot for a client that has the first `at` bytes.
    fn slot(&mut self, at: usize) -> usize {
        let free = self.joined.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.joined.push(None);
            self.joined.len() - 1
        });
        self.joined[slot] = Some(Reading { at, waiting: None });
        slot
    }

    fn wake(&mut self) {
        for reading in self.joined.iter_mut().flatten() {
            if let Some(waiting) = reading.waiting.take() {
                waiting.wake();
            }
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Drops what all have taken.
    fn drop_taken(&mut self) {
        let slowest = self.joined.iter().flatten().map(|reading| reading.at).min();
        let taken = slowest.map_or(self.bytes.len(), |at| at - self.dropped);
        // Not for each few bytes: what stays is moved.
        if taken == self.bytes.len() || taken >= PIECE {
            self.bytes.drain(..taken);
            self.bytes.shrink_to(WINDOW);
            self.dropped += taken;
        }
    }
}

impl Joined {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(read) = self.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        let mut state = self.body.0.lock();
        let State { bytes, dropped, end, joined, .. } = &mut *state;
        let Some(reading) = joined[self.slot].as_mut() else { return Poll::Ready(None) };
        let piece = match end {
            Some(End::Stored(body)) => body.slice(reading.at.min(body.len())..),
            _ => {
                // What was taken out to be stored is not here for a moment.
                let here = bytes.get(reading.at - *dropped..).unwrap_or_default();
                Bytes::copy_from_slice(&here[..here.len().min(PIECE)])
            }
        };
        if !piece.is_empty() {
            reading.at += piece.len();
            state.wake_reader();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match end {
            Some(End::Stored(_) | End::Whole) => Poll::Ready(None),
            Some(End::Cut) => Poll::Ready(Some(Err(Cut::Abandoned))),
            None => {
                reading.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// All that was read of it so far, to be read once more.
    pub fn put_back(&mut self, read: Bytes) {
        self.read = Some(read);
    }

    pub fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut state = self.body.0.lock();
        state.joined[self.slot] = None;
        state.wake_reader();
    }
}
