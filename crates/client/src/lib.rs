//! What a program links to talk to the helper of its machine.
//!
//! A program knows nothing of the cluster: it finds the helper's socket ([`socket`]), connects ([`Helper`]), and asks. The
//! requests and answers, their bytes drawn, are in [`wire`]; the helper reads the same file. Every call has a deadline.

mod error;
mod helper;
mod socket;
pub mod wire;

pub use error::{Error, Result};
pub use helper::{Helper, Report};
pub use socket::{DEFAULT_NAME, Socket};
