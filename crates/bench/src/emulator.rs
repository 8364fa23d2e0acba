//! The WAN emulator (`verbena-wan`), measured: how far its delays are from what was asked, and what goes through it.
//!
//! ```text
//!   site a, probe or stream ---- veth ---- router ---- veth ---- site b, the other end
//! ```
//!
//! Beside it stand the same two networks with a cable between them, a kernel that forwards, and `rattan`, where it is installed.

mod adapters;
mod bandwidth;
mod channels;
mod far;
mod flows;
mod handing;
mod latency;
mod line;
mod node;
mod overlap;
mod paths;
mod places;
mod precision;
mod rattan;
mod throughput;
mod ways;
mod work;

pub(crate) use bandwidth::measure as bandwidth;
pub(crate) use far::{ROLE as FAR_SITE, serve as serve_far_site};
pub(crate) use latency::measure as latency;
pub(crate) use overlap::measure as overlap;
pub(crate) use paths::{Link, Path};
pub(crate) use precision::measure as precision;
pub(crate) use throughput::measure as throughput;

use crate::report::{Axis, FabricFound, Line, Panel};

/// Our own, for rows that have other programs beside it.
fn router() -> FabricFound {
    let because = "verbena wan: modes precise and sleep".to_owned();
    FabricFound { name: "router".to_owned(), measured: true, because, capabilities: None }
}

fn panel(title: &str, x: Axis, y: &str, series: Vec<Line>) -> Panel {
    let series = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    Panel { title: title.to_owned(), x, y: Axis { label: y.to_owned(), logarithmic: false, bytes: false }, series }
}
