//! Where SQLite enters.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use verbena_client::Socket;
use verbena_sqlite::{Options, Vfs};

use crate::routines::Routines;

/// What its file system is called.
const NAME: &str = "verbena";
/// Bytes of a block: of a page of a database that SQLite makes.
const BLOCK_BYTES: u32 = 4096;
/// How long one call waits for its helper.
const PATIENCE: Duration = Duration::from_secs(5);
/// The variable that names the socket of the helper.
const SOCKET: &str = "VERBENA_SOCKET";
/// SQLite's numbers (its "Result and Error Codes").
const SQLITE_ERROR: c_int = 1;
const SQLITE_OK_LOAD_PERMANENTLY: c_int = 256;

static VFS: OnceLock<Vfs> = OnceLock::new();

/// What SQLite calls when it loads the extension.
///
/// # Safety
/// As SQLite calls it: `message` is null or may be written, and `api` is its table of routines, of version 3.5 or later, which lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    _database: *mut c_void,
    message: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let routines = unsafe { Routines::of(api) };
    match register() {
        Ok(()) => SQLITE_OK_LOAD_PERMANENTLY,
        Err(why) => {
            if !message.is_null() {
                // SAFETY: the caller's promise; the text is SQLite's own memory, which it frees.
                unsafe { *message = routines.text(&CString::new(why).unwrap_or_default()) };
            }
            SQLITE_ERROR
        }
    }
}

/// Once in a process, however many connections load it.
fn register() -> Result<(), String> {
    if VFS.get().is_some() {
        return Ok(());
    }
    let socket = match env::var_os(SOCKET) {
        Some(path) if path.is_empty() => {
            return Err(format!("{SOCKET} is empty: it names the socket of a helper, or is not set"));
        }
        Some(path) => Socket::at(Path::new(&path)),
        None => Socket::new(None, None)
            .map_err(|error| format!("no helper can be found: {error}; {SOCKET} names its socket"))?,
    };
    let options = Options { block_bytes: BLOCK_BYTES, patience: PATIENCE, ..Options::default() };
    let vfs = Vfs::register(NAME, socket, options).map_err(|error| error.to_string())?;
    VFS.get_or_init(|| vfs);
    Ok(())
}
