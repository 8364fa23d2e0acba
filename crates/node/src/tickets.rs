//! The locks that programs hold or wait for, by the tickets that they chose.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use verbena_client::wire::{Answer, LockAnswer, LockMode, LockRequest};
use verbena_ipc::{ClientId, Request, Responder};
use verbena_lock::service::LockService;
use verbena_lock::{Mode, Name, Refusal, RequestId};

/// Tickets among which nobody looks for those that were refused.
const FEW: usize = 1024;

/// Of all programs.
pub(crate) struct Tickets {
    service: LockService,
    /// How often all that was held was lost.
    lapses: Arc<AtomicU64>,
    held: HashMap<(ClientId, u64), Ticket>,
    /// At so many those that were refused are dropped.
    clear_at: usize,
}

struct Ticket {
    id: RequestId,
    /// It was refused: nothing is held by it, or waited for.
    is_over: Arc<AtomicBool>,
    /// Who waits to be told what comes next of it.
    waiting: Waiting,
}

type Waiting = Arc<Mutex<Option<Responder>>>;

impl Tickets {
    pub(crate) fn new(service: LockService, lapses: Arc<AtomicU64>) -> Self {
        Tickets { service, lapses, held: HashMap::new(), clear_at: FEW }
    }

    /// A program went: nothing of it is held or waited for.
    pub(crate) fn gone(&mut self, client: ClientId) {
        let service = &self.service;
        self.held.retain(|(holder, _), ticket| {
            let stays = *holder != client;
            if !stays {
                service.forget(ticket.id);
            }
            stays
        });
    }

    /// Answers, now or later.
    pub(crate) fn handle(&mut self, request: Request<'_>, asked: LockRequest) {
        let client = request.client();
        match asked {
            LockRequest::Acquire { ticket, .. } if self.is_in_use(client, ticket) => {
                refuse(request, format!("ticket {ticket} is in use"));
            }
            LockRequest::Acquire { ticket, name, mode, is_try } => match Name::new(&name) {
                Ok(name) => {
                    let want = verbena_lock::Request { mode: to_mode(mode), is_try };
                    self.acquire((client, ticket), name, want, request);
                }
                Err(error) => refuse(request, error.to_string()),
            },
            LockRequest::Release { ticket } => match self.held.remove(&(client, ticket)) {
                Some(Ticket { id, .. }) => {
                    let waiting: Waiting = Arc::new(Mutex::new(Some(request.defer())));
                    // One that was there can only have been lost since.
                    let done = Box::new(move |released: Result<(), _>| {
                        tell(&waiting, Answer::Lock(released.map_or(LockAnswer::Lost, |()| LockAnswer::Done)));
                    });
                    // A service that has stopped drops who waits, and so they are told.
                    let _ = self.service.release(id, done);
                }
                None => refuse(request, format!("ticket {ticket} holds nothing")),
            },
            LockRequest::Share { ticket } => match self.held.get(&(client, ticket)) {
                Some(Ticket { id, waiting, .. }) => {
                    *waiting.lock() = Some(request.defer());
                    let waiting = waiting.clone();
                    let done = Box::new(move |shared: Result<(), verbena_lock::Strange>| {
                        if let Err(error) = shared {
                            tell(&waiting, Answer::Refused(error.to_string()));
                        }
                    });
                    let _ = self.service.downgrade(*id, done);
                }
                None => refuse(request, format!("ticket {ticket} holds nothing")),
            },
            LockRequest::Cancel { ticket } => {
                if let Some(Ticket { id, waiting, .. }) = self.held.remove(&(client, ticket)) {
                    self.service.forget(id);
                    tell(&waiting, Answer::Lock(LockAnswer::Cancelled));
                }
                give(request, &Answer::Lock(LockAnswer::Done));
            }
        }
    }

    fn is_in_use(&self, client: ClientId, ticket: u64) -> bool {
        self.held.get(&(client, ticket)).is_some_and(|held| !held.is_over.load(Ordering::Acquire))
    }

    fn acquire(&mut self, key: (ClientId, u64), name: Name, want: verbena_lock::Request, request: Request<'_>) {
        if self.held.len() >= self.clear_at {
            self.held.retain(|_, ticket| !ticket.is_over.load(Ordering::Acquire));
            self.clear_at = FEW + 2 * self.held.len();
        }
        let waiting: Waiting = Arc::new(Mutex::new(Some(request.defer())));
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, lapses, refused) = (waiting.clone(), self.lapses.clone(), is_over.clone());
        let asked = self.service.acquire(
            name,
            want,
            Box::new(move |answer| {
                refused.store(matches!(answer, verbena_lock::Answer::Refused(_)), Ordering::Release);
                let answer = match answer {
                    verbena_lock::Answer::Granted(mode, token) => {
                        let lapses = lapses.load(Ordering::SeqCst);
                        LockAnswer::Held { mode: from_mode(mode), token: token.to_bits(), lapses }
                    }
                    verbena_lock::Answer::Refused(Refusal::Busy) => LockAnswer::NotFree,
                    verbena_lock::Answer::Refused(why) => return tell(&told, Answer::Refused(why.to_string())),
                    verbena_lock::Answer::Lost => LockAnswer::Lost,
                };
                tell(&told, Answer::Lock(answer));
            }),
        );
        match asked {
            Ok(id) => drop(self.held.insert(key, Ticket { id, is_over, waiting })),
            Err(error) => tell(&waiting, Answer::Refused(error.to_string())),
        }
    }
}

fn to_mode(mode: LockMode) -> Mode {
    match mode {
        LockMode::Shared => Mode::Shared,
        LockMode::Exclusive => Mode::Exclusive,
    }
}

fn from_mode(mode: Mode) -> LockMode {
    match mode {
        Mode::Shared => LockMode::Shared,
        Mode::Exclusive => LockMode::Exclusive,
    }
}

/// Whoever waits; nobody does where a lock was lost and nothing was asked.
fn tell(waiting: &Waiting, answer: Answer) {
    if let Some(responder) = waiting.lock().take()
        && let Err(error) = responder.answer(answer.encode())
    {
        tracing::warn!(%error, "an answer could not be given");
    }
}

fn refuse(request: Request<'_>, why: String) {
    give(request, &Answer::Refused(why));
}

fn give(request: Request<'_>, answer: &Answer) {
    if let Err(error) = request.answer(&answer.encode()) {
        tracing::warn!(%error, "an answer could not be given");
    }
}
