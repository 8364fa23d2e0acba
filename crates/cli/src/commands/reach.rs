//! The helper that a command asks.

use std::cell::Cell;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use verbena_client::wire::State;
use verbena_client::{Helper, Socket};
use verbena_terms::Lapse;

use super::start::{self, Started};
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};

/// The least time that a helper is given to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

    /// All helpers that run where the configuration says; where it names none, also the others of this user, of its other applications.
    pub fn all(&self, file: Option<&Path>) -> Result<Vec<Socket>> {
        let settings = config::load(file, &self.flags.0, Whose::Running)?.config.settings();
        let own = settings.sockets()?;
        let mut others = Vec::new();
        if let (true, None, Some(first)) = (settings.is_plain(), &settings.cluster.name, own.first()) {
            let at = |name: String| Socket::new(Some(first.directory()), Some(&name));
            others = first.others().into_iter().map(at).collect::<Result<_, _>>()?;
            others.retain(|other| !own.contains(other));
        }
        let patience = self.patience.0.max(Duration::from_millis(1));
        let (mut found, mut missed) = (Vec::new(), None);
        for socket in own {
            match Helper::connect(&socket, patience) {
                Ok(_) => found.push(socket),
                Err(error) => drop(missed.get_or_insert(error)),
            }
        }
        // A socket where no helper listens is passed over.
        others.retain(|socket| Helper::connect(socket, patience).is_ok());
        found.append(&mut others);
        match missed {
            Some(error) if found.is_empty() => Err(error.into()),
            _ => Ok(found),
        }
    }

    /// The same, where a helper is started if none runs. One that is leaving is no helper any more: it is waited for.
    pub fn by_or_start<T>(
        &self,
        file: Option<&Path>,
        connect: impl Fn(&Socket, Duration) -> verbena_client::Result<T>,
    ) -> Result<T> {
        match self.that_stays(file, &connect) {
            Err(Error::Client(verbena_client::Error::NoHelper { .. })) => {}
            other => return other,
        }
        let settings = config::load(file, &self.flags.0, Whose::Running)?.config.settings();
        let _only = start::only(&settings.socket()?)?;
        // Another command may have started one meanwhile.
        match self.that_stays(file, &connect) {
            Err(Error::Client(verbena_client::Error::NoHelper { .. })) => {}
            other => return other,
        }
        let started = Started::new(file, &self.flags, &settings.socket()?)?;
        started.until(self.patience.0, || reach(file, &self.flags, self.patience, &connect))
    }

    /// The first helper that is not about to leave. Where all that run are, the error once they have ended.
    fn that_stays<T>(
        &self,
        file: Option<&Path>,
        connect: impl Fn(&Socket, Duration) -> verbena_client::Result<T>,
    ) -> Result<T> {
        let end = Instant::now() + self.patience.0.max(LEAVES_WITHIN);
        loop {
            let leaving = Cell::new(None);
            let staying = |socket: &Socket, patience| {
                let found = connect(socket, patience)?;
                match Helper::connect(socket, patience).and_then(|mut helper| helper.report()) {
                    Ok(report) if report.status.state != State::Leaving => Ok(found),
                    // It has left, or ended, meanwhile.
                    told => {
                        leaving.set(Some(told.map_or(0, |report| report.status.pid)));
                        Err(verbena_client::Error::NoHelper { tried: socket.path(), running: vec![] })
                    }
                }
            };
            let found = reach(file, &self.flags, self.patience, staying);
            match leaving.get() {
                Some(_) if found.is_err() && Instant::now() < end => sleep(LOOK_EVERY),
                Some(pid) if found.is_err() => {
                    let problem = format!(
                        "the helper here (process {pid}) is leaving and has not ended after {}: wait for it, or end it",
                        Lapse(self.patience.0.max(LEAVES_WITHIN))
                    );
                    return Err(Error::Refused { problem, exit_code: 1 });
                }
                _ => return found,
            }
        }
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
