//! One file per subcommand.

pub mod completions;
pub mod config;
