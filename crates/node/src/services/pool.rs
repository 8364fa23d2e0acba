//! The cooperative cache, hosted: membership's notices on one side, [`PoolService`] on the other.

use std::time::Duration;

use verbena_coop::service::{Metrics, PoolConfig, PoolService};
use verbena_metrics::Registry;
use verbena_terms::Size;

use crate::error::{Error, Result};
use crate::services::hosting::Hosting;

/// The service, and the handle by which programs use it.
///
/// # Errors
/// If there can be no thread for it, or its metrics are registered already.
pub(crate) fn start(config: &PoolConfig, registry: &Registry) -> Result<(Hosting<PoolService>, PoolService)> {
    let service = PoolService::start(config, Metrics::new(registry)?)?;
    Ok((Hosting::new(service.clone(), Duration::ZERO), service))
}

/// Whether this machine has the memory that the pool is to have. Before the node joins: it would be a member that has none.
///
/// # Errors
/// It has less.
pub(crate) fn check(config: &PoolConfig) -> Result<()> {
    let machine = rustix::system::sysinfo();
    // In whole mebibytes, as people write it.
    let bytes = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit)) >> 20 << 20;
    fits(config.memory, Size(bytes))
}

fn fits(asked: Size, machine: Size) -> Result<()> {
    let too_much = |most, why| Err(Error::TooMuchMemory { asked, most, why });
    match asked {
        asked if asked > machine => too_much(machine, "which is all the memory of this machine: lend less"),
        asked if asked > PoolConfig::MOST_MEMORY => {
            too_much(PoolConfig::MOST_MEMORY, "which is the most that one node can lend: start several")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_not_is_not_lent() {
        let said = |asked: &str, machine: &str| {
            fits(asked.parse().unwrap(), machine.parse().unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(said("8GiB", "8GiB"), Ok(()));
        let too_much = said("100TiB", "15987MiB").unwrap_err();
        assert!(too_much.contains("100TiB is more than 15987MiB"), "{too_much}");
        let too_much = said("1TiB", "2TiB").unwrap_err();
        assert!(too_much.contains("one node"), "{too_much}");
    }
}
