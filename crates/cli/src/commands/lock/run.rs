//! `verbena lock run`: a command, run under a lock.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;
use tokio::time::{MissedTickBehavior, interval};
use verbena_client::wire::LockMode;
use verbena_client::{Error as Refusal, Hold, Locks};
use verbena_terms::Lapse;

use super::job::{self, Job};
use crate::commands::child::{self, End, Watch};
use crate::commands::reach::Reach;
use crate::commands::signals::{Arrived, Mask};
use crate::error::Result;

/// The lock was not free (EX_TEMPFAIL of sysexits.h).
pub(super) const NOT_FREE: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;

/// The variable that says under which lock a command runs.
const SURROUNDING: &str = "VERBENA_LOCK";
/// How long a lock is waited for before it is looked whether the wait can end at all. A free one comes sooner.
const NESTED_WAIT: Duration = Duration::from_millis(50);
/// How often /proc is read while something of the job is left.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// How long a process that is killed has to be gone.
const GONE: Duration = Duration::from_secs(2);
/// How long something of the job goes on before it is said: a pipe's other end takes a moment to end.
const NAMED_AFTER: Duration = Duration::from_secs(1);
/// Processes that a message names.
const MOST_NAMED: usize = 5;

/// Run a command under a lock, as flock(1) does for a file, but for all machines of the cluster.
///
/// The lock is held from before the command starts until the command and all that it has started have ended. A process that goes on when the command has ended is named, and
/// waited for. A daemon lets go of the lock: a process that has left the session and has closed the descriptor that it inherits. If this process is killed, the command is too, and the
/// lock is held until no process has that descriptor. The command gets the lock's name, mode and fencing token in VERBENA_LOCK, VERBENA_LOCK_MODE and VERBENA_LOCK_TOKEN.
///
/// All signals that can be caught are passed on to the command; SIGINT and SIGQUIT only where a process sent them, since a terminal sends its own to the
/// command too. When the command has ended, signals go to all processes that it has left, also the last one that asked the command to end.
///
/// A lock can be lost while it is held: at once when this machine's node is dead; when it has had no connection to its cluster, or did not run, for as long as
/// a lease; and when it leaves (verbena node drain). Others may hold it then, so the command and all that it has started get SIGTERM, and SIGKILL if they have
/// not ended after --grace. A command that writes to a store which compares tokens is safe even in the moment before: the store refuses a token smaller than
/// one that it has seen.
#[derive(Args, Debug)]
#[command(
    override_usage = "verbena lock run [OPTIONS] <NAME> -- <COMMAND>...\n       verbena lock run [OPTIONS] -- <-NAME> -- <COMMAND>...",
    after_long_help = "\
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
  verbena lock run --start nightly-report -- ./report.sh
  verbena lock run --shared --timeout 10s catalogue -- ./export.sh
  verbena lock run -- -x -- ./name-with-a-dash.sh"
)]
pub struct Command {
    /// The lock's name: any text of 1 to 1024 bytes. A lock need not be made before. Write a name that begins with - after a first --.
    #[arg(value_name = "NAME")]
    name: Option<OsString>,
    /// Acquire the lock in shared (reader) mode.
    #[arg(long)]
    shared: bool,
    /// Do not wait: run the command only if the lock is free.
    #[arg(long, visible_alias = "try", conflicts_with = "timeout")]
    no_wait: bool,
    /// How long to wait for the lock, such as 5 (seconds), 1.5s or 2m. Without it, as long as it takes.
    #[arg(long, value_name = "TIME", value_parser = Lapse::or_seconds)]
    timeout: Option<Lapse>,
    /// The exit code if the lock is not free.
    #[arg(long, value_name = "N", default_value_t = NOT_FREE)]
    conflict_exit_code: u8,
    /// What to do when the lock is lost: end the command and all that it has started, or let them go on. Either way standard error says it, and the exit code is 76.
    #[arg(long, value_enum, default_value_t = OnLoss::End)]
    on_loss: OnLoss,
    /// How long the command and all that it has started have to end when the lock is lost, before they are killed.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5), value_parser = Lapse::or_seconds)]
    grace: Lapse,
    /// Start a helper (`verbena node`) where none runs. It goes on when this command has ended, until `verbena node drain` or a signal ends it; its log is beside its socket.
    #[arg(long)]
    start: bool,
    #[command(flatten)]
    reach: Reach,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// Send SIGTERM, and SIGKILL after --grace.
    End,
    /// Only say it.
    Tell,
}

impl Command {
    /// Takes the lock, runs the command, and gives its exit code.
    pub fn run(mut self, file: Option<&Path>) -> Result<ExitCode> {
        let (name, command) = name_and_command(self.name.take(), std::mem::take(&mut self.command))?;
        super::check_name(&name)?;
        let mut locks = match self.start {
            true => self.reach.by_or_start(file, Locks::connect)?,
            false => self.reach.by(file, Locks::connect)?,
        };
        let hold = match self.take(&mut locks, name.as_bytes()) {
            Err(error @ (Refusal::NotFree | Refusal::NotInTime { .. })) => {
                child::say(&format_args!("{}: {error}", name.display()));
                return Ok(ExitCode::from(self.conflict_exit_code));
            }
            other => other?,
        };
        let watch = Watch::new()?;
        job::adopt_all().map_err(child::system("adopt what the command starts"))?;
        let child = match start(&locks, hold, &name, &command, watch.before()) {
            Ok(child) => child,
            Err(error) => {
                let code = child::not_started(&command[0], &error);
                locks.release(hold)?;
                return Ok(code);
            }
        };
        let pid = Pid::from_child(&child);
        let job = Job::of(pid, &locks).map_err(child::system("watch the command"))?;
        let asked_to_end = Cell::new(None);
        let pass_on = |arrived: Arrived| {
            if arrived.is_for(Some(pid)) {
                asked_to_end.set(arrived.asks_to_end().then_some(arrived.number).or(asked_to_end.get()));
                job.pass_on(arrived.number);
            }
        };
        let status = watch.passing_on(pass_on, self.until_ended(&locks, &hold, &name, &job, &asked_to_end))?;
        match (locks.release(hold), status) {
            (Ok(()), Some(status)) => Ok(child::exit_code(status)),
            (Ok(()) | Err(Refusal::Lost | Refusal::Ipc(_)), status) => {
                if status.is_some() {
                    say_lost(&name);
                }
                Ok(ExitCode::from(LOST))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn take(&self, locks: &mut Locks, name: &[u8]) -> verbena_client::Result<Hold> {
        let mode = if self.shared { LockMode::Shared } else { LockMode::Exclusive };
        let at_most = self.timeout.map(|timeout| timeout.0);
        if self.no_wait {
            return locks.try_acquire(name, mode);
        }
        if std::env::var_os(SURROUNDING).is_none() || at_most.is_some_and(|at_most| at_most.is_zero()) {
            return locks.acquire(name, mode, at_most);
        }
        let (wish, began) = (locks.ask(name, mode)?, Instant::now());
        if let Some(hold) = locks.wait(&wish, Some(at_most.map_or(NESTED_WAIT, |most| most.min(NESTED_WAIT))))? {
            return Ok(hold);
        }
        if let Some(holder) = held_around(locks, name)? {
            locks.give_up(wish)?;
            let circle = format!(
                "{} is held by the `lock run` around this one (process {holder}), which ends after this one",
                name.escape_ascii()
            );
            return Err(Refusal::Deadlock { circle });
        }
        match locks.wait(&wish, at_most.map(|at_most| at_most.saturating_sub(began.elapsed())))? {
            Some(hold) => Ok(hold),
            None => {
                locks.give_up(wish)?;
                Err(Refusal::NotInTime { waited: at_most.unwrap_or_default() })
            }
        }
    }

    /// Until nothing of the job is left; how the command ended. Nothing: the lock was lost, and all was done about it.
    async fn until_ended(
        &self,
        locks: &Locks,
        hold: &Hold,
        name: &OsStr,
        job: &Job,
        asked_to_end: &Cell<Option<i32>>,
    ) -> io::Result<Option<ExitStatus>> {
        // Without a descriptor for it the end is seen by the next look.
        let end = End::of(job.command()).ok();
        let mut look = interval(verbena_client::Watch::LOOKS_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut lost, mut looked): (Option<Instant>, Option<Instant>) = (None, None);
        let mut rest = Rest::default();
        loop {
            let has_children = job.reap()?;
            if lost.is_none() && !locks.is_held(hold) {
                lost = Some(Instant::now());
                say_lost(name);
            }
            let ends = lost.filter(|_| self.on_loss == OnLoss::End);
            match job.status() {
                Some(status) if !has_children => return Ok(lost.is_none().then_some(status)),
                Some(_) if lost.is_some() && ends.is_none() => return Ok(None),
                _ => {}
            }
            // A loss is handled at once; besides, reading all of /proc 20 times a second is enough.
            let is_time = looked.is_none_or(|looked| looked.elapsed() >= LOOKS_EVERY) || looked < ends;
            if is_time && (ends.is_some() || job.status().is_some()) {
                looked = Some(Instant::now());
                if let Some(lost) = ends {
                    job.end();
                    if lost.elapsed() >= self.grace.0 && kill(job, lost.elapsed() >= self.grace.0 + GONE) {
                        return Ok(None);
                    }
                }
                if let Some(status) = job.status() {
                    let left = job.left();
                    if left.is_empty() {
                        return Ok(lost.is_none().then_some(status));
                    }
                    if lost.is_none() {
                        rest.goes_on(name, job, &left, asked_to_end.get());
                    }
                }
            }
            let ended = async {
                match &end {
                    Some(end) => end.wait().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                ended = ended, if job.status().is_none() => ended?,
                _ = look.tick() => {}
            }
        }
    }
}

/// The name and the command of `verbena lock run NAME -- COMMAND`. A name that begins with `-` is taken for an option there; it is said behind
/// the first `--`, with another one before the command: `verbena lock run -- -x -- COMMAND`.
///
/// # Errors
/// There is no name, or no command.
fn name_and_command(
    name: Option<OsString>,
    mut command: Vec<OsString>,
) -> Result<(OsString, Vec<OsString>), clap::Error> {
    if let Some(name) = name {
        return Ok((name, command));
    }
    if command.len() > 2 && command[0].as_bytes().starts_with(b"-") && command[1] == "--" {
        let rest = command.split_off(2);
        return Ok((command.swap_remove(0), rest));
    }
    let problem = "a name is missing before `--`; one that begins with - is said behind it, as in `-- -x -- COMMAND`\n";
    Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, problem))
}

/// What goes on when the command has ended.
#[derive(Default)]
struct Rest {
    since: Option<Instant>,
    is_named: bool,
}

impl Rest {
    /// Tells it what the command was asked, once, and the user that it goes on, once it has for a while.
    fn goes_on(&mut self, name: &OsStr, job: &Job, left: &[i32], asked_to_end: Option<i32>) {
        let since = *self.since.get_or_insert_with(|| {
            asked_to_end.into_iter().for_each(|number| job.pass_on(number));
            Instant::now()
        });
        if since.elapsed() >= NAMED_AFTER && !std::mem::replace(&mut self.is_named, true) {
            let (name, some) = (name.display(), numbers(left));
            child::say(&format_args!(
                "the command has ended; what it has started goes on, under the lock {name}: {some}"
            ));
        }
    }
}

/// Kills all of the job. Returns `is_last`: the job was killed for long enough. Then this prints which processes are left.
fn kill(job: &Job, is_last: bool) -> bool {
    let refused = job.kill();
    if is_last {
        for (process, error) in &refused {
            child::say(&format_args!("process {process} cannot be killed: {error}"));
        }
        let left = job.left();
        if !left.is_empty() {
            child::say(&format_args!("killed, and not gone: {}", numbers(&left)));
        }
    }
    is_last
}

fn numbers(processes: &[i32]) -> String {
    let mut named: Vec<_> = processes.iter().take(MOST_NAMED).map(|number| format!("process {number}")).collect();
    if processes.len() > MOST_NAMED {
        named.push(format!("{} more", processes.len() - MOST_NAMED));
    }
    named.join(", ")
}

fn say_lost(name: &OsStr) {
    let name = name.display();
    child::say(&format_args!("the lock {name} was lost before the command had ended: others may have it"));
}

fn start(locks: &Locks, hold: Hold, name: &OsStr, command: &[OsString], signals: Mask) -> io::Result<Child> {
    let mode = match hold.mode() {
        LockMode::Shared => "shared",
        LockMode::Exclusive => "exclusive",
    };
    let mut process = child::process(command);
    process.env(SURROUNDING, name).env("VERBENA_LOCK_MODE", mode).env("VERBENA_LOCK_TOKEN", hold.token().to_string());
    let socket = locks.as_fd().as_raw_fd();
    let inherit = move || {
        // SAFETY: it is open: `locks` has it until the process has been started, and this runs before that.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        // Of this process and the command, the last one that ends makes the lock free.
        Ok(fcntl_setfd(socket, FdFlags::empty())?)
    };
    // SAFETY: fcntl(2) takes no lock and allocates nothing.
    unsafe { child::dies_with_us(&mut process, signals, inherit) };
    process.spawn()
}

/// The process of a `lock run` that holds this lock and that this process was started by: it holds the lock until this process has ended.
fn held_around(locks: &mut Locks, name: &[u8]) -> verbena_client::Result<Option<u32>> {
    let ancestors = job::ancestors();
    let own = std::process::id();
    let program = |process: u32| fs::metadata(format!("/proc/{process}/exe")).map(|file| (file.dev(), file.ino())).ok();
    let list = locks.list(name)?;
    // Numbers of processes are of one machine: of the node at which this process waits.
    let here = list.locks.iter().filter(|at| at.name == name);
    let here = here.filter(|at| at.more_waiting > 0 || at.waiting.iter().any(|user| user.pid == own));
    let holders = here.flat_map(|at| at.holders.iter().map(|holder| holder.pid));
    // Another program may release it whenever it likes.
    let mut found = holders.filter(|holder| ancestors.contains(holder) && program(*holder) == program(own));
    Ok(found.next())
}
