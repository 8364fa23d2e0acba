//! Where the helper listens.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;

/// What the helper of a machine that is alone is called.
pub const DEFAULT_NAME: &str = "local";

/// The place of a helper's socket: `NAME.sock` in a directory that belongs to one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    directory: PathBuf,
    name: String,
}

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
        Ok(Socket { directory, name: name.unwrap_or(DEFAULT_NAME).to_owned() })
    }

    /// The socket at `path` if that ends in `.sock`, otherwise that of the helper called [`DEFAULT_NAME`] in the directory `path`.
    pub fn at(path: &Path) -> Self {
        let name =
            path.file_name().and_then(|file| file.to_str()?.strip_suffix(".sock")).filter(|name| !name.is_empty());
        let (directory, name) = match name {
            Some(name) => (path.parent().unwrap_or(Path::new("")), name),
            None => (path, DEFAULT_NAME),
        };
        Socket { directory: directory.to_owned(), name: name.to_owned() }
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
            .filter(|name| *name != self.name && !name.ends_with(".http"))
            .collect();
        others.sort();
        others
    }
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
}
