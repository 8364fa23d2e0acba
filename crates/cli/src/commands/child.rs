//! Commands that this program runs for its user.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::pin;
use std::process::{Child, Command as Process, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

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

/// From now on the command is killed when the thread that starts it ends.
///
/// # Safety
/// `before` runs between fork and exec: it takes no lock, and allocates nothing.
pub unsafe fn dies_with_us(process: &mut Process, mut before: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    let me = getpid();
    let before = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The signal does not come for a death before it was asked for.
        if getppid() == Some(me) { before() } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: prctl(2) and getppid(2) take no lock and allocate nothing, nor does the rest, as the caller says.
    unsafe {
        process.pre_exec(before);
    }
}

/// Signals that this process gets, for the command that runs.
#[derive(Debug)]
pub struct Watch {
    runtime: Runtime,
    interrupted: SignalStream,
    quitted: SignalStream,
    ending: SignalStream,
    hung_up: SignalStream,
}

impl Watch {
    /// Takes them from now on: what comes before there is a command is passed on to it.
    pub fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system("start a runtime"))?;
        let inside = runtime.enter();
        let listen = |kind| signal(kind).map_err(system("listen for signals"));
        let (interrupted, quitted) = (listen(SignalKind::interrupt())?, listen(SignalKind::quit())?);
        let (ending, hung_up) = (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
        drop(inside);
        Ok(Watch { runtime, interrupted, quitted, ending, hung_up })
    }

    /// Until the command has ended, and `meanwhile` this, as long as it takes. A terminal sends SIGINT and SIGQUIT to the command as well, and it decides;
    /// SIGTERM and SIGHUP are passed on.
    pub fn until_ended(&mut self, mut command: Child, meanwhile: impl Future<Output = ()>) -> Result<ExitStatus> {
        let Watch { runtime, interrupted, quitted, ending, hung_up } = self;
        let pid = Pid::from_child(&command);
        let watched = runtime.block_on(async {
            let mut ended = tokio::task::spawn_blocking(move || command.wait());
            let mut meanwhile = pin!(meanwhile);
            let mut has_more = true;
            loop {
                tokio::select! {
                    status = &mut ended => return status.map_err(io::Error::other)?,
                    _ = interrupted.recv() => {}
                    _ = quitted.recv() => {}
                    _ = ending.recv() => send(pid, Signal::TERM),
                    _ = hung_up.recv() => send(pid, Signal::HUP),
                    () = &mut meanwhile, if has_more => has_more = false,
                }
            }
        });
        watched.map_err(system("watch the command"))
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
    // Nobody is left to be told if standard error is gone.
    let _ = writeln!(anstream::stderr(), "verbena: {what}");
}

/// The system refused something to do with commands.
pub fn system(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { doing, source }
}
