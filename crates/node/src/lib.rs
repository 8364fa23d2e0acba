//! The helper: one process on each machine that holds its place in the cluster and answers the programs beside it.

mod config;

pub use config::NodeConfig;
