//! SQLite databases whose pages are segments of memory that nodes share.
//!
//! A virtual file system (VFS) for SQLite. A file is a *head*, a segment that has the file's name, and *blocks*, segments `NAME/0`, `NAME/1`, ...; where a database's pages
//! are as long as its blocks, a page that is read is one get, and one that is written is one put. SQLite does the rest as it does on a disc: its journal is such a
//! file too, and its locks are locks of the cluster. So programs at any nodes use one database, and one that is killed in the middle of a transaction leaves a journal that
//! the next one rolls back.
//!
//! ```text
//!  segment NAME:    | "VSQF" 1 | bytes of a block | bytes of the file | blocks that there are |     words of 64 bits, little-endian
//!  segment NAME/N:  | bytes of the file from N times those of a block on; what is behind the file's end counts for nothing |
//! ```
//!
//! All segments are `strict`.
//!
//! | what could happen | why it does not |
//! |---|---|
//! | a reader sees half a transaction | a writer puts pages of the database only while it holds `memory/ID/readers` alone, which readers share |
//! | a writer that lost its locks without knowing writes over another's pages | each put names the version that it replaces, which was read while the locks were held |
//! | a page is changed, and its old contents are not in the journal | what is written to a journal is kept back until SQLite syncs it, or writes to the database: then it is put first |
//! | a journal is deleted by one whose transaction another has rolled back | before it is released its size is put to 0, over the version that was read under the locks: that is the commit |
//! | a journal of a killed writer is taken for that of a live one, and passed over | a writer of the database holds the readers' lock alone and no other: when that is free, there is no writer |
//! | a call fails in the middle of a sync, and what is behind it is forgotten | what was not put stays to be put, and the head is put behind the blocks that it counts |
//! | SQLite says that a transaction failed, and what is put later commits it | after a failure nothing is put when the locks are given back, or the file is closed |
//! | a lock that could not be released is held for ever | the connection is given up with it as soon as nothing is to be held, and the next transaction makes another |
//! | an update is half done when its program is killed | its locks are free when what it put has arrived (rule M3); the journal is whole by then, or the database was not touched |

mod error;
#[cfg(test)]
mod faults;
mod file;
mod head;
mod session;
mod store;
mod vfs;

pub use error::{Error, last_error};
pub use vfs::{LONGEST_NAME, Options, Vfs};
