//! The provider `verbs`: the target's RDMA adapter executes one-sided operations, over InfiniBand, RoCE or iWARP.
//!
//! What there is on this machine (`devices`), and which device, port and GID of it a node takes (`choice`). Adapters are reached by the verbs
//! library of the system, which is loaded when it is first asked for: a program with this feature runs without it, and says that it is missing.

mod choice;
mod devices;

pub use choice::{Chosen, Wanted, choose};
pub use devices::{
    AtomicReach, Device, GidEntry, GidKind, Limits, LinkLayer, Port, PortState, Transport, addresses, devices,
};
