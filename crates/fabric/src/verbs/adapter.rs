//! One adapter, opened: its port, and the memory that it may reach.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustix::process::{Resource, getrlimit};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::Gid;
use sideway::ibverbs::completion::{BasicCompletionQueue, CompletionChannel};
use sideway::ibverbs::device::{DeviceInfo, DeviceList, TransportType};
use sideway::ibverbs::device_context::{AtomicCapability, DeviceContext, LinkLayer, Mtu, PortState};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::config::VerbsConfig;
use super::entries::Refusals;
use super::probe;
use crate::capability::{AtomicScope, Atomics};
use crate::error::{Error, Result};
use crate::pool::{Registrar, Registration};

/// Outstanding reads and atomics of a connection, at most; a queue pair has 8 bits for them, adapters have 1 to 16.
const MOST_READS: i32 = 16;

/// An adapter at one of its ports.
pub(super) struct Adapter {
    pub(super) context: Arc<DeviceContext>,
    pub(super) domain: Arc<ProtectionDomain>,
    /// Where queue pairs that only answer would complete something.
    pub(super) idle: Arc<BasicCompletionQueue>,
    pub(super) name: String,
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) mtu: Mtu,
    pub(super) is_infiniband: bool,
    /// Reads and atomics of one connection that it serves at a time.
    pub(super) serves: u8,
    /// Those that it has under way at a time.
    pub(super) asks: u8,
    /// Work requests that a shared receive queue of it holds; 0 where it has none.
    pub(super) receives: u32,
    /// Where atomics come from. Without those of its own an agent of the owner's executes them, and all else that changes a region: then the words are the
    /// processor's, and iWARP promises of a write neither that a word of it is placed whole nor, when it completes, that it is placed.
    pub(super) atomics: Atomics,
    pub(super) scope: AtomicScope,
    pub(super) refusals: Refusals,
    /// Where the kernel's manager makes connections: the address of the interface, and the port where calls are taken.
    pub(super) managed: Option<SocketAddr>,
    /// By class.
    pub(super) service_levels: [u8; 2],
    /// Whether what its atomics find comes with its bytes in the other order, when that was [tried](probe).
    pub(super) swaps: OnceLock<bool>,
}

/// Memory that an adapter reaches for as long as this is there.
pub(super) type Reached = Arc<MemoryRegion>;

impl Adapter {
    /// Opens a device for what goes by a port and GID of it.
    ///
    /// # Errors
    /// [`Error::Unusable`], with what the device lacks.
    pub(super) fn open(config: &VerbsConfig) -> Result<Arc<Self>> {
        let VerbsConfig { device, port, gid_index, .. } = config;
        let (device, port, gid_index) = (device.as_str(), *port, *gid_index);
        let refused = |what: &'static str| {
            move |error: &dyn std::fmt::Display| Error::System { what, reason: format!("{device}: {error}") }
        };
        let list = DeviceList::new().map_err(|error| refused("list the RDMA devices")(&error))?;
        let found = list.iter().find(|found| found.name() == device);
        let found = found.ok_or_else(|| {
            unusable(format!("there is no device {device}"), "`verbena doctor` lists those that there are")
        })?;
        let context = found.open().map_err(|error| refused("open an RDMA device")(&error))?;
        let limits = context.query_device().map_err(|error| refused("ask an RDMA device for its limits")(&error))?;
        let is_iwarp = found.transport_type() == TransportType::IWarp;
        let (atomics, scope) = match limits.atomic_capability() {
            _ if is_iwarp => (Atomics::Emulated, AtomicScope::Processor),
            // The agent's are the processor's.
            AtomicCapability::None => (Atomics::Emulated, AtomicScope::Processor),
            AtomicCapability::HostChannelAdapter => (Atomics::Native, AtomicScope::Fabric),
            AtomicCapability::Global => (Atomics::Native, AtomicScope::Processor),
        };
        let managed = match (is_iwarp || config.rdma_cm, config.address) {
            (false, _) => None,
            (true, Some(address)) => Some(SocketAddr::new(address, config.rdma_cm_port)),
            (true, None) => {
                return Err(unusable(
                    format!("{device} is connected to by IP address, and its interface has none"),
                    "Give the interface an address (IP over InfiniBand has one too), or turn off fabric.verbs_rdma_cm",
                ));
            }
        };
        let state = context.query_port(port).map_err(|error| refused("ask a port for its state")(&error))?;
        if state.port_state() != PortState::Active {
            return Err(unusable(format!("port {port} of {device} is not active"), "`verbena doctor` shows the ports"));
        }
        let gid = context.query_gid(port, gid_index).map_err(|error| refused("ask a port for a GID")(&error))?;
        let domain = context.alloc_pd().map_err(|error| refused("make a protection domain")(&error))?;
        let mut idle = context.create_cq_builder();
        let idle = idle.setup_cqe(16).build().map_err(|error| refused("make a completion queue")(&error))?;
        let adapter = Adapter {
            idle,
            domain,
            name: device.to_owned(),
            port,
            gid_index: u8::try_from(gid_index).map_err(|error| refused("use a GID")(&error))?,
            gid,
            lid: state.lid(),
            mtu: state.active_mtu(),
            is_infiniband: state.link_layer() == LinkLayer::InfiniBand,
            serves: limits.max_qp_rd_atom().clamp(1, MOST_READS) as u8,
            asks: limits.max_qp_init_rd_atom().clamp(1, MOST_READS) as u8,
            // One for each class.
            receives: if limits.max_srq() >= 2 { limits.max_srq_wr().max(0) as u32 } else { 0 },
            atomics,
            scope,
            refusals: if is_iwarp { Refusals::Untold } else { Refusals::Told },
            managed,
            service_levels: config.service_levels,
            swaps: OnceLock::new(),
            context,
        };
        let adapter = Arc::new(adapter);
        let swaps = atomics == Atomics::Native && probe::swaps(&adapter)?;
        adapter.swaps.get_or_init(|| swaps);
        Ok(adapter)
    }

    /// What a key for changing a region allows at the adapter.
    pub(super) fn everything(&self) -> AccessFlags {
        match self.atomics {
            Atomics::Native => {
                AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic
            }
            Atomics::Emulated => AccessFlags::RemoteRead,
        }
    }

    /// What the adapter is allowed where it puts what it has fetched: on iWARP the other one writes there, with a key that the request tells it.
    pub(super) fn sink(&self) -> AccessFlags {
        match self.refusals {
            Refusals::Told => AccessFlags::LocalWrite,
            Refusals::Untold => AccessFlags::LocalWrite | AccessFlags::RemoteWrite,
        }
    }

    /// A channel for completion events.
    pub(super) fn channel(&self) -> Result<Arc<CompletionChannel>> {
        let channel =
            self.context.create_comp_channel().map_err(|error| Error::system("make a completion channel", error))?;
        channel.set_nonblocking(true).map_err(|error| Error::system("make a completion channel", error))?;
        Ok(channel)
    }

    /// Lets the adapter reach memory of this process, and others by it as `access` says.
    ///
    /// # Safety
    /// The memory stays mapped for as long as what is given back is there.
    pub(super) unsafe fn reach(&self, address: u64, bytes: u64, access: AccessFlags) -> Result<Reached> {
        // SAFETY: the caller's.
        let reached = unsafe { self.domain.reg_mr(address as usize, bytes as usize, access) };
        reached.map_err(|error| {
            let limit = getrlimit(Resource::Memlock).current;
            let limit = limit.map_or_else(|| "unlimited".into(), |limit| format!("{} KiB", limit >> 10));
            Error::System {
                what: "register memory with an RDMA device",
                reason: format!(
                    "{bytes} bytes at {}: {error}; this process may lock {limit} (`ulimit -l`, LimitMEMLOCK in a unit of systemd)",
                    self.name
                ),
            }
        })
    }
}

impl Registrar for Adapter {
    fn register(&self, block: &[u8]) -> Result<Registration> {
        // SAFETY: the pool drops a registration before its block.
        let reached = unsafe { self.reach(block.as_ptr() as u64, block.len() as u64, self.sink()) }?;
        Ok(Registration { local_key: reached.lkey(), _reached: Box::new(reached) as Box<dyn Any + Send + Sync> })
    }
}

pub(super) fn unusable(reason: String, remedy: &str) -> Error {
    Error::Unusable { provider: "verbs", reason, remedy: remedy.into() }
}
