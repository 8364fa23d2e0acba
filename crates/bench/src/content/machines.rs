//! Processes of an experiment, and the cores that they stay on.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::child::{CHILD_ARGUMENT, ON_CORE, program};
use crate::cores;
use crate::error::BenchError;

/// How much of a failed process's output is reported, in bytes.
const TOLD: usize = 2_000;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long one may take to end that is asked to.
const ENDING: Duration = Duration::from_secs(10);

/// Two cores of this machine.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    /// Of the application, the home and the threads that take time.
    pub(super) servers: String,
    /// Of the proxy and the client.
    pub(super) proxies: String,
}

impl Cores {
    /// The first two that this process may use.
    pub(super) fn choose(name: &'static str) -> Result<Self, BenchError> {
        let two = cores::two(name, "one for the servers and one for the proxy and its client")?;
        let [servers, proxies] = two.map(|core| core.to_string());
        Ok(Cores { servers, proxies })
    }
}

/// A process that serves. Ended when dropped, and with the process that started it.
pub(crate) struct Running {
    process: Child,
    what: String,
    log: PathBuf,
    /// See [`Running::ended_in_order`].
    is_asked_to_end: bool,
}

impl Running {
    /// Starts this program as a part on `core`. What it prints goes to a file in `directory`.
    pub(crate) fn start(what: &str, core: &str, words: &[&str], directory: &Path) -> Result<Self, BenchError> {
        Running::begin(what, &[&[ON_CORE, core], words].concat(), directory)
    }

    /// The same, on any core.
    pub(crate) fn begin(what: &str, words: &[&str], directory: &Path) -> Result<Self, BenchError> {
        let log = directory.join(format!("{what}.log"));
        let failed =
            |error: std::io::Error| BenchError::Target { doing: format!("start {what}"), reason: error.to_string() };
        let file = File::create(&log).map_err(|error| BenchError::io(&log, error))?;
        let process = Command::new(program().map_err(failed)?)
            .arg(CHILD_ARGUMENT)
            .args(words)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .spawn()
            .map_err(failed)?;
        Ok(Running { process, what: what.to_owned(), log, is_asked_to_end: false })
    }

    /// Has it asked to end when it is dropped, and killed only if it does not: processes that it started would stay behind a killed one.
    pub(crate) fn ended_in_order(mut self) -> Self {
        self.is_asked_to_end = true;
        self
    }

    /// Waits until it takes connections at `address`.
    pub(crate) fn listens(&mut self, address: SocketAddr) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
            self.look()?;
            if Instant::now() > until {
                return Err(self.failed(&format!("did not listen at {address} within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// An error if it has ended.
    pub(crate) fn look(&mut self) -> Result<(), BenchError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(self.failed(&format!("ended: {ended:?}"))),
        }
    }

    /// Asks it to end in order.
    pub(super) fn ask_to_end(&self) -> Result<(), BenchError> {
        self.signal(Signal::TERM)
    }

    /// The number of its process.
    pub(crate) fn number(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        let sent = Pid::from_raw(self.process.id().cast_signed()).map(|pid| kill_process(pid, signal));
        match sent {
            Some(Ok(())) => Ok(()),
            other => Err(self.failed(&format!("could not be sent {signal:?}: {other:?}"))),
        }
    }

    /// Waits until it has ended.
    pub(crate) fn ends(&mut self, within: Duration) -> Result<(), BenchError> {
        let until = Instant::now() + within;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() > until {
                return Err(self.failed(&format!("did not end within {within:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Bytes of memory that it takes, beside what it maps of files: its program, of which the system drops what it needs elsewhere. What it
    /// shares with others counts by its part.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        let path = PathBuf::from(format!("/proc/{}/smaps_rollup", self.process.id()));
        let text = std::fs::read_to_string(&path).map_err(|error| BenchError::io(&path, error))?;
        let field = |name: &str| {
            let kilobytes = |line: &str| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
            text.lines().find_map(kilobytes)
        };
        let found = field("Pss_Anon:").zip(field("Pss_Shmem:"));
        found
            .map(|(anonymous, shared)| (anonymous + shared) << 10)
            .ok_or_else(|| self.failed("has no memory that the system knows of"))
    }

    /// What to say when it `happened` to this one, with the end of what it printed.
    pub(crate) fn failed(&self, happened: &str) -> BenchError {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(TOLD)..]).into_owned();
        BenchError::Process { what: self.what.clone(), happened: happened.to_owned(), said }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_asked_to_end {
            // What does not end is killed.
            let _ = self.ask_to_end().and_then(|()| self.ends(ENDING));
        }
        // Failing means that it has ended already, which is all that is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
