//! What a verbs fabric is opened with.

use std::net::{IpAddr, Ipv6Addr};

use crate::tcp::TcpConfig;

/// What a verbs fabric is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsConfig {
    /// The channels for messages and introductions.
    pub tcp: TcpConfig,
    /// The device, as `verbena doctor` calls it.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Which entry of the port's table is its address.
    pub gid_index: u32,
    /// That entry, as it was when it was chosen: another one there is an error.
    pub gid: Option<Ipv6Addr>,
    /// Connections are made by the kernel's manager (rdma_cm), as those of iWARP always are; otherwise by message.
    pub rdma_cm: bool,
    /// The address of the adapter's interface, by which the manager finds it.
    pub address: Option<IpAddr>,
    /// Where the manager takes calls; 0 is a port that is free.
    pub rdma_cm_port: u16,
    /// The service level of each class, 0 to 15, [`Class::Control`](crate::Class::Control) first; where the manager connects the network's own says it.
    pub service_levels: [u8; 2],
    /// Messages that fit go by the adapters too, where those have a receive queue to share; nothing secures them there.
    pub sends: bool,
    /// How completions of [`Class::Control`](crate::Class::Control) are learnt of.
    pub completions: Completions,
}

/// How completions are learnt of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completions {
    /// A thread sleeps until the adapter tells: an interrupt and a wake-up for each, and nothing between.
    #[default]
    Told,
    /// A thread looks without a pause while something is under way: it keeps a core busy then.
    Polled,
}
