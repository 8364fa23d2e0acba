//! One file per subcommand.

pub mod completions;
pub mod config;
pub mod node;
pub mod proxy;
pub mod status;
