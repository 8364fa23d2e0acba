//! A process that is started, stopped, killed, and started again.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use verbena_namespaces::Namespace;

/// What it is in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A helper beside a shop, home of pages.
    Home,
    /// The same, and the keeper of the cluster.
    Keeper,
    /// A shop.
    Shop,
    /// A proxy.
    Proxy,
    /// A member of etcd.
    Etcd,
}

/// Where it lives.
#[derive(Clone)]
pub struct Place {
    /// Where it runs, and where what it says is written.
    pub directory: PathBuf,
    /// Not set, that of this program.
    pub network: Option<Arc<Namespace>>,
}

/// What it does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Killed; its next life begins then.
    Down(Instant),
    /// Stopped; it goes on then.
    Paused(Instant),
    /// Asked to end; it is started again when it has. By then it must have.
    Ending(Instant),
}

/// How long one that was asked to end may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A process, over all its lives. The last one ends with it.
pub struct Process {
    pub name: String,
    pub part: Part,
    program: PathBuf,
    arguments: Vec<OsString>,
    place: Place,
    /// What it prints when it serves.
    greeting: &'static str,
    child: Child,
    /// How much of what it printed was read, and greetings in it.
    heard: Cell<(u64, usize)>,
    /// Greetings of earlier lives. Not every life comes to greet.
    greeted: usize,
    state: State,
}

impl Process {
    /// Starts it. What it says goes to files in its place.
    pub fn start(
        (name, part): (&str, Part),
        program: &Path,
        arguments: Vec<OsString>,
        place: &Place,
        greeting: &'static str,
    ) -> io::Result<Self> {
        let child = spawn(name, program, &arguments, place)?;
        Ok(Process {
            name: name.into(),
            part,
            program: program.into(),
            arguments,
            place: place.clone(),
            greeting,
            child,
            heard: Cell::new((0, 0)),
            greeted: 0,
            state: State::Running,
        })
    }

    /// Whether something can be done to it.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// Whether its present life serves.
    pub fn serves(&self) -> bool {
        self.is_running() && self.greetings() > self.greeted
    }

    fn greetings(&self) -> usize {
        let (from, known) = self.heard.get();
        let mut said = String::new();
        let read = |mut file: File| {
            file.seek(SeekFrom::Start(from))?;
            file.read_to_string(&mut said)
        };
        // What cannot be read, or ends within a letter, is read the next time.
        let _ = File::open(self.place.directory.join(format!("{}.out", self.name))).and_then(read);
        let lines = said.rfind('\n').map_or("", |end| &said[..=end]);
        let all = known + lines.matches(self.greeting).count();
        self.heard.set((from + lines.len() as u64, all));
        all
    }

    /// Kills it with -9; its next life begins after a while.
    pub fn kill(&mut self, down: Duration) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.state = State::Down(Instant::now() + down);
        Ok(())
    }

    /// Stops it for a while.
    pub fn pause(&mut self, pause: Duration) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.state = State::Paused(Instant::now() + pause);
        Ok(())
    }

    /// Asks it to end, to start it again.
    pub fn restart(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        self.state = State::Ending(Instant::now() + PATIENCE);
        Ok(())
    }

    /// Does what is due, and finds out whether it ended by itself.
    pub fn tend(&mut self) -> Result<(), String> {
        let now = Instant::now();
        match self.state {
            State::Running => match self.ended()? {
                Some(status) => Err(format!("{} ended by itself ({status})", self.name)),
                None => Ok(()),
            },
            State::Down(until) if now >= until => self.live_again(),
            State::Paused(until) if now >= until => {
                self.state = State::Running;
                self.signal(Signal::CONT).map_err(|error| format!("{} cannot go on: {error}", self.name))
            }
            State::Ending(by) => match self.ended_well()? {
                true => self.live_again(),
                false if now >= by => Err(format!("{} was asked to end, and did not", self.name)),
                false => Ok(()),
            },
            State::Down(_) | State::Paused(_) => Ok(()),
        }
    }

    /// Asks it to end for good.
    pub fn ask_to_end(&mut self) {
        // Whoever is stopped hears nothing.
        let _ = self.signal(Signal::TERM);
        let _ = self.signal(Signal::CONT);
    }

    /// Whether it ended, as it was asked to.
    pub fn ended_well(&mut self) -> Result<bool, String> {
        // When etcd is done, it ends itself by the signal that it was asked with.
        let by_signal = self.part == Part::Etcd;
        match self.ended()? {
            Some(status) if status.success() => Ok(true),
            Some(status) if by_signal && status.signal() == Some(Signal::TERM.as_raw()) => Ok(true),
            Some(status) => Err(format!("{} was asked to end, and ended badly ({status})", self.name)),
            None => Ok(false),
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| format!("{} cannot be waited for: {error}", self.name))
    }

    fn live_again(&mut self) -> Result<(), String> {
        self.greeted = self.greetings();
        self.child = spawn(&self.name, &self.program, &self.arguments, &self.place)
            .map_err(|error| format!("{} cannot be started again: {error}", self.name))?;
        self.state = State::Running;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(number.expect("invariant: the system gave this number"), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, program: &Path, arguments: &[OsString], place: &Place) -> io::Result<Child> {
    let Place { directory, network } = place;
    let naming = |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = |kind: &str| -> io::Result<File> {
        let path = directory.join(format!("{name}.{kind}"));
        OpenOptions::new().append(true).create(true).open(&path).map_err(|error| naming(&path, error))
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(file("out")?).stderr(file("log")?);
    for variable in ["VERBENA_CONFIG", "VERBENA_LOG"] {
        command.env_remove(variable);
    }
    // Nobody is left behind, however this program ends: the thread that starts them is its main one, which ends with it.
    let die_with_us = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec the closure makes one system call: it allocates nothing, takes no lock and touches no shared state.
    unsafe { command.pre_exec(die_with_us) };
    let mut spawn = || command.spawn().map_err(|error| naming(program, error));
    match network {
        Some(network) => network.visit(spawn).map_err(io::Error::other)?,
        None => spawn(),
    }
}
