//! From what is configured to a fabric: the device, port and GID are chosen, then opened.

use verbena_terms::Incarnation;

use super::choice::{Chosen, Wanted, choose};
use super::config::{Completions, VerbsConfig};
use super::devices::{addresses, devices};
use super::provider::VerbsFabric;
use crate::config::FabricConfig;
use crate::error::Result;
use crate::tcp::TcpConfig;

/// Opens the fabric of a node whose messages come where `tcp` says.
///
/// # Errors
/// As [`devices`], [`choose`] and [`VerbsFabric::open`].
pub(crate) fn open(who: Incarnation, tcp: TcpConfig, config: &FabricConfig) -> Result<(VerbsFabric, Chosen)> {
    let address = Some(tcp.listen.ip());
    let chosen = choose(&devices()?, &addresses()?, &wanted(config, address))?;
    let completions = if config.verbs_polling { Completions::Polled } else { Completions::Told };
    let (device, port, gid_index, gid) = (chosen.device.clone(), chosen.port, chosen.gid_index, Some(chosen.gid));
    let fabric = VerbsFabric::open(who, VerbsConfig { tcp, device, port, gid_index, gid, completions })?;
    Ok((fabric, chosen))
}

/// What the configuration asks for, of a node that listens at this address. Loopback says nothing: no adapter has it.
pub fn wanted(config: &FabricConfig, address: Option<std::net::IpAddr>) -> Wanted {
    Wanted {
        device: config.verbs_device.clone(),
        port: config.verbs_port,
        gid_index: config.verbs_gid,
        address: address.filter(|address| !address.is_loopback()),
    }
}
