//! Signals to this process that are another one's: a command runs for the user, and what is sent to this process is meant for the command.
//!
//! A handler does not see where a signal comes from, so all signals are blocked and read from a queue (signalfd(2)), which says it of each. The
//! command starts with the signals blocked that this process had blocked, and ignores those that this process ignored (`nohup`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{
    SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGWINCH,
};
use rustix::io::Errno;
use rustix::process::Pid;

/// What the terminal sends to the command too, since it is in the same process group; and what is about this process alone.
const NOT_OF_THE_KERNEL: [i32; 8] = [SIGINT, SIGQUIT, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU, SIGCHLD, SIGPIPE];

/// Bytes of a `signalfd_siginfo` (signalfd(2)), which begins with four words: number, errno, code, and the sender's process.
const INFO_BYTES: usize = 128;

/// The signals that a thread has blocked.
#[derive(Clone, Copy, Debug)]
pub struct Mask(libc::sigset_t);

/// The signals that came and were not read.
#[derive(Debug)]
pub struct Queue {
    descriptor: OwnedFd,
    before: Mask,
}

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number (signal(7)).
    pub number: i32,
    /// The process that sent it, 0 if that is in another process namespace; nothing if the kernel or the terminal did.
    pub sender: Option<i32>,
}

impl Mask {
    /// Blocks these signals in this thread, and no others: for a process that is about to execute a command.
    ///
    /// # Errors
    /// None on Linux for a set that [`Queue::open`] made.
    pub fn restore(&self) -> io::Result<()> {
        change_mask(SIG_SETMASK, &self.0).map(drop)
    }
}

/// sigprocmask(2) of this thread; what was blocked before. Takes no lock, and allocates nothing.
fn change_mask(how: i32, set: &libc::sigset_t) -> io::Result<Mask> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `set` is initialized, and `before` has room for what is written.
    match unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) } {
        // SAFETY: it was written.
        0 => Ok(Mask(unsafe { before.assume_init() })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of(fill: impl FnOnce(*mut libc::sigset_t)) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    fill(set.as_mut_ptr());
    // SAFETY: it was written.
    unsafe { set.assume_init() }
}

impl Queue {
    /// From now on signals to this process wait here, all that can be caught. Threads that this one starts later leave them here too; earlier ones do not.
    ///
    /// # Errors
    /// No descriptor or no memory is left.
    pub fn open() -> io::Result<Queue> {
        let all = set_of(|set| {
            // SAFETY: the set is initialized.
            unsafe { libc::sigfillset(set) };
        });
        // SAFETY: the set is initialized; the descriptor that is given is new.
        let descriptor = match unsafe { libc::signalfd(-1, &all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: nothing else has it.
            descriptor => unsafe { OwnedFd::from_raw_fd(descriptor) },
        };
        Ok(Queue { descriptor, before: change_mask(SIG_BLOCK, &all)? })
    }

    /// What this thread had blocked before.
    pub fn before(&self) -> Mask {
        self.before
    }

    /// The next one, if there is one.
    ///
    /// # Errors
    /// What read(2) says; in practice it does not fail.
    pub fn next(&self) -> io::Result<Option<Arrived>> {
        let mut info = [0; INFO_BYTES];
        match rustix::io::read(&self.descriptor, &mut info) {
            Ok(_) => Ok(Some(Arrived::of(&info))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Arrived {
    fn of(info: &[u8; INFO_BYTES]) -> Arrived {
        let word = |nth: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| info[4 * nth + byte]);
            i32::from_ne_bytes([a, b, c, d])
        };
        let (number, code, process) = (word(0), word(2), word(3));
        // Of a process: SI_USER (0), SI_QUEUE, SI_TKILL (negative); of the kernel: SI_KERNEL and what is special to a signal (sigaction(2)).
        Arrived { number, sender: (code <= 0).then_some(process) }
    }

    /// Whether the command is to get it from this process: it has not got it by itself, and does not say it to itself.
    pub fn is_for(&self, command: Option<Pid>) -> bool {
        let own = std::process::id().cast_signed();
        match self.sender {
            None => !NOT_OF_THE_KERNEL.contains(&self.number),
            // SIGPIPE and the like, for what this process did.
            Some(sender) => sender != own && Some(sender) != command.map(Pid::as_raw_pid),
        }
    }

    /// Whether it asks a process to end.
    pub fn asks_to_end(&self) -> bool {
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&self.number)
    }

    /// Whether a process stops by it that does not say otherwise.
    pub fn stops(&self) -> bool {
        [SIGTSTP, SIGTTIN, SIGTTOU].contains(&self.number)
    }
}

/// Does to this process what the signal does that was taken from the queue: it stops, until SIGCONT, so that its shell sees that.
pub fn stop_by(number: i32) -> io::Result<()> {
    // SAFETY: raise(3) takes any number.
    unsafe { libc::raise(number) };
    let set = set_of(|set| {
        // SAFETY: the set is initialized, and a number of which there is no signal is not added.
        unsafe { libc::sigaddset(set, number) };
    });
    // Here it is delivered.
    let before = change_mask(SIG_UNBLOCK, &set)?;
    before.restore()
}

/// Sends it to a process, which may have ended already.
pub fn send(to: Pid, number: i32) {
    // SAFETY: kill(2) takes any numbers.
    unsafe { libc::kill(to.as_raw_pid(), number) };
}

/// Sends it to the process that a descriptor stands for, which may have ended already (pidfd_send_signal(2)).
pub fn send_by(process: &impl AsFd, number: i32) {
    let (process, number) = (libc::c_long::from(process.as_fd().as_raw_fd()), libc::c_long::from(number));
    let (no_info, no_flags): (libc::c_long, libc::c_long) = (0, 0);
    // SAFETY: without a siginfo_t it reads no memory; the descriptor is open.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, number, no_info, no_flags) };
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, getppid};

    use super::*;

    #[test]
    fn what_the_terminal_or_the_command_itself_has_sent_is_not_passed_on() {
        let by = |number, sender| Arrived { number, sender };
        let command = getppid();
        for number in 1..=64 {
            assert!(by(number, Some(1)).is_for(None) && by(number, Some(0)).is_for(command), "{number}");
            assert!(!by(number, command.map(Pid::as_raw_pid)).is_for(command), "{number}");
            assert!(!by(number, Some(getpid().as_raw_pid())).is_for(command), "{number}");
            assert_eq!(by(number, None).is_for(command), !NOT_OF_THE_KERNEL.contains(&number), "{number}");
        }
    }

    #[test]
    fn a_signal_waits_with_its_sender() {
        // In a thread of its own, which alone has it blocked and to which alone it is sent.
        let heard = std::thread::spawn(|| {
            let queue = Queue::open().unwrap();
            // SAFETY: raise(3) takes any number, and the signal is blocked.
            unsafe { libc::raise(libc::SIGUSR1) };
            let heard = [queue.next().unwrap(), queue.next().unwrap()];
            queue.before().restore().unwrap();
            heard
        });
        let own = std::process::id().cast_signed();
        assert_eq!(heard.join().unwrap(), [Some(Arrived { number: libc::SIGUSR1, sender: Some(own) }), None]);
    }
}
