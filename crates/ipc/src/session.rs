//! One client, as the helper sees it once it is welcome.
//!
//! *A full response ring.* The helper never waits for a client. A response that finds no room is kept here, in order,
//! and while any is kept, no further request is taken from this client; so its own request ring fills, and its posts
//! wait. What is kept is bounded: requests that are to be answered later are limited (`max_deferred`), and at most one
//! response more, that of the request just taken, can meet a full ring. A client that is stopped keeps that much memory
//! until it goes on or dies, and no other client notices.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::counters::Counters;
use crate::error::{Breach, Refusal};
use crate::handshake::Reply;
use crate::message::{ANSWER, REFUSED, REQUEST, encode_refusal};
use crate::mode::{HelperEnd, Mode};
use crate::newcomers::tell;
use crate::peer::Peer;
use crate::request::{ClientId, Event, Mailbox, Request};
use crate::ring::Header;

/// Requests taken from one client before the next one's turn.
pub(crate) const BATCH: usize = 32;

pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) mode: Mode,
    pub(crate) peer: Peer,
    pub(crate) socket: OwnedFd,
    end: Box<dyn HelperEnd>,
    last_number: u64,
    /// Requests taken whose answer comes later.
    deferred: usize,
    kept: VecDeque<(Header, Vec<u8>)>,
    breach: Option<Breach>,
    /// A request was taken; until the counting of those who ask begins anew (hints.rs).
    pub(crate) asked: bool,
}

impl Session {
    pub(crate) fn new(client: ClientId, mode: Mode, peer: Peer, socket: OwnedFd, end: Box<dyn HelperEnd>) -> Self {
        let (kept, breach) = (VecDeque::new(), None);
        Session { client, mode, peer, socket, end, last_number: 0, deferred: 0, kept, breach, asked: false }
    }

    /// Sends what was kept, then takes a batch of requests. The number of requests.
    pub(crate) fn serve(
        &mut self,
        max_deferred: usize,
        payload: &mut Vec<u8>,
        mailbox: &Arc<Mailbox>,
        counters: &mut Counters,
        handler: &mut dyn FnMut(Event<'_>),
    ) -> usize {
        let mut taken = 0;
        self.send_kept(counters);
        while taken < BATCH && self.takes_requests(max_deferred) {
            match self.receive(payload) {
                Ok(None) => break,
                Ok(Some(number)) => {
                    taken += 1;
                    counters.requests += 1;
                    counters.of_mode[self.mode as usize].requests += 1;
                    handler(Event::Request(Request::new(number, payload, self, mailbox, counters)));
                    // Not only at the batch's end: the next request may take its time.
                    self.flush(counters);
                }
                Err(breach) => self.breach = Some(breach),
            }
        }
        self.flush(counters);
        self.asked |= taken > 0;
        taken
    }

    /// Whether [`serve`](Self::serve) would do anything.
    pub(crate) fn is_ready(&mut self, max_deferred: usize) -> bool {
        match self.kept.front() {
            Some((_, payload)) => self.end.has_room(payload.len()),
            None => self.takes_requests(max_deferred) && self.end.has_request(),
        }
    }

    /// Where it was when it last waited or rang, if it says so.
    pub(crate) fn client_core(&self) -> Option<usize> {
        self.end.client_core()
    }

    /// Whether it waits for no answer.
    pub(crate) fn has_all_answers(&self) -> bool {
        self.deferred == 0
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.breach.is_some()
    }

    /// Sends a response, or keeps it until there is room. It reaches the client with the next flush.
    pub(crate) fn respond(&mut self, number: u64, response: Result<&[u8], Refusal>, counters: &mut Counters) {
        let refusal;
        let (kind, payload) = match response {
            Ok(payload) => (ANSWER, payload),
            Err(reason) => {
                refusal = encode_refusal(reason);
                (REFUSED, &refusal[..])
            }
        };
        let header = Header { kind, number };
        let sent = self.kept.is_empty() && self.send(header, payload, counters);
        if !sent && self.breach.is_none() {
            if self.kept.is_empty() {
                self.end.want_room(true);
            }
            counters.full_rings += 1;
            self.kept.push_back((header, payload.to_vec()));
        }
    }

    /// Hands over a descriptor that goes with the response to a request: before it, so that it is there when that is. A client that takes none of what it asked for gets
    /// no more, which its program sees.
    pub(crate) fn attach(&self, number: u64, descriptor: BorrowedFd<'_>) {
        tell(self.socket.as_fd(), Reply::Attached { number }, &[descriptor]);
    }

    pub(crate) fn defer(&mut self) {
        self.deferred += 1;
    }

    /// A response to a request that was deferred.
    pub(crate) fn respond_late(&mut self, number: u64, response: Result<&[u8], Refusal>, counters: &mut Counters) {
        assert!(self.deferred > 0, "invariant: a responder answers once, and exists only after defer");
        self.deferred -= 1;
        self.respond(number, response, counters);
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.end.bell()
    }

    pub(crate) fn hang_up(&mut self, keeps: bool) {
        self.end.hang_up(keeps);
    }

    fn flush(&mut self, counters: &mut Counters) {
        counters.wakes += u64::from(self.end.flush());
    }

    fn takes_requests(&self, max_deferred: usize) -> bool {
        self.breach.is_none() && self.kept.is_empty() && self.deferred < max_deferred
    }

    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<u64>, Breach> {
        let Some(Header { kind, number }) = self.end.receive(payload)? else { return Ok(None) };
        if kind != REQUEST {
            return Err(Breach::Kind { kind });
        }
        // Growing numbers are unique: no answer can be taken for that of another request.
        if number <= self.last_number {
            return Err(Breach::Number { number });
        }
        self.last_number = number;
        Ok(Some(number))
    }

    fn send_kept(&mut self, counters: &mut Counters) {
        if self.kept.is_empty() {
            return;
        }
        while let Some((header, payload)) = self.kept.pop_front() {
            if !self.send(header, &payload, counters) {
                self.kept.push_front((header, payload));
                return;
            }
        }
        self.end.want_room(false);
    }

    fn send(&mut self, header: Header, payload: &[u8], counters: &mut Counters) -> bool {
        match self.end.send(header, payload) {
            Ok(sent) => {
                counters.responses += u64::from(sent);
                sent
            }
            Err(breach) => {
                self.breach = Some(breach);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beacon::Beacon;
    use crate::layout::Geometry;
    use crate::mode::{self, ClientEnd, Common};
    use crate::record::Queues;

    struct Scene {
        session: Session,
        client: Box<dyn ClientEnd>,
        mailbox: Arc<Mailbox>,
        counters: Counters,
        _directory: tempfile::TempDir,
    }

    impl Scene {
        fn new(mode: Mode) -> Scene {
            let geometry = Geometry::new(4096).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let uid = rustix::process::geteuid().as_raw();
            let queues = Queues::swept(&directory.path().join("s.sock"), uid).unwrap().0;
            let common = Arc::new(Common { beacon: Beacon::new(false).unwrap(), queues: Arc::new(queues) });
            let (end, passed) = mode::open(mode, &common, uid, geometry).unwrap();
            let client = mode::accept(mode, geometry, passed).unwrap();
            let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
            let peer = Peer { pid: 1, uid };
            let session = Session::new(ClientId(1), mode, peer, socket.into(), end);
            let mailbox = Arc::new(Mailbox::new(common, geometry.longest_message()).unwrap());
            Scene { session, client, mailbox, counters: Counters::default(), _directory: directory }
        }

        fn ask(&mut self, kind: u32, number: u64) {
            assert!(self.client.send(Header { kind, number }, &number.to_ne_bytes()).unwrap());
        }

        /// Serves once, answering everything with a kilobyte.
        fn serve(&mut self) -> usize {
            let handler = &mut |event: Event<'_>| {
                if let Event::Request(request) = event {
                    let answer = [request.number() as u8; 1000];
                    request.answer(&answer).unwrap();
                }
            };
            self.session.serve(8, &mut Vec::new(), &self.mailbox, &mut self.counters, handler)
        }

        fn next_response(&mut self) -> Option<(u64, Vec<u8>)> {
            let mut payload = Vec::new();
            self.client.receive(&mut payload).unwrap().map(|header| (header.number, payload))
        }
    }

    #[test]
    fn a_full_response_ring_keeps_one_response_and_takes_no_more() {
        // Of a kilobyte, a ring of 4 KiB holds three and a queue of 16 KiB sixteen.
        for (mode, fits) in [(Mode::Adaptive, 3), (Mode::Rcq, 3), (Mode::Mq, 16), (Mode::Rmq, 16)] {
            let mut scene = Scene::new(mode);
            let all = 20;
            for number in 1..=all {
                scene.ask(REQUEST, number);
            }
            // One more is kept, and the others stay where they are.
            assert_eq!(scene.serve(), fits + 1, "{mode}");
            assert_eq!((scene.counters.responses, scene.counters.full_rings), (fits as u64, 1), "{mode}");
            assert!(!scene.session.is_ready(8), "{mode}");
            assert_eq!(scene.serve(), 0, "{mode}");
            assert_eq!(scene.next_response(), Some((1, vec![1; 1000])), "{mode}");
            assert!(scene.session.is_ready(8), "{mode}");
            assert_eq!(scene.serve(), 1, "{mode}");
            for number in 2..=all {
                assert_eq!(scene.next_response(), Some((number, vec![number as u8; 1000])), "{mode}");
                scene.serve();
            }
            assert_eq!(scene.next_response(), None, "{mode}");
            assert!(!scene.session.is_ready(8) && !scene.session.is_broken(), "{mode}");
        }
    }

    #[test]
    fn numbers_that_do_not_grow_and_kinds_that_are_none_break_the_session() {
        for mode in Mode::ALL {
            for (first, kind, second) in [(5, REQUEST, 5), (5, REQUEST, 4), (5, ANSWER, 6), (5, 0, 6)] {
                let mut scene = Scene::new(mode);
                scene.ask(REQUEST, first);
                scene.ask(kind, second);
                scene.ask(REQUEST, 7);
                assert_eq!(scene.serve(), 1, "{mode}");
                assert!(scene.session.is_broken(), "{mode}");
                assert_eq!(scene.serve(), 0, "{mode}");
            }
        }
    }

    #[test]
    fn one_client_gets_a_batch_at_a_time() {
        let mut scene = Scene::new(Mode::default());
        for number in 1..=BATCH as u64 + 3 {
            scene.ask(REQUEST, number);
        }
        let handler = &mut |event: Event<'_>| {
            if let Event::Request(request) = event {
                request.answer(b"").unwrap();
            }
        };
        let mut payload = Vec::new();
        let mut serve = || scene.session.serve(8, &mut payload, &scene.mailbox, &mut scene.counters, handler);
        assert_eq!([serve(), serve(), serve()], [BATCH, 3, 0]);
    }
}
