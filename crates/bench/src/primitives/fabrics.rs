//! Opening a fabric for the row: every provider that this build has, each by the same door as a node's.

use std::path::PathBuf;
use std::sync::Arc;

use verbena_fabric::{Address, Choice, Error, Fabric, FabricConfig, Interconnect, Meeting, Provider, Result};
use verbena_terms::Incarnation;

/// The provider called `name`, as the target process is told of it.
pub(super) fn named(name: &str) -> Option<Provider> {
    Provider::ALL.into_iter().find(|provider| provider.name() == name)
}

/// Opens `provider` for one of the two processes of this machine: on loopback, where it has a network.
pub(super) fn open(provider: Provider, who: Incarnation) -> Result<Arc<dyn Fabric>> {
    let choice = match provider {
        Provider::Shm => Choice::Shm,
        Provider::Xdp => {
            return Err(Error::Unusable {
                provider: provider.name(),
                reason: "it reaches from one network to another, and the processes of a row are in one".into(),
                remedy: "Measure shm and tcp".into(),
            });
        }
        Provider::Tcp => Choice::Tcp,
    };
    let config = FabricConfig { provider: choice, ..FabricConfig::default() };
    // Neither process is to be found by others: each is told the other's address.
    let meeting = Meeting { directory: PathBuf::new(), own: Address(String::new()), members: Vec::new() };
    Ok(Interconnect::new(config, meeting)?.open(who)?.fabric)
}
