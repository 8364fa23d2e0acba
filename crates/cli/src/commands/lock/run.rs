//! `verbena lock run`: a command, run under a lock.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ExitCode};

use clap::{Args, ValueEnum};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};
use tokio::time::{MissedTickBehavior, interval, sleep};
use verbena_client::wire::LockMode;
use verbena_client::{Hold, Locks};
use verbena_terms::Lapse;

use crate::commands::child::{self, Watch};
use crate::commands::reach::Reach;
use crate::error::Result;

/// The lock was not free (EX_TEMPFAIL of sysexits.h).
pub(super) const NOT_FREE: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;

/// Run a command under a lock, as flock(1) does for a file, but for all machines of the cluster.
///
/// The lock is held from before the command starts until it has ended; if this process is killed, until the command and all that it has started have ended. The command gets the lock's name, mode
/// and fencing token in VERBENA_LOCK, VERBENA_LOCK_MODE and VERBENA_LOCK_TOKEN.
///
/// A lock can be lost while it is held: at once when this machine's node is dead; when it has had no connection to its cluster, or did not run, for as long as a
/// lease; and when it leaves (verbena node drain). Others may have it then, so the command is told to end (SIGTERM), and killed if it has not after --grace. A command that writes to
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
                child::say(&format_args!("{}: {error}", self.name.display()));
                return Ok(ExitCode::from(self.conflict_exit_code));
            }
            other => other?,
        };
        let mut watch = Watch::new()?;
        let child = match self.start(&locks, hold) {
            Ok(child) => child,
            Err(error) => {
                let code = child::not_started(&self.command[0], &error);
                locks.release(hold)?;
                return Ok(code);
            }
        };
        let was_lost = Cell::new(false);
        let loss = self.loss(&locks, hold, Pid::from_child(&child), &was_lost);
        let status = watch.until_ended(child, loss)?;
        let was_lost = was_lost.get();
        match locks.release(hold) {
            Ok(()) if !was_lost => Ok(child::exit_code(status)),
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
        let mut process = child::process(&self.command);
        process
            .env("VERBENA_LOCK", OsString::from_vec(self.name.as_bytes().to_vec()))
            .env("VERBENA_LOCK_MODE", mode)
            .env("VERBENA_LOCK_TOKEN", hold.token().to_string());
        let socket = locks.as_fd().as_raw_fd();
        let inherit = move || {
            // SAFETY: it is open: `locks` has it until the process has been started, and this runs before that.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            // Of this process and the command, the last one that ends makes the lock free.
            Ok(fcntl_setfd(socket, FdFlags::empty())?)
        };
        // SAFETY: fcntl(2) takes no lock and allocates nothing.
        unsafe { child::dies_with_us(&mut process, inherit) };
        process.spawn()
    }

    /// Looks whether the lock is lost, and then does what is to be done about it.
    async fn loss(&self, locks: &Locks, hold: Hold, command: Pid, was_lost: &Cell<bool>) {
        let mut look = interval(verbena_client::Watch::LOOKS_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while locks.is_held(&hold) {
            look.tick().await;
        }
        was_lost.set(true);
        self.say_lost();
        if self.on_loss == OnLoss::End {
            child::send(command, Signal::TERM);
            sleep(self.grace.0).await;
            child::send(command, Signal::KILL);
        }
    }

    fn say_lost(&self) {
        let name = self.name.display();
        child::say(&format_args!("the lock {name} was lost before the command had ended: others may have it"));
    }
}
