//! The `verbena` command.
//!
//! One file per subcommand in [`commands`], each with its options, its long help and what it does; [`Command`] puts them together.
//! What a command reports goes to standard output, for people or as JSON; everything else goes to standard error. What can
//! fail returns an [`Error`], which knows its exit code; `main` does nothing but hand it over.

mod command;
mod commands;
pub mod config;
mod dashboard;
mod date;
mod doctor;
mod error;
mod keys;
mod listening;
mod log;
mod namespaces;
mod output;
mod remedy;
mod top;

pub use command::{Command, run};
#[doc(hidden)]
pub use commands::wan::try_bytes as try_wan_file;
pub use error::{Error, Result};
