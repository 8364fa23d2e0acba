//! The cooperative cache, hosted: membership's notices on one side, [`PoolService`] on the other.

use std::time::Duration;

use verbena_coop::service::{Metrics, PoolConfig, PoolService};
use verbena_metrics::Registry;

use crate::error::Result;
use crate::hosting::Hosting;

/// The service, and the handle by which programs use it.
///
/// # Errors
/// If there can be no thread for it, or its metrics are registered already.
pub(crate) fn start(config: &PoolConfig, registry: &Registry) -> Result<(Hosting<PoolService>, PoolService)> {
    let service = PoolService::start(config, Metrics::new(registry)?)?;
    Ok((Hosting::new(service.clone(), Duration::ZERO), service))
}
