//! What the row says.

use verbena_ipc::Mode;

use super::index::Index;
use super::{Application, Outcome, PERCENT, PROVIDERS, Turn, Where};
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Ratio};
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// Time with the paper's memory over that without, in Table 1: at each of [`PERCENT`] with RCQ, and by the records of the directory.
const BTREE: [f64; 5] = [0.546, 0.585, 0.584, 0.580, 0.552];
const RTREE: [f64; 5] = [0.434, 0.552, 0.599, 0.632, 0.697];
const DIRECTORY: [f64; 4] = [0.559, 0.390, 0.518, 0.848];

/// `no_files` is why there was no network file system.
pub(super) fn findings(outcomes: &[Outcome], no_files: Option<&String>) -> Findings {
    Findings {
        measurements: outcomes.iter().flat_map(Outcome::measurements).flatten().collect(),
        ratios: ratios(outcomes),
        panels: panels(outcomes),
        notes: notes(no_files),
        ..Findings::default()
    }
}

impl Application {
    fn x(self) -> f64 {
        match self {
            Application::Index(_, percent) => percent.into(),
            Application::Directory(records) => records as f64,
        }
    }

    /// The paper's ratio.
    fn found(self) -> f64 {
        match self {
            Application::Index(index, percent) => {
                let nth = PERCENT.iter().position(|its| *its == percent).unwrap_or_default();
                if index == Index::BTree { BTREE[nth] } else { RTREE[nth] }
            }
            Application::Directory(records) => {
                let nth = super::RECORDS.iter().position(|its| *its == records).unwrap_or_default();
                DIRECTORY[nth]
            }
        }
    }
}

impl Outcome {
    fn times(&self) -> Option<Measurement> {
        self.measurement("time of a query", "us", self.rounds.iter().map(|round| round.time).collect())
    }

    fn measurements(&self) -> [Option<Measurement>; 2] {
        let asked = self.rounds.iter().map(|round| RoundSummary::one(round.asked, round.time.count)).collect();
        let what = if let Application::Index(..) = self.turn.application { "pages" } else { "entries" };
        [self.times(), self.measurement("asked for in a query", what, asked)]
    }

    fn measurement(&self, quantity: &str, unit: &str, rounds: Vec<RoundSummary>) -> Option<Measurement> {
        let labels = [("application", self.turn.application.kind()), ("data", &self.turn.place.name())];
        Measurement::new(&labels, self.turn.application.x(), quantity, unit, rounds)
    }

    fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.time.median).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(&self.medians()).map_or(f64::INFINITY, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], application: Application, place: Where) -> &Outcome {
    let found = outcomes.iter().find(|one| one.turn == Turn { application, place });
    found.expect("invariant: each of these has a turn")
}

fn ratios(outcomes: &[Outcome]) -> Vec<Ratio> {
    let mut ratios = vec![];
    for server in outcomes.iter().filter(|one| one.turn.place == Where::Server) {
        let application = server.turn.application;
        let on_files = outcomes.iter().find(|one| one.turn == Turn { application, place: Where::Files });
        let alone = find(outcomes, application, Where::Here).median();
        for (fabric, provider) in PROVIDERS.iter().enumerate() {
            let under = format!("{} over {}", application.name(), provider.name());
            let mut add = |what: &str, above: &Outcome, below: &Outcome, text: &str| {
                let Some(spread) = Spread::ratio(&above.medians(), &below.medians()) else { return };
                let [above, below, alone] = [above.median(), below.median(), alone].map(number);
                let reason = format!("{above} us against {below} us, of which {alone} us are computing");
                let claim = Some(Claim::at_most(1.0, text, &spread, reason));
                ratios.push(Ratio { what: what.to_owned(), under: under.clone(), claim, spread });
            };
            let with = |mode| find(outcomes, application, Where::Memory(fabric, mode));
            let text = format!("less than 1: the paper has {}", number(application.found()));
            for (mode, name) in [(Mode::Rcq, "rcq"), (Mode::Adaptive, "adaptive")] {
                add(&format!("time, {name} over a server"), with(mode), server, &text);
                if let Some(on_files) = on_files {
                    add(&format!("time, {name} over GlusterFS"), with(mode), on_files, &text);
                }
            }
            add("time, rcq over mq", with(Mode::Rcq), with(Mode::Mq), "less than 1: the paper has 0.91 to 0.999");
        }
    }
    ratios
}

fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    let panel = |fabric: usize, kind: &str| {
        let others = [Where::Server, Where::Here, Where::Files];
        let lines = Mode::ALL.into_iter().map(|mode| Where::Memory(fabric, mode)).chain(others);
        let line = |(style, place): (usize, Where)| {
            let its = outcomes.iter().filter(|one| one.turn.place == place && one.turn.application.kind() == kind);
            let name = if let Where::Memory(_, mode) = place { mode.to_string() } else { place.name() };
            Line { name, style, points: its.filter_map(|one| Some(one.times()?.point())).collect() }
        };
        let is_directory = kind == "directory";
        Panel {
            title: format!("{kind}, memory of another node over {}", PROVIDERS[fabric].name()),
            x: axis(if is_directory { "records" } else { "records that a query touches (%)" }, is_directory),
            y: axis("median time of a query (microseconds)", true),
            series: lines.enumerate().map(line).filter(|line| !line.points.is_empty()).collect(),
        }
    };
    let kinds = ["B-tree", "R-tree", "directory"];
    (0..PROVIDERS.len()).flat_map(|fabric| kinds.map(|kind| panel(fabric, kind))).collect()
}

fn notes(no_files: Option<&String>) -> Vec<String> {
    let files = match no_files {
        Some(why) => format!("GlusterFS, which would stand for the paper's network file system, is not measured: {why}."),
        None => "GlusterFS stands for the paper's network file system: one brick of this machine over TCP on loopback, mounted by FUSE so that the client keeps nothing; SQLite's own file \
                 system reads it."
            .to_owned(),
    };
    let rest = [
        "The indices are SQLite's B-tree and R*Tree, with pages of 8 KiB that are segments of another node's memory, or bytes of a file that a server has in its page cache: one request for \
         each page. Queries are made in one transaction, and before each SQLite gives up the pages that it has; within one it keeps them.",
        "The server over TCP is as little as there can be between a program and a file elsewhere: one connection, nothing kept at the client, no locks, a thread that waits for the next request. Its \
         directory is asked with a connection for each entry, as the paper's is.",
        "Computing alone is the same query on pages that SQLite has, and the same selection with entries that are computed.",
    ];
    [files].into_iter().chain(rest.map(str::to_owned)).collect()
}
