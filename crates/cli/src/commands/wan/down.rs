//! `verbena wan down`: ends a WAN.

use std::time::Duration;

use clap::Args;
use verbena_terms::Lapse;

use super::control::{Name, Request};
use crate::error::{Error, Result};

/// What is left after a kill is gone by itself in less; the router ends at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// End a WAN that is up: its links, its sites, and what `wan exec` runs there.
///
/// Returns when the WAN is gone. A WAN whose process was killed is gone already; what it has left on the file system is removed. Exit code 3 if no WAN is up.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena wan down
  verbena wan down --name lab")]
pub struct Command {
    #[command(flatten)]
    name: Name,
}

impl Command {
    /// Ends it.
    pub fn run(self) -> Result<()> {
        let mut connection = match self.name.connect() {
            Err(error @ Error::NoWan { .. }) => {
                return match self.name.has_left_something()? {
                    // Taking the name removes it.
                    true => self.name.claim().map(drop),
                    false => Err(error),
                };
            }
            other => other?,
        };
        match connection.ask(&self.name, &Request::Down) {
            // It was killed, and is about to be gone.
            Err(Error::NoWan { .. }) => return self.name.claim().map(drop),
            asked => drop(asked?),
        }
        let gone = connection.wait(Some(PATIENCE));
        gone.map_err(|_| Error::Refused {
            problem: format!("the WAN {} is not gone after {}: end its process", self.name.name, Lapse(PATIENCE)),
            exit_code: 1,
        })
    }
}
