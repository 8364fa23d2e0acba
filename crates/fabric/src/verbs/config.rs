//! What a verbs fabric is opened with.

use std::net::Ipv6Addr;

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
