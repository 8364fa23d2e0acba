//! Opening a fabric for the row: every provider that this build has, each by the same door as a node's.

use std::path::PathBuf;
use std::sync::Arc;

use verbena_fabric::{Address, Fabric, FabricConfig, Interconnect, Meeting, Provider, Result, XdpMode};
use verbena_terms::Incarnation;

use super::network;
use super::target::{CALLER, TARGET};

/// Where a node listens in a network that has no other.
const PORT: u16 = 7400;

/// A provider, and what is between the two processes of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) provider: Provider,
    /// Whether each is in a network of its own, with a virtual link between the two. Otherwise they meet as processes
    /// of one machine do: on loopback, if by a network.
    pub(crate) is_linked: bool,
    /// Whether messages go by sockets alone, where an adapter could carry some.
    pub(crate) is_by_sockets: bool,
    /// Whether a thread polls for completions instead of waiting for their events, where that is a matter of the
    /// configuration.
    pub(crate) is_polled: bool,
}

impl Place {
    /// All that are measured, of each provider its usual one first.
    pub(crate) const ALL: [Place; 6] = [
        Place::near(Provider::Shm),
        Place::near(Provider::Verbs),
        Place::BY_SOCKETS,
        Place::linked(Provider::Xdp),
        Place::near(Provider::Tcp),
        Place::linked(Provider::Tcp),
    ];

    /// Adapters, whose completions are looked for.
    pub(crate) const POLLED: Place = Place { is_polled: true, ..Place::near(Provider::Verbs) };

    /// Adapters, whose messages go by sockets: nothing else of them is measured.
    pub(crate) const BY_SOCKETS: Place = Place { is_by_sockets: true, ..Place::near(Provider::Verbs) };

    const fn near(provider: Provider) -> Self {
        Place { provider, is_linked: false, is_by_sockets: false, is_polled: false }
    }

    /// Over a virtual link.
    pub(crate) const fn linked(provider: Provider) -> Self {
        Place { is_linked: true, ..Place::near(provider) }
    }

    /// The usual one of `provider`.
    pub(crate) fn of(provider: Provider) -> Self {
        let found = Place::ALL.into_iter().find(|place| place.provider == provider);
        found.expect("invariant: every provider is among them")
    }

    /// As it is called in figures, and by processes of the row.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::POLLED => "verbs, polling",
            Place::BY_SOCKETS => "verbs, messages by tcp",
            place if place == Place::of(self.provider) => self.provider.name(),
            _ => "tcp over a link",
        }
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Place::ALL.into_iter().chain([Place::POLLED]).find(|place| place.name() == name)
    }
}

/// Opens the fabric of one of the two processes, by a thread that is where the process is.
pub(crate) fn open(place: Place, who: Incarnation) -> Result<Arc<dyn Fabric>> {
    let provider = place.provider.choice();
    // No other host is on the experiment's own link, and generic would not be what an ordinary card does.
    let (insecure, xdp_mode) = (place.is_linked, XdpMode::Native);
    let (verbs_polling, verbs_send) = (place.is_polled, Some(!place.is_by_sockets));
    let config = FabricConfig { provider, insecure, xdp_mode, verbs_polling, verbs_send, ..FabricConfig::default() };
    Ok(Interconnect::new(config, meeting(place, who))?.open(who)?.fabric)
}

fn meeting(place: Place, who: Incarnation) -> Meeting {
    let directory = PathBuf::new();
    if !place.is_linked {
        // Other processes must find neither of the two: each gets the other's address.
        return Meeting { directory, own: Address(String::new()), members: Vec::new() };
    }
    let of = |who| {
        let at = if who == CALLER { network::CALLER_AT } else { network::TARGET_AT };
        format!("{}://{at}:{PORT}", place.provider.name())
    };
    Meeting { directory, own: Address(of(who)), members: vec![of(CALLER), of(TARGET)] }
}
