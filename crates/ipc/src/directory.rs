//! The directory of the helper's socket, and the right to serve there.
//!
//! Next to `node.sock` lies `node.sock.lock`. The holder of its lock (flock, which the kernel releases with the
//! process, however it ends) is the helper of that name; its process number stands in the file. So a socket file found
//! under the lock has no owner and is replaced, unless a process listens there. The lock file stays where it is: to
//! remove it would let a third process lock a new file of the same name beside the process that holds the old one.
//!
//! A program that cleans directories up may remove it all the same. `systemd-tmpfiles` passes over a directory that is
//! locked, so the helper holds a shared lock of it; and what is gone it puts back ([`Claim::keep`]).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::error::Error;

/// The user's directory for sockets. Made with mode 0700 if it is not there; an error if it is not ours alone.
pub fn runtime_directory() -> Result<PathBuf, Error> {
    let path = usual_directory();
    private_directory(&path, rustix::process::geteuid().as_raw())?;
    Ok(path)
}

/// Where the user's directory for sockets is, or would be: `$XDG_RUNTIME_DIR/verbena`, else `/run/user/UID/verbena`, else `/tmp/verbena-UID`.
pub fn usual_directory() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_the_user = PathBuf::from(format!("/run/user/{uid}"));
    match named.or_else(|| of_the_user.is_dir().then_some(of_the_user)) {
        Some(base) => base.join("verbena"),
        None => PathBuf::from(format!("/tmp/verbena-{uid}")),
    }
}

fn private_directory(path: &Path, uid: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::file("make the directory", path, error)),
    }
    let wrong = |what| Err(Error::Directory { path: path.to_owned(), what, uid });
    // Links are not followed: a link in a shared directory may belong to any user.
    let found = fs::symlink_metadata(path).map_err(|error| Error::file("look at", path, error))?;
    match found {
        _ if !found.is_dir() => wrong("it is no directory"),
        _ if found.uid() != uid => wrong("it belongs to another user"),
        _ if found.mode() & 0o077 != 0 => wrong("others may enter it (its mode should be 0700)"),
        _ => Ok(()),
    }
}

/// The right to serve one name in one directory, held until dropped.
#[derive(Debug)]
pub struct Claim {
    socket: PathBuf,
    lock: File,
    /// Held shared: what cleans up passes over the directory. None while another has it locked alone.
    directory: Option<File>,
}

/// Longest path that `sockaddr_un` takes, without its final zero.
const LONGEST_PATH: usize = 107;
/// Between the locking and the writing of the process number another helper may look: it looks again this often.
const LOOKS_FOR_PID: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl Claim {
    /// Takes the name, and removes a socket that a dead process left. Only this user and root may write into the
    /// directory.
    ///
    /// # Errors
    /// [`Error::AlreadyServed`] names the process that has it; the others name what is wrong with the directory or the name.
    pub fn take(directory: &Path, name: &str) -> Result<Claim, Error> {
        let socket = directory.join(name);
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(Error::Name { path: name.into() });
        }
        if socket.as_os_str().len() > LONGEST_PATH {
            return Err(Error::Name { path: socket });
        }
        only_ours_to_write(directory)?;
        let lock_path = lock_path(&socket);
        let lock = take_lock(&lock_path, &socket)?;
        remove_stale(&socket)?;
        Ok(Claim { socket, lock, directory: hold(directory) })
    }

    /// Puts back what was removed meanwhile of the directory and the lock file. Says whether anything was, but not of the socket, which is its listener's.
    ///
    /// # Errors
    /// [`Error::AlreadyServed`] if another process has taken the name by then; that a file cannot be made.
    pub fn keep(&mut self) -> Result<bool, Error> {
        let Some(directory) = self.socket.parent() else { return Ok(false) };
        let mut is_back = false;
        if !directory.exists() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|error| Error::file("make the directory", directory, error))?;
            (self.directory, is_back) = (None, true);
        }
        if self.directory.is_none() {
            self.directory = hold(directory);
        }
        let path = lock_path(&self.socket);
        if !is_at(&self.lock, &path) {
            self.lock = take_lock(&path, &self.socket)?;
            is_back = true;
        }
        Ok(is_back)
    }

    /// Where to listen. There is no file yet; it is removed with this value.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Under the lock the file is ours. If it is gone already, another program removed it.
        let _ = fs::remove_file(&self.socket);
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Locks the file, made if it is missing, and writes this process's number into it.
fn take_lock(path: &Path, socket: &Path) -> Result<File, Error> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| Error::file("open", path, error))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(Error::AlreadyServed { path: socket.to_owned(), pid: holder(&mut lock) });
        }
        Err(error) => return Err(Error::file("lock", path, error)),
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(|error| Error::file("write", path, error))?;
    Ok(lock)
}

/// Whether this file is the one at that path still.
fn is_at(file: &File, path: &Path) -> bool {
    let here = file.metadata().map(|found| (found.dev(), found.ino()));
    let there = fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((here, there), (Ok(here), Ok(there)) if here == there)
}

/// A shared lock of a directory, so that what cleans up passes over it (tmpfiles.d(5): "directories that are locked with flock are not cleaned"). Without it all the same works as long as the files are there.
pub fn hold(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    Some(file)
}

fn only_ours_to_write(directory: &Path) -> Result<(), Error> {
    let uid = rustix::process::geteuid().as_raw();
    let found = fs::metadata(directory).map_err(|error| Error::file("look at", directory, error))?;
    let wrong = |what| Err(Error::Directory { path: directory.to_owned(), what, uid });
    match found {
        _ if !found.is_dir() => wrong("it is no directory"),
        _ if found.uid() != uid && found.uid() != 0 => wrong("it belongs to another user"),
        _ if found.mode() & 0o022 != 0 => wrong("others may write into it"),
        _ => Ok(()),
    }
}

/// The process number in a lock file that another process holds.
fn holder(lock: &mut File) -> Option<u32> {
    for _ in 0..LOOKS_FOR_PID {
        let mut text = String::new();
        lock.rewind().ok()?;
        lock.take(16).read_to_string(&mut text).ok()?;
        // The line's end is the proof that the number is whole.
        if let Some(pid) = text.strip_suffix('\n').and_then(|pid| pid.parse().ok()) {
            return Some(pid);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    None
}

fn remove_stale(socket: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(socket) {
        // Its lock file was removed, and the process that holds it puts that back in a moment.
        Ok(found) if found.file_type().is_socket() && UnixStream::connect(socket).is_ok() => {
            Err(Error::AlreadyServed { path: socket.to_owned(), pid: None })
        }
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(socket).map_err(|error| Error::file("remove the stale socket", socket, error))
        }
        Ok(_) => Err(Error::NotASocket { path: socket.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("look at", socket, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn a_second_helper_is_told_who_the_first_is() {
        let directory = tempfile::tempdir().unwrap();
        let first = Claim::take(directory.path(), "node.sock").unwrap();
        let refused = Claim::take(directory.path(), "node.sock").unwrap_err();
        assert!(matches!(&refused, Error::AlreadyServed { pid: Some(pid), .. } if *pid == std::process::id()));
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())));
        assert!(Claim::take(directory.path(), "other.sock").is_ok());
        drop(first);
        assert!(Claim::take(directory.path(), "node.sock").is_ok());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_anything_else_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("node.sock");
        drop(UnixListener::bind(&socket).unwrap());
        assert!(socket.exists());
        let claim = Claim::take(directory.path(), "node.sock").unwrap();
        assert!(!socket.exists());
        drop(claim);
        fs::write(&socket, "precious").unwrap();
        assert!(matches!(Claim::take(directory.path(), "node.sock"), Err(Error::NotASocket { .. })));
        assert_eq!(fs::read(&socket).unwrap(), b"precious");
    }

    #[test]
    fn a_helper_whose_lock_file_is_gone_keeps_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        fs::create_dir(&run).unwrap();
        let mut claim = Claim::take(&run, "node.sock").unwrap();
        let _listener = UnixListener::bind(claim.socket()).unwrap();
        assert!(!claim.keep().unwrap());
        fs::remove_file(run.join("node.sock.lock")).unwrap();
        let refused = Claim::take(&run, "node.sock").unwrap_err();
        assert!(matches!(refused, Error::AlreadyServed { .. }), "the socket of one who lives was taken: {refused}");
        assert!(claim.socket().exists() && claim.keep().unwrap() && !claim.keep().unwrap());
        let refused = Claim::take(&run, "node.sock").unwrap_err();
        assert!(matches!(refused, Error::AlreadyServed { pid: Some(_), .. }), "{refused}");
        fs::remove_dir_all(&run).unwrap();
        assert!(claim.keep().unwrap() && run.join("node.sock.lock").exists());
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_cleans_up_finds_the_directory_locked() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::take(directory.path(), "node.sock").unwrap();
        // As systemd-tmpfiles does it.
        let cleans = File::open(directory.path()).unwrap();
        let alone = || rustix::fs::flock(&cleans, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(alone(), Err(rustix::io::Errno::WOULDBLOCK));
        drop(claim);
        assert_eq!(alone(), Ok(()));
        assert!(
            Claim::take(directory.path(), "node.sock").is_ok(),
            "one that comes while it cleans up is not kept out"
        );
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "a/b", "/abs", &"x".repeat(108)] {
            assert!(matches!(Claim::take(directory.path(), name), Err(Error::Name { .. })), "{name}");
        }
    }

    #[test]
    fn directories_that_others_can_write_or_enter_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("made");
        private_directory(&path, uid()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        private_directory(&path, uid()).unwrap();
        assert!(matches!(private_directory(&path, uid() + 1), Err(Error::Directory { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o722)).unwrap();
        assert!(matches!(private_directory(&path, uid()), Err(Error::Directory { .. })));
        assert!(matches!(Claim::take(&path, "node.sock"), Err(Error::Directory { .. })));
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(private_directory(&link, uid()), Err(Error::Directory { .. })));
    }
}
