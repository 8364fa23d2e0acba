//! What a call returns, and the words behind it.

use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use verbena_client::{Error, Failure as Why};

/// How a call went. `verbena_last_error` has the words.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum verbena_result {
    /// It is done.
    VERBENA_OK = 0,
    /// The lock was not free in time, or not free at all where the limit was 0: nothing is held, and nothing is waited for. Or a checkpoint was not complete in time.
    VERBENA_NOT_IN_TIME = 1,
    /// The lock was held, and was lost before this call: others may have had it. The hold is over.
    VERBENA_LOST = 2,
    /// The hold is none of this connection: it was released, is another one's, or was never given. Nothing was changed.
    VERBENA_NOT_HELD = 3,
    /// The helper refuses, and says why: no room for another lock; a share of what is shared already; alone what this connection holds shared; it takes no
    /// requests for memory now.
    VERBENA_REFUSED = 4,
    /// No helper listens there: start one with `verbena node`.
    VERBENA_NO_HELPER = 5,
    /// The connection has ended, and with it all that was held by it. Close it and connect again.
    VERBENA_DISCONNECTED = 6,
    /// The helper did not answer in time. What was asked may have been done; close the connection if it matters.
    VERBENA_NO_ANSWER = 7,
    /// A null pointer, a length, a mode, a time, or what else cannot be. Nothing was done.
    VERBENA_BAD_ARGUMENT = 8,
    /// Another thread is in a call with this connection. Nothing was done.
    VERBENA_BUSY = 9,
    /// The connection was made before a fork(2), by the parent. Nothing was done.
    VERBENA_FORKED = 10,
    /// The helper is of another version, or the system refused something.
    VERBENA_FAILED = 11,
    /// A mistake in this library. The connection is of no use any more: close it.
    VERBENA_INTERNAL = 12,
    /// Those who hold the lock wait for locks that this connection holds, and it was the last that began to wait: release what it holds, and begin anew.
    VERBENA_DEADLOCK = 13,
    /// There is no segment of this name, or no such complete checkpoint.
    VERBENA_NOT_FOUND = 14,
    /// There is a segment of this name.
    VERBENA_EXISTS = 15,
    /// The segment was released.
    VERBENA_RELEASED = 16,
    /// The segment's home is gone, and the value with it.
    VERBENA_GONE = 17,
    /// The value is of another version than the one that was to be replaced. Nothing was put.
    VERBENA_CONFLICT = 18,
    /// The segment's home is full, or the user has all that it may have. Nothing was allocated.
    VERBENA_NO_ROOM = 19,
    /// Bytes that the segment does not have. Nothing was read or put.
    VERBENA_OUT_OF_RANGE = 20,
    /// The segment is another user's. Nothing was read or changed.
    VERBENA_NOT_YOURS = 21,
    /// Nobody knows whether it was done, or will be.
    VERBENA_UNKNOWN = 22,
    /// It could not be done in time, and was not done.
    VERBENA_LATE = 23,
    /// The segment's home took its memory back, and the value went with it. Its name is free.
    VERBENA_RECLAIMED = 24,
    /// Somebody holds the lock or waits for it, and verbena_last_error says who: it was not removed.
    VERBENA_IN_USE = 25,
    /// Another process began again: all go back to the newest complete checkpoint, so this one is to join again.
    VERBENA_ROLLED_BACK = 26,
    /// The segment's value is not in memory that this program can read in place: verbena_memory_get reads it.
    VERBENA_ELSEWHERE = 27,
}

use verbena_result::*;

/// A result with its words.
pub(crate) struct Failure {
    pub(crate) result: verbena_result,
    words: String,
}

impl Failure {
    pub(crate) fn new(result: verbena_result, words: impl Into<String>) -> Self {
        Failure { result, words: words.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let result = match &error {
            Error::NotFree | Error::NotInTime { .. } => VERBENA_NOT_IN_TIME,
            Error::InUse { .. } => VERBENA_IN_USE,
            Error::RolledBack => VERBENA_ROLLED_BACK,
            Error::Lost => VERBENA_LOST,
            Error::NotOurs => VERBENA_NOT_HELD,
            Error::Deadlock { .. } => VERBENA_DEADLOCK,
            Error::Refused(_) | Error::Unavailable(_) | Error::Unconfirmed => VERBENA_REFUSED,
            Error::NoHelper { .. } => VERBENA_NO_HELPER,
            Error::Forked { .. } => VERBENA_FORKED,
            Error::Memory { why, .. } => match why {
                Why::Bad => VERBENA_BAD_ARGUMENT,
                Why::NotFound => VERBENA_NOT_FOUND,
                Why::Exists => VERBENA_EXISTS,
                Why::Released => VERBENA_RELEASED,
                Why::Lost => VERBENA_GONE,
                Why::NotYours => VERBENA_NOT_YOURS,
                Why::OutOfRange => VERBENA_OUT_OF_RANGE,
                Why::Conflict { .. } => VERBENA_CONFLICT,
                Why::NoRoom => VERBENA_NO_ROOM,
                Why::Late => VERBENA_LATE,
                Why::Unknown => VERBENA_UNKNOWN,
                Why::Reclaimed => VERBENA_RECLAIMED,
                Why::Elsewhere => VERBENA_ELSEWHERE,
                Why::Unavailable => VERBENA_REFUSED,
            },
            error if error.is_over() => VERBENA_DISCONNECTED,
            error if error.is_late() => VERBENA_NO_ANSWER,
            _ => VERBENA_FAILED,
        };
        Failure::new(result, error.to_string())
    }
}

pub(crate) fn bad(words: &str) -> Failure {
    Failure::new(VERBENA_BAD_ARGUMENT, words)
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What C hears of `done`, whose words are kept for this thread; a panic ends here.
pub(crate) fn tell(done: impl FnOnce() -> Result<(), Failure>) -> verbena_result {
    // What a panic leaves half done is the connection, whose mutex is poisoned by it and refuses from then on.
    let done = catch_unwind(AssertUnwindSafe(done));
    let (result, words) = match done {
        Ok(Ok(())) => return VERBENA_OK,
        Ok(Err(Failure { result, words })) => (result, words),
        Err(_) => (VERBENA_INTERNAL, "a mistake in libverbena: what it panicked with is on standard error".into()),
    };
    // A thread that is ending has no place for words any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = words);
    result
}

/// The same for what returns a value: that of `otherwise` where there is none.
pub(crate) fn tell_value<T: Copy>(otherwise: T, value: impl FnOnce() -> Result<T, Failure>) -> T {
    let mut found = otherwise;
    tell(|| {
        found = value()?;
        Ok(())
    });
    found
}

/// Writes why this thread's last call that failed did so into `buffer`, cut to `size` bytes with the null byte at the end. A call that succeeds leaves
/// the words as they are.
///
/// \return how many bytes they have without the null byte, whatever was written; as snprintf(3). So `verbena_last_error(NULL, 0)` measures them.
///
/// # Safety
/// `buffer` is null, or `size` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_last_error(buffer: *mut c_char, size: usize) -> usize {
    let words = LAST.try_with(|last| last.borrow().clone()).unwrap_or_default();
    // What a path brought along: C would see the end of the words there.
    let words = words.replace('\0', "?");
    if !buffer.is_null() && size > 0 {
        let mut length = words.len().min(size - 1);
        while !words.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: `length` < `size` bytes and one more can be written, says the caller; they are ours to read, and nobody else's memory.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), buffer.cast(), length);
            *buffer.add(length) = 0;
        }
    }
    words.len()
}

/// The version of this library, as "0.1.0". For ever valid.
#[unsafe(no_mangle)]
pub extern "C" fn verbena_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
