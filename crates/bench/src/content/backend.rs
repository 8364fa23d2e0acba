//! `content.backend`: how far a cache shields its clients from a loaded back end.
//!
//! After Figure 6.10 of the dissertation: trace 5, the one with the most updates, while more and more threads compute on the core of the application,
//! its database and the home.

use super::measured::{Measured, Quantity, Said, axis, median, panel, ratio, rounds, times};
use super::schemes::{DEPENDENCIES, LISTS, NO_CACHE, Schemes, TRACES, turn};
use crate::error::BenchError;
use crate::report::{Findings, Panel, Ratio};
use crate::run::Plan;

const GROUP: &str = "trace 5";

/// Threads that compute.
const LEVELS: [usize; 5] = [0, 1, 2, 4, 8];
const MOST: usize = 8;

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut schemes = Schemes::new(&plan)?;
    let (no_cache, lists) = (schemes.start(NO_CACHE, None)?, schemes.start(LISTS, None)?);
    let trace = TRACES[4];
    let mut turns = Vec::new();
    for busy in LEVELS {
        for (scheme, address) in [(NO_CACHE, no_cache), (LISTS, lists)] {
            let mut turn = turn(GROUP, scheme, busy as f64, address, trace, DEPENDENCIES);
            turn.busy = busy;
            turns.push(turn);
        }
    }
    schemes.measure(plan, turns, ratios, panels)
}

fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let of = |scheme: &str, busy: usize, quantity| rounds(measured, GROUP, scheme, busy as f64, quantity);
    let rate = |scheme: &str, busy| of(scheme, busy, Quantity::Throughput);
    let reason = |busy: usize| {
        format!(
            "{} requests a second against {}, with {}% misses and {} updates a second",
            median(&rate(LISTS, busy)),
            median(&rate(NO_CACHE, busy)),
            median(&of(LISTS, busy, Quantity::Misses)),
            median(&of(LISTS, busy, Quantity::Updates)),
        )
    };
    let mut ratios = Vec::new();
    for busy in LEVELS {
        let said = match busy {
            0 => Said::AtLeast(8.5, "8.5 without load", reason(busy)),
            MOST => Said::AtLeast(21.9, "21.9 with load", reason(busy)),
            _ => Said::Nothing,
        };
        let under = format!("{busy} busy threads");
        ratios.push(ratio(
            "throughput, dependency lists over no cache",
            &under,
            &rate(LISTS, busy),
            &rate(NO_CACHE, busy),
            said,
        ));
    }
    let grown = (times(&rate(LISTS, MOST), &rate(NO_CACHE, 0)), times(&rate(LISTS, 0), &rate(NO_CACHE, MOST)));
    let said = Said::AtLeast(2.58, "grows from 8.5 to 21.9 (2.58)", reason(MOST));
    ratios.push(ratio("that factor's growth", &format!("{MOST} busy threads over none"), &grown.0, &grown.1, said));
    for scheme in [NO_CACHE, LISTS] {
        let what = format!("throughput that {scheme} keeps");
        ratios.push(ratio(
            &what,
            &format!("{MOST} busy threads over none"),
            &rate(scheme, MOST),
            &rate(scheme, 0),
            Said::Nothing,
        ));
    }
    ratios.into_iter().flatten().collect()
}

/// Figure 6.10, with response time and misses.
fn panels(measured: &[Measured]) -> Vec<Panel> {
    let names = [NO_CACHE, LISTS].map(str::to_owned);
    let load = axis("busy threads on the back end's core", false);
    let of = |quantity, title: &str, y: &_| panel(measured, GROUP, quantity, title, &load, y, &names);
    vec![
        of(Quantity::Throughput, "throughput by back-end load, trace 5", &axis("throughput (requests/s)", true)),
        of(Quantity::Response, "response time by back-end load, trace 5", &axis("response time (microseconds)", true)),
        of(Quantity::Misses, "cache misses by back-end load, trace 5", &axis("cache misses (%)", false)),
    ]
}
