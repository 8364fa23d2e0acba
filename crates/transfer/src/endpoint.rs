//! Where the streams of a session are made, and how: what the answer to `TPRT` says.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::channel::{Channel, Token, hello, write_frame};
use crate::channel_kind::ChannelKind;
use crate::descriptor::DescriptorStream;
use crate::quic::{Fingerprint, QuicStream};
use crate::rules::CHUNK_BYTES;

/// An endpoint of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What streams go over.
    pub channel: ChannelKind,
    /// Where the other side listens. For descriptors, the token says it.
    pub address: SocketAddr,
    /// The secret of the session (rule T1).
    pub token: Token,
    /// The certificate of the other side, for channels that are encrypted (rule T2).
    pub fingerprint: Option<Fingerprint>,
}

impl Endpoint {
    /// Makes the stream of a number, of so many that there may be.
    pub fn make(&self, number: u16, streams: u16, most: Duration) -> std::io::Result<Box<dyn Channel>> {
        let hello = hello(self.token, number, streams, CHUNK_BYTES as u32);
        match (self.channel, self.fingerprint) {
            (ChannelKind::Descriptor, _) => Ok(Box::new(DescriptorStream::connect(&self.token, &hello)?)),
            (ChannelKind::Tcp, _) => {
                let mut stream = TcpStream::connect_timeout(&self.address, most)?;
                write_frame(&mut stream, &hello, b"")?;
                Ok(Box::new(stream))
            }
            (ChannelKind::Quic, Some(pinned)) => {
                Ok(Box::new(QuicStream::connect(None, self.address, pinned, &hello, most)?))
            }
            (ChannelKind::Quic, None) => Err(std::io::Error::other("the other side named no certificate")),
        }
    }
}
