//! The entries of a tree, in the order in which they are sent: a directory before what is in it.

use std::sync::Arc;

use crate::files::{Entries, Kind, Root};
use crate::frame::{Entry, EntryKind};
use crate::path::{VirtualPath, matches};

/// Directories below each other; deeper ones are not entered.
pub(crate) const DEEPEST: usize = 256;

/// A walk through a tree. What cannot be read is passed over, and named in [`Walk::unread`].
pub struct Walk {
    root: Arc<Root>,
    base: VirtualPath,
    first: Option<Entry>,
    stack: Vec<(Vec<u8>, Entries)>,
    exclude: Vec<Vec<u8>>,
    /// Paths that could not be read, and why.
    pub unread: Vec<(Vec<u8>, crate::file_error::FileError)>,
}

impl Walk {
    /// Walks from `base`, which may be one file.
    pub fn new(root: Arc<Root>, base: VirtualPath) -> Result<Walk, crate::file_error::FileError> {
        let facts = root.facts(&base)?;
        let mut walk = Walk { root, base, first: None, stack: Vec::new(), exclude: Vec::new(), unread: Vec::new() };
        let kind = if facts.kind == Kind::Directory { EntryKind::Directory } else { EntryKind::File };
        if kind == EntryKind::Directory {
            walk.stack.push((Vec::new(), walk.root.entries(&walk.base)?));
        }
        walk.first = Some(Entry { path: Vec::new(), kind, mode: facts.mode & 0o777 });
        Ok(walk)
    }

    /// Leaves out what has a name that one of these patterns matches, with all below it.
    #[must_use]
    pub fn without(self, patterns: &[Vec<u8>]) -> Walk {
        Walk { exclude: patterns.to_vec(), ..self }
    }

    fn enter(&mut self, path: &[u8]) {
        let full = self.base.descend(path);
        let is_deep = self.stack.len() >= DEEPEST;
        match full.filter(|_| !is_deep).map(|full| self.root.entries(&full)) {
            Some(Ok(entries)) => self.stack.push((path.to_vec(), entries)),
            Some(Err(error)) => self.unread.push((path.to_vec(), error)),
            None => self.unread.push((path.to_vec(), crate::file_error::FileError::BadName)),
        }
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let (directory, entries) = self.stack.last_mut()?;
            let Some(next) = entries.next() else {
                self.stack.pop();
                continue;
            };
            let (name, facts) = match next {
                Ok(next) => next,
                Err(error) => {
                    let directory = directory.clone();
                    self.unread.push((directory, error));
                    self.stack.pop();
                    continue;
                }
            };
            if self.exclude.iter().any(|pattern| matches(pattern, &name)) {
                continue;
            }
            let path = if directory.is_empty() { name } else { [directory.as_slice(), b"/", &name].concat() };
            let mode = facts.mode & 0o777;
            match facts.kind {
                Kind::File => return Some(Entry { path, kind: EntryKind::File, mode }),
                Kind::Link(text) => return Some(Entry { path, kind: EntryKind::Link(text), mode }),
                Kind::Directory => {
                    self.enter(&path);
                    return Some(Entry { path, kind: EntryKind::Directory, mode });
                }
                // Devices, sockets and pipes are not copied.
                Kind::Other => {}
            }
        }
    }
}
