//! A copy between two directories, or of one file, on this machine: both machines of a session in one process, over the channel `descriptor` (rule T3).
//!
//! The source is walked once. What stands is passed over: a directory, a link with the same text, and a file whose size, mode and time are those of
//! the source, to the nanosecond. [`LocalOptions::compares`] has the session compare contents instead. All else goes to the session, with its proof, its parts and
//! its way of going on. What the session does not know is done around it:
//!
//! - **Removals come first**, because a directory may be in the way of a file. An entry goes if its name is found at the source not to be there: an
//!   entry of a directory that cannot be read stays.
//! - **Further names** of a file that was copied under another one come behind the session, and so do the times of directories, which change as files come.
//!
//! Both sides are reached below a descriptor, by rule T16. Memory does not grow with the trees, but for what [`LocalOptions::preserves`] does last.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, Stat};

use crate::attributes::{has_same_attributes, same_attributes};
use crate::change::Change;
use crate::channel::Channel;
use crate::descriptor::DescriptorStream;
use crate::file_error::FileError;
use crate::files::{Facts, Kind, Root, only_modified};
use crate::frame::{Entry, EntryKind, Failure};
use crate::path::{VirtualPath, matches};
use crate::place::{PlaceError, source_place, target_place};
use crate::rules::{CHUNK_BYTES, SessionSettings};
use crate::run::{Progress, SessionError, Summary, receive, send};
use crate::source::Sources;
use crate::store::Store;
use crate::walk::{DEEPEST, Walk};

/// What is copied, and what else happens.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// A directory, whose content is copied, or a file.
    pub from: PathBuf,
    /// Of a directory: one that is there, or that can be made. Of a file: a directory, or its new path.
    pub to: PathBuf,
    /// Whether files are on the disk before they count.
    pub is_durable: bool,
    /// Whether what is copied is hashed on its way, and the root of each file compared (rule T9).
    pub is_proven: bool,
    /// Whether files of equal size, mode and time are compared too.
    pub compares: bool,
    /// Leave files alone that are newer at the target.
    pub is_update: bool,
    /// Names that are left out, with all below them: `*` and `?` stand for others.
    pub exclude: Vec<Vec<u8>>,
    /// Remove what the source does not have.
    pub deletes: bool,
    /// Change nothing, and say what would be done.
    pub is_dry: bool,
    /// Keep hard links, extended attributes, modes of directories, and times of directories and links.
    pub preserves: bool,
}

/// Why a local copy ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A side cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The copy would copy itself, or remove its source.
    #[error("{} and {} are one, or one lies in the other: choose a target apart from the source", from.display(), to.display())]
    Within {
        /// The source.
        from: PathBuf,
        /// The target.
        to: PathBuf,
    },
    /// The session ended.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Copies. `changed` is told each change before it is made; `report` is called as files come to their end, and breaks the copy off by `false`.
///
/// # Errors
/// A side cannot be opened, or both lie in each other. Files that could not be copied are no error: [`Summary::failures`] names them.
pub fn copy_local(
    options: &LocalOptions,
    changed: &mut dyn FnMut(&Change),
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, LocalError> {
    let sides = Sides::open(options)?;
    let mut failures = Vec::new();
    if options.deletes {
        let mut removal = Removal { options, sides: &sides, changed, failures: Vec::new() };
        removal.clean(b"", 0, false);
        failures = removal.failures;
    }
    let walk = Walk::new(sides.from.0.clone(), sides.from.1.clone());
    let walk = walk.map_err(|error| file(&options.from, error))?.without(&options.exclude);
    let mut pending =
        Pending { options, sides: &sides, walk, changed, stands: 0, names: HashMap::new(), later: Later::default() };
    let mut summary = match options.is_dry {
        true => {
            while pending.next().is_some() {}
            Summary::default()
        }
        false => session(options, &sides, &mut pending, report)?,
    };
    let Pending { walk, stands, later, .. } = pending;
    summary.files += stands;
    summary.failures.extend(failures);
    summary = summary.with_unread(walk.unread);
    if !options.is_dry {
        later.finish(&sides, &mut summary);
    }
    summary.name(sides.from.1.name());
    Ok(summary)
}

fn file(path: &Path, error: FileError) -> PlaceError {
    PlaceError::File { path: path.to_owned(), error }
}

/// A directory, and what is copied below it.
type Side = (Arc<Root>, VirtualPath);

struct Sides {
    from: Side,
    to: Side,
}

impl Sides {
    fn open(options: &LocalOptions) -> Result<Sides, LocalError> {
        let LocalOptions { from, to, .. } = options;
        let (root, base) = source_place(from)?;
        // What stands there, or where it will.
        let real = |path: &Path| std::fs::canonicalize(path).map_err(|error| file(path, error.into()));
        let (there, parent) = (real(from)?, to.parent().filter(|parent| !parent.as_os_str().is_empty()));
        let parent = parent.unwrap_or(Path::new("."));
        let target = match (to.exists(), to.file_name()) {
            (false, Some(name)) => real(parent)?.join(name),
            _ => real(to)?,
        };
        let is_file = base.name().is_some();
        let removes_source = options.deletes && there.starts_with(&target);
        if target.starts_with(&there) || (!is_file && removes_source) {
            return Err(LocalError::Within { from: from.clone(), to: to.clone() });
        }
        let to_side = if let Some(name) = from.file_name().filter(|_| is_file) {
            let (root, base) = target_place(to, std::os::unix::ffi::OsStrExt::as_bytes(name))?;
            (Arc::new(root), base)
        } else if to.exists() || !options.is_dry {
            if !to.exists() {
                std::fs::create_dir(to).map_err(|error| file(to, error.into()))?;
            }
            (Arc::new(Root::open(to).map_err(|error| file(to, error))?), VirtualPath::root())
        } else {
            // Nothing is made, and nothing is there.
            let (root, base) = target_place(&target, b"")?;
            (Arc::new(root), base)
        };
        if is_file && real(from)? == target_file(&to_side, &target) {
            return Err(LocalError::Within { from: from.clone(), to: to.clone() });
        }
        Ok(Sides { from: (Arc::new(root), base), to: to_side })
    }

    fn there(&self, path: &[u8]) -> Option<(Stat, Facts)> {
        self.to.0.named(&self.to.1.descend(path)?).ok()
    }
}

/// The path of a file that goes into a directory, or over another one.
fn target_file(side: &Side, target: &Path) -> PathBuf {
    match side.1.name().filter(|_| target.is_dir()) {
        Some(name) => target.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name)),
        None => target.to_owned(),
    }
}

/// Both machines, each on a thread of its own.
fn session(
    options: &LocalOptions,
    sides: &Sides,
    pending: &mut Pending<'_>,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, LocalError> {
    let (near, far) = DescriptorStream::pair().map_err(|error| SessionError::Stream(error.into()))?;
    let (root, base) = sides.to.clone();
    let store = Store::new(root, base, CHUNK_BYTES, options.is_durable);
    let store = if options.is_proven { store } else { store.unproven() };
    let store = if options.preserves { store.preserving() } else { store };
    let receiving = std::thread::spawn(move || {
        let far: Box<dyn Channel> = Box::new(far);
        receive(vec![far], store, SessionSettings::new(1, 1), &mut |_| true)
    });
    let near: Box<dyn Channel> = Box::new(near);
    let (root, base) = sides.from.clone();
    let sent = send(vec![near], Sources::new(root, base), pending, SessionSettings::new(1, 1), report);
    // Its end is the sender's: a panic of its thread has ended the stream.
    let _ = receiving.join();
    Ok(sent?)
}

/// The entries of the source that do not stand at the target.
struct Pending<'a> {
    options: &'a LocalOptions,
    sides: &'a Sides,
    walk: Walk,
    changed: &'a mut dyn FnMut(&Change),
    stands: u64,
    /// The first name of each file that has several.
    names: HashMap<(u64, u64), Vec<u8>>,
    later: Later,
}

impl Iterator for Pending<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let entry = self.walk.next()?;
            let there = self.sides.there(&entry.path);
            let from = self.sides.from.1.descend(&entry.path).and_then(|path| self.sides.from.0.named(&path).ok());
            // Before anything else: it is neither replaced nor given a further name.
            if self.is_newer_there(&entry, from.as_ref(), there.as_ref()) {
                self.stands += 1;
                continue;
            }
            if self.options.preserves && self.is_for_later(&entry, from.as_ref(), there.as_ref()) {
                continue;
            }
            if from.zip(there).is_some_and(|(from, there)| self.stands(&entry, &from, &there)) {
                self.stands += 1;
                continue;
            }
            let file = self.sides.from.1.name().filter(|_| entry.path.is_empty());
            let path = file.map_or_else(|| entry.path.clone(), <[u8]>::to_vec);
            let is_directory = entry.kind == EntryKind::Directory;
            (self.changed)(&if is_directory { Change::Make(path) } else { Change::Copy(path) });
            return Some(entry);
        }
    }
}

impl Pending<'_> {
    fn stands(&self, entry: &Entry, (from, _): &(Stat, Facts), (there, facts): &(Stat, Facts)) -> bool {
        let time = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        match (&entry.kind, &facts.kind) {
            (EntryKind::Directory, Kind::Directory) => true,
            (EntryKind::Link(text), Kind::Link(stands)) => text == stands,
            (EntryKind::File, Kind::File) => {
                !self.options.compares
                    && from.st_size == there.st_size
                    && time(from) == time(there)
                    && (from.st_mode ^ there.st_mode) & 0o777 == 0
                    && (!self.options.preserves || self.has_same_attributes(&entry.path))
            }
            _ => false,
        }
    }

    /// Whether the target has a newer file of the name, which stays.
    fn is_newer_there(&self, entry: &Entry, from: Option<&(Stat, Facts)>, there: Option<&(Stat, Facts)>) -> bool {
        let Some(((from, _), (there, facts))) = from.zip(there) else { return false };
        let time = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        let are_files = entry.kind == EntryKind::File && matches!(facts.kind, Kind::File);
        self.options.is_update && are_files && time(there) > time(from)
    }

    fn has_same_attributes(&self, path: &[u8]) -> bool {
        let open = |(root, base): &Side| root.attributed(&base.descend(path)?).ok();
        let both = open(&self.sides.from).zip(open(&self.sides.to));
        both.is_some_and(|(from, to)| has_same_attributes(from, to).unwrap_or(false))
    }

    /// Notes what is done behind the session. True: nothing else is done for the entry.
    fn is_for_later(&mut self, entry: &Entry, from: Option<&(Stat, Facts)>, there: Option<&(Stat, Facts)>) -> bool {
        let Some((stat, facts)) = from else { return false };
        let modified = (stat.st_mtime, stat.st_mtime_nsec as u32);
        match &entry.kind {
            EntryKind::Directory => self.later.directories.push((entry.path.clone(), entry.mode, modified)),
            EntryKind::Link(_) => self.later.links.push((entry.path.clone(), modified)),
            EntryKind::File if facts.links > 1 => {
                let Some(first) = self.names.get(&facts.unique) else {
                    self.names.insert(facts.unique, entry.path.clone());
                    return false;
                };
                let stands =
                    self.sides.there(first).zip(there).is_some_and(|(one, other)| one.1.unique == other.1.unique);
                if !stands {
                    (self.changed)(&Change::Copy(entry.path.clone()));
                }
                self.later.names.push((first.clone(), entry.path.clone()));
                return true;
            }
            EntryKind::File => {}
        }
        false
    }
}

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// What is done behind the session.
#[derive(Default)]
struct Later {
    /// The first name of a file, and a further one.
    names: Vec<(Vec<u8>, Vec<u8>)>,
    links: Vec<(Vec<u8>, Time)>,
    /// With their modes.
    directories: Vec<(Vec<u8>, u32, Time)>,
}

impl Later {
    fn finish(self, sides: &Sides, summary: &mut Summary) {
        let failed: HashSet<Vec<u8>> = summary.failures.iter().map(|(path, _)| path.clone()).collect();
        let refused = |path: Vec<u8>, error: FileError| (path, Failure::Target(error.to_string()));
        for (first, path) in self.names {
            let linked = if failed.contains(&first) { Err(FileError::NotFound) } else { name(sides, &first, &path) };
            match linked {
                Ok(()) => summary.files += 1,
                Err(error) => summary.failures.push(refused(path, error)),
            }
        }
        for (path, modified) in self.links.into_iter().filter(|(path, _)| !failed.contains(path)) {
            let target = sides.to.1.descend(&path).ok_or(FileError::BadName);
            if let Err(error) = target.and_then(|target| sides.to.0.set_time(&target, modified)) {
                summary.failures.push(refused(path, error));
            }
        }
        // What is in a directory before it.
        for (path, mode, modified) in self.directories.into_iter().rev().filter(|(path, ..)| !failed.contains(path)) {
            if let Err(error) = directory(sides, &path, mode, modified) {
                summary.failures.push(refused(path, error));
            }
        }
    }
}

/// Gives a file that stands a further name.
fn name(sides: &Sides, first: &[u8], path: &[u8]) -> Result<(), FileError> {
    let (root, base) = &sides.to;
    let existing = base.descend(first).ok_or(FileError::BadName)?;
    let new = base.descend(path).ok_or(FileError::BadName)?;
    let unique = root.named(&existing)?.1.unique;
    match root.named(&new) {
        Ok((_, facts)) if facts.unique == unique => Ok(()),
        _ => root.link(&existing, &new),
    }
}

/// Gives a directory what it has at the source.
fn directory(sides: &Sides, path: &[u8], mode: u32, modified: Time) -> Result<(), FileError> {
    let open = |(root, base): &Side| root.attributed(&base.descend(path).ok_or(FileError::BadName)?);
    let (from, to) = (open(&sides.from)?, open(&sides.to)?);
    same_attributes(&from, &to)?;
    rustix::fs::fchmod(&to, Mode::from_raw_mode(mode & 0o777))?;
    Ok(rustix::fs::futimens(&to, &only_modified(modified))?)
}

/// Removes from the target what the source does not have.
struct Removal<'a> {
    options: &'a LocalOptions,
    sides: &'a Sides,
    changed: &'a mut dyn FnMut(&Change),
    failures: Vec<(Vec<u8>, Failure)>,
}

impl Removal<'_> {
    /// Removes from a directory of the target. `goes`: the source has no such directory. True: something in it stays.
    fn clean(&mut self, directory: &[u8], depth: usize, goes: bool) -> bool {
        let target = self.sides.to.1.descend(directory).filter(|_| depth < DEEPEST);
        let entries = target.ok_or(FileError::BadName).and_then(|target| match self.sides.to.0.entries(&target) {
            // A file in its place, or nothing.
            Err(FileError::NotFound | FileError::NotDirectory) if directory.is_empty() => Ok(None),
            other => other.map(Some),
        });
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.refused(directory, error),
        };
        let mut stays = false;
        for entry in entries.into_iter().flatten() {
            stays |= match entry {
                Ok((name, facts)) => self.look(directory, &name, &facts, depth, goes),
                Err(error) => self.refused(directory, error),
            };
        }
        stays
    }

    fn refused(&mut self, path: &[u8], error: FileError) -> bool {
        self.failures.push((path.to_vec(), Failure::Target(error.to_string())));
        true
    }

    /// Looks at one entry: true if it stays.
    fn look(&mut self, directory: &[u8], name: &[u8], facts: &Facts, depth: usize, goes: bool) -> bool {
        let path = if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() };
        let is_left_out = self.options.exclude.iter().any(|pattern| matches(pattern, name));
        if is_left_out || facts.kind == Kind::Other {
            return true;
        }
        let is_directory = facts.kind == Kind::Directory;
        let source = self.sides.from.1.descend(&path).map(|path| self.sides.from.0.named(&path));
        let goes = match source {
            _ if goes => true,
            Some(Ok((_, Facts { kind: Kind::Other, .. }))) => return true,
            // A file in the place of a directory, or the other way round, is in the way; a file and a link replace each other.
            Some(Ok((_, from))) => (from.kind == Kind::Directory) != is_directory,
            Some(Err(FileError::NotFound)) => true,
            _ => return true,
        };
        if is_directory && self.clean(&path, depth + 1, goes) {
            return true;
        }
        if !goes {
            return true;
        }
        let change = if is_directory { Change::RemoveDirectory(path.clone()) } else { Change::Remove(path.clone()) };
        (self.changed)(&change);
        if self.options.is_dry {
            return false;
        }
        let root = &self.sides.to.0;
        let removed = self.sides.to.1.descend(&path).ok_or(FileError::BadName).and_then(|path| match is_directory {
            true => root.remove_directory(&path),
            false => root.remove(&path),
        });
        removed.is_err_and(|error| self.refused(&path, error))
    }
}
