//! HTTP/2 with an application: requests that only read share one connection of each thread to each origin.
//!
//! Which version an `https` origin speaks is agreed in the handshake (ALPN), on each connection anew; what the last one agreed on is remembered, so that origins of HTTP/1.1
//! are asked over the connections of hyper's pool. Where the configuration says `http2`, it is spoken from the first byte, also without TLS (RFC 9113 section 3.3).
//!
//! A write has a connection of its own in both versions: so it is known whether a byte of it was sent (rule P7).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Mutex;

use super::address::Stream;
use super::{Failure, Origin, Origins};

/// How often an application that owes an answer is asked whether it is there, and how long it may take to say so: a connection that is gone without a word would keep
/// its requests for as long as an answer may take.
const PING: Duration = Duration::from_secs(5);
/// Bytes of one answer, and of all on a connection, that may be on their way.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of the head of an answer: more is refused by the stream.
const LONGEST_HEAD: u32 = 256 << 10;

/// The shared connections of one thread, by the origin's number.
pub(super) struct Multiplexed(Box<[Mutex<Option<Sender>>]>);

pub(super) type Sender = SendRequest<Empty<Bytes>>;

/// A way to an origin.
pub(super) enum Way {
    /// One of HTTP/2, with others.
    Shared(Sender),
    /// A connection of HTTP/1.1: that is what the origin agreed on.
    Own(Stream),
}

impl Multiplexed {
    pub fn new(origins: usize) -> Self {
        Multiplexed((0..origins).map(|_| Mutex::new(None)).collect())
    }

    /// The connection to this origin, opened if it is not open. `None`: the origin takes no connection.
    pub async fn way(&self, origins: &Arc<Origins>, origin: &Origin) -> Option<Result<Way, Failure>> {
        let mut kept = self.0[origin.number].lock().await;
        if let Some(sender) = kept.as_ref().filter(|sender| !sender.is_closed()) {
            return Some(Ok(Way::Shared(sender.clone())));
        }
        let stream = origins.open(origin, None).await?;
        if !origins.speaks_http2(&stream) {
            return Some(Ok(Way::Own(stream)));
        }
        let sender = match handshake(stream).await {
            Ok(sender) => sender,
            Err(failure) => return Some(Err(failure)),
        };
        *kept = Some(sender.clone());
        Some(Ok(Way::Shared(sender)))
    }

    /// The connection is not to be used for another request. What is under way on it goes on.
    pub async fn forget(&self, origin: &Origin) {
        self.0[origin.number].lock().await.take();
    }
}

/// Begins HTTP/2 on a connection, which lasts until all senders are gone and nothing is under way.
pub(super) async fn handshake<B>(stream: Stream) -> Result<SendRequest<B>, Failure>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let shaken = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(LONGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = shaken.map_err(|_| Failure::Broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the application ended");
        }
    });
    Ok(sender)
}
