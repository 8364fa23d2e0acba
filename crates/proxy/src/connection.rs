//! The edges of a client's connection: what hyper, which speaks HTTP on it, does not see to.
//!
//! - A client that takes nothing for too long is given up.
//! - A head that does not come to its end in time is answered 408. One that hyper cannot read, it answers itself, 400 or 431 without
//!   `Cache-Status`, and offers no say in it. So what it writes while no request is being answered is taken for that, and an answer of ours
//!   goes out in its place.
//! - A body without a length, as HTTP/1.0 knows it, ends with the connection. If it is not the whole body the connection is reset, because
//!   nothing else tells the client.
//! - When the last answer went out and the client still sends, what it sends is read and dropped for a while: closed at once, the system would
//!   reset the connection, and the answer might be lost with it (RFC 9112 section 9.6).
//!
//! ```text
//!            head read: service called          last byte of the answer flushed
//!  waiting  ---------------------------> answering ----------------------> waiting
//!     |  what hyper writes now is its own          what it writes now is ours
//!     +--> refused: the connection ends
//! ```
//!
//! An answer that is not flushed yet when hyper refuses the next head of a pipeline counts as being answered: then hyper's own words go out.

mod direct;

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;

use crate::answer::{self, NAME, forwarded};
use crate::body::{Body, Cut};
use crate::direct::DirectHits;
use crate::observed::{Done, Observed};
use crate::streams::Streams;
use crate::taking::Stall;

/// How long what a client still sends is read after the last answer.
const LINGER: Duration = Duration::from_secs(1);

/// What carries a connection: TCP, or TLS on it.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + Unpin {
    /// The socket at the bottom.
    fn socket(&self) -> &TcpStream;
}

impl Carrier for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Carrier for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A client's connection. Bodies that are to be read have limits of their own, which know what they wait for.
pub(crate) struct Connection<S: Carrier> {
    stream: S,
    patience: Duration,
    observed: Observed,
    talk: Arc<Talk>,
    /// If hits are answered beneath hyper.
    hits: Option<Box<DirectHits>>,
    /// Whether something came of the head that is waited for.
    heard: bool,
    /// When the head that is waited for should be here.
    head_until: Instant,
    /// Runs to an earlier end than that at most: set anew when it is over, and not with every request.
    head: Option<Pin<Box<Sleep>>>,
    /// Runs while the client takes nothing.
    stall: Option<Box<Stall>>,
    /// What is left to be sent of an answer in place of hyper's; from then on nothing of hyper's is.
    refusal: Option<Bytes>,
    /// Runs after the last answer.
    linger: Option<Pin<Box<Sleep>>>,
}

/// What the connection knows of the requests that are answered on it. All of it is touched by one task.
#[derive(Default)]
pub(crate) struct Talk {
    /// From a request's head to the last byte of its answer.
    answering: AtomicBool,
    /// The answer is in hyper's hands to its end.
    ended: AtomicBool,
    /// It ends with the connection, and has not gone out whole.
    unfinished: AtomicBool,
    /// What is in hyper's hands is the whole.
    whole: AtomicBool,
    /// What follows the answer is of another protocol: hyper has nothing to say any more, and no head is waited for.
    is_tunnel: AtomicBool,
    /// The request has a body, of which something may be unread.
    uploads: AtomicBool,
    /// Hyper has made a request of what it was handed last.
    is_asked: AtomicBool,
    /// Hyper wanted to read on, and is to be woken when its answer is flushed.
    is_held: AtomicBool,
    /// Something is being answered that hyper knows nothing of.
    is_ahead: AtomicBool,
    /// The connection is to end.
    is_ending: AtomicBool,
}

/// A request under way; dropped when its answer ends, however it does.
pub(crate) struct Asked {
    on: On,
    version: Version,
}

/// What a request came on.
enum On {
    /// A connection that answers one request after the other.
    Connection(Arc<Talk>),
    /// One of the streams of a connection of HTTP/2.
    Stream(Arc<Streams>),
}

/// The body of an answer, watched for its end.
pub(crate) struct Answering {
    body: Body,
    asked: Asked,
    /// The client may have more of it, and has not taken that yet. Only of a stream.
    is_owed: bool,
}

impl<S: Carrier> Connection<S> {
    pub fn new(stream: S, patience: Duration, observed: Observed) -> Self {
        let (talk, hits, heard, head, stall, refusal, linger) = Default::default();
        let head_until = Instant::now() + patience;
        Connection { stream, patience, observed, talk, hits, heard, head_until, head, stall, refusal, linger }
    }

    pub fn talk(&self) -> Arc<Talk> {
        self.talk.clone()
    }

    /// Whether hyper writes an answer that no code here gave; then it is taken back.
    fn takes_back(&mut self, written: &[u8]) -> bool {
        if self.refusal.is_none() && !self.talk.answering.load(Ordering::Relaxed) {
            let status = written.get(9..12).and_then(|digits| StatusCode::from_bytes(digits).ok());
            self.refusal = Some(refusal(status.unwrap_or(StatusCode::BAD_REQUEST)));
        }
        self.refusal.is_some()
    }

    fn poll_refusal(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(left) = self.refusal.as_mut().filter(|left| left.has_remaining()) {
            let written = Pin::new(&mut self.stream).poll_write(context, left);
            if let Poll::Ready(Ok(bytes)) = written {
                left.advance(bytes);
            }
            ready!(self.judge(written, context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the head should be here.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = self.head_until;
        let head = self.head.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        loop {
            ready!(head.as_mut().poll(context));
            if head.deadline() >= until {
                return Poll::Ready(());
            }
            head.as_mut().reset(until);
        }
    }

    /// The head did not come to its end in time.
    fn gives_up_the_head(&mut self, context: &mut Context<'_>) -> Result<()> {
        if !self.heard {
            // As if the client had closed.
            return Ok(());
        }
        self.observed.answered(Done::Error, Some("head-slow"));
        self.refusal = Some(refusal(StatusCode::REQUEST_TIMEOUT));
        // Hyper says nothing more after this. A client that does not take so little at once gets nothing.
        let _ = self.poll_refusal(context);
        Err(Error::new(ErrorKind::TimedOut, format!("the head did not come to its end in {:?}", self.patience)))
    }

    fn judge<T>(&mut self, done: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if done.is_ready() {
            self.stall = None;
            return done;
        }
        let (patience, socket) = (self.patience, self.stream.socket());
        let stall = self.stall.get_or_insert_with(|| Box::new(Stall::new(socket, patience)));
        ready!(stall.poll(socket, patience, context));
        self.observed.stalled.increment();
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, format!("the client took nothing for {patience:?}"))))
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.refusal.is_none() && !self.talk.uploads.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut dropped = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut dropped);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER))).as_mut().poll(context)
    }
}

/// An answer to what is no request, or none in time.
fn refusal(status: StatusCode) -> Bytes {
    let (detail, text) = match status {
        StatusCode::REQUEST_TIMEOUT => ("head-slow", "the head of the request did not come in time"),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ("head-too-large", "the head of the request is too large"),
        _ => ("head-malformed", "this is no HTTP request"),
    };
    let noted = forwarded("bypass", Some(detail)).value(NAME);
    let noted = noted.to_str().expect("invariant: Cache-Status is made of tokens");
    let date = httpdate::fmt_http_date(SystemTime::now());
    Bytes::from(format!(
        "HTTP/1.1 {status}\r\ndate: {date}\r\ncache-status: {noted}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}\n",
        answer::PLAIN_TEXT,
        text.len() + 1,
    ))
}

impl<S: Carrier> Drop for Connection<S> {
    fn drop(&mut self) {
        if self.talk.unfinished.load(Ordering::Relaxed) {
            // If the system refuses, the connection has ended already.
            let _ = self.stream.socket().set_zero_linger();
        }
    }
}

impl<S: Carrier> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let read = match self.hits.take() {
            None => Pin::new(&mut self.stream).poll_read(context, buffer),
            Some(mut hits) => {
                let read = self.poll_hits(&mut hits, context, buffer);
                self.hits = Some(hits);
                read
            }
        };
        if self.talk.answering.load(Ordering::Relaxed) {
            return read;
        }
        self.heard |= buffer.filled().len() > before;
        if read.is_ready() || self.talk.is_ahead() {
            return read;
        }
        ready!(self.poll_head(context));
        Poll::Ready(self.gives_up_the_head(context))
    }
}

impl<S: Carrier> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        if self.takes_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        if self.takes_back(slices.first().map_or(&[], |slice| slice)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper flushes when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_refusal(context))?;
        if self.talk.is_ahead() {
            // Hyper has written nothing, and what is being written beneath it is not for it to wait for.
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        ready!(self.judge(flushed, context))?;
        if self.talk.ended.swap(false, Ordering::Relaxed) {
            self.talk.answering.store(false, Ordering::Relaxed);
            if self.talk.is_held.swap(false, Ordering::Relaxed) {
                context.waker().wake_by_ref();
            }
            self.heard = false;
            // From now on, even if hyper does not read before something comes. A timer that runs has this task's waker and ends no later;
            // when it does hyper reads, and it is set anew.
            self.head_until = Instant::now() + self.patience;
            if self.head.as_ref().is_none_or(|head| head.is_elapsed()) {
                let _ = self.poll_head(context);
            }
            if self.talk.whole.load(Ordering::Relaxed) {
                self.talk.unfinished.store(false, Ordering::Relaxed);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_refusal(context))?;
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        self.poll_linger(context).map(Ok)
    }
}

impl Talk {
    /// A request's head is here.
    pub fn asked<B: HttpBody>(self: &Arc<Self>, request: &Request<B>) -> Asked {
        self.answering.store(true, Ordering::Relaxed);
        self.is_asked.store(true, Ordering::Relaxed);
        self.ended.store(false, Ordering::Relaxed);
        self.uploads.store(!request.body().is_end_stream(), Ordering::Relaxed);
        Asked { on: On::Connection(self.clone()), version: request.version() }
    }
}

impl Asked {
    /// On one of these streams.
    pub fn on_stream(streams: &Arc<Streams>) -> Self {
        streams.begins();
        Asked { on: On::Stream(streams.clone()), version: Version::HTTP_2 }
    }

    /// Those among which it is one, of a connection of HTTP/2.
    pub fn streams(&self) -> Option<Arc<Streams>> {
        match &self.on {
            On::Connection(_) => None,
            On::Stream(streams) => Some(streams.clone()),
        }
    }

    /// The answer, on its way out.
    pub fn answered(self, mut response: Response<Body>) -> Response<Answering> {
        let has_length =
            response.headers().contains_key(CONTENT_LENGTH) || response.body().size_hint().exact().is_some();
        let ends_with_connection = self.version < Version::HTTP_11 && !has_length;
        if ends_with_connection {
            // To a client that asked for it hyper promises `keep-alive` all the same; `close` is stronger (RFC 9112 section 9.3).
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut is_owed = false;
        match &self.on {
            On::Connection(talk) => {
                talk.unfinished.store(ends_with_connection, Ordering::Relaxed);
                talk.whole.store(false, Ordering::Relaxed);
                talk.is_tunnel.store(response.status() == StatusCode::SWITCHING_PROTOCOLS, Ordering::Relaxed);
            }
            On::Stream(streams) => streams.owing(&mut is_owed, true),
        }
        response.map(|body| Answering { body, asked: self, is_owed })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        match &self.on {
            // A tunnel is being answered as long as it is there.
            On::Connection(talk) => talk.ended.store(!talk.is_tunnel.load(Ordering::Relaxed), Ordering::Relaxed),
            On::Stream(streams) => streams.ends(),
        }
    }
}

impl Answering {
    /// The client, or what sends to it, asked for more and got this.
    fn moved(&mut self, polled: &Poll<Option<std::result::Result<Frame<Bytes>, Cut>>>) {
        let On::Stream(streams) = &self.asked.on else { return };
        let owes = matches!(polled, Poll::Ready(Some(Ok(_))));
        if polled.is_ready() {
            streams.moves();
        }
        streams.owing(&mut self.is_owed, owes);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let On::Stream(streams) = &self.asked.on {
            streams.owing(&mut self.is_owed, false);
        }
    }
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Cut>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.moved(&polled);
        let frame = ready!(polled);
        let is_last = match &frame {
            None => true,
            Some(Ok(frame)) => frame.is_trailers() || self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if let On::Connection(talk) = &self.asked.on {
            talk.whole.store(is_last, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
