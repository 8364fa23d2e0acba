//! What a WAN is made of: sites with addresses, and links between them. A plan is looked at as a whole before anything is made of it.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use verbena_terms::usable_instead_of;

use crate::backend::Backend;
use crate::bridge;
use crate::netem;
use crate::options::OptionError;
use crate::router::{DataPath, Mode};
use crate::way::{Impossible, Way};

/// Characters of the name of a site or a link: as many as the name of an interface may have (IFNAMSIZ of Linux).
pub const MAX_NAME: usize = 15;

/// The least and the most of an IP packet: what IPv6 asks for (RFC 8200, section 5), and what fits into a frame.
const MTUS: std::ops::RangeInclusive<u32> = 1280..=65_521;

/// More sites could not be distinguished in the addresses that sites get by themselves.
const MOST_SITES: usize = 250;
const MOST_LINKS: usize = 250;

/// A WAN.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its sites.
    pub sites: Vec<Site>,
    /// Its links.
    pub links: Vec<Link>,
    /// What runs the links.
    pub backend: Backend,
}

/// A network of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Where it is reached from the other sites, whatever link the packets take.
    pub addresses: Vec<IpAddr>,
}

/// A line between two sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, and that of its interface in both sites.
    pub name: String,
    /// The two sites, by number.
    pub between: [usize; 2],
    /// Bytes of an IP packet at most.
    pub mtu: u32,
    /// From the first to the second site, and back.
    pub ways: [Way; 2],
}

/// Folders in which there are settings of all interfaces: none can have their names.
const EVERYWHERE: [&str; 2] = ["all", "default"];

/// Why a plan cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// What cannot name an interface.
    #[error(
        "{name:?} cannot name a site or a link: 1 to {MAX_NAME} letters, digits, - or _, and not lo, nor a link all or default"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Two that are called alike.
    #[error("two {what} are called {name}")]
    Twice {
        /// Sites or links.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Too many sites or links.
    #[error("{count} {what}; there may be 1 to {most}")]
    Many {
        /// Sites or links.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// An address that belongs to two.
    #[error("{address} is given to {first} and to {second}")]
    Overlap {
        /// The address.
        address: IpAddr,
        /// The site that has it.
        first: String,
        /// The site that would have it too.
        second: String,
    },
    /// An address that is not a host's.
    #[error("{site}: {address} is not the address of a host")]
    Address {
        /// The site.
        site: String,
        /// Which.
        address: IpAddr,
    },
    /// A link from a site to itself.
    #[error("{link} joins {site} with itself")]
    Loop {
        /// The link.
        link: String,
        /// The site.
        site: String,
    },
    /// A link whose packets cannot be so large, or so small.
    #[error("{link}: an mtu of {mtu}; it is {} to {}", MTUS.start(), MTUS.end())]
    Mtu {
        /// The link.
        link: String,
        /// What was given.
        mtu: u32,
    },
    /// A core that this process may not use.
    #[error("core {core}: this process may use {usable}")]
    Core {
        /// What was given.
        core: usize,
        /// Those that it may use.
        usable: String,
    },
    /// Options of a link that cannot be.
    #[error("{link}: {source}")]
    Options {
        /// The link.
        link: String,
        /// What is wrong.
        source: OptionError,
    },
}

impl Site {
    /// The site with this number, counted from 0, with the addresses that it gets by itself: 10.77.0.`number + 1` and fd77::`number + 1`.
    pub fn numbered(name: impl Into<String>, number: u8) -> Self {
        let last = number.saturating_add(1);
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into());
        Site { name: name.into(), addresses: vec![Ipv4Addr::new(10, 77, 0, last).into(), v6.into()] }
    }

    /// The first address of the family of `like`.
    pub(crate) fn address_like(&self, like: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4())
    }
}

/// The next step from one site towards another: the link, and the site behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub link: usize,
    pub site: usize,
}

impl Plan {
    /// Sites `a` and `b` with one link, `wan`, that the router runs.
    pub fn two_sites(ways: [Way; 2], mode: Mode, seed: u64) -> Self {
        let link = Link { name: "wan".into(), between: [0, 1], mtu: 1500, ways };
        Plan {
            sites: vec![Site::numbered("a", 0), Site::numbered("b", 1)],
            links: vec![link],
            backend: Backend::Router { mode, path: DataPath::default(), seed, core: None },
        }
    }

    /// Looks whether it can be.
    ///
    /// # Errors
    /// The first thing that cannot.
    pub fn check(&self) -> Result<(), PlanError> {
        let counts = [("sites", self.sites.len(), MOST_SITES), ("links", self.links.len(), MOST_LINKS)];
        for (what, count, most) in counts {
            if !(1..=most).contains(&count) {
                return Err(PlanError::Many { what, count, most });
            }
        }
        unique("sites", self.sites.iter().map(|site| &site.name))?;
        unique("links", self.links.iter().map(|link| &link.name))?;
        let mut owners: HashMap<IpAddr, &str> = HashMap::new();
        for Site { name, addresses } in &self.sites {
            for &address in addresses {
                let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
                let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
                if address.is_unspecified()
                    || address.is_loopback()
                    || address.is_multicast()
                    || is_link_local
                    || is_broadcast
                {
                    return Err(PlanError::Address { site: name.clone(), address });
                }
                if let Some(first) = owners.insert(address, name) {
                    return Err(PlanError::Overlap { address, first: first.into(), second: name.clone() });
                }
            }
        }
        self.links.iter().try_for_each(|link| self.check_link(link))?;
        self.backend.core().map_or(Ok(()), check_core)
    }

    fn check_link(&self, link: &Link) -> Result<(), PlanError> {
        let [first, second] = link.between;
        if first == second {
            let site = self.sites.get(first).map_or_else(String::new, |site| site.name.clone());
            return Err(PlanError::Loop { link: link.name.clone(), site });
        }
        if !MTUS.contains(&link.mtu) {
            return Err(PlanError::Mtu { link: link.name.clone(), mtu: link.mtu });
        }
        link.ways.iter().try_for_each(|way| {
            let checked = self.check_way(way, link.mtu);
            checked.map_err(|error| PlanError::Options { link: link.name.clone(), source: error.into() })
        })
    }

    /// Whether a way of a link can be, and the backend can do it.
    pub(crate) fn check_way(&self, way: &Way, mtu: u32) -> Result<(), Impossible> {
        way.check()?;
        match self.backend {
            Backend::Router { path, .. } => bridge::refuse(path, way),
            Backend::Kernel => netem::words(way, mtu, "").map(drop),
        }
    }

    /// The first step of a shortest way, counted in links, from `from` to each other site; of equal ones that by the link which stands first.
    pub(crate) fn first_hops(&self, from: usize) -> Vec<Option<Hop>> {
        let mut hops = vec![None; self.sites.len()];
        let mut ahead = VecDeque::from([from]);
        while let Some(here) = ahead.pop_front() {
            for (number, link) in self.links.iter().enumerate() {
                let there = match link.between {
                    [first, second] if first == here => second,
                    [first, second] if second == here => first,
                    _ => continue,
                };
                if there != from && hops[there].is_none() {
                    hops[there] = Some(hops[here].unwrap_or(Hop { link: number, site: there }));
                    ahead.push_back(there);
                }
            }
        }
        hops
    }
}

fn check_core(core: usize) -> Result<(), PlanError> {
    // Where the system does not say which may be used, it says so of the one when its thread goes there.
    let instead = usable_instead_of(core).ok().flatten();
    instead.map_or(Ok(()), |usable| Err(PlanError::Core { core, usable }))
}

fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), PlanError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_reserved = name == "lo" || what == "links" && EVERYWHERE.contains(&name.as_str());
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(is_good) || name.starts_with('-') || is_reserved {
            return Err(PlanError::Name { name: name.clone() });
        }
        if !seen.insert(name) {
            return Err(PlanError::Twice { what, name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sites: &[&str], links: &[(&str, usize, usize)]) -> Plan {
        let numbers = 0u8..;
        Plan {
            sites: sites.iter().zip(numbers).map(|(name, number)| Site::numbered(*name, number)).collect(),
            links: links
                .iter()
                .map(|(name, first, second)| Link {
                    name: (*name).into(),
                    between: [*first, *second],
                    mtu: 1500,
                    ways: Default::default(),
                })
                .collect(),
            backend: Backend::default(),
        }
    }

    fn said(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan(&["paris", "tokyo"], &[("sea", 0, 1)]);
        assert_eq!(plan.check(), Ok(()));
        change(&mut plan);
        plan.check().map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(said(|plan| plan.sites[0].name = "a b".into()).starts_with("\"a b\" cannot name"));
        assert!(said(|plan| plan.links[0].name = "a-very-long-name".into()).contains("cannot name"));
        for taken in ["lo", "all", "default"] {
            assert!(said(|plan| plan.links[0].name = taken.into()).ends_with("and not lo, nor a link all or default"));
        }
        assert_eq!(said(|plan| plan.sites[0].name = "default".into()), "");
        assert_eq!(said(|plan| plan.sites[1].name = "paris".into()), "two sites are called paris");
        assert_eq!(said(|plan| plan.links.push(plan.links[0].clone())), "two links are called sea");
        assert_eq!(said(|plan| plan.links.clear()), "0 links; there may be 1 to 250");
        let overlap = said(|plan| plan.sites[1].addresses = plan.sites[0].addresses.clone());
        assert_eq!(overlap, "10.77.0.1 is given to paris and to tokyo");
        for address in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "::1", "255.255.255.255"] {
            let address: IpAddr = address.parse().unwrap_or(Ipv4Addr::LOCALHOST.into());
            let problem = said(|plan| plan.sites[0].addresses.push(address));
            assert_eq!(problem, format!("paris: {address} is not the address of a host"));
        }
        assert_eq!(said(|plan| plan.links[0].between = [1, 1]), "sea joins tokyo with itself");
        assert!(said(|plan| plan.links[0].mtu = 576).starts_with("sea: an mtu of 576; it is 1280 to"));
        assert!(said(|plan| plan.links[0].ways[1].ooo_rate = Some(5)).starts_with("sea: ooo_rate: needs ooo_delay"));
        let router = |path, core| Backend::Router { mode: Mode::Sleep, path, seed: 1, core };
        let core = said(|plan| plan.backend = router(DataPath::Packet, Some(9999)));
        assert!(core.starts_with("core 9999: this process may use 0"), "{core}");
        let of_nfqueue = said(|plan| {
            plan.backend = router(DataPath::Nfqueue, None);
            plan.links[0].ways[1].drop_rate = Some(5);
        });
        assert!(of_nfqueue.starts_with("sea: drop_rate: the path nfqueue cannot do it: "), "{of_nfqueue}");
        let of_the_kernel = said(|plan| {
            plan.backend = Backend::Kernel;
            plan.links[0].ways[1].drop_rate = Some(5);
        });
        assert!(of_the_kernel.starts_with("sea: drop_rate: the backend kernel cannot do it: "), "{of_the_kernel}");
    }

    #[test]
    fn packets_take_a_shortest_way() {
        //  0 - 1 - 2 - 3,  0 - 4 - 3
        let plan = plan(
            &["a", "b", "c", "d", "e", "f"],
            &[("ab", 0, 1), ("bc", 1, 2), ("cd", 2, 3), ("ae", 0, 4), ("ed", 4, 3)],
        );
        let hops: Vec<_> = plan.first_hops(0).iter().map(|hop| hop.map(|hop| (hop.link, hop.site))).collect();
        assert_eq!(hops, [None, Some((0, 1)), Some((0, 1)), Some((3, 4)), Some((3, 4)), None]);
        assert_eq!(plan.first_hops(3)[1], Some(Hop { link: 2, site: 2 }));
    }
}
