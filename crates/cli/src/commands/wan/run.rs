//! `verbena wan run`: a command on one side of a link, and another one on the other.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use verbena_namespaces::Namespace;
use verbena_wan::router::Mode;
use verbena_wan::{Plan, Wan};

use super::guard::Guard;
use super::names::Names;
use super::options::{BackendArguments, LinkOptions};
use super::report::Report;
use super::start::{Place, start};
use crate::commands::child::{self, Watch};
use crate::commands::signals::Mask;
use crate::error::Result;
use crate::namespaces::may_make_networks;
use crate::output::{Format, output, write_json};

/// The two sites.
const HERE: &str = "a";
const THERE: &str = "b";
/// How long the peer has to listen before the command is started, and to end after it has.
const PEER_STARTS: Duration = Duration::from_secs(2);
const PEER_ENDS: Duration = Duration::from_secs(2);

/// Run a command in a network of its own, with an emulated link to another one.
///
/// Two sites are made, a and b, with one link between them; COMMAND runs in a. The options hold for each way: with --delay 10ms a ping takes
/// 20 ms. The sites end with this process, also if it is killed: what still runs in them gets SIGTERM, and SIGKILL three
/// seconds later. The sites reach no other network, and nothing of this machine.
///
/// VERBENA_WAN_SITE has the name of a command's site, VERBENA_WAN_ADDRESS and VERBENA_WAN_ADDRESS6 its addresses, and VERBENA_WAN_PEER and VERBENA_WAN_PEER6
/// those of the other site (10.77.0.1 and fd77::1 for a, 10.77.0.2 and fd77::2 for b). The names of the sites are names of hosts there, too: `ping b`.
///
/// All signals that can be caught are passed on to COMMAND; SIGINT and SIGQUIT only where a process sent them, since a terminal sends its own to COMMAND too.
///
/// Without root this works where user namespaces may be made; COMMAND then sees itself as root, and is not. It needs the command `ip` (package iproute2).
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes:
  that of the command; 128 + N if signal N ended it
  126  the command cannot be executed
  127  the command was not found
    1  2  as for all commands

Examples:
  verbena wan run --delay 10ms -- ping -c 3 b
  verbena wan run --km 2000 --loss 0.1% --peer 'iperf3 -s' -- sh -c 'iperf3 -c $VERBENA_WAN_PEER'
  verbena wan run --there 'delay=5ms rate=2mbit' --back 'delay=5ms rate=50mbit' --verbose -- ./test.sh")]
pub struct Command {
    /// A shell command that runs in b, from before COMMAND starts until COMMAND has ended. COMMAND starts when something listens in b, or after two
    /// seconds. What the shell command prints goes to standard error.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<OsString>,
    #[command(flatten)]
    backend: BackendArguments,
    /// Say at the end on standard error what the link did: drops by cause, and how long packets took.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    link: LinkOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Command {
    /// Makes the networks, runs the command, and gives its exit code.
    pub fn run(self) -> Result<ExitCode> {
        let plan = Plan { backend: self.backend.backend()?, ..Plan::two_sites(self.link.ways()?, Mode::default(), 1) };
        plan.check().map_err(verbena_wan::Error::from)?;
        // While this thread is the only one: a process of several cannot have a user namespace of its own.
        may_make_networks()?;
        // Before there is anything that a signal would leave behind.
        let watch = Watch::new()?;
        let wan = Wan::up(plan)?;
        let guard = Guard::start(&wan, Duration::ZERO)?;
        let began = Instant::now();
        let names = Place::of(wan.plan(), HERE).names();
        let peer = self.peer.as_ref().map(|peer| start_peer(&wan, peer, names.as_ref(), watch.before())).transpose()?;
        let code = match start(&wan, HERE, child::process(&self.command), names.as_ref(), watch.before())? {
            Ok(command) => child::exit_code(watch.until_ended(command, async {})?),
            Err(error) => child::not_started(&self.command[0], &error),
        };
        if let Some(peer) = peer {
            end(peer)?;
        }
        let report = Report::of(&wan, began)?;
        guard.end()?;
        if self.format.json {
            write_json(&mut output(), &report)?;
        }
        if self.verbose {
            report.print(&mut anstream::stderr())?;
        }
        Ok(code)
    }
}

fn start_peer(wan: &Wan, command: &OsString, names: Option<&Names>, signals: Mask) -> Result<Child> {
    let mut process = Process::new("/bin/sh");
    // A group of its own, so that all that it starts can be ended. What COMMAND prints is left alone.
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(child::system("share standard error"))?;
    process.arg("-c").arg(command).stdin(Stdio::null()).stdout(stderr).process_group(0);
    let mut peer = start(wan, THERE, process, names, signals)?.map_err(child::system("run /bin/sh"))?;
    let began = Instant::now();
    let network = wan.site(THERE)?;
    while began.elapsed() < PEER_STARTS && !somebody_listens(network)? {
        if let Some(status) = peer.try_wait().map_err(child::system("watch the peer"))? {
            child::say(&format_args!("the peer has ended: {status}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(peer)
}

/// Whether a socket of TCP listens in this network, or one of UDP waits for any sender.
fn somebody_listens(network: &Namespace) -> Result<bool> {
    // The fourth field is the state, of proc(5): 0A listens, and 07 is a UDP socket that is not connected.
    let has = |table: &str, state: &str| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some(state))
    };
    let listens = || {
        [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")].iter().any(|(table, state)| has(table, state))
    };
    Ok(network.enter(listens).map_err(verbena_wan::Error::from)?)
}

fn end(mut peer: Child) -> Result<()> {
    let group = Pid::from_child(&peer);
    let began = Instant::now();
    // Either may find it gone.
    let _ = kill_process_group(group, Signal::TERM);
    let system = child::system("watch the peer");
    while peer.try_wait().map_err(&system)?.is_none() {
        if began.elapsed() > PEER_ENDS {
            let _ = kill_process_group(group, Signal::KILL);
            peer.wait().map_err(&system)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
