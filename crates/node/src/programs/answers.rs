//! Answers the programs of this machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use verbena_content::service::Content;
use verbena_ipc::{ClientId, Event, Responder, Server};
use verbena_metrics::Registry;
use verbena_protocol::wire::{Answer, PART_BYTES, Request, Work};
use verbena_terms::{BootClock, Clock};

use crate::membership::drain::Drain;
use crate::membership::mailbox::Mailbox;
use crate::membership::status::Status;
use crate::programs::kept_pages::ProgramPages;
use crate::programs::pending_reply::give;
use crate::programs::program_locks::ProgramLocks;
use crate::programs::reacquire::AGAIN;
use crate::programs::rings::Rings;
use crate::programs::segments::Segments;
use crate::services::pages;
use crate::services::peer_status::PeerStatus;

/// How often the thread looks whether it is to stop, should the waker's call be lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the thread works with.
pub(crate) struct Answers {
    pub(crate) server: Server,
    pub(crate) status: Arc<Status>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) content: Content,
    pub(crate) tickets: ProgramLocks,
    pub(crate) segments: Segments,
    pub(crate) pages: ProgramPages,
    pub(crate) peers: Arc<PeerStatus>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) rings: Rings,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Answers {
    /// Answers until it is to stop. The server, dropped with it, tells every program.
    pub(crate) fn run(self) {
        let Answers {
            mut server,
            status,
            mailbox,
            content,
            tickets,
            segments,
            pages,
            peers,
            drain,
            metrics,
            rings,
            stop,
        } = self;
        let (asked, left) = (drain.clone(), status.clone());
        let (texts, drains, clients) = (HashMap::new(), vec![], 0);
        let mut readings = Readings {
            status,
            mailbox,
            content,
            tickets,
            segments,
            pages,
            peers,
            drain,
            metrics,
            texts,
            drains,
            clients,
        };
        let mut keep_files_at = BootClock.now() + LOOK_EVERY;
        while !stop.load(Ordering::Acquire) {
            readings.poll(&mut server, LOOK_EVERY);
            readings.wait_for_who_asks_again(&mut server);
            rings.are(server.counters());
            if BootClock.now() >= keep_files_at {
                keep_files_at = BootClock.now() + LOOK_EVERY;
                keep_files(&mut server);
            }
        }
        // The node has left: programs that asked for that learn how it left, before the server goes.
        let departure = asked.left(left.departure());
        for drain in std::mem::take(&mut readings.drains) {
            if let Err(error) = drain.answer(Answer::Drained(departure).encode()) {
                tracing::warn!(%error, "an answer could not be given");
            }
        }
        // If the kernel refuses epoll here, no answer is left to give.
        let _ = server.poll(Duration::ZERO, &mut |event| readings.handle(event));
        readings.tickets.settle();
    }
}

/// Puts back the socket files if another program cleaned up the runtime directory. Without them, programs would find no
/// helper, or another process could take the name.
fn keep_files(server: &mut Server) {
    match server.keep_files() {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(socket = %server.path().display(), "files of the runtime directory were removed: they are put back")
        }
        Err(error) => tracing::error!(%error, "files of the runtime directory were removed and cannot be put back"),
    }
}

struct Readings {
    status: Arc<Status>,
    mailbox: Arc<Mailbox>,
    content: Content,
    tickets: ProgramLocks,
    segments: Segments,
    pages: ProgramPages,
    peers: Arc<PeerStatus>,
    drain: Arc<Drain>,
    metrics: Arc<Registry>,
    /// The metrics that a program reads in parts; at most one text for each program that is connected.
    texts: HashMap<ClientId, String>,
    /// Programs that wait for the node to have left. The server limits the pending requests of each program.
    drains: Vec<Responder>,
    clients: u32,
}

impl Readings {
    fn poll(&mut self, server: &mut Server, at_most: Duration) {
        if let Err(error) = server.poll(at_most, &mut |event| self.handle(event)) {
            // The kernel refuses epoll itself. No program would get an answer any more, and half a helper is worse than
            // a dead one.
            panic!("programs cannot be answered: {error}");
        }
    }

    /// A lock that was released by a program which is expected to ask for it again is kept for about [`AGAIN`].
    fn wait_for_who_asks_again(&mut self, server: &mut Server) {
        if self.tickets.keeps() {
            server.expect();
            let until = BootClock.now() + AGAIN;
            let mut left = AGAIN;
            while self.tickets.keeps() && !left.is_zero() {
                self.poll(server, left);
                left = until.since(BootClock.now());
            }
        }
        self.tickets.settle();
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Arrived { client, pid, .. } => {
                self.clients += 1;
                self.tickets.arrived(client, pid);
                self.segments.arrived(client);
                self.pages.arrived(client);
            }
            Event::Gone { client } => {
                self.clients -= 1;
                self.texts.remove(&client);
                self.tickets.gone(client, &self.segments);
                self.segments.gone(client);
                self.pages.gone(client);
                self.drains.retain(|drain| drain.client() != client);
            }
            Event::Request(request) => {
                let answer = match Request::decode(request.bytes()) {
                    Ok(Request::Lock(asked)) => return self.tickets.handle(request, asked, &self.segments),
                    Ok(Request::Memory { patience_ms, asked }) => {
                        let has_locks = self.tickets.has_any(request.client());
                        return self.segments.handle(request, patience_ms, asked, has_locks);
                    }
                    Ok(Request::Page(asked)) => return self.pages.handle(request, asked),
                    Ok(asked) => self.answer(request.client(), asked),
                    Err(error) => Some(Answer::Refused(format!("the request cannot be read: {error}"))),
                };
                let Some(answer) = answer else {
                    self.drains.push(request.defer());
                    return self.drain.ask();
                };
                // The ring refuses an answer that is too long, and the program gets an error.
                give(request, &answer);
            }
        }
    }

    /// The answer, unless it is given when the node has left.
    fn answer(&mut self, client: ClientId, request: Request) -> Option<Answer> {
        Some(match request {
            Request::Status => Answer::Status(Box::new(self.status.read(self.clients))),
            Request::Members { from } => self.status.members(from),
            Request::Metrics { from } => self.metrics_part(client, from as usize),
            Request::View { after, from } => self.status.view_after(after, from),
            Request::Work => {
                Answer::Work(Work { pages: pages::counted(&self.content), leaving: self.status.leaving() })
            }
            Request::Details { from } => self.peers.details(from),
            Request::Departed { from } => self.status.departed(from, &self.content),
            Request::Loads { from } => self.peers.loads(from),
            // Locks, memory and copies of pages are answered elsewhere.
            Request::Drain | Request::Lock(_) | Request::Memory { .. } | Request::Page(_) => return None,
            Request::Expel(who) => match self.status.expellable(who) {
                Ok(()) => {
                    self.mailbox.expel(who);
                    Answer::Taken
                }
                Err(why) => Answer::Refused(why),
            },
        })
    }

    fn metrics_part(&mut self, client: ClientId, from: usize) -> Answer {
        if from == 0 {
            self.texts.insert(client, self.metrics.snapshot(BootClock.now()).openmetrics());
        }
        let Some(text) = self.texts.get(&client) else {
            return Answer::Refused("metrics are read from byte 0 on".into());
        };
        let Some(rest) = text.get(from..) else {
            return Answer::Refused(format!("byte {from} is not where a part of the metrics begins"));
        };
        let part = &rest[..rest.floor_char_boundary(PART_BYTES)];
        let more = part.len() < rest.len();
        let answer = Answer::Metrics { text: part.to_owned(), more };
        if !more {
            self.texts.remove(&client);
        }
        answer
    }
}
