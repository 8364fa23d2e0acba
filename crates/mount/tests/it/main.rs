//! Real mounts in temporary directories.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod banked;
mod checker;
mod encrypted;
mod fsx;
mod killed;
mod locks;
mod mapped;
mod mounts;
mod names;
mod near;
mod over;
mod paths;
mod plain;
mod purged;
mod refused;
mod reused;
mod sealed;
mod setup;
mod users;
