//! `content.dependencies`: what it costs that pages are made of more things.
//!
//! After Figure 6.9 of the dissertation. Each page is made of D objects and each object is in D pages, so an update takes D pages out of the
//! cache. The rate of updates and the work for a page stay.

use super::measured::{Measured, Quantity, Said, axis, median, panel, ratio, rounds};
use super::schemes::{INVALIDATE_ALL, LISTS, NO_CACHE, Schemes, TRACES, turn};
use crate::error::BenchError;
use crate::report::{Findings, Panel, Ratio};
use crate::run::Plan;

const GROUP: &str = "dependencies of a page";

const DEPENDENCIES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const MOST: u32 = 64;

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut schemes = Schemes::new(&plan)?;
    let addresses = [NO_CACHE, INVALIDATE_ALL, LISTS].map(|scheme| (scheme, schemes.start(scheme, None)));
    let mut turns = Vec::new();
    // Alike and medium: trace 4.
    let trace = TRACES[3];
    for (scheme, address) in addresses {
        let address = address?;
        // Only lists know of dependencies: the others stand at the ends, to compare with.
        let here = DEPENDENCIES.into_iter().filter(|each| scheme == LISTS || [1, MOST].contains(each));
        turns.extend(here.map(|each| turn(GROUP, scheme, f64::from(each), address, trace, each)));
    }
    turns.sort_by(|one, other| one.x.total_cmp(&other.x));
    let mut findings = schemes.measure(plan, turns, ratios, panels)?;
    findings
        .notes
        .push(format!("{} updates a second, of objects that are all alike, as in trace 4.", trace.updates_per_s));
    Ok(findings)
}

fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let of = |scheme: &str, each: u32, quantity| rounds(measured, GROUP, scheme, f64::from(each), quantity);
    let rate = |scheme: &str, each: u32| of(scheme, each, Quantity::Throughput);
    let misses = |each| median(&of(LISTS, each, Quantity::Misses));
    let reason = format!("{}% misses with one dependency, {}% with {MOST}", misses(1), misses(MOST));
    let mut ratios: Vec<_> = DEPENDENCIES
        .into_iter()
        .skip(1)
        .map(|each| {
            let said = match each {
                MOST => Said::AtMost(3.5, "about 3.5 times lower at 64 (at most 3.5)", reason.clone()),
                _ => Said::Nothing,
            };
            let under = format!("1 dependency over {each}");
            ratio("throughput, dependency lists", &under, &rate(LISTS, 1), &rate(LISTS, each), said)
        })
        .collect();
    for scheme in [NO_CACHE, INVALIDATE_ALL] {
        let what = format!("throughput, dependency lists over {scheme}");
        let under = format!("{MOST} dependencies");
        let reason = format!("{}% misses with lists", misses(MOST));
        let said = Said::AtLeast(1.0, "tends to invalidate all in the worst case (at least 1)", reason);
        ratios.push(ratio(&what, &under, &rate(LISTS, MOST), &rate(scheme, MOST), said));
    }
    ratios.into_iter().flatten().collect()
}

/// Figure 6.9, and the misses that explain it.
fn panels(measured: &[Measured]) -> Vec<Panel> {
    let names = [NO_CACHE, INVALIDATE_ALL, LISTS].map(str::to_owned);
    let each = axis("dependencies of a page", true);
    let of = |quantity, title: &str, y: &_| panel(measured, GROUP, quantity, title, &each, y, &names);
    vec![
        of(Quantity::Throughput, "throughput by dependencies", &axis("throughput (requests/s)", true)),
        of(Quantity::Misses, "cache misses by dependencies", &axis("cache misses (%)", false)),
        of(Quantity::Response, "response time by dependencies", &axis("response time (microseconds)", true)),
    ]
}
