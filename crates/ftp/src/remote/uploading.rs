//! Files to a server.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use sha2::{Digest, Sha256};

use super::{BLOCK, COMPARED, Moved, Remote, Report, hexadecimal};
use crate::client::CopyError;
use crate::dialogue::Argument;
use crate::trust::Wire;

impl Remote {
    /// Sends a file of this machine. `takes_likely` lets it go on behind what stands there if only its last bytes are
    /// known to be equal, where the server has no `HASH`.
    pub fn put(
        &mut self,
        file: &mut File,
        path: &[u8],
        takes_likely: bool,
        report: Report<'_>,
    ) -> Result<Moved, CopyError> {
        let name = || String::from_utf8_lossy(path).into_owned();
        let here = |error| CopyError::Read { name: name(), error };
        let before = file.metadata().map_err(here)?;
        let size = before.len();
        // An empty file stands if the server says so. Where there is nothing, it has to be sent.
        let found = self.size(path)?;
        let stands = found.unwrap_or(0);
        let kept = match stands {
            0 => 0,
            more if more > size => 0,
            stands if self.is_beginning(path, file, stands, takes_likely)? => stands,
            _ => 0,
        };
        if kept < size || found != Some(size) {
            self.send(file, path, kept, report, &name)?;
        }
        let after = file.metadata().map_err(here)?;
        let identity =
            |data: &std::fs::Metadata| (data.len(), data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
        let there = self.size(path)?;
        if identity(&after) != identity(&before) || there.is_some_and(|there| there != size) {
            return Err(CopyError::Changed(name()));
        }
        Ok(Moved { size, kept })
    }

    fn is_beginning(&mut self, path: &[u8], file: &File, length: u64, takes_likely: bool) -> Result<bool, CopyError> {
        if let Some(there) = self.hash_there(path, Some(length))? {
            let mut hasher = Sha256::new();
            let mut block = vec![0; BLOCK];
            let mut at = 0;
            while at < length {
                let most = usize::try_from(length - at).map_or(BLOCK, |rest| rest.min(BLOCK));
                match file.read_at(&mut block[..most], at) {
                    Ok(0) | Err(_) => return Ok(false),
                    Ok(read) => {
                        hasher.update(&block[..read]);
                        at += read as u64;
                    }
                }
            }
            return Ok(hexadecimal(&hasher.finalize()) == there);
        }
        if !takes_likely {
            return Ok(false);
        }
        self.equals(path, file, length.saturating_sub(COMPARED), length)
    }

    fn send(
        &mut self,
        file: &mut File,
        path: &[u8],
        kept: u64,
        report: Report<'_>,
        name: &dyn Fn() -> String,
    ) -> Result<(), CopyError> {
        let here = |error| CopyError::Read { name: name(), error };
        file.seek(SeekFrom::Start(kept)).map_err(here)?;
        let size = file.metadata().map_err(here)?.len();
        let mut wire = self.upload(path, kept, Some(size))?;
        let mut block = self.block();
        let mut at = kept;
        loop {
            let read = match file.read(&mut block) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(here(error)),
            };
            if let Err(error) = wire.write_all(&block[..read]) {
                drop(wire);
                // The server's reason says more: no space, no quota.
                self.dialogue.ended()?;
                return Err(self.dialogue.io(error));
            }
            self.passed(read);
            at += read as u64;
            if !report(at) {
                return Err(CopyError::Stopped);
            }
        }
        wire.finish().map_err(|error| self.dialogue.io(error))?;
        self.dialogue.ended().map(drop)
    }

    /// Begins an upload, of a file of `size` bytes of which the first `kept` stand: the data connection.
    pub(crate) fn upload(&mut self, path: &[u8], kept: u64, size: Option<u64>) -> Result<Wire, CopyError> {
        // The end of the data connection says that this is all, and so does that of a client that is killed: our own server is told how much comes.
        if self.features.sessions
            && let Some(rest) = size.and_then(|size| size.checked_sub(kept))
        {
            self.dialogue.command("ALLO", &Argument::new(rest.to_string().as_bytes())?, 2)?;
        }
        // A server that restarts downloads may not restart uploads; all append.
        self.dialogue.data(if kept == 0 { "STOR" } else { "APPE" }, &Argument::new(path)?)
    }
}
