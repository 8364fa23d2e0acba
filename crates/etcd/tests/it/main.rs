//! The register, against members of etcd.
//!
//! - `faults`: What asking costs while members of etcd are paused, and that nothing old is told.
//! - `register`: What the register promises, of three members of etcd.
//! - `security`: TLS and authentication to etcd, and what is said where they fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod asking;
mod faults;
mod register;
mod relay;
mod security;
