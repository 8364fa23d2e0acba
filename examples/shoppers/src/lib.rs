//! Readers and writers of the shop, who check every answer.
//!
//! The database orders the writes: each acknowledged write says its commit number, and each page says which commit it shows and
//! which commit last changed each row on it. So the [`Checker`] needs nothing but the answers and one clock:
//!
//! - *not stale*: no row on a page is older than the last write of that row that was acknowledged before the page was asked for;
//! - *not backwards*: no page is older than an answer of the same page that was received before it was asked for;
//! - *one state*: all rows of a page are as they stood at one commit. A row changed by commit `d` on a page of commit `c` says that no
//!   commit after `d` and up to `c` touched it. These spans are collected from all pages and all acknowledged writes, and no two
//!   of them may contradict each other, in whichever order they become known.
//!
//! What a write touches is written down here once more, apart from the shop (`errand.rs`), so that a mistake there is not shared. A
//! write whose answer is lost, or is an error, may have happened or not: it promises nothing, and what it changed is seen on pages.
//!
//! All shoppers live in one thread, so the order of sending and receiving is the order in which things are done here.

mod checker;
mod connection;
mod crowd;
mod errand;
mod page;
mod probe;
mod span;
mod street;
mod tally;

pub use checker::{Checked, Checker, Moment, PageId, Violation};
pub use connection::Door;
pub use crowd::{Options, Trouble, run};
pub use probe::{Probe, Round, Seen};
pub use tally::{Errors, Line, Totals, Updates};
