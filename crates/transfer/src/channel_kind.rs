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
}

impl ChannelKind {
    /// All of them, in the order in which they are liked.
    pub const ALL: [ChannelKind; 3] = [ChannelKind::Descriptor, ChannelKind::Tcp, ChannelKind::Quic];

    /// Whether it is for two processes of one machine.
    pub fn is_local(self) -> bool {
        self == ChannelKind::Descriptor
    }

    /// Whether nobody between the two sides can read it.
    pub fn is_encrypted(self) -> bool {
        self == ChannelKind::Quic
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ChannelKind::Descriptor => "descriptor",
            ChannelKind::Tcp => "tcp",
            ChannelKind::Quic => "quic",
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
#[error("{0:?} is no channel: descriptor, tcp and quic are")]
pub struct UnknownChannel(pub String);

impl FromStr for ChannelKind {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<ChannelKind, UnknownChannel> {
        let found = ChannelKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}
