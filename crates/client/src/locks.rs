//! Locks of the cluster, for a program.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use verbena_ipc::{BoardReader, Connection, Response};
use verbena_terms::{BootClock, Clock, Time};

use crate::board;
use crate::error::{Error, Result};
use crate::helper::connect_to;
use crate::socket::Socket;
use crate::wire::{Answer, BOARD_LAPSES, LockAnswer, LockAt, LockMode, LockRequest, Request};

/// How long a helper may take for what is done at once.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Holders that an error names.
const MOST_NAMED: usize = 3;

/// Longest name of a lock.
pub const MAX_NAME_BYTES: usize = 1024;

/// A program's connection for locks. For one thread at a time; other threads connect for themselves. Dropped, or when the program ends
/// in whatever way, all that it holds is released.
///
/// A hold lasts as long as the node's lease, which the helper renews: no other program gets the lock before that has
/// run out. [`is_held`](Self::is_held) knows whether it has without asking the helper, also when the helper is stopped
/// or dead. But any time can pass between that question and the next action, if the program is stopped. So a program
/// that writes to a store sends the hold's [`token`](Hold::token) with it, and the store refuses one that is smaller
/// than one it has seen (rule L7).
pub struct Locks {
    connection: Connection,
    watch: Watch,
    tickets: u64,
    /// What was asked for and is waited for, by the request's number; with the answer if that came while another was waited for.
    asked: BTreeMap<u64, Option<Response>>,
    /// A child after a fork has the same memory, in which both would write.
    maker: u32,
}

/// Says of a connection's holds whether they are held: for any thread, whatever the connection does meanwhile.
#[derive(Clone, Debug)]
pub struct Watch {
    /// No two connections of a process have the same.
    number: u64,
    board: BoardReader,
    is_over: Arc<AtomicBool>,
}

/// A lock that was asked for. The place in its queue is kept until [`Locks::wait`] has an answer or [`Locks::give_up`] is called.
#[derive(Debug)]
#[must_use = "the lock may come: wait for it, or give it up"]
pub struct Wish {
    connection: u64,
    ticket: u64,
    request: u64,
}

/// The holders and waiters of locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockList {
    /// In the order of names, and of the ranks of nodes.
    pub locks: Vec<LockAt>,
    /// Names of members that did not answer: what their programs have is not in it.
    pub silent: BTreeSet<String>,
}

/// One line, for errors: the holders, and how many others wait.
impl fmt::Display for LockList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = || self.locks.iter().flat_map(|at| at.holders.iter().map(move |holder| (at, holder)));
        for (nth, (at, holder)) in holders().take(MOST_NAMED).enumerate() {
            let and = if nth > 0 { ", " } else { "" };
            match holder.pid {
                0 => write!(out, "{and}a process at {} holds it", at.node)?,
                pid => write!(out, "{and}process {pid} at {} holds it", at.node)?,
            }
        }
        let count = holders().count();
        let unnamed = self.locks.iter().map(|at| u64::from(at.more_holders)).sum::<u64>()
            + count.saturating_sub(MOST_NAMED) as u64;
        let waiting: u64 = self.locks.iter().map(|at| at.waiting.len() as u64 + u64::from(at.more_waiting)).sum();
        if count == 0 {
            out.write_str("no node reports a holder")?;
        }
        if unnamed > 0 {
            write!(out, ", and {unnamed} more")?;
        }
        if waiting > 0 {
            write!(out, "; waiting for it: {waiting}")?;
        }
        if self.silent.is_empty() {
            return Ok(());
        }
        let silent: Vec<&str> = self.silent.iter().map(String::as_str).collect();
        write!(out, "; no answer from {}", silent.join(", "))
    }
}

/// A lock that is held. Dropping it releases nothing: give it to [`Locks::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it stays held until it is released"]
pub struct Hold {
    connection: u64,
    ticket: u64,
    mode: LockMode,
    token: u64,
    lapses: u64,
}

impl Hold {
    /// How it is held.
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// The fencing token: larger than those of all who held the lock alone before, also across failures of any node; and of a hold of one alone
    /// larger than all before. Those who share the lock may have the same.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl Locks {
    /// Connects to the helper at `socket`.
    ///
    /// # Errors
    /// As [`Helper::connect`](crate::Helper::connect).
    pub fn connect(socket: &Socket, patience: Duration) -> Result<Locks> {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        let connection = connect_to(socket, patience)?;
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let watch = Watch { number, board: connection.board(), is_over: Arc::default() };
        Ok(Locks { connection, watch, tickets: 0, asked: BTreeMap::new(), maker: std::process::id() })
    }

    /// What other threads may ask.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Waits for a lock as long as `at_most`; without that as long as it takes; if that is zero it takes the lock only if it is free, as
    /// [`try_acquire`](Self::try_acquire). Names are any 1 to 1024 bytes. A helper that is stopped cannot say what came of it: it is waited for up to five seconds more.
    ///
    /// A lock that this connection holds it gets once more at once, with the same token and in the mode in which it has it; it is free when all its holds of
    /// it are released.
    ///
    /// # Errors
    /// [`Error::NotInTime`], [`Error::NotFree`]; [`Error::Deadlock`] where it would wait for itself, across any nodes:
    /// the youngest request of the cycle gets it;
    /// [`Error::Refused`] for a name that cannot be, if the lock's home has no room for another, or if this connection holds it shared and wants it alone.
    pub fn acquire(&mut self, name: &[u8], mode: LockMode, at_most: Option<Duration>) -> Result<Hold> {
        if at_most == Some(Duration::ZERO) {
            return self.try_acquire(name, mode);
        }
        let wish = self.ask(name, mode)?;
        match self.wait(&wish, at_most)? {
            Some(hold) => Ok(hold),
            None => {
                self.give_up(wish)?;
                Err(Error::NotInTime { waited: at_most.unwrap_or_default() })
            }
        }
    }

    /// Asks for a lock, for a caller that has other work between two looks at whether it came.
    ///
    /// # Errors
    /// If the helper cannot be reached. The helper's answer is returned by the first [`wait`](Self::wait).
    pub fn ask(&mut self, name: &[u8], mode: LockMode) -> Result<Wish> {
        self.ask_for(name, mode, false)
    }

    /// Waits for what was asked for as long as `at_most`, without that as long as it takes. Nothing: not yet. After anything else the wish is over.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Deadlock`] as for [`acquire`](Self::acquire); [`Error::NotOurs`].
    pub fn wait(&mut self, wish: &Wish, at_most: Option<Duration>) -> Result<Option<Hold>> {
        let until = at_most.map_or(Time::FAR, |at_most| BootClock.now() + at_most);
        self.answer_to(wish, until)?.map(|answer| self.hold(wish.ticket, answer)).transpose()
    }

    /// Does without what was asked for. If it came meanwhile it is released.
    ///
    /// # Errors
    /// [`Error::NotOurs`]; if the helper cannot be reached.
    pub fn give_up(&mut self, wish: Wish) -> Result<()> {
        self.check(wish.connection)?;
        self.call(LockRequest::Cancel { ticket: wish.ticket })?;
        // That it was cancelled, or that it had come and is released: either way an answer, which is taken out of the others' way.
        self.answer_to(&wish, BootClock.now() + AT_ONCE).map(|_| ())
    }

    /// Takes a lock if it is free.
    ///
    /// # Errors
    /// [`Error::NotFree`]; [`Error::Refused`] as for [`acquire`](Self::acquire).
    pub fn try_acquire(&mut self, name: &[u8], mode: LockMode) -> Result<Hold> {
        let wish = self.ask_for(name, mode, true)?;
        match self.wait(&wish, Some(AT_ONCE))? {
            Some(hold) => Ok(hold),
            None => {
                self.give_up(wish)?;
                Err(Error::NotInTime { waited: AT_ONCE })
            }
        }
    }

    /// Releases it.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was not held to the end; [`Error::Refused`] if it was released before; [`Error::NotOurs`].
    pub fn release(&mut self, hold: Hold) -> Result<()> {
        self.check(hold.connection)?;
        let was_held = self.is_held(&hold);
        match self.call(LockRequest::Release { ticket: hold.ticket }) {
            Ok(LockAnswer::Done) if was_held => Ok(()),
            Ok(LockAnswer::Done | LockAnswer::Lost) => Err(Error::Lost),
            Ok(other) => Err(unexpected(other)),
            Err(error) if error.is_over() => Err(Error::Lost),
            Err(error) => Err(error),
        }
    }

    /// Lets others read with it from the moment when this returns. The token is a new one, and no other client held the
    /// lock alone meanwhile.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Refused`] if it is not held exclusively, or more than once; [`Error::NotOurs`]. After any other it may be held either way, and
    /// counts as shared.
    pub fn share(&mut self, hold: &mut Hold) -> Result<()> {
        self.check(hold.connection)?;
        let was = std::mem::replace(&mut hold.mode, LockMode::Shared);
        let answer = self.call(LockRequest::Share { ticket: hold.ticket });
        if let Err(Error::Refused(_)) = answer {
            hold.mode = was;
        }
        match answer? {
            LockAnswer::Held { mode, token, lapses } => {
                *hold = Hold { mode, token, lapses, ..*hold };
                Ok(())
            }
            LockAnswer::Lost => Err(Error::Lost),
            other => Err(unexpected(other)),
        }
    }

    /// Whether it is still held, now: two loads and a look at the clock. False before another client can have the lock.
    pub fn is_held(&self, hold: &Hold) -> bool {
        self.watch.is_held(hold)
    }

    /// Until when what is held is held if the node's lease is not renewed any more, on CLOCK_BOOTTIME.
    pub fn held_until(&self) -> Time {
        self.watch.held_until()
    }

    /// The holders and waiters of the locks whose names begin with `prefix`, on all nodes: of all locks if it is empty.
    /// Each node reports its own programs, a part at a time, so what changes meanwhile is in it as it was before or
    /// after.
    ///
    /// # Errors
    /// [`Error::Refused`] if the prefix is longer than names are.
    pub fn list(&mut self, prefix: &[u8]) -> Result<LockList> {
        let (mut list, mut after) = (LockList::default(), None);
        loop {
            let part = self.call(LockRequest::List { after: after.take(), prefix: prefix.to_vec() })?;
            let LockAnswer::List { locks, silent, more } = part else { return Err(unexpected(part)) };
            list.silent.extend(silent);
            after = locks.last().map(|last| (last.name.clone(), last.rank));
            list.locks.extend(locks);
            if !more || after.is_none() {
                return Ok(list);
            }
        }
    }

    /// Makes a lock's home forget it, on whichever node that is: the words that it took are free for others. Says whether the home knew it. Tokens go on
    /// growing if it is wanted again.
    ///
    /// # Errors
    /// [`Error::InUse`] if a client holds it or waits for it, and nothing has changed; [`Error::Refused`] for a name
    /// that cannot be, if its home does not answer, and
    /// if the lock has given most of the tokens of the view.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        match self.call(LockRequest::Remove { name: name.to_vec() })? {
            LockAnswer::Removed { was_known } => Ok(was_known),
            LockAnswer::NotFree => {
                let mut users = self.list(name)?;
                users.locks.retain(|at| at.name == name);
                Err(Error::InUse { users })
            }
            other => Err(unexpected(other)),
        }
    }

    fn ask_for(&mut self, name: &[u8], mode: LockMode, is_try: bool) -> Result<Wish> {
        self.tickets += 1;
        let ticket = self.tickets;
        let acquire = LockRequest::Acquire { ticket, name: name.to_vec(), mode, is_try };
        let request = self.post(&Request::Lock(acquire), BootClock.now() + AT_ONCE)?;
        Ok(Wish { connection: self.watch.number, ticket, request })
    }

    /// The answer to this wish, if it is there in time.
    fn answer_to(&mut self, wish: &Wish, until: Time) -> Result<Option<LockAnswer>> {
        self.check(wish.connection)?;
        self.answer_numbered(wish.request, until)?.map(lock_answer).transpose()
    }

    /// The answer to the request of this number, if it is there in time.
    pub(crate) fn answer_numbered(&mut self, number: u64, until: Time) -> Result<Option<Answer>> {
        loop {
            match self.asked.get(&number) {
                None => return Err(Error::NotOurs),
                Some(None) => {}
                Some(Some(_)) => {
                    let response = self.asked.remove(&number).flatten().expect("invariant: it was just seen");
                    return Ok(Some(Answer::decode(&response.answer.map_err(verbena_ipc::Error::from)?)?));
                }
            }
            let polled = self.connection.poll(until);
            let Some(response) = self.heard(polled)? else { return Ok(None) };
            // An answer that no caller waits for any more is dropped.
            if let Some(place) = self.asked.get_mut(&response.number) {
                *place = Some(response);
            }
        }
    }

    /// The caller does not wait any more for the answer to the request of this number.
    pub(crate) fn does_without(&mut self, number: u64) {
        self.asked.remove(&number);
    }

    pub(crate) fn board(&self) -> &BoardReader {
        &self.watch.board
    }

    /// What the helper handed over with its answer to this request.
    pub(crate) fn attached(&mut self, number: u64) -> Result<Option<OwnedFd>> {
        let attached = self.connection.attached(number);
        self.heard(Ok(attached))
    }

    /// Asks for anything, and gives the request's number.
    pub(crate) fn post(&mut self, request: &Request, until: Time) -> Result<u64> {
        self.check(self.watch.number)?;
        let posted = self.connection.post(&request.encode(), until);
        let number = self.heard(posted)?;
        self.asked.insert(number, None);
        Ok(number)
    }

    fn call(&mut self, request: LockRequest) -> Result<LockAnswer> {
        let answer = self.connection.call(&Request::Lock(request).encode(), BootClock.now() + AT_ONCE);
        lock_answer(Answer::decode(&self.heard(answer)?)?)
    }

    /// Whatever the connection says, those who watch hear whether it is over.
    fn heard<T>(&self, said: std::result::Result<T, verbena_ipc::Error>) -> Result<T> {
        if self.connection.is_over() {
            self.watch.is_over.store(true, Ordering::Release);
        }
        Ok(said?)
    }

    fn check(&self, connection: u64) -> Result<()> {
        match connection == self.watch.number {
            _ if self.maker != std::process::id() => Err(Error::Forked { maker: self.maker }),
            true => Ok(()),
            false => Err(Error::NotOurs),
        }
    }

    fn hold(&self, ticket: u64, answer: LockAnswer) -> Result<Hold> {
        match answer {
            LockAnswer::Held { mode, token, lapses } => {
                Ok(Hold { connection: self.watch.number, ticket, mode, token, lapses })
            }
            LockAnswer::NotFree => Err(Error::NotFree),
            LockAnswer::Lost => Err(Error::Lost),
            LockAnswer::Deadlock(circle) => Err(Error::Deadlock { circle }),
            other => Err(unexpected(other)),
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        // Before the socket is closed, after which others have the locks.
        self.watch.is_over.store(true, Ordering::Release);
    }
}

impl Watch {
    /// How often a waiter for a loss looks: two loads and a look at the clock.
    pub const LOOKS_EVERY: Duration = Duration::from_millis(5);

    /// Waits until it is no longer held, as long as `at_most`, without that as long as it takes. Says whether that is so, at most
    /// [`LOOKS_EVERY`](Self::LOOKS_EVERY) later where the thread runs. It needs no other process for that. Of a hold
    /// that was released it knows nothing.
    pub fn wait_lost(&self, hold: &Hold, at_most: Option<Duration>) -> bool {
        let Ok(is_lost) = Self::wait_until_not(at_most, || Ok::<_, Infallible>(self.is_held(hold)));
        is_lost
    }

    /// The same for a caller that knows of other ways in which a hold ends: `is_held` is called again and again.
    ///
    /// # Errors
    /// The first of `is_held`.
    pub fn wait_until_not<E>(
        at_most: Option<Duration>,
        mut is_held: impl FnMut() -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        let until = at_most.map_or(Time::FAR, |at_most| BootClock.now() + at_most);
        while is_held()? {
            let left = until.since(BootClock.now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(Self::LOOKS_EVERY));
        }
        Ok(true)
    }

    /// As [`Locks::is_held`]; false of a hold of another connection, and once this one has been dropped.
    pub fn is_held(&self, hold: &Hold) -> bool {
        hold.connection == self.number
            && !self.is_over.load(Ordering::Acquire)
            && board::is_good(&self.board, BOARD_LAPSES, hold.lapses)
    }

    /// How long it is held if the node's lease is not renewed any more; zero if it is not held.
    pub fn good_for(&self, hold: &Hold) -> Duration {
        // The end first: what is renewed in between is longer than said.
        let until = self.held_until();
        if self.is_held(hold) { until.since(BootClock.now()) } else { Duration::ZERO }
    }

    /// As [`Locks::held_until`].
    pub fn held_until(&self) -> Time {
        board::leased_until(&self.board)
    }
}

/// The connection's socket. A hold lasts as long as any process has the socket. A program that starts another one under
/// a lock lets it inherit the socket, so that the lock is not free before both have ended.
impl AsFd for Locks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn lock_answer(answer: Answer) -> Result<LockAnswer> {
    match answer {
        Answer::Lock(answer) => Ok(answer),
        Answer::Refused(why) => Err(Error::Refused(why)),
        other => Err(Error::Malformed(format!("another question's: {other:.80?}"))),
    }
}

fn unexpected(answer: LockAnswer) -> Error {
    Error::Malformed(format!("another question's: {answer:?}"))
}
