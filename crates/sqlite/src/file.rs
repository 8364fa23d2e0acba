//! A file as SQLite has it open.

use std::sync::Arc;

use parking_lot::Mutex;
use rsqlite_vfs::{
    DeviceCharacteristics, LockLevel, MemChunksFile, SectorSize, SyncOptions, VfsError, VfsErrorCode, VfsFile,
    VfsResult,
};

use crate::session::Session;
use crate::store::Connect;

pub(crate) enum File<C: Connect> {
    /// A private file of this process, gone when it is closed.
    Temporary(MemChunksFile),
    Shared {
        session: Arc<Mutex<Session<C>>>,
        name: String,
        is_database: bool,
        is_read_only: bool,
    },
}

impl<C: Connect> VfsFile for File<C> {
    fn sector_size(&self) -> SectorSize {
        SectorSize::new(512).unwrap_or(SectorSize::DEFAULT)
    }

    fn device_characteristics(&self) -> DeviceCharacteristics {
        // A put is whole or not there, bytes beside it are not touched, and the size follows them.
        let both = DeviceCharacteristics::SAFE_APPEND.union(DeviceCharacteristics::POWERSAFE_OVERWRITE);
        if matches!(self, File::Shared { .. }) { both } else { DeviceCharacteristics::NONE }
    }

    fn read(&mut self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        match self {
            File::Temporary(file) => file.read(buffer, offset),
            File::Shared { session, name, .. } => session.lock().read(name, buffer, offset),
        }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> VfsResult<()> {
        match self {
            File::Temporary(file) => file.write(bytes, offset),
            File::Shared { is_read_only: true, .. } => Err(read_only()),
            File::Shared { session, name, is_database, .. } => {
                let mut session = session.lock();
                if *is_database {
                    session.write_through(name, bytes, offset)
                } else {
                    session.write(name, bytes, offset)
                }
            }
        }
    }

    fn truncate(&mut self, size: u64) -> VfsResult<()> {
        match self {
            File::Temporary(file) => file.truncate(size),
            File::Shared { is_read_only: true, .. } => Err(read_only()),
            File::Shared { session, name, .. } => session.lock().truncate(name, size),
        }
    }

    fn sync(&mut self, options: SyncOptions) -> VfsResult<()> {
        match self {
            File::Temporary(file) => file.sync(options),
            File::Shared { session, name, .. } => session.lock().sync(name),
        }
    }

    fn size(&self) -> VfsResult<u64> {
        match self {
            File::Temporary(file) => file.size(),
            File::Shared { session, name, .. } => session.lock().size(name),
        }
    }

    fn lock(&mut self, level: LockLevel) -> VfsResult<()> {
        match self {
            File::Shared { session, is_database: true, .. } => session.lock().lock(level),
            _ => Ok(()),
        }
    }

    fn unlock(&mut self, level: LockLevel) -> VfsResult<()> {
        match self {
            File::Shared { session, is_database: true, .. } => session.lock().unlock(level),
            _ => Ok(()),
        }
    }

    fn check_reserved_lock(&self) -> VfsResult<bool> {
        match self {
            File::Shared { session, is_database: true, .. } => session.lock().is_reserved(),
            _ => Ok(false),
        }
    }
}

fn read_only() -> VfsError {
    VfsError::new(VfsErrorCode::ReadOnly, "the file is open for reading".into())
}
