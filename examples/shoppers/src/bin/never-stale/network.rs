//! A network for every node, proxy and shop, and one in the middle, where the shoppers are and where ways are closed.
//!
//! Whoever is a member has two addresses: one at which the members (and etcd's) know each other, and one where it is reached from outside:
//! a proxy by shoppers, a shop by proxies. Only ways between addresses of the first kind are ever closed. So every answer that a member
//! gives while it is cut off is checked.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use verbena_namespaces::{Block, Crossing, Namespace, Result};

const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// All networks.
pub struct Network {
    crossing: Crossing,
    closed: Vec<Closed>,
}

/// Ways that are closed until then.
struct Closed {
    until: Instant,
    ways: Vec<(Block, Block)>,
}

/// Where a member is known to the others, by its number.
pub fn inside(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 1, number)
}

/// Where somebody is reached from outside, by its number.
pub fn outside(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 2, number)
}

/// What is closed between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ways between this one and all others.
    Off(u8),
    /// What others send to it.
    Deaf(u8),
    /// What it sends.
    Mute(u8),
    /// Both ways between these two.
    Pair(u8, u8),
}

impl Cut {
    fn ways(self) -> Vec<(Block, Block)> {
        let all = Block::new(inside(0), 24);
        let of = |number| Block::from(inside(number));
        match self {
            Cut::Off(one) => vec![(of(one), all), (all, of(one))],
            Cut::Deaf(one) => vec![(all, of(one))],
            Cut::Mute(one) => vec![(of(one), all)],
            Cut::Pair(one, other) => vec![(of(one), of(other)), (of(other), of(one))],
        }
    }
}

impl Network {
    /// Moves this program, and what it starts, into the one in the middle. All are gone when the last process in them is.
    pub fn new() -> Result<Self> {
        let middle = Namespace::new()?;
        middle.join()?;
        Ok(Network { crossing: Crossing::new(middle, MIDDLE)?, closed: Vec::new() })
    }

    /// A network of its own for the member with this number.
    pub fn member(&self, number: u8) -> Result<Arc<Namespace>> {
        self.connected(number, &[inside(number), outside(number)])
    }

    /// One for somebody who is no member.
    pub fn other(&self, number: u8) -> Result<Arc<Namespace>> {
        self.connected(number, &[outside(number)])
    }

    fn connected(&self, number: u8, addresses: &[Ipv4Addr]) -> Result<Arc<Namespace>> {
        let own = Namespace::new()?;
        self.crossing.connect(&format!("to-{number}"), &own, addresses)?;
        Ok(Arc::new(own))
    }

    /// Cuts until then.
    pub fn cut(&mut self, cuts: &[Cut], until: Instant) -> Result<()> {
        let ways: Vec<_> = cuts.iter().flat_map(|cut| cut.ways()).collect();
        ways.iter().try_for_each(|&(from, to)| self.crossing.close(from, to))?;
        self.closed.push(Closed { until, ways });
        Ok(())
    }

    /// Opens again what is due.
    pub fn tend(&mut self) -> Result<()> {
        let now = Instant::now();
        for closed in self.closed.extract_if(.., |closed| closed.until <= now) {
            closed.ways.iter().try_for_each(|&(from, to)| self.crossing.open(from, to))?;
        }
        Ok(())
    }

    /// Whether nothing is closed.
    pub fn is_whole(&self) -> bool {
        self.closed.is_empty()
    }
}
