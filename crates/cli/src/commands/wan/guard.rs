//! The process that sees to it that what runs in the sites of a WAN ends with this one ([`verbena_wan::guard`]): this program again.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::setsid;
use verbena_wan::{GUARD_ARGUMENT, Wan, guard};

use crate::commands::child::{Watch, system};
use crate::error::Result;

/// The process, as who starts it has it.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Of all sites. When this process has ended, the processes in the sites have `first` to end by themselves
    /// before the guard sends them a signal.
    pub fn start(wan: &Wan, first: Duration) -> Result<Self> {
        let sites = wan.plan().sites.iter().map(|site| Ok(wan.site(&site.name)?.as_fd()));
        let sites = sites.collect::<Result<Vec<BorrowedFd<'_>>>>()?;
        let numbers: Vec<RawFd> = sites.iter().map(AsRawFd::as_raw_fd).collect();
        // This program, also if there is another one by now where it was started from.
        let mut process = Process::new("/proc/self/exe");
        process
            .arg0("verbena")
            .arg(GUARD_ARGUMENT)
            .arg(std::process::id().to_string())
            .arg(first.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        process.args(numbers.iter().map(RawFd::to_string));
        let before = move || {
            // What the terminal says is not for it, nor what is said to all of a group.
            setsid()?;
            for number in &numbers {
                // SAFETY: the process that is forked has all that this one has open, and `wan` keeps these until it has been.
                fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: setsid(2) and fcntl(2) take no lock and allocate nothing.
        unsafe { process.pre_exec(before) };
        Ok(Guard(process.spawn().map_err(system("start the process that watches this one"))?))
    }

    /// Ends what still runs there, and returns when it has.
    pub fn end(mut self) -> Result<()> {
        let failed = system("end what still runs in the sites");
        drop(self.0.stdin.take());
        match self.0.wait().map_err(&failed)? {
            status if status.success() => Ok(()),
            status => Err(failed(io::Error::other(format!("the process that does it ended with {status}")))),
        }
    }
}

/// Plays the guard, with the arguments that [`Guard::start`] gives it.
pub fn serve(told: &[OsString]) -> ExitCode {
    let number = |word: &OsString| word.to_str()?.parse::<u32>().ok();
    let numbers: Option<Vec<u32>> = told.iter().map(number).collect();
    let Some([maker, first_ms, sites @ ..]) = numbers.as_deref() else { return ExitCode::from(2) };
    // A user who ends all that bears this program's name, or all that is in a network where another WAN was made, does not
    // end this.
    let _heard = Watch::new();
    match guard(*maker, Duration::from_millis((*first_ms).into()), sites, || Ok(())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
