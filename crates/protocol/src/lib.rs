//! What a program and its helper say to each other: requests, answers and their bytes.
//!
//! A program links the crate `client`, and the helper is in the crate `node`. Both take the messages from here, so the server does not import its own client library.
//! State, metrics, locks, memory and copies of pages are asked for in [`wire`] messages over memory of the machine; what a write touches is told over HTTP in JSON ([`api`]).

#![forbid(unsafe_code)]

pub mod api;
mod error;
pub mod lock;
pub mod member;
pub mod memory;
pub mod page;
pub mod wire;

pub use error::{Error, Result};
