//! The locks that programs hold or wait for, by the tickets that they chose.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_ipc::{ClientId, Request};
use verbena_lock::listing::Listed;
use verbena_lock::service::{List, LockService, Removed};
use verbena_lock::{Asker, MAX_NAME_BYTES, Mode, Name, Refusal, Removal, RequestId};
use verbena_protocol::wire::{Answer, LockAnswer, LockAt, LockMode, LockRequest, LockUser};
use verbena_terms::{BootClock, Clock, Rank};

use crate::membership::status::{Names, Status};
use crate::programs::pending_reply::{PendingReply, answer, give, refuse};
use crate::programs::reacquire::Habit;
use crate::programs::segments::Segments;

// Programs see limits of the client crate; they must be those of the lock crate.
const _: () = assert!(verbena_client::MAX_NAME_BYTES == MAX_NAME_BYTES);

/// A program with no more tickets than this keeps its refused ones.
const FEW: usize = 1024;
/// ProgramLocks that a program may have.
const AT_MOST: usize = 1 << 20;

/// The longest text about a deadlock, in bytes.
const MOST_TEXT: usize = 2048;

/// Of all programs.
pub(crate) struct ProgramLocks {
    service: LockService,
    /// Knows what members are called.
    status: Arc<Status>,
    programs: HashMap<ClientId, Program>,
    /// Programs that there were.
    arrived: u64,
    /// The service was last asked to keep a released lock for the same program, and nothing since.
    keeps: bool,
}

/// Of one.
struct Program {
    asker: Asker,
    tickets: HashMap<u64, Ticket>,
    /// At this number of tickets the refused ones are dropped.
    clear_at: usize,
    habit: Habit,
}

struct Ticket {
    id: RequestId,
    name: Name,
    standing: Arc<Mutex<Standing>>,
}

/// The state of a ticket, as its program last learnt it.
struct Standing {
    state: State,
    reply: PendingReply,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for its lock, or has it.
    Open,
    /// Nothing is held by it, or waited for.
    Refused,
    Lost,
}

impl ProgramLocks {
    pub(crate) fn new(service: LockService, status: Arc<Status>) -> Self {
        ProgramLocks { service, status, programs: HashMap::new(), arrived: 0, keeps: false }
    }

    /// A program came.
    pub(crate) fn arrived(&mut self, client: ClientId, pid: u32) {
        self.arrived += 1;
        let asker = Asker { number: self.arrived, pid };
        self.programs.insert(client, Program::new(asker));
    }

    /// A program went: nothing of it is held or waited for when this returns, or when what it put has settled.
    pub(crate) fn gone(&mut self, client: ClientId, segments: &Segments) {
        self.settle();
        let tickets = self.programs.remove(&client).map(|gone| gone.tickets).unwrap_or_default();
        let service = self.service.clone();
        segments.when_settled(client, move || tickets.values().for_each(|ticket| service.forget(ticket.id)));
    }

    /// Whether a program holds or waits for any.
    pub(crate) fn has_any(&self, client: ClientId) -> bool {
        self.programs.get(&client).is_some_and(|program| !program.tickets.is_empty())
    }

    /// Whether a lock is kept for the program that has just released it, to be [`settled`](Self::settle) after about
    /// [`AGAIN`](crate::programs::reacquire::AGAIN).
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.service.keeps()
    }

    /// Ends the keeping of a lock: the program that was expected to re-acquire it had the time for it.
    pub(crate) fn settle(&mut self) {
        // Even where the service reports no kept lock: another thread may be about to run the release for this one.
        if std::mem::take(&mut self.keeps) {
            self.service.settle();
        }
    }

    /// Answers, now or later.
    pub(crate) fn handle(&mut self, request: Request<'_>, asked: LockRequest, segments: &Segments) {
        if !matches!(asked, LockRequest::Acquire { .. }) {
            self.settle();
        }
        let Some(program) = self.programs.get_mut(&request.client()) else { return };
        match asked {
            LockRequest::Acquire { ticket, name, mode, is_try } => match Name::new(&name) {
                Ok(name) => {
                    let want = verbena_lock::Request { mode: to_mode(mode), is_try };
                    self.keeps &= !program.acquire(&self.service, ticket, name, want, request);
                }
                Err(error) => refuse(request, error.to_string()),
            },
            LockRequest::Release { ticket } => {
                self.keeps = program.release(&self.service, ticket, request, segments);
            }
            LockRequest::Share { ticket } => program.share(&self.service, ticket, request, segments),
            LockRequest::Cancel { ticket } => program.cancel(&self.service, ticket, request, segments),
            LockRequest::List { after, prefix } => self.list(after, prefix, request),
            LockRequest::Remove { name } => match Name::new(&name) {
                Ok(name) => self.remove(name, request),
                Err(error) => refuse(request, error.to_string()),
            },
        }
    }

    fn remove(&self, name: Name, request: Request<'_>) {
        let (names, responder) = (self.status.names(), request.defer());
        self.service.remove(name, move |removed| answer(responder, &answer_to_removal(removed, &names)));
    }

    fn list(&self, after: Option<(Vec<u8>, u32)>, prefix: Vec<u8>, request: Request<'_>) {
        if prefix.len() > MAX_NAME_BYTES {
            return refuse(request, format!("a lock's name has {MAX_NAME_BYTES} bytes at most"));
        }
        let after = after.map(|(name, rank)| Name::new(&name).map(|name| (name, Rank(rank))));
        let after = match after.transpose() {
            Ok(after) => after,
            Err(error) => return refuse(request, error.to_string()),
        };
        let (names, responder) = (self.status.names(), request.defer());
        self.service.list(after, prefix, Box::new(move |list| answer(responder, &listed(list, &names))));
    }
}

impl Program {
    fn new(asker: Asker) -> Self {
        Program { asker, tickets: HashMap::new(), clear_at: 0, habit: Habit::default() }
    }

    /// Whether the service was asked.
    fn acquire(
        &mut self,
        service: &LockService,
        ticket: u64,
        name: Name,
        want: verbena_lock::Request,
        request: Request<'_>,
    ) -> bool {
        self.habit.asks(&name, want.mode, BootClock.now());
        if let Err(why) = self.has_room_for(ticket) {
            refuse(request, why);
            return false;
        }
        let standing = Arc::new(Mutex::new(Standing { state: State::Open, reply: PendingReply::Looks }));
        let told = standing.clone();
        let told = Box::new(move |answer, losses| told.lock().hear(answer, losses));
        let asked = service.acquire(self.asker, name.clone(), want, told);
        match asked {
            Ok(id) => {
                standing.lock().reply.look(request);
                self.tickets.insert(ticket, Ticket { id, name, standing });
                true
            }
            Err(error) => {
                refuse(request, error.to_string());
                false
            }
        }
    }

    fn has_room_for(&mut self, ticket: u64) -> Result<(), String> {
        if self.tickets.get(&ticket).is_some_and(|ticket| !ticket.is_refused()) {
            return Err(format!("ticket {ticket} is in use"));
        }
        if self.tickets.len() >= self.clear_at {
            self.tickets.retain(|_, ticket| !ticket.is_refused());
            self.clear_at = AT_MOST.min(FEW + 2 * self.tickets.len());
        }
        if self.tickets.len() >= AT_MOST {
            return Err(format!("a program holds or waits for {AT_MOST} locks at most"));
        }
        Ok(())
    }

    /// Returns whether the service was asked to keep the lock for a while.
    fn release(&mut self, service: &LockService, ticket: u64, request: Request<'_>, segments: &Segments) -> bool {
        let Some(Ticket { id, name, .. }) = self.tickets.remove(&ticket) else {
            refuse(request, format!("ticket {ticket} holds nothing"));
            return false;
        };
        let reply = Arc::new(Mutex::new(PendingReply::Looks));
        let told = reply.clone();
        // One that was there can only have been lost since.
        let done = Box::new(move |released: Result<(), _>| {
            told.lock().tell(Answer::Lock(released.map_or(LockAnswer::Lost, |()| LockAnswer::Done)));
        });
        let keeps = self.habit.is_expected(&name) && segments.are_settled(request.client());
        if keeps {
            service.release_soon(id, done);
        } else {
            let service = service.clone();
            segments.when_settled(request.client(), move || service.release(id, done));
        }
        reply.lock().look(request);
        // What it took this thread to release it is not the program's time.
        self.habit.released(name, BootClock.now());
        keeps
    }

    fn share(&mut self, service: &LockService, ticket: u64, request: Request<'_>, segments: &Segments) {
        let Some(Ticket { id, standing, .. }) = self.tickets.get(&ticket) else {
            return refuse(request, format!("ticket {ticket} holds nothing"));
        };
        let mut now = standing.lock();
        match now.state {
            State::Lost => give(request, &Answer::Lock(LockAnswer::Lost)),
            State::Refused => refuse(request, format!("ticket {ticket} holds nothing")),
            State::Open if matches!(now.reply, PendingReply::Waits(_)) => {
                refuse(request, format!("ticket {ticket} waits for an answer"));
            }
            State::Open => {
                now.reply = PendingReply::Looks;
                let told = standing.clone();
                let done = Box::new(move |shared: Result<(), verbena_lock::ProtocolViolation>| {
                    if let Err(error) = shared {
                        told.lock().reply.tell(Answer::Refused(error.to_string()));
                    }
                });
                // The callback may run, and take this lock, before the call returns.
                drop(now);
                let (service, id) = (service.clone(), *id);
                segments.when_settled(request.client(), move || service.downgrade(id, done));
                standing.lock().reply.look(request);
            }
        }
    }

    fn cancel(&mut self, service: &LockService, ticket: u64, request: Request<'_>, segments: &Segments) {
        if let Some(Ticket { id, standing, .. }) = self.tickets.remove(&ticket) {
            let service = service.clone();
            segments.when_settled(request.client(), move || service.forget(id));
            standing.lock().reply.tell(Answer::Lock(LockAnswer::Cancelled));
        }
        give(request, &Answer::Lock(LockAnswer::Done));
    }
}

impl Ticket {
    fn is_refused(&self) -> bool {
        self.standing.lock().state == State::Refused
    }
}

impl Standing {
    fn hear(&mut self, answer: verbena_lock::Answer, losses: u64) {
        let answer = match answer {
            verbena_lock::Answer::Granted(mode, token) => {
                Answer::Lock(LockAnswer::Held { mode: from_mode(mode), token: token.to_bits(), lapses: losses })
            }
            verbena_lock::Answer::Refused(why) => {
                self.state = State::Refused;
                match why {
                    Refusal::Busy => Answer::Lock(LockAnswer::NotFree),
                    why => Answer::Refused(why.to_string()),
                }
            }
            verbena_lock::Answer::Deadlock(circle) => {
                self.state = State::Refused;
                Answer::Lock(LockAnswer::Deadlock(shortened(circle.to_string())))
            }
            verbena_lock::Answer::Lost => {
                self.state = State::Lost;
                Answer::Lock(LockAnswer::Lost)
            }
        };
        self.reply.tell(answer);
    }
}

fn answer_to_removal(removed: Removed, names: &Names) -> Answer {
    match removed {
        Removed::Is(Removal::Removed) => Answer::Lock(LockAnswer::Removed { was_known: true }),
        Removed::Is(Removal::Unknown) => Answer::Lock(LockAnswer::Removed { was_known: false }),
        Removed::Is(Removal::InUse) => Answer::Lock(LockAnswer::NotFree),
        Removed::Is(Removal::TokensUsedUp) => Answer::Refused(
            "the lock has given most of the tokens of this view, and others would have to go on behind them: it stays until the view changes".into(),
        ),
        Removed::Silent(home) => {
            let home = names.of(home);
            Answer::Refused(format!("the lock's home, {home}, does not answer: whether the lock was removed is unknown"))
        }
        Removed::Nowhere => Answer::Refused("this node is in no view of a cluster with a home of locks".into()),
    }
}

fn listed(list: List, names: &Names) -> Answer {
    let name = |who| names.of(who);
    let user = |listed: &Listed| LockUser {
        pid: listed.asker.pid,
        mode: from_mode(listed.mode),
        token: listed.token.map(|token| token.to_bits()),
        age_ms: u64::try_from(listed.age.as_millis()).unwrap_or(u64::MAX),
    };
    let locks = list.rows.into_iter().map(|row| LockAt {
        name: row.name.as_bytes().to_vec(),
        rank: row.node.rank.0,
        node: name(row.node),
        ahead: row.ahead.0,
        holders: row.holders.iter().map(user).collect(),
        more_holders: row.more_holders,
        waiting: row.waiting.iter().map(user).collect(),
        more_waiting: row.more_waiting,
    });
    let (locks, silent) = (locks.collect(), list.silent.into_iter().map(name).collect());
    Answer::Lock(LockAnswer::List { locks, silent, more: list.more })
}

/// A name may have a kibibyte, and a circle many.
fn shortened(mut text: String) -> String {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        text.push_str(" ...");
    }
    text
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
