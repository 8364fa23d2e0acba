//! By what messages get from the near site to the far one, and back.

use std::net::TcpStream;
use std::time::Duration;

use verbena_fabric::{Executor, Provider};

use super::adapters::Adapters;
use super::far::{Connections, Far, Pair, failed};
use super::line::{Line, Route};
use super::paths::Site;
use super::work::Work;
use crate::error::BenchError;
use crate::report::FabricFound;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One-sided operations of a fabric.
    OneSided(Provider),
    /// A connection, and a process that reads it.
    Sockets,
}

impl Way {
    pub(super) const ALL: [Way; 4] =
        [Way::OneSided(Provider::Tcp), Way::OneSided(Provider::Xdp), Way::Sockets, Way::OneSided(Provider::Verbs)];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::OneSided(provider) => provider.name(),
            Way::Sockets => "sockets",
        }
    }
}

/// All that there are between two sites.
pub(super) struct Ways {
    pub(super) far: Far,
    pairs: Vec<(Provider, Pair)>,
    sockets: Option<Connections>,
}

impl Ways {
    /// Opens those of `wanted` that there are, and says which fabrics work. `between` is what is between the sites.
    pub(super) fn open(
        wanted: &[Way],
        sites: [Site<'_>; 2],
        between: &str,
        before: &[&str],
    ) -> Result<(Self, Vec<FabricFound>), BenchError> {
        let mut ways = Ways { far: Far::start(sites[1], before)?, pairs: vec![], sockets: None };
        let mut found = vec![];
        for way in wanted {
            match *way {
                Way::OneSided(provider) => found.push(ways.open_fabric(provider, sites, between)?),
                Way::Sockets => ways.sockets = Some(ways.far.connect(1, None, sites)?),
            }
        }
        Ok((ways, found))
    }

    /// By adapters, and by `beside`, which does not cross what is between them. And what to say of the first.
    pub(super) fn by_adapters(
        adapters: &Adapters,
        beside: &[Way],
        before: &[&str],
    ) -> Result<(Self, FabricFound), BenchError> {
        let wanted = [&[Way::OneSided(Provider::Verbs)], beside].concat();
        let (ways, mut found) = Ways::open(&wanted, adapters.sites(), "netem", before)?;
        let found = found.pop().expect("invariant: each fabric that is wanted is found or not");
        let because = if found.measured { format!("{}; {}", found.because, adapters.name()) } else { found.because };
        Ok((ways, FabricFound { name: Provider::Verbs.name().to_owned(), because, ..found }))
    }

    fn open_fabric(
        &mut self,
        provider: Provider,
        sites: [Site<'_>; 2],
        between: &str,
    ) -> Result<FabricFound, BenchError> {
        let name = format!("{}, {between}", provider.name());
        Ok(match self.far.pair(provider, sites)? {
            Ok(pair) => {
                let capabilities = pair.near.fabric.capabilities();
                let because = format!("operations are executed by {}", executor_name(capabilities.executor));
                let found = FabricFound { name, ..FabricFound::measured(capabilities, because) };
                self.pairs.push((provider, pair));
                found
            }
            Err(reason) => FabricFound { name, ..FabricFound::missing(provider, reason) },
        })
    }

    /// Whether this way exists, for messages of `bytes` bytes.
    pub(super) fn has(&self, way: Way, bytes: usize) -> bool {
        match way {
            Way::OneSided(provider) => self.pair(provider).is_some_and(|pair| {
                let most = pair.near.fabric.capabilities().largest_write as usize;
                bytes <= most
            }),
            Way::Sockets => self.sockets.is_some(),
        }
    }

    pub(super) fn pair(&self, provider: Provider) -> Option<&Pair> {
        self.pairs.iter().find(|(of, _)| *of == provider).map(|(_, pair)| pair)
    }

    /// What executes one-sided operations; `None` for a way of another kind.
    pub(super) fn executor(&self, way: Way) -> Option<Executor> {
        let Way::OneSided(provider) = way else { return None };
        Some(self.pair(provider)?.near.fabric.capabilities().executor)
    }

    /// What `act` gives, with the connection to a process that computes for `load`, and then looks whether a message of
    /// `bytes` has come that is to be answered.
    pub(super) fn loaded<T>(
        &mut self,
        load: Duration,
        bytes: usize,
        act: impl FnOnce(&TcpStream, &[(Provider, Pair)]) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let Ways { far, pairs, sockets } = self;
        let sockets = sockets.as_ref().ok_or_else(|| failed("answering", "there is no connection".to_owned()))?;
        let work = Work::Answer { route: Route::Connection(sockets.first), bytes, load };
        Ok(far.during(work, |_| act(&sockets.near[0], pairs))?.0)
    }

    /// What `act` gives, which has a line to a process that answers each message with another one.
    pub(super) fn answered<T>(
        &mut self,
        way: Way,
        bytes: usize,
        act: impl FnOnce(&mut Line<'_>) -> Result<T, String>,
    ) -> Result<T, BenchError> {
        let doing = || format!("sending {bytes} bytes by {}", way.name());
        let missing = || failed(&doing(), "there is no such way".to_owned());
        let Ways { far, pairs, sockets } = self;
        let (route, line) = match way {
            Way::OneSided(provider) => {
                let (_, pair) = pairs.iter().find(|(of, _)| *of == provider).ok_or_else(missing)?;
                (Route::Node(pair.number), Line::of_writes(&pair.near, &pair.met, bytes))
            }
            Way::Sockets => {
                let sockets = sockets.as_ref().ok_or_else(missing)?;
                (Route::Connection(sockets.first), Ok(Line::of_socket(&sockets.near[0], bytes)))
            }
        };
        let mut line = line.map_err(|what| failed(&doing(), what))?;
        let (done, _) = far.during(Work::Answer { route, bytes, load: Duration::ZERO }, |_| {
            let done = act(&mut line).and_then(|done| line.finish().map(|()| done));
            done.map_err(|what| failed(&doing(), what))
        })?;
        Ok(done)
    }
}

pub(super) use crate::primitives::executor_name;
