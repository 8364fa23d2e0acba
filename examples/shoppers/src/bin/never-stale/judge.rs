//! What was counted, and whether it was enough and right.

use std::time::Duration;

use clap::ValueEnum;
use verbena_shoppers::Totals;

use crate::Arguments;
use crate::back::{Distribution, Reading};
use crate::process::Part;

/// What was done, and what became of it.
#[derive(Default)]
pub struct Happened {
    /// By what it is called, and to whom.
    pub done: Vec<(&'static str, Part)>,
    pub readings: Vec<Reading>,
    /// Answers to probes that were wrong.
    pub wrong: Vec<String>,
    /// Messages that the adapters of nodes have sent.
    pub by_adapters: u64,
}

impl Happened {
    fn count(&self, begins: &str) -> usize {
        self.done.iter().filter(|(name, _)| name.starts_with(begins)).count()
    }

    fn at(&self, part: Part) -> usize {
        self.done.iter().filter(|(_, other)| *other == part).count()
    }
}

/// Says what was counted, and whether it was enough and right.
pub fn judge(arguments: &Arguments, totals: &Totals, happened: &Happened) -> Result<(), String> {
    let percent = if totals.answers == 0 { 0.0 } else { totals.hits as f64 * 100.0 / totals.answers as f64 };
    println!(
        "counted: fabric={} cluster={} scheme={} seed={} seconds={:.0} answers={} hits={} hits%={percent:.1} soon={} soon_hits={} updates={} \
         faults={} kills={} pauses={} restarts={} rolling={} cuts={} deafs={} mutes={} pairs={} etcd={} \
         at_proxies={} at_shops={} at_homes={} at_keeper={} by_adapters={} with_lifetime={} in_parts={} http2={} errors={} stale={} backwards={} mixed={} malformed={}",
        name(arguments.fabric),
        name(arguments.cluster),
        name(arguments.scheme),
        arguments.seed,
        totals.seconds,
        totals.answers,
        totals.hits,
        totals.soon_after_update,
        totals.hits_soon_after_update,
        totals.updates.acknowledged,
        happened.done.len(),
        happened.count("kill"),
        happened.count("pause"),
        happened.count("restart"),
        happened.count("rolling"),
        happened.count("cut"),
        happened.count("deaf"),
        happened.count("mute"),
        happened.count("pair"),
        happened.count("etcd"),
        happened.at(Part::Proxy),
        happened.at(Part::Shop),
        happened.at(Part::Home),
        happened.at(Part::Keeper),
        happened.by_adapters,
        totals.hits_with_lifetime,
        totals.in_parts,
        totals.over_http2,
        totals.errors.sum(),
        totals.stale,
        totals.backwards,
        totals.mixed,
        totals.malformed,
    );
    for distribution in Distribution::all(&happened.readings, Duration::from_millis(arguments.lease_ms)) {
        println!("{distribution}");
    }
    if totals.violations() > 0 || !happened.wrong.is_empty() {
        let (shoppers, probes) = (totals.violations(), happened.wrong.len());
        return Err(format!("{} answers were wrong {:?}", shoppers + probes as u64, happened.wrong));
    }
    // Of each kind a twentieth.
    let least = if arguments.mixed { arguments.min_answers / 20 } else { 0 };
    let enough = [
        ("hits of standard pages", totals.hits_with_lifetime, least),
        ("answers in parts", totals.in_parts, least),
        ("answers by HTTP/2", totals.over_http2, least),
        ("answers", totals.answers, arguments.min_answers),
        ("answers within 50 ms after an update", totals.soon_after_update, arguments.min_soon),
        ("updates", totals.updates.acknowledged, arguments.min_updates),
        ("messages by adapters", happened.by_adapters, arguments.min_by_adapters),
        ("faults", happened.done.len() as u64, arguments.least_faults() as u64),
    ];
    for (what, counted, least) in enough {
        if counted < least {
            return Err(format!("too little happened: {counted} {what}, and {least} were wanted"));
        }
    }
    if percent < arguments.min_hits_percent {
        let least = arguments.min_hits_percent;
        return Err(format!("too little happened: {percent:.1} % hits, and {least} % were wanted"));
    }
    let too_late: Vec<String> =
        happened.readings.iter().filter(|reading| arguments.is_too_late(reading)).map(ToString::to_string).collect();
    if too_late.is_empty() { Ok(()) } else { Err(format!("service was back too late:\n{}", too_late.join("\n"))) }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
