//! `transfer.wan`: the time of one file that is fetched over a long link, by delay (Fig 9.4).

use std::time::Duration;

use verbena_wan::router::Mode;

use super::station::{Between, Direction, Station, Way};
use crate::emulator::{Link, Path};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// The paper's sizes, of which a quick run takes the first.
const SIZES: [u64; 2] = [32_000_000, 256_000_000];
/// The paper's delays, one way, of which a quick run takes the ends.
const DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
];
/// A run that may measure so long takes all of both.
const LONG: Duration = Duration::from_secs(120);
const WAYS: [Way; 8] = [
    Way::Ours("tcp"),
    Way::Ours("quic"),
    Way::Ours("udp"),
    Way::CurlAtOurs,
    Way::GridFtp(1),
    Way::GridFtp(4),
    Way::GridFtp(16),
    Way::Vsftpd,
];
/// What is wanted of our best channel at the longest delay: over GridFTP with one stream, and over its best.
const OVER_GRIDFTP: f64 = 0.25;
const OVER_BEST: f64 = 0.7;

struct Turn {
    way: Way,
    delay: Duration,
    bytes: u64,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let link = Link::new(Mode::Precise, false, plan.seed)?;
    let mut station = Station::start(&plan, Between::Path(Box::new(Path::Link(link))))?;
    let is_long = plan.measuring >= LONG;
    let sizes = if is_long { &SIZES[..] } else { &SIZES[..1] };
    let delays = if is_long { DELAYS.to_vec() } else { vec![DELAYS[0], DELAYS[4]] };
    for bytes in sizes {
        station.fill(&file(*bytes), *bytes)?;
    }
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| station.has(*way)).collect();
    let mut turns = Vec::new();
    for bytes in sizes {
        for delay in &delays {
            turns.extend(ways.iter().map(|way| Turn { way: *way, delay: *delay, bytes: *bytes }));
        }
    }
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} MB at {:?}, {}", turn.bytes / 1_000_000, turn.delay, turn.way.name()),
        |turn| {
            station.between.set(turn.delay)?;
            station.copy(turn.way, Direction::Get, &file(turn.bytes), turn.bytes)
        },
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: station.found(&WAYS), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    let control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    findings
        .notes
        .push(format!("All go by the system's congestion control, {}, but QUIC, by CUBIC, and udp, by a rate that a queue and losses lower.", control.trim()));
    findings
        .notes
        .push("The emulator takes a core: where it is busy, both ends have what is left of the other.".into());
    Ok(findings)
}

fn file(bytes: u64) -> String {
    format!("of-{bytes}")
}

fn summarise(turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    let x = |delay: Duration| delay.as_secs_f64() * 1e6;
    for (turn, rounds) in turns.iter().zip(rounds) {
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, 1)).collect();
        let (way, size) = (turn.way.name(), format!("{} MB", turn.bytes / 1_000_000));
        let labels = [("way", way.as_str()), ("size", size.as_str())];
        findings.measurements.extend(Measurement::new(&labels, x(turn.delay), "time of a file", "s", rounds));
    }
    let largest = turns.iter().map(|turn| turn.bytes).max().unwrap_or_default();
    let longest = DELAYS[4];
    let best = |is_it: &dyn Fn(Way) -> bool| -> Option<(Way, &Vec<f64>)> {
        let all = turns.iter().zip(rounds);
        let its = all.filter(|(turn, _)| turn.bytes == largest && turn.delay == longest && is_it(turn.way));
        let medians = its.filter_map(|(turn, rounds)| Some((Spread::of(rounds)?.median, turn.way, rounds)));
        medians.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, way, rounds)| (way, rounds))
    };
    let ours = best(&|way| matches!(way, Way::Ours(_)));
    let one_stream = best(&|way| way == Way::GridFtp(1));
    let any = best(&|way| matches!(way, Way::GridFtp(_)));
    for (other, most, text) in [
        (one_stream, OVER_GRIDFTP, format!("at most {OVER_GRIDFTP}; the paper has a sixth")),
        (any, OVER_BEST, format!("at most {OVER_BEST}, our own")),
    ] {
        let Some(((way, ours), (theirs, other))) = ours.zip(other) else { continue };
        let Some(spread) = Spread::ratio(ours, other) else { continue };
        let reason =
            "one stream of TCP with this system's buffers fills more of this link than the paper's did".to_owned();
        let claim = Claim::at_most(most, &text, &spread, reason);
        findings.ratios.push(Ratio {
            what: format!("time of a file, {} over {}", way.name(), theirs.name()),
            under: format!("{} MB, 10 ms one way", largest / 1_000_000),
            spread,
            claim: Some(claim),
        });
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    let mut sizes: Vec<u64> = turns.iter().map(|turn| turn.bytes).collect();
    sizes.dedup();
    for bytes in sizes {
        let size = format!("{} MB", bytes / 1_000_000);
        let series = findings.lines(WAYS.map(Way::name), Some(&size));
        findings.panels.push(Panel {
            title: format!("get of {size}"),
            x: axis("us one way"),
            y: axis("seconds"),
            series,
        });
    }
}
