//! Every provider, and the contract that all of them keep.
//!
//! - `conformance_shm`: `shm` passes the suite.
//! - `conformance_sim`: The suite on the simulator: on a sound network, and with requests that take long, overtake each other, arrive
//! - `conformance_tcp`: The conformance suite on the provider `tcp`, in the clear and secured.
//! - `conformance_verbs`: The conformance suite on the provider `verbs`, in a machine of Debian's kernel: on soft-RoCE, two devices whose packets go by a virtual link, and on
//! - `conformance_verbs_linked`: The conformance suite on the provider `verbs` between two machines of Debian's kernel that a cable joins: owners and targets are in the one, those who reach them in the
//! - `conformance_xdp`: The conformance suite on the provider `xdp`, between network namespaces.
//! - `shm_posts`: What the contract says of a synchronous fabric's posts: no allocation and no system call. Alone in its program, because it counts what its
//! - `shm_processes`: `shm` between processes that are killed: what survives works, and nothing is left.
//! - `sim`: What the simulator adds to the contract: that a seed is a run, and that each kind of fault happens.
//! - `tcp`: What is particular to the provider `tcp`: many operations under way, callers who misbehave, connections that break.
//! - `tcp_outage`: The provider `tcp` on a way that is closed for a while: both ends are there, and nothing arrives.
//! - `tcp_tls`: Who is let in, and who is believed, on the provider `tcp`.
//! - `verbs_devices`: What the verbs library tells of devices that need no adapter, what is chosen of them, and what is said where something is missing.
//! - `verbs_messages`: Messages that go by the adapters, into a receive queue of the target's, in a machine with soft-RoCE or soft-iWARP: the suite's checks of messages where all of them do, and
//! - `xdp_gathering`: What is posted to be gathered goes in one frame, and nothing of it waits longer than it may; what a node posts to itself goes in none.
//! - `xdp_sharing`: Processes that share the program on an interface: it is there as long as one of them is, and what one leaves is taken away.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod conformance_shm;
mod conformance_sim;
mod conformance_tcp;
mod conformance_verbs;
mod conformance_verbs_linked;
mod conformance_xdp;
mod shm_posts;
mod shm_processes;
mod sim;
mod tcp;
mod tcp_outage;
mod tcp_tls;
mod verbs_devices;
mod verbs_messages;
mod xdp_gathering;
mod xdp_sharing;
