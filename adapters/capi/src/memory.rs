//! Memory that nodes share.

use std::ffi::{CStr, c_char, c_int, c_void};

use verbena_client::{
    Coherence, Error, Failure as Why, Incarnation, NewSegment, PutOptions, SegmentId, SegmentInfo, Which,
};

use crate::error::{Failure, bad, tell, tell_value, verbena_result};
use crate::locks::{verbena_hold, verbena_locks, verbena_release, write};

/// Longest name of a segment, bytes.
pub const VERBENA_MAX_SEGMENT_NAME_BYTES: usize = 255;

/// A program's connection for memory that nodes share, for one thread; others hear VERBENA_BUSY meanwhile. Segments stay when it is closed; the locks that
/// it holds are released.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct verbena_memory {
    locks: verbena_locks,
}

/// Which segment, to be copied as one likes, and sent to other programs of the cluster: no memory is behind it. Never used for another one. One of zeros is
/// none.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_segment {
    /// The rank of its home.
    pub rank: u32,
    /// Which of the home's lives.
    pub start: u32,
    /// Counted from 1 in that life.
    pub number: u64,
}

/// What is known of a segment.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct verbena_segment_info {
    /// Which.
    pub segment: verbena_segment,
    /// Bytes of its value.
    pub bytes: u64,
    /// Bytes that it takes at its home.
    pub takes: u64,
    /// Of its value; 0 from verbena_memory_list, which does not ask for it.
    pub version: u64,
    /// When that was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, for `null`, and from verbena_memory_list.
    pub stamp_ns: u64,
    /// The user whose it is.
    pub owner: u32,
    /// Nodes that can fill a slot at a time.
    pub writers: u32,
    /// Nodes that are to hold it.
    pub copies: u32,
    /// Nodes that do: fewer where some were lost, until others have room.
    pub held: u32,
    /// What it promises, as verbena_memory_allocate takes it.
    pub coherence: [c_char; 48],
    /// What its home is called.
    pub home: [c_char; 256],
    /// What it is called; empty if it has no name.
    pub name: [c_char; 256],
    /// Milliseconds until its home takes its memory back; UINT64_MAX where that has given no notice.
    pub goes_in_ms: u64,
}
const _: () = assert!(VERBENA_MAX_SEGMENT_NAME_BYTES < 256);

/// Connects to the helper of this machine; `path` as for verbena_connect. Waits `timeout_ms` at most, and so does each call with the connection, but for
/// verbena_memory_lock (and a second more, for what became of it). `*memory` is for verbena_memory_close, and NULL after an error.
///
/// # Safety
/// `path` is null or ends with a null byte; `memory` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_connect(
    path: *const c_char,
    timeout_ms: u32,
    memory: *mut *mut verbena_memory,
) -> verbena_result {
    tell(|| {
        if memory.is_null() {
            return Err(bad("memory is NULL"));
        }
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { memory.write(std::ptr::null_mut()) };
        // SAFETY: null or with an end, says the caller.
        let locks = unsafe { verbena_locks::connect(path, timeout_ms, true) }?;
        // SAFETY: as above.
        unsafe { memory.write(Box::into_raw(Box::new(verbena_memory { locks }))) };
        Ok(())
    })
}

/// Closes a connection: the locks that it holds are released, and the pointer is of no use any more. NULL is nothing.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed yet; nobody is in a call with it or its locks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_close(memory: *mut verbena_memory) {
    tell(|| {
        if !memory.is_null() {
            // SAFETY: `verbena_memory_connect` made it by `Box::into_raw`; it is closed once, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(memory) });
        }
        Ok(())
    });
}

/// The locks of this connection, those of segments among them: for verbena_is_held and all that takes a verbena_locks. They are closed with it, not before.
/// NULL for NULL.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_locks(memory: *mut verbena_memory) -> *mut verbena_locks {
    // SAFETY: null or open, says the caller.
    tell_value(std::ptr::null_mut(), || unsafe { reach(memory) }.map(|locks| std::ptr::from_ref(locks).cast_mut()))
}

/// Makes a segment of `bytes` zeros, 1 to 16 MiB. `name`: up to VERBENA_MAX_SEGMENT_NAME_BYTES of UTF-8, or NULL for none. `coherence`: "null", "read",
/// "write", "strict", "version", "delta(4)", "temporal(20ms)"; NULL: "strict". `writers`: nodes that can fill a slot at a time, 0 for 3. `copies`: nodes that hold it, 1 to 4, 0 for 1: it is lost when all of them are. `placement`:
/// "most-free", "local", "spread" or a node's name; NULL: "most-free". After an error `*segment` is none. It stays until it is released or its home ends.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; the three texts are null or end with a null byte; `segment` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_allocate(
    memory: *mut verbena_memory,
    name: *const c_char,
    bytes: u64,
    coherence: *const c_char,
    writers: u32,
    copies: u32,
    placement: *const c_char,
    segment: *mut verbena_segment,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(segment, verbena_segment::NONE, "segment") }?;
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name, coherence, placement) = unsafe {
            (reach(memory)?, text(name, "name")?, text(coherence, "coherence")?, text(placement, "placement")?)
        };
        let mut new = NewSegment { name: name.map(Into::into), ..NewSegment::of(bytes) };
        if let Some(coherence) = coherence {
            new = new.coherent(coherence.parse::<Coherence>().map_err(|error| bad(&error.to_string()))?);
        }
        if writers > 0 {
            new.writers = u8::try_from(writers).map_err(|_| bad(&format!("{writers} writers")))?;
        }
        if copies > 0 {
            new.copies = u8::try_from(copies).map_err(|_| bad(&format!("{copies} copies")))?;
        }
        if let Some(placement) = placement {
            let Ok(placement) = placement.parse();
            new = new.placed(placement);
        }
        let made = locks.enter()?.allocate(new)?;
        // SAFETY: cleared above, so it can be written.
        unsafe { segment.write(made.id.into()) };
        Ok(())
    })
}

/// The segment of this name. After an error `*segment` is none.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `segment` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_find(
    memory: *mut verbena_memory,
    name: *const c_char,
    segment: *mut verbena_segment,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(segment, verbena_segment::NONE, "segment") }?;
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { (reach(memory)?, text(name, "name")?) };
        let found = locks.enter()?.stat(name.ok_or_else(|| bad("the name is NULL"))?)?;
        // SAFETY: cleared above, so it can be written.
        unsafe { segment.write(found.id.into()) };
        Ok(())
    })
}

/// Gives up a segment: its memory and its name are free. For one whose home is gone there is verbena_memory_release_name.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `segment` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_release(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id) = unsafe { (reach(memory)?, read(segment)?) };
        Ok(locks.enter()?.release(id)?)
    })
}

/// Gives up the segment of this name. One whose home is gone (VERBENA_GONE) gives up its name.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_release_name(
    memory: *mut verbena_memory,
    name: *const c_char,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, name) = unsafe { (reach(memory)?, text(name, "name")?) };
        Ok(locks.enter()?.release(name.ok_or_else(|| bad("the name is NULL"))?)?)
    })
}

/// Copies `length` bytes of the value from `offset` on into `buffer`: all of one version (but for `null`). `*version` and `*stamp_ns` are the value's, if
/// they are not NULL. After an error the buffer is as it was.
///
/// # Safety
/// As for verbena_memory_release; `buffer` is null, or `length` bytes can be written there; `version` and `stamp_ns` are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_get(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    version: *mut u64,
    stamp_ns: *mut u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id) = unsafe { (reach(memory)?, read(segment)?) };
        if buffer.is_null() {
            return Err(bad("the buffer is NULL"));
        }
        let value = locks.enter()?.get_part(id, offset, Some(length as u64))?;
        assert_eq!(value.bytes.len(), length, "invariant: what is got is what was asked for");
        // SAFETY: so many bytes, and the two numbers unless they are null, can be written, says the caller; the bytes are ours, and nobody else's memory.
        unsafe {
            std::ptr::copy_nonoverlapping(value.bytes.as_ptr(), buffer.cast(), length);
            write(version, value.version);
            write(stamp_ns, value.stamp_ns);
        }
        Ok(())
    })
}

/// Puts `length` bytes in the place of those from `offset` on. With `over` it replaces the value of version `*over` and no other, which a segment that is
/// coherent by "version" demands. `*version` is the new version, or after VERBENA_CONFLICT the one that there is, if it is not NULL; it may be `over`.
///
/// # Safety
/// As for verbena_memory_release; `bytes` is null or `length` bytes; `over` is null or can be read, `version` null or written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_put(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
    offset: u64,
    bytes: *const c_void,
    length: usize,
    over: *const u64,
    version: *mut u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id, over) = unsafe { (reach(memory)?, read(segment)?, over.as_ref().copied()) };
        if bytes.is_null() {
            return Err(bad("the bytes are NULL"));
        }
        if isize::try_from(length).is_err() {
            return Err(bad("more bytes than there can be"));
        }
        // SAFETY: not null, and so many bytes can be read, says the caller; they are read before this returns.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        let put = locks.enter()?.put_with(id, bytes, PutOptions { offset, over });
        let there = match &put {
            Ok(new) => Some(*new),
            Err(Error::Memory { why: Why::Conflict { current }, .. }) => Some(*current),
            Err(_) => None,
        };
        if let Some(there) = there {
            // SAFETY: null or writable, says the caller.
            unsafe { write(version, there) };
        }
        Ok(put.map(|_| ())?)
    })
}

/// What is known of a segment, and how old its value is. After an error `*info` is as it was.
///
/// # Safety
/// As for verbena_memory_release; `info` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_stat(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
    info: *mut verbena_segment_info,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id) = unsafe { (reach(memory)?, read(segment)?) };
        if info.is_null() {
            return Err(bad("info is NULL"));
        }
        let stat = locks.enter()?.stat(id)?;
        // SAFETY: not null, so it can be written, says the caller.
        unsafe { info.write(verbena_segment_info::new(&stat.segment, stat.version, stat.stamp_ns)) };
        Ok(())
    })
}

/// Writes the segments whose names begin with `prefix` (NULL or "": all, those without a name too) to `infos`, `capacity` at most, in the order of their
/// homes and numbers. `*count` is how many there are, also if that is more; `*silent` is how many homes did not answer, whose segments are not among them. With
/// capacity 0 it counts, and `infos` may be NULL.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `prefix` is null or ends with a null byte; `capacity` infos can be written; `count` and
/// `silent` are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_list(
    memory: *mut verbena_memory,
    prefix: *const c_char,
    infos: *mut verbena_segment_info,
    capacity: usize,
    count: *mut usize,
    silent: *mut usize,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or with an end, says the caller.
        let (locks, prefix) = unsafe { (reach(memory)?, text(prefix, "prefix")?) };
        if infos.is_null() && capacity > 0 {
            return Err(bad("infos is NULL"));
        }
        let list = locks.enter()?.list(prefix.unwrap_or_default())?;
        for (nth, segment) in list.segments.iter().take(capacity).enumerate() {
            // SAFETY: less than `capacity`, so it is not null and can be written, says the caller.
            unsafe { infos.add(nth).write(verbena_segment_info::new(segment, 0, 0)) };
        }
        // SAFETY: null or writable, says the caller.
        unsafe {
            write(count, list.segments.len());
            write(silent, list.silent.len());
        }
        Ok(())
    })
}

/// Waits for a segment's lock, as verbena_acquire for a lock by name. It keeps out whoever asks for it as well, and nobody else: gets and puts do not look at
/// it. The hold is one of verbena_memory_locks, for verbena_is_held, verbena_token and the like. Another user's segment is VERBENA_NOT_YOURS.
///
/// # Safety
/// As for verbena_memory_release; `hold` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_lock(
    memory: *mut verbena_memory,
    segment: *const verbena_segment,
    mode: c_int,
    timeout_ms: i64,
    hold: *mut verbena_hold,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(hold, verbena_hold::NONE, "hold") }?;
        // SAFETY: null or open, null or readable, says the caller.
        let (locks, id) = unsafe { (reach(memory)?, read(segment)?) };
        let acquired = locks.acquire(mode, timeout_ms, |memory| memory.lock_name(id))?;
        // SAFETY: cleared above, so it can be written.
        unsafe { hold.write(acquired) };
        Ok(())
    })
}

/// Releases it when everything that this connection has put has arrived, or never will. Results as of verbena_release.
///
/// # Safety
/// `memory` is null, or of verbena_memory_connect and not closed; `hold` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_memory_unlock(
    memory: *mut verbena_memory,
    hold: *const verbena_hold,
) -> verbena_result {
    // SAFETY: as the caller says; the locks of an open connection are open.
    unsafe { verbena_release(verbena_memory_locks(memory), hold) }
}

impl verbena_segment {
    const NONE: verbena_segment = verbena_segment { rank: 0, start: 0, number: 0 };
}

impl From<SegmentId> for verbena_segment {
    fn from(id: SegmentId) -> Self {
        verbena_segment { rank: id.home.rank.0, start: id.home.start, number: id.number }
    }
}

impl verbena_segment_info {
    fn new(segment: &SegmentInfo, version: u64, stamp_ns: u64) -> Self {
        let SegmentInfo { id, name, bytes, coherence, writers, takes, owner, home, copies, backups, goes_in_ms } =
            segment;
        verbena_segment_info {
            segment: (*id).into(),
            bytes: *bytes,
            takes: *takes,
            version,
            stamp_ns,
            owner: *owner,
            writers: (*writers).into(),
            copies: (*copies).into(),
            held: 1 + backups.len() as u32,
            coherence: chars(&coherence.to_string()),
            home: chars(home),
            name: chars(name.as_deref().unwrap_or_default()),
            goes_in_ms: goes_in_ms.unwrap_or(u64::MAX),
        }
    }
}

/// As a string of C, cut where it has to be.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (place, byte) in chars.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = byte as c_char;
    }
    chars
}

/// # Safety
/// It is null, or of `verbena_memory_connect` and not closed while the result is used.
pub(crate) unsafe fn reach<'a>(memory: *const verbena_memory) -> Result<&'a verbena_locks, Failure> {
    // SAFETY: a box of `verbena_memory_connect` that is not closed, says the caller; it is only ever shared, its parts have mutexes.
    unsafe { memory.as_ref() }.map(|memory| &memory.locks).ok_or_else(|| bad("memory is NULL"))
}

/// # Safety
/// It is null or can be read.
pub(crate) unsafe fn read(segment: *const verbena_segment) -> Result<Which, Failure> {
    // SAFETY: three numbers of C's, aligned as C aligns them and readable, says the caller; any numbers are some.
    match unsafe { segment.as_ref() } {
        None => Err(bad("segment is NULL")),
        Some(&verbena_segment::NONE) => Err(bad("the segment is none: its numbers are 0")),
        Some(&verbena_segment { rank, start, number }) => {
            Ok(SegmentId { home: Incarnation::new(rank, start), number }.into())
        }
    }
}

/// # Safety
/// It is null or ends with a null byte, and stays while the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it ends with a null byte, says the caller.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| bad(&format!("the {what} is no UTF-8")))
}

/// Nothing is to be read there after an error.
///
/// # Safety
/// It is null or can be written.
pub(crate) unsafe fn clear<T>(place: *mut T, none: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(bad(&format!("{what} is NULL")));
    }
    // SAFETY: not null, so it can be written, says the caller.
    unsafe { place.write(none) };
    Ok(())
}
