//! `verbena traces`: the options, and the writing of a trace where it was asked for.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::clf::ClfReader;
use super::input::{TraceError, open};
use super::keys::KeyReader;
use super::law::{Poisson, SizeLaw, Zipf};
use super::record::{Request, Update};
use super::requests::{RequestLaw, UpdateLaw};
use super::worldcup::WorldCupReader;

/// Generates a trace from a seed, or reads one from a log, and writes it as CSV.
#[derive(Args, Clone, Debug)]
pub struct TracesArgs {
    /// Write the trace to this file instead of the standard output. The file appears when it is complete.
    #[arg(long, short, value_name = "FILE", global = true)]
    out: Option<PathBuf>,

    #[command(subcommand)]
    trace: Trace,
}

#[derive(Subcommand, Clone, Debug)]
enum Trace {
    /// Requests for objects by a Zipf law, at the times of a Poisson process.
    Zipf {
        /// How many objects there are; their keys are their ranks, 1 for the most popular.
        #[arg(long, default_value_t = 10_000)]
        objects: u64,
        /// The exponent, 0 to 20: with 0 all objects are requested equally often; web traces have 0.6 to 1.
        #[arg(long, default_value_t = 0.9)]
        alpha: f64,
        /// How many requests.
        #[arg(long, default_value_t = 100_000)]
        requests: u64,
        /// Requests a second, on average.
        #[arg(long, default_value_t = 1_000.0)]
        rate: f64,
        /// Object sizes in bytes: fixed:BYTES, uniform:FROM:TO or lognormal:MEDIAN:SIGMA.
        #[arg(long, value_name = "LAW", default_value = "lognormal:8192:1.2")]
        size: SizeLaw,
        /// The same seed gives the same trace, to the byte.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Updates of objects by a Zipf law, at the times of a Poisson process.
    Updates {
        /// How many objects there are; their keys are their ranks, 1 for the most changed.
        #[arg(long, default_value_t = 10_000)]
        objects: u64,
        /// The exponent, 0 to 20: with 0 all objects change equally often.
        #[arg(long, default_value_t = 0.9)]
        alpha: f64,
        /// How many updates.
        #[arg(long, default_value_t = 10_000)]
        updates: u64,
        /// Updates a second, on average.
        #[arg(long, default_value_t = 100.0)]
        rate: f64,
        /// The same seed gives the same stream, to the byte.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The requests of a web server's log in the common or combined log format.
    Clf(Source),
    /// The requests of a binary log of the 1998 World Cup web site.
    Worldcup98(Source),
    /// The requests of a CSV with the columns time_s, key and size_bytes.
    Keys(Source),
}

#[derive(Args, Clone, Debug)]
struct Source {
    /// The log, packed by gzip or not; `-` is the standard input.
    #[arg(value_name = "LOG")]
    input: PathBuf,
    /// Only this many requests from the start of the log.
    #[arg(long, value_name = "REQUESTS")]
    first: Option<u64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines, without the header.
    pub records: u64,
    /// Entries of the log that held no request.
    pub skipped: u64,
}

/// Does what `args` ask for. On an error nothing was written.
pub fn run(args: &TracesArgs) -> Result<Written, TraceError> {
    match &args.trace {
        Trace::Zipf { objects, alpha, requests, rate, size, seed } => {
            let popularity = Zipf::new(*objects, *alpha)?;
            let law = RequestLaw { popularity, arrivals: Poisson::new(*rate)?, sizes: *size };
            let trace = law.requests(*seed).take(usize::try_from(*requests).unwrap_or(usize::MAX));
            Output::open(args.out.as_deref(), true)?.requests(trace.map(Ok))
        }
        Trace::Updates { objects, alpha, updates, rate, seed } => {
            let law = UpdateLaw::new(*objects, *alpha, *rate)?;
            let trace = law.updates(*seed).take(usize::try_from(*updates).unwrap_or(usize::MAX));
            Output::open(args.out.as_deref(), true)?.updates(trace)
        }
        Trace::Clf(source) => {
            let (name, log) = open(&source.input)?;
            let mut reader = ClfReader::new(name, log);
            let written = Output::open(args.out.as_deref(), false)?.requests(source.limited(reader.by_ref()))?;
            Ok(Written { skipped: reader.skipped(), ..written })
        }
        Trace::Worldcup98(source) => {
            let (name, log) = open(&source.input)?;
            Output::open(args.out.as_deref(), false)?.requests(source.limited(WorldCupReader::new(name, log)))
        }
        Trace::Keys(source) => {
            let (name, log) = open(&source.input)?;
            Output::open(args.out.as_deref(), false)?.requests(source.limited(KeyReader::new(name, log)?))
        }
    }
}

impl Source {
    fn limited<T>(&self, trace: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        trace.take(self.first.map_or(usize::MAX, |first| usize::try_from(first).unwrap_or(usize::MAX)))
    }
}

/// Where the trace goes. A file is written beside its name and renamed when it is complete. What goes to the standard
/// output is kept in an unnamed file until its source was read whole, unless it cannot fail.
enum Output {
    File { temporary: BufWriter<tempfile::NamedTempFile>, path: PathBuf },
    Kept(BufWriter<File>),
    Straight(BufWriter<io::Stdout>),
}

impl Output {
    fn open(out: Option<&Path>, cannot_fail: bool) -> Result<Self, TraceError> {
        let Some(path) = out.filter(|path| *path != Path::new("-")) else {
            if cannot_fail {
                return Ok(Output::Straight(BufWriter::new(io::stdout())));
            }
            let file = tempfile::tempfile().map_err(|error| TraceError::io("a temporary file", error))?;
            return Ok(Output::Kept(BufWriter::new(file)));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let error = io::Error::new(io::ErrorKind::NotFound, "there is no such directory: make it first");
            return Err(TraceError::io(folder.display().to_string(), error));
        }
        let temporary = tempfile::Builder::new()
            .prefix(".trace-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(|error| TraceError::io(folder.display().to_string(), error))?;
        Ok(Output::File { temporary: BufWriter::new(temporary), path: path.to_owned() })
    }

    fn requests(self, trace: impl Iterator<Item = Result<Request, TraceError>>) -> Result<Written, TraceError> {
        self.fill(Request::HEADER, trace, |request, out| request.write(out))
    }

    fn updates(self, trace: impl Iterator<Item = Update>) -> Result<Written, TraceError> {
        self.fill(Update::HEADER, trace.map(Ok), |update, out| update.write(out))
    }

    fn fill<T>(
        mut self,
        header: &str,
        trace: impl Iterator<Item = Result<T, TraceError>>,
        write: impl Fn(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<Written, TraceError> {
        let name = self.name();
        let mut written = Written::default();
        let result = (|| {
            let out = self.writer();
            writeln!(out, "{header}").map_err(|error| TraceError::io(&name, error))?;
            for record in trace {
                write(&record?, out).map_err(|error| TraceError::io(&name, error))?;
                written.records += 1;
            }
            self.finish().map_err(|error| TraceError::io(&name, error))
        })();
        match result {
            // The reader of standard output may have seen enough.
            Err(TraceError::Io { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe => Ok(written),
            result => result.map(|()| written),
        }
    }

    fn name(&self) -> String {
        match self {
            Output::File { path, .. } => path.display().to_string(),
            Output::Kept(_) | Output::Straight(_) => "standard output".to_owned(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::File { temporary, .. } => temporary,
            Output::Kept(file) => file,
            Output::Straight(stdout) => stdout,
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Output::File { temporary, path } => {
                temporary.into_inner()?.persist(path)?;
            }
            Output::Kept(file) => {
                let mut file = file.into_inner()?;
                file.rewind()?;
                let mut stdout = io::stdout();
                io::copy(&mut file, &mut stdout)?;
                stdout.flush()?;
            }
            Output::Straight(mut stdout) => stdout.flush()?,
        }
        Ok(())
    }
}
