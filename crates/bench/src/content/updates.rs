//! `content.updates`: how schemes fare as more is updated, and with how little memory.
//!
//! After Figures 6.6, 6.7 and 6.8 of the dissertation. Without a cache every page is made anew. With *invalidate all* the application says
//! nothing of what it writes, so each update takes all pages out of the cache; with *dependency lists* it takes those out that are made of what
//! was updated.

use super::lab::{Turn, Work};
use super::measured::{Measured, Quantity, Said, axis, median, panel, ratio, rounds};
use super::schemes::{DEPENDENCIES, INVALIDATE_ALL, LISTS, NO_CACHE, Schemes, TRACES, turn};
use crate::error::BenchError;
use crate::report::{Findings, Panel, Ratio};
use crate::run::Plan;

const BY_TRACE: &str = "traces 1 to 6";
const BY_SIZE: &str = "cache size, trace 6";

/// Of the pages, in percent, for how many there is room.
const SIZES: [f64; 6] = [1.0, 5.0, 10.0, 25.0, 50.0, 100.0];

/// Measures the row.
pub(crate) fn measure(mut plan: Plan) -> Result<Findings, BenchError> {
    // Updates that come every second need turns in which one may come, and there are many points.
    plan.measuring = plan.measuring * 3 / 2;
    let mut schemes = Schemes::new(&plan)?;
    let mut turns = Vec::new();
    let mut addresses = Vec::new();
    for scheme in [NO_CACHE, INVALIDATE_ALL, LISTS] {
        addresses.push((scheme, schemes.start(scheme, None)?));
    }
    for trace in TRACES {
        turns.extend(
            addresses.iter().map(|(scheme, at)| turn(BY_TRACE, scheme, trace.number, *at, trace, DEPENDENCIES)),
        );
    }
    let zipf = TRACES[5];
    turns.push(turn(BY_SIZE, NO_CACHE, 0.0, addresses[0].1, zipf, DEPENDENCIES));
    for size in SIZES {
        let whole = size == 100.0;
        let address = if whole { addresses[2].1 } else { schemes.start(LISTS, Some(size / 100.0))? };
        let mut turn = turn(BY_SIZE, LISTS, size, address, zipf, DEPENDENCIES);
        if let Turn { work: Work::Pages { sweep, .. }, .. } = &mut turn {
            // Asking for all would push out what is to stay.
            *sweep = whole;
        }
        turns.push(turn);
    }
    schemes.measure(plan, turns, ratios, panels)
}

fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let of = |scheme: &str, trace: f64, quantity| rounds(measured, BY_TRACE, scheme, trace, quantity);
    let rate = |scheme: &str, trace: f64| of(scheme, trace, Quantity::Throughput);
    let mut ratios = Vec::new();
    for trace in TRACES {
        for scheme in [INVALIDATE_ALL, LISTS] {
            let (fast, slow) = (rate(scheme, trace.number), rate(NO_CACHE, trace.number));
            let misses = median(&of(scheme, trace.number, Quantity::Misses));
            let reason =
                format!("{} requests a second against {}, with {misses}% misses", median(&fast), median(&slow));
            let said = match (scheme, trace.number) {
                (LISTS, 1.0) => Said::AtLeast(8.8, "8.8 at best", reason),
                (INVALIDATE_ALL, 5.0) => Said::AtMost(1.25, "slightly better or almost equal (1.25)", reason),
                _ => Said::AtLeast(1.0, "always better (1)", reason),
            };
            let under = format!("trace {}, {} updates/s", trace.number, trace.updates_per_s);
            ratios.push(ratio(&format!("throughput, {scheme} over no cache"), &under, &fast, &slow, said));
        }
    }
    for (scheme, said) in [(LISTS, Some((0.93, "sustained: 14,000 of 15,000 (0.93)"))), (INVALIDATE_ALL, None)] {
        let (many, none) = (rate(scheme, 5.0), rate(scheme, 1.0));
        let misses = median(&of(scheme, 5.0, Quantity::Misses));
        let said = said.map_or(Said::Nothing, |(least, text)| {
            Said::AtLeast(least, text, format!("{misses}% misses at trace 5, each of which costs a page made by SQL"))
        });
        ratios.push(ratio(&format!("throughput, {scheme}"), "trace 5 over trace 1", &many, &none, said));
    }
    let size = |scheme: &str, size: f64, quantity| rounds(measured, BY_SIZE, scheme, size, quantity);
    let whole = size(LISTS, 100.0, Quantity::Throughput);
    for percent in [1.0, 10.0] {
        let part = size(LISTS, percent, Quantity::Throughput);
        let none = size(NO_CACHE, 0.0, Quantity::Throughput);
        let misses = median(&size(LISTS, percent, Quantity::Misses));
        let reason = format!("the Zipf law leaves {misses}% misses with room for {percent}% of the pages");
        let under = format!("room for {percent}% of the pages");
        ratios.push(if percent == 1.0 {
            let said = Said::AtLeast(1.1, "significantly higher (1.1)", reason);
            ratio("throughput, dependency lists over no cache", &under, &part, &none, said)
        } else {
            let said = Said::AtLeast(0.8, "close to the maximum (0.8)", reason);
            ratio("throughput, over that with room for all", &under, &part, &whole, said)
        });
    }
    ratios.into_iter().flatten().collect()
}

/// Figures 6.6a, 6.6b, 6.7 and 6.8, and the misses of the last.
fn panels(measured: &[Measured]) -> Vec<Panel> {
    let names = [NO_CACHE, INVALIDATE_ALL, LISTS].map(str::to_owned);
    let (trace, size) = (axis("trace", false), axis("cached pages (% of all)", false));
    let rate = |logarithmic| axis("throughput (requests/s)", logarithmic);
    let (response, misses) = (axis("response time (microseconds)", true), axis("cache misses (%)", false));
    let of = |group, quantity, title: &str, x, y: &_| panel(measured, group, quantity, title, x, y, &names);
    vec![
        of(BY_TRACE, Quantity::Throughput, "throughput with increasing update rate", &trace, &rate(true)),
        of(BY_TRACE, Quantity::Response, "response time with increasing update rate", &trace, &response),
        of(BY_TRACE, Quantity::Misses, "cache misses with increasing update rate", &trace, &misses),
        of(BY_SIZE, Quantity::Throughput, "throughput by cache size, trace 6", &size, &rate(false)),
        of(BY_SIZE, Quantity::Misses, "cache misses by cache size, trace 6", &size, &misses),
    ]
}
