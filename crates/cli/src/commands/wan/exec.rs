//! `verbena wan exec`: a command in a site.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::fs::fstat;
use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::AsyncReadExt;
use tokio::time::sleep;
use verbena_namespaces::Namespace;

use super::control::{Answer, Name, Request};
use super::start::spawn;
use crate::commands::child::{self, Watch, system};
use crate::error::{Error, Result};

/// How long a command has to end when its WAN has ended.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Run a command in a site of a WAN that is up.
///
/// VERBENA_WAN_SITE has the name of the command's site, and VERBENA_WAN_ADDRESS and VERBENA_WAN_ADDRESS6 its addresses. VERBENA_WAN_SITE_TOKYO and
/// VERBENA_WAN_SITE_TOKYO6 have those of a site tokyo, and where there is one other site, VERBENA_WAN_PEER and VERBENA_WAN_PEER6 have them too. The names of
/// the sites are names of hosts there, too: `ping tokyo`. Signals are passed on to the command, as by `verbena wan run`. When the WAN ends, the command gets
/// SIGTERM, and SIGKILL two seconds later.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes:
  that of the command; 128 + N if signal N ended it
  126  the command cannot be executed
  127  the command was not found
    3  no WAN of this name is up
    1  2  as for all commands

Examples:
  verbena wan exec paris -- ping -c 3 tokyo
  verbena wan exec tokyo -- iperf3 -s")]
pub struct Command {
    /// The name of the site.
    #[arg(value_name = "SITE")]
    site: String,
    #[command(flatten)]
    name: Name,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Command {
    /// Runs the command, and gives its exit code.
    pub fn run(self) -> Result<ExitCode> {
        let mut connection = self.name.connect()?;
        let (answer, descriptors) = connection.ask(&self.name, &Request::Enter { site: self.site.clone() })?;
        let (Answer::Site(place), Ok([network, owner])) = (answer, <[_; 2]>::try_from(descriptors)) else {
            return Err(Error::Refused {
                problem: "the process that keeps the WAN up is of another version".into(),
                exit_code: 1,
            });
        };
        // While this thread is the only one.
        become_owner(owner.as_fd())?;
        Namespace::from(network).join().map_err(verbena_wan::Error::from)?;
        // Before there is anything that a signal would leave behind.
        let watch = Watch::new()?;
        let names = place.names();
        let running = match spawn(child::process(&self.command), place, names.as_ref(), watch.before()) {
            Ok(running) => running,
            Err(error) => return Ok(child::not_started(&self.command[0], &error)),
        };
        let pid = Pid::from_child(&running);
        let stream = connection.into();
        Ok(child::exit_code(watch.until_ended(running, self.end_with_the_wan(stream, pid))?))
    }

    async fn end_with_the_wan(&self, stream: UnixStream, command: Pid) {
        let watched = stream.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(stream));
        if let Ok(mut stream) = watched {
            // Nothing more is said on it.
            let _ = stream.read(&mut [0]).await;
        }
        child::say(&format_args!("the WAN {} has ended: so does the command", self.name.name));
        child::send(command, Signal::TERM);
        sleep(GRACE).await;
        child::send(command, Signal::KILL);
    }
}

/// Enters the user namespace that the network belongs to, where this process is not in it: a WAN that was not made by root has one of its own.
fn become_owner(owner: BorrowedFd<'_>) -> Result<()> {
    let failed = system("enter the WAN's user namespace");
    let own = File::open("/proc/self/ns/user").map_err(&failed)?;
    let identity = |file: BorrowedFd<'_>| {
        fstat(file).map(|found| (found.st_dev, found.st_ino)).map_err(|error| failed(error.into()))
    };
    if identity(own.as_fd())? == identity(owner)? {
        return Ok(());
    }
    move_into_link_name_space(owner, Some(LinkNameSpaceType::User)).map_err(|error| failed(error.into()))
}
