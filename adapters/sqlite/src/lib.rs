//! An extension for SQLite that adds the file system `verbena`: databases whose pages are segments of memory that nodes share.
//!
//! ```text
//! sqlite> .load libverbena_sqlite_extension
//! sqlite> .open file:places?vfs=verbena
//! ```
//!
//! The helper is that of this machine's user, or of the socket that `VERBENA_SOCKET` names. The extension stays loaded until the process ends, and
//! its file system is known to all connections of the process. Blocks have 4096 bytes, as pages of new databases have.

mod entry;
mod routines;
