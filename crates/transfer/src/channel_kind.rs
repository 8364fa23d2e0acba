//! The names of the channels, as `TPRT` and `verbena cp --channel` have them.

use std::fmt;
use std::str::FromStr;

/// What a session goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKind {
    /// The files' descriptors, on one machine: the receiver copies.
    Descriptor,
    /// TCP connections, in clear.
    Tcp,
    /// QUIC connections, encrypted.
    Quic,
    /// Datagrams, encrypted, whose rate loss and delay lower.
    Udp,
}

impl ChannelKind {
    /// All of them, in the order in which they are liked.
    pub const ALL: [ChannelKind; 4] = [ChannelKind::Descriptor, ChannelKind::Tcp, ChannelKind::Quic, ChannelKind::Udp];

    /// Whether it is for two processes of one machine.
    pub fn is_local(self) -> bool {
        self == ChannelKind::Descriptor
    }

    /// Whether nobody between the two sides can read it.
    pub fn is_encrypted(self) -> bool {
        matches!(self, ChannelKind::Quic | ChannelKind::Udp)
    }

    /// Whether two servers may have it with each other. The secret by which `udp` is sealed would go over the control connections of both, of which one may be in clear (rule T2).
    pub fn is_for_servers(self) -> bool {
        self != ChannelKind::Udp
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ChannelKind::Descriptor => "descriptor",
            ChannelKind::Tcp => "tcp",
            ChannelKind::Quic => "quic",
            ChannelKind::Udp => "udp",
        }
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// A name that no channel has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no channel: descriptor, tcp, quic and udp are")]
pub struct UnknownChannel(pub String);

impl FromStr for ChannelKind {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<ChannelKind, UnknownChannel> {
        let found = ChannelKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}
