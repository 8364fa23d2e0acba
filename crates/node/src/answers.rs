//! Answers the programs of this machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use verbena_client::wire::{Answer, PART_BYTES, Request};
use verbena_ipc::{ClientId, Event, Server};
use verbena_metrics::Registry;
use verbena_terms::{BootClock, Clock};

use crate::desk::Desk;
use crate::rings::Rings;
use crate::status::Status;

/// How often the thread looks whether it is to stop, should the waker's call be lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the thread works with.
pub(crate) struct Answers {
    pub(crate) server: Server,
    pub(crate) status: Arc<Status>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) rings: Rings,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Answers {
    /// Answers until it is to stop. The server, dropped with it, tells every program.
    pub(crate) fn run(mut self) {
        let Answers { status, desk, metrics, .. } = &self;
        let mut readings = Readings {
            status: status.clone(),
            desk: desk.clone(),
            metrics: metrics.clone(),
            texts: HashMap::new(),
            clients: 0,
        };
        while !self.stop.load(Ordering::Acquire) {
            if let Err(error) = self.server.poll(LOOK_EVERY, &mut |event| readings.handle(event)) {
                // The kernel refuses epoll itself: nobody will be answered any more, and half a helper is worse than none.
                panic!("programs cannot be answered: {error}");
            }
            self.rings.are(self.server.counters());
        }
    }
}

struct Readings {
    status: Arc<Status>,
    desk: Arc<Desk>,
    metrics: Arc<Registry>,
    /// The metrics that a program reads in parts; at most one text for each program that is connected.
    texts: HashMap<ClientId, String>,
    clients: u32,
}

impl Readings {
    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Arrived { .. } => self.clients += 1,
            Event::Gone { client } => {
                self.clients -= 1;
                self.texts.remove(&client);
            }
            Event::Request(request) => {
                let answer = match Request::decode(request.bytes()) {
                    Ok(asked) => self.answer(request.client(), asked),
                    Err(error) => Answer::Refused(format!("the request cannot be read: {error}")),
                };
                // An answer that is too long is refused by the ring itself, and the program is told.
                if let Err(error) = request.answer(&answer.encode()) {
                    tracing::warn!(%error, "an answer could not be given");
                }
            }
        }
    }

    fn answer(&mut self, client: ClientId, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status.read(self.clients))),
            Request::Members { from } => self.status.members(from),
            Request::Metrics { from } => self.metrics_part(client, from as usize),
            Request::View { after, from } => self.status.view_after(after, from),
            Request::Expel(who) => match self.status.expellable(who) {
                Ok(()) => {
                    self.desk.expel(who);
                    Answer::Taken
                }
                Err(why) => Answer::Refused(why),
            },
        }
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
