//! A connection, in the clear or secured, and how its socket is set.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, net::SocketAddr};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

use crate::message::Class;

/// A connection for control on which the other machine's kernel acknowledges nothing for so long is given up. Otherwise TCP waits twice as long
/// after each repetition, and a way that was closed for a while would be used again only after as long a while (RFC 6298 section 5.5). The kernel
/// looks when it repeats something, so a longer round trip is no reason.
const UNACKNOWLEDGED: Duration = Duration::from_millis(500);

/// A whole connection or one of its halves, by whether it is secured.
pub(super) enum Either<P, S> {
    Plain(P),
    Secured(S),
}

type Tls = Box<TlsStream<TcpStream>>;

pub(super) type Stream = Either<TcpStream, Tls>;
/// The half of a connection that is read.
pub(super) type Input = Either<OwnedReadHalf, ReadHalf<Tls>>;
/// The half of a connection that is written.
pub(super) type Sink = Either<OwnedWriteHalf, WriteHalf<Tls>>;

impl Stream {
    pub(super) fn split(self) -> (Input, Sink) {
        match self {
            Stream::Plain(stream) => {
                let (input, sink) = stream.into_split();
                (Input::Plain(input), Sink::Plain(sink))
            }
            Stream::Secured(stream) => {
                let (input, sink) = tokio::io::split(stream);
                (Input::Secured(input), Sink::Secured(sink))
            }
        }
    }
}

impl Sink {
    /// Whether who reads waits while this is written: what is secured has one state for both.
    pub(super) const fn holds_up_reading(&self) -> bool {
        matches!(self, Either::Secured(_))
    }
}

/// Sets a socket for its class. Priorities are asked for, not relied on: where the system refuses one, the classes still have
/// connections of their own.
pub(super) fn prepare(stream: &TcpStream, class: Class) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    if class == Class::Control {
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    }
    mark(&socket, stream.local_addr()?, class);
    Ok(())
}

/// Marks what a socket sends as of a class, if the system lets it.
pub(crate) fn mark(socket: &SockRef<'_>, local: SocketAddr, class: Class) {
    // DSCP CS6 and CS1 (RFC 8325 section 4: control traffic, and less than best effort), and the priorities of the
    // kernel's own table, TC_PRIO_INTERACTIVE and TC_PRIO_BULK (include/uapi/linux/pkt_sched.h).
    let (dscp, priority) = match class {
        Class::Control => (48, 6),
        Class::Bulk => (8, 2),
    };
    let marked = match local {
        SocketAddr::V4(_) => socket.set_tos_v4(dscp << 2),
        SocketAddr::V6(_) => socket.set_tclass_v6(dscp << 2),
    };
    // The mark changes the priority, so the priority comes second.
    if let Err(error) = marked.and_then(|()| socket.set_priority(priority)) {
        tracing::debug!(?class, %error, "the system gives this class no priority");
    }
}

impl<P: AsyncRead + Unpin, S: AsyncRead + Unpin> AsyncRead for Either<P, S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Either::Secured(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl<P: AsyncWrite + Unpin, S: AsyncWrite + Unpin> AsyncWrite for Either<P, S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Either::Plain(stream) => Pin::new(stream).poll_write(context, from),
            Either::Secured(stream) => Pin::new(stream).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Plain(stream) => Pin::new(stream).poll_flush(context),
            Either::Secured(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Either::Secured(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
