//! Values of segments where they are.

use std::ffi::c_void;

use verbena_client::Window;

use crate::error::{Failure, bad, tell, tell_value, verbena_result};
use crate::memory::{clear, reach, read, verbena_memory, verbena_segment};

/// A segment's value where it is, in the memory of its home: for programs of that node. For any thread, also when the connection has been closed; but nobody else uses it while one
/// calls verbena_window_newest or verbena_window_close. It keeps the memory mapped until it is closed.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct verbena_window {
    window: Window,
}

/// Opens a window onto a segment's newest value, without a copy. VERBENA_ELSEWHERE: its home is another node, the fabric's memory is of another kind, or the user is neither the
/// one that runs the node nor root; verbena_memory_get reads it then. `*window` is for verbena_window_close, and NULL after an error.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `segment` is null or can be read; `window` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_window(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
    window: *mut *mut verbena_window,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(window, std::ptr::null_mut(), "window") }?;
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id) = unsafe { (reach(memory)?, read(segment)?) };
        let opened = verbena_window { window: locks.enter()?.window(id)? };
        // SAFETY: cleared above, so it can be written.
        unsafe { window.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// The bytes of the value, verbena_window_bytes of them, valid until the window is closed or moved. They may be written over while they are read: after some more puts a
/// later value is there. So what was read counts if verbena_window_holds says so after that. NULL for NULL.
///
/// # Safety
/// `window` is null, or of verbena_memory_window and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_data(window: *const verbena_window) -> *const c_void {
    // SAFETY: null or open, says the caller.
    tell_value(std::ptr::null(), || Ok(unsafe { look(window) }?.as_ptr().cast()))
}

/// How many bytes the value has; 0 for NULL.
///
/// # Safety
/// As for verbena_window_data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_bytes(window: *const verbena_window) -> usize {
    // SAFETY: null or open, says the caller.
    tell_value(0, || Ok(unsafe { look(window) }?.len()))
}

/// The version of the value, which grows by one with each put; 0 for NULL.
///
/// # Safety
/// As for verbena_window_data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_version(window: *const verbena_window) -> u64 {
    // SAFETY: null or open, says the caller.
    tell_value(0, || Ok(unsafe { look(window) }?.version()))
}

/// When it was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, for `null`, and for NULL.
///
/// # Safety
/// As for verbena_window_data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_stamp_ns(window: *const verbena_window) -> u64 {
    // SAFETY: null or open, says the caller.
    tell_value(0, || Ok(unsafe { look(window) }?.stamp_ns()))
}

/// Whether all that was read through the window so far was this version, and the segment's newest value at a moment after it was asked for. Nobody is asked. False for NULL.
///
/// # Safety
/// As for verbena_window_data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_holds(window: *const verbena_window) -> bool {
    // SAFETY: null or open, says the caller.
    tell_value(false, || Ok(unsafe { look(window) }?.holds()))
}

/// Whether nothing newer was put so far. Nobody is asked. False for NULL.
///
/// # Safety
/// As for verbena_window_data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_is_newest(window: *const verbena_window) -> bool {
    // SAFETY: null or open, says the caller.
    tell_value(false, || Ok(unsafe { look(window) }?.is_newest()))
}

/// Moves the window to the newest value. False where that is not there any more: it stays as it is then, and verbena_memory_window opens another, or says what became of the segment.
///
/// # Safety
/// As for verbena_window_data; nobody else uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_newest(window: *mut verbena_window) -> bool {
    tell_value(false, || {
        // SAFETY: null or open, and nobody else's, says the caller.
        let it = unsafe { window.as_mut() }.ok_or_else(none)?;
        let newest = it.window.newest();
        let is_there = newest.is_some();
        it.window = newest.unwrap_or_else(|| it.window.clone());
        Ok(is_there)
    })
}

/// Closes it. NULL is nothing.
///
/// # Safety
/// `window` is null, or of verbena_memory_window and not closed yet; nobody uses it or its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_window_close(window: *mut verbena_window) {
    tell(|| {
        if !window.is_null() {
            // SAFETY: `verbena_memory_window` made it by `Box::into_raw`; it is closed once, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(window) });
        }
        Ok(())
    });
}

fn none() -> Failure {
    bad("window is NULL")
}

/// # Safety
/// It is null, or of `verbena_memory_window` and not closed while the result is used.
unsafe fn look<'a>(window: *const verbena_window) -> Result<&'a Window, Failure> {
    // SAFETY: a box of `verbena_memory_window` that is not closed, says the caller.
    unsafe { window.as_ref() }.map(|it| &it.window).ok_or_else(none)
}
