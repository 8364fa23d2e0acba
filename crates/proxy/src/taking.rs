//! Whether a client takes what is sent to it.
//!
//! The kernel says that a connection can be written again when a third of its buffer is free, and the buffer grows to some megabytes: a client that takes 40 KB a second
//! gives no sign of it for half a minute. So where nothing could be written for a while, the kernel is asked how much the client has not acknowledged.

use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The least that a client takes of an answer in a second, as long as it is waited for.
const LEAST_A_SECOND: u64 = 1 << 10;

/// A socket, to be asked how much its peer has not acknowledged. For as long as the connection is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untaken(RawFd);

impl Untaken {
    pub fn of(socket: &TcpStream) -> Self {
        Untaken(socket.as_raw_fd())
    }

    /// Bytes; 0 if the kernel does not say.
    pub fn bytes(self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: it writes one number (tcp(7): SIOCOUTQ, which has the value of TIOCOUTQ), to where there is room for it. Of a descriptor that is another one by now it
        // reads a number that means nothing, or fails.
        let done = unsafe { libc::ioctl(self.0, libc::TIOCOUTQ, &mut bytes) };
        if done == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}

/// What a client had not taken at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    left: u64,
}

impl Taking {
    pub fn new(left: u64) -> Self {
        Taking { left }
    }

    /// Whether it has taken enough in this time, in which nothing more was written. What is left then counts from now on.
    pub fn goes_on(&mut self, left: u64, within: Duration) -> bool {
        let least = (LEAST_A_SECOND as f64 * within.as_secs_f64()) as u64;
        let taken = self.left.saturating_sub(left);
        self.left = left;
        taken >= least.max(1)
    }
}

/// Runs while nothing can be written, and ends when the client has taken nothing for too long.
pub(crate) struct Stall {
    sleep: Pin<Box<Sleep>>,
    taking: Taking,
}

impl Stall {
    pub fn new(socket: &TcpStream, patience: Duration) -> Self {
        let taking = Taking::new(Untaken::of(socket).bytes());
        Stall { sleep: Box::pin(tokio::time::sleep(patience)), taking }
    }

    /// Ready when the client has taken nothing for that long.
    pub fn poll(&mut self, socket: &TcpStream, patience: Duration, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if !self.taking.goes_on(Untaken::of(socket).bytes(), patience) {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(Instant::now() + patience);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_goes_on_that_takes_a_little_all_the_time() {
        let within = Duration::from_secs(15);
        let mut taking = Taking::new(4_000_000);
        assert!(taking.goes_on(3_400_000, within) && taking.goes_on(3_400_000 - 15 * 1024, within));
        assert!(!taking.goes_on(3_400_000 - 15 * 1024, within), "nothing");
        assert!(!taking.goes_on(3_400_000 - 16 * 1024, within), "a kilobyte in all this time");
        assert!(!Taking::new(0).goes_on(0, Duration::ZERO));
    }
}
