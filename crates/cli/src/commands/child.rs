//! Commands that this program runs for its user.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::pin;
use std::process::{Child, Command as Process, ExitCode, ExitStatus};

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, set_parent_process_death_signal,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};

use super::signals::{self, Arrived, Mask, Queue};
use crate::error::{Error, Result};

/// As shells say it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The command and its arguments.
pub fn process(command: &[OsString]) -> Process {
    let mut process = Process::new(&command[0]);
    process.args(&command[1..]);
    process
}

/// From now on the command is killed when the thread that starts it ends, and it has those signals blocked that `signals` says: this process may have blocked
/// them all ([`Watch`]).
///
/// # Safety
/// `before` runs between fork and exec: it takes no lock, and allocates nothing.
pub unsafe fn dies_with_us(
    process: &mut Process,
    signals: Mask,
    mut before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    let me = getpid();
    let before = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The signal does not come for a death before it was asked for.
        if getppid() != Some(me) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        before()?;
        signals.restore()
    };
    // SAFETY: prctl(2), getppid(2) and sigprocmask(2) take no lock and allocate nothing, nor does the rest, as the caller says.
    unsafe {
        process.pre_exec(before);
    }
}

/// Signals that this process gets, for the command that runs.
#[derive(Debug)]
pub struct Watch {
    runtime: Runtime,
    signals: Queue,
}

impl Watch {
    /// Takes them from now on: what comes before there is a command is passed on to it. This thread is the only one, or the only one that may get any.
    ///
    /// # Errors
    /// [`Error::System`]
    pub fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system("start a runtime"))?;
        Ok(Watch { runtime, signals: Queue::open().map_err(system("listen for signals"))? })
    }

    /// The signals that this process had blocked before.
    pub fn before(&self) -> Mask {
        self.signals.before()
    }

    /// Until the command has ended, and `meanwhile` this, as long as it takes. Signals are passed on to it, all that can be caught. A terminal sends its own
    /// (SIGINT, SIGQUIT, SIGTSTP) to the command as well; it gets these from here only where a process sent them.
    ///
    /// # Errors
    /// [`Error::System`]
    pub fn until_ended(&self, mut command: Child, meanwhile: impl Future<Output = ()>) -> Result<ExitStatus> {
        let pid = Pid::from_child(&command);
        let ended = async {
            let end = End::of(pid)?;
            let mut meanwhile = pin!(meanwhile);
            let mut has_more = true;
            loop {
                tokio::select! {
                    ended = end.wait() => {
                        ended?;
                        return command.wait();
                    }
                    () = &mut meanwhile, if has_more => has_more = false,
                }
            }
        };
        self.passing_on(
            |arrived| {
                if arrived.is_for(Some(pid)) {
                    signals::send(pid, arrived.number)
                }
            },
            ended,
        )
    }

    /// Until `work` is done, which is about commands: `pass_on` gets each signal. This process stops where the signal says so, after `pass_on` has it.
    ///
    /// # Errors
    /// [`Error::System`], what `work` gives for one.
    pub fn passing_on<T>(
        &self,
        mut pass_on: impl FnMut(Arrived),
        work: impl Future<Output = io::Result<T>>,
    ) -> Result<T> {
        let watched = self.runtime.block_on(async {
            // SAFETY: the queue is open for as long as it is borrowed, and nothing takes its descriptor's place.
            let signals = unsafe { AsyncFd::register_with_interest(self.signals.as_fd(), Interest::READABLE)? };
            let mut work = pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => return done,
                    ready = signals.readable() => {
                        let mut ready = ready?;
                        while let Some(arrived) = self.signals.next()? {
                            pass_on(arrived);
                            if arrived.stops() {
                                signals::stop_by(arrived.number)?;
                            }
                        }
                        ready.clear_ready();
                    }
                }
            }
        });
        watched.map_err(system("watch the command"))
    }
}

/// The end of a process that is waited for elsewhere.
#[derive(Debug)]
pub struct End(AsyncFd<OwnedFd>);

impl End {
    /// Of a child that has not been waited for. In a runtime.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(child: Pid) -> io::Result<End> {
        let process = pidfd_open(child, PidfdFlags::empty())?;
        // Readable when it has ended (pidfd_open(2)).
        // SAFETY: what is registered owns the descriptor, and nothing takes its place.
        Ok(End(unsafe { AsyncFd::register_with_interest(process, Interest::READABLE)? }))
    }

    /// Until it has ended.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut ready| ready.retain_ready())
    }
}

/// It may have ended already.
pub fn send(to: Pid, signal: Signal) {
    let _ = kill_process(to, signal);
}

/// The exit code of this program for a command that ended so.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The same for one that could not be started, which is said.
pub fn not_started(command: &OsString, error: &io::Error) -> ExitCode {
    say(&format_args!("cannot run {}: {error}", command.display()));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// To standard error.
pub fn say(what: &dyn std::fmt::Display) {
    use std::io::Write;
    // If standard error is gone, the message has no reader left.
    let _ = writeln!(anstream::stderr(), "verbena: {what}");
}

/// The system refused something to do with commands.
pub fn system(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { doing, source }
}
