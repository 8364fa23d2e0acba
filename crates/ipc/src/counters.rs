//! The helper's counters: plain numbers, which the owner of the metrics registry reads.

use crate::mode::Mode;

/// What a helper did since it started. All but the clients only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients connected now.
    pub clients: u64,
    /// Requests handed to the service.
    pub requests: u64,
    /// Answers and refusals put into a ring.
    pub responses: u64,
    /// Responses that found no room and had to wait for their client to take others.
    pub full_rings: u64,
    /// Clients dropped because they wrote against the rules, into the rings or on the socket.
    pub bad_frames: u64,
    /// Clients that went, or died.
    pub dead_clients: u64,
    /// Clients turned away: too many, not allowed, not understood, no descriptors left.
    pub refused_clients: u64,
    /// Sleeping clients woken.
    pub wakes: u64,
    /// Waits of the helper that ended while it was spinning.
    pub spins: u64,
    /// Waits of the helper that ended in sleep.
    pub sleeps: u64,
    /// Queues removed that an earlier helper had left.
    pub swept_queues: u64,
    /// By mode, in the order of [`Mode::ALL`].
    pub of_mode: [ModeCounters; Mode::ALL.len()],
}

/// What a helper did in one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeCounters {
    /// Clients connected now.
    pub clients: u64,
    /// Requests handed to the service. It only grows.
    pub requests: u64,
}

/// What one connection did. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Requests sent.
    pub requests: u64,
    /// Responses taken, late ones included.
    pub responses: u64,
    /// Requests that found the ring full and had to wait.
    pub full_rings: u64,
    /// Waits that ended while spinning.
    pub spins: u64,
    /// Waits that ended in sleep.
    pub sleeps: u64,
}
