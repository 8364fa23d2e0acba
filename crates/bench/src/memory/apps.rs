//! `memory.apps`: applications whose data are in memory that nodes share.
//!
//! After Table 1 and Figure 5: queries of a B-tree and an R-tree that touch a part of the records, and an application that asks a directory of a dataset before it reads that (STORM). The
//! indices are SQLite's, its pages segments; the directory is a segment of which entries are got. Beside them, a process that serves the file's pages over TCP, a directory server
//! that wants a connection for each access, and the computing alone.

mod gluster;
mod index;
mod remote;
mod report;
mod server;

use std::time::{Duration, Instant};

use rand_core::Rng;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use verbena_client::{Memory, NewSegment, Placement, Socket};
use verbena_fabric::Provider;
use verbena_ipc::Mode;
use verbena_sqlite::{Options, Vfs};
use verbena_terms::{Coherence, SegmentId};

use self::gluster::Gluster;
use self::index::{Found, Index, PAGE_BYTES};
use self::server::{Order, Places, entry, look_up};
pub(crate) use self::server::{ROLE, serve};
use super::ops::failed;
use crate::child::Target;
use crate::error::BenchError;
use crate::helpers::Helpers;
use crate::report::Findings;
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::RoundSummary;
use crate::traces::generator;

const PROVIDERS: [Provider; 2] = [Provider::Shm, Provider::Tcp];
const PERCENT: [u32; 5] = [20, 40, 60, 80, 100];
/// Of datasets; the last one where there is this time.
const RECORDS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const ENOUGH: Duration = Duration::from_secs(120);
/// Entries that an application asks for before it reads a dataset: the paper's asks 86 to 177 times.
const LOOKUPS: usize = 128;
const ENTRY_BYTES: u64 = 8;
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// An application, with what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Application {
    /// Queries this part of an index.
    Index(Index, u32),
    /// Asks the directory of a dataset of this many records, and reads them.
    Directory(u64),
}

/// Where its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// At a server.
    Server,
    /// On a network file system: what the paper calls no DDSS.
    Files,
    /// In memory that nodes share, over one of [`PROVIDERS`].
    Memory(usize, Mode),
    /// Here: what is left is computing.
    Here,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    application: Application,
    place: Where,
}

struct Outcome {
    turn: Turn,
    rounds: Vec<Took>,
}

/// What one round gave.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Microseconds of a query.
    time: RoundSummary,
    /// Pages that one read, or entries that it asked for.
    asked: f64,
}

/// A dataset's records as an application has them: a key, and what is selected by.
type Dataset = Vec<[u64; 2]>;

/// Programs at one node, data at another node.
struct Cluster {
    helpers: Helpers,
    /// In the order of [`Mode::ALL`].
    programs: Vec<Program>,
    /// By their records.
    directories: Vec<SegmentId>,
}

struct Program {
    memory: Memory,
    database: Connection,
}

struct Everything {
    clusters: Vec<Cluster>,
    /// Last of those that use it.
    _server: Target,
    places: Places,
    served: Connection,
    /// Or why it could not be mounted.
    on_files: Result<(Connection, Gluster), String>,
    here: Connection,
    datasets: Vec<Dataset>,
    random: rand_pcg::Pcg64,
    _directory: TempDir,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let records = &RECORDS[..if plan.measuring >= ENOUGH { RECORDS.len() } else { RECORDS.len() - 1 }];
    let mut clusters = vec![];
    for provider in PROVIDERS {
        clusters.push(Cluster::start(Helpers::start(verbena, provider, 1, 1, None)?, provider, records)?);
    }
    let mut everything = Everything::start(clusters, records, plan.seed)?;
    let mut turns = turns(records, everything.on_files.is_ok());
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {}", turn.application.name(), turn.place.name()),
        |turn| everything.time(*turn, budget.next().max(SHORTEST)),
        plan.progress,
    )?;
    everything.clusters.iter_mut().try_for_each(|cluster| cluster.helpers.look())?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();
    Ok(report::findings(&outcomes, everything.on_files.as_ref().err()))
}

fn turns(records: &[u64], has_files: bool) -> Vec<Turn> {
    let indices = [Index::BTree, Index::RTree].into_iter();
    let queries = indices.flat_map(|index| PERCENT.map(|percent| Application::Index(index, percent)));
    let applications = queries.chain(records.iter().map(|records| Application::Directory(*records)));
    let all = applications.flat_map(|application| Where::all().map(move |place| Turn { application, place }));
    let can_be = |Turn { application, place }: &Turn| {
        *place != Where::Files || has_files && matches!(application, Application::Index(..))
    };
    all.filter(can_be).collect()
}

impl Where {
    fn all() -> impl Iterator<Item = Where> {
        let memory = (0..PROVIDERS.len()).flat_map(|fabric| Mode::ALL.map(|mode| Where::Memory(fabric, mode)));
        [Where::Server, Where::Files].into_iter().chain(memory).chain([Where::Here])
    }

    fn name(self) -> String {
        match self {
            Where::Server => "server over TCP".to_owned(),
            Where::Files => "GlusterFS".to_owned(),
            Where::Memory(fabric, mode) => format!("{mode}, {}", PROVIDERS[fabric].name()),
            Where::Here => "computing alone".to_owned(),
        }
    }
}

impl Application {
    /// Without how much of it.
    fn kind(self) -> &'static str {
        match self {
            Application::Index(index, _) => index.name(),
            Application::Directory(_) => "directory",
        }
    }

    fn name(self) -> String {
        match self {
            Application::Index(index, percent) => format!("{}, {percent}% of the records", index.name()),
            Application::Directory(records) => format!("directory of {records} records"),
        }
    }
}

fn in_io(doing: &str) -> impl Fn(std::io::Error) -> BenchError {
    move |error| BenchError::Target { doing: doing.to_owned(), reason: error.to_string() }
}

fn in_sqlite(doing: &str) -> impl Fn(rusqlite::Error) -> BenchError {
    move |error| {
        let why = verbena_sqlite::last_error().unwrap_or_default();
        BenchError::Target { doing: doing.to_owned(), reason: format!("{error} {why}") }
    }
}

impl Cluster {
    fn start(mut helpers: Helpers, provider: Provider, records: &[u64]) -> Result<Cluster, BenchError> {
        let socket = helpers.socket(1)?;
        let placement = Placement::Node("home-1".into());
        let open = |mode: Mode| {
            let socket: Socket = socket.clone().in_mode(mode);
            let memory = Memory::connect(&socket, PATIENCE).map_err(|error| failed("connect to a helper", &error))?;
            let options =
                Options { block_bytes: PAGE_BYTES, placement: placement.clone(), patience: PATIENCE, copies: 1 };
            let name = format!("segments-{}-{mode}-{}", provider.name(), std::process::id());
            let vfs = Vfs::register(&name, socket, options);
            let vfs =
                vfs.map_err(|error| BenchError::Target { doing: "register".into(), reason: error.to_string() })?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
            let opened = Connection::open_with_flags_and_vfs("indices", flags, vfs.name());
            let opened = opened.and_then(|database| database.execute_batch(&vfs.pragmas()).map(|()| database));
            let database = opened.map_err(in_sqlite("open a database in segments"))?;
            Ok(Program { memory, database })
        };
        let mut programs = Mode::ALL.into_iter().map(open).collect::<Result<Vec<Program>, BenchError>>()?;
        Index::fill(&programs[0].database)?;
        programs.iter().try_for_each(|program| index::begin(&program.database))?;

        let program = &mut programs[0].memory;
        let mut directories = vec![];
        for records in records {
            let wanted = NewSegment { writers: 1, ..NewSegment::of(records * ENTRY_BYTES) };
            let made = program.allocate(wanted.coherent(Coherence::Read).placed(placement.clone()));
            let id = made.map_err(|error| failed("allocate a directory", &error))?.id;
            let entries: Vec<u8> = (0..*records).flat_map(|record| entry(record, *records).to_le_bytes()).collect();
            program.put(id, &entries).map_err(|error| failed("put a directory", &error))?;
            directories.push(id);
        }
        Ok(Cluster { helpers, programs, directories })
    }
}

impl Everything {
    fn start(clusters: Vec<Cluster>, records: &[u64], seed: u64) -> Result<Everything, BenchError> {
        let directory =
            tempfile::Builder::new().prefix("verbena-bench-").tempdir().map_err(in_io("make a directory"))?;
        let file = directory.path().join("indices");
        let here = Connection::open(&file).map_err(in_sqlite("make a database"))?;
        here.pragma_update(None, "page_size", PAGE_BYTES).map_err(in_sqlite("make a database"))?;
        Index::fill(&here)?;
        index::begin(&here)?;
        let on_files = Gluster::mount(&file).map(|mounted| mounted.open().map(|database| (database, mounted)));
        let on_files = on_files.map(|opened| opened.and_then(|it| index::begin(&it.0).map(|()| it)));
        let on_files = match on_files {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(error)) => return Err(error),
            Err(why) => Err(why),
        };
        let mut server = Target::start(&[ROLE])?;
        let places: Places = server.ask(&Order { file, directories: records.to_vec() }, "serve a file")?;
        let served = remote::open(places.file)?;
        index::begin(&served)?;
        let mut random = generator(seed, 0);
        let mut dataset = |records: &u64| (0..*records).map(|key| [key, random.next_u64()]).collect();
        let datasets: Vec<Dataset> = records.iter().map(&mut dataset).collect();
        Ok(Everything {
            clusters,
            _server: server,
            places,
            served,
            on_files,
            here,
            datasets,
            random,
            _directory: directory,
        })
    }

    fn time(&mut self, turn: Turn, length: Duration) -> Result<Took, BenchError> {
        let (mut samples, mut asked) = (vec![], 0);
        let began = Instant::now();
        while began.elapsed() < length || samples.is_empty() {
            let (took, its) = match turn.application {
                Application::Index(index, percent) => self.query(index, percent, turn.place)?,
                Application::Directory(records) => self.read(records, turn.place)?,
            };
            samples.push(took.as_secs_f64() * 1e6);
            asked += its;
        }
        let asked = asked as f64 / samples.len() as f64;
        Ok(Took { time: RoundSummary::of(&mut samples).expect("invariant: there is at least one"), asked })
    }

    fn query(&self, index: Index, percent: u32, place: Where) -> Result<(Duration, u64), BenchError> {
        let database = match place {
            Where::Server => &self.served,
            Where::Files => &self.on_files.as_ref().expect("invariant: without it it has no turn").0,
            Where::Memory(fabric, mode) => &self.clusters[fabric].programs[of(mode)].database,
            Where::Here => &self.here,
        };
        if place != Where::Here {
            index::forget_pages(database)?;
        }
        index::pages_read(database);
        let began = Instant::now();
        let found = index.query(database, percent)?;
        let took = began.elapsed();
        let pages = index::pages_read(database);
        let expected: Found = index.query(&self.here, percent)?;
        if found != expected {
            let reason = format!("{found:?} was found in the {}, which is {expected:?}", index.name());
            return Err(BenchError::Target { doing: "query an index".to_owned(), reason });
        }
        Ok((took, pages))
    }

    /// Asks for entries, and then selects from the records.
    fn read(&mut self, records: u64, place: Where) -> Result<(Duration, u64), BenchError> {
        let nth = RECORDS.iter().position(|its| *its == records).expect("invariant: it is one of these");
        let wanted: Vec<u64> = (0..LOOKUPS).map(|_| self.random.next_u64() % records).collect();
        let dataset = &self.datasets[nth];
        let mut entries = vec![];
        let began = Instant::now();
        for record in &wanted {
            match place {
                Where::Server => {
                    let directory = self.places.directories[nth];
                    entries.push(look_up(directory, *record).map_err(in_io("ask a directory"))?);
                }
                Where::Memory(fabric, mode) => {
                    let cluster = &mut self.clusters[fabric];
                    let (id, program) = (cluster.directories[nth], &mut cluster.programs[of(mode)].memory);
                    let got = program.get_part(id, record * ENTRY_BYTES, Some(ENTRY_BYTES));
                    let bytes = got.map_err(|error| failed("get an entry", &error))?.bytes;
                    entries.push(u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
                }
                Where::Here | Where::Files => entries.push(entry(*record, records)),
            }
        }
        let selected = dataset.iter().filter(|[_, value]| value % 10 == 0).fold(0u64, |sum, [key, _]| sum ^ key);
        std::hint::black_box(selected);
        let took = began.elapsed();
        let right = wanted.iter().zip(&entries).all(|(record, found)| entry(*record, records) == *found);
        if !right || entries.len() != LOOKUPS {
            let reason = "an entry of the directory is another one".to_owned();
            return Err(BenchError::Target { doing: "ask a directory".to_owned(), reason });
        }
        Ok((took, if place == Where::Here { 0 } else { LOOKUPS as u64 }))
    }
}

fn of(mode: Mode) -> usize {
    Mode::ALL.into_iter().position(|its| its == mode).expect("invariant: all are in it")
}
