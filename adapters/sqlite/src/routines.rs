//! SQLite as the program has it: an extension must not bring one of its own, and calls that of its program by the table that it gets.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Places in `sqlite3_api_routines` (sqlite3ext.h), counted in pointers. SQLite adds to its end alone.
const MPRINTF: usize = 69;
const VFS_FIND: usize = 141;
const VFS_REGISTER: usize = 142;

static TABLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Find = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Register = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Printf = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;

/// The table of the program's SQLite.
pub(crate) struct Routines(*const c_void);

impl Routines {
    /// # Safety
    /// `table` is the `sqlite3_api_routines` of an SQLite of 3.5 or later, and lives as long as the process.
    pub(crate) unsafe fn of(table: *const c_void) -> Routines {
        TABLE.store(table.cast_mut(), Ordering::Release);
        Routines(table)
    }

    /// The table that the extension was loaded with.
    fn known() -> Option<Routines> {
        let table = TABLE.load(Ordering::Acquire);
        (!table.is_null()).then_some(Routines(table))
    }

    /// The routine at this place.
    fn at(&self, place: usize) -> *const c_void {
        // SAFETY: `of`: the table is there and has more places than the ones that this file names.
        unsafe { *self.0.cast::<*const c_void>().add(place) }
    }

    /// A copy of a text in SQLite's own memory.
    pub(crate) fn text(&self, text: &CStr) -> *mut c_char {
        // SAFETY: what stands at this place of the table is `sqlite3_mprintf`.
        let print: Printf = unsafe { std::mem::transmute(self.at(MPRINTF)) };
        // SAFETY: the format takes one text that ends with a zero.
        unsafe { print(c"%s".as_ptr(), text.as_ptr()) }
    }
}

/// `sqlite3_vfs_find`, as the crate that implements file systems calls it.
#[unsafe(no_mangle)]
extern "C" fn sqlite3_vfs_find(name: *const c_char) -> *mut c_void {
    let Some(routines) = Routines::known() else { return ptr::null_mut() };
    // SAFETY: what stands at this place of the table is `sqlite3_vfs_find`.
    let find: Find = unsafe { std::mem::transmute(routines.at(VFS_FIND)) };
    // SAFETY: the caller's promise is the routine's.
    unsafe { find(name) }
}

/// `sqlite3_vfs_register`, likewise.
#[unsafe(no_mangle)]
extern "C" fn sqlite3_vfs_register(vfs: *mut c_void, is_default: c_int) -> c_int {
    /// SQLite's SQLITE_MISUSE: the extension was not loaded by SQLite.
    const MISUSE: c_int = 21;
    let Some(routines) = Routines::known() else { return MISUSE };
    // SAFETY: what stands at this place of the table is `sqlite3_vfs_register`.
    let register: Register = unsafe { std::mem::transmute(routines.at(VFS_REGISTER)) };
    // SAFETY: the caller's promise is the routine's.
    unsafe { register(vfs, is_default) }
}
