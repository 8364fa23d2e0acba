//! From what is configured to a fabric: the device, port and GID are chosen, then opened.

use std::net::IpAddr;

use verbena_terms::Incarnation;

use super::choice::{Chosen, Wanted, choose};
use super::config::{Completions, VerbsConfig};
use super::devices::{addresses, devices};
use super::provider::VerbsFabric;
use crate::config::FabricConfig;
use crate::error::Result;
use crate::tcp::TcpConfig;

/// Opens the fabric of a node whose messages come where `tcp` says, and whose operations go by what is wanted.
///
/// # Errors
/// As [`devices`], [`choose`] and [`VerbsFabric::open`].
pub(crate) fn open(
    who: Incarnation,
    tcp: TcpConfig,
    wanted: &Wanted,
    completions: Completions,
) -> Result<(VerbsFabric, Chosen)> {
    let chosen = choose(&devices()?, &addresses()?, wanted)?;
    let (device, port, gid_index, gid) = (chosen.device.clone(), chosen.port, chosen.gid_index, Some(chosen.gid));
    let fabric = VerbsFabric::open(who, VerbsConfig { tcp, device, port, gid_index, gid, completions })?;
    Ok((fabric, chosen))
}

/// What the configuration asks for, of a node that listens at this address. Loopback says nothing: no adapter has it.
pub fn wanted(config: &FabricConfig, address: Option<IpAddr>) -> Wanted {
    Wanted {
        device: config.verbs_device.clone(),
        port: config.verbs_port,
        gid_index: config.verbs_gid,
        address: address.filter(|address| !address.is_loopback()),
    }
}

/// How completions are to be learnt of.
pub(crate) fn completions(config: &FabricConfig) -> Completions {
    if config.verbs_polling { Completions::Polled } else { Completions::Told }
}
