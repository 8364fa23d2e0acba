//! The processes that a command under a lock has started: the lock is kept while one of them runs, and all of them get SIGTERM when it is
//! lost.
//!
//! `verbena lock run` is the subreaper of all that it starts (prctl(2), PR_SET_CHILD_SUBREAPER): a process whose parent has ended becomes its child, so that
//! they stay one tree below it. Without any child nothing of the job is left, which is one system call to know; otherwise /proc says what is.
//!
//! A daemon lets go of the lock as with flock(1): a process that has closed the lock's descriptor, has left the session, and has lost its parent is not part
//! of the job any more, nor is what that has started.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::fs::{Mode, OFlags, fstat, open, openat};
use rustix::process::{Pid, Signal, WaitOptions, getpid, pidfd_send_signal, set_child_subreaper, wait};

use crate::commands::signals;

/// A process at one moment: its number is another one's when it has ended, so its start is looked at too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    number: i32,
    /// In ticks since the machine began (proc_pid_stat(5), starttime).
    start: u64,
    parent: i32,
    session: i32,
    has_ended: bool,
}

/// The command, and all that it has started.
#[derive(Debug)]
pub struct Job {
    command: Pid,
    /// How it ended, once that was waited for: from then on its number may be another one's.
    status: Cell<Option<ExitStatus>>,
    /// As /proc says it: 0 where the session's leader is outside of this process's namespace of processes, as of a container.
    session: i32,
    /// How a link in /proc/PID/fd names the lock's descriptor.
    descriptor: String,
    /// The processes that got SIGTERM because the lock is lost.
    told: RefCell<BTreeSet<(i32, u64)>>,
}

/// This process is to know all that it starts. Before it starts anything.
///
/// # Errors
/// What prctl(2) says: a kernel from before Linux 3.4.
pub fn adopt_all() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

impl Job {
    /// Of a command that this process has started, which has inherited `descriptor`, a socket.
    ///
    /// # Errors
    /// What fstat(2) says.
    pub fn of(command: Pid, descriptor: impl AsFd) -> io::Result<Job> {
        Ok(Job {
            command,
            status: Cell::new(None),
            // Without /proc no process can be compared with it.
            session: Process::read("self").map_or(0, |own| own.session),
            descriptor: format!("socket:[{}]", fstat(descriptor)?.st_ino),
            told: RefCell::default(),
        })
    }

    /// The command.
    pub fn command(&self) -> Pid {
        self.command
    }

    /// How the command ended, if it has: as [`reap`](Self::reap) found it.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status.get()
    }

    /// Waits for those children that have ended, adopted ones too. Says whether any is left.
    ///
    /// # Errors
    /// What wait(2) says otherwise.
    pub fn reap(&self) -> io::Result<bool> {
        loop {
            // In whatever process group they are, which waitpid(None) does not.
            match wait(WaitOptions::NOHANG) {
                Ok(None) => return Ok(true),
                Err(rustix::io::Errno::CHILD) => return Ok(false),
                Ok(Some((child, status))) if child == self.command => {
                    self.status.set(Some(ExitStatus::from_raw(status.as_raw())));
                }
                Ok(Some(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The numbers of the processes of the job that run.
    pub fn left(&self) -> Vec<i32> {
        self.members().iter().map(|process| process.number).collect()
    }

    /// Passes a signal on: to the command, which decides what it means for the others; once that has ended to all that it has left.
    pub fn pass_on(&self, number: i32) {
        if self.status.get().is_none() {
            return signals::send(self.command, number);
        }
        for process in self.members() {
            process.pass_on(number);
        }
    }

    /// Ends all by SIGTERM, each process once, however often this is called: a process that was started meanwhile gets it at the next call.
    pub fn end(&self) {
        let members = self.members();
        if members.is_empty() && self.status.get().is_none() && self.told.borrow_mut().insert((0, 0)) {
            // There is no /proc.
            signals::send(self.command, libc::SIGTERM);
        }
        for process in members {
            if self.told.borrow_mut().insert((process.number, process.start)) {
                // A process that does not let us is named when it is to be killed.
                let _ = process.signal(Signal::TERM);
            }
        }
    }

    /// Kills all, and says of which process the system does not let it: of another user for one.
    pub fn kill(&self) -> Vec<(i32, io::Error)> {
        let refused = |process: Process| process.signal(Signal::KILL).err().map(|error| (process.number, error));
        let members = self.members();
        if members.is_empty() && self.status.get().is_none() {
            signals::send(self.command, libc::SIGKILL);
        }
        members.into_iter().filter_map(refused).collect()
    }

    fn members(&self) -> Vec<Process> {
        self.members_of(getpid().as_raw_pid(), &processes(), |process| process.has_open(&self.descriptor))
    }

    /// Those of `all` below the process `top` that are of the job.
    fn members_of(&self, top: i32, all: &[Process], holds: impl Fn(&Process) -> bool) -> Vec<Process> {
        let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
        for process in all {
            children.entry(process.parent).or_default().push(process);
        }
        let mut members = vec![];
        // With whether the parent is of the job.
        let mut open: Vec<(&Process, bool)> =
            children.remove(&top).into_iter().flatten().map(|child| (child, false)).collect();
        while let Some((process, by_parent)) = open.pop() {
            let is_command = self.status.get().is_none() && process.number == self.command.as_raw_pid();
            let is_member = by_parent || is_command || process.session == self.session || holds(process);
            if is_member && !process.has_ended {
                members.push(*process);
            }
            // Each is taken out once: numbers that changed their owner while they were read make no circle.
            let below = children.remove(&process.number).into_iter().flatten();
            open.extend(below.map(|child| (child, is_member)));
        }
        members
    }
}

impl Process {
    /// From /proc/NAME/stat, if there is such a process.
    fn read(name: &str) -> Option<Process> {
        // Another user's name may be no text.
        Process::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{name}/stat")).ok()?))
    }

    /// From the text of /proc/PID/stat (proc_pid_stat(5)); the name in it may have anything in it but its last parenthesis.
    fn parse(text: &str) -> Option<Process> {
        let number = text.split(' ').next()?.parse().ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        // Field 3, and those behind it by their distance from the one before.
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        let threads: i64 = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        // A process whose first thread alone has ended goes on.
        let has_ended = matches!(state, "Z" | "X" | "x") && threads <= 1;
        Some(Process { number, start, parent, session, has_ended })
    }

    /// Whether one of its descriptors is this. Yes where the system does not say: of another user's process.
    fn has_open(&self, descriptor: &str) -> bool {
        match fs::read_dir(format!("/proc/{}/fd", self.number)) {
            Ok(entries) => entries
                .flatten()
                .any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == descriptor)),
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// Sends it a signal, if it is there still.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(directory) = self.directory() else { return Ok(()) };
        match pidfd_send_signal(directory, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same with any number.
    fn pass_on(&self, number: i32) {
        if let Some(directory) = self.directory() {
            signals::send_by(&directory, number);
        }
    }

    /// Its directory in /proc, which is this process's for good.
    fn directory(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = open(format!("/proc/{}", self.number), flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        let mut text = vec![];
        File::from(openat(&directory, "stat", flags, Mode::empty()).ok()?).read_to_end(&mut text).ok()?;
        (Process::parse(&String::from_utf8_lossy(&text))?.start == self.start).then_some(directory)
    }
}

/// All of the machine that this process may see.
fn processes() -> Vec<Process> {
    let stat = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number: u32 = name.to_str()?.parse().ok()?;
        Process::read(&number.to_string())
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(stat).collect()
}

/// The processes that this one was started by, its parent first.
pub fn ancestors() -> Vec<u32> {
    let mut found = vec![];
    let mut next = std::process::id();
    while let Some(process) = Process::read(&next.to_string()) {
        next = process.parent.cast_unsigned();
        if next == 0 || found.contains(&next) {
            break;
        }
        found.push(next);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: i32, parent: i32, session: i32) -> Process {
        Process { number, start: 0, parent, session, has_ended: false }
    }

    fn job(status: Option<ExitStatus>) -> Job {
        let command = Pid::from_raw(20).unwrap();
        Job { command, status: Cell::new(status), session: 1, descriptor: String::new(), told: RefCell::default() }
    }

    fn members(job: &Job, all: &[Process], holders: &[i32]) -> Vec<i32> {
        let found = job.members_of(10, all, |process| holders.contains(&process.number));
        let mut found: Vec<i32> = found.iter().map(|process| process.number).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_job_is_what_is_below_and_has_not_let_go() {
        let all = [
            process(10, 2, 1),
            process(11, 2, 1),
            // The command began a session of its own, and what it started another one.
            process(20, 10, 20),
            process(21, 20, 21),
            // What lost its parent: in the session; a daemon that kept the descriptor; one that let go, with a child, and a grandchild that did not let go.
            process(30, 10, 1),
            process(31, 10, 31),
            process(32, 10, 32),
            process(33, 32, 32),
            process(34, 33, 34),
            Process { has_ended: true, ..process(35, 10, 1) },
            process(36, 35, 36),
        ];
        assert_eq!(members(&job(None), &all, &[31, 34]), [20, 21, 30, 31, 34, 36]);
        let ended = job(Some(ExitStatus::from_raw(0)));
        assert_eq!(members(&ended, &all[4..], &[31]), [30, 31, 36]);
        // Numbers that were read while they changed their owners make no circle.
        let circle = [process(30, 10, 1), process(31, 32, 1), process(32, 31, 1), process(10, 30, 1)];
        assert_eq!(members(&ended, &circle, &[]), [10, 30]);
    }

    #[test]
    fn a_process_is_read_from_proc_whatever_its_name() {
        let text = "4711 (a) b (c)) Z 12 13 14 34816 13 4194304 1 2 3 4 5 6 7 8 20 -5 3 0 987654 1 2";
        let read = Process { number: 4711, start: 987_654, parent: 12, session: 14, has_ended: false };
        assert_eq!(Process::parse(text), Some(read), "its first thread alone has ended");
        assert_eq!(Process::parse("4711 (a)"), None);
        let own = processes().into_iter().find(|process| process.number == getpid().as_raw_pid()).unwrap();
        assert!(own.directory().is_some() && Process { start: own.start + 1, ..own }.directory().is_none());
        assert_eq!(ancestors().first().map(|parent| parent.cast_signed()), Some(own.parent));
    }
}
