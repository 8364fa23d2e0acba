//! `transfer.sessions`: sixteen files of 1 MB over a link, in one session and in a session for each, as the paper switches its optimisations on and off (Fig 9.9).

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use verbena_wan::router::Mode;

use super::station::{Between, Station, Way};
use crate::emulator::{Link, Path};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::{Axis, Claim, FabricFound, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

const FILES: usize = 16;
const BYTES: u64 = 1_000_000;
/// Of the link, one way.
const DELAYS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];
/// What the paper found of all files together: 55% less.
const OVER_BASIC: f64 = 0.45;

/// How the files are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// One session, and connections that are added while they pay.
    Session,
    /// One session, and one connection for the data.
    OneStream,
    /// A session for each file.
    Basic,
    /// curl, one control connection, and a data connection for each file.
    Curl,
    /// curl, a control connection for each file.
    CurlEach,
}

impl How {
    const ALL: [How; 5] = [How::Session, How::OneStream, How::Basic, How::Curl, How::CurlEach];

    fn name(self) -> &'static str {
        match self {
            How::Session => "one session",
            How::OneStream => "one session, one connection",
            How::Basic => "a session for each file",
            How::Curl => "curl, one session",
            How::CurlEach => "curl, a session for each file",
        }
    }
}

struct Turn {
    how: How,
    delay: Duration,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let link = Link::new(Mode::Precise, false, plan.seed)?;
    let mut station = Station::start(&plan, Between::Path(Box::new(Path::Link(link))))?;
    let tree = station.served().join("tree");
    fs::create_dir(&tree).map_err(|error| BenchError::io(&tree, error))?;
    for number in 0..FILES {
        station.make(&format!("tree/file-{number}"), BYTES)?;
    }
    let curl = in_path("curl");
    let is_there = |how: How| curl.is_some() || !matches!(how, How::Curl | How::CurlEach);
    let hows: Vec<How> = How::ALL.into_iter().filter(|how| is_there(*how)).collect();
    let mut turns: Vec<Turn> =
        DELAYS.iter().flat_map(|delay| hows.iter().map(|how| Turn { how: *how, delay: *delay })).collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} at {:?}", turn.how.name(), turn.delay),
        |turn| {
            station.between.set(turn.delay)?;
            fetch(&station, turn.how)
        },
        plan.progress,
    )?;
    let mut findings = Findings::default();
    for how in How::ALL {
        let because =
            if is_there(how) { "at `verbena ftp serve`, over a link of the emulator" } else { "no curl is installed" };
        let (name, measured) = (how.name().to_owned(), is_there(how));
        findings.fabrics.push(FabricFound { name, measured, because: because.into(), capabilities: None });
    }
    summarise(&turns, &rounds, &mut findings);
    findings.notes.push(
        "A session for each file is a program for each file, one after the other: what it takes to start one is in its time. The paper's figure has connection and data apart; here they are together."
            .into(),
    );
    Ok(findings)
}

/// Fetches all files once, and gives the seconds.
fn fetch(station: &Station, how: How) -> Result<f64, BenchError> {
    let copy = station.here().join("copy");
    let _ = fs::remove_dir_all(&copy);
    let at = format!("ftp://{}/tree", station.ours());
    let file = |number: usize| format!("{at}/file-{number}");
    let place = |number: usize| copy.join(format!("file-{number}"));
    fs::create_dir(&copy).map_err(|error| BenchError::io(&copy, error))?;
    let way = if matches!(how, How::Curl | How::CurlEach) { Way::CurlAtOurs } else { Way::Ours("tcp") };
    let curl = || {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "120"]);
        command
    };
    let began = Instant::now();
    match how {
        How::Session | How::OneStream => {
            let mut command = station.verbena();
            command.args(["cp", "--channel", "tcp"]);
            if how == How::OneStream {
                command.args(["--streams", "1"]);
            }
            station.done(command.arg(&at).arg(&copy), way)?;
        }
        How::Basic => {
            for number in 0..FILES {
                let mut command = station.verbena();
                command.args(["cp", "--channel", "tcp"]).arg(file(number)).arg(place(number));
                station.done(&mut command, way)?;
            }
        }
        How::Curl => {
            let mut command = curl();
            for number in 0..FILES {
                command.arg(file(number)).arg("-o").arg(place(number));
            }
            station.done(&mut command, way)?;
        }
        How::CurlEach => {
            for number in 0..FILES {
                station.done(curl().arg(file(number)).arg("-o").arg(place(number)), way)?;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let whole =
        (0..FILES).filter(|number| fs::metadata(place(*number)).is_ok_and(|about| about.len() == BYTES)).count();
    if whole != FILES {
        return Err(BenchError::Target {
            doing: format!("fetch files by {}", how.name()),
            reason: format!("{whole} of {FILES} are here, whole"),
        });
    }
    Ok(seconds)
}

fn summarise(turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    let x = |delay: Duration| delay.as_secs_f64() * 1e3;
    for (turn, rounds) in turns.iter().zip(rounds) {
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, FILES as u64)).collect();
        let labels = [("how", turn.how.name())];
        findings.measurements.extend(Measurement::new(&labels, x(turn.delay), "time of 16 files", "s", rounds));
    }
    let of = |how: How, delay: Duration| {
        let at = turns.iter().position(|turn| turn.how == how && turn.delay == delay)?;
        Some(&rounds[at])
    };
    for delay in DELAYS {
        for other in [How::Basic, How::Curl, How::CurlEach] {
            let Some(spread) =
                of(How::Session, delay).zip(of(other, delay)).and_then(|(ours, others)| Spread::ratio(ours, others))
            else {
                continue;
            };
            let text = format!("at most {OVER_BASIC}, as the paper has it");
            let reason = "at this delay the bytes take longer than the session".to_owned();
            let claim = (other == How::Basic).then(|| Claim::at_most(OVER_BASIC, &text, &spread, reason));
            let what = format!("time of 16 files, {} over {}", How::Session.name(), other.name());
            findings.ratios.push(Ratio { what, under: format!("{delay:?} one way"), spread, claim });
        }
    }
    let series = findings.lines(How::ALL.map(|how| how.name().to_owned()), None);
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    findings.panels.push(Panel { title: "16 files of 1 MB".into(), x: axis("ms one way"), y: axis("seconds"), series });
}
