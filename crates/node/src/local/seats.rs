//! The seats of a machine whose nodes have no configured members (rule P11).
//!
//! Plain processes of one user are one cluster: each takes the lowest free of a few seats, which are members of a static cluster
//! over shared memory. A seat is its state directory and its socket, both held by locks that the kernel releases with the
//! process, however it ends:
//!
//! ```text
//!  RUNTIME/  local.sock  local-2.sock  local-3.sock ...      STATE/  start keeper lock   of seat 1
//!            local.card  local-2.card  ...                           2/ start lock       of seat 2, and so on
//!            local.seats.lock: which STATE                           names               the key of names, of all
//!                                                                    seats.lock: which RUNTIME
//! ```
//!
//! Processes that share one of the two directories and not the other would meet only half. So seats are taken in turn,
//! under the locks of both `seats.lock` files, and each file names the other directory while a seat is taken.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use verbena_client::Socket;
use verbena_cluster::{ClusterConfig, Membership, Role, Roles, SEATS};
use verbena_ipc::{IpcConfig, Options, Server};
use verbena_terms::{BootClock, Clock, Rank, Time};

use crate::config::Settings;
use crate::error::{Error, Result};
use crate::local::place::Place;
use crate::local::store::{self, Store, make_directory};
use crate::random::random;
use crate::retry::{PATIENCE, retry};

/// How long a process may take to leave its seat.
const LEAVING: Duration = Duration::from_secs(2);
/// A path is no longer than this.
const LONGEST_PATH: u64 = 4096;

/// The seats that this node's settings lead to.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    cluster: ClusterConfig,
    ipc: IpcConfig,
    runtime: PathBuf,
    state: PathBuf,
}

impl Seats {
    /// Makes the directories if they are missing.
    ///
    /// # Errors
    /// If they cannot be made or found.
    pub(crate) fn of(settings: &Settings) -> Result<Seats> {
        let runtime = settings.socket()?.directory().to_owned();
        if settings.node.runtime.is_some() {
            make_directory(&runtime)?;
        }
        let state = settings.state_directory()?;
        make_directory(&state)?;
        let whole = |path: &Path| path.canonicalize().map_err(|error| Error::file("find", path, error));
        Ok(Seats {
            cluster: settings.cluster.clone(),
            ipc: settings.ipc.clone(),
            runtime: whole(&runtime)?,
            state: whole(&state)?,
        })
    }

    /// What tells the seats of this user, whatever their clusters, from those of others.
    pub(crate) fn family(&self) -> &[u8] {
        self.runtime.as_os_str().as_bytes()
    }

    /// Where the helpers in these seats meet.
    pub(crate) fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Takes the lowest free seat, for every role.
    ///
    /// # Errors
    /// That all are taken, or that others use one of the two directories with another.
    pub(crate) fn lowest(&self) -> Result<Place> {
        let until = BootClock.now() + PATIENCE;
        let name = format!("{}.seats.lock", self.cluster.seat_name(Rank(1)));
        let mut runtime = Turn::wait(&self.runtime.join(name), until)?;
        let mut state = Turn::wait(&self.state.join("seats.lock"), until)?;
        let ranks = || (1..=SEATS).map(Rank);
        let (its_state, its_runtime) = (runtime.path()?, state.path()?);
        // If one file was removed or emptied, the other one decides. Should it be wrong, another process has a seat's
        // socket, and taking the seat fails for that reason.
        let is_ours = |names: &Path, own: &Path, other: &Path, others: &Path| {
            names == own || names.as_os_str().is_empty() && other == others
        };
        if !is_ours(&its_state, &self.state, &its_runtime, &self.runtime) {
            // A process that holds a socket here keeps its state elsewhere.
            ranks().try_for_each(|seat| self.try_socket(seat))?;
        }
        if !is_ours(&its_runtime, &self.runtime, &its_state, &self.state) {
            ranks().try_for_each(|seat| self.try_state(seat))?;
        }
        if its_state != self.state {
            runtime.name(&self.state)?;
        }
        if its_runtime != self.runtime {
            state.name(&self.runtime)?;
        }
        self.make_names()?;
        for seat in ranks() {
            match self.take_when_left(seat) {
                Err(Error::StateInUse { .. }) => {}
                taken => return taken,
            }
        }
        Err(Error::NoSeat { runtime: self.runtime.clone() })
    }

    /// Takes a seat for every role. A process that leaves a seat releases its state a moment before its socket.
    fn take_when_left(&self, seat: Rank) -> Result<Place> {
        let take = || self.take(seat, Roles::ALL);
        let is_left_soon = |error: &Error| matches!(error, Error::Ipc(verbena_ipc::Error::AlreadyServed { .. }));
        retry(BootClock.now() + LEAVING, take, is_left_soon)
    }

    /// Takes the keeper's seat, if it is free, beside another that this process has; so it needs no turn. It is there to grant
    /// leases and to serve the first seat's socket: the process is a home in its own seat already.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn keepers(&self) -> Result<Option<Place>> {
        let mut beside = self.clone();
        // The process's own seat has it.
        beside.ipc.progress_core = None;
        match beside.take(Rank(1), Roles::of(Role::Updater)) {
            Ok(place) => Ok(Some(place)),
            Err(Error::StateInUse { .. } | Error::Ipc(verbena_ipc::Error::AlreadyServed { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&self, seat: Rank, roles: Roles) -> Result<Place> {
        let membership = Membership::seats(&self.cluster, seat, roles)?;
        Place::take(membership, self.directory(seat), &self.socket(seat)?, Some(self.names()), self.ipc.options())
    }

    /// Fails if a process has the socket of a seat. Binds it for a moment.
    fn try_socket(&self, seat: Rank) -> Result<()> {
        let name = self.socket(seat)?.file_name();
        // Where there never was one nothing is left behind by the attempt.
        if self.runtime.join(format!("{name}.lock")).exists() {
            drop(Server::bind(&self.runtime, &name, Options::default())?);
        }
        Ok(())
    }

    /// Fails if a process has the state directory of a seat.
    fn try_state(&self, seat: Rank) -> Result<()> {
        let directory = self.directory(seat);
        if directory.exists() {
            drop(Store::open(&directory)?);
        }
        Ok(())
    }

    fn socket(&self, seat: Rank) -> Result<Socket> {
        Ok(Socket::new(Some(&self.runtime), Some(&self.cluster.seat_name(seat)))?)
    }

    fn directory(&self, seat: Rank) -> PathBuf {
        if seat == Rank(1) { self.state.clone() } else { self.state.join(seat.to_string()) }
    }

    fn names(&self) -> PathBuf {
        self.state.join("names")
    }

    /// A random key of names that all seats share, made at the first start.
    fn make_names(&self) -> Result<()> {
        if self.names().exists() {
            return Ok(());
        }
        let key = u128::from_be_bytes(random("draw a key for names")?);
        let text = format!("{key:032x}\n");
        store::replace(&self.state, "names", text.as_bytes())
    }
}

/// The lock of a file that names a directory. A process looks at seats or takes one only while it holds it.
struct Turn {
    path: PathBuf,
    file: File,
}

impl Turn {
    fn wait(path: &Path, until: Time) -> Result<Turn> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = options.map_err(|error| Error::file("open", path, error))?;
        let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        retry(until, lock, |error| *error == Errno::WOULDBLOCK).map_err(|error| Error::file("lock", path, error))?;
        Ok(Turn { path: path.to_owned(), file })
    }

    /// The directory that is named, an empty path if none is.
    fn path(&mut self) -> Result<PathBuf> {
        let mut text = Vec::new();
        let read = self.file.rewind().and_then(|()| (&self.file).take(LONGEST_PATH).read_to_end(&mut text));
        read.map_err(|error| Error::file("read", &self.path, error))?;
        Ok(std::ffi::OsString::from_vec(text).into())
    }

    fn name(&mut self, directory: &Path) -> Result<()> {
        let written = self.file.set_len(0).and_then(|()| self.file.rewind());
        let written = written.and_then(|()| self.file.write_all(directory.as_os_str().as_bytes()));
        written.map_err(|error| Error::file("write", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(runtime: &Path, state: &Path) -> Seats {
        let mut settings = Settings::default();
        settings.node.runtime = Some(runtime.to_owned());
        settings.node.state = Some(state.to_owned());
        Seats::of(&settings).unwrap()
    }

    fn rank(place: &Place) -> u32 {
        place.membership.rank().expect("a seat is a rank").0
    }

    #[test]
    fn the_lowest_free_seat_is_taken_and_the_seventeenth_refused() {
        let directory = tempfile::tempdir().unwrap();
        let seats = seats(&directory.path().join("run"), &directory.path().join("state"));
        let mut taken: Vec<_> = (0..SEATS).map(|_| seats.lowest().unwrap()).collect();
        assert_eq!(taken.iter().map(rank).collect::<Vec<_>>(), (1..=SEATS).collect::<Vec<_>>());
        assert_eq!((taken[0].name(), taken[1].name()), ("local", "local-2"));
        let refused = seats.lowest().err().unwrap().to_string();
        assert!(refused.contains("all 16 seats") && refused.contains("[cluster] members"), "{refused}");
        drop(taken.remove(4));
        assert_eq!(rank(&seats.lowest().unwrap()), 5);
        assert!(seats.keepers().unwrap().is_none(), "somebody sits there");
        drop(taken.remove(0));
        let keeper = seats.keepers().unwrap().expect("it is free");
        assert_eq!(keeper.membership.configured(Rank(1)).unwrap().roles, Roles::of(Role::Updater));
        assert_eq!(rank(&seats.lowest().unwrap()), 5, "the first is taken again");
    }

    #[test]
    fn a_seat_whose_socket_is_anothers_is_not_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let seats = seats(&directory.path().join("run"), &directory.path().join("state"));
        let leaving = Server::bind(seats.runtime(), "local.sock", Options::default()).unwrap();
        // A process in the second seat would wait for a keeper that does not come.
        let refused = seats.lowest().err().unwrap().to_string();
        assert!(refused.contains("is served by") && !directory.path().join("state/2").exists(), "{refused}");
        drop(leaving);
        assert_eq!(rank(&seats.lowest().unwrap()), 1);
    }

    #[test]
    fn who_shares_one_directory_and_not_the_other_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [run, state, other] = ["run", "state", "other"].map(|name| directory.path().join(name));
        let first = seats(&run, &state).lowest().unwrap();
        let second = seats(&run, &state).lowest().unwrap();
        // The second is still there, in a seat that is free in the other directory.
        drop(first);
        let refused = seats(&run, &other).lowest().err().unwrap().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(matches!(seats(&other, &state).lowest(), Err(Error::StateInUse { .. })));
        drop(second);
        assert_eq!(rank(&seats(&run, &other).lowest().unwrap()), 1);
        assert_eq!(rank(&seats(&other, &state).lowest().unwrap()), 1);
    }

    #[test]
    fn a_file_that_was_removed_keeps_nobody_out_and_lets_no_stranger_in() {
        let directory = tempfile::tempdir().unwrap();
        let [run, state, other] = ["run", "state", "other"].map(|name| directory.path().join(name));
        let first = seats(&run, &state).lowest().unwrap();
        for file in [run.join("local.seats.lock"), state.join("seats.lock")] {
            std::fs::remove_file(&file).unwrap();
            assert_eq!(rank(&seats(&run, &state).lowest().unwrap()), 2, "{}", file.display());
        }
        // With both files gone, no file says any more that the two directories belong together.
        let files = [run.join("local.seats.lock"), state.join("seats.lock")];
        files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        assert!(seats(&run, &state).lowest().is_err());
        drop(first);
        drop(seats(&run, &state).lowest().unwrap());
        let _strangers = seats(&run, &other).lowest().unwrap();
        std::fs::remove_file(run.join("local.seats.lock")).unwrap();
        let refused = seats(&run, &state).lowest().err().unwrap().to_string();
        assert!(refused.contains("is served by"), "{refused}");
    }
}
