//! Trees to and from a server that does not speak TPRT, and between two servers: both sides are listed and compared, then several connections copy
//! what differs.
//!
//! A file stands if size and time of modification are equal on both sides; copies set the time. Links and devices are
//! not copied. A link is deleted with its directory, and not otherwise. A directory stays if it holds a device, or what was
//! left out. Nothing is deleted if a part of the source could not be listed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbena_transfer::{Change, FileError, Kind, Root, VirtualPath, matches};

use crate::between::{Between, Direct};
use crate::client::{CopyError, Location};
use crate::limits::RateLimit;
use crate::listed::ListedKind;
use crate::remote::{PART, Remote};

/// The deepest tree that is walked: a server may list itself below itself.
const DEEPEST: usize = 128;

/// What is copied, and what else happens.
#[derive(Clone, Debug)]
pub struct PlainOptions {
    /// From where, and to where.
    pub sides: PlainSides,
    /// Connections that carry files at once.
    pub connections: u16,
    /// How fast bytes go, over all connections together; none: as fast as they do.
    pub limit: Option<RateLimit>,
    /// The longest silence of the server.
    pub timeout: Duration,
    /// Leave files alone that are newer where they go than where they are.
    pub is_update: bool,
    /// Names that are left out, with all below them: `*` and `?` stand for others.
    pub exclude: Vec<Vec<u8>>,
    /// Remove what the source does not have.
    pub deletes: bool,
    /// Change nothing, and say what would be done.
    pub is_dry: bool,
}

/// Two directories. One here is there already.
#[derive(Clone, Debug)]
pub enum PlainSides {
    /// From a server.
    Get(Location, PathBuf),
    /// To a server.
    Put(PathBuf, Location),
    /// From one server to another one.
    Between(Location, Location),
}

impl PlainSides {
    fn local(&self) -> Option<&PathBuf> {
        match self {
            PlainSides::Get(_, local) | PlainSides::Put(local, _) => Some(local),
            PlainSides::Between(..) => None,
        }
    }
}

/// Connections for one file at a time.
enum Ends {
    Get(Remote),
    Put(Remote),
    Between(Box<Between>),
}

impl Ends {
    fn connect(options: &PlainOptions, direct: &Arc<Direct>) -> Result<Ends, CopyError> {
        let connected = |location| -> Result<Remote, CopyError> {
            Ok(Remote::connect(location, options.timeout)?.limited(options.limit.clone()))
        };
        Ok(match &options.sides {
            PlainSides::Get(from, _) => Ends::Get(connected(from)?),
            PlainSides::Put(_, to) => Ends::Put(connected(to)?),
            PlainSides::Between(from, to) => {
                let both = Between::connect((from, to), options.limit.as_ref(), options.timeout, direct)?;
                Ends::Between(Box::new(both))
            }
        })
    }

    fn source(&mut self) -> Option<&mut Remote> {
        match self {
            Ends::Get(remote) => Some(remote),
            Ends::Put(_) => None,
            Ends::Between(both) => Some(&mut both.from),
        }
    }

    fn target(&mut self) -> Option<&mut Remote> {
        match self {
            Ends::Get(_) => None,
            Ends::Put(remote) => Some(remote),
            Ends::Between(both) => Some(&mut both.to),
        }
    }

    fn quit(self) {
        match self {
            Ends::Get(remote) | Ends::Put(remote) => remote.quit(),
            Ends::Between(both) => both.quit(),
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct PlainSummary {
    /// How bytes went from server to server.
    pub ways: Vec<String>,
    /// Files and directories that stand.
    pub entries: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// The changes, in their order: made, or to be made by a run that is not dry.
    pub changes: Vec<Change>,
    /// What does not stand, and why.
    pub failures: Vec<(Vec<u8>, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    is_directory: bool,
    size: Option<u64>,
    modified: Option<i64>,
}

/// A tree by its relative paths: a directory stands before what is below it.
type Tree = BTreeMap<Vec<u8>, Entry>;

/// What is found on one side.
#[derive(Default)]
struct Found {
    tree: Tree,
    /// Links: not copied, and not missing either.
    links: BTreeSet<Vec<u8>>,
    /// Devices, what was left out, and parts: their directories stay.
    held: BTreeSet<Vec<u8>>,
    failures: Vec<(Vec<u8>, String)>,
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn is_left_out(options: &PlainOptions, name: &[u8]) -> bool {
    options.exclude.iter().any(|pattern| matches(pattern, name))
}

/// The tree of the server. Names that could lead elsewhere are failures, and nothing below them is asked for.
fn tree_there(options: &PlainOptions, base: &[u8], is_target: bool, remote: &mut Remote) -> Result<Found, CopyError> {
    let mut found = Found::default();
    let mut open = vec![(Vec::new(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let listed = match remote.list(&path_there(base, &directory)) {
            // The target's root may not be there yet.
            Err(CopyError::Refused { .. }) if directory.is_empty() && is_target => Vec::new(),
            other => other?,
        };
        for one in listed {
            let path = joined(&directory, &one.name);
            let is_one = !one.name.contains(&b'/') && VirtualPath::root().descend(&one.name).is_some();
            let is_directory = one.kind == ListedKind::Directory;
            match one.kind {
                _ if !is_one => found.failures.push((path, "the server's name for it is no name of a file".into())),
                _ if is_left_out(options, &one.name) => drop(found.held.insert(path)),
                ListedKind::Directory if depth >= DEEPEST => {
                    found.failures.push((path, "the tree is too deep".into()));
                }
                ListedKind::Link => drop(found.links.insert(path)),
                ListedKind::Other => drop(found.held.insert(path)),
                ListedKind::File | ListedKind::Directory => {
                    if is_directory {
                        open.push((path.clone(), depth + 1));
                    }
                    found.tree.insert(path, Entry { is_directory, size: one.size, modified: one.modified });
                }
            }
        }
    }
    Ok(found)
}

/// Asks for the times that a listing does not tell, of files that have the size of their other side: others are copied
/// whatever their time is.
fn ask_times(base: &[u8], remote: &mut Remote, there: &mut Tree, here: &Tree) -> Result<(), CopyError> {
    for (path, entry) in there.iter_mut().filter(|(_, entry)| !entry.is_directory && entry.modified.is_none()) {
        if here.get(path).is_some_and(|other| !other.is_directory && other.size == entry.size) {
            entry.modified = remote.modified(&path_there(base, path))?;
        }
    }
    Ok(())
}

fn tree_here(options: &PlainOptions, root: &Root) -> Result<Found, (Vec<u8>, FileError)> {
    let mut found = Found::default();
    let mut open = vec![Vec::new()];
    while let Some(directory) = open.pop() {
        let at = |error| (directory.clone(), error);
        let path = VirtualPath::root().descend(&directory).ok_or_else(|| at(FileError::BadName))?;
        for entry in root.entries(&path).map_err(at)? {
            let (name, facts) = entry.map_err(at)?;
            let is_kept = name.starts_with(PART.as_bytes()) || is_left_out(options, &name);
            let (path, is_directory) = (joined(&directory, &name), facts.kind == Kind::Directory);
            match facts.kind {
                Kind::File | Kind::Directory if !is_kept => {}
                Kind::Link(_) if !is_kept => {
                    found.links.insert(path);
                    continue;
                }
                _ => {
                    found.held.insert(path);
                    continue;
                }
            }
            if is_directory {
                open.push(path.clone());
            }
            let size = (!is_directory).then_some(facts.size);
            found.tree.insert(path, Entry { is_directory, size, modified: Some(facts.modified) });
        }
    }
    Ok(found)
}

fn path_there(base: &[u8], relative: &[u8]) -> Vec<u8> {
    let base = base.strip_suffix(b"/").unwrap_or(base);
    match relative {
        b"" if base.is_empty() => b"/".to_vec(),
        b"" => base.to_vec(),
        relative => [base, b"/", relative].concat(),
    }
}

/// The directories above a path, the nearest first.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn parent(path: &[u8]) -> Option<&[u8]> {
        Some(&path[..path.iter().rposition(|byte| *byte == b'/')?])
    }
    std::iter::successors(parent(path), |path| parent(path))
}

/// What has to go so that the target has nothing that the source does not have: what is in a directory before it.
fn removals(from: &Found, target: &Found) -> Vec<Change> {
    let source = &from.tree;
    let staying: BTreeSet<&[u8]> = target.held.iter().flat_map(|path| above(path)).collect();
    // Where the source has a link, what stands in its place is nobody's to delete.
    let is_other = |path: &[u8]| from.links.contains(path) || from.held.contains(path);
    let goes = |(path, entry): &(&Vec<u8>, &Entry)| {
        // A file in the place of a directory, or the other way round, is in the way.
        source.get(*path).is_none_or(|wanted| wanted.is_directory != entry.is_directory)
            && !staying.contains(path.as_slice())
            && !is_other(path)
            && !above(path).any(is_other)
    };
    let going: BTreeMap<&[u8], bool> =
        target.tree.iter().filter(goes).map(|(path, entry)| (path.as_slice(), entry.is_directory)).collect();
    let goes_too = |path: &&Vec<u8>| above(path).next().is_some_and(|parent| going.contains_key(parent));
    let links = target.links.iter().filter(goes_too).map(|path| (path.as_slice(), false));
    let all: BTreeMap<&[u8], bool> = going.iter().map(|(path, kind)| (*path, *kind)).chain(links).collect();
    let change = |(path, is_directory): (&&[u8], &bool)| match is_directory {
        true => Change::RemoveDirectory(path.to_vec()),
        false => Change::Remove(path.to_vec()),
    };
    all.iter().rev().map(change).collect()
}

/// What has to change so that the target has what the source has.
fn changes(options: &PlainOptions, from: &Found, target: &Found) -> Vec<Change> {
    let deletes = options.deletes && from.failures.is_empty() && target.failures.is_empty();
    let mut changes = if deletes { removals(from, target) } else { Vec::new() };
    for (path, entry) in &from.tree {
        let stands = target.tree.get(path).filter(|stands| stands.is_directory == entry.is_directory);
        let is_right = match stands {
            None => false,
            Some(_) if entry.is_directory => true,
            Some(stands) => {
                let is_newer = stands.modified.zip(entry.modified).is_some_and(|(stands, from)| stands > from);
                let is_same = entry.size.is_some() && stands.size == entry.size;
                let is_as_old = entry.modified.is_some() && stands.modified == entry.modified;
                (options.is_update && is_newer) || (is_same && is_as_old)
            }
        };
        if !is_right {
            changes.push(if entry.is_directory { Change::Make(path.clone()) } else { Change::Copy(path.clone()) });
        }
    }
    changes
}

/// What the connections share.
struct Shared<'a> {
    options: &'a PlainOptions,
    /// This side, where one is.
    root: Option<&'a Root>,
    direct: Arc<Direct>,
    work: Mutex<Vec<Vec<u8>>>,
    came: Mutex<PlainSummary>,
}

impl Shared<'_> {
    fn came(&self) -> MutexGuard<'_, PlainSummary> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies files until none is left. A connection that broke is made anew for the next file.
    fn run(&self, mut ends: Option<Ends>) {
        loop {
            let next = self.work.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(path) = next else { break };
            let connected = match ends.take() {
                Some(ends) => Ok(ends),
                None => Ends::connect(self.options, &self.direct),
            };
            let copied = connected.and_then(|mut connection| {
                let copied = self.copy(&mut connection, &path);
                // After a refusal the connection stands; after anything else it may wait for a reply.
                let is_refused =
                    matches!(copied, Err(CopyError::Refused { .. })) && !matches!(connection, Ends::Between(_));
                if is_refused || matches!(copied, Ok(_) | Err(CopyError::Changed(_))) {
                    ends = Some(connection);
                }
                copied
            });
            if matches!(copied, Err(CopyError::NotDirect)) {
                self.work.lock().unwrap_or_else(PoisonError::into_inner).push(path);
                continue;
            }
            let mut came = self.came();
            match copied {
                Ok(bytes) => (came.entries, came.bytes) = (came.entries + 1, came.bytes + bytes),
                Err(error) => came.failures.push((path, error.of_a_file())),
            }
        }
        if let Some(ends) = ends {
            ends.quit();
        }
    }

    /// Copies one file, and gives it the time of its source: the bytes that were sent.
    fn copy(&self, ends: &mut Ends, path: &[u8]) -> Result<u64, CopyError> {
        let local = |error| CopyError::Local { path: String::from_utf8_lossy(path).into_owned().into(), error };
        let here = VirtualPath::root().descend(path).ok_or_else(|| local(FileError::BadName))?;
        let moved = match (&self.options.sides, ends, self.root) {
            (PlainSides::Get(from, _), Ends::Get(remote), Some(root)) => {
                remote.get(&path_there(&from.path, path), root, &here, &mut |_| true)?
            }
            (PlainSides::Put(_, to), Ends::Put(remote), Some(root)) => {
                let there = path_there(&to.path, path);
                let (mut file, facts) = root.read(&here).map_err(local)?;
                let moved = remote.put(&mut file, &there, false, &mut |_| true)?;
                remote.set_modified(&there, facts.modified)?;
                moved
            }
            (PlainSides::Between(from, to), Ends::Between(both), _) => {
                both.copy(&path_there(&from.path, path), &path_there(&to.path, path), &mut |_| true)?
            }
            // The connections are those of the sides.
            _ => return Err(local(FileError::NotFound)),
        };
        Ok(moved.size - moved.kept)
    }
}

/// Copies a tree over several connections.
///
/// # Errors
/// A side cannot be listed. Files that could not be copied are no error: [`PlainSummary::failures`] names them.
pub fn copy_plain(options: &PlainOptions) -> Result<PlainSummary, CopyError> {
    let root = match options.sides.local() {
        Some(local) => {
            let refused = |error| CopyError::Local { path: local.clone(), error };
            Some((Root::open(local).map_err(refused)?, local))
        }
        None => None,
    };
    let direct = Arc::new(match &options.sides {
        PlainSides::Between(from, to) => Direct::of(from, to, options.limit.as_ref()),
        PlainSides::Get(..) | PlainSides::Put(..) => Direct::default(),
    });
    let mut ends = Ends::connect(options, &direct)?;
    if let (PlainSides::Between(from, to), Ends::Between(both)) = (&options.sides, &mut ends) {
        both.check_apart(&from.path, &to.path, options.deletes)?;
    }
    let here = |root: &Option<(Root, &PathBuf)>| match root {
        Some((root, local)) => tree_here(options, root).map_err(|(path, error)| CopyError::Local {
            path: local.join(String::from_utf8_lossy(&path).as_ref()),
            error,
        }),
        None => Ok(Found::default()),
    };
    let (from, to) = match &options.sides {
        PlainSides::Get(from, _) => (Some(&from.path), None),
        PlainSides::Put(_, to) => (None, Some(&to.path)),
        PlainSides::Between(from, to) => (Some(&from.path), Some(&to.path)),
    };
    let mut source = match ends.source().zip(from) {
        Some((remote, base)) => tree_there(options, base, false, remote)?,
        None => here(&root)?,
    };
    let mut target = match ends.target().zip(to) {
        Some((remote, base)) => tree_there(options, base, true, remote)?,
        None => here(&root)?,
    };
    if let Some((remote, base)) = ends.source().zip(from) {
        ask_times(base, remote, &mut source.tree, &target.tree)?;
    }
    if let Some((remote, base)) = ends.target().zip(to) {
        ask_times(base, remote, &mut target.tree, &source.tree)?;
    }
    let changes = changes(options, &source, &target);
    let missing = changes.iter().filter(|change| matches!(change, Change::Make(_) | Change::Copy(_))).count();
    let entries = (source.tree.len() - missing) as u64;
    let mut failures = source.failures;
    failures.extend(target.failures);
    let mut summary = PlainSummary { entries, changes, failures, ..PlainSummary::default() };
    if options.is_dry {
        ends.quit();
        return Ok(summary);
    }
    if let Some((remote, base)) = ends.target().zip(to) {
        // It may be there.
        let _ = remote.make_directory(&path_there(base, b""));
    }
    let (mut work, mut unmade) = (Vec::new(), BTreeMap::<Vec<u8>, String>::new());
    for change in summary.changes.clone() {
        if let Change::Make(path) | Change::Copy(path) = &change
            && let Some(why) = above(path).find_map(|directory| unmade.get(directory))
        {
            summary.failures.push((path.clone(), why.clone()));
            continue;
        }
        let changed = match (&change, ends.target().zip(to), &root) {
            (Change::Copy(path), ..) => {
                work.push(path.clone());
                continue;
            }
            (Change::Make(path), Some((remote, base)), _) => remote.make_directory(&path_there(base, path)),
            (Change::Remove(path), Some((remote, base)), _) => remote.remove(&path_there(base, path)),
            (Change::RemoveDirectory(path), Some((remote, base)), _) => {
                remote.remove_directory(&path_there(base, path))
            }
            (change, None, Some((root, _))) => change_here(root, change),
            // One side is here, or both are servers.
            (_, None, None) => Ok(()),
        };
        match (changed, change) {
            (Ok(()), Change::Make(_)) => summary.entries += 1,
            (Ok(()), _) => {}
            (Err(error), Change::Make(path)) => {
                unmade.insert(path.clone(), error.of_a_file());
                summary.failures.push((path, error.of_a_file()));
            }
            (Err(error), Change::Remove(path) | Change::RemoveDirectory(path) | Change::Copy(path)) => {
                summary.failures.push((path, error.of_a_file()));
            }
        }
    }
    work.reverse();
    let count = usize::from(options.connections).clamp(1, 16).min(work.len().max(1));
    let root = root.as_ref().map(|(root, _)| root);
    let shared = Shared { options, root, direct: direct.clone(), work: Mutex::new(work), came: Mutex::new(summary) };
    std::thread::scope(|scope| {
        for _ in 1..count {
            scope.spawn(|| shared.run(None));
        }
        shared.run(Some(ends));
    });
    let came = shared.came.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(PlainSummary { ways: direct.ways(), ..came })
}

fn change_here(root: &Root, change: &Change) -> Result<(), CopyError> {
    let (Change::Make(path) | Change::Remove(path) | Change::RemoveDirectory(path) | Change::Copy(path)) = change;
    let local = |error| CopyError::Local { path: String::from_utf8_lossy(path).into_owned().into(), error };
    let target = VirtualPath::root().descend(path).ok_or_else(|| local(FileError::BadName))?;
    let changed = match change {
        Change::Make(_) => root.make_directory(&target),
        Change::Remove(_) => root.remove(&target),
        Change::RemoveDirectory(_) => root.remove_directory(&target),
        Change::Copy(_) => Ok(()),
    };
    changed.map_err(local)
}
