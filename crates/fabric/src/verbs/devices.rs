//! The RDMA devices of this machine, as the verbs library tells of them.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io, mem};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_indextoname;
use rdma_mummy_sys::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, ibv_gid, ibv_gid_entry,
    ibv_mtu, ibv_port_attr, ibv_port_state, ibv_query_gid_table, ibv_query_port,
};
use rustix::fs::{Access, access};
use serde::Serialize;
use sideway::ibverbs::device::{
    Device as Listed, DeviceInfo, DeviceList, GetDeviceListErrorKind, OpenDeviceErrorKind, TransportType,
};
use sideway::ibverbs::device_context::{AtomicCapability, DeviceAttr, DeviceContext};

use crate::error::{Error, Result};

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// As the kernel calls it: `mlx5_0`, `rxe0`.
    pub name: String,
    /// By what it reaches others.
    pub transport: Transport,
    /// Version of its firmware; empty where it has none.
    pub firmware: String,
    /// What it can do at most.
    pub limits: Limits,
    /// Against what its atomics are atomic.
    pub atomics: AtomicReach,
    /// By number.
    pub ports: Vec<Port>,
}

/// By what a device reaches others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// That of InfiniBand; where the link layer is Ethernet, that is RoCE.
    InfiniBand,
    /// RDMA over TCP.
    Iwarp,
    /// One that has no reliable connections.
    Other,
}

/// Against what the atomics of a device are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicReach {
    /// It has none.
    None,
    /// Those of the same device (`IBV_ATOMIC_HCA`).
    Adapter,
    /// The processors' and other devices' too (`IBV_ATOMIC_GLOB`).
    Global,
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Queue pairs: one for each connection.
    pub queue_pairs: u32,
    /// Work requests that are posted to one queue at a time.
    pub work_requests: u32,
    /// Entries of one completion queue.
    pub completion_entries: u32,
    /// Registered memory regions.
    pub regions: u32,
    /// Bytes of one of them.
    pub region_bytes: u64,
    /// Reads and atomics of others that one queue pair executes at a time.
    pub reads_as_target: u32,
    /// Reads and atomics of one queue pair that are under way at a time.
    pub reads_as_initiator: u32,
    /// Pieces of memory that one work request names.
    pub pieces: u32,
    /// The same, of a read; 0 where the device makes no difference.
    pub pieces_of_a_read: u32,
    /// Receive queues that several queue pairs share.
    pub shared_queues: u32,
    /// Buffers that one of them holds.
    pub shared_queue_buffers: u32,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// From 1.
    pub number: u8,
    /// What its link is.
    pub link_layer: LinkLayer,
    /// Whether it can be used.
    pub state: PortState,
    /// Bytes of payload of the largest packet now; 0 where the device says nothing.
    pub mtu_bytes: u32,
    /// Its local identifier, of InfiniBand; 0 elsewhere.
    pub lid: u16,
    /// Those in use, by index.
    pub gids: Vec<GidEntry>,
}

/// What the link of a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet.
    Ethernet,
}

/// How a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// It has no link.
    Down,
    /// It has a link, and no address yet; a subnet manager assigns one.
    Initializing,
    /// It has its address and carries nothing yet.
    Armed,
    /// It can be used.
    Active,
    /// It has lost its link and may get it back at once.
    Deferred,
    /// The device does not say.
    Unknown,
}

/// One GID of a port: by which others find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GidEntry {
    /// In the port's table.
    pub index: u32,
    /// The identifier; of RoCE the address of an interface, IPv4 mapped into IPv6.
    pub gid: Ipv6Addr,
    /// What packets look like that carry it.
    pub kind: GidKind,
    /// The network interface that it belongs to.
    pub interface: Option<String>,
}

/// What packets look like that carry a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GidKind {
    /// Those of InfiniBand, or of iWARP, where a GID is made of a MAC address and appears in no packet.
    InfiniBand,
    /// Ethernet frames of a type of their own.
    RoceV1,
    /// UDP.
    RoceV2,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::InfiniBand => "InfiniBand",
            Transport::Iwarp => "iWARP",
            Transport::Other => "no reliable connections",
        })
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        })
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortState::Down => "down",
            PortState::Initializing => "initializing",
            PortState::Armed => "armed",
            PortState::Active => "active",
            PortState::Deferred => "deferred",
            PortState::Unknown => "unknown",
        })
    }
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::InfiniBand => "IB",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
        })
    }
}

/// The RDMA devices of this machine, by name.
///
/// # Errors
/// [`Error::Unusable`] without a device or a library, or if this user may open no device: what is missing, and how to
/// get it.
pub fn devices() -> Result<Vec<Device>> {
    let list = DeviceList::new().map_err(|error| match error.0 {
        GetDeviceListErrorKind::Ibverbs(error) => no_list(&error),
        other => no_list(&io::Error::other(other)),
    })?;
    let mut devices = list.iter().map(|listed| device(&listed)).collect::<Result<Vec<_>>>()?;
    if devices.is_empty() {
        return Err(none_listed());
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

/// The addresses of this machine, each with the interface that has it.
///
/// # Errors
/// [`Error::System`] where they cannot be listed.
pub fn addresses() -> Result<Vec<(String, IpAddr)>> {
    let all = getifaddrs().map_err(|error| Error::system("list the interfaces", error))?;
    let addresses = all.filter_map(|one| {
        let address = one.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
        let address = v4.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))?;
        Some((one.interface_name, address))
    });
    Ok(addresses.collect())
}

fn device(listed: &Listed<'_>) -> Result<Device> {
    let name = listed.name();
    let context = listed.open().map_err(|error| match error.0 {
        OpenDeviceErrorKind::Ibverbs(error) => not_opened(&name, &error),
        other => not_opened(&name, &io::Error::other(other)),
    })?;
    let attributes = context.query_device().map_err(|error| asking(&name, error))?;
    let transport = match listed.transport_type() {
        TransportType::InfiniBand => Transport::InfiniBand,
        TransportType::IWarp => Transport::Iwarp,
        _ => Transport::Other,
    };
    let mut ports = Vec::new();
    let mut gids_at_most = 0;
    for number in 1..=attributes.phys_port_cnt() {
        let (port, gids) = port(&context, number).map_err(|error| asking(&name, error))?;
        ports.push(port);
        gids_at_most += gids;
    }
    for entry in gid_table(&context, gids_at_most).map_err(|error| asking(&name, error))? {
        let Some(port) = ports.iter_mut().find(|port| u32::from(port.number) == entry.port_num) else { continue };
        port.gids.extend(gid_entry(&entry, transport));
    }
    ports.iter_mut().for_each(|port| port.gids.sort_by_key(|gid| gid.index));
    Ok(Device {
        name,
        transport,
        firmware: attributes.firmware_version(),
        limits: limits(&attributes),
        atomics: match attributes.atomic_capability() {
            AtomicCapability::None => AtomicReach::None,
            AtomicCapability::HostChannelAdapter => AtomicReach::Adapter,
            AtomicCapability::Global => AtomicReach::Global,
        },
        ports,
    })
}

fn limits(of: &DeviceAttr) -> Limits {
    // Some drivers report -1 for zero.
    let count = |number: i32| number.max(0) as u32;
    Limits {
        queue_pairs: count(of.max_qp()),
        work_requests: count(of.max_qp_wr()),
        completion_entries: count(of.max_cqe()),
        regions: count(of.max_mr()),
        region_bytes: of.max_mr_size(),
        reads_as_target: count(of.max_qp_rd_atom()),
        reads_as_initiator: count(of.max_qp_init_rd_atom()),
        pieces: count(of.max_sge()),
        pieces_of_a_read: count(of.max_sge_rd()),
        shared_queues: count(of.max_srq()),
        shared_queue_buffers: count(of.max_srq_wr()),
    }
}

/// A port without its GIDs, and how many it can have. The safe wrapper panics at an MTU of 0, which drivers say of a port that has lost its interface.
fn port(context: &DeviceContext, number: u8) -> io::Result<(Port, usize)> {
    // SAFETY: a structure of numbers alone.
    let mut found: ibv_port_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is open for as long as it is borrowed; the library writes no more than the structure.
    match unsafe { ibv_query_port(context.context().as_ptr(), number, &raw mut found) } {
        0 => {}
        // Older libraries return -1 and leave the reason in errno.
        code if code < 0 => return Err(io::Error::last_os_error()),
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    let port = Port {
        number,
        link_layer: match found.link_layer {
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            // Devices that are older than RoCE say nothing.
            _ => LinkLayer::InfiniBand,
        },
        state: match found.state {
            ibv_port_state::IBV_PORT_DOWN => PortState::Down,
            ibv_port_state::IBV_PORT_INIT => PortState::Initializing,
            ibv_port_state::IBV_PORT_ARMED => PortState::Armed,
            ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
            ibv_port_state::IBV_PORT_ACTIVE_DEFER => PortState::Deferred,
            _ => PortState::Unknown,
        },
        mtu_bytes: match found.active_mtu {
            mtu @ ibv_mtu::IBV_MTU_256..=ibv_mtu::IBV_MTU_4096 => 128 << mtu,
            _ => 0,
        },
        lid: found.lid,
        gids: Vec::new(),
    };
    Ok((port, found.gid_tbl_len.max(0) as usize))
}

/// Those in use of all ports. The safe wrapper asks the ports once more, and panics where one does not answer.
fn gid_table(context: &DeviceContext, at_most: usize) -> io::Result<Vec<ibv_gid_entry>> {
    // One at least: the library takes the size of an entry from the first.
    let empty =
        ibv_gid_entry { gid: ibv_gid { raw: [0; 16] }, gid_index: 0, port_num: 0, gid_type: 0, ndev_ifindex: 0 };
    let mut entries = vec![empty; at_most.max(1)];
    // SAFETY: the context is open for as long as it is borrowed; the library writes at most `entries.len()` entries.
    let found = unsafe { ibv_query_gid_table(context.context().as_ptr(), entries.as_mut_ptr(), entries.len(), 0) };
    if found < 0 {
        return Err(io::Error::from_raw_os_error(-found as i32));
    }
    entries.truncate(found as usize);
    Ok(entries)
}

/// None of a kind that is not known.
fn gid_entry(entry: &ibv_gid_entry, transport: Transport) -> Option<GidEntry> {
    // SAFETY: both members of the union are 16 bytes, of which all values are good.
    let raw = unsafe { entry.gid.raw };
    let kind = match entry.gid_type {
        IBV_GID_TYPE_IB => GidKind::InfiniBand,
        IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => return None,
    };
    let interface = match entry.ndev_ifindex {
        // Kernels before 6.5 do not say it of iWARP, where a GID begins with the interface's MAC address.
        0 if transport == Transport::Iwarp => interface_with(&raw[..6]),
        0 => None,
        number => if_indextoname(number).ok().and_then(|name| name.into_string().ok()),
    };
    Some(GidEntry { index: entry.gid_index, gid: Ipv6Addr::from(raw), kind, interface })
}

fn interface_with(mac: &[u8]) -> Option<String> {
    let wanted = mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let has = |name: &OsString| {
        let address = fs::read_to_string(Path::new("/sys/class/net").join(name).join("address"));
        address.is_ok_and(|address| address.trim() == wanted)
    };
    names("/sys/class/net").into_iter().find(has).and_then(|name| name.into_string().ok())
}

fn names(directory: &str) -> Vec<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

fn unusable(reason: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::Unusable { provider: "verbs", reason: reason.into(), remedy: remedy.into() }
}

fn no_list(error: &io::Error) -> Error {
    match error.raw_os_error().map(Errno::from_raw) {
        // What stands in for the library says so of every function that was not found.
        Some(Errno::EOPNOTSUPP) => unusable(
            "the verbs library, libibverbs.so.1, is not there or cannot be loaded",
            "Debian: apt-get install libibverbs1 ibverbs-providers",
        ),
        // The kernel has no such devices at all.
        Some(Errno::ENOSYS) => none_listed(),
        _ => {
            unusable(format!("the verbs library lists no devices: {error}"), "The log of the kernel may say why: dmesg")
        }
    }
}

/// The library lists no device that has no file, and none that it has no driver for.
fn none_listed() -> Error {
    let Some(of_kernel) = names("/sys/class/infiniband").into_iter().next() else {
        return unusable(
            "this machine has no RDMA device",
            "An adapter whose driver is loaded; or soft-RoCE: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE",
        );
    };
    let name = of_kernel.display();
    if !file_of(&of_kernel).is_some_and(|file| file.exists()) {
        return unusable(
            format!("{name} has no file in /dev/infiniband"),
            "udev makes it, with the kernel module ib_uverbs; a container is handed it: docker run --device /dev/infiniband",
        );
    }
    unusable(
        format!("the verbs library has no driver for {name}"),
        "Debian: apt-get install ibverbs-providers; the maker of the adapter may have another one",
    )
}

/// For a file that may not be opened the library reports that it does not exist: it has looked for it everywhere.
fn not_opened(name: &str, error: &io::Error) -> Error {
    let file = file_of(name.as_ref());
    match file.map(|file| (access(&file, Access::READ_OK | Access::WRITE_OK), file)) {
        Some((Err(refused), file)) => unusable(
            format!("{name} may not be opened by this user: {}: {refused}", file.display()),
            "Give the user the right to read and write it: a rule of udev, or the group that it is of",
        ),
        _ => unusable(format!("{name} cannot be opened: {error}"), "The log of the kernel may say why: dmesg"),
    }
}

/// The file by which programs reach a device, whether it is there or not.
fn file_of(name: &OsStr) -> Option<PathBuf> {
    let belongs = |file: &OsString| {
        let device = fs::read_to_string(Path::new("/sys/class/infiniband_verbs").join(file).join("ibdev"));
        device.is_ok_and(|device| device.trim_end().as_bytes() == name.as_encoded_bytes())
    };
    let file = names("/sys/class/infiniband_verbs").into_iter().find(belongs)?;
    Some(Path::new("/dev/infiniband").join(file))
}

fn asking(name: &str, error: impl std::error::Error) -> Error {
    unusable(format!("{name} does not answer: {}", innermost(&error)), "The log of the kernel may say why: dmesg")
}

fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
