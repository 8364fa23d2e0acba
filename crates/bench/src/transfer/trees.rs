//! `transfer.replicate` and `transfer.small`: a tree of files that is fetched over a long link: of sizes by Zipf's law, as a site has them (Fig 9.8), and of many small ones.

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

/// How a tree is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// `verbena cp`, by this channel.
    Ours(&'static str),
    /// `lftp mirror -P8`, which opens eight sessions.
    Lftp,
    /// `rclone copy --transfers 8`.
    Rclone,
}

impl How {
    const ALL: [How; 4] = [How::Ours("tcp"), How::Ours("quic"), How::Lftp, How::Rclone];

    fn name(self) -> String {
        match self {
            How::Ours(channel) => format!("verbena cp, {channel}"),
            How::Lftp => "lftp mirror -P8".into(),
            How::Rclone => "rclone --transfers 8".into(),
        }
    }

    fn is_there(self) -> bool {
        match self {
            How::Ours(_) => true,
            How::Lftp => in_path("lftp").is_some(),
            How::Rclone => in_path("rclone").is_some(),
        }
    }
}

/// A tree, and what is wanted of it.
struct Tree {
    sizes: Vec<u64>,
    delays: Vec<Duration>,
    title: String,
    /// Of the time of the best other.
    most: f64,
    text: String,
}

struct Turn {
    how: How,
    delay: Duration,
}

/// Bytes of a site, and of its largest file.
const SITE: u64 = 64_000_000;
const FILES: u32 = 200;

/// Measures `transfer.replicate`.
pub(crate) fn replicate(plan: Plan) -> Result<Findings, BenchError> {
    // By Zipf's law: the file of rank n has a part 1/n of the first.
    let harmonic: f64 = (1..=FILES).map(|rank| 1.0 / f64::from(rank)).sum();
    let sizes = (1..=FILES).map(|rank| (SITE as f64 / harmonic / f64::from(rank)) as u64).collect();
    let tree = Tree {
        sizes,
        delays: vec![Duration::ZERO, Duration::from_millis(1), Duration::from_millis(10)],
        title: format!("a site of {FILES} files, {} MB", SITE / 1_000_000),
        most: 0.61,
        text: "up to 65% faster, as the paper has it: at most 0.61".into(),
    };
    measure(plan, &tree)
}

/// Files of `transfer.small`: in a quick run, and in one that takes its time.
const SMALL: [usize; 2] = [1_000, 100_000];
const SMALL_BYTES: u64 = 2_000;
const LONG: Duration = Duration::from_secs(120);

/// Measures `transfer.small`.
pub(crate) fn small(plan: Plan) -> Result<Findings, BenchError> {
    let files = SMALL[usize::from(plan.measuring >= LONG)];
    let tree = Tree {
        sizes: vec![SMALL_BYTES; files],
        delays: vec![Duration::from_millis(10)],
        title: format!("{files} files of 2 KB"),
        most: 0.1,
        text: "at most a tenth, our own".into(),
    };
    measure(plan, &tree)
}

fn measure(plan: Plan, tree: &Tree) -> Result<Findings, BenchError> {
    let link = Link::new(Mode::Precise, false, plan.seed)?;
    let mut station = Station::start(&plan, Between::Path(Box::new(Path::Link(link))))?;
    let place = station.served().join("tree");
    fs::create_dir(&place).map_err(|error| BenchError::io(&place, error))?;
    for (number, bytes) in tree.sizes.iter().enumerate() {
        station.make(&format!("tree/{number}"), *bytes)?;
    }
    let hows: Vec<How> = How::ALL.into_iter().filter(|how| how.is_there()).collect();
    let mut turns: Vec<Turn> =
        tree.delays.iter().flat_map(|delay| hows.iter().map(|how| Turn { how: *how, delay: *delay })).collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} at {:?}", turn.how.name(), turn.delay),
        |turn| {
            station.between.set(turn.delay)?;
            fetch(&station, turn.how, tree)
        },
        plan.progress,
    )?;
    let mut findings = Findings::default();
    for how in How::ALL {
        let because = match how.is_there() {
            true => "at `verbena ftp serve`, over a link of the emulator",
            false => "it is not installed",
        };
        let (name, measured) = (how.name(), how.is_there());
        findings.fabrics.push(FabricFound { name, measured, because: because.into(), capabilities: None });
    }
    summarise(tree, &turns, &rounds, &mut findings);
    Ok(findings)
}

/// Fetches the tree once, and gives the seconds.
fn fetch(station: &Station, how: How, tree: &Tree) -> Result<f64, BenchError> {
    let copy = station.here().join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).map_err(|error| BenchError::io(&copy, error))?;
    let at = station.ours();
    let (mut command, way) = match how {
        How::Ours(channel) => {
            let mut command = station.verbena();
            command.args(["cp", "--channel", channel, &format!("ftp://{at}/tree")]).arg(&copy);
            (command, Way::Ours(channel))
        }
        How::Lftp => {
            let mut command = Command::new("lftp");
            let mirror = format!(
                "set ftp:ssl-allow no; set net:timeout 60; set net:max-retries 2; mirror -P8 --no-perms tree {}",
                copy.display()
            );
            command.args(["-e", &format!("{mirror}; quit"), &format!("ftp://{at}")]);
            (command, Way::CurlAtOurs)
        }
        How::Rclone => {
            let mut command = Command::new("rclone");
            command.args(["--config", "/dev/null", "copy", "--transfers", "8", "--ftp-concurrency", "10"]);
            command.args(["--ftp-host", &at.ip().to_string(), "--ftp-port", &at.port().to_string()]);
            // No password, in the form in which rclone takes them.
            command.args(["--ftp-user", "anonymous", "--ftp-pass", "Fff1ula7Ly4inPxiuAUq5g", ":ftp:tree"]).arg(&copy);
            (command, Way::CurlAtOurs)
        }
    };
    let began = Instant::now();
    station.done(&mut command, way)?;
    let seconds = began.elapsed().as_secs_f64();
    let is_whole = |(number, bytes): &(usize, &u64)| {
        fs::metadata(copy.join(number.to_string())).is_ok_and(|about| about.len() == **bytes)
    };
    let whole = tree.sizes.iter().enumerate().filter(is_whole).count();
    if whole != tree.sizes.len() {
        return Err(BenchError::Target {
            doing: format!("fetch files by {}", how.name()),
            reason: format!("{whole} of {} are here, whole", tree.sizes.len()),
        });
    }
    Ok(seconds)
}

fn summarise(tree: &Tree, turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    let x = |delay: Duration| delay.as_secs_f64() * 1e3;
    let files = tree.sizes.len() as u64;
    for (turn, rounds) in turns.iter().zip(rounds) {
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, files)).collect();
        let how = turn.how.name();
        findings.measurements.extend(Measurement::new(&[("how", &how)], x(turn.delay), "time of a tree", "s", rounds));
    }
    let best = |delay: Duration, is_ours: bool| {
        let its = turns
            .iter()
            .zip(rounds)
            .filter(|(turn, _)| turn.delay == delay && matches!(turn.how, How::Ours(_)) == is_ours);
        let medians = its.filter_map(|(turn, rounds)| Some((Spread::of(rounds)?.median, turn.how, rounds)));
        medians.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, how, rounds)| (how, rounds))
    };
    for delay in &tree.delays {
        let Some(((ours, its), (other, others))) = best(*delay, true).zip(best(*delay, false)) else { continue };
        let Some(spread) = Spread::ratio(its, others) else { continue };
        let is_last = tree.delays.last() == Some(delay);
        let reason = "eight sessions at once hide most of the round trips of this tree".to_owned();
        let claim = is_last.then(|| Claim::at_most(tree.most, &tree.text, &spread, reason));
        let what = format!("time of a tree, {} over {}", ours.name(), other.name());
        findings.ratios.push(Ratio { what, under: format!("{delay:?} one way"), spread, claim });
    }
    let series = findings.lines(How::ALL.map(How::name), None);
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    findings.panels.push(Panel { title: tree.title.clone(), x: axis("ms one way"), y: axis("seconds"), series });
}
