//! What the configuration says of the fabric.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbena_terms::{Contradiction, Size, section};

section! {
    /// Which interconnect carries memory operations and messages between the nodes.
    pub struct FabricConfig as "fabric", checked by FabricConfig::check {
        /// The provider: `auto`, `shm`, `verbs`, `xdp` or `tcp`.
        ///
        /// `auto` takes the best that reaches every one of `cluster.members` and says which and why: shm where all addresses
        /// are `shm://NAME`, or none is configured; verbs where all are `verbs://HOST:PORT`, and so for xdp and tcp. A named one that does not, or that
        /// cannot work here, is an error that says what is missing. `verbena doctor` shows what this machine can do.
        pub provider: Choice as "PROVIDER" = Choice::Auto,
        /// tcp, xdp, verbs: where to listen, as `IP:PORT`.
        ///
        /// Not set: the node's own address in `cluster.members`. To be set where that is not an address of this machine.
        pub listen: Option<SocketAddr> as "IP:PORT" = None,
        /// tcp, xdp, verbs: the directory with the authority's and this node's certificate and key, made by `verbena keys`.
        ///
        /// Not set: nodes speak in the clear, which they do on loopback only.
        pub keys: Option<PathBuf> as "DIR" = None,
        /// tcp, xdp, verbs: speak in the clear beyond loopback too. Any process that reaches the port can then claim to be any node.
        pub insecure: bool as "BOOL" = false,
        /// xdp: an interface that receives; several may be named.
        ///
        /// Not set: the one that has the address that the node listens at. Nodes of one machine reach each other by `lo` alone, and by their agents
        /// where it is not named. Naming it puts every packet that the machine sends to itself before the program.
        pub xdp_interfaces: Vec<String> as "NAME" = Vec::new(),
        /// xdp: where in their receive paths: `auto`, `native` (in the driver) or `generic` (behind it, on any interface, slower).
        ///
        /// `auto` takes native where the driver has it, and says which it is.
        pub xdp_mode: XdpMode as "MODE" = XdpMode::Auto,
        /// verbs: the RDMA device, as `verbena doctor` calls it.
        ///
        /// Not set: the one that has the address that the node listens at. To be set where messages go by another network than operations, and on
        /// InfiniBand where there are several.
        pub verbs_device: Option<String> as "NAME" = None,
        /// verbs: the device's port, from 1.
        ///
        /// Not set: the first that is active and has the address.
        pub verbs_port: Option<u8> as "NUMBER" = None,
        /// verbs: the entry of the port's GID table that is the node's address there.
        ///
        /// Not set: of RoCE the entry of version 2 with the address that the node listens at, of InfiniBand entry 0. `verbena doctor` shows the table.
        pub verbs_gid: Option<u32> as "INDEX" = None,
        /// verbs: look for completions without a pause while something is under way, instead of being woken. Quicker, and takes a core.
        pub verbs_polling: bool as "BOOL" = false,
        /// verbs: send messages by the adapters too, if they are of 4064 bytes or less.
        ///
        /// Not set: where there are no keys. Keys secure what goes by tcp; between adapters nothing is encrypted or signed. The same at all nodes.
        pub verbs_send: Option<bool> as "BOOL" = None,
        /// verbs: make connections by the kernel's manager of connections (rdma_cm), by IP address, instead of by message.
        ///
        /// Connections of iWARP are made so whatever this says. On InfiniBand it finds ways between subnets, and takes service levels from the subnet
        /// manager. The same at all nodes.
        pub verbs_rdma_cm: bool as "BOOL" = false,
        /// verbs: the port where the manager of connections takes calls; of iWARP that of TCP. 0 is one that is free.
        pub verbs_rdma_cm_port: u16 as "PORT" = 0,
        /// verbs: the service level of locks and words, 0 to 15: the configuration of the network's switches says what it means.
        pub verbs_control_level: u8 as "LEVEL" = 0,
        /// verbs: the service level of bulk transfers, 0 to 15.
        pub verbs_bulk_level: u8 as "LEVEL" = 0,
        /// Memory for transfers under way.
        pub pool: Size as "SIZE" = Size(64 << 20),
    }
}

/// What the configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The best that reaches every member.
    #[default]
    Auto,
    /// Shared memory.
    Shm,
    /// RDMA adapters.
    Verbs,
    /// The kernels' receive paths.
    Xdp,
    /// TCP.
    Tcp,
}

/// Where in the receive path of an interface the program of `xdp` stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver if it can, otherwise generic.
    #[default]
    Auto,
    /// In the driver: before anything is allocated for a frame.
    Native,
    /// Behind it: on any interface, and slower.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Auto => "auto",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

impl FabricConfig {
    fn check(&self) -> Vec<Contradiction> {
        let too_small = self.pool.0 < 1 << 20;
        let pool = too_small.then(|| Contradiction::new("pool", "less than 1MiB holds no transfer"));
        let both = self.insecure && self.keys.is_some();
        let insecure = both.then(|| Contradiction::new("insecure", "there are keys: take one of the two out"));
        let levels = [("verbs_control_level", self.verbs_control_level), ("verbs_bulk_level", self.verbs_bulk_level)];
        let levels = levels.into_iter().filter(|(_, level)| *level > 15);
        let levels = levels.map(|(key, _)| Contradiction::new(key, "service levels are 0 to 15"));
        pool.into_iter().chain(insecure).chain(levels).collect()
    }
}
