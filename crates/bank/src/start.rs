//! Real memcached daemons, started with the options that a bank needs.
//!
//! A daemon ends with the process that started it, however that ends. A death signal of the kernel's does not do that: it is dropped when the
//! daemon gives up root. So each daemon has a shell beside it that reads from a pipe, whose other end this process has: at its end the shell kills the daemon.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::{Answer, Daemons, ListError, Memcached, Options, Request};

/// Which daemons to start.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// How many.
    pub daemons: usize,
    /// Memory for items of all together, in bytes; each gets its share, at least 4 MiB.
    pub memory: u64,
    /// A folder for Unix sockets, by its absolute path; without one they listen on TCP ports of 127.0.0.1 that the system chooses.
    pub sockets: Option<PathBuf>,
    /// The program.
    pub program: PathBuf,
}

impl Default for StartOptions {
    fn default() -> Self {
        StartOptions { daemons: 1, memory: 1 << 30, sockets: None, program: "memcached".into() }
    }
}

/// Daemons that answer. They end when this is dropped, and when this process ends.
#[derive(Debug)]
pub struct Running {
    /// Their list.
    pub daemons: Daemons,
    children: Vec<Child>,
}

/// Why daemons were not started. Those that had started are ended.
#[derive(Debug, Error)]
pub enum StartError {
    /// No daemon was asked for, or too many.
    #[error("{count} daemons: a bank has from 1 to 64 on one machine")]
    Count {
        /// How many were asked for.
        count: usize,
    },
    /// The folder for sockets is not there.
    #[error("{folder} is no directory; --sockets names a directory that exists, and this user can write")]
    Sockets {
        /// The folder.
        folder: PathBuf,
    },
    /// The program cannot be started.
    #[error(
        "{program} cannot be started: {error}; `apt-get install memcached` installs memcached, and --program names its file"
    )]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A daemon ended or does not answer.
    #[error("{program} at {place} does not answer: {said}")]
    Silent {
        /// The program.
        program: PathBuf,
        /// Where it should listen.
        place: String,
        /// What it wrote to its standard error.
        said: String,
    },
    /// A path cannot stand in the list.
    #[error(transparent)]
    List(#[from] ListError),
}

/// Starts daemons and waits until each answers.
pub fn start(options: &StartOptions) -> Result<Running, StartError> {
    if !(1..=64).contains(&options.daemons) {
        return Err(StartError::Count { count: options.daemons });
    }
    if let Some(folder) = options.sockets.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(StartError::Sockets { folder: folder.clone() });
    }
    find(&options.program).map_err(|error| program(options, error))?;
    let mut places = vec![];
    let mut children = vec![];
    for at in 0..options.daemons {
        match start_one(options, at) {
            Ok((place, child)) => {
                places.push(place);
                children.push(child);
            }
            Err(error) => {
                end(&mut children);
                return Err(error);
            }
        }
    }
    Ok(Running { daemons: Daemons::parse(&format!("memcached://{}", places.join(",")))?, children })
}

impl Running {
    /// Their process ids, in the order of the list.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Ends them all and waits until they are gone.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.children);
    }
}

fn end(children: &mut [Child]) {
    for child in children {
        // A daemon that is gone already needs no end.
        _ = child.kill();
        _ = child.wait();
    }
}

/// Becomes the daemon, with a shell beside it that kills it at the end of the pipe. The daemon's number may be another process's by then, so
/// the time of its start is looked at (field 22, proc_pid_stat(5); neither name has a blank).
const BESIDE: &str = r#"
exec 3<&0 </dev/null
daemon=$$
started=$(cut -d' ' -f22 "/proc/$daemon/stat")
{
    read -r end <&3
    [ "$(cut -d' ' -f22 "/proc/$daemon/stat")" = "$started" ] && kill -9 "$daemon"
} >/dev/null 2>&1 &
exec "$@" 3<&-
"#;

/// A port that was just free can be taken before the daemon has it: then another is tried.
fn start_one(options: &StartOptions, at: usize) -> Result<(String, Child), StartError> {
    const TRIES: usize = 5;
    let mut last = None;
    for _ in 0..TRIES {
        let place = match &options.sockets {
            Some(folder) => folder.join(format!("memcached-{at}.sock")).display().to_string(),
            None => format!("127.0.0.1:{}", free_port().map_err(|error| program(options, error))?),
        };
        match start_at(options, &place) {
            Err(error @ StartError::Silent { .. }) => last = Some(error),
            other => return other.map(|child| (place, child)),
        }
    }
    Err(last.unwrap_or(StartError::Count { count: 0 }))
}

fn program(options: &StartOptions, error: std::io::Error) -> StartError {
    StartError::Program { program: options.program.clone(), error }
}

/// The shell that starts it would say less of a program that is not there.
fn find(program: &Path) -> std::io::Result<()> {
    let is_there = if program.components().count() > 1 {
        program.is_file()
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if is_there { Ok(()) } else { Err(rustix::io::Errno::NOENT.into()) }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// `-U 0`: no UDP. `-I 2m`: a block of 1 MiB fits in its envelope; memcached refuses it with less than 4 MiB. `-t 2`: a daemon shares the machine.
fn start_at(options: &StartOptions, place: &str) -> Result<Child, StartError> {
    let megabytes = ((options.memory / options.daemons as u64) >> 20).max(4).to_string();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", BESIDE, "sh"]).arg(&options.program);
    command.args(["-m", &megabytes, "-U", "0", "-I", "2m", "-t", "2", "-c", "4096"]);
    let is_root = rustix::process::geteuid().is_root();
    match place.strip_prefix("127.0.0.1:") {
        Some(port) => {
            command.args(["-l", "127.0.0.1", "-p", port]);
            if is_root {
                command.args(["-u", "nobody"]);
            }
        }
        // Only the owner reaches the socket. The daemon makes it in a folder that may be root's alone, so it stays root there.
        None => {
            command.args(["-s", place, "-a", "0700"]);
            if is_root {
                command.args(["-u", "root"]);
            }
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| program(options, error))?;
    if answers(&mut child, place)? {
        return Ok(child);
    }
    end(std::slice::from_mut(&mut child));
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        _ = stderr.read_to_string(&mut said);
    }
    let said = if said.trim().is_empty() { "it says nothing".to_owned() } else { said.trim().to_owned() };
    Err(StartError::Silent { program: options.program.clone(), place: place.to_owned(), said })
}

fn answers(child: &mut Child, place: &str) -> Result<bool, StartError> {
    const LONGEST: Duration = Duration::from_secs(20);
    let began = Instant::now();
    let is_socket = place.starts_with('/');
    while began.elapsed() < LONGEST && !matches!(child.try_wait(), Ok(Some(_))) {
        if !is_socket || Path::new(place).exists() {
            let options = Options { deadline: Duration::from_secs(5), idle: 0 };
            let daemon = Memcached::new(Daemons::parse(&format!("memcached://{place}"))?, options)?;
            let answer = daemon.exchange(&[(0, Request::Get { name: b"verbena:start".to_vec() })]);
            // Another process on this port may have answered: the daemon that lost the port ends.
            if answer == [Some(Answer::None)] && matches!(child.try_wait(), Ok(None)) {
                return Ok(true);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}
