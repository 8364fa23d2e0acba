//! The mode `adaptive`: shared rings both ways; spin briefly, then sleep.
//!
//! A client that waits sleeps on a futex word in its own shared memory. The helper waits for hundreds of clients at once,
//! so it sleeps in epoll, on one eventfd a client: its doorbell. Clients ring only while the helper's *beacon*, a word
//! in a page that they can read and not write, says that it sleeps; so under load nobody makes a system call. We
//! considered one futex word for all: every client would have to write to it, and one that scribbles over it silences
//! the others. We considered one eventfd for all: a client that drives its counter to the end makes the others'
//! writes fail. An announcement in each client's own memory would be as safe as the beacon, but 512 stores for each sleep.
//!
//! The helper never reads a doorbell. epoll is told of it edge by edge, every write is an edge, and so a client that
//! clears O_NONBLOCK (which belongs to the description that both sides have) cannot make the helper block in a read; one
//! that writes without end wakes the helper and gets a batch of its own requests handled, like one that posts without
//! end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::EventfdFlags;
use verbena_terms::BootClock;

use crate::bell;
use crate::error::{Breach, Error};
use crate::layout::{
    BEACON, BEACON_BYTES, BOARD, BOARD_WORDS, CLIENT_SLEEPS, FOR_RESPONSE, FOR_ROOM, FORMAT_WORD, Geometry,
    HELPER_SLEEPS, HELPER_WANTS_ROOM, RINGS, SIZES_WORD,
};
use crate::memory::{Mapping, Memory, Sharing};
use crate::mode::{ClientEnd, HelperEnd, Waited, Want};
use crate::ring::{Consumer, Header, Producer};
use crate::spin::{self, Spin};

/// The page in which the helper says whether it sleeps.
pub(crate) struct Beacon {
    page: Mapping,
    descriptor: OwnedFd,
}

impl Beacon {
    pub(crate) fn new() -> Result<Self, Error> {
        let (page, descriptor) = Mapping::create("verbena-ipc-beacon", BEACON_BYTES, Sharing::ReadOnly)?;
        page.store(FORMAT_WORD, BEACON.word(), Ordering::Relaxed);
        Ok(Beacon { page, descriptor })
    }

    /// Sleeps by `sleep` with the beacon up, unless something is `there`. Whether it slept.
    pub(crate) fn sleep_unless(&self, there: impl FnMut() -> bool, sleep: impl FnOnce()) -> bool {
        bell::sleep_unless(&self.page, HELPER_SLEEPS, 1, there, sleep)
    }

    /// Writes a word of the board. What this process does after it comes after it for whoever reads the word.
    pub(crate) fn publish(&self, at: usize, value: u64) {
        assert!(at < BOARD_WORDS, "the board has {BOARD_WORDS} words, and not one at {at}");
        self.page.store(BOARD + at, value, Ordering::SeqCst);
    }

    /// Whether the helper sleeps, asked after something was published to it by this process.
    pub(crate) fn is_up(&self) -> bool {
        bell::announced(&self.page, HELPER_SLEEPS, 1)
    }
}

struct Helper {
    memory: Mapping,
    doorbell: OwnedFd,
    requests: Consumer,
    responses: Producer,
    /// What this batch did that the client may wait for.
    did: u64,
}

pub(crate) fn open(beacon: &Beacon, geometry: Geometry) -> Result<(Box<dyn HelperEnd>, Vec<OwnedFd>), Error> {
    let (memory, rings) = Mapping::create("verbena-ipc-rings", geometry.total_bytes(), Sharing::Both)?;
    memory.store(FORMAT_WORD, RINGS.word(), Ordering::Relaxed);
    memory.store(SIZES_WORD, geometry.sizes_word(), Ordering::Relaxed);
    let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|source| Error::system("make a doorbell", source))?;
    let copy = |descriptor: &OwnedFd| {
        descriptor.try_clone().map_err(|source| Error::System { doing: "copy a descriptor", source })
    };
    let passed = vec![rings, copy(&beacon.descriptor)?, copy(&doorbell)?];
    let (requests, responses) = (Consumer::new(geometry.requests()), Producer::new(geometry.responses()));
    Ok((Box::new(Helper { memory, doorbell, requests, responses, did: 0 }), passed))
}

impl HelperEnd for Helper {
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let request = self.requests.pop(&self.memory, payload)?;
        if request.is_some() {
            self.did |= FOR_ROOM;
        }
        Ok(request)
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        let sent = self.responses.push(&self.memory, header, payload)?;
        if sent {
            self.did |= FOR_RESPONSE;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> bool {
        let did = std::mem::take(&mut self.did);
        did != 0 && bell::wake_if_announced(&self.memory, CLIENT_SLEEPS, did)
    }

    fn has_request(&self) -> bool {
        self.requests.waiting(&self.memory)
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.responses.has_room(&self.memory, bytes)
    }

    fn want_room(&mut self, wanted: bool) {
        self.memory.store(HELPER_WANTS_ROOM, u64::from(wanted), Ordering::Relaxed);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    fn hang_up(&mut self) {
        bell::wake_if_announced(&self.memory, CLIENT_SLEEPS, FOR_RESPONSE | FOR_ROOM);
    }
}

/// The words of a helper's [`Board`](crate::Board), for any thread of a program. They stay readable when the connection has ended and when the helper has
/// died, as they were then.
#[derive(Clone, Debug)]
pub struct BoardReader {
    page: Arc<Mapping>,
}

impl BoardReader {
    /// A word as it is now: one load, without a word to the helper.
    ///
    /// # Panics
    /// From [`BOARD_WORDS`](crate::BOARD_WORDS) on.
    pub fn read(&self, at: usize) -> u64 {
        assert!(at < BOARD_WORDS, "the board has {BOARD_WORDS} words, and not one at {at}");
        self.page.load(BOARD + at, Ordering::SeqCst)
    }
}

struct Client {
    memory: Mapping,
    beacon: Arc<Mapping>,
    doorbell: OwnedFd,
    requests: Producer,
    responses: Consumer,
    /// For calls, and for everything else.
    spins: [Spin; 2],
}

pub(crate) fn accept(geometry: Geometry, descriptors: Vec<OwnedFd>) -> Result<Box<dyn ClientEnd>, Error> {
    let found = descriptors.len();
    let Ok([rings, beacon, doorbell]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(Error::Greeting { bytes: crate::handshake::REPLY_BYTES, descriptors: found });
    };
    let memory = Mapping::accept(&rings, geometry.total_bytes(), Sharing::Both)?;
    RINGS.check_word(memory.load(FORMAT_WORD, Ordering::Relaxed))?;
    let beacon = Arc::new(Mapping::accept(&beacon, BEACON_BYTES, Sharing::ReadOnly)?);
    BEACON.check_word(beacon.load(FORMAT_WORD, Ordering::Relaxed))?;
    let (requests, responses) = (Producer::new(geometry.requests()), Consumer::new(geometry.responses()));
    let spins = [Spin::for_this_process(), Spin::for_this_process()];
    Ok(Box::new(Client { memory, beacon, doorbell, requests, responses, spins }))
}

impl Client {
    fn ring_if_asleep(&self) {
        if bell::announced(&*self.beacon, HELPER_SLEEPS, 1) {
            // Fails only when the counter is at its end, which takes 2^64 writes by this client: its own harm.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }
}

impl ClientEnd for Client {
    fn longest(&self) -> usize {
        self.requests.longest()
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        let sent = self.requests.push(&self.memory, header, payload)?;
        if sent {
            self.ring_if_asleep();
        }
        Ok(sent)
    }

    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let response = self.responses.pop(&self.memory, payload)?;
        if response.is_some() && bell::announced(&self.memory, HELPER_WANTS_ROOM, 1) {
            self.ring_if_asleep();
        }
        Ok(response)
    }

    fn board(&self) -> BoardReader {
        BoardReader { page: Arc::clone(&self.beacon) }
    }

    fn wait(&mut self, want: Want, at_most: Duration) -> Waited {
        let Client { memory, requests, responses, spins: [calls, others], .. } = self;
        let spin = if want.is_call { calls } else { others };
        let mut there = || {
            want.response && responses.waiting(memory)
                || want.room.is_some_and(|bytes| requests.has_room(memory, bytes))
        };
        let budget = spin.budget().min(at_most);
        if !budget.is_zero() {
            if let Some(after) = spin::until(&BootClock, budget, &mut there) {
                spin.paid(after);
                return Waited::Spun;
            }
            spin.wasted();
        }
        let mut what = 0;
        if want.response {
            what |= FOR_RESPONSE;
        }
        if want.room.is_some() {
            what |= FOR_ROOM;
        }
        let sleep = || memory.sleep(CLIENT_SLEEPS, what, at_most.saturating_sub(budget));
        bell::sleep_unless(memory, CLIENT_SLEEPS, what, &mut there, sleep);
        if there() { Waited::Slept } else { Waited::InVain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ANSWER, REQUEST};

    fn pair() -> (Beacon, Box<dyn HelperEnd>, Box<dyn ClientEnd>) {
        let beacon = Beacon::new().unwrap();
        let geometry = Geometry::new(4096).unwrap();
        let (helper, passed) = open(&beacon, geometry).unwrap();
        let client = accept(geometry, passed).unwrap();
        (beacon, helper, client)
    }

    fn rings(helper: &dyn HelperEnd) -> bool {
        let mut count = [0; 8];
        rustix::io::read(helper.bell(), &mut count).is_ok()
    }

    #[test]
    fn the_doorbell_rings_only_while_the_helper_sleeps() {
        let (beacon, mut helper, mut client) = pair();
        let request = Header { kind: REQUEST, number: 1 };
        assert!(client.send(request, b"one").unwrap());
        assert!(!rings(&*helper));
        let mut payload = Vec::new();
        assert!(helper.receive(&mut payload).unwrap().is_some());
        let slept = beacon.sleep_unless(|| false, || assert!(client.send(request, b"two").unwrap()));
        assert!(slept && rings(&*helper));
        assert!(!beacon.sleep_unless(|| helper.has_request(), || panic!("a request is there")));
    }

    #[test]
    fn what_is_on_the_board_is_read_by_all_and_outlives_the_helper() {
        let (beacon, helper, client) = pair();
        let (_, passed) = open(&beacon, Geometry::new(4096).unwrap()).unwrap();
        let other = accept(Geometry::new(4096).unwrap(), passed).unwrap();
        beacon.publish(7, u64::MAX);
        let (mine, theirs) = (client.board(), other.board());
        assert_eq!([mine.read(7), theirs.read(7), mine.read(6)], [u64::MAX, u64::MAX, 0]);
        drop((beacon, helper, client));
        assert_eq!(mine.read(7), u64::MAX);
    }

    #[test]
    fn room_rings_only_if_it_is_wanted() {
        let (beacon, mut helper, mut client) = pair();
        let answer = Header { kind: ANSWER, number: 1 };
        let mut sent = 0;
        while helper.send(answer, &[7; 1000]).unwrap() {
            sent += 1;
        }
        assert_eq!(sent, 4);
        let mut payload = Vec::new();
        beacon.sleep_unless(|| false, || assert!(client.receive(&mut payload).unwrap().is_some()));
        assert!(!rings(&*helper));
        assert!(helper.send(answer, &[7; 1000]).unwrap() && !helper.has_room(1000));
        helper.want_room(true);
        beacon.sleep_unless(|| helper.has_room(1000), || assert!(client.receive(&mut payload).unwrap().is_some()));
        assert!(rings(&*helper) && helper.has_room(1000));
    }

    #[test]
    fn a_wait_ends_when_the_time_is_over() {
        let (_beacon, _helper, mut client) = pair();
        let want = Want { response: true, ..Want::default() };
        assert_eq!(client.wait(want, Duration::from_millis(5)), Waited::InVain);
        assert_eq!(client.wait(Want { room: Some(1024), ..Want::default() }, Duration::ZERO), Waited::Slept);
    }

    #[test]
    fn fewer_descriptors_than_three_are_refused() {
        let geometry = Geometry::new(4096).unwrap();
        assert!(matches!(accept(geometry, Vec::new()), Err(Error::Greeting { descriptors: 0, .. })));
    }
}
