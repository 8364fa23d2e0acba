//! What a program reads of its helper without asking: words of the board.

use verbena_ipc::BoardReader;
use verbena_terms::{BootClock, Clock, Time};

/// The word of the helper's board that says until when its node has a lease: nanoseconds of CLOCK_BOOTTIME (rule L6). What is
/// held is held until then, and longer if the word has grown by then.
pub const BOARD_LEASE: usize = 0;
/// The word of the helper's board that counts how often all that its clients held was lost. What was granted at another count is lost.
pub const BOARD_LAPSES: usize = 1;
/// The word of the helper's board that counts how often something else could be where a segment's value was in its node's memory. What was found at another count is
/// not looked at any more.
pub const BOARD_FORGETS: usize = 2;

/// Until when the node has a lease.
pub(crate) fn leased_until(board: &BoardReader) -> Time {
    Time::from_nanos(board.read(BOARD_LEASE))
}

/// Whether what was given when the word at `counter` was `count` is good still: the node has its lease, nothing was taken back, and the helper lives.
pub(crate) fn is_good(board: &BoardReader, counter: usize, count: u64) -> bool {
    // The lease first: whoever is stopped in between sees what was taken back, rather than the lease that followed that. Whether the helper lives last: while it does nobody has its place, who
    // would not wait for its lease.
    BootClock.now() < leased_until(board) && board.read(counter) == count && board.helper_lives()
}
