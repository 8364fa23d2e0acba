//! Checkpoints that are consistent across processes.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use verbena_client::{CheckpointOptions, CheckpointRecord, Placement};

use crate::error::verbena_result::{self, *};
use crate::error::{Failure, bad, tell};
use crate::locks::{verbena_locks, write};
use crate::memory::{clear, reach, text, verbena_memory};

/// A process's place among those that save.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_joined {
    /// The era that it is in: what it says when it saves. From 1 on.
    pub era: u64,
    /// The newest complete checkpoint, from which it goes on; 0 if there is none.
    pub number: u64,
}

/// How the saving of checkpoints stands.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_checkpoints {
    /// How often all began again, and 1.
    pub era: u64,
    /// The oldest complete checkpoint that is there.
    pub oldest: u64,
    /// The newest; 0 if there is none.
    pub complete: u64,
    /// Bytes that the part of a process may have.
    pub bytes: u64,
    /// How many checkpoints have room: the one that is being saved, and so many complete ones.
    pub kept: u32,
    /// How many processes save.
    pub processes: u32,
}

/// How far a process is.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_checkpoint_process {
    /// Whether it has joined in this era.
    pub has_joined: bool,
    /// Which checkpoint it saved last in this era; 0 if it has saved none.
    pub saved: u64,
}

/// Makes room for checkpoints of this name, of `processes` processes with parts of up to `bytes` bytes. `kept`: how many have room, 2 to 64, 0 for 2: the one that is being saved, and
/// so many complete ones. `copies`: nodes that hold each part, 1 to 4, 0 for 1. `placement` as for verbena_memory_allocate; NULL: "spread".
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; the two texts are null or end with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_make(
    memory: *mut verbena_memory,
    name: *const c_char,
    processes: u32,
    bytes: u64,
    kept: u32,
    copies: u32,
    placement: *const c_char,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let ((locks, name), placement) = unsafe { (named(memory, name)?, text(placement, "placement")?) };
        let or = |given: u32, otherwise| if given == 0 { otherwise } else { given };
        let copies = u8::try_from(or(copies, 1)).map_err(|_| bad(&format!("{copies} copies")))?;
        let placement = placement.map_or(Placement::Spread, |placement| {
            let Ok(placement) = placement.parse();
            placement
        });
        let options = CheckpointOptions { processes, bytes, copies, kept: or(kept, 2), placement };
        Ok(locks.enter()?.make_checkpoints(name, &options)?)
    })
}

/// A process begins, or begins again: it is to go on from checkpoint `joined->number`, of which its part is copied into `part` if that has `capacity` bytes enough. `*length` is how
/// many it has, also if that is more: verbena_checkpoints_part reads it then. 0 bytes where there is no checkpoint. A process that joins twice in an era has crashed, and all go back
/// to that checkpoint. After an error `*joined` is zeros.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `joined` is null or can be written; `part` is null, or `capacity` bytes can
/// be written there; `length` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_join(
    memory: *mut verbena_memory,
    name: *const c_char,
    process: u32,
    joined: *mut verbena_joined,
    part: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(joined, verbena_joined { era: 0, number: 0 }, "joined") }?;
        let part = room(part, capacity)?;
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        let (its, found) = locks.enter()?.join_checkpoints(name, process)?;
        // SAFETY: cleared above, so it can be written; the part as `room` says; null or writable.
        unsafe {
            joined.write(verbena_joined { era: its.era, number: its.number });
            copy(&found.unwrap_or_default(), part, length);
        }
        Ok(())
    })
}

/// Saves a process's part of checkpoint `number`, the next after the newest complete one, in the era that it joined. `*complete` is the newest complete one then, if it is not NULL.
/// VERBENA_ROLLED_BACK: another process began again; this one is to join again, and what it did since the checkpoint that it then gets did not happen.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `part` is null or `length` bytes; `complete` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_save(
    memory: *mut verbena_memory,
    name: *const c_char,
    process: u32,
    era: u64,
    number: u64,
    part: *const c_void,
    length: usize,
    complete: *mut u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        if part.is_null() {
            return Err(bad("the part is NULL"));
        }
        if isize::try_from(length).is_err() {
            return Err(bad("more bytes than there can be"));
        }
        // SAFETY: not null, and so many bytes can be read, says the caller; they are read before this returns.
        let part = unsafe { std::slice::from_raw_parts(part.cast::<u8>(), length) };
        let newest = locks.enter()?.save_checkpoint(name, process, era, number, part)?;
        // SAFETY: null or writable, says the caller.
        unsafe { write(complete, newest) };
        Ok(())
    })
}

/// Waits until all have saved a checkpoint, `timeout_ms` at most: VERBENA_NOT_IN_TIME if it is not complete by then. VERBENA_ROLLED_BACK as for verbena_checkpoints_save.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_wait(
    memory: *mut verbena_memory,
    name: *const c_char,
    era: u64,
    number: u64,
    timeout_ms: u32,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        let at_most = Duration::from_millis(timeout_ms.into());
        if locks.enter()?.wait_for_checkpoint(name, era, number, at_most)? {
            return Ok(());
        }
        let words = format!("checkpoint {number} of {name} was not complete within {at_most:?}");
        Err(Failure::new(VERBENA_NOT_IN_TIME, words))
    })
}

/// Copies a process's part of a complete checkpoint into `part` if that has `capacity` bytes enough, for who only looks; `*length` as for verbena_checkpoints_join.
/// VERBENA_NOT_FOUND: it is not complete, or not there any more.
///
/// # Safety
/// As for verbena_checkpoints_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_part(
    memory: *mut verbena_memory,
    name: *const c_char,
    process: u32,
    number: u64,
    part: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> verbena_result {
    tell(|| {
        let part = room(part, capacity)?;
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        let found = locks.enter()?.checkpoint_part(name, process, number)?;
        // SAFETY: as `room` says; null or writable.
        unsafe { copy(&found, part, length) };
        Ok(())
    })
}

/// How the saving of this name stands; how far each process is goes to `processes`, `capacity` at most, which may be 0. After an error `*checkpoints` is as it was.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `checkpoints` is null or can be written; so can `capacity` processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_show(
    memory: *mut verbena_memory,
    name: *const c_char,
    checkpoints: *mut verbena_checkpoints,
    processes: *mut verbena_checkpoint_process,
    capacity: usize,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        if checkpoints.is_null() || (processes.is_null() && capacity > 0) {
            return Err(bad("checkpoints is NULL, or processes is"));
        }
        let CheckpointRecord { era, oldest, complete, kept, bytes, processes: all } =
            locks.enter()?.checkpoints(name)?;
        let count = all.len() as u32;
        let shown = verbena_checkpoints { era, oldest, complete, bytes, kept, processes: count };
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { checkpoints.write(shown) };
        for (nth, (has_joined, saved)) in all.into_iter().take(capacity).enumerate() {
            // SAFETY: less than `capacity`, so it is not null and can be written, says the caller.
            unsafe { processes.add(nth).write(verbena_checkpoint_process { has_joined, saved }) };
        }
        Ok(())
    })
}

/// Makes all processes begin again from an older complete checkpoint: each is told by its next save.
///
/// # Safety
/// As for verbena_checkpoints_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_roll_back(
    memory: *mut verbena_memory,
    name: *const c_char,
    number: u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        Ok(locks.enter()?.roll_back(name, number)?)
    })
}

/// Releases the segments of all checkpoints of this name. If that ends early it can be done again.
///
/// # Safety
/// As for verbena_checkpoints_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_checkpoints_remove(
    memory: *mut verbena_memory,
    name: *const c_char,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { named(memory, name) }?;
        Ok(locks.enter()?.remove_checkpoints(name)?)
    })
}

/// # Safety
/// As for `reach` and `text`.
unsafe fn named<'a>(
    memory: *const verbena_memory,
    name: *const c_char,
) -> Result<(&'a verbena_locks, &'a str), Failure> {
    // SAFETY: as they demand, says the caller.
    let (locks, name) = unsafe { (reach(memory)?, text(name, "name")?) };
    Ok((locks, name.ok_or_else(|| bad("the name is NULL"))?))
}

/// Where a part goes, with how many bytes have room there.
fn room(part: *mut c_void, capacity: usize) -> Result<(*mut u8, usize), Failure> {
    if part.is_null() && capacity > 0 { Err(bad("the part is NULL")) } else { Ok((part.cast(), capacity)) }
}

/// # Safety
/// So many bytes can be written there; `length` is null or can be written.
unsafe fn copy(found: &[u8], (part, capacity): (*mut u8, usize), length: *mut usize) {
    if !found.is_empty() && found.len() <= capacity {
        // SAFETY: some and not more than can be written there, says the caller; they are ours, and nobody else's memory.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), part, found.len()) };
    }
    // SAFETY: null or writable, says the caller.
    unsafe { write(length, found.len()) };
}
