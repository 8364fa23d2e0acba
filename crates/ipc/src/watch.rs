//! What the helper sleeps on: epoll, and what each of its events means.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::Error;

/// What is ready. Clients count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A client connects.
    Listener,
    /// Another thread left something.
    Mailbox,
    /// A client's socket said something, or is closed.
    Socket(u64),
    /// A client rang.
    Doorbell(u64),
}

/// At once from the kernel; the others the next time.
pub(crate) const EVENTS_AT_ONCE: usize = 64;

pub(crate) type Space = [MaybeUninit<epoll::Event>; EVENTS_AT_ONCE];

pub(crate) struct Watch(OwnedFd);

impl Watch {
    pub(crate) fn new() -> Result<Watch, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Watch(epoll.map_err(|source| Error::system("make an epoll instance", source))?))
    }

    /// From now on it reports when this is ready. A bell rings by edges, because it is never read.
    pub(crate) fn add(&self, what: impl AsFd, means: Ready) -> Result<(), Error> {
        let flags = match means {
            Ready::Listener => epoll::EventFlags::IN,
            Ready::Mailbox | Ready::Doorbell(_) => epoll::EventFlags::IN | epoll::EventFlags::ET,
            Ready::Socket(_) => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        };
        epoll::add(&self.0, what, means.data(), flags).map_err(|source| Error::system("watch a descriptor", source))
    }

    /// epoll watches what a descriptor refers to, not the descriptor, and a client has its own of the same doorbell: to
    /// close ours would not end the watching.
    pub(crate) fn forget(&self, what: impl AsFd) {
        let forgotten = epoll::delete(&self.0, what);
        debug_assert!(forgotten.is_ok());
    }

    /// Whether it is to report that a client connects.
    pub(crate) fn listen(&self, listener: &OwnedFd, listens: bool) -> Result<(), Error> {
        let flags = if listens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.0, listener, Ready::Listener.data(), flags)
            .map_err(|source| Error::system("watch the listener", source))
    }

    /// What is ready, after sleeping for `at_most` if nothing is; nothing when a signal came.
    pub(crate) fn wait<'a>(&self, at_most: Duration, space: &'a mut Space) -> Result<&'a [epoll::Event], Error> {
        let timeout = Timespec::try_from(at_most).ok();
        match epoll::wait(&self.0, space.as_mut_slice(), timeout.as_ref()) {
            Ok((ready, _)) => Ok(ready),
            Err(Errno::INTR) => Ok(&[]),
            Err(source) => Err(Error::system("wait for clients", source)),
        }
    }
}

impl Ready {
    /// `[client << 2 | which]`
    fn data(self) -> epoll::EventData {
        let (client, which) = match self {
            Ready::Listener => (0, 0),
            Ready::Mailbox => (0, 1),
            Ready::Socket(client) => (client, 2),
            Ready::Doorbell(client) => (client, 3),
        };
        epoll::EventData::new_u64(client << 2 | which)
    }

    pub(crate) fn of(data: epoll::EventData) -> Ready {
        let (client, which) = (data.u64() >> 2, data.u64() & 3);
        match which {
            0 => Ready::Listener,
            1 => Ready::Mailbox,
            2 => Ready::Socket(client),
            _ => Ready::Doorbell(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_is_told_as_what_it_was_added_as() {
        for ready in [Ready::Listener, Ready::Mailbox, Ready::Socket(1), Ready::Doorbell(1), Ready::Socket(1 << 60)] {
            assert_eq!(Ready::of(ready.data()), ready);
        }
    }
}
