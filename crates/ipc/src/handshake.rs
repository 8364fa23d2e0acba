//! The words on the socket (SOCK_SEQPACKET, so each is one datagram; little endian).
//!
//! ```text
//!  client to helper, once            helper to client: the answer; what is handed over; the farewell
//!  0        4         6    8         0        4         6    8        12            16          24
//!  +--------+---------+----+------+  +--------+---------+----+--------+-------------+-----------+
//!  | "VIPH" | version |  0 | mode |  | "VIPW" | version |  0 | status | bytes of a  |  client   |
//!  +--------+---------+----+------+  +--------+---------+----+--------+--ring-------+-----------+
//!                        to 12
//! ```
//!
//! Status 0 is a welcome and carries descriptors (SCM_RIGHTS); these are the client's memory, the helper's
//! page and the doorbell, in that order. Status 2^32 - 1 carries one descriptor that goes with an answer in the ring: in the
//! place of the client stands the request's number. It is sent before that answer. Any other status is a [`Farewell`], with the rest zero, after which the helper
//! closes the socket. It may also close it without one. A client says nothing after its greeting.

use thiserror::Error;
use verbena_terms::{Format, HEADER_BYTES};

use crate::error::Error;
use crate::mode::Mode;

const HELLO: Format = Format::new(*b"VIPH", 1);
const REPLY: Format = Format::new(*b"VIPW", 1);

pub(crate) const HELLO_BYTES: usize = HEADER_BYTES + 4;
pub(crate) const REPLY_BYTES: usize = HEADER_BYTES + 16;

/// Why the helper does not, or no longer, serve a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(u32)]
#[non_exhaustive]
pub enum Farewell {
    /// As many clients as the helper takes are connected.
    #[error("the helper serves as many clients as it may: raise its limit, or close idle connections")]
    Crowded = 1,
    /// The user is neither the helper's nor one that its configuration allows.
    #[error("the helper does not serve this user: allow the user in its configuration")]
    Stranger = 2,
    /// The greeting was not understood: another version.
    #[error("the helper did not understand the greeting: it is of another version")]
    Misunderstood = 3,
    /// The mode asked for is not one that this helper has.
    #[error("the helper does not know the ipc mode that was asked for")]
    UnknownMode = 4,
    /// The helper has no descriptors, no memory or no message queues left.
    #[error(
        "the helper has no descriptors, memory or message queues left for another client: raise its limits (ulimit -n, \
         kernel.msgmni)"
    )]
    Exhausted = 5,
    /// The client wrote into shared memory, into a queue, or on the socket, what it must not.
    #[error("the helper dropped the connection because its shared memory or queues were written to against the rules")]
    Breach = 6,
    /// The helper ends.
    #[error("the helper ended")]
    ShuttingDown = 7,
    /// The mode asked for is not one that this helper is to serve.
    #[error("the helper does not serve the ipc mode that was asked for: its configuration says which it does")]
    NotServed = 8,
}

/// What the helper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Welcome {
        ring_bytes: u32,
        client: u64,
    },
    /// With the answer to the request of this number.
    Attached {
        number: u64,
    },
    Farewell(Farewell),
}

const ATTACHED: u32 = u32::MAX;

pub(crate) fn hello(mode: Mode) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&HELLO.header());
    bytes[HEADER_BYTES..].copy_from_slice(&mode.number().to_le_bytes());
    bytes
}

/// What a client asks for, or how it is turned away. The answer has our magic and version in it, so that the client
/// can name both (rule F6).
pub(crate) fn parse_hello(bytes: &[u8]) -> Result<Mode, Farewell> {
    let rest = HELLO.check(bytes).map_err(|_| Farewell::Misunderstood)?;
    let mode = rest.try_into().map_err(|_| Farewell::Misunderstood)?;
    Mode::from_number(u32::from_le_bytes(mode)).ok_or(Farewell::UnknownMode)
}

impl Reply {
    pub(crate) fn encode(self) -> [u8; REPLY_BYTES] {
        let (status, ring_bytes, client) = match self {
            Reply::Welcome { ring_bytes, client } => (0, ring_bytes, client),
            Reply::Attached { number } => (ATTACHED, 0, number),
            Reply::Farewell(reason) => (reason as u32, 0, 0),
        };
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&REPLY.header());
        bytes[8..12].copy_from_slice(&status.to_le_bytes());
        bytes[12..16].copy_from_slice(&ring_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&client.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Reply, Error> {
        let rest = REPLY.check(bytes)?;
        let Ok([s0, s1, s2, s3, r0, r1, r2, r3, client @ ..]) = <[u8; 16]>::try_from(rest) else {
            return Err(Error::Greeting { bytes: bytes.len(), descriptors: 0 });
        };
        let status = u32::from_le_bytes([s0, s1, s2, s3]);
        if status == 0 {
            let ring_bytes = u32::from_le_bytes([r0, r1, r2, r3]);
            return Ok(Reply::Welcome { ring_bytes, client: u64::from_le_bytes(client) });
        }
        if status == ATTACHED {
            return Ok(Reply::Attached { number: u64::from_le_bytes(client) });
        }
        // A later helper may have reasons that we do not know; what it refuses we have to take as it is.
        Ok(Reply::Farewell(Farewell::from_status(status).unwrap_or(Farewell::Misunderstood)))
    }
}

impl Farewell {
    const ALL: [Farewell; 8] = [
        Farewell::Crowded,
        Farewell::Stranger,
        Farewell::Misunderstood,
        Farewell::UnknownMode,
        Farewell::Exhausted,
        Farewell::Breach,
        Farewell::ShuttingDown,
        Farewell::NotServed,
    ];

    fn from_status(status: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_their_bytes() {
        let welcome = Reply::Welcome { ring_bytes: 65536, client: u64::MAX - 1 };
        let farewells = Farewell::ALL.map(Reply::Farewell);
        let attached = Reply::Attached { number: u64::MAX - 2 };
        for reply in farewells.into_iter().chain([welcome, attached]) {
            assert_eq!(Reply::parse(&reply.encode()).unwrap(), reply);
        }
    }

    #[test]
    fn a_greeting_of_another_version_is_refused_with_both_versions_named() {
        let mut other = hello(Mode::Adaptive);
        assert_eq!(parse_hello(&other), Ok(Mode::Adaptive));
        other[4] = 9;
        assert_eq!(parse_hello(&other), Err(Farewell::Misunderstood));
        let mut unknown = hello(Mode::Adaptive);
        unknown[HEADER_BYTES] = 77;
        assert_eq!(parse_hello(&unknown), Err(Farewell::UnknownMode));
        for cut in 0..HELLO_BYTES {
            assert_eq!(parse_hello(&hello(Mode::Adaptive)[..cut]), Err(Farewell::Misunderstood));
        }
        let mut reply = Reply::Farewell(Farewell::Misunderstood).encode();
        reply[4] = 9;
        let told = Reply::parse(&reply).unwrap_err().to_string();
        assert!(told.contains("version 9") && told.contains("version 1"), "{told}");
    }
}
