//! What the two sides of every mode share: memory, and a doorbell by which the client wakes the helper.
//!
//! The helper waits for hundreds of clients at once, so it sleeps in epoll, on one eventfd a client: its doorbell.
//! Clients ring only while the helper's *beacon*, a word in a page that they can read and not write, says that it
//! sleeps; so under load no client makes a system call for it. We considered one futex word for all: every client would
//! have to write to it, and one that scribbles over it silences the others. We considered one eventfd for all: a client
//! that drives its counter to the end makes the others' writes fail. An announcement in each client's own memory would
//! be as safe as the beacon, but 512 stores for each sleep.
//!
//! The helper never reads a doorbell. epoll watches it edge by edge, every write is an edge, and so a client that
//! clears O_NONBLOCK (which belongs to the description that both sides have) cannot make the helper block in a read;
//! one that writes without end wakes the helper and gets a batch of its own requests handled, like one that posts
//! without end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::EventfdFlags;

use crate::beacon::{Beacon, BoardReader, copy};
use crate::bell;
use crate::cores;
use crate::error::Error;
use crate::layout::{
    BEACON, BEACON_BYTES, CLIENT_CORE, FORMAT_WORD, Geometry, HELPER_CORE, HELPER_CROWD, HELPER_POLLS, HELPER_SLEEPS,
    HELPER_WANTS_ROOM, RINGS, SIZES_WORD,
};
use crate::memory::{Mapping, Memory, Sharing};

/// The helper's.
pub(crate) struct HelperWires {
    pub(crate) memory: Mapping,
    doorbell: OwnedFd,
}

impl HelperWires {
    /// New ones, with memory for that many rings, and what to pass to the client.
    pub(crate) fn new(beacon: &Beacon, geometry: Geometry, rings: usize) -> Result<(Self, Vec<OwnedFd>), Error> {
        let (memory, shared) = Mapping::create("verbena-ipc-rings", geometry.bytes_with(rings), Sharing::Both)?;
        memory.store(FORMAT_WORD, RINGS.word(), Ordering::Relaxed);
        memory.store(SIZES_WORD, geometry.sizes_word(), Ordering::Relaxed);
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|source| Error::system("make a doorbell", source))?;
        let passed = vec![shared, beacon.descriptor()?, copy(&doorbell)?];
        Ok((HelperWires { memory, doorbell }, passed))
    }

    /// From now on the client rings when it makes room among the responses, or no longer.
    pub(crate) fn want_room(&self, wanted: bool) {
        self.memory.store(HELPER_WANTS_ROOM, u64::from(wanted), Ordering::Relaxed);
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

/// The client's.
pub(crate) struct ClientWires {
    pub(crate) memory: Mapping,
    beacon: Arc<Mapping>,
    doorbell: OwnedFd,
    /// It does not, if it says so once; then nothing has to be ordered with a look at the beacon.
    helper_sleeps: bool,
}

impl ClientWires {
    /// From what the helper passed, where it announced that many rings.
    pub(crate) fn accept(geometry: Geometry, rings: usize, descriptors: Vec<OwnedFd>) -> Result<Self, Error> {
        let found = descriptors.len();
        let Ok([shared, beacon, doorbell]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(Error::Greeting { bytes: crate::handshake::REPLY_BYTES, descriptors: found });
        };
        let memory = Mapping::accept(&shared, geometry.bytes_with(rings), Sharing::Both)?;
        RINGS.check_word(memory.load(FORMAT_WORD, Ordering::Relaxed))?;
        let beacon = Arc::new(Mapping::accept(&beacon, BEACON_BYTES, Sharing::ReadOnly)?);
        BEACON.check_word(beacon.load(FORMAT_WORD, Ordering::Relaxed))?;
        let helper_sleeps = beacon.load(HELPER_POLLS, Ordering::Relaxed) == 0;
        Ok(ClientWires { memory, beacon, doorbell, helper_sleeps })
    }

    /// After something was published to the helper: whether it sleeps, and is to be woken.
    pub(crate) fn helper_is_asleep(&self) -> bool {
        self.helper_sleeps && bell::announced(&*self.beacon, HELPER_SLEEPS, 1)
    }

    /// Wakes the helper.
    pub(crate) fn ring(&self) {
        // Fails only when the counter is at its end, which takes 2^64 writes by this client: its own harm.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// The same, if it sleeps.
    pub(crate) fn ring_if_asleep(&self) {
        if self.helper_is_asleep() {
            self.ring();
        }
    }

    /// Says where this thread is. A store only where it has moved: the helper reads it each time that it is about to spin.
    pub(crate) fn say_core(&self) {
        let core = cores::word(cores::current());
        if self.memory.load(CLIENT_CORE, Ordering::Relaxed) != core {
            self.memory.store(CLIENT_CORE, core, Ordering::Relaxed);
        }
    }

    /// After a response was taken: wakes the helper if it waits for that.
    pub(crate) fn ring_for_room(&self) {
        if self.helper_sleeps && bell::announced(&self.memory, HELPER_WANTS_ROOM, 1) {
            self.ring_if_asleep();
        }
    }

    /// Whether the helper, when it last looked, was on the core that this thread is on: it does nothing while we spin.
    pub(crate) fn helper_is_on_this_core(&self) -> bool {
        cores::of_word(self.beacon.load(HELPER_CORE, Ordering::Relaxed)).is_some_and(|core| core == cores::current())
    }

    /// Whether a crowd asks the helper, as it last counted.
    pub(crate) fn is_crowded(&self) -> bool {
        self.beacon.load(HELPER_CROWD, Ordering::Relaxed) != 0
    }

    pub(crate) fn board(&self) -> BoardReader {
        BoardReader::of(Arc::clone(&self.beacon))
    }
}
