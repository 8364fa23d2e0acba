//! What the relay makes of statements, against real servers.
//!
//! - `oracle`: random schemas, reads and writes; an answer that changes without its names meeting is a failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod oracle;
