//! Work on files that takes no data connection. Runs on a thread that may wait for a disk.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use md5::Md5;
use sha2::Sha256;

use crate::file_work::{Digest, FileAnswer, FileWork};
use crate::listing::Form;
use crate::machine::What;
use crate::rights::Rights;
use verbena_transfer::FileError;
use verbena_transfer::VirtualPath;
use verbena_transfer::{Kind, Root};

/// Entries of a directory that `STAT` lists over the control connection.
const MOST_LINES: usize = 1000;

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Does the work. `is_cancelled` ends what takes long.
pub(crate) fn work(root: &Root, work: FileWork, is_cancelled: &AtomicBool) -> Result<FileAnswer, FileError> {
    match work {
        FileWork::Enter(path) => root.enter(&path)?,
        FileWork::Facts(path) => return Ok(FileAnswer::Facts(root.facts(&path)?)),
        FileWork::Exists(path) => root.exists(&path)?,
        FileWork::Remove(path) => root.remove(&path)?,
        FileWork::RemoveDirectory(path) => root.remove_directory(&path)?,
        FileWork::MakeDirectory(path) => root.make_directory(&path)?,
        FileWork::Rename(from, to) => root.rename(&from, &to)?,
        FileWork::SetModified(path, seconds) => root.set_modified(&path, seconds)?,
        FileWork::SetMode(path, mode) => root.set_mode(&path, mode)?,
        FileWork::Hash(Digest::Sha256, path, from, to) => return hash::<Sha256>(root, &path, from, to, is_cancelled),
        FileWork::Hash(Digest::Md5, path, from, to) => return hash::<Md5>(root, &path, from, to, is_cancelled),
        FileWork::Lines(path) => return Ok(FileAnswer::Lines(lines(root, &path)?)),
    }
    Ok(FileAnswer::Done)
}

/// Bytes of the file that this work removes, if it succeeds.
pub(crate) fn bytes_that_go(root: &Root, work: &FileWork) -> u64 {
    match work {
        FileWork::Remove(path) => crate::limits::size(root, path),
        FileWork::Rename(from, to) if from != to => crate::limits::size(root, to),
        _ => 0,
    }
}

/// A transfer, for the administrator.
pub(crate) fn words(what: &What) -> String {
    let (verb, path) = match what {
        What::Retrieve { path, .. } => ("RETR", path),
        What::Store { path, .. } => ("STOR", path),
        What::SendTree { path } => ("TPRT RETR", path),
        What::ReceiveTree { path } => ("TPRT STOR", path),
        What::List { path, .. } => ("LIST", path),
    };
    format!("{verb} {}", String::from_utf8_lossy(&path.display()))
}

fn hash<D: sha2::Digest>(
    root: &Root,
    path: &VirtualPath,
    from: u64,
    to: u64,
    is_cancelled: &AtomicBool,
) -> Result<FileAnswer, FileError> {
    let (file, facts) = root.read(path)?;
    let to = to.min(facts.size);
    if from > to {
        return Err(FileError::BehindEnd);
    }
    let mut hasher = D::new();
    let mut block = vec![0; 256 << 10];
    let mut at = from;
    while at < to {
        if is_cancelled.load(Ordering::Relaxed) {
            return Err(FileError::Cancelled);
        }
        let most = usize::try_from(to - at).map_or(block.len(), |rest| rest.min(block.len()));
        match file.read_at(&mut block[..most], at)? {
            // Cut since it was looked at.
            0 => return Err(FileError::BehindEnd),
            read => {
                hasher.update(&block[..read]);
                at += read as u64;
            }
        }
    }
    let digits = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(FileAnswer::Hash(digits, from, to))
}

fn lines(root: &Root, path: &VirtualPath) -> Result<Vec<u8>, FileError> {
    let now = now();
    let facts = root.facts(path)?;
    let mut text = Vec::new();
    let mut write = |name: &[u8], facts: &_| {
        // A line that begins with digits would end the answer.
        text.push(b' ');
        Form::Long.write(name, facts, Rights::default(), now, &mut text);
    };
    if facts.kind != Kind::Directory {
        write(path.name().unwrap_or(b"/"), &facts);
        return Ok(text);
    }
    let mut entries = root.entries(path)?;
    for entry in entries.by_ref().take(MOST_LINES) {
        let (name, facts) = entry?;
        write(&name, &facts);
    }
    if entries.next().is_some() {
        text.extend_from_slice(b" ... more: use LIST.\r\n");
    }
    Ok(text)
}
