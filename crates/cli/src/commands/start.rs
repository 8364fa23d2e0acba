//! A helper that a command starts for itself, and that goes on when the command has ended.
//!
//! It must be no child of the command, nor of its session: `verbena lock run` waits for all that it has started, and a terminal's signals are for the
//! command. So another process of this program begins a session, starts the helper and ends, before the command is made the reaper of what it starts.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use verbena_client::Socket;

use crate::config::{Flags, flag_name};
use crate::error::{Error, Result};

/// The first argument of the process in between; the helper's own arguments follow.
pub const START_ARGUMENT: &str = "--start-helper";
/// The least time that a helper is given to join its cluster.
const LEAST: Duration = Duration::from_secs(30);
/// How often it is asked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is shown of the log of one that ended.
const LOG_END: u64 = 2048;

/// A helper on its way.
pub struct Started {
    log: PathBuf,
    file: File,
    /// Where its part of the log begins.
    from: u64,
}

/// The lock under which one command at a time starts a helper for a socket. It is free when it is dropped.
pub fn only(socket: &Socket) -> Result<File> {
    let path = socket.path().with_extension("start");
    let failed = |doing, source: io::Error| Error::File { doing, path: path.clone(), source };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|source| failed("make the directory of", source))?;
    }
    let file = open(&path).map_err(|source| failed("open", source))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|source| failed("lock", source.into()))?;
    Ok(file)
}

impl Started {
    /// Starts one, with the command's configuration.
    pub fn new(config: Option<&Path>, flags: &Flags, socket: &Socket) -> Result<Started> {
        let log = socket.path().with_extension("log");
        let failed = |source| Error::File { doing: "open", path: log.clone(), source };
        let file = open(&log).map_err(failed)?;
        let from = file.metadata().map_err(failed)?.len();
        let system = |source| Error::System { doing: "start a helper", source };
        let mut command = Command::new(std::env::current_exe().map_err(system)?);
        command.args([START_ARGUMENT, "node"]);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        for flag in &flags.0 {
            command.arg(format!("--{}={}", flag_name(flag.section, flag.key), flag.value));
        }
        let output = || file.try_clone().map(Stdio::from).map_err(failed);
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        match command.status().map_err(system)? {
            status if status.success() => Ok(Started { log, file, from }),
            status => Err(system(io::Error::other(format!("the process that starts it: {status}")))),
        }
    }

    /// Asks it until it answers, for `patience`, and for half a minute at least.
    pub fn until<T>(mut self, patience: Duration, ask: impl Fn() -> Result<T>) -> Result<T> {
        let end = Instant::now() + patience.max(LEAST);
        loop {
            match ask() {
                Err(Error::Client(verbena_client::Error::NoHelper { .. })) if Instant::now() < end => {}
                Err(Error::Client(verbena_client::Error::NoHelper { .. })) => break,
                other => return other,
            }
            // What it says last when it cannot start.
            if self.said().contains("\nverbena: ") {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let said = self.said();
        Err(Error::NotStarted { log: self.log, said: said.trim().to_owned() })
    }

    /// The end of what it has written, with a line's end before it.
    fn said(&mut self) -> String {
        let length = self.file.metadata().map_or(self.from, |found| found.len());
        let from = self.from.max(length.saturating_sub(LOG_END));
        let mut bytes = b"\n".to_vec();
        // What cannot be read is not shown.
        let _ = self.file.seek(SeekFrom::Start(from)).and_then(|_| (&self.file).take(LOG_END).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).append(true).create(true).open(path)
}

/// The process in between: begins a session, starts the helper, and ends.
pub fn in_between(arguments: &[OsString]) -> ExitCode {
    // A process that leads its group cannot, and need not where no shell waits for the group.
    let _ = rustix::process::setsid();
    let started = std::env::current_exe().and_then(|program| Command::new(program).args(arguments).spawn());
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("verbena: no helper can be started: {error}");
            ExitCode::FAILURE
        }
    }
}
