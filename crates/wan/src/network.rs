//! The networks of a plan: a network namespace a site, one for the router, and between them a pair of virtual interfaces for each end of a link.
//!
//! The router hands frames from one end of a link to the other like a wire, so whatever is in an Ethernet frame crosses it. A site has its addresses on `lo`
//! and reaches the others by routes, each over the first link of a shortest way; sites between others forward. The
//! neighbours at both ends of a link know each other's hardware addresses beforehand: no packet waits for ARP, and no rule meets it.
//!
//! Everything belongs to the process: the namespaces are held by its descriptors, and the links go with the namespaces, however it ends.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use verbena_namespaces::{Namespace, ip_batch};

use crate::options::{OptionError, Reader};
use crate::plan::{Link, Plan, PlanError};
use crate::router::{Router, Seen, Wires};
use crate::way::Way;

/// Why there is no WAN.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no site of this name.
    #[error("there is no site {name:?}; there are {}", known.join(", "))]
    NoSite {
        /// What was given.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// There is no link of this name.
    #[error("there is no link {name:?}; there are {}", known.join(", "))]
    NoLink {
        /// What was given.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A change of a link that cannot be.
    #[error("{link}: {source}")]
    Options {
        /// The link.
        link: String,
        /// What is wrong.
        source: OptionError,
    },
    /// Networks could not be made or linked.
    #[error(transparent)]
    Network(#[from] verbena_namespaces::Error),
    /// A setting of a network could not be written.
    #[error("cannot write {setting}: {source}")]
    Setting {
        /// Its path.
        setting: String,
        /// What the system said.
        source: io::Error,
    },
    /// The router could not be started, or has ended.
    #[error("the router: {0}")]
    Router(#[source] io::Error),
}

impl Error {
    /// Whether whoever asked may not make networks. Then nothing was made.
    pub fn is_not_permitted(&self) -> bool {
        use verbena_namespaces::Error::Make;
        matches!(self, Error::Network(Make(source)) if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The directions of a link that a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Both.
    Both,
    /// From the first site to the second.
    There,
    /// From the second site to the first.
    Back,
}

/// Networks that were made, with the router between them. All are gone with this value, or with the process.
#[derive(Debug)]
pub struct Wan {
    plan: Plan,
    sites: Vec<Namespace>,
    router: Router,
}

type Result<T> = std::result::Result<T, Error>;

impl Wan {
    /// Makes what the plan says, and starts the router. That takes CAP_SYS_ADMIN and CAP_NET_ADMIN, in the user namespace that this thread is in,
    /// and the command `ip`.
    ///
    /// # Errors
    /// [`Error`]; nothing is left of what was made.
    pub fn up(plan: Plan) -> Result<Self> {
        plan.check()?;
        let middle = Namespace::new()?;
        // The kernel of the router says nothing on the lines itself.
        middle.enter(|| settings(&[("net/ipv6/conf/default/disable_ipv6", "1")]))??;
        let sites = plan.sites.iter().map(|_| Ok(Namespace::new()?)).collect::<Result<Vec<_>>>()?;
        for (site, number) in sites.iter().zip(0..) {
            site.enter(|| prepare(links_of(&plan, number).count() > 1))??;
        }
        for (link, number) in plan.links.iter().zip(0..) {
            for end in [0, 1] {
                sites[link.between[end]].link_bare(&link.name, &middle, &inner(number, end))?;
            }
        }
        middle.enter(|| ip_batch(&router_commands(&plan)))??;
        for (site, number) in sites.iter().zip(0..) {
            site.enter(|| ip_batch(&site_commands(&plan, number)))??;
            site.enter(|| pin(links_of(&plan, number).map(|link| plan.links[link].name.clone()), 0))?;
        }
        middle.enter(|| pin((0..plan.links.len()).flat_map(|link| [0, 1].map(|end| inner(link, end))), 0))?;
        let wires = |(link, number): (&Link, usize)| Wires {
            ends: [inner(number, 0), inner(number, 1)],
            mtu: link.mtu,
            ways: link.ways.clone(),
        };
        let wires = plan.links.iter().zip(0..).map(wires).collect();
        let router = Router::start(middle, wires, plan.mode, plan.seed).map_err(Error::Router)?;
        Ok(Wan { plan, sites, router })
    }

    /// What it was made of, with all changes since.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The network of a site.
    ///
    /// # Errors
    /// [`Error::NoSite`]
    pub fn site(&self, name: &str) -> Result<&Namespace> {
        let found = self.plan.sites.iter().position(|site| site.name == name);
        found.map(|number| &self.sites[number]).ok_or_else(|| Error::NoSite {
            name: name.into(),
            known: self.plan.sites.iter().map(|site| site.name.clone()).collect(),
        })
    }

    /// Changes options of a link, written `delay=10ms loss=1%`, while it runs.
    ///
    /// # Errors
    /// [`Error::NoLink`], [`Error::Options`], and nothing is changed; what the system said otherwise.
    pub fn change(&mut self, link: &str, which: Which, options: &str, read: Reader<'_>) -> Result<()> {
        let mut ways = self.plan.links[self.number(link)?].ways.clone();
        for (way, is_back) in ways.iter_mut().zip([false, true]) {
            if which == Which::Both || (which == Which::Back) == is_back {
                way.change(options, read).map_err(|source| Error::Options { link: link.into(), source })?;
            }
        }
        self.put(link, ways)
    }

    /// From now on the ways of a link are these, there and back.
    ///
    /// # Errors
    /// As [`Wan::change`].
    pub fn put(&mut self, link: &str, ways: [Way; 2]) -> Result<()> {
        let number = self.number(link)?;
        for way in &ways {
            way.check().map_err(|error| Error::Options { link: link.into(), source: error.into() })?;
        }
        for (end, site) in self.plan.links[number].between.into_iter().enumerate() {
            self.sites[site].enter(|| ip_batch(&[segments(link, &ways[end])]))??;
        }
        self.router.change(number, ways.clone()).map_err(Error::Router)?;
        self.plan.links[number].ways = ways;
        Ok(())
    }

    fn number(&self, link: &str) -> Result<usize> {
        self.plan.links.iter().position(|known| known.name == link).ok_or_else(|| Error::NoLink {
            name: link.into(),
            known: self.plan.links.iter().map(|link| link.name.clone()).collect(),
        })
    }

    /// What each link has done, there and back.
    ///
    /// # Errors
    /// [`Error::Router`] if it has ended.
    pub fn look(&self) -> Result<Vec<[Seen; 2]>> {
        self.router.look().map_err(Error::Router)
    }
}

/// The end of a link at the router.
fn inner(link: usize, end: usize) -> String {
    format!("l{link}e{end}")
}

fn hardware_address(link: usize, end: usize) -> String {
    format!("02:76:00:00:{link:02x}:{end:02x}")
}

fn links_of(plan: &Plan, site: usize) -> impl Iterator<Item = usize> {
    (0..plan.links.len()).filter(move |link| plan.links[*link].between.contains(&site))
}

fn router_commands(plan: &Plan) -> Vec<String> {
    let ends = plan.links.iter().enumerate().flat_map(|(link, of)| [0, 1].map(|end| (inner(link, end), of.mtu)));
    ends.map(|(name, mtu)| format!("link set {name} mtu {mtu} up")).collect()
}

/// Frames that hold several packets are segmented by the sender's kernel before they come, where a rule is to see single packets.
fn segments(link: &str, way: &Way) -> String {
    let most = if way.needs_single_packets() { 1 } else { 65_535 };
    format!("link set {link} gso_max_segs {most}")
}

fn site_commands(plan: &Plan, number: usize) -> Vec<String> {
    let site = &plan.sites[number];
    let mut commands = vec![];
    for address in &site.addresses {
        let more = if address.is_ipv6() { "128 dev lo nodad" } else { "32 dev lo" };
        commands.push(format!("address add {address}/{more}"));
    }
    for at in links_of(plan, number) {
        let link = &plan.links[at];
        let end = usize::from(link.between[1] == number);
        let (name, mtu) = (&link.name, link.mtu);
        commands.push(format!("link set {name} address {} mtu {mtu}", hardware_address(at, end)));
        commands.push(segments(name, &link.ways[end]));
        commands.push(format!("link set {name} up"));
        let there = hardware_address(at, end ^ 1);
        for address in &plan.sites[link.between[end ^ 1]].addresses {
            commands.push(format!("neighbour add {address} lladdr {there} nud permanent dev {name}"));
        }
    }
    for (other, hop) in plan.first_hops(number).into_iter().enumerate() {
        let Some(hop) = hop else { continue };
        let (name, next) = (&plan.links[hop.link].name, &plan.sites[hop.site]);
        for address in &plan.sites[other].addresses {
            let (Some(own), Some(via)) = (site.address_like(*address), next.address_like(*address)) else { continue };
            let prefix = if address.is_ipv6() { 128 } else { 32 };
            let via = if hop.site == other { String::new() } else { format!(" via {via} onlink") };
            commands.push(format!("route add {address}/{prefix}{via} dev {name} src {own}"));
        }
    }
    commands
}

/// What a site is told before it has links. `forwards`: packets between others go through it.
fn prepare(forwards: bool) -> Result<()> {
    let always = [
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/default/accept_ra", "0"),
        ("net/ipv6/conf/default/router_solicitations", "0"),
    ];
    let between = [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];
    settings(&always)?;
    if forwards { settings(&between) } else { Ok(()) }
}

/// Those of IPv6 are not there where the kernel has none, and then need not be.
fn settings(settings: &[(&str, &str)]) -> Result<()> {
    let of_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    for (name, value) in settings.iter().filter(|(name, _)| of_ipv6 || !name.starts_with("net/ipv6")) {
        let setting = format!("/proc/sys/{name}");
        fs::write(&setting, value).map_err(|source| Error::Setting { setting, source })?;
    }
    Ok(())
}

/// Has all frames of these interfaces received by one processor, the one with this number, so that none overtakes another where their sender has moved to
/// another one meanwhile. To be called by a thread that ends after it.
pub fn pin(interfaces: impl Iterator<Item = String>, processor: usize) {
    let only = mask_of(processor);
    let pin = || -> io::Result<()> {
        // SAFETY: the thread shares its files and memory as before; only what is mounted where is another view from now on.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        // Of the network that this thread is in: what is mounted already is of another one.
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?;
        for interface in interfaces {
            fs::write(format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus"), &only)?;
        }
        Ok(())
    };
    // A container may not mount this. Then frames can change places when their sender moves, which is rare.
    if let Err(error) = pin() {
        tracing::info!("frames are received by any processor: {error}");
    }
}

/// The mask of one processor, as the kernel reads it: groups of 32 bits, the last of which has the first processors (lib/bitmap-str.c: bitmap_parse).
fn mask_of(processor: usize) -> String {
    format!("{:x}{}", 1u32 << (processor % 32), ",00000000".repeat(processor / 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_one_processor() {
        assert_eq!([0, 1, 31, 32, 69].map(mask_of), ["1", "2", "80000000", "1,00000000", "20,00000000,00000000"]);
    }
}
