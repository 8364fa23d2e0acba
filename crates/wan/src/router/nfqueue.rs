//! Packets that stay in the kernel until the router lets them go on (NFQUEUE;
//! include/uapi/linux/netfilter/nfnetlink_queue.h). The kernel's reports of packets, and the answers to them, are
//! messages of netlink.
//!
//! ```text
//!  0..4  | 4..6 | 6..8  | 8..12  | 12..16 | 16     | 17      | 18..20 | 20..
//!  bytes | type | flags | number | port   | family | version | queue  | attributes: bytes (2), type (2), value, up to a multiple of 4
//! ```
//! All up to the queue is in the machine's byte order, the queue and the values are in that of the network.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

use super::frame::{ETHERNET, finds_neighbours};
use super::port::set;
use crate::machine::Packet;
use crate::netlink::{self, ALIGNMENT, answer, array};

const HEADER: usize = netlink::HEADER + 4;
/// Bytes of a message that decides about a packet.
const VERDICT: usize = HEADER + 12;
const SUBSYSTEM: u16 = (libc::NFNL_SUBSYS_QUEUE as u16) << 8;
const FAMILY: u8 = libc::AF_UNSPEC as u8;

/// The bytes that are seen of each packet: the headers of IP and TCP, with their options.
const SEEN: u32 = 128;
/// What stands beside that in a message is less than this.
const ROOM: usize = 1024;
/// Packets that may be in the kernel. What is under way is limited in bytes, so no smaller number is needed.
const MOST_HELD: u32 = 1 << 20;
/// Bytes of messages that may wait to be read, as the kernel counts them, which is twice what it is asked for.
const WAITING: usize = 16 << 20;
/// The socket waits for an answer to an order no longer than this many messages.
const PATIENCE: usize = 16;

/// NF_DROP and NF_ACCEPT.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// NFQA_SKB_GSO: several packets in one frame.
const SEVERAL: u32 = 1 << 1;
const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A queue of the kernel, of the network in which it was opened.
#[derive(Debug)]
pub(super) struct Nfqueue {
    socket: OwnedFd,
    number: u16,
    mtu: u32,
    room: Vec<u8>,
}

/// A packet that the kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// By which the kernel knows it.
    pub id: u32,
    pub packet: Packet,
    pub is_housekeeping: bool,
    /// When it came, in nanoseconds of CLOCK_REALTIME; 0 if that is not said.
    pub stamp: u64,
}

impl Nfqueue {
    /// That with this number, of packets of IP with at most `mtu` bytes, in the network of this thread. It takes CAP_NET_ADMIN there.
    pub fn open(number: u16, mtu: u32) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        // More than is usual takes a right that a router without root may lack; then less may come at once, and what is lost is counted.
        let _ = set_socket_recv_buffer_size_force(&socket, WAITING)
            .or_else(|_| set_socket_recv_buffer_size(&socket, WAITING));
        // Otherwise nothing more comes after a message was lost until all before it were read.
        set(&socket, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, &1)?;
        let mut queue = Nfqueue { socket, number, mtu, room: vec![0; ROOM] };
        let bind = [libc::NFQNL_CFG_CMD_BIND as u8, 0, 0, 0];
        let mut copies = SEEN.to_be_bytes().to_vec();
        copies.push(libc::NFQNL_COPY_PACKET as u8);
        let flags = (libc::NFQA_CFG_F_GSO as u32).to_be_bytes();
        queue.order(&[
            (libc::NFQA_CFG_CMD, &bind),
            (libc::NFQA_CFG_PARAMS, &copies),
            (libc::NFQA_CFG_QUEUE_MAXLEN, &MOST_HELD.to_be_bytes()),
            (libc::NFQA_CFG_FLAGS, &flags),
            (libc::NFQA_CFG_MASK, &flags),
        ])?;
        Ok(queue)
    }

    /// Says how the queue is to be, and waits for the kernel's consent.
    fn order(&mut self, attributes: &[(i32, &[u8])]) -> io::Result<()> {
        let acknowledged = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let message = message(libc::NFQNL_MSG_CONFIG as u16, acknowledged, self.number, attributes);
        send(&self.socket, &message, SendFlags::empty())?;
        for _ in 0..PATIENCE {
            let (bytes, _) = recv(&self.socket, &mut self.room[..], RecvFlags::empty())?;
            if let Some(answer) = answer(&self.room[..bytes]) {
                return answer;
            }
            // It came in between. No other code would know of it.
            if let Some(held) = held(&self.room[..bytes], self.mtu) {
                self.decide(&[held.id], true)?;
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// The next packet that came, if there is one.
    pub fn receive(&mut self) -> Option<Held> {
        loop {
            match recv(&self.socket, &mut self.room[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => {
                    if let Some(held) = held(&self.room[..bytes], self.mtu) {
                        return Some(held);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Lets packets go on in this order, or not, by one call: the kernel takes as many messages as it is given.
    pub fn decide(&self, ids: &[u32], goes_on: bool) -> io::Result<()> {
        let mut messages = Vec::with_capacity(ids.len() * VERDICT);
        for id in ids {
            let mut verdict = [0; 8];
            verdict[..4].copy_from_slice(&(if goes_on { ACCEPT } else { DROP }).to_be_bytes());
            verdict[4..].copy_from_slice(&id.to_be_bytes());
            let attributes: [(i32, &[u8]); 1] = [(libc::NFQA_VERDICT_HDR, &verdict)];
            let kind = libc::NFQNL_MSG_VERDICT as u16;
            write(&mut messages, kind, libc::NLM_F_REQUEST as u16, self.number, &attributes);
        }
        send(&self.socket, &messages, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Packets that came when there was no room, since it was opened. In the network in which it was opened.
    pub fn overrun(&self) -> u64 {
        let all = fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap_or_default();
        dropped(&all, self.number)
    }
}

impl AsFd for Nfqueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message to the queue with this number.
fn message(kind: u16, flags: u16, queue: u16, attributes: &[(i32, &[u8])]) -> Vec<u8> {
    let mut message = Vec::with_capacity(64);
    write(&mut message, kind, flags, queue, attributes);
    message
}

/// Puts one behind what is there.
fn write(message: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, attributes: &[(i32, &[u8])]) {
    let [first, second] = queue.to_be_bytes();
    netlink::write(message, SUBSYSTEM | kind, flags, &[FAMILY, libc::NFNETLINK_V0 as u8, first, second], attributes);
}

/// The packet of which a message tells; `None` if it tells of none.
fn held(message: &[u8], mtu: u32) -> Option<Held> {
    let kind = u16::from_ne_bytes(array(message, 4)?);
    if kind != SUBSYSTEM | libc::NFQNL_MSG_PACKET as u16 {
        return None;
    }
    let (mut id, mut length, mut stamp, mut several, mut head) = (None, None, 0, false, &[][..]);
    let mut rest = message.get(HEADER..)?;
    while let Some(bytes) = array(rest, 0).map(u16::from_ne_bytes).map(usize::from) {
        let (Some(kind), Some(value)) = (array(rest, 2).map(u16::from_ne_bytes), rest.get(4..bytes)) else { break };
        let word = || array(value, 0).map(u32::from_be_bytes);
        match i32::from(kind) {
            libc::NFQA_PACKET_HDR => id = word(),
            libc::NFQA_CAP_LEN => length = word(),
            libc::NFQA_SKB_INFO => several = word().is_some_and(|said| said & SEVERAL != 0),
            libc::NFQA_TIMESTAMP => {
                let [seconds, micros] = [0, 8].map(|at| array(value, at).map_or(0, u64::from_be_bytes));
                stamp = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000));
            }
            libc::NFQA_PAYLOAD => head = value,
            _ => {}
        }
        rest = rest.get(bytes.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    let length = length.unwrap_or(head.len() as u32);
    let segments = if several { segments(head, length, mtu) } else { 1 };
    let packet = Packet { bytes: length.saturating_add(ETHERNET as u32), segments };
    Some(Held { id: id?, packet, is_housekeeping: head.first().is_some_and(is_v6) && finds_neighbours(head), stamp })
}

fn is_v6(first: &u8) -> bool {
    first >> 4 == 6
}

/// The number of packets that a frame becomes that begins with `head` and has `length` bytes of IP. The frame does not
/// say it, but how much each of them holds is known: as much as fits.
fn segments(head: &[u8], length: u32, mtu: u32) -> u16 {
    let at = |place: usize| head.get(place).copied().unwrap_or(0);
    let (network, option, protocol) = match (is_v6(&at(0)), at(6)) {
        // It says how long a frame is that has more than 64 KiB, and no packet of it has it on the wire.
        (true, HOP_BY_HOP) => (40, (usize::from(at(41)) + 1) * 8, at(40)),
        (true, protocol) => (40, 0, protocol),
        (false, _) => (usize::from(at(0) & 15) * 4, 0, at(9)),
    };
    let transport = match protocol {
        TCP => usize::from(at(network + option + 12) >> 4) * 4,
        UDP => 8,
        _ => 0,
    };
    let headers = (network + transport) as u32;
    let payload = length.saturating_sub(headers + option as u32);
    let each = mtu.saturating_sub(headers).max(1);
    u16::try_from(payload.div_ceil(each).max(1)).unwrap_or(u16::MAX)
}

/// What the kernel has dropped of the queue with this number, by its table: number, port, waiting, how it copies, how much, dropped for want of room,
/// dropped because the socket had none, and more.
fn dropped(table: &str, queue: u16) -> u64 {
    let lines = table.lines().map(|line| line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0)));
    let found = lines.map(Iterator::collect::<Vec<_>>).find(|words| words.first() == Some(&queue.into()));
    found.map_or(0, |words| words.iter().skip(5).take(2).sum())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use verbena_namespaces::{Family, Namespace, netfilter, or_skipped};

    use super::*;

    /// What the kernel says of a packet of IP that begins like this.
    fn told(head: &[u8], length: Option<u32>, said: u32) -> Vec<u8> {
        let mut attributes: Vec<(i32, Vec<u8>)> = vec![
            (libc::NFQA_PACKET_HDR, [&7u32.to_be_bytes()[..], &[8, 0, 2]].concat()),
            (libc::NFQA_IFINDEX_PHYSINDEV, vec![0, 0, 0, 5]),
            (libc::NFQA_TIMESTAMP, [3u64.to_be_bytes(), 21u64.to_be_bytes()].concat()),
            (libc::NFQA_SKB_INFO, said.to_be_bytes().to_vec()),
        ];
        attributes.extend(length.map(|length| (libc::NFQA_CAP_LEN, length.to_be_bytes().to_vec())));
        attributes.push((libc::NFQA_PAYLOAD, head.to_vec()));
        let borrowed: Vec<(i32, &[u8])> = attributes.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
        message(libc::NFQNL_MSG_PACKET as u16, 0, 4, &borrowed)
    }

    fn v4(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 20];
        (head[0], head[9]) = (0x45, protocol);
        head.extend(rest);
        head
    }

    fn tcp(options: u8) -> Vec<u8> {
        let mut head = vec![0; 20 + usize::from(options)];
        head[12] = (5 + options / 4) << 4;
        head
    }

    #[test]
    fn a_packet_is_known_by_what_the_kernel_tells_of_it() {
        let small = held(&told(&v4(UDP, &[0; 80]), None, 0), 1500).unwrap();
        let packet = Packet { bytes: 14 + 100, segments: 1 };
        assert_eq!(small, Held { id: 7, packet, is_housekeeping: false, stamp: 3_000_021_000 });
        let large = |head: &[u8], length, mtu| held(&told(head, Some(length), SEVERAL), mtu).unwrap().packet;
        // Ten full packets and one of a byte, with TCP's time stamps and without.
        let stamped = large(&v4(TCP, &tcp(12)), 52 + 10 * 1448 + 1, 1500);
        assert_eq!(stamped, Packet { bytes: 14 + 52 + 14_481, segments: 11 });
        assert_eq!(large(&v4(TCP, &tcp(0)), 40 + 10 * 1460, 1500).segments, 10);
        assert_eq!(large(&v4(UDP, &[0; 8]), 28 + 2 * 1472, 1500).segments, 2);
        let mut v6 = vec![0; 40];
        (v6[0], v6[6]) = (0x60, TCP);
        v6.extend(tcp(12));
        assert_eq!(large(&v6, 72 + 3 * 8928, 9000).segments, 3);
        // With the option that says the length of a frame beyond 64 KiB.
        let mut jumbo = vec![0; 40];
        jumbo[0] = 0x60;
        jumbo.extend([TCP, 0, 0xc2, 4, 0, 2, 0, 0]);
        jumbo.extend(tcp(12));
        assert_eq!(large(&jumbo, 80 + 100 * 1428, 1500).segments, 100);
        // What holds several is one where it is not said so, and what cannot be is one, too.
        assert_eq!(held(&told(&v4(TCP, &tcp(12)), Some(60_000), 0), 1500).unwrap().packet.segments, 1);
        assert_eq!(large(&[], 0, 0).segments, 1);
    }

    #[test]
    fn neighbours_find_each_other_apart_from_all_rules() {
        let mut solicits = vec![0; 48];
        (solicits[0], solicits[6], solicits[40]) = (0x60, 58, 135);
        assert!(held(&told(&solicits, None, 0), 1500).unwrap().is_housekeeping);
        solicits[40] = 128;
        assert!(!held(&told(&solicits, None, 0), 1500).unwrap().is_housekeeping);
    }

    #[test]
    fn a_message_that_is_cut_anywhere_tells_of_no_packet_or_of_less() {
        let whole = told(&v4(TCP, &tcp(12)), Some(9000), SEVERAL);
        let told: Vec<_> = (0..whole.len()).map(|bytes| held(&whole[..bytes], 1500)).collect();
        assert!(told.iter().take(HEADER + 11).all(Option::is_none), "{told:?}");
        assert!(told.iter().flatten().all(|held| held.id == 7), "{told:?}");
        let mut other = whole;
        other[4] = libc::NFQNL_MSG_VERDICT as u8;
        assert_eq!(held(&other, 1500), None);
        // Attributes of no length go nowhere.
        assert_eq!(held(&message(libc::NFQNL_MSG_PACKET as u16, 0, 4, &[]), 1500), None);
        assert_eq!(held(&[&message(libc::NFQNL_MSG_PACKET as u16, 0, 4, &[])[..], &[0; 64]].concat(), 1500), None);
    }

    #[test]
    fn the_kernel_says_yes_or_why_not() {
        let said = |error: i32| {
            let mut message = vec![0; 36];
            message[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
            message[16..20].copy_from_slice(&error.to_ne_bytes());
            answer(&message)
        };
        assert!(said(0).unwrap().is_ok());
        assert_eq!(said(-libc::EPERM).unwrap().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(answer(&told(&[], None, 0)).is_none());
    }

    #[test]
    fn the_kernel_holds_what_it_is_not_told_to_let_go_on() {
        let Some(here) = or_skipped(Namespace::new()).unwrap() else { return };
        here.enter(|| {
            let rule = "-A OUTPUT -o lo -p udp -j NFQUEUE --queue-num 3".to_owned();
            if let Err(refused) = netfilter(Family::V4, &[rule]) {
                println!("skipped: this kernel does not hold packets: {refused}");
                return;
            }
            let mut queue = Nfqueue::open(3, 1500).unwrap();
            assert!(Nfqueue::open(3, 1500).is_err(), "a queue has one owner");
            let to = UdpSocket::bind("127.0.0.1:0").unwrap();
            to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut held = vec![];
            for number in 0..4 {
                from.send_to(&[number; 72], to.local_addr().unwrap()).unwrap();
                held.push(queue.receive().unwrap());
            }
            assert!(held.iter().all(|one| one.packet == Packet { bytes: 14 + 100, segments: 1 }), "{held:?}");
            assert_eq!(queue.receive(), None);
            let waiting = || {
                let table = fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap();
                table.split_whitespace().nth(2).map(str::to_owned)
            };
            assert_eq!(waiting().as_deref(), Some("4"));
            for (numbers, goes_on) in [(&[1][..], true), (&[0], false), (&[3, 2], true)] {
                let ids: Vec<u32> = numbers.iter().map(|number: &usize| held[*number].id).collect();
                queue.decide(&ids, goes_on).unwrap();
            }
            let mut room = [0; 100];
            assert_eq!([(); 3].map(|()| to.recv(&mut room).map(|_| room[0]).unwrap()), [1, 3, 2]);
            assert!(to.recv(&mut room).is_err());
            assert_eq!((waiting().as_deref(), queue.overrun()), (Some("0"), 0));
        })
        .unwrap();
    }

    #[test]
    fn what_the_kernel_dropped_stands_in_its_table() {
        let table =
            "    4  31998     0 2   128     0     0        5  1\n    5  31999     2 2   128     3     4       17  1\n";
        assert_eq!([4, 5, 6].map(|queue| dropped(table, queue)), [0, 7, 0]);
        assert_eq!(dropped("", 0), 0);
    }
}
