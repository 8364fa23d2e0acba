//! Locks of the cluster, for a program.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbena_ipc::Connection;
use verbena_terms::{BootClock, Clock, Time};

use crate::error::{Error, Result};
use crate::helper::connect_to;
use crate::socket::Socket;
use crate::wire::{Answer, BOARD_LAPSES, BOARD_LEASE, LockAnswer, LockAt, LockMode, LockRequest, Request};

/// How long a helper may take for what is done at once.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A program's connection for locks. For one thread at a time; other threads connect for themselves. Dropped, or when the program ends
/// in whatever way, all that it holds is released.
///
/// A hold lasts as long as the node's lease, which the helper renews: nobody else gets the lock before that has run out. Whether it has,
/// [`is_held`](Self::is_held) knows without asking anybody, also when the helper is stopped or dead. But between that question and what
/// is done next any time can pass, if the program is stopped: whoever writes to a store sends the hold's [`token`](Hold::token) with
/// it, and the store refuses one that is smaller than one it has seen (rule L7).
pub struct Locks {
    connection: Connection,
    tickets: u64,
}

/// Who has and waits for which lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockList {
    /// In the order of names, and of the ranks of nodes.
    pub locks: Vec<LockAt>,
    /// Names of members that did not answer: what their programs have is not in it.
    pub silent: BTreeSet<String>,
}

/// A lock that is held. Dropping it releases nothing: give it to [`Locks::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it stays held until it is released"]
pub struct Hold {
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
        Ok(Locks { connection: connect_to(socket, patience)?, tickets: 0 })
    }

    /// Waits for a lock as long as `at_most`; without that as long as it takes. Names are any 1 to 1024 bytes.
    ///
    /// A lock that this connection holds it gets once more at once, with the same token and in the mode in which it has it; it is free when all its holds of
    /// it are released.
    ///
    /// # Errors
    /// [`Error::NotInTime`]; [`Error::Deadlock`] where it would wait for itself, across whichever nodes: the youngest of those that do is told;
    /// [`Error::Refused`] for a name that cannot be, if the lock's home has no room for another, or if this connection holds it shared and wants it alone.
    pub fn acquire(&mut self, name: &[u8], mode: LockMode, at_most: Option<Duration>) -> Result<Hold> {
        let until = at_most.map_or(Time::FAR, |at_most| BootClock.now() + at_most);
        let (ticket, request) = self.ask_for(name, mode, false)?;
        loop {
            match self.answer_to(request, until)? {
                Some(answer) => return hold(ticket, answer),
                None if BootClock.now() >= until => {
                    self.call(LockRequest::Cancel { ticket })?;
                    // If it was granted meanwhile it has been released again.
                    self.answer_to(request, BootClock.now() + AT_ONCE)?;
                    return Err(Error::NotInTime { waited: at_most.unwrap_or_default() });
                }
                None => {}
            }
        }
    }

    /// Takes a lock if it is free.
    ///
    /// # Errors
    /// [`Error::NotFree`]; [`Error::Refused`] as for [`acquire`](Self::acquire).
    pub fn try_acquire(&mut self, name: &[u8], mode: LockMode) -> Result<Hold> {
        let (ticket, request) = self.ask_for(name, mode, true)?;
        let answer = self.answer_to(request, BootClock.now() + AT_ONCE)?;
        let Some(answer) = answer else {
            self.call(LockRequest::Cancel { ticket })?;
            return Err(Error::NotInTime { waited: AT_ONCE });
        };
        hold(ticket, answer)
    }

    /// Releases it.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was not held to the end.
    pub fn release(&mut self, hold: Hold) -> Result<()> {
        let was_held = self.is_held(&hold);
        match self.call(LockRequest::Release { ticket: hold.ticket })? {
            LockAnswer::Done if was_held => Ok(()),
            LockAnswer::Done | LockAnswer::Lost => Err(Error::Lost),
            other => Err(unexpected(other)),
        }
    }

    /// Lets others read with it, from the moment on at which this returns. The token is another one, and nobody held the lock alone meanwhile.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Refused`] if it is not held exclusively, or more than once. After any other it may be held either way, and counts as shared.
    pub fn share(&mut self, hold: &mut Hold) -> Result<()> {
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

    /// Whether it is still held, now: two loads and a look at the clock. False as soon as anybody else could have the lock.
    pub fn is_held(&self, hold: &Hold) -> bool {
        // The losses last: whoever is stopped in between sees a loss rather than the lease that followed it.
        !self.connection.is_over()
            && BootClock.now() < self.held_until()
            && self.connection.board(BOARD_LAPSES) == hold.lapses
    }

    /// Until when what is held is held if the node's lease is not renewed any more, on CLOCK_BOOTTIME.
    pub fn held_until(&self) -> Time {
        Time::from_nanos(self.connection.board(BOARD_LEASE))
    }

    /// Who has and waits for the locks whose names begin with `prefix`, on all nodes: of all locks if it is empty. Each node says what its programs have, a part at a
    /// time, so what changes meanwhile is in it as it was before or after.
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

    fn ask_for(&mut self, name: &[u8], mode: LockMode, is_try: bool) -> Result<(u64, u64)> {
        self.tickets += 1;
        let ticket = self.tickets;
        let acquire = LockRequest::Acquire { ticket, name: name.to_vec(), mode, is_try };
        let request = self.connection.post(&Request::Lock(acquire).encode(), BootClock.now() + AT_ONCE)?;
        Ok((ticket, request))
    }

    /// The answer to this request, if it is there in time.
    fn answer_to(&mut self, request: u64, until: Time) -> Result<Option<LockAnswer>> {
        while let Some(response) = self.connection.poll(until)? {
            if response.number == request {
                return read(&response.answer.map_err(verbena_ipc::Error::from)?).map(Some);
            }
        }
        Ok(None)
    }

    fn call(&mut self, request: LockRequest) -> Result<LockAnswer> {
        read(&self.connection.call(&Request::Lock(request).encode(), BootClock.now() + AT_ONCE)?)
    }
}

/// The connection's socket. What is held is held as long as any process has it: whoever starts another that is to be protected by a lock lets it inherit
/// the socket, so that the lock is not free before both have ended.
impl AsFd for Locks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn read(bytes: &[u8]) -> Result<LockAnswer> {
    match Answer::decode(bytes)? {
        Answer::Lock(answer) => Ok(answer),
        Answer::Refused(why) => Err(Error::Refused(why)),
        other => Err(Error::Malformed(format!("another question's: {other:.80?}"))),
    }
}

fn hold(ticket: u64, answer: LockAnswer) -> Result<Hold> {
    match answer {
        LockAnswer::Held { mode, token, lapses } => Ok(Hold { ticket, mode, token, lapses }),
        LockAnswer::NotFree => Err(Error::NotFree),
        LockAnswer::Lost => Err(Error::Lost),
        LockAnswer::Deadlock(circle) => Err(Error::Deadlock { circle }),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: LockAnswer) -> Error {
    Error::Malformed(format!("another question's: {answer:?}"))
}
