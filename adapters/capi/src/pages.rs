//! Copies of pages that a web server's own cache keeps, and the writes that it forwards.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, SystemTime};

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request};
use verbena_caching::{Arrival, BESIDE_DATABASE, Bracket, Intent, Keys, Request, Route, Writes, received, store};
use verbena_client::page_wire::PageWords;
use verbena_client::{Depends, Outcome, Pages, Scope, Socket, Stamp};
use verbena_terms::{BootClock, Clock, Time};

use crate::error::verbena_result::{self, *};
use crate::error::{Failure, bad, tell, tell_value};
use crate::locks::write;
use crate::memory::{clear, text};

/// A connection for copies of pages, for one thread at a time. When it is closed, or the program ends in whatever way, the outcome of each write that has
/// not ended is unknown: what it touches is in no cache for a while.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct verbena_pages {
    pages: Mutex<Pages>,
}

/// A request, from its head to the end of its answer. For one thread at a time.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct verbena_fill {
    head: request::Parts,
    wanted: Request,
    route: Route,
    read: Option<(Time, PageWords)>,
    /// What an answer that may be stored depends on, and under what it is stored.
    answer: Option<(Depends, Stamp)>,
}

/// A field of a request's or an answer's head.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug)]
pub struct verbena_field {
    /// Its name, in any case.
    pub name: *const c_char,
    /// Its value.
    pub value: *const c_char,
}

/// Which requests write.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum verbena_writes {
    /// Those that are not GET, HEAD or OPTIONS, and they touch everything.
    VERBENA_UNSAFE_METHODS = 0,
    /// The same, and the application announces what they touch.
    VERBENA_ANNOUNCED = 1,
    /// All.
    VERBENA_ALWAYS = 2,
    /// None.
    VERBENA_NEVER = 3,
    /// Those that are not GET, HEAD or OPTIONS, into a database that a relay sees: what else they change touches all pages whose dependencies are not known.
    VERBENA_DATABASE = 4,
}

/// What is to be done with a request.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum verbena_intent {
    /// Forward it; use no copy and store none.
    VERBENA_PASS = 0,
    /// Look for a copy; store the answer if there is none that is current.
    VERBENA_LOOK = 1,
    /// It writes: forward it between verbena_update_begin and verbena_update_end.
    VERBENA_WRITE = 2,
}

/// What became of a write.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum verbena_outcome {
    /// The whole answer was read.
    VERBENA_DONE = 0,
    /// Not one byte of it was sent.
    VERBENA_NOT_SENT = 1,
    /// It is not known.
    VERBENA_OUTCOME_UNKNOWN = 2,
}

/// Connects to the helper of this machine; `path` as for verbena_connect. What is asked about pages waits `timeout_ms` at most, each time. `*pages` is for
/// verbena_pages_close, and NULL after an error.
///
/// # Safety
/// `path` is null or ends with a null byte; `pages` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_pages_connect(
    path: *const c_char,
    timeout_ms: u32,
    pages: *mut *mut verbena_pages,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(pages, std::ptr::null_mut(), "pages") }?;
        let socket = if path.is_null() {
            Socket::new(None, None)?
        } else {
            // SAFETY: not null, so it ends with a null byte, says the caller; it is read before this returns.
            let path = unsafe { CStr::from_ptr(path) };
            Socket::at(Path::new(OsStr::from_bytes(path.to_bytes())))
        };
        let made = Pages::connect(&socket, Duration::from_millis(timeout_ms.into()))?;
        // SAFETY: not null, as was seen above.
        unsafe { pages.write(Box::into_raw(Box::new(verbena_pages { pages: Mutex::new(made) }))) };
        Ok(())
    })
}

/// Closes a connection. NULL is nothing.
///
/// # Safety
/// `pages` is null, or of verbena_pages_connect and not closed yet; nobody is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_pages_close(pages: *mut verbena_pages) {
    tell(|| {
        if !pages.is_null() {
            // SAFETY: `verbena_pages_connect` made it by `Box::into_raw`; it is closed once, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(pages) });
        }
        Ok(())
    });
}

/// A request's head: its method, its target (path and query, as the client sent them), `count` fields, whether it has a body, and which requests write there.
/// VERBENA_BAD_ARGUMENT says that it is not fit for a cache: pass it on. `*fill` is for verbena_fill_free, and NULL after an error.
///
/// # Safety
/// The texts are null or end with a null byte, also those of the `count` fields, which can be read; `fill` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_new(
    method: *const c_char,
    target: *const c_char,
    fields: *const verbena_field,
    count: usize,
    has_body: bool,
    writes: c_int,
    fill: *mut *mut verbena_fill,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(fill, std::ptr::null_mut(), "fill") }?;
        // SAFETY: null or with an end, says the caller.
        let (method, target) = unsafe { (text(method, "method")?, text(target, "target")?) };
        // SAFETY: so many fields, says the caller.
        let headers = unsafe { headers(fields, count) }?;
        let writes = match writes {
            0 => Writes::UnsafeMethods,
            1 => Writes::Announced,
            2 => Writes::Always,
            3 => Writes::Never,
            4 => Writes::Database,
            _ => return Err(bad("there are no such writes")),
        };
        let request = http::Request::builder().method(method.unwrap_or_default()).uri(target.unwrap_or_default());
        let request = request.body(()).map_err(|error| bad(&error.to_string()))?;
        let mut head = request.into_parts().0;
        head.headers = headers;
        received(&mut head).map_err(|unfit| bad(&format!("{unfit:?}")))?;
        let route = Route { writes, ..Route::default() };
        // The key is beside the address of a page, so that it needs no secret.
        let wanted = Request::of(&head, has_body, &route, &Keys::new([0; 16]));
        let made = verbena_fill { head, wanted, route, read: None, answer: None };
        // SAFETY: not null, as was seen above.
        unsafe { fill.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Forgets a request. NULL is nothing.
///
/// # Safety
/// `fill` is null, or of verbena_fill_new and not freed yet; nobody is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_free(fill: *mut verbena_fill) {
    tell(|| {
        if !fill.is_null() {
            // SAFETY: `verbena_fill_new` made it by `Box::into_raw`; it is freed once, and nobody uses it, says the caller.
            drop(unsafe { Box::from_raw(fill) });
        }
        Ok(())
    });
}

/// What is to be done with it; VERBENA_PASS for NULL.
///
/// # Safety
/// `fill` is null, or of verbena_fill_new and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_intent(fill: *const verbena_fill) -> verbena_intent {
    tell_value(verbena_intent::VERBENA_PASS, || {
        // SAFETY: null or made, says the caller.
        let fill = unsafe { fill.as_ref() }.ok_or_else(|| bad("fill is NULL"))?;
        Ok(match fill.wanted.intent {
            Intent::Look => verbena_intent::VERBENA_LOOK,
            Intent::Pass(_) | Intent::Update(Bracket::Announced) => verbena_intent::VERBENA_PASS,
            Intent::Update(_) => verbena_intent::VERBENA_WRITE,
        })
    })
}

/// What tells its page from others, beside its address: a copy of another key is another page's. 32 hexadecimal digits, as snprintf(3) would write them.
///
/// # Safety
/// `fill` is null, or of verbena_fill_new and not freed; `buffer` is null, or `size` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_key(fill: *const verbena_fill, buffer: *mut c_char, size: usize) -> usize {
    tell_value(0, || {
        // SAFETY: null or made, says the caller.
        let fill = unsafe { fill.as_ref() }.ok_or_else(|| bad("fill is NULL"))?;
        // SAFETY: null or so many bytes, says the caller.
        Ok(unsafe { print(&format!("{:032x}", fill.wanted.key.0), buffer, size) })
    })
}

/// Reads the page's words, for which the request must have arrived: what it does not begin with cannot be stored. After an error use no copy, and the
/// answer is not stored.
///
/// # Safety
/// `pages` is null, or of verbena_pages_connect and not closed; `fill` is null, or of verbena_fill_new and not freed, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_read(pages: *mut verbena_pages, fill: *mut verbena_fill) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or made, and this call's alone, says the caller.
        let (mut pages, fill) = unsafe { (reach(pages)?, of(fill)?) };
        (fill.read, fill.answer) = (None, None);
        let (host, target) = address(&fill.head);
        let asked = BootClock.now();
        fill.read = Some((asked, pages.words(host, target)?));
        Ok(())
    })
}

/// Whether a copy with this stamp is what the application could have answered when the words were read, and may be used for this request.
///
/// # Safety
/// `fill` is null, or of verbena_fill_new and not freed; `stamp` is null or ends with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_is_current(fill: *const verbena_fill, stamp: *const c_char) -> bool {
    tell_value(false, || {
        // SAFETY: null or made, null or with an end, says the caller.
        let (fill, stamp) = unsafe { (fill.as_ref().ok_or_else(|| bad("fill is NULL"))?, text(stamp, "stamp")?) };
        let stamp: Stamp = stamp.unwrap_or_default().parse()?;
        let is_for_it = fill.wanted.credentials.is_none() || stamp.is_shared();
        Ok(is_for_it && fill.read.is_some_and(|(_, words)| stamp.is_current(&words, BootClock.now())))
    })
}

/// The head of its answer came: whether it may be stored, by what it says and by what it depends on. VERBENA_REFUSED: it must not, verbena_last_error says why.
/// An answer that says by no field where its body ends must have been seen to end: give it "Transfer-Encoding: chunked".
///
/// # Safety
/// As for verbena_fill_read; the `count` fields can be read, and their texts end with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_answer(
    pages: *mut verbena_pages,
    fill: *mut verbena_fill,
    status: u32,
    fields: *const verbena_field,
    count: usize,
) -> verbena_result {
    tell(|| {
        let refused = |why: &str| Failure::new(VERBENA_REFUSED, why);
        // SAFETY: null or open, null or made, and this call's alone, says the caller.
        let (mut pages, fill) = unsafe { (reach(pages)?, of(fill)?) };
        fill.answer = None;
        // SAFETY: so many fields, says the caller.
        let headers = unsafe { headers(fields, count) }?;
        let (asked, words) = fill.read.ok_or_else(|| refused("its words were not read"))?;
        if words.is_busy() {
            return Err(refused("an update is open"));
        }
        if fill.wanted.intent != Intent::Look {
            return Err(refused("its request is not for a copy"));
        }
        let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.ok_or_else(|| bad("that is no status"))?;
        let arrival = Arrival { status, headers: &headers, at: SystemTime::now(), on_its_way: Duration::ZERO };
        let stored = store(&fill.wanted, &fill.head, &fill.route, &arrival);
        let stored = stored.map_err(|reason| refused(reason.name()))?;
        let named = headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        let (host, target) = address(&fill.head);
        let depends = pages.depends(host, target, named.filter(|(name, _)| names_dependencies(name)).collect())?;
        // Its age counts from when it was asked for (RFC 9111 section 4.2.3).
        let expires = stored.lifetime.map(|lifetime| asked + lifetime);
        let stamp = Stamp::new(&words, &depends, expires, stored.for_authorization && stored.for_cookies);
        fill.answer = Some((depends, stamp));
        Ok(())
    })
}

/// What its copy is stored under, for verbena_fill_is_current: text to be kept within the copy, never beside it. It counts only after verbena_fill_register.
/// As snprintf(3); 0 bytes if there is none.
///
/// # Safety
/// As for verbena_fill_key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_stamp(fill: *const verbena_fill, buffer: *mut c_char, size: usize) -> usize {
    tell_value(0, || {
        // SAFETY: null or made, says the caller.
        let fill = unsafe { fill.as_ref() }.ok_or_else(|| bad("fill is NULL"))?;
        let stamp = fill.answer.as_ref().map(|(_, stamp)| stamp.to_string()).unwrap_or_default();
        // SAFETY: null or so many bytes, says the caller.
        Ok(unsafe { print(&stamp, buffer, size) })
    })
}

/// The whole answer is here: asks the page's home whether it may be stored under its stamp. After any error it must not.
///
/// # Safety
/// As for verbena_fill_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_fill_register(pages: *mut verbena_pages, fill: *mut verbena_fill) -> verbena_result {
    tell(|| {
        // SAFETY: null or open, null or made, and this call's alone, says the caller.
        let (mut pages, fill) = unsafe { (reach(pages)?, of(fill)?) };
        let (Some((_, words)), Some((depends, _))) = (fill.read, fill.answer.as_ref()) else {
            return Err(Failure::new(VERBENA_REFUSED, "it has no answer that may be stored"));
        };
        Ok(pages.register(&words, depends)?)
    })
}

/// Begins a write of what bears these `count` names; of everything, if there are none. Forward it after VERBENA_OK and not before; after any error forward
/// nothing, and answer 503. `*update` is for verbena_update_end.
///
/// # Safety
/// `pages` is null, or of verbena_pages_connect and not closed; `names` can be read, and its texts end with a null byte; `update` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_update_begin(
    pages: *mut verbena_pages,
    names: *const *const c_char,
    count: usize,
    update: *mut u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(update, 0, "update") }?;
        if names.is_null() && count > 0 {
            return Err(bad("names is NULL"));
        }
        let mut touched = Vec::new();
        for nth in 0..count {
            // SAFETY: not null, and so many texts with an end, says the caller.
            let name = unsafe { text(*names.add(nth), "name") }?;
            touched.push(name.ok_or_else(|| bad("a name is NULL"))?);
        }
        // SAFETY: null or open, says the caller.
        let begun = unsafe { reach(pages) }?.begin(&Scope::of(touched))?;
        // SAFETY: as above.
        unsafe { write(update, begun) };
        Ok(())
    })
}

/// Begins the write that this request is, as verbena_update_begin does: of everything, or where a relay sees the database of what is beside that.
///
/// # Safety
/// `pages` is null, or of verbena_pages_connect and not closed; `fill` is null, or of verbena_fill_new and not freed; `update` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_update_begin_for(
    pages: *mut verbena_pages,
    fill: *const verbena_fill,
    update: *mut u64,
) -> verbena_result {
    tell(|| {
        // SAFETY: null or writable, says the caller.
        unsafe { clear(update, 0, "update") }?;
        // SAFETY: null or made, says the caller.
        let fill = unsafe { fill.as_ref() }.ok_or_else(|| bad("fill is NULL"))?;
        let touched = match fill.wanted.intent {
            Intent::Update(Bracket::BesideDatabase) => Scope::of([BESIDE_DATABASE]),
            _ => Scope::of(Vec::<String>::new()),
        };
        // SAFETY: null or open, says the caller.
        let begun = unsafe { reach(pages) }?.begin(&touched)?;
        // SAFETY: as above.
        unsafe { write(update, begun) };
        Ok(())
    })
}

/// Ends a write. Only after VERBENA_OK may its client have the end of the answer; close its connection otherwise.
///
/// # Safety
/// `pages` is null, or of verbena_pages_connect and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbena_update_end(pages: *mut verbena_pages, update: u64, outcome: c_int) -> verbena_result {
    tell(|| {
        let outcome = match outcome {
            0 => Outcome::Done,
            1 => Outcome::NotSent,
            2 => Outcome::Unknown,
            _ => return Err(bad("there is no such outcome")),
        };
        // SAFETY: null or open, says the caller.
        Ok(unsafe { reach(pages) }?.end(update, outcome)?)
    })
}

/// # Safety
/// It is null, or of verbena_pages_connect and not closed.
unsafe fn reach<'a>(pages: *const verbena_pages) -> Result<MutexGuard<'a, Pages>, Failure> {
    // SAFETY: a box that is not closed, says the caller; it is only ever shared, what is in it has a mutex.
    match unsafe { pages.as_ref() }.ok_or_else(|| bad("pages is NULL"))?.pages.try_lock() {
        Ok(entered) => Ok(entered),
        Err(TryLockError::WouldBlock) => Err(Failure::new(VERBENA_BUSY, "another thread is in a call with it")),
        Err(TryLockError::Poisoned(_)) => {
            Err(Failure::new(VERBENA_INTERNAL, "a mistake in libverbena ended an earlier call with it"))
        }
    }
}

/// # Safety
/// It is null, or of verbena_fill_new and not freed, and the caller's alone.
unsafe fn of<'a>(fill: *mut verbena_fill) -> Result<&'a mut verbena_fill, Failure> {
    // SAFETY: null or a box that is not freed, and nobody else's, says the caller.
    unsafe { fill.as_mut() }.ok_or_else(|| bad("fill is NULL"))
}

/// # Safety
/// It is null, or `count` fields whose texts are null or end with a null byte.
unsafe fn headers(fields: *const verbena_field, count: usize) -> Result<HeaderMap, Failure> {
    if fields.is_null() && count > 0 {
        return Err(bad("fields is NULL"));
    }
    let mut headers = HeaderMap::with_capacity(count);
    for nth in 0..count {
        // SAFETY: not null, and so many fields of texts with an end, says the caller.
        let (name, value) = unsafe {
            let field = &*fields.add(nth);
            if field.name.is_null() || field.value.is_null() {
                return Err(bad("a field is NULL"));
            }
            (CStr::from_ptr(field.name), CStr::from_ptr(field.value))
        };
        let name = HeaderName::from_bytes(name.to_bytes()).map_err(|_| bad("that is no name of a field"))?;
        let value = HeaderValue::from_bytes(value.to_bytes()).map_err(|_| bad("that is no value of a field"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The host and the target (path and query) of a request.
fn address(head: &request::Parts) -> (&str, &str) {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    (host, head.uri.path_and_query().map_or("/", |target| target.as_str()))
}

/// Whether a field may name dependencies; the helper knows what they mean.
fn names_dependencies(name: &str) -> bool {
    matches!(name, verbena_terms::DEPENDENCY_FIELD | "surrogate-key" | "cache-tag" | "cache-groups")
}

/// # Safety
/// `buffer` is null, or `size` bytes can be written there.
unsafe fn print(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if !buffer.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: `length` < `size` bytes and one more can be written, says the caller; the text is ours.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length);
            *buffer.add(length) = 0;
        }
    }
    text.len()
}
