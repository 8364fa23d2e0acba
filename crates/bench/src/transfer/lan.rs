//! `transfer.lan`: the time of one file, each way, by size (Fig 9.3), within one machine.

use std::time::Duration;

use super::station::{Between, Direction, Station, Way};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

const MIB: u64 = 1 << 20;
/// Of a quick run, and of one that takes its time.
const QUICK: [u64; 2] = [MIB, 64 * MIB];
const ALL: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];
/// A run that may measure so long takes all sizes.
const LONG: Duration = Duration::from_secs(120);

/// What is wanted of our channel with its proof: over the best peer's time, over that of `cp`; and of curl at our server over curl at vsftpd.
const OVER_PEER: f64 = 0.95;
const OVER_CP: f64 = 1.2;
const CURL_OVER_CURL: f64 = 1.05;

struct Turn {
    way: Way,
    direction: Direction,
    bytes: u64,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let station = Station::start(&plan, Between::Nothing)?;
    let sizes: &[u64] = if plan.measuring >= LONG { &ALL } else { &QUICK };
    for bytes in sizes {
        station.fill(&file(*bytes), *bytes)?;
    }
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| station.has(*way)).collect();
    let mut turns = Vec::new();
    for bytes in sizes {
        for direction in Direction::BOTH {
            turns.extend(ways.iter().map(|way| Turn { way: *way, direction, bytes: *bytes }));
        }
    }
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} of {} MiB, {}", turn.direction.name(), turn.bytes / MIB, turn.way.name()),
        |turn| station.copy(turn.way, turn.direction, &file(turn.bytes), turn.bytes),
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: station.found(&Way::ALL), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes.push(
        "Client, server and both files are in the memory of one machine: what one takes of the processors is missing to the other.".into(),
    );
    Ok(findings)
}

fn file(bytes: u64) -> String {
    format!("of-{bytes}")
}

fn summarise(turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    for (turn, rounds) in turns.iter().zip(rounds) {
        let way = turn.way.name();
        let labels = [("way", way.as_str()), ("direction", turn.direction.name())];
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, 1)).collect();
        findings.measurements.extend(Measurement::new(&labels, turn.bytes as f64, "time of a file", "s", rounds));
    }
    let largest = turns.iter().map(|turn| turn.bytes).max().unwrap_or_default();
    let of = |way: Way, direction: Direction, bytes: u64| -> Option<&Vec<f64>> {
        let at = turns.iter().position(|turn| turn.way == way && turn.direction == direction && turn.bytes == bytes)?;
        Some(&rounds[at])
    };
    for direction in Direction::BOTH {
        // The best peer is the one with the smallest median.
        let peers = turns
            .iter()
            .zip(rounds)
            .filter(|(turn, _)| turn.way.is_peer() && turn.direction == direction && turn.bytes == largest);
        let medians = peers.filter_map(|(turn, rounds)| Some((turn.way, Spread::of(rounds)?.median)));
        let best = medians.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(way, _)| way);
        let mut held = |ours: Way, other: Way, most: f64, text: &str, reason: &str| {
            let Some((ours_at, others)) = of(ours, direction, largest).zip(of(other, direction, largest)) else {
                return;
            };
            let Some(spread) = Spread::ratio(ours_at, others) else { return };
            let claim = Claim::at_most(most, text, &spread, reason.to_owned());
            findings.ratios.push(Ratio {
                what: format!("time of {}, {} over {}", direction.name(), ours.name(), other.name()),
                under: format!("{} MiB", largest / MIB),
                spread,
                claim: Some(claim),
            });
        };
        if let Some(best) = best {
            let reason = "the proof is computed on the cores on which client and server copy";
            held(Way::Ours("tcp"), best, OVER_PEER, &format!("at most {OVER_PEER} of the best peer, our own"), reason);
        }
        let reason = "loopback copies each byte twice, and the proof reads it at both ends";
        held(Way::Ours("tcp"), Way::Cp, OVER_CP, &format!("at most {OVER_CP} of cp, our own"), reason);
        let reason = "the receiver reads each byte once more than cp, for the proof";
        held(Way::Ours("descriptor"), Way::Cp, OVER_CP, &format!("at most {OVER_CP} of cp, our own"), reason);
        let reason = "our server reads and writes by a thread for each transfer";
        held(Way::CurlAtOurs, Way::Vsftpd, CURL_OVER_CURL, &format!("at most {CURL_OVER_CURL} of it, our own"), reason);
    }
    let axis = |label: &str, bytes| Axis { label: label.to_owned(), logarithmic: true, bytes };
    for direction in Direction::BOTH {
        let series = findings.lines(Way::ALL.map(Way::name), Some(direction.name()));
        findings.panels.push(Panel {
            title: format!("{}, within one machine", direction.name()),
            x: axis("size of the file", true),
            y: axis("seconds", false),
            series,
        });
    }
}
