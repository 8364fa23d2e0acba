//! The provider `tcp`: works everywhere, and is the two-sided baseline of the papers.
//!
//! A one-sided operation crosses the network as a request, and an agent thread of the target process executes it on the
//! region's words with the processor's atomics. The caller's side of each peer and class is one task: it makes the
//! connection when something waits, puts all that waits into one frame, and matches the answers, which come in the
//! order of the requests. A post for control is sent by its poster, unless something was sent just before. The side
//! that makes a connection asks on it and the other end answers, so between two nodes there are up to four: two
//! directions, two classes. The classes have threads of their own too, so that a lock never waits behind a file.
//!
//! A node's own regions it reaches without an agent: the poster executes.
//!
//! Where things are: `wire` draws every byte; `ledger` (caller) and `callers` (target) decide what exactly once and
//! unknown mean (F2), without input or output; `link` and `agent` do the input and output of the two ends, and `output`
//! says which thread sends; `dial`, `tls` and `roster` check the identity of the other end; `regions` is the memory,
//! and `own` the way to this node's; `provider` joins them to the contract.
//!
//! # What ends how
//!
//! | what happens | what the caller gets |
//! |---|---|
//! | no node listens, or another incarnation does, or one that is refused | [`Unreachable`](crate::Error::Unreachable) at once, for all that waited; the next attempt is 10 to 320 ms later, and what cannot wait so long is refused when it is posted |
//! | the deadline passes before it was sent | [`Late`](crate::Error::Late), or `Unreachable` if there is no connection |
//! | the deadline passes, or the connection is lost, after it was sent | [`Unknown`](crate::Error::Unknown), to be settled |
//! | the target's machine acknowledges nothing for 0.5 s (`Control`) | as if the connection was lost; while there is no way, another is tried every 0.2 s |
//! | nothing is heard for 1 s (`Control`) or 5 s (`Bulk`) while answers are due, and a deadline passes | the connection is given up: the next operations try another one |
//! | the target forgot the caller, because it had no connection while `most_callers` others came | nothing is executed twice; settling says [`Forgotten`](crate::Error::Forgotten) |

mod agent;
mod callers;
mod config;
mod counts;
mod dial;
mod frames;
pub mod keys;
mod ledger;
mod link;
mod output;
mod own;
mod provider;
mod regions;
mod roster;
mod shape;
mod stream;
mod tls;
mod wire;

pub use config::{TcpConfig, TlsIdentity};
pub use counts::Counts;
pub use provider::TcpFabric;
#[cfg(feature = "xdp")]
pub(crate) use provider::try_key;
pub use roster::{Found, Names, Roster};
#[cfg(feature = "xdp")]
pub(crate) use stream::mark;
#[cfg(feature = "xdp")]
pub(crate) use wire::LARGEST_MESSAGE;

/// Parses arbitrary bytes as everything that crosses a connection; panics if what parses is not written back as it was.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_frame(data: &[u8]) {
    wire::exercise(data);
}
