//! The modes `mq` and `rmq`: System V message queues both ways, or a ring for requests and a queue for responses.
//!
//! These are the paper's (DDSS, sections 3.1 and 3.2): a client that waits sleeps in `msgrcv`, and the kernel wakes it
//! when its helper puts a response into its queue. Each client has queues of its own: a fault in one client's queues
//! disturbs no other client.
//!
//! *How a sleeping helper hears of a request in a queue.* A queue has no descriptor to wait on. So the client counts
//! what it has put in, in a word of the shared memory, and rings its doorbell if the helper sleeps, as in every other
//! mode: the word is for a queue what a line's position is for a ring (bell.rs, W1). The helper looks at the word, and
//! makes a system call only for what is there. The other way the client counts what it took, and the helper, which
//! never waits for room, tries again when that word has changed. A client that writes a false count costs the helper
//! one system call each time, and itself its own messages.
//!
//! *Who may reach a queue.* The client's user and the helper's; the kernel knows nothing finer. So another process of the same
//! user may put into a queue what it likes, or take out what is not for it, as it may do worse with the client itself. What it
//! puts in is checked like everything else, and ends that client.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::beacon::{Beacon, BoardReader};
use crate::bell;
use crate::error::{Breach, Error};
use crate::layout::{CLIENT_SLEEPS, FOR_ROOM, Geometry, REQUEST_QUEUE, REQUESTS_PUT, RESPONSE_QUEUE, RESPONSES_TAKEN};
use crate::memory::{Mapping, Memory};
use crate::mode::{ClientEnd, HelperEnd, Waited, Want};
use crate::piece::{Assembler, HEAD_BYTES, cut};
use crate::queue::{Message, Queue};
use crate::record::{Queues, Recorded};
use crate::ring::{Consumer, Header, Producer};
use crate::watchdog::Watched;
use crate::wires::{ClientWires, HelperWires};

/// Which way requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requests {
    Queue,
    Ring,
}

impl Requests {
    fn rings(self) -> usize {
        usize::from(self == Requests::Ring)
    }
}

/// Pieces that the helper takes of one client for one request: a client that begins anew without end gives way to
/// others.
const MOST_PIECES: usize = 64;

struct Helper {
    wires: HelperWires,
    requests: Source,
    responses: Recorded,
    sending: Sending,
    /// What the client had taken when its queue was full.
    full_at: Option<u64>,
    did: u64,
    message: Box<Message>,
}

enum Source {
    Ring(Consumer),
    Queue {
        queue: Recorded,
        assembler: Assembler,
        /// Messages taken, as the client counts them.
        taken: u64,
    },
}

/// How far a message is on its way into a queue.
#[derive(Debug, Default)]
struct Sending(Option<(u64, usize)>);

impl Sending {
    /// Puts what is left of it into the queue. Returns whether all is in it; otherwise the next call goes on. Calls
    /// `each` for every piece.
    fn go_on(
        &mut self,
        queue: Queue,
        header: Header,
        payload: &[u8],
        message: &mut Message,
        mut each: impl FnMut(),
    ) -> Result<bool, Breach> {
        let mut from = self.0.filter(|(number, _)| *number == header.number).map_or(0, |(_, from)| from);
        loop {
            let next = cut(header, payload, from, message);
            if !queue.put(message).map_err(|_| Breach::Queue)? {
                self.0 = Some((header.number, from));
                return Ok(false);
            }
            each();
            from = next;
            if from >= payload.len() {
                self.0 = None;
                return Ok(true);
            }
        }
    }
}

pub(crate) fn open(
    requests: Requests,
    beacon: &Beacon,
    queues: &Arc<Queues>,
    user: u32,
    geometry: Geometry,
) -> Result<(Box<dyn HelperEnd>, Vec<OwnedFd>), Error> {
    let (wires, passed) = HelperWires::new(beacon, geometry, requests.rings())?;
    let source = match requests {
        Requests::Ring => Source::Ring(Consumer::new(geometry.requests())),
        Requests::Queue => {
            let queue = queues.make(user)?;
            wires.memory.store(REQUEST_QUEUE, queue.queue().word(), Ordering::Relaxed);
            Source::Queue { queue, assembler: Assembler::new(geometry.longest_message()), taken: 0 }
        }
    };
    let responses = queues.make(user)?;
    wires.memory.store(RESPONSE_QUEUE, responses.queue().word(), Ordering::Relaxed);
    let (sending, message) = Default::default();
    Ok((Box::new(Helper { wires, requests: source, responses, sending, full_at: None, did: 0, message }), passed))
}

impl HelperEnd for Helper {
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let Helper { wires, requests, did, message, .. } = self;
        let request = match requests {
            Source::Ring(ring) => ring.pop(&wires.memory, payload)?,
            Source::Queue { queue, assembler, taken } => {
                let mut whole = None;
                for _ in 0..MOST_PIECES {
                    let put = wires.memory.load(REQUESTS_PUT, Ordering::Acquire);
                    if put == *taken {
                        break;
                    }
                    if !queue.queue().take(message, false).map_err(|_| Breach::Queue)? {
                        // It says more than it did.
                        *taken = put;
                        break;
                    }
                    *taken = taken.wrapping_add(1);
                    *did |= FOR_ROOM;
                    let Some(piece) = message.piece() else { return Err(Breach::Piece) };
                    whole = assembler.add(piece, payload)?;
                    if whole.is_some() {
                        break;
                    }
                }
                whole
            }
        };
        if request.is_some() {
            *did |= FOR_ROOM;
        }
        Ok(request)
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        // Read before it is tried: what is taken after that makes room that the next try finds.
        let taken = self.wires.memory.load(RESPONSES_TAKEN, Ordering::Acquire);
        let queue = self.responses.queue();
        let sent = self.sending.go_on(queue, header, payload, &mut self.message, || {})?;
        self.full_at = (!sent).then_some(taken);
        Ok(sent)
    }

    fn flush(&mut self) -> bool {
        // For a response the kernel wakes it.
        let did = std::mem::take(&mut self.did);
        let wakes = did != 0 && bell::announced(&self.wires.memory, CLIENT_SLEEPS, did);
        if wakes {
            self.wires.memory.store(CLIENT_SLEEPS, 0, Ordering::Relaxed);
            // Without room it does not sleep.
            let _ = self.responses.queue().call();
        }
        wakes
    }

    fn has_request(&self) -> bool {
        match &self.requests {
            Source::Ring(ring) => ring.waiting(&self.wires.memory),
            Source::Queue { taken, .. } => self.wires.memory.load(REQUESTS_PUT, Ordering::Acquire) != *taken,
        }
    }

    fn has_room(&mut self, _: usize) -> bool {
        self.full_at.is_none_or(|taken| self.wires.memory.load(RESPONSES_TAKEN, Ordering::Acquire) != taken)
    }

    fn want_room(&mut self, wanted: bool) {
        self.wires.want_room(wanted);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.wires.bell()
    }

    fn hang_up(&mut self, keeps: bool) {
        // Removing a queue wakes the client that waits in it.
        if keeps {
            self.responses.leave();
        }
    }
}

struct Client {
    wires: ClientWires,
    requests: Sink,
    responses: Queue,
    assembler: Assembler,
    watched: Watched,
    longest: usize,
    taken: u64,
    /// What a wait took out of the queue and no caller received yet.
    message: Box<Message>,
    holds: bool,
}

enum Sink {
    Ring(Producer),
    Queue { queue: Queue, sending: Sending, put: u64, message: Box<Message> },
}

pub(crate) fn accept(
    requests: Requests,
    geometry: Geometry,
    descriptors: Vec<OwnedFd>,
) -> Result<Box<dyn ClientEnd>, Error> {
    let wires = ClientWires::accept(geometry, requests.rings(), descriptors)?;
    let queue = |word| Queue::from_word(wires.memory.load(word, Ordering::Relaxed));
    let responses = queue(RESPONSE_QUEUE);
    let sink = match requests {
        Requests::Ring => Sink::Ring(Producer::new(geometry.requests())),
        Requests::Queue => {
            Sink::Queue { queue: queue(REQUEST_QUEUE), sending: Sending::default(), put: 0, message: Box::default() }
        }
    };
    let longest = geometry.longest_message();
    Ok(Box::new(Client {
        wires,
        requests: sink,
        responses,
        assembler: Assembler::new(longest),
        watched: Watched::new(responses)?,
        longest,
        taken: 0,
        message: Box::default(),
        holds: false,
    }))
}

impl Client {
    /// Takes a message out of the queue; it is held then. Whether it was a piece.
    fn take(&mut self, at_most: Option<Duration>) -> Result<bool, Breach> {
        let Client { responses, watched, message, .. } = self;
        let took = match at_most {
            Some(at_most) => watched.at_most(at_most, || responses.take(message, true)),
            None => responses.take(message, false),
        };
        if !took.map_err(|_| Breach::Queue)? {
            return Ok(false);
        }
        self.taken += 1;
        self.wires.memory.store(RESPONSES_TAKEN, self.taken, Ordering::Release);
        self.wires.ring_for_room();
        self.holds = self.message.piece().is_some();
        Ok(self.holds)
    }
}

impl ClientEnd for Client {
    fn longest(&self) -> usize {
        self.longest
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        let Client { wires, requests, .. } = self;
        match requests {
            Sink::Ring(ring) => {
                let sent = ring.push(&wires.memory, header, payload)?;
                if sent {
                    wires.ring_if_asleep();
                }
                Ok(sent)
            }
            Sink::Queue { queue, sending, put, message } => {
                let before = *put;
                let sent = sending.go_on(*queue, header, payload, message, || {
                    *put += 1;
                    wires.memory.store(REQUESTS_PUT, *put, Ordering::Release);
                })?;
                if *put != before {
                    wires.ring_if_asleep();
                }
                Ok(sent)
            }
        }
    }

    fn give_up(&mut self) {
        if let Sink::Queue { sending, .. } = &mut self.requests {
            *sending = Sending::default();
        }
    }

    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        // A response takes as many pieces as its length says, and every piece is checked.
        while self.holds || self.take(None)? {
            self.holds = false;
            let Some(piece) = self.message.piece() else { continue };
            if let Some(header) = self.assembler.add(piece, payload)? {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn board(&self) -> BoardReader {
        self.wires.board()
    }

    fn glance(&mut self, _: Want) -> bool {
        self.holds
    }

    fn wait(&mut self, want: Want, at_most: Duration) -> Waited {
        if self.holds {
            return Waited::Slept;
        }
        let has_room =
            |client: &mut Client| want.room.is_some_and(|bytes| client.requests.has_room(&client.wires.memory, bytes));
        if want.room.is_some() {
            self.wires.memory.store(CLIENT_SLEEPS, FOR_ROOM, Ordering::Relaxed);
            self.wires.memory.fence();
            if has_room(self) {
                self.wires.memory.store(CLIENT_SLEEPS, 0, Ordering::Relaxed);
                return Waited::Slept;
            }
        }
        // An error of the queue shows at the next receive from it.
        let took = self.take(Some(at_most)).unwrap_or(false);
        if want.room.is_some() {
            self.wires.memory.store(CLIENT_SLEEPS, 0, Ordering::Relaxed);
        }
        if took || has_room(self) { Waited::Slept } else { Waited::InVain }
    }

    fn hang_up(&mut self) {
        // It may be gone already.
        let _ = self.responses.remove();
    }
}

impl Sink {
    fn has_room(&mut self, memory: &Mapping, bytes: usize) -> bool {
        match self {
            Sink::Ring(ring) => ring.has_room(memory, bytes),
            // For one piece at least. If the queue is gone, the next put shows that.
            Sink::Queue { queue, .. } => queue.state().map_or(true, |state| {
                let needed = bytes.min(crate::piece::PIECE_BYTES) + HEAD_BYTES;
                state.bytes + needed as u64 <= state.most_bytes
            }),
        }
    }
}
