//! `verbena lock run`: a command, run under a lock.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command as Process, ExitCode, ExitStatus};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use verbena_client::wire::LockMode;
use verbena_client::{Hold, Locks};
use verbena_terms::Lapse;

use crate::commands::reach::Reach;
use crate::error::{Error, Result};

/// The lock was not free (EX_TEMPFAIL of sysexits.h).
pub(super) const NOT_FREE: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;
/// As shells say it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// How often it is looked whether the lock is still held: two loads and a look at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Run a command under a lock, as flock(1) does for a file, but for all machines of the cluster.
///
/// The lock is held from before the command starts until it has ended, or until this process has. The command gets the lock's name, mode
/// and fencing token in VERBENA_LOCK, VERBENA_LOCK_MODE and VERBENA_LOCK_TOKEN.
///
/// A lock can be lost while it is held: when this machine's node has had no connection to its cluster, or did not run, for as long as a
/// lease. Others may have it then, so the command is told to end (SIGTERM), and killed if it has not after --grace. A command that writes to
/// a store which compares tokens is safe even in the moment before: a smaller token than one seen is refused.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes:
  that of the command; 128 + N if signal N ended it
   75  the lock was not free (--no-wait, --timeout); another with --conflict-exit-code
   76  the lock was lost before the command had ended
  126  the command cannot be executed
  127  the command was not found
    1  2  3  as for all commands

Examples:
  verbena lock run nightly-report -- ./report.sh
  verbena lock run --no-wait cron/backup -- /usr/local/bin/backup
  verbena lock run --shared --timeout 10s catalogue -- ./export.sh")]
pub struct Command {
    /// The lock: any text of 1 to 1024 bytes. It need not be made before.
    #[arg(value_name = "NAME")]
    name: OsString,
    /// With others that hold it so, rather than alone.
    #[arg(long)]
    shared: bool,
    /// Only if the lock is free.
    #[arg(long, visible_alias = "try", conflicts_with = "timeout")]
    no_wait: bool,
    /// How long to wait for the lock. Without it as long as it takes.
    #[arg(long, value_name = "TIME")]
    timeout: Option<Lapse>,
    /// The exit code if the lock is not free.
    #[arg(long, value_name = "N", default_value_t = NOT_FREE)]
    conflict_exit_code: u8,
    /// What to do when the lock is lost: tell the command to end, or let it go on. Either way it is said, and the exit code is 76.
    #[arg(long, value_enum, default_value_t = OnLoss::End)]
    on_loss: OnLoss,
    /// How long the command has to end when the lock is lost, before it is killed.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5))]
    grace: Lapse,
    #[command(flatten)]
    reach: Reach,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// SIGTERM, and SIGKILL after the grace.
    End,
    /// Say it.
    Tell,
}

impl Command {
    /// Takes the lock, runs the command, and gives its exit code.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        let mut locks = self.reach.by(file, Locks::connect)?;
        let mode = if self.shared { LockMode::Shared } else { LockMode::Exclusive };
        let taken = match self.no_wait {
            true => locks.try_acquire(self.name.as_bytes(), mode),
            false => locks.acquire(self.name.as_bytes(), mode, self.timeout.map(|timeout| timeout.0)),
        };
        let hold = match taken {
            Err(error @ (verbena_client::Error::NotFree | verbena_client::Error::NotInTime { .. })) => {
                say(&format_args!("{}: {error}", self.name.display()));
                return Ok(ExitCode::from(self.conflict_exit_code));
            }
            other => other?,
        };
        // From this thread: the command dies with the thread that started it.
        let child = match self.start(&locks, hold) {
            Ok(child) => child,
            Err(error) => {
                let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
                say(&format_args!("cannot run {}: {error}", self.command[0].display()));
                locks.release(hold)?;
                return Ok(ExitCode::from(code));
            }
        };
        let (status, was_lost) = self.watch(&locks, hold, child)?;
        match locks.release(hold) {
            Ok(()) if !was_lost => Ok(ExitCode::from(code(status))),
            Ok(()) | Err(verbena_client::Error::Lost | verbena_client::Error::Ipc(_)) => {
                if !was_lost {
                    self.say_lost();
                }
                Ok(ExitCode::from(LOST))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn start(&self, locks: &Locks, hold: Hold) -> io::Result<Child> {
        let mode = match hold.mode() {
            LockMode::Shared => "shared",
            LockMode::Exclusive => "exclusive",
        };
        let mut process = Process::new(&self.command[0]);
        process
            .args(&self.command[1..])
            .env("VERBENA_LOCK", OsString::from_vec(self.name.as_bytes().to_vec()))
            .env("VERBENA_LOCK_MODE", mode)
            .env("VERBENA_LOCK_TOKEN", hold.token().to_string());
        let (me, socket) = (getpid(), locks.as_fd().as_raw_fd());
        let before = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The signal does not come for a death before it was asked for.
            if getppid() != Some(me) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // SAFETY: it is open: `locks` has it until the process has been started, and this runs before that.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            // Of this process and the command, the last one that ends makes the lock free.
            Ok(fcntl_setfd(socket, FdFlags::empty())?)
        };
        // SAFETY: prctl(2), getppid(2) and fcntl(2) are system calls that take no lock, and nothing there allocates: so they may stand between fork
        // and exec.
        unsafe {
            process.pre_exec(before);
        }
        process.spawn()
    }

    /// Until the command has ended. Says how, and whether the lock was lost before that.
    fn watch(&self, locks: &Locks, hold: Hold, mut child: Child) -> Result<(ExitStatus, bool)> {
        let system = |source| Error::System { doing: "watch the command", source };
        let pid = Pid::from_child(&child);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let watched = runtime.block_on(async {
            let mut ended = tokio::task::spawn_blocking(move || child.wait());
            let mut look = interval(LOOK_EVERY);
            look.set_missed_tick_behavior(MissedTickBehavior::Skip);
            // A terminal sends these two to the command as well, which decides.
            let (mut interrupted, mut quitted) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
            let (mut ending, mut hung_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
            let mut kill_at: Option<Instant> = None;
            let mut is_lost = false;
            loop {
                tokio::select! {
                    status = &mut ended => return status.map_err(io::Error::other)?.map(|status| (status, is_lost)),
                    _ = interrupted.recv() => {}
                    _ = quitted.recv() => {}
                    _ = ending.recv() => send(pid, Signal::TERM),
                    _ = hung_up.recv() => send(pid, Signal::HUP),
                    () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                        send(pid, Signal::KILL);
                        kill_at = None;
                    }
                    _ = look.tick(), if !is_lost => {
                        if !locks.is_held(&hold) {
                            is_lost = true;
                            self.say_lost();
                            if self.on_loss == OnLoss::End {
                                send(pid, Signal::TERM);
                                kill_at = Some(Instant::now() + self.grace.0);
                            }
                        }
                    }
                }
            }
        });
        watched.map_err(system)
    }

    fn say_lost(&self) {
        let name = self.name.display();
        say(&format_args!("the lock {name} was lost before the command had ended: others may have it"));
    }
}

/// It may have ended already.
fn send(to: Pid, signal: Signal) {
    let _ = kill_process(to, signal);
}

fn say(what: &dyn std::fmt::Display) {
    use std::io::Write;
    // Nobody is left to be told if standard error is gone.
    let _ = writeln!(anstream::stderr(), "verbena: {what}");
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
