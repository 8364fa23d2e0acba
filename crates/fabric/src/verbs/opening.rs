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
    config: &FabricConfig,
) -> Result<(VerbsFabric, Chosen)> {
    let chosen = choose(&devices()?, &addresses()?, wanted)?;
    let config = VerbsConfig {
        tcp,
        device: chosen.device.clone(),
        port: chosen.port,
        gid_index: chosen.gid_index,
        gid: Some(chosen.gid),
        rdma_cm: config.verbs_rdma_cm,
        rdma_cm_port: config.verbs_rdma_cm_port,
        // Of InfiniBand the choice says nothing: it is that of IP over InfiniBand, where the node listens at it.
        address: chosen.address.or(wanted.address.filter(|address| !address.is_unspecified())),
        service_levels: [config.verbs_control_level, config.verbs_bulk_level],
        sends: config.verbs_send.unwrap_or(config.keys.is_none()),
        completions: if config.verbs_polling { Completions::Polled } else { Completions::Told },
    };
    Ok((VerbsFabric::open(who, config)?, chosen))
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
