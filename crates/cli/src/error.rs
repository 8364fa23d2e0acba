//! What ends a command early, and with which exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use thiserror::Error;
use verbena_bench::BenchError;
use verbena_proxy::ProxyError;
use verbena_terms::{Incarnation, Lapse, ViewNumber};

use crate::config;
use crate::remedy;

/// What commands return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The exit codes, as the help prints them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done (also when the reader of the output stops reading)
  1  it could not be done, or the answer is no
  2  the command line or the configuration is wrong
  3  no helper (or pool, FTP server, WAN) runs that could answer";

/// Why a command ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// The command line is wrong, or asks for help.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The configuration cannot be read or has mistakes.
    #[error(transparent)]
    Configuration(#[from] config::Error),
    /// A log filter that cannot be read.
    #[error("--log {filter:?}: {reason}; for example `info` or `warn,verbena_node=debug`")]
    LogFilter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A variable that names a file names none.
    #[error("{0} is empty: write the file's path there, or unset it (`unset {0}`)")]
    EmptyVariable(&'static str),
    /// A helper that this command started does not answer.
    #[error("the helper that was started (verbena node) does not answer; its log, {}: {}", log.display(), if said.is_empty() { "empty" } else { said })]
    NotStarted {
        /// Its log.
        log: PathBuf,
        /// The end of the log.
        said: String,
    },
    /// The helper cannot be started, or had to end.
    #[error(transparent)]
    Node(#[from] verbena_node::Error),
    /// The proxy cannot be started.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The server of memcached clients cannot be started.
    #[error(transparent)]
    Memcached(#[from] verbena_pool::ServerError),
    /// A pool cannot be asked.
    #[error(transparent)]
    Pool(#[from] verbena_pool::ClientError),
    /// The relay before the database cannot be started.
    #[error(transparent)]
    Database(#[from] verbena_database::DatabaseError),
    /// The FTP server cannot be started.
    #[error(transparent)]
    Ftp(#[from] verbena_ftp::ServeError),
    /// A copy ended before its end.
    #[error(transparent)]
    Copy(#[from] verbena_ftp::CopyError),
    /// Nothing was mounted.
    #[error(transparent)]
    Mount(#[from] verbena_mount::MountError),
    /// A mount cannot be taken away, or asked.
    #[error(transparent)]
    Umount(#[from] verbena_mount::UmountError),
    /// A volume of GlusterFS was not changed.
    #[error(transparent)]
    Gluster(#[from] verbena_bank::gluster::GlusterError),
    /// The daemons of a bank were not started.
    #[error(transparent)]
    Bank(#[from] verbena_bank::StartError),
    /// A file of FTP users cannot be used.
    #[error(transparent)]
    FtpUsers(#[from] verbena_ftp::UsersError),
    /// The helper cannot be asked.
    #[error(transparent)]
    Client(#[from] verbena_client::Error),
    /// The fabric, or the keys for it, cannot be used.
    #[error(transparent)]
    Fabric(#[from] verbena_fabric::Error),
    /// An experiment could not be made.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A trace could not be made.
    #[error(transparent)]
    Trace(#[from] verbena_bench::traces::TraceError),
    /// A WAN could not be made, or has ended.
    #[error(transparent)]
    Wan(#[from] verbena_wan::Error),
    /// Options of a link that cannot be.
    #[error(transparent)]
    WanOption(#[from] verbena_wan::OptionError),
    /// No process keeps this WAN up.
    #[error("no WAN called {name} is up{}; `verbena wan up FILE.toml` brings one up", also_up(.others))]
    NoWan {
        /// What was asked for.
        name: String,
        /// Those that are up.
        others: Vec<String>,
    },
    /// A WAN of this name is up.
    #[error("a WAN called {name} is up already{}: `verbena wan down` ends it, and --name gives another one a name", process(.pid))]
    WanIsUp {
        /// Its name.
        name: String,
        /// The process that keeps it up, unless it has not said yet.
        pid: Option<u32>,
    },
    /// Another process of this program was asked, and said no.
    #[error("{problem}")]
    Refused {
        /// What it said.
        problem: String,
        /// Its exit code.
        exit_code: u8,
    },
    /// The system does not let this user make networks.
    #[error(
        "networks cannot be made: that takes root, or a user namespace, which is refused ({source}); look at the settings \
         user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
    )]
    NoNetworks {
        /// What the system said.
        source: io::Error,
    },
    /// No helper answers at an address that was given.
    #[error("no helper answers at {at}: is it the address of node.api?")]
    NothingThere {
        /// The address.
        at: String,
    },
    /// A node is named that the configuration does not have.
    #[error("{given:?} is no rank (a number from 1) and no name in cluster.members{}", known(.names))]
    NoSuchNode {
        /// What was given.
        given: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// A member is named that is not in the view.
    #[error("{given:?} is no member of {view}{}", known(.names))]
    NotIn {
        /// What was given.
        given: String,
        /// The newest view of the node that was asked.
        view: ViewNumber,
        /// The names of its members.
        names: Vec<String>,
    },
    /// No view without a member came in time.
    #[error("after {waited} no view without {who} is in effect; `verbena cluster views` shows what has happened since")]
    StillIn {
        /// The incarnation that was to go.
        who: Incarnation,
        /// How long was waited.
        waited: Lapse,
    },
    /// A node that was asked to end has not.
    #[error("{node} is not gone after {waited}; it goes on leaving: run the command again, or end its process")]
    NotGone {
        /// Its name.
        node: String,
        /// How long was waited.
        waited: Lapse,
    },
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output does not take what is written.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// The report is printed, and it says no.
    #[error("the answer is no")]
    No,
    /// The report is printed, and it says that the configuration is wrong.
    #[error("the configuration has mistakes")]
    Mistaken,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Output(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::Output(error.into())
    }
}

impl Error {
    /// Prints the error, unless it was printed already, and gives the exit code.
    pub fn report(self) -> ExitCode {
        let mut stderr = anstream::stderr().lock();
        // If standard error is gone too, the error has no reader left.
        let _ = match &self {
            Error::CommandLine(error) => error.print(),
            Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Error::No | Error::Mistaken => Ok(()),
            Error::Configuration(error) => report_configuration(&mut stderr, error),
            error => match remedy::of(error) {
                Some(remedy) => writeln!(stderr, "verbena: {error}; {remedy}"),
                None => writeln!(stderr, "verbena: {error}"),
            },
        };
        ExitCode::from(self.exit_code())
    }

    /// The exit code for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Refused { exit_code, .. } => *exit_code,
            Error::CommandLine(error) => u8::try_from(error.exit_code()).unwrap_or(2),
            Error::Configuration(_) | Error::Mistaken | Error::LogFilter { .. } | Error::EmptyVariable(_) => 2,
            Error::Client(verbena_client::Error::NoHelper { .. }) | Error::NothingThere { .. } => 3,
            Error::NotStarted { .. } => 3,
            Error::NoWan { .. } => 3,
            Error::Database(verbena_database::DatabaseError::Setting { .. }) => 2,
            Error::Memcached(verbena_pool::ServerError::Setting { .. }) => 2,
            Error::Pool(
                verbena_pool::ClientError::Key(_)
                | verbena_pool::ClientError::Address { .. }
                | verbena_pool::ClientError::Authorities(_),
            ) => 2,
            Error::Pool(verbena_pool::ClientError::Connection { .. }) => 3,
            Error::Copy(verbena_ftp::CopyError::Within(_)) => 2,
            Error::FtpUsers(_)
            | Error::Ftp(
                verbena_ftp::ServeError::Users(_)
                | verbena_ftp::ServeError::Tls { .. }
                | verbena_ftp::ServeError::Nobody,
            ) => 2,
            Error::NoSuchNode { .. } => 2,
            Error::WanOption(_) | Error::Wan(verbena_wan::Error::Plan(_) | verbena_wan::Error::Options { .. }) => 2,
            Error::Wan(verbena_wan::Error::NoSite { .. } | verbena_wan::Error::NoLink { .. }) => 2,
            Error::Node(verbena_node::Error::TooMuchMemory { .. }) => 2,
            Error::Trace(verbena_bench::traces::TraceError::Law(_)) => 2,
            Error::Node(verbena_node::Error::Key(_)) => 2,
            Error::Proxy(ProxyError::Setting { .. } | ProxyError::PurgeToken { .. }) => 2,
            Error::Bank(verbena_bank::StartError::Count { .. }) => 2,
            Error::Mount(
                verbena_mount::MountError::Encrypt
                | verbena_mount::MountError::Near { .. }
                | verbena_mount::MountError::Memory { .. }
                | verbena_mount::MountError::List(_),
            ) => 2,
            Error::Bench(BenchError::NoSuchRow { .. } | BenchError::TooFewRounds { .. }) => 2,
            Error::Node(_)
            | Error::Client(_)
            | Error::Fabric(_)
            | Error::Proxy(_)
            | Error::Memcached(_)
            | Error::Pool(_)
            | Error::Ftp(_)
            | Error::Database(_)
            | Error::Copy(_)
            | Error::Mount(_)
            | Error::Umount(_)
            | Error::Gluster(_)
            | Error::Bank(_)
            | Error::Bench(_)
            | Error::Trace(_)
            | Error::Wan(_)
            | Error::WanIsUp { .. }
            | Error::NoNetworks { .. } => 1,
            Error::NotIn { .. } | Error::StillIn { .. } | Error::NotGone { .. } => 1,
            Error::File { .. } | Error::System { .. } | Error::Output(_) | Error::No => 1,
        }
    }
}

fn also_up(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (--name chooses another one: {})", names.join(", ")) }
}

fn process(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn known(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

fn report_configuration(to: &mut impl Write, error: &config::Error) -> io::Result<()> {
    if let config::Error::Mistaken { mistakes, source_text } = error {
        for mistake in mistakes {
            write!(to, "{}", mistake.explain(source_text))?;
        }
    }
    writeln!(to, "verbena: {error}")
}
