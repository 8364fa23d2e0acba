//! `verbena ftp get`, `put`, `ls`, `rm`, `mv` and `sha256`: single files of any FTP server.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use verbena_ftp::{CopyError, Date, Listed, ListedKind, Location, Moved, Remote};

use super::address::Reach;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Fetch a file. The same command, given again after any end, goes on where it was, if the server's file is still the same.
///
/// The file arrives beside its place, and is renamed when it is whole.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp get ftp://host/data/a.bin
  verbena ftp get --tls ftp://alice:secret@host/a.bin /tmp/b.bin")]
pub struct Get {
    /// The file on the server: ftp://USER:PASSWORD@HOST:PORT/PATH.
    #[arg(value_name = "URL")]
    url: String,
    /// A file or a directory here; the directory where the command runs, if it is not given.
    #[arg(value_name = "TO", default_value = ".")]
    to: PathBuf,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// Send a file. What the server has already, and is proven to be the file's beginning, is not sent again.
///
/// A server that computes hashes proves it. For others, --resume compares the last 64 KiB instead.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp put a.bin ftp://alice:secret@host/in/
  verbena ftp put --resume a.bin ftp://alice:secret@host/in/b.bin")]
pub struct Put {
    /// The file here.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where it goes on the server, ftp://USER:PASSWORD@HOST:PORT/PATH; into a directory, if the path ends with a slash.
    #[arg(value_name = "URL")]
    url: String,
    /// Go on behind what the server has if its last 64 KiB are equal, on a server that computes no hashes.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// List a directory.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp ls ftp://host/
  verbena ftp ls --json ftps://host/data")]
pub struct Ls {
    /// The directory or file: ftp://USER:PASSWORD@HOST:PORT/PATH.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// Remove a file, or with --directory an empty directory.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp rm ftp://alice:secret@host/in/old.bin
  verbena ftp rm --directory ftp://alice:secret@host/in")]
pub struct Rm {
    /// The file.
    #[arg(value_name = "URL")]
    url: String,
    /// Remove an empty directory, not a file.
    #[arg(long)]
    directory: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Rename a file or directory on its server.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp mv ftp://alice:secret@host/in/a.bin /in/b.bin")]
pub struct Mv {
    /// The file.
    #[arg(value_name = "URL")]
    url: String,
    /// Its new path on the server; also as a URL of the same server.
    #[arg(value_name = "PATH")]
    to: String,
    #[command(flatten)]
    reach: Reach,
}

/// Print the SHA-256 of a file. The server computes it, if it can; else the file is fetched.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp sha256 ftp://host/data/a.bin")]
pub struct Sha256 {
    /// The file.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct MovedFile {
    bytes: u64,
    /// Bytes that stood already.
    kept: u64,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// In UTC, `YYYYMMDDHHMMSS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

#[derive(Serialize)]
struct Digest {
    sha256: String,
    by: &'static str,
}

/// An error of what was typed.
pub fn refused(problem: impl Into<String>) -> Error {
    Error::Refused { problem: problem.into(), exit_code: 2 }
}

/// The server's side, connected.
fn connect(reach: &Reach, url: &str) -> Result<(Remote, Location)> {
    let location = reach.location(url).map_err(refused)?;
    Ok((Remote::connect(&location, reach.timeout())?, location))
}

/// Fetches one file.
pub fn get(remote: &mut Remote, there: &[u8], to: &Path, report: &mut dyn FnMut(u64) -> bool) -> Result<Moved> {
    let (root, name) = verbena_ftp::target(to, there)?;
    Ok(remote.get(there, &root, &name, report)?)
}

/// Sends one file.
pub fn put(
    remote: &mut Remote,
    from: &Path,
    there: &[u8],
    takes_likely: bool,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Moved> {
    use std::os::unix::ffi::OsStrExt;
    let here = |error| CopyError::Read { name: from.display().to_string(), error };
    let mut file = File::open(from).map_err(here)?;
    if !file.metadata().map_err(here)?.is_file() {
        return Err(refused(format!("{} is no regular file; `verbena cp` sends directories", from.display())));
    }
    let mut there = there.to_vec();
    if there.ends_with(b"/") {
        there.extend_from_slice(from.file_name().map(OsStrExt::as_bytes).unwrap_or_default());
    }
    Ok(remote.put(&mut file, &there, takes_likely, report)?)
}

fn say(format: &Format, moved: Moved) -> Result<()> {
    let Moved { size, kept } = moved;
    let mut out = output();
    match format.json {
        true => write_json(&mut out, &MovedFile { bytes: size, kept }),
        false => Ok(writeln!(out, "{size} bytes, {kept} of them were there already")?),
    }
}

impl Get {
    /// Fetches it.
    pub fn run(self) -> Result<()> {
        let (mut remote, location) = connect(&self.reach, &self.url)?;
        let moved = get(&mut remote, &location.path, &self.to, &mut |_| true)?;
        remote.quit();
        say(&self.format, moved)
    }
}

impl Put {
    /// Sends it.
    pub fn run(self) -> Result<()> {
        // A file that is not there is named before a server is asked.
        let here = |error| CopyError::Read { name: self.file.display().to_string(), error };
        std::fs::metadata(&self.file).map_err(here)?;
        let (mut remote, location) = connect(&self.reach, &self.url)?;
        let moved = put(&mut remote, &self.file, &location.path, self.resume, &mut |_| true)?;
        remote.quit();
        say(&self.format, moved)
    }
}

fn entry(listed: &Listed) -> Entry {
    let kind = match listed.kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Link => "link",
        ListedKind::Other => "other",
    };
    // A name of a server must not move the cursor of a terminal.
    let name: String = String::from_utf8_lossy(&listed.name)
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect();
    Entry { name, kind, size: listed.size, modified: listed.modified.map(|seconds| Date::of(seconds).compact()) }
}

impl Ls {
    /// Lists it.
    pub fn run(self) -> Result<()> {
        let (mut remote, location) = connect(&self.reach, &self.url)?;
        let mut entries: Vec<Entry> = remote.list(&location.path)?.iter().map(entry).collect();
        remote.quit();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &entries);
        }
        for Entry { name, kind, size, modified } in entries {
            let size = size.map_or_else(|| "-".to_owned(), |size| size.to_string());
            let slash = if kind == "directory" { "/" } else { "" };
            writeln!(out, "{size:>15}  {:14}  {name}{slash}", modified.unwrap_or_else(|| "-".to_owned()))?;
        }
        Ok(())
    }
}

impl Rm {
    /// Removes it.
    pub fn run(self) -> Result<()> {
        let (mut remote, location) = connect(&self.reach, &self.url)?;
        let removed = match self.directory {
            true => remote.remove_directory(&location.path),
            false => remote.remove(&location.path),
        };
        if let Err(error @ CopyError::Refused { .. }) = removed {
            let kind = remote.facts(&location.path).ok().map(|facts| facts.kind);
            let why = match (kind, self.directory) {
                (Some(ListedKind::Directory), false) => "; it is a directory: --directory removes an empty one",
                (Some(ListedKind::File), true) => "; it is a file: leave out --directory",
                _ => "",
            };
            return Err(Error::Refused { problem: format!("{error}{why}"), exit_code: 1 });
        }
        removed?;
        remote.quit();
        Ok(())
    }
}

impl Mv {
    /// The new path. A user may be left out of its URL.
    fn target(&self, from: &Location) -> Result<Vec<u8>> {
        if !self.to.contains("://") {
            return Ok(self.to.clone().into_bytes());
        }
        let to = self.reach.location(&self.to).map_err(refused)?;
        let is_user = to.user == from.user || !self.to.contains('@');
        if (&to.host, to.port) == (&from.host, from.port) && is_user {
            return Ok(to.path);
        }
        Err(refused(
            "a file is renamed on its server, and the new path is one of another server or user: nothing was changed. `verbena cp URL URL` copies between servers",
        ))
    }

    /// Renames it.
    pub fn run(self) -> Result<()> {
        let location = self.reach.location(&self.url).map_err(refused)?;
        let to = self.target(&location)?;
        let mut remote = Remote::connect(&location, self.reach.timeout())?;
        remote.rename(&location.path, &to)?;
        remote.quit();
        Ok(())
    }
}

impl Sha256 {
    /// Prints it.
    pub fn run(self) -> Result<()> {
        let (mut remote, location) = connect(&self.reach, &self.url)?;
        let (sha256, is_there) = remote.sha256(&location.path)?;
        remote.quit();
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &Digest { sha256, by: if is_there { "server" } else { "download" } });
        }
        Ok(writeln!(out, "{sha256}  {}", String::from_utf8_lossy(&location.path))?)
    }
}
