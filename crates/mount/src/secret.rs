//! Where the secret of a volume comes from.

use std::fs::{OpenOptions, Permissions, hard_link, remove_file};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use verbena_bank::Secret;

use crate::error::MountError;

/// The secret in a file that its owner alone can read.
pub(crate) fn secret_of(path: &Path) -> Result<Secret, MountError> {
    let unreadable = |error| MountError::SecretFile { path: path.to_owned(), error };
    let mode = path.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(MountError::SecretMode { path: path.to_owned(), mode });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Secret::parse(&text).map_err(|error| MountError::Secret { path: path.to_owned(), error })
}

/// The secret that all mounts of this user on this machine have in common: in the helper's directory, made by the first of them.
pub(crate) fn machine_secret(directory: &Path) -> Result<Secret, MountError> {
    let user = rustix::process::geteuid().as_raw();
    let path = directory.join(format!("bank-{user}.secret"));
    let unreadable = |error| MountError::SecretFile { path: path.clone(), error };
    match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
        Ok(mut file) => {
            let found = file.metadata().map_err(unreadable)?;
            let mode = found.permissions().mode() & 0o777;
            // In a directory that others may write, anybody could have put it there.
            if found.uid() != user {
                return Err(unreadable(std::io::Error::other(format!(
                    "it belongs to user {}: remove it",
                    found.uid()
                ))));
            }
            if mode & 0o077 != 0 {
                return Err(MountError::SecretMode { path: path.clone(), mode });
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(unreadable)?;
            Secret::parse(&text).map_err(|error| MountError::Secret { path: path.clone(), error })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(&path).map_err(unreadable)?;
            secret_of(&path)
        }
        Err(error) => Err(unreadable(error)),
    }
}

/// Whole or not at all: two mounts that begin together have one secret.
fn make(path: &Path) -> std::io::Result<()> {
    let mut bytes = [0; 40];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (digits, own) = digits.split_at(64);
    let new = path.with_extension(format!("{own}.new"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{digits}")?;
    file.sync_all()?;
    let made = hard_link(&new, path);
    remove_file(&new)?;
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mounts_of_a_user_find_one_secret_and_no_other_users() {
        let folder = tempfile::tempdir().unwrap();
        let found: Vec<String> = std::thread::scope(|scope| {
            let each: Vec<_> =
                (0..8).map(|_| scope.spawn(|| machine_secret(folder.path()).unwrap().fingerprint())).collect();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let refused = machine_secret(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }
}
