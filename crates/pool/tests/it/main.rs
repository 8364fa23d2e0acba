//! `verbena pool` as processes, and what clients of several see.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod campaign;
mod clients;
mod history;
mod processes;
mod schemes;
mod tenants;
mod tls;
