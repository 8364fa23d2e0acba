//! Where the helper listens.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use verbena_ipc::Mode;

use crate::error::{Error, Result};

/// What the helper of a machine that is alone is called.
pub const DEFAULT_NAME: &str = "local";

/// The place of a helper's socket: `NAME.sock` in a directory that belongs to one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    directory: PathBuf,
    name: String,
    mode: Option<Mode>,
}

/// The variable that names the ipc mode of programs that do not choose one themselves.
pub const MODE_VARIABLE: &str = "VERBENA_IPC_MODE";

impl Socket {
    /// The helper called `name`, [`DEFAULT_NAME`] if none is given, in `directory`, the user's own if none is given.
    ///
    /// # Errors
    /// If the user's own directory cannot be made or is not the user's alone.
    pub fn new(directory: Option<&Path>, name: Option<&str>) -> Result<Self> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => verbena_ipc::runtime_directory()?,
        };
        Ok(Socket { directory, name: name.unwrap_or(DEFAULT_NAME).to_owned(), mode: None })
    }

    /// The socket at `path` if that ends in `.sock`, otherwise that of the helper called [`DEFAULT_NAME`] in the directory `path`.
    pub fn at(path: &Path) -> Self {
        let name =
            path.file_name().and_then(|file| file.to_str()?.strip_suffix(".sock")).filter(|name| !name.is_empty());
        let (directory, name) = match name {
            Some(name) => (path.parent().unwrap_or(Path::new("")), name),
            None => (path, DEFAULT_NAME),
        };
        Socket { directory: directory.to_owned(), name: name.to_owned(), mode: None }
    }

    /// The same, to be talked to in this mode.
    pub fn in_mode(self, mode: Mode) -> Self {
        Socket { mode: Some(mode), ..self }
    }

    /// The mode that was chosen; if none was, what [`MODE_VARIABLE`] says; else the default.
    ///
    /// # Errors
    /// If the variable names none.
    pub fn mode(&self) -> Result<Mode> {
        let said = || std::env::var_os(MODE_VARIABLE).map(|name| named(&name)).transpose();
        Ok(self.mode.map_or_else(said, |mode| Ok(Some(mode)))?.unwrap_or_default())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file's name in it.
    pub fn file_name(&self) -> String {
        format!("{}.sock", self.name)
    }

    /// The whole path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.file_name())
    }

    /// Where the same helper listens for HTTP.
    pub fn http_path(&self) -> PathBuf {
        self.directory.join(format!("{}.http.sock", self.name))
    }

    /// Names of the other helpers that have a socket in the same directory.
    pub fn others(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return vec![] };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut others: Vec<_> = names
            .filter_map(|name| Some(name.strip_suffix(".sock")?.to_owned()))
            // Relays, watchers and servers have sockets there as well; a helper listens for HTTP beside its own.
            .filter(|name| *name != self.name && self.directory.join(format!("{name}.http.sock")).exists())
            .collect();
        others.sort();
        others
    }
}

fn named(mode: &OsStr) -> Result<Mode> {
    let name = mode.to_string_lossy();
    name.parse().map_err(|_| Error::Mode { name: name.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_socket_or_the_directory_of_one() {
        let at = |path: &str| Socket::at(Path::new(path)).path();
        assert_eq!(at("/run/verbena/a.sock"), Path::new("/run/verbena/a.sock"));
        assert_eq!(at("/run/verbena"), Path::new("/run/verbena/local.sock"));
        assert_eq!(at("/run/.sock"), Path::new("/run/.sock/local.sock"));
        assert_eq!(at("a.sock"), Path::new("a.sock"));
    }

    #[test]
    fn a_mode_is_chosen_by_the_program_or_by_its_name() {
        let socket = Socket::at(Path::new("/run/verbena/a.sock"));
        for mode in Mode::ALL {
            assert_eq!(socket.clone().in_mode(mode).mode().unwrap(), mode);
            assert_eq!(named(OsStr::new(mode.name())).unwrap(), mode);
        }
        let refused = named(OsStr::new("turbo")).unwrap_err().to_string();
        assert!(refused.contains("VERBENA_IPC_MODE") && refused.contains("turbo"), "{refused}");
    }
}
