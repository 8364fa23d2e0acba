//! Two networks, and what is between them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use verbena_namespaces::{End, Namespace};
use verbena_terms::Lapse;
use verbena_wan::router::Mode;
use verbena_wan::{Plan, Wan, Way, Which};

use crate::error::BenchError;

/// Of so many packets the router loses one: a rule that has to see every packet by itself, and finds none to lose in an hour.
const ONE_BY_ONE: u64 = 1_000_000_000_000;
const LINK: &str = "wan";
/// The router's thread sleeps while a link is so long and nothing crosses it.
const PARKED: Duration = Duration::from_secs(1);

/// From which network to which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) near: &'a Namespace,
    pub(super) far: &'a Namespace,
    /// Of the far one.
    pub(super) address: IpAddr,
}

/// Two networks with a cable between them. What one of them receives is received by the processor that sends it, as with the emulator.
pub(super) struct Cable {
    near: Namespace,
    far: Namespace,
}

const CABLE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 82, 0, 1), Ipv4Addr::new(10, 82, 0, 2)];

impl Cable {
    pub(super) fn new() -> Result<Self, BenchError> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        near.link(End::new("near", CABLE[0]), &far, End::new("far", CABLE[1]))?;
        Ok(Cable { near, far })
    }

    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { near: &self.near, far: &self.far, address: CABLE[1].into() }
    }
}

/// A link of the emulator.
pub(super) struct Link {
    wan: Wan,
    mode: Mode,
}

impl Link {
    /// `single`: every packet by itself, even if the sender put several into one large frame.
    pub(super) fn new(mode: Mode, single: bool, seed: u64) -> Result<Self, BenchError> {
        let way = Way { delay: PARKED, drop_rate: single.then_some(ONE_BY_ONE), ..Way::default() };
        Ok(Link { wan: Wan::up(Plan::two_sites([way.clone(), way], mode, seed))?, mode })
    }

    pub(super) fn ends(&self) -> Result<Ends<'_>, BenchError> {
        let (near, far) = (self.wan.site("a")?, self.wan.site("b")?);
        Ok(Ends { near, far, address: self.wan.plan().sites[1].addresses[0] })
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
