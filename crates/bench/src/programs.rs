//! Programs of others.

use std::path::PathBuf;

/// Where the command of this name is. Debian has servers where the paths of users do not lead.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}
