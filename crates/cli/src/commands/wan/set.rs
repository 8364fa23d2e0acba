//! `verbena wan set`: changes a link while it runs.

use clap::Args;

use super::control::{Direction, Name, Request};
use crate::commands::child::system;
use crate::error::Result;

/// Change a link of a WAN that is up.
///
/// Only the named options change; `none` takes an option back. The change holds for packets that come from now on. If one option is wrong, none changes.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena wan set sea delay=10ms loss=none
  verbena wan set sea --there rate=2mbit limit=50ms")]
pub struct Command {
    /// The name of the link.
    #[arg(value_name = "LINK")]
    link: String,
    /// The new values of options, named as those of `wan run`: delay=10ms loss=0.1%
    #[arg(value_name = "OPTION=VALUE", required = true)]
    options: Vec<String>,
    /// Only from the link's first site to the second.
    #[arg(long, conflicts_with = "back")]
    there: bool,
    /// Only from the link's second site to the first.
    #[arg(long)]
    back: bool,
    #[command(flatten)]
    name: Name,
}

impl Command {
    /// Changes it.
    pub fn run(self) -> Result<()> {
        let which = match (self.there, self.back) {
            (true, _) => Direction::There,
            (_, true) => Direction::Back,
            _ => Direction::Both,
        };
        let folder = std::env::current_dir().map_err(system("find the current directory"))?;
        let options = self.options.join(" ");
        self.name.ask(&Request::Set { link: self.link, which, options, folder }).map(drop)
    }
}
