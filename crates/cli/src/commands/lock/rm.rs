//! `verbena lock rm`: a lock that is not in use is forgotten.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use verbena_client::{Error, LockList, Locks};

use super::ls::{Lock, print};
use super::run::NOT_FREE;
use crate::commands::reach::Reach;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Make a lock's home forget the lock, if it is unused.
///
/// Locks need not be made, and need not be removed: a home that has few words left forgets unused locks by itself. This does it now, for a name that will
/// not be used again. If the name is used all the same, the lock is there again, and its tokens go on growing.
///
/// A lock that is held or waited for is not broken: its users are shown, and it is free when those processes end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes:
    0  the lock is unused and forgotten; also if its home did not know it
   75  the lock is held or waited for: nothing has changed
    1  2  3  as for all commands; 1 also if the lock's home does not answer, or if the lock has used up most of a view's tokens

Examples:
  verbena lock rm nightly-report
  verbena lock rm --json cron/backup")]
pub struct Command {
    /// The lock's name.
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    outcome: Outcome,
    /// The programs that use it, as far as nodes say.
    lock: Option<Lock>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Removed,
    Unknown,
    InUse,
}

impl Command {
    /// Asks for it, and says what became of it.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        super::check_name(&self.name)?;
        let mut locks = self.reach.by(file, Locks::connect)?;
        let name = self.name.as_bytes();
        let (outcome, list) = match locks.remove(name) {
            Ok(true) => (Outcome::Removed, LockList::default()),
            Ok(false) => (Outcome::Unknown, LockList::default()),
            Err(Error::InUse { users }) => (Outcome::InUse, users),
            Err(error) => return Err(error.into()),
        };
        let shown = Shown { outcome, lock: (!list.locks.is_empty()).then(|| Lock::of(&list.locks)) };
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &shown)?;
        } else {
            let says = match outcome {
                Outcome::Removed => "removed",
                Outcome::Unknown => "its home does not know it: there is nothing to remove",
                Outcome::InUse => "in use, and not removed",
            };
            writeln!(out, "{}: {says}", self.name.display())?;
            print(&mut out, shown.lock.as_slice(), &list.silent)?;
        }
        let is_in_use = matches!(outcome, Outcome::InUse);
        Ok(if is_in_use { ExitCode::from(NOT_FREE) } else { ExitCode::SUCCESS })
    }
}
