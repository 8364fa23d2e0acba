//! Packets as they are on the wire, from the Ethernet header on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PEER_PORT: u16 = 40_000;
const HOPS: u8 = 7;
/// Of the IP header's field for the traffic's class.
const CLASS: u8 = 0xb8;

pub(super) struct Packet(pub(super) Vec<u8>);

impl Packet {
    /// With `payload` for `to`, from a peer.
    pub(super) fn new(to: SocketAddr, payload: &[u8]) -> Self {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let length = 8 + payload.len() as u16;
        match to.ip() {
            IpAddr::V4(ip) => {
                bytes.extend([0x08, 0x00, 0x45, CLASS]);
                bytes.extend((20 + length).to_be_bytes());
                bytes.extend([0, 1, 0x40, 0, HOPS, 17, 0, 0]);
                bytes.extend(Ipv4Addr::new(10, 9, 0, 1).octets());
                bytes.extend(ip.octets());
                let sum = !ones_complement(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            IpAddr::V6(ip) => {
                bytes.extend([0x86, 0xdd, 0x60 | CLASS >> 4, CLASS << 4, 0, 0]);
                bytes.extend(length.to_be_bytes());
                bytes.extend([17, HOPS]);
                bytes.extend("fd00::1".parse::<Ipv6Addr>().expect("an address").octets());
                bytes.extend(ip.octets());
            }
        }
        bytes.extend(PEER_PORT.to_be_bytes());
        bytes.extend(to.port().to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend([0xab, 0xcd]);
        bytes.extend(payload);
        Packet(bytes)
    }

    fn is_v4(&self) -> bool {
        self.0[12..14] == [0x08, 0x00]
    }

    fn udp(&self) -> usize {
        if self.is_v4() { 34 } else { 54 }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.0[self.udp() + 8..]
    }

    /// The sender and the receiver: of each link, address and port.
    pub(super) fn ends(&self) -> ([Vec<u8>; 3], [Vec<u8>; 3]) {
        let (from, to) = if self.is_v4() { (26..30, 30..34) } else { (22..38, 38..54) };
        let udp = self.udp();
        let bytes = |range: std::ops::Range<usize>| self.0[range].to_vec();
        ([bytes(6..12), bytes(from), bytes(udp..udp + 2)], [bytes(0..6), bytes(to), bytes(udp + 2..udp + 4)])
    }

    pub(super) fn hops(&self) -> u8 {
        self.0[if self.is_v4() { 22 } else { 21 }]
    }

    pub(super) fn class(&self) -> u8 {
        if self.is_v4() { self.0[15] } else { self.0[14] << 4 | self.0[15] >> 4 }
    }

    pub(super) fn with_vlan(mut self) -> Self {
        self.0.splice(12..12, [0x81, 0x00, 0, 5]);
        self
    }

    pub(super) fn first_fragment(mut self) -> Self {
        self.0[20] = 0x20;
        self
    }

    pub(super) fn later_fragment(mut self) -> Self {
        self.0[21] = 3;
        self
    }

    /// Options that would be taken for the head of UDP by a parser without options.
    pub(super) fn with_ip_options(mut self) -> Self {
        self.0[14] = 0x47;
        let udp: [u8; 8] = self.0[34..42].try_into().expect("a head of UDP");
        self.0.splice(34..34, udp);
        self
    }

    pub(super) fn of_protocol(mut self, protocol: u8) -> Self {
        self.0[23] = protocol;
        self
    }

    pub(super) fn of_ether_type(mut self, kind: u16) -> Self {
        self.0[12..14].copy_from_slice(&kind.to_be_bytes());
        self
    }

    pub(super) fn with_ip_length(mut self, length: u16) -> Self {
        self.0[16..18].copy_from_slice(&length.to_be_bytes());
        self
    }

    pub(super) fn cut_to(mut self, length: usize) -> Self {
        self.0.truncate(length);
        self
    }
}

/// Whether the sums of the IP header and of UDP are right; UDP's may be absent on IPv4.
pub(super) fn sum_is_right(packet: &Packet) -> bool {
    let bytes = &packet.0;
    if packet.is_v4() {
        return ones_complement(&bytes[14..34]) == 0xffff && bytes[40..42] == [0, 0];
    }
    let pseudo = [&bytes[22..54], &bytes[58..60], &[0, 17], &bytes[54..]].concat();
    ones_complement(&pseudo) == 0xffff && bytes[60..62] != [0, 0]
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
