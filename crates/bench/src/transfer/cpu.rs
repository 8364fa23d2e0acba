//! `transfer.cpu`: processor time of server and client for what they copy (Fig 9.7), within one machine.

use super::station::{Between, Direction, Station, Way};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// Of the file. The system counts the time of processes that have ended in hundredths of a second.
const BYTES: u64 = 512 << 20;
const NAME: &str = "half-a-gib";
const GB: f64 = 1e9;
/// What is wanted of our channel with its proof, beside GridFTP.
const OVER_GRIDFTP: f64 = 1.4;
/// And of files that are handed over, beside our own channel of TCP.
const HANDED_OVER: f64 = 0.6;

/// Seconds of processor time for a gigabyte.
#[derive(Clone, Copy, Debug)]
struct Taken {
    server: f64,
    client: f64,
}

struct Turn {
    way: Way,
    direction: Direction,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let station = Station::start(&plan, Between::Nothing)?;
    station.fill(NAME, BYTES)?;
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| station.has(*way)).collect();
    let mut turns: Vec<Turn> = Direction::BOTH
        .into_iter()
        .flat_map(|direction| ways.iter().map(move |way| Turn { way: *way, direction }))
        .collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {}", turn.direction.name(), turn.way.name()),
        |turn| take(&station, turn),
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: station.found(&Way::ALL), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes.push(
        "Processor time of the processes, those among them that ended: what the kernel does for them in threads of its own is in nobody's account.".into(),
    );
    Ok(findings)
}

fn take(station: &Station, turn: &Turn) -> Result<Taken, BenchError> {
    let server = station.process(turn.way).filter(|_| turn.way != Way::Cp);
    let at = |number: Option<u32>| number.map_or(Ok(0.0), seconds_of);
    let of_own_children = || stat("/proc/self/stat").map(|[_, children]| children);
    let before = (at(server)?, of_own_children()?);
    station.copy(turn.way, turn.direction, NAME, BYTES)?;
    // A server that is a process for each session waits for it a moment later.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let after = (at(server)?, of_own_children()?);
    let of = |before: f64, after: f64| (after - before) * GB / BYTES as f64;
    Ok(Taken { server: of(before.0, after.0), client: of(before.1, after.1) })
}

/// Seconds that a process, its children and theirs have taken. Those that run and those that were waited for.
fn seconds_of(number: u32) -> Result<f64, BenchError> {
    let mut all = stat(&format!("/proc/{number}/stat"))?.iter().sum();
    let children = format!("/proc/{number}/task/{number}/children");
    let children = std::fs::read_to_string(&children).unwrap_or_default();
    for child in children.split_whitespace().flat_map(str::parse::<u32>) {
        // One that has ended by now is in its parent's account.
        all += seconds_of(child).unwrap_or_default();
    }
    Ok(all)
}

/// Seconds of a process, and of its children that were waited for: fields 14 to 17 of proc_pid_stat(5), in hundredths.
fn stat(path: &str) -> Result<[f64; 2], BenchError> {
    let text = std::fs::read_to_string(path).map_err(|error| BenchError::io(path.as_ref(), error))?;
    let fields = text.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let numbers: Vec<f64> = fields.split(' ').skip(11).take(4).flat_map(str::parse).collect();
    match numbers[..] {
        [user, system, users, systems] => Ok([(user + system) / 100.0, (users + systems) / 100.0]),
        _ => Err(BenchError::Target { doing: format!("read {path}"), reason: "it has no such fields".into() }),
    }
}

fn summarise(turns: &[Turn], rounds: &[Vec<Taken>], findings: &mut Findings) {
    let parts = ["server", "client", "both"];
    let of = |part: &str, taken: &Taken| match part {
        "server" => taken.server,
        "client" => taken.client,
        _ => taken.server + taken.client,
    };
    let x = |direction: Direction| if direction == Direction::Get { 1.0 } else { 2.0 };
    for (turn, rounds) in turns.iter().zip(rounds) {
        for part in parts {
            let rounds = rounds.iter().map(|taken| RoundSummary::one(of(part, taken), BYTES)).collect();
            let way = turn.way.name();
            let labels = [("way", way.as_str()), ("end", part)];
            findings.measurements.extend(Measurement::new(
                &labels,
                x(turn.direction),
                "processor time",
                "s/GB",
                rounds,
            ));
        }
    }
    let both = |way: Way, direction: Direction| -> Option<Vec<f64>> {
        let at = turns.iter().position(|turn| turn.way == way && turn.direction == direction)?;
        Some(rounds[at].iter().map(|taken| taken.server + taken.client).collect())
    };
    for direction in Direction::BOTH {
        let Some(ours) = both(Way::Ours("tcp"), direction) else { continue };
        let over_tcp = both(Way::Ours("descriptor"), direction).and_then(|handed| Spread::ratio(&handed, &ours));
        if let Some(spread) = over_tcp {
            let text = format!("at most {HANDED_OVER}, our own");
            let reason = "the proof is most of what is left, and it is the same".to_owned();
            let claim = Some(Claim::at_most(HANDED_OVER, &text, &spread, reason));
            let what = "processor time of both ends, descriptors handed over, over our own tcp".to_owned();
            findings.ratios.push(Ratio { what, under: direction.name().into(), spread, claim });
        }
        for other in [Way::GridFtp(1), Way::Vsftpd, Way::Cp] {
            let Some(spread) = both(other, direction).and_then(|other| Spread::ratio(&ours, &other)) else { continue };
            let text = format!("at most {OVER_GRIDFTP} with the proof, our own");
            let reason = "each byte is hashed at both ends".to_owned();
            let claim = (other == Way::GridFtp(1)).then(|| Claim::at_most(OVER_GRIDFTP, &text, &spread, reason));
            let what = format!("processor time of both ends, {} over {}", Way::Ours("tcp").name(), other.name());
            findings.ratios.push(Ratio { what, under: direction.name().into(), spread, claim });
        }
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    for part in parts {
        let series = findings.lines(Way::ALL.map(Way::name), Some(part));
        findings.panels.push(Panel {
            title: format!("processor time, {part}"),
            x: axis("1 get, 2 put"),
            y: axis("seconds for a GB"),
            series,
        });
    }
}
