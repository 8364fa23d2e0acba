//! The provider `verbs`: adapters of InfiniBand and RoCE execute one-sided operations, and the owner's processors are not asked.
//!
//! Between two nodes there are up to eight reliable connections: two directions, two classes, operations and messages.
//! The asking side makes its end and sends it to the other node by message; the answer names the end that answers
//! there. A batch is posted with one doorbell, of its requests only the last reports; a request behind a read or an
//! atomic that changes something is fenced (F1). Buffers of the pool and the memory of regions are registered, so that
//! nothing is copied.
//!
//! Adapters are reached by the verbs library of the system, which is loaded when it is first asked for: a program with this feature runs without it, and says that it
//! is missing.
//!
//! Where things are: `devices` is what there is on this machine, `choice` which device, port and GID of it a node takes, `opening` does both; `ledger`, with `entries`, decides what exactly once and unknown mean for a connection that has ended (F2), without input or output; `batches` is what goes, `outcomes` what is remembered of it, `standstill` what follows where nothing comes, `tally` how many connections there were; `line` and `adapter` speak
//! to the adapter; `link` and `clerk` drive a connection, which `connecting` asks for; `sends` decides which way messages go, `sender` drives that, `receiver` is the queue that they come to, and `envelope` draws their heads; `guests` are the ends that answer; `regions` and `arena` the memory; `introductions`
//! draws every byte that is said by message, and `porter` takes it; `provider` joins them to the contract.
//!
//! # What ends how
//!
//! | what happens | what the caller gets |
//! |---|---|
//! | the key is of an earlier life of its region | the adapter refuses it: [`Revoked`](crate::Error::Revoked), nothing of the batch behind that element executed. The connection is made again; what others had posted behind it goes on there |
//! | that answer is lost, or no acknowledgement comes | after a second the owner is asked about the key: [`Revoked`](crate::Error::Revoked) if it is no longer good, and if it is, it is waited for until the connection ends: then reads go again, and the rest is [`Unknown`](crate::Error::Unknown) |
//! | the deadline passes after it was posted | [`Unknown`](crate::Error::Unknown); settled when it completes, for the transport sends again for over two seconds |
//! | the target's agent is gone, or says nothing of the key | the connection ends: `Unknown`. Settling makes another one, for which the target destroys the former: what was open is [`Forgotten`](crate::Error::Forgotten), never executed later |
//! | the deadline passes before it was posted | [`Late`](crate::Error::Late), or why there is no connection |
//!
//! # Who may ask
//!
//! The channels for messages are those of `tcp`, secured by `fabric.keys`. By them a node makes connections, and gives
//! the adapter's key of a region to a peer that shows the region's secret. On the wire between adapters nothing is
//! secured: any host that can send packets there, as a member or with the numbers of a connection, reaches what a
//! guessed key of 32 bits opens.

mod adapter;
mod arena;
mod batches;
mod burial;
mod choice;
mod clerk;
mod config;
mod connecting;
mod devices;
mod enquiries;
mod entries;
mod envelope;
mod guests;
mod introductions;
mod ledger;
mod line;
mod link;
mod manager;
mod opening;
mod outcomes;
mod porter;
mod probe;
mod provider;
mod receiver;
mod regions;
mod sender;
mod sends;
mod standstill;
mod tally;

pub use choice::{Chosen, Wanted, choose};
pub use config::{Completions, VerbsConfig};
pub use devices::{
    AtomicReach, Device, GidEntry, GidKind, Limits, LinkLayer, Port, PortState, Transport, addresses, devices,
};
pub(crate) use opening::open;
pub use opening::wanted;
pub use provider::VerbsFabric;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
mod tests;

/// Takes arbitrary bytes for what nodes say to each other before their adapters can; panics if what is understood is not said again.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_message(data: &[u8]) {
    introductions::exercise(data);
}

/// Takes arbitrary bytes for a message that has come into a receive queue; panics if what is understood is not said again.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_letter(data: &[u8]) {
    envelope::exercise(data);
}
