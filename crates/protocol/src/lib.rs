//! The messages between a program and its helper: requests, answers and their bytes.
//!
//! A program links the crate `client`, and the helper is in the crate `node`. Both take the messages from here, so the
//! server does not import its own client library. Programs ask for state, metrics, locks, memory and copies of pages in
//! [`wire`] messages over shared memory of the machine. They announce what a write touches over HTTP in JSON ([`api`]).

#![forbid(unsafe_code)]

pub mod api;
mod error;
pub mod lock;
pub mod member;
pub mod memory;
pub mod page;
pub mod wire;

pub use error::{Error, Result};
