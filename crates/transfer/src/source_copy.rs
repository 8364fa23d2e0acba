//! A source whose descriptor was handed over, and the copying from it (rule T3).
//!
//! On a file system that shares blocks (XFS, Btrfs), an empty part becomes a clone of the source at once (`FICLONE`), and each chunk is hashed as it stands
//! in the part. Elsewhere, and once the source has changed, a chunk is read, hashed and written in pieces that stay in the cache.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::file_error::FileError;
use crate::files::regular;
use crate::frame::Failure;
use crate::tree::{ChunkHasher, Hash};

/// Bytes that are read and written at once.
const PIECE: usize = 256 << 10;

/// A source that the other side has opened.
#[derive(Debug)]
pub(crate) struct SourceCopy {
    file: File,
    /// Bytes that the file was offered with.
    size: u64,
    /// Chunks that were hashed in a clone, by offset; `None`: the part is none.
    hashed: Option<HashSet<u64>>,
    is_first: bool,
}

impl SourceCopy {
    /// Takes a descriptor. Only of a regular file: others may have no end, or no place.
    pub(crate) fn new(descriptor: OwnedFd, size: u64) -> Result<SourceCopy, FileError> {
        regular(&descriptor)?;
        Ok(SourceCopy { file: File::from(descriptor), size, hashed: None, is_first: true })
    }

    /// Puts a chunk into a part. The hash is that of what stands there then; `None` if the source has ended before.
    pub(crate) fn copy(
        &mut self,
        to: &File,
        offset: u64,
        length: u64,
        is_whole_file: bool,
        write: impl Fn(&File, u64, &[u8]) -> std::io::Result<()>,
    ) -> Result<Option<Hash>, Failure> {
        if std::mem::take(&mut self.is_first) && self.clone_into(to) {
            self.hashed = Some(HashSet::new());
        }
        // What the clone has is of one moment. A chunk that is asked for again has changed since.
        let is_cloned = self.hashed.as_mut().is_some_and(|hashed| hashed.insert(offset));
        let from = if is_cloned { to } else { &self.file };
        let mut hasher = ChunkHasher::new(offset, length, is_whole_file);
        let mut piece = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let most = usize::try_from(end - at).map_or(piece.len(), |rest| rest.min(piece.len()));
            let read = match from.read_at(&mut piece[..most], at) {
                Ok(0) => return Ok(None),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Source(error.to_string())),
            };
            hasher.update(&piece[..read]);
            if !is_cloned {
                write(to, at, &piece[..read]).map_err(|error| Failure::Target(error.to_string()))?;
            }
            at += read as u64;
        }
        Ok(Some(hasher.finish()))
    }

    /// Puts a chunk into a part without reading it, where the file system copies by itself (`copy_file_range`). Holes stay holes. The hash says nothing. `None` if
    /// the source has ended before.
    pub(crate) fn copy_unproven(
        &mut self,
        to: &File,
        offset: u64,
        length: u64,
        write: impl Fn(&File, u64, &[u8]) -> std::io::Result<()>,
    ) -> Result<Option<Hash>, Failure> {
        let source = |error: Errno| Failure::Source(error.to_string());
        let target = |error: std::io::Error| Failure::Target(error.to_string());
        if std::mem::take(&mut self.is_first) && self.clone_into(to) {
            self.hashed = Some(HashSet::new());
        }
        // A chunk that is asked for again has changed since the clone was made.
        if self.hashed.as_mut().is_some_and(|copied| copied.insert(offset)) {
            return Ok(Some(Hash::default()));
        }
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data.min(end),
                // No data follows: a hole up to the end of the file.
                Err(Errno::NXIO) => rustix::fs::fstat(&self.file).map_err(source)?.st_size.max(0) as u64,
                Err(error) => return Err(source(error)),
            };
            let data = data.min(end);
            if data > at {
                hole(to, at, data, &write).map_err(target)?;
                at = data;
                continue;
            }
            let hole = match rustix::fs::seek(&self.file, SeekFrom::Hole(at)) {
                Ok(hole) => hole.min(end),
                // Cut short meanwhile.
                Err(Errno::NXIO) => return Ok(None),
                Err(error) => return Err(source(error)),
            };
            match self.copy_range(to, at, hole, &write)? {
                0 => return Ok(None),
                copied => at += copied,
            }
        }
        Ok(Some(Hash::default()))
    }

    /// Copies what it can of some bytes: how many.
    fn copy_range(
        &self,
        to: &File,
        from: u64,
        end: u64,
        write: &impl Fn(&File, u64, &[u8]) -> std::io::Result<()>,
    ) -> Result<u64, Failure> {
        let (mut read_at, mut write_at) = (from, from);
        let most = usize::try_from(end - from).unwrap_or(PIECE);
        match rustix::fs::copy_file_range(&self.file, Some(&mut read_at), to, Some(&mut write_at), most) {
            Ok(copied) => return Ok(copied as u64),
            Err(Errno::INTR) => return self.copy_range(to, from, end, write),
            // Two file systems, or one that does not have it (copy_file_range(2)).
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
            Err(error) => return Err(Failure::Target(error.to_string())),
        }
        let mut piece = vec![0; PIECE.min(most)];
        let read = self.file.read_at(&mut piece, from).map_err(|error| Failure::Source(error.to_string()))?;
        write(to, from, &piece[..read]).map_err(|error| Failure::Target(error.to_string()))?;
        Ok(read as u64)
    }

    /// The source.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Makes an empty part a clone of the source, where the file system can and nothing goes beyond what was offered.
    fn clone_into(&self, to: &File) -> bool {
        let size = |file: &File| file.metadata().map(|data| data.len());
        let fits = matches!((size(to), size(&self.file)), (Ok(0), Ok(size)) if size > 0 && size <= self.size);
        fits && rustix::fs::ioctl_ficlone(to, &self.file).is_ok()
    }
}

/// Makes a part have nothing between two places: what an earlier version of the source had there goes. The end of the part is set once it is whole.
fn hole(
    to: &File,
    from: u64,
    end: u64,
    write: &impl Fn(&File, u64, &[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let end = end.min(to.metadata()?.len());
    let mut at = from;
    while at < end {
        let length = (end - at).min(PIECE as u64);
        write(to, at, &vec![0; length as usize])?;
        at += length;
    }
    Ok(())
}
