//! Pages that are asked for once each, by a client of their own.

use std::net::SocketAddr;
use std::time::Duration;

use crate::child::Target;
use crate::error::BenchError;
use crate::web::{Found, Order, Workload};

/// Clients at once.
pub(super) const CONNECTIONS: usize = 16;
/// How long one order may take.
const PATIENCE: Duration = Duration::from_secs(50);

/// Asks for these pages once; what the answers took is no matter.
pub(super) fn ask_once(client: &mut Target, address: SocketAddr, workload: Workload) -> Result<(), BenchError> {
    let order = Order {
        address,
        workload,
        cached: true,
        connections: CONNECTIONS,
        sweep: PATIENCE,
        updates: None,
        length: Duration::from_millis(10),
    };
    let _: Found = client.ask(&order, "ask for pages")?;
    Ok(())
}
