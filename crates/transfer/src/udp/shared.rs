//! A stream as the thread of its socket and those that read and write share it.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use verbena_terms::{BootClock, Clock, Time};

use super::machine::Datagrams;
use crate::channel::{Channel, Ends, LinkCounts};
use crate::channel_kind::ChannelKind;

/// How long the other side may take to acknowledge what was sent last, and the thread to say that this side has closed.
pub(crate) const FAREWELL: Duration = Duration::from_secs(60);
const CLOSING: Duration = Duration::from_millis(100);

/// Wakes the thread of a socket.
#[derive(Clone, Debug)]
pub(crate) struct Waker(pub Arc<OwnedFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        // A counter that is full has woken it already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    machine: Mutex<Datagrams>,
    /// Bytes have come; there is room; what a caller waits for may be so. All three: it has ended.
    readable: Condvar,
    writable: Condvar,
    changed: Condvar,
    waker: Waker,
    /// When nothing of this process used it any more.
    left: Mutex<Option<Time>>,
}

impl Shared {
    pub(crate) fn new(waker: Waker, now: Time) -> Shared {
        Shared {
            machine: Mutex::new(Datagrams::new(now)),
            readable: Condvar::new(),
            writable: Condvar::new(),
            changed: Condvar::new(),
            waker,
            left: Mutex::new(None),
        }
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Datagrams> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those whose wait is over.
    pub(crate) fn notify(&self, machine: &Datagrams) {
        let is_over = machine.error().is_some();
        if machine.has_bytes() || machine.is_at_end() || is_over {
            self.readable.notify_all();
        }
        if machine.has_room() || is_over {
            self.writable.notify_all();
        }
        self.changed.notify_all();
    }

    /// Whether and when nothing of this process used it any more.
    pub(crate) fn left(&self) -> Option<Time> {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the machine says so, or has ended. False if it did not for so long.
    pub(crate) fn wait(&self, most: Duration, is_so: impl Fn(&Datagrams) -> bool) -> bool {
        let ends = Instant::now() + most;
        let mut machine = self.machine();
        loop {
            let rest = ends.saturating_duration_since(Instant::now());
            if is_so(&machine) || machine.error().is_some() || rest.is_zero() {
                return is_so(&machine);
            }
            machine = self.changed.wait_timeout(machine, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut machine = self.machine();
        loop {
            let read = machine.read(buffer);
            if read > 0 {
                if machine.is_grant_due() {
                    self.waker.wake();
                }
                return Ok(read);
            }
            if machine.is_at_end() || buffer.is_empty() {
                return Ok(0);
            }
            if let Some(error) = machine.error() {
                return Err(Error::new(ErrorKind::ConnectionAborted, error));
            }
            machine = self.readable.wait(machine).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut machine = self.machine();
        loop {
            if let Some(error) = machine.error() {
                return Err(Error::new(ErrorKind::ConnectionAborted, error));
            }
            let written = machine.write(bytes);
            if written > 0 || bytes.is_empty() {
                self.waker.wake();
                return Ok(written);
            }
            machine = self.writable.wait(machine).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says that nothing follows, and waits until the other side has everything.
    fn finish(&self) {
        self.machine().finish();
        self.waker.wake();
        self.wait(FAREWELL, Datagrams::is_delivered);
    }

    /// Ends it, and waits until the packet has gone that says so: the process may end behind it.
    pub(crate) fn close(&self) {
        let mut machine = self.machine();
        machine.abort();
        self.waker.wake();
        self.notify(&machine);
        let is_untold = |machine: &mut Datagrams| !machine.is_silent();
        drop(self.changed.wait_timeout_while(machine, CLOSING, is_untold));
    }

    fn counts(&self) -> LinkCounts {
        self.machine().counts()
    }
}

/// What this process has of a stream: the last one that goes ends it.
#[derive(Debug)]
pub(crate) struct Handle(pub Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        let mut machine = self.0.machine();
        if !machine.is_delivered() {
            machine.abort();
        }
        drop(machine);
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(BootClock.now());
        self.0.waker.wake();
    }
}

/// A stream that has said hello, or heard it.
#[derive(Debug)]
pub struct UdpStream(pub(crate) Arc<Handle>);

struct Reader(Arc<Handle>);

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.0.read(buffer)
    }
}

struct Writer(Arc<Handle>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.0.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Channel for UdpStream {
    fn ends(self: Box<Self>) -> Result<Ends> {
        let handle = self.0;
        let (finished, closed, counted) = (handle.clone(), handle.clone(), handle.clone());
        Ok(Ends {
            read: Box::new(std::io::BufReader::with_capacity(64 << 10, Reader(handle.clone()))),
            write: Box::new(Writer(handle)),
            finish: Box::new(move || finished.0.finish()),
            close: Box::new(move || closed.0.close()),
            counts: Box::new(move || Some(counted.0.counts())),
            channel: ChannelKind::Udp,
            about: "udp with a rate of its own, which loss and delay lower".into(),
            handover: None,
        })
    }
}
