//! What a program reads of its helper without asking: words of the board.

use verbena_ipc::BoardReader;
use verbena_protocol::wire::BOARD_LEASE;
use verbena_terms::{BootClock, Clock, Time};

/// Until when the node has a lease.
pub(crate) fn leased_until(board: &BoardReader) -> Time {
    Time::from_nanos(board.read(BOARD_LEASE))
}

/// Whether something that was given when the word at `counter` was `count` is still valid: the node has its lease,
/// nothing was taken back, and the helper runs.
pub(crate) fn is_good(board: &BoardReader, counter: usize, count: u64) -> bool {
    // Read the lease first: a program that is stopped in between then sees what was taken back, not the lease that
    // followed. Read the helper's state last: while the helper runs, no other process has its place without waiting for
    // its lease.
    BootClock.now() < leased_until(board) && board.read(counter) == count && board.helper_lives()
}
