//! `verbena database`: the relay before the application's database, and what it makes of statements.

mod alone;
mod explain;
mod watch;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::error::Result;

/// Run the relay before the application's database without a proxy, or show how it reads statements.
///
/// `verbena proxy --database` runs the relay and the proxy in one process. This command runs the relay alone, on another machine or beside several proxies of
/// the cluster. It begins an update for each commit, also that of a job or a prompt, and records in memory that the proxies read which rows statements have
/// read. With `--database-complete true` a page stays until a row that it shows changes. Without it pages depend on everything, unless their answers name what
/// they depend on. A cluster may have several relays.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  verbena database --name shop --to postgres://shop:secret@127.0.0.1:5432/shop
  verbena database --to mysql://shop@10.0.0.5:3306 --database-password-file /etc/shop.pw --listen 10.0.0.7:3306 --config /etc/verbena.toml
  verbena database --to mysql://shop@10.0.0.5:3306 --database-complete true --config /etc/verbena.toml --cluster-name relay
  verbena database explain --database-to postgres://shop:secret@127.0.0.1:5432/shop 'SELECT * FROM products WHERE id = 7'
  verbena database watch --wide"
)]
pub struct Command {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    alone: alone::Alone,
}

/// What is asked.
#[derive(Debug, Subcommand)]
enum Other {
    Explain(Box<explain::Explain>),
    Watch(Box<watch::Watch>),
}

impl Command {
    /// Runs the relay, or asks.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self.other {
            Some(Other::Explain(explain)) => explain.run(file),
            Some(Other::Watch(watch)) => watch.run(file),
            None => self.alone.run(file),
        }
    }
}
