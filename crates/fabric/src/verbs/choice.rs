//! Which device, port and GID a node takes. Only ports that are active and whose device has reliable connections.
//!
//! * InfiniBand: GID 0. A GID there says nothing about addresses, so neither does the choice.
//! * RoCE: version 2 alone, for version 1 is not routed. The GID that is the address that the node listens at; where it listens everywhere,
//!   an IPv4 address before a global IPv6 one, and that before one of the link.
//! * iWARP: the port whose interface has the address. Its GIDs are made of MAC addresses and appear in no packet.
//!
//! A device or GID that is named need not have the address: the operations may go by another network than the messages. Of several
//! that are equally good the first by name is taken, and that is said.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use super::devices::{Device, GidEntry, GidKind, LinkLayer, Port, PortState, Transport};
use crate::error::{Error, Result};

/// What is asked for. All that is not said is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The device, by name.
    pub device: Option<String>,
    /// Its port, from 1.
    pub port: Option<u8>,
    /// Index in the port's GID table.
    pub gid_index: Option<u32>,
    /// Where the node listens, if it says so; an unspecified address (`0.0.0.0`) says nothing.
    pub address: Option<IpAddr>,
}

/// What a node takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// The device, by name.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Index in the port's GID table.
    pub gid_index: u32,
    /// The GID there.
    pub gid: Ipv6Addr,
    /// What packets look like that carry it.
    pub kind: GidKind,
    /// What the port's link is.
    pub link_layer: LinkLayer,
    /// By which others reach it over IP: of RoCE its GID, of iWARP the address of its interface; none of InfiniBand.
    pub address: Option<IpAddr>,
    /// Why this one.
    pub why: String,
}

/// How good what fits is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Merit {
    /// It has the address that the node listens at.
    Wanted,
    /// It has an IPv4 address, or is of InfiniBand.
    V4,
    /// It has an IPv6 address that is good beyond the link.
    V6,
    /// It has an address of the link alone.
    Link,
}

/// Why something does not fit, the farthest from fitting first: the error names what came nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Device,
    Port,
    Transport,
    State,
    Index,
    Empty,
    Kind,
    Address,
}

struct Candidate<'a> {
    device: &'a Device,
    port: &'a Port,
    gid: &'a GidEntry,
    address: Option<IpAddr>,
    merit: Merit,
}

/// The device, port and GID that a node takes of those that there are. `addresses` are those of the machine's interfaces, with their names.
///
/// # Errors
/// [`Error::Unusable`] where none fits: why, what to do, and the table of what there is.
pub fn choose(devices: &[Device], addresses: &[(String, IpAddr)], wanted: &Wanted) -> Result<Chosen> {
    let wanted = Wanted {
        address: wanted.address.map(|address| address.to_canonical()).filter(|address| !address.is_unspecified()),
        ..wanted.clone()
    };
    let mut fitting = Vec::new();
    let mut nearest = Refusal::Device;
    for device in devices {
        for port in &device.ports {
            if let Err(refusal) = port_fits(device, port, &wanted) {
                nearest = nearest.max(refusal);
                continue;
            }
            nearest = nearest.max(if wanted.gid_index.is_some() { Refusal::Index } else { Refusal::Empty });
            for gid in &port.gids {
                match Candidate::new((device, port), gid, addresses, &wanted) {
                    Ok(candidate) => fitting.push(candidate),
                    Err(refusal) => nearest = nearest.max(refusal),
                }
            }
        }
    }
    let best = fitting.iter().min_by(|a, b| a.place().cmp(&b.place()));
    let best = best.ok_or_else(|| refused(nearest, devices, &wanted))?;
    let equal: BTreeSet<_> = fitting.iter().filter(|other| other.merit == best.merit).map(Candidate::name).collect();
    Ok(Chosen {
        device: best.device.name.clone(),
        port: best.port.number,
        gid_index: best.gid.index,
        gid: best.gid.gid,
        kind: best.gid.kind,
        link_layer: best.port.link_layer,
        address: best.address,
        why: best.why(&equal, &wanted),
    })
}

fn port_fits(device: &Device, port: &Port, wanted: &Wanted) -> std::result::Result<(), Refusal> {
    if wanted.device.as_ref().is_some_and(|name| *name != device.name) {
        return Err(Refusal::Device);
    }
    if wanted.port.is_some_and(|number| number != port.number) {
        return Err(Refusal::Port);
    }
    if device.transport == Transport::Other {
        return Err(Refusal::Transport);
    }
    if port.state != PortState::Active {
        return Err(Refusal::State);
    }
    Ok(())
}

impl<'a> Candidate<'a> {
    fn new(
        (device, port): (&'a Device, &'a Port),
        gid: &'a GidEntry,
        addresses: &[(String, IpAddr)],
        wanted: &Wanted,
    ) -> std::result::Result<Self, Refusal> {
        let roce = device.transport == Transport::InfiniBand && port.link_layer == LinkLayer::Ethernet;
        // Beyond GID 0 there are on InfiniBand such as partitions and virtual machines have for themselves.
        if wanted.gid_index.map_or(!roce && gid.index != 0, |index| index != gid.index) {
            return Err(Refusal::Index);
        }
        if gid.gid.is_unspecified() {
            return Err(Refusal::Empty);
        }
        if roce && gid.kind != GidKind::RoceV2 {
            return Err(Refusal::Kind);
        }
        let candidate = |address: Option<IpAddr>| {
            let merit = match address {
                Some(address) if wanted.address == Some(address) => Merit::Wanted,
                Some(IpAddr::V4(_)) | None => Merit::V4,
                Some(IpAddr::V6(address)) if address.is_unicast_link_local() => Merit::Link,
                Some(IpAddr::V6(_)) => Merit::V6,
            };
            Candidate { device, port, gid, address, merit }
        };
        let own: Vec<_> = match device.transport {
            Transport::InfiniBand if roce => vec![candidate(Some(gid.gid.to_canonical()))],
            Transport::InfiniBand => vec![candidate(None)],
            _ => {
                let of_interface = addresses.iter().filter(|(name, _)| Some(name) == gid.interface.as_ref());
                of_interface.map(|(_, address)| candidate(Some(address.to_canonical()))).collect()
            }
        };
        let named = wanted.device.is_some() || wanted.gid_index.is_some();
        let fits =
            |one: &Self| named || one.address.is_none() || wanted.address.is_none() || one.merit == Merit::Wanted;
        own.into_iter().filter(fits).min_by_key(|one| one.merit).ok_or(Refusal::Address)
    }

    fn place(&self) -> (Merit, &'a str, u8, u32) {
        (self.merit, &self.device.name, self.port.number, self.gid.index)
    }

    /// As `rdma link` writes it.
    fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.number)
    }

    fn why(&self, equal: &BTreeSet<String>, wanted: &Wanted) -> String {
        let mut why = match (self.address, self.merit) {
            (None, _) => "InfiniBand, where no address decides".to_owned(),
            (Some(address), Merit::Wanted) => format!("it has {address}, where the node listens"),
            (Some(address), Merit::V4) => format!("it has an IPv4 address, {address}"),
            (Some(address), Merit::V6) => format!("it has an IPv6 address, {address}, and none of IPv4"),
            (Some(address), Merit::Link) => format!("it has an address of the link alone, {address}"),
        };
        if let (Some(listens), Some(_)) = (wanted.address, self.address)
            && self.merit != Merit::Wanted
        {
            let _ = write!(why, ", and is named; the node listens at {listens}, which is another network's");
        }
        if equal.len() > 1 {
            let names = equal.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let _ = write!(why, "; of {names} the first by name");
        }
        why
    }
}

fn refused(nearest: Refusal, devices: &[Device], wanted: &Wanted) -> Error {
    let (reason, remedy) = match nearest {
        Refusal::Device => match &wanted.device {
            Some(name) => (format!("there is no RDMA device {name:?}"), "Name one that there is, or none"),
            None => ("there is no RDMA device".to_owned(), "`rdma link` shows those of the kernel"),
        },
        Refusal::Port => {
            (format!("no port {} is there", wanted.port.unwrap_or_default()), "Name one that there is, or none")
        }
        Refusal::Transport => {
            ("no device has reliable connections".to_owned(), "An adapter of InfiniBand, RoCE or iWARP")
        }
        Refusal::State => (
            "no port is active".to_owned(),
            "Ethernet: a cable, and `ip link set INTERFACE up`; InfiniBand: a subnet manager in the network. `rdma link` shows the ports",
        ),
        Refusal::Index => (
            format!("no active port has a GID of index {}", wanted.gid_index.unwrap_or_default()),
            "Name an index of the table, or none",
        ),
        Refusal::Empty => (
            "no active port has a GID".to_owned(),
            "Give the interface an address, for GIDs are made of addresses: `ip addr add`",
        ),
        Refusal::Kind => (
            match wanted.gid_index {
                Some(index) => format!("the GID of index {index} is of RoCE v1, which is not used"),
                None => "the GIDs are of RoCE v1, which is not used".to_owned(),
            },
            "Enable RoCE v2 in the adapter, or name an index of RoCE v2",
        ),
        Refusal::Address => match wanted.address {
            Some(address) => (
                format!("no active port has the address {address}, where the node listens"),
                "Let the node listen at an address of such a port, give the port's interface that address, or name the device",
            ),
            None => ("the interface has no address".to_owned(), "Give it one: `ip addr add`"),
        },
    };
    Error::Unusable { provider: "verbs", reason, remedy: format!("{remedy}{}", table(devices)) }
}

/// A line for each GID, below a line of heads; nothing where there is no device.
fn table(devices: &[Device]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let mut lines = String::new();
    let mut line = |cells: [&str; 6]| {
        let [port, state, index, kind, gid, interface] = cells;
        let _ = write!(lines, "\n  {port:<12} {state:<13} {index:>5}  {kind:<8} {gid:<30} {interface}");
    };
    line(["device/port", "state", "index", "kind", "GID", "interface"]);
    for (device, port) in devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))) {
        let name = format!("{}/{}", device.name, port.number);
        let state = port.state.to_string();
        if port.gids.is_empty() {
            line([&name, &state, "-", "-", "-", "-"]);
        }
        for GidEntry { index, gid, kind, interface } in &port.gids {
            let (index, kind, gid) = (index.to_string(), kind.to_string(), gid.to_string());
            line([&name, &state, &index, &kind, &gid, interface.as_deref().unwrap_or("-")]);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::devices::{AtomicReach, Limits};
    use super::*;

    const V1: GidKind = GidKind::RoceV1;
    const V2: GidKind = GidKind::RoceV2;

    fn gid(index: u32, kind: GidKind, gid: &str) -> GidEntry {
        GidEntry { index, gid: gid.parse().unwrap(), kind, interface: None }
    }

    fn port(number: u8, link_layer: LinkLayer, gids: Vec<GidEntry>) -> Port {
        Port { number, link_layer, state: PortState::Active, mtu_bytes: 1024, lid: 0, gids }
    }

    fn device(name: &str, transport: Transport, ports: Vec<Port>) -> Device {
        let limits = Limits {
            queue_pairs: 1,
            work_requests: 1,
            completion_entries: 1,
            regions: 1,
            region_bytes: 1,
            reads_as_target: 1,
            reads_as_initiator: 1,
            pieces: 1,
            pieces_of_a_read: 1,
            shared_queues: 1,
            shared_queue_buffers: 1,
        };
        Device { name: name.into(), transport, firmware: String::new(), limits, atomics: AtomicReach::None, ports }
    }

    fn roce(name: &str, gids: Vec<GidEntry>) -> Device {
        device(name, Transport::InfiniBand, vec![port(1, LinkLayer::Ethernet, gids)])
    }

    fn infiniband(name: &str, gids: Vec<GidEntry>) -> Device {
        device(name, Transport::InfiniBand, vec![port(1, LinkLayer::InfiniBand, gids)])
    }

    fn iwarp(name: &str, interface: &str) -> Device {
        let gid = GidEntry { interface: Some(interface.into()), ..gid(0, GidKind::InfiniBand, "200:0:7701::") };
        device(name, Transport::Iwarp, vec![port(1, LinkLayer::Ethernet, vec![gid])])
    }

    /// Two adapters as they are found in practice: both versions of every address, the link's first.
    fn pair() -> Vec<Device> {
        let of = |name, last: u8| {
            let v4 = format!("::ffff:10.0.0.{last}");
            let v6 = format!("2001:db8::{last}");
            let gids = [(0, V1, "fe80::1"), (1, V2, "fe80::1"), (2, V1, &v6), (3, V2, &v6), (4, V1, &v4), (5, V2, &v4)];
            roce(name, gids.into_iter().map(|(index, kind, address)| gid(index, kind, address)).collect())
        };
        vec![of("a", 1), of("b", 2)]
    }

    fn at(address: &str) -> Wanted {
        Wanted { address: Some(address.parse().unwrap()), ..Wanted::default() }
    }

    fn place(devices: &[Device], wanted: &Wanted) -> (String, u8, u32) {
        let Chosen { device, port, gid_index, .. } = choose(devices, &[], wanted).unwrap();
        (device, port, gid_index)
    }

    fn refusal(devices: &[Device], wanted: &Wanted) -> String {
        choose(devices, &[], wanted).unwrap_err().to_string()
    }

    #[test]
    fn roce_takes_the_gid_that_is_the_address() {
        for (address, expected) in
            [("10.0.0.2", ("b", 5)), ("::ffff:10.0.0.2", ("b", 5)), ("2001:db8::1", ("a", 3)), ("fe80::1", ("a", 1))]
        {
            let chosen = choose(&pair(), &[], &at(address)).unwrap();
            assert_eq!(
                (chosen.device.as_str(), chosen.gid_index, chosen.kind),
                (expected.0, expected.1, V2),
                "{address}"
            );
            assert_eq!(chosen.gid.to_canonical(), chosen.address.unwrap());
        }
        assert_eq!(choose(&pair(), &[], &at("10.0.0.2")).unwrap().why, "it has 10.0.0.2, where the node listens");
    }

    #[test]
    fn roce_without_an_address_takes_ipv4_before_ipv6_before_that_of_the_link() {
        let mut devices = vec![pair().remove(0)];
        for (expected, begins) in [
            (5, "it has an IPv4 address, 10.0.0.1"),
            (3, "it has an IPv6 address, 2001:db8::1, and none of IPv4"),
            (1, "it has an address of the link alone, fe80::1"),
        ] {
            for wanted in [Wanted::default(), at("0.0.0.0"), at("::")] {
                let chosen = choose(&devices, &[], &wanted).unwrap();
                assert_eq!((chosen.gid_index, chosen.why.as_str()), (expected, begins));
            }
            devices[0].ports[0].gids.retain(|gid| gid.index < expected);
        }
        // The better address before the first name.
        let mut devices = pair();
        devices[0].ports[0].gids.truncate(4);
        assert_eq!(place(&devices, &Wanted::default()), ("b".into(), 1, 5));
    }

    #[test]
    fn the_first_by_name_of_equals_and_says_so() {
        let mut devices = pair();
        devices.reverse();
        let chosen = choose(&devices, &[], &Wanted::default()).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.gid_index), ("a", 5));
        assert_eq!(chosen.why, "it has an IPv4 address, 10.0.0.1; of a/1, b/1 the first by name");
    }

    #[test]
    fn what_is_named_is_taken_also_where_the_node_listens_elsewhere() {
        let device = |name: &str| Wanted { device: Some(name.into()), ..at("192.0.2.7") };
        let chosen = choose(&pair(), &[], &device("b")).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.gid_index), ("b", 5));
        assert!(
            chosen.why.ends_with("and is named; the node listens at 192.0.2.7, which is another network's"),
            "{chosen:?}"
        );
        let index = Wanted { gid_index: Some(3), ..at("192.0.2.7") };
        assert_eq!(place(&pair(), &index), ("a".into(), 1, 3));
        // Its address decides all the same, of what is left.
        assert_eq!(place(&pair(), &Wanted { gid_index: Some(5), ..at("10.0.0.2") }), ("b".into(), 1, 5));
        assert_eq!(place(&pair(), &Wanted { device: Some("b".into()), ..at("2001:db8::2") }), ("b".into(), 1, 3));
        // A port alone does not name a network.
        assert!(
            refusal(&pair(), &Wanted { port: Some(1), ..at("192.0.2.7") }).contains("no active port has the address")
        );
    }

    #[test]
    fn a_port_is_active_and_the_one_that_is_named() {
        let mut devices = vec![infiniband("a", vec![gid(0, GidKind::InfiniBand, "fe80::1")])];
        let second = Port { number: 2, ..devices[0].ports[0].clone() };
        devices[0].ports.push(second);
        assert_eq!(place(&devices, &Wanted::default()), ("a".into(), 1, 0));
        assert_eq!(place(&devices, &Wanted { port: Some(2), ..Wanted::default() }), ("a".into(), 2, 0));
        devices[0].ports[0].state = PortState::Initializing;
        assert_eq!(place(&devices, &Wanted::default()), ("a".into(), 2, 0));
        for state in
            [PortState::Down, PortState::Initializing, PortState::Armed, PortState::Deferred, PortState::Unknown]
        {
            devices[0].ports[1].state = state;
            let refused = refusal(&devices, &Wanted::default());
            assert!(refused.contains("no port is active") && refused.contains("subnet manager"), "{refused}");
            assert!(refused.contains(&format!("a/2          {state}")), "{refused}");
        }
    }

    #[test]
    fn infiniband_takes_gid_0_or_the_one_that_is_named() {
        let entries = |order: [u32; 2]| order.map(|index| gid(index, GidKind::InfiniBand, "fe80::1")).to_vec();
        let devices = vec![infiniband("a", entries([1, 0]))];
        let chosen = choose(&devices, &[], &at("10.0.0.9")).unwrap();
        assert_eq!((chosen.gid_index, chosen.address, chosen.link_layer), (0, None, LinkLayer::InfiniBand));
        assert_eq!(chosen.why, "InfiniBand, where no address decides");
        assert_eq!(place(&devices, &Wanted { gid_index: Some(1), ..Wanted::default() }), ("a".into(), 1, 1));
        assert!(refusal(&[infiniband("a", entries([1, 2]))], &Wanted::default()).contains("no active port has a GID"));
    }

    #[test]
    fn iwarp_takes_the_interface_that_has_the_address() {
        let devices = [iwarp("a", "v0"), iwarp("b", "v1")];
        let addresses = [("v0", "fe80::1"), ("v0", "10.0.0.1"), ("v1", "10.0.0.2"), ("v2", "10.0.0.3")]
            .map(|(name, address)| (name.to_owned(), address.parse().unwrap()));
        let chosen = choose(&devices, &addresses, &at("10.0.0.2")).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.address), ("b", Some("10.0.0.2".parse().unwrap())));
        let chosen = choose(&devices, &addresses, &Wanted::default()).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.address), ("a", Some("10.0.0.1".parse().unwrap())));
        let refused = choose(&devices, &addresses, &at("10.0.0.3")).unwrap_err().to_string();
        assert!(refused.contains("no active port has the address 10.0.0.3"), "{refused}");
        let refused = choose(&devices, &[], &Wanted::default()).unwrap_err().to_string();
        assert!(refused.contains("the interface has no address"), "{refused}");
    }

    #[test]
    fn refusals_say_what_came_nearest_and_show_what_there_is() {
        let wanted =
            |device: &str, port, gid_index| Wanted { device: Some(device.into()), port, gid_index, address: None };
        let devices = pair();
        assert!(refusal(&[], &Wanted::default()).contains("there is no RDMA device. "));
        for (wanted, reason) in [
            (wanted("c", None, None), "there is no RDMA device \"c\""),
            (wanted("a", Some(2), None), "no port 2 is there"),
            (wanted("a", None, Some(9)), "no active port has a GID of index 9"),
            (wanted("a", None, Some(4)), "the GID of index 4 is of RoCE v1"),
            (at("10.0.0.9"), "no active port has the address 10.0.0.9, where the node listens"),
        ] {
            let refused = refusal(&devices, &wanted);
            assert!(refused.starts_with(&format!("verbs cannot be used here: {reason}")), "{refused}");
            let rows = |text: &str| refused.lines().filter(|line| line.contains(text)).count();
            assert_eq!((rows("a/1 "), rows("b/1 "), rows("RoCE v2  ")), (6, 6, 6), "{refused}");
        }
        let expected = "  b/1          active            5  RoCE v2  ::ffff:10.0.0.2                -";
        assert_eq!(refusal(&devices, &at("10.0.0.9")).lines().last(), Some(expected));
    }

    #[test]
    fn neither_version_1_nor_what_is_zero_nor_what_has_no_connections_is_taken() {
        let refused = refusal(&[roce("a", vec![gid(0, V1, "::ffff:10.0.0.1")])], &at("10.0.0.1"));
        assert!(refused.contains("the GIDs are of RoCE v1, which is not used. Enable RoCE v2"), "{refused}");
        for devices in [[roce("a", vec![gid(0, V2, "::")])], [roce("a", vec![])]] {
            assert!(refusal(&devices, &Wanted::default()).contains("no active port has a GID. Give"));
        }
        let usnic =
            device("a", Transport::Other, vec![port(1, LinkLayer::Ethernet, vec![gid(0, V2, "::ffff:10.0.0.1")])]);
        assert!(refusal(&[usnic], &Wanted::default()).contains("no device has reliable connections"));
    }
}
