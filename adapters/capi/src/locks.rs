//! Connections and what they hold.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use verbena_client::wire::LockMode;
use verbena_client::{Error, Hold, Memory, Socket, Watch};

use crate::error::verbena_result::{self, *};
use crate::error::{Failure, bad, tell, tell_value};

/// Longest name of a lock, bytes.
pub const VERBENA_MAX_NAME_BYTES: usize = 1024;
const _: () = assert!(VERBENA_MAX_NAME_BYTES == verbena_client::MAX_NAME_BYTES);

/// As a limit: as long as it takes.
pub const VERBENA_NO_LIMIT: i64 = -1;

/// How a lock is held.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum verbena_mode {
    /// With others that hold it so.
    VERBENA_SHARED = 1,
    /// Alone.
    VERBENA_EXCLUSIVE = 2,
}

/// A program's connection for locks, for one thread: what it holds it gets once more at once, so threads that are to exclude each other connect each for
/// itself. What only looks can be called by any. When it is closed, or the program ends in whatever way, all that it holds is released.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct verbena_locks {
    /// Who is in a call. A connection for memory has locks, and one for locks is no less than that.
    memory: Mutex<Memory>,
    /// What was given and not released. Never locked for longer than a look.
    holds: Mutex<BTreeMap<u64, Hold>>,
    watch: Watch,
    /// Of a `verbena_memory`, and closed with it.
    is_part: bool,
}

/// What was acquired, to be copied as one likes: no memory is behind it. One of zeros is none.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_hold {
    /// No two holds of a process have the same.
    number: u64,
}

/// Connects to the helper of this machine. `path` is its socket (it ends in ".sock"), or the directory of one that is called local.sock; NULL: the user's
/// own, where `verbena node` makes it if it is told nothing else. Waits `timeout_ms` at most. `*locks` is for verbena_close, and NULL after an error.
///
/// # Safety
/// `path` is null or ends with a null byte; `locks` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_connect(
    path: *const c_char,
    timeout_ms: u32,
    locks: *mut *mut verbena_locks,
) -> verbena_result {
    tell(|| {
        if locks.is_null() {
            return Err(bad("locks is NULL"));
        }
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { locks.write(std::ptr::null_mut()) };
        // SAFETY: null or with an end, says the caller.
        let made = unsafe { verbena_locks::connect(path, timeout_ms, false) }?;
        // SAFETY: as above.
        unsafe { locks.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Closes a connection: all that it holds is released, and the pointer is of no use any more. NULL is nothing, nor are the locks of a verbena_memory.
///
/// # Safety
/// `locks` is null, or of verbena_connect and not closed yet; nobody is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_close(locks: *mut verbena_locks) {
    tell(|| {
        // SAFETY: null or open, says the caller.
        if unsafe { locks.as_ref() }.is_some_and(|locks| !locks.is_part) {
            // SAFETY: `verbena_connect` made it by `Box::into_raw`; it is closed once, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(locks) });
        }
        Ok(())
    });
}

/// Waits for a lock, `timeout_ms` at most while the helper runs (one that is stopped is waited for up to five seconds more): 0 takes it only if it is free, VERBENA_NO_LIMIT waits as long as it takes. `name` is any 1 to
/// VERBENA_MAX_NAME_BYTES bytes, `mode` VERBENA_SHARED or VERBENA_EXCLUSIVE. After an error `*hold` is none. A lock that this connection holds it gets once
/// more at once, with the same token; it is free when all its holds of it are released.
///
/// # Safety
/// `locks` is null, or of verbena_connect and not closed; `name` is null or `length` bytes; `hold` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_acquire(
    locks: *mut verbena_locks,
    name: *const c_void,
    length: usize,
    mode: c_int,
    timeout_ms: i64,
    hold: *mut verbena_hold,
) -> verbena_result {
    tell(|| {
        if hold.is_null() {
            return Err(bad("hold is NULL"));
        }
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { hold.write(verbena_hold::NONE) };
        // SAFETY: null or open, says the caller.
        let locks = unsafe { reach(locks) }?;
        // SAFETY: null or so many bytes, says the caller.
        let name = unsafe { lock_name(name, length) }?;
        let acquired = locks.acquire(mode, timeout_ms, |_| Ok(name.to_vec()))?;
        // SAFETY: as above.
        unsafe { hold.write(acquired) };
        Ok(())
    })
}

/// Releases a lock. VERBENA_LOST says that it was not held to the end. Unless it says VERBENA_NO_ANSWER, VERBENA_BUSY or VERBENA_FORKED the hold is over.
///
/// # Safety
/// `locks` is null, or of verbena_connect and not closed; `hold` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_release(locks: *mut verbena_locks, hold: *const verbena_hold) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, number) = unsafe { (reach(locks)?, read(hold)?) };
        let mut entered = locks.enter()?;
        let held = locks.find(number)?;
        // Before others can have it: nobody who looks meanwhile hears that it is held.
        locks.holds().remove(&number);
        let released = entered.locks().release(held);
        if released.as_ref().is_err_and(|error| error.is_late() || matches!(error, Error::Forked { .. })) {
            locks.holds().insert(number, held);
        }
        Ok(released?)
    })
}

/// Lets others that share it hold the lock as well, from now on. The token is another one afterwards; nobody held the lock alone in between. Not back: for
/// that it is released and acquired again.
///
/// # Safety
/// As for verbena_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_share(locks: *mut verbena_locks, hold: *const verbena_hold) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, number) = unsafe { (reach(locks)?, read(hold)?) };
        let mut entered = locks.enter()?;
        let mut held = locks.find(number)?;
        let shared = entered.locks().share(&mut held);
        // Also after an error: it may count as shared then.
        locks.holds().insert(number, held);
        Ok(shared?)
    })
}

/// Makes a lock's home forget it, for a name that will not be used again; `name` as for verbena_acquire. VERBENA_IN_USE says that somebody holds it or waits
/// for it, verbena_last_error who, and nothing has changed. `*was_known` says whether its home knew it, if it is not NULL; false after an error.
///
/// # Safety
/// `locks` is null, or of verbena_connect and not closed; `name` is null or `length` bytes; `was_known` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_lock_remove(
    locks: *mut verbena_locks,
    name: *const c_void,
    length: usize,
    was_known: *mut bool,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { write(was_known, false) };
        // SAFETY: null or open, null or so many bytes, says the caller.
        let (locks, name) = unsafe { (reach(locks)?, lock_name(name, length)?) };
        let removed = locks.enter()?.locks().remove(name)?;
        // SAFETY: as above.
        unsafe { write(was_known, removed) };
        Ok(())
    })
}

/// Whether the lock is still held, now. Asks nobody and does not wait: three loads and a look at the clock. False as soon as anybody else could have it,
/// and for what is no hold of this connection.
///
/// # Safety
/// As for verbena_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_is_held(locks: *const verbena_locks, hold: *const verbena_hold) -> bool {
    // SAFETY: null or open, null or readable, says the caller.
    tell_value(false, || unsafe { look(locks, hold) }.map(|(locks, held)| locks.watch.is_held(&held)))
}

/// Waits until the lock is no longer held, `timeout_ms` at most: VERBENA_NO_LIMIT waits as long as it takes. Says whether that is so, a few milliseconds after it is, which
/// nobody has to be there to tell; true at once for what is no hold of this connection, and when another thread releases it. For a thread of its own, beside one
/// that works under the lock: it keeps nobody from using the connection.
///
/// # Safety
/// As for verbena_release; and nobody closes `locks` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_wait_lost(
    locks: *const verbena_locks,
    hold: *const verbena_hold,
    timeout_ms: i64,
) -> bool {
    tell_value(true, || {
        // SAFETY: null or open, null or readable, says the caller. It is looked for again each time: another thread may release it.
        let is_held = || unsafe { look(locks, hold) }.map(|(locks, held)| locks.watch.is_held(&held));
        Watch::wait_until_not(limit(timeout_ms)?, is_held)
    })
}

/// The fencing token: larger than those of all who held the lock alone before. A store that refuses a token smaller than one it has seen is safe from
/// those who lost the lock and do not know it yet. 0 for what is no hold of this connection.
///
/// # Safety
/// As for verbena_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_token(locks: *const verbena_locks, hold: *const verbena_hold) -> u64 {
    // SAFETY: null or open, null or readable, says the caller.
    tell_value(0, || unsafe { look(locks, hold) }.map(|(_, held)| held.token()))
}

/// VERBENA_SHARED or VERBENA_EXCLUSIVE; 0 for what is no hold of this connection.
///
/// # Safety
/// As for verbena_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_mode_of(locks: *const verbena_locks, hold: *const verbena_hold) -> c_int {
    // SAFETY: null or open, null or readable, says the caller.
    let mode = || unsafe { look(locks, hold) }.map(|(_, held)| held.mode());
    tell_value(0, || {
        mode().map(|mode| match mode {
            LockMode::Shared => verbena_mode::VERBENA_SHARED as c_int,
            LockMode::Exclusive => verbena_mode::VERBENA_EXCLUSIVE as c_int,
        })
    })
}

/// How long the lock is held if the node's lease is not renewed from now on, nanoseconds. It is renewed all the time, so this is what is left if the
/// helper or the network stops. 0 for what is not held.
///
/// # Safety
/// As for verbena_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_good_for_ns(locks: *const verbena_locks, hold: *const verbena_hold) -> u64 {
    // SAFETY: null or open, null or readable, says the caller.
    let held = || unsafe { look(locks, hold) };
    tell_value(0, || {
        held().map(|(locks, held)| u64::try_from(locks.watch.good_for(&held).as_nanos()).unwrap_or(u64::MAX))
    })
}

/// The moment at which the node's lease ends if it is not renewed, nanoseconds of CLOCK_BOOTTIME: all that is held by this connection is held until then.
/// 0 for NULL.
///
/// # Safety
/// `locks` is null, or of verbena_connect and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_held_until_ns(locks: *const verbena_locks) -> u64 {
    // SAFETY: null or open, says the caller.
    tell_value(0, || unsafe { reach(locks) }.map(|locks| locks.watch.held_until().nanos()))
}

fn limit(timeout_ms: i64) -> Result<Option<Duration>, Failure> {
    match timeout_ms {
        VERBENA_NO_LIMIT => Ok(None),
        limit => {
            let limit = u64::try_from(limit).map_err(|_| bad("a limit below 0 that is not VERBENA_NO_LIMIT"))?;
            Ok(Some(Duration::from_millis(limit)))
        }
    }
}

impl verbena_hold {
    pub(crate) const NONE: verbena_hold = verbena_hold { number: 0 };
}

impl verbena_locks {
    /// # Safety
    /// `path` is null or ends with a null byte.
    pub(crate) unsafe fn connect(path: *const c_char, timeout_ms: u32, is_part: bool) -> Result<Self, Failure> {
        let socket = if path.is_null() {
            Socket::new(None, None)?
        } else {
            // SAFETY: not null, so it ends with a null byte, says the caller; it is read before this returns.
            let path = unsafe { CStr::from_ptr(path) };
            if path.is_empty() {
                return Err(bad("the path is empty"));
            }
            Socket::at(Path::new(OsStr::from_bytes(path.to_bytes())))
        };
        let mut memory = Memory::connect(&socket, Duration::from_millis(timeout_ms.into()))?;
        let watch = memory.locks().watch().clone();
        Ok(verbena_locks { memory: Mutex::new(memory), holds: Mutex::default(), watch, is_part })
    }

    pub(crate) fn acquire(
        &self,
        mode: c_int,
        timeout_ms: i64,
        name: impl FnOnce(&mut Memory) -> Result<Vec<u8>, Error>,
    ) -> Result<verbena_hold, Failure> {
        let mode = match mode {
            mode if mode == verbena_mode::VERBENA_SHARED as c_int => LockMode::Shared,
            mode if mode == verbena_mode::VERBENA_EXCLUSIVE as c_int => LockMode::Exclusive,
            other => return Err(bad(&format!("{other} is no mode: VERBENA_SHARED or VERBENA_EXCLUSIVE"))),
        };
        let limit = limit(timeout_ms)?;
        let mut memory = self.enter()?;
        let name = name(&mut memory)?;
        let held = memory.locks().acquire(&name, mode, limit)?;
        static HOLDS: AtomicU64 = AtomicU64::new(1);
        let number = HOLDS.fetch_add(1, Ordering::Relaxed);
        self.holds().insert(number, held);
        Ok(verbena_hold { number })
    }

    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, Memory>, Failure> {
        self.memory.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::new(VERBENA_BUSY, "another thread is in a call with this connection: each connects for itself")
            }
            TryLockError::Poisoned(_) => Failure::new(VERBENA_INTERNAL, "a call with this connection panicked"),
        })
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<u64, Hold>> {
        // Every change of it is one call, so it is whole whatever panicked.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, number: u64) -> Result<Hold, Failure> {
        let none = || Failure::new(VERBENA_NOT_HELD, "no hold of this connection: it was released, or never given");
        self.holds().get(&number).copied().ok_or_else(none)
    }
}

/// # Safety
/// It is null, or of `verbena_connect` and not closed while the result is used.
unsafe fn reach<'a>(locks: *const verbena_locks) -> Result<&'a verbena_locks, Failure> {
    // SAFETY: a box of `verbena_connect` that is not closed, says the caller; it is only ever shared, its parts have mutexes.
    unsafe { locks.as_ref() }.ok_or_else(|| bad("locks is NULL"))
}

/// # Safety
/// It is null, or `length` bytes that stay while the result is used.
unsafe fn lock_name<'a>(name: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    if name.is_null() {
        return Err(bad("the name is NULL"));
    }
    if length == 0 || length > VERBENA_MAX_NAME_BYTES {
        return Err(bad(&format!("a lock's name of {length} bytes: it must have 1 to {VERBENA_MAX_NAME_BYTES}")));
    }
    // SAFETY: not null and not long, and so many bytes can be read, says the caller.
    Ok(unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) })
}

/// # Safety
/// It is null or can be read.
unsafe fn read(hold: *const verbena_hold) -> Result<u64, Failure> {
    // SAFETY: a number of C's, aligned as C aligns it and readable, says the caller; any number is one.
    unsafe { hold.as_ref() }.map(|hold| hold.number).ok_or_else(|| bad("hold is NULL"))
}

/// # Safety
/// As for `reach` and `read`.
unsafe fn look<'a>(
    locks: *const verbena_locks,
    hold: *const verbena_hold,
) -> Result<(&'a verbena_locks, Hold), Failure> {
    // SAFETY: as they demand, says the caller.
    let (locks, number) = unsafe { (reach(locks)?, read(hold)?) };
    locks.find(number).map(|held| (locks, held))
}

/// # Safety
/// It is null or can be written.
pub(crate) unsafe fn write<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { place.write(value) };
    }
}
