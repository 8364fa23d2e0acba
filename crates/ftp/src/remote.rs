//! A client of any FTP server: files there and back, with resume, and what else one does with files.
//!
//! **Get** writes into a part beside the target, which a rename puts in its place. A record beside the part says which version
//! it is of: size and time of modification there. The next get of the same version asks for the last 64 KiB again,
//! compares, and goes on; any other version begins anew (rule T7). A file counts as whole if the server said 226,
//! as many bytes came as `SIZE` said before and says now, and the time there has not changed.
//!
//! **Put** sends what is missing if what stands there is proven to be the beginning: by `HASH` of the range. Where a server has none,
//! the caller may accept the comparison of the last 64 KiB. After the last byte `SIZE` must be that of the file here, whose identity must be the one
//! from before.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use sha2::{Digest, Sha256};
use verbena_transfer::{FileError, From, Root, VirtualPath};

use crate::client::{CopyError, Location};
use crate::date::Date;
use crate::dialogue::{Argument, Dialogue};
use crate::limits::RateLimit;
use crate::listed::{Listed, ListedKind, parse_list, parse_mlsd};
use crate::trust::Wire;

mod uploading;

/// What the name of a file begins with that is still on its way.
pub(crate) const PART: &str = ".ftp-part.";
/// Bytes that are read or written at once.
const BLOCK: usize = 256 << 10;
/// Bytes that are fetched again and compared before a transfer goes on (rule T7).
const COMPARED: u64 = 64 << 10;
/// The longest line of a listing.
const LONGEST_LINE: usize = 64 << 10;
/// Entries of one directory that are kept.
const MOST_ENTRIES: usize = 4_000_000;

/// What a server says that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Features {
    mlsd: bool,
    rest: bool,
    hash: bool,
    xsha256: bool,
    mfmt: bool,
    rang: bool,
    /// It is our own server.
    sessions: bool,
}

/// What came of moving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of the whole file.
    pub size: u64,
    /// Bytes that stood already, and were not sent.
    pub kept: u64,
}

/// Follows a transfer: bytes of the file that stand. `false` breaks it off.
pub type Report<'a> = &'a mut dyn FnMut(u64) -> bool;

/// A connection to a server.
pub struct Remote {
    pub(crate) dialogue: Dialogue,
    features: Features,
    /// Of the bytes of files.
    limit: Option<RateLimit>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Remote").field("features", &self.features).finish_non_exhaustive()
    }
}

impl Remote {
    /// Connects and logs in. `timeout` is the longest silence of the server, at any point.
    pub fn connect(location: &Location, timeout: Duration) -> Result<Remote, CopyError> {
        let mut dialogue = Dialogue::open(location, timeout)?;
        let mut features = Features::default();
        let reply = dialogue.ask("FEAT", &Argument::new(b"")?)?;
        if reply.code == 211 {
            for line in reply.text.split(|byte| *byte == b'\n') {
                let line = line.trim_ascii().to_ascii_uppercase();
                match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
                    b"MLST" | b"MLSD" => features.mlsd = true,
                    b"REST" => features.rest = line.ends_with(b"STREAM"),
                    b"HASH" => features.hash = line.windows(7).any(|window| window == b"SHA-256"),
                    b"XSHA256" => features.xsha256 = true,
                    b"RANG" => features.rang = true,
                    b"MFMT" => features.mfmt = true,
                    b"TPRT" => features.sessions = true,
                    b"UTF8" => drop(dialogue.ask("OPTS", &Argument::new(b"UTF8 ON")?)?),
                    _ => {}
                }
            }
        }
        dialogue.command("TYPE", &Argument::new(b"I")?, 2)?;
        Ok(Remote { dialogue, features, limit: None })
    }

    /// Ends the connection in order.
    pub fn quit(mut self) {
        if let Ok(nothing) = Argument::new(b"") {
            // Everything that counts has been answered.
            let _ = self.dialogue.ask("QUIT", &nothing);
        }
    }

    /// The entries of a directory; of a file, itself. In the server's order.
    pub fn list(&mut self, path: &[u8]) -> Result<Vec<Listed>, CopyError> {
        let (verb, parse) = match self.features.mlsd {
            true => ("MLSD", parse_mlsd as fn(&[u8]) -> Option<Listed>),
            false => ("LIST", parse_list as fn(&[u8]) -> Option<Listed>),
        };
        let argument = Argument::new(path)?;
        let wire = match self.dialogue.data(verb, &argument) {
            // A file has no MLSD.
            Err(CopyError::Refused { code: 500..=599, .. }) if self.features.mlsd => {
                return Ok(vec![self.facts(path)?]);
            }
            other => other?,
        };
        let read = read_lines(wire, &parse);
        let entries = read.map_err(|error| self.dialogue.io(error));
        let ended = self.dialogue.ended();
        let entries = entries?;
        ended?;
        Ok(entries)
    }

    /// What is known of one file or directory.
    pub fn facts(&mut self, path: &[u8]) -> Result<Listed, CopyError> {
        let argument = Argument::new(path)?;
        if self.features.mlsd
            && let Some(listed) = facts_by_mlst(&mut self.dialogue, path)?
        {
            return Ok(listed);
        }
        let name = name_of(path).to_vec();
        if let Some(size) = self.size(path)? {
            return Ok(Listed { name, kind: ListedKind::File, size: Some(size), modified: self.modified(path)? });
        }
        self.dialogue.command("CWD", &argument, 2)?;
        Ok(Listed { name, kind: ListedKind::Directory, size: None, modified: None })
    }

    /// Bytes of a file. `None` if the server does not say.
    pub fn size(&mut self, path: &[u8]) -> Result<Option<u64>, CopyError> {
        let reply = self.dialogue.ask("SIZE", &Argument::new(path)?)?;
        let digits = (reply.code == 213).then(|| std::str::from_utf8(reply.last().trim_ascii()).ok()?.parse().ok());
        Ok(digits.flatten())
    }

    /// When a file was modified, in seconds since 1970. `None` if the server does not say.
    pub fn modified(&mut self, path: &[u8]) -> Result<Option<i64>, CopyError> {
        let reply = self.dialogue.ask("MDTM", &Argument::new(path)?)?;
        Ok((reply.code == 213).then(|| Date::parse(reply.last().trim_ascii()).map(|date| date.seconds())).flatten())
    }

    /// Sets the time of modification. False if the server cannot.
    pub fn set_modified(&mut self, path: &[u8], seconds: i64) -> Result<bool, CopyError> {
        if !self.features.mfmt {
            return Ok(false);
        }
        let argument = [Date::of(seconds).compact().as_bytes(), b" ", path].concat();
        Ok(self.dialogue.ask("MFMT", &Argument::new(&argument)?)?.code == 213)
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &[u8]) -> Result<(), CopyError> {
        self.dialogue.command("DELE", &Argument::new(path)?, 2).map(drop)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, path: &[u8]) -> Result<(), CopyError> {
        self.dialogue.command("RMD", &Argument::new(path)?, 2).map(drop)
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, path: &[u8]) -> Result<(), CopyError> {
        self.dialogue.command("MKD", &Argument::new(path)?, 2).map(drop)
    }

    /// Renames.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), CopyError> {
        let to = Argument::new(to)?;
        self.dialogue.command("RNFR", &Argument::new(from)?, 3)?;
        self.dialogue.command("RNTO", &to, 2).map(drop)
    }

    /// Files go no faster than this from now on.
    pub fn limited(mut self, limit: Option<RateLimit>) -> Remote {
        self.limit = limit;
        self
    }

    /// A buffer for files, so small that a slow rate moves often.
    pub(crate) fn block(&self) -> Vec<u8> {
        vec![0; self.limit.as_ref().map_or(BLOCK, |limit| limit.0.block(BLOCK))]
    }

    /// Waits until the rate allows the bytes that have passed.
    pub(crate) fn passed(&self, bytes: usize) {
        if let Some(limit) = &self.limit {
            limit.0.passed(bytes as u64);
        }
    }

    /// SHA-256 of a file in hexadecimal digits, and whether the server computed it. One that cannot has the file fetched.
    pub fn sha256(&mut self, path: &[u8]) -> Result<(String, bool), CopyError> {
        if let Some(digits) = self.hash_there(path, None)? {
            return Ok((digits, true));
        }
        let mut hasher = Sha256::new();
        let mut block = vec![0; BLOCK];
        let mut wire = self.dialogue.data("RETR", &Argument::new(path)?)?;
        let read = loop {
            match wire.read(&mut block) {
                Ok(0) => break Ok(()),
                Ok(read) => hasher.update(&block[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        drop(wire);
        read.map_err(|error| self.dialogue.io(error))?;
        self.dialogue.ended()?;
        Ok((hexadecimal(&hasher.finalize()), false))
    }

    /// SHA-256 by the server, of the whole file or of its first bytes. `None` if it cannot.
    pub(crate) fn hash_there(&mut self, path: &[u8], first: Option<u64>) -> Result<Option<String>, CopyError> {
        let argument = Argument::new(path)?;
        if self.features.hash && (first.is_none() || self.features.rang) {
            self.dialogue.ask("OPTS", &Argument::new(b"HASH SHA-256")?)?;
            if let Some(first) = first {
                let range = format!("0 {}", first.saturating_sub(1));
                self.dialogue.command("RANG", &Argument::new(range.as_bytes())?, 3)?;
            }
            let reply = self.dialogue.command("HASH", &argument, 2)?;
            let digits = reply.last().split(|byte| *byte == b' ').nth(2).unwrap_or_default();
            return Ok(digits_of(digits));
        }
        if self.features.xsha256 && first.is_none() {
            let reply = self.dialogue.command("XSHA256", &argument, 2)?;
            return Ok(digits_of(reply.last().trim_ascii()));
        }
        Ok(None)
    }

    /// Fetches a file into `to`, below `root`.
    pub fn get(&mut self, path: &[u8], root: &Root, to: &VirtualPath, report: Report<'_>) -> Result<Moved, CopyError> {
        let local = |error| local_error(to, error);
        let version = (self.size(path)?, self.modified(path)?);
        let part = Part::of(to).ok_or_else(|| local(FileError::BadName))?;
        let kept = part.claim(root, version).map_err(local)?;
        let mut file = root.write(&part.data, From::End).map_err(local)?;
        let mut at = self.proven(path, root, &part, kept)?;
        // What was not proven is dropped, in the file that is locked already.
        let trimmed = file.set_len(at).and_then(|()| file.seek(SeekFrom::Start(at)));
        trimmed.map_err(|error| local(error.into()))?;
        part.record(root, version).map_err(local)?;
        let kept = at;
        let mut wire = match self.retrieve(path, &mut at) {
            Ok(wire) => wire,
            Err(error) => {
                if kept == 0 {
                    part.forget(root);
                }
                return Err(error);
            }
        };
        if at != kept {
            let trimmed = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)));
            trimmed.map_err(|error| local(error.into()))?;
        }
        let kept = at;
        let mut block = self.block();
        loop {
            let read = match wire.read(&mut block) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.dialogue.io(error)),
            };
            file.write_all(&block[..read]).map_err(|error| local(error.into()))?;
            self.passed(read);
            at += read as u64;
            if !report(at) {
                return Err(CopyError::Stopped);
            }
        }
        drop(wire);
        self.dialogue.ended()?;
        let after = (self.size(path)?, self.modified(path)?);
        if after != version || version.0.is_some_and(|size| size != at) {
            part.forget(root);
            return Err(CopyError::Changed(String::from_utf8_lossy(path).into_owned()));
        }
        file.sync_all().map_err(|error| local(error.into()))?;
        drop(file);
        root.rename(&part.data, to).map_err(local)?;
        part.forget(root);
        if let Some(modified) = version.1 {
            root.set_modified(to, modified).map_err(local)?;
        }
        Ok(Moved { size: at, kept })
    }

    /// Begins `RETR` at a byte; at the first one, where the server cannot restart.
    pub(crate) fn retrieve(&mut self, path: &[u8], at: &mut u64) -> Result<Wire, CopyError> {
        let argument = Argument::new(path)?;
        if *at > 0 {
            let reply = self.dialogue.ask("REST", &Argument::new(at.to_string().as_bytes())?)?;
            if reply.code != 350 {
                *at = 0;
            }
        }
        self.dialogue.data("RETR", &argument)
    }

    /// How many bytes of a part are the file's: all that are there, if the last ones are fetched again and equal.
    fn proven(&mut self, path: &[u8], root: &Root, part: &Part, kept: u64) -> Result<u64, CopyError> {
        let from = kept.saturating_sub(COMPARED);
        if kept == 0 {
            return Ok(0);
        }
        let (file, _) = root.read(&part.data).map_err(|error| local_error(&part.data, error))?;
        let equal = self.equals(path, &file, from, kept)?;
        Ok(if equal { kept } else { 0 })
    }

    /// Whether bytes `from` to `to` there are those of the file here. They are fetched over a data connection that is
    /// then closed; what the server says to that is no error.
    fn equals(&mut self, path: &[u8], file: &File, from: u64, to: u64) -> Result<bool, CopyError> {
        let mut at = from;
        let mut wire = self.retrieve(path, &mut at)?;
        let length = usize::try_from(to - from).unwrap_or(0);
        let (mut here, mut there) = (vec![0; length], vec![0; length]);
        let is_equal = at == from
            && file.read_exact_at(&mut here, from).is_ok()
            && wire.read_exact(&mut there).is_ok()
            && here == there;
        drop(wire);
        // 226 if all was sent, 426 or 451 if not.
        self.dialogue.reply()?;
        Ok(is_equal)
    }
}

/// What `MLST` says of a path. `None` if the answer cannot be read.
pub(crate) fn facts_by_mlst(dialogue: &mut Dialogue, path: &[u8]) -> Result<Option<Listed>, CopyError> {
    let reply = dialogue.command("MLST", &Argument::new(path)?, 2)?;
    let found = reply.text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b" ")).next();
    Ok(found.and_then(parse_mlsd).map(|listed| Listed { name: name_of(path).to_vec(), ..listed }))
}

/// The last component of a path; nothing, if it ends with a slash.
pub(crate) fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn local_error(path: &VirtualPath, error: FileError) -> CopyError {
    let name = String::from_utf8_lossy(&path.relative()).into_owned();
    CopyError::Local { path: name.into(), error }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest that a server wrote, in small letters.
fn digits_of(text: &[u8]) -> Option<String> {
    let is_digest = text.len() == 64 && text.iter().all(u8::is_ascii_hexdigit);
    is_digest.then(|| String::from_utf8_lossy(text).to_ascii_lowercase())
}

fn read_lines(mut wire: Wire, parse: &dyn Fn(&[u8]) -> Option<Listed>) -> std::io::Result<Vec<Listed>> {
    let mut entries = Vec::new();
    let mut rest = Vec::new();
    let mut block = vec![0; 64 << 10];
    loop {
        let read = match wire.read(&mut block) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        };
        rest.extend_from_slice(&block[..read]);
        let is_end = read == 0;
        let mut from = 0;
        while let Some(end) = rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = &rest[from..from + end];
            entries.extend(parse(line.strip_suffix(b"\r").unwrap_or(line)));
            from += end + 1;
        }
        rest.drain(..from);
        if is_end {
            entries.extend(parse(&rest));
            return Ok(entries);
        }
        if rest.len() > LONGEST_LINE || entries.len() > MOST_ENTRIES {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "the listing has no end that a listing has"));
        }
    }
}

/// The part of a file that is being fetched, and its record.
struct Part {
    data: VirtualPath,
    record: VirtualPath,
}

impl Part {
    fn of(target: &VirtualPath) -> Option<Part> {
        let digest = Sha256::digest(target.name()?);
        let name = |end: &str| {
            let name = format!("{PART}{}.{end}", hexadecimal(&digest[..8]));
            target.parent().descend(name.as_bytes())
        };
        Some(Part { data: name("data")?, record: name("version")? })
    }

    /// Bytes of the part that may be of this version: none if the record says another one.
    fn claim(&self, root: &Root, version: (Option<u64>, Option<i64>)) -> Result<u64, FileError> {
        let Some(text) = version_text(version) else { return Ok(0) };
        let mut found = String::new();
        match root.read(&self.record) {
            Ok((file, _)) => drop(file.take(1 << 10).read_to_string(&mut found)),
            Err(_) => return Ok(0),
        }
        match root.facts(&self.data) {
            Ok(facts) if found == text && Some(facts.size) <= version.0 => Ok(facts.size),
            _ => Ok(0),
        }
    }

    fn record(&self, root: &Root, version: (Option<u64>, Option<i64>)) -> Result<(), FileError> {
        let text = version_text(version).unwrap_or_default();
        let mut file = root.write(&self.record, From::Byte(0))?;
        Ok(file.write_all(text.as_bytes())?)
    }

    fn forget(&self, root: &Root) {
        let _ = (root.remove(&self.data), root.remove(&self.record));
    }
}

/// A version that can be known again: both must be there.
fn version_text((size, modified): (Option<u64>, Option<i64>)) -> Option<String> {
    Some(format!("size {} modified {}\n", size?, modified?))
}
