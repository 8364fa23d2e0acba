//! Commands that run in a site.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command as Process, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use verbena_wan::{Plan, Site, Wan};

use crate::error::{Error, Result};

/// As shells say it.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts a command in a site. It ends with the thread that starts it.
pub fn start(wan: &Wan, site: &str, mut process: Process) -> Result<io::Result<Child>> {
    for (name, value) in environment(wan.plan(), site) {
        process.env(name, value);
    }
    let me = getpid();
    let before = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The signal does not come for a death before it was asked for.
        if getppid() == Some(me) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: prctl(2) and getppid(2) take no lock, and nothing there allocates: so they may stand between fork and exec.
    unsafe {
        process.pre_exec(before);
    }
    Ok(wan.site(site)?.visit(|| process.spawn()).map_err(verbena_wan::Error::from)?)
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

    /// Until the command has ended. A terminal sends SIGINT and SIGQUIT to it as well, and it decides; SIGTERM and SIGHUP are passed on.
    pub fn until_ended(&mut self, mut command: Child) -> Result<ExitStatus> {
        let Watch { runtime, interrupted, quitted, ending, hung_up } = self;
        let pid = Pid::from_child(&command);
        let watched = runtime.block_on(async {
            let mut ended = tokio::task::spawn_blocking(move || command.wait());
            loop {
                // It may have ended already.
                tokio::select! {
                    status = &mut ended => return status.map_err(io::Error::other)?,
                    _ = interrupted.recv() => {}
                    _ = quitted.recv() => {}
                    _ = ending.recv() => drop(kill_process(pid, Signal::TERM)),
                    _ = hung_up.recv() => drop(kill_process(pid, Signal::HUP)),
                }
            }
        });
        watched.map_err(system("watch the command"))
    }
}

/// The command and its arguments.
pub fn process(command: &[OsString]) -> Process {
    let mut process = Process::new(&command[0]);
    process.args(&command[1..]);
    process
}

/// What a command in `site` is told: where it is, and where the other sites are.
fn environment(plan: &Plan, site: &str) -> Vec<(String, String)> {
    let mut environment = vec![("VERBENA_WAN_SITE".to_owned(), site.to_owned())];
    let mut add = |name: &str, of: &Site| {
        let first = |is_ipv6| of.addresses.iter().find(|address: &&IpAddr| address.is_ipv6() == is_ipv6);
        for (family, address) in [("", first(false)), ("6", first(true))] {
            environment.extend(address.map(|address| (format!("VERBENA_WAN_{name}{family}"), address.to_string())));
        }
    };
    let others: Vec<&Site> = plan.sites.iter().filter(|other| other.name != site).collect();
    if let [other] = others[..] {
        add("PEER", other);
    }
    plan.sites.iter().filter(|own| own.name == site).for_each(|own| add("ADDRESS", own));
    for other in others {
        add(&format!("SITE_{}", other.name.replace('-', "_").to_ascii_uppercase()), other);
    }
    environment
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
