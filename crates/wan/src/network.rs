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

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use verbena_namespaces::{Namespace, ip_batch};
use verbena_terms::{keep_off, usable_cores};

use crate::backend::Backend;
use crate::bridge;
use crate::kernel::Kernel;
use crate::largest::{LARGEST_FRAME, take_frames_of};
use crate::offload::take_large_frames;
use crate::options::{OptionError, Reader};
use crate::plan::{Link, Plan, PlanError};
use crate::receivers::{Receivers, Steering, by_any};
use crate::router::{DataPath, GAUGE_MTU, Router, Seen, Setting, Wires};
use crate::way::Way;

/// Why there is no WAN.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No site has this name.
    #[error("there is no site {name:?}; there are {}", known.join(", "))]
    NoSite {
        /// What was given.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// No link has this name.
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
    /// The setting for large frames of an interface could not be changed.
    #[error("{link}: how packets are segmented cannot be set: {source}")]
    Segmentation {
        /// The link, and its interface.
        link: String,
        /// What the system said.
        source: io::Error,
    },
    /// The router could not be started, or has ended.
    #[error("the router: {0}")]
    Router(#[source] io::Error),
    /// The kernel lacks what was asked for. Nothing is left of what was made.
    #[error(
        "this kernel has no {part} (module {module}): `modprobe -a {module}` as root, or leave the {of} out; {said}"
    )]
    Lacking {
        /// What takes it.
        of: &'static str,
        /// What it lacks.
        part: &'static str,
        /// The modules that have it.
        module: &'static str,
        /// What was said by the command that was refused.
        said: String,
    },
    /// What the backend `kernel` takes could not be handed to `tc`, or not be read.
    #[error("the backend kernel: {0}")]
    Kernel(#[source] io::Error),
}

impl Error {
    /// Whether the user may not make networks. Then nothing was made.
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

/// What runs the links.
#[derive(Debug)]
enum Runs {
    Router(Router),
    Kernel(Kernel),
}

/// Networks that were made, with what runs the links between them. All are gone with this value, or with the process.
#[derive(Debug)]
pub struct Wan {
    plan: Plan,
    sites: Vec<Namespace>,
    runs: Runs,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Wan {
    /// Makes what the plan says, and starts the router or has the kernel run the links. That takes CAP_SYS_ADMIN and CAP_NET_ADMIN, in the user
    /// namespace that this thread is in, and the command `ip`, for the kernel `tc`.
    ///
    /// # Errors
    /// [`Error`]; nothing is left of what was made.
    pub fn up(plan: Plan) -> Result<Self> {
        plan.check()?;
        let middle = Namespace::new()?;
        match plan.backend {
            Backend::Kernel => Kernel::probe(&middle)?,
            Backend::Router { path: DataPath::Nfqueue, .. } => bridge::probe(&middle)?,
            Backend::Router { path: DataPath::Packet, .. } => {}
        }
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
        let inner_ends: Vec<String> =
            (0..plan.links.len()).flat_map(|link| [0, 1].map(|end| inner(link, end))).collect();
        // A kernel that forwards takes the option in which IPv6 says the length of such a frame for a part of each of its packets, and drops it as too large.
        let forwards = (0..plan.sites.len()).any(|site| links_of(&plan, site).count() > 1);
        let takes_larger = !forwards && matches!(plan.backend, Backend::Router { path: DataPath::Nfqueue, .. });
        if takes_larger {
            enlarge(&middle, &inner_ends)?;
        }
        let usable = usable_cores().unwrap_or_default();
        let mut steering = Steering { usable, ..Steering::default() };
        for (site, number) in sites.iter().zip(0..) {
            site.enter(|| ip_batch(&site_commands(&plan, number)))??;
            site.enter(|| {
                links_of(&plan, number).map(|link| &plan.links[link]).try_for_each(|link| {
                    let end = usize::from(link.between[1] == number);
                    segment(&link.name, &link.ways[end])
                })
            })??;
            let names: Vec<String> = links_of(&plan, number).map(|link| plan.links[link].name.clone()).collect();
            if takes_larger {
                enlarge(site, &names)?;
            }
            steering.sites.extend(receivers(site, names)?);
        }
        let runs = match plan.backend {
            Backend::Router { mode, path, seed, core } => {
                steering.router = receivers(&middle, inner_ends)?;
                middle.link_bare(GAUGE[0], &middle, GAUGE[1])?;
                middle.enter(|| ip_batch(&GAUGE.map(|name| format!("link set dev {name} mtu {GAUGE_MTU} up"))))??;
                let wires = |(link, number): (&Link, usize)| Wires {
                    ends: [inner(number, 0), inner(number, 1)],
                    mtu: link.mtu,
                    ways: link.ways.clone(),
                };
                let links = plan.links.iter().zip(0..).map(wires).collect();
                let gauge = GAUGE.map(str::to_owned);
                if path == DataPath::Nfqueue {
                    bridge::make(&middle, &plan.links)?;
                }
                let setting = Setting { network: middle, links, gauge, steering, mode, path, seed, core };
                Runs::Router(Router::start(setting).map_err(Error::Router)?)
            }
            Backend::Kernel => {
                steering.put(Some(0), Some(0));
                Runs::Kernel(Kernel::start(middle, &plan.links)?)
            }
        };
        Ok(Wan { plan, sites, runs })
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

    /// Keeps this thread, and whatever it starts from now on, off the router's core, where that has one of its own and there is another one: what sends and
    /// receives in the sites does not wait for the router then, nor the router for it.
    ///
    /// # Errors
    /// What the system said, which it has no reason to.
    pub fn keep_off(&self) -> io::Result<()> {
        Ok(self.plan.backend.core().map_or(Ok(()), keep_off)?)
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
            let checked = self.plan.check_way(way, self.plan.links[number].mtu);
            checked.map_err(|error| Error::Options { link: link.into(), source: error.into() })?;
        }
        for (end, site) in self.plan.links[number].between.into_iter().enumerate() {
            self.sites[site].enter(|| segment(link, &ways[end]))??;
        }
        match &mut self.runs {
            Runs::Router(router) => router.change(number, ways.clone()).map_err(Error::Router)?,
            Runs::Kernel(kernel) => kernel.change(number, &self.plan.links[number], &ways)?,
        }
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
    /// [`Error::Router`] if it has ended; of the kernel what `tc` said.
    pub fn look(&self) -> Result<Vec<[Seen; 2]>> {
        match &self.runs {
            Runs::Router(router) => router.look().map_err(Error::Router),
            Runs::Kernel(kernel) => kernel.look(&self.plan.links),
        }
    }
}

/// The pair of interfaces by which the router measures itself.
const GAUGE: [&str; 2] = ["gauge0", "gauge1"];

/// The end of a link in the middle.
pub(crate) fn inner(link: usize, end: usize) -> String {
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
    ends.map(|(name, mtu)| format!("link set dev {name} mtu {mtu} up")).collect()
}

/// Frames that hold several packets are segmented by the sender's kernel before they come, where a rule is to see single packets. In the network of
/// this thread.
fn segment(link: &str, way: &Way) -> Result<()> {
    let done = take_large_frames(link, !way.needs_single_packets());
    done.map_err(|source| Error::Segmentation { link: link.into(), source })
}

/// Frames that are not copied may be larger than is usual.
fn enlarge(network: &Namespace, ends: &[String]) -> Result<()> {
    let enlarge = |link: &String| {
        let done = take_frames_of(link, LARGEST_FRAME);
        done.map_err(|source| Error::Segmentation { link: link.clone(), source })
    };
    network.enter(|| ends.iter().try_for_each(enlarge))?
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
        commands.push(format!("link set dev {name} address {} mtu {mtu}", hardware_address(at, end)));
        commands.push(format!("link set dev {name} up"));
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

/// Settings of a site before it has links. `forwards`: packets between others go through it.
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
pub(crate) fn settings(settings: &[(&str, &str)]) -> Result<()> {
    let of_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    for (name, value) in settings.iter().filter(|(name, _)| of_ipv6 || !name.starts_with("net/ipv6")) {
        let setting = format!("/proc/sys/{name}");
        fs::write(&setting, value).map_err(|source| Error::Setting { setting, source })?;
    }
    Ok(())
}

/// `None` where a container may not see to it.
fn receivers(network: &Namespace, interfaces: Vec<String>) -> Result<Option<Receivers>> {
    let receivers = network.enter(|| Receivers::of(interfaces))?;
    Ok(receivers.inspect_err(by_any).ok())
}

/// What this thread mounts from now on is seen by it alone, and gone with it.
pub(crate) fn own_mounts() -> io::Result<()> {
    // SAFETY: the thread shares its files and memory as before; only what is mounted where is another view from now on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}
