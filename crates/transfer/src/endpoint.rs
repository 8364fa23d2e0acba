//! Where the streams of a session are made, and how: what the answer to `TPRT` says.

use std::io::Error;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::channel::{Channel, Token, hello, write_frame};
use crate::channel_kind::ChannelKind;
use crate::descriptor::DescriptorStream;
use crate::quic::{Fingerprint, QuicStream};
use crate::rules::CHUNK_BYTES;
use crate::udp::{SessionSecret, UdpStream};

/// An endpoint of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What streams go over.
    pub channel: ChannelKind,
    /// Where the other side listens. For descriptors, the token says it.
    pub address: SocketAddr,
    /// The secret of the session (rule T1).
    pub token: Token,
    /// The certificate of the other side, for the channel `quic` (rule T2).
    pub fingerprint: Option<Fingerprint>,
    /// What both sides seal by, for the channel `udp` (rule T2).
    pub secret: Option<SessionSecret>,
}

impl Endpoint {
    /// Makes the stream of a number, of so many that there may be.
    pub fn make(&self, number: u16, streams: u16, most: Duration) -> std::io::Result<Box<dyn Channel>> {
        self.make_from(None, number, streams, most)
    }

    /// The same, from this address of this machine. Streams of the channels `descriptor` and `udp` have none of their own.
    pub fn make_from(
        &self,
        here: Option<IpAddr>,
        number: u16,
        streams: u16,
        most: Duration,
    ) -> std::io::Result<Box<dyn Channel>> {
        let hello = hello(self.token, number, streams, CHUNK_BYTES as u32);
        match self.channel {
            ChannelKind::Descriptor => Ok(Box::new(DescriptorStream::connect(&self.token, &hello)?)),
            ChannelKind::Tcp => {
                let mut stream = match here {
                    None => TcpStream::connect_timeout(&self.address, most)?,
                    Some(here) => {
                        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
                        socket.bind(&SocketAddr::new(here, 0).into())?;
                        socket.connect_timeout(&self.address.into(), most)?;
                        socket.into()
                    }
                };
                write_frame(&mut stream, &hello, b"")?;
                Ok(Box::new(stream))
            }
            ChannelKind::Quic => {
                let pinned = self.fingerprint.ok_or_else(|| Error::other("the other side named no certificate"))?;
                Ok(Box::new(QuicStream::connect(here, self.address, pinned, &hello, most)?))
            }
            ChannelKind::Udp => {
                let secret = self.secret.ok_or_else(|| Error::other("the other side named no secret"))?;
                Ok(Box::new(UdpStream::connect(self.address, secret, &hello, most)?))
            }
        }
    }
}
