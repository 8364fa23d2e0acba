//! A cluster for each application of a user: selects the cluster of a proxy that has no configured name (rule P11).
//!
//! Pages of one application have nothing to do with those of another, so their proxies share no words, no updates and
//! no seats. An application's *identity* is a hash of its origins. The first application of a state directory has the
//! cluster of the plain nodes, `local`, with its locks and its memory. Any other application has a cluster of its own,
//! whose name is in all its directories and sockets:
//!
//! ```text
//!  STATE/applications/
//!    turn              held by a proxy from its choice until its helper answers programs
//!    open              shared by updates that are announced to `local` and not over (module `announced`)
//!    local             shared by the proxies in `local`; says the identity that it was left to
//!    app-IDENTITY.in   shared by the proxies of that application; says the cluster in which they are, or were
//!    app-IDENTITY/     the state of its own cluster
//! ```
//!
//! All proxies of an application are in one cluster at a time: while one of them runs, the others follow it. When none
//! runs, the next may choose another cluster than before, but only if no update of the former cluster is open. The
//! application could still write under such an update, and the new cluster would not know of it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use verbena_cluster::SEATS;
use verbena_terms::{BootClock, Clock, Rank};

use crate::config::Settings;
use crate::error::{Error, Result};
use crate::local::open_updates::OpenUpdates;
use crate::local::store::make_directory;
use crate::retry::{PATIENCE, retry};

/// Where they are noted, in the state directory of the plain nodes.
const APPLICATIONS: &str = "applications";
/// The file that is held while updates are open which are announced for all applications.
pub(crate) const OPEN: &str = "open";
/// The file that is held while a proxy starts.
pub(crate) const TURN: &str = "turn";
/// What follows a cluster's name in the name of the file that its proxies share.
const HELD: &str = ".in";
/// What a proxy waits for that is the first of its cluster.
const OPEN_UPDATES: &str = "updates that programs announced are open";
/// How long that keeps others from beginning one.
const AT_A_TIME: Duration = Duration::from_secs(1);
/// A name of a cluster is no longer than this.
const LONGEST_NAME: u64 = 256;

/// An application's place among those of its user, for as long as a proxy of it runs.
#[derive(Debug)]
pub struct Application {
    settings: Settings,
    _held: Vec<File>,
    turn: Option<File>,
}

impl Application {
    /// Finds the cluster of the application with this identity. Settings that name a cluster or its members stay as they are.
    ///
    /// # Errors
    /// If a file cannot be used, or another proxy takes too long to start, or updates that are announced to other proxies do not end.
    pub fn find(settings: &Settings, identity: u64) -> Result<Application> {
        if !settings.is_plain() || settings.cluster.name.is_some() {
            return Ok(Application { settings: settings.clone(), _held: Vec::new(), turn: None });
        }
        let until = BootClock.now() + settings.pages.longest_transaction.0 * 2 + PATIENCE;
        loop {
            match Application::try_find(settings, identity) {
                // Programs begin no update meanwhile, so those that take long are waited for without the turn.
                Err(Error::NotInTurn { because: OPEN_UPDATES, .. }) if BootClock.now() < until => sleep(AT_A_TIME),
                found => return found,
            }
        }
    }

    fn try_find(settings: &Settings, identity: u64) -> Result<Application> {
        let state = settings.state_directory()?;
        let directory = state.join(APPLICATIONS);
        make_directory(&state)?;
        make_directory(&directory)?;
        let turn = lock(&directory.join(TURN), PATIENCE, "another proxy of this user is starting")?;
        let own = format!("app-{:08x}", identity >> 32);
        let local = settings.name();
        let mut follows = Note::open(directory.join(format!("{own}{HELD}")))?;
        let mut left_to = Note::open(directory.join(local))?;
        let said = follows.read()?;
        let chosen = if !said.is_empty() && follows.is_held()? {
            said
        } else {
            let owner = left_to.read()?;
            let is_free = || -> Result<bool> { Ok(owner.is_empty() || !left_to.is_held()? && is_quiet(&state)) };
            let may_come = || said != own || is_quiet(&directory.join(&own));
            match owner == own || may_come() && is_free()? {
                true => local.to_owned(),
                false => own.clone(),
            }
        };
        let mut held = Vec::new();
        if chosen == local {
            left_to.write(&own)?;
            held.push(left_to.share()?);
        } else {
            // Updates that are announced to `local` reach this cluster when its helper answers, those that are open already never would.
            lock(&directory.join(OPEN), AT_A_TIME, OPEN_UPDATES)?;
        }
        follows.write(&chosen)?;
        held.push(follows.share()?);
        let mut settings = settings.clone();
        if chosen != local {
            settings.node.state = Some(directory.join(&chosen));
            settings.cluster.name = Some(chosen);
        }
        Ok(Application { settings, _held: held, turn: Some(turn) })
    }

    /// What its helper is started from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its helper answers programs: others may start.
    pub fn started(&mut self) {
        self.turn = None;
    }
}

/// The clusters of applications other than `local`. A helper of `local` looks for them when a program announces an
/// update.
#[derive(Clone, Debug)]
pub(crate) struct Applications {
    pub(crate) directory: PathBuf,
    pub(crate) runtime: PathBuf,
}

impl Applications {
    /// Those beside this plain node; none where it has a name, and so speaks for itself.
    ///
    /// # Errors
    /// As [`Settings::state_directory`] and [`Settings::socket`].
    pub(crate) fn beside(settings: &Settings) -> Result<Option<Applications>> {
        if !settings.is_plain() || settings.cluster.name.is_some() {
            return Ok(None);
        }
        let directory = settings.state_directory()?.join(APPLICATIONS);
        make_directory(&directory)?;
        Ok(Some(Applications { directory, runtime: settings.socket()?.directory().to_owned() }))
    }

    /// The names of their clusters: all that there ever were.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_suffix(HELD).map(str::to_owned)).collect()
    }

    /// Whether a proxy is in the cluster of this name.
    ///
    /// # Errors
    /// If its file cannot be used.
    pub(crate) fn lives(&self, name: &str) -> Result<bool> {
        let mut note = Note::open(self.directory.join(format!("{name}{HELD}")))?;
        Ok(note.read()? == name && note.is_held()?)
    }

    /// Where the seats of a cluster listen for HTTP.
    pub(crate) fn sockets(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let named = verbena_cluster::ClusterConfig { name: Some(name.to_owned()), ..Default::default() };
        let seat = move |rank| format!("{}.http.sock", named.seat_name(Rank(rank)));
        (1..=SEATS).map(seat).map(|file| self.runtime.join(file))
    }
}

/// Whether nothing is open that a helper of this state directory began.
fn is_quiet(state: &Path) -> bool {
    OpenUpdates::in_directory(state.join("open-updates")).is_quiet()
}

/// A file that says a name, and that processes hold together.
struct Note {
    path: PathBuf,
    file: File,
}

impl Note {
    fn open(path: PathBuf) -> Result<Note> {
        let file = open(&path)?;
        Ok(Note { path, file })
    }

    fn read(&mut self) -> Result<String> {
        let mut text = String::new();
        let read = self.file.rewind().and_then(|()| (&self.file).take(LONGEST_NAME).read_to_string(&mut text));
        read.map_err(|error| Error::file("read", &self.path, error))?;
        Ok(text)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if self.read()? == text {
            return Ok(());
        }
        let written = self.file.set_len(0).and_then(|()| self.file.rewind());
        let written = written.and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| Error::file("write", &self.path, error))
    }

    /// Whether another process shares it.
    fn is_held(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => self.file.unlock().map(|()| false).map_err(|error| Error::file("unlock", &self.path, error)),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", &self.path, error)),
        }
    }

    fn share(self) -> Result<File> {
        self.file.lock_shared().map_err(|error| Error::file("lock", &self.path, error))?;
        Ok(self.file)
    }
}

/// A file that is there to be locked, or to be read.
pub(crate) fn open(path: &Path) -> Result<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    options.map_err(|error| Error::file("open", path, error))
}

/// Waits until no other process holds the file.
fn lock(path: &Path, patience: Duration, because: &'static str) -> Result<File> {
    let file = open(path)?;
    let attempt = || file.try_lock();
    match retry(BootClock.now() + patience, attempt, |error| matches!(error, TryLockError::WouldBlock)) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::NotInTurn { because, patience }),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", path, error)),
    }
}

#[cfg(test)]
mod tests;
