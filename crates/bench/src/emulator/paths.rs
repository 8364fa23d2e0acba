//! Two networks, and what is between them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use verbena_fabric::XdpMode;
use verbena_namespaces::{End, Namespace};
use verbena_terms::Lapse;
use verbena_wan::router::{DataPath, Mode};
use verbena_wan::{Backend, Plan, Wan, Way, Which, pin, take_frames_of, take_large_frames};

use super::adapters::Adapters;
use crate::error::BenchError;
use crate::report::FabricFound;

/// The router loses one packet of this many: a rule that has to see every packet by itself, and finds none to lose in
/// an hour.
const ONE_BY_ONE: u64 = 1_000_000_000_000;
const LINK: &str = "wan";
/// The router's thread sleeps while a link is so long and nothing crosses it. What connections still say to each other is not late for them.
const PARKED: Duration = Duration::from_millis(10);

/// From which network to which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) near: &'a Namespace,
    pub(super) far: &'a Namespace,
    /// Of the far one.
    pub(super) address: IpAddr,
}

/// One of the two sites, as a process in it sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) network: &'a Namespace,
    pub(crate) address: IpAddr,
    /// By which it reaches the other one.
    pub(super) interface: &'a str,
    /// Its RDMA device, if it has one.
    pub(super) device: Option<&'a str>,
    /// Where a program can stand there that answers: a virtual interface hands on what its driver sends back only where its other end has one too,
    /// and the router's have none.
    pub(super) mode: XdpMode,
}

/// Writes settings of IPv4 (net.ipv4) of a network.
pub(super) fn set_ipv4(network: &Namespace, settings: &[(&str, &str)]) -> Result<(), BenchError> {
    let set = || {
        settings.iter().try_for_each(|(name, value)| {
            let setting = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&setting, value).map_err(|error| BenchError::io(setting.as_ref(), error))
        })
    };
    network.enter(set)?
}

/// What is between two sites.
pub(crate) enum Path {
    Cable(Cable),
    Link(Link),
    Adapters(Adapters),
}

impl Path {
    /// The near one and the far one.
    pub(crate) fn sites(&self) -> Result<[Site<'_>; 2], BenchError> {
        match self {
            Path::Cable(cable) => Ok(cable.sites()),
            Path::Link(link) => link.sites(),
            Path::Adapters(adapters) => Ok(adapters.sites()),
        }
    }

    /// From now on it is so long, there and back. A cable stays as short as it is.
    pub(crate) fn set(&mut self, delay: Duration) -> Result<(), BenchError> {
        match self {
            Path::Cable(_) => Ok(()),
            Path::Link(link) => link.set(delay),
            Path::Adapters(adapters) => adapters.set(delay),
        }
    }

    /// To be called when others are measured.
    pub(super) fn park(&mut self) -> Result<(), BenchError> {
        match self {
            Path::Cable(_) => Ok(()),
            Path::Link(link) => link.park(),
            Path::Adapters(adapters) => adapters.park(),
        }
    }
}

/// Two networks with a cable between them. What one of them receives is received by the processor that sends it, as with the emulator.
pub(crate) struct Cable {
    near: Namespace,
    far: Namespace,
}

const CABLE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 82, 0, 1), Ipv4Addr::new(10, 82, 0, 2)];
const PLUGS: [&str; 2] = ["near", "far"];

impl Cable {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        near.link(End::new(PLUGS[0], CABLE[0]), &far, End::new(PLUGS[1], CABLE[1]))?;
        Ok(Cable { near, far })
    }

    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { near: &self.near, far: &self.far, address: CABLE[1].into() }
    }

    /// The near one and the far one.
    pub(super) fn sites(&self) -> [Site<'_>; 2] {
        let site = |network, at: usize| Site {
            network,
            address: CABLE[at].into(),
            interface: PLUGS[at],
            device: None,
            mode: XdpMode::Native,
        };
        [site(&self.near, 0), site(&self.far, 1)]
    }
}

/// Two networks, and a kernel that forwards between them.
pub(super) struct Forwarding {
    near: Namespace,
    far: Namespace,
    /// The network exists as long as this value.
    _middle: Namespace,
}

const FORWARDED: [[Ipv4Addr; 2]; 2] = [
    [Ipv4Addr::new(10, 83, 0, 1), Ipv4Addr::new(10, 83, 0, 2)],
    [Ipv4Addr::new(10, 83, 1, 1), Ipv4Addr::new(10, 83, 1, 2)],
];

impl Forwarding {
    /// `single`: senders segment before they send. Otherwise frames have up to `frame` bytes of IP.
    pub(super) fn new(single: bool, frame: u32) -> Result<Self, BenchError> {
        let (near, middle, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (site, name, [inner, outer]) in [(&near, "left", FORWARDED[0]), (&far, "right", FORWARDED[1])] {
            middle.link(End::new(name, inner), site, End::new("end", outer))?;
            for (network, end) in [(&middle, name), (site, "end")] {
                let sizes = network.enter(|| take_frames_of(end, frame))?;
                sizes.map_err(|error| BenchError::io(end.as_ref(), error))?;
            }
            if single {
                let segments = site.enter(|| take_large_frames("end", false))?;
                segments.map_err(|error| BenchError::io("end".as_ref(), error))?;
            }
            site.enter(|| pin(["end".to_owned()].into_iter(), 0))?;
        }
        middle.enter(|| pin(["left", "right"].map(str::to_owned).into_iter(), 0))?;
        set_ipv4(&middle, &[("ip_forward", "1")])?;
        Ok(Forwarding { near, far, _middle: middle })
    }

    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { near: &self.near, far: &self.far, address: FORWARDED[1][1].into() }
    }
}

/// A link of the emulator.
pub(crate) struct Link {
    wan: Wan,
    mode: Mode,
}

impl Link {
    /// `single`: every packet by itself, even if the sender put several into one large frame.
    pub(crate) fn new(mode: Mode, single: bool, seed: u64) -> Result<Self, BenchError> {
        Link::by(mode, DataPath::Packet, single, seed)
    }

    /// One of each of these modes whose packets stay in the kernel until they go on; none where the kernel does not hold them, or without `iptables`. And
    /// what to say of them.
    pub(super) fn held(modes: &[Mode], seed: u64) -> Result<(Vec<Self>, FabricFound), BenchError> {
        let found =
            |measured, because| FabricFound { name: "nfqueue".to_owned(), measured, because, capabilities: None };
        let links = modes.iter().map(|mode| Link::by(*mode, DataPath::Nfqueue, false, seed));
        match links.collect::<Result<Vec<_>, _>>() {
            Ok(links) => {
                let precise_alone = if modes.contains(&Mode::Sleep) { "" } else { ", mode precise" };
                Ok((links, found(true, format!("the router, path nfqueue{precise_alone}"))))
            }
            Err(
                error @ (BenchError::Emulator(verbena_wan::Error::Lacking { .. })
                | BenchError::Network(verbena_namespaces::Error::Command { .. })),
            ) => Ok((vec![], found(false, error.to_string()))),
            Err(other) => Err(other),
        }
    }

    fn by(mode: Mode, path: DataPath, single: bool, seed: u64) -> Result<Self, BenchError> {
        let way = Way { delay: PARKED, drop_rate: single.then_some(ONE_BY_ONE), ..Way::default() };
        let backend = Backend::Router { mode, path, seed, core: None };
        let plan = Plan { backend, ..Plan::two_sites([way.clone(), way], mode, seed) };
        Ok(Link { wan: Wan::up(plan)?, mode })
    }

    pub(super) fn ends(&self) -> Result<Ends<'_>, BenchError> {
        let [near, far] = self.sites()?;
        Ok(Ends { near: near.network, far: far.network, address: far.address })
    }

    /// The near one and the far one.
    pub(super) fn sites(&self) -> Result<[Site<'_>; 2], BenchError> {
        let address = |at: usize| self.wan.plan().sites[at].addresses[0];
        let site = |network, at| {
            let (address, mode) = (address(at), XdpMode::Generic);
            Site { network, address, interface: LINK, device: None, mode }
        };
        Ok([site(self.wan.site("a")?, 0), site(self.wan.site("b")?, 1)])
    }

    /// From now on it is so long, there and back.
    pub(super) fn set(&mut self, delay: Duration) -> Result<(), BenchError> {
        let options = format!("delay={}", Lapse(delay));
        Ok(self.wan.change(LINK, Which::Both, &options, &|path| Err(format!("no option names {path}")))?)
    }

    /// To be called when others are measured: a router that is exact keeps a core busy.
    pub(super) fn park(&mut self) -> Result<(), BenchError> {
        if self.mode == Mode::Precise { self.set(PARKED) } else { Ok(()) }
    }
}
