//! The channel `udp`: the paper's FTP-UDP (section 9.2), as streams on datagrams whose rate slows down on loss and on delay.
//!
//! ```text
//!  a datagram, of at most 1352 bytes
//!  0         8         16                                    length - 16
//!  +---------+---------+--------------------------------------+-----+
//!  | stream  | number  | body, sealed: see `packet`           | tag |
//!  +---------+---------+--------------------------------------+-----+
//! ```
//! [`Datagrams`] is one end of a stream, without input and output; `pace` finds its rate; `seal` has the keys. `socket` drives all streams of a socket
//! by one thread.

mod arriving;
mod listener;
mod machine;
mod pace;
mod packet;
mod ranges;
mod seal;
mod sending;
mod shared;
mod socket;

pub use listener::{UdpListener, UdpListening};
pub(crate) use machine::WINDOW;
pub use machine::{DatagramError, DatagramRules, Datagrams};
pub use packet::LONGEST_BODY;
#[cfg(feature = "fuzzing")]
pub use packet::udp_packet;
pub use seal::{LONGEST_DATAGRAM, Opener, Sealer, SessionSecret, UdpSide};
pub use shared::UdpStream;
