//! The emulator: its machine in virtual time, its router in the kernel's networks.
//!
//! - `kernel`: Links that netem of the kernel runs. What a kernel without it can show is that it says so; the rest runs where there is one.
//! - `machine`: The machine, with packets of which nothing is looked at but their number.
//! - `traffic`: Real packets between two sites, through the router.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kernel;
mod machine;
mod stage;
mod traffic;
