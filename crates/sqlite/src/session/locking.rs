//! The locks of a session's database: taken, given back, and what becomes of the session where either fails.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rsqlite_vfs::{LockLevel, VfsError, VfsErrorCode, VfsResult};
use verbena_client::wire::LockMode;

use super::{File, HoldOf, Session};
use crate::error::{failed, is_settled};
use crate::store::{Connect, Store};

/// How long to wait for a lock before SQLite gets the answer that the database is busy. SQLite asks again until its
/// busy timeout has passed.
const WAIT: Duration = Duration::from_millis(100);

impl<C: Connect> Session<C> {
    /// Takes the database's locks, up to `level`.
    pub(crate) fn lock(&mut self, level: LockLevel) -> VfsResult<()> {
        if level <= self.level {
            return Ok(());
        }
        if self.level == LockLevel::None {
            self.readers = Some(self.acquire_first()?);
            (self.level, self.is_alone, self.has_failed) = (LockLevel::Shared, false, false);
            // What others wrote meanwhile is not known.
            self.files.clear();
            self.versions.clear();
        }
        if level == LockLevel::Shared {
            return Ok(());
        }
        if self.writer.is_none() {
            self.writer = Some(self.acquire(true, LockMode::Exclusive)?);
            self.writes.store(true, Ordering::Release);
            self.level = LockLevel::Reserved;
        }
        if level == LockLevel::Exclusive {
            self.lock_alone()?;
        }
        Ok(())
    }

    /// If it fails for another reason than that others read, nothing is held for long: reads and writes fail until all locks are given back.
    fn lock_alone(&mut self) -> VfsResult<()> {
        // No other session writes until this one is alone, or reads again: a session that writes has the other lock.
        let readers = self.readers.take();
        self.give_back(readers).map_err(|error| failed(VfsErrorCode::IoLock, "lock", &error))?;
        self.level = LockLevel::Pending;
        match self.acquire(false, LockMode::Exclusive) {
            Ok(alone) => self.readers = Some(alone),
            Err(error) => {
                self.readers = Some(self.acquire(false, LockMode::Shared)?);
                return Err(error);
            }
        }
        // If this program died, its two locks would not become free at one moment. A session that found the readers'
        // lock free and this one taken would believe that the program is alive, and pass over its journal.
        let writer = self.writer.take();
        if let Err(error) = self.give_back(writer) {
            // It may not have been held to this moment, and another may have written.
            let readers = self.readers.take();
            let _ = self.give_back(readers);
            return Err(failed(VfsErrorCode::IoLock, "lock", &error));
        }
        (self.level, self.is_alone) = (LockLevel::Exclusive, true);
        Ok(())
    }

    /// Gives them back, down to `level`. That what was to be put was not is an error; that a lock was lost is one of the next read or write.
    pub(crate) fn unlock(&mut self, level: LockLevel) -> VfsResult<()> {
        if level >= self.level {
            return Ok(());
        }
        let put = if self.level > LockLevel::Shared { self.put_at_the_end(level) } else { Ok(()) };
        if put.is_err() || self.has_failed {
            self.files.clear();
            self.versions.clear();
        }
        self.release_down_to(level);
        self.level = level;
        self.writes.store(false, Ordering::Release);
        if level == LockLevel::None && self.is_worn {
            // What it may still hold is free when it has ended.
            self.memory = None;
        }
        put
    }

    /// Where SQLite does not sync, the end of a transaction is not put yet.
    fn put_at_the_end(&mut self, level: LockLevel) -> VfsResult<()> {
        if !self.has_failed {
            return self.put_all(None);
        }
        // SQLite knows of the failure where it gives up all locks, and rolls back.
        if level == LockLevel::None || self.files.values().all(File::is_synced) {
            return Ok(());
        }
        Err(VfsError::new(VfsErrorCode::IoUnlock, "what was written before a failure was not put".into()))
    }

    fn release_down_to(&mut self, level: LockLevel) {
        let writer = self.writer.take();
        let _ = self.give_back(writer);
        if level == LockLevel::None {
            let readers = self.readers.take();
            let _ = self.give_back(readers);
        } else if self.is_alone
            && let Some(mut hold) = self.readers
        {
            // If it fails the lock may be held alone still, until it is released.
            let shared = self.ask(|memory| memory.share(&mut hold));
            self.readers = shared.is_ok().then_some(hold).or(self.readers);
        }
        self.is_alone = false;
    }

    /// Releases a lock. If it may be held all the same the connection is worn.
    fn give_back(&mut self, hold: Option<HoldOf<C>>) -> verbena_client::Result<()> {
        let Some(hold) = hold else { return Ok(()) };
        let released = self.ask(|memory| memory.unlock(hold));
        self.is_worn |= released.as_ref().is_err_and(|error| !is_settled(error));
        released
    }

    /// Whether any session is going to write.
    pub(crate) fn is_reserved(&mut self) -> VfsResult<bool> {
        if self.level > LockLevel::Shared {
            return Ok(true);
        }
        match self.acquire(true, LockMode::Exclusive) {
            Ok(hold) => {
                let _ = self.give_back(Some(hold));
                Ok(false)
            }
            Err(error) if error.code() == VfsErrorCode::Busy => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The writers' lock if it is free, or the readers'. If it may be held though it failed the connection is worn.
    fn acquire(&mut self, is_writers: bool, mode: LockMode) -> VfsResult<HoldOf<C>> {
        let unguarded = || VfsError::new(VfsErrorCode::IoLock, "only databases are locked".into());
        let (_, mut name) = self.guards.clone().ok_or_else(unguarded)?;
        if !is_writers {
            name.extend(b"/readers");
        }
        let held = self.ask(|memory| memory.acquire(&name, mode, if is_writers { Duration::ZERO } else { WAIT }));
        held.map_err(|error| match error {
            verbena_client::Error::NotFree | verbena_client::Error::NotInTime { .. } => {
                VfsError::new(VfsErrorCode::Busy, "others have the database locked".into())
            }
            error => {
                self.is_worn |= !is_settled(&error);
                failed(VfsErrorCode::IoLock, "lock", &error)
            }
        })
    }

    /// The readers' lock, over a new connection if there is no old one or it has ended. The database may be another one
    /// by then.
    fn acquire_first(&mut self) -> VfsResult<HoldOf<C>> {
        if self.memory.is_some() && !self.is_worn {
            match self.acquire(false, LockMode::Shared) {
                Err(_) if self.is_worn => {}
                acquired => return acquired,
            }
        }
        if let Some((name, _)) = self.guards.clone() {
            self.guard(&name)?;
        }
        self.acquire(false, LockMode::Shared)
    }
}
