//! What can go wrong in an experiment.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::run::FEWEST_ROUNDS;
use crate::traces::TraceError;

/// Why an experiment gave no report.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No such row.
    #[error("there is no experiment `{name}`: `verbena bench --list` shows them all")]
    NoSuchRow {
        /// What was asked for.
        name: String,
    },
    /// Too few rounds to compare anything.
    #[error("{rounds} rounds are too few to compare variants: use at least {FEWEST_ROUNDS}")]
    TooFewRounds {
        /// What was asked for.
        rounds: u32,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The figure could not be drawn.
    #[error("the figure of `{row}` could not be drawn: {reason}")]
    Figure {
        /// The row of the figure.
        row: String,
        /// What the drawing library said.
        reason: String,
    },
    /// Nothing on this machine can be measured.
    #[error("experiment `{name}` has nothing to measure here: {reason}")]
    NothingToMeasure {
        /// The row.
        name: &'static str,
        /// What is missing.
        reason: String,
    },
    /// Nodes and proxies are to be started, and the program for them is not known.
    #[error(
        "experiment `{name}` starts nodes and proxies, and this program is not `verbena`: run `verbena bench {name}`"
    )]
    NoProgram {
        /// The row.
        name: &'static str,
    },
    /// A process of the experiment did not come to work.
    #[error("{what} {happened}; it said:\n{said}")]
    Process {
        /// Which.
        what: String,
        /// How it ended, or what it did not do.
        happened: String,
        /// The end of what it printed.
        said: String,
    },
    /// An answer lacked an update that had been acknowledged before it was asked for. Nothing that was measured counts.
    #[error("{stale} of {of} answers were stale under {under}: {one}")]
    Stale {
        /// How many were.
        stale: u64,
        /// How many were looked at.
        of: u64,
        /// What was being measured.
        under: String,
        /// One of them.
        one: String,
    },
    /// The key trace cannot be read.
    #[error("the key trace (--trace FILE): {error}")]
    Trace {
        /// Why.
        #[from]
        error: TraceError,
    },
    /// Caller and target are to be in networks of their own, and those cannot be made.
    #[error(
        "it needs two networks with a link between them, which takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and the command ip \
         (Debian: iproute2): {0}"
    )]
    Network(#[from] verbena_namespaces::Error),
    /// The emulator that is to be measured did not come up.
    #[error("the emulator: {0}")]
    Emulator(#[source] verbena_wan::Error),
    /// The process that plays the other node failed.
    #[error("the target process {doing} failed: {reason}")]
    Target {
        /// What it was asked to do.
        doing: String,
        /// What it said, or how it ended.
        reason: String,
    },
    /// The process that plays the other node did not answer.
    #[error("the target process did not answer within {after:?} when asked to {doing}")]
    TargetSilent {
        /// What it was asked to do.
        doing: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The fabric refused what was measured.
    #[error("{doing} over {fabric}: {error}")]
    Fabric {
        /// Which fabric, by the name it gives itself.
        fabric: String,
        /// What was done.
        doing: String,
        /// What the fabric said.
        error: verbena_fabric::Error,
    },
    /// What was measured gave a wrong answer, so its time means nothing.
    #[error("{doing} over {fabric} gave a wrong answer: {what}")]
    Wrong {
        /// Which fabric, by the name it gives itself.
        fabric: String,
        /// What was done.
        doing: String,
        /// What came and what should have.
        what: String,
    },
}

impl From<verbena_wan::Error> for BenchError {
    fn from(error: verbena_wan::Error) -> Self {
        match error {
            verbena_wan::Error::Network(error) => BenchError::Network(error),
            error => BenchError::Emulator(error),
        }
    }
}

impl BenchError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        BenchError::Io { path: path.to_owned(), error }
    }
}
