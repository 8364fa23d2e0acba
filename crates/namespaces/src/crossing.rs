//! Networks that reach each other through one in the middle, where each way can be closed.
//!
//! The middle forwards, and what it must not forward is a rule of its routing: a packet is looked at by its two addresses on its way through,
//! also of a connection that stands, and is dropped in silence. That takes nothing but the command `ip`, and leaves the two ends as they are.

use std::io;
use std::net::Ipv4Addr;

use crate::Namespace;
use crate::command::ip;
use crate::namespace::{Error, Result};

/// An address, or all that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    address: Ipv4Addr,
    bits: u8,
}

impl Block {
    /// All addresses with the same first `bits`.
    pub fn new(address: Ipv4Addr, bits: u8) -> Self {
        Block { address, bits }
    }
}

impl From<Ipv4Addr> for Block {
    fn from(address: Ipv4Addr) -> Self {
        Block::new(address, 32)
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A network in the middle of others.
#[derive(Debug)]
pub struct Crossing {
    middle: Namespace,
    address: Ipv4Addr,
}

impl Crossing {
    /// Lets `middle` forward between those that are connected to it. All of them reach it at `address`.
    ///
    /// # Errors
    /// [`Error::Forward`] where /proc/sys is not for writing.
    pub fn new(middle: Namespace, address: Ipv4Addr) -> Result<Self> {
        let forward = || -> io::Result<()> {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            // Otherwise what has no way back is dropped too, and no way could be closed in one direction alone.
            std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0")?;
            std::fs::write("/proc/sys/net/ipv4/conf/default/rp_filter", "0")
        };
        middle.enter(forward)?.map_err(Error::Forward)?;
        Ok(Crossing { middle, address })
    }

    /// Connects a network, by an interface `name` in the middle and `out` in it. It has these addresses, each of another block of 24 bits; to
    /// an address of such a block it speaks as the one that it has there.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn connect(&self, name: &str, network: &Namespace, addresses: &[Ipv4Addr]) -> Result<()> {
        let here = self.address.to_string();
        self.middle.link_bare(name, network, "out")?;
        network.enter(|| {
            for address in addresses {
                ip(&["address", "add", &Block::from(*address).to_string(), "dev", "out"])?;
            }
            ip(&["link", "set", "dev", "out", "up"])?;
            ip(&["route", "add", &here, "dev", "out"])?;
            for address in addresses {
                let block = Block::new(Ipv4Addr::from_bits(address.to_bits() & !0xff), 24).to_string();
                ip(&["route", "add", &block, "via", &here, "src", &address.to_string()])?;
            }
            Ok(())
        })??;
        self.middle.enter(|| {
            ip(&["address", "add", &Block::from(self.address).to_string(), "dev", name])?;
            ip(&["link", "set", "dev", name, "up"])?;
            addresses
                .iter()
                .try_for_each(|address| ip(&["route", "add", &address.to_string(), "dev", name, "src", &here]))
        })?
    }

    /// From now on nothing that is sent from one of these addresses arrives at one of those.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn close(&self, from: impl Into<Block>, to: impl Into<Block>) -> Result<()> {
        self.rule("add", from.into(), to.into())
    }

    /// Takes back one [`close`](Self::close) of the same two.
    ///
    /// # Errors
    /// What `ip` said; for a way that is not closed too.
    pub fn open(&self, from: impl Into<Block>, to: impl Into<Block>) -> Result<()> {
        self.rule("delete", from.into(), to.into())
    }

    fn rule(&self, what: &str, from: Block, to: Block) -> Result<()> {
        let (from, to) = (from.to_string(), to.to_string());
        self.middle.enter(|| ip(&["rule", what, "from", &from, "to", &to, "blackhole"]))?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::or_skipped;

    const LEFT: Ipv4Addr = Ipv4Addr::new(10, 79, 1, 1);
    const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 79, 1, 2);
    const RIGHT_TOO: Ipv4Addr = Ipv4Addr::new(10, 79, 2, 2);

    fn joined() -> Option<(Crossing, Namespace, Namespace)> {
        let middle = or_skipped(Namespace::new()).unwrap()?;
        let crossing = Crossing::new(middle, Ipv4Addr::new(10, 79, 0, 1)).unwrap();
        let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        crossing.connect("left", &left, &[LEFT, Ipv4Addr::new(10, 79, 2, 1)]).unwrap();
        crossing.connect("right", &right, &[RIGHT, RIGHT_TOO]).unwrap();
        Some((crossing, left, right))
    }

    fn socket(network: &Namespace) -> UdpSocket {
        let socket = network.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5000)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// The next that arrives but for what [`meet`] sent, and from where.
    fn next(socket: &UdpSocket) -> (u8, std::net::IpAddr) {
        let mut word = [0];
        loop {
            let (_, from) = socket.recv_from(&mut word).unwrap();
            if word != [GREETING] {
                return (word[0], from.ip());
            }
        }
    }

    const GREETING: u8 = b'0';

    /// Sends until it arrives: what is sent while an interface comes up or an address is looked for may be lost.
    fn meet(from: &UdpSocket, to: &UdpSocket, address: Ipv4Addr) {
        to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut word = [0];
        let has_met = (0..300).any(|_| {
            from.send_to(&[GREETING], (address, 5000)).unwrap();
            to.recv_from(&mut word).is_ok()
        });
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(has_met, "nothing arrives at {address}");
    }

    #[test]
    fn a_way_that_is_closed_is_closed_in_one_direction_and_between_these_addresses_alone() {
        let Some((crossing, left, right)) = joined() else { return };
        let (left, right) = (socket(&left), socket(&right));
        meet(&left, &right, RIGHT);
        meet(&left, &right, RIGHT_TOO);
        meet(&right, &left, LEFT);
        crossing.close(LEFT, RIGHT).unwrap();
        left.send_to(b"1", (RIGHT, 5000)).unwrap();
        left.send_to(b"2", (RIGHT_TOO, 5000)).unwrap();
        right.send_to(b"3", (LEFT, 5000)).unwrap();
        assert_eq!(next(&left), (b'3', RIGHT.into()));
        crossing.open(LEFT, RIGHT).unwrap();
        left.send_to(b"4", (RIGHT, 5000)).unwrap();
        // Both took the same way, one after the other: what is not here before the last one was lost.
        assert_eq!(next(&right), (b'2', Ipv4Addr::new(10, 79, 2, 1).into()));
        assert_eq!(next(&right), (b'4', LEFT.into()));
    }

    #[test]
    fn a_block_is_closed_with_all_its_addresses() {
        let Some((crossing, left, right)) = joined() else { return };
        let (left, right) = (socket(&left), socket(&right));
        let all = Block::new(Ipv4Addr::new(10, 79, 1, 0), 24);
        meet(&left, &right, RIGHT);
        meet(&right, &left, LEFT);
        crossing.close(all, LEFT).unwrap();
        right.send_to(b"1", (LEFT, 5000)).unwrap();
        left.send_to(b"2", (RIGHT, 5000)).unwrap();
        assert_eq!(next(&right), (b'2', LEFT.into()));
        crossing.open(all, LEFT).unwrap();
        right.send_to(b"3", (LEFT, 5000)).unwrap();
        assert_eq!(next(&left).0, b'3');
        assert!(crossing.open(all, LEFT).unwrap_err().to_string().contains("ip rule delete"));
    }
}
