//! What a program reads of its helper without asking: words of the board.

use verbena_ipc::BoardReader;
use verbena_protocol::wire::BOARD_LEASE;
use verbena_terms::{BootClock, Clock, Time};

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
