//! The file of users: names, Argon2id hashes, homes and rights.
//!
//! ```toml
//! [users.alice]
//! password = "$argon2id$v=19$..."      # `verbena ftp passwd users.toml alice`
//! home = "alice"                       # below the served directory; default: the directory itself
//! rights = ["read", "write", "delete"] # default: read
//! fxp = ["192.0.2.7"]                  # other hosts that PORT and EPRT may name; default: none
//! atomic_stores = true                 # uploads replace whole files; default: false
//! rate = "10MiB"                       # a second, of all connections together; default: as fast as it goes
//! quota = "20GiB"                      # of all files in the home; default: what the disk has
//! connections = 4                      # at a time; default: as many as an address may have
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use serde::Deserialize;

use crate::rights::{Login, Rights};
use verbena_terms::Size;
use verbena_transfer::VirtualPath;

/// Longer passwords are refused: hashing them would cost what an attacker likes.
const LONGEST_PASSWORD: usize = 1 << 10;

/// Verified where there is no such user, so that the time of an answer tells no names.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read or written.
    #[error("file of users {}: {error}; give a file that this user can read and write, in a directory that exists", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The server's file of users is not there.
    #[error("--users {}: there is no such file; `verbena ftp passwd {} NAME` makes it, with a first user", path.display(), path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is no TOML of the form above.
    #[error("{}: {message}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// A name or password that cannot be stored.
    #[error("{0}")]
    Word(&'static str),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    #[serde(default)]
    users: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    password: String,
    #[serde(default)]
    home: String,
    #[serde(default = "read_alone")]
    rights: Vec<Right>,
    #[serde(default)]
    fxp: Vec<IpAddr>,
    #[serde(default)]
    atomic_stores: bool,
    rate: Option<Size>,
    quota: Option<Size>,
    connections: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Right {
    Read,
    Write,
    Delete,
}

fn read_alone() -> Vec<Right> {
    vec![Right::Read]
}

/// Everybody who can log in by a password.
#[derive(Debug, Default)]
pub struct Users {
    users: BTreeMap<String, User>,
}

#[derive(Debug)]
struct User {
    hash: PasswordHash,
    home: VirtualPath,
    login: Login,
}

impl Users {
    /// Reads a file of users.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => UsersError::Missing { path: path.to_owned() },
            _ => UsersError::Io { path: path.to_owned(), error },
        })?;
        Users::parse(&text).map_err(|message| UsersError::Form { path: path.to_owned(), message })
    }

    fn parse(text: &str) -> Result<Users, String> {
        let file: UsersFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut users = BTreeMap::new();
        for (name, entry) in file.users {
            let hash = PasswordHash::new(&entry.password)
                .map_err(|error| format!("the password of {name} is no hash of `verbena ftp passwd`: {error}"))?;
            let home = VirtualPath::root()
                .join(entry.home.as_bytes())
                .ok_or_else(|| format!("the home of {name} holds a control character"))?;
            let has = |right| entry.rights.contains(&right);
            let rights = Rights { read: has(Right::Read), write: has(Right::Write), delete: has(Right::Delete) };
            if entry.rate == Some(Size(0)) || entry.connections == Some(0) {
                return Err(format!("{name} could do nothing: rate is at least 1B, and connections at least 1"));
            }
            let (rate, quota) = (entry.rate.map(|rate| rate.0), entry.quota.map(|quota| quota.0));
            let Entry { fxp, atomic_stores, connections, .. } = entry;
            let login = Login { rights, fxp, atomic_stores, rate, quota, connections };
            users.insert(name, User { hash, home, login });
        }
        Ok(Users { users })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    /// What the name and password give: the home and the rights. Takes some 20 ms and 19 MiB, also for unknown names.
    pub fn check(&self, name: &[u8], password: &[u8]) -> Option<(VirtualPath, Login)> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.users.get(name));
        if password.len() > LONGEST_PASSWORD {
            return None;
        }
        match user {
            Some(user) => {
                let is_right = Argon2::default().verify_password(password, &user.hash).is_ok();
                is_right.then(|| (user.home.clone(), user.login.clone()))
            }
            None => {
                if let Ok(hash) = PasswordHash::new(NOBODY) {
                    let _ = Argon2::default().verify_password(password, &hash);
                }
                None
            }
        }
    }
}

/// Sets the password of a user in a file of users, and makes both if they are not there. The rest of the file stays as it
/// is. The file is replaced by one rename and readable by its owner alone.
pub fn set_password(path: &Path, name: &str, password: &[u8]) -> Result<(), UsersError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err(UsersError::Word("a user's name has 1 to 64 letters, digits, - and _"));
    }
    if password.is_empty() || password.len() > LONGEST_PASSWORD || password.iter().any(|byte| *byte < 0x20) {
        return Err(UsersError::Word("a password has 1 to 1024 bytes and no control characters"));
    }
    let io = |error| UsersError::Io { path: path.to_owned(), error };
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(io)?,
    };
    Users::parse(&text).map_err(|message| UsersError::Form { path: path.to_owned(), message })?;
    let hash: PasswordHash =
        Argon2::default().hash_password(password).map_err(|_| UsersError::Word("the password cannot be hashed"))?;
    let text = with_password(&text, name, &hash.to_string());
    let wrong = |message| UsersError::Form { path: path.to_owned(), message };
    let users =
        Users::parse(&text).map_err(|_| wrong(format!("write the table [users.{name}] on lines of its own")))?;
    if users.users.get(name).is_none_or(|user| user.hash != hash) {
        return Err(wrong(format!("write `password = ` on a line of its own below [users.{name}]")));
    }
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        io(error)
    })
}

/// The text with the user's line `password` replaced, or with a table for the user at the end.
fn with_password(text: &str, name: &str, hash: &str) -> String {
    let line = format!("password = \"{hash}\"");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let header = format!("[users.{name}]");
    match lines.iter().position(|found| found.trim() == header) {
        Some(at) => {
            let end = lines[at + 1..].iter().position(|found| found.trim_start().starts_with('['));
            let end = end.map_or(lines.len(), |found| at + 1 + found);
            let is_password = |found: &String| found.trim_start().split(['=', ' ']).next() == Some("password");
            match lines[at + 1..end].iter().position(is_password) {
                Some(found) => lines[at + 1 + found] = line,
                None => lines.insert(at + 1, line),
            }
        }
        None => {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend([header, line]);
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_set_and_checked_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        set_password(&path, "alice", b"old").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("# ours\n{text}rights = [\"read\", \"write\"] # both\nhome = \"a/b\"\n"))
            .unwrap();
        set_password(&path, "bob", b"other").unwrap();
        set_password(&path, "alice", b"new").unwrap();
        let users = Users::load(&path).unwrap();
        let (home, login) = users.check(b"alice", b"new").unwrap();
        assert_eq!((home.display(), login.rights.write, login.rights.delete), (b"/a/b".to_vec(), true, false));
        assert_eq!(users.check(b"alice", b"old"), None);
        assert_eq!(users.check(b"carol", b"new"), None);
        assert_eq!(users.check(b"bob", b"other").unwrap().1.rights, Rights::READ);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ours\n") && text.contains("# both") && !text.contains("new"), "{text}");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for text in ["[users.a]\npassword = \"x\"", "[users.a]\n", "[users.a]\npasword = \"\"", "users = 3"] {
            assert!(Users::parse(text).is_err(), "{text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        assert!(set_password(&path, "a b", b"x").is_err() && set_password(&path, "a", b"").is_err());
        assert!(PasswordHash::new(NOBODY).is_ok());
    }
}
