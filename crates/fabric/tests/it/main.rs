//! Every provider, and the contract that all of them keep.
//!
//! - `conformance_shm`: the suite on `shm`.
//! - `conformance_sim`: the suite on the simulator, on a sound network and with faults; with several capabilities.
//! - `conformance_tcp`: the suite on `tcp`, in the clear and secured.
//! - `conformance_verbs`: the suite on `verbs`, in an emulated machine with soft-RoCE or soft-iWARP.
//! - `conformance_verbs_linked`: the same between two emulated machines that a cable joins.
//! - `conformance_xdp`: the suite on `xdp`, between network namespaces.
//! - `shm_posts`: a post to shared memory takes no allocation and no system call.
//! - `shm_processes`: `shm` between processes that are killed: what survives works, and nothing is left.
//! - `sim`: what the simulator adds to the contract: a seed is a run, and each kind of fault happens.
//! - `tcp`: many operations under way, callers who misbehave, connections that break.
//! - `tcp_outage`: a way that is closed for a while: both ends are there, and nothing arrives.
//! - `tcp_tls`: who is let in, and who is believed, on `tcp`.
//! - `verbs_devices`: what the verbs library tells of devices, what is chosen of them, what is said where something is missing.
//! - `verbs_messages`: messages that go by the adapters, into a receive queue of the target's.
//! - `xdp_gathering`: what is posted to be gathered goes in one frame, and waits no longer than it may.
//! - `xdp_sharing`: processes that share the program on an interface.

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
