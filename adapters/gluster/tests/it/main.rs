//! cmcache and smcache on a real brick, with real clients (FUSE) and real daemons of memcached.

mod staleness;
mod volume;
