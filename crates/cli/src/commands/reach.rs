//! The helper that a command asks.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use verbena_client::{Helper, Socket};
use verbena_terms::Lapse;

use super::start::{self, Started};
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};

/// Which helper is asked, and how long it is waited for.
#[derive(Args, Debug)]
pub struct Reach {
    /// How long to wait for the helper.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5), value_parser = Lapse::or_seconds)]
    patience: Lapse,
    #[command(flatten)]
    flags: Flags,
}

impl Reach {
    /// The first helper that listens where the configuration says; if none does, why not at the first of its sockets.
    pub fn helper(&self, file: Option<&Path>) -> Result<Helper> {
        self.by(file, Helper::connect)
    }

    /// The same, in any way of connecting to one.
    pub fn by<T>(
        &self,
        file: Option<&Path>,
        connect: impl Fn(&Socket, Duration) -> verbena_client::Result<T>,
    ) -> Result<T> {
        reach(file, &self.flags, self.patience, connect)
    }

    /// The same, where a helper is started if none runs.
    pub fn by_or_start<T>(
        &self,
        file: Option<&Path>,
        connect: impl Fn(&Socket, Duration) -> verbena_client::Result<T>,
    ) -> Result<T> {
        match reach(file, &self.flags, self.patience, &connect) {
            Err(Error::Client(verbena_client::Error::NoHelper { .. })) => {}
            other => return other,
        }
        let settings = config::load(file, &self.flags.0, Whose::Running)?.config.settings();
        let _only = start::only(&settings.socket()?)?;
        // Another command may have started one meanwhile.
        match reach(file, &self.flags, self.patience, &connect) {
            Err(Error::Client(verbena_client::Error::NoHelper { .. })) => {}
            other => return other,
        }
        let started = Started::new(file, &self.flags, &settings.socket()?)?;
        started.until(self.patience.0, || reach(file, &self.flags, self.patience, &connect))
    }
}

/// [`Reach::helper`], for commands that say otherwise what the patience is for.
pub fn connect(file: Option<&Path>, flags: &Flags, patience: Lapse) -> Result<Helper> {
    reach(file, flags, patience, Helper::connect)
}

fn reach<T>(
    file: Option<&Path>,
    flags: &Flags,
    patience: Lapse,
    connect: impl Fn(&Socket, Duration) -> verbena_client::Result<T>,
) -> Result<T> {
    let settings = config::load(file, &flags.0, Whose::Running)?.config.settings();
    let patience = patience.0.max(Duration::from_millis(1));
    let mut missed = None;
    for socket in settings.sockets()? {
        match connect(&socket, patience) {
            Err(error @ verbena_client::Error::NoHelper { .. }) => {
                missed.get_or_insert(error);
            }
            other => return Ok(other?),
        }
    }
    Err(missed.expect("invariant: there is at least one socket").into())
}
