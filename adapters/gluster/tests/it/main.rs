//! cmcache and smcache on a real brick, with real clients (FUSE) and real daemons of memcached.

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod staleness;
mod volume;
